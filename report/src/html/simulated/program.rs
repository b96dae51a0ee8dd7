//! A traced program: the sweep, what would change it, and what its ranks wait for.

use study::{
    explain::states::{RankWaits, Waits, path_in_words},
    jobs::{app::Sweep, hypotheses::Tried},
};

use super::{
    super::{
        bars::{self, Bar, Row},
        plot::WIDE,
        scale::{ranks, time, us},
        tables::{NAME, ROWS, limited, micro},
    },
    Figure, Pictures, Section,
    boxes::sweep_pictures,
};
use crate::{
    waiting::{row, said},
    words::{cut, safe},
};

/// Changes whose waiting is drawn, and the identifiers of these figures.
const CHANGES: [&str; 6] = ["w0", "w1", "w2", "w3", "w4", "w5"];

/// The figures of a traced program.
#[must_use]
pub fn app_pictures(sweep: &Sweep) -> Pictures {
    let asked = !sweep.hypotheses.is_empty() || !sweep.refused.is_empty();
    let changes = asked.then(|| changes(sweep));
    let waiting = sweep.points.iter().rev().find_map(|point| {
        let blame = point.blame.as_ref()?;
        let path = path_in_words(&blame.parts);
        Some(waiting(blame.waits.as_ref()?, point.ranks, &path))
    });
    Pictures {
        title: "program",
        sections: changes.into_iter().chain(waiting).collect(),
        ..sweep_pictures(&sweep.as_sweep())
    }
}

fn bar(name: &'static str, row: &RankWaits) -> Bar {
    let classes = row.by.classes().map(|(s, _)| s * 1e9);
    Bar { name, classes, noise: row.by.noise_s * 1e9 }
}

fn label(row: &RankWaits) -> String {
    match row.ranks {
        0 | 1 => format!("rank {}", row.rank),
        many => format!("ranks {}-{}", row.rank, row.rank + many - 1),
    }
}

/// The largest changes first, those without any effect left out of the figures.
fn changes(sweep: &Sweep) -> Section {
    let s = |s: f64| time(s * 1e9);
    let waited = |waits: &Option<Waits>| waits.as_ref().map_or("-".to_owned(), |w| s(w.waiting_s));
    let row = |effect: &Tried| {
        let [low, high] = effect.gain_ci95_pct;
        vec![
            cut(&safe(&effect.text), NAME),
            ranks(effect.ranks),
            format!("{:.2}\u{a0}%", effect.gain_pct),
            format!("{low:.2} to {high:.2}\u{a0}%"),
            us(effect.median_us),
            waited(&effect.waits_before),
            waited(&effect.waits_after),
            limited(&safe(effect.critical.as_deref().unwrap_or("-"))),
        ]
    };
    let most = sweep.hypotheses.iter().map(|effect| effect.ranks).max();
    let drawn =
        sweep.hypotheses.iter().filter(|one| Some(one.ranks) == most && one.changed_runs > 0);
    let figures = drawn.zip(CHANGES).filter_map(|(effect, id)| {
        let (before, after) = (effect.waits_before.as_ref()?, effect.waits_after.as_ref()?);
        let rows: Vec<Row> = before
            .ranks
            .iter()
            .zip(&after.ranks)
            .map(|(before, after)| Row {
                label: label(before),
                bars: vec![bar("before", before), bar("after", after)],
            })
            .collect();
        let text = cut(&safe(&effect.text), NAME);
        let (svg, height) = bars::draw(id, &format!("Waiting by rank, if {text}"), &rows)?;
        let caption = format!(
            "If {text}: what each rank waits for in the first run, before and after. Gain {:.2} %; critical instead: \
             {}.",
            effect.gain_pct,
            effect.critical.as_deref().map_or("-".to_owned(), safe)
        );
        Some(Figure { svg, size: (WIDE, height), caption: limited(&caption) })
    });
    let before = sweep.hypotheses.iter().rev().find(|effect| !effect.path_before.is_empty());
    let before = before.map(|effect| {
        let looked_at = effect.waits_ranks.filter(|looked_at| *looked_at != effect.ranks);
        let fewer = looked_at.map_or(String::new(), |few| {
            format!(
                " Waiting and critical paths are those of {} ranks of the same program.",
                ranks(few)
            )
        });
        format!("Critical before: {}.{fewer}", path_in_words(&effect.path_before))
    });
    let of_change = sweep.hypotheses.iter().filter(|one| Some(one.ranks) == most);
    let noted = of_change.filter_map(|one| Some(format!("{}: {}.", one.text, one.note.as_ref()?)));
    let last = sweep.refused.last().map(|refused| refused.ranks);
    let of_last = sweep.refused.iter().filter(|one| Some(one.ranks) == last);
    let refused = of_last.map(|one| format!("Not tried: {} ({}).", one.text, one.reason));
    let notes: Vec<String> = noted.chain(refused).take(ROWS).collect();
    Section {
        id: "s-changes",
        title: "What would change it",
        lines: before.iter().chain(&notes).map(|line| micro(&limited(line))).collect(),
        figures: figures.collect(),
        header: vec![
            "if",
            "ranks",
            "gain",
            "95\u{a0}%",
            "median",
            "waiting before",
            "after",
            "critical instead",
        ],
        rows: sweep.hypotheses.iter().take(ROWS).map(row).collect(),
        more_rows: sweep.hypotheses.len().saturating_sub(ROWS),
    }
}

/// What the ranks wait for at the last point.
fn waiting(waits: &Waits, of_ranks: u64, path: &str) -> Section {
    let rows: Vec<Row> =
        waits.ranks.iter().map(|row| Row { label: label(row), bars: vec![bar("", row)] }).collect();
    let figure = bars::draw("waits", "Waiting by rank", &rows).map(|(svg, height)| Figure {
        svg,
        size: (WIDE, height),
        caption: format!("What each of {} ranks waits for, mean of the runs.", ranks(of_ranks)),
    });
    let regions = waits.regions.iter().filter_map(|row| {
        let region = cut(&safe(row.region.as_deref()?), NAME);
        Some(format!("{region} {}", time(row.by.s * 1e9)))
    });
    let regions: Vec<String> = regions.take(ROWS).collect();
    let mut lines = vec![said(waits), format!("On the critical path: {path}.")];
    if !regions.is_empty() {
        lines.push(format!("Waiting by region: {}.", regions.join(", ")));
    }
    let state = |state: &study::explain::states::WaitState| {
        row(state, waits.waiting_s).iter().map(|cell| cut(cell, NAME)).collect()
    };
    Section {
        id: "s-waits",
        title: "Waiting",
        lines: lines.iter().map(|line| micro(&limited(&safe(line)))).collect(),
        figures: figure.into_iter().collect(),
        header: vec!["class", "for", "late rank", "because of", "region", "time", "share"],
        rows: waits.states.iter().take(ROWS).map(state).collect(),
        more_rows: waits.states.len().saturating_sub(ROWS),
    }
}
