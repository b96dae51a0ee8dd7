//! Threads: who was on the CPU (`sched:sched_switch`), who woke it (`sched:sched_waking`), what a
//! kworker ran (`workqueue:workqueue_execute_*`), who is whose child (`sched:sched_process_fork`).

use aya_ebpf::{
    cty::c_void,
    helpers::{
        bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, generated::bpf_probe_read_kernel_str,
    },
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};
use detour_abi::{
    CGROUP_UNKNOWN, Frame, MAX_DEPTH, Task, TaskSlot, flag, hook, kind, mark, wait_code,
};

use crate::{
    page_fault::{is_fault, refuse_sleeping_fault},
    stack::{close, split},
    state::{
        Cpu, EMPTY_SLOT, PROGRAM, SE_RAN, SE_RAN_BEFORE, TASK_COMM, TASK_FLAGS, TASK_PID,
        TASK_POLICY, TASK_RT_PRIORITY, TASK_SE, TASK_STATE, TASK_STATIC_PRIO, TASK_TGID, TaskPlace,
        WORK_FUNC, field, now, on_watched_cpu, own_task_slot, task_slot,
    },
    wait, who,
};

/// No interrupt that ended longer ago than this asked for the switch.
const SWITCH_NS: u64 = 5_000;

/// After this long the detour around an unseen switch may be settled; what is said later is too late.
const DATED_NS: u64 = 50_000_000;

/// `sched:sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, ...)`.
/// Interrupts are off here; only an NMI can come between.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::SWITCH, |cpu| {
        if !cpu.emits() {
            cpu.set_depth(0);
            cpu.frame(0).start().set(0);
            // It runs, so it waits no more. A CPU that records may get it next, without a wake-up.
            let next: *const u8 = ctx.arg(2);
            forget_waker(field(next, TASK_PID.load()));
            let prev: *const u8 = ctx.arg(1);
            if is_dead(prev) {
                forget(field(prev, TASK_PID.load()));
            }
            return;
        }
        let prev: *const u8 = ctx.arg(1);
        let next: *const u8 = ctx.arg(2);
        let prev_tid: u32 = field(prev, TASK_PID.load());
        let next_tid: u32 = field(next, TASK_PID.load());
        let dead = is_dead(prev);

        close_open_frames(cpu, prev_tid, dead);
        announce_if_new(cpu, prev, prev_tid);

        reconcile(cpu, prev_tid);
        date_unseen_switch(cpu, prev);
        recall_wait(cpu, prev_tid);

        let (mut now, accounted) = cpu.stamp();
        let mut frame = cpu.frame(0).copy();
        let mut left = accounted;
        if PROGRAM.load() != 0 && frame.start == 0 && prev_tid != 0 {
            // It came before this CPU was watched. That it leaves, and may want to stay, matters for
            // what it does next.
            frame = Frame { start: now, id: prev_tid, ..found_running(accounted) };
        }
        if frame.start != 0 {
            let state: u32 = field(prev, TASK_STATE.load());
            let wants_to_run = (ctx.arg::<u64>(0) & 1 != 0 || state == 0) && !dead;
            let mut flags = if wants_to_run && prev_tid != 0 { flag::RUNNABLE } else { 0 };
            if dead {
                flags |= flag::DEAD;
            }
            // From the end of the interrupt that woke the newcomer, the CPU works for it; the
            // kernel charges it so, too.
            let asked = cpu.interrupted_until().get();
            let woken_before = woken_at(next_tid) != 0 && woken_at(next_tid) <= asked;
            if flags & flag::RUNNABLE != 0
                && woken_before
                && asked > frame.start
                && now - asked < SWITCH_NS
            {
                now = asked;
            }
            left = left.wrapping_add(close(cpu, &frame, now, accounted, flags, 0));
            if PROGRAM.load() != 0 && flags & flag::RUNNABLE != 0 {
                wait::left_runnable(cpu, prev, prev_tid, now);
            }
        }
        if dead {
            forget(prev_tid);
        }

        let mut waker = 0;
        let mut waited = 0;
        let mut work = 0;
        let mut came = 0;
        if let Some(slot) = task_slot(next_tid) {
            if slot.woken_at().get() != 0 {
                waker = slot.waker().get();
                waited = now.saturating_sub(slot.woken_at().get());
                slot.woken_at().set(0);
            }
            if slot.marks().get() & mark::NEW != 0 {
                slot.marks().set(slot.marks().get() & !mark::NEW);
                came = flag::NEW;
            }
            // A worker that was interrupted in an item goes on with it; an idle one has none yet.
            if slot.marks().get() & mark::WORK_DONE == 0 {
                work = slot.work().get();
            }
        }
        let frame = cpu.frame(0);
        frame.kind().set(kind::THREAD);
        frame.flags().set(came);
        frame.id().set(next_tid);
        frame.other().set(waker);
        frame.aux().set(wait_code(waited));
        frame.detail().set(work);
        frame.before().set(0);
        frame.accounted().set(left);
        frame.start().set(now);
    })
}

