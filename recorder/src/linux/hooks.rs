//! The hooks of the BPF side: which program goes where, what it needs to know of the kernel's
//! structures, and what a recording lacks where a hook is missing.

use detour_abi::hook;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Raw tracepoints, all of them with one program.
    Raw(&'static [&'static str]),
    /// A BTF tracepoint: arguments are typed, fields are read directly.
    Btf(&'static str),
    /// The entry of a kernel function, and its return.
    Entry(&'static str),
    Return(&'static str),
    /// A software perf event on each watched CPU.
    PerfMinorFaults,
    PerfMajorFaults,
    /// An iterator over all tasks, run once at the beginning.
    Tasks,
}

/// The program that looks at all tasks.
pub const TASK_ITERATOR: &str = "throttled_at_start";

/// Processors that have a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    All,
    X86,
    /// All but x86, where it is not there, or attaches and never fires.
    Others,
}

#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// What it is called in manifests and by `doctor`.
    pub name: &'static str,
    /// Name of the program in the object.
    pub program: &'static str,
    pub attach: Attach,
    /// Index of its hit counter.
    pub counter: usize,
    /// A recording without it makes no sense.
    pub required: bool,
    /// The self-test makes it fire; where it does not, it is attached in vain.
    pub provoked: bool,
    /// Which processors have it.
    pub on: On,
    /// Not attached where this hook is, which does the same better.
    pub instead_of: Option<&'static str>,
    /// Attached only where the threads of a program are recorded.
    pub for_programs: bool,
    /// What is lost without it, in words.
    pub without: &'static str,
}

/// A structure field whose offset a program needs: name of the global, structure, field names tried
/// in order.
pub struct Offset {
    pub global: &'static str,
    pub structure: &'static str,
    pub fields: &'static [&'static str],
    /// Programs that cannot run without it.
    pub programs: &'static [&'static str],
}

macro_rules! vectors {
    ($suffix:literal) => {
        &[
            concat!("local_timer_", $suffix),
            concat!("reschedule_", $suffix),
            concat!("call_function_", $suffix),
            concat!("call_function_single_", $suffix),
            concat!("irq_work_", $suffix),
            concat!("x86_platform_ipi_", $suffix),
            concat!("thermal_apic_", $suffix),
            concat!("threshold_apic_", $suffix),
            concat!("deferred_error_apic_", $suffix),
            concat!("error_apic_", $suffix),
            concat!("spurious_apic_", $suffix),
        ]
    };
}

const fn hook(
    name: &'static str,
    program: &'static str,
    attach: Attach,
    counter: usize,
    without: &'static str,
) -> Hook {
    Hook {
        name,
        program,
        attach,
        counter,
        required: false,
        provoked: false,
        on: On::All,
        instead_of: None,
        for_programs: false,
        without,
    }
}

const fn for_programs(hook: Hook) -> Hook {
    Hook { for_programs: true, ..hook }
}

const fn required(hook: Hook) -> Hook {
    Hook { required: true, ..hook }
}

const fn provoked(hook: Hook) -> Hook {
    Hook { provoked: true, ..hook }
}

const fn x86(hook: Hook) -> Hook {
    Hook { on: On::X86, ..hook }
}

const fn others(hook: Hook) -> Hook {
    Hook { on: On::Others, ..hook }
}

/// What marks the end of a page fault best.
pub const FAULT_RETURN: &str = "handle_mm_fault return";
/// And what does it elsewhere.
pub const FAULT_EVENT: &str = "minor-faults";

/// Does the same where that cannot be had.
const fn second_best(hook: Hook) -> Hook {
    Hook { instead_of: Some(FAULT_RETURN), ..hook }
}

/// The hooks of this processor. Exits stand before entries, so that no entry is ever seen whose exit is
/// not.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    let x86 = cfg!(target_arch = "x86_64");
    HOOKS.iter().filter(move |hook| hook.on == On::All || (hook.on == On::X86) == x86)
}

