//! `detour doctor --isolation`: what interrupts CPUs that are meant to be quiet.

use std::{
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use study::{
    decide::{
        advice::Advice,
        isolation::{Facts, TickNeed, audit, busy_pct, cpu_times},
    },
    recording::{open, summary::summarise},
};

use crate::{cli, options::work::INTERRUPTED, output, record};

pub fn run(options: &cli::Doctor) -> Result<ExitCode> {
    let root = Path::new("/");
    let mut facts = Facts::read(root);
    let audited = options.cpus.clone().unwrap_or_else(|| facts.meant_to_be_quiet(root));
    if audited.is_empty() {
        bail!(
            "no CPU is isolated: choose the CPUs to audit with -c, or boot with isolcpus= and nohz_full="
        );
    }
    let directory = Private::create()?;
    let recording = directory.0.join("audit.detour");
    let before = cpu_times(root);
    let (stop, end_command) = (Arc::new(AtomicBool::new(false)), Arc::default());
    record::take_signals(&stop, &end_command)?;
    let recorded = recorder::record(
        &recorder::Options {
            duration: Some(options.duration),
            cpus: Some(audited.clone()),
            output: recording.clone(),
            command_line: recorder::command_line(),
            audit: true,
            ..recorder::Options::default()
        },
        &recorder::Watch { stop: &stop, end_command: &end_command, progress: &|_| (), feed: None },
    )?;
    if stop.load(Ordering::Relaxed) {
        tell!("detour: interrupted: no verdict");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if recorded.manifest.mode != trace::Mode::Attributed {
        bail!("an audit needs kernel records: {}", recorded.remarks.join("; "));
    }
    facts.busy_pct = busy_pct(&before, &cpu_times(root));
    for (cpu, counts) in recorded.tick_stops {
        // The first count is of successes.
        let needs = TickNeed::ALL.into_iter().zip(counts.into_iter().skip(1));
        facts.tick_needs.insert(cpu, needs.collect());
    }
    let reader = open::open(&recording)?;
    let summary = summarise(&reader).0;
    let mut result = audit(&reader, &summary, &audited, &facts, &Advice::built_in()?)?;
    result.remarks.extend(recorded.remarks);
    output::print(&result, options.json, report::isolation)?;
    Ok(if result.quiet { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A directory that only this user can read, and that is removed at the end.
struct Private(std::path::PathBuf);

impl Private {
    fn create() -> Result<Private> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("detour-audit-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Private(path))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