#[inline(always)]
fn forget_waker(tid: u32) {
    if let Some(slot) = task_slot(tid) {
        slot.woken_at().set(0);
    }
}

/// When a task was woken; 0 when it was not, or when it has run since.
#[inline(always)]
fn woken_at(tid: u32) -> u64 {
    match task_slot(tid) {
        Some(slot) => slot.woken_at().get(),
        None => 0,
    }
}

/// `TASK_DEAD` of `task_struct.state`: it leaves the CPU for the last time.
const TASK_DEAD: u32 = 0x80;

#[inline(always)]
fn is_dead(task: *const u8) -> bool {
    let state: u32 = field(task, TASK_STATE.load());
    state & TASK_DEAD != 0
}

/// Frees the slot of a task that has ended.
#[inline(always)]
fn forget(tid: u32) {
    if let Some(slot) = task_slot(tid) {
        slot.fill(EMPTY_SLOT);
    }
}

/// The frame of a thread that was found on the CPU, without length: what is known of it is that it
/// leaves.
#[inline(always)]
fn found_running(accounted: u64) -> Frame {
    Frame {
        start: 0,
        accounted,
        detail: 0,
        id: 0,
        other: 0,
        aux: 0,
        kind: kind::THREAD,
        flags: flag::CONTINUED,
        spare: 0,
        before: 0,
        spare2: 0,
        found: 0,
        rest: 0,
    }
}

/// Puts the account right when a switch went by unseen: hypervisors and security modules exist that
/// keep programs from running on some task's behalf. That the thread came is known, when it left is
/// not: it becomes a point, and the time goes to the one that is found running.
#[inline(always)]
pub fn reconcile(cpu: &mut Cpu, tid: u32) {
    let frame = cpu.frame(0).copy();
    if frame.start == 0 || frame.id == tid {
        return;
    }
    cpu.count_unmatched();
    cpu.emit(&frame, 0, 0, flag::POINT, 0);
    let frame = cpu.frame(0);
    frame.before().set(frame.id().get());
    frame.id().set(tid);
    frame.other().set(0);
    frame.aux().set(0);
    frame.detail().set(0);
    frame.flags().set(flag::CUT_SHORT);
    frame.found().set(now());
}

/// When the one that was found running leaves, the kernel knows how long it has run: the time
/// before that goes back to the one before it. Nothing was seen then, so nothing nested in it.
#[inline(always)]
fn date_unseen_switch(cpu: &mut Cpu, prev: *const u8) {
    let frame = cpu.frame(0).copy();
    let entity = TASK_SE.load();
    // The idle task's time is not counted.
    if frame.before == 0 || frame.id == 0 || frame.start == 0 || entity == 0 {
        return;
    }
    let ran: u64 = field(prev, entity + SE_RAN.load());
    let ran_before: u64 = field(prev, entity + SE_RAN_BEFORE.load());
    let now = now();
    let mut came = now.wrapping_sub(ran.wrapping_sub(ran_before));
    // Kernels that charge interrupts to nobody say less than has passed.
    if frame.found < came {
        came = frame.found;
    }
    if came <= frame.start || came > now || now - frame.start > DATED_NS {
        return;
    }
    let hidden = Frame {
        id: frame.before,
        other: 0,
        aux: 0,
        detail: 0,
        flags: flag::CONTINUED | flag::UNSEEN,
        ..frame
    };
    let length = came - frame.start;
    cpu.account(length);
    cpu.emit(&hidden, length, length, 0, 0);
    let frame = cpu.frame(0);
    frame.start().set(came);
    frame.accounted().set(frame.accounted().get().wrapping_add(length));
}

/// What a thread that came unseen had waited for, since it was woken or created.
#[inline(always)]
fn recall_wait(cpu: &mut Cpu, tid: u32) {
    let frame = cpu.frame(0);
    if frame.before().get() == 0 {
        return;
    }
    let Some(slot) = task_slot(tid) else { return };
    // A later wake-up found it on the CPU, and was none.
    let came = frame.start().get();
    if slot.woken_at().get() != 0 && slot.woken_at().get() < came {
        frame.aux().set(wait_code(came - slot.woken_at().get()));
        frame.other().set(slot.waker().get());
    }
    slot.woken_at().set(0);
    if slot.marks().get() & mark::NEW != 0 {
        slot.marks().set(slot.marks().get() & !mark::NEW);
        frame.flags().set(frame.flags().get() | flag::NEW);
    }
}

