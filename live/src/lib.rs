//! The live view of a recording, as plain data and pure functions.
//!
//! In: what a recording hands over (manifest, sources, lanes, blocks of events) and keys. Out: cells
//! of a terminal, and on demand a trace of what is on screen. Nothing here knows a clock, a terminal,
//! a file or a kernel: [`Model`] takes events in, [`Model::snapshot`] says what there is to see,
//! [`Choices`] what the user wants to see of it, and [`draw`] puts the two on a buffer.

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
