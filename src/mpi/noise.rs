//! The noise of the ranks of a node, recorded beside the program: by the first rank of the node for all of
//! them, or around a whole job. Without privileges, the program runs without it.
//!
//! Under a launcher, every rank's program is started by [`start`](super::start), so that its PID is known
//! before it runs. The ranks of a node leave these PIDs in a directory; the first one starts the recorder
//! with all of them and then lets everyone go.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mpi_recorder::launcher::Task;

use super::record::wait;

/// How long the ranks of a node may take to start, and the recorder to begin.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

/// What is run, and where its traces go.
pub struct Noise<'a> {
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
    /// The program, which waits for `after` and creates `mark`.
    fn program(&self, after: Option<&Path>, mark: Option<&Path>) -> Result<Vec<OsString>> {
        let own = std::env::current_exe().context("cannot find this program")?;
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
        let status = wait(recorder.spawn().context("cannot start the recorder")?)?;
        if fs::remove_file(&mark).is_ok() {
            return Ok(status);
        }
        tell!("detour: recording the program without the noise of the node");
        wait(self.spawn(&self.program(None, None)?)?)
    }

    /// One rank of a node.
    fn beside(&self) -> Result<ExitStatus> {
        let node = self.directory.join(format!(".starting-{}", recorder::machine::host()));
        fs::create_dir_all(&node)?;
        let go = node.join("go");
        let child = self.spawn(&self.program(Some(&go), None)?)?;
        fs::write(node.join(child.id().to_string()), "")?;
        if self.task.local_rank.unwrap_or(0) != 0 {
            return wait(child);
        }
        let recorder = self.begin(&node);
        // Everyone goes, with or without.
        let gone = fs::write(&go, "");
        let status = wait(child)?;
        gone.context("cannot let the ranks start")?;
        if let Some(recorder) = recorder {
            end(recorder);
        }
        // Ranks that start late still need it; nothing but a few empty files would be left.
        let _ = fs::remove_dir_all(&node);
        Ok(status)
    }

    /// Starts the recorder once all ranks of the node are known.
    fn begin(&self, node: &Path) -> Option<Child> {
        let wanted = self.task.local_size.unwrap_or(1) as usize;
        let begin = Instant::now();
        let mut pids = pids(node);
        while pids.len() < wanted && begin.elapsed() < PATIENCE {
            std::thread::sleep(STEP);
            pids = self::pids(node);
        }
        if pids.len() < wanted {
            tell!(
                "detour: only {} of {wanted} ranks of this node are recorded with noise",
                pids.len()
            );
        }
        let target = ["--pid".into(), pids.join(",").into()];
        let mut recorder = self.recorder(&target).ok()?;
        let mut child = recorder.stdin(Stdio::null()).spawn().ok()?;
        while begin.elapsed() < 2 * PATIENCE {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                // It has said why.
                tell!("detour: recording the program without the noise of the node");
                return None;
            }
            if recording_has_begun(&self.recording()) {
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

/// The recorder writes the header when everything is attached.
fn recording_has_begun(path: &Path) -> bool {
    let beside = path.parent().and_then(|directory| fs::read_dir(directory).ok());
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let written = |entry: fs::DirEntry| {
        let own = entry.file_name().to_string_lossy().contains(&name);
        own && entry.metadata().is_ok_and(|facts| facts.len() > 0)
    };
    beside.is_some_and(|mut entries| entries.any(|entry| entry.is_ok_and(&written)))
}

/// The recorder ends with the last rank of the node; it is told to if it does not.
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
