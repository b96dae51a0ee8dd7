//! `detour record`: turns options into a recording, shows a progress bar, and prints where the trace
//! is.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[cfg(target_os = "linux")]
use {
    crate::{options::work::INTERRUPTED, signals},
    std::sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result};
use serde::Serialize;
use study::{
    noise::support::Needed,
    recording::longest::{at, longest},
};

use crate::{Verbosity, cli, output};

pub fn run(options: cli::Record, verbosity: Verbosity) -> Result<ExitCode> {
    options.refuse_what_programs_lack();
    options.refuse_what_cannot_happen();
    let json = options.json;
    let quiet = verbosity.quiet;
    let command = options.run.clone();
    let needed = needed(&options)?;
    if let Some(needed) = needed.filter(|_| !quiet) {
        tell!("{}; recording for {} s", needed.words(), needed.recorded_s);
    }
    let mut options = to_options(options);
    if let Some(needed) = needed {
        options.duration = Some(std::time::Duration::from_secs(needed.recorded_s));
    }
    if json && trace::is_stdout(&options.output) {
        anyhow::bail!("both the recording and --json would go to stdout: specify a file with -o");
    }
    let mut outcome = match perform(&options, verbosity) {
        Ok(outcome) => outcome,
        Err(error) => return cannot(error),
    };
    outcome.for_ranks = needed;
    for remark in &outcome.remarks {
        tell!("detour: {remark}");
    }
    if verbosity.verbose {
        say_settings(&outcome.manifest);
    }
    if json {
        output::put(&(report::json_text(&outcome)? + "\n"))?;
    } else if !quiet {
        let name = outcome.output.display();
        match trace::is_stream(&outcome.output) {
            true => tell!("wrote {} to {name}", size(outcome.bytes)),
            false => {
                tell!("wrote {name} ({}); view with: detour report {name}", size(outcome.bytes))
            }
        }
    }
    if let Some(error) = outcome.write_error {
        anyhow::bail!("the recording is incomplete: {error}");
    }
    if let Some(until) = &outcome.until {
        stopped(until, &outcome.output, command.as_deref(), quiet || json)?;
    }
    Ok(match outcome.exit_code {
        Some(code) => ExitCode::from(code.clamp(0, 255) as u8),
        None => ExitCode::SUCCESS,
    })
}

/// How long to record for `--for-ranks`: the longest recording is that of a year.
#[cfg(target_os = "linux")]
fn needed(options: &cli::Record) -> Result<Option<Needed>> {
    const MOST_S: u64 = 366 * 86_400;
    let Some(ranks) = options.for_ranks else { return Ok(None) };
    let usable = recorder::machine::allowed();
    let own = options.housekeeping.clone().unwrap_or_default();
    let cpus = options.cpus.as_ref().map_or_else(|| usable.difference(&own).count(), |c| c.len());
    let needed = Needed::new(ranks, cpus, options.interval)?;
    if needed.recorded_s > MOST_S {
        anyhow::bail!(
            "{}, more than a year: record more CPUs, merge the recordings of several nodes \
             (`detour merge`), or predict rarer detours with `detour tail`",
            needed.words()
        );
    }
    Ok(Some(needed))
}

#[cfg(not(target_os = "linux"))]
fn needed(_options: &cli::Record) -> Result<Option<Needed>> {
    Ok(None)
}

/// Runs the command, shows the longest detours, and ends with what happened.
fn stopped(until: &Until, output: &Path, command: Option<&OsStr>, quiet: bool) -> Result<()> {
    if let Some(command) = command.filter(|_| until.met) {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.arg("-c").arg(command).env("DETOUR_TRACE", output);
        let status = shell.status().context("cannot run /bin/sh")?;
        if !status.success() {
            tell!("detour: the --run command failed: {status}");
        }
    }
    let reader = match trace::is_stream(output) {
        true => None,
        false => Some(study::recording::open::open(output)?),
    };
    if let Some(reader) = reader.as_ref().filter(|_| !quiet) {
        let longest = longest(reader, 10)?;
        // Standard output is the recorded command's.
        tell!("{}", report::longest(&longest, output::layout(false)));
    }
    let condition = report::message_safe(&until.condition);
    let (Some(at_s), Some(length_ns)) = (until.at_s, until.length_ns) else {
        let not_run = command.map_or("", |_| ": the --run command was not run");
        tell!("{condition} did not occur{not_run}");
        return Ok(());
    };
    let at = match (&reader, until.place) {
        (Some(reader), Some((lane, start_ns))) => at(reader, lane, start_ns)?,
        _ => None,
    };
    let words = match at {
        Some(detour) => report::happened(&detour, until.waited_for.as_deref()),
        None => format!("{} at {at_s:.6} s", report::words::time(length_ns as f64)),
    };
    tell!("{condition} occurred: {words}");
    Ok(())
}

