//! Opens any file with detours: a trace, or a file that `import` reads. `FILE#2` selects the second run
//! of a file with several runs.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Cursor, Read, Seek},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use formats::import;
use trace::{Reader, TraceError, Writer};

pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

pub type AnyReader = Reader<Box<dyn Input>>;

/// What a file turned out to be.
pub enum Opened {
    Trace(Box<AnyReader>),
    /// Runs imported from another tool's file.
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
    let cannot = || format!("cannot open {}", file.display());
    let input = File::open(&file).with_context(cannot)?;
    let name = file.display().to_string();
    let kind = input.metadata().with_context(cannot)?.file_type();
    if kind.is_dir() {
        bail!(
            "{name} is a directory, not a recording: for the trace of an MPI program, use `detour \
             mpi report`, `detour blame` or `detour simulate app`"
        );
    }
    // A pipe cannot be read twice.
    if !kind.is_file() {
        return from_pipe(input, name, run);
    }
    match Reader::named(Box::new(input) as Box<dyn Input>, name.clone()) {
        Ok(_) if run.is_some() => {
            bail!("{name} is a recording, which has no runs to select: omit #N")
        }
        Ok(reader) => Ok(Opened::Trace(Box::new(reader))),
        Err(not_a_trace @ TraceError::NotATrace { .. }) => {
            let imported = import::import_file(&file, &import::ImportOptions::default());
            // That it is not a trace is more helpful than why the import failed.
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

/// Limit for input from a pipe: it is buffered in memory, since a trace is read from its end.
const MOST_FROM_A_PIPE: u64 = 1 << 30;

/// The same for input that can be read only once: a pipe or stdin.
fn from_pipe(input: File, name: String, run: Option<usize>) -> Result<Opened> {
    let mut bytes = Vec::new();
    let cannot = || format!("cannot read {name}");
    input.take(MOST_FROM_A_PIPE + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > MOST_FROM_A_PIPE {
        bail!("{name} is larger than {MOST_FROM_A_PIPE} bytes: save it to a file first");
    }
    if trace::is_trace(&bytes) {
        let input = Box::new(Cursor::new(bytes)) as Box<dyn Input>;
        return Ok(Opened::Trace(Box::new(Reader::named(input, name)?)));
    }
    let imported = import::import_bytes(&name, &bytes, &import::ImportOptions::default())?;
    Ok(Opened::Runs(match run {
        None => imported.runs,
        Some(number) => vec![pick(&imported.runs, number, &name)?],
    }))
}

/// Why a trace is incomplete; known once every block has been read.
pub fn not_whole<R>(reader: &Reader<R>) -> Option<String> {
    let damaged = reader.damaged_blocks();
    let count = damaged.len();
    match damaged.first() {
        Some(first) => Some(format!(
            "{count} damaged block{} skipped, so noise is underestimated; first: {}",
            if count == 1 { "" } else { "s" },
            first.why
        )),
        None => reader.truncated().map(str::to_owned),
    }
}

/// Why a recording without any watched time has no noise to simulate.
pub fn watched_nothing<R>(reader: &Reader<R>) -> String {
    match reader.truncated() {
        Some(why) => format!("{} has zero duration: {why}", reader.name()),
        None => format!("{} has zero duration: record for longer", reader.name()),
    }
}

/// How much a trace holds, known before any of it is read.
pub struct Size {
    pub detours: u64,
    /// Detours and kernel records.
    pub events: u64,
}

impl Size {
    /// Limits of what is simulated for a report: the simulator holds detours in memory, and a small file
    /// can claim a huge number.
    pub const MOST_DETOURS: u64 = 1 << 25;
    pub const MOST_EVENTS: u64 = 60_000_000;

    pub fn of(reader: &AnyReader) -> Size {
        let mut size = Size { detours: 0, events: 0 };
        for block in reader.block_infos() {
            let (detours, records) = (u64::from(block.detours), u64::from(block.records));
            size.detours = size.detours.saturating_add(detours);
            size.events = size.events.saturating_add(detours + records);
        }
        size
    }
}

/// Remark about an incomplete trace, for output without a field for it.
pub fn remark_if_not_whole(reader: &AnyReader) -> Option<String> {
    Some(format!("{} is incomplete: {}", reader.name(), not_whole(reader)?))
}

/// Imported runs as a trace in memory.
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
        .with_context(|| format!("run #{number} not found in {name} ({} runs)", runs.len()))
}

/// The file and the requested run. A file whose name really ends in `#N` takes precedence.
pub fn split_run(path: &Path) -> (PathBuf, Option<usize>) {
    let text = path.to_string_lossy();
    match text.rsplit_once('#') {
        Some((_, number)) if !path.exists() => match number.parse() {
            Ok(run) => (shortened(path, number.len() + 1), Some(run)),
            Err(_) => (path.to_path_buf(), None),
        },
        _ => (path.to_path_buf(), None),
    }
}

/// The paths of a list, `A,B`. They need not be UTF-8.
pub fn split_list(list: &OsStr) -> Vec<PathBuf> {
    list.as_encoded_bytes().split(|&byte| byte == b',').map(path_of).collect()
}

/// A path without its last `by` bytes, which are ASCII; the rest need not be UTF-8.
fn shortened(path: &Path, by: usize) -> PathBuf {
    let bytes = path.as_os_str().as_encoded_bytes();
    path_of(&bytes[..bytes.len().saturating_sub(by)])
}

/// A path from its bytes, split at ASCII characters.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}
