//! The noise of the ranks of a node, recorded beside the program: by the first rank of the node for all of
//! them, or around a whole job. Without privileges, the program runs without it.
//!
//! Under a launcher, every rank's program is started by [`start`](super::start), so that its PID is known
//! before it runs. The ranks of a node leave these PIDs in a directory; the first of them to come starts the
//! recorder with all of them and then lets everyone go. The last one to end removes the directory.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mpi_recorder::launcher::Task;

use super::record::Forward;
use crate::options::work::INTERRUPTED;

/// How long the ranks of a node may take to start, and the recorder to begin.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

const WITHOUT: &str = "detour: recording MPI calls only; the noise of the node is not recorded";

/// What is run, and where its traces go.
pub struct Noise<'a> {
    pub forward: &'a Forward,
    pub directory: &'a Path,
    pub task: Task,
    /// Environment of the program.
    pub settings: &'a [(&'a str, OsString)],
    pub preload: &'a OsStr,
    pub command: &'a [OsString],
}

pub fn run(noise: &Noise<'_>) -> Result<ExitStatus> {
    match noise.task.rank {
        Some(_) => noise.beside(),
        None => noise.around(),
    }
}

impl Noise<'_> {
    /// The program, which waits for `after` and writes its PID to `mark`.
    fn program(&self, after: Option<&Path>, mark: Option<&Path>) -> Result<Vec<OsString>> {
        let own = std::env::current_exe().context("cannot find the detour executable")?;
        let mut line: Vec<OsString> = vec![own.into(), "mpi".into(), "start".into()];
        line.extend(["--preload".into(), self.preload.to_owned()]);
        for (option, file) in [("--after", after), ("--mark", mark)] {
            if let Some(file) = file {
                line.extend([option.into(), file.as_os_str().to_owned()]);
            }
        }
        line.push("--".into());
        line.extend_from_slice(self.command);
        Ok(line)
    }

    fn spawn(&self, line: &[OsString]) -> Result<Child> {
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).envs(self.settings.iter().map(|(key, value)| (key, value)));
        command.spawn().with_context(|| format!("cannot run {}", line[0].display()))
    }

    fn recording(&self) -> PathBuf {
        self.directory.join(format!("node-{}.detour", recorder::machine::host()))
    }

    /// A recorder whose messages are kept; `target` is what to record.
    fn recorder(&self, target: &[OsString]) -> Result<Command> {
        let mut recorder = Command::new(std::env::current_exe()?);
        recorder.args(["record", "--quiet", "--output"]).arg(self.recording()).args(target);
        Ok(recorder)
    }

    /// A whole job: the recorder starts it.
    fn around(&self) -> Result<ExitStatus> {
        let mark = self.directory.join(format!(".started-{}", std::process::id()));
        let mut target = vec!["--".into()];
        target.extend(self.program(None, Some(&mark))?);
        let mut recorder = self.recorder(&target)?;
        recorder.envs(self.settings.iter().map(|(key, value)| (key, value)));
        let mut child = recorder.spawn().context("cannot start the recorder")?;
        let status = self.forward.wait(&mut child, Some(mark.clone()))?;
        // Interrupted, it is not to run without the recorder either.
        if fs::remove_file(&mark).is_ok() || status.code() == Some(i32::from(INTERRUPTED)) {
            return Ok(status);
        }
        tell!("{WITHOUT}");
        self.forward.wait(&mut self.spawn(&self.program(None, None)?)?, None)
    }

    /// One rank of a node.
    fn beside(&self) -> Result<ExitStatus> {
        let launcher = super::launcher();
        let host = recorder::machine::host();
        let node = self.directory.join(format!(".starting-{host}-{launcher}"));
        fs::create_dir_all(&node).context("cannot prepare the start of the ranks")?;
        let go = node.join("go");
        let mut child = self.spawn(&self.program(Some(&go), None)?)?;
        self.forward.to(&child, None);
        let own = node.join(child.id().to_string());
        // Without it, only the noise of this rank is missing.
        let _ = fs::write(&own, "");
        let is_first = File::create_new(node.join("first")).is_ok();
        let recorder = if is_first { self.begin(&node, &mut child) } else { None };
        if is_first {
            // Everyone goes, with or without; they also go if this file cannot be created and the directory
            // is removed.
            let _ = fs::write(&go, "");
        }
        let status = child.wait()?;
        if let Some(recorder) = recorder {
            end(recorder);
        }
        let _ = fs::remove_file(&own);
        if pids(&node).is_empty() {
            let _ = fs::remove_dir_all(&node);
        }
        Ok(status)
    }

    /// Starts the recorder once all ranks of the node are known.
    fn begin(&self, node: &Path, own: &mut Child) -> Option<Child> {
        if self.recording().exists() {
            tell!("detour: refusing to overwrite the recording {}", self.recording().display());
            tell!("{WITHOUT}");
            return None;
        }
        let wanted = self.task.local_size.unwrap_or(1) as usize;
        let begin = Instant::now();
        let mut ended = || own.try_wait().is_ok_and(|status| status.is_some());
        let mut pids = pids(node);
        while pids.len() < wanted && begin.elapsed() < PATIENCE && !ended() {
            std::thread::sleep(STEP);
            pids = self::pids(node);
        }
        if pids.len() < wanted {
            tell!(
                "detour: recording the noise of only {} of {wanted} ranks on this node",
                pids.len()
            );
        }
        let target = ["--pid".into(), pids.join(",").into()];
        let mut recorder = self.recorder(&target).ok()?;
        let mut child = recorder.stdin(Stdio::null()).spawn().ok()?;
        while begin.elapsed() < 2 * PATIENCE && !ended() {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                // It has said why.
                tell!("{WITHOUT}");
                return None;
            }
            if self.recording().metadata().is_ok_and(|facts| facts.len() > 0) {
                break;
            }
            std::thread::sleep(STEP);
        }
        Some(child)
    }
}

fn pids(node: &Path) -> Vec<String> {
    let entries = fs::read_dir(node).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.parse::<u32>().is_ok()).collect()
}

/// The recorder exits with the last rank of the node; otherwise it is terminated.
fn end(mut recorder: Child) {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if recorder.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        std::thread::sleep(STEP);
    }
    let pid = rustix::process::Pid::from_child(&recorder);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let _ = recorder.wait();
}
