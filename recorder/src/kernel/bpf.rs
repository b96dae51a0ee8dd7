//! Loads the BPF object, attaches the hooks this kernel offers, and accesses the maps.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{ArrayOfMaps, Map, MapData, StackTraceMap},
    programs::{
        BtfTracePoint, FEntry, FExit, Iter, PerfEvent, Program, RawTracePoint,
        fentry::FEntryLink,
        fexit::FExitLink,
        perf_event::{PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent},
        raw_trace_point::RawTracePointLink,
        tp_btf::BtfTracePointLink,
    },
};
use recorder_abi::{CpuState, RING_BYTES, watch};
use trace::MissingHook;

use crate::{
    cpulist::CpuSet,
    kernel::{
        btf::Btf,
        cpu_pages::CpuPages,
        error::{BTF_PATH, Refused, load_error, map_error, no_map, not_permitted},
        hooks::{
            Attach, CGROUP_OFFSETS, FAULT_EVENT, FAULT_RETURN, Hook, OFFSETS, Only, TASK_ITERATOR,
            hooks,
        },
        ring::Ring,
        self_test,
        task_table::TaskTable,
    },
    naming::pids,
    node::{files, machine},
};

pub use crate::kernel::error::BpfError;

/// Built by `cargo xtask ebpf` from `recorder-ebpf` and committed, so that a plain build needs no BPF
/// toolchain.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/detour.bpf.o");

/// Longer than a host usually keeps a CPU to itself.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// The loaded programs. Dropping it detaches and unloads everything.
pub struct Bpf {
    ebpf: Ebpf,
    /// Dropping a link detaches it.
    links: Vec<Link>,
    cpu_pages: Arc<CpuPages>,
    rings: Rings,
    pub attached: Vec<String>,
    pub missing: Vec<MissingHook>,
    /// Missing, but another hook provides the same.
    pub replaced: Vec<MissingHook>,
    /// Hits of each hook in the self-test, by its counter.
    pub hits: Vec<u64>,
    #[cfg(feature = "bpf-log")]
    log: Option<aya_log::EbpfLogger<crate::kernel::log::Stderr>>,
}

/// A program attached to a hook; held only for its drop.
#[expect(dead_code, reason = "held only for its drop")]
enum Link {
    Raw(RawTracePointLink),
    Btf(BtfTracePointLink),
    Entry(FEntryLink),
    Return(FExitLink),
    Perf(PerfEventLink),
}

/// What may mark the end of page faults.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Any,
    /// The software events only.
    Events,
    None,
}

impl Bracket {
    fn allows(self, hook: &Hook) -> bool {
        match hook.attach {
            Attach::Return(_) => self == Bracket::Any,
            Attach::PerfMinorFaults | Attach::PerfMajorFaults => self != Bracket::None,
            _ => true,
        }
    }
}

#[cfg(feature = "bpf-log")]
impl Drop for Bpf {
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

pub struct LoadOptions<'a> {
    /// CPUs whose records are wanted.
    pub watched: &'a CpuSet,
    /// Sizes of their ring buffers, and of those of the other CPUs, which send only names. Powers of
    /// two.
    pub ring_bytes: u32,
    pub other_ring_bytes: u32,
    /// Set from outside to abort loading.
    pub stop: &'a AtomicBool,
    /// Records the threads of a program instead of CPUs.
    pub program: bool,
    /// Counts what keeps the tick running.
    pub audit: bool,
    /// Keeps the kernel stacks of wakers and senders.
    pub stacks: bool,
}

impl<'a> LoadOptions<'a> {
    /// For a recording of CPUs.
    pub fn new(
        watched: &'a CpuSet,
        (ring_bytes, other_ring_bytes): (u32, u32),
        stop: &'a AtomicBool,
    ) -> LoadOptions<'a> {
        LoadOptions {
            watched,
            ring_bytes,
            other_ring_bytes,
            stop,
            program: false,
            audit: false,
            stacks: false,
        }
    }
}

/// A ring buffer for every online CPU, and one shared by all others, should they come online.
struct Rings {
    of_cpu: BTreeMap<u32, Arc<Ring>>,
    of_others: Option<Arc<Ring>>,
}