const HOOKS: &[Hook] = &[
    x86(provoked(hook(
        "irq_vectors exit",
        "vector_exit",
        Attach::Raw(vectors!("exit")),
        hook::VECTOR_EXIT,
        "timer interrupts and IPIs are not seen; they appear as outside_kernel",
    ))),
    x86(provoked(hook(
        "irq_vectors entry",
        "vector_entry",
        Attach::Raw(vectors!("entry")),
        hook::VECTOR_ENTRY,
        "timer interrupts and IPIs are not seen; they appear as outside_kernel",
    ))),
    hook(
        "irq_handler_exit",
        "irq_exit",
        Attach::Raw(&["irq_handler_exit"]),
        hook::IRQ_EXIT,
        "device interrupts are not seen; they appear as outside_kernel",
    ),
    hook(
        "irq_handler_entry",
        "irq_entry",
        Attach::Btf("irq_handler_entry"),
        hook::IRQ_ENTRY,
        "device interrupts are not seen; they appear as outside_kernel",
    ),
    hook(
        "softirq_exit",
        "softirq_exit",
        Attach::Raw(&["softirq_exit"]),
        hook::SOFTIRQ_EXIT,
        "softirqs are not seen; they appear as outside_kernel",
    ),
    hook(
        "softirq_entry",
        "softirq_entry",
        Attach::Raw(&["softirq_entry"]),
        hook::SOFTIRQ_ENTRY,
        "softirqs are not seen; they appear as outside_kernel",
    ),
    x86(hook(
        "nmi_handler",
        "nmi",
        Attach::Raw(&["nmi_handler"]),
        hook::NMI,
        "NMIs are not seen; they appear as outside_kernel",
    )),
    provoked(hook(
        FAULT_RETURN,
        "fault_handled",
        Attach::Return("handle_mm_fault"),
        hook::FAULT_END,
        "page faults end a little early, at the software events",
    )),
    second_best(provoked(hook(
        FAULT_EVENT,
        "fault_end_minor",
        Attach::PerfMinorFaults,
        hook::FAULT_END,
        "page faults have no length of their own; the detour around them gives it",
    ))),
    second_best(hook(
        "major-faults",
        "fault_end_major",
        Attach::PerfMajorFaults,
        hook::FAULT_END,
        "page faults that need I/O are not told apart",
    )),
    // No tracepoint marks the start of a page fault there.
    others(provoked(hook(
        "handle_mm_fault entry",
        "fault_handle",
        Attach::Entry("handle_mm_fault"),
        hook::FAULT_HANDLE,
        "page faults are not seen",
    ))),
    x86(provoked(hook(
        "page_fault_user",
        "fault_user",
        Attach::Raw(&["page_fault_user"]),
        hook::FAULT_USER,
        "page faults from user mode are not seen",
    ))),
    x86(provoked(hook(
        "page_fault_kernel",
        "fault_kernel",
        Attach::Raw(&["page_fault_kernel"]),
        hook::FAULT_KERNEL,
        "page faults from kernel mode are not seen",
    ))),
    required(provoked(hook(
        "sched_switch",
        "sched_switch",
        Attach::Btf("sched_switch"),
        hook::SWITCH,
        "threads are not seen",
    ))),
    provoked(hook(
        "sched_waking",
        "sched_waking",
        Attach::Btf("sched_waking"),
        hook::WAKING,
        "who woke a thread is not known",
    )),
    provoked(hook(
        "task_rename",
        "task_rename",
        Attach::Btf("task_rename"),
        hook::RENAME,
        "a task that changes its name keeps the old one until it next leaves a measured CPU",
    )),
    hook(
        "cgroup_attach_task",
        "cgroup_attach",
        Attach::Btf("cgroup_attach_task"),
        hook::CGROUP_ATTACH,
        "a task that is moved to another cgroup is listed in the old one until it next leaves a measured CPU",
    ),
    hook(
        "timer_expire_entry",
        "timer_expire",
        Attach::Btf("timer_expire_entry"),
        hook::TIMER,
        "the callbacks of the TIMER softirq have no names",
    ),
    provoked(hook(
        "hrtimer_expire_entry",
        "hrtimer_expire",
        Attach::Btf("hrtimer_expire_entry"),
        hook::HRTIMER,
        "the callbacks of timer interrupts have no names",
    )),
    hook(
        "workqueue_execute_end",
        "work_end",
        Attach::Btf("workqueue_execute_end"),
        hook::WORK_END,
        "time of one kworker item may be laid to the next",
    ),
    hook(
        "workqueue_execute_start",
        "work_start",
        Attach::Btf("workqueue_execute_start"),
        hook::WORK_START,
        "what a kworker ran is not known",
    ),
    hook(
        "ipi_send_cpu",
        "ipi_send",
        Attach::Raw(&["ipi_send_cpu"]),
        hook::IPI_SEND,
        "who sent an IPI is not known (the kernel offers it from 6.4 on)",
    ),
    // On x86 IPIs have vectors of their own; there this attaches and never fires.
    others(hook(
        "ipi_entry",
        "ipi_entry",
        Attach::Raw(&["ipi_entry"]),
        hook::IPI_ENTRY,
        "who sent an IPI is not known",
    )),
    hook(
        "ipi_send_cpumask",
        "ipi_send_mask",
        Attach::Btf("ipi_send_cpumask"),
        hook::IPI_SEND_MASK,
        "who sent an IPI to several CPUs is not known (the kernel offers it from 6.4 on)",
    ),
    hook(
        "csd_function_entry",
        "csd_function",
        Attach::Raw(&["csd_function_entry"]),
        hook::CSD_FUNCTION,
        "which function an IPI ran is not known (the kernel offers it from 6.4 on)",
    ),
    Hook {
        provoked: true,
        ..hook(
            "sched_process_fork",
            "process_fork",
            Attach::Btf("sched_process_fork"),
            hook::FORK,
            "children of the watched program are not followed, and processes that end at once have no name",
        )
    },
    for_programs(provoked(hook(
        "sched_wakeup_new",
        "wakeup_new",
        Attach::Btf("sched_wakeup_new"),
        hook::WAKEUP_NEW,
        "how long a new thread waits before it first runs is not known",
    ))),
    for_programs(hook(
        "sched_migrate_task",
        "migrate_task",
        Attach::Btf("sched_migrate_task"),
        hook::MIGRATE,
        "what a thread waited for on a CPU that it left without running is not known",
    )),
    // The kernel hands out new quota in a timer interrupt, or has the CPU called for it.
    for_programs(x86(provoked(hook(
        "irq_vectors exit (quota)",
        "unthrottle",
        Attach::Raw(&[
            "local_timer_exit",
            "call_function_single_exit",
            "reschedule_exit",
            "irq_work_exit",
        ]),
        hook::UNTHROTTLE,
        "a thread that was throttled counts as such until it runs",
    )))),
    for_programs(others(hook(
        "irq_handler_exit (quota)",
        "unthrottle",
        Attach::Raw(&["irq_handler_exit", "ipi_exit"]),
        hook::UNTHROTTLE,
        "a thread that was throttled counts as such until it runs",
    ))),
    for_programs(hook(
        "task iterator",
        TASK_ITERATOR,
        Attach::Tasks,
        hook::TASKS,
        "that a thread was throttled before the recording began is not known",
    )),
];

