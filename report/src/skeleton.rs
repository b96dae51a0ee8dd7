//! Table of a skeleton's times with and without noise, by rank count.

use study::jobs::skeleton::Skeletons;

use crate::{Options, slowdown, slowdown_findings, words::wrap};

/// The table, followed by [`skeleton_findings`].
#[must_use]
pub fn skeleton(result: &Skeletons, options: Options) -> String {
    let table = slowdown(&result.as_sweep(), options);
    format!("Model of {}\n{table}{}", result.about.model, shares(result, options))
}

/// What follows the table: the share of communication, the knee of each series, and the breakdown of the
/// critical path, if any.
#[must_use]
pub fn skeleton_findings(result: &Skeletons, options: Options) -> String {
    shares(result, options) + &slowdown_findings(&result.as_sweep(), options)
}

fn shares(result: &Skeletons, options: Options) -> String {
    let share = |point: &study::run::point::Point| {
        let (all, collectives) = (point.communication_pct?, point.collectives_pct?);
        Some((point.ranks, all, collectives))
    };
    let Some((ranks, all, collectives)) = result.points.first().and_then(share) else {
        return String::new();
    };
    let calls = result.about.calls.iter().map(|call| format!("{} {}", call.times, call.op));
    let calls: Vec<String> = calls.collect();
    let calls = if calls.is_empty() { "none".to_owned() } else { calls.join(", ") };
    let text = format!(
        "A model, not a program: {all:.1} % of the time of {ranks} ranks without noise is communication, \
         {collectives:.1} % collectives ({calls})."
    );
    format!("\n{}\n", wrap(&text, options.style().width, ""))
}
