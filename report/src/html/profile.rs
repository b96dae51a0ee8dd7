//! The profile of an MPI program as one self-contained page: key figures, calls, who waits for whom, who
//! sends to whom, the run over time.

use std::path::Path;

use analysis::words::shell_quoted;
use askama::Template;
use program::{Profile, Timeline};
use study::explain::traced::DrawnHit;

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE,
    commands::Command,
    lanes::{self, Marks},
    legend::Key,
    matrix::{self, Matrix},
    plot::{Plot, WIDE},
    scale::{Scale, Unit, time},
    tables::{LINES, NAME, ROWS, limited, micro},
};
use crate::{
    profile::{
        bytes, command, communication, library, notes, run, size_class, time_s, waiting, warning,
    },
    words::{count, cut, percent, percent_said, plural, safe},
};

#[derive(Template)]
#[template(path = "profile.html")]
struct Page {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    title: String,
    headline: String,
    waiting: String,
    command: Option<String>,
    warning: Option<String>,
    facts: Vec<(&'static str, String)>,
    calls: Vec<Call>,
    more_calls: usize,
    /// Whether any call returned an error.
    errors: bool,
    /// Class of waiting, time, share.
    classes: Vec<Vec<String>>,
    pairs: Vec<Vec<String>>,
    more_pairs: Option<String>,
    waits: Option<String>,
    waits_note: String,
    /// Bytes and messages.
    matrices: Option<[String; 2]>,
    /// What a cell stands for.
    cells_note: String,
    sizes: Vec<Size>,
    keys: Vec<Key>,
    pattern: Option<String>,
    /// Or why there is none.
    timeline: Result<String, String>,
    part: String,
    /// Whether hits of noise are marked on the timeline, and what is to be said about them.
    marked: bool,
    noise_note: String,
    regions: Vec<Vec<String>>,
    more_regions: Option<String>,
    ranks: Vec<Vec<String>>,
    more_ranks: usize,
    communicators: Vec<Vec<String>>,
    more_communicators: Option<String>,
    notes: Vec<String>,
    commands: Vec<Command>,
}

struct Call {
    name: String,
    class: &'static str,
    share: String,
    /// 0 to 100.
    bar: String,
    cells: Vec<String>,
}

struct Size {
    name: String,
    count: String,
    share: String,
    bar: String,
    bytes: String,
    bytes_share: String,
    bytes_bar: String,
}

/// The page of a profile, written to `page`, of the traces in `directory`. Without a timeline, it says why. `noise`:
/// hits to be marked on the timeline, and what is missing of them.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn profile_html(
    profile: &Profile,
    timeline: Option<&Timeline>,
    noise: &(Vec<DrawnHit>, Vec<String>),
    directory: &Path,
    page: &Path,
) -> Result<String, std::fmt::Error> {
    let (hits, missing) = noise;
    let marks = Marks { path: &[], hits };
    let marks = (!hits.is_empty()).then_some(&marks);
    let ranks = u64::from(profile.ranks);
    let errors = profile.calls.iter().any(|call| call.errors > 0);
    let (keys, pattern) = pattern(profile);
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        title: match profile.command.first() {
            Some(name) => cut(&safe(name.rsplit('/').next().unwrap_or(name)), NAME),
            None => "MPI program".to_owned(),
        },
        headline: micro(&limited(&format!("{}: {}.", run(profile), communication(profile)))),
        waiting: micro(&waiting(profile)),
        command: command(profile),
        warning: warning(profile).map(|text| limited(&text)),
        facts: facts(profile),
        calls: profile.calls.iter().take(ROWS).map(|row| call(row, errors)).collect(),
        errors,
        more_calls: profile.calls.len().saturating_sub(ROWS),
        classes: classes(profile),
        pairs: pairs(profile),
        more_pairs: more_pairs(profile),
        waits: waits(profile),
        waits_note: match profile.waits.matrix_other_ns {
            0 => String::new(),
            ns => format!("Pairs beyond the limit are not shown: {} in total.", time(ns as f64)),
        },
        matrices: matrices(profile),
        cells_note: match profile.matrix.binned {
            true => format!(
                "{} in {} blocks: each row and column stands for several ranks.",
                plural(ranks, "rank"),
                profile.matrix.size
            ),
            false => String::new(),
        },
        sizes: sizes(profile),
        keys,
        pattern,
        timeline: match timeline {
            Some(timeline) => Ok(lanes::draw(timeline, marks)),
            None => Err(format!(
                "Omitted: timelines are limited to {} ranks, and this run has {}.",
                program::TIMELINE_RANKS,
                count(u64::from(profile.ranks_read))
            )),
        },
        part: timeline.map_or_else(String::new, |timeline| time(timeline.part_ns as f64)),
        marked: marks.is_some(),
        noise_note: missing.iter().map(|text| format!(" {}.", limited(text))).collect(),
        regions: regions(profile),
        more_regions: more(profile.regions.len(), profile.other_regions, "region", "--all"),
        ranks: rank_rows(profile),
        more_ranks: profile.by_rank.len().saturating_sub(ROWS),
        communicators: communicators(profile),
        more_communicators: more(
            profile.communicators.len(),
            profile.other_communicators,
            "communicator",
            "--json",
        ),
        notes: notes(profile).iter().take(LINES).map(|line| micro(&limited(line))).collect(),
        commands: commands(profile, directory, page),
    };
    page.render().map_err(|_| std::fmt::Error)
}

