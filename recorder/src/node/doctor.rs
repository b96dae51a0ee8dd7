//! Checks what this machine can record: every requirement, its state, and the command that fixes it.

use std::{fs, io, sync::atomic::AtomicBool};

use serde::Serialize;

use crate::{
    cpulist,
    kernel::{
        bpf::{self, Bpf},
        hooks::{Hook, hooks},
    },
    naming::{
        pids,
        symbols::{Hidden, Symbols},
    },
    node::{files, machine, memory::Memory},
    record::best_counter,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    /// Recording works, with less detail or more disturbance.
    Reduced,
    /// Recording, or the part named, does not work.
    Missing,
}

#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub what: String,
    pub state: State,
    /// What was found.
    pub found: String,
    /// The command that fixes it, or other advice.
    pub remedy: Option<String>,
}

fn check(what: &str, state: State, found: impl Into<String>, remedy: Option<&str>) -> Check {
    Check {
        what: what.to_owned(),
        state,
        found: found.into(),
        remedy: remedy.filter(|_| state != State::Ok).map(str::to_owned),
    }
}

/// Runs every check. Briefly loads and attaches the programs if permitted.
pub fn examine() -> Vec<Check> {
    let mut checks = vec![kernel(), privileges(), pid_namespace(), btf()];
    checks.extend(hook_checks());
    checks.extend([
        clock(),
        symbols(),
        cpus(),
        isolation(),
        realtime(),
        counters(),
        memory(),
        memlock(),
        cgroup(),
    ]);
    checks
}

fn kernel() -> Check {
    let state = if machine::version() >= (5, 8) { State::Ok } else { State::Missing };
    check("kernel", state, machine::kernel(), Some("use Linux 5.8 or later for BPF ring buffers"))
}

fn privileges() -> Check {
    let has = machine::has_capability;
    let admin = has(machine::CAP_SYS_ADMIN);
    let missing: Vec<&str> = [(machine::CAP_BPF, "CAP_BPF"), (machine::CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(capability, _)| !admin && !has(*capability))
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        return check("privileges", State::Ok, "may load BPF programs", None);
    }
    check(
        "privileges",
        State::Missing,
        format!("{} missing: only the probe can record", missing.join(" and ")),
        Some(&format!("sudo detour ..., or: {}", machine::SETCAP)),
    )
}

fn pid_namespace() -> Check {
    match pids::own_namespace() {
        None => check("PID namespace", State::Ok, "initial namespace", None),
        Some(_) => check(
            "PID namespace",
            State::Reduced,
            "nested: processes outside it are listed by their host PIDs",
            Some("start the container with --pid=host to see only host PIDs"),
        ),
    }
}

fn btf() -> Check {
    let remedy =
        Some("use a kernel with CONFIG_DEBUG_INFO_BTF=y (all current distributions have it)");
    match bpf::kernel_btf() {
        Ok(_) => check("BTF", State::Ok, "/sys/kernel/btf/vmlinux", None),
        Err(error) => check("BTF", State::Missing, error.to_string(), remedy),
    }
}

fn hook_checks() -> Vec<Check> {
    let watched = machine::allowed();
    let stop = AtomicBool::new(false);
    // Nothing is sent.
    let options = bpf::LoadOptions {
        program: true,
        audit: true,
        ..bpf::LoadOptions::new(&watched, (1 << 12, 1 << 12), &stop)
    };
    let bpf = match Bpf::load(&options) {
        Ok(bpf) => bpf,
        Err(error) => return vec![check("hooks", State::Missing, error.to_string(), None)],
    };
    hooks().map(|hook| hook_check(hook, &bpf)).collect()
}

fn hook_check(hook: &Hook, bpf: &Bpf) -> Check {
    let what = format!("hook {}", hook.name);
    if let Some(missing) = bpf.missing.iter().find(|m| m.hook == hook.name) {
        let found = format!("{}: {}", missing.why, hook.without);
        return check(&what, State::Reduced, found, None);
    }
    if let Some(better) = hook.instead_of.filter(|better| bpf.has(better)) {
        return check(&what, State::Ok, format!("not needed: {better} is used"), None);
    }
    if let Some(replaced) = bpf.replaced.iter().find(|m| m.hook == hook.name) {
        return check(&what, State::Ok, format!("{}: {}", replaced.why, hook.without), None);
    }
    let hits = bpf.hits.get(hook.counter).copied().unwrap_or(0);
    let counted_with = hooks().filter(|other| {
        other.counter == hook.counter && other.name != hook.name && bpf.has(other.name)
    });
    let counted_with: Vec<&str> = counted_with.map(|other| other.name).collect();
    check(&what, State::Ok, hits_in_words(hits, &counted_with), None)
}

/// Some hooks share a counter, so hits cannot be attributed to one of them.
fn hits_in_words(hits: u64, counted_with: &[&str]) -> String {
    match (hits, counted_with) {
        (0, _) => "attached, no hits in the self-test".to_owned(),
        (n, []) => format!("attached, {n} hits in the self-test"),
        (n, others) => {
            let others = others.join(" and ");
            format!("attached, {n} hits in the self-test together with {others}")
        }
    }
}

