//! What a program's threads wait for: the first wait of a new thread (`sched:sched_wakeup_new`),
//! migrations of a waiting one (`sched:sched_migrate_task`), and throttling by the quota of a cgroup.
//! No tracepoint marks throttling: that a thread leaves the CPU because of it is found in its
//! structures, and that its run queue is unthrottled is seen after the next interrupt on that CPU,
//! with which the kernel unthrottles it.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel, generated::bpf_get_current_task},
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use recorder_abi::{Frame, THROTTLED_QUEUES, Task, flag, hook, kind, mark, throttle};

use crate::{
    state::{
        CFS_RQ_GROUP, CFS_RQ_THROTTLE_COUNT, CFS_RQ_THROTTLED, CGROUP_NODE, CSS_CGROUP, Cpu,
        GROUP_CSS, NODE_ID, Queues, SE_CFS_RQ, SE_DELAYED, SE_PARENT, STATE, TASK_CPU, TASK_ON_RQ,
        TASK_PID, TASK_SE, TASK_STATE, TASK_THREAD_INFO, TASK_THROTTLED, THREAD_INFO_CPU, field,
        is_zero, now, on_watched_cpu, on_watched_cpu_preemptible, task_slot,
    },
    thread::{announce, note_wakeup, sched_code},
    who,
};

/// `sched:sched_wakeup_new(struct task_struct *p)`: a new task is queued, on its parent's CPU.
#[btf_tracepoint(function = "sched_wakeup_new")]
pub fn wakeup_new(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::WAKEUP_NEW, |cpu| {
        if let Some(slot) = note_wakeup(cpu, ctx.arg(0)) {
            slot.marks().set(slot.marks().get() | mark::NEW);
        }
    })
}

/// Since Linux 6.12, a task that goes to sleep may stay queued until its next turn (delayed dequeue).
#[inline(always)]
fn is_asleep(task: *const u8) -> bool {
    if SE_DELAYED.load() == 0 || TASK_SE.load() == 0 {
        return false;
    }
    let delayed: u8 = field(task, TASK_SE.load() + SE_DELAYED.load());
    delayed != 0
}

/// `TASK_ON_RQ_MIGRATING`: queued and migrating. Not set when a task is placed at wake-up.
const MIGRATING: u8 = 2;

/// `sched:sched_migrate_task(struct task_struct *p, int dest_cpu)`, on the CPU that migrates it.
#[btf_tracepoint(function = "sched_migrate_task")]
pub fn migrate_task(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::MIGRATE, |cpu| {
        let task: *const u8 = ctx.arg(0);
        // The lowest byte of an `int`; the whole field since Linux 7.
        let on_rq: u8 = field(task, TASK_ON_RQ.load());
        if on_rq != MIGRATING || is_asleep(task) {
            return;
        }
        let tid: u32 = field(task, TASK_PID.load());
        let from = cpu_of(task);
        let to = ctx.arg::<u64>(1) as u32;
        let now = now();
        let (mut start, mut flags) = (now, 0);
        if let Some(slot) = task_slot(tid) {
            if slot.woken_at().get() != 0 && slot.woken_at().get() < now {
                start = slot.woken_at().get();
                // From now on it waits on the other CPU.
                slot.woken_at().set(now);
            }
            if slot.marks().get() & mark::NEW != 0 {
                slot.marks().set(slot.marks().get() & !mark::NEW);
                flags = flag::NEW;
            }
        }
        let (other, detail) = occupant(from);
        let frame = Frame {
            start,
            detail,
            id: tid,
            other,
            aux: (from & 0xffff) << 16 | to & 0xffff,
            kind: kind::MIGRATE,
            flags,
            ..Frame::EMPTY
        };
        cpu.emit(&frame, now - start, 0, 0, 0);
    })
}

