//! The probe: a thread that does nothing but read the clock, and records whenever the clock jumped.
//!
//! The loop has two branches, one for a jump and one for the end. Jumps go to a buffer that was
//! allocated, touched and locked beforehand; another thread empties it, so that a recording can last for
//! hours. The loop enters the kernel only to wake that thread when the buffer is half full.

use std::{
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use thiserror::Error;

use crate::{options::Threshold, pipeline::sleep::Sleep, probe::clock::Counter};

/// A jump of the clock, in ticks of the probe's counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Jump {
    pub from: u64,
    pub to: u64,
}

/// Below this multiple of t_min the loop would record itself.
const LOWEST_RELATIVE: f64 = 3.0;

#[derive(Debug, Error)]
pub enum ProbeError {
    #[error("cannot allocate {bytes} bytes for the probe buffer: {source}")]
    Memory { bytes: usize, source: std::io::Error },
    #[error(
        "a threshold of {asked_ns:.0} ns is below {LOWEST_RELATIVE} x t_min ({t_min_ns:.1} ns) on \
         CPU {cpu}: the probe would record itself; use at least {:.0}ns",
        LOWEST_RELATIVE * t_min_ns
    )]
    Threshold { cpu: u32, asked_ns: f64, t_min_ns: f64 },
}

/// A ring of jumps with one writer, the probe, and one reader. Its memory is locked if the system allows
/// it.
pub struct Jumps {
    slots: NonNull<Jump>,
    mask: u64,
    pub locked: bool,
    /// Advanced by the probe after writing; on its own cache line.
    head: Line,
    tail: Line,
    lost: Line,
    /// The loop ends when the counter passes this.
    end: Line,
    /// The loop's first reading; 0 before it runs.
    first: Line,
    /// Its last; 0 while it runs.
    last: Line,
    /// The reader's.
    sleep: OnceLock<Arc<Sleep>>,
}

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

// SAFETY: slots between tail and head belong to the reader, all others to the writer; the atomics
// transfer ownership.
unsafe impl Send for Jumps {}
// SAFETY: as above.
unsafe impl Sync for Jumps {}

impl Jumps {
    /// `capacity` is rounded up to a power of two.
    pub fn new(capacity: usize) -> Result<Jumps, ProbeError> {
        use rustix::mm::{MapFlags, ProtFlags, mlock, mmap_anonymous};
        let capacity = capacity.max(1024).next_power_of_two();
        let bytes = capacity * size_of::<Jump>();
        // SAFETY: a fresh anonymous mapping; populated, so that the loop never faults.
        let map = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )
        };
        let failed = |source: std::io::Error| ProbeError::Memory { bytes, source };
        let map = map.map_err(|errno| failed(errno.into()))?;
        // SAFETY: the mapping is `bytes` long.
        let locked = unsafe { mlock(map, bytes) }.is_ok();
        let slots = NonNull::new(map.cast()).ok_or_else(|| {
            failed(std::io::Error::new(std::io::ErrorKind::OutOfMemory, "null mapping"))
        })?;
        Ok(Jumps {
            slots,
            mask: capacity as u64 - 1,
            locked,
            head: Line::default(),
            tail: Line::default(),
            lost: Line::default(),
            end: Line(AtomicU64::new(u64::MAX)),
            first: Line::default(),
            last: Line::default(),
            sleep: OnceLock::new(),
        })
    }

    /// Wakes this reader when the buffer is half full.
    pub fn wakes(&self, sleep: &Arc<Sleep>) {
        // There is one reader.
        let _ = self.sleep.set(Arc::clone(sleep));
    }

    /// Takes all jumps seen so far.
    pub fn drain(&self, mut take: impl FnMut(Jump)) {
        let head = self.head.0.load(Ordering::Acquire);
        let tail = self.tail.0.load(Ordering::Relaxed);
        for index in tail..head {
            // SAFETY: below head and not below tail: written, and no longer owned by the writer.
            take(unsafe { self.slots.add((index & self.mask) as usize).read() });
        }
        self.tail.0.store(head, Ordering::Release);
    }

    /// Fill level of the buffer, 0 to 1.
    pub fn fill(&self) -> f64 {
        let head = self.head.0.load(Ordering::Relaxed);
        let waiting = head.wrapping_sub(self.tail.0.load(Ordering::Relaxed));
        waiting as f64 / (self.mask + 1) as f64
    }

    pub fn lost(&self) -> u64 {
        self.lost.0.load(Ordering::Relaxed)
    }

    /// The loop's first reading of the counter, once it runs.
    pub fn first(&self) -> Option<u64> {
        Some(self.first.0.load(Ordering::Acquire)).filter(|&ticks| ticks != 0)
    }

    /// The loop's last reading, once it has ended.
    pub fn last(&self) -> Option<u64> {
        Some(self.last.0.load(Ordering::Acquire)).filter(|&ticks| ticks != 0)
    }

    /// Ends the loop at a reading of the counter; 0 ends it now.
    pub fn end_at(&self, ticks: u64) {
        self.end.0.store(ticks, Ordering::Relaxed);
    }
}