/// What the programs do on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Nothing,
    /// Keep the nesting stack, and note wakers and senders of IPIs; send no records.
    Track,
    /// The same, and send records.
    Records,
}

impl Wanted {
    fn flags(self) -> u32 {
        match self {
            Wanted::Nothing => 0,
            Wanted::Track => watch::TRACK,
            Wanted::Records => watch::TRACK | watch::EMIT | watch::SLOTS,
        }
    }
}

/// Reads the kernel's BTF.
pub fn kernel_btf() -> Result<Btf, BpfError> {
    Ok(Btf::parse(fs::read(BTF_PATH).map_err(BpfError::NoBtf)?)?)
}

/// Where the programs find the fields they read.
struct Offsets {
    /// By global variable.
    offsets: Vec<(&'static str, u32)>,
    /// Programs that cannot work on this kernel, and why.
    impossible: Vec<(&'static str, String)>,
}

impl Offsets {
    fn find(btf: &Btf) -> Offsets {
        let (mut offsets, mut impossible) = (Vec::new(), Vec::new());
        for wanted in OFFSETS {
            let found =
                wanted.fields.iter().find_map(|field| btf.offset(wanted.structure, field).ok());
            match found {
                Some(offset) => offsets.push((wanted.global, offset)),
                None => impossible.extend(wanted.programs.iter().map(|program| {
                    let why = format!("struct {} has no {}", wanted.structure, wanted.fields[0]);
                    (*program, why)
                })),
            }
        }
        // Programs only check for the id; the path to it is useless if one of its steps is missing.
        if CGROUP_OFFSETS.iter().any(|step| !offsets.iter().any(|(global, _)| global == step)) {
            offsets.retain(|(global, _)| *global != "NODE_ID");
        }
        Offsets { offsets, impossible }
    }
}

impl Bpf {
    /// Loads, attaches and tests. How the programs are compiled depends on whether anything marks the
    /// end of page faults, so that is tried first.
    pub fn load(options: &LoadOptions) -> Result<Bpf, BpfError> {
        let btf = kernel_btf()?;
        raise_memlock_limit();
        let mut missing = Vec::new();
        for bracket in [Bracket::Any, Bracket::Events] {
            let mut bpf = Bpf::load_with(options, &btf, bracket)?;
            missing = bpf.missing_after(missing);
            if bpf.has(FAULT_RETURN) || bpf.has(FAULT_EVENT) {
                let stand_ins: Vec<&str> = hooks()
                    .filter(|hook| bpf.has(hook.name))
                    .filter_map(|hook| hook.instead_of)
                    .collect();
                (bpf.replaced, bpf.missing) = missing
                    .into_iter()
                    .partition(|missing| stand_ins.contains(&missing.hook.as_str()));
                return Ok(bpf);
            }
        }
        let mut bpf = Bpf::load_with(options, &btf, Bracket::None)?;
        bpf.missing = bpf.missing_after(missing);
        Ok(bpf)
    }

    /// Attaches each program that is wanted, or says why not; an error if a required one is missing.
    fn attach_hooks(
        &mut self,
        options: &LoadOptions,
        kernel: &aya::Btf,
        bracket: Bracket,
        impossible: &[(&str, String)],
    ) -> Result<(), BpfError> {
        for hook in hooks() {
            let wanted = match hook.only {
                Only::Always => true,
                Only::Programs => options.program,
                Only::Audits => options.audit,
            };
            if !wanted
                || !bracket.allows(hook)
                || hook.instead_of.is_some_and(|better| self.has(better))
            {
                continue;
            }
            let result = match impossible.iter().find(|(program, _)| *program == hook.program) {
                Some((_, why)) => Err(Refused::Missing(why.clone())),
                None => self
                    .load_despite_signals(hook, kernel, options.stop)
                    .and_then(|()| self.attach_program(hook, options.watched)),
            };
            if options.stop.load(Ordering::Relaxed) {
                return Err(BpfError::Stopped);
            }
            match result {
                Ok(()) => self.attached.push(hook.name.to_owned()),
                Err(Refused::NotPermitted(why)) if hook.required => {
                    return Err(not_permitted(why));
                }
                Err(refused) if hook.required => {
                    return Err(BpfError::RequiredHook { hook: hook.name, why: refused.why() });
                }
                Err(refused) => self.missing.push(MissingHook {
                    hook: hook.name.to_owned(),
                    lost: hook.without.to_owned(),
                    why: refused.why(),
                }),
            }
        }
        Ok(())
    }

    /// What is missing after another attempt: each hook once, and only if it is not attached now.
    fn missing_after(&self, before: Vec<MissingHook>) -> Vec<MissingHook> {
        missing_after(before, &self.missing, |hook| self.has(hook))
    }

    pub fn has(&self, name: &str) -> bool {
        self.attached.iter().any(|hook| hook == name)
    }

    /// A hook that does not fire when it should is missing.
    fn test(&mut self, watched: &CpuSet) {
        self.hits = self_test::hits(self, watched);
        let silent: Vec<&Hook> = self_test::silent(self, &self.hits).collect();
        for hook in silent {
            self.attached.retain(|attached| attached != hook.name);
            self.missing.push(MissingHook {
                hook: hook.name.to_owned(),
                lost: hook.without.to_owned(),
                why: "attached, but does not fire".to_owned(),
            });
        }
    }

    fn load_with(options: &LoadOptions, btf: &Btf, bracket: Bracket) -> Result<Bpf, BpfError> {
        let cpus = aya::util::nr_cpus()
            .map_err(|(path, error)| BpfError::Load(format!("{path}: {error}")))?
            as u32;
        let Offsets { offsets, impossible } = Offsets::find(btf);
        let brackets = u32::from(bracket != Bracket::None);
        let kernel = aya::Btf::from_sys_fs().map_err(|error| BpfError::Load(error.to_string()))?;
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&kernel)).override_global("FAULT_BRACKET", &brackets, true);
        let mask_words = cpus.div_ceil(u64::BITS);
        loader.override_global("MASK_WORDS", &mask_words, true);
        let namespace = pids::own_namespace().unwrap_or(0);
        loader.override_global("PID_NAMESPACE", &namespace, true);
        let program = u32::from(options.program);
        loader.override_global("PROGRAM", &program, true);
        for (global, offset) in &offsets {
            loader.override_global(global, offset, true);
        }
        for map in ["STATE", "SENDERS", "THROTTLED", "RINGS"] {
            loader.map_max_entries(map, cpus);
        }
        let stacks = u32::from(options.stacks);
        loader.override_global("WITH_STACKS", &stacks, true);
        if options.stacks {
            loader.map_max_entries("STACKS", recorder_abi::STACKS);
            loader.map_max_entries("WAKER_STACKS", recorder_abi::WAKER_STACKS);
        }
        #[cfg(feature = "bpf-log")]
        let object = &crate::kernel::log::object(OBJECT);
        #[cfg(not(feature = "bpf-log"))]
        let object = OBJECT;
        let mut ebpf = loader.load(object).map_err(load_error)?;
        let Some(Map::Array(array)) = ebpf.map("STATE") else { return Err(no_map()) };
        let cannot_map = |error: io::Error| BpfError::Map(format!("mmap failed: {error}"));
        let cpu_pages = CpuPages::map(array.fd(), cpus).map_err(cannot_map)?;
        let rings = Rings::create(&mut ebpf, cpus, options)?;
        let mut bpf = Bpf {
            ebpf,
            links: Vec::new(),
            cpu_pages: Arc::new(cpu_pages),
            rings,
            attached: Vec::new(),
            missing: Vec::new(),
            replaced: Vec::new(),
            hits: Vec::new(),
            #[cfg(feature = "bpf-log")]
            log: None,
        };
        bpf.attach_hooks(options, &kernel, bracket, &impossible)?;
        bpf.test(options.watched);
        #[cfg(feature = "bpf-log")]
        {
            bpf.log = crate::kernel::log::start(&mut bpf.ebpf);
        }
        Ok(bpf)
    }

