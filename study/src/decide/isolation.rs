//! An audit of CPUs that are meant to be quiet: what interrupted them, why, and the setting that removes it.
//!
//! The evidence is a recording of these CPUs while the probe keeps them busy, as a rank of a job would, and
//! the kernel's settings. A CPU is quiet if nothing interrupted it and its core's other threads were idle.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use analysis::{
    SourceRow, Summary, details_of,
    words::{self, shell_quoted},
};
use anyhow::{Context, Result};
use serde::Serialize;
use trace::{
    Class, ProcessKey, RecordFlags, RowKey, Source,
    cpulist::{self, CpuSet},
};

use crate::{
    decide::advice::{Advice, AdvisedSource, irq_number, literally},
    recording::{
        open::AnyReader,
        place::{Place, mask},
    },
};

/// A sibling that is busy for more than this share of the time disturbs its core, in percent.
const BUSY_PCT: f64 = 1.0;
/// The advice if every CPU is audited.
const NO_HOUSEKEEPING: &str = "leave at least one CPU for everything else";
/// Interruptions listed of a CPU, the most frequent ones.
const MOST: usize = 64;

/// The audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// How long the CPUs were watched.
    pub duration_s: f64,
    pub cpus: Vec<AuditedCpu>,
    /// The kernel's settings for quiet CPUs.
    pub settings: Vec<Setting>,
    /// Whether all CPUs are quiet.
    pub quiet: bool,
    /// What limits the audit.
    pub remarks: Vec<String>,
}

/// A CPU that is meant to be quiet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditedCpu {
    pub cpu: u32,
    pub quiet: bool,
    /// Most frequent first.
    pub interruptions: Vec<Interruption>,
    /// How busy the other threads of its core were. Null without such threads.
    pub sibling_busy_pct: Option<f64>,
}

/// What interrupted a CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interruption {
    pub source: String,
    /// None for the activity of a sibling.
    pub class: Option<Class>,
    /// Why it happened on this CPU.
    pub reason: String,
    pub count: u64,
    pub cost_ns_total: u64,
    /// The setting that removes it.
    pub fix: String,
}

/// A setting of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// Whether it keeps the audited CPUs quiet.
    pub ok: bool,
    /// How to change it; null if it is right.
    pub fix: Option<String>,
}

/// What may keep the tick running, in the order of the kernel's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TickNeed {
    PosixTimer,
    PerfEvents,
    Scheduler,
    ClockUnstable,
    Rcu,
    RcuExpedited,
    Other,
}

impl TickNeed {
    pub const ALL: [TickNeed; 7] = [
        TickNeed::PosixTimer,
        TickNeed::PerfEvents,
        TickNeed::Scheduler,
        TickNeed::ClockUnstable,
        TickNeed::Rcu,
        TickNeed::RcuExpedited,
        TickNeed::Other,
    ];
}

/// What is known of a machine besides the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub online: CpuSet,
    pub isolated: CpuSet,
    pub nohz_full: CpuSet,
    /// None if the kernel was started without it.
    pub rcu_nocbs: Option<CpuSet>,
    /// Where work of unbound workqueues may run; None if unknown.
    pub workqueues: Option<CpuSet>,
    /// CPUs that each interrupt is sent to.
    pub irqs: BTreeMap<u32, CpuSet>,
    /// CPUs watched by the kernel's watchdogs; empty if they are off.
    pub watchdog: CpuSet,
    pub nmi_watchdog: bool,
    /// Whether the unified hierarchy is the one that systemd manages: only there a unit can be kept off CPUs.
    pub cgroup_v2: bool,
    /// Time that real-time threads may use of each period, us; -1 for all of it.
    pub rt_runtime_us: Option<i64>,
    /// Other hardware threads of each CPU's core.
    pub siblings: BTreeMap<u32, CpuSet>,
    /// How busy each CPU was during the audit, in percent.
    pub busy_pct: BTreeMap<u32, f64>,
    /// How often the tick could not be stopped on each CPU, and what needed it.
    pub tick_needs: BTreeMap<u32, BTreeMap<TickNeed, u64>>,
}

