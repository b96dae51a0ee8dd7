//! `detour mpi record`: runs one rank under a launcher (mpirun, mpiexec, srun), or a whole job around one,
//! with the collector preloaded.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::{Child, ExitCode, ExitStatus},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use ::report::message_safe;
use anyhow::{Context, Result, bail};
use clap::Args;
use mpi_recorder::{
    DIRECTORY, ONLY,
    executable::{check, find},
    launcher::Task,
    library::Placed,
};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use study::error::in_words;
use tokio::signal::unix::SignalKind;

use super::{
    noise::{self, Noise},
    once, start,
};
use crate::{Verbosity, signals};

#[derive(Args)]
pub struct Options {
    /// Directory for the traces, one file per rank; all ranks need the same
    #[arg(short, long, value_name = "DIR", default_value = "detour-mpi")]
    output: PathBuf,
    /// Also record the noise that the ranks see, one file per node (node-HOST.detour); needs privileges
    #[arg(long)]
    noise: bool,
    /// Record only calls of MPI_ functions, not of PMPI_ functions (which Fortran programs call
    /// with Open MPI)
    #[arg(long)]
    mpi_names_only: bool,
    /// The program, or a launcher that starts it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let task = Task::of_environment();
    let (directory, claim, placed) = match ready(options, task) {
        Ok(Some(ready)) => ready,
        Ok(None) => {
            let name = options.command[0].display();
            once::say(&format!("detour: {name}: command not found"), task);
            return Ok(ExitCode::from(127));
        }
        Err(error) => {
            once::say(&format!("detour: {}", message_safe(&in_words(&error))), task);
            return Ok(ExitCode::FAILURE);
        }
    };
    let preload = placed.path().as_os_str().to_owned();
    let settings: Vec<(&str, OsString)> = [(DIRECTORY, directory.clone().into_os_string())]
        .into_iter()
        .chain(options.mpi_names_only.then(|| (ONLY, "mpi".into())))
        .collect();
    let forward = Forward::new()?;
    let status = match options.noise {
        true => noise::run(&Noise {
            forward: &forward,
            directory: &directory,
            task,
            settings: &settings,
            preload: &preload,
            command: &options.command,
        })?,
        false => {
            let mut command = start::command(&options.command, &preload);
            command.envs(settings);
            match command.spawn() {
                Ok(mut child) => forward.wait(&mut child, None)?,
                Err(error) => {
                    tell!("detour: cannot run {}: {error}", options.command[0].display());
                    return Ok(ExitCode::from(cannot_run(&error)));
                }
            }
        }
    };
    drop((placed, claim));
    if status.code() == Some(127) && is_privileged() {
        let message = "detour: LD_LIBRARY_PATH is not passed on, because this command has \
             capabilities; if the program needs it: detour mpi record -- env LD_LIBRARY_PATH=... \
             COMMAND";
        once::say(message, task);
    }
    if !verbosity.quiet {
        say(&directory, task);
    }
    Ok(ExitCode::from(code(status)))
}

/// The directory and the collector in its place; None if there is no such program.
fn ready(options: &Options, task: Task) -> Result<Option<(PathBuf, Claim, Placed)>> {
    let directory = prepare(&options.output, task)?;
    let claim = Claim::new(&directory, task)?;
    let Some(program) = find(&options.command[0]) else { return Ok(None) };
    check(&program)?;
    let placed = Placed::new(&directory)
        .with_context(|| format!("cannot write the collector to {}", directory.display()))?;
    Ok(Some((directory, claim, placed)))
}

/// The right to record this rank, or a job, into a directory: two runs that start at the same time would both
/// find it empty.
pub struct Claim {
    path: PathBuf,
    _locked: File,
}

impl Claim {
    pub fn new(directory: &Path, task: Task) -> Result<Claim> {
        let whose = task.rank.map_or_else(|| "job".to_owned(), |rank| rank.to_string());
        let path = directory.join(format!(".recording-{whose}"));
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another run is being recorded into {}: choose another directory with -o",
                directory.display()
            ),
            // Some file systems have no locks.
            _ => Ok(Claim { path, _locked: file }),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates the directory, and refuses one that has traces already.
pub fn prepare(output: &Path, task: Task) -> Result<PathBuf> {
    let cannot = || format!("cannot write to the directory {}", output.display());
    fs::create_dir_all(output).with_context(cannot)?;
    let directory = output.canonicalize().with_context(cannot)?;
    // Fail before the program has run for hours. The host is in the name because a process on another host may
    // have the same PID.
    let (host, pid) = (recorder::machine::host(), std::process::id());
    let attempt = directory.join(format!(".detour-attempt-{host}-{pid}"));
    fs::write(&attempt, "x").and_then(|()| fs::remove_file(&attempt)).with_context(cannot)?;
    // Under a launcher, other ranks may have begun already.
    let old = match task.rank {
        Some(rank) => Some(mpi_recorder::rank_file(&directory, rank)).filter(|file| file.exists()),
        None => traces(&directory).into_iter().next(),
    };
    if let Some(old) = old {
        bail!(
            "refusing to overwrite the trace {}: choose another directory with -o",
            old.display()
        );
    }
    Ok(directory)
}

/// The traces in a directory.
fn traces(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| mpi_recorder::rank_of(path).is_some()).collect()
}

