//! Many nodes against one that is known to be good: which of them would delay a job, and why.

use std::path::Path;

use analysis::{Change, Verdict};
use anyhow::{Result, bail};
use serde::Serialize;

use crate::{
    decide::compare::{self, Before, Compared, compare_with},
    error::{in_words, was_stopped},
    jobs::workload,
    recording::{
        open::{self, AnyReader},
        recorded::{Recorded, no_source},
    },
    run::work::Work,
};

/// How much longer a job may take than on the good node, in percent.
pub const TOLERANCE: &str = "5%";

/// Nodes checked against a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// The recording of the good node.
    pub baseline: String,
    /// How much longer the job may take than on the good node.
    pub tolerance_pct: f64,
    /// In the order given.
    pub nodes: Vec<Checked>,
    pub failed: usize,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub file: String,
    /// Null if the recording cannot be read.
    pub host: Option<String>,
    pub pass: bool,
    /// How much longer the job takes than on the good node. Null if it cannot be simulated.
    pub change_pct: Option<f64>,
    pub change_ci95_pct: Option<[f64; 2]>,
    /// What takes more time than on the good node, most first; or why the node cannot be checked.
    pub why: Vec<String>,
    /// About noise that is not used.
    pub remarks: Vec<String>,
}

/// Reasons given for a node.
const REASONS: usize = 3;

/// Compares every recording with the baseline. A node fails if the job takes longer than tolerated with 95 %
/// confidence, or if it cannot be checked.
pub fn check(
    baseline: &Path,
    traces: &[impl AsRef<Path>],
    tolerance_pct: f64,
    workload: &workload::Request,
    request: &compare::Request,
    work: &Work<'_>,
) -> Result<Fleet> {
    if traces.is_empty() {
        bail!("no recordings to check");
    }
    // Otherwise, every node would fail for this reason.
    let mut good = Before::open(baseline)?;
    let not_in = |reader: &AnyReader| match request.exclude.is_empty() {
        true => Vec::new(),
        false => Recorded::new(reader).excluded_if_known(&request.exclude).1,
    };
    let lacks = not_in(good.reader());
    // Names that no recording has.
    let mut unknown = lacks.clone();
    let mut nodes = Vec::new();
    for trace in traces {
        let trace = trace.as_ref();
        let file = trace.display().to_string();
        let mut node = Checked {
            file,
            host: None,
            pass: false,
            change_pct: None,
            change_ci95_pct: None,
            why: Vec::new(),
            remarks: Vec::new(),
        };
        // What runs on some nodes only may be excluded.
        let opened = open::open(trace);
        let lacks_too = opened.as_ref().map_or_else(|_| lacks.clone(), not_in);
        unknown.retain(|name| lacks_too.contains(name));
        let mut request = request.clone();
        request.exclude.retain(|name| !(lacks.contains(name) && lacks_too.contains(name)));
        let compared =
            opened.and_then(|node| compare_with(&mut good, &node, workload, &request, work));
        match compared {
            Err(error) if was_stopped(&error) => return Err(error),
            Err(error) => node.why.push(in_words(&error)),
            Ok(compared) => judge(&mut node, &compared, tolerance_pct),
        }
        nodes.push(node);
    }
    if let Some(name) = unknown.first() {
        bail!("{}", no_source(name));
    }
    let failed = nodes.iter().filter(|node| !node.pass).count();
    Ok(Fleet { baseline: baseline.display().to_string(), tolerance_pct, nodes, failed })
}

fn judge(node: &mut Checked, compared: &Compared, tolerance_pct: f64) {
    node.host = Some(compared.comparison.after.host.clone());
    let Some(projected) = &compared.projected else {
        node.why.extend(compared.not_projected.clone());
        return;
    };
    node.pass = projected.change_ci95_pct[0] <= tolerance_pct;
    node.remarks.clone_from(&projected.remarks);
    node.change_pct = Some(projected.change_pct);
    node.change_ci95_pct = Some(projected.change_ci95_pct);
    let grew = |change: &&Change| {
        matches!(change.verdict, Verdict::Appeared | Verdict::More | Verdict::MoreOften)
    };
    let rows = compared.comparison.rows.iter().filter(grew);
    let rows = rows.filter(|change| !change.own && change.time_change_pct.value > 0.0);
    node.why = rows.take(REASONS).map(|change| change.name.clone()).collect();
}