/// The CPU on which a task runs or waits.
#[inline(always)]
fn cpu_of(task: *const u8) -> u32 {
    field(
        task,
        if TASK_CPU.load() != 0 {
            TASK_CPU.load()
        } else {
            TASK_THREAD_INFO.load() + THREAD_INFO_CPU.load()
        },
    )
}

/// Who is on a CPU, and since when. It may change during the read; then the two values are mixed, and
/// one of them is slightly old.
#[inline(always)]
fn occupant(cpu: u32) -> (u32, u64) {
    let Some(state) = STATE.get_ptr_mut(cpu) else { return (0, 0) };
    // SAFETY: fields of the element, read one by one.
    unsafe {
        let frame = &raw const (*state).frames[0];
        let id = core::ptr::read_volatile(&raw const (*frame).id);
        (id, core::ptr::read_volatile(&raw const (*frame).start))
    }
}

/// A task has left the CPU while runnable. Reports it if it is throttled, because its cgroup has used
/// up its quota.
#[inline(always)]
pub fn left_runnable(cpu: &mut Cpu, task: *const u8, tid: u32, now: u64) {
    if let Some(slot) = task_slot(tid) {
        // A wake-up while it was on the CPU does not count.
        slot.woken_at().set(0);
    }
    if let Some((queue, how)) = throttled_queue(task) {
        let watched = watch_queue(cpu.number, queue);
        let group = throttled_group(task as u64 + u64::from(TASK_SE.load()));
        report(cpu, tid, if watched { queue } else { 0 }, how, group, now);
    }
}

/// The run queue of a task that is runnable but throttled, because its cgroup has used up its quota.
#[inline(always)]
fn throttled_queue(task: *const u8) -> Option<(u64, u32)> {
    if SE_CFS_RQ.load() == 0 || CFS_RQ_THROTTLE_COUNT.load() == 0 || TASK_SE.load() == 0 {
        return None;
    }
    let queue: *const u8 = field(task, TASK_SE.load() + SE_CFS_RQ.load());
    if queue.is_null() {
        return None;
    }
    if TASK_THROTTLED.load() != 0 {
        let throttled: u8 = field(task, TASK_THROTTLED.load());
        return (throttled & 1 != 0)
            .then_some((queue as u64, throttle::BEGINS | throttle::ONE_TASK));
    }
    let count: u32 = field(queue, CFS_RQ_THROTTLE_COUNT.load());
    (count != 0).then_some((queue as u64, throttle::BEGINS))
}

/// Iterator over all tasks, `struct bpf_iter__task`: finds the tasks that are already throttled when
/// the recording begins.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn throttled_at_start(ctx: *const *const u8) -> i32 {
    // SAFETY: the second pointer of the context.
    let task = unsafe { *ctx.add(1) };
    // The call after the last task has no task.
    if task.is_null() {
        return 0;
    }
    on_watched_cpu_preemptible(hook::TASKS, |cpu| {
        let state: u32 = field(task, TASK_STATE.load());
        if state != 0 {
            return;
        }
        let Some((queue, how)) = throttled_queue(task) else { return };
        let on = cpu_of(task);
        let watched = watch_queue(on, queue);
        let tid: u32 = field(task, TASK_PID.load());
        let group = throttled_group(task as u64 + u64::from(TASK_SE.load()));
        announce(cpu, task);
        let how = how | (on + 1) << throttle::FOUND_ON;
        report(cpu, tid, if watched { queue } else { 0 }, how, group, now());
    })
}

/// Levels of the cgroup hierarchy to walk.
const MAX_LEVELS: u32 = 8;

