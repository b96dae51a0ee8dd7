//! The trace file: its contents ([`model`], [`manifest`]), how it is written and read, and how other
//! tools' files become traces and traces become other tools' files.

#![forbid(unsafe_code)]

pub mod manifest;
pub mod model;

pub use manifest::*;
pub use model::*;
