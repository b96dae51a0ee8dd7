//! The rules that turn the kernel's numbers and names into readable ones.

use recorder_abi::{PF_KTHREAD, Record, flag, kind, sched};
use trace::Class;

use crate::node::files;

const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Name of a softirq vector.
pub fn softirq(vector: u32) -> String {
    match SOFTIRQS.get(vector as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("softirq {vector}"),
    }
}

/// Class and name of an x86 interrupt vector; the numbers have been stable for years.
pub fn vector(vector: u32) -> (Class, String) {
    let (class, name) = match vector {
        0xec => (Class::Timer, "timer"),
        0xfd => (Class::Ipi, "reschedule"),
        0xfc => (Class::Ipi, "call_function"),
        0xfb => (Class::Ipi, "call_function_single"),
        0xf6 => (Class::Ipi, "irq_work"),
        0xf7 => (Class::Ipi, "x86_platform_ipi"),
        0xfa => (Class::Irq, "thermal"),
        0xf9 => (Class::Irq, "threshold"),
        0xf4 => (Class::Irq, "deferred_error"),
        0xfe => (Class::Irq, "apic_error"),
        0xff => (Class::Irq, "spurious"),
        _ => return (Class::Irq, format!("vector {vector:#x}")),
    };
    (class, name.to_owned())
}

pub fn is_tick(function: &str) -> bool {
    matches!(function, "tick_nohz_handler" | "tick_sched_timer" | "tick_nohz_highres_handler")
}

/// Whether a timer's function wakes the task that set the timer.
pub fn wakes_a_sleeper(function: &str) -> bool {
    const FUNCTIONS: [&str; 5] =
        ["hrtimer_wakeup", "process_timeout", "posix_timer_fn", "it_real_fn", "timerfd_tmrproc"];
    FUNCTIONS.contains(&function)
}

/// Kernel threads come one per CPU or pool: `ksoftirqd/3`, `kworker/u8:2`. They are one source.
pub fn kernel_thread_name(comm: &str) -> String {
    match comm.split_once('/') {
        Some(("kworker", _)) => "kworker".to_owned(),
        Some((name, cpu)) if cpu.bytes().all(|b| b.is_ascii_digit() || b == b':') => {
            name.to_owned()
        }
        _ => comm.to_owned(),
    }
}

/// Scheduling policy and priority as sent by the kernel side: `SCHED_FIFO 60`, `SCHED_OTHER nice 0`.
pub fn policy(code: u32) -> Option<String> {
    if code & sched::KNOWN == 0 {
        return None;
    }
    let (policy, level) = ((code & !sched::KNOWN) >> 8, code & 0xff);
    let name = match policy {
        0 => "SCHED_OTHER",
        sched::FIFO => "SCHED_FIFO",
        sched::RR => "SCHED_RR",
        3 => "SCHED_BATCH",
        5 => "SCHED_IDLE",
        sched::DEADLINE => "SCHED_DEADLINE",
        7 => "SCHED_EXT",
        _ => return Some(format!("policy {policy}")),
    };
    Some(match policy {
        sched::FIFO | sched::RR => format!("{name} {level}"),
        sched::DEADLINE => name.to_owned(),
        _ => format!("{name} nice {}", i64::from(level) - 20),
    })
}

/// Bits of the x86 error code: 1 protection, 2 write, 16 instruction fetch.
pub fn fault_kind(record: &Record) -> String {
    let mode = if record.kind() == kind::FAULT_USER { "user" } else { "kernel" };
    let access = match record.id {
        code if code & 16 != 0 => "execute",
        code if code & 2 != 0 => "write",
        _ => "read",
    };
    let cause = if record.id & 1 != 0 { "protected page" } else { "missing page" };
    let weight = match record.flags {
        flags if flags & flag::POINT != 0 => "",
        flags if flags & flag::MAJOR != 0 => ", major",
        _ => ", minor",
    };
    format!("{mode} {access}, {cause}{weight}")
}

/// comm, tgid and cgroup path of a living task.
pub fn from_proc(tid: u32) -> Option<(String, u32, Option<String>)> {
    let comm = files::read(format!("/proc/{tid}/comm"))?.trim_end().to_owned();
    let status = files::text(format!("/proc/{tid}/status"));
    let tgid = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(tid);
    let cgroups = files::text(format!("/proc/{tid}/cgroup"));
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
    Some((comm, tgid, path))
}

/// Whether a living task is a kernel thread, by the flags in its `stat`. Having no memory is not proof: a
/// zombie has none either.
pub fn is_kernel_thread(tid: u32) -> bool {
    let stat = files::text(format!("/proc/{tid}/stat"));
    task_flags(&stat).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// `task_struct.flags`, the ninth field; the second, the name in parentheses, may contain anything.
fn task_flags(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_need_not_be_text() {
        let named = || {
            fs::write("/proc/thread-self/comm", b"\xff\xfebad").expect("its own name");
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let (name, tgid, _) = from_proc(tid).expect("it lives");
            assert_eq!((name.as_str(), tgid), ("\u{fffd}\u{fffd}bad", std::process::id()));
            assert!(crate::node::machine::placed(tid).is_some_and(|(runs, _)| runs));
            assert!(!is_kernel_thread(tid));
        };
        std::thread::spawn(named).join().expect("no panic");
    }

    #[test]
    fn a_name_full_of_spaces_and_parentheses_does_not_move_the_flags() {
        let stat = "2 (a) R (b) S 0 0 0 0 -1 2129984 0 0";
        assert_eq!(task_flags(stat), Some(2_129_984));
        assert!(task_flags("2 (cut off) S 0").is_none());
    }

    #[test]
    fn a_zombie_is_not_a_kernel_thread() {
        let mut child = std::process::Command::new("true").spawn().expect("start true");
        let stat = format!("/proc/{}/stat", child.id());
        // Not reaped, so its number is not reused until it is waited for.
        while !fs::read_to_string(&stat).expect("stat of a child").contains(") Z ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!is_kernel_thread(child.id()));
        child.wait().expect("reap it");
    }

    #[test]
    fn kthreadd_is_a_kernel_thread_where_it_can_be_seen() {
        // In a nested PID namespace, process 2 is something else.
        let comm = fs::read_to_string("/proc/2/comm").unwrap_or_default();
        assert_eq!(is_kernel_thread(2), comm == "kthreadd\n");
    }
}
