//! Statistics of a schedule as text.

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, time},
};

#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleStats {
    pub ranks: u64,
    pub sends: u64,
    pub recvs: u64,
    pub calcs: u64,
    pub requires: u64,
    pub irequires: u64,
    /// Per rank.
    pub cpus: u64,
    pub nics: u64,
    pub bytes: f64,
    /// Messages of 0 bytes, then of 1, of 2 and 3, of 4 to 7, and so on.
    pub by_size: Vec<u64>,
    pub wildcards: u64,
    pub calc_ns: f64,
    /// The rank with the most computation, and its amount.
    pub busiest: Option<(u32, f64)>,
    /// The rank with the most operations, and their number.
    pub longest: Option<(u32, u64)>,
    /// Ranks with only one possible order.
    pub ordered: u64,
    /// Messages whose receive is matched statically.
    pub paired: u64,
    pub memory: u64,
}

/// A table of totals, and one of message sizes.
#[must_use]
pub fn schedule_stats(stats: &ScheduleStats, options: Options) -> String {
    let style = options.style();
    let mut grid = Grid::new(vec![Column::text("", 12), Column::number("")]);
    let mut line = |name: &str, value: String| grid.row(Tone::Plain, vec![name.to_owned(), value]);
    line("ranks", count(stats.ranks));
    line("CPUs per rank", count(stats.cpus));
    line("NICs per rank", count(stats.nics));
    line("sends", count(stats.sends));
    line("receives", count(stats.recvs));
    line("calcs", count(stats.calcs));
    line("requires", count(stats.requires));
    line("irequires", count(stats.irequires));
    line("with wildcards", count(stats.wildcards));
    line("bytes sent", bytes(stats.bytes));
    line("computation", time(stats.calc_ns));
    if let Some((rank, ns)) = stats.busiest {
        line("most on one rank", format!("{} (rank {rank})", time(ns)));
    }
    if let Some((rank, operations)) = stats.longest {
        line("most operations", format!("{} (rank {rank})", count(operations)));
    }
    line("ranks with a fixed order", count(stats.ordered));
    line("messages matched statically", count(stats.paired));
    line("memory", bytes(stats.memory as f64));
    let mut text = grid.render(style).trim_start_matches('\n').to_owned() + "\n";
    if stats.sends > 0 {
        let mut grid =
            Grid::new(vec![Column::text("message size", 12), Column::number("messages")]);
        for (power, &messages) in stats.by_size.iter().enumerate().filter(|(_, m)| **m > 0) {
            let from = |power: usize| 2f64.powi(power as i32 - 1);
            let size = match power {
                0 => "empty".to_owned(),
                1 => "1 B".to_owned(),
                _ => format!("{} to < {}", bytes(from(power)), bytes(from(power + 1))),
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
        let stats = ScheduleStats {
            ranks: 2,
            sends: 6,
            recvs: 6,
            calcs: 0,
            requires: 3,
            irequires: 0,
            cpus: 1,
            nics: 1,
            bytes: 3_000.0,
            by_size: vec![1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
            wildcards: 0,
            calc_ns: 0.0,
            busiest: None,
            longest: Some((1, 6)),
            ordered: 2,
            paired: 6,
            memory: 1 << 20,
        };
        let text = schedule_stats(&stats, Options::default());
        for wanted in ["empty", "1 B", "1 KiB to < 2 KiB", "2.9 KiB", "6 (rank 1)", "1 MiB"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
