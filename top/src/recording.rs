//! The recording behind the view, in a thread that runs until stopped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use recorder::{CpuSet, Delivery, Feed, Options, RecordError, RecordResult, machine};
use tokio::sync::oneshot;

use crate::Request;

type End = Result<RecordResult, RecordError>;

pub struct Recording {
    pub feed: Feed,
    /// The first delivery, which contains the manifest.
    pub first: Delivery,
    /// Signals that the recording ended by itself.
    pub ended: oneshot::Receiver<()>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<End>,
}

/// Starts the recording and waits until it runs, so that errors are printed before the terminal changes.
pub fn start(request: &Request, say: &dyn Fn(&str)) -> Result<Recording> {
    match attempt(request.options.clone())? {
        Ok(recording) => Ok(recording),
        Err(RecordError::Bpf(error)) if request.may_fall_back => {
            say(&error.to_string());
            let options = request.options.clone();
            let cpus = options.cpus.clone().or_else(last_cpu);
            let options = Options { cpus, no_bpf: true, no_probe: false, ..options };
            let said = match &options.cpus {
                Some(cpus) => recorder::format_cpus(cpus),
                None => "all".to_owned(),
            };
            say(&format!("falling back to the probe on CPU {said}, without sources"));
            let mut recording = attempt(options)??;
            if let Some(manifest) = &mut recording.first.manifest {
                manifest.limits.insert(0, format!("probe only, without sources: {error}"));
            }
            Ok(recording)
        }
        Err(error) => Err(error.into()),
    }
}

/// The CPU least likely to run the kernel's housekeeping.
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
                // There is no command.
                end_command: &AtomicBool::new(false),
                progress: &|_| {},
                feed: Some(&feed),
            };
            let end = recorder::record(&options, &watch);
            // The receiver may be gone.
            let _ = say_end.send(());
            end
        };
        std::thread::Builder::new().name("detour-record".to_owned()).spawn(body)
    };
    let thread = thread.context("cannot start the recorder thread")?;
    loop {
        let first = feed.take();
        if first.manifest.is_some() {
            return Ok(Ok(Recording { feed, first, ended, stop, thread }));
        }
        if thread.is_finished() {
            let end = thread.join().map_err(|_| anyhow!("the recorder thread panicked"))?;
            return match end {
                Err(error) => Ok(Err(error)),
                Ok(_) => Err(anyhow!("the recording ended before it started")),
            };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Recording {
    /// Stops the recording and returns its outcome.
    pub fn stop(self) -> Result<RecordResult> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let end = self.thread.join().map_err(|_| anyhow!("the recorder thread panicked"))?;
        Ok(end?)
    }
}
