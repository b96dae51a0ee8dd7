//! The interface between the BPF programs and the recorder: ring entries, map slots, hook numbers and
//! flags. It contains no logic.
//!
//! Every CPU has its own ring. All entries have the same size, so that the kernel's producer position
//! counts them, and an entry with its header is one cache line. Every entry begins with a timestamp
//! and has CPU, kind and flags at the same offsets.
//!
//! Everything is `repr(C)` without implicit padding; the sizes are asserted, since the two sides are
//! compiled for different targets.

#![no_std]
#![forbid(unsafe_code)]

/// Nesting depth that the kernel side can track: thread, page fault, softirq, interrupt, and room for
/// rare cases. A power of two, because the index is masked.
pub const MAX_DEPTH: usize = 8;

/// One run of a program in this many is timed. A power of two.
pub const TIMED_RUNS: u64 = 64;

/// Slots of the direct-mapped task table. A power of two, because the index is masked.
pub const TASK_SLOTS: u32 = 1 << 16;

/// The kind of a ring entry.
pub mod kind {
    /// An interrupt vector of `irq_vectors:*`; `id` is the vector.
    pub const VECTOR: u8 = 1;
    /// A device interrupt; `id` is the IRQ number, `aux` the action's position on a shared line.
    pub const IRQ: u8 = 2;
    /// A softirq; `id` is the softirq number, `other` who raised it, if [`super::has_raiser`].
    pub const SOFTIRQ: u8 = 3;
    /// A non-maskable interrupt.
    pub const NMI: u8 = 4;
    /// A page fault from user mode; `id` is the error code, `other` the task.
    pub const FAULT_USER: u8 = 5;
    /// A page fault from kernel mode.
    pub const FAULT_KERNEL: u8 = 6;
    /// A thread was on the CPU; `id` is its tid (0 = idle), `other` who woke it, `aux` the time from
    /// wake-up to running.
    pub const THREAD: u8 = 7;
    /// Not an interruption: a [`super::Task`], sent before the first record that names the task.
    pub const TASK: u8 = 8;
    /// Not an interruption: a [`super::Task`] just created; `parent` is who created it.
    pub const FORK: u8 = 9;
    /// Not an interruption: a [`super::CgroupName`], sent before the first task in that cgroup.
    pub const CGROUP: u8 = 10;
    /// Not an interruption: [`super::Numbers`], sent before a task's description if the recorder runs
    /// in its own PID namespace.
    pub const NUMBERS: u8 = 11;
    /// Not an interruption: the runnable task `id` moves to another CPU, at the end of the record.
    /// `aux` holds the source and destination CPUs (see [`super::Record::moved`]), `other` the task on
    /// the source CPU, and `detail` since when it has been there. The record begins when the task was
    /// woken; it has no length if the task was preempted.
    pub const MIGRATE: u8 = 12;
    /// Not an interruption: bandwidth control of the CPU's run queue with the address in `detail`, see
    /// [`super::throttle`]. `other` has the low bits of the inode of the cgroup that has used up its
    /// quota, or 0 if the kernel does not tell.
    pub const THROTTLE: u8 = 13;
}

/// Bits of [`Record::flags`].
pub mod flag {
    /// A further part of the preceding interruption: adds time but is not counted again.
    pub const CONTINUED: u8 = 1;
    /// Entry seen, exit not: no length.
    pub const POINT: u8 = 2;
    /// Closed by a context switch instead of its own exit.
    pub const CUT_SHORT: u8 = 4;
    /// A thread that left the CPU while runnable.
    pub const RUNNABLE: u8 = 8;
    /// A page fault that needed I/O.
    pub const MAJOR: u8 = 16;
    /// The time of a thread that left unseen, determined later; nothing seen nests in it.
    pub const UNSEEN: u8 = 32;
    /// A thread that ran for the first time: its wait began when it was created.
    pub const NEW: u8 = 64;
    /// A thread that has ended.
    pub const DEAD: u8 = 128;
}

