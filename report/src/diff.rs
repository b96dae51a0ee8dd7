//! Two recordings compared: which sources appeared, vanished, changed or stayed, and what that means
//! for a job.

use analysis::{Change, Comparison, Interval, Recording, Scope, SharesOf, Verdict};
use study::decide::compare::{Compared, Projected, Projection};
use trace::Class;

use crate::{
    Options,
    actions::actions_beside,
    grid::{Column, Grid, Tone},
    words::{capital, interval_said, name, percent, percent_said, plural, rate, safe, time, wrap},
};

/// With at least this many rows, changes by chance (one in twenty) are mentioned.
const MANY: usize = 20;

/// Label of a verdict.
pub(crate) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Appeared => "appeared",
        Verdict::Vanished => "vanished",
        Verdict::More => "more",
        Verdict::Less => "less",
        Verdict::MoreOften => "higher rate",
        Verdict::LessOften => "lower rate",
        Verdict::Unchanged => "unchanged",
        Verdict::TooRare => "too rare to tell",
    }
}

/// The label in a sentence.
const fn said(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::More => "with more time",
        Verdict::Less => "with less time",
        Verdict::MoreOften => "at a higher rate",
        Verdict::LessOften => "at a lower rate",
        other => word(other),
    }
}

pub(crate) fn changed(change: &Change) -> bool {
    !matches!(change.verdict, Verdict::Unchanged | Verdict::TooRare)
}