/// The outgoing thread leaves frames open when it sleeps or is preempted inside a page fault; on
/// real-time kernels inside a softirq, too.
#[inline(always)]
fn close_open_frames(cpu: &mut Cpu, tid: u32, dead: bool) {
    let mut tries = 0;
    while tries < 3 {
        let depth = cpu.depth();
        if depth == 0 || depth as usize >= MAX_DEPTH {
            break;
        }
        let frame = cpu.frame(depth).copy();
        if is_fault(frame.kind) && dead {
            // It was refused, and the task ends for it.
            cpu.emit(&Frame { aux: 0, ..frame }, 0, 0, flag::POINT, depth);
        } else if is_fault(frame.kind) {
            // Its end, if it comes, finds the start in the task's slot. Until then the time is
            // the thread's: a fault that was refused has no end and must not grow one.
            if let Some(slot) = own_task_slot(tid) {
                slot.fault_start().set(frame.start);
                slot.fault_id().set(frame.id as u16);
                slot.fault_kind().set(frame.kind);
                slot.fault_retry().set(frame.aux as u16);
                cpu.count_open_fault(1);
            }
        } else {
            let (now, accounted) = cpu.stamp();
            close(cpu, &frame, now, accounted, flag::CUT_SHORT, depth);
        }
        cpu.set_depth(depth - 1);
        tries += 1;
    }
    cpu.set_depth(0);
    if dead {
        refuse_sleeping_fault(cpu, tid);
    }
}

/// Tells user space who a tid is, once per tid, name, cgroup and priority.
#[inline(always)]
fn announce_if_new(cpu: &mut Cpu, task: *const u8, tid: u32) {
    if tid == 0 {
        return;
    }
    let comm = comm(task);
    // The outgoing task is still the current one.
    // SAFETY: the helper takes nothing and returns a number.
    let cgroup = unsafe { bpf_get_current_cgroup_id() };
    let Some(slot) = own_task_slot(tid) else { return };
    let sched = sched(task);
    if slot.comm().get()[0] == comm[0]
        && slot.comm().get()[1] == comm[1]
        && slot.cgroup().get() == cgroup
        && slot.sched().get() == sched as u16
    {
        return;
    }
    if who::announce(cpu, task as u64, Task { cgroup, ..describe(task, comm) }) {
        slot.comm().set(comm);
        slot.cgroup().set(cgroup);
        slot.sched().set(sched as u16);
    }
}

#[inline(always)]
fn comm(task: *const u8) -> [u64; 2] {
    let offset = TASK_COMM.load();
    [field(task, offset), field(task, offset + 8)]
}

/// Tells user space who a task is.
#[inline(always)]
pub fn announce(cpu: &mut Cpu, task: *const u8) {
    let cgroup = who::cgroup(task as u64);
    who::announce(cpu, task as u64, Task { cgroup, ..describe(task, comm(task)) });
}

/// Policy and priority of a task, see [`detour_abi::sched`].
#[inline(always)]
fn sched(task: *const u8) -> u32 {
    sched_code(|offset| field(task, offset))
}

/// Policy and priority of a task whose field at an offset is `of`.
#[inline(always)]
pub fn sched_code(of: impl Fn(u32) -> u32) -> u32 {
    use detour_abi::sched::{DEADLINE, FIFO, KNOWN, NICE_FLOOR, RR};
    if TASK_POLICY.load() == 0 || TASK_STATIC_PRIO.load() == 0 || TASK_RT_PRIORITY.load() == 0 {
        return 0;
    }
    let policy = of(TASK_POLICY.load()) & 0x7f;
    let level: u32 = if policy == FIFO || policy == RR {
        of(TASK_RT_PRIORITY.load())
    } else if policy == DEADLINE {
        0
    } else {
        of(TASK_STATIC_PRIO.load()).wrapping_sub(NICE_FLOOR)
    };
    KNOWN | policy << 8 | level & 0xff
}

/// What a `task_struct` says of itself; a renamed task's name is not yet in there.
#[inline(always)]
fn describe(task: *const u8, comm: [u64; 2]) -> Task {
    Task {
        at: 0,
        comm,
        cgroup: CGROUP_UNKNOWN,
        tid: field(task, TASK_PID.load()),
        tgid: field(task, TASK_TGID.load()),
        task_flags: field(task, TASK_FLAGS.load()),
        cpu: 0,
        kind_depth: kind::TASK,
        flags: 0,
        parent: 0,
        sched: sched(task),
    }
}