/// In `aux` of a [`kind::THROTTLE`].
pub mod throttle {
    /// The task `id` left the CPU because its cgroup used up its quota. Without this bit: the run
    /// queue has new quota.
    pub const BEGINS: u32 = 1;
    /// The kernel throttles individual tasks, on return to user mode (Linux 6.18 and later). Without
    /// this bit all tasks of the run queue are throttled at once.
    pub const ONE_TASK: u32 = 2;
    /// The CPU of the run queue plus one, for a task that was already throttled when recording began:
    /// found by the iterator, not when it left the CPU.
    pub const FOUND_ON: u32 = 16;
}

/// Set in `other` when the waker or sender was an interrupt, not a task:
/// `ORIGIN_INTERRUPT | kind << 16 | id` (id cut to 16 bits).
pub const ORIGIN_INTERRUPT: u32 = 1 << 31;

/// Slots for the raisers of softirqs. A power of two, because the index is masked.
pub const RAISERS: usize = 8;

/// Softirqs whose raiser is recorded: NET_TX, NET_RX, BLOCK, IRQ_POLL and TASKLET. Those of timers, the
/// scheduler and RCU are raised at most ticks, by the kernel itself.
pub const fn has_raiser(softirq: u32) -> bool {
    matches!(softirq, 2..=6)
}

/// 64-bit words of a ring entry.
pub const ENTRY_WORDS: usize = 7;

/// Size of an entry in a ring: the kernel adds a header of eight bytes.
pub const ENTRY_BYTES: usize = 8 * ENTRY_WORDS + 8;

/// Default size of a measured CPU's ring: 8,192 entries. A power of two.
pub const RING_BYTES: u32 = 512 << 10;

/// One finished interruption.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC, ns.
    pub start: u64,
    /// Entry to exit, ns.
    pub gross: u64,
    /// `gross` minus the net time of everything that finished inside.
    pub net: u64,
    /// Address of the function that ran: timer callback, work function, IPI function. 0 = unknown.
    pub detail: u64,
    pub id: u32,
    pub other: u32,
    pub aux: u32,
    pub cpu: u16,
    /// [`kind`] in the low four bits, nesting depth in the high four.
    pub kind_depth: u8,
    pub flags: u8,
    /// Of an interrupt or softirq: the first task that it woke; 0 if none.
    pub woke: u32,
    /// The kernel stack of the waker or sender, plus one; 0 if unknown, or if stacks are not wanted.
    pub stack: u32,
}

impl Record {
    pub const fn kind(&self) -> u8 {
        self.kind_depth & 15
    }

    pub const fn depth(&self) -> u8 {
        self.kind_depth >> 4
    }

    /// Of a [`kind::THREAD`]: time from wake-up to running, ns.
    pub const fn waited(&self) -> u64 {
        match self.aux & LONG_WAIT {
            0 => self.aux as u64,
            _ => ((self.aux & !LONG_WAIT) as u64) << LONG_WAIT_SHIFT,
        }
    }

    /// Of a [`kind::MIGRATE`]: source and destination CPU.
    pub const fn moved(&self) -> (u16, u16) {
        ((self.aux >> 16) as u16, self.aux as u16)
    }
}

/// Set in `aux` of a thread that waited for longer than 31 bits of nanoseconds can hold; the other
/// bits then count units of 2^16 ns, enough for 39 hours.
pub const LONG_WAIT: u32 = 1 << 31;
pub const LONG_WAIT_SHIFT: u32 = 16;

/// A wait as encoded in `aux`.
pub const fn wait_code(ns: u64) -> u32 {
    if ns < LONG_WAIT as u64 {
        return ns as u32;
    }
    let units = ns >> LONG_WAIT_SHIFT;
    LONG_WAIT | if units < LONG_WAIT as u64 { units as u32 } else { LONG_WAIT - 1 }
}

/// Describes a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// When this was valid: CLOCK_MONOTONIC, ns.
    pub at: u64,
    pub comm: [u64; 2],
    /// Inode of the cgroup v2 directory; [`CGROUP_UNKNOWN`] if it was not read.
    pub cgroup: u64,
    pub tid: u32,
    pub tgid: u32,
    /// `task_struct.flags` (`PF_KTHREAD` and others).
    pub task_flags: u32,
    pub cpu: u16,
    pub kind_depth: u8,
    pub flags: u8,
    /// For [`kind::FORK`]: tgid of the creator.
    pub parent: u32,
    /// Scheduling policy and priority, see [`sched`].
    pub sched: u32,
}

