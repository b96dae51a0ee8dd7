//! Threads: which one was on the CPU (`sched:sched_switch`), who woke it (`sched:sched_waking`), what
//! a kworker ran (`workqueue:workqueue_execute_*`), who created it (`sched:sched_process_fork`).

use aya_ebpf::{
    cty::c_void,
    helpers::{
        bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, generated::bpf_probe_read_kernel_str,
    },
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};
use recorder_abi::{
    CGROUP_UNKNOWN, Frame, MAX_DEPTH, Task, TaskSlot, flag, hook, kind, mark, wait_code,
};

use crate::{
    page_fault::{is_fault, refuse_sleeping_fault},
    stack::{close, split},
    state::{
        Cpu, EMPTY_SLOT, PROGRAM, SE_RAN, SE_RAN_BEFORE, TASK_COMM, TASK_FLAGS, TASK_PID,
        TASK_POLICY, TASK_RT_PRIORITY, TASK_SE, TASK_STATE, TASK_STATIC_PRIO, TASK_TGID, TaskPlace,
        WITH_STACKS, WORK_FUNC, field, note_waker_stack, now, on_watched_cpu,
        on_watched_cpu_preemptible, own_task_slot, stack, task_slot, waker_stack,
    },
    wait, who,
};

/// An interrupt that ended longer ago than this did not request the switch.
const SWITCH_NS: u64 = 5_000;

/// After this time the detour around an unseen switch may already be final; a correction is too late.
const DATED_NS: u64 = 50_000_000;

/// `sched:sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, ...)`.
/// Interrupts are disabled here; only an NMI can intervene.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::SWITCH, |cpu| {
        if !cpu.emits() {
            cpu.set_depth(0);
            cpu.frame(0).start().set(0);
            // It runs, so it no longer waits. A CPU that records may run it next without a wake-up.
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
            // It was running before this CPU was watched. That it leaves, and whether it is still
            // runnable, matters for what it does next.
            frame = Frame { start: now, id: prev_tid, ..found_running(accounted) };
        }
        if frame.start != 0 {
            let state: u32 = field(prev, TASK_STATE.load());
            let wants_to_run = (ctx.arg::<u64>(0) & 1 != 0 || state == 0) && !dead;
            let mut flags = if wants_to_run && prev_tid != 0 { flag::RUNNABLE } else { 0 };
            if dead {
                flags |= flag::DEAD;
            }
            // From the end of the interrupt that woke the next task, the CPU works for that task; the
            // kernel charges the time to it as well.
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
        let mut stack = 0;
        if let Some(slot) = task_slot(next_tid) {
            if slot.woken_at().get() != 0 {
                stack = waker_stack(next_tid);
                waker = slot.waker().get();
                waited = now.saturating_sub(slot.woken_at().get());
                slot.woken_at().set(0);
            }
            if slot.marks().get() & mark::NEW != 0 {
                slot.marks().set(slot.marks().get() & !mark::NEW);
                came = flag::NEW;
            }
            // A worker that was preempted in a work item continues it; an idle one has none yet.
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
        if WITH_STACKS.load() != 0 {
            frame.stack().set(stack);
        }
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

/// When a task was woken; 0 if it was not, or has run since.
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

/// The frame of a thread that was found on the CPU, without length: all that is known is that it
/// leaves.
#[inline(always)]
fn found_running(accounted: u64) -> Frame {
    Frame { accounted, kind: kind::THREAD, flags: flag::CONTINUED, ..Frame::EMPTY }
}

/// Corrects the accounting after an unseen switch: some hypervisors and security modules keep BPF
/// programs from running for certain tasks. When the earlier thread left is unknown: it becomes a
/// point, and the time goes to the thread found running.
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
    if WITH_STACKS.load() != 0 {
        frame.stack().set(0);
    }
    frame.found().set(now());
}

/// When the thread that was found running leaves, the kernel knows how long it has run: the time
/// before that goes back to the thread before it. Nothing was seen then, so nothing nests in it.
#[inline(always)]
fn date_unseen_switch(cpu: &mut Cpu, prev: *const u8) {
    let frame = cpu.frame(0).copy();
    let entity = TASK_SE.load();
    // The kernel does not account the idle task's time.
    if frame.before == 0 || frame.id == 0 || frame.start == 0 || entity == 0 {
        return;
    }
    let ran: u64 = field(prev, entity + SE_RAN.load());
    let ran_before: u64 = field(prev, entity + SE_RAN_BEFORE.load());
    let now = now();
    let mut came = now.wrapping_sub(ran.wrapping_sub(ran_before));
    // Kernels that account interrupts to no task report less than has passed.
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

/// What a thread that came unseen had waited for, since its wake-up or creation.
#[inline(always)]
fn recall_wait(cpu: &mut Cpu, tid: u32) {
    let frame = cpu.frame(0);
    if frame.before().get() == 0 {
        return;
    }
    let Some(slot) = task_slot(tid) else { return };
    // A later wake-up found it on the CPU and does not count.
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
/// PREEMPT_RT kernels also inside a softirq.
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
            // The fault was refused, and the task dies of it.
            cpu.emit(&Frame { aux: 0, ..frame }, 0, 0, flag::POINT, depth);
        } else if is_fault(frame.kind) {
            // Its end, if it comes, finds the start in the task's slot. Until then the time belongs to
            // the thread: a fault that was refused never ends and must not grow.
            match own_task_slot(tid) {
                Some(slot) => {
                    slot.fault_start().set(frame.start);
                    slot.fault_id().set(frame.id as u16);
                    slot.fault_kind().set(frame.kind);
                    slot.fault_retry().set(frame.aux as u16);
                    cpu.count_open_fault(1);
                }
                // The task table is full: the end will find nothing.
                None => cpu.count_unmatched(),
            }
        } else {
            let (now, accounted) = cpu.stamp();
            close(cpu, &frame, now, accounted, flag::CUT_SHORT, depth);
        }
        cpu.set_depth(depth - 1);
        tries += 1;
    }
    let rest = cpu.depth();
    if rest != 0 {
        // Their exits were not seen; their time goes to the thread.
        cpu.unmatched().add(rest as u64);
        cpu.set_depth(0);
    }
    if dead {
        refuse_sleeping_fault(cpu, tid);
    }
}

