//! `detour mpi latency`: exchanges between all pairs of ranks.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use link::{
    mpi::{Exchanged, Rank},
    pairs::{self, Plan},
};
use serde::{Deserialize, Serialize};
use study::network::latency::{Collector, Facts, Group, Latencies, Part, assemble, topology};

use super::net::{Library, once_failed};
use crate::{Verbosity, net, output, units};

#[derive(Args)]
pub struct Options {
    /// File for the result, for --latency, --exchange, --measured and --from
    #[arg(short, long, value_name = "FILE", value_parser = output::file())]
    output: Option<PathBuf>,
    /// Size of a message
    #[arg(long, value_name = "SIZE", default_value = "1B", value_parser = units::size)]
    size: u64,
    /// Exchanges per pair and cycle
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    exchanges: u64,
    /// Number of cycles [default: 200, or as many as fit into --duration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cycles: Option<u64>,
    /// How long to measure
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Groups of ranks, one per line: NAME: RANKS (rack1: 0-15) [default: found from the minima]
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Seed for choosing the samples that are kept in order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show the result in this file instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "size", "exchanges", "cycles", "duration", "topology", "seed", "mpi"])]
    from: Option<PathBuf>,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show every row of every table, at full width
    #[arg(short, long)]
    all: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    library: Library,
}

/// Unless the number of cycles or the duration is given.
const CYCLES: u64 = 200;
/// Readings of the clock before the measurement.
const READINGS: usize = 100_000;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    output::check([&options.output, &options.html])?;
    if let Some(path) = &options.from {
        let cannot = || format!("cannot read {}", path.display());
        let text = fs::read_to_string(path).with_context(cannot)?;
        show(options, &Latencies::parse(&text).with_context(cannot)?, Some(path))?;
        return Ok(ExitCode::SUCCESS);
    }
    once_failed(measure(options, verbosity))
}

/// What the ranks must know about each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Clock {
    host: String,
    ns_per_tick: f64,
    /// What the clock takes at least, in ticks.
    least: u64,
}

impl Clock {
    fn ps(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick * 1e3).round() as u64
    }

    /// Without what the clock takes.
    fn times(&self, ticks: &[u64]) -> Vec<u64> {
        ticks.iter().map(|ticks| self.ps(ticks.saturating_sub(self.least))).collect()
    }
}

