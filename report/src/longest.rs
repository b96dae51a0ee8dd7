//! The longest detours, each with all that is known about it.

use std::collections::HashMap;

use study::recording::longest::{Longest, LongestPart};
use trace::Class;

use crate::{
    Options,
    words::{label_of, outside_label, plural, safe, tight, time, wrap},
};

/// Width of the columns before the words.
const INDENT: usize = 22;
/// Parts listed of a detour, the largest.
const PARTS: usize = 12;
/// Sources named of a detour, those with the largest sums.
const SOURCES: usize = 6;

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
        if detour.parts.len() + usize::from(detour.outside.is_some()) > 1 {
            let line = format!("total: {}", sums_said(&sums(detour), SOURCES));
            text += &format!("   {}\n", wrap(&line, style.width.saturating_sub(3), "     "));
        }
        let mut shown: Vec<usize> = (0..detour.parts.len()).collect();
        shown.sort_by_key(|&at| std::cmp::Reverse(detour.parts[at].cost_ns));
        shown.truncate(PARTS);
        // In the order of time again.
        shown.sort_unstable();
        for part in shown.into_iter().map(|at| &detour.parts[at]) {
            let line = part_said(part, &detour.lane);
            // Columns stay columns: only the words after them are wrapped.
            let (after, cost) = (tight(part.after_ns), tight(part.cost_ns));
            let words = wrap(&line, style.width.saturating_sub(INDENT), &" ".repeat(INDENT));
            text += &format!("   +{after:<8} {cost:>7}  {words}\n");
        }
        if detour.parts.len() > PARTS {
            let more = plural((detour.parts.len() - PARTS) as u64, "smaller part");
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
    let mut parts = sums(detour);
    let is_other = |name: &str| waited_for.is_none_or(|asked| !name.contains(&safe(asked)));
    // The sort is stable.
    parts.sort_by_key(|sum| is_other(&sum.name));
    parts.truncate(NAMED);
    let said = parts.iter().map(|sum| format!("{} ({})", sum.name, tight(sum.ns)));
    let said = said.collect::<Vec<_>>().join(", ");
    let (length, lane) = (time(detour.length_ns as f64), safe(&detour.lane));
    format!("{length} on {lane} at {when}{}{said}", if said.is_empty() { "" } else { ": " })
}

/// What a source took of a detour.
struct Sum {
    name: String,
    ns: u64,
    parts: u64,
}

/// Largest first.
fn sums(detour: &Longest) -> Vec<Sum> {
    let mut sums: Vec<Sum> = Vec::new();
    let mut places: HashMap<(Class, &str), usize> = HashMap::new();
    for part in &detour.parts {
        let place = *places.entry((part.class, &part.name)).or_insert(sums.len());
        if place == sums.len() {
            sums.push(Sum { name: safe(&label_of(part.class, &part.name)), ns: 0, parts: 0 });
        }
        let sum = &mut sums[place];
        (sum.ns, sum.parts) = (sum.ns.saturating_add(part.cost_ns), sum.parts + 1);
    }
    if let Some(outside) = detour.outside {
        let name = outside_label(outside).unwrap_or(outside).to_owned();
        sums.push(Sum { name, ns: detour.outside_ns, parts: 1 });
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.ns));
    sums
}

/// `burn 4.10ms in 2 parts, timer tick 9us in 12 parts and 2 more sources 3us`
fn sums_said(sums: &[Sum], most: usize) -> String {
    let (named, rest) = sums.split_at(most.min(sums.len()));
    let said = named.iter().map(|sum| match sum.parts {
        1 => format!("{} {}", sum.name, tight(sum.ns)),
        parts => format!("{} {} in {}", sum.name, tight(sum.ns), plural(parts, "part")),
    });
    let mut said = said.collect::<Vec<_>>().join(", ");
    if !rest.is_empty() {
        let ns = rest.iter().map(|sum| sum.ns).fold(0, u64::saturating_add);
        said += &format!(", {} {}", plural(rest.len() as u64, "other source"), tight(ns));
    }
    said
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer and a thread that comes back again and again, and one long interruption at the end.
    fn many_parts() -> Longest {
        let part = |class, name: &str, after_ns, cost_ns| LongestPart {
            class,
            name: name.to_owned(),
            unit: None,
            detail: None,
            cause: None,
            policy: None,
            pids: Vec::new(),
            cpu: 1,
            after_ns,
            cost_ns,
        };
        let small = (0..100).flat_map(|at| {
            let thread = part(Class::Thread, "burn", 1_000 * at, 300);
            [thread, part(Class::Timer, "tick", 1_000 * at + 500, 100)]
        });
        let large = [part(Class::Thread, "fakemond", 900_000, 70_000)];
        Longest {
            at_s: 1.5,
            at_utc: None,
            lane: "CPU 1".to_owned(),
            length_ns: 115_000,
            wait: None,
            outside_ns: 5_000,
            outside: Some("unexplained"),
            parts: small.chain(large).collect(),
        }
    }

    #[test]
    fn a_detour_of_many_parts_says_what_took_its_time() {
        let text = longest(&[many_parts()], Options::default());
        let sums = "total: fakemond 70.0us, burn 30.0us in 100 parts, timer tick 10.0us in 100 \
                    parts, unexplained";
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(sums), "{text}");
        // The largest, although it is the last one; in the order of time.
        let parts: Vec<&str> = text.lines().filter(|line| line.starts_with("   +")).collect();
        assert_eq!(parts.len(), PARTS);
        assert!(parts.iter().rev().skip(1).all(|line| line.contains("burn")), "{text}");
        assert!(parts.last().is_some_and(|line| line.contains("fakemond")), "{text}");
        assert!(text.contains("and 189 smaller parts"), "{text}");
        let one =
            Longest { parts: many_parts().parts.split_off(200), outside: None, ..many_parts() };
        assert!(!longest(&[one], Options::default()).contains("total"));
    }

    #[test]
    fn what_was_waited_for_is_named_first() {
        let said = happened(&many_parts(), Some("tick"));
        assert!(said.contains(": timer tick (10.0us), fakemond (70.0us), burn (30.0us)"), "{said}");
    }
}
