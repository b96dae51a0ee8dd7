//! What each source costs at scale compared with its time on the node, and where the two disagree.

use trace::Class;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    sources::mark,
    words::{capital, count, name, percent, percent_said, plural, safe, time, wrap},
};

/// Effect of a change on the job's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainFigures {
    pub median_us: f64,
    /// Reduction of the median in percent, and its 95 % interval.
    pub gain_pct: f64,
    pub between_pct: (f64, f64),
    pub changed_runs: u64,
    /// Runs that get noticeably shorter.
    pub shorter_runs: u64,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Gain,
    /// Some runs gain, but the median run not significantly.
    SomeRuns,
    Nothing,
    /// More runs are needed to tell.
    Unclear,
    Loss,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WhatIfRow {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
    /// The recorded program itself.
    pub program: bool,
    /// Position by cost at scale (None if it costs nothing) and by time taken.
    pub scale_rank: Option<usize>,
    pub local_rank: usize,
    pub local_share_pct: f64,
    pub removed: GainFigures,
    pub shifted: Option<GainFigures>,
    pub quantised: Option<GainFigures>,
}

/// Several sources together.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIfGroup {
    pub names: Vec<String>,
    pub sources: usize,
    pub local_share_pct: f64,
    pub removed: GainFigures,
    pub shifted: Option<GainFigures>,
    pub quantised: Option<GainFigures>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    pub host: String,
    /// Description of the simulated job.
    pub job: String,
    pub net: String,
    pub ranks: u64,
    pub runs: u64,
    pub detours: u64,
    pub noiseless_us: f64,
    pub median_us: f64,
    pub median_between_us: (f64, f64),
    /// Selected sources that took time, largest gain first, those without a gain last.
    pub rows: Vec<WhatIfRow>,
    pub others: Option<WhatIfGroup>,
    pub units: Vec<WhatIfGroup>,
    pub together: Option<WhatIfGroup>,
    /// The CPU that sources are moved to.
    pub shift: Option<u32>,
    pub quantise: bool,
    /// Describes noise of the recording that is not assigned to any rank.
    pub left_out: Option<String>,
}

/// Local share above which a source that costs nothing at scale is mentioned.
const LARGE_SHARE_PCT: f64 = 5.0;
/// Differences listed at most.
const SAID: usize = 4;

#[must_use]
pub fn whatif(results: &WhatIf, options: Options) -> String {
    let sections = [
        Some(headline(results, options)),
        sources(results, options),
        differences(results, options),
        units(results, options),
        together(results, options),
        Some(notes(results, options)),
    ];
    sections.into_iter().flatten().collect::<Vec<_>>().join("\n\n") + "\n"
}

fn headline(results: &WhatIf, options: Options) -> String {
    let style = options.style();
    let us = |us: f64| time(us * 1e3);
    let (low, high) = results.median_between_us;
    let host = match results.host.as_str() {
        "" => "this recording".to_owned(),
        host => safe(host),
    };
    let mut sentence = format!(
        "{} on {} with the noise of {host}: {}, median of {} ({} to {}).",
        capital(&safe(&results.job)),
        plural_exact(results.ranks, "rank"),
        us(results.median_us),
        plural(results.runs, "run"),
        us(low),
        us(high),
    );
    if results.noiseless_us > 0.0 {
        sentence += &format!(
            " That is {:.2} times the {} it takes without noise.",
            results.median_us / results.noiseless_us,
            us(results.noiseless_us)
        );
    }
    style.title(&wrap(&sentence, style.width, ""))
}

