//! Sorts the entries of all CPUs by time.
//!
//! Every CPU has two streams, its ring buffer and its slots. A stream arrives in the order in which it
//! was sent, which is time order except for entries noticed late; such an entry gets the time of the
//! previous one, so that each stream is sorted. Entries of different streams are sorted together and
//! released up to a time before which nothing can follow on any CPU.
//!
//! This time is found as follows. A program takes the time of an entry first and sends it afterwards.
//! The reader
//! 1. reads the clock;
//! 2. sees that no program is in progress on the CPU ([`CpuState::running`](recorder_abi::CpuState));
//! 3. reads the producer position of the ring buffer, and takes everything before it.
//!
//! Everything timed before step 1 was sent before step 2 and so is taken in step 3; everything timed
//! later is younger. So the CPU is complete up to step 1, minus [`SLACK_NS`] for stores to become
//! visible. If a program is in progress, or an entry is reserved but not committed, the CPU keeps its
//! previous time. Entries are released up to the minimum over all CPUs.

use recorder_abi::{ENTRY_WORDS, kind};

/// An entry and its end time or, for entries without a length, its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub time: u64,
    pub words: [u64; ENTRY_WORDS],
}

/// A store becomes visible to other CPUs within this time.
pub const SLACK_NS: u64 = 20_000;
/// A program in progress for longer than this, because its CPU was descheduled or it was preempted, is
/// not waited for.
const GIVE_UP_NS: u64 = 500_000_000;
/// Maximum number of entries waiting for a slow CPU; above it, the older half is released.
const MAX_WAITING: usize = 1 << 18;

/// Sorted entries from one ring buffer or the slots of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// Time of the last entry.
    last: u64,
}

impl Stream {
    /// The next entry of this stream.
    pub fn entry(&mut self, words: [u64; ENTRY_WORDS]) -> Entry {
        self.last = self.last.max(time(&words));
        Entry { time: self.last, words }
    }
}

/// The end time of an entry; entries that are not interruptions have only a time.
fn time(words: &[u64; ENTRY_WORDS]) -> u64 {
    let kind = (words[5] >> 48) as u8 & 15;
    match kind {
        kind::TASK..kind::MIGRATE => words[0],
        _ => words[0].wrapping_add(words[1]),
    }
}

/// The time up to which a CPU is complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Complete {
    to: u64,
}

impl Complete {
    /// After a pass at `now`: `quiet` if no program was in progress then, `reached` if everything sent
    /// by then has been taken; otherwise the ring buffer continues after `last`.
    pub fn looked(&mut self, now: u64, quiet: bool, reached: bool, ring: Stream) {
        let to = match (quiet, reached) {
            (true, true) => now.saturating_sub(SLACK_NS),
            (true, false) => now.saturating_sub(SLACK_NS).min(ring.last),
            (false, _) => now.saturating_sub(GIVE_UP_NS),
        };
        self.to = self.to.max(to);
    }
}

/// Entries of all streams while they are being sorted.
#[derive(Default)]
pub struct Order {
    waiting: Vec<Entry>,
    /// Everything up to here has been released.
    released_to: u64,
}

impl Order {
    pub fn push(&mut self, entry: Entry) {
        self.waiting.push(entry);
    }

