//! Short tasks: forks one after the other, each of which takes a name of its own, works for a moment
//! and ends.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use crate::os;

/// Long enough to be seen, short enough for thousands a second.
const WORK: Duration = Duration::from_micros(20);

pub(crate) fn run(cpu: u32, seconds: f64, names: u64) -> Result<()> {
    os::pin(cpu)?;
    let start = Instant::now();
    let mut forks = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        let name = format!("short-{}", forks % names.max(1));
        // SAFETY: this process has one thread, so the child may do anything it could.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            0 => {
                os::name(&name);
                os::spin(WORK);
                // SAFETY: ends the child at once; there is nothing to tidy up.
                unsafe { libc::_exit(0) };
            }
            child => {
                // SAFETY: waits for our own child; nobody wants its status.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        }
        forks += 1;
    }
    let taken = start.elapsed().as_secs_f64();
    println!("{}", json!({ "forks": forks, "seconds": taken }));
    Ok(())
}
