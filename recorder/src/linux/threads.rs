//! The recorder's own threads: one reads, one names, merges and writes, on the housekeeping CPUs. Where
//! there are none one thread does both, since every wakeup disturbs what is measured; it shows up as a
//! source under its name. Beside a program there are always two: the waits of hundreds of threads take
//! long to explain.

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
    assemble::{Assembled, Assembler},
    cpulist::CpuSet,
    drain::{Batch, Drain, Look},
    machine,
    pace::Pace,
    privileges,
    sleep::Sleep,
};

/// Batches on their way to the writer. When it does not take them the reader goes on filling the one it
/// has, up to [`MAX_BATCH`].
const BATCHES: usize = 4;
/// Entries that are worth waking the writer for.
const WORTHWHILE: usize = 1 << 12;
/// Entries of a batch at most: 32 MiB.
const MAX_BATCH: usize = 1 << 19;
/// When nothing is watched any more, an entry that is still not written never will be.
const LAST_LOOKS: u32 = 200;

/// How long a batch is kept when there is little in it.
const SEND_EVERY: Duration = Duration::from_millis(100);

pub struct Threads {
    sleep: Arc<Sleep>,
    assembler: Option<SyncSender<Assembler>>,
    /// In the order in which they end.
    threads: Vec<JoinHandle<Option<Done>>>,
}

/// What a thread leaves behind.
#[derive(Default)]
struct Done {
    cpu_ns: u64,
    read: Option<Vec<(Option<u32>, u64)>>,
    assembled: Option<Assembled>,
}

/// What the threads leave behind.
pub struct Stopped {
    pub assembled: Assembled,
    /// CPU time of all of them.
    pub cpu_ns: u64,
    /// Entries that were taken from the kernel side, by CPU (None: all that were offline in the
    /// beginning).
    pub read: Vec<(Option<u32>, u64)>,
}

impl Threads {
    /// Begins to read, so that no ring fills up while everything else gets ready. `cpus` are those that
    /// the threads have to themselves; `longest` is how long the reader may sleep. With `busy`, what is read
    /// takes long to work out, and the rings must not fill up meanwhile.
    pub fn start(
        drain: Drain,
        cpus: &CpuSet,
        longest: Duration,
        busy: bool,
    ) -> io::Result<Threads> {
        let sleep = Arc::new(Sleep::new(drain.rings())?);
        let sleeping = Arc::clone(&sleep);
        let (assembler, assemblers) = sync_channel(1);
        let pace = Pace::new(longest);
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

    /// Begins to write.
    pub fn write(&mut self, assembler: Assembler) {
        if let Some(threads) = self.assembler.take() {
            // A thread that is gone shows when it is joined.
            let _ = threads.send(assembler);
        }
    }

    /// Reads what is left, writes it and ends. None when a thread broke.
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

/// The reader. When the writer falls far behind this waits, the rings fill, and the kernel side counts
/// what it drops.
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
        // One that is empty says how far everything has come, and the last that nothing follows.
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

/// Both in one.
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

/// Looks until it is over and everything that was there then has been taken. None when `look` gives
/// up.
fn look_until_over(
    mut pace: Pace,
    sleep: &Sleep,
    mut look: impl FnMut(bool) -> Option<Look>,
) -> Option<()> {
    let mut before = Instant::now();
    let mut last_looks = 0;
    loop {
        // Read before looking: what was there when it was set is still taken.
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

/// `urgency` is for a thread that must not wait when it is woken: a ring is filling up.
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