impl Facts {
    /// From the files below `root`, normally `/`.
    pub fn read(root: &Path) -> Facts {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let set = |path: &str| cpulist::parse(text(path).trim()).unwrap_or_default();
        let number = |path: &str| text(path).trim().parse::<i64>().ok();
        let online = set("sys/devices/system/cpu/online");
        let command_line = text("proc/cmdline");
        let mut words = command_line.split_whitespace();
        let rcu_nocbs = words.find_map(|word| match word.strip_prefix("rcu_nocbs")? {
            "" => Some(online.clone()),
            list if list.starts_with('=') => match &list[1..] {
                "all" => Some(online.clone()),
                list => cpulist::parse(list).ok(),
            },
            _ => None,
        });
        let siblings = online.iter().filter_map(|&cpu| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let mut others = set(&path);
            others.remove(&cpu);
            (!others.is_empty()).then_some((cpu, others))
        });
        let mut irqs = BTreeMap::new();
        for entry in fs::read_dir(root.join("proc/irq")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if let Some(irq) = name.to_str().and_then(|name| name.parse::<u32>().ok()) {
                let effective = set(&format!("proc/irq/{irq}/effective_affinity_list"));
                let wanted = || set(&format!("proc/irq/{irq}/smp_affinity_list"));
                irqs.insert(irq, if effective.is_empty() { wanted() } else { effective });
            }
        }
        let watchdog_on = number("proc/sys/kernel/watchdog").unwrap_or(0) != 0;
        Facts {
            isolated: set("sys/devices/system/cpu/isolated"),
            nohz_full: set("sys/devices/system/cpu/nohz_full"),
            rcu_nocbs,
            workqueues: from_mask(text("sys/devices/virtual/workqueue/cpumask").trim()),
            irqs,
            watchdog: match watchdog_on {
                true => set("proc/sys/kernel/watchdog_cpumask"),
                false => CpuSet::new(),
            },
            nmi_watchdog: number("proc/sys/kernel/nmi_watchdog").unwrap_or(0) != 0,
            cgroup_v2: root.join("sys/fs/cgroup/cgroup.controllers").exists(),
            rt_runtime_us: number("proc/sys/kernel/sched_rt_runtime_us"),
            siblings: siblings.collect(),
            online,
            ..Facts::default()
        }
    }

    /// The CPUs that the kernel's settings isolate, by the command line or by a cpuset.
    pub fn meant_to_be_quiet(&self, root: &Path) -> CpuSet {
        let mut quiet: CpuSet = self.isolated.union(&self.nohz_full).copied().collect();
        quiet.extend(isolated_cpusets(&root.join("sys/fs/cgroup"), 0));
        quiet.retain(|cpu| self.online.contains(cpu));
        quiet
    }
}

/// CPUs of cpusets that are partitions of isolated CPUs.
fn isolated_cpusets(directory: &Path, depth: u32) -> CpuSet {
    // Partitions are at or near the root of the hierarchy.
    const DEEPEST: u32 = 4;
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    let mut cpus = CpuSet::new();
    if read("cpuset.cpus.partition").trim() == "isolated" {
        cpus = cpulist::parse(read("cpuset.cpus.effective").trim()).unwrap_or_default();
    }
    if depth < DEEPEST {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                cpus.extend(isolated_cpusets(&entry.path(), depth + 1));
            }
        }
    }
    cpus
}

/// A mask as the kernel writes it: groups of eight hexadecimal digits, the highest CPUs first.
fn from_mask(text: &str) -> Option<CpuSet> {
    let mut cpus = CpuSet::new();
    for (group, digits) in (0..).zip(text.rsplit(',')) {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| 32 * group + bit));
    }
    Some(cpus)
}

/// How long each CPU has been busy and idle, from /proc/stat below `root`.
pub fn cpu_times(root: &Path) -> BTreeMap<u32, (u64, u64)> {
    let text = fs::read_to_string(root.join("proc/stat")).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let cpu: u32 = fields.next()?.parse().ok()?;
        let times: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        // Idle, and waiting for I/O.
        let idle = times.iter().skip(3).take(2).sum::<u64>();
        // Guests are part of user time.
        let all: u64 = times.iter().take(8).sum();
        Some((cpu, (all - idle.min(all), idle)))
    };
    text.lines().filter_map(line).collect()
}

/// The share of time that each CPU was busy, in percent.
pub fn busy_pct(
    before: &BTreeMap<u32, (u64, u64)>,
    after: &BTreeMap<u32, (u64, u64)>,
) -> BTreeMap<u32, f64> {
    let share = |(cpu, (busy, idle)): (&u32, &(u64, u64))| {
        let (busy_before, idle_before) = before.get(cpu)?;
        let (busy, idle) = (busy.checked_sub(*busy_before)?, idle.checked_sub(*idle_before)?);
        (busy + idle > 0).then(|| (*cpu, 100.0 * busy as f64 / (busy + idle) as f64))
    };
    after.iter().filter_map(share).collect()
}