impl Drop for Jumps {
    fn drop(&mut self) {
        let bytes = (self.mask as usize + 1) * size_of::<Jump>();
        // SAFETY: mapped by `new` with this length; no references are left.
        let _ = unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), bytes) };
    }
}

/// Summary of one run of the loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    pub first: u64,
    pub last: u64,
    pub iterations: u64,
}

/// The loop. Ends when the counter passes the end set in `jumps`. `push` is the cost of storing a jump,
/// see [`TimerCost::push`].
#[inline(never)]
pub fn run<C: Counter>(jumps: &Jumps, threshold: u64, push: u64) -> Run {
    let mut writer = Writer::new(jumps);
    let allowed = threshold.saturating_add(push);
    let end = &jumps.end.0;
    let mut iterations = 0u64;
    let first = C::read();
    jumps.first.0.store(first, Ordering::Release);
    let mut last = first;
    let now = loop {
        let now = C::read();
        iterations += 1;
        if now.wrapping_sub(last) > threshold {
            last = writer.push_and_read::<C>(Jump { from: last, to: now }, allowed);
            if last >= end.load(Ordering::Relaxed) {
                break last;
            }
            continue;
        }
        if now >= end.load(Ordering::Relaxed) {
            break now;
        }
        last = now;
    };
    // The end may have been set while the loop was off the CPU, between reading the clock and checking
    // there: the next reading includes that interruption.
    let last = C::read();
    if last.wrapping_sub(now) > threshold {
        writer.push(Jump { from: now, to: last });
    }
    jumps.last.0.store(last, Ordering::Release);
    Run { first, last, iterations }
}

/// The probe's end of the ring.
struct Writer<'a> {
    jumps: &'a Jumps,
    head: u64,
    /// Up to here there is certainly room; the reader's position is read only beyond, because fetching
    /// it from another CPU takes as long as a short detour.
    limit: u64,
}

impl Writer<'_> {
    fn new(jumps: &Jumps) -> Writer<'_> {
        Writer { jumps, head: 0, limit: jumps.mask.div_ceil(2) }
    }

    /// Stores a jump and reads the clock again. What storing takes is not a jump: otherwise the loop would
    /// record itself for ever where storing takes longer than the threshold.
    #[cold]
    #[inline(never)]
    fn push_and_read<C: Counter>(&mut self, mut jump: Jump, allowed: u64) -> u64 {
        loop {
            self.push(jump);
            let now = C::read();
            // Also at the end of the recording: a writer that is always slow must not continue forever.
            let over = now >= self.jumps.end.0.load(Ordering::Relaxed);
            if over || now.wrapping_sub(jump.to) <= allowed {
                return now;
            }
            jump = Jump { from: jump.to, to: now };
        }
    }

    fn push(&mut self, jump: Jump) {
        if self.head == self.limit && !self.find_room() {
            self.jumps.lost.0.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // SAFETY: below the limit, so the reader has released this slot.
        unsafe { self.jumps.slots.add((self.head & self.jumps.mask) as usize).write(jump) };
        self.head += 1;
        self.jumps.head.0.store(self.head, Ordering::Release);
    }

    /// Moves the limit. It is half a buffer from the reader's position, so that the reader can be woken
    /// in time.
    fn find_room(&mut self) -> bool {
        let tail = self.jumps.tail.0.load(Ordering::Acquire);
        let capacity = self.jumps.mask + 1;
        if self.head - tail < capacity / 2 {
            self.limit = tail + capacity / 2;
            return true;
        }
        // Once: at the end of the buffer it has been woken.
        if self.head - tail < capacity
            && let Some(sleep) = self.jumps.sleep.get()
        {
            sleep.wake();
        }
        self.limit = tail + capacity;
        self.head < self.limit
    }
}

