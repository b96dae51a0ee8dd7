//! Page faults: `exceptions:page_fault_user/kernel` is the start; architectures without these
//! tracepoints start at the entry of `handle_mm_fault`. No tracepoint marks the end. The return of
//! `handle_mm_fault` does; if the kernel refuses to attach there, the software events `minor-faults`
//! and `major-faults` do, which are counted once the fault has been handled. If these are refused as
//! well, a fault is a point.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{fentry, fexit, perf_event, raw_tracepoint},
    programs::{FEntryContext, FExitContext, PerfEventContext, RawTracePointContext},
};
use recorder_abi::{Frame, MAX_DEPTH, flag, hook, kind};

use crate::{
    stack::{close, push},
    state::{Cpu, FAULT_BRACKET, now, on_watched_cpu, on_watched_cpu_preemptible, task_slot},
    thread::reconcile,
};

/// `exceptions:page_fault_user(unsigned long address, struct pt_regs *regs, unsigned long error)`.
#[raw_tracepoint]
pub fn fault_user(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::FAULT_USER, |cpu| {
        begin(cpu, kind::FAULT_USER, ctx.arg::<u64>(2) as u32);
    })
}

/// `exceptions:page_fault_kernel`, the same from kernel mode.
#[raw_tracepoint]
pub fn fault_kernel(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::FAULT_KERNEL, |cpu| {
        begin(cpu, kind::FAULT_KERNEL, ctx.arg::<u64>(2) as u32);
    })
}

/// Bits of `handle_mm_fault`'s argument `flags`, and their equivalents in x86 error codes.
const FAULT_FLAG_WRITE: u32 = 1;
/// The kernel has waited and retries the fault.
const FAULT_FLAG_TRIED: u32 = 0x20;
const FAULT_FLAG_USER: u32 = 0x40;
const ERROR_WRITE: u32 = 2;
const ERROR_USER: u32 = 4;

/// Bits of the return value of `handle_mm_fault`.
const VM_FAULT_MAJOR: u32 = 4;
const VM_FAULT_RETRY: u32 = 0x400;

/// `handle_mm_fault(struct vm_area_struct *, unsigned long address, unsigned int flags, struct
/// pt_regs *regs)`, if no tracepoint marks the start.
#[fentry(function = "handle_mm_fault")]
pub fn fault_handle(ctx: FEntryContext) -> i32 {
    on_watched_cpu_preemptible(hook::FAULT_HANDLE, |cpu| {
        let flags = ctx.arg::<u64>(2) as u32;
        // Without registers it is not a fault: the kernel accesses another task's memory.
        if ctx.arg::<u64>(3) == 0 || continues(cpu, ctx.arg::<u64>(1)) {
            return;
        }
        let write = if flags & FAULT_FLAG_WRITE != 0 { ERROR_WRITE } else { 0 };
        if flags & FAULT_FLAG_USER != 0 {
            begin(cpu, kind::FAULT_USER, write | ERROR_USER);
        } else {
            begin(cpu, kind::FAULT_KERNEL, write);
        }
    })
}

/// Whether this call retries a fault that has begun: one that is still open on the CPU, or one that
/// slept, whose start is in the task's slot. A signal may end a fault before the retry, so the address
/// has to match.
#[inline(always)]
fn continues(cpu: &mut Cpu, address: u64) -> bool {
    let depth = cpu.depth();
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind().get()) {
        return cpu.frame(depth).aux().get() == retry_mark(address) as u32;
    }
    let tid = bpf_get_current_pid_tgid() as u32;
    match task_slot(tid) {
        Some(slot) if slot.fault_start().get() != 0 => {
            slot.fault_retry().get() == retry_mark(address)
        }
        _ => false,
    }
}

/// Marks a fault, in a frame's `aux` or a task's slot, that was not handled and will be retried: 15
/// bits of the page number, and one that is always set.
#[inline(always)]
fn retry_mark(address: u64) -> u16 {
    (address >> 11) as u16 | 1
}

/// The return of `handle_mm_fault`; the return value follows the four arguments.
#[fexit(function = "handle_mm_fault")]
pub fn fault_handled(ctx: FExitContext) -> i32 {
    on_watched_cpu_preemptible(hook::FAULT_END, |cpu| {
        let flags = ctx.arg::<u64>(2) as u32;
        let result = ctx.arg::<u64>(4) as u32;
        if ctx.arg::<u64>(3) == 0 {
            return;
        }
        if result & VM_FAULT_RETRY != 0 {
            will_be_retried(cpu, retry_mark(ctx.arg::<u64>(1)));
            return;
        }
        // The kernel's own rule (`mm_account_fault`): the call that succeeds after I/O finds the page
        // in memory, so its result no longer tells that the fault was major.
        let major = result & VM_FAULT_MAJOR != 0 || flags & FAULT_FLAG_TRIED != 0;
        end(cpu, if major { flag::MAJOR } else { 0 });
        // If this program was preempted between reading the frame and removing it, the switch has
        // moved the frame to the task's slot, and the task's next fault would report it again as
        // refused.
        take_slept(cpu, bpf_get_current_pid_tgid() as u32);
    })
}

