//! Detours as JSON; the accepted shapes are listed in [`super`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::check::{push, quote};
use super::{ImportError, ImportedRun, Text};

const SHAPES: &str = "an array of [start, length] or of {\"start_ns\", \"len_ns\"}, \
                      or an object with `detours` or `runs`";

/// In memory, every number takes several times the size of its text.
const MAX_JSON: usize = 64 << 20;

pub(super) fn read(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    if text.bytes.len() > MAX_JSON {
        let limit = MAX_JSON as u64;
        return Err(ImportError::TooLarge { file: text.file.to_owned(), limit });
    }
    let value: Value = serde_json::from_slice(text.bytes).map_err(|error| {
        text.line_error(error.line() as u64, format!("not valid JSON ({error})"), SHAPES)
    })?;
    match value {
        Value::Array(rows) => Ok(vec![detours(text, &rows)?]),
        Value::Object(object) => match object.get("runs") {
            Some(Value::Array(runs)) => runs
                .iter()
                .map(|run| run.as_object().ok_or_else(|| unexpected(text)))
                .map(|run| one(text, run?))
                .collect(),
            Some(_) => Err(unexpected(text)),
            None => Ok(vec![one(text, &object)?]),
        },
        _ => Err(unexpected(text)),
    }
}

fn unexpected(text: &Text<'_>) -> ImportError {
    text.content_error(format!("unexpected JSON structure; expected {SHAPES}"))
}

fn one(text: &Text<'_>, object: &Map<String, Value>) -> Result<ImportedRun, ImportError> {
    let Some(Value::Array(rows)) = object.get("detours") else { return Err(unexpected(text)) };
    let mut run = detours(text, rows)?;
    let number = |key| match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|number| *number >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => {
                let value = quote(&value.to_string());
                Err(text.content_error(format!("{key} is not a non-negative number ({value})")))
            }
        },
    };
    run.t_min_ns = number("t_min_ns")?;
    run.threshold_ns = number("threshold_ns")?;
    let from_ns = number("from_ns")?;
    (run.from_ns, run.from_known) = (from_ns.unwrap_or(0.0), from_ns.is_some());
    run.span_ns = number("span_ns")?.unwrap_or(0.0);
    if let Some(Value::Object(header)) = object.get("header") {
        run.header = header
            .iter()
            .map(|(key, value)| match value {
                Value::String(word) => (key.clone(), word.clone()),
                other => (key.clone(), other.to_string()),
            })
            .collect::<BTreeMap<_, _>>();
    }
    Ok(run)
}

fn detours(text: &Text<'_>, rows: &[Value]) -> Result<ImportedRun, ImportError> {
    let mut run = ImportedRun::default();
    for (n, row) in rows.iter().enumerate() {
        let pushed = pair(row)
            .ok_or_else(|| "not a start and a length".to_owned())
            .and_then(|(start, length)| push(&mut run, start, length));
        match pushed {
            Ok(()) => {}
            Err(_) if text.lenient => run.skipped_lines += 1,
            Err(why) => {
                let why = format!("detour {n} (counted from 0): {why}; expected {SHAPES}");
                return Err(text.content_error(why));
            }
        }
    }
    Ok(run)
}

fn pair(row: &Value) -> Option<(f64, f64)> {
    match row {
        Value::Array(two) => match two.as_slice() {
            [start, length] => Some((start.as_f64()?, length.as_f64()?)),
            _ => None,
        },
        Value::Object(object) => {
            let length = object.get("len_ns").or_else(|| object.get("length_ns"))?;
            Some((object.get("start_ns")?.as_f64()?, length.as_f64()?))
        }
        _ => None,
    }
}
