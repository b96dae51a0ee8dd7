//! Who a task is: its description, preceded by the name of its cgroup the first time the cgroup is
//! seen, and, if the recorder runs in its own PID namespace, by the task's PIDs in that namespace.
//!
//! All of it is read from kernel structures: a cgroup that lives for a millisecond cannot be looked up
//! afterwards, and what is outside a container cannot be looked up from inside.

use aya_ebpf::{
    helpers::generated::{
        bpf_get_current_cgroup_id, bpf_get_current_task, bpf_probe_read_kernel,
        bpf_probe_read_kernel_str,
    },
    macros::map,
    maps::Array,
};
use recorder_abi::{CGROUP_SLOTS, CGROUP_UNKNOWN, CgroupName, Numbers, PIECE_BYTES, Task, kind};

use crate::state::{
    CGROUP_NODE, CSS_SET_CGROUP, Cpu, NODE_ID, NODE_NAME, NODE_PARENT, NS_INUM, PID_LEVEL,
    PID_NAMESPACE, PID_NS_COMMON, PID_NUMBERS, TASK_CGROUPS, TASK_FLAGS, TASK_LEADER,
    TASK_THREAD_PID, now, sign,
};

/// Cgroups whose names have been sent, direct-mapped by id. An evicted one is sent again.
#[map]
static CGROUPS: Array<u64> = Array::with_max_entries(CGROUP_SLOTS, 0);

/// Pieces of one path. The longest common ones, of containers in pods, have twenty.
const MAX_PIECES: u32 = 48;

/// Levels of PID namespaces, as in the kernel.
const MAX_LEVELS: u32 = 32;
/// Size of `struct upid`: a number and a pointer.
const UPID_BYTES: u64 = 16;

/// Sends a task's description and the entries that must precede it; false when one did not fit into
/// the ring.
#[inline(always)]
pub fn announce(cpu: &mut Cpu, task: u64, mut description: Task) -> bool {
    description.at = now();
    description.cpu = cpu.number as u16;
    if PID_NAMESPACE.load() != 0 {
        let numbers = Numbers {
            at: now(),
            tid: description.tid,
            tgid: description.tgid,
            tid_here: number_here(task),
            tgid_here: number_here(peek(task, TASK_LEADER.load())),
            spare: [0; 2],
            spare2: 0,
            cpu: description.cpu,
            kind_depth: kind::NUMBERS,
            flags: 0,
            spare3: 0,
        };
        if !cpu.announce(numbers) {
            return false;
        }
    }
    if !is_named(description.cgroup) && !name_cgroup(cpu, task) {
        return false;
    }
    cpu.announce(description)
}

/// The same for the current task; `ids` and `comm` come from the kernel. Callers with loops leave out
/// the cgroup, which the task's next switch announces: with names, verification would take too long
/// there.
#[inline(always)]
pub fn announce_current(cpu: &mut Cpu, ids: u64, comm: [u64; 2], with_cgroup: bool) {
    // SAFETY: takes no arguments and returns a number.
    let task = unsafe { bpf_get_current_task() };
    let cgroup = match with_cgroup {
        // SAFETY: takes no arguments and returns a number.
        true => unsafe { bpf_get_current_cgroup_id() },
        false => CGROUP_UNKNOWN,
    };
    announce(cpu, task, Task { comm, cgroup, ..current(task, ids) });
}

/// What is known of the current task with the PIDs `ids`, except for its name, cgroup and priority.
#[inline(always)]
pub fn current(task: u64, ids: u64) -> Task {
    Task {
        at: 0,
        comm: [0; 2],
        cgroup: CGROUP_UNKNOWN,
        tid: ids as u32,
        tgid: (ids >> 32) as u32,
        task_flags: peek(task, TASK_FLAGS.load()) as u32,
        parent: 0,
        sched: 0,
        cpu: 0,
        kind_depth: kind::TASK,
        flags: 0,
    }
}

/// Id of a task's cgroup in the cgroup v2 hierarchy.
#[inline(always)]
pub fn cgroup(task: u64) -> u64 {
    match node(task) {
        0 => CGROUP_UNKNOWN,
        node => peek(node, NODE_ID.load()),
    }
}

