//! The recorder's own two threads: one reads, one names, merges and writes. They run on the
//! housekeeping CPUs, where there are any; elsewhere they show up as sources under their names.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use crate::{
    assemble::{Assembled, Assembler},
    cpulist::CpuSet,
    drain::{Batch, Drain},
    machine, privileges,
};

/// Batches between reader and writer: at most 48 MiB.
const BATCHES: usize = 16;

pub struct Threads {
    stop: Arc<AtomicBool>,
    reader: JoinHandle<(u64, u64)>,
    writer: JoinHandle<(Assembled, u64)>,
}

/// What the threads leave behind.
pub struct Stopped {
    pub assembled: Assembled,
    /// CPU time of both.
    pub cpu_ns: u64,
    /// Entries that were taken from the kernel side.
    pub read: u64,
}

impl Threads {
    pub fn start(drain: Drain, assembler: Assembler, cpus: CpuSet) -> io::Result<Threads> {
        let stop = Arc::new(AtomicBool::new(false));
        let (out, batches) = sync_channel(BATCHES);
        let (give_back, used) = sync_channel(BATCHES);
        let writer =
            spawn("detour-write", cpus.clone(), move || write(assembler, &batches, &give_back))?;
        let stopping = Arc::clone(&stop);
        let reader = spawn("detour-read", cpus, move || {
            let read = drain.run(&stopping, &out, &used);
            (read, machine::thread_cpu_ns())
        })?;
        Ok(Threads { stop, reader, writer })
    }

    /// Reads what is left, writes it and ends. None when a thread broke.
    pub fn stop(self) -> Option<Stopped> {
        self.stop.store(true, Ordering::Release);
        let (read, reader) = self.reader.join().ok()?;
        let (assembled, writer) = self.writer.join().ok()?;
        Some(Stopped { assembled, cpu_ns: reader + writer, read })
    }
}

fn write(
    mut assembler: Assembler,
    batches: &Receiver<Batch>,
    give_back: &SyncSender<Batch>,
) -> (Assembled, u64) {
    while let Ok(mut batch) = batches.recv() {
        assembler.accept(&batch);
        if batch.last {
            break;
        }
        batch.clear();
        // A full channel means there are enough of them.
        let _ = give_back.try_send(batch);
    }
    (assembler.finish(), machine::thread_cpu_ns())
}

fn spawn<T: Send + 'static>(
    name: &str,
    cpus: CpuSet,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if !cpus.is_empty() {
            machine::pin(&cpus);
        }
        privileges::give_up();
        body()
    })
}
