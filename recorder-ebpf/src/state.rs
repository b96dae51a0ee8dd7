//! Maps, frozen settings, and the small operations on them that every hook shares.

use core::intrinsics::AtomicOrdering;

use aya_ebpf::{
    Global,
    bindings::{BPF_F_MMAPABLE, BPF_RB_NO_WAKEUP},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns,
        generated::bpf_get_current_comm,
    },
    macros::map,
    maps::{Array, RingBuf},
};
use detour_abi::{
    CGROUP_UNKNOWN, CpuState, Frame, ORIGIN_INTERRUPT, Record, SLOTS, Sender, TASK_SLOTS,
    TIMED_RUNS, Task, TaskSlot, kind, watch,
};

/// One entry per possible CPU; the loader sets the sizes. User space maps it into its memory.
#[map]
pub static STATE: Array<CpuState> = Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
pub static SENDERS: Array<Sender> = Array::with_max_entries(1, 0);
#[map]
pub static TASKS: Array<TaskSlot> = Array::with_max_entries(TASK_SLOTS, 0);
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(1 << 24, 0);

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
/// `task_struct.se` and two of its fields; 0 where the kernel has no such.
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
/// 64-bit words of a `struct cpumask`: as many as the machine has possible CPUs.
#[unsafe(no_mangle)]
pub static MASK_WORDS: Global<u32> = Global::new(1);
/// 1 where something tells when a page fault ends; elsewhere a fault is a point.
#[unsafe(no_mangle)]
pub static FAULT_BRACKET: Global<u32> = Global::new(0);

/// Never wake the reader: a wakeup is an IPI to ourselves on the very CPU that is measured.
const SUBMIT: u64 = BPF_RB_NO_WAKEUP as u64;

/// This CPU, its state and what is wanted of it.
pub struct Cpu {
    pub state: &'static mut CpuState,
    pub number: u32,
    flags: u32,
}

/// Runs a hook's body on this CPU, if anybody watches it, and times one run in so many.
#[inline(always)]
pub fn on_watched_cpu(hook: usize, body: impl FnOnce(&mut Cpu)) -> i32 {
    let Some(mut cpu) = Cpu::current() else { return 0 };
    // A hook never interrupts itself, so its own counter needs no atomic.
    let runs = cpu.state.hits[hook] + 1;
    cpu.state.hits[hook] = runs;
    let mut start = if runs & (TIMED_RUNS - 1) == TIMED_RUNS / 2 { now() } else { 0 };
    // Where the compiler knows that it is 0 it makes two of the body, and a function of each: more
    // code to fetch, and code is cold, too.
    unsafe { core::arch::asm!("{0} = {0}", inout(reg) start, options(nomem, nostack)) };
    body(&mut cpu);
    if start != 0 {
        atomic_add(&mut cpu.state.timed_ns, now().wrapping_sub(start));
    }
    0
}

impl Cpu {
    /// None on a CPU that nobody watches, the cheapest way out.
    #[inline(always)]
    fn current() -> Option<Cpu> {
        let number = unsafe { bpf_get_smp_processor_id() };
        // SAFETY: the element belongs to this CPU, programs do not migrate, and whoever interrupts
        // this one finishes before it goes on.
        let state = unsafe { &mut *STATE.get_ptr_mut(number)? };
        // Volatile: user space changes them.
        let flags = unsafe { core::ptr::read_volatile(&state.flags) };
        if flags & watch::TRACK == 0 {
            return None;
        }
        Some(Cpu { state, number, flags })
    }

    #[inline(always)]
    pub fn emits(&self) -> bool {
        self.flags & watch::EMIT != 0
    }

    #[inline(always)]
    pub fn depth(&self) -> u32 {
        // Volatile: interrupts change it behind the compiler's back.
        unsafe { core::ptr::read_volatile(&self.state.depth) }
    }

    #[inline(always)]
    pub fn set_depth(&mut self, depth: u32) {
        unsafe { core::ptr::write_volatile(&mut self.state.depth, depth) }
    }

    #[inline(always)]
    pub fn frame(&mut self, depth: u32) -> &mut Frame {
        // SAFETY: the index is masked to the array's length.
        unsafe { self.state.frames.get_unchecked_mut(masked(depth)) }
    }

    #[inline(always)]
    pub fn accounted(&self) -> u64 {
        unsafe { core::ptr::read_volatile(&self.state.accounted) }
    }

    /// The time, and what had been accounted for at that very moment. An interrupt between the two
    /// readings would be charged to the wrong side, so they are taken again when it happened.
    #[inline(always)]
    pub fn stamp(&self) -> (u64, u64) {
        let accounted = self.accounted();
        let now = now();
        let again = self.accounted();
        if accounted == again { (now, accounted) } else { (self::now(), self.accounted()) }
    }

    #[inline(always)]
    pub fn account(&mut self, net: u64) {
        atomic_add(&mut self.state.accounted, net);
    }

    #[inline(always)]
    pub fn count_unmatched(&mut self) {
        atomic_add(&mut self.state.unmatched, 1);
    }

    #[inline(always)]
    pub fn count_overflow(&mut self) {
        atomic_add(&mut self.state.overflow, 1);
    }

    #[inline(always)]
    pub fn emit(&mut self, frame: &Frame, gross: u64, net: u64, flags: u8, depth: u32) {
        if !self.emits() {
            return;
        }
        match RING.reserve::<Record>(0) {
            Some(mut entry) => {
                entry.write(self.record(frame, gross, net, flags, depth));
                entry.submit(SUBMIT);
            }
            None => {
                atomic_add(&mut self.state.lost, 1);
                // Adding a constant 0 becomes an atomic OR, which kernels before 5.12 do not know.
                if net != 0 {
                    atomic_add(&mut self.state.lost_ns, net);
                }
            }
        }
    }

