//! Exchanges between all pairs of ranks as one self-contained page.

use std::path::Path;

use analysis::{Bin, words::shell_quoted};
use askama::Template;
use study::network::latency::{Distribution, Latencies};

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE,
    commands::Command,
    legend::Key,
    matrix::{self, Matrix},
    scale::time,
    shapes,
    tables::{NAME, ROWS, limited, micro},
};
use crate::{
    latency::{distributions, headline, matrix as cells, ranks},
    words::{capital, count, cut, plural, safe},
};

#[derive(Template)]
#[template(path = "latency.html")]
struct Page {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    headline: String,
    findings: Vec<String>,
    facts: Vec<(&'static str, String)>,
    distributions: Vec<Vec<String>>,
    keys: Vec<Key>,
    /// Cumulative share and tail.
    shapes: Option<(String, String)>,
    /// Minima and medians of the pairs.
    matrices: Option<[String; 2]>,
    cells_note: String,
    levels: Vec<Vec<String>>,
    outliers: Vec<Vec<String>>,
    more_outliers: usize,
    commands: Vec<Command>,
}

fn us(value: f64) -> String {
    time(value * 1e3)
}

fn bins(distribution: &Distribution) -> Vec<Bin> {
    let bin = |&[ps, count]: &[u64; 2]| Bin { ns: ps / 1000, count };
    distribution.bins.iter().map(bin).collect()
}

/// The page of the measurement in `file`, written to `page`.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn latency_html(
    latencies: &Latencies,
    file: Option<&Path>,
    page: &Path,
) -> Result<String, std::fmt::Error> {
    let key = |class: &str, name: &str| Key { class: class.to_owned(), name: name.to_owned() };
    let [all, minima] = [key("i0", "all exchanges"), key("i1", "minima of cycles")];
    let [every, least] = [bins(&latencies.all), bins(&latencies.minima)];
    let shapes = shapes::overlay([(&all, &every), (&minima, &least)]);
    let draw = |id, label, value| {
        let (names, cells) = cells(latencies, value);
        matrix::draw(&Matrix {
            id,
            label,
            titles: ("rank", "rank"),
            verb: "and",
            names: &names,
            cells: &cells,
            write: |ns| time(ns as f64),
        })
    };
    let minima_of_pairs = draw("minima", "Minimum of every pair", |pair| pair.minimum_us);
    let medians_of_pairs = draw("medians", "Median of every pair", |pair| pair.median_us);
    let distribution = |(name, of): (&str, &Distribution)| {
        let times = [of.minimum_us, of.median_us, of.mean_us, of.p90_us, of.p99_us, of.p999_us];
        let mut row = vec![name.to_owned(), count(of.n)];
        row.extend(times.map(us));
        row.push(us(of.maximum_us));
        row
    };
    let level = |level: &study::network::latency::Level| {
        let [a, b] = level.groups.each_ref().map(|name| cut(&safe(name), NAME));
        let group = latencies.groups.iter().find(|group| group.name == level.groups[0]);
        let members = group.filter(|_| a == b).map_or(String::new(), |group| ranks(&group.ranks));
        let name = if a == b { a } else { format!("{a} and {b}") };
        let (minimum, median) = (us(level.minimum_us), us(level.median_us));
        vec![name, limited(&members), count(level.pairs), minimum, median]
    };
    let outlier = |outlier: &study::network::latency::Outlier| {
        let [a, b] = outlier.ranks;
        let hosts = outlier.hosts.each_ref().map(|host| cut(&safe(host), NAME)).join(", ");
        let (value, expected) = (us(outlier.value_us), us(outlier.expected_us));
        vec![format!("{a} and {b}"), hosts, safe(&outlier.of), value, expected]
    };
    let [name, target] = [file.unwrap_or(Path::new("FILE")), page]
        .map(|path| shell_quoted(&path.display().to_string()));
    let command = |what: &str, line: String| Command { what: what.to_owned(), line }.limited();
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        headline: micro(&limited(&headline(latencies))),
        findings: latencies
            .findings
            .iter()
            .map(|finding| micro(&limited(&format!("{}.", capital(&safe(finding))))))
            .collect(),
        facts: vec![
            ("Ranks", latencies.ranks.to_string()),
            ("Message", plural(latencies.bytes, "byte")),
            ("Exchanges a cycle", count(latencies.exchanges)),
            ("Cycles", count(latencies.cycles)),
            ("Measured", cut(&safe(&latencies.date), NAME)),
            ("For", time(latencies.measured_s * 1e9)),
        ],
        distributions: distributions(latencies).into_iter().map(distribution).collect(),
        keys: vec![all, minima],
        shapes,
        matrices: minima_of_pairs.zip(medians_of_pairs).map(|(a, b)| [a, b]),
        cells_note: match latencies.ranks as usize > crate::latency::CELLS {
            true => {
                "Each row and column stands for several ranks and shows their slowest pair.".into()
            }
            false => String::new(),
        },
        levels: match latencies.groups.len() {
            0 | 1 => Vec::new(),
            _ => latencies.levels.iter().take(ROWS).map(level).collect(),
        },
        outliers: latencies.outliers.iter().take(ROWS).map(outlier).collect(),
        more_outliers: latencies.outliers.len().saturating_sub(ROWS),
        commands: vec![
            command("This page", format!("detour mpi latency --from {name} --html {target}")),
            command("The tables in a terminal", format!("detour mpi latency --from {name} --all")),
        ],
    };
    page.render().map_err(|_| std::fmt::Error)
}