    pub(crate) fn program(&self, name: &str) -> Option<&Program> {
        self.ebpf.program(name)
    }

    fn program_mut(&mut self, hook: &Hook) -> Result<&mut Program, Refused> {
        let program = self.ebpf.program_mut(hook.program);
        program.ok_or_else(|| Refused::Missing("not in the object".into()))
    }

    /// Retries when a signal that does not end the recording interrupts the verifier.
    fn load_despite_signals(
        &mut self,
        hook: &Hook,
        btf: &aya::Btf,
        stop: &AtomicBool,
    ) -> Result<(), Refused> {
        loop {
            match self.load_program(hook, btf) {
                Err(Refused::Interrupted) if !stop.load(Ordering::Relaxed) => {}
                result => return result,
            }
        }
    }

    fn load_program(&mut self, hook: &Hook, btf: &aya::Btf) -> Result<(), Refused> {
        match (self.program_mut(hook)?, hook.attach) {
            (Program::BtfTracePoint(program), Attach::Btf(name)) => program.load(name, btf)?,
            (Program::FEntry(program), Attach::Entry(name)) => program.load(name, btf)?,
            (Program::FExit(program), Attach::Return(name)) => program.load(name, btf)?,
            (Program::Iter(program), Attach::Tasks) => program.load("task", btf)?,
            (Program::RawTracePoint(program), _) => program.load()?,
            (Program::PerfEvent(program), _) => program.load()?,
            _ => return Err(Refused::Missing("wrong program type in the object".into())),
        }
        Ok(())
    }

