//! From numbers to names: every kernel record gets a row of the source table that an administrator can
//! act on. One rule per kind of record.

use std::collections::HashMap;

use aya::maps::{MapData, StackTraceMap};
use recorder_abi::{
    CGROUP_UNKNOWN, CgroupName, Numbers, ORIGIN_INTERRUPT, PF_KTHREAD, Record, Task, flag, kind,
};
use trace::{Cause, Class, Source, SourceId};

use crate::{
    naming::{
        cgroups::{self, Cgroups},
        irqs::{Irq, Irqs},
        pids,
        rules::{
            self, fault_kind, is_kernel_thread, is_tick, kernel_thread_name, policy, softirq,
            vector, wakes_a_sleeper,
        },
        symbols::Symbols,
    },
    node::machine,
    pipeline::hash,
};

/// Any process can change its name at will; the table must not grow without bound.
const MAX_SOURCES: usize = 65_536;
const MAX_NAMES: usize = 65_536;
const MAX_CACHED: usize = 1 << 20;
/// Number of tasks above which dead ones are dropped.
const MANY_TASKS: usize = 1 << 18;
const TOO_MANY: &str = "(too many different names)";
/// A callback without a kernel symbol. All of them are one source: an address would reveal where the
/// kernel is in memory.
const UNKNOWN_FUNCTION: &str = "unknown function";
const MAX_PIDS: usize = 8;
/// Names of tasks that were never announced and cannot be looked up: in a separate PID namespace, and
/// after their end.
const UNKNOWN_TASK: &str = "(unknown)";
const EXITED_TASK: &str = "(exited)";

/// What distinguishes the sources of two records.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    kind: u8,
    flags: u8,
    id: u32,
    who: u32,
    other: u32,
    /// The task that an interrupt woke, plus one.
    woke: u32,
    /// The stack of the waker or sender, plus one.
    stack: u32,
    detail: u64,
}

/// The naming-related properties of a task; tasks with the same name and unit are the same source.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Who {
    name: String,
    /// The name of its process, if that differs.
    process: Option<String>,
    unit: Option<String>,
    kernel: bool,
    own: bool,
    /// A thread of the recorded program.
    program: bool,
    /// Policy and priority as sent by the kernel side; 0 if unknown.
    sched: u32,
}

impl Who {
    /// Whether it belongs to a process that is known.
    fn is_process(&self) -> bool {
        !self.kernel && self.name != UNKNOWN_TASK && self.name != EXITED_TASK
    }

    /// Its process.
    fn cause(&self) -> Cause {
        Cause {
            process: self.process.as_ref().unwrap_or(&self.name).clone(),
            unit: self.unit.clone(),
            own: self.own,
            program: self.program,
        }
    }
}

#[derive(Clone, Copy)]
struct Known {
    who: u32,
    tgid: u32,
    cgroup: u64,
    listed: bool,
}

/// A task's numbers in the recorder's PID namespace.
#[derive(Clone, Copy)]
struct Here {
    tid: u32,
    tgid: u32,
}

pub struct Names {
    symbols: Symbols,
    /// Show functions without a name by address.
    addresses: bool,
    cgroups: Cgroups,
    irqs: Irqs,
    /// The recorder's own PID in its PID namespace.
    own_tgid: u32,
    /// Maps the kernel's numbers to that namespace; None if they are the same.
    numbers: Option<hash::HashMap<u32, Here>>,
    /// Whether tasks can be looked up in /proc by the kernel's numbers.
    proc_has_kernels_numbers: bool,
    tasks: hash::HashMap<u32, Known>,
    /// Number of tasks at which dead ones are dropped.
    too_many_tasks: usize,
    who: Vec<Who>,
    who_index: HashMap<Who, u32>,
    sources: Vec<Source>,
    classes: Vec<Class>,
    source_index: HashMap<Source, SourceId>,
    cache: hash::HashMap<Key, SourceId>,
    /// Rows that are new or changed since they were last taken.
    changed: Vec<SourceId>,
    stacks: Option<Stacks>,
}

/// The kernel stacks of wakers and senders.
struct Stacks {
    map: StackTraceMap<MapData>,
    /// For records of at least this length.
    from_ns: u64,
}