pub const CGROUP_UNKNOWN: u64 = u64::MAX;

/// A piece of a cgroup's name. The pieces of a name are consecutive, and the name of a cgroup is
/// followed by those of its ancestors up to the root.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupName {
    /// CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// Inode of the cgroup v2 directory.
    pub id: u64,
    /// The same for the parent directory; 0 for the root of the hierarchy.
    pub parent: u64,
    /// Padded with zeros.
    pub text: [u64; 2],
    /// Index of the piece, from 0.
    pub piece: u32,
    pub cpu: u16,
    pub kind_depth: u8,
    /// 1 on the last piece of a name.
    pub last: u8,
    pub spare: u64,
}

/// Bytes of a name per piece.
pub const PIECE_BYTES: usize = 16;

/// Slots of the table of cgroups whose names have been sent. A power of two, because the index is masked.
pub const CGROUP_SLOTS: u32 = 1 << 12;

/// A task's PIDs in the PID namespace of the recorder.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// PIDs in the initial namespace.
    pub tid: u32,
    pub tgid: u32,
    /// PIDs in the recorder's namespace; 0 for a task outside it.
    pub tid_here: u32,
    pub tgid_here: u32,
    pub spare: [u64; 2],
    pub spare2: u32,
    pub cpu: u16,
    pub kind_depth: u8,
    pub flags: u8,
    pub spare3: u64,
}

/// Scheduling policy and priority of a task in 16 bits: `policy << 8 | level`, where the level is the
/// real-time priority, or the nice value plus 20 for policies that have one.
pub mod sched {
    /// Set if both are known.
    pub const KNOWN: u32 = 1 << 15;
    pub const FIFO: u32 = 1;
    pub const RR: u32 = 2;
    pub const DEADLINE: u32 = 6;
    /// `task_struct.static_prio` of nice -20.
    pub const NICE_FLOOR: u32 = 100;
}

/// `PF_KTHREAD` of `task_struct.flags`.
pub const PF_KTHREAD: u32 = 0x0020_0000;

/// An interruption that has begun but not ended; one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    pub start: u64,
    /// [`CpuState::accounted`] at its start.
    pub accounted: u64,
    pub detail: u64,
    pub id: u32,
    pub other: u32,
    pub aux: u32,
    pub kind: u8,
    pub flags: u8,
    pub spare: u16,
    /// The thread that was thought to be running until this one was found instead; 0 = none.
    pub before: u32,
    /// Of an interrupt or softirq: the first task that it woke; 0 if none.
    pub woke: u32,
    /// When this thread was found running: it was switched in no later than this.
    pub found: u64,
    /// As in [`Record`].
    pub stack: u32,
    pub rest: u32,
}

impl Frame {
    pub const EMPTY: Frame = Frame {
        start: 0,
        accounted: 0,
        detail: 0,
        id: 0,
        other: 0,
        aux: 0,
        kind: 0,
        flags: 0,
        spare: 0,
        before: 0,
        woke: 0,
        found: 0,
        stack: 0,
        rest: 0,
    };
}

/// A record that bypasses the ring; one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    pub record: Record,
    /// Sequence number of the record among all that went through the slots, from 1. Written last.
    pub number: u64,
}

/// Slots per CPU. A power of two, because the index is masked.
pub const SLOTS: usize = 32;

