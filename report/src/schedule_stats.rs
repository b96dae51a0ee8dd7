//! Statistics of a schedule as text.

use study::jobs::goal::{SizeClass, Statistics};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, time},
};

/// A table of totals, and one of message sizes.
#[must_use]
pub fn schedule_stats(stats: &Statistics, options: Options) -> String {
    // Tables of numbers are not shortened.
    let style = Options { all: true, ..options }.style();
    let mut grid = Grid::new(vec![Column::text("", 12), Column::number("")]);
    let mut line = |name: &str, value: String| grid.row(Tone::Plain, vec![name.to_owned(), value]);
    line("ranks", count(u64::from(stats.ranks)));
    line("CPUs per rank", count(stats.cpus as u64));
    line("NICs per rank", count(stats.nics as u64));
    line("sends", count(stats.sends));
    line("receives", count(stats.recvs));
    line("calcs", count(stats.calcs));
    line("requires", count(stats.requires));
    line("irequires", count(stats.irequires));
    line("with wildcards", count(stats.wildcards));
    line("bytes sent", bytes(stats.bytes));
    line("computation", time(stats.calc_ns));
    if let (Some(rank), Some(ns)) = (stats.busiest_rank, stats.busiest_calc_ns) {
        line("most on one rank", format!("{} (rank {rank})", time(ns)));
    }
    if let (Some(rank), Some(operations)) = (stats.longest_rank, stats.longest_operations) {
        line("most operations", format!("{} (rank {rank})", count(operations)));
    }
    line("ranks with a fixed order", count(u64::from(stats.ordered_ranks)));
    line("messages matched statically", count(stats.paired_messages));
    line("memory", bytes(stats.memory_bytes as f64));
    let mut text = grid.render(style).trim_start_matches('\n').to_owned() + "\n";
    if stats.sends > 0 {
        let mut grid =
            Grid::new(vec![Column::text("message size", 12), Column::number("messages")]);
        for &SizeClass { from_bytes, messages } in &stats.sizes {
            let size = match from_bytes {
                0 => "empty".to_owned(),
                1 => "1 B".to_owned(),
                from => format!("{} to < {}", bytes(from as f64), bytes(2.0 * from as f64)),
            };
            grid.row(Tone::Plain, vec![size, count(messages)]);
        }
        text += &format!("\n{}\n", grid.render(style));
    }
    text
}

fn bytes(value: f64) -> String {
    let steps = [(1.0, "B"), (1024.0, "KiB"), (1024.0 * 1024.0, "MiB")];
    for (scale, unit) in steps {
        if value / scale < 1024.0 {
            let digits = if (value / scale).fract() == 0.0 { 0 } else { 1 };
            return format!("{:.digits$} {unit}", value / scale);
        }
    }
    format!("{:.1} GiB", value / 1024f64.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_powers_of_two() {
        let size = |from_bytes, messages| SizeClass { from_bytes, messages };
        let stats = Statistics {
            ranks: 2,
            sends: 6,
            recvs: 6,
            requires: 3,
            cpus: 1,
            nics: 1,
            bytes: 3_000.0,
            sizes: vec![size(0, 1), size(1, 2), size(1024, 3)],
            longest_rank: Some(1),
            longest_operations: Some(6),
            ordered_ranks: 2,
            paired_messages: 6,
            memory_bytes: 1 << 20,
            ..Statistics::default()
        };
        let text = schedule_stats(&stats, Options::default());
        for wanted in ["empty", "1 B", "1 KiB to < 2 KiB", "2.9 KiB", "6 (rank 1)", "1 MiB"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
