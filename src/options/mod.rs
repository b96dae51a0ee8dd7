//! Groups of options that several commands share, as requests of [`study`].

pub mod figures;
pub mod job;
pub mod job_file;
pub mod judged;
pub mod latency;
pub mod network;
pub mod noise;
pub mod placement;
pub mod shard;
pub mod skeleton;
pub mod sweep;
pub mod work;
pub mod workload;
