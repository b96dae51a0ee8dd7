//! Maps, frozen settings, and the small operations on them shared by all hooks.

use core::intrinsics::AtomicOrdering;

use aya_ebpf::{
    Global,
    bindings::{
        BPF_F_MMAPABLE, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE,
    },
    btf_maps::{ArrayOfMaps, RingBuf},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_query,
        generated::bpf_get_current_comm,
    },
    macros::{btf_map, map},
    maps::{Array, StackTrace},
    programs::tracing::StackIdContext,
};
use recorder_abi::{
    CGROUP_UNKNOWN, CpuState, Frame, ORIGIN_INTERRUPT, RAISERS, RING_BYTES, Record, SLOTS, Sender,
    Slot, TASK_PLACES, TASK_SLOTS, TIMED_RUNS, TaskSlot, Throttled, hook, kind, task_place, tick,
    watch,
};

use crate::who;

/// One entry per possible CPU; the loader sets the sizes. User space maps it (mmap).
#[map]
pub static STATE: Array<CpuState> = Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
pub static SENDERS: Array<Sender> = Array::with_max_entries(1, 0);
#[map]
pub static TASKS: Array<TaskSlot> = Array::with_max_entries(TASK_SLOTS, BPF_F_MMAPABLE);
/// One entry per possible CPU.
#[map]
pub static THROTTLED: Array<Throttled> = Array::with_max_entries(1, 0);
/// Kernel stacks of wakers and senders; the loader sets the sizes if they are wanted.
#[map]
pub static STACKS: StackTrace = StackTrace::with_max_entries(1, 0);
/// Of woken tasks, by the low bits of their tids: the tid in the high half, and the stack as in a record.
#[map]
static WAKER_STACKS: Array<u64> = Array::with_max_entries(1, 0);
/// One ring per CPU, so that no CPU waits for another's lock or pulls in another's cache line. The
/// loader creates them; before Linux 5.10 inner maps must have the size declared here.
#[btf_map]
static RINGS: ArrayOfMaps<Ring, 1> = ArrayOfMaps::new();
type Ring = RingBuf<Record, { RING_BYTES as usize }>;

/// Field offsets, filled in from the running kernel's BTF before the verifier sees them.
#[unsafe(no_mangle)]
pub static TASK_PID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_TGID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_COMM: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_FLAGS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_STATE: Global<u32> = Global::new(0);
/// `task_struct.se` and two of its fields; 0 if the kernel lacks them.
#[unsafe(no_mangle)]
pub static TASK_SE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static SE_RAN: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static SE_RAN_BEFORE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static IRQACTION_NEXT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TIMER_FUNCTION: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static HRTIMER_FUNCTION: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static WORK_FUNC: Global<u32> = Global::new(0);
/// 64-bit words in a `struct cpumask`, enough for the machine's possible CPUs.
#[unsafe(no_mangle)]
pub static MASK_WORDS: Global<u32> = Global::new(1);
/// From a task to the name of its cgroup.
#[unsafe(no_mangle)]
pub static TASK_CGROUPS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CSS_SET_CGROUP: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CGROUP_NODE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static NODE_ID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static NODE_PARENT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static NODE_NAME: Global<u32> = Global::new(0);
/// From a task to its PIDs in each PID namespace.
#[unsafe(no_mangle)]
pub static TASK_LEADER: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_THREAD_PID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static PID_LEVEL: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static PID_NUMBERS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static PID_NS_COMMON: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static NS_INUM: Global<u32> = Global::new(0);
/// Inode of the recorder's PID namespace; 0 if it is the initial namespace.
#[unsafe(no_mangle)]
pub static PID_NAMESPACE: Global<u32> = Global::new(0);
/// Policy and priority.
#[unsafe(no_mangle)]
pub static TASK_POLICY: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_STATIC_PRIO: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_RT_PRIORITY: Global<u32> = Global::new(0);
/// Whether a task is queued, and on which CPU; kernels keep the CPU in one of two places.
#[unsafe(no_mangle)]
pub static TASK_ON_RQ: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_CPU: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_THREAD_INFO: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static THREAD_INFO_CPU: Global<u32> = Global::new(0);
/// Bandwidth control: the run queue of a task's cgroup, whether it or an ancestor is out of quota,
/// and, on kernels that throttle individual tasks, whether the task is throttled. 0 if the kernel
/// lacks the field.
#[unsafe(no_mangle)]
pub static SE_CFS_RQ: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CFS_RQ_THROTTLE_COUNT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_THROTTLED: Global<u32> = Global::new(0);
/// Asleep but still queued (delayed dequeue); 0 before Linux 6.12.
#[unsafe(no_mangle)]
pub static SE_DELAYED: Global<u32> = Global::new(0);
/// From a task's run queue up to the one that is out of quota itself, and to its cgroup.
#[unsafe(no_mangle)]
pub static SE_PARENT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CFS_RQ_THROTTLED: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CFS_RQ_GROUP: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static GROUP_CSS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CSS_CGROUP: Global<u32> = Global::new(0);
/// 1 when a program's threads are recorded, and what they wait for matters.
#[unsafe(no_mangle)]
pub static PROGRAM: Global<u32> = Global::new(0);
/// 1 if the kernel stacks of wakers and senders are wanted.
#[unsafe(no_mangle)]
pub static WITH_STACKS: Global<u32> = Global::new(0);
/// 1 if the end of a page fault is observable; otherwise a fault is a point.
#[unsafe(no_mangle)]
pub static FAULT_BRACKET: Global<u32> = Global::new(0);

