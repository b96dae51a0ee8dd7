//! Kernel-dependent features, and operations that are done only to virtual machines: hooks that vary
//! between versions, limits of old kernels, injected NMIs, CPUs that go offline.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use trace::{Class, RecordFlags};

use crate::support::{
    LONG, Needs, Recording, Scratch, Test, cpus, detour, in_vm, patience, report, sum, text,
};

pub const TESTS: &[Test] = &[
    (
        "every_hook_that_this_kernel_has_is_attached_and_fires",
        Needs::RootAndTracefs,
        every_hook_that_this_kernel_has_is_attached_and_fires,
    ),
    (
        "a_low_limit_of_locked_memory_is_raised_or_the_remedy_said",
        Needs::Root,
        a_low_limit_of_locked_memory_is_raised_or_the_remedy_said,
    ),
    (
        "a_memory_limit_of_cgroup_v1_is_kept",
        Needs::RootAndMemoryOfV1,
        a_memory_limit_of_cgroup_v1_is_kept,
    ),
    (
        "probes_go_before_others_only_if_asked_to",
        Needs::RootAndTwoCpus,
        probes_go_before_others_only_if_asked_to,
    ),
    (
        "injected_nmis_are_counted_one_by_one",
        Needs::VmWithNmis,
        injected_nmis_are_counted_one_by_one,
    ),
    (
        "a_cpu_that_goes_offline_ends_its_measurement_and_nothing_else",
        Needs::Vm,
        a_cpu_that_goes_offline_ends_its_measurement_and_nothing_else,
    ),
];

/// The hooks according to `detour doctor`: name, whether present, and details.
fn hooks() -> Result<Vec<(String, bool, String)>> {
    let output = detour().args(["doctor", "--json"]).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let doctor: Value = serde_json::from_slice(&output.stdout)?;
    let checks = doctor["checks"].as_array().context("no checks")?;
    let hook = |check: &Value| {
        let name = check["what"].as_str()?.strip_prefix("hook ")?.to_owned();
        Some((name, check["state"] == "ok", check["found"].as_str()?.to_owned()))
    };
    Ok(checks.iter().filter_map(hook).collect())
}

/// Tracepoints of the running kernel, names only; None if tracefs is not mounted.
pub fn tracepoints() -> Option<BTreeSet<String>> {
    let listed = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|place| fs::read_to_string(Path::new(place).join("available_events")).ok())?;
    Some(listed.lines().filter_map(|line| Some(line.split_once(':')?.1.to_owned())).collect())
}

fn every_hook_that_this_kernel_has_is_attached_and_fires() -> Result<()> {
    let hooks = hooks()?;
    let tracepoints = tracepoints().context("no tracefs")?;
    ensure!(hooks.len() >= 15, "only {} hooks: {hooks:?}", hooks.len());
    let mut compared = 0;
    for (name, there, found) in &hooks {
        ensure!(!found.contains("does not fire"), "{name}: {found}");
        // Stock kernels have it; some refuse to attach it.
        if in_vm() && name == "handle_mm_fault return" {
            ensure!(found.starts_with("attached"), "{name}: {found}");
        }
        // Other hooks are functions, events and groups of tracepoints.
        let offered = tracepoints.contains(name);
        if offered || name.starts_with("ipi_send") || name.starts_with("csd_") {
            ensure!(*there == offered, "{name}: tracepoint exists: {offered}; {found}");
            compared += 1;
        } else {
            ensure!(*there, "{name}: {found}");
        }
    }
    ensure!(compared >= 10, "only {compared} hooks are known as tracepoints");
    Ok(())
}

