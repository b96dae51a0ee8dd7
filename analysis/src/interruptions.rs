//! Whole interruptions from the records of one lane. Distributions are over interruptions, and one
//! interruption may have several records.

use trace::{Record, RecordFlags};

/// Nesting is not deeper than this.
const DEPTHS: usize = 16;

/// The latest interruption at one depth: further records may continue it.
#[derive(Clone, Copy)]
struct Open {
    row: usize,
    /// Cost of the records that begin before the latest one.
    earlier_ns: Option<u64>,
    /// Start and cost of the latest records, which begin at the same time.
    start_ns: u64,
    ns: u64,
    /// All of these continue an interruption.
    continued: bool,
}

/// The interruptions of one lane, whose records come in order.
#[derive(Default)]
pub struct Interruptions {
    /// By nesting depth.
    open: Vec<Option<Open>>,
}

impl Interruptions {
    /// Adds a record that is not a sum. `row` is that of its source; records of different rows are
    /// different interruptions. Returns the row and cost of an interruption that is now complete.
    pub fn add(&mut self, record: &Record, row: usize) -> Option<(usize, u64)> {
        let Record { start_ns, flags, .. } = *record;
        // A record whose time is in a sum has a length, but no cost.
        let alone = flags.contains(RecordFlags::SUMMED);
        let ns = if alone { record.net_ns } else { record.cost_ns };
        let continued = flags.contains(RecordFlags::CONTINUED);
        let depth = usize::from(record.depth).min(DEPTHS - 1);
        if self.open.len() <= depth {
            self.open.resize(depth + 1, None);
        }
        let slot = self.open.get_mut(depth)?;
        match slot {
            // A task whose switch was not seen (docs/decisions/0005): first its time as a
            // continuation, then, at the same start, its beginning as a point.
            Some(open)
                if open.row == row
                    && open.continued
                    && open.start_ns == start_ns
                    && flags.contains(RecordFlags::POINT)
                    && !continued =>
            {
                open.ns = open.ns.saturating_add(ns);
                open.continued = false;
                open.earlier_ns.take().map(|ns| (row, ns))
            }
            Some(open) if open.row == row && continued => {
                if open.continued && open.start_ns == start_ns {
                    open.ns = open.ns.saturating_add(ns);
                } else {
                    let earlier_ns = open.earlier_ns.unwrap_or(0).saturating_add(open.ns);
                    let earlier_ns = Some(earlier_ns);
                    *open = Open { row, earlier_ns, start_ns, ns, continued };
                }
                None
            }
            // A continuation may belong to another row: the tick after another timer, the second
            // handler on an IRQ line.
            _ => {
                let next = Open { row, earlier_ns: None, start_ns, ns, continued };
                slot.replace(next).map(Open::whole)
            }
        }
    }

    /// The interruptions that no further record continues.
    pub fn finish(&mut self) -> impl Iterator<Item = (usize, u64)> {
        self.open.drain(..).flatten().map(Open::whole)
    }
}

impl Open {
    fn whole(self) -> (usize, u64) {
        (self.row, self.earlier_ns.unwrap_or(0).saturating_add(self.ns))
    }
}

#[cfg(test)]
mod tests {
    use trace::SourceId;

    use super::*;

    const HEAD: RecordFlags = RecordFlags::IN_DETOUR;
    const MORE: RecordFlags = RecordFlags::IN_DETOUR.with(RecordFlags::CONTINUED);
    const POINT: RecordFlags = RecordFlags::IN_DETOUR.with(RecordFlags::POINT);

    /// The interruptions of records (start, row, depth, cost, flags).
    fn of(records: &[(u64, usize, u8, u64, RecordFlags)]) -> Vec<(usize, u64)> {
        let mut all = Interruptions::default();
        let mut found = Vec::new();
        for &(start_ns, row, depth, cost_ns, flags) in records {
            let record = Record {
                start_ns,
                gross_ns: cost_ns,
                net_ns: cost_ns,
                cost_ns,
                source: SourceId(0),
                cpu: 0,
                depth,
                flags,
            };
            found.extend(all.add(&record, row));
        }
        found.extend(all.finish());
        found
    }

    #[test]
    fn a_task_whose_switch_was_not_seen_is_one_interruption() {
        let hidden = [(10, 7, 0, 239, MORE), (10, 7, 0, 0, POINT)];
        assert_eq!(of(&hidden), [(7, 239)]);
        let later = hidden.map(|(_, row, depth, ns, flags)| (900, row, depth, ns + 1, flags));
        assert_eq!(of(&[hidden, later].concat()), [(7, 239), (7, 241)]);
        // Its time does not belong to an interruption before it, but what continues it does.
        let (head, rest) = ([(2, 7, 0, 5, HEAD), (4, 7, 0, 6, MORE)], [(300, 7, 0, 20, MORE)]);
        assert_eq!(of(&[&head, &hidden[..], &rest].concat()), [(7, 11), (7, 259)]);
        // With an interrupt in between.
        let (time, point) = (hidden[0], hidden[1]);
        assert_eq!(of(&[time, (12, 1, 1, 3, HEAD), point]), [(7, 239), (1, 3)]);
        assert_eq!(of(&[point, time]), [(7, 239)]);
    }

    #[test]
    fn other_points_are_interruptions_of_their_own() {
        let point = (10, 7, 0, 4, POINT);
        for before in [
            (10, 7, 0, 239, HEAD),
            (9, 7, 0, 239, MORE),
            (10, 6, 0, 239, MORE),
            (10, 7, 0, 1, POINT),
        ] {
            assert_eq!(of(&[before, point]), [(before.1, before.3), (7, 4)], "{before:?}");
        }
        assert_eq!(of(&[(10, 7, 1, 239, MORE), point]), [(7, 4), (7, 239)]);
    }

    #[test]
    fn continuations_belong_to_the_latest_interruption_at_their_depth() {
        let nested = [(1, 0, 0, 9, HEAD), (2, 0, 1, 3, HEAD), (4, 0, 0, 5, MORE)];
        assert_eq!(of(&nested), [(0, 14), (0, 3)]);
        let other = [(1, 0, 0, 9, HEAD), (2, 1, 0, 3, MORE), (4, 0, 0, 5, MORE)];
        assert_eq!(of(&other), [(0, 9), (1, 3), (0, 5)]);
        assert_eq!(of(&[(1, 0, 40, 9, HEAD), (2, 0, 40, 1, MORE)]), [(0, 10)]);
    }
}