/// The time that a CPU is given to become quiet once the probe is alone on it: the kernel stops its tick
/// after a few of them. Of a short audit, a quarter.
const SETTLE_NS: u64 = 500_000_000;

/// What interrupted each CPU after it had settled, by row. What the recorder itself causes, such as flushes
/// of the TLB that it shares with the probe, ends with the audit.
type Interrupted = HashMap<(u32, RowKey), Tally>;

/// A row on one CPU.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    cost_ns: u64,
    /// The same by source, for the details: those of the whole recording would not add up.
    sources: BTreeMap<u32, (u64, u64)>,
}

fn interrupted(reader: &AnyReader) -> Result<Interrupted> {
    let rows: Vec<Option<RowKey>> = reader
        .sources()
        .iter()
        .map(|source| (!source.process_key().own && !source.own).then(|| source.row_key()))
        .collect();
    let mut all = Interrupted::new();
    for block in reader.blocks() {
        let block = block.with_context(|| format!("cannot read {}", reader.name()))?;
        let totals = reader.totals(block.lane);
        let settled_ns = totals.map_or(0, |totals| {
            let span_ns = totals.to_ns.saturating_sub(totals.from_ns);
            totals.from_ns.saturating_add(SETTLE_NS.min(span_ns / 4))
        });
        let counted = block.records.iter().filter(|record| {
            record.start_ns >= settled_ns && !record.flags.contains(RecordFlags::BASELINE)
        });
        for record in counted {
            let Some(Some(row)) = rows.get(record.source.0 as usize) else { continue };
            let tally = all.entry((record.cpu.into(), row.clone())).or_default();
            let count = u64::from(!record.flags.contains(RecordFlags::CONTINUED));
            tally.count += count;
            tally.cost_ns = tally.cost_ns.saturating_add(record.cost_ns);
            let (counted, cost_ns) = tally.sources.entry(record.source.0).or_default();
            *counted += count;
            *cost_ns = cost_ns.saturating_add(record.cost_ns);
        }
    }
    Ok(all)
}

/// Judges the audited CPUs of a recording.
pub fn audit(
    reader: &AnyReader,
    summary: &Summary,
    audited: &CpuSet,
    facts: &Facts,
    advice: &Advice,
) -> Result<Audit> {
    let place = &Place::of_recording(reader.manifest());
    let interrupted = &interrupted(reader)?;
    let (rest, sources) = (rest(audited, facts), reader.sources());
    let auditor = Auditor { audited, facts, advice, place, interrupted, sources, rest };
    let cpus: Vec<AuditedCpu> = audited.iter().map(|&cpu| auditor.cpu(summary, cpu)).collect();
    let mut remarks = summary.remarks.clone();
    if summary.sources.is_empty() && summary.detours > 0 {
        remarks.push("sources are unknown: only the probe recorded".to_owned());
    }
    Ok(Audit {
        duration_s: summary.duration_s,
        quiet: cpus.iter().all(|cpu| cpu.quiet),
        cpus,
        settings: auditor.settings(),
        remarks,
    })
}

/// The CPUs that are not audited: housekeeping.
fn rest(audited: &CpuSet, facts: &Facts) -> CpuSet {
    facts.online.difference(audited).copied().collect()
}

struct Auditor<'a> {
    audited: &'a CpuSet,
    facts: &'a Facts,
    advice: &'a Advice,
    place: &'a Place,
    interrupted: &'a Interrupted,
    sources: &'a [Source],
    rest: CpuSet,
}