/// The reader polls: a wakeup would be a self-IPI on the very CPU being measured.
const POLLED: u64 = BPF_RB_NO_WAKEUP as u64;
/// The exception is a ring that is half full before the next poll. Not repeated within this time: the
/// reader is already on its way.
const WAKE_AGAIN_NS: u64 = 2_000_000;

/// A location in a map's memory. Interrupts on this CPU change it between any two instructions, and
/// user space at any time, so it is never borrowed: every access is a single volatile load or store.
#[derive(Clone, Copy)]
pub struct Place<T>(*mut T);

impl<T: Copy> Place<T> {
    #[inline(always)]
    pub fn get(self) -> T {
        // SAFETY: points into a map element, which outlives the program; any bit pattern is a valid
        // `T`, since places refer to integer fields only.
        unsafe { self.0.read_volatile() }
    }

    #[inline(always)]
    pub fn set(self, value: T) {
        // SAFETY: as above. No reference to it exists.
        unsafe { self.0.write_volatile(value) }
    }
}

impl Place<u64> {
    /// Interrupts and NMIs on this CPU update the same words and cannot tear a single instruction.
    /// Kernels before 5.12 only support the form that returns no value.
    #[inline(always)]
    pub fn add(self, value: u64) {
        // SAFETY: points into a map element, aligned; all accesses are atomic or volatile.
        unsafe {
            core::intrinsics::atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(self.0, value);
        }
    }
}

impl Place<u32> {
    #[inline(always)]
    fn add(self, value: u32) {
        // SAFETY: as for 64 bits.
        unsafe {
            core::intrinsics::atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(self.0, value);
        }
    }
}

/// Generates accessors that return the places of a structure's fields.
macro_rules! places {
    ($owner:ident: $($field:ident: $type:ty),* $(,)?) => {
        impl $owner {
            $(
                #[inline(always)]
                pub fn $field(&self) -> Place<$type> {
                    // SAFETY: the pointer refers to a whole structure in a map.
                    Place(unsafe { &raw mut (*self.place).$field })
                }
            )*
        }
    };
}

/// The current CPU: its state and what is requested of it.
pub struct Cpu {
    place: *mut CpuState,
    pub number: u32,
    flags: u32,
    /// Flags for submitting a ring entry.
    submit: u64,
    /// 1 once this run has submitted an entry that wakes the reader.
    woke: u64,
}

places! {
    Cpu:
    interrupted_until: u64, slot_next: u64, slot_limit: u32,
    running: u32, timed_ns: u64, irq_next: u64, irq_chain: u32, lost: u64, lost_ns: u64,
    unmatched: u64, overflow: u64, nmi_first: u64, nmi_until: u64,
    faults_open: u32, slots_taken: u64, reader_woken: u64,
}

