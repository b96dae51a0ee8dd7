//! When each rank of a simulated schedule finishes.

use std::cmp::Reverse;

use study::jobs::schedule::{Finishes, Unit};

use crate::{
    Options,
    blame::blame,
    grid::{Column, Grid, Tone},
    words::{plural, precise},
};

/// Keeps all picoseconds.
fn in_unit(unit: Unit, ps: i64) -> String {
    match unit {
        Unit::Ps => ps.to_string(),
        Unit::Ns => {
            let (sign, size) = (if ps < 0 { "-" } else { "" }, ps.unsigned_abs());
            let text = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// The ranks that end last, a summary, and the breakdown of the critical path, if any.
#[must_use]
pub fn schedule(results: &Finishes, options: Options) -> String {
    let (ends, unit) = (&results.ranks, results.unit);
    let exact = |ps: i64| format!("{} {}", in_unit(unit, ps), unit.name());
    let readable = |ps: i64| match results.any_unit {
        true => precise(ps as f64 / 1e3),
        false => exact(ps),
    };
    let shown = options.shown(ends.len());
    let cell = |ps: i64| match results.any_unit {
        true => readable(ps),
        false => in_unit(unit, ps),
    };
    let mut ranks: Vec<usize> = (0..ends.len()).collect();
    if shown < ends.len() {
        // The sort is stable: of ranks that end together, the lowest come first.
        ranks.sort_by_key(|&rank| Reverse(ends[rank].ps));
        ranks.truncate(shown);
    }
    let end = match (results.any_unit, unit) {
        (true, _) => "end",
        (false, Unit::Ps) => "end ps",
        (false, Unit::Ns) => "end ns",
    };
    let mut grid = Grid::new(vec![Column::number("rank"), Column::number(end)]);
    for &rank in &ranks {
        grid.row(Tone::Plain, vec![rank.to_string(), cell(ends[rank].ps)]);
    }
    let mut text = grid.render(options.style()) + "\n";
    if shown < ends.len() {
        text += &format!("{} more end earlier or at the same time\n", ends.len() - shown);
    }
    let last = results.max.ps;
    text += &format!(
        "\n{}, {}, {}: the last ends at {}{}.\n",
        plural(ends.len() as u64, "rank"),
        plural(results.operations, "operation"),
        plural(results.messages, "message"),
        readable(last),
        if results.any_unit { format!(" ({})", exact(last)) } else { String::new() },
    );
    let runs = results.max_per_run.len();
    if runs > 1 {
        let (least, most) = (readable(results.min_of_runs.ps), readable(results.max_of_runs.ps));
        text += &format!("{runs} runs: from {least} to {most}.\n");
    }
    if let Some(noiseless) = results.noiseless {
        text += &format!("Without noise: {}", readable(noiseless.ps));
        if noiseless.ps > 0 {
            text += &format!(", {:.2} times faster", last as f64 / noiseless.ps as f64);
        }
        text += ".\n";
    }
    match &results.blame {
        Some(of_runs) => format!("{text}\n{}", blame(of_runs, options)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_picoseconds() {
        for (ps, text) in [(19_500, "19.5"), (25_000, "25"), (-1, "-0.001"), (0, "0")] {
            assert_eq!(in_unit(Unit::Ns, ps), text);
        }
        assert_eq!(in_unit(Unit::Ps, 19_500), "19500");
    }
}
