//! The profile of an MPI program as text: the run, the share of communication, where the waiting is and
//! who causes it; then tables.

use program::{LostSums, Profile};

use crate::{
    Options,
    grid::{Column, Grid, Style, Tone},
    words::{capital, count, cut, percent, percent_said, plural, safe, tight, time, wrap},
};

/// Characters of a command line, and of the name of a host or a library.
const COMMAND: usize = 400;
const NAME: usize = 40;

/// The profile as text.
#[must_use]
pub fn profile(profile: &Profile, options: Options) -> String {
    let style = options.style();
    let sections = [
        Some(headline(profile, style)),
        Some(calls(profile, options)),
        waits(profile, options),
        pairs(profile, options),
        sizes(profile, options),
        regions(profile, options),
        Some(ranks(profile, options)),
        Some(about(profile, style)),
    ];
    sections.into_iter().flatten().collect::<Vec<String>>().join("\n\n") + "\n"
}

/// A length of time in seconds, for columns.
fn tight_s(seconds: f64) -> String {
    tight((seconds * 1e9).round() as u64)
}

/// A length of time in seconds, for a sentence.
pub(crate) fn time_s(seconds: f64) -> String {
    time((seconds * 1e9).round())
}

/// Bytes with three significant digits.
pub(crate) fn bytes(n: u64) -> String {
    let value = n as f64;
    let (scale, unit) = match n {
        0..1000 => return format!("{n}B"),
        1000..999_500 => (1e3, "kB"),
        999_500..999_500_000 => (1e6, "MB"),
        999_500_000..999_500_000_000 => (1e9, "GB"),
        _ => (1e12, "TB"),
    };
    let digits = match value / scale {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{:.digits$}{unit}", value / scale)
}

/// A power of two of bytes.
pub(crate) fn power(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{} KiB", n >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}

/// Sizes from one power of two to the next.
pub(crate) fn size_class(from: u64, to: u64) -> String {
    if from == to {
        return power(from);
    }
    format!("{} to < {}", power(from), power(to.saturating_add(1)))
}

/// Who ran: ranks, hosts, library, length.
pub(crate) fn run(profile: &Profile) -> String {
    let ranks = plural(u64::from(profile.ranks), "rank");
    let hosts = match profile.hosts.as_slice() {
        [] => String::new(),
        [only] if only.name.is_empty() => String::new(),
        [only] => format!(" on {}", cut(&safe(&only.name), NAME)),
        hosts => format!(" on {}", plural(hosts.len() as u64, "host")),
    };
    let library = match library(profile) {
        name if name.is_empty() => name,
        name => format!(", {name}"),
    };
    format!("{ranks}{hosts}{library}, {}", time_s(profile.wall_s))
}

/// The library and its version: `Open MPI v4.1.4`, `MPICH 4.0.2`.
pub(crate) fn library(profile: &Profile) -> String {
    let line = profile.library.lines().next().unwrap_or_default();
    let line = line.split(',').next().unwrap_or_default().replace("Version:", "");
    cut(&safe(&line.split_whitespace().collect::<Vec<_>>().join(" ")), NAME)
}

/// What kind of communication a class of calls is.
fn family(name: &str, class: &str) -> &'static str {
    match (name, class) {
        ("MPI_Init" | "MPI_Init_thread" | "MPI_Finalize", _) => "MPI_Init and MPI_Finalize",
        (_, "send" | "receive") => "point-to-point",
        // Of messages or of nonblocking collectives: the call does not tell.
        (_, "wait" | "test and probe") => "completing requests",
        (_, "collective") => "collectives",
        (_, "communicator") => "communicators",
        (_, "one-sided") => "one-sided",
        (_, "io") => "files",
        _ => "other calls",
    }
}

/// Shares of the ranks' time by kind of communication, the largest first.
pub(crate) fn families(profile: &Profile) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    for call in &profile.calls {
        let family = family(&call.name, call.class);
        match sums.iter_mut().find(|(name, _)| *name == family) {
            Some((_, sum)) => *sum += call.share_pct,
            None => sums.push((family, call.share_pct)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

/// The share of communication, by kind.
pub(crate) fn communication(profile: &Profile) -> String {
    let said = |(name, share): (&str, f64)| format!("{name} {}", percent_said(share));
    let parts: Vec<String> = families(profile)
        .into_iter()
        .enumerate()
        .filter(|(place, (_, share))| *place < 3 && *share >= profile.mpi_pct / 200.0)
        .map(|(_, part)| said(part))
        .collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!("MPI took {} of the ranks' time{parts}", percent_said(profile.mpi_pct))
}

/// Where the waiting is, and who causes it.
pub(crate) fn waiting(profile: &Profile) -> String {
    let waits = &profile.waits;
    if waits.total_ns == 0 {
        let said = match warning(profile) {
            None => "No rank waited for another.",
            Some(_) => "No waiting found, but the trace is incomplete.",
        };
        return said.to_owned();
    }
    let total = waits.total_ns as f64;
    let classes = [
        (waits.late_sender_ns, "for late senders"),
        (waits.collective_ns, "at collectives"),
        (waits.late_receiver_ns, "for late receivers"),
    ];
    let (ns, whom) = classes.into_iter().max_by_key(|(ns, _)| *ns).unwrap_or((0, ""));
    let mut text = format!(
        "Waiting for other ranks is {} of the time in MPI, {} of that {whom}",
        percent_said(waits.mpi_share_pct),
        percent_said(100.0 * ns as f64 / total),
    );
    let call = profile.calls.iter().max_by(|a, b| a.wait_s.total_cmp(&b.wait_s));
    if let Some(call) = call.filter(|call| call.wait_s > 0.0) {
        let share = 100.0 * call.wait_s * 1e9 / total;
        text.push_str(&format!("; {} is in {}", percent_said(share), call.name));
    }
    text.push('.');
    let mut late: Vec<(f64, u32)> =
        profile.by_rank.iter().map(|row| (100.0 * row.late_s * 1e9 / total, row.rank)).collect();
    late.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    if let Some(&(share, rank)) = late.first().filter(|(share, _)| *share > 0.0) {
        // More than if all ranks were alike, and more than the next.
        let even = 100.0 / late.len() as f64;
        let next = late.get(1).map_or(0.0, |(share, _)| *share);
        let share_said = percent_said(share);
        text.push_str(&match share >= (1.5 * even).min(75.0) && share >= 1.2 * next {
            true => format!(" {share_said} of the waiting is for rank {rank}."),
            false => format!(" No rank stands out: the most is for rank {rank} ({share_said})."),
        });
    }
    text
}

/// What is missing, as a warning.
pub(crate) fn warning(profile: &Profile) -> Option<String> {
    let mut parts = Vec::new();
    if profile.ranks_read < profile.ranks {
        parts.push(match profile.ranks - profile.ranks_read {
            1 => "the trace of 1 rank is missing".to_owned(),
            missing => format!("the traces of {} ranks are missing", count(missing.into())),
        });
    }
    match profile.unfinished_ranks.as_slice() {
        [] => {}
        [rank] => parts.push(format!("rank {rank} did not reach MPI_Finalize")),
        ranks => {
            parts.push(format!("{} did not reach MPI_Finalize", plural(ranks.len() as u64, "rank")))
        }
    }
    if profile.lost != LostSums::default() {
        parts.push(format!("lost: {}", lost(&profile.lost)));
    }
    (!parts.is_empty()).then(|| capital(&parts.join("; ")) + ".")
}

fn headline(profile: &Profile, style: Style) -> String {
    let said = format!("{}. {}.", run(profile), communication(profile));
    let mut lines =
        vec![style.title(&wrap(&said, style.width, "")), wrap(&waiting(profile), style.width, "")];
    lines.extend(warning(profile).map(|text| wrap(&text, style.width, "")));
    if let Some(command) = command(profile) {
        lines.push(wrap(&format!("Command: {command}"), style.width, "    "));
    }
    lines.join("\n")
}

pub(crate) fn command(profile: &Profile) -> Option<String> {
    let command = safe(&profile.command.join(" "));
    (!command.trim().is_empty()).then(|| cut(&command, COMMAND))
}

fn titled(style: Style, title: &str, grid: &Grid) -> String {
    format!("{}\n{}", style.title(title), grid.render(style))
}

/// The sum of the rows that are not shown.
fn rest(text: &mut String, left: usize, what: &str) {
    if left > 0 {
        text.push_str(&format!("\nand {} (--all shows them)", plural(left as u64, what)));
    }
}

fn calls(profile: &Profile, options: Options) -> String {
    let mut grid = Grid::new(vec![
        Column::text("call", 18),
        Column::number("count"),
        Column::number("time"),
        Column::number("share"),
        Column::number("waiting"),
        Column::number("bytes"),
        Column::number("mean").expendable(3),
        Column::number("longest").expendable(2),
        Column::number("rank min").expendable(5),
        Column::number("rank max").expendable(4),
        Column::number("errors"),
    ]);
    let shown = options.shown(profile.calls.len());
    let errors = profile.calls.iter().any(|call| call.errors > 0);
    for call in profile.calls.iter().take(shown) {
        grid.row(
            Tone::Plain,
            vec![
                safe(&call.name),
                count(call.count),
                tight_s(call.time_s),
                percent(call.share_pct),
                tight_s(call.wait_s),
                bytes(call.bytes),
                time(call.time_s * 1e9 / call.count.max(1) as f64).replace(' ', ""),
                tight_s(call.longest_s),
                tight_s(call.rank_min_s),
                tight_s(call.rank_max_s),
                if errors { count(call.errors) } else { String::new() },
            ],
        );
    }
    let mut text = titled(options.style(), "Calls by time", &grid);
    rest(&mut text, profile.calls.len() - shown, "more function");
    text
}

fn waits(profile: &Profile, options: Options) -> Option<String> {
    let waits = &profile.waits;
    if waits.total_ns == 0 {
        return None;
    }
    let mut grid =
        Grid::new(vec![Column::text("class", 12), Column::number("time"), Column::number("share")]);
    let mut row = |name: &str, ns: u64| {
        let share = 100.0 * ns as f64 / waits.total_ns as f64;
        grid.row(Tone::Plain, vec![name.to_owned(), tight(ns), percent(share)]);
    };
    row("late sender", waits.late_sender_ns);
    row("late receiver", waits.late_receiver_ns);
    row("collective", waits.collective_ns);
    let shown = options.shown(waits.collectives.len());
    for collective in waits.collectives.iter().take(shown) {
        row(&format!("  {}", safe(&collective.name)), collective.wait_ns);
    }
    let mut text = titled(options.style(), "Waiting", &grid);
    rest(&mut text, waits.collectives.len() - shown, "more collective");
    Some(text)
}

fn pairs(profile: &Profile, options: Options) -> Option<String> {
    let waits = &profile.waits;
    if waits.pairs.is_empty() {
        return None;
    }
    let mut grid = Grid::new(vec![
        Column::number("rank"),
        Column::number("waits for"),
        Column::text("class", 12),
        Column::number("time"),
        Column::number("share"),
    ]);
    let mut left = waits.total_ns;
    for pair in waits.pairs.iter().take(options.shown(waits.pairs.len())) {
        left = left.saturating_sub(pair.wait_ns);
        let share = 100.0 * pair.wait_ns as f64 / waits.total_ns.max(1) as f64;
        grid.row(
            Tone::Plain,
            vec![
                pair.waiting.to_string(),
                pair.late.to_string(),
                pair.class.to_owned(),
                tight(pair.wait_ns),
                percent(share),
            ],
        );
    }
    let mut text = titled(options.style(), "Who waits for whom", &grid);
    if left > 0 {
        text.push_str(&format!("\nand other pairs, {} in total", time(left as f64)));
    }
    Some(text)
}

fn sizes(profile: &Profile, options: Options) -> Option<String> {
    if profile.sizes.is_empty() {
        return None;
    }
    let mut grid = Grid::new(vec![
        Column::text("size", 12),
        Column::number("messages"),
        Column::number("share"),
        Column::number("bytes"),
        Column::number("share"),
    ]);
    for row in &profile.sizes {
        let of = |part: u64, whole: u64| percent(100.0 * part as f64 / whole.max(1) as f64);
        grid.row(
            Tone::Plain,
            vec![
                size_class(row.from, row.to),
                count(row.count),
                of(row.count, profile.messages),
                bytes(row.bytes),
                of(row.bytes, profile.message_bytes),
            ],
        );
    }
    Some(titled(options.style(), "Message sizes", &grid))
}

fn regions(profile: &Profile, options: Options) -> Option<String> {
    if profile.regions.is_empty() {
        return None;
    }
    let mut grid = Grid::new(vec![
        Column::text("region", 10),
        Column::number("count"),
        Column::number("time"),
        Column::number("in MPI"),
        Column::number("ranks").expendable(1),
        Column::number("rank min").expendable(2),
        Column::number("rank max"),
    ]);
    let shown = options.shown(profile.regions.len());
    for row in profile.regions.iter().take(shown) {
        let depth = row.path.len().saturating_sub(1);
        let name = safe(row.path.last().map_or("", String::as_str));
        let share = if row.time_s > 0.0 { 100.0 * row.mpi_s / row.time_s } else { 0.0 };
        grid.row(
            Tone::Plain,
            vec![
                format!("{}{name}", "  ".repeat(depth.min(16))),
                count(row.count),
                tight_s(row.time_s),
                percent(share),
                row.ranks.to_string(),
                tight_s(row.rank_min_s),
                tight_s(row.rank_max_s),
            ],
        );
    }
    let mut text = titled(options.style(), "Regions", &grid);
    rest(&mut text, profile.regions.len() - shown, "more region");
    if profile.other_regions > 0 {
        let others = plural(profile.other_regions, "region");
        text.push_str(&format!("\nand {others} with less time, not listed separately"));
    }
    Some(text)
}

fn ranks(profile: &Profile, options: Options) -> String {
    let mut grid = Grid::new(vec![
        Column::number("rank"),
        Column::text("host", 8).expendable(5),
        Column::number("wall"),
        Column::number("in MPI"),
        Column::number("waits"),
        Column::number("waited for"),
        Column::number("calls").expendable(4),
        Column::number("sent").expendable(2),
        Column::number("received").expendable(3),
        Column::text("longest call", 12).expendable(1),
    ]);
    let mut order: Vec<_> = profile.by_rank.iter().collect();
    let shown = options.shown(order.len());
    if shown < order.len() {
        order.sort_by(|a, b| b.late_s.total_cmp(&a.late_s).then(a.rank.cmp(&b.rank)));
    }
    for row in order.iter().take(shown) {
        let host = profile.hosts.get(row.host as usize).filter(|_| profile.hosts.len() > 1);
        let longest = row
            .slowest
            .map_or_else(String::new, |name| format!("{} {name}", tight_s(row.slowest_s)));
        grid.row(
            Tone::Plain,
            vec![
                format!("{}{}", row.rank, if row.finalized { "" } else { "*" }),
                host.map_or_else(String::new, |host| safe(&host.name)),
                tight_s(row.wall_s),
                percent(row.mpi_pct),
                tight_s(row.wait_s),
                tight_s(row.late_s),
                count(row.calls),
                bytes(row.sent_bytes),
                bytes(row.received_bytes),
                longest,
            ],
        );
    }
    let mut text = titled(options.style(), "Ranks", &grid);
    if !profile.unfinished_ranks.is_empty() {
        text.push_str("\n* has not finalized: killed, crashed, aborted or still running");
    }
    if shown < order.len() {
        let more = plural((order.len() - shown) as u64, "more rank");
        text.push_str(&format!("\nand {more}, which others wait for less (--all shows them)"));
    }
    text
}

/// What is missing, in words.
fn lost(lost: &LostSums) -> String {
    let parts: Vec<String> = [
        (lost.events, "event"),
        (lost.chunks, "damaged chunk"),
        (lost.cut_chunks, "chunk truncated within an event"),
        (lost.table_full, "request or region dropped (table full)"),
        (lost.unreadable, "unreadable argument"),
        (lost.lists, "list of sizes too long to record"),
        (lost.unmatched_messages, "unmatched send or receive"),
        (lost.different_sizes, "message with two different sizes"),
        (lost.incomplete_collectives, "collective with missing ranks"),
        (lost.reversed_messages, "message received before it was sent"),
        (lost.switched_off_ranks, "rank that switched recording off"),
        (lost.switched_off_calls, "call made while recording was off"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{} x {what}", count(n)))
    .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// What the trace is, what it lacks and what it cost.
pub(crate) fn notes(profile: &Profile) -> Vec<String> {
    let mut lines = vec![format!(
        "Trace: {} of {} of {}, {:.1} bytes each.",
        plural(profile.events, "event"),
        profile.ranks_read,
        plural(u64::from(profile.ranks), "rank"),
        profile.collector.bytes_per_event,
    )];
    lines.push(format!("Lost: {}.", lost(&profile.lost)));
    if profile.hosts.len() > 1 {
        let corrections = profile.hosts.iter().map(|host| {
            host.correction_max_ns.unsigned_abs().max(host.correction_min_ns.unsigned_abs())
        });
        let residual = profile.hosts.iter().filter_map(|host| host.residual_ns).max().unwrap_or(0);
        let corrected = match corrections.max().unwrap_or(0) {
            0 if profile.lost.reversed_messages > 0 => "not corrected".to_owned(),
            0 => "no message arrives before it was sent".to_owned(),
            ns => format!("corrected from message order by up to {}", time(ns as f64)),
        };
        let contradiction = match profile.clock_contradiction_ns {
            ..=0 => String::new(),
            ns => format!("; messages can still arrive up to {} too early", time(ns as f64)),
        };
        lines.push(format!(
            "Clocks of {}: {corrected}; still uncertain by {}{contradiction}.",
            plural(profile.hosts.len() as u64, "host"),
            time(residual as f64),
        ));
    }
    if profile.collector.ns_per_call > 0.0 {
        lines.push(format!(
            "Overhead: {} per call, {} of the ranks' time.",
            time(profile.collector.ns_per_call),
            percent_said(profile.collector.share_pct)
        ));
    }
    if profile.waits.total_ns > 0 {
        lines.push(format!(
            "Sends below {} are assumed to be buffered and never wait for the receiver.",
            power(profile.waits.late_receiver_bytes)
        ));
    }
    lines
}

fn about(profile: &Profile, style: Style) -> String {
    let lines = notes(profile).into_iter().map(|line| wrap(&line, style.width, "    "));
    let lines: Vec<String> =
        std::iter::once(style.title("About this trace")).chain(lines).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded run, to be altered.
    fn stencil() -> Profile {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/mpi/stencil");
        program::profile(&program::open(directory.as_ref()).unwrap(), 1).unwrap()
    }

    #[test]
    fn that_nobody_waited_is_said_only_if_nothing_is_missing() {
        let mut profile = stencil();
        assert_eq!(warning(&profile), None);
        profile.waits.total_ns = 0;
        assert_eq!(waiting(&profile), "No rank waited for another.");
        profile.ranks_read = 3;
        assert_eq!(warning(&profile).unwrap(), "The trace of 1 rank is missing.");
        assert!(waiting(&profile).starts_with("No waiting found"));
        profile.ranks_read = 4;
        profile.lost.events = 1;
        assert!(waiting(&profile).starts_with("No waiting found"));
    }

    #[test]
    fn clocks_that_contradict_each_other_are_not_said_to_agree() {
        let mut profile = stencil();
        profile.hosts.push(profile.hosts[0].clone());
        let said = |profile: &Profile| {
            notes(profile).into_iter().find(|line| line.starts_with("Clocks")).unwrap()
        };
        assert!(said(&profile).contains("no message arrives before it was sent"));
        profile.lost.reversed_messages = 1;
        profile.clock_contradiction_ns = 2_000;
        let said = said(&profile);
        assert!(!said.contains("no message arrives"), "{said}");
        assert!(said.ends_with("; messages can still arrive up to 2.00 us too early."), "{said}");
    }

    #[test]
    fn rows_that_are_left_out_are_counted() {
        let mut profile = stencil();
        let one = profile.waits.collectives[0].clone();
        profile.waits.collectives = vec![one; 40];
        let few = waits(&profile, Options::default()).unwrap();
        let shown = Options::default().shown(40);
        assert!(few.ends_with(&format!("and {} more collectives (--all shows them)", 40 - shown)));
        profile.other_regions = 3;
        let text = regions(&profile, Options::default()).unwrap();
        assert!(text.ends_with("and 3 regions with less time, not listed separately"), "{text}");
    }
}
