//! CSV with a header line: a column for the start and one for the length, in any order, with units in
//! their names (`start_us`, `length [ns]`; the default is nanoseconds). Each value of a column `lane` or
//! `run` becomes a run; other columns are ignored.

use std::collections::BTreeMap;

use super::check::{number, push_line, quote};
use super::{ImportError, ImportedRun, Text};

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
                (run.from_ns, run.span_ns) = (from, to - from);
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
    for (at, cell) in split(header, separator).iter().enumerate() {
        match cell.as_str() {
            "watched_from_ns" => from = Some(at),
            "watched_to_ns" => to = Some(at),
            _ => {}
        }
        let (name, scale) = name_and_unit(cell)?;
        match name.as_str() {
            "start" | "time" | "timestamp" | "begin" => start = start.or(Some((at, scale))),
            "length" | "len" | "duration" | "detour" => length = length.or(Some((at, scale))),
            "lane" | "run" => lane = Some(at),
            _ => {}
        }
    }
    let missing = |what| format!("no column for the {what} in `{}`", quote(header));
    Ok(Columns {
        separator,
        start: start.ok_or_else(|| missing("start"))?,
        length: length.ok_or_else(|| missing("length"))?,
        lane,
        window: from.zip(to),
    })
}

/// `start_us`, `start [us]`, `Start (us)` and `start` are all `start`.
fn name_and_unit(cell: &str) -> Result<(String, f64), String> {
    let lower = cell.trim().to_ascii_lowercase();
    let mut words =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default().to_owned();
    let scale = match words.next_back() {
        None | Some("ns") => 1.0,
        Some("us" | "usec") => 1e3,
        Some("ms" | "msec") => 1e6,
        Some("s" | "sec") => 1e9,
        // `start_cpu` is another column, not a start in an unknown unit.
        Some(_) => return Ok((lower, 1.0)),
    };
    Ok((name, scale))
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