    fn attach_program(&mut self, hook: &Hook, watched: &CpuSet) -> Result<(), Refused> {
        let mut links = Vec::new();
        let program = self.program_mut(hook)?;
        match hook.attach {
            Attach::Raw(tracepoints) => {
                let program: &mut RawTracePoint = program.try_into()?;
                // Some vectors exist only on some kernels; the first one must.
                for (index, tracepoint) in tracepoints.iter().enumerate() {
                    match program.attach(tracepoint) {
                        Ok(link) => links.push(Link::Raw(program.take_link(link)?)),
                        Err(error) if index == 0 => return Err(error.into()),
                        Err(_) => {}
                    }
                }
            }
            Attach::Btf(_) => {
                let program: &mut BtfTracePoint = program.try_into()?;
                let link = program.attach()?;
                links.push(Link::Btf(program.take_link(link)?));
            }
            Attach::Entry(_) => {
                let program: &mut FEntry = program.try_into()?;
                let link = program.attach()?;
                links.push(Link::Entry(program.take_link(link)?));
            }
            Attach::Return(_) => {
                let program: &mut FExit = program.try_into()?;
                let link = program.attach()?;
                links.push(Link::Return(program.take_link(link)?));
            }
            // Attached when it is run.
            Attach::Tasks => {}
            Attach::PerfMinorFaults => {
                attach_faults(program, SoftwareEvent::PageFaultsMin, watched, &mut links)?;
            }
            Attach::PerfMajorFaults => {
                attach_faults(program, SoftwareEvent::PageFaultsMaj, watched, &mut links)?;
            }
        }
        self.links.append(&mut links);
        Ok(())
    }

    /// Runs the kernel side's iterator over all tasks. Its findings come through the ring buffers.
    pub fn look_at_tasks(&mut self) {
        let look = |program: &mut Iter| -> Result<(), String> {
            let link = program.attach().map_err(|error| error.to_string())?;
            let link = program.take_link(link).map_err(|error| error.to_string())?;
            let mut file = link.into_file().map_err(|error| error.to_string())?;
            // It prints nothing.
            io::copy(&mut file, &mut io::sink()).map_err(|error| error.to_string())?;
            Ok(())
        };
        let Some(hook) = hooks().find(|hook| hook.program == TASK_ITERATOR) else { return };
        if !self.has(hook.name) {
            return;
        }
        let Some(Program::Iter(program)) = self.ebpf.program_mut(TASK_ITERATOR) else { return };
        if let Err(why) = look(program) {
            self.attached.retain(|attached| attached != hook.name);
            let lost = hook.without.to_owned();
            self.missing.push(MissingHook { hook: hook.name.to_owned(), lost, why });
        }
    }

    /// Detaches the programs; they stay loaded.
    pub fn detach(&mut self) {
        // Entries before exits: every entry that was seen has its exit seen.
        while self.links.pop().is_some() {}
    }

