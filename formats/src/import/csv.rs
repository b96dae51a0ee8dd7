//! CSV with a header line: a column for the start and one for the length, in any order, with units in
//! their names (`start_us`, `length [ns]`; the default is nanoseconds). Each value of a column `lane` or
//! `run` becomes a run; other columns are ignored.

use std::collections::BTreeMap;

use super::check::{number, push_line, quote};
use super::{ImportError, ImportedRun, Text, unit};

const HEADER: &str = "a header such as start_ns,length_ns";

struct Columns {
    separator: char,
    start: (usize, f64),
    length: (usize, f64),
    lane: Option<usize>,
    /// The window in which the row's lane was watched, as in our own exports.
    window: Option<(usize, usize)>,
}

pub(super) fn read(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut lines = text.lines().filter(|(_, line)| !line.starts_with('#'));
    let Some((number, header)) = lines.next() else {
        return Err(text.line_error(1, "no header", HEADER));
    };
    let columns = columns(&header).map_err(|why| text.line_error(number, why, HEADER))?;
    let mut runs: Vec<ImportedRun> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in lines {
        let cells = split(&line, columns.separator);
        let lane = columns.lane.and_then(|at| cells.get(at)).map_or("", String::as_str);
        let current = match numbers.get(lane) {
            Some(&known) => known,
            None => {
                let mut run = ImportedRun::default();
                if !lane.is_empty() {
                    run.header.insert("lane".to_owned(), lane.to_owned());
                }
                runs.push(run);
                numbers.insert(lane.to_owned(), runs.len() - 1);
                runs.len() - 1
            }
        };
        if let Some(run) = runs.get_mut(current) {
            if let Some((from, to)) = window(&cells, &columns) {
                (run.from_ns, run.span_ns, run.from_known) = (from, to - from, true);
                let is_empty = |at: usize| cells.get(at).is_some_and(String::is_empty);
                if is_empty(columns.start.0) && is_empty(columns.length.0) {
                    continue;
                }
            }
            push_line(text, number, run, row(&cells, &columns))?;
        }
    }
    Ok(runs)
}

fn window(cells: &[String], columns: &Columns) -> Option<(f64, f64)> {
    let (from, to) = columns.window?;
    let value = |at: usize| cells.get(at).and_then(|cell| number(cell).ok());
    value(from).zip(value(to)).filter(|(from, to)| from <= to)
}

fn row(cells: &[String], columns: &Columns) -> Result<(f64, f64), String> {
    let value = |(at, scale): (usize, f64)| {
        let cell = cells.get(at).ok_or_else(|| format!("only {} columns", cells.len()))?;
        Ok::<f64, String>(number(cell)? * scale)
    };
    Ok((value(columns.start)?, value(columns.length)?))
}

fn columns(header: &str) -> Result<Columns, String> {
    let separator =
        [',', ';', '\t'].into_iter().find(|&c| header.contains(c)).ok_or("only one column")?;
    let (mut start, mut length, mut lane) = (None, None, None);
    let (mut from, mut to) = (None, None);
    let (mut other_start, mut other_length) = (None, None);
    for (at, cell) in split(header, separator).iter().enumerate() {
        match cell.as_str() {
            "watched_from_ns" => from = Some(at),
            "watched_to_ns" => to = Some(at),
            _ => {}
        }
        let (name, scale) = name_and_unit(cell);
        let (known, other) = match name.as_str() {
            "start" | "time" | "timestamp" | "begin" => (&mut start, &mut other_start),
            "length" | "len" | "duration" | "detour" => (&mut length, &mut other_length),
            "lane" | "run" => {
                if scale.is_ok() {
                    lane = Some(at);
                }
                continue;
            }
            _ => continue,
        };
        match scale {
            Ok(scale) => *known = known.or(Some((at, scale))),
            // Beside a column in a known unit, `start_cpu` is just another column.
            Err(unit) => *other = other.take().or_else(|| Some(unit::unknown(&unit, cell))),
        }
    }
    let missing = |what, other: Option<String>| {
        other.unwrap_or_else(|| format!("no column for the {what} in `{}`", quote(header)))
    };
    Ok(Columns {
        separator,
        start: start.ok_or_else(|| missing("start", other_start))?,
        length: length.ok_or_else(|| missing("length", other_length))?,
        lane,
        window: from.zip(to),
    })
}

/// A column's name, and the nanoseconds in its unit, or the unit if it is unknown: `start_us`,
/// `start [us]`, `Start (µs)` and `start` are all `start`.
fn name_and_unit(cell: &str) -> (String, Result<f64, String>) {
    let folded = unit::folded(cell);
    // Other characters are part of a unit: without an unreadable `µ`, microseconds would be seconds.
    let separates = |c: char| c.is_whitespace() || c.is_ascii_punctuation();
    let mut words = folded.split(separates).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default().to_owned();
    let scale = match words.next_back() {
        None => Ok(1.0),
        Some(word) => unit::nanoseconds(word).ok_or_else(|| word.to_owned()),
    };
    (name, scale)
}

/// Cells of a line; double quotes protect separators.
fn split(line: &str, separator: char) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        if c == '"' {
            quoted = !quoted;
        } else if c == separator && !quoted {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}