/// A task's slot, in place. Other CPUs may access it concurrently: one wakes the task, one runs it,
/// one migrates it. Each field is a separate word; the tid in the slot identifies the owner.
#[derive(Clone, Copy)]
pub struct TaskPlace {
    place: *mut TaskSlot,
}

places! {
    TaskPlace:
    comm: [u64; 2], work: u64, cgroup: u64, woken_at: u64, fault_start: u64, tid: u32, waker: u32,
    sched: u16, fault_id: u16, fault_kind: u8, marks: u8, fault_retry: u16,
}

impl TaskPlace {
    #[inline(always)]
    pub fn fill(self, slot: TaskSlot) {
        self.comm().set(slot.comm);
        self.work().set(slot.work);
        self.cgroup().set(slot.cgroup);
        self.woken_at().set(slot.woken_at);
        self.fault_start().set(slot.fault_start);
        self.waker().set(slot.waker);
        self.sched().set(slot.sched);
        self.fault_id().set(slot.fault_id);
        self.fault_kind().set(slot.fault_kind);
        self.marks().set(slot.marks);
        self.fault_retry().set(slot.fault_retry);
        // Written last: a reader that sees the tid also sees the rest.
        self.tid().set(slot.tid);
    }
}

/// The throttled run queues of a CPU, in place.
#[derive(Clone, Copy)]
pub struct Queues {
    place: *mut Throttled,
}

impl Queues {
    #[inline(always)]
    pub fn of(cpu: u32) -> Option<Queues> {
        THROTTLED.get_ptr_mut(cpu).map(|place| Queues { place })
    }

    #[inline(always)]
    pub fn at(self, index: usize) -> Place<u64> {
        // SAFETY: callers stay below the array's length, which the verifier checks.
        Place(unsafe { (&raw mut (*self.place).queues).cast::<u64>().add(index) })
    }
}

/// A frame of the nesting stack, in place.
#[derive(Clone, Copy)]
pub struct OpenFrame {
    place: *mut Frame,
}

places! {
    OpenFrame:
    start: u64, accounted: u64, detail: u64, id: u32, other: u32, aux: u32, kind: u8, flags: u8,
    before: u32, woke: u32, found: u64, stack: u32,
}

impl OpenFrame {
    #[inline(always)]
    pub fn copy(self) -> Frame {
        Frame {
            start: self.start().get(),
            accounted: self.accounted().get(),
            detail: self.detail().get(),
            id: self.id().get(),
            other: self.other().get(),
            aux: self.aux().get(),
            kind: self.kind().get(),
            flags: self.flags().get(),
            before: self.before().get(),
            woke: self.woke().get(),
            found: self.found().get(),
            stack: if WITH_STACKS.load() != 0 { self.stack().get() } else { 0 },
            ..Frame::EMPTY
        }
    }

    #[inline(always)]
    pub fn is(self, kind: u8, id: u32) -> bool {
        self.kind().get() == kind && self.id().get() == id
    }
}

/// Runs a hook's body if this CPU is watched, and times one run in [`TIMED_RUNS`]. For programs that
/// cannot be preempted: anything that interrupts them ends before they continue.
#[inline(always)]
pub fn on_watched_cpu(hook: usize, body: impl FnOnce(&mut Cpu)) -> i32 {
    let Some(mut cpu) = Cpu::current() else { return 0 };
    // Anything that interrupts between the load and the store restores the value.
    let running = cpu.running();
    running.set(running.get().wrapping_add(1));
    let hits = cpu.hits(hook);
    let runs = hits.get() + 1;
    hits.set(runs);
    cpu.run(runs, body);
    running.set(running.get().wrapping_sub(1));
    0
}

/// The same for programs that the kernel may preempt: those of fentry, fexit and iterators, and from Linux
/// 7.0 on those of tracepoints in preemptible code.
#[inline(always)]
pub fn on_watched_cpu_preemptible(hook: usize, body: impl FnOnce(&mut Cpu)) -> i32 {
    let Some(mut cpu) = Cpu::current() else { return 0 };
    let running = cpu.running();
    running.add(1);
    let hits = cpu.hits(hook);
    hits.add(1);
    cpu.run(hits.get(), body);
    running.add(u32::MAX);
    0
}

