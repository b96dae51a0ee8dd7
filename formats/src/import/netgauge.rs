//! netgauge and LogGOPSim noise files: comments, then rows of start and length, in nanoseconds unless a
//! comment above them names another unit (`# Time [us] selfish duration [us]`).
//!
//! A netgauge file may contain several consecutive runs, each with a header before the rows and two
//! lines about the whole run after them.

use super::check::{number, push_line, quote};
use super::{ImportError, ImportedRun, Text, unit};

/// Keys that follow a run's rows instead of preceding the next run's.
const AFTER_THE_ROWS: [&str; 2] = ["CPU overhead due to noise", PERIOD];
const CYCLE: &str = "Minimal cycle length";
const PERIOD: &str = "Measurement period";

const UNITS: &str = "times in nanoseconds, or in a known unit";

/// Nanoseconds in the units of starts and of lengths.
type Units = (f64, f64);

pub(super) fn read_netgauge(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut runs: Vec<ImportedRun> = Vec::new();
    let mut run = ImportedRun::default();
    // After this, a header line belongs to the next run.
    let mut closed = false;
    let mut units = (1.0, 1.0);
    for (number, line) in text.lines() {
        let Some(comment) = line.strip_prefix('#') else {
            closed = true;
            push_line(text, number, &mut run, row(&line, units))?;
            continue;
        };
        let (key, value) = key_and_value(comment);
        let in_unit = |why: String| text.line_error(number, why, UNITS);
        if AFTER_THE_ROWS.contains(&key) {
            closed = true;
        } else if closed && !key.is_empty() {
            runs.push(std::mem::take(&mut run));
            (closed, units) = (false, (1.0, 1.0));
        }
        units = column_units(comment).map_err(in_unit)?.unwrap_or(units);
        run.t_min_ns = cycle_ns(key, value).map_err(in_unit)?.or(run.t_min_ns);
        run.span_ns = period_ns(key, value).map_err(in_unit)?.unwrap_or(run.span_ns);
        if !key.is_empty() && !value.is_empty() {
            run.header.insert(key.to_owned(), value.to_owned());
        }
    }
    runs.push(run);
    for run in &mut runs {
        let key = "Threshold: [% minimal cycle length]";
        let pct = run.header.get(key).and_then(|value| first_number(value));
        run.threshold_ns = run.t_min_ns.zip(pct).map(|(t_min, pct)| t_min * pct / 100.0);
        read_window(run);
    }
    // A header without rows is an aborted run; with a period it is a run without noise.
    runs.retain(|run| !run.detours.is_empty() || run.span_ns > 0.0);
    Ok(runs)
}

pub(super) fn read_loggopsim(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut run = ImportedRun::default();
    let mut units = (1.0, 1.0);
    for (number, line) in text.lines() {
        match line.strip_prefix('#') {
            None => push_line(text, number, &mut run, row(&line, units))?,
            Some(comment) => {
                let found = column_units(comment);
                let found = found.map_err(|why| text.line_error(number, why, UNITS))?;
                units = found.unwrap_or(units);
                let (key, value) = key_and_value(comment);
                if !key.is_empty() && !value.is_empty() {
                    run.header.insert(key.to_owned(), value.to_owned());
                }
            }
        }
    }
    read_window(&mut run);
    Ok(vec![run])
}

fn row(line: &str, units: Units) -> Result<(f64, f64), String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(start), Some(length), None) => {
            Ok((number(start)? * units.0, number(length)? * units.1))
        }
        _ => Err(format!("`{}` is not two numbers", quote(line))),
    }
}

/// `Threshold: [% minimal cycle length]: 900` has its unit between two colons: it is part of the key.
fn key_and_value(comment: &str) -> (&str, &str) {
    let comment = comment.trim();
    let unit_end = comment.find("]:").map(|at| at + 1);
    match unit_end.or_else(|| comment.find(':')) {
        Some(at) => {
            let (key, value) = comment.split_at(at);
            (key.trim(), value.trim_start_matches(':').trim())
        }
        None => (comment, ""),
    }
}

/// From the line above the rows, if this is one: `Time [ns] selfish duration [ns]`.
fn column_units(comment: &str) -> Result<Option<Units>, String> {
    let folded = unit::folded(comment).replace('(', "[").replace(')', "]");
    let mut parts = folded.split('[');
    if !parts.next().is_some_and(|name| ["time", "start"].contains(&name.trim())) {
        return Ok(None);
    }
    let mut units = parts.filter_map(|part| Some(part.split_once(']')?.0));
    let scale = |name| unit::nanoseconds(name).ok_or_else(|| unit::unknown(name, comment));
    let Some(start) = units.next().map(scale).transpose()? else { return Ok(None) };
    match units.next().map(scale).transpose()? {
        Some(length) => Ok(Some((start, length))),
        None if start == 1.0 => Ok(None),
        None => Err(format!("no unit for the length in `{}`", quote(comment.trim()))),
    }
}

/// `Minimal cycle length [ns]: 6.5`.
fn cycle_ns(key: &str, value: &str) -> Result<Option<f64>, String> {
    let folded = key.strip_prefix(CYCLE).map(unit::folded).unwrap_or_default();
    let Some(name) = folded.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(None);
    };
    let scale = unit::nanoseconds(name).ok_or_else(|| unit::unknown(name, key))?;
    Ok(first_number(value).map(|number| number * scale))
}

/// `Measurement period: 2.00 s`.
fn period_ns(key: &str, value: &str) -> Result<Option<f64>, String> {
    if key != PERIOD {
        return Ok(None);
    }
    let scale = match value.split_whitespace().nth(1) {
        None => 1e9,
        Some(name) => {
            let folded = unit::folded(name);
            unit::nanoseconds(&folded).ok_or_else(|| unit::unknown(name, value))?
        }
    };
    Ok(first_number(value).map(|number| number * scale))
}

fn first_number(value: &str) -> Option<f64> {
    let number = value.split_whitespace().next()?.parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Only in our own exports; other tools' clocks start with the measurement.
fn read_window(run: &mut ImportedRun) {
    let words = run.header.get("Watched [ns]").map(|value| value.split_whitespace());
    let mut numbers = words.into_iter().flatten().map_while(|word| word.parse::<u64>().ok());
    if let (Some(from), Some(to)) = (numbers.next(), numbers.next())
        && from <= to
    {
        (run.from_ns, run.span_ns) = (from as f64, (to - from) as f64);
        run.from_known = true;
    }
}

#[cfg(test)]
mod tests {
    use super::key_and_value;

    #[test]
    fn units_in_brackets_belong_to_the_key() {
        let threshold = " Threshold: [% minimal cycle length]: 900 ";
        assert_eq!(key_and_value(threshold), ("Threshold: [% minimal cycle length]", "900"));
        assert_eq!(key_and_value(" Nodename: a:b"), ("Nodename", "a:b"));
        assert_eq!(key_and_value(" Selfish Benchmark"), ("Selfish Benchmark", ""));
        assert_eq!(
            key_and_value(" Minimal cycle length [ns]: 6.5 "),
            ("Minimal cycle length [ns]", "6.5")
        );
    }
}
