//! A program on a terminal of a given size: what it shows, what is typed, and whether it restores the
//! terminal.

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};

/// Longer than anything takes on a busy machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the terminal's reader checks whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long a view has been running by its own clock (`0:00:12`), in seconds.
#[allow(dead_code)] // not every test looks at the live view
pub fn running_s(shown: &str) -> Option<u64> {
    let clock = |word: &str| {
        let parts: Vec<u64> =
            word.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        match parts[..] {
            [hours, minutes, seconds] => Some(hours * 3600 + minutes * 60 + seconds),
            _ => None,
        }
    };
    shown.lines().next()?.split_whitespace().find_map(clock)
}

/// What each thread of a program that hangs is doing, as far as the kernel tells.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let about = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State")).unwrap_or_default();
        format!("{}: {state}\n{}{}", read("comm").trim(), read("syscall"), read("stack"))
    };
    tasks.into_iter().flatten().flatten().map(about).collect::<Vec<_>>().join("\n")
}

#[allow(dead_code, reason = "not every test file needs everything")]
pub struct Terminal {
    /// None once it has hung up.
    master: Option<File>,
    /// Kept open, so that the terminal outlives the program.
    slave: OwnedFd,
    child: Child,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    before: Termios,
    let_go: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

#[allow(dead_code, reason = "not every test file needs everything")]
impl Terminal {
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
        tcsetwinsize(&slave, size(columns, rows))?;
        let before = tcgetattr(&slave)?;
        let end = || slave.try_clone().map(Stdio::from);
        command.stdin(end()?).stdout(end()?).stderr(end()?);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        // SAFETY: only system calls are made between fork and exec. A new session with this as its
        // controlling terminal: signal keys and resizes reach the program.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().context("cannot start the program")?;
        let master = File::from(master);
        let (send, output) = channel();
        let mut reading = master.try_clone()?;
        // It wakes up now and then, so that it can be asked to release the terminal; but no more often,
        // because a recording of the machine sees it wake up.
        let nonblocking = rustix::fs::fcntl_getfl(&master)? | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&master, nonblocking)?;
        let let_go = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&let_go);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !told.load(Ordering::Relaxed) {
                let mut there = [PollFd::new(&reading, PollFlags::IN)];
                // The result does not matter; the read below tells.
                let _ = poll(&mut there, Some(&LOOK));
                match reading.read(&mut bytes) {
                    Ok(count @ 1..) if send.send(bytes[..count].to_vec()).is_ok() => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
        });
        let parser = vt100::Parser::new(rows, columns, 0);
        let (master, reader) = (Some(master), Some(reader));
        Ok(Terminal { master, slave, child, output, parser, before, let_go, reader })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        let master = self.master.as_mut().context("the terminal has hung up")?;
        master.write_all(keys.as_bytes()).context("cannot write to the terminal")
    }

    pub fn resize(&mut self, columns: u16, rows: u16) -> Result<()> {
        self.parser.screen_mut().set_size(rows, columns);
        Ok(tcsetwinsize(&self.slave, size(columns, rows))?)
    }

    /// As when a connection breaks: the terminal is gone.
    pub fn hang_up(&mut self) {
        self.let_go.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.master = None;
    }

    /// Waits until the screen shows what is wanted, and returns it.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let shown = self.parser.screen().contents();
            if wanted(&shown) {
                return Ok(shown);
            }
            if start.elapsed() > PATIENCE {
                bail!("timeout while waiting for {what}:\n{shown}");
            }
            match self.output.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = self.child.try_wait()? {
                        self.rest();
                        bail!("exited ({status}) while waiting for {what}:\n{}", self.shown());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the terminal is gone"),
            }
        }
    }

    pub fn until_shown(&mut self, text: &str) -> Result<String> {
        self.until(text, |shown| shown.contains(text))
    }

    /// Waits for the program to exit; fails if it has not restored the terminal by then.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let status = self.exit()?;
        self.rest();
        let screen = self.parser.screen();
        if screen.alternate_screen() || screen.hide_cursor() {
            bail!("the screen was not restored");
        }
        let after = tcgetattr(&self.slave)?;
        let modes = |termios: &Termios| {
            termios.local_modes & (LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
        };
        if modes(&after) != modes(&self.before) {
            bail!("the terminal modes were not restored: {:?}", after.local_modes);
        }
        Ok(status)
    }

    pub fn exit(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > PATIENCE {
                let threads = threads(self.child.id());
                bail!("the program does not exit:\n{}\n{threads}", self.shown());
            }
            // Writers block on a terminal that is not read.
            match self.output.recv_timeout(Duration::from_millis(20)) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Reads the remaining output.
    fn rest(&mut self) {
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.parser.process(&bytes);
        }
    }

    pub fn shown(&self) -> String {
        self.parser.screen().contents()
    }

    /// Whether anything on the screen is bold or has a colour.
    #[allow(dead_code)] // not every test looks at colours
    pub fn has_colour(&self) -> bool {
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .any(|cell| cell.bold() || cell.dim() || cell.fgcolor() != vt100::Color::Default)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