#[inline(always)]
fn will_be_retried(cpu: &mut Cpu, mark: u16) {
    let depth = cpu.depth();
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind().get()) {
        cpu.frame(depth).aux().set(mark as u32);
        return;
    }
    let tid = bpf_get_current_pid_tgid() as u32;
    if let Some(slot) = task_slot(tid) {
        slot.fault_retry().set(mark);
    }
}

#[inline(always)]
fn begin(cpu: &mut Cpu, kind: u8, error: u32) {
    // A task that is older than the recording and exits right away can be announced only here.
    let tid = cpu.current_task(true);
    let depth = cpu.depth();
    if depth == 0 && cpu.emits() {
        // A program that has been switched in unseen faults at once, since its pages are cold.
        reconcile(cpu, tid);
    }
    if FAULT_BRACKET.load() == 0 {
        let frame =
            Frame { start: now(), id: error, other: tid, kind, flags: flag::POINT, ..Frame::EMPTY };
        cpu.emit(&frame, 0, 0, 0, depth + 1);
        return;
    }
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind().get()) {
        // The previous fault was refused (bad address, no mapping) and never reached its end.
        let frame = Frame { aux: 0, ..cpu.frame(depth).copy() };
        cpu.emit(&frame, 0, 0, flag::POINT, depth);
        cpu.set_depth(depth - 1);
    }
    refuse_sleeping_fault(cpu, tid);
    push(cpu, kind, error, tid, 0, 0);
}

/// A fault that left the CPU and has not ended by the task's next one was refused, like the one that
/// kills the task: it happened, but has no length.
#[inline(always)]
pub fn refuse_sleeping_fault(cpu: &mut Cpu, tid: u32) {
    if let Some(frame) = take_slept(cpu, tid) {
        cpu.emit(&frame, 0, 0, flag::POINT, 1);
    }
}

/// Takes from the task's slot a fault that was still open when it left the CPU.
#[inline(always)]
fn take_slept(cpu: &mut Cpu, tid: u32) -> Option<Frame> {
    let slot = task_slot(tid)?;
    let start = slot.fault_start().get();
    if start == 0 {
        return None;
    }
    slot.fault_start().set(0);
    slot.fault_retry().set(0);
    // A CPU that sends no records cannot report the end: the fault remains counted as open.
    if cpu.emits() {
        cpu.count_open_fault(-1);
    }
    Some(Frame {
        start,
        id: slot.fault_id().get() as u32,
        other: tid,
        kind: slot.fault_kind().get(),
        ..Frame::EMPTY
    })
}

#[inline(always)]
pub fn is_fault(kind: u8) -> bool {
    kind == kind::FAULT_USER || kind == kind::FAULT_KERNEL
}

/// Software event `minor-faults`.
#[perf_event]
pub fn fault_end_minor(_ctx: PerfEventContext) -> i32 {
    on_watched_cpu(hook::FAULT_END, |cpu| end(cpu, 0))
}

/// Software event `major-faults`.
#[perf_event]
pub fn fault_end_major(_ctx: PerfEventContext) -> i32 {
    on_watched_cpu(hook::FAULT_END, |cpu| end(cpu, flag::MAJOR))
}

#[inline(always)]
fn end(cpu: &mut Cpu, flags: u8) {
    let (now, accounted) = cpu.stamp();
    let depth = cpu.depth();
    let tid = bpf_get_current_pid_tgid() as u32;
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind().get()) {
        let frame = Frame { aux: 0, ..cpu.frame(depth).copy() };
        // Another task's, if this one was preempted here.
        if frame.other == tid {
            close(cpu, &frame, now, accounted, flags, depth);
            cpu.set_depth(depth - 1);
            return;
        }
    }
    // The fault slept, and the switch removed its frame. Its CPU time is in the thread's records; the
    // length is how long the task waited.
    if let Some(frame) = take_slept(cpu, tid) {
        cpu.emit(&frame, now.wrapping_sub(frame.start), 0, flags | flag::CUT_SHORT, depth + 1);
    }
}
