//! When each rank of a simulated schedule was done.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{plural, rate, time},
};

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleFigures<'a> {
    /// Of the first run, rank by rank.
    pub ends_ns: &'a [f64],
    pub messages: u64,
    pub operations: u64,
    /// The last rank's end without noise, where there is noise.
    pub noiseless_ns: Option<f64>,
    /// The last rank's end in each run.
    pub runs_ns: &'a [f64],
    pub messages_per_s: f64,
}

/// The ranks that end last, and a sentence.
#[must_use]
pub fn schedule(figures: &ScheduleFigures<'_>, options: Options) -> String {
    let ends = figures.ends_ns;
    let shown = options.shown(ends.len());
    let mut ranks: Vec<usize> = (0..ends.len()).collect();
    if shown < ends.len() {
        // Stable: of those that end together the first ones.
        ranks.sort_by(|&a, &b| ends[b].total_cmp(&ends[a]));
        ranks.truncate(shown);
    }
    let mut grid = Grid::new(vec![Column::number("rank"), Column::number("end")]);
    for &rank in &ranks {
        grid.row(Tone::Plain, vec![rank.to_string(), exact(ends[rank])]);
    }
    let mut text = grid.render(options.style()) + "\n";
    if shown < ends.len() {
        text += &format!("{} more end earlier or at the same time\n", ends.len() - shown);
    }
    let last = ends.iter().copied().fold(0.0, f64::max);
    text += &format!(
        "\n{}, {}, {}: the last ends at {} ns ({} messages/s).\n",
        plural(ends.len() as u64, "rank"),
        plural(figures.operations, "operation"),
        plural(figures.messages, "message"),
        exact(last),
        rate(figures.messages_per_s)
    );
    let runs = figures.runs_ns;
    if runs.len() > 1 {
        let (least, most) =
            runs.iter().fold((f64::MAX, 0.0f64), |(a, b), &ns| (a.min(ns), b.max(ns)));
        text += &format!("{} runs: from {} to {}.\n", runs.len(), time(least), time(most));
    }
    if let Some(noiseless) = figures.noiseless_ns {
        text += &format!("Without noise: {} ns", exact(noiseless));
        if noiseless > 0.0 {
            text += &format!(", {:.2} times faster", last / noiseless);
        }
        text += ".\n";
    }
    text
}

/// Picoseconds are not rounded away.
fn exact(ns: f64) -> String {
    let text = format!("{ns:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ranks_are_shown_when_there_are_many() {
        let ends: Vec<f64> = (0..40).map(|rank| f64::from(rank % 20) + 0.5).collect();
        let figures = ScheduleFigures {
            ends_ns: &ends,
            messages: 7,
            operations: 21,
            noiseless_ns: Some(10.0),
            runs_ns: &[19.5, 25.0],
            messages_per_s: 2e6,
        };
        let text = schedule(&figures, Options::default());
        assert!(text.contains("  19  19.5\n"), "{text}");
        assert!(text.contains("25 more end earlier"), "{text}");
        assert!(text.contains("40 ranks, 21 operations, 7 messages: the last ends at 19.5 ns"));
        assert!(text.contains("2 runs: from 19.5 ns to 25 ns."), "{text}");
        assert!(text.contains("Without noise: 10 ns, 1.95 times faster."), "{text}");
    }
}
