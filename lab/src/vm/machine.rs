//! A virtual machine: a kernel, an initramfs, and QEMU emulating every instruction (TCG). Never KVM:
//! it may hang if present, and without it the machine is the same everywhere.

use std::{
    cell::Cell,
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{kernels::Processor, tools::Tools};

/// Two CPUs, as fast as possible: for functional tests, not for timing.
pub const FUNCTIONAL: &[&str] = &["-accel", "tcg,thread=multi", "-smp", "2"];

/// More CPUs than a machine word has bits. CPUs that the kernel never starts cost nothing.
pub const MANY: &[&str] = &["-accel", "tcg,thread=multi", "-smp", "72"];

/// CPUs that take turns, one instruction per nanosecond: their behaviour does not depend on the host,
/// and a single CPU loses no time to another.
pub const ONE_COUNTING: &[&str] = &["-accel", "tcg", "-smp", "1", "-icount", "shift=0,sleep=off"];
pub const TWO_COUNTING: &[&str] = &["-accel", "tcg", "-smp", "2", "-icount", "shift=0,sleep=off"];

/// Polling interval of the console.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Machine<'a> {
    pub tools: &'a Tools,
    /// The file written by [`super::initramfs::Initramfs`].
    pub initramfs: &'a Path,
    /// QEMU's options for processors and time, such as [`FUNCTIONAL`].
    pub processors: &'a [&'a str],
    /// Kernel parameters beyond those of every guest.
    pub kernel_options: &'a str,
    /// File for the guest's console output.
    pub console: PathBuf,
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It shut down, or its kernel panicked.
    Itself,
    /// It was still running at the time limit.
    TimeUp,
}

/// Sends commands such as `nmi` to the running machine.
pub struct Monitor(ChildStdin);

impl Monitor {
    pub fn say(&mut self, command: &str) -> Result<()> {
        writeln!(self.0, "{command}").context("cannot write to the QEMU monitor")
    }
}

/// Killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine<'_> {
    /// Boots and passes each line of the console to `see`, until the guest shuts down. `see` may
    /// change the limit.
    pub fn run(
        &self,
        limit: &Cell<Duration>,
        mut see: impl FnMut(&str, &mut Monitor) -> Result<()>,
    ) -> Result<End> {
        File::create(&self.console)
            .with_context(|| format!("cannot create {}", self.console.display()))?;
        let mut qemu = self.tools.qemu()?;
        let (machine, terminal) = match self.tools.processor {
            Processor::X86 => (["-M", "q35", "-cpu", "max"], "ttyS0"),
            Processor::Arm => (["-M", "virt", "-cpu", "cortex-a76"], "ttyAMA0"),
        };
        qemu.args(machine).args(self.processors).args(["-m", "1G"]);
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        qemu.arg("-kernel").arg(&self.tools.kernel).arg("-initrd").arg(self.initramfs);
        // A kernel that panics reboots at once, which ends QEMU.
        qemu.args([
            "-append",
            &format!("console={terminal} panic=-1 quiet {}", self.kernel_options),
        ]);
        qemu.arg("-serial").arg(format!("file:{}", self.console.display()));
        qemu.args(["-monitor", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut running = Running(qemu.spawn().context("cannot start QEMU")?);
        let mut monitor = Monitor(running.0.stdin.take().context("QEMU has no input")?);

        let mut console = File::open(&self.console)?;
        let mut lines = Lines::default();
        let start = Instant::now();
        loop {
            let ended = running.0.try_wait()?;
            let mut text = Vec::new();
            console.read_to_end(&mut text)?;
            for line in lines.take(&text) {
                see(&line, &mut monitor)?;
            }
            if let Some(status) = ended {
                anyhow::ensure!(status.success(), "QEMU failed ({status})");
                return Ok(End::Itself);
            }
            if start.elapsed() > limit.get() {
                return Ok(End::TimeUp);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Splits chunks into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, piece: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(piece);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let mut lines = Lines::default();
        assert!(lines.take(b"one").is_empty());
        assert_eq!(lines.take(b" line\r\ntwo\nthr"), ["one line", "two"]);
        assert_eq!(lines.take(b"ee\n"), ["three"]);
    }
}
