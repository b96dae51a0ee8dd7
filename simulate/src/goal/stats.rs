//! The contents of a schedule, counted without running it.

use crate::event::{Action, Kind, Schedule};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub ranks: u32,
    pub operations: u64,
    pub sends: u64,
    pub recvs: u64,
    pub calcs: u64,
    pub requires: u64,
    pub irequires: u64,
    /// Operations without dependencies.
    pub roots: u64,
    /// CPUs and NICs per rank.
    pub cpus: usize,
    pub nics: usize,
    /// Total bytes of all messages.
    pub bytes: u128,
    /// Smallest and largest message, bytes.
    pub sizes: Option<(u64, u64)>,
    /// Messages by size: entry 0 those of 0 bytes, entry n those of 2^(n-1) up to 2^n - 1 bytes.
    pub by_size: Vec<u64>,
    /// Receives from any source or with any tag, and sends with any tag.
    pub wildcards: u64,
    /// Total computation, ps.
    pub calc_ps: i128,
    /// The rank with the most computation, and its amount, ps.
    pub busiest: Option<(u32, i128)>,
    /// The rank with the most operations, and their number.
    pub longest: Option<(u32, u64)>,
    /// Ranks whose operations have only one order, whatever the times.
    pub ordered: u32,
    /// Messages whose receive is known in advance, whatever the times.
    pub paired: u64,
    /// Size of the schedule in memory, bytes.
    pub memory: u64,
}

impl Stats {
    pub fn of(schedule: &Schedule) -> Stats {
        let mut stats = Stats {
            ranks: schedule.ranks(),
            operations: schedule.operations() as u64,
            roots: schedule.dependency_counts().iter().filter(|&&count| count == 0).count() as u64,
            cpus: schedule.cpus(),
            nics: schedule.nics(),
            by_size: vec![0; 65],
            memory: schedule.memory() as u64,
            ..Stats::default()
        };
        for rank in 0..schedule.ranks() {
            stats.rank(schedule, rank);
        }
        while stats.by_size.last() == Some(&0) {
            stats.by_size.pop();
        }
        stats
    }

    fn rank(&mut self, schedule: &Schedule, rank: u32) {
        let ops = schedule.of_rank(rank);
        let mut work = 0i128;
        for op in ops.clone() {
            self.requires += schedule.successors(op).len() as u64;
            self.irequires += schedule.start_successors(op).len() as u64;
            match schedule.operation(op).action {
                Action::Send { bytes, tag, .. } => {
                    self.message(bytes);
                    self.wildcards += u64::from(tag.is_none());
                    self.paired += u64::from(schedule.partner(op).is_some());
                }
                Action::Recv { from, tag, .. } => {
                    self.recvs += 1;
                    self.wildcards += u64::from(from.is_none() || tag.is_none());
                }
                Action::Calc { ps } | Action::Choice { ps, .. } => work += i128::from(ps),
                Action::Request => {}
            }
            self.calcs += u64::from(schedule.kind(op) == Kind::Calc);
        }
        self.calc_ps += work;
        if work > self.busiest.map_or(0, |(_, most)| most) {
            self.busiest = Some((rank, work));
        }
        let count = ops.len() as u64;
        if count > self.longest.map_or(0, |(_, most)| most) {
            self.longest = Some((rank, count));
        }
        self.ordered += u32::from(schedule.is_ordered(rank));
    }

    fn message(&mut self, bytes: u64) {
        self.sends += 1;
        self.bytes += u128::from(bytes);
        let (least, most) = self.sizes.unwrap_or((bytes, bytes));
        self.sizes = Some((least.min(bytes), most.max(bytes)));
        self.by_size[bytes.checked_ilog2().map_or(0, |power| power as usize + 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::{CalcUnit, read_text};

    #[test]
    fn everything_is_counted() {
        let text = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 0b to 1\nc: send 9b to 1 tag 2 cpu 1\n\
                    b requires a\nc irequires b\n}\nrank 1 {\na: recv 9b from -1\nb: recv 9b from 0 tag 2\n}\n";
        let schedule = read_text(text.as_bytes(), CalcUnit::default()).unwrap();
        let stats = Stats::of(&schedule);
        assert_eq!((stats.ranks, stats.operations, stats.roots), (2, 5, 3));
        assert_eq!((stats.sends, stats.recvs, stats.calcs), (2, 2, 1));
        assert_eq!((stats.requires, stats.irequires, stats.wildcards), (1, 1, 1));
        assert_eq!((stats.bytes, stats.sizes), (9, Some((0, 9))));
        assert_eq!(stats.by_size, [1, 0, 0, 0, 1]);
        assert_eq!((stats.calc_ps, stats.busiest), (5_000, Some((0, 5_000))));
        assert_eq!((stats.longest, stats.cpus, stats.nics), (Some((0, 3)), 2, 1));
    }

    #[test]
    fn an_empty_schedule_has_nothing() {
        let schedule = read_text(&b"num_ranks 1\nrank 0 {\n}\n"[..], CalcUnit::default()).unwrap();
        let stats = Stats::of(&schedule);
        assert_eq!((stats.operations, stats.sizes, stats.busiest), (0, None, None));
        assert!(stats.by_size.is_empty());
    }
}