impl Auditor<'_> {
    fn cpu(&self, summary: &Summary, cpu: u32) -> AuditedCpu {
        let mut interruptions: Vec<Interruption> = Vec::new();
        // The processes of threads, and how many of their interruptions are page faults.
        let mut processes: Vec<Option<(ProcessKey, u64)>> = Vec::new();
        // Page faults come last: a process that is moved takes them along.
        let rows = || summary.sources.iter().filter(|row| !row.own && row.class != Class::Idle);
        let is_fault = |row: &&SourceRow| row.class == Class::PageFault;
        for row in rows().filter(|row| !is_fault(row)).chain(rows().filter(is_fault)) {
            let tally = self.interrupted.get(&(cpu, row.row_key()));
            let Some(tally) = tally.filter(|tally| tally.count > 0) else { continue };
            let process = self.process(tally);
            if is_fault(&row) {
                let place = processes
                    .iter()
                    .position(|known| known.as_ref().map(|(key, _)| key) == process.as_ref());
                let of_process = place.filter(|_| process.is_some());
                if let Some(place) = of_process
                    && let (Some(thread), Some(Some((_, faults)))) =
                        (interruptions.get_mut(place), processes.get_mut(place))
                {
                    thread.count += tally.count;
                    thread.cost_ns_total = thread.cost_ns_total.saturating_add(tally.cost_ns);
                    *faults += tally.count;
                    continue;
                }
            }
            let (reason, fix) = self.why(row, cpu, tally);
            processes.push(process.filter(|_| row.class == Class::Thread).map(|key| (key, 0)));
            interruptions.push(Interruption {
                source: row.name.clone(),
                class: Some(row.class),
                reason,
                count: tally.count,
                cost_ns_total: tally.cost_ns,
                fix,
            });
        }
        for (thread, (_, faults)) in interruptions
            .iter_mut()
            .zip(&processes)
            .filter_map(|(interruption, process)| Some((interruption, process.as_ref()?)))
        {
            if *faults > 0 {
                thread.reason += &format!("; {} of them are page faults", words::count(*faults));
            }
        }
        let sibling_busy_pct = self.sibling_busy(cpu);
        if let Some((sibling, busy)) = sibling_busy_pct.filter(|(_, busy)| *busy > BUSY_PCT) {
            interruptions.push(Interruption {
                source: format!("CPU {sibling}"),
                class: None,
                reason: format!("SMT sibling on the same core, busy for {busy:.1} % of the time"),
                count: 0,
                cost_ns_total: 0,
                fix: format!(
                    "echo 0 > /sys/devices/system/cpu/cpu{sibling}/online, or isolate it too"
                ),
            });
        }
        interruptions.sort_by_key(|interruption| std::cmp::Reverse(interruption.count));
        let quiet = interruptions.is_empty();
        interruptions.truncate(MOST);
        let sibling_busy_pct = sibling_busy_pct.map(|(_, busy)| busy);
        AuditedCpu { cpu, quiet, interruptions, sibling_busy_pct }
    }

    /// Whose a row is on one CPU, for the most part.
    fn process(&self, tally: &Tally) -> Option<ProcessKey> {
        let (id, _) = tally.sources.iter().max_by_key(|(_, amount)| **amount)?;
        self.sources.get(*id as usize).map(Source::process_key)
    }

    /// The busiest other thread of a CPU's core; the probe keeps audited ones busy.
    fn sibling_busy(&self, cpu: u32) -> Option<(u32, f64)> {
        let siblings = self.facts.siblings.get(&cpu)?.difference(self.audited);
        let busy = siblings
            .filter_map(|sibling| Some((*sibling, self.facts.busy_pct.get(sibling).copied()?)));
        busy.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    fn list(&self) -> String {
        cpulist::format(self.audited)
    }

    /// A list of CPUs with the audited ones added: a boot parameter replaces the old one.
    fn with_audited(&self, cpus: &CpuSet) -> String {
        cpulist::format(&cpus.union(self.audited).copied().collect())
    }

    fn rcu_fix(&self, cpu: u32) -> String {
        let offloaded = self.facts.rcu_nocbs.clone().unwrap_or_default();
        // Implied by nohz_full.
        match offloaded.contains(&cpu) || self.facts.nohz_full.contains(&cpu) {
            true => "callbacks are offloaded already: avoid system calls on this CPU".to_owned(),
            false => format!("boot with rcu_nocbs={}", self.with_audited(&offloaded)),
        }
    }

    /// Why a source was on a CPU, and what keeps it away.
    fn why(&self, row: &SourceRow, cpu: u32, tally: &Tally) -> (String, String) {
        let parts = tally.sources.iter().filter_map(|(id, (count, cost_ns))| {
            Some((self.sources.get(*id as usize)?, *count, *cost_ns))
        });
        let detail = &details_of(parts).unwrap_or_default();
        let name = row.name.as_str();
        match row.class {
            Class::Timer if name == "tick" => self.tick(cpu),
            Class::Timer if name.contains("watchdog") => (
                "the soft lockup detector has a timer on every CPU that it watches".to_owned(),
                self.watchdog_fix(),
            ),
            Class::Nmi => (
                match self.facts.nmi_watchdog {
                    true => "the NMI watchdog uses a performance counter of every CPU",
                    false => "NMIs come from performance counters (perf), or from the hardware",
                }
                .to_owned(),
                "sysctl kernel.nmi_watchdog=0, and stop profiling these CPUs".to_owned(),
            ),
            Class::Irq => self.irq(detail, cpu),
            Class::Softirq if name == "RCU" => (
                match &self.facts.rcu_nocbs {
                    Some(cpus) if cpus.contains(&cpu) => {
                        "RCU callbacks are offloaded, but the core of RCU still runs here"
                    }
                    _ => "RCU callbacks run on the CPU that queued them",
                }
                .to_owned(),
                self.rcu_fix(cpu),
            ),
            Class::Kthread if name.contains("vmstat") => (
                "the kernel's memory statistics are collected on every CPU that changed them"
                    .to_owned(),
                "sysctl vm.stat_interval=3600".to_owned(),
            ),
            Class::Kthread if name.starts_with("kworker") => self.kworker(detail, cpu),
            Class::Kthread if name.starts_with("migration") || name.starts_with("stopper") => (
                with("the scheduler moved a thread from or to this CPU, or stopped it", detail),
                format!("keep threads off CPU {}: taskset, cpusets", self.list()),
            ),
            Class::Thread => (with("its affinity includes this CPU", detail), self.moved(row)),
            Class::Ipi => (
                with("another CPU made this one run a function", detail),
                "stop or move the work that makes the sender do this".to_owned(),
            ),
            Class::Timer => {
                (with("a thread that sleeps on this CPU armed the timer", detail), self.timer_fix())
            }
            Class::PageFault => {
                (with("a process used memory for the first time here", detail), self.moved(row))
            }
            _ => (
                with("the kernel ran this here", detail),
                self.advised(row, detail).unwrap_or_else(|| "no known setting".to_owned()),
            ),
        }
    }

    /// The first command of the advice table.
    fn advised(&self, row: &SourceRow, detail: &str) -> Option<String> {
        let subject = AdvisedSource {
            class: row.class,
            name: &row.name,
            pids: &[],
            unit: row.unit.as_deref(),
            detail: Some(detail),
            policy: None,
            program: false,
        };
        let remedies = self.advice.remedies(&subject, self.place);
        let remedy = remedies.first()?;
        Some(remedy.run.first().cloned().unwrap_or_else(|| remedy.what.clone()))
    }

    /// How to keep the threads of a process away.
    fn moved(&self, row: &SourceRow) -> String {
        let housekeeping = cpulist::format(&self.rest);
        match (&row.unit, self.rest.is_empty()) {
            (_, true) => "leave a CPU for it, and move it there with taskset".to_owned(),
            (Some(unit), _)
                if self.facts.cgroup_v2 && unit.contains('.') && !unit.contains('/') =>
            {
                format!(
                    "systemctl set-property --runtime {} AllowedCPUs={housekeeping}",
                    shell_quoted(unit)
                )
            }
            _ => format!(
                "for t in $(pgrep -wx {}); do taskset -pc {housekeeping} $t; done",
                shell_quoted(&literally(&row.name))
            ),
        }
    }

    fn timer_fix(&self) -> String {
        format!(
            "keep those that sleep off CPU {} (taskset), or sysctl kernel.timer_migration=1",
            self.list()
        )
    }

    fn tick(&self, cpu: u32) -> (String, String) {
        if !self.facts.nohz_full.contains(&cpu) {
            return (
                "the CPU is not in nohz_full, so its tick never stops while it is busy".to_owned(),
                format!("boot with nohz_full={}", self.with_audited(&self.facts.nohz_full)),
            );
        }
        let needs = self.facts.tick_needs.get(&cpu);
        let need = needs.and_then(|needs| needs.iter().max_by_key(|(_, count)| **count));
        let Some((need, count)) = need.filter(|(_, count)| **count > 0) else {
            return (
                "no known tick dependency; the tick runs once before it stops, and for housekeeping"
                    .to_owned(),
                "other possible causes: workqueue.cpu_intensive_thresh_us, timers on this CPU"
                    .to_owned(),
            );
        };
        let (why, fix) = match need {
            TickNeed::PosixTimer => (
                "a process on it has a CPU-time timer (setitimer, timer_create, RLIMIT_CPU)",
                "remove the timer: /proc/PID/timers lists it".to_owned(),
            ),
            TickNeed::PerfEvents => (
                "a perf event requires the tick",
                "stop perf on this CPU; sysctl kernel.nmi_watchdog=0".to_owned(),
            ),
            TickNeed::Scheduler => (
                "more than one thread is runnable here, or a real-time thread is in its time slice",
                format!("keep other threads off CPU {}: taskset, cpusets", self.list()),
            ),
            TickNeed::ClockUnstable => (
                "the clock is unstable, so the tick has to correct it",
                "boot with tsc=reliable if the TSC is known to be stable".to_owned(),
            ),
            TickNeed::Rcu | TickNeed::RcuExpedited => ("RCU waits for this CPU", self.rcu_fix(cpu)),
            TickNeed::Other => ("unknown tick dependency", String::new()),
        };
        (format!("{why} (the tick could not stop {count} times)"), fix)
    }

    fn irq(&self, detail: &str, cpu: u32) -> (String, String) {
        if self.rest.is_empty() {
            return ("a device interrupts this CPU".to_owned(), NO_HOUSEKEEPING.to_owned());
        }
        let housekeeping = cpulist::format(&self.rest);
        let number = irq_number(detail).and_then(|number| number.parse::<u32>().ok());
        let Some(irq) = number else {
            return (
                "a device interrupts this CPU".to_owned(),
                format!("boot with irqaffinity={housekeeping}"),
            );
        };
        let here = self.facts.irqs.get(&irq).is_some_and(|cpus| cpus.contains(&cpu));
        let reason = match here {
            true => format!("the affinity of interrupt {irq} includes this CPU"),
            false => format!("interrupt {irq} was sent here before its affinity changed"),
        };
        (reason, format!("echo {housekeeping} > /proc/irq/{irq}/smp_affinity_list"))
    }

    fn kworker(&self, detail: &str, cpu: u32) -> (String, String) {
        let unbound = self.facts.workqueues.as_ref().is_some_and(|cpus| cpus.contains(&cpu));
        let reason = match unbound {
            true => "unbound workqueues may run here, and bound ones run where work is queued",
            false => "work was queued on this CPU, or is bound to it",
        };
        (with(reason, detail), self.workqueue_fix())
    }

    fn workqueue_fix(&self) -> String {
        if self.rest.is_empty() {
            return NO_HOUSEKEEPING.to_owned();
        }
        format!("echo {} > /sys/devices/virtual/workqueue/cpumask", mask(&self.rest))
    }

    fn watchdog_fix(&self) -> String {
        match self.rest.is_empty() {
            true => "sysctl kernel.watchdog=0".to_owned(),
            false => format!("sysctl kernel.watchdog_cpumask={}", cpulist::format(&self.rest)),
        }
    }

    fn settings(&self) -> Vec<Setting> {
        let (facts, list) = (self.facts, self.list());
        let all_in = |cpus: &CpuSet| self.audited.is_subset(cpus);
        let none_in = |cpus: &CpuSet| self.audited.is_disjoint(cpus);
        let setting = |name: &str, value: String, ok: bool, fix: String| Setting {
            name: name.to_owned(),
            value,
            ok,
            fix: (!ok).then_some(fix),
        };
        let shown = |cpus: &CpuSet| match cpus.is_empty() {
            true => "none".to_owned(),
            false => cpulist::format(cpus),
        };
        let mut settings = vec![
            setting(
                "nohz_full",
                shown(&facts.nohz_full),
                all_in(&facts.nohz_full),
                format!("boot with nohz_full={}", self.with_audited(&facts.nohz_full)),
            ),
            setting(
                "isolcpus",
                shown(&facts.isolated),
                all_in(&facts.isolated),
                format!(
                    "boot with isolcpus=managed_irq,domain,{}",
                    self.with_audited(&facts.isolated)
                ),
            ),
            setting(
                "rcu_nocbs",
                facts.rcu_nocbs.as_ref().map_or_else(|| "none".to_owned(), &shown),
                // Implied by nohz_full.
                facts.rcu_nocbs.as_ref().is_some_and(&all_in) || all_in(&facts.nohz_full),
                format!("boot with rcu_nocbs={list}"),
            ),
        ];
        if let Some(cpus) = &facts.workqueues {
            let name = "workqueue cpumask";
            settings.push(setting(name, shown(cpus), none_in(cpus), self.workqueue_fix()));
        }
        let here = facts.irqs.iter().filter(|(_, cpus)| !none_in(cpus));
        let here: Vec<String> = here.map(|(irq, _)| irq.to_string()).collect();
        let value = match here.len() {
            0 => "no interrupt targets this CPU".to_owned(),
            _ => format!("interrupts {}", here.join(",")),
        };
        let housekeeping = cpulist::format(&self.rest);
        let fix = match self.rest.is_empty() {
            true => NO_HOUSEKEEPING.to_owned(),
            false => match &here[..] {
                [irq] => format!("echo {housekeeping} > /proc/irq/{irq}/smp_affinity_list"),
                _ => format!(
                    "for n in {}; do echo {housekeeping} > /proc/irq/$n/smp_affinity_list; done",
                    here.join(" ")
                ),
            },
        };
        settings.push(setting("irq affinity", value, here.is_empty(), fix));
        let watchdog = &facts.watchdog;
        settings.push(setting(
            "watchdog_cpumask",
            shown(watchdog),
            none_in(watchdog),
            self.watchdog_fix(),
        ));
        settings.push(setting(
            "nmi_watchdog",
            if facts.nmi_watchdog { "on" } else { "off" }.to_owned(),
            !facts.nmi_watchdog,
            "sysctl kernel.nmi_watchdog=0".to_owned(),
        ));
        if let Some(runtime) = facts.rt_runtime_us {
            settings.push(setting(
                "sched_rt_runtime_us",
                runtime.to_string(),
                runtime < 0,
                "sysctl kernel.sched_rt_runtime_us=-1, if ranks run under a real-time policy"
                    .to_owned(),
            ));
        }
        settings
    }
}

