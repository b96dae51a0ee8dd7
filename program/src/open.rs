//! A directory of `rank-N.mpi` as one program: headers are read and held against each other.
//!
//! In: a directory; out: a [`Program`] with its ranks and hosts, or an error that says what to do. Files
//! are opened for each read and closed again, so that the number of ranks is not limited by that of open
//! files.

use crate::chunks::{ChunkReader, last_moment};
use mpi_abi::{Abi, Anchor, ClockOffset, FileError, FileHeader, HEADER, Lost, file_flag};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why a directory cannot be read as one program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} is a file: the trace of an MPI program is a directory, written by `detour mpi record`; recordings of \
         nodes are for `detour report`", .0.display()
    )]
    File(PathBuf),
    #[error(
        "no rank-N.mpi in {} (record a run with `mpirun … detour mpi record -o DIR -- ./app`, or import \
         one with `detour mpi import`)", .0.display()
    )]
    Empty(PathBuf),
    #[error(
        "cannot read {}: {source} (copy it again from where it was recorded, or move it away)",
        .path.display()
    )]
    Header { path: PathBuf, source: FileError },
    #[error(
        "{} holds files of {count} runs ({}): move the ranks of each run into a directory of its own",
        .dir.display(), .examples
    )]
    MixedRuns { dir: PathBuf, count: usize, examples: String },
    #[error(
        "{} says that the program has {found} ranks, {} says {expected}: remove the file that is not of \
         this run", .path.display(), .other.display()
    )]
    WorldSize { path: PathBuf, found: u32, other: PathBuf, expected: u32 },
    #[error("{} claims to be rank {rank} of {size}: the file is damaged", .path.display())]
    RankOutOfRange { path: PathBuf, rank: u32, size: u32 },
    #[error("{} and {} are both of rank {rank}: remove one of them", .first.display(), .second.display())]
    Duplicate { rank: u32, first: PathBuf, second: PathBuf },
    #[error(
        "{} of {size} ranks are missing from {} ({ranks}): copy their files from the nodes that they ran \
         on, or merge the directories with `detour merge DIR… -o DIR`", .count, .dir.display()
    )]
    Missing { dir: PathBuf, count: u32, size: u32, ranks: String },
}

/// What is known about a rank from its header.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Position in [`Program::hosts`].
    pub host: u32,
    /// Its file, in the directory of the program.
    pub path: PathBuf,
    /// Bytes of the file.
    pub length: u64,
    /// Process id.
    pub pid: u32,
    /// When the call of `MPI_Init` began.
    pub load: Anchor,
    /// When recording began.
    pub start: Anchor,
    /// When `MPI_Finalize` returned, or the last moment recorded.
    pub end: Anchor,
    /// Whether the rank has finalized, or was killed or crashed.
    pub finalized: bool,
    /// Whether it called `MPI_Abort`.
    pub aborted: bool,
    /// Clock of the host against that of rank 0's host at the start.
    pub offset_start: ClockOffset,
    /// And at the end; zero if not measured.
    pub offset_end: ClockOffset,
    /// Cost of recording a call in ns.
    pub cost_ns: f64,
    /// And of one that it only counts.
    pub passed_ns: f64,
    /// What the collector could not record.
    pub lost: Lost,
    /// Events that the header counts; 0 if the rank has not finalized.
    pub events: u64,
    /// Threads that recorded.
    pub threads: u32,
    /// The MPI library's binary interface.
    pub abi: Abi,
    /// Whether calls that others meet are in the file even if recording was switched off.
    pub keeps_off: bool,
}

impl Rank {
    /// First moment on the host's `CLOCK_MONOTONIC`: the call of `MPI_Init`.
    #[must_use]
    pub fn begin_ns(&self) -> u64 {
        if self.load.ns > 0 && self.load.ns <= self.start.ns { self.load.ns } else { self.start.ns }
    }

    /// Last moment on the host's `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end.ns.max(self.start.ns)
    }
}

/// A node of the run: ranks that share `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Lowest rank on it.
    pub first_rank: u32,
    /// Number of ranks on it.
    pub ranks: u32,
}