fn clock() -> Check {
    let source = machine::clocksource();
    let counter = best_counter();
    let found = format!("clocksource {source}, the probe uses {counter}");
    let state = if counter == "clock_gettime" { State::Reduced } else { State::Ok };
    let remedy = "boot with tsc=reliable if the TSC is known to be stable; otherwise short detours \
                  are missed";
    check("clock", state, found, Some(remedy))
}

fn symbols() -> Check {
    let what = "kernel symbols";
    match Symbols::of_this_kernel() {
        Ok(symbols) if !symbols.is_empty() => check(what, State::Ok, "readable", None),
        Ok(_) => {
            let hidden = Hidden::here();
            let found = format!("hidden ({}): callbacks have no names", hidden.why);
            check(what, State::Reduced, found, Some(&hidden.remedy))
        }
        Err(error) => {
            let remedy = Some("use a kernel with CONFIG_KALLSYMS=y, and mount /proc");
            check(what, State::Reduced, format!("/proc/kallsyms: {error}"), remedy)
        }
    }
}

fn cpus() -> Check {
    let (allowed, online) = (machine::allowed(), machine::online());
    let found =
        format!("online {}, usable {}", cpulist::format(&online), cpulist::format(&allowed));
    if allowed.len() < online.len() {
        let remedy = Some("widen the cpuset, or run outside it, to measure the other CPUs");
        return check("CPUs", State::Reduced, found, remedy);
    }
    check("CPUs", State::Ok, found, None)
}

fn isolation() -> Check {
    let (isolated, nohz) = (machine::isolated(), machine::nohz_full());
    if isolated.is_empty() && nohz.is_empty() {
        let remedy = Some(
            "leave a CPU unmeasured for the recorder (-c), or boot with isolcpus= and nohz_full=",
        );
        return check("isolation", State::Reduced, "no CPU is isolated", remedy);
    }
    let found =
        format!("isolated {}, nohz_full {}", cpulist::format(&isolated), cpulist::format(&nohz));
    check("isolation", State::Ok, found, None)
}

fn realtime() -> Check {
    let runtime = files::text("/proc/sys/kernel/sched_rt_runtime_us");
    let period = files::text("/proc/sys/kernel/sched_rt_period_us");
    let found = format!("real-time tasks may run {runtime} of every {period} us");
    let state = if runtime == "-1" || runtime == period { State::Ok } else { State::Reduced };
    let remedy = "only needed with --fifo: sudo sysctl kernel.sched_rt_runtime_us=-1";
    check("real-time throttling", state, found, Some(remedy))
}

fn counters() -> Check {
    let mut counters = crate::probe::counters::Counters::open(0);
    let names: Vec<String> = counters.read().into_keys().collect();
    let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let state = match names.iter().any(|name| name == "cycles") {
        true => State::Ok,
        false => State::Reduced,
    };
    let remedy = if names.is_empty() {
        "sudo sysctl kernel.perf_event_paranoid=1"
    } else {
        "cycles and instructions need a PMU; virtual machines often lack one"
    };
    check("perf counters", state, found, Some(remedy))
}

/// Memory of a recording of all usable CPUs.
fn memory() -> Check {
    let (measured, online) = (machine::allowed().len(), machine::online().len());
    let available = machine::available_memory();
    let memory = Memory::plan(measured, online, None, available);
    let found = format!(
        "a recording uses {} KiB per measured CPU ({} KiB ring, {} KiB probe buffer), {} MiB in \
         total for {measured} measured of {online} CPUs",
        memory.per_cpu_bytes(true, true) >> 10,
        memory.ring_bytes >> 10,
        memory.probe_bytes >> 10,
        memory.total_bytes(true, true).div_ceil(1 << 20),
    );
    let state =
        if memory.total_bytes(true, true) <= available / 2 { State::Ok } else { State::Reduced };
    let remedy = Some("measure fewer CPUs (-c)");
    check("memory of a recording", state, found, remedy)
}

fn memlock() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let root = machine::has_capability(14); // CAP_IPC_LOCK
    let found = match limit {
        None => "unlimited".to_owned(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    };
    let state = if root || limit.is_none() { State::Ok } else { State::Reduced };
    let remedy = Some("ulimit -l unlimited, to lock the probe buffers in memory");
    check("locked memory", state, found, remedy)
}

fn cgroup() -> Check {
    let mounts = files::text("/proc/self/mountinfo");
    let mounted = mounts.lines().any(|line| line.contains(" - cgroup2 "));
    let systemd = match fs::metadata("/run/systemd/system") {
        Ok(_) => "systemd running",
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "no systemd: cgroup paths instead of units"
        }
        Err(_) => "systemd state unknown",
    };
    if mounted {
        return check("cgroup v2", State::Ok, format!("mounted, {systemd}"), None);
    }
    let remedy = Some("sudo mount -t cgroup2 none /sys/fs/cgroup");
    check("cgroup v2", State::Reduced, "not mounted: daemons have no units", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_hooks_count_together_are_not_called_the_hits_of_each() {
        assert_eq!(hits_in_words(0, &["major-faults"]), "attached, no hits in the self-test");
        assert_eq!(hits_in_words(7, &[]), "attached, 7 hits in the self-test");
        let together = "attached, 279 hits in the self-test together with major-faults";
        assert_eq!(hits_in_words(279, &["major-faults"]), together);
    }
}
