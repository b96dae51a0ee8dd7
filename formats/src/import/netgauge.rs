//! netgauge and LogGOPSim noise files: comments, then rows of start and length in nanoseconds.
//!
//! A netgauge file may contain several consecutive runs, each with a header before the rows and two
//! lines about the whole run after them.

use super::check::{number, push_line, quote};
use super::{ImportError, ImportedRun, Text};

/// Keys that follow a run's rows instead of preceding the next run's.
const AFTER_THE_ROWS: [&str; 2] = ["CPU overhead due to noise", "Measurement period"];

pub(super) fn read_netgauge(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut runs: Vec<ImportedRun> = Vec::new();
    let mut run = ImportedRun::default();
    // After this, a header line belongs to the next run.
    let mut closed = false;
    for (number, line) in text.lines() {
        let Some(comment) = line.strip_prefix('#') else {
            closed = true;
            push_line(text, number, &mut run, row(&line))?;
            continue;
        };
        let (key, value) = key_and_value(comment);
        if AFTER_THE_ROWS.contains(&key) {
            closed = true;
        } else if closed && !key.is_empty() {
            runs.push(std::mem::take(&mut run));
            closed = false;
        }
        if !key.is_empty() && !value.is_empty() {
            run.header.insert(key.to_owned(), value.to_owned());
        }
    }
    runs.push(run);
    for run in &mut runs {
        read_header(run);
    }
    // A header without rows is an aborted run; with a period it is a run without noise.
    runs.retain(|run| !run.detours.is_empty() || run.span_ns > 0.0);
    Ok(runs)
}

pub(super) fn read_loggopsim(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut run = ImportedRun::default();
    for (number, line) in text.lines() {
        match line.strip_prefix('#') {
            None => push_line(text, number, &mut run, row(&line))?,
            Some(comment) => {
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

fn row(line: &str) -> Result<(f64, f64), String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(start), Some(length), None) => Ok((number(start)?, number(length)?)),
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

fn read_header(run: &mut ImportedRun) {
    let number = |key: &str| {
        let value = run.header.get(key)?.split_whitespace().next()?;
        value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
    };
    let t_min = number("Minimal cycle length [ns]");
    let threshold_pct = number("Threshold: [% minimal cycle length]");
    let period_s = number("Measurement period");
    run.t_min_ns = t_min;
    run.threshold_ns = t_min.zip(threshold_pct).map(|(t_min, pct)| t_min * pct / 100.0);
    run.span_ns = period_s.map_or(0.0, |seconds| seconds * 1e9);
    read_window(run);
}

/// Only in our own exports; other tools' clocks start with the measurement.
fn read_window(run: &mut ImportedRun) {
    let words = run.header.get("Watched [ns]").map(|value| value.split_whitespace());
    let mut numbers = words.into_iter().flatten().map_while(|word| word.parse::<u64>().ok());
    if let (Some(from), Some(to)) = (numbers.next(), numbers.next())
        && from <= to
    {
        (run.from_ns, run.span_ns) = (from as f64, (to - from) as f64);
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
