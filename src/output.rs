//! Printing results: text that fits the terminal, page by page if it is long, or JSON.

use std::{
    ffi::{OsStr, OsString},
    io::{BufWriter, ErrorKind, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use clap::{
    ValueEnum,
    builder::{PathBufValueParser, TypedValueParser},
};
use serde::Serialize;
use study::files;
use tokio::signal::unix::SignalKind;
use trace::NewFile;

use crate::signals;

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// How to talk to the user; the same for all commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    pub colour: When,
    pub quiet: bool,
    pub no_pager: bool,
}

static MANNERS: OnceLock<Manners> = OnceLock::new();

/// Called once, before any command.
pub fn set(manners: Manners) {
    let _ = MANNERS.set(manners);
}

fn manners() -> Manners {
    MANNERS.get().copied().unwrap_or_default()
}

/// Whether standard output is a terminal. Open MPI gives its ranks one, whatever the output of mpirun goes to.
fn on_terminal() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("OMPI_COMM_WORLD_RANK").is_none()
}

/// Whether to use colour on standard output.
pub fn colour() -> bool {
    match manners().colour {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            on_terminal() && !refused
        }
    }
}

/// The layout of text; `all` shows every row, with full names.
pub fn layout(all: bool) -> report::Options {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().filter(|_| on_terminal());
    let terminal = || terminal().map(|(width, _)| usize::from(width.0));
    let width = columns.filter(|columns| *columns > 0).or_else(terminal).unwrap_or(100);
    report::Options { width, colour: colour(), all, ..report::Options::default() }
}

/// Prints a result as JSON or as text.
pub fn print<T: Serialize>(
    result: &T,
    json: bool,
    text: impl FnOnce(&T, report::Options) -> String,
) -> Result<()> {
    match json {
        true => put(&(report::json_text(result)? + "\n")),
        false => page(&text(result, layout(false))),
    }
}

/// Whether a pager has the terminal.
static PAGING: AtomicBool = AtomicBool::new(false);

pub fn is_paging() -> bool {
    PAGING.load(Ordering::Relaxed)
}

/// Writes text to standard output. That its reader has left (`detour report | head`) is not a failure:
/// files are still to be written, and the exit code is still that of the result.
pub fn put(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints text through a pager if it is longer than the terminal, as git does.
pub fn page(text: &str) -> Result<()> {
    if let Some(pager) = pager(text) {
        // Ctrl-C is the pager's: less stops searching, and would lose the terminal if this ended before it.
        PAGING.store(true, Ordering::Relaxed);
        signals::handle(&[SignalKind::interrupt()], |_| ())?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&pager).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            // Ends by itself if the text fits, passes colours on, and leaves the text on the screen.
            command.env("LESS", "FRX");
        }
        if let Ok(mut child) = command.spawn() {
            if let Some(mut input) = child.stdin.take() {
                // Nobody has to read to the end.
                let _ = input.write_all(text.as_bytes());
            }
            // A pager that is not there is no reason to show nothing.
            if child.wait().is_ok_and(|status| status.code() != Some(127)) {
                return Ok(());
            }
        }
    }
    put(text)
}

/// The pager's command line, if the text needs one.
fn pager(text: &str) -> Option<String> {
    if manners().no_pager || !on_terminal() || !std::io::stdin().is_terminal() {
        return None;
    }
    let (_, height) = terminal_size::terminal_size()?;
    if text.lines().count() < usize::from(height.0) {
        return None;
    }
    let named = ["DETOUR_PAGER", "PAGER"].into_iter().find_map(|name| std::env::var(name).ok());
    Some(named.unwrap_or_else(|| "less".to_owned()))
        .filter(|pager| !matches!(pager.trim(), "" | "cat"))
}

/// Checks the files that are to be written, before anything is computed. None may be named twice in the
/// command line: as two outputs, or as an input too.
pub fn check<const N: usize>(outputs: [&Option<PathBuf>; N]) -> Result<()> {
    files::check(outputs)?;
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    for output in outputs.into_iter().flatten() {
        let named = |word: &&OsString| names(word).any(|name| files::same_file(&name, output));
        if words.iter().filter(named).count() > 1 {
            bail!("{} is also an input: specify another file to write", output.display());
        }
    }
    Ok(())
}

/// The files that a word of the command line may name: `FILE`, `A,B`, `FILE#2`, `--option=FILE`, `-oFILE`.
fn names(word: &OsStr) -> impl Iterator<Item = PathBuf> {
    let whole = word.as_bytes();
    let value = match whole {
        [b'-', b'-', ..] => whole.iter().position(|&byte| byte == b'=').map(|at| &whole[at + 1..]),
        [b'-', _, rest @ ..] => Some(rest),
        _ => Some(whole),
    };
    let listed = value.into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    let listed = listed.flat_map(|name| {
        let run = name.iter().rposition(|&byte| byte == b'#').map(|at| &name[..at]);
        std::iter::once(name).chain(run)
    });
    let path = |name: &[u8]| PathBuf::from(OsStr::from_bytes(name));
    let names: Vec<PathBuf> = listed.chain(value).map(path).collect();
    names.into_iter().filter(|name| !name.as_os_str().is_empty())
}

/// Writes a file, and says so.
pub fn save(path: &Path, write: impl FnOnce(&mut BufWriter<NewFile>) -> Result<()>) -> Result<()> {
    files::save(path, write)?;
    say_written(path);
    Ok(())
}

/// Says that a file was written.
pub fn say_written(path: &Path) {
    if !manners().quiet && !trace::is_stream(path) {
        tell!("wrote {}", path.display());
    }
}

/// The name of an output file: `-` is standard output.
pub fn file() -> impl TypedValueParser<Value = PathBuf> {
    let file = |path: PathBuf| if path == Path::new("-") { "/dev/stdout".into() } else { path };
    PathBufValueParser::new().map(file)
}

/// Prints remarks about a result to stderr: its text or JSON may be piped elsewhere.
pub fn remark(remarks: &[String]) {
    for remark in remarks {
        tell!("detour: {}", report::message_safe(remark));
    }
}
