//! However a recording ends, what was written is readable and nothing is left behind.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use trace::Reader;

use crate::{
    reliability,
    support::{Needs, Recording, Scratch, Test, detour, monotonic_ns, patience, report, text},
};

pub const TESTS: &[Test] = &[
    (
        "a_killed_recorder_leaves_a_readable_file_and_no_programs",
        Needs::Root,
        a_killed_recorder_leaves_a_readable_file_and_no_programs,
    ),
    (
        "faults::a_full_disk_ends_in_an_error_and_a_readable_file",
        Needs::Root,
        a_full_disk_ends_in_an_error_and_a_readable_file,
    ),
    ("ctrl_c_ends_a_whole_recording_with_exit_code_0", Needs::Nothing, ctrl_c_ends_a_recording),
    (
        "signals_end_a_recording_with_its_trailer_or_leave_it_alone",
        Needs::Nothing,
        signals_end_a_recording_with_its_trailer_or_leave_it_alone,
    ),
    (
        "hanging_up_ends_no_recording_that_was_started_with_nohup",
        Needs::Nothing,
        hanging_up_ends_no_recording_that_was_started_with_nohup,
    ),
    ("hanging_up_ends_the_recorded_command", Needs::Root, hanging_up_ends_the_recorded_command),
    (
        "a_recorder_that_is_loading_can_be_stopped",
        Needs::Root,
        a_recorder_that_is_loading_can_be_stopped,
    ),
    (
        "a_file_that_reaches_its_size_limit_is_reported_as_a_full_disk_is",
        Needs::Nothing,
        a_file_that_reaches_its_size_limit_is_reported,
    ),
    (
        "a_killed_recording_of_a_quiet_cpu_is_as_long_as_it_was",
        Needs::Nothing,
        a_killed_recording_of_a_quiet_cpu_is_as_long_as_it_was,
    ),
];

/// Checks that a recording ends after a signal with exit code 0 and a trailer.
fn ends_whole(mut recording: Recording, signal: Signal) -> Result<()> {
    recording.signal(signal)?;
    let output = recording.output()?;
    ensure!(output.status.code() == Some(0), "{signal:?}: {:?}", output.status);
    let reader = Reader::open(&recording.path)?;
    ensure!(reader.truncated().is_none() && reader.trailer().is_some(), "{signal:?}: truncated");
    Ok(())
}

/// The command with this disposition for SIGHUP, regardless of how the tests were started.
fn that_hangs_up(answer: libc::sighandler_t) -> Command {
    let mut command = detour();
    let set = move || {
        // SAFETY: takes only numbers.
        match unsafe { libc::signal(libc::SIGHUP, answer) } {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(set) };
    command
}

fn signals_end_a_recording_with_its_trailer_or_leave_it_alone() -> Result<()> {
    let scratch = Scratch::new("signals")?;
    let timers = [Signal::ALARM, Signal::VTALARM, Signal::PROF];
    let rare = [Signal::IO, Signal::POWER, Signal::STKFLT];
    let usual = [Signal::HUP, Signal::TERM, Signal::QUIT, Signal::XCPU];
    for signal in usual.into_iter().chain(timers).chain(rare) {
        let path = scratch.file(&format!("{}.detour", signal.as_raw()));
        let command = that_hangs_up(libc::SIG_DFL);
        let recording = Recording::start_with(command, &path, &["--no-bpf", "-d", "1h"])?;
        ends_whole(recording, signal)?;
    }
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["--no-bpf", "-d", "1h"])?;
    for signal in [Signal::USR1, Signal::USR2, Signal::XFSZ] {
        recording.signal(signal)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    ends_whole(recording, Signal::INT)
}

fn hanging_up_ends_no_recording_that_was_started_with_nohup() -> Result<()> {
    let scratch = Scratch::new("nohup")?;
    let path = scratch.file("trace.detour");
    let command = that_hangs_up(libc::SIG_IGN);
    let recording = Recording::start_with(command, &path, &["--no-bpf", "-d", "1h"])?;
    recording.signal(Signal::HUP)?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(Reader::open(&path)?.trailer().is_none(), "it has ended");
    ends_whole(recording, Signal::INT)
}

fn hanging_up_ends_the_recorded_command() -> Result<()> {
    let scratch = Scratch::new("hang-up")?;
    let path = scratch.file("trace.detour");
    let command = that_hangs_up(libc::SIG_DFL);
    let mut recording = Recording::start_with(command, &path, &["--", "sleep", "3600"])?;
    recording.signal(Signal::HUP)?;
    let output = recording.output()?;
    let expected = 128 + Signal::TERM.as_raw();
    ensure!(output.status.code() == Some(expected), "{:?}", output.status);
    ensure!(Reader::open(&path)?.trailer().is_some(), "no trailer");
    Ok(())
}

fn a_recorder_that_is_loading_can_be_stopped() -> Result<()> {
    let scratch = Scratch::new("loading")?;
    let path = scratch.file("trace.detour");
    // On a busy machine loading may finish before the signal arrives.
    for _ in 0..5 {
        let mut command = detour();
        command.args(["record", "--no-probe", "-d", "1h", "-o"]).arg(&path);
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let catches = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask >> (libc::SIGTERM - 1) & 1 == 1)
        };
        let start = Instant::now();
        while !catches(child.id()) && start.elapsed() < patience() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // While the verifier is checking a program.
        std::thread::sleep(Duration::from_millis(20));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).context("no pid")?;
        rustix::process::kill_process(pid, Signal::TERM)?;
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > patience() {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output()?;
        let said = text(&output.stderr);
        match output.status.code() {
            Some(130) => {
                ensure!(said.contains("stopped before the recording began"), "{said}");
                ensure!(!path.exists(), "a file was written");
                return Ok(());
            }
            Some(0) => ensure!(Reader::open(&path)?.trailer().is_some(), "no trailer"),
            _ => anyhow::bail!("{:?}: {said}", output.status),
        }
        fs::remove_file(&path)?;
    }
    anyhow::bail!("it was never stopped while loading")
}

