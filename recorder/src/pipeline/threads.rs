//! The recorder's own threads, on the housekeeping CPUs: one reads; the other names, merges and writes.
//! Without housekeeping CPUs one thread does both, since every wakeup disturbs the measurement; it shows
//! up as a source under its name. When recording a program there are always two: explaining the waits of
//! hundreds of threads takes long.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    cpulist::CpuSet,
    node::{machine, privileges},
    pipeline::{
        assemble::{Assembled, Assembler},
        drain::{Batch, Drain, Look},
        pace::Pace,
        sleep::Sleep,
    },
};

/// Batches on their way to the writer. If it falls behind, the reader keeps filling the current one, up
/// to [`MAX_BATCH`].
const BATCHES: usize = 4;
/// Number of entries worth waking the writer for.
const WORTHWHILE: usize = 1 << 12;
/// Maximum number of entries in a batch: 32 MiB.
const MAX_BATCH: usize = 1 << 19;
/// After watching has stopped, an entry that is still not committed never will be.
const LAST_LOOKS: u32 = 200;

/// The longest sleep of the reader while nothing happens. A ring or probe buffer that fills wakes it.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long a small batch is kept.
const SEND_EVERY: Duration = Duration::from_millis(100);

pub struct Threads {
    sleep: Arc<Sleep>,
    assembler: Option<SyncSender<Assembler>>,
    /// In the order in which they end.
    threads: Vec<JoinHandle<Option<Done>>>,
}

/// Results of a thread.
#[derive(Default)]
struct Done {
    cpu_ns: u64,
    read: Option<Vec<(Option<u32>, u64)>>,
    assembled: Option<Assembled>,
}

/// Results of the threads.
pub struct Stopped {
    pub assembled: Assembled,
    /// CPU time of all of them.
    pub cpu_ns: u64,
    /// Entries taken from the kernel side, by CPU (None: all that were initially offline).
    pub read: Vec<(Option<u32>, u64)>,
}

impl Threads {
    /// Starts reading, so that no ring buffer fills up during preparation. `cpus` are reserved for the
    /// threads. With `busy`, processing takes long, and the ring buffers must not fill up in the
    /// meantime.
    pub fn start(drain: Drain, cpus: &CpuSet, busy: bool) -> io::Result<Threads> {
        let sleep = Arc::new(Sleep::new(drain.rings())?);
        for probe in drain.probes() {
            probe.wakes(&sleep);
        }
        let sleeping = Arc::clone(&sleep);
        let (assembler, assemblers) = sync_channel(1);
        let pace = Pace::new(LONGEST_PAUSE);
        let threads = if cpus.is_empty() && !busy {
            let both = move || read_and_write(drain, pace, &sleeping, &assemblers);
            vec![spawn("detour-read", cpus, machine::go_first, both)?]
        } else {
            let (out, batches) = sync_channel(BATCHES);
            let (give_back, used) = sync_channel(BATCHES);
            let write = move || write(&assemblers, &batches, &give_back);
            let writer = spawn("detour-write", cpus, machine::go_first, write)?;
            let read = move || read(drain, pace, &sleeping, &out, &used);
            vec![spawn("detour-read", cpus, machine::go_before_all, read)?, writer]
        };
        Ok(Threads { sleep, assembler: Some(assembler), threads })
    }

    /// Starts writing.
    pub fn write(&mut self, assembler: Assembler) {
        if let Some(threads) = self.assembler.take() {
            // A thread that has exited is noticed when it is joined.
            let _ = threads.send(assembler);
        }
    }

    /// Reads and writes the rest, and ends. None if a thread panicked.
    pub fn stop(mut self) -> Option<Stopped> {
        self.sleep.stop();
        let mut all = Done::default();
        for thread in self.threads.drain(..) {
            let done = thread.join().ok()??;
            all.cpu_ns += done.cpu_ns;
            all.read = all.read.or(done.read);
            all.assembled = all.assembled.or(done.assembled);
        }
        Some(Stopped { assembled: all.assembled?, cpu_ns: all.cpu_ns, read: all.read? })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.sleep.stop();
    }
}

