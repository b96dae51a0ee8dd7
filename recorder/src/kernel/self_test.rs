//! Some hooks attach and never fire. The self-test triggers what can be triggered, before a recording
//! relies on it.

use std::{fs::File, io::Read, time::Duration};

use crate::{
    cpulist::CpuSet,
    kernel::{
        bpf::{Bpf, Wanted},
        hooks::{Hook, hooks},
    },
    node::machine,
};

/// Ends as soon as everything has fired; a busy machine needs longer.
const ROUNDS: u32 = 40;
/// Longer than a tick, which must occur.
const PAUSE: Duration = Duration::from_millis(5);

/// Hits of each hook, by its counter.
pub fn hits(bpf: &Bpf, watched: &CpuSet) -> Vec<u64> {
    bpf.watch(|_| Wanted::Track);
    let mut hits = count(bpf);
    for _ in 0..ROUNDS {
        provoke(watched);
        hits = count(bpf);
        if silent(bpf, &hits).next().is_none() {
            break;
        }
    }
    bpf.watch(|_| Wanted::Nothing);
    hits
}

/// Attached hooks that should have fired and did not.
pub fn silent<'a>(bpf: &'a Bpf, hits: &'a [u64]) -> impl Iterator<Item = &'static Hook> + 'a {
    let attached = hooks().filter(|hook| bpf.has(hook.name));
    attached.filter(|hook| hook.provoked && hits.get(hook.counter).is_none_or(|&n| n == 0))
}

fn count(bpf: &Bpf) -> Vec<u64> {
    let mut hits = vec![0; recorder_abi::hook::COUNT];
    for state in bpf.states() {
        for (sum, hits) in hits.iter_mut().zip(state.hits) {
            *sum += hits;
        }
    }
    hits
}

/// Switches, a wakeup, a timer, a new task and a new name; page faults from both modes. On a watched
/// CPU, since some hooks are only on those.
fn provoke(watched: &CpuSet) {
    let watched = watched.clone();
    let work = move || {
        machine::pin(&watched);
        let touched = vec![1u8; 1 << 16];
        std::hint::black_box(&touched);
        // Fresh pages that the kernel touches first.
        let mut untouched = vec![0u8; 1 << 20];
        let zeros = File::open("/dev/zero").and_then(|mut zeros| zeros.read(&mut untouched));
        std::hint::black_box((zeros.is_ok(), &untouched));
        std::thread::sleep(PAUSE);
    };
    let started = std::thread::Builder::new().name("detour-test".into()).spawn(work);
    // Without a thread nothing is triggered, and the hooks that should have fired are reported.
    let _ = started.map(std::thread::JoinHandle::join);
}
