//! The nodes of a merged trace on the page: one row each, and outliers.

use analysis::{NodeRow, Summary};

use super::{
    scale::time,
    tables::{ROWS, limited, micro},
};
use crate::{
    Options, nodes,
    words::{count, cut, percent, plural, safe},
};

/// Characters of a host name and of a kernel version.
const NAME: usize = 40;
/// Outliers listed.
const OUTLIERS: usize = 6;

pub(super) struct Nodes {
    pub(super) rows: Vec<Vec<String>>,
    pub(super) remarks: Vec<String>,
}

/// None if there is only one node.
pub(super) fn nodes(summary: &Summary) -> Option<Nodes> {
    if summary.nodes.is_empty() {
        return None;
    }
    let mut all: Vec<&NodeRow> = summary.nodes.iter().collect();
    let mut remarks = nodes::remarks(summary, Options { top: OUTLIERS, ..Options::default() });
    if all.len() > ROWS {
        all.sort_by(|a, b| b.noise_pct.total_cmp(&a.noise_pct));
        let more = plural((all.len() - ROWS) as u64, "more node");
        all.truncate(ROWS);
        remarks.insert(0, format!("The noisiest; {more} with less noise (--all shows them)"));
    }
    let row = |node: &&NodeRow| {
        vec![
            cut(&safe(&node.host), NAME),
            cut(&safe(&node.kernel), NAME),
            node.lanes.to_string(),
            format!("+{}", time(node.started_after_s * 1e9)),
            count(node.detours),
            time(node.taken_ns_total as f64),
            percent(node.noise_pct),
            nodes::lost(&node.lost),
        ]
    };
    let on_a_page = |line: &String| {
        let line = line.trim().replace("(--all shows them)", "(`detour report --all` lists them)");
        micro(&limited(&line))
    };
    let remarks = remarks.iter().map(on_a_page).collect();
    Some(Nodes { rows: all.iter().map(row).collect(), remarks })
}
