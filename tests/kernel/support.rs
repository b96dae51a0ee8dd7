//! Shared by the kernel tests: starting recordings and loads, and reading the results.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use trace::{Block, Lane, LaneTotals, MemoryTaken, Reader, Record, Source};

/// Name, requirements, and the test.
pub type Test = (&'static str, Needs, fn() -> Result<()>);

/// Why a running test cannot continue: it counts as skipped, not as passed.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a test as skipped.
pub fn skip(why: impl Into<String>) -> Result<()> {
    Err(Skip(why.into()).into())
}

/// Attempts at a test that a hypervisor disturbs.
const ATTEMPTS: u32 = 6;

/// Runs a test that compares figures with the kernel's. If a hypervisor takes a CPU away for tens of
/// milliseconds, another CPU fills its ring while the reader does not run, and a wake-up waits for a
/// CPU that does not run, which the kernel does not count as waiting: one stolen tick is 10 ms, as much as
/// tests allow in a second. A failure with steal time is retried, and the test counts as skipped if there
/// was some in every attempt. A failure without steal time is a failure.
///
/// An emulated machine cannot see its host's steal time: there a failure is retried as often, and the
/// last one counts.
pub fn undisturbed(test: fn() -> Result<()>) -> Result<()> {
    let mut attempt = 1;
    loop {
        let before = cpu_ticks("cpu")?;
        let Err(error) = test() else { return Ok(()) };
        let after = cpu_ticks("cpu")?;
        let is_last = attempt == ATTEMPTS;
        let stolen = after[STEAL] > before[STEAL];
        if error.is::<Skip>() || !stolen && (is_last || !in_vm()) {
            return Err(error);
        }
        let disturbed = match in_vm() {
            true => format!("attempt {attempt} failed"),
            false => {
                let share = share(&before, &after, STEAL);
                format!("the hypervisor stole {:.1} % of the CPU time", 100.0 * share)
            }
        };
        // The beginning is enough; some errors list everything that was recorded.
        println!("{disturbed}: {:.200}", error.to_string());
        if is_last {
            return skip(disturbed);
        }
        attempt += 1;
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Places in a line of /proc/stat.
const IDLE: usize = 3;
const STEAL: usize = 7;

/// Steal time of a CPU, in ticks.
pub fn stolen_ticks(cpu: u32) -> Result<u64> {
    Ok(cpu_ticks(&format!("cpu{cpu}"))?[STEAL])
}

/// The share of a CPU's time in which it was idle while `work` ran.
pub fn idle_share<T>(cpu: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let name = format!("cpu{cpu}");
    let before = cpu_ticks(&name)?;
    let done = work()?;
    Ok((done, share(&before, &cpu_ticks(&name)?, IDLE)))
}

/// The share of one field in the time between two readings.
fn share(before: &[u64; 8], after: &[u64; 8], field: usize) -> f64 {
    let passed = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    (after[field] - before[field]) as f64 / passed.max(1) as f64
}

/// A line of /proc/stat up to the steal time; the fields after it are contained in earlier ones.
fn cpu_ticks(name: &str) -> Result<[u64; 8]> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let fields = line.with_context(|| format!("no {name} in /proc/stat"))?.split_ascii_whitespace();
    let ticks = fields.take(8).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    ticks.try_into().ok().context("no steal time in /proc/stat")
}

/// The requirements of a test.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    Nothing,
    Root,
    /// Root, and a CPU for the recorder besides the measured one.
    RootAndTwoCpus,
    /// Root, three CPUs, and a kernel that traces the sender of IPIs to several CPUs.
    RootAndIpiMasks,
    /// Root, two CPUs, and a file or block device whose pages can be dropped from the page cache.
    RootAndStorage,
    /// Root, and cgroups with CPU quotas.
    RootAndQuotas,
    /// Root, and control over the PID of the next process.
    RootAndNumbers,
    /// Root, and util-linux's setpriv to drop privileges.
    RootAndSetpriv,
    /// The same, and a kernel that shows its symbols to processes with CAP_SYSLOG.
    RootSetprivAndSymbols,
    /// Root, and util-linux's unshare.
    RootAndUnshare,
    /// Root, and a cgroup v1 hierarchy that limits memory.
    RootAndMemoryOfV1,
    /// A disposable virtual machine of `cargo xtask vm`.
    Vm,
    /// One whose host can inject NMIs.
    VmWithNmis,
    /// Root, and the kernel's list of tracepoints.
    RootAndTracefs,
    /// Root, and permission to set the clock.
    RootAndTheClock,
    /// Root, two CPUs, and a cgroup hierarchy with cpusets.
    RootAndCpusets,
    /// One whose second CPU is isolated by the kernel's command line.
    IsolatedVm,
    /// One with this many CPUs whose clock counts instructions.
    CountingMachine(usize),
}

impl Needs {
    pub fn are_met(self) -> bool {
        let root = rustix::process::geteuid().is_root();
        match self {
            Needs::Nothing => true,
            Needs::Root => root,
            Needs::RootAndTwoCpus => root && recorder::machine::allowed().len() >= 2,
            Needs::RootAndIpiMasks => {
                let machine = (recorder::machine::allowed().len(), recorder::machine::version());
                root && machine.0 >= 3 && machine.1 >= (6, 4)
            }
            Needs::RootAndStorage => Needs::RootAndTwoCpus.are_met() && Storage::is_there(),
            Needs::RootAndQuotas => root && crate::waits::quotas_can_be_made(),
            Needs::RootAndNumbers => root && Path::new(crate::waits::LAST_NUMBER).exists(),
            Needs::RootAndSetpriv => {
                root && Command::new("setpriv").arg("--version").output().is_ok()
            }
            Needs::RootSetprivAndSymbols => {
                let hidden = recorder::files::text("/proc/sys/kernel/kptr_restrict") == "2";
                Needs::RootAndSetpriv.are_met() && !hidden
            }
            Needs::RootAndUnshare => {
                root && Command::new("unshare").arg("--version").output().is_ok()
            }
            Needs::RootAndMemoryOfV1 => root && crate::machine::memory_of_v1().is_some(),
            Needs::Vm => root && in_vm(),
            Needs::VmWithNmis => root && in_vm() && cfg!(target_arch = "x86_64"),
            Needs::RootAndTracefs => root && crate::machine::tracepoints().is_some(),
            Needs::RootAndTheClock => root && crate::faults::clock::may_be_set(),
            Needs::RootAndCpusets => {
                Needs::RootAndTwoCpus.are_met()
                    && crate::faults::cpuset::Hierarchy::find().is_some()
            }
            Needs::IsolatedVm => {
                root && std::env::var("DETOUR_VM").is_ok_and(|kind| kind == "isolated")
            }
            Needs::CountingMachine(cpus) => {
                let counting = std::env::var("DETOUR_VM").is_ok_and(|kind| kind == "counting");
                root && counting && recorder::machine::online().len() == cpus
            }
        }
    }
}

/// Whether this is a virtual machine of `cargo xtask vm`: every instruction is emulated, at a
/// hundredth of the speed, and the host takes its CPUs away at any time. Recordings must be correct
/// there as well; their volume, and their timing to the microsecond, are not comparable.
pub fn in_vm() -> bool {
    std::env::var_os("DETOUR_VM").is_some()
}

/// Passes a figure for publication to the host of a virtual machine.
pub fn figure(what: &str, value: &str) -> Result<()> {
    Ok(fs::write("/dev/console", format!("@vm figure {what}: {value}\n"))?)
}

/// A number of events that a load produces quickly; fewer in a virtual machine.
pub fn scaled(count: u64) -> u64 {
    if in_vm() { count / 50 } else { count }
}

/// Timeout for anything that should take a moment.
pub fn patience() -> Duration {
    Duration::from_secs(if in_vm() { 180 } else { 30 })
}

/// Hidden tasks: tasks for which BPF programs do not run, as on some hosts for the agent that is
/// process 1. Interrupts that hit them are not seen, which cannot be helped here; but the kernel tells
/// how long they ran.
pub struct Hidden {
    ran_ns: u64,
}

impl Hidden {
    pub fn start() -> Hidden {
        Hidden { ran_ns: Hidden::ran_ns() }
    }

    /// How long they ran since the start.
    pub fn stop(self) -> Hidden {
        Hidden { ran_ns: Hidden::ran_ns() - self.ran_ns }
    }

    /// How many events may have hit them that are at least `apart_ns` apart. `unmatched` is how often
    /// the recorder detected an unseen switch; if never, none.
    pub fn may_have_taken(&self, unmatched: u64, apart_ns: u64) -> u64 {
        match unmatched {
            0 => 0,
            slices => slices + self.ran_ns / apart_ns,
        }
    }

    /// CPU time of process 1, including threads that have ended.
    fn ran_ns() -> u64 {
        // Like clock_getcpuclockid(3): the inverted PID, and which clock.
        let clock: libc::clockid_t = (!1 << 3) | 2;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer refers to a live value.
        match unsafe { libc::clock_gettime(clock, &mut time) } {
            0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            _ => 0,
        }
    }
}

/// The measured CPU and the one for everything else.
pub fn cpus() -> (u32, u32) {
    let allowed = recorder::machine::allowed();
    let first = allowed.first().copied().unwrap_or(0);
    let last = allowed.last().copied().unwrap_or(0);
    (last, first)
}

pub fn detour() -> Command {
    match programs() {
        Some(directory) => Command::new(directory.join("detour")),
        None => Command::new(env!("CARGO_BIN_EXE_detour")),
    }
}

/// Where the programs are on a machine without cargo.
fn programs() -> Option<PathBuf> {
    std::env::var_os("DETOUR_PROGRAMS").map(PathBuf::from)
}

/// The load generator, built on first use.
pub fn loadgen() -> Result<Command> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if let Some(directory) = programs() {
        return Ok(Command::new(directory.join("loadgen")));
    }
    let built = BUILT.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_detour")).with_file_name("loadgen");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--package", "loadgen"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        match cargo.status() {
            Ok(status) if status.success() && beside.exists() => Ok(beside),
            other => Err(format!("cannot build the load generator: {other:?}")),
        }
    });
    match built {
        Ok(path) => Ok(Command::new(path)),
        Err(why) => bail!("{why}"),
    }
}