impl Cpu {
    /// None on a CPU that is not watched: the cheapest way out.
    #[inline(always)]
    fn current() -> Option<Cpu> {
        // SAFETY: takes no arguments.
        let number = unsafe { bpf_get_smp_processor_id() };
        let place = STATE.get_ptr_mut(number)?;
        // SAFETY: a field of the element.
        let flags = Place(unsafe { &raw mut (*place).flags }).get();
        if flags & watch::TRACK == 0 {
            return None;
        }
        Some(Cpu { place, number, flags, submit: POLLED, woke: 0 })
    }

    #[inline(always)]
    fn run(&mut self, runs: u64, body: impl FnOnce(&mut Cpu)) {
        let mut start = 0;
        if runs & (TIMED_RUNS - 1) == TIMED_RUNS / 2 {
            start = now();
            self.submit = wake_up(self.number, start);
        }
        // If the compiler knew that `start` is 0, it would duplicate the body and outline both copies:
        // more code to fetch, and code is cold too.
        // SAFETY: changes nothing.
        unsafe {
            core::arch::asm!(
                "{0} = {0}",
                "{1} = {1}",
                inout(reg) start,
                inout(reg) self.submit,
                options(nomem, nostack)
            );
        }
        body(self);
        if start != 0 {
            self.timed_ns().add(now().wrapping_sub(start));
            // Only what was sent wakes: a run that finds the ring half full but sends nothing, such as
            // the start of a page fault, must not use up the wakeup of the next.
            let woken = self.reader_woken();
            let ago = start.wrapping_sub(woken.get());
            woken.set(woken.get().wrapping_add(ago.wrapping_mul(self.woke)));
        }
    }

    /// How often a hook has run on this CPU, including this run.
    #[inline(always)]
    pub fn runs(&self, hook: usize) -> u64 {
        self.hits(hook).get()
    }

    #[inline(always)]
    fn hits(&self, hook: usize) -> Place<u64> {
        const { assert!(hook::COUNT > 0) };
        // SAFETY: hooks are constants below the array's length.
        Place(unsafe { (&raw mut (*self.place).hits).cast::<u64>().add(hook) })
    }

    /// Who raised a softirq that has not run yet.
    #[inline(always)]
    pub fn raiser(&self, softirq: u32) -> Place<u32> {
        // SAFETY: the index is masked to the array's length.
        Place(unsafe { (&raw mut (*self.place).raisers).cast::<u32>().add(masked(softirq)) })
    }

    /// Notes the first task that the innermost interrupt or softirq wakes.
    #[inline(always)]
    pub fn note_woken(&self, tid: u32) {
        let depth = self.depth();
        if depth == 0 || depth as usize >= recorder_abi::MAX_DEPTH {
            return;
        }
        let woke = self.frame(depth).woke();
        if woke.get() == 0 {
            woke.set(tid);
        }
    }

    #[inline(always)]
    pub fn emits(&self) -> bool {
        self.flags & watch::EMIT != 0
    }

    #[inline(always)]
    pub fn depth(&self) -> u32 {
        // SAFETY: a field of the state.
        Place(unsafe { &raw mut (*self.place).depth }).get()
    }

    #[inline(always)]
    pub fn set_depth(&mut self, depth: u32) {
        // SAFETY: a field of the state.
        Place(unsafe { &raw mut (*self.place).depth }).set(depth);
    }

    #[inline(always)]
    pub fn accounted(&self) -> u64 {
        // SAFETY: a field of the state.
        Place(unsafe { &raw mut (*self.place).accounted }).get()
    }

    #[inline(always)]
    pub fn account(&mut self, net: u64) {
        // SAFETY: a field of the state.
        Place(unsafe { &raw mut (*self.place).accounted }).add(net);
    }

    #[inline(always)]
    pub fn count_unmatched(&mut self) {
        self.unmatched().add(1);
    }

    /// `reason` is one of [`tick`].
    #[inline(always)]
    pub fn count_tick_stop(&mut self, reason: usize) {
        // SAFETY: the index is masked to the array's length.
        let place =
            unsafe { (&raw mut (*self.place).tick_stops).cast::<u32>().add(masked(reason as u32)) };
        Place(place).add(1);
    }