fn sources(results: &WhatIf, options: Options) -> Option<String> {
    let style = options.style();
    if results.rows.is_empty() {
        let text = if results.detours == 0 {
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
    let shown = options.shown(results.rows.len());
    for row in &results.rows[..shown] {
        let mut cells = vec![
            row.scale_rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            row.class.name().to_owned(),
            format!("{}{}", name(&row.name), mark(row.own, row.program)),
            row.unit.as_deref().map(safe).unwrap_or_default(),
        ];
        cells.extend(gain_cells(&row.removed, results.runs));
        cells.extend(more.iter().map(|title| also((title.1)(row))));
        cells.extend([row.local_rank.to_string(), percent(row.local_share_pct)]);
        let tone = match row.scale_rank {
            Some(_) if row.removed.gain_pct >= STRONG_PCT => Tone::Strong,
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
    if shown < results.rows.len() {
        let more = plural((results.rows.len() - shown) as u64, "more source");
        text += &format!("\nand {more} with smaller gains (--all shows them)");
    }
    if let Some(others) = &results.others {
        let line = format!(
            "{} ({} of the local time), removed together: {} (increase --top to list more)",
            plural(others.sources as u64, "other source"),
            percent_said(others.local_share_pct),
            in_words(&others.removed, results.runs)
        );
        text += &format!("\n{}", wrap(&line, style.width, "    "));
    }
    if results.rows[..shown].iter().any(|row| row.own) {
        text += "\n* the recorder itself: absent in production";
    }
    if results.rows[..shown].iter().any(|row| row.program) {
        text += "\n^ the program itself";
    }
    Some(text)
}

/// A column for each additional change requested.
type Title = (&'static str, fn(&WhatIfRow) -> Option<&GainFigures>);

fn extra(results: &WhatIf) -> Vec<Title> {
    let mut titles: Vec<Title> = Vec::new();
    if results.shift.is_some() {
        titles.push(("moved", |row| row.shifted.as_ref()));
    }
    if results.quantise {
        titles.push(("co-scheduled", |row| row.quantised.as_ref()));
    }
    titles
}

/// Gains of at least this much are highlighted.
const STRONG_PCT: f64 = 10.0;

fn gain_cells(figures: &GainFigures, runs: u64) -> Vec<String> {
    let (low, high) = figures.between_pct;
    let interval = match figures.verdict {
        Verdict::Nothing => String::new(),
        _ => format!("{} to {}", signed(low), signed(high)),
    };
    vec![
        time(figures.median_us * 1e3),
        gain_cell(figures),
        interval,
        format!("{} of {}", count(figures.changed_runs), count(runs)),
    ]
}

/// The estimate, or a word if it is not significant.
fn gain_cell(figures: &GainFigures) -> String {
    match figures.verdict {
        Verdict::Nothing => "nothing".to_owned(),
        Verdict::Unclear => "unclear".to_owned(),
        Verdict::Gain | Verdict::SomeRuns | Verdict::Loss => signed(figures.gain_pct),
    }
}

fn also(figures: Option<&GainFigures>) -> String {
    figures.map_or_else(|| "-".to_owned(), gain_cell)
}

fn signed(pct: f64) -> String {
    if pct < 0.0 { format!("-{}", percent(-pct)) } else { percent(pct) }
}

fn in_words(figures: &GainFigures, runs: u64) -> String {
    let (low, high) = figures.between_pct;
    let interval = format!("{} to {}", signed(low), signed(high));
    match figures.verdict {
        Verdict::Nothing => "changes nothing".to_owned(),
        Verdict::Unclear => format!("unclear ({interval}); increase --runs"),
        Verdict::SomeRuns => some_runs(figures, runs),
        Verdict::Gain => format!(
            "{} faster ({interval}), {}",
            percent(figures.gain_pct),
            time(figures.median_us * 1e3)
        ),
        Verdict::Loss => format!(
            "{} slower ({interval}), {}",
            percent(-figures.gain_pct),
            time(figures.median_us * 1e3)
        ),
    }
}

/// Description for [`Verdict::SomeRuns`].
fn some_runs(figures: &GainFigures, runs: u64) -> String {
    let (low, high) = figures.between_pct;
    format!(
        "{} of {runs} runs get shorter; the median run by {} ({} to {})",
        figures.shorter_runs,
        signed(figures.gain_pct),
        signed(low),
        signed(high)
    )
}

/// The possible gain as text: the figure and the interval of the table.
#[must_use]
pub fn to_gain(figures: &GainFigures, runs: u64) -> String {
    let (low, high) = figures.between_pct;
    match figures.verdict {
        Verdict::SomeRuns => some_runs(figures, runs),
        _ => format!(
            "up to {} faster ({} to {})",
            signed(figures.gain_pct),
            signed(low),
            signed(high)
        ),
    }
}

/// Where the two rankings disagree.
fn differences(results: &WhatIf, options: Options) -> Option<String> {
    let style = options.style();
    let label = |row: &WhatIfRow| crate::headline::label_of(row.class, &row.name);
    let mut lines = Vec::new();
    for row in &results.rows {
        let line = match row.scale_rank {
            // Sources ranked higher locally may cost nothing at scale: only a better rank is news.
            Some(rank) if rank < row.local_rank => format!(
                "{} is number {rank} at this scale ({}), but number {} by local time ({}).",
                label(row),
                signed(row.removed.gain_pct),
                row.local_rank,
                percent_said(row.local_share_pct)
            ),
            None if row.local_share_pct >= LARGE_SHARE_PCT => format!(
                "{} takes {} of the local time, but {}.",
                label(row),
                percent_said(row.local_share_pct),
                match row.removed.verdict {
                    Verdict::Unclear => "its effect at this scale is unclear",
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

fn units(results: &WhatIf, options: Options) -> Option<String> {
    if results.units.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("unit", 16),
        Column::number("sources"),
        Column::number("without").expendable(1),
        Column::number("gain"),
        Column::number("95 % interval"),
        Column::number("runs changed").expendable(2),
        Column::number("local share"),
    ]);
    let shown = options.shown(results.units.len());
    for unit in &results.units[..shown] {
        let mut cells = vec![safe(&unit.names.join(", ")), unit.sources.to_string()];
        cells.extend(gain_cells(&unit.removed, results.runs));
        cells.push(percent(unit.local_share_pct));
        let tone = match unit.removed.verdict {
            Verdict::Gain | Verdict::SomeRuns => Tone::Plain,
            _ => Tone::Dim,
        };
        grid.row(tone, cells);
    }
    let mut text = format!("{}\n{}", style.title("Gain from removing units"), grid.render(style));
    if shown < results.units.len() {
        let more = plural((results.units.len() - shown) as u64, "more unit");
        text += &format!("\nand {more} with smaller gains (--all shows them)");
    }
    Some(text)
}

fn together(results: &WhatIf, options: Options) -> Option<String> {
    let group = results.together.as_ref()?;
    let style = options.style();
    let names: Vec<String> = group.names.iter().map(|name| safe(name)).collect();
    let which = format!("{} ({})", names.join(" and "), plural(group.sources as u64, "source"));
    let mut lines =
        vec![format!("Removed together, {which}: {}.", in_words(&group.removed, results.runs))];
    if let (Some(cpu), Some(figures)) = (results.shift, &group.shifted) {
        lines.push(format!("All moved to CPU {cpu}: {}.", in_words(figures, results.runs)));
    }
    if let (true, Some(figures)) = (results.quantise, &group.quantised) {
        lines.push(format!("All co-scheduled: {}.", in_words(figures, results.runs)));
    }
    let lines: Vec<String> = lines.iter().map(|line| wrap(line, style.width, "    ")).collect();
    Some(lines.join("\n"))
}

fn notes(results: &WhatIf, options: Options) -> String {
    let style = options.style();
    let mut lines = Vec::new();
    if !results.rows.is_empty() {
        lines.push(
            "Gain: how much shorter the median run is when the same runs are simulated without the \
             source; 95 % intervals by bootstrap over pairs of runs. Gains are not additive: where \
             two sources delay the same runs, removing one leaves the other."
                .to_owned(),
        );
        if results.rows.iter().any(|row| row.removed.verdict == Verdict::SomeRuns) {
            lines.push(
                "If a source hits fewer than half of the runs, the median hardly changes; it hits \
                 a longer job (--iterations) more often."
                    .to_owned(),
            );
        }
    }
    if let Some(cpu) = results.shift {
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
    if let Some(left_out) = &results.left_out {
        lines.push(format!("{}.", safe(left_out)));
    }
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
