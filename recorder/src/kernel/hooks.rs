//! The hooks of the BPF side: which program is attached where, which kernel structure fields it needs,
//! and what a recording lacks without it.

use recorder_abi::hook;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Raw tracepoints, all with the same program.
    Raw(&'static [&'static str]),
    /// A BTF tracepoint: arguments are typed, fields are read directly.
    Btf(&'static str),
    /// The entry and the return of a kernel function.
    Entry(&'static str),
    Return(&'static str),
    /// A software perf event on each watched CPU.
    PerfMinorFaults,
    PerfMajorFaults,
    /// An iterator over all tasks, run once at the beginning.
    Tasks,
}

/// The program of the task iterator.
pub const TASK_ITERATOR: &str = "throttled_at_start";

/// Processors that have a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    All,
    X86,
    /// All but x86, where it does not exist, or attaches and never fires.
    Others,
}

/// When a hook is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    Always,
    /// When the threads of a program are recorded.
    Programs,
    /// When isolated CPUs are audited.
    Audits,
}

#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Its name in manifests and in `doctor`.
    pub name: &'static str,
    /// Name of the program in the object.
    pub program: &'static str,
    pub attach: Attach,
    /// Index of its hit counter.
    pub counter: usize,
    /// A recording without it is useless.
    pub required: bool,
    /// The self-test triggers it; if it does not fire then, it is useless.
    pub provoked: bool,
    /// Which processors have it.
    pub on: On,
    /// Not attached if this hook is, which does the same better.
    pub instead_of: Option<&'static str>,
    /// When it is attached.
    pub only: Only,
    /// What is lost without it, as text.
    pub without: &'static str,
}

/// A structure field whose offset a program needs: name of the global, structure, field names tried in
/// order.
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
        only: Only::Always,
        without,
    }
}

