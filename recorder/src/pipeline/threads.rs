//! The recorder's own threads, on the housekeeping CPUs: one reads; the other names, merges and writes.
//! Without housekeeping CPUs the reader does both as long as little happens, since every wakeup disturbs the
//! measurement; it shows up as a source under its name. Once much happens, the writer takes over: naming and
//! compressing a full ring takes longer than filling it. When recording a program there are always two:
//! explaining the waits of hundreds of threads takes long.

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
/// Entries of one pass that a reader which also writes leaves to the writer, from then on.
const TOO_MANY: usize = 1 << 11;
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
        let (out, batches) = sync_channel(BATCHES);
        let (give_back, used) = sync_channel(BATCHES);
        let outbox = Outbox { out, used, batch: Batch::default(), sent: Instant::now() };
        let urgent = machine::go_before_all;
        let threads = if cpus.is_empty() && !busy {
            let (hand_over, handed) = sync_channel(1);
            let write = move || write(&handed, &batches, &give_back);
            let writer = spawn("detour-write", cpus, machine::go_first, write)?;
            let read =
                move || read_and_write(drain, pace, &sleeping, &assemblers, hand_over, outbox);
            vec![spawn("detour-read", cpus, urgent, read)?, writer]
        } else {
            let write = move || write(&assemblers, &batches, &give_back);
            let writer = spawn("detour-write", cpus, machine::go_first, write)?;
            let read = move || read(drain, pace, &sleeping, outbox);
            vec![spawn("detour-read", cpus, urgent, read)?, writer]
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

/// The reader's side of the way to the writer. If the writer falls far behind, sending blocks, the ring
/// buffers fill, and the kernel side counts what it drops.
struct Outbox {
    out: SyncSender<Batch>,
    used: Receiver<Batch>,
    /// The one that is being filled.
    batch: Batch,
    sent: Instant,
}

impl Outbox {
    /// Sends the batch if that is worthwhile. None if the writer has ended.
    fn send_if_due(&mut self) -> Option<()> {
        let batch = &mut self.batch;
        let full = batch.entries.len() >= MAX_BATCH || batch.jumps.len() >= MAX_BATCH;
        // An empty batch still carries the progress, and the last one says that nothing follows.
        let due = batch.entries.len() >= WORTHWHILE || self.sent.elapsed() >= SEND_EVERY;
        if batch.last || full {
            self.out.send(std::mem::take(batch)).ok()?;
        } else if due {
            match self.out.try_send(std::mem::take(batch)) {
                Ok(()) => {
                    *batch = self.used.try_recv().unwrap_or_default();
                    self.sent = Instant::now();
                }
                Err(TrySendError::Full(unsent)) => *batch = unsent,
                Err(TrySendError::Disconnected(_)) => return None,
            }
        }
        Some(())
    }
}

/// The reader.
fn read(mut drain: Drain, pace: Pace, sleep: &Sleep, mut outbox: Outbox) -> Option<Done> {
    look_until_over(pace, sleep, |last| {
        let look = drain.look(last, &mut outbox.batch);
        outbox.send_if_due()?;
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
    let Ok(mut assembler) = assemblers.recv() else {
        // The reader has written everything itself.
        return Some(Done { cpu_ns: machine::thread_cpu_ns(), ..Done::default() });
    };
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

/// A reader that writes as well, until there is too much of it.
fn read_and_write(
    mut drain: Drain,
    pace: Pace,
    sleep: &Sleep,
    assemblers: &Receiver<Assembler>,
    hand_over: SyncSender<Assembler>,
    mut outbox: Outbox,
) -> Option<Done> {
    let (mut assembler, mut handed_over) = (None, false);
    look_until_over(pace, sleep, |last| {
        let look = drain.look(last, &mut outbox.batch);
        if handed_over {
            outbox.send_if_due()?;
            return Some(look);
        }
        if assembler.is_none() {
            let entries = outbox.batch.entries.len();
            assembler = match last || entries >= MAX_BATCH {
                true => Some(assemblers.recv().ok()?),
                false => assemblers.try_recv().ok(),
            };
        }
        match assembler.take() {
            Some(given) if outbox.batch.entries.len() >= TOO_MANY => {
                hand_over.send(given).ok()?;
                handed_over = true;
                outbox.send_if_due()?;
            }
            Some(mut kept) => {
                kept.accept(&outbox.batch);
                outbox.batch.clear();
                assembler = Some(kept);
            }
            None => {}
        }
        Some(look)
    })?;
    // The writer ends.
    drop((hand_over, outbox));
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
