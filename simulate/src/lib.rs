//! The offline side: the effect of a trace of detours on work, on a collective, on a job of millions
//! of ranks. Pure functions: no files, no clocks, no terminals.

// Exceptions: `simd`, which calls functions compiled for wider vectors, and memory advice.
#![deny(unsafe_code)]

pub mod blame;
pub mod collectives;
pub mod cycle;
pub mod event;
pub mod goal;
pub mod graph;
pub mod huge_pages;
pub mod job;
pub mod loggops;
pub mod noise;
pub mod quantum;
pub mod replay;
pub mod resample;
pub mod rounds;
mod runs;
mod simd;
pub mod skeleton;
pub mod stats;
pub mod sweep;
mod time;
pub mod waits;
pub mod whatif;
