//! What is simulated: collectives, programs, skeletons, schedules, exchanges.

pub mod alltoall;
pub mod app;
pub mod blocks;
mod choices;
pub mod collective;
pub mod cycle;
pub mod exchange;
pub mod goal;
pub mod hypotheses;
pub mod job;
pub mod replay;
pub mod schedule;
pub mod skeleton;
pub mod workload;
