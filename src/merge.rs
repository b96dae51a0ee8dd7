//! `detour merge`: merges shards of a simulation into one result, traces of a job's nodes into one trace, or
//! the directories of an MPI run's nodes into one directory.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use report::words::plural;
use serde::Serialize;
use study::{files, run::shards};
use tokio::signal::unix::SignalKind;
use trace::{Manifest, Merge, Reader, Writer};

use crate::{Verbosity, cli, options::work::INTERRUPTED, output, signals, simulate};

pub fn run(options: &cli::Merge, verbosity: Verbosity) -> Result<ExitCode> {
    for path in &options.files {
        std::fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
    }
    let (runs, files): (Vec<_>, Vec<_>) = options.files.iter().partition(|path| path.is_dir());
    match (runs.first(), files.first()) {
        (Some(run), Some(file)) => bail!(
            "{} is a directory, {} is a file: merge either the directories of an MPI run, or files",
            run.display(),
            file.display()
        ),
        (Some(_), None) => return mpi_runs(options, verbosity),
        _ => {}
    }
    let mut shares: Vec<&PathBuf> = Vec::new();
    let mut others: Vec<&PathBuf> = Vec::new();
    for path in &options.files {
        if shards::holds_results(path)? { shares.push(path) } else { others.push(path) }
    }
    match (shares.first(), others.first()) {
        (Some(share), Some(other)) => bail!(
            "{} holds simulation results, {} does not: merge one kind at a time",
            share.display(),
            other.display()
        ),
        (Some(_), None) if options.output.is_some() => {
            bail!("simulation results are written to stdout: omit -o")
        }
        (Some(_), None) => simulate::print(&shards::merge(&options.files)?, options.json)?,
        _ => traces(options, verbosity)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Merges the directories that an MPI run has written on its nodes.
fn mpi_runs(options: &cli::Merge, verbosity: Verbosity) -> Result<ExitCode> {
    let Some(output) = &options.output else {
        bail!("requires a directory to merge into: add -o DIR");
    };
    if !verbosity.quiet {
        for left in program::leftovers(output) {
            tell!(
                "found {}: a merge was killed, or is still running; if none is running, delete it \
                 (old: the directory before the merge, new: an incomplete copy)",
                report::message_safe(&left.display().to_string())
            );
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    signals::handle(&[SignalKind::interrupt(), SignalKind::terminate()], move |_| {
        // The second Ctrl-C waits for nothing.
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    let stopped = || stop.load(Ordering::Relaxed);
    let merged = match program::merge(&options.files, output, options.force, &stopped) {
        Err(error @ program::MergeError::Stopped) => {
            tell!("detour: {error}");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        merged => merged?,
    };
    let missing = merged.ranks - merged.ranks_present;
    if options.json {
        output::put(&(report::json_text(&merged)? + "\n"))?;
    } else if !verbosity.quiet {
        let partial = if missing > 0 { " --partial" } else { "" };
        tell!(
            "wrote {}: {} of {} on {}; view with: detour mpi report{partial} {}",
            merged.output,
            merged.ranks_present,
            plural(merged.ranks.into(), "rank"),
            plural(merged.hosts.len() as u64, "host"),
            merged.output
        );
    }
    if missing > 0 && !verbosity.quiet {
        tell!("ranks still missing: {}", merged.missing);
    }
    Ok(ExitCode::SUCCESS)
}

/// A merged trace.
#[derive(Serialize)]
struct Merged {
    output: String,
    job_id: Option<String>,
    /// Host names.
    nodes: Vec<String>,
    lanes: usize,
    /// Time from the first start to the last, by the nodes' own clocks.
    start_skew_s: f64,
    /// Nodes whose recordings end early: the node was switched off, or the recorder was killed.
    incomplete: Vec<Incomplete>,
}

/// A node whose recording was cut off.
#[derive(Serialize)]
struct Incomplete {
    host: String,
    /// How long it was recorded.
    recorded_s: f64,
    why: String,
}

fn traces(options: &cli::Merge, verbosity: Verbosity) -> Result<()> {
    let open = |path: &PathBuf| Reader::open(path);
    let merge = Merge::read(&options.files, open)?;
    if !options.force {
        merge.check_nodes()?;
    }
    let path = output_path(options.output.as_deref(), merge.manifest().job_id.as_deref());
    files::not_over(&options.files, &path)?;
    if options.json && trace::is_stdout(&path) {
        bail!("both the trace and --json would go to stdout: specify a file with -o");
    }
    let incomplete = merge.cut_off().map(|(host, recorded_ns, why)| Incomplete {
        host: host.to_owned(),
        recorded_s: recorded_ns as f64 / 1e9,
        why: why.to_owned(),
    });
    let incomplete: Vec<Incomplete> = incomplete.collect();
    let cannot = || format!("cannot merge into {}", path.display());
    let _reader = trace::wait_for_reader(&path, &|| false)?;
    let mut file = trace::create_trace(&path)?;
    let writer = Writer::new(&mut file, merge.manifest()).with_context(cannot)?;
    let manifest = merge.write(open, writer).with_context(cannot)?;
    file.commit().with_context(cannot)?;
    let skew_s = skew(&manifest);
    if options.json {
        let merged = Merged {
            output: path.display().to_string(),
            lanes: manifest.lanes.len(),
            nodes: manifest.nodes.into_iter().map(|node| node.host).collect(),
            job_id: manifest.job_id,
            start_skew_s: skew_s,
            incomplete,
        };
        output::put(&(report::json_text(&merged)? + "\n"))?;
    } else if !verbosity.quiet {
        let name = path.display();
        let what = trace::nodes_or_recordings(manifest.nodes.iter().map(|node| node.host.as_str()));
        tell!(
            "wrote {name}: {}, started within {skew_s:.3} s of each other; view with: detour \
             report {name}",
            plural(manifest.nodes.len() as u64, what)
        );
        for Incomplete { host, recorded_s, why } in &incomplete {
            tell!(
                "{}: the recording ends after {recorded_s:.1} s ({}); the rest of it is missing",
                report::message_safe(host),
                report::message_safe(why)
            );
        }
    }
    Ok(())
}

fn skew(manifest: &Manifest) -> f64 {
    manifest.nodes.iter().map(|node| node.offset_ns as f64 / 1e9).fold(0.0, f64::max)
}

fn output_path(asked: Option<&Path>, job: Option<&str>) -> PathBuf {
    recorder::fill_in(asked.unwrap_or(Path::new("detour-%j.detour")), job)
}