/// Functions shown of a stack.
const CALLS: usize = 10;
/// Where a stack leaves the kernel for the tracing of it.
const TRACING: [&str; 5] = ["bpf_", "__bpf_", "__traceiter_", "__probestub_", "trace_"];

impl Names {
    /// With `addresses`, functions without a name are shown by address.
    pub fn of_this_machine(addresses: bool) -> Names {
        Names {
            addresses,
            numbers: pids::own_namespace().map(|_| hash::HashMap::default()),
            proc_has_kernels_numbers: pids::proc_has_kernels_numbers(),
            ..Names::new(Symbols::of_this_kernel().unwrap_or_default())
        }
    }

    fn new(symbols: Symbols) -> Names {
        Names {
            symbols,
            addresses: false,
            cgroups: Cgroups::default(),
            numbers: None,
            proc_has_kernels_numbers: true,
            irqs: Irqs::default(),
            own_tgid: std::process::id(),
            tasks: hash::HashMap::default(),
            too_many_tasks: MANY_TASKS,
            who: Vec::new(),
            who_index: HashMap::new(),
            sources: Vec::new(),
            classes: Vec::new(),
            source_index: HashMap::new(),
            cache: hash::HashMap::default(),
            changed: Vec::new(),
            stacks: None,
        }
    }

    /// Shows the stacks of wakers and senders, for records of at least this length.
    pub fn keep_stacks(&mut self, map: StackTraceMap<MapData>, from_ns: u64) {
        self.stacks = Some(Stacks { map, from_ns });
    }

    /// The functions on a stack, innermost first: `try_to_wake_up < hrtimer_wakeup < ...`.
    fn calls(&self, stack: u32) -> Option<String> {
        let id = stack.checked_sub(1)?;
        let trace = self.stacks.as_ref()?.map.get(&id, 0).ok()?;
        let calls = trace.frames().iter().map(|frame| self.function(frame.ip));
        let is_tracing = |call: &String| TRACING.iter().any(|prefix| call.starts_with(prefix));
        let calls: Vec<String> = calls.skip_while(is_tracing).take(CALLS).collect();
        (!calls.is_empty()).then(|| calls.join(" < "))
    }

    pub fn symbols_hidden(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Rows that are new or changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(SourceId, Source)> {
        let mut ids = std::mem::take(&mut self.changed);
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| (id, self.sources[id.0 as usize].clone())).collect()
    }

    /// Whether a source is one of the recorder's own threads.
    pub fn is_own(&self, id: SourceId) -> bool {
        self.sources.get(id.0 as usize).is_some_and(|source| source.own)
    }

    pub fn tgid(&self, tid: u32) -> Option<u32> {
        self.tasks.get(&tid).map(|known| known.tgid)
    }

    /// A task's number in the recorder's PID namespace; None for one outside it.
    pub fn tid_here(&self, tid: u32) -> Option<u32> {
        match &self.numbers {
            None => Some(tid),
            Some(numbers) => numbers.get(&tid).map(|here| here.tid).filter(|here| *here != 0),
        }
    }

    /// The PID of its process there.
    pub fn tgid_here(&self, tid: u32) -> Option<u32> {
        match &self.numbers {
            None => self.tgid(tid),
            Some(numbers) => numbers.get(&tid).map(|here| here.tgid).filter(|here| *here != 0),
        }
    }

    /// The process and thread numbers shown to the user: the kernel's for those outside the PID
    /// namespace.
    pub fn shown(&self, tid: u32) -> (u32, u32) {
        let pid = self.tgid_here(tid).or_else(|| self.tgid(tid)).filter(|pid| *pid != 0);
        let tid = self.tid_here(tid).unwrap_or(tid);
        (pid.unwrap_or(tid), tid)
    }

    /// Whether a task is in a cgroup or below it; None if unknown.
    pub fn is_in_cgroup(&self, tid: u32, wanted: u64) -> Option<bool> {
        self.cgroups.is_below(self.tasks.get(&tid)?.cgroup, wanted)
    }

    pub fn learn_cgroup(&mut self, piece: &CgroupName) {
        self.cgroups.learn(piece);
    }

