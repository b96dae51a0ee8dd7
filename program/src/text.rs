//! The profile as text: what a performance engineer wants to see first, in at most `width` columns.

use crate::profile::Profile;

/// Three significant digits of a number from 1 to 999.
fn three(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A length of time with its unit, for columns.
fn time(seconds: f64) -> String {
    if seconds.is_nan() || seconds <= 0.0 {
        return "0".to_owned();
    }
    for (scale, unit) in [(1e9, "ns"), (1e6, "us"), (1e3, "ms")] {
        if seconds * scale < 999.5 {
            return format!("{}{unit}", three(seconds * scale));
        }
    }
    if seconds < 999.5 { format!("{}s", three(seconds)) } else { format!("{seconds:.0}s") }
}

/// [`time`] for a sentence.
fn time_said(seconds: f64) -> String {
    let text = time(seconds);
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(text.len() - unit);
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

fn count(n: u64) -> String {
    let v = n as f64;
    match n {
        0..100_000 => n.to_string(),
        100_000..999_500 => format!("{}k", three(v / 1e3)),
        999_500..999_500_000 => format!("{}M", three(v / 1e6)),
        _ => format!("{}G", three(v / 1e9)),
    }
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

fn bytes(n: u64) -> String {
    let v = n as f64;
    match n {
        0..1000 => format!("{n}B"),
        1000..999_500 => format!("{}kB", three(v / 1e3)),
        999_500..999_500_000 => format!("{}MB", three(v / 1e6)),
        999_500_000..999_500_000_000 => format!("{}GB", three(v / 1e9)),
        _ => format!("{}TB", three(v / 1e12)),
    }
}

/// A power of two of bytes.
fn power(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{} KiB", n >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}

fn percent(value: f64) -> String {
    match value {
        v if v.is_nan() || v <= 0.0 => "0%".to_owned(),
        v if v < 0.005 => "<0.01%".to_owned(),
        v if v > 99.95 && v < 100.0 => ">99.9%".to_owned(),
        v => format!("{}%", three(v)),
    }
}

fn percent_said(value: f64) -> String {
    match value {
        v if (99.5..100.0).contains(&v) => ">99 %".to_owned(),
        v if v >= 9.95 => format!("{v:.0} %"),
        v => percent(v).replace('%', " %"),
    }
}

/// Text that is being laid out.
struct Page {
    width: usize,
    text: String,
}

impl Page {
    /// A paragraph, broken at spaces; lines after the first are indented.
    fn paragraph(&mut self, text: &str, indent: usize) {
        let mut column = 0;
        for word in text.split_whitespace() {
            let mut word: Vec<char> = word.chars().collect();
            if column > 0 && column + 1 + word.len() > self.width {
                self.text.push('\n');
                self.text.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else if column > 0 {
                self.text.push(' ');
                column += 1;
            }
            // A word longer than a line is broken wherever the line ends.
            while column + word.len() > self.width && self.width > indent {
                let rest = word.split_off((self.width - column).min(word.len()));
                self.text.extend(word);
                self.text.push('\n');
                self.text.extend(std::iter::repeat_n(' ', indent));
                column = indent;
                word = rest;
            }
            column += word.len();
            self.text.extend(word);
        }
        self.text.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.text.push('\n');
        self.paragraph(text, 0);
    }

    /// Rows under a header. The first column is aligned to the left and cut off if there is no room, then
    /// the last columns are left out.
    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let length = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = header.iter().map(|text| length(text)).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(length(cell));
            }
        }
        const LEAST: usize = 8;
        let mut columns = widths.len();
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        while total(widths.get(..columns).unwrap_or(&[])) > self.width {
            let all = total(widths.get(..columns).unwrap_or(&[]));
            match widths.first_mut() {
                Some(first) if *first > LEAST => {
                    *first = first.saturating_sub(all - self.width).max(LEAST);
                }
                _ if columns > 1 => columns -= 1,
                _ => break,
            }
        }
        let header: Vec<String> = header.iter().map(|&text| text.to_owned()).collect();
        for row in std::iter::once(&header).chain(rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).take(columns).enumerate() {
                if column == 0 {
                    let mut cell = cell.clone();
                    if length(&cell) > *width {
                        cell = cell.chars().take(width.saturating_sub(2)).collect();
                        cell.push_str("..");
                    }
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            let line: String = line.trim_end().chars().take(self.width.max(1)).collect();
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    fn rest(&mut self, left: usize, what: &str) {
        if left > 0 {
            self.paragraph(&format!("and {left} more {what} (--json has them)"), 0);
        }
    }
}

/// Rows of a table before the rest is summed up.
const ROWS: usize = 15;

/// The profile as text of at most `width` columns (at least 20).
#[must_use]
pub fn text(profile: &Profile, width: usize) -> String {
    let mut page = Page { width: width.max(20), text: String::new() };
    headline(&mut page, profile);
    calls(&mut page, profile);
    waits(&mut page, profile);
    sizes(&mut page, profile);
    regions(&mut page, profile);
    ranks(&mut page, profile);
    about(&mut page, profile);
    page.text
}

fn headline(page: &mut Page, profile: &Profile) {
    let waits = &profile.waits;
    let mut text = format!(
        "The program ran {} on {} and spent {} of its time in MPI",
        time_said(profile.wall_s),
        plural(u64::from(profile.ranks), "rank"),
        percent_said(profile.mpi_pct),
    );
    if waits.total_ns == 0 {
        text.push_str("; no rank waited for another.");
    } else {
        let largest = [
            (waits.late_sender_ns, "for late senders"),
            (waits.collective_ns, "at collectives"),
            (waits.late_receiver_ns, "for late receivers"),
        ];
        let (ns, whom) = largest.into_iter().max_by_key(|(ns, _)| *ns).unwrap_or((0, ""));
        text.push_str(&format!(
            ", of which {} is waiting for other ranks, {} of that {whom}.",
            percent_said(waits.mpi_share_pct),
            percent_said(100.0 * ns as f64 / waits.total_ns as f64),
        ));
        let late = profile.by_rank.iter().max_by(|a, b| a.late_s.total_cmp(&b.late_s));
        if let Some(late) = late.filter(|_| profile.by_rank.len() > 1) {
            let total = waits.total_ns as f64 / 1e9;
            text.push_str(&format!(
                " Rank {} causes most of the waiting ({}).",
                late.rank,
                percent_said(100.0 * late.late_s / total)
            ));
        }
    }
    page.paragraph(&text, 0);
    if !profile.command.is_empty() {
        page.paragraph(&format!("Command: {}", profile.command.join(" ")), 4);
    }
}

fn calls(page: &mut Page, profile: &Profile) {
    page.heading("Calls by time");
    let rows: Vec<Vec<String>> = profile
        .calls
        .iter()
        .take(ROWS)
        .map(|call| {
            vec![
                call.name.clone(),
                count(call.count),
                time(call.time_s),
                percent(call.share_pct),
                time(call.wait_s),
                bytes(call.bytes),
                time(call.time_s / call.count.max(1) as f64),
                time(call.longest_s),
            ]
        })
        .collect();
    let header = ["call", "count", "time", "share", "waiting", "bytes", "mean", "longest"];
    page.table(&header, &rows);
    page.rest(profile.calls.len().saturating_sub(ROWS), "functions");
}

fn waits(page: &mut Page, profile: &Profile) {
    let waits = &profile.waits;
    if waits.total_ns == 0 {
        return;
    }
    page.heading("Waiting");
    let share = |ns: u64| percent(100.0 * ns as f64 / waits.total_ns as f64);
    let mut rows = vec![
        vec!["late sender".to_owned(), time(waits.late_sender_s), share(waits.late_sender_ns)],
        vec![
            "late receiver".to_owned(),
            time(waits.late_receiver_s),
            share(waits.late_receiver_ns),
        ],
        vec!["collective".to_owned(), time(waits.collective_s), share(waits.collective_ns)],
    ];
    for row in waits.collectives.iter().take(8) {
        rows.push(vec![format!("  {}", row.name), time(row.wait_s), share(row.wait_ns)]);
    }
    page.table(&["class", "time", "share"], &rows);
    page.heading("Who waits for whom");
    let mut shown = 0;
    let rows: Vec<Vec<String>> = waits
        .pairs
        .iter()
        .take(ROWS)
        .map(|pair| {
            shown += pair.wait_ns;
            vec![
                format!("rank {} for rank {}", pair.waiting, pair.late),
                pair.class.to_owned(),
                time(pair.wait_s),
                share(pair.wait_ns),
            ]
        })
        .collect();
    page.table(&["ranks", "class", "time", "share"], &rows);
    let rest = waits.total_ns.saturating_sub(shown);
    if rest > 0 {
        page.paragraph(&format!("and other pairs, {} in total", time_said(rest as f64 / 1e9)), 0);
    }
}

fn sizes(page: &mut Page, profile: &Profile) {
    if profile.sizes.is_empty() {
        return;
    }
    page.heading("Sizes of messages");
    let rows: Vec<Vec<String>> = profile
        .sizes
        .iter()
        .map(|row| {
            let size = if row.from == row.to {
                power(row.from)
            } else {
                format!("{} to {}", power(row.from), power(row.to.saturating_add(1)))
            };
            let share = 100.0 * row.count as f64 / profile.messages.max(1) as f64;
            vec![size, count(row.count), percent(share), bytes(row.bytes)]
        })
        .collect();
    page.table(&["size", "messages", "share", "bytes"], &rows);
}

fn regions(page: &mut Page, profile: &Profile) {
    if profile.regions.is_empty() {
        return;
    }
    page.heading("Regions");
    let rows: Vec<Vec<String>> = profile
        .regions
        .iter()
        .take(2 * ROWS)
        .map(|row| {
            let depth = row.path.len().saturating_sub(1);
            let name = row.path.last().map_or("", String::as_str);
            let share = if row.time_s > 0.0 { 100.0 * row.mpi_s / row.time_s } else { 0.0 };
            vec![
                format!("{}{name}", "  ".repeat(depth)),
                count(row.count),
                time(row.time_s),
                percent(share),
                time(row.rank_min_s),
                time(row.rank_max_s),
            ]
        })
        .collect();
    page.table(&["region", "count", "time", "in MPI", "least", "most"], &rows);
    page.rest(profile.regions.len().saturating_sub(2 * ROWS), "regions");
}

fn ranks(page: &mut Page, profile: &Profile) {
    page.heading("Ranks");
    let mut order: Vec<_> = profile.by_rank.iter().collect();
    let many = order.len() > ROWS;
    if many {
        order.sort_by(|a, b| b.late_s.total_cmp(&a.late_s).then(a.rank.cmp(&b.rank)));
    }
    let rows: Vec<Vec<String>> = order
        .iter()
        .take(ROWS)
        .map(|row| {
            let slowest = row.slowest.map_or_else(String::new, |name| {
                format!("{} {}", name.trim_start_matches("MPI_"), time(row.slowest_s))
            });
            vec![
                format!("{}{}", row.rank, if row.finalized { "" } else { "*" }),
                time(row.wall_s),
                percent(row.mpi_pct),
                time(row.wait_s),
                time(row.late_s),
                count(row.calls),
                bytes(row.sent_bytes),
                slowest,
            ]
        })
        .collect();
    let header = ["rank", "wall", "in MPI", "waits", "awaited", "calls", "sent", "slowest call"];
    page.table(&header, &rows);
    if !profile.unfinished_ranks.is_empty() {
        page.paragraph("* did not call MPI_Finalize: killed, crashed or aborted", 0);
    }
    if many {
        page.rest(order.len() - ROWS, "ranks, which others wait for less");
    }
}

fn about(page: &mut Page, profile: &Profile) {
    page.heading("About this trace");
    let mut about = format!(
        "{} in {} of {}",
        plural(profile.events, "event"),
        plural(u64::from(profile.ranks_read), "rank"),
        profile.ranks
    );
    if !profile.library.is_empty() {
        about.push_str(&format!(", {}", profile.library.lines().next().unwrap_or("")));
    }
    page.paragraph(&format!("{about}."), 4);
    let lost = &profile.lost;
    let parts: Vec<String> = [
        (lost.events, "event"),
        (lost.chunks, "damaged chunk"),
        (lost.cut_chunks, "chunk that ends within an event"),
        (lost.table_full, "request or region without room in a table"),
        (lost.unreadable, "argument that could not be read"),
        (lost.unmatched_messages, "send or receive without its other half"),
        (lost.different_sizes, "message with two different sizes"),
        (lost.incomplete_collectives, "collective in which ranks are missing"),
        (lost.reversed_messages, "message that arrived before it was sent"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{} x {what}", count(n)))
    .collect();
    let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    page.paragraph(&format!("Lost: {parts}."), 4);
    if profile.hosts.len() > 1 {
        let corrections = profile.hosts.iter().map(|host| {
            host.correction_max_ns.unsigned_abs().max(host.correction_min_ns.unsigned_abs())
        });
        let residual = profile.hosts.iter().filter_map(|host| host.residual_ns).max().unwrap_or(0);
        let corrected = match corrections.max().unwrap_or(0) {
            0 => "no message arrives before it was sent".to_owned(),
            ns => format!("corrected by the messages by up to {}", time_said(ns as f64 / 1e9)),
        };
        page.paragraph(
            &format!(
                "Clocks of {}: {corrected}; still uncertain by {}.",
                plural(profile.hosts.len() as u64, "host"),
                time_said(residual as f64 / 1e9),
            ),
            4,
        );
    }
    if profile.collector.ns_per_call > 0.0 {
        page.paragraph(
            &format!(
                "Overhead: {} a call, {} of the ranks' time.",
                time_said(profile.collector.ns_per_call / 1e9),
                percent_said(profile.collector.share_pct)
            ),
            4,
        );
    }
}
