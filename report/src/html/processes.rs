//! The table of processes: what each costs the node, and what the job would gain without it.

use analysis::{ProcessRow, Summary};
use trace::Class;

use super::{
    actions::unbroken,
    tables::{FIRST, NAME, ROWS},
};
use crate::{
    processes::ranked,
    words::{count, cut, interval_said, label_of, percent, percent_said, safe, tight},
};

/// One row.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) unit: String,
    pub(super) own: bool,
    pub(super) program: bool,
    /// The job gains more from its absence than from any other's; or it takes more time, if nothing was
    /// simulated.
    pub(super) most: bool,
    pub(super) gain: String,
    pub(super) interval: String,
    pub(super) share: String,
    /// 0 to 100.
    pub(super) bar: String,
    pub(super) count: String,
    pub(super) cost: String,
    /// What it consists of, unless that is a single source.
    pub(super) parts: Vec<String>,
}

/// Those shown initially, and the rest.
pub(super) fn processes(summary: &Summary) -> (Vec<Process>, Vec<Process>) {
    let (rows, _) = ranked(summary);
    let most = rows.iter().position(|row| !row.own);
    let rows = rows.into_iter().take(ROWS).enumerate();
    let mut rows: Vec<Process> = rows.map(|(at, row)| process(row, Some(at) == most)).collect();
    let rest = rows.split_off(rows.len().min(FIRST));
    (rows, rest)
}

fn process(row: &ProcessRow, most: bool) -> Process {
    let part = |source: &analysis::ProcessSource| {
        let label = cut(&safe(&label_of(source.class, &source.name)), NAME);
        format!("{label}: {} in {}", tight(source.cost_ns_total), count(source.count))
    };
    let parts =
        if row.sources.len() > 1 { row.sources.iter().map(part).collect() } else { Vec::new() };
    Process {
        name: cut(&safe(&label_of(row.class, &row.process)), NAME),
        kind: if row.class == Class::Thread { "process" } else { row.class.name() },
        unit: cut(&safe(row.unit.as_deref().unwrap_or_default()), NAME),
        own: row.own,
        program: row.program,
        most,
        gain: row.gain_pct.map(|pct| unbroken(&percent_said(pct))).unwrap_or_default(),
        interval: row.gain_ci95_pct.map(|ends| unbroken(&interval_said(ends))).unwrap_or_default(),
        share: percent(row.share_pct),
        bar: format!("{:.1}", row.share_pct.clamp(0.0, 100.0)),
        count: count(row.count),
        cost: tight(row.cost_ns_total),
        parts,
    }
}
