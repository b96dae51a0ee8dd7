//! A program under noise: what it was, how well its simulation agrees with its trace, and the sweep.

use std::collections::BTreeMap;

use study::{
    explain::{
        sensitivity::{NoiseSensitivity, Sensitivity},
        states::{Waits, path_in_words},
    },
    jobs::{
        app::{AtRanks, Sweep},
        hypotheses::{Refused, Tried},
    },
};

use crate::{
    Options,
    blame::blame,
    grid::{Column, Grid, Tone},
    slowdown::{SweepRows, findings},
    waiting::waits,
    words::{count, percent, plural, precise, safe, time, wrap},
};

/// Above this, the simulation is not of the program that was traced.
const LOUD_PCT: f64 = 10.0;

/// Changes whose new critical path is written out.
const INSTEAD: usize = 10;

#[must_use]
pub fn app(sweep: &Sweep, options: Options) -> String {
    let series: Vec<String> = sweep.knees.iter().map(|knee| knee.series.label()).collect();
    let table = SweepRows::new(&series, options);
    let rows: String = sweep.points.iter().map(|point| table.row(point) + "\n").collect();
    let found = match sweep.is_noisy() {
        true => findings(&sweep.about.noise, &sweep.knees, &sweep.points, options),
        false => String::new(),
    };
    let mut text = format!("{}\n\n{}\n{rows}{found}", heading(sweep, options), table.header());
    for AtRanks { ranks, parameters, noise } in &sweep.sensitivities {
        text += &format!("\n{}", sensitivities(*ranks, parameters, options));
        if !noise.is_empty() {
            text += &format!("\n{}", to_noise(*ranks, noise, options));
        }
    }
    if !sweep.hypotheses.is_empty() {
        text += &format!("\n{}", hypotheses(sweep, options));
    }
    if !sweep.refused.is_empty() {
        text += &format!("\n{}", not_tried(&sweep.refused, options));
    }
    for point in &sweep.points {
        let Some(of_point) = &point.blame else { continue };
        text += &format!("\n{}", blame(of_point, options));
        if !of_point.parts.is_empty() {
            let path = format!("On the critical path: {}.", path_in_words(&of_point.parts));
            text += &format!("\n{}\n", wrap(&path, options.style().width, ""));
        }
        if let Some(of_point) = &of_point.waits {
            text += &format!("\n{}", waits(of_point, options));
        }
    }
    text
}

/// Traces of other collectors do not tell the command.
fn named(command: &str) -> String {
    if command.trim().is_empty() { "The traced program".to_owned() } else { safe(command) }
}

fn heading(sweep: &Sweep, options: Options) -> String {
    let about = &sweep.about;
    let s = |s: f64| time(s * 1e9);
    let mut sentence = format!(
        "{} on {}: {} in the trace, {} of it computing",
        named(&about.command),
        plural(about.traced_ranks.into(), "rank"),
        s(about.traced_s),
        s(about.compute_s),
    );
    if let Some(taken) = about.taken_s {
        sentence += &format!(" ({} more taken by the kernel)", s(taken));
    }
    sentence += ".";
    if let (Some(identity), Some(error)) = (sweep.identity_s, sweep.identity_error_pct) {
        let off = percent(error.abs());
        let side = if error < 0.0 { "shorter" } else { "longer" };
        sentence += &format!(" Simulated as traced: {}, {off} {side}.", s(identity));
        if error.abs() > LOUD_PCT {
            sentence += " The simulation does not reproduce the trace: measure the network with `detour mpi \
                         net` and pass it with --net.";
        }
    }
    wrap(&sentence, options.style().width, "")
}