/// Kernels before 5.11 charge BPF maps to locked memory.
fn a_low_limit_of_locked_memory_is_raised_or_the_remedy_said() -> Result<()> {
    let scratch = Scratch::new("memlock")?;
    // A user who may raise limits gets a full recording.
    let path = scratch.file("raised.detour");
    let output = limited(&path, true).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    ensure!(report(&path)?["mode"] == "attributed", "{}", text(&output.stderr));
    // One who may not gets it on newer kernels, and advice on older ones.
    let path = scratch.file("kept.detour");
    let output = limited(&path, false).output()?;
    let said = text(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let mode = report(&path)?["mode"].clone();
    if recorder::machine::version() >= (5, 11) {
        ensure!(mode == "attributed", "{mode}: {said}");
    } else {
        ensure!(mode == "probe_only" && said.contains("ulimit -l unlimited"), "{mode}: {said}");
    }
    Ok(())
}

/// A short recording with a limit of 64 KiB of locked memory, the default of old systems.
fn limited(path: &Path, may_raise: bool) -> Command {
    const CAP_SYS_RESOURCE: libc::c_ulong = 24;
    let mut command = detour();
    command.args(["record", "-d", "500ms", "-o"]).arg(path);
    let prepare = move || {
        let limit = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
        // SAFETY: the pointer refers to a live value.
        let mut result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
        if !may_raise && result == 0 {
            // SAFETY: takes only numbers. Dropped with the next exec.
            result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) };
        }
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: two system calls, nothing else, between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command
}

/// The mount point of the cgroup v1 memory controller.
pub fn memory_of_v1() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let limits_memory = |line: &&str| {
        line.contains(" - cgroup ")
            && line.rsplit(' ').next().is_some_and(|o| o.split(',').any(|o| o == "memory"))
    };
    let line = mounts.lines().find(limits_memory)?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// A cgroup that is removed with the test.
struct Limited(PathBuf);

impl Drop for Limited {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Buffers count against the job's limit: a recorder that ignores it is killed.
fn a_memory_limit_of_cgroup_v1_is_kept() -> Result<()> {
    const LIMIT: u64 = 128 << 20;
    let scratch = Scratch::new("memory-v1")?;
    let root = memory_of_v1().context("no cgroup v1 for memory")?;
    let limited = Limited(root.join(format!("detour-test-{}", std::process::id())));
    fs::create_dir(&limited.0)?;
    // The limit is set in the parent cgroup.
    fs::write(limited.0.join("memory.limit_in_bytes"), LIMIT.to_string())?;
    let below = Limited(limited.0.join("job"));
    fs::create_dir(&below.0)?;
    let mut procs = fs::File::options().write(true).open(below.0.join("cgroup.procs"))?;
    let path = scratch.file("trace.detour");
    let mut command = detour();
    command.args(["record", "-d", "2s", "-o"]).arg(&path);
    // SAFETY: a write between fork and exec.
    unsafe { command.pre_exec(move || std::io::Write::write_all(&mut procs, b"0")) };
    let output = command.output()?;
    ensure!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    let report = report(&path)?;
    ensure!(report["mode"] == "attributed", "{}: {}", report["mode"], text(&output.stderr));
    Ok(())
}

/// A real-time busy loop on every CPU would bring down the machine: the priority must not be inherited
/// from the process that started the recorder.
fn probes_go_before_others_only_if_asked_to() -> Result<()> {
    let scratch = Scratch::new("priority")?;
    let (measured, rest) = cpus();
    let cpus = ["-c".to_owned(), measured.to_string(), "-H".to_owned(), rest.to_string()];
    let cases = [
        (false, &[][..], libc::SCHED_OTHER),
        (true, &[], libc::SCHED_OTHER),
        (false, &["--fifo", "3"], libc::SCHED_FIFO),
    ];
    for (index, (inherited, more, expected)) in cases.into_iter().enumerate() {
        let mut command = detour();
        let prepare = move || {
            let priority = 10;
            let call = libc::SYS_sched_setscheduler;
            // SAFETY: the pointer refers to a live value; 0 is the calling thread.
            let result = unsafe { libc::syscall(call, 0, libc::SCHED_FIFO, &raw const priority) };
            if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        if inherited {
            // SAFETY: one system call between fork and exec.
            unsafe { command.pre_exec(prepare) };
        }
        let arguments = cpus.iter().map(String::as_str).chain(more.iter().copied());
        let arguments: Vec<&str> = arguments.chain(["-d", LONG]).collect();
        let path = scratch.file(&format!("{index}.detour"));
        let recording = Recording::start_with(command, &path, &arguments)?;
        let policies = policies(recording.pid(), "detour-probe")?;
        ensure!(policies == [expected], "{inherited} {more:?}: {policies:?}");
        recording.stop()?;
    }
    Ok(())
}

/// Scheduling policies of the threads with this name.
fn policies(pid: u32, name: &str) -> Result<Vec<i32>> {
    // Field index after the name in parentheses, which may contain anything.
    const POLICY: usize = 38;
    let mut policies = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("stat"))?;
        let (before, fields) = stat.rsplit_once(") ").context("no stat")?;
        if before.ends_with(&format!("({name}")) {
            let field = fields.split_whitespace().nth(POLICY).context("no policy")?;
            policies.push(field.parse()?);
        }
    }
    Ok(policies)
}