    #[inline(always)]
    pub fn count_overflow(&mut self) {
        self.overflow().add(1);
    }

    #[inline(always)]
    pub fn frame(&self, depth: u32) -> OpenFrame {
        // SAFETY: the index is masked to the array's length.
        let place = unsafe { (&raw mut (*self.place).frames).cast::<Frame>().add(masked(depth)) };
        OpenFrame { place }
    }

    /// The time, and the accounted sum at that very moment. An interrupt between the two reads would
    /// be charged to the wrong side, so they are repeated if one occurred.
    #[inline(always)]
    pub fn stamp(&self) -> (u64, u64) {
        let accounted = self.accounted();
        let now = now();
        let again = self.accounted();
        if accounted == again { (now, accounted) } else { (self::now(), self.accounted()) }
    }

    #[inline(always)]
    pub fn emit(&mut self, frame: &Frame, gross: u64, net: u64, flags: u8, depth: u32) {
        if !self.emits() {
            return;
        }
        let record = self.record(frame, gross, net, flags, depth);
        if !self.send(record) {
            self.lost().add(1);
            // Adding a constant 0 compiles to an atomic OR, which kernels before 5.12 do not support.
            if net != 0 {
                self.lost_ns().add(net);
            }
        }
    }

    /// Puts an entry into this CPU's ring; false when the ring is full. Interrupts may do the same
    /// meanwhile: the kernel reserves under a lock with interrupts disabled, and an NMI that finds the
    /// lock taken fails.
    #[inline(always)]
    fn send<T: 'static>(&mut self, content: T) -> bool {
        const { assert!(size_of::<T>() + 8 == recorder_abi::ENTRY_BYTES) };
        let Some(ring) = RINGS.get(self.number) else { return false };
        let Some(mut entry) = ring.reserve_untyped::<T>(0) else { return false };
        entry.write(content);
        entry.submit(self.submit);
        self.woke |= self.submit - POLLED;
        true
    }

    /// Like `emit`, through this CPU's slots, which are in the page that the program already uses; a
    /// ring costs five pages and a lock. Only for programs that run with interrupts disabled, since
    /// nothing may come between. False when slots are not enabled or none is free.
    #[inline(always)]
    pub fn emit_in_slot(
        &mut self,
        frame: &Frame,
        gross: u64,
        net: u64,
        flags: u8,
        depth: u32,
    ) -> bool {
        if self.flags & watch::SLOTS == 0 {
            return false;
        }
        let next = self.slot_next().get();
        if next as u32 == self.slot_limit().get() {
            let limit = (self.slots_taken().get() as u32).wrapping_add(SLOTS as u32);
            if next as u32 == limit {
                return false;
            }
            self.slot_limit().set(limit);
        }
        let record = self.record(frame, gross, net, flags, depth);
        // SAFETY: the index is masked to the array's length.
        let slot = unsafe {
            (&raw mut (*self.place).slots).cast::<Slot>().add(next as usize & (SLOTS - 1))
        };
        // SAFETY: inside the element; the reader ignores the slot until it is numbered.
        unsafe { (&raw mut (*slot).record).write(record) };
        // The number marks the record as complete. x86, the only architecture with these hooks, keeps
        // the order of stores; the compiler must do so too.
        // SAFETY: does nothing.
        unsafe { core::arch::asm!("", options(nostack)) };
        // SAFETY: as above.
        Place(unsafe { &raw mut (*slot).number }).set(next + 1);
        self.slot_next().set(next + 1);
        true
    }

    #[inline(always)]
    fn record(&self, frame: &Frame, gross: u64, net: u64, flags: u8, depth: u32) -> Record {
        Record {
            start: frame.start,
            gross,
            net,
            detail: frame.detail,
            id: frame.id,
            other: frame.other,
            aux: frame.aux,
            cpu: self.number as u16,
            kind_depth: frame.kind | ((depth as u8) << 4),
            flags: frame.flags | flags,
            woke: frame.woke,
            stack: frame.stack,
        }
    }

    /// Sends an entry that is not a record; false when the ring was full.
    #[inline(always)]
    pub fn announce<T: 'static>(&mut self, entry: T) -> bool {
        let sent = self.send(entry);
        if !sent {
            self.lost().add(1);
        }
        sent
    }

    /// What is running on this CPU right now: the innermost open interrupt, or else the current task,
    /// which is announced if it is still unknown.
    #[inline(always)]
    pub fn origin(&mut self) -> u32 {
        let depth = self.depth();
        if depth > 0 && depth < recorder_abi::MAX_DEPTH as u32 {
            let (kind, id) = (self.frame(depth).kind().get(), self.frame(depth).id().get());
            if kind != kind::FAULT_USER && kind != kind::FAULT_KERNEL {
                return ORIGIN_INTERRUPT | ((kind as u32) << 16) | (id & 0xffff);
            }
        }
        self.current_task(false)
    }

    /// The current task, which is announced if it is still unknown; `with_cgroup` if the program has
    /// room for cgroup names.
    #[inline(always)]
    pub fn current_task(&mut self, with_cgroup: bool) -> u32 {
        let ids = bpf_get_current_pid_tgid();
        let tid = ids as u32;
        if tid == 0 {
            return 0;
        }
        let Some(slot) = own_task_slot(tid) else { return tid };
        // A slot without a name keeps its other fields: a kworker that has not left the CPU since the
        // recording began has a work function, and a woken task has a waker.
        if slot.comm().get()[0] == 0 {
            let mut comm = [0u64; 2];
            // SAFETY: the buffer has the given length. The wrapper returns bytes, whose unaligned copy
            // the compiler cannot lower.
            unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), 16) };
            // Priority and possibly the cgroup remain unknown, so the task's next switch announces it
            // again.
            slot.comm().set(comm);
            slot.cgroup().set(CGROUP_UNKNOWN);
            who::announce_current(self, ids, comm, with_cgroup);
        }
        tid
    }

    /// Counts a page fault that leaves the CPU before it ends (1), or that ends after having left one
    /// (-1).
    #[inline(always)]
    pub fn count_open_fault(&mut self, change: i32) {
        self.faults_open().add(change as u32);
    }
}

