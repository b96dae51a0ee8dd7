//! Printing results: text that fits the terminal, or JSON.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// The layout of text; `all` shows every row, with full names.
pub fn layout(all: bool) -> report::Options {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size().filter(|_| terminal);
    let width = width.map_or(100, |(width, _)| usize::from(width.0));
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    report::Options { width, colour, all, ..report::Options::default() }
}

/// Prints a result as JSON or as text.
pub fn print<T: Serialize>(
    result: &T,
    json: bool,
    text: impl FnOnce(&T, report::Options) -> String,
) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match json {
        true => writeln!(out, "{}", report::json_text(result)?)?,
        false => write!(out, "{}", text(result, layout(false)))?,
    }
    Ok(())
}

/// Prints remarks about a result to stderr: its text or JSON may be piped elsewhere.
pub fn remark(remarks: &[String]) {
    for remark in remarks {
        tell!("detour: {}", report::message_safe(remark));
    }
}
