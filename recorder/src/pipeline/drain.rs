//! The reader: empties the kernel's ring buffers and slots and the probe buffers, sorts the entries of
//! all CPUs ([`crate::pipeline::order`]), and takes the anchors that relate the clocks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use recorder_abi::{CgroupName, ENTRY_WORDS, Numbers, Record, Task, kind};

use crate::{
    kernel::{
        cpu_pages::CpuPages,
        ring::{Reader, Ring},
    },
    pipeline::{
        clock_line::Anchor,
        order::{Complete, Entry, Order, Stream},
    },
    probe::{Jump, Jumps, clock::monotonic_ns},
};

/// The content of an entry.
pub enum Decoded {
    Record(Record),
    Task(Task),
    CgroupName(CgroupName),
    Numbers(Numbers),
}

/// The layout is asserted where it is defined; BPF objects are little endian here.
pub fn decode(entry: &Entry) -> Decoded {
    let [a, b, c, d, e, f, g] = entry.words;
    let (cpu, kind_depth, flags) = ((f >> 32) as u16, (f >> 48) as u8, (f >> 56) as u8);
    if matches!(kind_depth & 15, kind::TASK | kind::FORK) {
        return Decoded::Task(Task {
            at: a,
            comm: [b, c],
            cgroup: d,
            tid: e as u32,
            tgid: (e >> 32) as u32,
            task_flags: f as u32,
            cpu,
            kind_depth,
            flags,
            parent: g as u32,
            sched: (g >> 32) as u32,
        });
    }
    if kind_depth & 15 == kind::CGROUP {
        return Decoded::CgroupName(CgroupName {
            at: a,
            id: b,
            parent: c,
            text: [d, e],
            piece: f as u32,
            cpu,
            kind_depth,
            last: flags,
            spare: g,
        });
    }
    if kind_depth & 15 == kind::NUMBERS {
        return Decoded::Numbers(Numbers {
            at: a,
            tid: b as u32,
            tgid: (b >> 32) as u32,
            tid_here: c as u32,
            tgid_here: (c >> 32) as u32,
            spare: [d, e],
            spare2: f as u32,
            cpu,
            kind_depth,
            flags,
            spare3: g,
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
        woke: g as u32,
        stack: (g >> 32) as u32,
    })
}

/// The result of one or more passes over the ring buffers. Batches are passed back and forth between
/// reader and writer, so that neither allocates, and page-faults, while recording.
#[derive(Default)]
pub struct Batch {
    /// Of all CPUs, in time order ([`Entry::time`]); no later batch has an older one.
    pub entries: Vec<Entry>,
    /// Index of the probe, and a detour it saw.
    pub jumps: Vec<(u32, Jump)>,
    /// Included once every entry up to their times has arrived.
    pub anchors: Vec<Anchor>,
    /// CLOCK_MONOTONIC up to which all entries have arrived.
    pub complete_ns: u64,
    /// The thread on the CPU of each probe, by the kernel's number, at some time between these two on
    /// CLOCK_MONOTONIC; empty without kernel records.
    pub on_cpu: Vec<u32>,
    pub looked_ns: (u64, u64),
    /// Nothing follows.
    pub last: bool,
}

impl Batch {
    pub fn clear(&mut self) {
        self.entries.clear();
        self.jumps.clear();
        self.anchors.clear();
        self.on_cpu.clear();
        self.last = false;
    }
}

/// Maximum number of entries taken from all ring buffers in one pass, which bounds the memory between
/// reader and writer.
const MAX_ENTRIES: usize = 1 << 15;
/// At least this many from each ring buffer, however many there are.
const MIN_ENTRIES: usize = 64;

const ANCHOR_EVERY: Duration = Duration::from_millis(100);

/// How often to check whether a program is in progress on a CPU: they take microseconds.
const TRIES: u32 = 20;

/// The sources of one CPU's entries.
struct Cpu {
    /// None for the ring buffer shared by all CPUs that were offline when the recording began.
    number: Option<u32>,
    /// Whether records of interrupt vectors come through slots.
    measured: bool,
    reader: Reader,
    ring: Stream,
    slots: Stream,
    complete: Complete,
    read: u64,
}

/// Result of a pass.
pub struct Look {
    /// Fill level of the fullest ring or probe buffer, 0 to 1.
    pub fill: f64,
    /// More can be taken immediately.
    pub more: bool,
    /// Everything that had been sent was taken.
    pub reached: bool,
}

pub struct Drain {
    cpus: Vec<Cpu>,
    cpu_pages: Option<Arc<CpuPages>>,
    /// With their CPUs.
    probes: Vec<(u32, Arc<Jumps>)>,
    anchor: fn() -> Anchor,
    order: Order,
    last_anchor: Option<Instant>,
    /// Waits until everything sent before it has been released.
    pending: Option<Anchor>,
}

impl Drain {
    /// Reads the ring buffers of these CPUs (None: of all others), and the slots of those for which
    /// `measured` is true.
    pub fn new(
        rings: Vec<(Option<u32>, Arc<Ring>)>,
        measured: impl Fn(u32) -> bool,
        cpu_pages: Option<Arc<CpuPages>>,
        probes: Vec<(u32, Arc<Jumps>)>,
        anchor: fn() -> Anchor,
    ) -> Drain {
        let cpus = rings.into_iter().map(|(number, ring)| Cpu {
            number,
            measured: number.is_some_and(&measured),
            reader: Reader::new(ring),
            ring: Stream::default(),
            slots: Stream::default(),
            complete: Complete::default(),
            read: 0,
        });
        Drain {
            cpus: cpus.collect(),
            cpu_pages,
            probes,
            anchor,
            order: Order::default(),
            last_anchor: None,
            pending: None,
        }
    }

    pub fn rings(&self) -> impl Iterator<Item = &Ring> {
        self.cpus.iter().map(|cpu| cpu.reader.ring())
    }

    pub fn probes(&self) -> impl Iterator<Item = &Jumps> {
        self.probes.iter().map(|(_, jumps)| jumps.as_ref())
    }

    /// Entries taken, by CPU (None: all that were initially offline).
    pub fn read(&self) -> Vec<(Option<u32>, u64)> {
        self.cpus.iter().map(|cpu| (cpu.number, cpu.read)).collect()
    }

    /// Adds what is available to a batch. With `last`, nothing more will be sent: everything reached is
    /// released, and an anchor is taken for the remaining detours.
    pub fn look(&mut self, last: bool, batch: &mut Batch) -> Look {
        let fill = self.fill();
        // Before the anchor: a detour that ended before it is in this batch or in an earlier one.
        self.take_jumps(&mut batch.jumps);
        // Without a probe there is no second clock.
        let due = last || self.last_anchor.is_none_or(|at| at.elapsed() >= ANCHOR_EVERY);
        if due && self.pending.is_none() && !self.probes.is_empty() {
            self.pending = Some((self.anchor)());
            self.last_anchor = Some(Instant::now());
        }
        let looked_ns = monotonic_ns();
        self.look_at_cpus(looked_ns, batch);
        let room = (MAX_ENTRIES / self.cpus.len().max(1)).max(MIN_ENTRIES);
        let (mut more, mut reached) = (false, true);
        for cpu in &mut self.cpus {
            let (taken, all) = cpu.take(self.cpu_pages.as_deref(), room, &mut self.order);
            more |= !all && taken >= room;
            reached &= all;
        }
        let complete = self.cpus.iter().map(|cpu| cpu.complete);
        let released = self.order.release(complete, last && reached, &mut batch.entries);
        batch.complete_ns = if self.cpus.is_empty() { looked_ns } else { released };
        batch.anchors.extend(self.pending.take_if(|anchor| anchor.ns <= batch.complete_ns));
        batch.last = last && reached;
        Look { fill, more, reached }
    }

    /// Notes which threads are on the probes' CPUs.
    fn look_at_cpus(&self, looked_ns: u64, batch: &mut Batch) {
        let Some(cpu_pages) = self.cpu_pages.as_ref().filter(|_| !self.probes.is_empty()) else {
            return;
        };
        batch.on_cpu.clear();
        batch.on_cpu.extend(self.probes.iter().map(|&(cpu, _)| cpu_pages.on_cpu(cpu)));
        batch.looked_ns = (looked_ns, monotonic_ns());
    }

    fn fill(&self) -> f64 {
        let rings = self.cpus.iter().map(|cpu| cpu.reader.fill());
        let jumps = self.probes().map(Jumps::fill);
        rings.chain(jumps).fold(0.0, f64::max)
    }

    /// Takes the detours seen so far. Consecutive slow iterations, without a fast one between, are one
    /// detour.
    fn take_jumps(&self, jumps: &mut Vec<(u32, Jump)>) {
        for (index, probe) in self.probes().enumerate() {
            let index = index as u32;
            probe.drain(|jump| match jumps.last_mut() {
                Some((of, last)) if *of == index && last.to == jump.from => last.to = jump.to,
                _ => jumps.push((index, jump)),
            });
        }
    }
}

impl Cpu {
    /// Takes at most `room` entries from the ring buffer, and the content of the slots. Returns how many
    /// came from the ring buffer, and whether these were all that had been sent. The order of the steps
    /// makes the result complete, see [`crate::pipeline::order`].
    fn take(
        &mut self,
        cpu_pages: Option<&CpuPages>,
        room: usize,
        order: &mut Order,
    ) -> (usize, bool) {
        let (mut now, mut quiet) = (monotonic_ns(), true);
        if let (Some(cpu_pages), Some(cpu)) = (cpu_pages, self.number) {
            let mut tries = 1;
            quiet = !cpu_pages.is_running(cpu);
            while !quiet && tries < TRIES {
                std::hint::spin_loop();
                now = monotonic_ns();
                quiet = !cpu_pages.is_running(cpu);
                tries += 1;
            }
            // Before the ring buffer: of equal times, an interrupt comes before the thread it
            // interrupted.
            if self.measured {
                let (slots, read) = (&mut self.slots, &mut self.read);
                cpu_pages.take_slots(cpu, |words| {
                    order.push(slots.entry(words));
                    *read += 1;
                });
            }
        }
        let to = self.reader.ring().reserved();
        let (ring, mut taken) = (&mut self.ring, 0);
        let reached = self.reader.take(to, room, |words: [u64; ENTRY_WORDS]| {
            order.push(ring.entry(words));
            taken += 1;
        });
        self.read += taken as u64;
        self.complete.looked(now, quiet, reached, self.ring);
        (taken, reached)
    }
}
