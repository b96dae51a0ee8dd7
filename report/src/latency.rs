//! Exchanges between all pairs of ranks: distributions, a heat map of the pairs, groups and outliers.

use study::network::latency::{Distribution, Latencies, Pair};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{capital, count, message_safe, plural, precise, safe, wrap},
};

/// From fast to slow.
const SHADES: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// Rows and columns of the heat map; more ranks share one.
pub(crate) const CELLS: usize = 48;

fn us(value: f64) -> String {
    precise(value * 1e3)
}

/// What is shown of each distribution.
pub(crate) fn distributions(latencies: &Latencies) -> [(&'static str, &Distribution); 6] {
    [
        ("all exchanges", &latencies.all),
        ("minima of cycles", &latencies.minima),
        ("at the lower rank", &latencies.lower),
        ("at the higher rank", &latencies.upper),
        ("clock, before", &latencies.timer),
        ("clock, during", &latencies.timer_during),
    ]
}

/// What was measured, in a sentence.
pub(crate) fn headline(latencies: &Latencies) -> String {
    let mut hosts: Vec<&String> = latencies.hosts.iter().collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = match hosts.as_slice() {
        [one] => format!("on {}", safe(one)),
        several => format!("on {}", plural(several.len() as u64, "host")),
    };
    format!(
        "{} {place}, {}: {} of {} between {}, median {}, minimum {}.",
        capital(&plural(latencies.ranks.into(), "rank")),
        safe(&latencies.transport),
        plural(latencies.all.n, "exchange"),
        plural(latencies.bytes, "byte"),
        plural(latencies.pairs.len() as u64, "pair"),
        us(latencies.all.median_us),
        us(latencies.all.minimum_us),
    )
}

/// A value of every pair as a square matrix: names of the rows, and ns in the cells, 0 on the diagonal. Ranks that
/// share a cell show the slowest of their pairs.
pub(crate) fn matrix(
    latencies: &Latencies,
    value: fn(&Pair) -> f64,
) -> (Vec<String>, Vec<Vec<u64>>) {
    let ranks = latencies.ranks as usize;
    let share = ranks.div_ceil(CELLS).max(1);
    let size = ranks.div_ceil(share);
    let name = |cell: usize| {
        let (first, last) = (cell * share, ((cell + 1) * share).min(ranks).saturating_sub(1));
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let mut cells = vec![vec![0u64; size]; size];
    for pair in &latencies.pairs {
        let [a, b] = pair.ranks.map(|rank| rank as usize / share);
        let ns = (value(pair) * 1e3).round().max(1.0) as u64;
        for (row, column) in [(a, b), (b, a)] {
            if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = ns.max(*cell);
            }
        }
    }
    ((0..size).map(name).collect(), cells)
}

/// The minima of the pairs as characters.
fn heat_map(latencies: &Latencies) -> Option<String> {
    if latencies.ranks < 3 {
        return None;
    }
    let (names, cells) = matrix(latencies, |pair| pair.minimum_us);
    let values = || cells.iter().flatten().copied().filter(|ns| *ns > 0);
    let (least, most) = (values().min()? as f64, values().max()? as f64);
    let shade = |ns: u64| match ns {
        0 => ' ',
        // Within 2 % there is nothing to see.
        _ if most < least * 1.02 => SHADES[0],
        ns => {
            let place = (ns as f64 / least).ln() / (most / least).ln();
            SHADES[((place * SHADES.len() as f64) as usize).min(SHADES.len() - 1)]
        }
    };
    let width = names.iter().map(String::len).max().unwrap_or(1);
    let mut text = format!(
        "Minimum of every pair, from {} ({}) to {} ({})",
        us(least / 1e3),
        SHADES[0],
        us(most / 1e3),
        if most < least * 1.02 { SHADES[0] } else { SHADES[SHADES.len() - 1] },
    );
    for (name, row) in names.iter().zip(&cells) {
        let row: String = row.iter().flat_map(|&ns| [shade(ns), ' ']).collect();
        text += &format!("\n{name:>width$} {}", row.trim_end());
    }
    Some(text)
}

/// Ranks as ranges.
pub(crate) fn ranks(list: &[u32]) -> String {
    analysis::words::cpu_list(list.iter().copied())
}

#[must_use]
pub fn latency(latencies: &Latencies, options: Options) -> String {
    let mut sections = vec![wrap(&headline(latencies), options.width, "")];
    let mut grid = Grid::new(vec![
        Column::text("", 12),
        Column::number("times"),
        Column::number("minimum"),
        Column::number("median"),
        Column::number("mean").expendable(2),
        Column::number("p90").expendable(3),
        Column::number("p99"),
        Column::number("p99.9"),
        Column::number("maximum").expendable(1),
    ]);
    for (name, of) in distributions(latencies) {
        let times = [
            of.minimum_us,
            of.median_us,
            of.mean_us,
            of.p90_us,
            of.p99_us,
            of.p999_us,
            of.maximum_us,
        ];
        let mut cells = vec![name.to_owned(), count(of.n)];
        cells.extend(times.map(us));
        grid.row(Tone::Plain, cells);
    }
    sections.push(grid.render(options.style()));
    sections.extend(heat_map(latencies));
    if latencies.groups.len() > 1 {
        let mut grid = Grid::new(vec![
            Column::text("groups", 6),
            Column::text("ranks", 8),
            Column::number("pairs"),
            Column::number("minimum"),
            Column::number("median"),
        ]);
        let shown = options.shown(latencies.levels.len());
        for level in latencies.levels.iter().take(shown) {
            let [a, b] = &level.groups;
            let members = |name: &String| {
                let group = latencies.groups.iter().find(|group| group.name == *name);
                group.map_or(String::new(), |group| ranks(&group.ranks))
            };
            let (name, who) = match a == b {
                true => (safe(a), members(a)),
                false => (format!("{} - {}", safe(a), safe(b)), String::new()),
            };
            let cells =
                vec![name, who, count(level.pairs), us(level.minimum_us), us(level.median_us)];
            grid.row(Tone::Plain, cells);
        }
        let mut text = grid.render(options.style());
        if shown < latencies.levels.len() {
            let more = plural((latencies.levels.len() - shown) as u64, "more row");
            text += &format!("\nand {more} (--all shows them)");
        }
        sections.push(text);
    }
    if !latencies.outliers.is_empty() {
        let mut grid = Grid::new(vec![
            Column::text("outliers", 8),
            Column::text("hosts", 8).expendable(1),
            Column::text("of", 7),
            Column::number("pair"),
            Column::number("others"),
        ]);
        let shown = options.shown(latencies.outliers.len());
        for outlier in latencies.outliers.iter().take(shown) {
            let [a, b] = outlier.ranks;
            let hosts = outlier.hosts.each_ref().map(|host| safe(host)).join(", ");
            let (value, expected) = (us(outlier.value_us), us(outlier.expected_us));
            let cells = vec![format!("{a} - {b}"), hosts, safe(&outlier.of), value, expected];
            grid.row(Tone::Strong, cells);
        }
        let mut text = grid.render(options.style());
        if shown < latencies.outliers.len() {
            let more = plural((latencies.outliers.len() - shown) as u64, "more pair");
            text += &format!("\nand {more} (--all shows them)");
        }
        sections.push(text);
    }
    for finding in &latencies.findings {
        sections.push(wrap(&capital(&format!("{}.", message_safe(finding))), options.width, ""));
    }
    sections.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    use study::network::latency::{Collector, Facts, Part, assemble};

    fn made(ranks: u32) -> Latencies {
        let mut collector = Collector::new(1);
        for a in 0..ranks {
            for b in a + 1..ranks {
                let base = if a / 4 == b / 4 { 500_000 } else { 2_000_000 };
                let base = if [a, b] == [1, 6] { 9_000_000 } else { base };
                let times: Vec<u64> = (0..100).map(|n| base + n).collect();
                collector.add(0, [a, b], &times, &times);
            }
        }
        let mut part = Part::default();
        part.merge(collector.finish());
        let hosts = (0..ranks).map(|rank| format!("n{}\u{1b}[2J", rank / 4)).collect();
        assemble(part, Facts { hosts, transport: "MPI".into(), bytes: 1, ..Facts::default() })
    }

    #[test]
    fn the_text_has_the_map_the_groups_and_the_outliers() {
        let text = latency(&made(8), Options::default());
        assert!(!text.contains('\u{1b}'), "{text}");
        // Near pairs are dots, those between nodes darker, the bad link darkest.
        assert!(text.contains("0   . . . + + + +"), "{text}");
        assert!(text.contains("1 .   . . + + @ +"), "{text}");
        assert!(text.contains("A - B") && text.contains("0-3") && text.contains("1 - 6"), "{text}");
    }

    #[test]
    fn many_ranks_share_cells() {
        let (names, cells) = matrix(&made(100), |pair| pair.minimum_us);
        assert_eq!((names.len(), cells.len()), (34, 34));
        assert_eq!((names[0].as_str(), names[33].as_str()), ("0-2", "99"));
        assert_eq!(cells[0][0], 500);
        assert_eq!(cells[33][33], 0);
    }

    #[test]
    fn two_ranks_need_no_map() {
        let text = latency(&made(2), Options::default());
        assert!(text.contains("2 ranks") && !text.contains("every pair"), "{text}");
    }
}
