//! Facts about this machine: CPUs and their permitted use, isolation, clocks, names. All from /proc and
//! /sys; what is missing is empty, not an error.

use std::{collections::BTreeSet, fs, io};

use rustix::{
    io::Errno,
    thread::{CpuSet as KernelCpuSet, Pid, sched_getaffinity, sched_setaffinity},
};
use trace::{Isolation, Topology};

use crate::{
    cpulist::{self, CpuSet},
    node::{
        files::{self, text},
        memory_limit,
    },
};

fn list(path: &str) -> CpuSet {
    // The kernel writes "(null)" for an unset nohz_full on some versions.
    cpulist::parse(&text(path)).unwrap_or_default()
}

pub fn online() -> CpuSet {
    list("/sys/devices/system/cpu/online")
}

pub fn isolated() -> CpuSet {
    list("/sys/devices/system/cpu/isolated")
}

pub fn nohz_full() -> CpuSet {
    list("/sys/devices/system/cpu/nohz_full")
}

/// CPUs this process may run on.
pub fn allowed() -> CpuSet {
    // The C library's cpu_set_t is limited to 1024 CPUs; so is this.
    let Ok(set) = sched_getaffinity(None) else { return online() };
    (0..KernelCpuSet::MAX_CPU).filter(|&c| set.is_set(c)).map(|c| c as u32).collect()
}

/// Pins the calling thread. False if the kernel refuses, as it does for CPUs outside the cpuset.
pub fn pin(cpus: &CpuSet) -> bool {
    let mut set = KernelCpuSet::new();
    for &cpu in cpus.iter().filter(|&&c| (c as usize) < KernelCpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set).is_ok()
}

/// Whether a thread of this process may run on a CPU, even if it is not in the affinity that the process was
/// started with.
pub fn may_be_pinned_to(cpu: u32) -> bool {
    std::thread::spawn(move || pin(&CpuSet::from([cpu]))).join().unwrap_or(false)
}

/// Whether the calling thread has a real-time policy.
pub fn is_real_time() -> bool {
    // SAFETY: no pointers; 0 is the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    let policy = policy as i32 & !libc::SCHED_RESET_ON_FORK;
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
}