pub const EMPTY_SLOT: TaskSlot = TaskSlot {
    comm: [0; 2],
    cgroup: 0,
    work: 0,
    woken_at: 0,
    fault_start: 0,
    tid: 0,
    waker: 0,
    sched: 0,
    fault_id: 0,
    fault_kind: 0,
    marks: 0,
    fault_retry: 0,
};

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// How the entries of this run are submitted: without a wakeup, or with one when the ring is half
/// full.
///
/// The result is computed by arithmetic instead of branches, so that the verifier knows the same about
/// it on every path: otherwise it would walk the whole program once per value.
#[inline(never)]
fn wake_up(cpu: u32, now: u64) -> u64 {
    const { assert!(BPF_RB_FORCE_WAKEUP as u64 == POLLED + 1) };
    let neither = POLLED + sign(now);
    let Some(ring) = RINGS.get(cpu) else { return neither };
    let Some(place) = STATE.get_ptr_mut(cpu) else { return neither };
    let ring = (ring as *const Ring).cast_mut().cast();
    // SAFETY: both are read-only.
    let (waiting, size) = unsafe {
        (
            bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA as u64),
            bpf_ringbuf_query(ring, BPF_RB_RING_SIZE as u64),
        )
    };
    // SAFETY: a field of the element.
    let woken = Place(unsafe { &raw mut (*place).reader_woken });
    let ago = now.wrapping_sub(woken.get());
    let too_early = sign(waiting.wrapping_sub(size / 2)) | sign(ago.wrapping_sub(WAKE_AGAIN_NS));
    POLLED + 1 - too_early
}

/// The sign bit, in a form that the compiler does not turn into a branch.
#[inline(always)]
pub fn sign(mut number: u64) -> u64 {
    // SAFETY: shifts a register.
    unsafe { core::arch::asm!("{0} >>= 63", inout(reg) number, options(pure, nomem, nostack)) };
    number
}

#[inline(always)]
fn slot_at(place: u32) -> Option<TaskPlace> {
    TASKS.get_ptr_mut(place).map(|place| TaskPlace { place })
}

