//! `detour record`: turns options into a recording, shows a progress bar, and prints where the trace
//! is.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[cfg(target_os = "linux")]
use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Result;

use crate::{Verbosity, cli};

pub fn run(options: cli::Record, verbosity: Verbosity) -> Result<ExitCode> {
    options.refuse_what_programs_lack();
    let json = options.json;
    let quiet = verbosity.quiet;
    let options = to_options(options);
    if json && trace::is_stdout(&options.output) {
        anyhow::bail!("both the recording and --json would go to stdout: specify a file with -o");
    }
    let outcome = match perform(&options, verbosity) {
        Ok(outcome) => outcome,
        Err(error) => return cannot(error),
    };
    for remark in &outcome.remarks {
        tell!("detour: {remark}");
    }
    if verbosity.verbose {
        say_settings(&outcome.manifest);
    }
    if json {
        let said = serde_json::json!({
            "output": outcome.output.display().to_string(),
            "bytes": outcome.bytes,
            "exit_code": outcome.exit_code,
            "remarks": outcome.remarks,
            "lost": outcome.lost,
            "write_error": outcome.write_error,
        });
        writeln!(std::io::stdout(), "{said:#}")?;
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
    Ok(match outcome.exit_code {
        Some(code) => ExitCode::from(code.clamp(0, 255) as u8),
        None => ExitCode::SUCCESS,
    })
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
        tell!("detour: {}", report::message_safe(&crate::in_words(&error)));
        return Ok(ExitCode::from(code));
    }
    Err(error)
}

/// Exit code of a recording interrupted before it started.
#[cfg(target_os = "linux")]
const INTERRUPTED: u8 = 130;

/// The command line, as stored in a recording.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
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
pub struct Outcome {
    pub output: PathBuf,
    pub bytes: u64,
    pub exit_code: Option<i32>,
    pub remarks: Vec<String>,
    pub write_error: Option<String>,
    pub lost: trace::Lost,
    pub manifest: trace::Manifest,
}

/// Losses of a recording, and how to avoid them.
fn said_of_losses(lost: &trace::Lost) -> Vec<String> {
    use report::words::{plural, time};
    let mut said = Vec::new();
    if lost.records > 0 {
        said.push(format!(
            "{} lost: ring buffer full ({} of kernel time); increase --buffer",
            plural(lost.records, "record"),
            time(lost.records_ns as f64)
        ));
    }
    if lost.detours > 0 {
        said.push(format!(
            "{} lost: probe buffer full; increase the threshold (-T)",
            plural(lost.detours, "detour")
        ));
    }
    if lost.unwritten > 0 {
        said.push(format!("{} not written", plural(lost.unwritten, "event")));
    }
    said
}

#[cfg(target_os = "linux")]
pub fn perform(options: &recorder::Options, verbosity: Verbosity) -> Result<Outcome> {
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
    outcome.remarks.extend(said_of_losses(&outcome.lost));
    Ok(Outcome {
        output: outcome.output,
        bytes: outcome.bytes,
        exit_code: outcome.exit_code,
        remarks: outcome.remarks,
        write_error: outcome.write_error,
        lost: outcome.lost,
        manifest: outcome.manifest,
    })
}