/// Sets the scheduling policy of the calling thread.
pub fn set_policy(policy: i32, priority: u32) -> io::Result<()> {
    // The kernel's `sched_param` is this one number. Uses the system call, since one C library refuses.
    let priority = priority as i32;
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: the pointer is to a live value; 0 is the calling thread.
    let result = unsafe { libc::syscall(call, 0, policy, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a thread may run on its CPU and nowhere else. Removing the CPU from the cpuset, or taking it
/// offline, changes that silently. True for a thread that has ended.
pub fn is_pinned(tid: u32, cpu: u32) -> bool {
    let Ok(set) = sched_getaffinity(Pid::from_raw(tid as i32)) else { return true };
    set.count() == 1 && set.is_set(cpu as usize)
}

/// Pins another thread of this process to a CPU again. False if the CPU is not available.
pub fn put_back(tid: u32, cpu: u32) -> bool {
    let mut set = KernelCpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(Pid::from_raw(tid as i32), &set).is_ok()
}

/// Whether a task with this number exists, even if /proc hides it.
pub fn is_alive(tid: u32) -> bool {
    let task = Pid::from_raw(tid as i32);
    task.is_some_and(|task| rustix::process::test_kill_process(task) != Err(Errno::SRCH))
}

/// Whether a task is runnable, and the CPU it is on, waits for or last ran on. None if it has ended.
pub fn placed(tid: u32) -> Option<(bool, u16)> {
    let stat = files::read(format!("/proc/{tid}/stat"))?;
    // The name may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let cpu = fields.nth(35)?.trim().parse().ok()?;
    Some((state == "R", cpu))
}

/// Whether a process has a thread that can run: a zombie stays until it is reaped, and a leader that has
/// ended leaves its threads behind. By its number in /proc.
pub fn runs(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return is_alive(pid) };
    let ended = |stat: &str| {
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes().first().copied());
        matches!(state, Some(Some(b'Z' | b'X')))
    };
    let mut stats = tasks.flatten().filter_map(|task| files::read(task.path().join("stat")));
    stats.any(|stat| !ended(&stat))
}

/// How long the machine has been suspended since boot, ns.
pub fn suspended_ns() -> u64 {
    let ns = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let monotonic = ns(rustix::time::ClockId::Monotonic);
    ns(rustix::time::ClockId::Boottime).saturating_sub(monotonic)
}

/// Gives the calling thread priority over all ordinary threads, including those of other cgroups and
/// sessions, if permitted; for one that never runs for long.
pub fn go_before_all() {
    if set_policy(libc::SCHED_FIFO, 1).is_err() {
        go_first();
    }
}

/// Gives the calling thread priority when it is woken, if permitted.
pub fn go_first() {
    // Fails without CAP_SYS_NICE; then it keeps its normal priority.
    let _ = rustix::process::setpriority_process(None, -20);
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The node name in the batch system, or else the host name.
pub fn host() -> String {
    if let Some(name) = variable(&["SLURMD_NODENAME"]) {
        return name;
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The first two numbers of the kernel's version.
pub fn version() -> (u32, u32) {
    let release = kernel();
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

pub fn architecture() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// Ticks per second: the coarse clock advances once per tick.
pub fn tick_hz() -> u32 {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let ns = resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64;
    (1_000_000_000 + ns / 2).checked_div(ns).unwrap_or(0) as u32
}

pub fn clocksource() -> String {
    text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

pub fn cpu_model() -> String {
    let info = text("/proc/cpuinfo");
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    field("model name").or_else(|| field("CPU implementer")).unwrap_or_default()
}

pub fn topology() -> Topology {
    let online = online();
    let mut sockets = BTreeSet::new();
    let mut cores = BTreeSet::new();
    let mut siblings = BTreeSet::new();
    for cpu in &online {
        let base = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let socket = text(format!("{base}/physical_package_id"));
        cores.insert((socket.clone(), text(format!("{base}/core_id"))));
        sockets.insert(socket);
        let threads = text(format!("{base}/thread_siblings_list"));
        if cpulist::parse(&threads).is_ok_and(|set| set.len() > 1) {
            siblings.insert(threads);
        }
    }
    let nodes = cpulist::parse(&text("/sys/devices/system/node/online")).unwrap_or_default();
    let numa_nodes = nodes.len().max(1) as u32;
    let numa_cpus =
        nodes.iter().map(|node| text(format!("/sys/devices/system/node/node{node}/cpulist")));
    // A node may have memory but no CPU.
    let numa_cpus = numa_cpus.filter(|cpus| !cpus.is_empty()).collect();
    Topology {
        online: cpulist::format(&online),
        sockets: sockets.len() as u32,
        cores: cores.len() as u32,
        numa_nodes,
        smt_siblings: siblings.into_iter().collect(),
        numa_cpus,
    }
}

pub fn isolation(measured: &CpuSet, housekeeping: &CpuSet) -> Isolation {
    let command_line = text("/proc/cmdline");
    let option = |name: &str| {
        let prefix = format!("{name}=");
        command_line.split_whitespace().find_map(|w| w.strip_prefix(&prefix)).map(str::to_owned)
    };
    Isolation {
        isolated: cpulist::format(&isolated()),
        nohz_full: cpulist::format(&nohz_full()),
        rcu_nocbs: option("rcu_nocbs"),
        irq_affinity: option("irqaffinity"),
        kernel_command_line: command_line.clone(),
        measured: cpulist::format(measured),
        housekeeping: cpulist::format(housekeeping),
    }
}

/// Available memory in bytes, 1 GiB if unknown.
pub fn available_memory() -> u64 {
    text("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(1 << 30, |kib| kib * 1024)
        .min(memory_limit::headroom())
        .min(address_space())
}

/// The address space that `ulimit -v` leaves.
fn address_space() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let pages = text("/proc/self/statm");
    let pages = pages.split_whitespace().next().and_then(|pages| pages.parse::<u64>().ok());
    let used = pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64);
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(used))
}

/// The id of the batch job this runs in.
pub fn job_id() -> Option<String> {
    // The last one is set by mpirun without a batch system.
    const NAMES: [&str; 6] =
        ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID", "PMIX_NAMESPACE"];
    variable(&NAMES)
}

/// The rank of this process in the job.
pub fn rank() -> Option<String> {
    variable(&["SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK"])
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Whether this process was started with a signal ignored, as nohup(1) does.
pub fn ignores_signal(signal: i32) -> bool {
    let status = text("/proc/self/status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

/// Real-time signals that a program may handle: C libraries keep the first ones for themselves, glibc two and
/// musl three.
pub fn real_time_signals() -> std::ops::RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Effective capabilities of this process, as the kernel's bit mask.
pub fn capabilities() -> u64 {
    text("/proc/self/status")
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

pub const CAP_SYS_ADMIN: u32 = 21;
pub const CAP_SYS_NICE: u32 = 23;
pub const CAP_SYSLOG: u32 = 34;
pub const CAP_PERFMON: u32 = 38;
pub const CAP_BPF: u32 = 39;

/// The capabilities an ordinary user needs to record everything, including names of kernel functions.
/// The unit, the container recipe and the documentation use the same (`tests/packaging.rs`).
pub const SETCAP: &str = "sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep $(command -v detour)";

pub fn has_capability(capability: u32) -> bool {
    capabilities() >> capability & 1 == 1
}

/// Whether the capabilities for BPF programs are present.
pub fn may_load_bpf() -> bool {
    has_capability(CAP_SYS_ADMIN) || has_capability(CAP_BPF) && has_capability(CAP_PERFMON)
}