/// The directory of a task's cgroup, a `struct kernfs_node`; 0 if it cannot be found.
#[inline(always)]
fn node(task: u64) -> u64 {
    // A kernel that lacks one of the fields lacks them all.
    if NODE_ID.load() == 0 {
        return 0;
    }
    let set = peek(task, TASK_CGROUPS.load());
    let cgroup = peek(set, CSS_SET_CGROUP.load());
    peek(cgroup, CGROUP_NODE.load())
}

/// Whether the name of a cgroup has been sent, or cannot be sent.
#[inline(always)]
fn is_named(id: u64) -> bool {
    if id == CGROUP_UNKNOWN || NODE_ID.load() == 0 {
        return true;
    }
    CGROUPS.get(id as u32 & (CGROUP_SLOTS - 1)).is_some_and(|named| *named == id)
}

/// Sends the names of a task's cgroup and all its ancestors. False when they did not fit into the
/// ring: then all of them are sent again with the next task.
#[inline(never)]
fn name_cgroup(cpu: &mut Cpu, task: u64) -> bool {
    let mut node = node(task);
    let own = peek(node, NODE_ID.load());
    // Loop variables are read from memory and selected by arithmetic: for the verifier every iteration
    // ends in the same state.
    let mut from = peek(node, NODE_NAME.load());
    let mut sent = 0;
    while node != 0 && sent < MAX_PIECES {
        let parent = peek(node, NODE_PARENT.load());
        let name = peek(node, NODE_NAME.load());
        let mut text = [0u64; 3];
        // SAFETY: the buffer is longer than the given size; the kernel checks the source and
        // terminates the copy with a zero.
        let copied = unsafe {
            bpf_probe_read_kernel_str(
                text.as_mut_ptr().cast(),
                PIECE_BYTES as u32 + 1,
                from as *const _,
            )
        };
        let last = 1 - sign((PIECE_BYTES as i64 - copied) as u64);
        let entry = CgroupName {
            at: now(),
            id: peek(node, NODE_ID.load()),
            // 0 if there is none.
            parent: peek(parent, NODE_ID.load()),
            text: [text[0], text[1]],
            piece: (from.wrapping_sub(name) / PIECE_BYTES as u64) as u32,
            cpu: cpu.number as u16,
            kind_depth: kind::CGROUP,
            last: last as u8,
            spare: 0,
        };
        if !cpu.announce(entry) {
            return false;
        }
        let next = peek(parent, NODE_NAME.load());
        node = choose(last, parent, node);
        from = choose(last, next, from.wrapping_add(PIECE_BYTES as u64));
        sent += 1;
    }
    if let Some(slot) = CGROUPS.get_ptr_mut(own as u32 & (CGROUP_SLOTS - 1)) {
        // SAFETY: the element outlives the program. If two CPUs write it at once, one wins; the
        // other's cgroup is sent again.
        unsafe { core::ptr::write_volatile(slot, own) };
    }
    true
}

/// The first of two numbers if `which` is 1, the second if it is 0.
#[inline(always)]
pub fn choose(which: u64, first: u64, second: u64) -> u64 {
    second ^ (first ^ second) & which.wrapping_neg()
}

/// A task's PID in the recorder's PID namespace; 0 for a task outside it.
#[inline(never)]
fn number_here(task: u64) -> u32 {
    let pid = peek(task, TASK_THREAD_PID.load());
    if pid == 0 {
        return 0;
    }
    let levels = peek(pid, PID_LEVEL.load()) as u32;
    let mut level = 0;
    while level < MAX_LEVELS && level <= levels {
        let number = pid + u64::from(PID_NUMBERS.load()) + u64::from(level) * UPID_BYTES;
        let namespace = peek(number, 8);
        if peek(namespace, PID_NS_COMMON.load() + NS_INUM.load()) as u32 == PID_NAMESPACE.load() {
            return peek(number, 0) as u32;
        }
        level += 1;
    }
    0
}

/// A field of a kernel object at any address, as a 64-bit word; 0 if it cannot be read.
#[inline(always)]
pub fn peek(base: u64, offset: u32) -> u64 {
    let mut word = 0u64;
    // SAFETY: the buffer has the given length; the kernel checks the source and zeroes what it cannot
    // read.
    unsafe {
        bpf_probe_read_kernel(
            (&raw mut word).cast(),
            size_of::<u64>() as u32,
            base.wrapping_add(u64::from(offset)) as *const _,
        );
    }
    word
}
