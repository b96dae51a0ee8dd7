//! What each source costs at scale compared with its time on the node, and where the two disagree.

use analysis::By;
use simulate::whatif::Effect;
use study::decide::whatif::{Answer, Change, Gain, Group, OfSource, WhatIf};

use crate::{
    Options,
    actions::{actions_beside, not_idle},
    grid::{Column, Grid, Tone},
    sources::mark,
    words::{capital, count, label_of, name, percent, percent_said, plural, safe, time, wrap},
};

/// Local share above which a source that costs nothing at scale is mentioned.
const LARGE_SHARE_PCT: f64 = 5.0;
/// Differences listed at most.
const SAID: usize = 4;

#[must_use]
pub fn whatif(results: &WhatIf, options: Options) -> String {
    let by = |by: By| options.by == by || options.all && by != By::Cpu && by != By::Class;
    let sections = [
        not_idle(&results.load, "").map(|text| wrap(&text, options.style().width, "")),
        Some(headline(results, options)),
        actions_beside(&results.actions, &results.load, options),
        by(By::Process).then(|| processes(results, options)).flatten(),
        by(By::Source).then(|| sources(results, options)).flatten(),
        // Of single sources: beside rows that are something else, they would refer to nothing.
        (options.all || matches!(options.by, By::Process | By::Source))
            .then(|| differences(results, options))
            .flatten(),
        (by(By::Unit) && (options.by == By::Unit || !results.units.is_empty()))
            .then(|| groups("unit", &results.units, results, options))
            .flatten(),
        by(By::Class).then(|| groups("class", &results.classes, results, options)).flatten(),
        by(By::Cpu).then(|| groups("CPU", &results.cpus, results, options)).flatten(),
        together(results, options),
        Some(notes(results, options)),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n\n") + "\n"
}

fn headline(results: &WhatIf, options: Options) -> String {
    let style = options.style();
    let us = |us: f64| time(us * 1e3);
    let baseline = &results.baseline;
    let [low, high] = baseline.median_ci95_us;
    let host = match results.host.as_str() {
        "" => "this recording".to_owned(),
        host => safe(host),
    };
    let mut sentence = format!(
        "{} on {} with the {}noise of {host}: {}, median of {} ({} to {}).",
        capital(&safe(&results.job)),
        plural_exact(results.ranks, "rank"),
        if results.load.is_counted() { "load and " } else { "" },
        us(baseline.median_us),
        plural(results.runs, "run"),
        us(low),
        us(high),
    );
    if baseline.noiseless_us > 0.0 {
        sentence += &format!(
            " That is {:.2} times the {} it takes without {}.",
            baseline.slowdown_median,
            us(baseline.noiseless_us),
            if results.load.is_counted() { "load and noise" } else { "noise" }
        );
    }
    style.title(&wrap(&sentence, style.width, ""))
}

fn processes(results: &WhatIf, options: Options) -> Option<String> {
    if results.processes.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("process", 12),
        Column::text("unit", 10).expendable(2),
        Column::number("sources").expendable(4),
        Column::number("without").expendable(1),
        Column::number("gain"),
        Column::number("95 % interval"),
        Column::number("runs changed").expendable(3),
        Column::number("local share"),
    ]);
    let shown = options.shown(results.processes.len());
    for row in &results.processes[..shown] {
        let label = label_of(row.class, &row.process);
        let mut cells = vec![
            format!("{}{}", name(&label), mark(row.own, row.program)),
            row.unit.as_deref().map(safe).unwrap_or_default(),
            row.source_count.to_string(),
        ];
        cells.extend(gain_cells(&row.answer, results.runs));
        cells.push(percent(row.local_share_pct));
        let tone = match row.answer.removed.effect.helps() {
            true if row.answer.removed.gain_pct >= STRONG_PCT => Tone::Strong,
            true => Tone::Plain,
            false => Tone::Dim,
        };
        grid.row(tone, cells);
    }
    let title = format!(
        "Gain from removing each process with everything it causes, on {}",
        plural_exact(results.ranks, "rank")
    );
    let mut text = format!("{}\n{}", style.title(&title), grid.render(style));
    if shown < results.processes.len() {
        let more = plural((results.processes.len() - shown) as u64, "more row");
        text += &format!("\nand {more} with smaller gains (--all shows them)");
    }
    Some(text)
}