    pub fn learn_numbers(&mut self, numbers: &Numbers) {
        if let Some(known) = &mut self.numbers {
            known.insert(numbers.tid, Here { tid: numbers.tid_here, tgid: numbers.tgid_here });
        }
    }

    pub fn task_name(&self, tid: u32) -> String {
        match self.tasks.get(&tid) {
            Some(known) => self.who[known.who as usize].name.clone(),
            None => format!("tid {tid}"),
        }
    }

    /// Adds what the kernel side reports about a task.
    pub fn learn(&mut self, task: &Task) {
        let bytes: Vec<u8> = task.comm.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let comm = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let before = self.tasks.get(&task.tid).copied();
        let (unit, cgroup) = match (self.cgroups.path(task.cgroup), before) {
            (Some(path), _) => (cgroups::unit(&path), task.cgroup),
            // Some kernels do not report the cgroup of a task: keep the known one.
            (None, Some(known)) if task.cgroup == CGROUP_UNKNOWN => {
                (self.who[known.who as usize].unit.clone(), known.cgroup)
            }
            (None, _) => {
                let path = self.look_up_in_proc(task.tid).and_then(|(_, _, path)| path);
                (path.as_deref().and_then(cgroups::unit), task.cgroup)
            }
        };
        let kernel = task.task_flags & PF_KTHREAD != 0;
        self.know(task.tid, task.tgid, comm, unit, kernel, cgroup);
        if task.sched != 0 {
            self.set_sched(task.tid, task.sched);
        }
    }

    /// Sets whether a task belongs to the recorded program.
    pub fn set_program(&mut self, tid: u32, program: bool) {
        self.change(tid, |who| who.program != program, |who| who.program = program);
    }

    fn set_sched(&mut self, tid: u32, sched: u32) {
        self.change(tid, |who| who.sched != sched, |who| who.sched = sched);
    }

    /// Changes what is known about a task if it `differs`. Called for every time slice: nothing is
    /// cloned if it does not.
    fn change(&mut self, tid: u32, differs: impl Fn(&Who) -> bool, change: impl FnOnce(&mut Who)) {
        let Some(known) = self.tasks.get(&tid).copied() else { return };
        let who = &self.who[known.who as usize];
        if !differs(who) {
            return;
        }
        let mut who = who.clone();
        change(&mut who);
        let index = self.index_of(who);
        self.tasks.insert(tid, Known { who: index, listed: false, ..known });
    }

    /// What /proc knows about a living task; None if /proc uses other numbers and this one's is unknown.
    fn look_up_in_proc(&self, tid: u32) -> Option<(String, u32, Option<String>)> {
        rules::from_proc(self.in_proc(tid)?)
    }

    /// A task's number in /proc; None if unknown.
    pub fn in_proc(&self, tid: u32) -> Option<u32> {
        match self.proc_has_kernels_numbers {
            true => Some(tid),
            false => pids::in_proc(self.tid_here(tid)?),
        }
    }

    fn know(
        &mut self,
        tid: u32,
        tgid: u32,
        comm: String,
        unit: Option<String>,
        kernel: bool,
        cgroup: u64,
    ) -> u32 {
        let own = match &self.numbers {
            None => tgid == self.own_tgid,
            Some(_) => self.tgid_here(tid) == Some(self.own_tgid),
        };
        let name = if kernel { kernel_thread_name(&comm) } else { comm };
        // Not every announcement includes it; the known value stays.
        let known = self.tasks.get(&tid).map(|known| &self.who[known.who as usize]);
        let (sched, program) = known.map_or((0, false), |known| (known.sched, known.program));
        let process = if kernel { None } else { self.process_of(tid, tgid) };
        let process = process.filter(|process| *process != name);
        let unit = if kernel { None } else { unit };
        let who = Who { name, process, unit, kernel, own, program, sched };
        let index = self.index_of(who);
        if self.tasks.len() >= self.too_many_tasks {
            let numbers = &self.numbers;
            // The state of tasks outside the PID namespace is unknown; their numbers are reused.
            self.tasks.retain(|tid, _| match numbers {
                None => machine::is_alive(*tid),
                Some(numbers) => {
                    numbers.get(tid).is_none_or(|here| here.tid == 0 || machine::is_alive(here.tid))
                }
            });
            if let Some(numbers) = &mut self.numbers {
                numbers.retain(|tid, _| self.tasks.contains_key(tid));
            }
            self.too_many_tasks = MANY_TASKS.max(2 * self.tasks.len());
        }
        let listed = self.tasks.get(&tid).is_some_and(|k| k.who == index && k.listed);
        self.tasks.insert(tid, Known { who: index, tgid, cgroup, listed });
        index
    }

