//! The balance of one CPU: net times of all records compared with elapsed time.
//!
//! Threads follow each other without a gap, and everything else nests inside them, so from the first
//! thread's start to the last one's end the net times must add up to wall time.

use recorder_abi::{Record, kind};

#[derive(Default)]
pub struct Balance {
    /// Start of the first thread, end of the last.
    span: Option<(u64, u64)>,
    net: u64,
    /// Not yet known to be inside a thread: start and net time, of one interruption or of several
    /// consecutive ones.
    waiting: Vec<(u64, u64)>,
}

/// Records nested inside a thread arrive before its own. A thread that stays on its CPU for hours must
/// not keep one entry for each: 16 KiB per CPU.
const MAX_WAITING: usize = 1 << 10;

impl Balance {
    /// Adds the records of one CPU. Threads come in the order they were sent; records nested inside one
    /// come before it, and may come before earlier threads as well.
    pub fn add(&mut self, record: &Record) {
        let end = record.start + record.gross;
        if record.kind() != kind::THREAD {
            if self.span.is_some_and(|(from, _)| record.start < from) {
                return;
            }
            if self.waiting.len() == MAX_WAITING {
                self.fold();
            }
            self.waiting.push((record.start, record.net));
            return;
        }
        let from = self.span.map_or(record.start, |(from, _)| from);
        let net = &mut self.net;
        // Parts of one thread (several work items) follow each other like threads.
        *net += record.net;
        self.waiting.retain(|&(start, inside)| {
            if start >= from && start < end {
                *net += inside;
            }
            start >= end
        });
        self.span = Some((from, end));
    }

    /// Joins the older half in pairs. The newer half may belong to a thread that is still to come; the
    /// older half is almost certainly inside the running one. Until the first thread's start is known, the
    /// oldest ones stay apart: some of them may precede it.
    fn fold(&mut self) {
        self.waiting.sort_unstable();
        let apart = if self.span.is_none() { MAX_WAITING / 4 } else { 0 };
        let newer = self.waiting.split_off(MAX_WAITING / 2);
        let older = self.waiting.split_off(apart);
        let joined = older.chunks(2).map(|pair| (pair[0].0, pair.iter().map(|(_, net)| net).sum()));
        self.waiting.extend(joined);
        self.waiting.extend(newer);
    }

    /// |net - wall| / wall, and the wall time. None if fewer than two switches were seen.
    pub fn error(&self) -> Option<(f64, u64)> {
        let (from, to) = self.span?;
        let wall = to.checked_sub(from).filter(|wall| *wall > 0)?;
        Some((self.net.abs_diff(wall) as f64 / wall as f64, wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, start: u64, gross: u64, net: u64) -> Record {
        Record { start, gross, net, kind_depth: kind, ..Record::default() }
    }

    fn error(balance: &Balance) -> Option<f64> {
        balance.error().map(|(error, _)| error)
    }

    #[test]
    fn a_whole_account_closes_and_a_lost_record_shows() {
        let mut whole = Balance::default();
        let mut lossy = Balance::default();
        // An interrupt before the first thread is not counted.
        whole.add(&record(kind::VECTOR, 10, 5, 5));
        for i in 0..100 {
            let tick = record(kind::VECTOR, 1_000 * i + 500, 100, 100);
            let thread = record(kind::THREAD, 1_000 * i, 1_000, 900);
            whole.add(&tick);
            whole.add(&thread);
            if i % 10 != 5 {
                lossy.add(&tick);
            }
            lossy.add(&thread);
        }
        assert!(error(&whole).is_some_and(|e| e < 1e-3), "{:?}", whole.error());
        assert!(error(&lossy).is_some_and(|e| (e - 0.01).abs() < 1e-9), "{:?}", lossy.error());
    }

    #[test]
    fn an_interrupt_that_is_told_early_belongs_to_the_thread_it_hit() {
        let mut balance = Balance::default();
        balance.add(&record(kind::VECTOR, 1_500, 100, 100));
        balance.add(&record(kind::THREAD, 0, 1_000, 1_000));
        assert_eq!(error(&balance), Some(0.0));
        balance.add(&record(kind::THREAD, 1_000, 1_000, 900));
        assert_eq!(error(&balance), Some(0.0));
    }

    #[test]
    fn the_interrupts_of_a_thread_that_stays_for_an_hour_are_counted_in_little_memory() {
        const STAYED_NS: u64 = 3_600_000_000_000;
        const TICK_NS: u64 = 4_000_000;
        let mut balance = Balance::default();
        balance.add(&record(kind::THREAD, 0, 1_000, 1_000));
        for tick in 1..STAYED_NS / TICK_NS {
            balance.add(&record(kind::VECTOR, tick * TICK_NS, 2_000, 2_000));
        }
        assert!(balance.waiting.capacity() <= 2 * MAX_WAITING, "{}", balance.waiting.capacity());
        let ticks = (STAYED_NS / TICK_NS - 1) * 2_000;
        let stayed = STAYED_NS - 1_000;
        balance.add(&record(kind::THREAD, 1_000, stayed, stayed - ticks));
        assert_eq!(error(&balance), Some(0.0));
    }

    #[test]
    fn interrupts_before_the_first_thread_take_none_of_its_own_along() {
        let mut balance = Balance::default();
        for i in 0..51 {
            balance.add(&record(kind::VECTOR, 100 * i, 10, 10));
        }
        const STORM: u64 = 20_000;
        for i in 0..STORM {
            balance.add(&record(kind::VECTOR, 10_000 + 100 * i, 10, 10));
        }
        // It began before the first thread.
        balance.add(&record(kind::FAULT_USER, 5_050, 2_000_000, 10));
        balance.add(&record(kind::THREAD, 10_000, 100 * STORM, 90 * STORM));
        assert_eq!(error(&balance), Some(0.0));
        balance.add(&record(kind::FAULT_USER, 5_060, 2_000_000, 10));
        for i in STORM..2 * STORM {
            balance.add(&record(kind::VECTOR, 10_000 + 100 * i, 10, 10));
        }
        balance.add(&record(kind::THREAD, 10_000 + 100 * STORM, 100 * STORM, 90 * STORM));
        assert_eq!(error(&balance), Some(0.0));
    }

    #[test]
    fn without_switches_there_is_nothing_to_close() {
        let mut balance = Balance::default();
        balance.add(&record(kind::VECTOR, 10, 5, 5));
        assert_eq!(balance.error(), None);
    }
}