/// `sched:sched_waking(struct task_struct *p)`, on the CPU of whoever wakes it.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::WAKING, |cpu| {
        note_wakeup(cpu, ctx.arg(0));
    })
}

/// Notes who wakes a task, and when; returns the task's slot.
#[inline(always)]
pub fn note_wakeup(cpu: &mut Cpu, task: *const u8) -> Option<TaskPlace> {
    let tid: u32 = field(task, TASK_PID.load());
    let waker = cpu.origin();
    let slot = own_task_slot(tid)?;
    slot.waker().set(waker);
    slot.woken_at().set(now());
    Some(slot)
}

/// `workqueue:workqueue_execute_start(struct work_struct *work)`.
#[btf_tracepoint(function = "workqueue_execute_start")]
pub fn work_start(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::WORK_START, |cpu| {
        let work: *const u8 = ctx.arg(0);
        let function: u64 = field(work, WORK_FUNC.load());
        let tid = bpf_get_current_pid_tgid() as u32;
        let Some(slot) = own_task_slot(tid) else { return };
        slot.work().set(function);
        slot.marks().set(slot.marks().get() & !mark::WORK_DONE);
        if cpu.emits() && cpu.frame(0).start().get() != 0 && cpu.depth() == 0 {
            split(cpu, 0, function);
        }
    })
}

/// `workqueue:workqueue_execute_end(struct work_struct *work, work_func_t function)`.
#[btf_tracepoint(function = "workqueue_execute_end")]
pub fn work_end(_ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::WORK_END, |_| {
        let tid = bpf_get_current_pid_tgid() as u32;
        if let Some(slot) = own_task_slot(tid) {
            slot.marks().set(slot.marks().get() | mark::WORK_DONE);
        }
    })
}

/// `task:task_rename(struct task_struct *task, const char *comm)`: what was announced is out of date.
#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::RENAME, |cpu| {
        let task: *const u8 = ctx.arg(0);
        let name: *const c_void = ctx.arg(1);
        let mut comm = [0u64; 2];
        // SAFETY: the buffer is as long as said; the kernel checks the source.
        unsafe { bpf_probe_read_kernel_str(comm.as_mut_ptr().cast(), 16, name) };
        let tid: u32 = field(task, TASK_PID.load());
        let cgroup = who::cgroup(task as u64);
        if let Some(slot) = own_task_slot(tid) {
            slot.comm().set(comm);
            slot.cgroup().set(cgroup);
        }
        who::announce(cpu, task as u64, Task { cgroup, ..describe(task, comm) });
    })
}

/// `cgroup:cgroup_attach_task(struct cgroup *to, const char *path, struct task_struct *task, bool
/// threadgroup)`, once the task has moved; its threads announce themselves when they leave the CPU. Also
/// called for the hierarchies of cgroup v1, where nothing changes for us.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::CGROUP_ATTACH, |cpu| {
        let task: *const u8 = ctx.arg(2);
        let tid: u32 = field(task, TASK_PID.load());
        let cgroup = who::cgroup(task as u64);
        let Some(slot) = own_task_slot(tid) else { return };
        if slot.cgroup().get() == cgroup {
            return;
        }
        let comm = comm(task);
        if who::announce(cpu, task as u64, Task { cgroup, ..describe(task, comm) }) {
            slot.comm().set(comm);
            slot.cgroup().set(cgroup);
        }
    })
}

/// `sched:sched_process_fork(struct task_struct *parent, struct task_struct *child)`: who is whose child,
/// and a name for what faults before it leaves the CPU for the first time, and may be gone by then.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn process_fork(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::FORK, |cpu| {
        let parent: *const u8 = ctx.arg(0);
        let child: *const u8 = ctx.arg(1);
        let tid: u32 = field(child, TASK_PID.load());
        // Whoever had the number before has nothing to do with it.
        if let Some(slot) = own_task_slot(tid) {
            slot.fill(TaskSlot { tid, ..EMPTY_SLOT });
        }
        let task = Task {
            // Its own, which is not the parent's when it was cloned into another.
            cgroup: who::cgroup(child as u64),
            parent: field(parent, TASK_TGID.load()),
            kind_depth: kind::FORK,
            ..describe(child, comm(child))
        };
        who::announce(cpu, child as u64, task);
    })
}