    /// The name of a thread's process: that of its first thread.
    fn process_of(&self, tid: u32, tgid: u32) -> Option<String> {
        if tid == tgid || tgid == 0 {
            return None;
        }
        match self.tasks.get(&tgid) {
            Some(first) => {
                let first = &self.who[first.who as usize];
                first.is_process().then(|| first.name.clone())
            }
            None => self.look_up_in_proc(tgid).map(|(comm, ..)| comm),
        }
    }

    fn index_of(&mut self, mut who: Who) -> u32 {
        if self.who.len() >= MAX_NAMES && !self.who_index.contains_key(&who) {
            who = Who { name: TOO_MANY.to_owned(), process: None, unit: None, sched: 0, ..who };
        }
        match self.who_index.get(&who) {
            Some(&index) => index,
            None => {
                let index = self.who.len() as u32;
                self.who.push(who.clone());
                self.who_index.insert(who, index);
                index
            }
        }
    }

    /// Ensures that a task that was never announced is known.
    pub fn look_up(&mut self, tid: u32) {
        self.who(tid);
    }

    /// The idle CPU that a runnable thread waits for.
    pub fn idle_while_runnable(&mut self) -> SourceId {
        self.intern(plain(Class::Idle, "idle while runnable".into(), None))
    }

    /// A cgroup's exhausted CPU quota, and where it is set.
    pub fn quota(&mut self, cgroup: Option<String>, controller: Option<String>) -> SourceId {
        let source = plain(Class::Throttled, "CPU quota".into(), controller);
        self.intern(Source { unit: cgroup, ..source })
    }

    /// Index of a task's name; one that was never announced is looked up in /proc.
    fn who(&mut self, tid: u32) -> u32 {
        if let Some(known) = self.tasks.get(&tid) {
            return known.who;
        }
        match self.look_up_in_proc(tid) {
            Some((comm, tgid, cgroup)) => {
                let unit = cgroup.as_deref().and_then(cgroups::unit);
                let kernel = self.in_proc(tid).is_some_and(is_kernel_thread);
                // /proc may show other numbers here.
                let tgid = if self.proc_has_kernels_numbers { tgid } else { 0 };
                self.know(tid, tgid, comm, unit, kernel, CGROUP_UNKNOWN)
            }
            None => {
                let name = if self.numbers.is_some() { UNKNOWN_TASK } else { EXITED_TASK };
                self.know(tid, 0, name.to_owned(), None, false, CGROUP_UNKNOWN)
            }
        }
    }

    /// The source of a record.
    pub fn source(&mut self, record: &Record) -> (Class, SourceId) {
        let kind = record.kind();
        let (task, other) = match kind {
            kind::THREAD if record.id != 0 => (record.id, record.other),
            kind::FAULT_USER | kind::FAULT_KERNEL => (record.other, 0),
            _ => (0, record.other),
        };
        let who = if task != 0 { self.who(task) } else { 0 };
        let other = match other {
            0 => 0,
            interrupt if interrupt & ORIGIN_INTERRUPT != 0 => interrupt,
            tid => self.who(tid) + 1,
        };
        let woke = match kind {
            kind::VECTOR | kind::IRQ | kind::SOFTIRQ if record.woke != 0 => {
                self.who(record.woke) + 1
            }
            _ => 0,
        };
        let key = Key {
            kind,
            flags: record.flags & (flag::MAJOR | flag::POINT),
            // A thread's id is in `who`; all threads of one name are one source.
            id: match kind {
                kind::THREAD => u32::from(record.id != 0),
                kind::IRQ => record.id | record.aux << 24,
                _ => record.id,
            },
            who,
            other,
            woke,
            stack: match &self.stacks {
                // Every stack is a source of its own: leave room for those that are not.
                Some(stacks)
                    if record.gross >= stacks.from_ns && self.sources.len() < MAX_SOURCES / 4 =>
                {
                    record.stack
                }
                _ => 0,
            },
            detail: record.detail,
        };
        let id = match self.cache.get(&key) {
            Some(&id) => id,
            None => {
                let mut source = self.name(record, &key);
                if let Some(calls) = self.calls(key.stack) {
                    let before = source.detail.map_or_else(String::new, |detail| detail + " ");
                    source.detail = Some(format!("{before}via {calls}"));
                }
                let id = self.intern(source);
                if self.cache.len() >= MAX_CACHED {
                    self.cache.clear();
                }
                self.cache.insert(key, id);
                id
            }
        };
        if task != 0 {
            self.list_pid(task, id);
        }
        (self.classes[id.0 as usize], id)
    }

