//! When each rank of a simulated schedule finishes.

use std::cmp::Reverse;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::plural,
};

/// Unit in which times are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleUnit {
    Ps,
    Ns,
}

impl ScheduleUnit {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ScheduleUnit::Ps => "ps",
            ScheduleUnit::Ns => "ns",
        }
    }

    /// Keeps all picoseconds.
    fn of(self, ps: i64) -> String {
        match self {
            ScheduleUnit::Ps => ps.to_string(),
            ScheduleUnit::Ns => {
                let (sign, size) = (if ps < 0 { "-" } else { "" }, ps.unsigned_abs());
                let text = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        }
    }
}

/// Times in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleFigures<'a> {
    pub unit: ScheduleUnit,
    /// End of each rank in the first run.
    pub ends_ps: &'a [i64],
    pub messages: u64,
    pub operations: u64,
    /// End of the last rank without noise; None if the run has no noise.
    pub noiseless_ps: Option<i64>,
    /// End of the last rank in each run.
    pub runs_ps: &'a [i64],
}

/// The ranks that end last, and a summary.
#[must_use]
pub fn schedule(figures: &ScheduleFigures<'_>, options: Options) -> String {
    let (ends, unit) = (figures.ends_ps, figures.unit);
    let with_unit = |ps: i64| format!("{} {}", unit.of(ps), unit.name());
    let shown = options.shown(ends.len());
    let mut ranks: Vec<usize> = (0..ends.len()).collect();
    if shown < ends.len() {
        // The sort is stable: of ranks that end together, the lowest come first.
        ranks.sort_by_key(|&rank| Reverse(ends[rank]));
        ranks.truncate(shown);
    }
    let end = match unit {
        ScheduleUnit::Ps => "end ps",
        ScheduleUnit::Ns => "end ns",
    };
    let mut grid = Grid::new(vec![Column::number("rank"), Column::number(end)]);
    for &rank in &ranks {
        grid.row(Tone::Plain, vec![rank.to_string(), unit.of(ends[rank])]);
    }
    let mut text = grid.render(options.style()) + "\n";
    if shown < ends.len() {
        text += &format!("{} more end earlier or at the same time\n", ends.len() - shown);
    }
    let last = ends.iter().copied().max().unwrap_or(0);
    text += &format!(
        "\n{}, {}, {}: the last ends at {}.\n",
        plural(ends.len() as u64, "rank"),
        plural(figures.operations, "operation"),
        plural(figures.messages, "message"),
        with_unit(last),
    );
    let runs = figures.runs_ps;
    if runs.len() > 1 {
        let least = runs.iter().copied().min().unwrap_or(0);
        let most = runs.iter().copied().max().unwrap_or(0);
        let (least, most) = (with_unit(least), with_unit(most));
        text += &format!("{} runs: from {least} to {most}.\n", runs.len());
    }
    if let Some(noiseless) = figures.noiseless_ps {
        text += &format!("Without noise: {}", with_unit(noiseless));
        if noiseless > 0 {
            text += &format!(", {:.2} times faster", last as f64 / noiseless as f64);
        }
        text += ".\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unit: ScheduleUnit) -> String {
        let ends: Vec<i64> = (0..40).map(|rank| rank % 20 * 1_000 + 500).collect();
        let figures = ScheduleFigures {
            unit,
            ends_ps: &ends,
            messages: 7,
            operations: 21,
            noiseless_ps: Some(10_000),
            runs_ps: &[19_500, 25_000],
        };
        schedule(&figures, Options::default())
    }

    #[test]
    fn the_latest_ranks_are_shown_when_there_are_many() {
        let text = text(ScheduleUnit::Ns);
        assert!(text.contains("  19    19.5\n"), "{text}");
        assert!(text.contains("25 more end earlier"), "{text}");
        assert!(text.contains("40 ranks, 21 operations, 7 messages: the last ends at 19.5 ns.\n"));
        assert!(text.contains("2 runs: from 19.5 ns to 25 ns."), "{text}");
        assert!(text.contains("Without noise: 10 ns, 1.95 times faster."), "{text}");
    }

    #[test]
    fn every_time_is_in_the_unit_and_says_so() {
        let text = text(ScheduleUnit::Ps);
        assert!(text.contains("end ps\n") && text.contains("  19   19500\n"), "{text}");
        assert!(text.contains("the last ends at 19500 ps"), "{text}");
        assert!(text.contains("2 runs: from 19500 ps to 25000 ps."), "{text}");
        assert!(text.contains("Without noise: 10000 ps, 1.95 times faster."), "{text}");
        assert!(!text.contains(" ns"), "{text}");
    }
}