/// The cost of the loop on a CPU.
#[derive(Clone, Debug, Default)]
pub struct TimerCost {
    /// Shortest iteration of the loop, ticks.
    pub t_min: u64,
    /// Shortest iteration that stores a jump, less t_min, ticks.
    pub push: u64,
    /// How often each distance was seen, by ticks; the last entry counts everything longer.
    pub histogram: Vec<u64>,
}

const HISTOGRAM_TICKS: usize = 1024;

/// Measures the loop's iterations, and how far readings are apart back to back.
#[inline(never)]
pub fn assess<C: Counter>(readings: u32) -> TimerCost {
    let mut histogram = vec![0u64; HISTOGRAM_TICKS];
    // The histogram is filled after each round, so that the readings stay back to back.
    let mut round = [0u64; 256];
    for _ in 0..readings.div_ceil(round.len() as u32 - 1).max(1) {
        for slot in &mut round {
            *slot = C::read();
        }
        for pair in round.windows(2) {
            let ticks = pair[1].wrapping_sub(pair[0]) as usize;
            histogram[ticks.min(HISTOGRAM_TICKS - 1)] += 1;
        }
    }
    let t_min = iteration::<C>(readings);
    TimerCost { t_min, push: storing::<C>().saturating_sub(t_min), histogram }
}

/// The shortest iteration of a loop with the work of [`run`]'s: a reading, a count, two comparisons.
#[inline(never)]
fn iteration<C: Counter>(readings: u32) -> u64 {
    let end = AtomicU64::new(u64::MAX);
    let (mut shortest, mut count, mut last) = (u64::MAX, 0u32, C::read());
    loop {
        let now = C::read();
        count += 1;
        let ticks = now.wrapping_sub(last);
        // A coarse clock does not advance between its steps: zero is not a distance.
        if ticks.wrapping_sub(1) < shortest {
            shortest = ticks - 1;
        }
        if count >= readings || now >= std::hint::black_box(&end).load(Ordering::Relaxed) {
            return shortest.saturating_add(1);
        }
        last = now;
    }
}

/// The shortest iteration that stores a jump.
fn storing<C: Counter>() -> u64 {
    const JUMPS: u64 = 512;
    let Ok(jumps) = Jumps::new(2 * JUMPS as usize) else { return 0 };
    let mut writer = Writer::new(&jumps);
    let (mut shortest, mut last) = (u64::MAX, C::read());
    for _ in 0..JUMPS {
        let now = writer.push_and_read::<C>(Jump { from: last, to: last }, u64::MAX);
        shortest = shortest.min(now.wrapping_sub(last));
        last = now;
    }
    shortest
}