    fn list_pid(&mut self, tid: u32, id: SourceId) {
        if let Some(known) = self.tasks.get_mut(&tid)
            && !known.listed
        {
            known.listed = true;
            let (pid, _) = self.shown(tid);
            let source = &mut self.sources[id.0 as usize];
            if source.pids.len() < MAX_PIDS && !source.pids.contains(&pid) {
                source.pids.push(pid);
                self.changed.push(id);
            }
        }
    }

    fn intern(&mut self, source: Source) -> SourceId {
        if let Some(&id) = self.source_index.get(&source) {
            return id;
        }
        let source = if self.sources.len() >= MAX_SOURCES - Class::ALL.len() {
            let name = TOO_MANY.to_owned();
            let rest = Source { name, unit: None, detail: None, cause: None, ..source };
            if let Some(&id) = self.source_index.get(&rest) {
                return id;
            }
            rest
        } else {
            source
        };
        let id = SourceId(self.sources.len() as u32);
        self.classes.push(source.class);
        self.source_index.insert(source.clone(), id);
        self.sources.push(source);
        self.changed.push(id);
        id
    }

    /// The naming rules.
    fn name(&mut self, record: &Record, key: &Key) -> Source {
        let function = (record.detail != 0).then(|| self.function(record.detail));
        match record.kind() {
            kind::VECTOR | kind::IRQ => self.interrupt(record, key, function),
            kind::SOFTIRQ => self.softirq(record, key, function),
            kind::NMI => plain(Class::Nmi, "NMI".into(), function),
            kind::THREAD if record.id == 0 => plain(Class::Idle, "idle".into(), None),
            kind::THREAD => {
                let woken = self.origin(key.other).map(|name| format!("woken by {name}"));
                let who = &self.who[key.who as usize];
                let name = match (&function, who.name.as_str()) {
                    (Some(work), "kworker") => format!("kworker: {work}"),
                    (_, name) => name.to_owned(),
                };
                Source {
                    unit: who.unit.clone(),
                    own: who.own,
                    program: who.program,
                    policy: policy(who.sched),
                    cause: who.process.as_ref().map(|_| who.cause()),
                    ..plain(if who.kernel { Class::Kthread } else { Class::Thread }, name, woken)
                }
            }
            kind::FAULT_USER | kind::FAULT_KERNEL => {
                let who = &self.who[key.who as usize];
                let detail = Some(fault_kind(record));
                Source {
                    unit: who.unit.clone(),
                    own: who.own,
                    program: who.program,
                    cause: who.process.as_ref().map(|_| who.cause()),
                    ..plain(Class::PageFault, who.name.clone(), detail)
                }
            }
            unknown => plain(Class::OutsideKernel, format!("record kind {unknown}"), None),
        }
    }

    /// Timers, IPIs and devices.
    fn interrupt(&mut self, record: &Record, key: &Key, function: Option<String>) -> Source {
        let (class, name) = match record.kind() {
            kind::VECTOR => vector(record.id),
            _ => match self.irqs.get(record.id, record.aux as usize) {
                Irq::Timer => (Class::Timer, String::new()),
                Irq::Ipi(name) => (Class::Ipi, name.clone()),
                Irq::Device(name) => {
                    return plain(Class::Irq, name.clone(), Some(format!("irq {}", record.id)));
                }
            },
        };
        if class == Class::Timer {
            return match function {
                Some(name) if !is_tick(&name) => {
                    let (detail, cause) = self.sleeper(&name, key).unzip();
                    Source { cause, ..plain(class, format!("hrtimer: {name}"), detail) }
                }
                tick => plain(class, "tick".into(), tick),
            };
        }
        let from = self.origin(key.other).map(|name| format!("from {name}"));
        let detail: Vec<String> = function.into_iter().chain(from).collect();
        let detail = (!detail.is_empty()).then(|| detail.join(" "));
        Source { cause: self.cause(key.other), ..plain(class, name, detail) }
    }