/// Handles signals that end a recording properly, with its trailer, and signals that do not affect it. Any
/// other would lose the data not yet written.
#[cfg(target_os = "linux")]
fn take_signals(stop: &Arc<AtomicBool>, end_command: &Arc<AtomicBool>) -> Result<()> {
    use signal_hook::consts::{
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
    };
    let register = |signal, flag: &Arc<AtomicBool>| {
        signal_hook::flag::register(signal, Arc::clone(flag)).map(drop)
    };
    for signal in [SIGINT, SIGTERM, SIGQUIT, SIGXCPU] {
        register(signal, stop)?;
    }
    // Signals from the terminal reach the command as well; those from `kill` do not.
    register(SIGTERM, end_command)?;
    // Under nohup(1), SIGHUP stays ignored.
    if !recorder::machine::ignores_signal(SIGHUP) {
        register(SIGHUP, stop)?;
        register(SIGHUP, end_command)?;
    }
    // Batch systems send SIGUSR1 or SIGUSR2 before a job's time limit. Exceeding the file size limit fails
    // the write, as on a full disk. A no-op handler, since the recorded command would inherit SIG_IGN.
    let nothing = Arc::new(AtomicBool::new(false));
    for signal in [SIGUSR1, SIGUSR2, SIGXFSZ] {
        register(signal, &nothing)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub fn perform(_options: &recorder::Options, _verbosity: Verbosity) -> Result<Outcome> {
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
    // A program ends by itself; a node does not.
    let duration =
        options.duration.or_else(|| program.is_none().then(|| std::time::Duration::from_secs(10)));
    let output = output_name(options.output.as_deref());
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
        command_line: command_line(),
        kernel_addresses: options.kernel_addresses,
        give_up_privileges: true,
    }
}

/// Expands host, job, rank and time.
pub fn output_name(asked: Option<&Path>) -> PathBuf {
    let job = job();
    let usual = match job {
        // One recorder per node, all in the same directory.
        Some(_) => "detour-%j-%h-%r-%t.detour",
        None => "detour-%h-%t.detour",
    };
    fill_in(asked.unwrap_or(Path::new(usual)), job.as_deref())
}

/// The same with an explicit job.
pub fn fill_in(template: &Path, job: Option<&str>) -> PathBuf {
    let mut name = OsString::new();
    // Names need not be UTF-8; other bytes are kept as they are.
    for chunk in pieces(template.as_os_str()) {
        match chunk.to_str() {
            Some("%h") => name.push(host()),
            Some("%j") => name.push(part_of_name(job.unwrap_or("nojob"))),
            Some("%r") => name.push(rank()),
            Some("%t") => name.push(utc_stamp()),
            Some("%%") => name.push("%"),
            _ => name.push(chunk),
        }
    }
    PathBuf::from(name)
}

/// Splits the template before each percent sign and after the character that follows it.
#[cfg(unix)]
fn pieces(template: &OsStr) -> Vec<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    let (mut pieces, mut rest) = (Vec::new(), template.as_bytes());
    while !rest.is_empty() {
        let length = match rest.iter().position(|&byte| byte == b'%') {
            Some(0) => 2,
            Some(at) => at,
            None => rest.len(),
        };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(OsStr::from_bytes(piece));
        rest = after;
    }
    pieces
}

/// Recording is not supported on this platform.
#[cfg(not(unix))]
fn pieces(template: &OsStr) -> Vec<&OsStr> {
    vec![template]
}

/// A name from the environment must not lead into another directory.
fn part_of_name(text: &str) -> String {
    text.replace(['/', '\0'], "_")
}

fn host() -> String {
    #[cfg(target_os = "linux")]
    return part_of_name(&recorder::machine::host());
    #[cfg(not(target_os = "linux"))]
    return "host".to_owned();
}

fn job() -> Option<String> {
    #[cfg(target_os = "linux")]
    return recorder::machine::job_id();
    #[cfg(not(target_os = "linux"))]
    return None;
}

fn rank() -> String {
    #[cfg(target_os = "linux")]
    return part_of_name(&recorder::machine::rank().unwrap_or("0".to_owned()));
    #[cfg(not(target_os = "linux"))]
    return "0".to_owned();
}

/// The time as 20260131-235959, UTC.
fn utc_stamp() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |d| d.as_secs());
    let [year, month, day, hour, minute, second] = report::words::utc(seconds as i64);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_percent_signs_stay() {
        let name = output_name(Some(Path::new("a%x%%b%")));
        assert_eq!(name, PathBuf::from("a%x%b%"));
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_not_text_are_filled_in_too() {
        use std::os::unix::ffi::OsStrExt;
        let name = fill_in(Path::new(OsStr::from_bytes(b"\xff-%j-%\xfe%")), Some("7"));
        assert_eq!(name.as_os_str().as_bytes(), b"\xff-7-%\xfe%");
    }

    #[test]
    fn losses_are_said_with_what_helps() {
        assert!(said_of_losses(&trace::Lost::default()).is_empty());
        let lost = trace::Lost {
            records: 181_000,
            records_ns: 754_000_000,
            unwritten: 3,
            ..trace::Lost::default()
        };
        let said = [
            "181k records lost: ring buffer full (754 ms of kernel time); increase --buffer",
            "3 events not written",
        ];
        assert_eq!(said_of_losses(&lost), said);
    }

    #[test]
    fn a_job_cannot_lead_out_of_the_directory() {
        let name = fill_in(Path::new("detour-%j"), Some("../../etc/7"));
        assert_eq!(name, PathBuf::from("detour-.._.._etc_7"));
    }
}
