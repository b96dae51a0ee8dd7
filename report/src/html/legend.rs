//! The series shared by all figures: one name and one colour each.

use analysis::{Summary, views::Series};
use trace::Mode;

use crate::headline::label;
use crate::words::{cut, plural};

/// Longest name in a legend.
const LONGEST: usize = 34;

/// One series: the CSS class of its colour, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// `s0` to `s6`, `so` for the other sources, `su` for unattributed time.
    pub(super) class: String,
    pub(super) name: String,
}

pub(super) fn keys(series: &[Series], summary: &Summary) -> Vec<Key> {
    series.iter().map(|one| key(one, summary)).collect()
}

/// Number of colours for sources.
const COLOURS: usize = 7;

/// The keys of a second recording, with the colours of the first where a name is in both. Names beyond the
/// number of colours have that of the other sources.
pub(super) fn matched(first: &[Key], second: &mut [Key]) {
    let colour = |key: &Key| !matches!(key.class.as_str(), "so" | "su");
    let known = |name: &str| first.iter().find(|key| key.name == name);
    let mut free: Vec<String> = (0..COLOURS).map(|n| format!("s{n}")).collect();
    free.retain(|class| !first.iter().any(|key| key.class == *class));
    for key in second.iter_mut().filter(|key| colour(key)) {
        key.class = match known(&key.name) {
            Some(same) => same.class.clone(),
            None if free.is_empty() => "so".to_owned(),
            None => free.remove(0),
        };
    }
}

fn key(series: &Series, summary: &Summary) -> Key {
    match series {
        Series::Source(row) => Key {
            class: format!("s{row}"),
            name: summary.sources.get(*row).map_or_else(String::new, |s| cut(&label(s), LONGEST)),
        },
        Series::Others(n) => {
            Key { class: "so".to_owned(), name: plural(*n as u64, "other source") }
        }
        Series::Outside => Key {
            class: "su".to_owned(),
            name: match summary.mode {
                Mode::ProbeOnly | Mode::Imported => "not attributed",
                _ => "outside the kernel",
            }
            .to_owned(),
        },
    }
}