fn sources(results: &WhatIf, options: Options) -> Option<String> {
    let style = options.style();
    let rows = rows(results);
    if rows.is_empty() {
        let text = if results.baseline.detours == 0 {
            "The recording has no detours: nothing to remove."
        } else {
            "No source took any time."
        };
        return Some(text.to_owned());
    }
    let mut columns = vec![
        Column::number("#"),
        Column::text("class", 7),
        Column::text("name", 12),
        Column::text("unit", 10).expendable(2),
        Column::number("without").expendable(1),
        Column::number("gain"),
        Column::number("95 % interval"),
        Column::number("runs changed").expendable(3),
    ];
    let more: Vec<Title> = extra(results);
    columns.extend(more.iter().map(|title| Column::number(title.0)));
    columns.extend([Column::number("local #"), Column::number("local share")]);
    let mut grid = Grid::new(columns);
    let shown = options.shown(rows.len());
    for row in &rows[..shown] {
        let mut cells = vec![
            row.place.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            row.class.name().to_owned(),
            format!("{}{}", name(&row.name), mark(row.own, row.program)),
            row.unit.as_deref().map(safe).unwrap_or_default(),
        ];
        cells.extend(gain_cells(&row.answer, results.runs));
        cells.extend(more.iter().map(|title| also((title.1)(row))));
        cells.extend([row.local_rank.to_string(), percent(row.local_share_pct)]);
        let tone = match row.place {
            Some(_) if row.answer.removed.gain_pct >= STRONG_PCT => Tone::Strong,
            Some(_) => Tone::Plain,
            None => Tone::Dim,
        };
        grid.row(tone, cells);
    }
    let title = format!(
        "Gain from removing each source on {}, compared with its local share",
        plural_exact(results.ranks, "rank")
    );
    let mut text = format!("{}\n{}", style.title(&title), grid.render(style));
    if shown < rows.len() {
        let more = plural((rows.len() - shown) as u64, "more source");
        text += &format!("\nand {more} with smaller gains (--all shows them)");
    }
    if let Some(others) = &results.others {
        let line = format!(
            "{} ({} of the local time), removed together: {} (increase --top to list more)",
            plural(others.source_count as u64, "other source"),
            percent_said(others.local_share_pct),
            removed_in_words(&others.answer, results.runs)
        );
        text += &format!("\n{}", wrap(&line, style.width, "    "));
    }
    if rows[..shown].iter().any(|row| row.own) {
        text += "\n* the recorder itself: absent in production";
    }
    if rows[..shown].iter().any(|row| row.program) {
        text += "\n^ the program itself";
    }
    Some(text)
}

