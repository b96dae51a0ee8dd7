//! The rules that turn the kernel's numbers and names into ones a person would use.

use std::fs;

use detour_abi::{Record, flag, kind};
use trace::Class;

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
    let comm = fs::read_to_string(format!("/proc/{tid}/comm")).ok()?.trim_end().to_owned();
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(tid);
    let cgroups = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
    Some((comm, tgid, path))
}

/// Kernel threads are children of kthreadd and have no memory of their own.
pub fn is_kernel_thread(tid: u32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/status"))
        .is_ok_and(|status| !status.lines().any(|line| line.starts_with("VmSize:")))
}