/// An offset that programs run without.
const fn optional(
    global: &'static str,
    structure: &'static str,
    fields: &'static [&'static str],
) -> Offset {
    Offset { global, structure, fields, programs: &[] }
}

/// From a task to the name of its cgroup.
pub const CGROUP_OFFSETS: [&str; 6] =
    ["TASK_CGROUPS", "CSS_SET_CGROUP", "CGROUP_NODE", "NODE_ID", "NODE_PARENT", "NODE_NAME"];

pub const OFFSETS: &[Offset] = &[
    Offset {
        global: "TASK_PID",
        structure: "task_struct",
        fields: &["pid"],
        programs: &[
            "sched_switch",
            "sched_waking",
            "process_fork",
            "task_rename",
            "cgroup_attach",
            "wakeup_new",
            "migrate_task",
        ],
    },
    Offset {
        global: "TASK_TGID",
        structure: "task_struct",
        fields: &["tgid"],
        programs: &["sched_switch", "process_fork", "task_rename", "cgroup_attach"],
    },
    Offset {
        global: "TASK_COMM",
        structure: "task_struct",
        fields: &["comm"],
        programs: &["sched_switch", "process_fork", "task_rename", "cgroup_attach"],
    },
    Offset {
        global: "TASK_FLAGS",
        structure: "task_struct",
        fields: &["flags"],
        programs: &["sched_switch", "process_fork", "task_rename", "cgroup_attach"],
    },
    // Renamed in 5.14.
    Offset {
        global: "TASK_STATE",
        structure: "task_struct",
        fields: &["__state", "state"],
        programs: &["sched_switch"],
    },
    // From a task to the name of its cgroup.
    optional("TASK_CGROUPS", "task_struct", &["cgroups"]),
    optional("CSS_SET_CGROUP", "css_set", &["dfl_cgrp"]),
    optional("CGROUP_NODE", "cgroup", &["kn"]),
    optional("NODE_ID", "kernfs_node", &["id"]),
    // Renamed in 6.15.
    optional("NODE_PARENT", "kernfs_node", &["__parent", "parent"]),
    optional("NODE_NAME", "kernfs_node", &["name"]),
    // From a task to its numbers in PID namespaces.
    optional("TASK_LEADER", "task_struct", &["group_leader"]),
    optional("TASK_THREAD_PID", "task_struct", &["thread_pid"]),
    optional("PID_LEVEL", "pid", &["level"]),
    optional("PID_NUMBERS", "pid", &["numbers"]),
    optional("PID_NS_COMMON", "pid_namespace", &["ns"]),
    optional("NS_INUM", "ns_common", &["inum"]),
    // How long a thread has run since it came. Without, a switch that went by unseen has no date.
    optional("TASK_SE", "task_struct", &["se"]),
    optional("SE_RAN", "sched_entity", &["sum_exec_runtime"]),
    optional("SE_RAN_BEFORE", "sched_entity", &["prev_sum_exec_runtime"]),
    optional("TASK_POLICY", "task_struct", &["policy"]),
    optional("TASK_STATIC_PRIO", "task_struct", &["static_prio"]),
    optional("TASK_RT_PRIORITY", "task_struct", &["rt_priority"]),
    Offset {
        global: "TASK_ON_RQ",
        structure: "task_struct",
        fields: &["on_rq"],
        programs: &["migrate_task"],
    },
    // Before Linux 5.16 in the first of the two, since then in the second.
    optional("TASK_CPU", "task_struct", &["cpu"]),
    optional("TASK_THREAD_INFO", "task_struct", &["thread_info"]),
    optional("THREAD_INFO_CPU", "thread_info", &["cpu"]),
    // Bandwidth control, where the kernel has it; from Linux 6.18 it throttles single tasks.
    optional("SE_CFS_RQ", "sched_entity", &["cfs_rq"]),
    optional("CFS_RQ_THROTTLE_COUNT", "cfs_rq", &["throttle_count"]),
    optional("TASK_THROTTLED", "task_struct", &["throttled"]),
    optional("SE_DELAYED", "sched_entity", &["sched_delayed"]),
    optional("SE_PARENT", "sched_entity", &["parent"]),
    optional("CFS_RQ_THROTTLED", "cfs_rq", &["throttled"]),
    optional("CFS_RQ_GROUP", "cfs_rq", &["tg"]),
    optional("GROUP_CSS", "task_group", &["css"]),
    optional("CSS_CGROUP", "cgroup_subsys_state", &["cgroup"]),
    Offset {
        global: "IRQACTION_NEXT",
        structure: "irqaction",
        fields: &["next"],
        programs: &["irq_entry"],
    },
    Offset {
        global: "TIMER_FUNCTION",
        structure: "timer_list",
        fields: &["function"],
        programs: &["timer_expire"],
    },
    Offset {
        global: "HRTIMER_FUNCTION",
        structure: "hrtimer",
        fields: &["function"],
        programs: &["hrtimer_expire"],
    },
    Offset {
        global: "WORK_FUNC",
        structure: "work_struct",
        fields: &["func"],
        programs: &["work_start"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_a_name_of_its_own_and_stands_in_for_one_that_exists() {
        for (index, hook) in HOOKS.iter().enumerate() {
            assert!(HOOKS[..index].iter().all(|before| before.name != hook.name), "{}", hook.name);
            assert!(hook.counter < detour_abi::hook::COUNT, "{}", hook.name);
            if let Some(better) = hook.instead_of {
                // The better one is tried first.
                assert!(HOOKS[..index].iter().any(|before| before.name == better), "{better}");
            }
        }
    }

    #[test]
    fn each_processor_has_its_own_start_of_a_page_fault() {
        let names: Vec<&str> = hooks().map(|hook| hook.name).collect();
        let x86 = cfg!(target_arch = "x86_64");
        assert_eq!(names.contains(&"page_fault_user"), x86);
        assert_eq!(names.contains(&"handle_mm_fault entry"), !x86);
        assert!(names.contains(&FAULT_RETURN) && names.contains(&FAULT_EVENT));
    }
}
