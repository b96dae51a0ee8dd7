//! The recorded program: found or started, waited for, and ended.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, ErrorKind, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    fs::Access,
    process::{Pid, Signal},
};

use crate::{
    naming::{cgroups, members::Scope, pids},
    node::machine,
    options::ProgramOption,
    pipeline::assemble::Runnable,
    probe::clock::monotonic_ns,
    record_error::RecordError,
};

/// Resolves the requested threads; an error if there are none.
pub fn resolve(program: &ProgramOption) -> Result<Scope, RecordError> {
    match program {
        ProgramOption::Pids(pids) => {
            // A thread id stands for its process.
            let process = |&pid: &u32| pids::process_of(pid).ok_or(RecordError::NoProcess(pid));
            Ok(Scope::Pids(pids.iter().map(process).collect::<Result<_, _>>()?))
        }
        ProgramOption::Cgroup(path) => {
            let no_cgroup = || RecordError::NoCgroup(path.display().to_string());
            let directory = match cgroup_directory(path) {
                Some(directory) => directory,
                None => unit_directory(path)?.ok_or_else(no_cgroup)?,
            };
            let id = fs::metadata(&directory).map_err(|_| no_cgroup())?.ino();
            Ok(Scope::Cgroup { directory, id })
        }
        ProgramOption::Command(command) => {
            let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
            let path = env::var_os("PATH").unwrap_or(USUAL_PATH.into());
            may_be_run(program, &path).map_err(|source| cannot_run(command, source))?;
            Ok(Scope::Children)
        }
    }
}

/// A cgroup v2 directory, given as the kernel prints it, or as it is mounted.
fn cgroup_directory(path: &Path) -> Option<PathBuf> {
    const CGROUP2_MAGIC: i64 = 0x6367_7270;
    let is_cgroup = |directory: &PathBuf| {
        directory.is_dir()
            && rustix::fs::statfs(directory).is_ok_and(|about| about.f_type == CGROUP2_MAGIC)
    };
    let below = path.strip_prefix("/").unwrap_or(path);
    let at_root = cgroups::mounted_at().map(|root| root.join(below));
    [Some(path.to_path_buf()), at_root].into_iter().flatten().find(is_cgroup)
}

/// The cgroup of a systemd unit, given by its name: `ssh.service`, or `ssh` for a service.
fn unit_directory(unit: &Path) -> Result<Option<PathBuf>, RecordError> {
    let name = unit.as_os_str().to_string_lossy();
    let Some(root) = cgroups::mounted_at().filter(|_| !name.is_empty() && !name.contains('/'))
    else {
        return Ok(None);
    };
    let found = named_below(&root, &name);
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        // Every user has units of the same names.
        several => Err(RecordError::SeveralCgroups {
            name: name.into_owned(),
            paths: several.iter().map(|path| path.display().to_string()).collect(),
        }),
    }
}

/// The directories of this name; of a service of this name only if there are none.
fn named_below(root: &Path, name: &str) -> Vec<PathBuf> {
    let service = format!("{name}.service");
    let (exact, services): (Vec<PathBuf>, Vec<PathBuf>) = cgroups::directories(root)
        .filter(|directory| {
            directory.file_name().is_some_and(|file| file == name || file == service.as_str())
        })
        .partition(|directory| directory.file_name().is_some_and(|file| file == name));
    let mut found = if exact.is_empty() { services } else { exact };
    found.sort();
    found
}

/// The threads of a program that are runnable now, and where, by their numbers in /proc. Which of them
/// are on a CPU is not known.
pub fn runnable(scope: &Scope) -> Vec<Runnable> {
    let processes: Vec<u32> = match scope {
        Scope::Pids(pids) => pids.clone(),
        Scope::Cgroup { directory, .. } => processes_below(directory),
        // Those of a command do not exist yet.
        Scope::Children => Vec::new(),
    };
    let mut runnable = Vec::new();
    for process in processes.into_iter().filter_map(pids::in_proc) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
                continue;
            };
            if let Some((true, cpu)) = machine::placed(tid) {
                runnable.push(Runnable { tid, at: monotonic_ns(), cpu });
            }
        }
    }
    runnable
}

