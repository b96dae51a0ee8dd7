//! Programs that wait for a CPU, and the kernel's accounting of it: threads that burn CPU time, children
//! behind a parent that cannot be preempted, and tasks whose page faults end in an unusual way.

use std::{
    fs,
    io::{Read, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::os;

/// Interval between migrations.
const STAY: Duration = Duration::from_millis(5);
/// Duration of each burst and each sleep.
const NAP: Duration = Duration::from_millis(5);

/// What threads do besides burning CPU time.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) cpu: Option<u32>,
    pub(crate) migrate: bool,
    pub(crate) sleep: bool,
}

/// Burns CPU time in several threads; prints the kernel's schedstat of each over its lifetime.
pub(crate) fn work(threads: u32, seconds: f64, manner: Manner) -> Result<()> {
    let body = move || -> Result<Value> {
        os::name("work");
        if let Some(cpu) = manner.cpu {
            os::pin(cpu)?;
        }
        let start = Instant::now();
        let mut next = start + STAY;
        let mut to = 0;
        while start.elapsed().as_secs_f64() < seconds {
            if manner.migrate && Instant::now() >= next {
                os::pin(to)?;
                to = 1 - to;
                next = Instant::now() + STAY;
            }
            if manner.sleep && Instant::now() >= next {
                std::thread::sleep(NAP);
                next = Instant::now() + NAP;
            }
        }
        schedstat()
    };
    let threads: Vec<_> = (0..threads).map(|_| std::thread::spawn(body)).collect();
    let mut all = Vec::new();
    for thread in threads {
        all.push(thread.join().ok().context("a thread panicked")??);
    }
    println!("{}", json!({ "threads": all }));
    Ok(())
}

/// Longer than an unpreempted read of a line of /proc.
const UNDISTURBED_NS: u64 = 200_000;
/// If reading always takes longer, the last attempt counts.
const ATTEMPTS: u32 = 100;

/// Schedstat of the calling thread, read without being preempted.
fn schedstat() -> Result<Value> {
    let (mut text, mut at) = (String::new(), 0);
    for _ in 0..ATTEMPTS {
        let start = os::monotonic_ns();
        text = fs::read_to_string("/proc/thread-self/schedstat")?;
        // Not read again later: a wait that begins meanwhile is in no figure read here.
        at = os::monotonic_ns();
        if at - start < UNDISTURBED_NS {
            break;
        }
    }
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let mut word = || words.next().context("schedstat is too short")?.context("not a number");
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    Ok(json!({
        "tid": tid, "run_ns": word()?, "delay_ns": word()?, "waits": word()?, "at_ns": at
    }))
}

/// Forks children that wait for a CPU behind their parent, which has real-time priority and burns CPU time
/// after each fork; prints how long each waited before it first ran.
pub(crate) fn children(cpu: u32, count: u32, burn: Duration) -> Result<()> {
    os::pin(cpu)?;
    os::fifo(10)?;
    let (mut read, mut write) = std::io::pipe()?;
    for _ in 0..count {
        // SAFETY: this process is single-threaded, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            0 => {
                let line = schedstat().map(|stat| format!("{stat}\n")).unwrap_or_default();
                let _ = write.write_all(line.as_bytes());
                // SAFETY: exits the child at once; there is nothing to clean up.
                unsafe { libc::_exit(0) };
            }
            _ => {}
        }
        os::burn(burn);
        std::thread::sleep(2 * burn);
    }
    for _ in 0..count {
        // SAFETY: waits for any of our own children; its status is not needed.
        unsafe { libc::wait(std::ptr::null_mut()) };
    }
    drop(write);
    let mut text = String::new();
    read.read_to_string(&mut text)?;
    let children: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(children.len() == count as usize, "{} of {count} children answered", children.len());
    println!("{}", json!({ "children": children }));
    Ok(())
}

/// Waits for a line on stdin, touches fresh pages and exits at once.
pub(crate) fn touch_and_end(pages: usize) -> Result<()> {
    os::name("brief");
    let mut line = String::new();
    println!("ready");
    std::io::stdin().read_line(&mut line)?;
    let page = rustix::param::page_size();
    let memory = vec![0u8; (pages + 1) * page];
    for at in 0..pages {
        // SAFETY: inside the vector; volatile, so that the page is touched.
        unsafe { memory.as_ptr().cast_mut().add(at * page).write_volatile(1) };
    }
    // SAFETY: exits the process at once; there is nothing to clean up.
    unsafe { libc::_exit(0) };
}

/// Forks children that access unmapped memory, which kills them.
pub(crate) fn refused(cpu: u32, count: u32) -> Result<()> {
    os::pin(cpu)?;
    let mut ended = 0;
    for _ in 0..count {
        // SAFETY: this process is single-threaded, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            0 => {
                os::name("refused");
                let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
                let _ = rustix::process::setrlimit(rustix::process::Resource::Core, limit);
                // SAFETY: deliberately invalid: the address is unmapped, and the child is to crash.
                unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
                // SAFETY: not reached.
                unsafe { libc::_exit(0) };
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for our own child; the pointer is to a live value.
                unsafe { libc::waitpid(child, &mut status, 0) };
                ended += u32::from(libc::WIFSIGNALED(status));
            }
        }
    }
    println!("{}", json!({ "refused": ended }));
    Ok(())
}