fn a_file_that_reaches_its_size_limit_is_reported() -> Result<()> {
    const LIMIT: u64 = 8 << 10;
    let scratch = Scratch::new("size")?;
    let path = scratch.file("trace.detour");
    let mut command = detour();
    let prepare = || {
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        // SAFETY: the pointer refers to a live value.
        match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(prepare) };
    // A threshold just above the loop: more detours than fit.
    command.args(["record", "--no-bpf", "-T", "3x", "-d", "5s", "-o"]).arg(&path);
    let output = command.output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    ensure!(said.contains("incomplete") && said.contains("too large"), "{said}");
    ends_where_writing_did(&path)?;
    ensure!(fs::metadata(&path)?.len() <= LIMIT, "larger than the limit");
    Ok(())
}

/// A recording that could not be written completely is readable up to that point, says so, and does
/// not report time with missing events as quiet.
fn ends_where_writing_did(path: &std::path::Path) -> Result<()> {
    let reader = Reader::open(path)?;
    ensure!(reader.truncated().is_some(), "it looks complete");
    for lane in (0..reader.lanes().len() as u32).map(trace::LaneId) {
        let mut last_ns = 0;
        for block in reader.blocks_of(lane) {
            let block = block?;
            let ends = block.detours.iter().map(|detour| detour.start_ns + detour.len_ns);
            last_ns = ends.fold(last_ns, u64::max);
            let ends = block.records.iter().map(|record| record.start_ns + record.gross_ns);
            last_ns = ends.fold(last_ns, u64::max);
        }
        let Some(totals) = reader.totals(lane) else { continue };
        // What is known to be complete: at most a second passes between two writes.
        let quiet_ns = totals.to_ns.saturating_sub(last_ns.max(totals.from_ns));
        ensure!(
            quiet_ns < 1_500_000_000,
            "{lane:?} is quiet for {quiet_ns} ns after its last event"
        );
    }
    ensure!(!report(path)?["truncated"].is_null(), "the report does not say so");
    Ok(())
}

