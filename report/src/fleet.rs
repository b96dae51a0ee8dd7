//! Many nodes against a good one: which pass, which fail, and why.

use study::decide::fleet::{Checked, Fleet};

use crate::{
    Options,
    diff::signed,
    grid::{Column, Grid, Tone},
    words::{percent_said, plural, safe, wrap},
};

#[must_use]
pub fn fleet(fleet: &Fleet, options: Options) -> String {
    let style = options.style();
    let failed = match fleet.failed {
        0 => "all pass".to_owned(),
        failed => format!("{failed} failed"),
    };
    let title = format!(
        "{} checked against {}: {failed}. A node fails if the job takes more than {} longer on it, with \
         95 % confidence.",
        plural(fleet.nodes.len() as u64, "node"),
        safe(&fleet.baseline),
        percent_said(fleet.tolerance_pct)
    );
    let mut grid = Grid::new(vec![
        Column::text("node", 12),
        Column::text("file", 16).expendable(1),
        Column::text("verdict", 4),
        Column::number("job takes"),
        Column::number("95 % interval").expendable(2),
        Column::text("because of", 20),
    ]);
    // Failures first: of a thousand nodes, nobody reads those that pass.
    let (failed, passed): (Vec<&Checked>, Vec<&Checked>) =
        fleet.nodes.iter().partition(|node| !node.pass);
    for node in failed.into_iter().chain(passed) {
        let interval = |[low, high]: [f64; 2]| format!("{} to {}", signed(low), signed(high));
        let tone = if node.pass { Tone::Plain } else { Tone::Strong };
        let cells = vec![
            safe(node.host.as_deref().unwrap_or("-")),
            safe(&node.file),
            if node.pass { "pass" } else { "FAIL" }.to_owned(),
            node.change_pct.map_or_else(|| "-".to_owned(), signed),
            node.change_ci95_pct.map(interval).unwrap_or_default(),
            // A node that passes may have grown rows as well: they do not matter.
            if node.pass { String::new() } else { safe(&node.why.join(", ")) },
        ];
        grid.row(tone, cells);
    }
    let title = style.title(&wrap(&title, style.width, ""));
    let mut text = format!("{title}\n\n{}\n", grid.render(style));
    // The same remark may be about every node.
    let mut remarks: Vec<&String> = fleet.nodes.iter().flat_map(|node| &node.remarks).collect();
    remarks.sort_unstable();
    remarks.dedup();
    for remark in remarks.into_iter().take(options.top) {
        text += &format!("{}\n", wrap(&safe(remark), style.width, "    "));
    }
    text
}