/// State of one CPU, one page. Written only by BPF programs on that CPU, except for two words that
/// user space writes. Ordered by use: a tick needs three cache lines, the first of this structure, a
/// frame and a slot. When a tick comes, all of them are cold.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
pub struct CpuState {
    /// What to do on this CPU, see [`watch`]. Written by user space.
    pub flags: u32,
    /// Open frames above the thread's.
    pub depth: u32,
    /// Net time of everything that has finished on this CPU. Frames store its value at their start, so
    /// an interruption's net time is its length minus what was added meanwhile.
    pub accounted: u64,
    /// End of the last interruption directly above the thread.
    pub interrupted_until: u64,
    /// Records that have gone through the slots.
    pub slot_next: u64,
    /// Low half of the number up to which slots are known to be free; `slots_taken` is read only
    /// beyond it, because its cache line has to be fetched from another CPU.
    pub slot_limit: u32,
    /// Programs that have begun on this CPU but not ended. While it is 0, everything timed earlier has
    /// been sent.
    pub running: u32,
    /// Program runs on this CPU, by [`hook`]. Those of a tick are still in the first cache line.
    pub hits: [u64; hook::COUNT],
    /// Time of every [`TIMED_RUNS`]th run of each program, measured from inside.
    pub timed_ns: u64,
    /// The next action on the same IRQ line, if any.
    pub irq_next: u64,
    /// Position on a shared IRQ line of the running action.
    pub irq_chain: u32,
    /// Page faults that left this CPU while open, minus those that ended here. The sum over all CPUs
    /// is the number of open faults.
    pub faults_open: u32,
    pub frames: [Frame; MAX_DEPTH],
    pub lost: u64,
    /// Net time of the lost records, missing from the balance.
    pub lost_ns: u64,
    pub unmatched: u64,
    pub overflow: u64,
    /// The handler that the kernel calls first for every NMI.
    pub nmi_first: u64,
    /// End of the last NMI handler.
    pub nmi_until: u64,
    /// When this CPU last woke the reader because its ring was filling up.
    pub reader_woken: u64,
    pub rest: u64,
    /// Who raised a softirq that has not run yet, by its number; 0 for none.
    pub raisers: [u32; RAISERS],
    /// Attempts to stop the tick, by [`tick`]; counted only for an audit.
    pub tick_stops: [u32; tick::REASONS],
    /// Records that the reader has taken out of the slots. Written by user space.
    pub slots_taken: u64,
    pub reader: [u64; 7],
    pub slots: [Slot; SLOTS],
}

/// Bits of [`CpuState::flags`].
pub mod watch {
    /// Maintain the nesting stack.
    pub const TRACK: u32 = 1;
    /// Send records.
    pub const EMIT: u32 = 2;
    /// Send records of interrupt vectors through the CPU's slots, which is cheaper than the ring.
    pub const SLOTS: u32 = 4;
}

/// Indices of [`CpuState::tick_stops`].
pub mod tick {
    /// The tick was stopped. The others are why it was not: what depends on it, in the order of the
    /// kernel's bits.
    pub const STOPPED: usize = 0;
    pub const POSIX_TIMER: usize = 1;
    pub const PERF_EVENTS: usize = 2;
    pub const SCHED: usize = 3;
    pub const CLOCK_UNSTABLE: usize = 4;
    pub const RCU: usize = 5;
    pub const RCU_EXPEDITED: usize = 6;
    pub const OTHER: usize = 7;
    pub const REASONS: usize = 8;
}

/// Slots for the stacks of wakers. A power of two, because the index is masked.
pub const WAKER_STACKS: u32 = 1 << 14;
/// Different kernel stacks kept at most.
pub const STACKS: u32 = 1 << 12;

/// Places in the task table that a task may occupy: the one given by its tid and, if another task has
/// that, the next few after a place that depends on all bits of the tid. With tids up to 4 million,
/// any two tasks may collide.
pub const TASK_PLACES: u32 = 8;

/// A task's place in the table on a given attempt, from 0.
pub const fn task_place(tid: u32, attempt: u32) -> u32 {
    // All ones for later attempts, without a branch, which is expensive to verify.
    let later = 0u32.wrapping_sub((attempt + TASK_PLACES - 1) >> TASK_PLACES.ilog2());
    let hash = (tid.wrapping_mul(0x9e37_79b1) >> 8).wrapping_add(attempt);
    (tid & !later | hash & later) & (TASK_SLOTS - 1)
}

/// Bits of [`TaskSlot::marks`].
pub mod mark {
    /// The work item has ended.
    pub const WORK_DONE: u8 = 1;
    /// Created but has not run yet.
    pub const NEW: u8 = 2;
}