/// The slot of a task, if it has one.
#[inline(always)]
pub fn task_slot(tid: u32) -> Option<TaskPlace> {
    let slot = slot_at(tid & (TASK_SLOTS - 1))?;
    if tid == 0 {
        return None;
    }
    if slot.tid().get() == tid { Some(slot) } else { other_slot(tid, false) }
}

/// The slot of a task, allocated if necessary. None when all its places are taken: what the slot would
/// have held then remains unknown for this task.
#[inline(always)]
pub fn own_task_slot(tid: u32) -> Option<TaskPlace> {
    let slot = slot_at(tid & (TASK_SLOTS - 1))?;
    if tid == 0 {
        return None;
    }
    if slot.tid().get() == tid { Some(slot) } else { other_slot(tid, true) }
}

/// Searches every place that a task may occupy. If two CPUs claim the same place at once, the second
/// keeps it; the first claims another on its next run.
///
/// Branch-free except at the end: the verifier would walk every combination of taken and free places,
/// from each of the many callers.
#[inline(never)]
fn other_slot(tid: u32, claim: bool) -> Option<TaskPlace> {
    let (mut own, mut free) = (0, 0);
    let mut attempt = 0;
    while attempt < TASK_PLACES {
        let there = slot_at(task_place(tid, attempt))?.tid().get();
        own |= is_zero(there ^ tid) << attempt;
        free |= is_zero(there) << attempt;
        attempt += 1;
    }
    if own == 0 && (!claim || free == 0) {
        return None;
    }
    let bits = if own != 0 { own } else { free };
    let slot = slot_at(task_place(tid, (bits & bits.wrapping_neg()).wrapping_sub(1).count_ones()))?;
    if own == 0 {
        slot.fill(TaskSlot { tid, ..EMPTY_SLOT });
    }
    Some(slot)
}

/// 1 for 0, otherwise 0.
#[inline(always)]
pub fn is_zero(number: u32) -> u32 {
    1 - sign(u64::from(number).wrapping_neg()) as u32
}

/// A field of a kernel object behind a BTF pointer. Safe to call with any pointer and offset: the
/// verifier rejects a program that reads anything but a field of an object of known type.
#[inline(always)]
pub fn field<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: the verifier accepts the load only through a pointer of known type and within the
    // object; if the object is gone, the kernel handles the fault and the value is 0. Every `T` in use
    // is a number or an address, for which any bit pattern is valid.
    unsafe { core::ptr::read_volatile(base.wrapping_add(offset as usize).cast()) }
}

/// Hides the mask from LLVM, which would prove it redundant from an earlier comparison and drop it;
/// the verifier would then reject the access.
#[inline(always)]
fn masked(index: u32) -> usize {
    const _: () = assert!(recorder_abi::MAX_DEPTH == 8 && RAISERS == 8 && tick::REASONS == 8);
    let mut index = index as u64;
    // SAFETY: changes only the register it is given.
    unsafe { core::arch::asm!("{0} &= 7", inout(reg) index, options(pure, nomem, nostack)) };
    index as usize
}

/// The kernel stack of this moment, as in a record; 0 if it is not wanted, or there is no room for it.
#[inline(always)]
pub fn stack(ctx: &impl StackIdContext) -> u32 {
    if WITH_STACKS.load() == 0 {
        return 0;
    }
    match ctx.get_stackid(&STACKS, 0) {
        Ok(id) => (id as u32).wrapping_add(1),
        Err(_) => 0,
    }
}

/// Stores the kernel stack of the waker.
#[inline(always)]
pub fn note_waker_stack(tid: u32, stack: u32) {
    if WITH_STACKS.load() == 0 {
        return;
    }
    if let Some(slot) = WAKER_STACKS.get_ptr_mut(tid & (recorder_abi::WAKER_STACKS - 1)) {
        Place(slot).set(u64::from(tid) << 32 | u64::from(stack));
    }
}

/// The kernel stack of the waker; 0 if unknown.
#[inline(always)]
pub fn waker_stack(tid: u32) -> u32 {
    if WITH_STACKS.load() == 0 {
        return 0;
    }
    match WAKER_STACKS.get_ptr_mut(tid & (recorder_abi::WAKER_STACKS - 1)) {
        Some(slot) if Place(slot).get() >> 32 == u64::from(tid) => Place(slot).get() as u32,
        _ => 0,
    }
}
