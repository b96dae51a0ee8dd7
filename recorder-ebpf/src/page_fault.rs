//! Page faults: `exceptions:page_fault_user/kernel` is the start. No tracepoint marks the end, but
//! the software events `minor-faults` and `major-faults` are counted when the fault has been
//! handled: a program on each of those closes it. Where they are refused a fault is a point.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{perf_event, raw_tracepoint},
    programs::{PerfEventContext, RawTracePointContext},
};
use detour_abi::{Frame, MAX_DEPTH, flag, hook, kind};

use crate::{
    stack::{close, push},
    state::{Cpu, FAULT_BRACKET, now, on_watched_cpu, own_task_slot, task_slot},
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

#[inline(always)]
fn begin(cpu: &mut Cpu, kind: u8, error: u32) {
    let tid = bpf_get_current_pid_tgid() as u32;
    let depth = cpu.depth();
    if depth == 0 && cpu.emits() {
        // A program that has just come by unseen faults at once: its pages were not the last used.
        reconcile(cpu, tid);
    }
    if FAULT_BRACKET.load() == 0 {
        let frame = Frame {
            start: now(),
            accounted: 0,
            detail: 0,
            id: error,
            other: tid,
            aux: 0,
            kind,
            flags: flag::POINT,
            spare: 0,
            before: 0,
            spare2: 0,
            found: 0,
            rest: 0,
        };
        cpu.emit(&frame, 0, 0, 0, depth + 1);
        return;
    }
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind) {
        // The one before was refused (bad address, no mapping) and never reached its end.
        let frame = *cpu.frame(depth);
        cpu.emit(&frame, 0, 0, flag::POINT, depth);
        cpu.set_depth(depth - 1);
    }
    if let Some(slot) = task_slot(tid)
        && slot.tid == tid
    {
        slot.fault_start = 0;
    }
    push(cpu, kind, error, tid, 0, 0);
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
    if depth > 0 && (depth as usize) < MAX_DEPTH && is_fault(cpu.frame(depth).kind) {
        let frame = *cpu.frame(depth);
        close(cpu, &frame, now, accounted, flags, depth);
        cpu.set_depth(depth - 1);
        return;
    }
    // It slept, and the frame went with the switch. Its CPU time is in the thread's records; the
    // length is what the task waited.
    let tid = bpf_get_current_pid_tgid() as u32;
    let Some(slot) = own_task_slot(tid) else { return };
    if slot.fault_start == 0 {
        return;
    }
    let frame = Frame {
        start: slot.fault_start,
        accounted: 0,
        detail: 0,
        id: slot.fault_id,
        other: tid,
        aux: 0,
        kind: slot.fault_kind,
        flags: flag::CUT_SHORT,
        spare: 0,
        before: 0,
        spare2: 0,
        found: 0,
        rest: 0,
    };
    slot.fault_start = 0;
    cpu.emit(&frame, now.wrapping_sub(frame.start), 0, flags, depth + 1);
}
