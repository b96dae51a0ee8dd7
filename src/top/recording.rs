//! The recording behind the view: a thread that runs until it is told to stop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use recorder::{CpuSet, Delivery, Feed, Options, Outcome, RecordError, machine};
use tokio::sync::oneshot;

/// What is to be watched.
pub struct Wanted {
    pub options: Options,
    /// Where the kernel's records cannot be had, one probe is better than nothing.
    pub may_fall_back: bool,
}

type End = Result<Outcome, RecordError>;

pub struct Recording {
    pub feed: Feed,
    /// What came first, with the manifest in it.
    pub first: Delivery,
    /// Sends once, when the recording has ended by itself.
    pub ended: oneshot::Receiver<()>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<End>,
}

/// Starts and waits until it runs, so that whatever is wrong is said before the terminal changes.
pub fn start(wanted: Wanted) -> Result<Recording> {
    match attempt(wanted.options.clone())? {
        Ok(recording) => Ok(recording),
        Err(RecordError::Bpf(error)) if wanted.may_fall_back => {
            tell!("detour: {error}");
            let cpus = wanted.options.cpus.clone().or_else(last_cpu);
            let options = Options { cpus, no_bpf: true, no_probe: false, ..wanted.options };
            let said = match &options.cpus {
                Some(cpus) => recorder::format_cpus(cpus),
                None => "all".to_owned(),
            };
            tell!("detour: going on with a probe on CPU {said} alone, without names");
            let mut recording = attempt(options)??;
            if let Some(manifest) = &mut recording.first.manifest {
                manifest.limits.insert(0, format!("probe alone, without names: {error}"));
            }
            Ok(recording)
        }
        Err(error) => Err(error.into()),
    }
}

/// One that the kernel's own business is least likely to be on.
fn last_cpu() -> Option<CpuSet> {
    machine::allowed().last().map(|&cpu| CpuSet::from([cpu]))
}

fn attempt(options: Options) -> Result<Result<Recording, RecordError>> {
    let (feed, stop) = (Feed::default(), Arc::new(AtomicBool::new(false)));
    let (say_end, ended) = oneshot::channel();
    let thread = {
        let (feed, stop) = (feed.clone(), Arc::clone(&stop));
        let body = move || {
            let watch = recorder::Watch {
                stop: &stop,
                // There is none.
                end_command: &AtomicBool::new(false),
                progress: &|_| {},
                feed: Some(&feed),
            };
            let end = recorder::record(&options, &watch);
            // Nobody may be waiting any more.
            let _ = say_end.send(());
            end
        };
        std::thread::Builder::new().name("detour-record".to_owned()).spawn(body)
    };
    let thread = thread.context("cannot start the recorder's thread")?;
    loop {
        let first = feed.take();
        if first.manifest.is_some() {
            return Ok(Ok(Recording { feed, first, ended, stop, thread }));
        }
        if thread.is_finished() {
            let end = thread.join().map_err(|_| anyhow!("the recorder broke"))?;
            return match end {
                Err(error) => Ok(Err(error)),
                Ok(_) => Err(anyhow!("the recording ended before it began")),
            };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Recording {
    /// Ends it and says how it went.
    pub fn stop(self) -> Result<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        let end = self.thread.join().map_err(|_| anyhow!("the recorder broke"))?;
        Ok(end?)
    }
}