/// The cgroup whose quota throttles a scheduling entity: its own or an ancestor. Low bits of the inode
/// of its directory; 0 if it cannot be found.
#[inline(never)]
fn throttled_group(mut entity: u64) -> u32 {
    if SE_PARENT.load() == 0 || CFS_RQ_THROTTLED.load() == 0 || CFS_RQ_GROUP.load() == 0 {
        return 0;
    }
    let mut found = 0;
    let mut level = 0;
    while level < MAX_LEVELS {
        let queue = who::peek(entity, SE_CFS_RQ.load());
        // A bit since Linux 6.18, next to one that says whether its clock is stopped.
        let throttled = who::peek(queue, CFS_RQ_THROTTLED.load()) as u32 & 1;
        let first = is_zero((found | found >> 32) as u32) & (1 - is_zero(throttled));
        found = who::choose(u64::from(first), queue, found);
        entity = who::peek(entity, SE_PARENT.load());
        level += 1;
    }
    let group = who::peek(found, CFS_RQ_GROUP.load());
    let cgroup = who::peek(group, GROUP_CSS.load() + CSS_CGROUP.load());
    who::peek(who::peek(cgroup, CGROUP_NODE.load()), NODE_ID.load()) as u32
}

#[inline(always)]
fn report(cpu: &mut Cpu, tid: u32, queue: u64, how: u32, group: u32, now: u64) {
    let frame = Frame {
        start: now,
        detail: queue,
        id: tid,
        other: group,
        aux: how,
        kind: kind::THROTTLE,
        ..Frame::EMPTY
    };
    cpu.emit(&frame, 0, 0, 0, 0);
}

/// Remembers a run queue until it has quota again; false when there are too many.
#[inline(always)]
fn watch_queue(cpu: u32, queue: u64) -> bool {
    let Some(queues) = Queues::of(cpu) else { return false };
    let mut free = THROTTLED_QUEUES;
    let mut at = 0;
    while at < THROTTLED_QUEUES {
        let there = queues.at(at).get();
        if there == queue {
            return true;
        }
        if there == 0 && free == THROTTLED_QUEUES {
            free = at;
        }
        at += 1;
    }
    let mut at = 0;
    while at < THROTTLED_QUEUES {
        if at == free {
            queues.at(at).set(queue);
            return true;
        }
        at += 1;
    }
    false
}

/// Attached to the exit of the interrupts in which the kernel refills quota, and to the tick. Before
/// Linux 6.3 the kernel does this from another CPU, and a busy CPU notices at its next tick.
#[raw_tracepoint]
pub fn unthrottle(_ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::UNTHROTTLE, |cpu| {
        if !cpu.emits() {
            return;
        }
        announce_new_priority(cpu);
        let Some(queues) = Queues::of(cpu.number) else { return };
        let mut at = 0;
        while at < THROTTLED_QUEUES {
            let queue = queues.at(at).get();
            if queue != 0 && CFS_RQ_THROTTLE_COUNT.load() != 0 {
                let count = queue.wrapping_add(CFS_RQ_THROTTLE_COUNT.load() as u64) as *const u32;
                // SAFETY: the kernel checks the address. The run queue of a removed cgroup may read as
                // anything, but no task waits in it.
                let count = unsafe { bpf_probe_read_kernel(count) }.unwrap_or(0);
                if count == 0 {
                    queues.at(at).set(0);
                    report(cpu, 0, queue, 0, 0, now());
                }
            }
            at += 1;
        }
    })
}

/// A thread that changes its own priority may stay on the CPU for long while others wait behind it:
/// the tick announces the change.
#[inline(always)]
fn announce_new_priority(cpu: &mut Cpu) {
    // SAFETY: takes no arguments and returns a number.
    let task = unsafe { bpf_get_current_task() };
    let ids = bpf_get_current_pid_tgid();
    let Some(slot) = task_slot(ids as u32) else { return };
    let sched = sched_code(|offset| who::peek(task, offset) as u32);
    if slot.sched().get() == sched as u16 || slot.comm().get()[0] == 0 {
        return;
    }
    let known = Task {
        comm: slot.comm().get(),
        cgroup: slot.cgroup().get(),
        sched,
        ..who::current(task, ids)
    };
    if who::announce(cpu, task, known) {
        slot.sched().set(sched as u16);
    }
}