/// The reader. If the writer falls far behind, this blocks, the ring buffers fill, and the kernel side
/// counts what it drops.
fn read(
    mut drain: Drain,
    pace: Pace,
    sleep: &Sleep,
    out: &SyncSender<Batch>,
    used: &Receiver<Batch>,
) -> Option<Done> {
    let mut sent = Instant::now();
    let mut batch = Batch::default();
    look_until_over(pace, sleep, |last| {
        let look = drain.look(last, &mut batch);
        let full = batch.entries.len() >= MAX_BATCH || batch.jumps.len() >= MAX_BATCH;
        // An empty batch still carries the progress, and the last one says that nothing follows.
        let due = batch.entries.len() >= WORTHWHILE || sent.elapsed() >= SEND_EVERY;
        if batch.last || full {
            out.send(std::mem::take(&mut batch)).ok()?;
        } else if due {
            match out.try_send(std::mem::take(&mut batch)) {
                Ok(()) => {
                    batch = used.try_recv().unwrap_or_default();
                    sent = Instant::now();
                }
                Err(TrySendError::Full(unsent)) => batch = unsent,
                Err(TrySendError::Disconnected(_)) => return None,
            }
        }
        Some(look)
    })?;
    let read = Some(drain.read());
    Some(Done { cpu_ns: machine::thread_cpu_ns(), read, assembled: None })
}

/// The writer.
fn write(
    assemblers: &Receiver<Assembler>,
    batches: &Receiver<Batch>,
    give_back: &SyncSender<Batch>,
) -> Option<Done> {
    let mut assembler = assemblers.recv().ok()?;
    while let Ok(mut batch) = batches.recv() {
        assembler.accept(&batch);
        if batch.last {
            break;
        }
        batch.clear();
        // A full channel means there are enough of them.
        let _ = give_back.try_send(batch);
    }
    let assembled = Some(assembler.finish());
    Some(Done { cpu_ns: machine::thread_cpu_ns(), read: None, assembled })
}

/// Reader and writer in one thread.
fn read_and_write(
    mut drain: Drain,
    pace: Pace,
    sleep: &Sleep,
    assemblers: &Receiver<Assembler>,
) -> Option<Done> {
    let mut assembler = None;
    let mut batch = Batch::default();
    look_until_over(pace, sleep, |last| {
        let look = drain.look(last, &mut batch);
        if assembler.is_none() {
            assembler = match last || batch.entries.len() >= MAX_BATCH {
                true => Some(assemblers.recv().ok()?),
                false => assemblers.try_recv().ok(),
            };
        }
        if let Some(assembler) = &mut assembler {
            assembler.accept(&batch);
            batch.clear();
        }
        Some(look)
    })?;
    let (read, assembled) = (Some(drain.read()), assembler.map(Assembler::finish));
    Some(Done { cpu_ns: machine::thread_cpu_ns(), read, assembled })
}

/// Reads until stopped and everything available by then has been taken. None if `look` gives up.
fn look_until_over(
    mut pace: Pace,
    sleep: &Sleep,
    mut look: impl FnMut(bool) -> Option<Look>,
) -> Option<()> {
    let mut before = Instant::now();
    let mut last_looks = 0;
    loop {
        // Read before looking: everything sent before it was set is still taken.
        let last = sleep.is_over();
        let passed = before.elapsed();
        before = Instant::now();
        let found = look(last)?;
        if found.more {
            continue;
        }
        if last {
            last_looks += 1;
            if found.reached || last_looks == LAST_LOOKS {
                return Some(());
            }
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        sleep.sleep(pace.next(passed, found.fill));
    }
}

/// `urgency` is for a thread that must run as soon as it is woken: a ring buffer is filling up.
fn spawn(
    name: &str,
    cpus: &CpuSet,
    urgency: fn(),
    body: impl FnOnce() -> Option<Done> + Send + 'static,
) -> io::Result<JoinHandle<Option<Done>>> {
    let cpus = cpus.clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if !cpus.is_empty() {
            machine::pin(&cpus);
        }
        urgency();
        privileges::give_up();
        body()
    })
}