/// Announces a task to user space once per tid, name, cgroup and priority.
#[inline(always)]
fn announce_if_new(cpu: &mut Cpu, task: *const u8, tid: u32) {
    if tid == 0 {
        return;
    }
    let comm = comm(task);
    // The outgoing task is still the current one.
    // SAFETY: the helper takes no arguments and returns a number.
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

/// Announces a task to user space.
#[inline(always)]
pub fn announce(cpu: &mut Cpu, task: *const u8) {
    let cgroup = who::cgroup(task as u64);
    who::announce(cpu, task as u64, Task { cgroup, ..describe(task, comm(task)) });
}

/// Policy and priority of a task, see [`recorder_abi::sched`].
#[inline(always)]
fn sched(task: *const u8) -> u32 {
    sched_code(|offset| field(task, offset))
}

/// Policy and priority of a task; `of` reads the field at an offset.
#[inline(always)]
pub fn sched_code(of: impl Fn(u32) -> u32) -> u32 {
    use recorder_abi::sched::{DEADLINE, FIFO, KNOWN, NICE_FLOOR, RR};
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

/// A task's description from its `task_struct`, which does not yet hold the new name of a renamed
/// task.
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

/// `sched:sched_waking(struct task_struct *p)`, on the CPU of the waker.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::WAKING, |cpu| {
        let task: *const u8 = ctx.arg(0);
        note_waker_stack(field(task, TASK_PID.load()), stack(&ctx));
        note_wakeup(cpu, task);
    })
}

/// Notes who woke a task, and when; returns the task's slot.
#[inline(always)]
pub fn note_wakeup(cpu: &mut Cpu, task: *const u8) -> Option<TaskPlace> {
    let tid: u32 = field(task, TASK_PID.load());
    let waker = cpu.origin();
    cpu.note_woken(tid);
    let slot = own_task_slot(tid)?;
    slot.waker().set(waker);
    slot.woken_at().set(now());
    Some(slot)
}

/// `workqueue:workqueue_execute_start(struct work_struct *work)`.
#[btf_tracepoint(function = "workqueue_execute_start")]
pub fn work_start(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu_preemptible(hook::WORK_START, |cpu| {
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
    on_watched_cpu_preemptible(hook::WORK_END, |_| {
        let tid = bpf_get_current_pid_tgid() as u32;
        if let Some(slot) = own_task_slot(tid) {
            slot.marks().set(slot.marks().get() | mark::WORK_DONE);
        }
    })
}

/// `task:task_rename(struct task_struct *task, const char *comm)`: the announced name is out of date.
#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu_preemptible(hook::RENAME, |cpu| {
        let task: *const u8 = ctx.arg(0);
        let name: *const c_void = ctx.arg(1);
        let mut comm = [0u64; 2];
        // SAFETY: the buffer has the given length; the kernel checks the source.
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
/// threadgroup)`, once the task has moved; its threads are announced when they leave the CPU. Also
/// fires for cgroup v1 hierarchies, where nothing changes for us.
#[btf_tracepoint(function = "cgroup_attach_task")]
pub fn cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu_preemptible(hook::CGROUP_ATTACH, |cpu| {
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

/// `sched:sched_process_fork(struct task_struct *parent, struct task_struct *child)`: who created
/// whom, and a name for a task that faults before it first leaves the CPU, and may be gone by then.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn process_fork(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu_preemptible(hook::FORK, |cpu| {
        let parent: *const u8 = ctx.arg(0);
        let child: *const u8 = ctx.arg(1);
        let tid: u32 = field(child, TASK_PID.load());
        // The previous task with this tid is unrelated.
        if let Some(slot) = own_task_slot(tid) {
            slot.fill(TaskSlot { tid, ..EMPTY_SLOT });
        }
        let task = Task {
            // Its own, which differs from the parent's when it was cloned into another cgroup.
            cgroup: who::cgroup(child as u64),
            parent: field(parent, TASK_TGID.load()),
            kind_depth: kind::FORK,
            ..describe(child, comm(child))
        };
        who::announce(cpu, child as u64, task);
    })
}
