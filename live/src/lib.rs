//! The live view of a recording, as plain data and pure functions.
//!
//! Input: the data of a recording (manifest, sources, lanes, blocks of events) and keys. Output: a picture
//! for the terminal, and on request a trace of what is on screen. Nothing here depends on a clock, a
//! terminal, a file or a kernel: [`Model`] consumes events, [`Model::snapshot`] holds what there is to
//! show, [`Choices`] what the user wants to see of it, and [`draw`] turns both into a [`Picture`].

#![forbid(unsafe_code)]

mod choices;
mod draw;
mod kept;
mod keys;
mod lanes;
mod model;
mod picture;
mod rows;
mod snapshot;
mod window;

pub use analysis::By;
pub use choices::{Choices, RowShown, Sort, Span};
pub use draw::{Look, draw};
pub use kept::{Written, write};
pub use keys::{Action, Key, press};
pub use model::Model;
pub use picture::{Area, Colour, Glyph, Picture, Style};
pub use snapshot::{Cost, LaneShown, Longest, Lost, Snapshot, SourceShown};
pub use window::Sum;