/// What each change gains.
fn hypotheses(sweep: &Sweep, options: Options) -> String {
    let several =
        sweep.points.iter().map(|point| point.ranks).collect::<std::collections::BTreeSet<_>>();
    let widest = sweep.hypotheses.iter().map(|effect| effect.text.len()).max().unwrap_or(0);
    let mut columns = vec![Column::text("if", widest).reserve(widest.min(40))];
    if several.len() > 1 {
        columns.push(Column::number("ranks").reserve(7));
    }
    columns.extend([
        Column::number("gain").reserve(8),
        Column::number("95 % interval").reserve(18),
        Column::number("median").reserve(7),
        Column::number("waiting").reserve(7),
        Column::number("late sender").reserve(11).expendable(2),
        Column::number("late receiver").reserve(13).expendable(2),
        Column::number("collective").reserve(10).expendable(2),
        Column::number("runs changed").reserve(12).expendable(1),
    ]);
    let grid = Grid::new(columns);
    let layout = grid.layout(options.style());
    let mut text = layout.header() + "\n";
    let waited = |waits: &Option<Waits>| {
        let of = |of: fn(&Waits) -> f64| {
            waits.as_ref().map_or("-".to_owned(), |waits| time(of(waits) * 1e9))
        };
        [
            of(|waits| waits.waiting_s),
            of(|waits| waits.late_sender_s),
            of(|waits| waits.late_receiver_s),
            of(|waits| waits.collective_s),
        ]
    };
    let none = || "-".to_owned();
    for effects in sweep.hypotheses.chunk_by(|a, b| a.ranks == b.ranks) {
        let Some(Tried { ranks, waits_before, .. }) = effects.first() else { continue };
        let mut row = |what: &str, figures: [String; 3], waits: &Option<Waits>, runs: String| {
            let mut cells = vec![safe(what)];
            if several.len() > 1 {
                cells.push(ranks.to_string());
            }
            cells.extend(figures);
            cells.extend(waited(waits));
            cells.push(runs);
            text += &(layout.line(Tone::Plain, &cells) + "\n");
        };
        let point = sweep.points.iter().find(|point| point.ranks == *ranks);
        let median = point.map_or_else(none, |point| precise(point.median_us * 1e3));
        row("unchanged", [none(), none(), median], waits_before, none());
        let (idle, rows): (Vec<&Tried>, Vec<&Tried>) =
            effects.iter().partition(|effect| effect.changed_runs == 0);
        let folds = idle.len() > MOST_IDLE;
        let shown = if folds { rows } else { effects.iter().collect() };
        for effect in shown {
            let [low, high] = effect.gain_ci95_pct;
            let figures = [
                format!("{:.2} %", effect.gain_pct),
                format!("{low:.2} to {high:.2} %"),
                precise(effect.median_us * 1e3),
            ];
            row(&effect.text, figures, &effect.waits_after, effect.changed_runs.to_string());
        }
        if folds {
            let names: Vec<String> = idle.iter().map(|effect| safe(&effect.text)).collect();
            let sentence = format!("{} changed no run: {}.", names.len(), names.join("; "));
            text += &format!("{}\n", wrap(&sentence, options.style().width, "  "));
        }
        for (note, names) in notes(effects) {
            let sentence = format!("{}: {}.", names.join("; "), safe(note));
            text += &format!("{}\n", wrap(&sentence, options.style().width, "  "));
        }
    }
    text + &instead(&sweep.hypotheses, options)
}

/// Notes on changes, each with the changes that it is about.
fn notes(effects: &[Tried]) -> BTreeMap<&str, Vec<String>> {
    let mut notes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Tried { text, note, .. } in effects {
        if let Some(note) = note {
            notes.entry(note).or_default().push(safe(text));
        }
    }
    notes
}

/// Changes that were not tried, each once.
fn not_tried(refused: &[Refused], options: Options) -> String {
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for Refused { text, reason, .. } in refused {
        if !reasons.iter().any(|(known, _)| known == text) {
            reasons.push((text, reason));
        }
    }
    let sentence = |(text, reason): &(&str, &str)| format!("{} ({})", safe(text), safe(reason));
    let all: Vec<String> = reasons.iter().map(sentence).collect();
    let sentence = format!("{} not tried: {}.", all.len(), all.join("; "));
    format!("{}\n", wrap(&sentence, options.style().width, "  "))
}

/// Hypotheses without any effect that have rows of their own; more are listed below the table.
const MOST_IDLE: usize = 3;