fn a_killed_recording_of_a_quiet_cpu_is_as_long_as_it_was() -> Result<()> {
    let scratch = Scratch::new("quiet")?;
    let path = scratch.file("trace.detour");
    // Hardly any detour is this long.
    let recording = Recording::start(&path, &["--no-bpf", "-T", "2s", "-d", "1h"])?;
    let windows = || -> Result<Vec<(u64, u64)>> {
        let reader = Reader::open(&path)?;
        let lanes = 0..reader.lanes().len() as u32;
        let totals = lanes.filter_map(|lane| reader.totals(trace::LaneId(lane)));
        Ok(totals.map(|totals| (totals.from_ns, totals.to_ns)).collect())
    };
    let start = Instant::now();
    let mut last = Vec::new();
    while last.is_empty() || last.iter().any(|(_, to)| *to < 3_000_000_000) {
        ensure!(start.elapsed() < 2 * patience(), "timeout after {:?}: {last:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(100));
        last = windows()?;
    }
    let epoch_ns = Reader::open(&path)?.manifest().started_monotonic_ns;
    // Killed on drop.
    drop(recording);
    let killed_ns = monotonic_ns() - epoch_ns;
    let left = windows()?;
    ensure!(left.len() == last.len() && !left.is_empty(), "{last:?}, then {left:?}");
    for ((from, to), (_, before)) in left.into_iter().zip(last) {
        ensure!(from > 0 && from < 1_000_000_000, "watched from {from} ns on");
        ensure!(to >= before && to <= killed_ns, "killed at {killed_ns} ns, watched to {to} ns");
    }
    let seconds = report(&path)?["duration_s"].as_f64().context("no duration")?;
    ensure!(seconds > 2.0 && seconds * 1e9 <= killed_ns as f64, "{seconds} s");
    Ok(())
}

fn a_killed_recorder_leaves_a_readable_file_and_no_programs() -> Result<()> {
    let scratch = Scratch::new("killed")?;
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["-d", "60s"])?;
    std::thread::sleep(Duration::from_millis(2_500));
    // Killed on drop.
    drop(recording);
    let reader = Reader::open(&path)?;
    ensure!(reader.truncated().is_some(), "a killed recording looks complete");
    let mut detours = 0;
    for block in reader.blocks() {
        detours += block?.detours.len();
    }
    ensure!(detours > 100, "only {detours} detours left of two seconds");
    let report = report(&path)?;
    ensure!(!report["truncated"].is_null(), "the report does not say so");
    Ok(())
}

/// A file system with room only for the beginning.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf) -> Result<SmallDisk> {
        fs::create_dir_all(&at)?;
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(&at)
            .status()
            .context("mount")?;
        ensure!(mount.success(), "cannot mount a small tmpfs");
        Ok(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn a_full_disk_ends_in_an_error_and_a_readable_file() -> Result<()> {
    let scratch = Scratch::new("full")?;
    let disk = SmallDisk::mount(scratch.file("disk"))?;
    let path = disk.0.join("trace.detour");
    // Leaves only a few pages: the beginning fits, the recording does not.
    fs::write(disk.0.join("filler"), vec![0; 40 << 10])?;
    let output = detour().args(["record", "-d", "4s", "-o"]).arg(&path).output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    ensure!(said.contains("incomplete") && said.contains("space"), "{said}");
    ends_where_writing_did(&path)?;
    count_once_there_is_room(&disk)?;
    reliability::note("a full disk", 2, FULL_DISK);
    Ok(())
}

const FULL_DISK: &str = "the command fails with an error, the file is readable; if there is room \
                         again at the end, it contains the number of unwritten events";

fn count_once_there_is_room(disk: &SmallDisk) -> Result<()> {
    let path = disk.0.join("counted.detour");
    fs::remove_file(disk.0.join("trace.detour"))?;
    let mut recording = Recording::start(&path, &["-d", "1h"])?;
    // As much as fits, which is less than requested.
    let rest = disk.0.join("rest");
    ensure!(fs::write(&rest, vec![0; 64 << 10]).is_err(), "the disk is too large");
    // Something is recorded every second, and written if possible.
    let start = Instant::now();
    let (mut len, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        ensure!(start.elapsed() < patience(), "the disk does not fill up: {len} bytes");
        std::thread::sleep(Duration::from_millis(100));
        let now = fs::metadata(&path)?.len();
        if now != len {
            (len, since) = (now, Instant::now());
        }
    }
    // The rest alone may be one page: how much the recording had taken before depends on the machine.
    fs::remove_file(rest)?;
    fs::remove_file(disk.0.join("filler"))?;
    recording.signal(rustix::process::Signal::INT)?;
    let output = recording.output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    let reader = Reader::open(&path)?;
    let trailer = reader.trailer().with_context(|| format!("no trailer: {said}"))?;
    let unwritten = trailer.lost.unwritten;
    ensure!(unwritten > 0, "no unwritten events reported");
    ends_where_writing_did(&path)?;
    let windows = trailer.lanes.iter().map(|totals| totals.to_ns - totals.from_ns);
    let (watched, ended) = (windows.max().unwrap_or(0), start.elapsed());
    ensure!(u128::from(watched) < ended.as_nanos(), "watched {watched} ns in {ended:?}");
    Ok(())
}

fn ctrl_c_ends_a_recording() -> Result<()> {
    let scratch = Scratch::new("ctrl-c")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["-d", "1h"])?;
    std::thread::sleep(Duration::from_millis(300));
    let trace = recording.stop()?;
    let report = trace.report()?;
    ensure!(report["truncated"].is_null(), "{}", report["truncated"]);
    ensure!(report["duration_s"].as_f64().is_some_and(|s| s < 30.0));
    Ok(())
}