    /// Appends everything that is complete on all CPUs, or with `all` everything, sorted, to `out`.
    /// Returns the time up to which entries have been released.
    pub fn release(
        &mut self,
        complete: impl Iterator<Item = Complete>,
        all: bool,
        out: &mut Vec<Entry>,
    ) -> u64 {
        let mut to = complete.map(|complete| complete.to).min().unwrap_or(0);
        // Streams are sorted, which the sort exploits. It is stable: an interrupt that requested a
        // switch comes before the thread that it ended.
        self.waiting.sort_by_key(|entry| entry.time);
        if all {
            to = u64::MAX;
        } else if self.waiting.len() > MAX_WAITING {
            to = to.max(self.waiting[self.waiting.len() / 2].time);
        }
        self.released_to = self.released_to.max(to);
        let count = self.waiting.partition_point(|entry| entry.time <= self.released_to);
        if out.is_empty() {
            std::mem::swap(&mut self.waiting, out);
            self.waiting.extend(out.drain(count..));
        } else {
            out.extend(self.waiting.drain(..count));
        }
        self.released_to
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use recorder_abi::flag;

    use super::*;

    const MS: u64 = 1_000_000;

    fn record(start: u64, gross: u64) -> [u64; ENTRY_WORDS] {
        let mut words = [0; ENTRY_WORDS];
        (words[0], words[1]) = (start, gross);
        words[5] = u64::from(kind::VECTOR) << 48;
        words
    }

    fn task(at: u64, kind: u8) -> [u64; ENTRY_WORDS] {
        let mut words = [0; ENTRY_WORDS];
        // A name has no length.
        (words[0], words[1]) = (at, u64::MAX);
        words[5] = u64::from(kind) << 48 | u64::from(flag::POINT) << 56;
        words
    }

    fn quiet(now: u64) -> Complete {
        let mut complete = Complete::default();
        complete.looked(now, true, true, Stream::default());
        complete
    }

    fn times(entries: &[Entry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.time).collect()
    }

    #[test]
    fn a_fork_comes_before_what_the_child_does_on_another_cpu() {
        let (mut order, mut parent, mut child) =
            (Order::default(), Stream::default(), Stream::default());
        order.push(child.entry(record(5_000, 4_000)));
        order.push(child.entry(task(9_500, kind::TASK)));
        order.push(parent.entry(record(1_000, 2_000)));
        order.push(parent.entry(task(4_000, kind::FORK)));
        let mut out = Vec::new();
        order.release([quiet(MS), quiet(MS)].into_iter(), false, &mut out);
        assert_eq!(times(&out), [3_000, 4_000, 9_000, 9_500]);
    }

    #[test]
    fn what_was_noticed_late_keeps_its_place_in_its_stream() {
        let (mut order, mut stream) = (Order::default(), Stream::default());
        order.push(stream.entry(record(5_000, 4_000)));
        order.push(stream.entry(record(1_000, 0)));
        let mut out = Vec::new();
        order.release([quiet(MS)].into_iter(), false, &mut out);
        assert_eq!(out[1].words[0], 1_000);
        assert_eq!(times(&out), [9_000, 9_000]);
    }

    #[test]
    fn nothing_younger_than_the_slowest_cpu_is_released() {
        let mut order = Order::default();
        let mut fast = Stream::default();
        order.push(fast.entry(record(MS, 0)));
        order.push(fast.entry(record(5 * MS, 0)));
        let mut out = Vec::new();
        let released = order.release([quiet(9 * MS), quiet(2 * MS)].into_iter(), false, &mut out);
        assert_eq!((released, times(&out)), (2 * MS - SLACK_NS, vec![MS]));
        // The slow CPU sends entries timed before the fast one's last.
        let mut slow = Stream::default();
        order.push(slow.entry(record(3 * MS, 0)));
        out.clear();
        order.release([quiet(9 * MS), quiet(9 * MS)].into_iter(), false, &mut out);
        assert_eq!(times(&out), [3 * MS, 5 * MS]);
    }

    #[test]
    fn an_entry_that_is_reserved_and_not_written_holds_its_cpu_back() {
        let mut ring = Stream::default();
        ring.entry(record(3 * MS, 0));
        let mut complete = Complete::default();
        complete.looked(9 * MS, true, false, ring);
        assert_eq!(complete.to, 3 * MS);
        complete.looked(10 * MS, true, true, ring);
        assert_eq!(complete.to, 10 * MS - SLACK_NS);
    }

    #[test]
    fn a_program_under_way_holds_its_cpu_back_but_not_for_ever() {
        let mut complete = quiet(9 * MS);
        complete.looked(20 * MS, false, true, Stream::default());
        assert_eq!(complete.to, 9 * MS - SLACK_NS);
        complete.looked(20 * MS + GIVE_UP_NS, false, true, Stream::default());
        assert_eq!(complete.to, 20 * MS);
    }

    #[test]
    fn a_cpu_that_says_nothing_does_not_fill_the_memory() {
        let (mut order, mut stream) = (Order::default(), Stream::default());
        for i in 0..=MAX_WAITING as u64 {
            order.push(stream.entry(record(i, 0)));
        }
        let mut out = Vec::new();
        order.release([Complete::default()].into_iter(), false, &mut out);
        assert!(out.len() > MAX_WAITING / 2 && order.waiting.len() <= MAX_WAITING / 2);
    }

    proptest! {
        /// Streams read in any order and at any pace come out complete and sorted.
        #[test]
        fn streams_come_out_whole_and_sorted(
            lengths in prop::collection::vec(prop::collection::vec(1u64..50_000, 0..60), 1..6),
            looks in prop::collection::vec((0usize..6, 1usize..20), 0..60),
        ) {
            let mut order = Order::default();
            let count = lengths.len();
            let mut streams = vec![Stream::default(); count];
            let mut complete = vec![Complete::default(); count];
            let (mut next, mut at) = (vec![0usize; count], vec![0u64; count]);
            let mut all = Vec::new();
            let mut out = Vec::new();
            for (cpu, entries) in looks {
                let cpu = cpu % count;
                for _ in 0..entries {
                    let Some(length) = lengths[cpu].get(next[cpu]) else { break };
                    at[cpu] += length;
                    next[cpu] += 1;
                    order.push(streams[cpu].entry(record(at[cpu], 0)));
                }
                // Everything that follows on this CPU is later than its last.
                complete[cpu].looked(at[cpu] + SLACK_NS, true, true, streams[cpu]);
                out.clear();
                order.release(complete.iter().copied(), false, &mut out);
                all.extend_from_slice(&out);
            }
            for cpu in 0..count {
                while let Some(length) = lengths[cpu].get(next[cpu]) {
                    at[cpu] += length;
                    next[cpu] += 1;
                    order.push(streams[cpu].entry(record(at[cpu], 0)));
                }
            }
            out.clear();
            order.release(complete.iter().copied(), true, &mut out);
            all.extend_from_slice(&out);
            prop_assert!(all.is_sorted_by_key(|entry| entry.time));
            prop_assert_eq!(all.len(), lengths.iter().map(Vec::len).sum::<usize>());
        }
    }
}