/// If the command cannot be run, exits with the status a shell would use; other errors are failures.
fn cannot(error: anyhow::Error) -> Result<ExitCode> {
    #[cfg(target_os = "linux")]
    if let Some(recorder::RecordError::Stopped) = error.downcast_ref() {
        tell!("detour: {error:#}");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    #[cfg(target_os = "linux")]
    if let Some(code) = error
        .downcast_ref::<recorder::RecordError>()
        .and_then(recorder::RecordError::command_exit_code)
    {
        tell!("detour: {}", report::message_safe(&study::error::in_words(&error)));
        return Ok(ExitCode::from(code));
    }
    Err(error)
}

/// Prints the settings of a recording.
fn say_settings(manifest: &trace::Manifest) {
    let isolation = &manifest.isolation;
    if !isolation.measured.is_empty() {
        tell!("measured CPUs {}", isolation.measured);
    }
    if !isolation.housekeeping.is_empty() {
        tell!("recorder threads on CPUs {}", isolation.housekeeping);
    }
    for cpu in manifest.cpus.iter().filter(|cpu| cpu.t_min_ns > 0.0) {
        let (t_min, threshold) = (cpu.t_min_ns, cpu.threshold_ns);
        let resolution = report::words::frequency(cpu.resolution_hz().unwrap_or(0.0));
        tell!(
            "CPU {}: t_min {t_min:.1} ns, resolution 1/(2 t_min) {resolution}, threshold {threshold:.0} ns",
            cpu.cpu
        );
    }
    tell!("attached hooks: {}", manifest.hooks_attached.join(", "));
    for missing in &manifest.hooks_missing {
        tell!("hook {} not attached ({}): {}", missing.hook, missing.why, missing.lost);
    }
}

/// The outcome of a recording, as far as the command line needs it.
#[derive(Serialize)]
pub struct RecordResult {
    #[serde(serialize_with = "path")]
    pub output: PathBuf,
    pub bytes: u64,
    /// Of the recorded command.
    pub exit_code: Option<i32>,
    pub remarks: Vec<String>,
    pub lost: trace::Lost,
    /// Why the trace is incomplete.
    pub write_error: Option<String>,
    /// Whether what ends the recording happened. Null without `--until`.
    pub until: Option<Until>,
    /// How long a projection to these ranks needs. Null without `--for-ranks`.
    pub for_ranks: Option<Needed>,
    #[serde(skip)]
    pub manifest: trace::Manifest,
}

/// What ended a recording.
#[derive(Serialize)]
pub struct Until {
    /// What was waited for.
    pub condition: String,
    pub met: bool,
    /// Since the start of the recording.
    pub at_s: Option<f64>,
    pub length_ns: Option<u64>,
    /// The lane, and when by its clock.
    #[serde(skip)]
    pub place: Option<(trace::LaneId, u64)>,
    /// The process or source.
    #[serde(skip)]
    pub waited_for: Option<String>,
}

/// Names need not be UTF-8.
fn path<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

#[cfg(target_os = "linux")]
pub fn perform(options: &recorder::Options, verbosity: Verbosity) -> Result<RecordResult> {
    let stop = Arc::new(AtomicBool::new(false));
    let end_command = Arc::new(AtomicBool::new(false));
    take_signals(&stop, &end_command)?;
    let bar = progress_bar(options, verbosity);
    let progress = |passed: std::time::Duration| bar.set_position(passed.as_millis() as u64);
    let watch =
        recorder::Watch { stop: &stop, end_command: &end_command, progress: &progress, feed: None };
    let outcome = recorder::record(options, &watch);
    bar.finish_and_clear();
    let mut outcome = outcome?;
    outcome.remarks.extend(report::losses(&outcome.lost));
    Ok(RecordResult {
        output: outcome.output,
        bytes: outcome.bytes,
        exit_code: outcome.exit_code,
        remarks: outcome.remarks,
        write_error: outcome.write_error,
        lost: outcome.lost,
        until: options.until.as_ref().map(|until| Until {
            condition: until.condition.to_string(),
            place: outcome.met.map(|met| (met.lane, met.start_ns)),
            met: outcome.met.is_some(),
            at_s: outcome.met.map(|met| met.start_ns as f64 / 1e9),
            length_ns: outcome.met.map(|met| met.len_ns),
            waited_for: match &until.condition.trigger {
                recorder::Trigger::Detour => None,
                recorder::Trigger::Source(name) | recorder::Trigger::Process(name) => {
                    Some(name.clone())
                }
            },
        }),
        for_ranks: None,
        manifest: outcome.manifest,
    })
}

/// Handles signals that end a recording properly, with its trailer, and signals that do not affect it. Any
/// other would lose the data not yet written.
#[cfg(target_os = "linux")]
pub fn take_signals(stop: &Arc<AtomicBool>, end_command: &Arc<AtomicBool>) -> Result<()> {
    use std::sync::atomic::Ordering;
    use tokio::signal::unix::SignalKind;

    const XCPU: SignalKind = SignalKind::from_raw(24);
    const XFSZ: SignalKind = SignalKind::from_raw(25);
    /// SIGSTKFLT, SIGVTALRM, SIGPROF and SIGPWR on x86-64 and arm64.
    const RARE: [i32; 4] = [16, 26, 27, 30];
    let terminal = [SignalKind::interrupt(), SignalKind::quit()];
    let mut ending = [&terminal[..], &[SignalKind::terminate(), XCPU]].concat();
    // Timers that survive exec, power failures, what a script may send: all of them would kill it. What is
    // ignored stays ignored, as SIGHUP under nohup(1).
    let sent = [SignalKind::hangup(), SignalKind::alarm(), SignalKind::io()];
    let rare = RARE.into_iter().chain(recorder::machine::real_time_signals());
    let rare = rare.map(SignalKind::from_raw);
    let heeded = |kind: &SignalKind| !recorder::machine::ignores_signal(kind.as_raw_value());
    ending.extend(sent.into_iter().chain(rare).filter(heeded));
    // Batch systems send SIGUSR1 or SIGUSR2 before a job's time limit. Exceeding the file size limit fails
    // the write, as on a full disk. A no-op handler, since the recorded command would inherit SIG_IGN.
    let ignored = [SignalKind::user_defined1(), SignalKind::user_defined2(), XFSZ];
    let kinds: Vec<SignalKind> = ending.iter().copied().chain(ignored).collect();
    let (stop, end_command) = (Arc::clone(stop), Arc::clone(end_command));
    let recording = std::thread::current();
    signals::handle(&kinds, move |kind| {
        if !ending.contains(&kind) {
            return;
        }
        // Signals from the terminal reach the command as well; those from `kill` do not.
        if !terminal.contains(&kind) && kind != XCPU {
            end_command.store(true, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        recording.unpark();
    })
}

#[cfg(not(target_os = "linux"))]
pub fn perform(_options: &recorder::Options, _verbosity: Verbosity) -> Result<RecordResult> {
    anyhow::bail!(
        "recording requires Linux; all other commands work on this system (try `detour demo`, \
         which uses a bundled recording)"
    )
}

/// Shown only if stderr is a terminal and no recorded command writes to it.
#[cfg(target_os = "linux")]
fn progress_bar(options: &recorder::Options, verbosity: Verbosity) -> indicatif::ProgressBar {
    use std::io::IsTerminal;
    let command = matches!(options.program, Some(recorder::ProgramOption::Command(_)));
    if verbosity.quiet || command || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    match options.duration {
        Some(duration) => {
            let bar = indicatif::ProgressBar::new(duration.as_millis() as u64);
            let style = indicatif::ProgressStyle::with_template("recording {wide_bar} {elapsed}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        }
        None => indicatif::ProgressBar::new_spinner().with_message("recording (Ctrl-C to stop)"),
    }
}

fn to_options(options: cli::Record) -> recorder::Options {
    let program = if !options.pid.is_empty() {
        Some(recorder::ProgramOption::Pids(options.pid))
    } else if let Some(path) = options.cgroup {
        Some(recorder::ProgramOption::Cgroup(path))
    } else if !options.command.is_empty() {
        Some(recorder::ProgramOption::Command(options.command))
    } else {
        None
    };
    // A program ends by itself, and what is waited for happens; a node does not end.
    let ends = program.is_some() || options.until.is_some();
    let duration = options.duration.or_else(|| (!ends).then(|| std::time::Duration::from_secs(10)));
    let output = recorder::output_name(options.output.as_deref());
    recorder::Options {
        duration,
        cpus: options.cpus,
        housekeeping: options.housekeeping,
        threshold: options.threshold.unwrap_or_default(),
        stdout_is_taken: options.json || trace::is_stdout(&output),
        output,
        force: options.force,
        ring_bytes: options.buffer,
        no_bpf: options.no_bpf,
        no_probe: options.no_probe,
        fifo: options.fifo,
        program,
        align: options.align,
        command_line: recorder::command_line(),
        kernel_addresses: options.kernel_addresses,
        give_up_privileges: true,
        audit: false,
        until: options.until.map(|condition| recorder::Until { condition, keep: options.keep }),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
