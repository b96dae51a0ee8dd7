//! Signals, handled on a thread of their own. A handler may do anything: it does not interrupt other
//! code.

use std::{future::poll_fn, task::Poll};

use anyhow::{Context, Result};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// From now on, these signals call `act` instead of their default actions.
pub fn handle(
    kinds: &[SignalKind],
    mut act: impl FnMut(SignalKind) + Send + 'static,
) -> Result<()> {
    let cannot = "cannot handle signals";
    let runtime = Builder::new_current_thread().enable_io().build().context(cannot)?;
    let mut signals = Vec::new();
    let entered = runtime.enter();
    for &kind in kinds {
        signals.push((kind, signal(kind).context(cannot)?));
    }
    drop(entered);
    let wait = move || {
        // The recorder's other threads drop theirs when they have what they need; this one needs none.
        #[cfg(target_os = "linux")]
        recorder::give_up();
        runtime.block_on(poll_fn(|context| {
            for (kind, signal) in &mut signals {
                while signal.poll_recv(context).is_ready() {
                    act(*kind);
                }
            }
            Poll::<()>::Pending
        }))
    };
    std::thread::Builder::new().name("detour-signals".to_owned()).spawn(wait).context(cannot)?;
    Ok(())
}