impl Threshold {
    /// In ticks, for a CPU with known t_min.
    pub fn ticks(self, cpu: u32, t_min: u64, ticks_per_ns: f64) -> Result<u64, ProbeError> {
        let ticks = match self {
            Threshold::Relative(factor) => t_min as f64 * factor,
            Threshold::Absolute(ns) => ns * ticks_per_ns,
        };
        if ticks < t_min as f64 * LOWEST_RELATIVE {
            return Err(ProbeError::Threshold {
                cpu,
                asked_ns: ticks / ticks_per_ns,
                t_min_ns: t_min as f64 / ticks_per_ns,
            });
        }
        Ok(ticks as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::clock::Monotonic;

    #[test]
    fn a_full_buffer_counts_what_it_cannot_hold() {
        let jumps = Jumps::new(1024).unwrap();
        let mut writer = Writer::new(&jumps);
        for i in 0..1500 {
            writer.push(Jump { from: i, to: i + 1 });
        }
        assert_eq!(jumps.lost(), 476);
        let mut seen = Vec::new();
        jumps.drain(|jump| seen.push(jump.from));
        assert_eq!(seen, (0..1024).collect::<Vec<_>>());
        writer.push(Jump { from: 7, to: 8 });
        jumps.drain(|jump| seen.push(jump.from));
        assert_eq!(seen.last(), Some(&7));
    }

    #[test]
    fn a_half_full_buffer_wakes_the_reader() -> std::io::Result<()> {
        let jumps = Jumps::new(1024).unwrap();
        let sleep = Arc::new(Sleep::new([].into_iter())?);
        jumps.wakes(&sleep);
        let mut writer = Writer::new(&jumps);
        // The reader falls behind and catches up, from different positions.
        for written in [100, 600, 1000, 511] {
            for i in 0..written {
                writer.push(Jump { from: i, to: i + 1 });
            }
            assert_eq!(sleep.was_woken(), written > 512, "{written}");
            let mut taken = 0;
            jumps.drain(|_| taken += 1);
            assert_eq!(taken, written);
        }
        assert_eq!(jumps.lost(), 0);
        Ok(())
    }

    #[test]
    fn the_loop_ends_when_told_and_counts_its_iterations() {
        let jumps = Jumps::new(1 << 16).unwrap();
        jumps.end_at(Monotonic::read() + 20_000_000);
        let run = run::<Monotonic>(&jumps, 1_000, 100);
        assert!(run.last - run.first >= 19_000_000);
        assert!(run.iterations > 1_000);
    }

    /// A clock that advances by one at each reading, and by what the test adds.
    struct Steps;

    thread_local! {
        static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    impl Counter for Steps {
        const NAME: &'static str = "steps";

        fn read() -> u64 {
            NOW.set(NOW.get() + 1);
            NOW.get()
        }
    }

    /// Storing takes up to `allowed`; whatever takes longer is a jump of its own.
    #[test]
    fn storing_a_jump_is_not_a_jump_but_an_interruption_meanwhile_is() {
        let jumps = Jumps::new(1024).unwrap();
        let mut writer = Writer::new(&jumps);
        NOW.set(100);
        assert_eq!(writer.push_and_read::<Steps>(Jump { from: 50, to: 100 }, 1), 101);
        // The clock stands at 150 when it is read after the push: 50 after the jump's end.
        NOW.set(149);
        assert_eq!(writer.push_and_read::<Steps>(Jump { from: 60, to: 100 }, 30), 151);
        let mut seen = Vec::new();
        jumps.drain(|jump| seen.push((jump.from, jump.to)));
        assert_eq!(seen, [(50, 100), (60, 100), (100, 150)]);
    }

    #[test]
    fn the_shortest_iteration_is_that_of_the_clock() {
        assert_eq!(iteration::<Steps>(1000), 1);
        let cost = assess::<Monotonic>(10_000);
        assert!(cost.t_min >= 1 && cost.t_min < 100_000, "{cost:?}");
    }

    #[test]
    fn a_threshold_that_would_record_the_loop_itself_is_refused() {
        assert!(Threshold::Absolute(20.0).ticks(3, 30, 2.0).is_err());
        assert!(Threshold::Relative(2.0).ticks(3, 30, 2.0).is_err());
        assert_eq!(Threshold::Relative(9.0).ticks(3, 30, 2.0).unwrap(), 270);
        assert_eq!(Threshold::Absolute(1_000.0).ticks(3, 30, 2.0).unwrap(), 2_000);
    }
}
