//! Time lost per lane, over time.

/// Columns that a recording is divided into.
const COLUMNS: usize = 150;
/// Lanes considered, and lanes shown: the noisiest.
const LANES: usize = 8_192;
const SHOWN: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Length of a column, ns.
    pub column_ns: u64,
    /// In the order of the lane table.
    pub rows: Vec<HeatRow>,
    /// Quieter lanes that are not shown.
    pub left_out: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRow {
    pub lane: u32,
    /// Time lost in each column, ns.
    pub lost_ns: Vec<u64>,
    /// Time in each column that a thread ran or waited for a CPU, ns. Empty for CPUs, and if not
    /// recorded.
    pub wanted_ns: Vec<u64>,
}

impl HeatRow {
    /// Base of the share of time lost in a column.
    #[must_use]
    pub fn base_ns(&self, column: usize, column_ns: u64) -> u64 {
        match self.wanted_ns.get(column) {
            // Page faults that slept are also lost time.
            Some(&wanted) => wanted.max(self.lost_ns[column]).clamp(1, column_ns.max(1)),
            None => column_ns.max(1),
        }
    }
}

pub(super) struct Collector {
    from_ns: u64,
    column_ns: u64,
    lanes: usize,
    rows: Vec<HeatRow>,
    row_of: std::collections::BTreeMap<u32, usize>,
}

impl Collector {
    pub(super) fn new(from_ns: u64, to_ns: u64, lanes: usize) -> Self {
        let column_ns = to_ns.saturating_sub(from_ns).div_ceil(COLUMNS as u64).max(1);
        Collector { from_ns, column_ns, lanes, rows: Vec::new(), row_of: Default::default() }
    }

    fn row(&mut self, lane: u32) -> Option<&mut HeatRow> {
        let next = self.rows.len();
        let index = match self.row_of.get(&lane) {
            Some(&index) => index,
            None if next < LANES => {
                self.row_of.insert(lane, next);
                let lost_ns = vec![0; COLUMNS];
                self.rows.push(HeatRow { lane, lost_ns, wanted_ns: Vec::new() });
                next
            }
            None => return None,
        };
        self.rows.get_mut(index)
    }

    pub(super) fn add(&mut self, lane: u32, start_ns: u64, len_ns: u64) {
        let (from_ns, width) = (self.from_ns, self.column_ns);
        let Some(row) = self.row(lane) else { return };
        spread(&mut row.lost_ns, width, start_ns.saturating_sub(from_ns), len_ns);
    }

    /// A thread ran, or waited for a CPU.
    pub(super) fn wanted(&mut self, lane: u32, start_ns: u64, len_ns: u64) {
        let (from_ns, width) = (self.from_ns, self.column_ns);
        let Some(row) = self.row(lane) else { return };
        row.wanted_ns.resize(COLUMNS, 0);
        spread(&mut row.wanted_ns, width, start_ns.saturating_sub(from_ns), len_ns);
    }

    pub(super) fn finish(mut self) -> Heat {
        // A lane without detours is an empty row.
        for lane in 0..self.lanes.min(LANES) {
            self.row(lane as u32);
        }
        let total =
            |row: &HeatRow| row.lost_ns.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        self.rows.sort_by_key(|row| (std::cmp::Reverse(total(row)), row.lane));
        self.rows.truncate(SHOWN);
        self.rows.sort_by_key(|row| row.lane);
        let left_out = self.lanes.saturating_sub(self.rows.len());
        Heat { column_ns: self.column_ns, rows: self.rows, left_out }
    }
}

/// Splits an interval among the columns it overlaps.
fn spread(columns: &mut [u64], width: u64, start: u64, len_ns: u64) {
    let end = start.saturating_add(len_ns);
    let first = (start / width) as usize;
    for (column, sum) in columns.iter_mut().enumerate().skip(first) {
        let begins = (column as u64).saturating_mul(width);
        if begins >= end {
            break;
        }
        let part = end.min(begins.saturating_add(width)).saturating_sub(start.max(begins));
        *sum = sum.saturating_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_counts_where_it_takes_time_and_nowhere_twice() {
        let mut collector = Collector::new(1_000, 1_000 + 150 * 100, 2);
        collector.add(0, 1_050, 250);
        collector.add(0, 1_999, 1);
        let heat = collector.finish();
        assert_eq!(heat.column_ns, 100);
        assert_eq!(heat.rows[0].lost_ns[..4], [50, 100, 100, 0]);
        assert_eq!(heat.rows[0].lost_ns[9], 1);
        assert_eq!(heat.rows[0].lost_ns.iter().sum::<u64>(), 251);
        assert!(heat.rows[1].lost_ns.iter().all(|&ns| ns == 0));
    }

    #[test]
    fn a_thread_that_sleeps_most_of_a_column_lost_a_share_of_the_rest() {
        let mut collector = Collector::new(0, 150 * 100, 2);
        collector.add(0, 10, 5);
        collector.wanted(0, 0, 20);
        collector.add(1, 10, 5);
        let heat = collector.finish();
        assert_eq!(heat.rows[0].base_ns(0, heat.column_ns), 20);
        assert_eq!(heat.rows[1].base_ns(0, heat.column_ns), 100);
    }

    #[test]
    fn of_very_many_lanes_the_noisiest_are_shown() {
        let mut collector = Collector::new(0, 1_000, 300);
        for lane in 0..300u32 {
            collector.add(lane, 10, u64::from(lane));
        }
        let heat = collector.finish();
        assert_eq!((heat.rows.len(), heat.left_out), (SHOWN, 300 - SHOWN));
        assert_eq!(heat.rows.first().map(|r| r.lane), Some(300 - SHOWN as u32));
    }

    #[test]
    fn times_of_a_damaged_file_do_not_take_it_down() {
        for (from, to) in [(u64::MAX, 0), (0, u64::MAX)] {
            let mut collector = Collector::new(from, to, 0);
            collector.add(u32::MAX, u64::MAX, u64::MAX);
            collector.add(0, 0, u64::MAX);
            assert_eq!(collector.finish().rows.len(), 2);
        }
    }
}