fn seconds(value: f64) -> String {
    match value > 0.0 {
        true => time((value * 1e9).round()),
        false => "0".to_owned(),
    }
}

fn facts(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("ranks", count(u64::from(profile.ranks))),
        ("hosts", count(profile.hosts.len() as u64)),
        ("wall time", micro(&time_s(profile.wall_s))),
        ("in MPI", percent_said(profile.mpi_pct)),
        ("of it waiting", percent_said(profile.waits.mpi_share_pct)),
        ("messages", count(profile.messages)),
        ("sent in messages", bytes(profile.message_bytes)),
    ];
    let library = library(profile);
    if !library.is_empty() {
        facts.push(("library", library));
    }
    facts
}

fn call(call: &program::CallRow, errors: bool) -> Call {
    let mut cells = vec![
        count(call.count),
        seconds(call.time_s),
        seconds(call.wait_s),
        bytes(call.bytes),
        seconds(call.time_s / call.count.max(1) as f64),
        seconds(call.longest_s),
        seconds(call.rank_min_s),
        seconds(call.rank_max_s),
    ];
    if errors {
        cells.push(count(call.errors));
    }
    Call {
        name: cut(&safe(&call.name), NAME),
        class: call.class,
        share: percent(call.share_pct),
        bar: format!("{:.1}", call.share_pct.clamp(0.0, 100.0)),
        cells,
    }
}

fn classes(profile: &Profile) -> Vec<Vec<String>> {
    let waits = &profile.waits;
    let row = |name: &str, ns: u64| {
        let share = 100.0 * ns as f64 / waits.total_ns.max(1) as f64;
        vec![name.to_owned(), seconds(ns as f64 / 1e9), percent(share)]
    };
    let mut rows = vec![
        row("late sender", waits.late_sender_ns),
        row("late receiver", waits.late_receiver_ns),
        row("collective", waits.collective_ns),
    ];
    let collectives = waits.collectives.iter();
    rows.extend(
        collectives.map(|one| row(&format!("\u{a0}\u{a0}{}", safe(&one.name)), one.wait_ns)),
    );
    rows
}

/// Pairs of ranks that are listed.
const PAIRS: usize = 16;

fn pairs(profile: &Profile) -> Vec<Vec<String>> {
    let total = profile.waits.total_ns.max(1) as f64;
    let pairs = profile.waits.pairs.iter().take(PAIRS);
    pairs
        .map(|pair| {
            vec![
                format!("rank {} for rank {}", pair.waiting, pair.late),
                pair.class.to_owned(),
                seconds(pair.wait_s),
                percent(100.0 * pair.wait_ns as f64 / total),
            ]
        })
        .collect()
}

