//! Noise files of other tools. A format is one file: [`import`] recognises and reads it, [`export`] writes
//! it. Recording needs none of this.

#![forbid(unsafe_code)]

pub mod export;
pub mod import;
