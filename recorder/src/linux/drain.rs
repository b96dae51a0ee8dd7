//! The reader: one thread that empties the kernel's ring and the probes' buffers, and takes the
//! anchors that join their clocks. It polls; nothing ever wakes it, since a wakeup would be noise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use detour_abi::{Record, Task, kind};

use crate::{
    clock::Anchor,
    probe::{Jump, Jumps},
    shared::Shared,
};

/// One entry of the ring: a record or a task, told apart by its kind.
pub type Entry = [u64; 6];

/// What an entry holds.
pub enum Decoded {
    Record(Record),
    Task(Task),
}

/// The layout is asserted where it is defined; BPF objects are little endian here.
pub fn decode(entry: &Entry) -> Decoded {
    let [a, b, c, d, e, f] = *entry;
    let (cpu, kind_depth, flags) = ((f >> 32) as u16, (f >> 48) as u8, (f >> 56) as u8);
    if matches!(kind_depth & 15, kind::TASK | kind::FORK) {
        return Decoded::Task(Task {
            comm: [a, b],
            cgroup: c,
            tid: d as u32,
            tgid: (d >> 32) as u32,
            task_flags: e as u32,
            parent: (e >> 32) as u32,
            spare: f as u32,
            cpu,
            kind_depth,
            flags,
        });
    }
    Decoded::Record(Record {
        start: a,
        gross: b,
        net: c,
        detail: d,
        id: e as u32,
        other: (e >> 32) as u32,
        aux: f as u32,
        cpu,
        kind_depth,
        flags,
    })
}

/// What one look at the ring and the buffers gave. Batches go back and forth between reader and
/// writer, so that neither allocates, and with it page-faults, while recording.
#[derive(Default)]
pub struct Batch {
    /// Out of the slots, CPU by CPU. They are looked at after the ring, so everything that ended
    /// before any of `entries` is here or was in a batch before.
    pub slotted: Vec<Entry>,
    /// Out of the ring, in the order they were sent.
    pub entries: Vec<Entry>,
    /// Index of the probe, and a detour it saw.
    pub jumps: Vec<(u32, Jump)>,
    pub anchor: Option<Anchor>,
    /// Nothing follows.
    pub last: bool,
}

impl Batch {
    pub fn clear(&mut self) {
        self.slotted.clear();
        self.entries.clear();
        self.jumps.clear();
        self.anchor = None;
        self.last = false;
    }

    fn is_empty(&self) -> bool {
        self.slotted.is_empty()
            && self.entries.is_empty()
            && self.jumps.is_empty()
            && self.anchor.is_none()
    }
}

/// A batch never grows beyond this, so that the memory between reader and writer is bounded.
const MAX_ENTRIES: usize = 1 << 16;

/// What an entry takes in the ring: a header of eight bytes goes before it.
pub const ENTRY_BYTES: usize = size_of::<Entry>() + 8;

const ANCHOR_EVERY: Duration = Duration::from_millis(100);

/// An anchor that waits until everything sent before it has been taken out of the ring.
struct Pending {
    anchor: Anchor,
    /// Bytes of the ring that may still hold something older.
    behind: usize,
}

pub struct Drain {
    pub ring: Option<RingBuf<MapData>>,
    pub ring_bytes: usize,
    pub slots: Option<Arc<Shared>>,
    /// Measured CPUs.
    pub cpus: Vec<u32>,
    pub probes: Vec<Arc<Jumps>>,
    pub anchor: fn() -> Anchor,
    pub pause: Duration,
}

impl Drain {
    /// Runs until `stop` is set and everything that was there then has been sent. When the writer
    /// falls behind this waits, the ring fills, and the kernel side counts what it drops. Returns
    /// how many entries it took.
    pub fn run(
        mut self,
        stop: &AtomicBool,
        out: &SyncSender<Batch>,
        used: &Receiver<Batch>,
    ) -> u64 {
        let mut read = 0;
        let mut last_anchor: Option<Instant> = None;
        let mut pending: Option<Pending> = None;
        loop {
            // Read before looking: what was there when it was set is still taken.
            let stopping = stop.load(Ordering::Acquire);
            let mut batch = used.try_recv().unwrap_or_default();
            self.take_jumps(&mut batch.jumps);
            let due = stopping || last_anchor.is_none_or(|at| at.elapsed() >= ANCHOR_EVERY);
            if due && pending.is_none() {
                pending = Some(Pending { anchor: (self.anchor)(), behind: self.ring_bytes });
                last_anchor = Some(Instant::now());
            }
            let more = self.fill(&mut batch.entries);
            self.take_slots(&mut batch.slotted);
            read += (batch.entries.len() + batch.slotted.len()) as u64;
            if let Some(waiting) = &mut pending {
                let taken = batch.entries.len() * ENTRY_BYTES;
                waiting.behind = waiting.behind.saturating_sub(taken);
                if !more || waiting.behind == 0 {
                    batch.anchor = pending.take().map(|pending| pending.anchor);
                }
            }
            batch.last = stopping && !more;
            let last = batch.last;
            // The last one goes even when it is empty: it says that nothing follows.
            if (last || !batch.is_empty()) && out.send(batch).is_err() {
                return read;
            }
            if last {
                return read;
            }
            if !more {
                std::thread::sleep(self.pause);
            }
        }
    }

    fn take_slots(&self, slotted: &mut Vec<Entry>) {
        let Some(slots) = &self.slots else { return };
        for &cpu in &self.cpus {
            slots.take_slots(cpu, |entry| slotted.push(entry));
        }
    }

    /// Takes the detours seen so far. Iterations that were slow one after the other, without a fast
    /// one between, are one detour.
    fn take_jumps(&self, jumps: &mut Vec<(u32, Jump)>) {
        for (index, probe) in self.probes.iter().enumerate() {
            let first = jumps.len();
            probe.drain(|jump| match jumps[first..].last_mut() {
                Some((_, last)) if last.to == jump.from => last.to = jump.to,
                _ => jumps.push((index as u32, jump)),
            });
        }
    }

    /// Moves entries out of the ring; true when there may be more.
    fn fill(&mut self, entries: &mut Vec<Entry>) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        while entries.len() < MAX_ENTRIES {
            let Some(item) = ring.next() else { return false };
            let mut entry = Entry::default();
            for (word, bytes) in entry.iter_mut().zip(item.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            }
            entries.push(entry);
        }
        true
    }
}
