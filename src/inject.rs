//! `detour inject`: plays recorded detours back on this node.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Args;
use study::recording::inject::{Played, Request, plan};
use tokio::signal::unix::SignalKind;

use crate::{Verbosity, output, signals, units};

#[derive(Args)]
pub struct Options {
    /// Recording, or another tool's noise file
    recording: PathBuf,
    /// CPUs to play on (1,3-5): the recorded CPUs in their order [default: the same CPUs as recorded]
    #[arg(short, long, value_parser = units::cpus)]
    cpus: Option<recorder::CpuSet>,
    /// Only what this source took: a name, unit, class or process; may be repeated
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// How long to play; the recording is repeated if it is shorter [default: once]
    #[arg(short, long, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Leave out shorter detours: waking a thread takes about as long
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = units::duration)]
    shortest: Duration,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let request = Request {
        file: options.recording.clone(),
        sources: options.source.clone(),
        cpus: options.cpus.as_ref().map(|cpus| cpus.iter().copied().collect()),
        shortest_ns: options.shortest.as_nanos() as u64,
    };
    let plan = plan(&request)?;
    let duration_ns = options.duration.map_or(plan.span_ns, |time| time.as_nanos() as u64);
    let tracks = plan.tracks.iter().map(|track| recorder::inject::Track {
        cpu: track.cpu,
        detours: track.detours.clone(),
        span_ns: track.span_ns,
    });
    let start = Instant::now();
    let injection = recorder::inject::Injection::start(tracks.collect(), duration_ns)?;
    let stop = injection.stopper();
    signals::handle(&[SignalKind::interrupt(), SignalKind::terminate()], move |_| stop())?;
    if !verbosity.quiet && !options.json {
        let seconds = Duration::from_nanos(duration_ns).as_secs_f64();
        tell!("playing for {seconds:.1} s (Ctrl-C ends it)");
    }
    let played = injection.join();
    let played = played.into_iter().map(|played| Played {
        detours: played.detours,
        wanted_ns: played.wanted_ns,
        taken_ns: played.taken_ns,
        late_ns: played.late_ns,
        real_time: played.real_time,
    });
    let injected = plan.played(&request, start.elapsed().as_secs_f64(), played.collect());
    output::print(&injected, options.json, report::injected)?;
    if options.json {
        output::remark(&injected.remarks);
    }
    Ok(ExitCode::SUCCESS)
}
