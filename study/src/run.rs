//! How it is simulated: seed, threads and memory, shards of the runs, and points that are finished.

pub mod point;
pub mod resume;
pub mod shard;
pub mod shards;
pub mod work;
