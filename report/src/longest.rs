//! The longest detours, each with all that is known about it.

use study::longest::{Longest, LongestPart};

use crate::{
    Options,
    words::{label_of, outside_label, plural, safe, tight, time, wrap},
};

/// Width of the columns before the words.
const INDENT: usize = 22;
/// Parts listed of a detour.
const PARTS: usize = 12;

/// One paragraph per detour, longest first.
#[must_use]
pub fn longest(longest: &[Longest], options: Options) -> String {
    let style = options.style();
    let title = match longest.len() as u64 {
        0 => return "No detours were recorded.\n".to_owned(),
        1 => "The longest detour".to_owned(),
        several => format!("The {several} longest detours"),
    };
    let mut text = style.title(&title) + "\n";
    for (number, detour) in (1..).zip(longest) {
        let when = match &detour.at_utc {
            Some(utc) => format!("{utc} ({:.6} s)", detour.at_s),
            None => format!("{:.6} s", detour.at_s),
        };
        let wait = detour.wait.map_or_else(String::new, |wait| format!(", {}", wait.name()));
        let length = time(detour.length_ns as f64);
        let line = format!("{number}. {length} on {}{wait}, at {when}", safe(&detour.lane));
        text += &format!("{}\n", wrap(&line, style.width, "   "));
        for part in detour.parts.iter().take(PARTS) {
            let line = part_said(part, &detour.lane);
            // Columns stay columns: only the words after them are wrapped.
            let (after, cost) = (tight(part.after_ns), tight(part.cost_ns));
            let words = wrap(&line, style.width.saturating_sub(INDENT), &" ".repeat(INDENT));
            text += &format!("   +{after:<8} {cost:>7}  {words}\n");
        }
        if detour.parts.len() > PARTS {
            let more = plural((detour.parts.len() - PARTS) as u64, "more part");
            text += &format!("   and {more} (--json lists them)\n");
        }
        if let Some(outside) = detour.outside {
            let label = outside_label(outside).unwrap_or(outside);
            text += &format!("   {:<9} {:>7}  {label}\n", "", tight(detour.outside_ns));
        }
    }
    text
}

/// What ended a recording: `612 us on CPU 1 at 2026-11-18T00:12:01Z (3.201504 s): fakemond (600us), timer tick (9us)`.
/// The process or source that was waited for is named first, however small its part is.
#[must_use]
pub fn happened(detour: &Longest, waited_for: Option<&str>) -> String {
    const NAMED: usize = 3;
    let when = match &detour.at_utc {
        Some(utc) => format!("{utc} ({:.6} s)", detour.at_s),
        None => format!("{:.6} s", detour.at_s),
    };
    let mut parts: Vec<(String, u64)> = Vec::new();
    let outside = detour
        .outside
        .map(|outside| (outside_label(outside).unwrap_or(outside).to_owned(), detour.outside_ns));
    let named = detour.parts.iter().map(|p| (safe(&label_of(p.class, &p.name)), p.cost_ns));
    for (name, ns) in named.chain(outside) {
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => parts.push((name, ns)),
        }
    }
    let is_other = |name: &str| waited_for.is_none_or(|asked| !name.contains(&safe(asked)));
    parts.sort_by_key(|(name, ns)| (is_other(name), std::cmp::Reverse(*ns)));
    let said = parts.iter().take(NAMED).map(|(name, ns)| format!("{name} ({})", tight(*ns)));
    let said = said.collect::<Vec<_>>().join(", ");
    let (length, lane) = (time(detour.length_ns as f64), safe(&detour.lane));
    format!("{length} on {lane} at {when}{}{said}", if said.is_empty() { "" } else { ": " })
}

/// `fakemond (thread, fakemond.service), pid 812, woken by tick`
fn part_said(part: &LongestPart, lane: &str) -> String {
    let mut line = safe(&label_of(part.class, &part.name));
    let unit = part.unit.as_deref().map(safe);
    let of: Vec<String> = std::iter::once(part.class.name().to_owned()).chain(unit).collect();
    line += &format!(" ({})", of.join(", "));
    if let [pid, ..] = part.pids[..] {
        line += &format!(", pid {pid}");
    }
    if let Some(cause) = &part.cause {
        line += &format!(", caused by {}", safe(cause));
    }
    if let Some(detail) = &part.detail {
        line += &format!(", {}", safe(detail));
    }
    if let Some(policy) = &part.policy {
        line += &format!(", {}", safe(policy));
    }
    // The lane of a CPU says so already.
    let cpu = format!("CPU {}", part.cpu);
    if lane.ends_with(&cpu) { line } else { format!("{line}, on {cpu}") }
}