    /// Reattaches what [`Bpf::detach`] detached.
    pub fn attach(&mut self, watched: &CpuSet) -> Result<(), BpfError> {
        for hook in hooks() {
            if self.has(hook.name) {
                self.attach_program(hook, watched).map_err(|refused| {
                    BpfError::Load(format!("{}: {}", hook.name, refused.why()))
                })?;
            }
        }
        Ok(())
    }

    /// Sets what is wanted of each CPU.
    pub fn watch(&self, wanted: impl Fn(u32) -> Wanted) {
        for cpu in 0..self.cpu_pages.cpus() {
            self.cpu_pages.set_flags(cpu, wanted(cpu).flags());
        }
    }

    /// Stops watching, and waits for programs in progress: a CPU that is descheduled by its host in the
    /// middle of one sends its record when it comes back.
    pub fn watch_nothing(&self) {
        self.watch(|_| Wanted::Nothing);
        // Waits as the kernel does before it frees a program. Not supported with nohz_full CPUs.
        let global = libc::MEMBARRIER_CMD_GLOBAL;
        // SAFETY: takes two numbers, touches no memory.
        if unsafe { libc::syscall(libc::SYS_membarrier, global, 0) } != 0 {
            std::thread::sleep(UNDER_WAY);
        }
    }

    /// The counters of every possible CPU, in order.
    pub fn states(&self) -> Vec<CpuState> {
        (0..self.cpu_pages.cpus()).map(|cpu| self.cpu_pages.counters(cpu)).collect()
    }