/// All ranks of a run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The directory.
    pub dir: PathBuf,
    /// Random number of the run.
    pub run: u64,
    /// Size of `MPI_COMM_WORLD`.
    pub size: u32,
    /// The ranks that are there, in order.
    pub ranks: Vec<Rank>,
    /// The hosts, that of the lowest rank first.
    pub hosts: Vec<Host>,
    /// Version of the MPI library.
    pub library: String,
    /// Command line of the lowest rank.
    pub command: Vec<String>,
    /// Nanoseconds since 1970 when recording of the lowest rank began.
    pub realtime_ns: u64,
}

impl Program {
    /// Position in [`Program::ranks`] of a world rank.
    #[must_use]
    pub fn slot(&self, rank: u32) -> Option<usize> {
        if self.ranks.len() == self.size as usize {
            return Some(rank as usize).filter(|slot| *slot < self.ranks.len());
        }
        self.ranks.binary_search_by_key(&rank, |found| found.rank).ok()
    }

    /// Events that the headers count, for progress bars.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.length).sum()
    }
}

/// What a header says beside [`Rank`].
struct Parsed {
    rank: Rank,
    run: u64,
    size: u32,
    host: String,
    boot_id: [u8; 16],
    library: String,
    command: Vec<String>,
    realtime_ns: u64,
}

/// Opens the ranks of a directory as one program. All ranks have to be there.
pub fn open(dir: &Path) -> Result<Program, OpenError> {
    let program = open_partial(dir)?;
    let missing = program.size - program.ranks.len() as u32;
    if missing > 0 {
        let ranks = missing_ranks(&program);
        return Err(OpenError::Missing {
            dir: program.dir,
            count: missing,
            size: program.size,
            ranks,
        });
    }
    Ok(program)
}

/// Opens the ranks of a directory as one program even if some are missing; their messages and what others
/// wait for them remain unknown.
pub fn open_partial(dir: &Path) -> Result<Program, OpenError> {
    let error = |source| OpenError::Read { path: dir.to_owned(), source };
    if dir.is_file() {
        return Err(OpenError::File(dir.to_owned()));
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let entry = entry.map_err(error)?;
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("rank-")?.strip_suffix(".mpi"));
        if number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        {
            paths.push(entry.path());
        }
    }
    if paths.is_empty() {
        return Err(OpenError::Empty(dir.to_owned()));
    }
    paths.sort();
    let parsed: Vec<Parsed> = paths.par_iter().map(|path| parse(path)).collect::<Result<_, _>>()?;
    assemble(dir, parsed)
}

/// Opens a regular file. Opening a pipe would wait for its other end, so it is looked at before.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

fn parse(path: &Path) -> Result<Parsed, OpenError> {
    let error = |source| OpenError::Read { path: path.to_owned(), source };
    let file = open_file(path).map_err(error)?;
    let length = file.metadata().map_err(error)?.len();
    let mut page = [0; HEADER];
    let mut filled = 0;
    while let Some(rest) = page.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64).map_err(error)? {
            0 => break,
            read => filled += read,
        }
    }
    let header = FileHeader::parse(page.get(..filled).unwrap_or(&[]))
        .map_err(|source| OpenError::Header { path: path.to_owned(), source })?;
    if header.world_rank >= header.world_size {
        return Err(OpenError::RankOutOfRange {
            path: path.to_owned(),
            rank: header.world_rank,
            size: header.world_size,
        });
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut rank = Rank {
        rank: header.world_rank,
        host: 0,
        path: path.to_owned(),
        length,
        pid: header.pid,
        load: header.load,
        start: header.start,
        end: header.end,
        finalized: header.is_finalized(),
        aborted: header.flags & file_flag::ABORTED != 0,
        offset_start: header.offset_start,
        offset_end: header.offset_end,
        cost_ns: f64::from(header.cost_recorded_ps) / 1000.0,
        passed_ns: f64::from(header.cost_passed_ps) / 1000.0,
        lost: header.lost,
        events: if header.is_finalized() { header.events } else { 0 },
        threads: header.threads.max(1),
        abi: header.abi,
        keeps_off: header.flags & file_flag::KEEPS_OFF != 0,
    };
    if !rank.finalized {
        // How far a killed rank came is in its chunks only.
        let (end, threads) = last_moment(&ChunkReader::new(&rank)).map_err(error)?;
        rank.end = Anchor { ticks: 0, ns: end };
        rank.threads = threads;
    }
    Ok(Parsed {
        rank,
        run: header.run,
        size: header.world_size,
        host: text(header.host),
        boot_id: header.boot_id,
        library: text(header.library).trim().to_owned(),
        command: header
            .command
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty())
            .map(text)
            .collect(),
        realtime_ns: header.realtime_ns,
    })
}

