//! `--shard 3/64`: one shard of a simulation's runs, so that many machines can share one simulation.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use study::{
    shard::{self, Settings, Shard},
    shards::{self, Partial},
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Simulate only shard K of N of the runs (K = 1..N); `detour merge` merges the results
    #[arg(long, value_name = "K/N", value_parser = shard::parse)]
    pub shard: Option<Shard>,
    /// File for the results of the shard [default: stdout]
    #[arg(short, long, value_name = "FILE", requires = "shard")]
    pub output: Option<PathBuf>,
}

impl Options {
    pub fn write(&self, shard: Shard, settings: Settings, results: Partial) -> Result<()> {
        shards::write(self.output.as_deref(), shard, settings, results)?;
        self.output.iter().for_each(|path| crate::output::say_written(path));
        Ok(())
    }
}