/// What is known of a task, by tid. User space maps the table (mmap).
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskSlot {
    pub comm: [u64; 2],
    pub cgroup: u64,
    /// Work function that a kworker runs.
    pub work: u64,
    /// When it was woken; 0 once it runs.
    pub woken_at: u64,
    /// Start of a page fault during which it went to sleep.
    pub fault_start: u64,
    /// 0 for a free slot.
    pub tid: u32,
    pub waker: u32,
    /// Policy and priority as announced.
    pub sched: u16,
    pub fault_id: u16,
    pub fault_kind: u8,
    /// See [`mark`].
    pub marks: u8,
    /// Set if the fault during which it went to sleep will be retried; identifies the page.
    pub fault_retry: u16,
}

/// Throttled run queues that a CPU can watch at the same time.
pub const THROTTLED_QUEUES: usize = 8;

/// The throttled run queues of a CPU, by address; 0 for none.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttled {
    pub queues: [u64; THROTTLED_QUEUES],
}

/// Who last sent an IPI to this CPU. One cache line each, so that CPUs interrupted at the same time do
/// not write to the same one.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    pub at: u64,
    pub callback: u64,
    pub origin: u32,
    /// As in [`Record`].
    pub stack: u32,
    pub rest: [u64; 5],
}

/// Hooks, numbered for the hit counters.
pub mod hook {
    pub const VECTOR_ENTRY: usize = 0;
    pub const VECTOR_EXIT: usize = 1;
    pub const HRTIMER: usize = 2;
    pub const SOFTIRQ_ENTRY: usize = 3;
    pub const SOFTIRQ_EXIT: usize = 4;
    pub const SWITCH: usize = 5;
    pub const WAKING: usize = 6;
    pub const TIMER: usize = 7;
    pub const IRQ_ENTRY: usize = 8;
    pub const IRQ_EXIT: usize = 9;
    pub const IPI_SEND: usize = 10;
    pub const CSD_FUNCTION: usize = 11;
    pub const FAULT_USER: usize = 12;
    pub const FAULT_KERNEL: usize = 13;
    pub const FAULT_END: usize = 14;
    pub const WORK_START: usize = 15;
    pub const WORK_END: usize = 16;
    pub const NMI: usize = 17;
    pub const FORK: usize = 18;
    pub const IPI_SEND_MASK: usize = 19;
    pub const RENAME: usize = 20;
    pub const FAULT_HANDLE: usize = 21;
    pub const IPI_ENTRY: usize = 22;
    pub const CGROUP_ATTACH: usize = 23;
    pub const WAKEUP_NEW: usize = 24;
    pub const MIGRATE: usize = 25;
    pub const UNTHROTTLE: usize = 26;
    pub const TASKS: usize = 27;
    pub const SOFTIRQ_RAISE: usize = 28;
    pub const TICK_STOP: usize = 29;
    pub const COUNT: usize = 32;
}

const _: () = {
    assert!(size_of::<Record>() == 8 * ENTRY_WORDS);
    assert!(size_of::<Task>() == 8 * ENTRY_WORDS);
    assert!(ENTRY_BYTES == 64);
    assert!(core::mem::offset_of!(Record, cpu) == core::mem::offset_of!(Task, cpu));
    assert!(core::mem::offset_of!(Record, kind_depth) == core::mem::offset_of!(Task, kind_depth));
    assert!(core::mem::offset_of!(Record, flags) == core::mem::offset_of!(Task, flags));
    assert!(size_of::<CgroupName>() == 8 * ENTRY_WORDS);
    assert!(size_of::<Numbers>() == 8 * ENTRY_WORDS);
    assert!(
        core::mem::offset_of!(Record, kind_depth) == core::mem::offset_of!(CgroupName, kind_depth)
    );
    assert!(
        core::mem::offset_of!(Record, kind_depth) == core::mem::offset_of!(Numbers, kind_depth)
    );
    assert!(size_of::<Frame>() == 64);
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<TaskSlot>() == 64);
    assert!(size_of::<Throttled>() == 64);
    assert!(size_of::<Sender>() == 64);
    assert!(size_of::<CpuState>() == 4096);
    assert!(core::mem::offset_of!(CpuState, hits) + 8 * (hook::HRTIMER + 1) == 64);
    assert!(core::mem::offset_of!(CpuState, frames).is_multiple_of(64));
    assert!(core::mem::offset_of!(CpuState, slots_taken).is_multiple_of(64));
    assert!(core::mem::offset_of!(CpuState, slots).is_multiple_of(64));
};