/// What is critical before and after each change, in words.
fn instead(effects: &[Tried], options: Options) -> String {
    let mut text = String::new();
    let width = options.style().width;
    for effects in effects.chunk_by(|a, b| a.ranks == b.ranks) {
        let Some(Tried { path_before, waits_ranks: Some(looked_at), ranks, .. }) = effects.first()
        else {
            continue;
        };
        let fewer = match looked_at == ranks {
            true => String::new(),
            false => format!(
                " Waiting and critical paths are those of {} (the same program: {} have too many operations to \
                 analyse).",
                plural(*looked_at, "rank"),
                count(*ranks)
            ),
        };
        let before = format!("Critical before: {}.{fewer}", path_in_words(path_before));
        text += &format!("\n{}\n", wrap(&before, width, "  "));
        let changing = effects.iter().filter(|effect| effect.changed_runs > 0);
        let changing: Vec<&Tried> = changing.collect();
        let shown = if options.all { changing.len() } else { changing.len().min(INSTEAD) };
        for effect in changing.iter().take(shown) {
            let Some(critical) = &effect.critical else { continue };
            let line = format!("{}: critical instead: {}.", safe(&effect.text), safe(critical));
            text += &format!("{}\n", wrap(&line, width, "  "));
        }
    }
    text
}

/// How the time depends on sources of noise.
fn to_noise(ranks: u64, sources: &[NoiseSensitivity], options: Options) -> String {
    let of = plural(ranks, "rank");
    let name = |source: &NoiseSensitivity| format!("{}, {of}", safe(&source.name));
    let widest = sources.iter().map(|source| name(source).len()).max().unwrap_or(0).max(16);
    let grid = Grid::new(vec![
        Column::text("source of noise", widest).reserve(widest.min(40)),
        Column::number("per rank").reserve(10),
        Column::number("on the path").reserve(11),
        Column::number("dT/dnoise").reserve(9),
    ]);
    let layout = grid.layout(options.style());
    let mut text = layout.header() + "\n";
    for source in sources {
        let cells = [
            name(source),
            time(source.per_rank_us * 1e3),
            time(source.on_path_us * 1e3),
            format!("{:.2}", source.slope),
        ];
        text += &(layout.line(Tone::Plain, &cells) + "\n");
    }
    text
}

/// How the time depends on the network.
fn sensitivities(ranks: u64, parameters: &[Sensitivity], options: Options) -> String {
    let grid = Grid::new(vec![
        Column::text("without noise", 14).reserve(14),
        Column::number("value").reserve(10),
        Column::number("dT/d").reserve(8),
        Column::number("holds from").reserve(12),
        Column::number("to").reserve(12),
    ]);
    let layout = grid.layout(options.style());
    let mut text = layout.header() + "\n";
    let mut jumps = String::new();
    for Sensitivity { parameter, value, slope, from, to, from_jump_us, to_jump_us } in parameters {
        let (unit, bytes) = if *parameter == "G" { ("ns/B", " B") } else { ("us", "") };
        let at = |value: &Option<f64>| {
            value.map_or("-".to_owned(), |value| format!("{value:.3} {unit}"))
        };
        let cells = [
            format!("{parameter}, {}", plural(ranks, "rank")),
            format!("{value:.3} {unit}"),
            format!("{slope:.0}{bytes}"),
            at(from),
            at(to),
        ];
        text += &(layout.line(Tone::Plain, &cells) + "\n");
        for (end, jump) in [(from, from_jump_us), (to, to_jump_us)] {
            let Some(us) = jump else { continue };
            let (by, sign) = (time(us.abs() * 1e3), if *us < 0.0 { '-' } else { '+' });
            let line = format!(
                "{parameter}: beyond {} messages change their order, and the time jumps by {sign}{by}.",
                at(end)
            );
            jumps += &format!("{}\n", wrap(&line, options.style().width, ""));
        }
    }
    text + &jumps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_command_has_a_name() {
        assert_eq!(named("./app -n 4"), "./app -n 4");
        assert_eq!(named(""), "The traced program");
    }
}