fn with(reason: &str, detail: &str) -> String {
    if detail.is_empty() { reason.to_owned() } else { format!("{reason} ({detail})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_the_kernel_writes_them() {
        assert_eq!(from_mask("3"), Some(CpuSet::from([0, 1])));
        assert_eq!(from_mask("1,80000001"), Some(CpuSet::from([0, 31, 32])));
        assert_eq!(
            from_mask("ffffffff,ffffffff,ffffffff,ffffffff").map(|set| set.len()),
            Some(128)
        );
        assert_eq!(from_mask(""), None);
    }

    #[test]
    fn settings_are_read_from_the_kernels_files() {
        let root = std::env::temp_dir().join(format!("detour-facts-{}", std::process::id()));
        let files = [
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/cpu/nohz_full", "2-3\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/virtual/workqueue/cpumask", "f\n"),
            ("sys/fs/cgroup/quiet/cpuset.cpus.partition", "isolated\n"),
            ("sys/fs/cgroup/quiet/cpuset.cpus.effective", "1\n"),
            ("proc/cmdline", "ro isolcpus=2-3 rcu_nocbs=2-3 quiet\n"),
            ("proc/irq/24/effective_affinity_list", "3\n"),
            ("proc/irq/24/smp_affinity_list", "0-3\n"),
            ("proc/sys/kernel/watchdog", "1\n"),
            ("proc/sys/kernel/watchdog_cpumask", "0-1\n"),
            ("proc/sys/kernel/nmi_watchdog", "0\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("proc/stat", "cpu  1 2\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0 0 0\n"),
        ];
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let facts = Facts::read(&root);
        assert_eq!(facts.isolated, CpuSet::from([2, 3]));
        assert_eq!(facts.rcu_nocbs, Some(CpuSet::from([2, 3])));
        assert_eq!(facts.irqs.get(&24), Some(&CpuSet::from([3])));
        assert_eq!(facts.watchdog, CpuSet::from([0, 1]));
        assert_eq!(facts.siblings.get(&2), Some(&CpuSet::from([0])));
        assert_eq!(facts.meant_to_be_quiet(&root), CpuSet::from([1, 2, 3]));
        let times = cpu_times(&root);
        assert_eq!((times[&0], times[&1]), ((20, 80), (0, 100)));
        let later = BTreeMap::from([(0, (30, 90)), (1, (0, 150))]);
        assert_eq!(busy_pct(&times, &later), BTreeMap::from([(0, 50.0), (1, 0.0)]));
        fs::remove_dir_all(&root).unwrap();
        // Nothing is known of a machine without these files.
        assert_eq!(Facts::read(&root), Facts::default());
    }
}
