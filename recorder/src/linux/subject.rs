//! The program that is recorded: found or started, waited for, and its last slices closed.

use std::{
    ffi::OsString,
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    cgroups::Cgroups,
    cpulist::CpuSet,
    machine,
    options::{Options, ProgramOption},
    record::RecordError,
    rules,
    targets::Target,
};

/// The threads that were asked for; an error when there are none such.
pub fn resolve(program: &ProgramOption) -> Result<Target, RecordError> {
    match program {
        ProgramOption::Pids(pids) => {
            // A thread's id stands for its process.
            let process = |&pid: &u32| match rules::from_proc(pid) {
                Some((_, tgid, _)) => Ok(tgid),
                None => Err(RecordError::NoProcess(pid)),
            };
            Ok(Target::Pids(pids.iter().map(process).collect::<Result<_, _>>()?))
        }
        ProgramOption::Cgroup(path) => {
            let no_cgroup = || RecordError::NoCgroup(path.display().to_string());
            let cgroups = Cgroups::of_this_machine();
            let root = cgroups.root().ok_or_else(no_cgroup)?;
            // As the kernel prints it, or as it is mounted.
            let below = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
            if !root.join(below).is_dir() {
                return Err(no_cgroup());
            }
            Ok(Target::Cgroup(format!("/{}", below.display())))
        }
        ProgramOption::Command(_) => Ok(Target::Children),
    }
}

/// Starts the command that is to be recorded.
pub fn start(command: &[OsString]) -> Result<Child, RecordError> {
    let failed = |source| RecordError::Command {
        command: command.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" "),
        source,
    };
    let Some((program, arguments)) = command.split_first() else {
        return Err(failed(std::io::Error::other("the command is empty")));
    };
    std::process::Command::new(program).args(arguments).spawn().map_err(failed)
}

/// Waits for the time, the command, the processes or the user to end it, or for `look`, which is
/// called ten times a second with the time recorded so far, to say that nothing is left to record.
/// Returns the command's exit code.
pub fn wait(
    options: &Options,
    stop: &AtomicBool,
    look: &dyn Fn(Duration) -> bool,
    mut child: Option<&mut Child>,
) -> Option<i32> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let start = Instant::now();
    loop {
        let passed = start.elapsed();
        let something_left = look(passed);
        if let Some(child) = &mut child
            && let Ok(Some(status)) = child.try_wait()
        {
            return Some(exit_code(status));
        }
        if let Some(ProgramOption::Pids(pids)) = &options.program
            && !pids.iter().any(|&pid| machine::is_alive(pid))
        {
            return None;
        }
        let left = options.duration.map(|duration| duration.saturating_sub(passed));
        let over = !something_left || left == Some(Duration::ZERO);
        if over || stop.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
    }
}

/// As a shell would report it.
pub fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Runs for a moment on each CPU, so that the slice of whatever runs there ends and is sent.
pub fn close_slices(measured: &CpuSet, housekeeping: &CpuSet) {
    let before = if housekeeping.is_empty() { machine::allowed() } else { housekeeping.clone() };
    for &cpu in measured {
        if machine::pin(&CpuSet::from([cpu])) {
            std::thread::yield_now();
        }
    }
    machine::pin(&before);
}