const fn for_programs(hook: Hook) -> Hook {
    Hook { only: Only::Programs, ..hook }
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

/// The best marker for the end of a page fault.
pub const FAULT_RETURN: &str = "handle_mm_fault return";
/// The alternative elsewhere.
pub const FAULT_EVENT: &str = "minor-faults";

/// Used where that is not available.
const fn second_best(hook: Hook) -> Hook {
    Hook { instead_of: Some(FAULT_RETURN), ..hook }
}

/// The hooks of this processor. Exits are attached before entries, so that every entry that is seen has
/// its exit seen.
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
        "timer interrupts and IPIs are not recorded; they appear as outside_kernel",
    ))),
    x86(provoked(hook(
        "irq_vectors entry",
        "vector_entry",
        Attach::Raw(vectors!("entry")),
        hook::VECTOR_ENTRY,
        "timer interrupts and IPIs are not recorded; they appear as outside_kernel",
    ))),
    hook(
        "irq_handler_exit",
        "irq_exit",
        Attach::Raw(&["irq_handler_exit"]),
        hook::IRQ_EXIT,
        "device interrupts are not recorded; they appear as outside_kernel",
    ),
    hook(
        "irq_handler_entry",
        "irq_entry",
        Attach::Btf("irq_handler_entry"),
        hook::IRQ_ENTRY,
        "device interrupts are not recorded; they appear as outside_kernel",
    ),
    hook(
        "softirq_exit",
        "softirq_exit",
        Attach::Raw(&["softirq_exit"]),
        hook::SOFTIRQ_EXIT,
        "softirqs are not recorded; they appear as outside_kernel",
    ),
    hook(
        "softirq_entry",
        "softirq_entry",
        Attach::Raw(&["softirq_entry"]),
        hook::SOFTIRQ_ENTRY,
        "softirqs are not recorded; they appear as outside_kernel",
    ),
    hook(
        "softirq_raise",
        "softirq_raise",
        Attach::Raw(&["softirq_raise"]),
        hook::SOFTIRQ_RAISE,
        "the processes behind network and block softirqs are unknown",
    ),
    x86(hook(
        "nmi_handler",
        "nmi",
        Attach::Raw(&["nmi_handler"]),
        hook::NMI,
        "NMIs are not recorded; they appear as outside_kernel",
    )),
    provoked(hook(
        FAULT_RETURN,
        "fault_handled",
        Attach::Return("handle_mm_fault"),
        hook::FAULT_END,
        "page faults end slightly early, at the software events",
    )),
    second_best(provoked(hook(
        FAULT_EVENT,
        "fault_end_minor",
        Attach::PerfMinorFaults,
        hook::FAULT_END,
        "page faults have no length; the detour around them gives it",
    ))),
    second_best(hook(
        "major-faults",
        "fault_end_major",
        Attach::PerfMajorFaults,
        hook::FAULT_END,
        "major page faults are not distinguished",
    )),
    // No tracepoint marks the start of a page fault there.
    others(provoked(hook(
        "handle_mm_fault entry",
        "fault_handle",
        Attach::Entry("handle_mm_fault"),
        hook::FAULT_HANDLE,
        "page faults are not recorded",
    ))),
    x86(provoked(hook(
        "page_fault_user",
        "fault_user",
        Attach::Raw(&["page_fault_user"]),
        hook::FAULT_USER,
        "page faults from user mode are not recorded",
    ))),
    x86(provoked(hook(
        "page_fault_kernel",
        "fault_kernel",
        Attach::Raw(&["page_fault_kernel"]),
        hook::FAULT_KERNEL,
        "page faults from kernel mode are not recorded",
    ))),
    required(provoked(hook(
        "sched_switch",
        "sched_switch",
        Attach::Btf("sched_switch"),
        hook::SWITCH,
        "threads are not recorded",
    ))),
    provoked(hook(
        "sched_waking",
        "sched_waking",
        Attach::Btf("sched_waking"),
        hook::WAKING,
        "the wakers of threads are unknown",
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
        "a task that changes its cgroup stays in the old one until it next leaves a measured CPU",
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
        "the time of one work item may be attributed to the next",
    ),
    hook(
        "workqueue_execute_start",
        "work_start",
        Attach::Btf("workqueue_execute_start"),
        hook::WORK_START,
        "the work functions of kworkers are unknown",
    ),
    hook(
        "ipi_send_cpu",
        "ipi_send",
        Attach::Raw(&["ipi_send_cpu"]),
        hook::IPI_SEND,
        "the senders of IPIs are unknown (requires Linux 6.4 or later)",
    ),
    // On x86 IPIs have their own vectors; there this attaches and never fires.
    others(hook(
        "ipi_entry",
        "ipi_entry",
        Attach::Raw(&["ipi_entry"]),
        hook::IPI_ENTRY,
        "the senders of IPIs are unknown",
    )),
    hook(
        "ipi_send_cpumask",
        "ipi_send_mask",
        Attach::Btf("ipi_send_cpumask"),
        hook::IPI_SEND_MASK,
        "the senders of IPIs to several CPUs are unknown (requires Linux 6.4 or later)",
    ),
    hook(
        "csd_function_entry",
        "csd_function",
        Attach::Raw(&["csd_function_entry"]),
        hook::CSD_FUNCTION,
        "the functions called by IPIs are unknown (requires Linux 6.4 or later)",
    ),
    Hook {
        provoked: true,
        ..hook(
            "sched_process_fork",
            "process_fork",
            Attach::Btf("sched_process_fork"),
            hook::FORK,
            "children of the program are not followed, and short-lived processes have no name",
        )
    },
    for_programs(provoked(hook(
        "sched_wakeup_new",
        "wakeup_new",
        Attach::Btf("sched_wakeup_new"),
        hook::WAKEUP_NEW,
        "the wait of a new thread before it first runs is unknown",
    ))),
    for_programs(hook(
        "sched_migrate_task",
        "migrate_task",
        Attach::Btf("sched_migrate_task"),
        hook::MIGRATE,
        "waits on a CPU that a thread left without running are unexplained",
    )),
    // The kernel refills the quota in a timer interrupt, or sends an IPI to the CPU for it.
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
        "a throttled thread counts as throttled until it runs",
    )))),
    for_programs(others(hook(
        "irq_handler_exit (quota)",
        "unthrottle",
        Attach::Raw(&["irq_handler_exit", "ipi_exit"]),
        hook::UNTHROTTLE,
        "a throttled thread counts as throttled until it runs",
    ))),
    for_programs(hook(
        "task iterator",
        TASK_ITERATOR,
        Attach::Tasks,
        hook::TASKS,
        "threads throttled before the recording began are not recognized",
    )),
    Hook {
        only: Only::Audits,
        ..hook(
            "tick_stop",
            "tick_stop",
            Attach::Raw(&["tick_stop"]),
            hook::TICK_STOP,
            "what keeps the tick running is unknown",
        )
    },
];

/// An offset that programs can run without.
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
    // How long a thread has run since it was switched in. Without it, the time of a missed switch is
    // unknown.
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
    // In the first of the two before Linux 5.16, in the second since then.
    optional("TASK_CPU", "task_struct", &["cpu"]),
    optional("TASK_THREAD_INFO", "task_struct", &["thread_info"]),
    optional("THREAD_INFO_CPU", "thread_info", &["cpu"]),
    // Bandwidth control, if the kernel has it; from Linux 6.18 it throttles single tasks.
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
            assert!(hook.counter < recorder_abi::hook::COUNT, "{}", hook.name);
            if let Some(better) = hook.instead_of {
                // The preferred one is tried first.
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