/// The sum of the pairs that are not listed.
fn more_pairs(profile: &Profile) -> Option<String> {
    let left: u64 = profile.waits.pairs.iter().skip(PAIRS).map(|pair| pair.wait_ns).sum();
    match left + profile.waits.other_pairs_ns {
        0 => None,
        ns => Some(format!("And other pairs, {} in total.", time(ns as f64))),
    }
}

/// What ranks the row or column of a matrix stands for: `3`, or `0-15`.
fn names(profile: &Profile) -> Vec<String> {
    let size = u64::from(profile.matrix.size);
    let ranks = u64::from(profile.ranks);
    // The first rank of a cell: the profile gives rank r the cell r * size / ranks.
    let first = |cell: u64| (cell * ranks).div_ceil(size.max(1));
    let name = |cell: u64| match (first(cell), first(cell + 1) - 1) {
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}-{to}"),
    };
    (0..size).map(name).collect()
}

fn waits(profile: &Profile) -> Option<String> {
    matrix::draw(&Matrix {
        id: "waits",
        label: "Who waits for whom",
        titles: ("late rank", "waiting rank"),
        verb: "waits for rank",
        names: &names(profile),
        cells: &profile.waits.matrix_ns,
        write: |ns| time(ns as f64),
    })
}

fn matrices(profile: &Profile) -> Option<[String; 2]> {
    let names = names(profile);
    let draw = |id, label, cells, write: fn(u64) -> String| {
        matrix::draw(&Matrix {
            id,
            label,
            titles: ("receiver", "sender"),
            verb: "to rank",
            names: &names,
            cells,
            write,
        })
    };
    let messages = |n: u64| format!("{} messages", count(n));
    // Messages may all be empty.
    let drawn = draw("messages", "Messages between ranks", &profile.matrix.messages, messages)?;
    let sizes = draw("bytes", "Bytes between ranks", &profile.matrix.bytes, bytes);
    Some([sizes.unwrap_or_default(), drawn])
}

fn sizes(profile: &Profile) -> Vec<Size> {
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let row = |row: &program::SizeRow| {
        let (of_all, of_bytes) =
            (share(row.count, profile.messages), share(row.bytes, profile.message_bytes));
        Size {
            name: size_class(row.from, row.to),
            count: count(row.count),
            share: percent(of_all),
            bar: format!("{:.1}", of_all.clamp(0.0, 100.0)),
            bytes: bytes(row.bytes),
            bytes_share: percent(of_bytes),
            bytes_bar: format!("{:.1}", of_bytes.clamp(0.0, 100.0)),
        }
    };
    profile.sizes.iter().map(row).collect()
}

/// Classes that take less than this share of the time everywhere are not drawn.
const VISIBLE_PCT: f64 = 0.05;

/// The share of time in each class of calls over the run, with the colours of the classes.
fn pattern(profile: &Profile) -> (Vec<Key>, Option<String>) {
    let pattern = &profile.pattern;
    let most = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
    let mut classes: Vec<(&str, &Vec<f64>)> = pattern
        .classes
        .iter()
        .copied()
        .zip(&pattern.share_pct)
        .filter(|(_, shares)| most(shares) >= VISIBLE_PCT)
        .collect();
    classes.sort_by(|a, b| b.1.iter().sum::<f64>().total_cmp(&a.1.iter().sum()));
    let parts = pattern.share_pct.iter().map(Vec::len).max().unwrap_or(0);
    if classes.is_empty() || parts == 0 {
        return (Vec::new(), None);
    }
    let all: Vec<f64> = (0..parts)
        .map(|part| pattern.share_pct.iter().filter_map(|shares| shares.get(part)).sum())
        .collect();
    let y = Scale::linear(0.0, (most(&all) / 100.0).max(0.01), Unit::Share);
    let x = Scale::linear(0.0, 1.0, Unit::Share);
    let mut plot = Plot::new("pattern", "Share of time in MPI over the run", (WIDE, 300.0), x, y)
        .titles("part of the run", "share of the ranks' time");
    let line = |shares: &[f64]| -> Vec<(f64, f64)> {
        let middle = |part: usize| (part as f64 + 0.5) / parts as f64;
        shares.iter().enumerate().map(|(part, share)| (middle(part), share / 100.0)).collect()
    };
    plot.line("all", "all of MPI", &line(&all));
    let mut keys = Vec::new();
    for (place, (name, shares)) in classes.iter().enumerate() {
        let class = if place < 7 { format!("s{place}") } else { "so".to_owned() };
        plot.line(&class, name, &line(shares));
        keys.push(Key { class, name: (*name).to_owned() });
    }
    keys.push(Key { class: "all".to_owned(), name: "all of MPI".to_owned() });
    (keys, Some(plot.finish()))
}

