//! Distinguishes new events from repetitions of an event on further threads.
//!
//! An interrupt hits every thread that waits for its CPU, and is recorded on the lane of each. The
//! recorder marks all but the first ([`RecordFlags::REPEATED`]). Older recordings have no marks: there
//! an event is identified by its CPU, start and source, among the last million or so.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use trace::{Record, RecordFlags};

/// Events remembered in each of two generations: some 20 MiB in total.
const REMEMBERED: usize = 1 << 20;

/// What a record counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// An interruption that has not been counted yet.
    pub(crate) event: bool,
    /// An interruption of this thread or CPU: true for all but continued records and sums.
    pub(crate) hit: bool,
}

/// Distinguishes events from repetitions.
#[derive(Default)]
pub(crate) struct Events {
    /// No unmarked repetitions: lanes are CPUs, or the recorder marked them.
    trusted: bool,
    recent: HashSet<u64, BuildHasherDefault<AsItIs>>,
    older: HashSet<u64, BuildHasherDefault<AsItIs>>,
}

impl Events {
    /// Recordings of CPUs have no repetitions.
    pub(crate) fn new(of_threads: bool) -> Events {
        Events { trusted: !of_threads, ..Events::default() }
    }

    pub(crate) fn tally(&mut self, record: &Record) -> Tally {
        let hit = !record.flags.contains(RecordFlags::CONTINUED) && !record.is_sum();
        let repeated = record.flags.contains(RecordFlags::REPEATED);
        if repeated && !self.trusted {
            self.trusted = true;
            (self.recent, self.older) = Default::default();
        }
        let event = hit && !repeated && (self.trusted || self.is_new(record));
        Tally { event, hit }
    }

    fn is_new(&mut self, record: &Record) -> bool {
        let place = u64::from(record.cpu) << 32 | u64::from(record.source.0);
        let key = mix(record.start_ns ^ mix(place));
        if self.older.contains(&key) || !self.recent.insert(key) {
            return false;
        }
        if self.recent.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
        }
        true
    }
}

/// The finaliser of SplitMix64: keys are evenly distributed, so the table need not hash them again.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::SourceId;

    fn record(cpu: u16, start_ns: u64, flags: RecordFlags) -> Record {
        Record {
            start_ns,
            gross_ns: 5,
            net_ns: 5,
            cost_ns: 5,
            source: SourceId(1),
            cpu,
            depth: 1,
            flags,
        }
    }

    #[test]
    fn an_event_is_known_by_its_cpu_and_start_where_nothing_is_marked() {
        let plain = RecordFlags::default();
        let mut events = Events::new(true);
        let mut event = |cpu, start| events.tally(&record(cpu, start, plain)).event;
        assert!(event(0, 100) && event(1, 100) && event(0, 200));
        assert!(!event(0, 100) && !event(1, 100));
        let mut on_cpus = Events::new(false);
        assert!((0..2).all(|_| on_cpus.tally(&record(0, 100, plain)).event));
    }

    #[test]
    fn marks_are_trusted_and_continued_records_are_not_counted() {
        let mut events = Events::new(true);
        let again = events.tally(&record(0, 100, RecordFlags::REPEATED));
        assert_eq!(again, Tally { event: false, hit: true });
        let more = events.tally(&record(0, 105, RecordFlags::CONTINUED));
        assert_eq!(more, Tally { event: false, hit: false });
        assert!((0..2).all(|_| events.tally(&record(0, 100, RecordFlags::default())).event));
    }

    #[test]
    fn memory_is_bounded() {
        let mut events = Events::new(true);
        for start in 0..3 * REMEMBERED as u64 {
            assert!(events.tally(&record(0, start, RecordFlags::default())).event);
        }
        assert!(events.recent.len() < REMEMBERED && events.older.len() <= REMEMBERED);
    }
}
