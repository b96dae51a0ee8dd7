//! The offline side: what a trace of detours does to work. Pure: numbers in, numbers out; no files,
//! no clocks, no terminals.

#![forbid(unsafe_code)]

pub mod noise;
pub mod quantum;
