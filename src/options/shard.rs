//! `--shard 3/64`: one shard of a simulation's runs, so that many machines can share one simulation.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use study::run::{
    shard::{self, Settings, Shard},
    shards::{self, Partial},
    work::Work,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Simulate only shard K of N of the runs (K = 1..N); `detour merge` merges the results
    #[arg(long, value_name = "K/N", value_parser = shard::parse, conflicts_with_all = ["svg", "html"])]
    shard: Option<Shard>,
    /// File for the results of the shard [default: stdout]
    #[arg(short, long, value_name = "FILE", requires = "shard")]
    pub output: Option<PathBuf>,
}

impl Options {
    /// If only a shard is to be simulated, does that, writes the results, and returns true.
    pub fn run(
        &self,
        work: &super::work::Options,
        quiet: bool,
        simulate: impl FnOnce(&Work<'_>, Shard) -> Result<(Settings, Partial)>,
    ) -> Result<bool> {
        let Some(shard) = self.shard else { return Ok(false) };
        let (settings, results) = work.run(quiet, |work| simulate(work, shard))?;
        shards::write(self.output.as_deref(), shard, settings, results)?;
        self.output.iter().for_each(|path| crate::output::say_written(path));
        Ok(true)
    }
}
