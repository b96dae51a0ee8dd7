//! One row per thing that can be switched off: a process with its threads, its page faults, the timers
//! that wake it, and the IPIs and softirqs it causes; and each source of the kernel itself.

use std::collections::HashMap;

use trace::{ProcessKey, Source};

use crate::lanes::pct;
use crate::rows::{MAX_ROWS, Part, Rows, TOO_MANY};
use crate::summary::{ProcessRow, ProcessSource};

/// Sources listed of a process, the most costly ones.
const SOURCES: usize = 16;
/// Sources kept of a process while they are summed up: a file can claim any number.
const KEPT: usize = 256;
/// PIDs listed of a process.
const PIDS: usize = 8;

/// Most costly first.
pub(crate) fn processes(rows: &Rows, sources: &[Source], taken_ns: u64) -> Vec<ProcessRow> {
    let mut processes: Vec<ProcessRow> = Vec::new();
    let mut places: HashMap<ProcessKey, usize> = HashMap::new();
    for (source, fine) in sources.iter().zip(&rows.fine) {
        let Part { count, hits, cost_ns } = fine.part;
        if hits == 0 && cost_ns == 0 {
            continue;
        }
        let mut key = source.process_key();
        if processes.len() >= MAX_ROWS && !places.contains_key(&key) {
            key = ProcessKey { process: TOO_MANY.to_owned(), unit: None, ..key };
        }
        let place = *places.entry(key).or_insert_with_key(|key| {
            processes.push(empty(key));
            processes.len() - 1
        });
        let row = &mut processes[place];
        row.count += count;
        row.hits += hits;
        row.cost_ns_total = row.cost_ns_total.saturating_add(cost_ns);
        row.add_pids(source);
        let is_it = |part: &&mut ProcessSource| {
            (part.class, &part.name, &part.unit) == (source.class, &source.name, &source.unit)
        };
        let is_full = row.sources.len() >= KEPT;
        match row.sources.iter_mut().find(is_it) {
            Some(part) => {
                part.count += count;
                part.cost_ns_total = part.cost_ns_total.saturating_add(cost_ns);
            }
            None if is_full => {}
            None => row.sources.push(ProcessSource {
                class: source.class,
                name: source.name.clone(),
                unit: source.unit.clone(),
                count,
                cost_ns_total: cost_ns,
            }),
        }
    }
    for row in &mut processes {
        row.share_pct = pct(row.cost_ns_total, taken_ns);
        let by_cost = |part: &ProcessSource| std::cmp::Reverse(part.cost_ns_total);
        row.sources.sort_by_key(by_cost);
        row.sources.truncate(SOURCES);
    }
    processes
        .sort_by(|a, b| b.cost_ns_total.cmp(&a.cost_ns_total).then_with(|| a.key().cmp(&b.key())));
    processes
}

fn empty(key: &ProcessKey) -> ProcessRow {
    ProcessRow {
        process: key.process.clone(),
        class: key.class,
        unit: key.unit.clone(),
        pids: Vec::new(),
        own: key.own,
        program: key.program,
        sources: Vec::new(),
        count: 0,
        hits: 0,
        cost_ns_total: 0,
        share_pct: 0.0,
        gain_pct: None,
        gain_ci95_pct: None,
    }
}

impl ProcessRow {
    fn add_pids(&mut self, source: &Source) {
        for pid in &source.pids {
            if self.pids.len() < PIDS && !self.pids.contains(pid) {
                self.pids.push(*pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trace::{Cause, Class};

    use super::*;
    use crate::program::events::Tally;

    #[test]
    fn a_process_is_one_row_with_all_it_causes() {
        let source = |class, name: &str, cause: Option<&str>| Source {
            class,
            name: name.into(),
            unit: (class == Class::Thread).then(|| "mon.service".to_owned()),
            detail: None,
            pids: vec![7],
            own: false,
            program: false,
            policy: None,
            cause: cause.map(|process| Cause {
                process: process.into(),
                unit: Some("mon.service".into()),
                own: false,
                program: false,
            }),
        };
        let sources = [
            source(Class::Thread, "mond", None),
            source(Class::Thread, "pool-1", Some("mond")),
            source(Class::Timer, "hrtimer: hrtimer_wakeup", Some("mond")),
            source(Class::Timer, "hrtimer: hrtimer_wakeup", Some("mond")),
            source(Class::Timer, "tick", None),
        ];
        let mut rows = Rows::default();
        rows.extend(&sources);
        let once = Tally { event: true, hit: true };
        for (fine, cost) in rows.fine.iter_mut().zip([500, 200, 20, 30, 250]) {
            fine.part.add(once, cost);
        }
        let all = processes(&rows, &sources, 1000);
        let said: Vec<_> = all.iter().map(|p| (p.process.as_str(), p.cost_ns_total)).collect();
        assert_eq!(said, [("mond", 750), ("tick", 250)]);
        assert_eq!((all[0].count, all[0].share_pct, &all[0].pids[..]), (4, 75.0, &[7][..]));
        let parts: Vec<_> = all[0].sources.iter().map(|s| (s.name.as_str(), s.count)).collect();
        assert_eq!(parts, [("mond", 1), ("pool-1", 1), ("hrtimer: hrtimer_wakeup", 2)]);
    }
}
