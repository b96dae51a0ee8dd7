//! `detour top`: a live view of a recording in the terminal. This crate handles the recorder and the
//! terminal; the `live` crate decides what is shown and what keys do.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod keys;
mod recording;
mod screen;
mod watch;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

pub use live::{By, Look};

/// What to watch, and how to show it.
pub struct Request {
    pub options: recorder::Options,
    /// Without kernel records, fall back to a single probe.
    pub may_fall_back: bool,
    /// Between frames.
    pub interval: Duration,
    /// Name of the trace that a key writes; see [`recorder::output_name`].
    pub output: Option<PathBuf>,
    pub look: Look,
    /// What the rows of the table stand for at first.
    pub by: By,
}

/// Messages to print once the terminal is restored.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub remarks: Vec<String>,
    pub said: Vec<String>,
}

/// Shows the recording until the user quits, a signal arrives or the recording ends. `say` prints
/// messages before the terminal changes.
pub fn run(request: &Request, say: &dyn Fn(&str)) -> Result<Ended> {
    let recording = recording::start(request, say)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch::watch(recording, request))
}