fn measure(options: &Options, verbosity: Verbosity) -> Result<()> {
    if options.size > link::LARGEST {
        bail!("--size must be at most 1 GiB");
    }
    let mut rank = options.library.start()?;
    let ranks = rank.size();
    if ranks < 2 {
        rank.finish()?;
        bail!(
            "exchanges need at least 2 ranks, this job has {ranks}: start it with a launcher, such as `mpirun -n \
             4 detour mpi latency -o FILE`"
        );
    }
    let mut collector = Collector::new(options.seed);
    let readings = rank.timer(READINGS)?;
    let clock = Clock {
        host: recorder::machine::host(),
        ns_per_tick: rank.ns_per_tick(),
        least: readings.iter().copied().min().unwrap_or(0),
    };
    collector.add_timer(false, readings.iter().map(|&ticks| clock.ps(ticks)));
    // Before anything is measured, rank 0 finds out whether its other input is right.
    let groups = groups(options, ranks, rank.rank());
    let Some(clocks) = all_clocks(&mut rank, clock, groups.is_err())? else {
        rank.finish()?;
        groups?;
        bail!("rank 0 has failed");
    };
    let plan = Plan {
        bytes: options.size,
        exchanges: options.exchanges,
        cycles: match (options.cycles, options.duration) {
            (None, None) => Some(CYCLES),
            (cycles, _) => cycles,
        },
        duration: options.duration,
    };
    let own = rank.rank();
    let begin = Instant::now();
    let mut said = begin;
    let mut each = |cycle: u64, peer: u32, exchanged: Exchanged| {
        let (mine, theirs) = (&clocks[own as usize], &clocks[peer as usize]);
        collector.add_timer(true, exchanged.timer.iter().map(|&ticks| mine.ps(ticks)));
        // Both have the times of both; the lower rank counts them.
        if own < peer {
            let (lower, upper) = (mine.times(&exchanged.own), theirs.times(&exchanged.other));
            collector.add(cycle, [own, peer], &lower, &upper);
        }
    };
    let mut done = |cycles: u64, elapsed: Duration| {
        if own == 0 && !verbosity.quiet && said.elapsed() >= PROGRESS {
            said = Instant::now();
            let of = plan.cycles.map_or(String::new(), |all| format!(" of {all}"));
            tell!("cycle {cycles}{of}, {} s", elapsed.as_secs());
        }
    };
    let cycles = pairs::run(&mut rank, &plan, &mut each, &mut done)?;
    let measured_s = begin.elapsed().as_secs_f64();
    let mut part = collector.finish();
    if own > 0 {
        rank.send(0, &serde_json::to_vec(&part)?)?;
        return Ok(rank.finish()?);
    }
    for other in 1..ranks {
        let bytes = rank.receive(other)?;
        let other: Part = serde_json::from_slice(&bytes)
            .with_context(|| format!("no result from rank {other}: use one version of detour"))?;
        part.merge(other);
    }
    let transport = rank.version();
    rank.finish()?;
    let facts = Facts {
        timer_minimum_ns: clocks.iter().map(|clock| clock.ps(clock.least) as f64 / 1e3).collect(),
        hosts: clocks.into_iter().map(|clock| clock.host).collect(),
        transport,
        date: net::now(),
        bytes: plan.bytes,
        exchanges: plan.exchanges,
        cycles,
        measured_s,
        seed: options.seed,
        groups: groups?,
    };
    let latencies = assemble(part, facts);
    if let Some(path) = &options.output {
        let text = report::json_line(&latencies)?;
        output::save(path, |out| Ok(writeln!(out, "{text}")?))?;
    }
    show(options, &latencies, options.output.as_deref())
}

/// Those of the file, on rank 0.
fn groups(options: &Options, ranks: u32, rank: u32) -> Result<Option<Vec<Group>>> {
    let Some(path) = options.topology.as_ref().filter(|_| rank == 0) else { return Ok(None) };
    let cannot = || format!("cannot read the topology {}", path.display());
    let text = fs::read_to_string(path).with_context(cannot)?;
    topology(&text, ranks).map(Some).with_context(cannot)
}

/// The clocks of all ranks, on all; None if rank 0 has `failed`.
fn all_clocks(rank: &mut Rank, clock: Clock, failed: bool) -> Result<Option<Vec<Clock>>> {
    let wrong = "unexpected reply from a rank: use one version of detour on all nodes";
    let mut clocks = Vec::new();
    if rank.rank() > 0 {
        rank.send(0, &serde_json::to_vec(&clock)?)?;
    } else {
        clocks.push(clock);
        for other in 1..rank.size() {
            clocks.push(serde_json::from_slice(&rank.receive(other)?).context(wrong)?);
        }
        if failed {
            clocks.clear();
        }
    }
    let bytes = rank.broadcast(serde_json::to_vec(&clocks)?)?;
    let clocks: Vec<Clock> = serde_json::from_slice(&bytes).context(wrong)?;
    Ok((clocks.len() == rank.size() as usize).then_some(clocks))
}

fn show(options: &Options, latencies: &Latencies, file: Option<&Path>) -> Result<()> {
    if let Some(path) = &options.html {
        let page = report::latency_html(latencies, file, path)?;
        output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
        // As `detour report`: the page is the report.
        if !options.json {
            return Ok(());
        }
    }
    output::print(latencies, options.json, |latencies, layout| {
        report::latency(latencies, report::Options { all: options.all, ..layout })
    })
}
