//! The offline side: what a trace of detours does to work, to a collective, to a job of millions of
//! ranks. Pure: numbers in, numbers out; no files, no clocks, no terminals.

#![forbid(unsafe_code)]

pub mod collectives;
pub mod loggops;
pub mod noise;
pub mod quantum;
