//! The offline side: what a trace of detours does to work, to a collective, to a job of millions of
//! ranks. Pure: numbers in, numbers out; no files, no clocks, no terminals.

// Only `simd` has any: the call of a function compiled for a wider machine.
#![deny(unsafe_code)]

pub mod blame;
pub mod collectives;
pub mod cycle;
pub mod event;
pub mod goal;
pub mod graph;
pub mod job;
pub mod loggops;
pub mod noise;
pub mod quantum;
pub mod replay;
pub mod resample;
mod roomy;
pub mod rounds;
mod runs;
mod simd;
pub mod stats;
pub mod sweep;
pub mod whatif;