    /// Runs that the kernel has skipped since the programs were loaded, on all CPUs: it does not start a
    /// program on a CPU where a preempted task, or what an interrupt interrupted, is still inside it.
    /// From fdinfo, because bpf(2) may refuse a process that has dropped its capabilities. Zero before
    /// Linux 5.12, which does not count them.
    pub fn skipped_runs(&self) -> u64 {
        let skipped = |(_, program): (&str, &Program)| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            skipped_in(&files::text(format!("/proc/self/fdinfo/{fd}")))
        };
        self.ebpf.programs().filter_map(skipped).sum()
    }

    /// Entries that the programs have sent since they were loaded, by the kernel's own count. CPUs that
    /// were offline then are counted together, without a number.
    pub fn sent(&self) -> Vec<(Option<u32>, u64)> {
        let slotted =
            |cpu: Option<u32>| cpu.map_or(0, |cpu| self.cpu_pages.counters(cpu).slot_next);
        let sent = self.rings().into_iter();
        sent.map(|(cpu, ring)| (cpu, ring.sent() + slotted(cpu))).collect()
    }

    /// The shared memory with the records that do not go through the ring buffers.
    pub fn cpu_pages(&self) -> Arc<CpuPages> {
        Arc::clone(&self.cpu_pages)
    }

    /// The kernel side's task table.
    pub fn tasks(&self) -> io::Result<TaskTable> {
        match self.ebpf.map("TASKS") {
            Some(Map::Array(array)) => TaskTable::map(array.fd()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The kernel stacks of wakers and senders.
    pub fn stacks(&mut self) -> Option<StackTraceMap<MapData>> {
        StackTraceMap::try_from(self.ebpf.take_map("STACKS")?).ok()
    }

    /// The ring buffer of every CPU; the one of initially offline CPUs has no number.
    pub fn rings(&self) -> Vec<(Option<u32>, Arc<Ring>)> {
        let of_cpu = self.rings.of_cpu.iter().map(|(&cpu, ring)| (Some(cpu), Arc::clone(ring)));
        of_cpu.chain(self.rings.of_others.iter().map(|ring| (None, Arc::clone(ring)))).collect()
    }
}

impl Rings {
    fn create(ebpf: &mut Ebpf, cpus: u32, options: &LoadOptions) -> Result<Rings, BpfError> {
        let map = ebpf.map_mut("RINGS").ok_or_else(no_map)?;
        let mut array: ArrayOfMaps<_, MapData> = ArrayOfMaps::try_from(map).map_err(map_error)?;
        let online = machine::online();
        let mut rings = Rings { of_cpu: BTreeMap::new(), of_others: None };
        for cpu in 0..cpus {
            let ring = match (online.contains(&cpu), options.watched.contains(&cpu)) {
                (true, true) => Arc::new(Ring::create(ring_bytes(options.ring_bytes))?),
                (true, false) => Arc::new(Ring::create(ring_bytes(options.other_ring_bytes))?),
                (false, _) => match &rings.of_others {
                    Some(ring) => Arc::clone(ring),
                    None => Arc::new(Ring::create(ring_bytes(options.other_ring_bytes))?),
                },
            };
            array.set(cpu, ring.map(), 0).map_err(map_error)?;
            if online.contains(&cpu) {
                rings.of_cpu.insert(cpu, ring);
            } else {
                rings.of_others = Some(ring);
            }
        }
        Ok(rings)
    }
}

/// Sizes are powers of two in 32 bits.
const LARGEST_RING: u32 = 1 << 31;

/// The size of a ring buffer that the kernel accepts in the array.
pub fn ring_bytes(wanted: u32) -> u32 {
    match machine::version() {
        // All maps in an array have the size of its prototype.
        version if version < (5, 10) => RING_BYTES,
        _ => {
            let size = wanted.checked_next_power_of_two().unwrap_or(LARGEST_RING);
            size.max(rustix::param::page_size() as u32)
        }
    }
}

/// A later attempt does not try what it replaces, so what was missing before is still missing unless
/// `attached` says otherwise.
fn missing_after(
    before: Vec<MissingHook>,
    now: &[MissingHook],
    attached: impl Fn(&str) -> bool,
) -> Vec<MissingHook> {
    let mut missing = now.to_vec();
    for hook in before {
        if !attached(&hook.hook) && missing.iter().all(|other| other.hook != hook.hook) {
            missing.push(hook);
        }
    }
    missing
}

fn attach_faults(
    program: &mut Program,
    event: SoftwareEvent,
    watched: &CpuSet,
    links: &mut Vec<Link>,
) -> Result<(), Refused> {
    let program: &mut PerfEvent = program.try_into()?;
    for &cpu in watched {
        let link = program.attach(
            PerfEventConfig::Software(event),
            PerfEventScope::AllProcessesOneCpu { cpu },
            SamplePolicy::Period(1),
            false,
        )?;
        links.push(Link::Perf(program.take_link(link)?));
    }
    Ok(())
}

fn skipped_in(fdinfo: &str) -> Option<u64> {
    let count = fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
    count.trim().parse().ok()
}

/// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK, 64 KiB by default.
fn raise_memlock_limit() {
    let unlimited = rustix::process::Rlimit { current: None, maximum: None };
    // Fails without CAP_SYS_RESOURCE; then loading fails on old kernels with an explanation.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(names: &[&str]) -> Vec<MissingHook> {
        let hook = |name: &&str| MissingHook { hook: (*name).to_owned(), ..MissingHook::default() };
        names.iter().map(hook).collect()
    }

    #[test]
    fn a_ring_is_never_smaller_than_requested_if_it_can_be() {
        for (wanted, size) in [(5_000, 8_192), (1 << 30, 1 << 30), (3 << 30, 1 << 31)] {
            assert_eq!(ring_bytes(wanted), size);
        }
    }

    #[test]
    fn skipped_runs_are_in_fdinfo() {
        let fdinfo = "prog_type:\t26\nrun_cnt:\t7\nrecursion_misses:\t16\nverified_insns:\t92\n";
        assert_eq!(skipped_in(fdinfo), Some(16));
        assert_eq!(skipped_in("prog_type:\t26\n"), None);
    }

    #[test]
    fn a_hook_that_two_attempts_lack_is_listed_once() {
        // The first attempt found the return of handle_mm_fault silent; the second does not try it.
        let first = missing(&["ipi_send_cpu", "nmi_handler", FAULT_RETURN]);
        let second = missing(&["ipi_send_cpu"]);
        let both = missing_after(first, &second, |hook| hook == "nmi_handler");
        let names: Vec<&str> = both.iter().map(|missing| missing.hook.as_str()).collect();
        assert_eq!(names, ["ipi_send_cpu", FAULT_RETURN]);
    }
}