fn regions(profile: &Profile) -> Vec<Vec<String>> {
    let row = |row: &program::RegionRow| {
        let depth = row.path.len().saturating_sub(1).min(16);
        let name = cut(&safe(row.path.last().map_or("", String::as_str)), NAME);
        let share = if row.time_s > 0.0 { 100.0 * row.mpi_s / row.time_s } else { 0.0 };
        vec![
            format!("{}{name}", "\u{a0}\u{a0}".repeat(depth)),
            count(row.count),
            seconds(row.time_s),
            percent(share),
            row.ranks.to_string(),
            seconds(row.rank_min_s),
            seconds(row.rank_max_s),
        ]
    };
    profile.regions.iter().take(ROWS).map(row).collect()
}

fn rank_rows(profile: &Profile) -> Vec<Vec<String>> {
    let mut order: Vec<_> = profile.by_rank.iter().collect();
    if order.len() > ROWS {
        order.sort_by(|a, b| b.late_s.total_cmp(&a.late_s).then(a.rank.cmp(&b.rank)));
    }
    let row = |row: &&program::RankRow| {
        let host = profile.hosts.get(row.host as usize).map_or("", |host| &host.name);
        vec![
            format!("{}{}", row.rank, if row.finalized { "" } else { " (unfinished)" }),
            cut(&safe(host), NAME),
            seconds(row.wall_s),
            percent(row.mpi_pct),
            seconds(row.wait_s),
            seconds(row.late_s),
            count(row.calls),
            bytes(row.sent_bytes),
            bytes(row.received_bytes),
            row.slowest
                .map_or_else(String::new, |name| format!("{} {name}", seconds(row.slowest_s))),
        ]
    };
    order.iter().take(ROWS).map(row).collect()
}

fn communicators(profile: &Profile) -> Vec<Vec<String>> {
    let row = |row: &program::CommunicatorRow| {
        let size = match row.remote_size {
            0 => row.size.to_string(),
            remote => format!("{} + {remote}", row.size),
        };
        vec![
            cut(&safe(&row.name), NAME),
            size,
            count(row.calls),
            seconds(row.time_s),
            bytes(row.bytes),
        ]
    };
    profile.communicators.iter().take(ROWS).map(row).collect()
}

/// The rows that are not on the page, and what shows them: of those that are `kept`, and of `others`, which
/// are nowhere.
fn more(kept: usize, others: u64, what: &str, option: &str) -> Option<String> {
    let left = kept.saturating_sub(ROWS) as u64 + others;
    let shown = match others {
        0 => "them".to_owned(),
        _ => format!("the {kept} with the most time"),
    };
    let more = plural(left, &format!("more {what}"));
    (left > 0).then(|| format!("{more}: detour mpi report {option} lists {shown}."))
}

fn commands(profile: &Profile, directory: &Path, page: &Path) -> Vec<Command> {
    let [directory, page] = [directory, page].map(|path| shell_quoted(&path.display().to_string()));
    let partial = if profile.ranks_read < profile.ranks { " --partial" } else { "" };
    let command = |what: &str, options: &str| {
        let line = format!("detour mpi report {directory}{partial} {options}");
        Command { what: what.to_owned(), line }.limited()
    };
    vec![command("This page", &format!("--html {page}")), command("The tables as JSON", "--json")]
}
