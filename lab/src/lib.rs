//! The laboratory behind `cargo xtask`: virtual machines with other kernels, benchmarks, validation
//! against published results, fault injection, fuzzing, a browser, a Slurm of two nodes, a cluster of two
//! whole machines. And what all tasks need: running programs ([`exec`]), where things are ([`workspace`]),
//! counting results ([`tally`]).

pub mod bench;
pub mod cluster;
mod data;
pub mod exec;
pub mod fuzz;
mod lammps;
pub mod missing;
pub mod page;
pub mod reliability;
pub mod slurm;
pub mod tally;
pub mod tools;
pub mod validate;
pub mod vm;
pub mod workspace;