    /// Caused by the task that raised it, or, for the timer softirq, by the sleeper it wakes.
    fn softirq(&self, record: &Record, key: &Key, function: Option<String>) -> Source {
        let sleeper = function.as_ref().and_then(|function| self.sleeper(function, key));
        let raiser = self.task(key.other).map(|who| format!("raised by {}", who.name));
        let (wakes, sleeper) = sleeper.unzip();
        let detail: Vec<String> = function.into_iter().chain(wakes).chain(raiser).collect();
        let detail = (!detail.is_empty()).then(|| detail.join(" "));
        let cause = sleeper.or_else(|| self.cause(key.other));
        Source { cause, ..plain(Class::Softirq, softirq(record.id), detail) }
    }

    /// Whom a timer's function wakes, if that is its purpose.
    fn sleeper(&self, function: &str, key: &Key) -> Option<(String, Cause)> {
        let who =
            self.task(key.woke).filter(|who| wakes_a_sleeper(function) && who.is_process())?;
        Some((format!("wakes {}", who.name), who.cause()))
    }

    /// The process that is a waker, sender or raiser: `other` as stored in a key.
    fn cause(&self, other: u32) -> Option<Cause> {
        self.task(other).filter(|who| who.is_process()).map(Who::cause)
    }

    fn task(&self, other: u32) -> Option<&Who> {
        match other {
            0 => None,
            interrupt if interrupt & ORIGIN_INTERRUPT != 0 => None,
            task => self.who.get(task as usize - 1),
        }
    }

    fn function(&self, address: u64) -> String {
        match self.symbols.name(address) {
            // Compiler clones (.isra.0, .cold) are the same function to a reader.
            Some(name) => name.split('.').next().unwrap_or(name).to_owned(),
            None if self.addresses => format!("{address:#x}"),
            None => UNKNOWN_FUNCTION.to_owned(),
        }
    }

    /// The waker or sender: `other` as stored in a key.
    fn origin(&mut self, other: u32) -> Option<String> {
        if other == 0 {
            return None;
        }
        if other & ORIGIN_INTERRUPT == 0 {
            return self.task(other).map(|who| who.name.clone());
        }
        let id = other & 0xffff;
        Some(match (other >> 16) as u8 & 0x7f {
            kind::VECTOR => vector(id).1,
            kind::IRQ => match self.irqs.get(id, 0) {
                Irq::Timer => "timer".to_owned(),
                Irq::Ipi(name) => name.clone(),
                Irq::Device(name) => format!("irq {name}"),
            },
            kind::SOFTIRQ => format!("softirq {}", softirq(id)),
            kind::NMI => "NMI".to_owned(),
            _ => "an interrupt".to_owned(),
        })
    }
}

