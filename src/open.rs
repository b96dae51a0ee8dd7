//! Opens whatever holds detours: a trace, or any file that `import` reads. `FILE#2` picks the second
//! run of a file that holds several.

use std::{
    fs::File,
    io::{Cursor, Read, Seek},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use trace::{Reader, TraceError, Writer, import};

pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

pub type AnyReader = Reader<Box<dyn Input>>;

/// What a file turned out to be.
pub enum Opened {
    Trace(Box<AnyReader>),
    /// Runs of another tool's file.
    Runs(Vec<import::ImportedRun>),
}

pub fn open(path: &Path) -> Result<AnyReader> {
    match open_as_it_is(path)? {
        Opened::Trace(reader) => Ok(*reader),
        Opened::Runs(runs) => in_memory(&runs, split_run(path).0.display().to_string()),
    }
}

pub fn open_as_it_is(path: &Path) -> Result<Opened> {
    let (file, run) = split_run(path);
    let input = File::open(&file).with_context(|| format!("cannot open {}", file.display()))?;
    let name = file.display().to_string();
    match Reader::named(Box::new(input) as Box<dyn Input>, name.clone()) {
        Ok(_) if run.is_some() => {
            bail!("{name} is a recording, which has no runs to pick from: leave out #N")
        }
        Ok(reader) => Ok(Opened::Trace(Box::new(reader))),
        Err(not_a_trace @ TraceError::NotATrace { .. }) => {
            let imported = import::import_file(&file, &import::ImportOptions::default());
            // What it is not says more than how reading it as something else failed.
            let imported = imported
                .map_err(|error| anyhow::Error::new(error).context(not_a_trace.to_string()))?;
            Ok(Opened::Runs(match run {
                None => imported.runs,
                Some(number) => vec![pick(&imported.runs, number, &name)?],
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Why a trace does not hold all that was recorded; known once every block was read.
pub fn not_whole<R>(reader: &Reader<R>) -> Option<String> {
    let damaged = reader.damaged_blocks();
    let count = damaged.len();
    match damaged.first() {
        Some(first) => Some(format!(
            "{count} damaged block{} left out, so there was more noise than this; the first: {}",
            if count == 1 { " was" } else { "s were" },
            first.why
        )),
        None => reader.truncated().map(str::to_owned),
    }
}

/// Says so, where the output has no place for it.
pub fn warn_if_not_whole(reader: &AnyReader) {
    if let Some(why) = not_whole(reader) {
        tell!("detour: {} is not whole: {}", reader.name(), report::message_safe(&why));
    }
}

/// Runs of another tool's file as a trace that lives in memory.
pub fn in_memory(runs: &[import::ImportedRun], name: String) -> Result<AnyReader> {
    let mut bytes = Cursor::new(Vec::new());
    write(runs, &mut bytes)?;
    bytes.set_position(0);
    Ok(Reader::named(Box::new(bytes) as Box<dyn Input>, name)?)
}

pub fn write(runs: &[import::ImportedRun], out: impl std::io::Write) -> Result<()> {
    let trace = import::runs_to_trace(runs)?;
    let writer = Writer::new(out, &trace.manifest)?;
    finish(writer, trace)
}

pub fn finish<W: std::io::Write>(
    mut writer: Writer<W>,
    trace: import::ImportedTrace,
) -> Result<()> {
    for (id, source) in trace.sources.iter().enumerate() {
        writer.add_source(trace::SourceId(id as u32), source)?;
    }
    for block in &trace.blocks {
        writer.write_block(block)?;
    }
    writer.finish(trace.trailer)?;
    Ok(())
}

pub fn pick(
    runs: &[import::ImportedRun],
    number: usize,
    name: &str,
) -> Result<import::ImportedRun> {
    number
        .checked_sub(1)
        .and_then(|index| runs.get(index))
        .cloned()
        .with_context(|| format!("{name} holds {} runs; there is no #{number}", runs.len()))
}

/// The file and the run asked for. A file that really is called so goes first.
pub fn split_run(path: &Path) -> (PathBuf, Option<usize>) {
    let text = path.to_string_lossy();
    match text.rsplit_once('#') {
        Some((file, number)) if !path.exists() => match number.parse() {
            Ok(number) => (PathBuf::from(file), Some(number)),
            Err(_) => (path.to_path_buf(), None),
        },
        _ => (path.to_path_buf(), None),
    }
}