/// Runs a load to completion and returns its counts.
pub fn load(arguments: &[&str]) -> Result<Value> {
    let output = loadgen()?.args(arguments).output()?;
    ensure!(output.status.success(), "loadgen {arguments:?}: {}", text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A load in the background, killed on drop.
pub struct Load(pub Child);

impl Load {
    /// Keeps a CPU from being idle. An idle one has no regular tick.
    pub fn burn(cpu: u32) -> Result<Load> {
        let mut burn = loadgen()?;
        burn.args(["burn", "--cpu", &cpu.to_string(), "--seconds", "600"]);
        Ok(Load(burn.stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A burst, as logged by the daemon.
pub struct Burst {
    pub start: u64,
    pub end: u64,
    /// CPU time charged by the kernel.
    pub charged: u64,
    /// And from the end of the previous burst to the start of this one.
    pub way: u64,
}

pub fn bursts(log: &Path) -> Result<Vec<Burst>> {
    let text = fs::read_to_string(log)?;
    let burst = |line: &str| {
        let mut words = line.split(' ').map(str::parse);
        let mut word = || words.next()?.ok();
        Some(Burst { start: word()?, end: word()?, charged: word()?, way: word()? })
    };
    Ok(text.lines().filter_map(burst).collect())
}

/// A daemon that is late does not sleep between two bursts: both are in one slice.
pub fn separate(bursts: &[Burst]) -> u64 {
    1 + bursts.windows(2).filter(|pair| pair[1].start > pair[0].end + 1_000_000).count() as u64
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A temporary directory that is removed with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("detour-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Something to read from: a file on a disk, or in a virtual machine, which has no disk, a loop device
/// set up by its script.
pub struct Storage(PathBuf);

impl Storage {
    const LOOP: &str = "/dev/loop0";
    const BYTES: usize = 1 << 20;

    fn is_there() -> bool {
        !in_vm()
            || fs::File::open(Storage::LOOP).is_ok_and(|mut file| {
                use std::io::{Seek, SeekFrom};
                file.seek(SeekFrom::End(0)).is_ok_and(|bytes| bytes > 0)
            })
    }

    pub fn new(scratch: &Scratch) -> Result<Storage> {
        if in_vm() {
            return Ok(Storage(PathBuf::from(Storage::LOOP)));
        }
        // /tmp may be a tmpfs, which is not read from storage; the target directory is not.
        let path = match on_tmpfs(&scratch.0) {
            true => Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("storage-{}", std::process::id())),
            false => scratch.file("storage"),
        };
        fs::write(&path, vec![7; Storage::BYTES])?;
        // Dirty pages cannot be dropped.
        fs::File::open(&path)?.sync_all()?;
        Ok(Storage(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if !in_vm() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

fn on_tmpfs(path: &Path) -> bool {
    // The field has another type in other C libraries.
    const TMPFS_MAGIC: u32 = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type as u32 == TMPFS_MAGIC)
}

/// Longer than any load; recordings are stopped when their load ends.
pub const LONG: &str = "300s";

/// A running recorder.
pub struct Recording {
    child: Option<Child>,
    pub path: PathBuf,
}

impl Recording {
    /// Starts `detour record` with these arguments and waits until it records.
    pub fn start(path: &Path, arguments: &[&str]) -> Result<Recording> {
        Recording::start_with(detour(), path, arguments)
    }

    /// The same with a prepared command.
    pub fn start_with(mut command: Command, path: &Path, arguments: &[&str]) -> Result<Recording> {
        let child = command
            .args(["record", "--quiet", "-o"])
            .arg(path)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut recording = Recording { child: Some(child), path: path.to_owned() };
        let start = Instant::now();
        // The file is created once everything is ready.
        while !fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
            if let Some(child) = &mut recording.child
                && child.try_wait()?.is_some()
            {
                let output = recording.output()?;
                bail!("the recorder exited at once: {}", text(&output.stderr));
            }
            ensure!(start.elapsed() < patience(), "the recorder did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(recording)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).context("no pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits until it ends and reads the trace.
    pub fn wait(mut self) -> Result<Trace> {
        let output = self.output()?;
        ensure!(output.status.success(), "the recorder failed: {}", text(&output.stderr));
        Trace::read(&self.path)
    }

    /// Waits until it ends, with any exit code.
    pub fn output(&mut self) -> Result<Output> {
        self.child
            .take()
            .context("the recorder has already ended")?
            .wait_with_output()
            .map_err(Into::into)
    }

    /// Stops it like Ctrl-C and reads the trace.
    pub fn stop(self) -> Result<Trace> {
        self.signal(rustix::process::Signal::INT)?;
        self.wait()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A trace in memory, with times converted back to CLOCK_MONOTONIC.
pub struct Trace {
    pub path: PathBuf,
    pub sources: Vec<Source>,
    pub blocks: Vec<Block>,
    lanes: Vec<Lane>,
    totals: Vec<LaneTotals>,
    epoch_ns: u64,
    pub memory: Option<MemoryTaken>,
}

impl Trace {
    pub fn read(path: &Path) -> Result<Trace> {
        let reader = Reader::open(path)?;
        let blocks = reader.blocks().collect::<Result<Vec<_>, _>>()?;
        let sources = reader.sources().to_vec();
        let epoch_ns = reader.manifest().started_monotonic_ns;
        let lanes = reader.lanes().to_vec();
        let totals = reader.trailer().map(|trailer| trailer.lanes.clone()).unwrap_or_default();
        let memory = reader.manifest().memory;
        Ok(Trace { path: path.to_owned(), sources, blocks, lanes, totals, epoch_ns, memory })
    }

    pub fn records(&self) -> impl Iterator<Item = (&Source, &Record)> {
        let records = self.blocks.iter().flat_map(|block| &block.records);
        records.map(|record| (&self.sources[record.source.0 as usize], record))
    }

    /// Those of the first thread of a process.
    pub fn records_of(&self, pid: u32) -> impl Iterator<Item = (&Source, &Record)> {
        let is_it = move |lane: &Lane| matches!(lane, Lane::Thread { tid, .. } if *tid == pid);
        let lanes = self.lanes.iter().map(is_it).collect::<Vec<bool>>();
        let own = move |block: &&Block| lanes.get(block.lane.0 as usize) == Some(&true);
        let records = self.blocks.iter().filter(own).flat_map(|block| &block.records);
        records.map(|record| (&self.sources[record.source.0 as usize], record))
    }

    /// The time span in which each lane was watched, by lane number, on CLOCK_MONOTONIC.
    pub fn lanes_watched(&self) -> Vec<(u64, u64)> {
        let on_clock = |t: &LaneTotals| (self.epoch_ns + t.from_ns, self.epoch_ns + t.to_ns);
        self.totals.iter().map(on_clock).collect()
    }

    /// Start and end of a record on CLOCK_MONOTONIC.
    pub fn span(&self, record: &Record) -> (u64, u64) {
        let start = self.epoch_ns + record.start_ns;
        (start, start + record.gross_ns)
    }

    /// The time span in which a thread of this name was watched, on CLOCK_MONOTONIC.
    pub fn watched(&self, wanted: &str) -> Option<(u64, u64)> {
        let is_it = |lane: &Lane| matches!(lane, Lane::Thread { name, .. } if name == wanted);
        let lane = self.lanes.iter().position(is_it)?;
        let totals = self.totals.iter().find(|totals| totals.lane as usize == lane)?;
        Some((self.epoch_ns + totals.from_ns, self.epoch_ns + totals.to_ns))
    }

    /// Everything recorded within a millisecond of a time span, one line each, for messages.
    pub fn around(&self, from: u64, to: u64) -> String {
        let (from, to) = (from.saturating_sub(1_000_000), to + 1_000_000);
        let mut lines: Vec<(u64, String)> = self
            .records()
            .map(|(source, record)| (source, record, self.span(record)))
            .filter(|(_, _, (start, end))| *end >= from && *start <= to)
            .map(|(source, record, (start, end))| {
                let name = format!("{:?} {}", source.class, source.name);
                (start, format!("{start} to {end}: {name} {:?}\n", record.flags))
            })
            .collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// The report as JSON.
    pub fn report(&self) -> Result<Value> {
        report(&self.path)
    }
}

pub fn report(path: &Path) -> Result<Value> {
    let output = detour().args(["report", "--json", "--no-projection"]).arg(path).output()?;
    ensure!(output.status.success(), "report: {}", text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Sum of a number over the sources of a class (and a name, unless empty) in a report.
pub fn sum(report: &Value, class: &str, name: &str, key: &str) -> u64 {
    let sources = report["sources"].as_array().into_iter().flatten();
    sources
        .filter(|s| s["class"] == class && (name.is_empty() || s["name"] == name))
        .filter_map(|s| s[key].as_u64())
        .sum()
}

pub fn monotonic_ns() -> u64 {
    recorder::probe::clock::monotonic_ns()
}
