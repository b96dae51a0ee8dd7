//! The longest detours to expect: what comes from data, what from a fitted tail, and what is only bounded.

use study::noise::tail::{Check, Kind, MARGIN, SourceTail, Tail, Tails};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, label_of, outside_label, percent_said, plural, rate, safe, time, wrap},
};

#[must_use]
pub fn tails(tails: &Tails, options: Options) -> String {
    let style = options.style();
    let mut text = style.title(&wrap(&title(tails), style.width, "")) + "\n";
    if !tails.sources.is_empty() {
        text += &format!("\n{}", sources(&tails.sources, options));
    }
    let unseen = format!(
        "Events that never occurred in {} of CPU time occur less than once in {}, with 95 % \
         confidence.",
        seconds(tails.watched_s),
        seconds(1.0 / tails.unseen_below_hz)
    );
    text += &format!("\n{}\n", wrap(&unseen, style.width, ""));
    if let Some(check) = &tails.check {
        text += &format!("\n{}", checked(check, options));
    }
    for remark in &tails.remarks {
        text += &format!("{}\n", wrap(&safe(remark), style.width, "    "));
    }
    text
}

fn title(tails: &Tails) -> String {
    let (seen, ahead) = (seconds(tails.watched_s), seconds(tails.ahead_s));
    let longest = us(tails.all.longest_us);
    match tails.all.expected {
        Some(expected) => format!(
            "The longest detour in {ahead} of CPU time is expected to be {} ({}). The longest recorded in \
             {seen} is {longest}.",
            us(expected.median_us),
            interval(expected.ci95_us)
        ),
        None => format!(
            "{} in {seen} of CPU time, the longest {longest}: too few to fit a tail.",
            plural(tails.all.count, "detour")
        ),
    }
}

fn us(us: f64) -> String {
    time(us * 1e3)
}

fn seconds(s: f64) -> String {
    time(s * 1e9)
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("{} to {}", us(low), us(high))
}

fn sources(sources: &[SourceTail], options: Options) -> String {
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("source", 14),
        Column::text("unit", 10).expendable(3),
        Column::number("detours").expendable(2),
        Column::number("period").expendable(4),
        Column::number("longest"),
        Column::number("expected"),
        Column::number("95 % interval").expendable(1),
        Column::text("known from", 17),
    ]);
    let shown = options.shown(sources.len());
    for source in &sources[..shown] {
        let tail = &source.tail;
        let named = outside_label(&source.name)
            .map_or_else(|| safe(&label_of(source.class, &source.name)), str::to_owned);
        let tone = if tail.kind == Kind::Few { Tone::Dim } else { Tone::Plain };
        grid.row(
            tone,
            vec![
                named,
                source.unit.as_deref().map(safe).unwrap_or_default(),
                count(tail.count),
                tail.period_us.map(us).unwrap_or_default(),
                us(tail.longest_us),
                tail.expected.map_or_else(|| "-".to_owned(), |expected| us(expected.median_us)),
                tail.expected.map(|expected| interval(expected.ci95_us)).unwrap_or_default(),
                basis(tail),
            ],
        );
    }
    let mut text = style.title("Longest detours to expect, by source") + "\n" + &grid.render(style);
    text += "\n";
    if shown < sources.len() {
        let more = plural((sources.len() - shown) as u64, "more source");
        text += &format!("{more} (--json lists all)\n");
    }
    text
}

/// What the expectation rests on.
fn basis(tail: &Tail) -> String {
    match (tail.kind, &tail.fit) {
        (Kind::Bounded, _) => format!("cap: {MARGIN} x longest"),
        (_, Some(fit)) => format!("tail: {}", plural(fit.peaks, "peak")),
        _ => format!("below {}/s", rate(tail.below_hz)),
    }
}

fn checked(check: &Check, options: Options) -> String {
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("lane", 8),
        Column::number("first tenth").expendable(1),
        Column::number("longest there"),
        Column::number("95 % interval"),
        Column::number("longest after"),
        Column::text("", 4),
    ]);
    let shown = options.shown(check.lanes.len());
    for lane in &check.lanes[..shown] {
        grid.row(
            if lane.covered { Tone::Plain } else { Tone::Strong },
            vec![
                safe(&lane.lane),
                seconds(lane.trained_s),
                us(lane.seen_us),
                interval(lane.expected.ci95_us),
                us(lane.longest_us),
                if lane.covered { "covered" } else { "MISSED" }.to_owned(),
            ],
        );
    }
    let words = format!(
        "Predicted from the first tenth of each lane: {} of {} covered by 95 % intervals, whose bounds differ \
         by a factor of {:.1} (median); from any tenth: {}. Resampling falls short by a factor of up to {:.1}.",
        percent_said(check.covered_pct),
        plural(check.lanes.len() as u64, "lane"),
        check.width,
        percent_said(check.any_tenth_covered_pct),
        check.resampling_short
    );
    format!("{}\n{}\n", wrap(&words, style.width, ""), grid.render(style))
}