/// The comparison as text, with the projection or the reason for its absence.
#[must_use]
pub fn diff(compared: &Compared, options: Options) -> String {
    let comparison = &compared.comparison;
    let style = options.style();
    let busy = not_idle_said(compared);
    let mut sections: Vec<String> = busy.map(|text| wrap(&text, style.width, "")).collect();
    sections.push(style.title(&wrap(&headline(comparison), style.width, "")));
    sections.push(wrap(&projection_said(compared), style.width, "    "));
    let load = compared.load.as_ref().map(|load| load.after.clone()).unwrap_or_default();
    let actions = compared.actions.as_ref();
    sections.extend(actions.and_then(|actions| actions_beside(actions, &load, options)));
    sections.extend(table(comparison, options));
    sections.push(
        notes(comparison)
            .iter()
            .map(|line| wrap(line, style.width, "    "))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    sections.join("\n\n") + "\n"
}

/// That the node was not idle during one of the recordings: load is compared as well.
pub(crate) fn not_idle_said(compared: &Compared) -> impl Iterator<Item = String> {
    let load = compared.load.iter();
    load.flat_map(|load| [(&load.before, " before"), (&load.after, " after")])
        .filter_map(|(load, when)| crate::actions::not_idle(load, when))
}

/// The part of the recordings that is compared, unless it is all of both.
fn only(compared: &Scope) -> Option<String> {
    let cpus = compared.only_cpus.as_ref().map(|cpus| format!("CPU {}", safe(cpus)));
    let from = compared.only_from_ns.map(|ns| format!("detours of {} or longer", time(ns)));
    let parts: Vec<String> = cpus.into_iter().chain(from).collect();
    (!parts.is_empty())
        .then(|| format!("Compared: only {}, which both recorded.", parts.join(" and ")))
}

/// The overall verdict as a sentence.
#[must_use]
pub fn headline(comparison: &Comparison) -> String {
    let change = &comparison.noise_change_pct;
    let verdict = match change {
        c if c.low > 0.0 => "more than before",
        c if c.high < 0.0 => "less than before",
        _ => "no significant difference",
    };
    let verdicts = [
        Verdict::Appeared,
        Verdict::Vanished,
        Verdict::More,
        Verdict::Less,
        Verdict::MoreOften,
        Verdict::LessOften,
        Verdict::Unchanged,
        Verdict::TooRare,
    ];
    let counts: Vec<String> = verdicts
        .iter()
        .map(|verdict| (verdict, comparison.rows.iter().filter(|c| c.verdict == *verdict)))
        .map(|(verdict, sources)| format!("{} {}", sources.count(), said(*verdict)))
        .filter(|said| !said.starts_with("0 "))
        .collect();
    let sources = match counts.is_empty() {
        true => String::new(),
        false => format!(" {}: {}.", capital(comparison.by.rows()), counts.join(", ")),
    };
    let only = only(&comparison.compared).map_or_else(String::new, |only| only + " ");
    let whole = match comparison.shares_of {
        SharesOf::CpuTime => "CPU time",
        SharesOf::WantedTime => "the time its threads wanted to run",
    };
    format!(
        "{only}Noise took {} of {whole} before and {} after: {verdict} (change {}).{sources}",
        with_interval(&comparison.before.noise_pct),
        with_interval(&comparison.after.noise_pct),
        change_said(change),
    )
}

fn with_interval(interval: &Interval) -> String {
    format!("{} ({})", percent_said(interval.value), interval_said([interval.low, interval.high]))
}

/// A change in a sentence.
fn change_said(interval: &Interval) -> String {
    let signed = |value: f64| match value {
        v if v < 0.0 => format!("-{}", percent_said(-v)),
        0.0 => percent_said(0.0),
        v => format!("+{}", percent_said(v)),
    };
    format!("{} to {}", signed(interval.low), signed(interval.high))
}

pub(crate) fn signed(value: f64) -> String {
    match value {
        v if v < 0.0 => format!("-{}", percent(-v)),
        0.0 => percent(0.0),
        v => format!("+{}", percent(v)),
    }
}

fn signed_interval(interval: &Interval) -> String {
    format!("{} to {}", signed(interval.low), signed(interval.high))
}

fn table(comparison: &Comparison, options: Options) -> Option<String> {
    let style = options.style();
    if comparison.rows.is_empty() {
        return Some("Neither recording has any sources.".to_owned());
    }
    // Changed sources first; the others only with --all.
    let (changed, rest): (Vec<&Change>, Vec<&Change>) =
        comparison.rows.iter().partition(|change| changed(change));
    let rows: Vec<&Change> = match options.all {
        true => changed.iter().chain(&rest).copied().collect(),
        false => changed.iter().copied().take(options.top).collect(),
    };
    if rows.is_empty() {
        return Some(format!(
            "No row changed significantly ({}; --all shows them).",
            plural(rest.len() as u64, "row")
        ));
    }
    let mut grid = Grid::new(vec![
        Column::text("class", 7),
        Column::text("name", 12),
        Column::text("unit", 10).expendable(4),
        Column::text("verdict", 11),
        Column::number("/s before"),
        Column::number("/s after"),
        Column::number("rate change").expendable(2),
        Column::number("time before").expendable(1),
        Column::number("time after").expendable(1),
        Column::number("time change"),
    ]);
    for change in &rows {
        let own = if change.own { "*" } else { "" };
        let tone = match change.verdict {
            Verdict::Appeared | Verdict::More | Verdict::MoreOften => Tone::Strong,
            Verdict::Vanished | Verdict::Less | Verdict::LessOften => Tone::Plain,
            Verdict::Unchanged | Verdict::TooRare => Tone::Dim,
        };
        let rates = &change.rate_change_hz;
        let sign = |v: f64| match v {
            v if v < 0.0 => format!("-{}", rate(-v)),
            v => format!("+{}", rate(v)),
        };
        grid.row(
            tone,
            vec![
                change.class.map_or("", Class::name).to_owned(),
                format!("{}{own}", name(&change.name)),
                change.unit.as_deref().map(safe).unwrap_or_default(),
                word(change.verdict).to_owned(),
                rate(change.before.rate_hz.value),
                rate(change.after.rate_hz.value),
                format!("{} to {}", sign(rates.low), sign(rates.high)),
                percent(change.before.time_pct.value),
                percent(change.after.time_pct.value),
                signed_interval(&change.time_change_pct),
            ],
        );
    }
    let of = comparison.by.rows();
    let title = match options.all {
        true => format!("All {of}, changed ones first"),
        false => format!("Changed {of}, by change in time"),
    };
    let title = style.title(&title);
    let mut text = format!("{title}\n{}", grid.render(style));
    let hidden = comparison.rows.len() - rows.len();
    if hidden > 0 {
        text += &format!("\nand {} (--all shows them)", plural(hidden as u64, "more row"));
    }
    if rows.iter().any(|change| change.own) {
        text += "\n* the recorder itself";
    }
    Some(text)
}

/// The projection, or why there is none.
pub(crate) fn projection_said(compared: &Compared) -> String {
    match &compared.projected {
        Some(projection) => projected(projection),
        None => {
            let why = compared.not_projected.as_deref().unwrap_or_default();
            format!("No projection: {}.", safe(why))
        }
    }
}

fn projected(projection: &Projection) -> String {
    let us = |us: f64| time(us * 1e3);
    let side = |p: &Projected| {
        let [low, high] = p.median_ci95_us;
        format!("{} ({} to {}; {:.2}x)", us(p.median_us), us(low), us(high), p.slowdown_median)
    };
    let (before, after) = (&projection.before, &projection.after);
    let verdict = match projection.change_ci95_pct {
        [_, high] if high < 0.0 => "faster after",
        [low, _] if low > 0.0 => "slower after",
        _ => "no difference beyond what two recordings of the same noise would have",
    };
    let text = format!(
        "Projected: {} on {} ranks, {} without noise, takes {} with the noise before and {} with \
         the noise after: {verdict} (median of {}).",
        safe(&projection.job),
        projection.ranks,
        us(projection.noiseless_us),
        side(before),
        side(after),
        plural(projection.runs, "run"),
    );
    projection.remarks.iter().fold(text, |text, remark| format!("{text} {}.", safe(remark)))
}

pub(crate) fn notes(comparison: &Comparison) -> Vec<String> {
    let whole = match comparison.shares_of {
        SharesOf::CpuTime => "the watched CPUs' time",
        SharesOf::WantedTime => "the time the program's threads wanted to run",
    };
    let mut lines = vec![format!(
        "Times are shares of {whole}; changes are after minus before, as 95 % intervals of a \
         bootstrap over blocks of time. Appeared and vanished: in one recording only, and often \
         enough that the other would have seen it."
    )];
    let (before, after) = (&comparison.before, &comparison.after);
    // For threads there is a warning already.
    if before.lanes != after.lanes && comparison.shares_of == SharesOf::CpuTime {
        lines.push(format!(
            "CPUs or threads watched: {} before, {} after. Rates are sums over all of them and \
             differ for that reason alone.",
            before.lanes, after.lanes
        ));
    }
    lines.extend(comparison.compared.warnings.iter().map(|warning| safe(warning)));
    let cut = |recording: &Recording, when: &str| {
        recording.truncated.then(|| {
            format!("The recording {when} or part of it is truncated or damaged; the rest is used.")
        })
    };
    lines.extend(cut(before, "before"));
    lines.extend(cut(after, "after"));
    if comparison.rows.len() >= MANY {
        lines.push(format!(
            "Of {} rows, about {} would appear changed by chance alone.",
            comparison.rows.len(),
            comparison.rows.len().div_ceil(20)
        ));
    }
    lines
}