/// Says what there is, once for the job.
fn say(directory: &Path, task: Task) {
    let is_first = task.rank.unwrap_or(0) == 0;
    let found = match task.rank {
        Some(rank) => mpi_recorder::rank_file(directory, rank).exists(),
        None => !traces(directory).is_empty(),
    };
    let name = directory.display();
    match (found, is_first) {
        (true, true) => tell!("wrote {name}; view with: detour mpi report {name}"),
        (false, true) => tell!(
            "detour: no MPI calls were recorded: the program did not call MPI_Init, its launcher \
             removes LD_PRELOAD from the environment, or it looks up MPI functions in the library \
             itself (dlopen and dlsym)"
        ),
        _ => {}
    }
}

/// Whom signals to this process are passed on to. They are handled from the beginning: one that comes before the
/// program has started waits for it.
#[derive(Clone, Default)]
pub struct Forward(Arc<(Mutex<Option<To>>, Condvar)>);

struct To {
    child: Pid,
    /// If the child is a recorder that has started the program: the file with the program's PID. The recorder
    /// itself ignores the signals of batch systems.
    mark: Option<PathBuf>,
}

impl Forward {
    pub fn new() -> Result<Forward> {
        let forward = Forward::default();
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        // On a terminal, Ctrl-C and the like reach the program anyway, and a launcher would take a second one
        // for impatience.
        let on_terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
        let from_terminal = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()];
        let handler = forward.clone();
        signals::handle(&kinds, move |kind| {
            if !(on_terminal && from_terminal.contains(&kind)) {
                handler.pass(kind);
            }
        })?;
        Ok(forward)
    }

    /// Waits for the program; signals are passed on to it until then.
    pub fn wait(&self, child: &mut Child, mark: Option<PathBuf>) -> Result<ExitStatus> {
        self.to(child, mark);
        let status = child.wait()?;
        // Its PID may belong to another process from now on.
        *self.target() = None;
        Ok(status)
    }

    pub fn to(&self, child: &Child, mark: Option<PathBuf>) {
        *self.target() = Some(To { child: Pid::from_child(child), mark });
        self.0.1.notify_all();
    }

    fn target(&self) -> MutexGuard<'_, Option<To>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, kind: SignalKind) {
        let of_batch_systems = [SignalKind::user_defined1(), SignalKind::user_defined2()];
        let none = |target: &mut Option<To>| target.is_none();
        let target = self.0.1.wait_while(self.target(), none);
        let target = target.unwrap_or_else(PoisonError::into_inner);
        let Some(To { child, mark }) = &*target else { return };
        let to = match mark {
            Some(mark) if of_batch_systems.contains(&kind) => started(mark, *child),
            _ => Some(*child),
        };
        if let (Some(to), Some(signal)) = (to, Signal::from_named_raw(kind.as_raw_value())) {
            // It may have ended.
            let _ = kill_process(to, signal);
        }
    }
}

/// The program that the recorder has started, if it runs: its PID could belong to another process by now.
fn started(mark: &Path, recorder: Pid) -> Option<Pid> {
    let text = fs::read_to_string(mark).ok()?;
    let status = fs::read_to_string(format!("/proc/{}/status", text.trim())).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    let is_child = parent.trim().parse() == Ok(recorder.as_raw_nonzero().get());
    is_child.then(|| Pid::from_raw(text.trim().parse().ok()?)).flatten()
}

/// Whether this command has capabilities of its own: the dynamic linker then removes its variables from the
/// environment. A static command has none.
fn is_privileged() -> bool {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    !cfg!(target_feature = "crt-static")
        && dumpable_behavior().is_ok_and(|behavior| behavior != DumpableBehavior::Dumpable)
}

/// The status that a shell would have.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    code.clamp(0, 255) as u8
}

/// The status of a shell for a command that cannot be run.
pub fn cannot_run(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}
