//! Short-lived tasks: forks one child after another, each of which takes its own name, runs briefly and
//! exits.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use crate::os;

/// Long enough to be recorded, short enough for thousands per second.
const WORK: Duration = Duration::from_micros(20);

pub(crate) fn run(cpu: u32, seconds: f64, names: u64) -> Result<()> {
    os::pin(cpu)?;
    let start = Instant::now();
    let mut forks = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        let name = format!("short-{}", forks % names.max(1));
        // SAFETY: this process is single-threaded, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            0 => {
                os::name(&name);
                os::spin(WORK);
                // SAFETY: exits the child at once; there is nothing to clean up.
                unsafe { libc::_exit(0) };
            }
            child => {
                // SAFETY: waits for our own child; its status is not needed.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        }
        forks += 1;
    }
    let taken = start.elapsed().as_secs_f64();
    println!("{}", json!({ "forks": forks, "seconds": taken }));
    Ok(())
}
