//! Process numbers. The kernel side uses those of the initial PID namespace. This process, its user and
//! system calls use those of its own PID namespace, and /proc those of the namespace it was mounted for.
//! Outside containers all three are the same.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use crate::node::{files, machine};

/// Inode of the initial PID namespace, fixed in the kernel.
const FIRST_NAMESPACE: u32 = 0xefff_fffc;

/// Inode of the PID namespace of this process; None if it is the initial one, whose numbers BPF programs
/// see.
pub fn own_namespace() -> Option<u32> {
    namespace("self").filter(|inode| *inode != FIRST_NAMESPACE)
}

/// Whether /proc shows processes by the kernel's own numbers.
pub fn proc_has_kernels_numbers() -> bool {
    own_namespace().is_none() || namespace("1") == Some(FIRST_NAMESPACE)
}

fn namespace(process: &str) -> Option<u32> {
    let link = fs::read_link(format!("/proc/{process}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The number in /proc of a process of this namespace; None if there is no such process.
pub fn in_proc(pid: u32) -> Option<u32> {
    if depth_of_proc() == 1 {
        return Some(pid);
    }
    let descriptor = open(pid, 0).or_else(|| open(pid, PIDFD_THREAD))?;
    let about = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    field(&files::text(about), "Pid:")?.parse().ok()
}

/// The process that a process or thread of this namespace belongs to, by its number here.
pub fn process_of(pid: u32) -> Option<u32> {
    // If /proc shows another namespace, the user may have taken the number from there.
    let status = |number: u32| files::read(format!("/proc/{number}/status"));
    let status = in_proc(pid).and_then(status).or_else(|| status(pid))?;
    let numbers = field(&status, "NStgid:").or_else(|| field(&status, "Tgid:"))?;
    numbers.split_whitespace().nth(depth_of_proc() - 1)?.parse().ok()
}

/// The number in this namespace of the thread that is `tid` in /proc.
pub fn here(tid: u32) -> Option<u32> {
    let status = files::read(format!("/proc/{tid}/status"))?;
    field(&status, "NSpid:")?.split_whitespace().nth(depth_of_proc() - 1)?.parse().ok()
}

/// Whether a process of this namespace has a thread that can run.
pub fn runs(pid: u32) -> bool {
    in_proc(pid).is_some_and(machine::runs)
}

/// Sets this thread's name again, so that the kernel side announces it.
pub fn announce_self() {
    if let Ok(name) = rustix::thread::name() {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Nesting depth of this process's namespace as seen from that of /proc: 1 if they are the same.
fn depth_of_proc() -> usize {
    let status = files::text("/proc/self/status");
    field(&status, "NSpid:").map_or(1, |numbers| numbers.split_whitespace().count().max(1))
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// For threads other than the group leader, since Linux 6.9.
const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

fn open(pid: u32, flags: u32) -> Option<OwnedFd> {
    // SAFETY: takes two numbers, touches no memory.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    // SAFETY: a descriptor that was just created and has no other owner.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_threads_are_found_and_others_are_not() {
        let own = std::process::id();
        assert_eq!(process_of(own), Some(own));
        let thread = std::thread::spawn(|| {
            process_of(rustix::thread::gettid().as_raw_nonzero().get() as u32)
        });
        assert_eq!(thread.join().expect("ended"), Some(own));
        // No kernel assigns such numbers.
        assert_eq!(process_of(5_000_000), None);
        assert_eq!(in_proc(own).and_then(here), Some(own));
        assert!(runs(own) && !runs(5_000_000));
    }
}