    /// `emit` through this CPU's own slots, which are in the page that the program works with
    /// anyway; the ring is five pages and a lock. For programs that run with interrupts disabled
    /// only: no other may come between. False when that is not wanted, or no slot is free.
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
        let next = self.state.slot_next;
        if next == self.state.slot_limit {
            let taken = unsafe { core::ptr::read_volatile(&self.state.slots_taken) };
            let limit = taken.wrapping_add(SLOTS as u64);
            if next == limit {
                return false;
            }
            self.state.slot_limit = limit;
        }
        let record = self.record(frame, gross, net, flags, depth);
        // SAFETY: the index is masked to the array's length.
        let slot = unsafe { self.state.slots.get_unchecked_mut(next as usize & (SLOTS - 1)) };
        slot.record = record;
        // The number says that the record is whole. x86, the only architecture with these hooks,
        // keeps the order of stores; so must the compiler.
        unsafe { core::arch::asm!("", options(nostack)) };
        unsafe { core::ptr::write_volatile(&mut slot.number, next + 1) };
        self.state.slot_next = next + 1;
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
        }
    }

    /// Sends a task's description. False when the ring was full.
    #[inline(always)]
    pub fn announce(&mut self, mut task: Task) -> bool {
        task.cpu = self.number as u16;
        match RING.reserve::<Task>(0) {
            Some(mut entry) => {
                entry.write(task);
                entry.submit(SUBMIT);
                true
            }
            None => {
                atomic_add(&mut self.state.lost, 1);
                false
            }
        }
    }

    /// Who is acting on this CPU right now: the innermost open interrupt, or else the running task,
    /// which is announced if nobody has heard of it.
    #[inline(always)]
    pub fn origin(&mut self) -> u32 {
        let depth = self.depth();
        if depth > 0 && depth < detour_abi::MAX_DEPTH as u32 {
            let frame = self.frame(depth);
            if frame.kind != kind::FAULT_USER && frame.kind != kind::FAULT_KERNEL {
                return ORIGIN_INTERRUPT | ((frame.kind as u32) << 16) | (frame.id & 0xffff);
            }
        }
        let ids = bpf_get_current_pid_tgid();
        let tid = ids as u32;
        if tid == 0 {
            return 0;
        }
        let Some(slot) = task_slot(tid) else { return tid };
        if slot.tid != tid {
            *slot = TaskSlot { tid, ..EMPTY_SLOT };
        }
        // What else is known of a task without a name stays: a kworker that has not left the CPU since
        // the recording began has a function, and a task that was woken a waker.
        if slot.comm[0] == 0 {
            let mut comm = [0u64; 2];
            // SAFETY: the buffer is as long as said. The wrapper returns bytes, whose unaligned copy
            // the compiler cannot lower.
            unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast(), 16) };
            // The cgroup stays unknown, so the task's next switch announces it in full.
            slot.comm = comm;
            slot.cgroup = CGROUP_UNKNOWN;
            self.announce(Task {
                comm,
                cgroup: CGROUP_UNKNOWN,
                tid,
                tgid: (ids >> 32) as u32,
                task_flags: 0,
                parent: 0,
                spare: 0,
                cpu: 0,
                kind_depth: kind::TASK,
                flags: 0,
            });
        }
        tid
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
    fault_id: 0,
    fault_kind: 0,
    work_done: 0,
    fault_retry: 0,
};

#[inline(always)]
pub fn now() -> u64 {
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
pub fn task_slot(tid: u32) -> Option<&'static mut TaskSlot> {
    // SAFETY: the element outlives the program. Two tasks may share a slot; the tid inside tells.
    TASKS.get_ptr_mut(tid & (TASK_SLOTS - 1)).map(|slot| unsafe { &mut *slot })
}

/// `task_slot`, emptied when it holds another task.
#[inline(always)]
pub fn own_task_slot(tid: u32) -> Option<&'static mut TaskSlot> {
    let slot = task_slot(tid)?;
    if slot.tid != tid {
        *slot = TaskSlot { tid, ..EMPTY_SLOT };
    }
    Some(slot)
}

/// A field of a kernel object behind a BTF pointer.
///
/// # Safety
/// `base` must be a trusted pointer that the verifier accepts at this offset.
#[inline(always)]
pub unsafe fn field<T: Copy>(base: *const u8, offset: u32) -> T {
    unsafe { core::ptr::read_volatile(base.add(offset as usize).cast()) }
}

/// Masks where LLVM cannot see it: it would prove the mask redundant from an earlier comparison,
/// drop it, and the verifier would then reject the access.
#[inline(always)]
fn masked(depth: u32) -> usize {
    const _: () = assert!(detour_abi::MAX_DEPTH == 8);
    let mut index = depth as u64;
    unsafe { core::arch::asm!("{0} &= 7", inout(reg) index, options(pure, nomem, nostack)) };
    index as usize
}

/// Interrupts and NMIs on this CPU update the same words; one instruction cannot be torn by them.
/// The form without a result is the only one that kernels before 5.12 know.
#[inline(always)]
fn atomic_add(cell: &mut u64, value: u64) {
    // SAFETY: the cell is aligned and lives in a map.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(cell, value);
    }
}