/// The processes in a cgroup and below it.
fn processes_below(directory: &Path) -> Vec<u32> {
    let mut processes = Vec::new();
    for directory in cgroups::directories(directory) {
        let listed = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        processes.extend(listed.lines().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    processes
}

/// The search path if PATH is not set.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Whether there is such a program, searched for as execvp does.
fn may_be_run(program: &OsStr, path: &OsStr) -> io::Result<()> {
    if program.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "the command is empty"));
    }
    if program.as_bytes().contains(&b'/') {
        return is_executable(Path::new(program));
    }
    let mut found = Err(io::Error::new(ErrorKind::NotFound, "not found in PATH"));
    for directory in env::split_paths(path) {
        match is_executable(&directory.join(program)) {
            Ok(()) => return Ok(()),
            // A file that may not be executed is more informative than none.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

fn is_executable(file: &Path) -> io::Result<()> {
    if !fs::metadata(file)?.is_file() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    rustix::fs::access(file, Access::EXEC_OK)?;
    match interpreter(file) {
        // The program exists, so this is not "not found".
        Some(interpreter) if !interpreter.exists() => {
            Err(io::Error::other(format!("interpreter {} does not exist", interpreter.display())))
        }
        _ => Ok(()),
    }
}

/// The interpreter of a script. None if it is not a script, or cannot be read.
fn interpreter(file: &Path) -> Option<PathBuf> {
    // The kernel reads no further.
    let mut begin = [0; 256];
    let read = fs::File::open(file).and_then(|mut file| file.read(&mut begin)).ok()?;
    let line = begin[..read].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn cannot_run(command: &[OsString], source: io::Error) -> RecordError {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    RecordError::Command { command: words.join(" "), source }
}

/// Starts the command that is to be recorded.
pub fn start(command: &[OsString], stdout_is_taken: bool) -> Result<Child, RecordError> {
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_os_str(), arguments),
        None => (OsStr::new(""), command),
    };
    let mut started = std::process::Command::new(program);
    started.args(arguments);
    if stdout_is_taken {
        started.stdout(io::stderr());
    }
    started.spawn().map_err(|source| cannot_run(command, source))
}

/// How often to check that a program still runs.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long to wait, and how often to look.
pub struct Patience {
    pub duration: Option<Duration>,
    pub every: Duration,
}

/// Waits until the time is up, the command or the processes end, the user stops it, or `look`, which is
/// called regularly with the time recorded so far, reports that nothing is left to record. Returns the
/// command's exit code.
pub fn wait(
    scope: Option<&Scope>,
    patience: Patience,
    stop: &AtomicBool,
    look: &dyn Fn(Duration) -> bool,
    mut child: Option<&mut Child>,
) -> Option<i32> {
    let start = Instant::now();
    loop {
        let passed = start.elapsed();
        let something_left = look(passed);
        if let Some(child) = &mut child
            && let Ok(Some(status)) = child.try_wait()
        {
            return Some(exit_code(status));
        }
        let there = match scope {
            Some(Scope::Pids(pids)) => pids.iter().any(|&pid| pids::runs(pid)),
            Some(Scope::Cgroup { directory, .. }) => directory.is_dir(),
            Some(Scope::Children) | None => true,
        };
        if !there {
            return None;
        }
        let left = patience.duration.map(|duration| duration.saturating_sub(passed));
        let over = !something_left || left == Some(Duration::ZERO);
        if over || stop.load(Ordering::Relaxed) {
            return None;
        }
        // Whoever sets `stop` unparks this thread.
        std::thread::park_timeout(left.unwrap_or(patience.every).min(patience.every));
    }
}

/// Waits for a command that continues after its recording; a request to end it, now or before, is passed
/// on. Returns its exit code.
pub fn wait_for_command(child: &mut Child, end: &AtomicBool) -> Option<i32> {
    loop {
        if end.swap(false, Ordering::Relaxed)
            && let Some(pid) = Pid::from_raw(child.id() as i32)
        {
            // It may have ended or changed its user.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        match child.try_wait() {
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            ended => return ended.ok().flatten().map(exit_code),
        }
    }
}

/// As a shell would report it.
pub fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_outlives_the_thread_that_stood_for_it() {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = say.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            let _ = told.recv();
        });
        let tid = said.recv().expect("its number");
        let scope = resolve(&ProgramOption::Pids(vec![tid])).expect("it lives");
        assert_eq!(scope, Scope::Pids(vec![std::process::id()]));
        drop(tell);
        thread.join().expect("ended");
        let (start, duration) = (Instant::now(), Duration::from_millis(300));
        let stop = AtomicBool::new(false);
        let patience = Patience { duration: Some(duration), every: LOOK_EVERY };
        wait(Some(&scope), patience, &stop, &|_| true, None);
        assert!(start.elapsed() >= duration, "it ended with the thread");
    }

    #[test]
    fn units_are_found_by_name() {
        let root = std::env::temp_dir().join(format!("detour-units-{}", std::process::id()));
        for directory in [
            "system.slice/ssh.service",
            "system.slice/cron.service/cron",
            "user.slice/user-1.slice/user@1.service/app.slice/a.service",
            "user.slice/user-2.slice/user@2.service/app.slice/a.service",
        ] {
            fs::create_dir_all(root.join(directory)).expect("created");
        }
        let found = |name: &str| -> Vec<String> {
            let below = named_below(&root, name).into_iter();
            below.map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect()
        };
        assert_eq!(found("ssh.service"), ["system.slice/ssh.service"]);
        assert_eq!(found("ssh"), ["system.slice/ssh.service"]);
        // An exact name comes first.
        assert_eq!(found("cron"), ["system.slice/cron.service/cron"]);
        assert_eq!(found("user-1.slice"), ["user.slice/user-1.slice"]);
        assert_eq!(found("a.service").len(), 2);
        assert!(found("ss").is_empty());
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_command_that_goes_on_can_be_ended() {
        let mut child = start(&["sleep".into(), "600".into()], false).expect("started");
        let end = AtomicBool::new(false);
        let exit_code = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for_command(&mut child, &end));
            std::thread::sleep(Duration::from_millis(50));
            end.store(true, Ordering::Relaxed);
            waiting.join().expect("waited")
        });
        assert_eq!(exit_code, Some(128 + Signal::TERM.as_raw()));
    }

    #[test]
    fn a_program_is_there_when_the_system_would_run_it() {
        let kind = |program: &str, path: &str| {
            may_be_run(OsStr::new(program), OsStr::new(path)).map_err(|error| error.kind())
        };
        let here = env::current_exe().expect("this test has a file");
        let (directory, name) = (here.parent().expect("a directory"), here.file_name());
        let (directory, name) = (directory.to_str().expect("text"), name.and_then(OsStr::to_str));
        let name = name.expect("text");
        assert_eq!(kind(here.to_str().expect("text"), ""), Ok(()));
        assert_eq!(kind(name, &format!("/nowhere:{directory}")), Ok(()));
        assert_eq!(kind(name, "/nowhere"), Err(ErrorKind::NotFound));
        assert_eq!(kind("/nowhere/program", directory), Err(ErrorKind::NotFound));
        // Directories and text files are not programs.
        assert_eq!(kind("/proc", directory), Err(ErrorKind::PermissionDenied));
        assert_eq!(kind("version", "/proc"), Err(ErrorKind::PermissionDenied));
        assert!(kind("", directory).is_err());
    }

    #[test]
    fn a_script_is_there_when_its_interpreter_is() {
        use std::os::unix::fs::PermissionsExt;
        let file = env::temp_dir().join(format!("detour-script-{}", std::process::id()));
        for (first, there) in [("#!/nowhere/sh -e", false), ("#! /proc/self/exe", true), ("", true)]
        {
            fs::write(&file, format!("{first}\nexit 1\n")).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("changed");
            assert_eq!(is_executable(&file).is_ok(), there, "{first}");
        }
        fs::remove_file(&file).expect("removed");
    }
}