/// A column for each additional change requested.
type Title = (&'static str, fn(&OfSource) -> Option<&Gain>);

fn extra(results: &WhatIf) -> Vec<Title> {
    let mut titles: Vec<Title> = Vec::new();
    if results.shift_cpu.is_some() {
        titles.push(("moved", |row| row.answer.shifted.as_ref()));
    }
    if results.quantise {
        titles.push(("co-scheduled", |row| row.answer.quantised.as_ref()));
    }
    titles
}

/// Gains of at least this much are highlighted.
const STRONG_PCT: f64 = 10.0;

fn gain_cells(answer: &Answer, runs: u64) -> Vec<String> {
    let change = &answer.removed;
    let interval = match change.effect {
        Effect::Nothing => String::new(),
        _ => interval(change),
    };
    vec![
        time(answer.median_us_without * 1e3),
        gain_cell(change),
        interval,
        format!("{} of {}", count(change.changed_runs), count(runs)),
    ]
}

fn interval(change: &Change) -> String {
    let [low, high] = change.gain_ci95_pct;
    format!("{} to {}", signed(low), signed(high))
}

/// The estimate, or a word if it is not significant.
fn gain_cell(change: &Change) -> String {
    match change.effect {
        Effect::Nothing => "nothing".to_owned(),
        Effect::Unclear => "unclear".to_owned(),
        Effect::Gain | Effect::SomeRuns | Effect::Loss => signed(change.gain_pct),
    }
}

fn also(gain: Option<&Gain>) -> String {
    gain.map_or_else(|| "-".to_owned(), |gain| gain_cell(&gain.change))
}

fn signed(pct: f64) -> String {
    if pct < 0.0 { format!("-{}", percent(-pct)) } else { percent(pct) }
}

/// The same for a sentence, with the digits of the table: a gain is one figure wherever it stands.
fn signed_said(pct: f64) -> String {
    signed(pct).replace('%', " %")
}

fn interval_in_words(change: &Change) -> String {
    let [low, high] = change.gain_ci95_pct;
    format!("{} to {}", signed_said(low), signed_said(high))
}

fn removed_in_words(answer: &Answer, runs: u64) -> String {
    in_words(&answer.removed, answer.median_us_without, runs)
}

fn in_words(change: &Change, median_us: f64, runs: u64) -> String {
    let (interval, median) = (interval_in_words(change), time(median_us * 1e3));
    match change.effect {
        Effect::Nothing => "changes nothing".to_owned(),
        Effect::Unclear => format!("unclear ({interval}); increase --runs"),
        Effect::SomeRuns => some_runs(change, runs),
        Effect::Gain => format!("{} faster ({interval}), {median}", signed_said(change.gain_pct)),
        Effect::Loss => format!("{} slower ({interval}), {median}", signed_said(-change.gain_pct)),
    }
}

/// Description for [`Effect::SomeRuns`].
fn some_runs(change: &Change, runs: u64) -> String {
    format!(
        "{} of {runs} runs get shorter; the median run by {} ({})",
        change.shorter_runs,
        signed_said(change.gain_pct),
        interval_in_words(change)
    )
}

/// The possible gain as text: the figure and the interval of the table.
pub(crate) fn to_gain(change: &Change, runs: u64) -> String {
    match change.effect {
        Effect::SomeRuns => some_runs(change, runs),
        _ => {
            format!("up to {} faster ({})", signed_said(change.gain_pct), interval_in_words(change))
        }
    }
}

/// Sources that took time; ranked ones first: an uncertain gain comes after a certain one.
fn rows(results: &WhatIf) -> Vec<&OfSource> {
    let mut rows: Vec<&OfSource> =
        results.sources.iter().filter(|row| row.local_ns_total > 0).collect();
    rows.sort_by_key(|row| row.place.is_none());
    rows
}

/// Where the two rankings disagree.
fn differences(results: &WhatIf, options: Options) -> Option<String> {
    let style = options.style();
    let label = |row: &OfSource| label_of(row.class, &row.name);
    let mut lines = Vec::new();
    for row in rows(results) {
        let line = match row.place {
            // Sources ranked higher locally may cost nothing at scale: only a better rank is news.
            Some(rank) if rank < row.local_rank => format!(
                "{} is number {rank} at this scale ({}), but number {} by local time ({}).",
                label(row),
                signed_said(row.answer.removed.gain_pct),
                row.local_rank,
                percent_said(row.local_share_pct)
            ),
            None if row.local_share_pct >= LARGE_SHARE_PCT => format!(
                "{} takes {} of the local time, but {}.",
                label(row),
                percent_said(row.local_share_pct),
                match row.answer.removed.effect {
                    Effect::Unclear => "its effect at this scale is unclear",
                    _ => "removing it changes nothing at this scale",
                }
            ),
            _ => continue,
        };
        lines.push(wrap(&line, style.width, "    "));
    }
    let more = lines.len().saturating_sub(SAID);
    lines.truncate(SAID);
    if more > 0 {
        lines.push(format!("and {} more", more));
    }
    let title = style.title("Where this differs from the local ranking");
    (!lines.is_empty()).then(|| format!("{title}\n{}", lines.join("\n")))
}

/// Sources that were removed together.
fn groups(
    what: &'static str,
    groups: &[Group],
    results: &WhatIf,
    options: Options,
) -> Option<String> {
    if groups.is_empty() {
        return Some(format!("The recording has no {what} to remove."));
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text(what, 16),
        Column::number("sources"),
        Column::number("without").expendable(1),
        Column::number("gain"),
        Column::number("95 % interval"),
        Column::number("runs changed").expendable(2),
        Column::number("local share"),
    ]);
    let shown = options.shown(groups.len());
    for group in &groups[..shown] {
        let mut cells = vec![safe(&group.names.join(", ")), group.source_count.to_string()];
        cells.extend(gain_cells(&group.answer, results.runs));
        cells.push(percent(group.local_share_pct));
        let tone = match group.answer.removed.effect {
            Effect::Gain | Effect::SomeRuns => Tone::Plain,
            _ => Tone::Dim,
        };
        grid.row(tone, cells);
    }
    let ranks = plural_exact(results.ranks, "rank");
    let title = match what {
        "CPU" => format!("Gain if each CPU were silent, on {ranks}"),
        what => format!("Gain from removing each {what}, on {ranks}"),
    };
    let mut text = format!("{}\n{}", style.title(&title), grid.render(style));
    if shown < groups.len() {
        let more = plural((groups.len() - shown) as u64, "more row");
        text += &format!("\nand {more} with smaller gains (--all shows them)");
    }
    Some(text)
}