/// A source of the kernel itself.
fn plain(class: Class, name: String, detail: Option<String>) -> Source {
    Source {
        class,
        name,
        unit: None,
        detail,
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

#[cfg(test)]
mod tests {
    use recorder_abi::sched;

    use super::*;

    fn names() -> Names {
        let symbols = "1000 t tick_nohz_handler\n2000 t hrtimer_wakeup\n3000 t vmstat_update\n";
        Names::new(Symbols::parse(symbols.as_bytes()).expect("text"))
    }

    fn task(tid: u32, comm: &str, task_flags: u32) -> Task {
        let mut bytes = [0u8; 16];
        bytes[..comm.len()].copy_from_slice(comm.as_bytes());
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Task {
            comm: [word(0), word(8)],
            cgroup: u64::MAX - 1,
            tid,
            tgid: tid,
            task_flags,
            ..Task::default()
        }
    }

    fn record(kind: u8, id: u32) -> Record {
        Record { id, kind_depth: kind, ..Record::default() }
    }

    fn named(names: &mut Names, record: &Record) -> Source {
        let (_, id) = names.source(record);
        names.sources[id.0 as usize].clone()
    }

    #[test]
    fn the_tick_is_told_from_other_timers() {
        let mut names = names();
        let tick = named(&mut names, &Record { detail: 0x1000, ..record(kind::VECTOR, 0xec) });
        assert_eq!((tick.class, tick.name.as_str()), (Class::Timer, "tick"));
        let sleep = named(&mut names, &Record { detail: 0x2000, ..record(kind::VECTOR, 0xec) });
        assert_eq!(sleep.name, "hrtimer: hrtimer_wakeup");
    }

    #[test]
    fn functions_without_a_name_are_one_row_and_show_no_address() {
        let mut names = Names::new(Symbols::default());
        names.learn(&task(70_000_001, "kworker/1:0", PF_KTHREAD));
        let all = [(kind::VECTOR, 0xec), (kind::SOFTIRQ, 1), (kind::VECTOR, 0xfb), (kind::NMI, 0)];
        for (kind, id) in all.into_iter().chain([(kind::THREAD, 70_000_001)]) {
            let mut of = |detail| names.source(&Record { detail, ..record(kind, id) }).1;
            assert_eq!(of(0xffff_ffff_8123_4560), of(0xffff_ffff_8765_4320));
        }
        assert!(names.sources.iter().any(|source| source.name == "hrtimer: unknown function"));
        assert!(!format!("{:?}", names.sources).contains("0x"), "{:?}", names.sources);

        let mut asked = Names { addresses: true, ..Names::new(Symbols::default()) };
        let timer = named(&mut asked, &Record { detail: 0xabcd, ..record(kind::VECTOR, 0xec) });
        assert_eq!(timer.name, "hrtimer: 0xabcd");
    }

    #[test]
    fn tasks_that_are_gone_are_forgotten_and_living_ones_are_not() {
        let mut names = names();
        let alive = std::process::id();
        names.know(alive, alive, "alive".to_owned(), None, false, 0);
        // No kernel assigns such numbers.
        let gone = 5_000_000..5_000_000 + MANY_TASKS as u32;
        for tid in gone {
            names.know(tid, tid, "gone".to_owned(), None, false, 0);
        }
        assert!(names.tasks.len() < 10, "{} tasks", names.tasks.len());
        assert_eq!(names.task_name(alive), "alive");
    }

    #[test]
    fn a_kworker_is_named_by_its_work_and_a_daemon_by_its_comm_and_waker() {
        let mut names = names();
        names.learn(&task(70_000_001, "kworker/1:0", PF_KTHREAD));
        names.learn(&task(70_000_002, "fakemond", 0));
        let work =
            named(&mut names, &Record { detail: 0x3000, ..record(kind::THREAD, 70_000_001) });
        assert_eq!((work.class, work.name.as_str()), (Class::Kthread, "kworker: vmstat_update"));
        let woken =
            Record { other: ORIGIN_INTERRUPT | 1 << 16 | 0xec, ..record(kind::THREAD, 70_000_002) };
        let daemon = named(&mut names, &woken);
        assert_eq!((daemon.class, daemon.name.as_str()), (Class::Thread, "fakemond"));
        assert_eq!(daemon.detail.as_deref(), Some("woken by timer"));
        assert_eq!(daemon.pids, [70_000_002]);
    }

    #[test]
    fn what_a_process_makes_the_kernel_do_names_it() {
        let mut names = names();
        let (daemon, worker, kthread) = (70_000_020, 70_000_021, 70_000_022);
        names.learn(&task(daemon, "fakemond", 0));
        names.learn(&Task { tgid: daemon, ..task(worker, "pool-1", 0) });
        names.learn(&task(kthread, "kcompactd0", PF_KTHREAD));
        let process = |source: &Source| source.cause.as_ref().map(|cause| cause.process.clone());
        let key = |source: &Source| (source.process_key().class, source.process_key().process);
        let fakemond = (Class::Thread, "fakemond".to_owned());

        // A thread and a page fault with a name of their own, and the process itself.
        let thread = named(&mut names, &record(kind::THREAD, worker));
        let fault = named(&mut names, &Record { other: worker, ..record(kind::FAULT_USER, 6) });
        assert_eq!((thread.name.as_str(), fault.name.as_str()), ("pool-1", "pool-1"));
        let first = named(&mut names, &record(kind::THREAD, daemon));
        assert_eq!(process(&first), None);
        // Whom the timer wakes, who sent the IPI, who raised the softirq.
        let timer = Record { detail: 0x2000, woke: worker, ..record(kind::VECTOR, 0xec) };
        let timer = named(&mut names, &timer);
        assert_eq!(timer.detail.as_deref(), Some("wakes pool-1"));
        let ipi = named(&mut names, &Record { other: worker, ..record(kind::VECTOR, 0xfb) });
        let packet = named(&mut names, &Record { other: daemon, ..record(kind::SOFTIRQ, 3) });
        assert_eq!(packet.detail.as_deref(), Some("raised by fakemond"));
        for source in [&thread, &fault, &first, &timer, &ipi, &packet] {
            assert_eq!(key(source), fakemond, "{source:?}");
        }

        // The tick wakes tasks too, and kernel threads are nobody's.
        let tick = Record { detail: 0x1000, woke: worker, ..record(kind::VECTOR, 0xec) };
        assert_eq!(key(&named(&mut names, &tick)), (Class::Timer, "tick".to_owned()));
        let other = Record { other: kthread, ..record(kind::VECTOR, 0xfb) };
        assert_eq!(process(&named(&mut names, &other)), None);
    }

    #[test]
    fn threads_of_one_name_are_one_source_and_per_cpu_threads_too() {
        let mut names = names();
        for tid in 0..20 {
            names.learn(&task(70_000_010 + tid, &format!("ksoftirqd/{tid}"), PF_KTHREAD));
        }
        let ids: std::collections::HashSet<_> =
            (0..20).map(|t| names.source(&record(kind::THREAD, 70_000_010 + t)).1).collect();
        assert_eq!(ids.len(), 1);
        let id = *ids.iter().next().expect("one");
        assert_eq!(names.sources[id.0 as usize].pids.len(), MAX_PIDS);
    }

    #[test]
    fn endless_new_names_do_not_make_an_endless_table() {
        let mut names = names();
        for i in 0..(MAX_SOURCES as u32 + 5_000) {
            names.learn(&task(70_000_000 + i, &format!("x{i}"), 0));
            names.source(&record(kind::THREAD, 70_000_000 + i));
        }
        assert!(names.sources.len() <= MAX_SOURCES);
        assert!(names.sources.iter().any(|s| s.name.starts_with("(too many")));
    }

    #[test]
    fn a_thread_source_has_the_policy_of_its_time() {
        let mut names = names();
        let fifo = sched::KNOWN | sched::FIFO << 8 | 60;
        let tid = 70_000_090;
        names.learn(&Task { sched: fifo, ..task(tid, "hog", 0) });
        let first = named(&mut names, &record(kind::THREAD, tid));
        assert_eq!(first.policy.as_deref(), Some("SCHED_FIFO 60"));
        // A waker's announcement does not include it.
        names.learn(&Task { cgroup: CGROUP_UNKNOWN, ..task(tid, "hog", 0) });
        assert_eq!(named(&mut names, &record(kind::THREAD, tid)).policy, first.policy);
        names.learn(&Task { sched: sched::KNOWN | 25, ..task(tid, "hog", 0) });
        let later = named(&mut names, &record(kind::THREAD, tid));
        assert_eq!(later.policy.as_deref(), Some("SCHED_OTHER nice 5"));
        let fault = Record { other: tid, ..record(kind::FAULT_USER, 6) };
        assert_eq!(named(&mut names, &fault).policy, None);
    }

    #[test]
    fn page_faults_are_named_by_task_and_kind() {
        let mut names = names();
        names.learn(&task(70_000_099, "pfgen", 0));
        let fault = Record { other: 70_000_099, ..record(kind::FAULT_USER, 6) };
        let source = named(&mut names, &fault);
        assert_eq!(source.name, "pfgen");
        assert_eq!(source.detail.as_deref(), Some("user write, missing page, minor"));
    }
}
