//! The live view of a recording, as plain data and pure functions.
//!
//! Input: the data of a recording (manifest, sources, lanes, blocks of events) and keys. Output: terminal
//! cells, and on request a trace of what is on screen. Nothing here depends on a clock, a terminal, a
//! file or a kernel: [`Model`] consumes events, [`Model::snapshot`] holds what there is to show,
//! [`Choices`] what the user wants to see of it, and [`draw`] renders both into a buffer.

#![forbid(unsafe_code)]

mod choices;
mod draw;
mod kept;
mod keys;
mod lanes;
mod model;
mod rows;
mod snapshot;
mod window;

pub use choices::{Choices, Sort, Span};
pub use draw::{Look, draw};
pub use kept::{Written, write};
pub use keys::{Action, Key, press};
pub use model::Model;
pub use snapshot::{Cell, Cost, LaneShown, Lost, RowShown, Snapshot};
pub use window::Sum;