fn together(results: &WhatIf, options: Options) -> Option<String> {
    let group = results.together.as_ref()?;
    let style = options.style();
    let names: Vec<String> = group.names.iter().map(|name| safe(name)).collect();
    let which =
        format!("{} ({})", names.join(" and "), plural(group.source_count as u64, "source"));
    let mut lines = vec![format!(
        "Removed together, {which}: {}.",
        removed_in_words(&group.answer, results.runs)
    )];
    let gain = |gain: &Gain| in_words(&gain.change, gain.median_us, results.runs);
    if let (Some(cpu), Some(moved)) = (results.shift_cpu, &group.answer.shifted) {
        lines.push(format!("All moved to CPU {cpu}: {}.", gain(moved)));
    }
    if let (true, Some(together)) = (results.quantise, &group.answer.quantised) {
        lines.push(format!("All co-scheduled: {}.", gain(together)));
    }
    let lines: Vec<String> = lines.iter().map(|line| wrap(line, style.width, "    ")).collect();
    Some(lines.join("\n"))
}

fn notes(results: &WhatIf, options: Options) -> String {
    let style = options.style();
    let mut lines = Vec::new();
    let rows = rows(results);
    if !rows.is_empty() {
        lines.push(
            "Gain: how much shorter the median run is when the same runs are simulated without the \
             source; 95 % intervals by bootstrap over pairs of runs. Gains are not additive: where \
             two sources delay the same runs, removing one leaves the other."
                .to_owned(),
        );
        if rows.iter().any(|row| row.answer.removed.effect == Effect::SomeRuns) {
            lines.push(
                "If a source hits fewer than half of the runs, the median hardly changes; it hits \
                 a longer job (--iterations) more often."
                    .to_owned(),
            );
        }
    }
    if let Some(cpu) = results.shift_cpu {
        lines.push(format!(
            "Moved: to CPU {cpu}; ticks, page faults and noise outside the kernel cannot be moved."
        ));
    }
    if results.quantise {
        lines.push(
            "Co-scheduled: all nodes run it at the same time, so that it delays all ranks together."
                .to_owned(),
        );
    }
    if results.runs < FEW_RUNS {
        lines.push(format!(
            "Intervals from {} are unreliable: use --runs {FEW_RUNS} or more.",
            plural(results.runs, "run")
        ));
    }
    lines.extend(results.remarks.iter().map(|remark| format!("{}.", safe(remark))));
    lines.push(format!("Network: {}.", safe(&results.net)));
    let lines: Vec<String> = lines.iter().map(|line| wrap(line, style.width, "    ")).collect();
    lines.join("\n")
}

/// With fewer runs the ends of an interval are single runs.
const FEW_RUNS: u64 = 40;

/// Rank counts are never rounded.
fn plural_exact(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