/// The host injects them when the console requests it.
fn injected_nmis_are_counted_one_by_one() -> Result<()> {
    const WANTED: u64 = 20;
    const ASK_AGAIN: Duration = Duration::from_secs(10);
    let scratch = Scratch::new("nmi")?;
    // What comes before a probe's first clock reading is not recorded, and that moment is unknown
    // outside.
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["--no-probe", "-d", LONG])?;
    let before = nmis()?;
    for _ in 0..WANTED {
        let seen = nmis()?;
        let start = Instant::now();
        // One at a time: two pending NMIs are merged into one.
        while nmis()? == seen {
            ensure!(start.elapsed() < patience(), "only {} NMIs arrived", seen - before);
            fs::write("/dev/console", "@vm nmi\n")?;
            // The kernel writes to the console as well, and may have garbled the request.
            let asked = Instant::now();
            while nmis()? == seen && asked.elapsed() < ASK_AGAIN {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let came = nmis()? - before;
    let trace = recording.stop()?;
    let report = trace.report()?;
    let recorded = sum(&report, "nmi", "", "count");
    // An NMI must not wait for a lock; a record that could not be written is counted as lost.
    let lost = report["lost"]["records"].as_u64().context("no count of lost records")?;
    ensure!(
        came >= WANTED && recorded <= came && recorded + lost >= came,
        "{recorded} of {came} recorded, {lost} records lost"
    );
    Ok(())
}

/// On all CPUs, as counted by the kernel.
fn nmis() -> Result<u64> {
    let interrupts = fs::read_to_string("/proc/interrupts")?;
    let line = interrupts.lines().find_map(|line| line.trim().strip_prefix("NMI:"));
    let counts = line.context("no NMI in /proc/interrupts")?.split_whitespace();
    Ok(counts.map_while(|count| count.parse::<u64>().ok()).sum())
}

/// Takes a CPU offline, and back online on drop.
struct Offline(&'static str);

impl Offline {
    fn switch(cpu: &'static str) -> Result<Offline> {
        fs::write(cpu, "0").with_context(|| format!("cannot take {cpu} offline"))?;
        Ok(Offline(cpu))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(self.0, "1");
    }
}

fn a_cpu_that_goes_offline_ends_its_measurement_and_nothing_else() -> Result<()> {
    let scratch = Scratch::new("offline")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["-c", "0-1", "-d", LONG])?;
    std::thread::sleep(Duration::from_secs(2));
    let offline = Offline::switch("/sys/devices/system/cpu/cpu1/online")?;
    std::thread::sleep(Duration::from_secs(2));
    // It comes back, but is no longer measured.
    drop(offline);
    std::thread::sleep(Duration::from_secs(2));
    let stopping = Instant::now();
    let trace = recording.stop()?;
    ensure!(stopping.elapsed() < patience(), "stopping took {:?}", stopping.elapsed());
    let report = trace.report()?;
    ensure!(report["truncated"].is_null(), "{}", report["truncated"]);
    let remarks = report["remarks"].to_string();
    ensure!(remarks.contains("CPU 1 was taken away"), "{remarks}");
    let watched = |cpu: u64| {
        let cpus = report["cpus"].as_array()?;
        cpus.iter().find(|row| row["cpu"] == cpu)?["window_s"].as_f64()
    };
    let (Some(first), Some(second)) = (watched(0), watched(1)) else {
        bail!("no watched times in {}", report["cpus"])
    };
    ensure!(first > 5.5 && second > 1.5 && second < first - 3.0, "{first} s and {second} s");
    // The other one has ticks until the end.
    let last = |class: Class| {
        let records = trace.records().filter(|(source, _)| source.class == class);
        let counted = records.filter(|(_, r)| !r.flags.contains(RecordFlags::CONTINUED));
        counted.map(|(_, record)| record.start_ns).max().unwrap_or(0)
    };
    ensure!(last(Class::Timer) as f64 > (first - 1.0) * 1e9, "ticks end too early");
    Ok(())
}
