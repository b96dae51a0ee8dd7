//! The `detail` of a row, or of a part of it, as text: its processes, wakers, callbacks or senders, most
//! frequent first.

use std::fmt::Write;

use trace::{Class, Mode, Source};

use crate::Contents;
use crate::rows::{Row, Rows};

/// Details listed; the rest are counted.
const SHOWN: usize = 3;
/// Details are truncated to this many characters, so that a row stays readable.
const LONGEST: usize = 40;

/// Common prefix of the details of a class, which is written once. The details of IPIs have none: they
/// begin with the function.
fn lead(class: Class) -> &'static str {
    match class {
        Class::Thread | Class::Kthread => "woken by ",
        _ => "",
    }
}

pub(crate) fn describe(row: &Row, rows: &Rows, contents: &Contents<'_>) -> Option<String> {
    let text = details(row, rows, contents.sources);
    let first = row.members.iter().find_map(|&id| contents.sources.get(id as usize));
    let idles = first.is_some_and(|source| source.class == Class::Idle);
    match text {
        None if idles && contents.manifest.mode == Mode::Program => {
            Some("runnable while the CPU idled".to_owned())
        }
        text => text,
    }
}

fn details(row: &Row, rows: &Rows, sources: &[Source]) -> Option<String> {
    let parts = row.members.iter().filter_map(|&id| {
        let (source, fine) = (sources.get(id as usize)?, rows.fine.get(id as usize)?);
        let part = fine.part;
        (part.hits > 0 || part.cost_ns > 0).then_some((source, part.count, part.cost_ns))
    });
    details_of(parts)
}

/// What the sources of a row have in their details, most frequent first: each source with how often it
/// happened, and its cost.
pub fn details_of<'a>(parts: impl IntoIterator<Item = (&'a Source, u64, u64)>) -> Option<String> {
    let mut pids: Vec<u32> = Vec::new();
    let mut details: Vec<(&str, (u64, u64))> = Vec::new();
    let mut class = None;
    for (source, count, cost_ns) in parts {
        class = Some(source.class);
        for pid in &source.pids {
            if !pids.contains(pid) {
                pids.push(*pid);
            }
        }
        if let Some(detail) = source.detail.as_deref().filter(|d| !d.is_empty()) {
            let text = detail.strip_prefix(lead(source.class)).unwrap_or(detail);
            match details.iter_mut().find(|(known, _)| *known == text) {
                Some((_, sum)) => {
                    *sum = (sum.0.saturating_add(count), sum.1.saturating_add(cost_ns));
                }
                None => details.push((text, (count, cost_ns))),
            }
        }
    }
    details.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));

    let mut text = String::new();
    if !pids.is_empty() {
        let shown: Vec<String> = pids.iter().take(SHOWN).map(u32::to_string).collect();
        text.push_str(if pids.len() == 1 { "pid " } else { "pids " });
        text.push_str(&shown.join(", "));
        more(&mut text, pids.len());
    }
    if !details.is_empty() {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(class.map_or("", lead));
        for (i, (detail, (count, _))) in details.iter().take(SHOWN).enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            text.push_str(&cut(detail));
            // A part that only continues others has no count.
            if *count > 0 {
                let _ = write!(text, " {count}x");
            }
        }
        more(&mut text, details.len());
    }
    (!text.is_empty()).then_some(text)
}

fn more(text: &mut String, of: usize) {
    if of > SHOWN {
        let _ = write!(text, ", +{} more", of - SHOWN);
    }
}

fn cut(detail: &str) -> String {
    if detail.chars().count() <= LONGEST {
        return detail.to_owned();
    }
    let mut short: String = detail.chars().take(LONGEST - 3).collect();
    short.push_str("...");
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Part;

    fn source(class: Class, detail: &str, pids: &[u32]) -> Source {
        Source {
            class,
            name: "x".into(),
            unit: None,
            detail: Some(detail.into()),
            pids: pids.to_vec(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        }
    }

    fn describe_counts(sources: &[Source], counts: &[u64]) -> Option<String> {
        let mut rows = Rows::default();
        rows.extend(sources);
        for (fine, &count) in rows.fine.iter_mut().zip(counts) {
            fine.part = Part { count, hits: count, cost_ns: count };
        }
        details(&rows.rows[0], &rows, sources)
    }

    #[test]
    fn a_thread_is_described_by_its_pid_and_its_wakers_most_frequent_first() {
        let sources = [
            source(Class::Thread, "sshd", &[812]),
            source(Class::Thread, "woken by hrtimer_wakeup", &[812]),
        ];
        let text = describe_counts(&sources, &[3, 1000]);
        assert_eq!(text.as_deref(), Some("pid 812; woken by hrtimer_wakeup 1000x, sshd 3x"));
    }

    #[test]
    fn who_sent_an_interrupt_is_said_once() {
        let ipi = |detail: &str| source(Class::Ipi, detail, &[]);
        let sources =
            [ipi("ipi_mb from ipisender"), ipi("from kworker"), ipi("generic_smp_call_function")];
        let text = describe_counts(&sources, &[30, 20, 10]);
        let wanted = "ipi_mb from ipisender 30x, from kworker 20x, generic_smp_call_function 10x";
        assert_eq!(text.as_deref(), Some(wanted));
    }

    #[test]
    fn details_past_the_third_are_counted_and_unused_ones_left_out() {
        let sources: Vec<Source> =
            (0..6).map(|i| source(Class::Softirq, &format!("callback_{i}"), &[])).collect();
        let text = describe_counts(&sources, &[1, 2, 3, 4, 5, 0]);
        assert_eq!(text.as_deref(), Some("callback_4 5x, callback_3 4x, callback_2 3x, +2 more"));
    }

    #[test]
    fn a_very_long_detail_is_cut() {
        let text = describe_counts(&[source(Class::Timer, &"é".repeat(500), &[])], &[1]);
        assert!(text.is_some_and(|t| t.chars().count() < 50));
    }
}
