//! Measurements that must not be disturbed. Another process, or another guest of the machine, may take a CPU from
//! them: one of several attempts must succeed. If none does, and the kernel counted steal time meanwhile, the test is
//! skipped and says why; without steal time it fails.

use libtest_mimic::{Completion, Failed};

const ATTEMPTS: usize = 4;

pub fn attempts(test: impl Fn() -> Result<(), Failed>) -> Result<Completion, Failed> {
    let before = stolen();
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        match test() {
            Ok(()) => return Ok(Completion::Completed),
            Err(why) => failed = Some(why),
        }
    }
    match failed {
        Some(why) if stolen() <= before => Err(why),
        why => {
            let why = why.and_then(|why| why.message().map(ToOwned::to_owned)).unwrap_or_default();
            Ok(Completion::ignored_with(format!("a hypervisor took time: {why}")))
        }
    }
}

/// Steal time of all CPUs, in ticks.
fn stolen() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    text.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