fn assemble(dir: &Path, mut parsed: Vec<Parsed>) -> Result<Program, OpenError> {
    let mut runs: BTreeMap<u64, Vec<&Parsed>> = BTreeMap::new();
    for file in &parsed {
        runs.entry(file.run).or_default().push(file);
    }
    if runs.len() > 1 {
        let name = |file: &Parsed| file.rank.path.file_name().unwrap_or_default().to_os_string();
        let examples = runs
            .values()
            .take(3)
            .filter_map(|files| {
                let first = files.first()?;
                let name = name(first).to_string_lossy().into_owned();
                Some(format!("{name} and {} more of one", files.len() - 1))
            })
            .collect::<Vec<_>>()
            .join("; ");
        return Err(OpenError::MixedRuns { dir: dir.to_owned(), count: runs.len(), examples });
    }
    parsed.sort_by_key(|file| file.rank.rank);
    for pair in parsed.windows(2) {
        let [first, second] = pair else { continue };
        if first.rank.rank == second.rank.rank {
            return Err(OpenError::Duplicate {
                rank: first.rank.rank,
                first: first.rank.path.clone(),
                second: second.rank.path.clone(),
            });
        }
        if first.size != second.size {
            return Err(OpenError::WorldSize {
                path: second.rank.path.clone(),
                found: second.size,
                other: first.rank.path.clone(),
                expected: first.size,
            });
        }
    }
    let Some(first) = parsed.first() else { return Err(OpenError::Empty(dir.to_owned())) };
    let mut program = Program {
        dir: dir.to_owned(),
        run: first.run,
        size: first.size,
        ranks: Vec::with_capacity(parsed.len()),
        hosts: Vec::new(),
        library: first.library.clone(),
        command: first.command.clone(),
        realtime_ns: first.realtime_ns,
    };
    // Hosts without a boot id (imported traces) are distinguished by their names.
    let mut hosts: BTreeMap<([u8; 16], String), u32> = BTreeMap::new();
    for mut file in parsed {
        let known = file.boot_id != [0; 16];
        let key = (file.boot_id, if known { String::new() } else { file.host.clone() });
        let host = *hosts.entry(key).or_insert_with(|| {
            program.hosts.push(Host {
                name: file.host.clone(),
                first_rank: file.rank.rank,
                ranks: 0,
            });
            program.hosts.len() as u32 - 1
        });
        if let Some(host) = program.hosts.get_mut(host as usize) {
            host.ranks += 1;
        }
        file.rank.host = host;
        program.ranks.push(file.rank);
    }
    Ok(program)
}

/// The ranks that are missing from a program.
pub(crate) fn missing_ranks(program: &Program) -> String {
    missing_ranges(program.ranks.iter().map(|rank| rank.rank), program.size)
}

/// `3, 7-9, …`: at most ten ranges, without a list as long as the claimed size. The ranks that are present ascend.
pub(crate) fn missing_ranges(present: impl Iterator<Item = u32>, size: u32) -> String {
    let mut ranges = Vec::new();
    let mut next = 0u32;
    for end in present.chain([size]) {
        match end.saturating_sub(next) {
            0 => {}
            1 => ranges.push(next.to_string()),
            _ => ranges.push(format!("{next}-{}", end - 1)),
        }
        next = end.saturating_add(1);
        if ranges.len() > 10 {
            ranges.truncate(10);
            ranges.push("…".to_owned());
            break;
        }
    }
    ranges.join(", ")
}
