//! Text traces of liballprof, one file a rank, as `rank-N.mpi`.
//!
//! A line is a call: name, start, arguments in the order of the C binding, end, separated by `:`. The roles
//! of the arguments are those of the table of calls. Every line is accounted for: imported, a call that is
//! not recorded, a header, empty, or not understood.
//!
//! How many ranks the program has is the largest size of a communicator in any file: files of the last ranks may be
//! missing. `MPI_COMM_WORLD` is the communicator of that size in which the ranks are those of the files.
//!
//! What such a trace does not hold cannot be imported: members of communicators other than
//! `MPI_COMM_WORLD`, whether a test succeeded. Senders of
//! receives from any source are inferred from the order of the messages with their tag. The clock difference in the headers
//! is that of rank 0's clock less that of the rank, in microseconds (some versions write "s" behind it;
//! the times of barriers show what is meant).

use crate::hash::mix;
use crate::open::{missing_ranges, open_file};
use crate::write::{RankWriter, Ticks};
use mpi_abi::{
    Abi, Actual, Anchor, Call, Clock, ClockOffset, CommunicatorDef, Entry, FileHeader, Lost,
    Outcome, RequestItem, Role, Signature, present, rank, shape, tag,
};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Why traces cannot be imported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImportError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "no liballprof trace in {} (expected one text file a rank, with the rank before the suffix: \
         pmpi-trace-rank-0.txt)", .0.display()
    )]
    Nothing(PathBuf),
    #[error(
        "{count} of {size} ranks are missing from {} ({ranks}{because}): copy their files, or import the others \
         with --partial", .dir.display()
    )]
    Missing { dir: PathBuf, count: u32, size: u32, ranks: String, because: String },
    #[error(
        "{} of {} lines of {} cannot be parsed ({}): correct them, or import the others with --lenient",
        .import.unknown, .import.lines, .dir.display(), .import.examples.join("; ")
    )]
    Lines { dir: PathBuf, import: Box<Import> },
    #[error("{} and {} are both of rank {rank}: remove one of them", .first.display(), .second.display())]
    Duplicate { rank: u32, first: PathBuf, second: PathBuf },
    #[error("refusing to overwrite {}", .0.display())]
    Exists(PathBuf),
}

/// Which incomplete traces are imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// Those with missing ranks.
    pub partial: bool,
    /// Those with lines that cannot be parsed, which count as lost calls.
    pub lenient: bool,
}

/// What became of the lines of the traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Ranks that were imported.
    pub ranks: u32,
    /// Ranks of `MPI_COMM_WORLD` whose files are missing, as ranges; empty if all are there.
    pub missing: String,
    /// Lines of all files: the sum of the next five.
    pub lines: u64,
    /// Calls that were imported.
    pub events: u64,
    /// Calls that are not recorded (`MPI_Comm_rank`).
    pub unrecorded: u64,
    /// Lines that begin with `#`.
    pub headers: u64,
    /// Empty lines.
    pub empty: u64,
    /// Lines that are not understood.
    pub unknown: u64,
    /// Imported calls by name.
    pub calls: BTreeMap<String, u64>,
    /// Calls that are not recorded, by name.
    pub unrecorded_calls: BTreeMap<String, u64>,
    /// Some lines that are not understood: file, line number, beginning of the line.
    pub examples: Vec<String>,
    /// Communicators whose members are not known.
    pub communicators: u64,
    /// Receives from any source.
    pub wildcards: u64,
    /// Those of them that were given a sender: the n-th receive with a tag gets the n-th message that was
    /// sent to the rank with it.
    pub resolved_wildcards: u64,
    /// Tests, of which the trace does not tell whether they succeeded.
    pub tests: u64,
}

const MAX_EXAMPLES: usize = 10;
/// Longest line that is read; the rest of a longer one is skipped and the line is not understood.
const MAX_LINE: u64 = 1 << 20;
/// Names of calls that are not recorded, at most.
const MAX_NAMES: usize = 1000;
/// Ranks of a communicator, at most; a line that claims more is not understood.
const MAX_RANKS: i64 = 1 << 24;

impl Import {
    fn add(&mut self, other: Import) {
        self.ranks += other.ranks;
        self.lines += other.lines;
        self.events += other.events;
        self.unrecorded += other.unrecorded;
        self.headers += other.headers;
        self.empty += other.empty;
        self.unknown += other.unknown;
        self.communicators += other.communicators;
        self.wildcards += other.wildcards;
        self.resolved_wildcards += other.resolved_wildcards;
        self.tests += other.tests;
        for (to, from) in
            [(&mut self.calls, other.calls), (&mut self.unrecorded_calls, other.unrecorded_calls)]
        {
            for (name, count) in from {
                *to.entry(name).or_default() += count;
            }
        }
        self.examples.extend(other.examples);
        self.examples.truncate(MAX_EXAMPLES);
    }
}

/// The rank in a file name: the number before the suffix.
fn rank_of(path: &Path) -> Option<u32> {
    let stem = path.file_name()?.to_str()?;
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    let digits = stem.len() - stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem.get(stem.len() - digits..)?.parse().ok()
}

/// Whether a file begins like a trace.
fn is_trace(path: &Path) -> bool {
    let Ok(file) = open_file(path) else { return false };
    let mut start = Vec::new();
    file.take(4).read_to_end(&mut start).is_ok() && (start.starts_with(b"# ") || start == b"MPI_")
}

/// Imports the liballprof traces of a directory.
pub fn import(path: &Path, out_dir: &Path, accept: Accept) -> Result<Import, ImportError> {
    let read = |source| ImportError::Read { path: path.to_owned(), source };
    let write = |source| ImportError::Write { path: out_dir.to_owned(), source };
    let mut files: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        let Some(rank) = rank_of(&file).filter(|_| file.is_file() && is_trace(&file)) else {
            continue;
        };
        if let Some(first) = files.insert(rank, file.clone()) {
            return Err(ImportError::Duplicate { rank, first, second: file });
        }
    }
    if files.is_empty() {
        return Err(ImportError::Nothing(path.to_owned()));
    }
    let scans: Vec<Scan> = files
        .par_iter()
        .map(|(rank, file)| {
            let read = |source| ImportError::Read { path: file.clone(), source };
            Scan::read(*rank, file).map_err(read)
        })
        .collect::<Result<_, _>>()?;
    let (size, because) = world_size(&files, &scans);
    let missing = missing_ranges(files.keys().copied(), size);
    if !missing.is_empty() && !accept.partial {
        let (dir, count) = (path.to_owned(), size - files.len() as u32);
        return Err(ImportError::Missing { dir, count, size, ranks: missing, because });
    }
    std::fs::create_dir_all(out_dir).map_err(write)?;
    // Another number for other contents: what was computed from a run is known by its number.
    let run = scans.iter().fold(u64::from(size), |run, scan| mix(run, scan.contents));
    let worlds = worlds(&files, &scans, size);
    let mut known = Senders::new();
    for (scan, world) in scans.into_iter().zip(&worlds) {
        for ((handle, to, tag), sent) in scan.sends {
            if Some(handle) == *world {
                known.entry((to, tag)).or_default().extend(sent);
            }
        }
    }
    for sent in known.values_mut() {
        sent.sort_unstable();
    }
    let ranks: Vec<(World, &PathBuf)> = files
        .iter()
        .zip(worlds)
        .map(|((&rank, file), handle)| (World { rank, size, handle }, file))
        .collect();
    let done: Vec<Result<Import, ImportError>> = ranks
        .par_iter()
        .map(|(world, file)| RankImport::run(world, run, file, out_dir, &known))
        .collect();
    let written: Vec<u32> =
        files.keys().zip(&done).filter(|(_, done)| done.is_ok()).map(|(rank, _)| *rank).collect();
    let mut sum = Import { missing, ..Import::default() };
    for one in done {
        sum.add(one?);
    }
    if sum.unknown > 0 && !accept.lenient {
        for rank in written {
            let _ = std::fs::remove_file(out_dir.join(format!("rank-{rank}.mpi")));
        }
        return Err(ImportError::Lines { dir: path.to_owned(), import: Box::new(sum) });
    }
    Ok(sum)
}

/// Ranks of the program: no communicator has more. Also which line says so.
fn world_size(files: &BTreeMap<u32, PathBuf>, scans: &[Scan]) -> (u32, String) {
    let last = files.keys().next_back().map_or(0, |last| last.saturating_add(1));
    let largest = files.values().zip(scans).rev().max_by_key(|(_, scan)| scan.largest.0);
    match largest {
        Some((file, Scan { largest: (size, line), .. })) if *size > last => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            (*size, format!("; {name}:{line} has a communicator of {size} ranks"))
        }
        _ => (last, String::new()),
    }
}

/// The handle of `MPI_COMM_WORLD` in each file: of a communicator with all ranks, in which the rank is that of the
/// file. A duplicate looks the same, so what all files have in common comes first.
fn worlds(files: &BTreeMap<u32, PathBuf>, scans: &[Scan], size: u32) -> Vec<Option<i64>> {
    let candidates: Vec<Vec<i64>> = files
        .keys()
        .zip(scans)
        .map(|(rank, scan)| {
            let is_world = |of: &&Triple| i64::from(of.rank) == i64::from(*rank) && of.size == size;
            scan.communicators.iter().filter(is_world).map(|of| of.handle).collect()
        })
        .collect();
    let everywhere = |handle: &&i64| candidates.iter().all(|those| those.contains(handle));
    let common = || candidates.first().and_then(|first| first.iter().find(everywhere)).copied();
    let common = Some(MPICH_WORLD).filter(|world| everywhere(&world)).or_else(common);
    candidates.iter().map(|those| common.or(those.first().copied())).collect()
}

/// `MPI_COMM_WORLD` of the MPICH ABI.
const MPICH_WORLD: i64 = 0x4400_0000;

/// When which ranks sent messages to a rank with a tag, on `MPI_COMM_WORLD`.
type Senders = HashMap<(i32, i32), Vec<(i64, u32)>>;

/// Sends of a rank that are looked at; with more, wildcards remain.
const MAX_SENDS: usize = 1 << 23;

/// What has to be known about all files before the first is imported.
#[derive(Default)]
struct Scan {
    /// A number for the contents of the file.
    contents: u64,
    /// In the order in which they appear.
    communicators: Vec<Triple>,
    /// Most ranks of a communicator, and the line that says so.
    largest: (u32, u64),
    /// As [`Senders`], by communicator.
    sends: HashMap<(i64, i32, i32), Vec<(i64, u32)>>,
}

/// Communicators of a file that are looked at.
const MAX_COMMUNICATORS: usize = 1 << 12;

impl Scan {
    fn read(rank: u32, path: &Path) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let here = (Preamble::read(path)?.difference.unwrap_or(0.0) * 1000.0) as i64;
        let mut sends = 0;
        let mut lines = Lines::open(path)?;
        while let Some((number, text, whole)) = lines.next()? {
            scan.contents = text_number(scan.contents, text);
            let Some(line) = Line::parse(text).filter(|_| whole) else { continue };
            let Some(comm) = line.communicator() else { continue };
            if comm.size > scan.largest.0 {
                scan.largest = (comm.size, number);
            }
            if scan.communicators.len() < MAX_COMMUNICATORS && !scan.communicators.contains(&comm) {
                scan.communicators.push(comm);
            }
            let (to, tag) = (line.fields.int(Role::Dest), line.fields.int(Role::Tag));
            if let (Some(to), Some(tag)) = (to, tag)
                && sends < MAX_SENDS
            {
                sends += 1;
                let at = (line.begin as i64).saturating_add(here);
                scan.sends.entry((comm.handle, to, tag)).or_default().push((at, rank));
            }
        }
        Ok(scan)
    }
}

/// A communicator as it is printed: its handle, the rank in it, its size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Triple {
    handle: i64,
    rank: i32,
    size: u32,
}

impl Triple {
    fn parse(text: &str) -> Option<Triple> {
        let numbers: Vec<i64> = text.split(',').map(integer).collect::<Option<_>>()?;
        match numbers.as_slice() {
            &[handle, rank, size] if 0 <= rank && rank < size && size <= MAX_RANKS => {
                Some(Triple { handle, rank: rank as i32, size: size as u32 })
            }
            _ => None,
        }
    }
}

/// Mixes a line into a number.
fn text_number(number: u64, line: &str) -> u64 {
    let words = line
        .as_bytes()
        .chunks(8)
        .map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(mix(number, line.len() as u64), mix)
}

/// Microseconds with or without a fraction as nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let us = whole.parse::<u64>().ok().filter(|us| *us < (1 << 61) / 1000)?;
    let mut ns = us * 1000;
    for (digit, place) in digits.zip([100, 10, 1]) {
        ns += u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * place;
    }
    Some(ns)
}

/// A number as the tracer prints it: also an `int` as an unsigned 64-bit number.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse::<i64>().ok().or_else(|| text.parse::<u64>().ok().map(|value| value as i64))
}

struct Comm {
    number: u32,
    rank: i32,
}

/// What is known about a rank from all files.
struct World {
    rank: u32,
    size: u32,
    /// Of `MPI_COMM_WORLD`, if the rank uses it.
    handle: Option<i64>,
}

/// The import of one rank.
struct RankImport<'h> {
    writer: RankWriter<'h>,
    sum: Import,
    rank: u32,
    size: u32,
    comms: HashMap<Triple, Comm>,
    /// Requests by the address of the variable.
    requests: HashMap<i64, u64>,
    next_request: u64,
    /// Senders of receives with wildcards, by request.
    found: HashMap<u64, i32>,
    senders: &'h Senders,
    /// Receives so far by tag.
    received: HashMap<i32, usize>,
    mpich: bool,
    last: u64,
}

/// What a line holds, by role.
#[derive(Default)]
struct Fields<'a> {
    by_role: Vec<(Role, &'a str)>,
}

impl<'a> Fields<'a> {
    fn get(&self, role: Role) -> Option<&'a str> {
        self.by_role.iter().find(|(found, _)| *found == role).map(|(_, text)| *text)
    }

    fn integer(&self, role: Role) -> Option<i64> {
        integer(self.get(role)?)
    }

    fn int(&self, role: Role) -> Option<i32> {
        // Ints arrive sign-extended or not.
        self.integer(role).map(|value| value as i32)
    }

    /// A datatype's size, from `handle,size,extent`.
    fn type_size(&self, role: Role) -> Option<u64> {
        u64::try_from(integer(self.get(role)?.split(',').nth(1)?)?).ok()
    }

    fn bytes(&self, count: Role, datatype: Role) -> Option<u64> {
        let count = u64::try_from(self.integer(count)?).ok()?;
        count.checked_mul(self.type_size(datatype)?)
    }

    fn list(&self, counts: Role, datatype: Role) -> Option<Vec<u64>> {
        let size = self.type_size(datatype)?;
        let numbers = self
            .get(counts)?
            .split(',')
            .map(|text| u64::try_from(integer(text)?).ok()?.checked_mul(size));
        numbers.collect()
    }
}

/// Calls by name.
static CALLS: LazyLock<HashMap<&'static str, Call>> =
    LazyLock::new(|| Call::ALL.iter().map(|call| (call.name(), *call)).collect());

/// A line that is a call.
struct Line<'a> {
    name: &'a str,
    /// `None` if the call is not recorded.
    call: Option<Call>,
    begin: u64,
    end: u64,
    fields: Fields<'a>,
    first: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut parts: Vec<&str> = line.trim_end().split(':').collect();
        let (name, end) = (parts.first().copied()?, parts.pop()?);
        if !name.starts_with("MPI_") || parts.len() < 2 {
            return None;
        }
        let begin = parts.get(1).copied().unwrap_or("-");
        // MPI_Init has no start, MPI_Finalize no end.
        let (begin, end) = match (nanoseconds(begin), nanoseconds(end)) {
            (Some(begin), Some(end)) if begin <= end => (begin, end),
            (Some(begin), None) if end.trim() == "-" => (begin, begin),
            (None, Some(end)) if begin.trim() == "-" => (end, end),
            _ => return None,
        };
        let arguments = parts.get(2..).unwrap_or(&[]);
        let first = arguments.first().copied();
        let Some(&call) = CALLS.get(name) else {
            return Some(Line { name, call: None, begin, end, fields: Fields::default(), first });
        };
        let roles = call.arguments();
        if arguments.len() != roles.len() && roles.iter().any(|role| *role != Role::Other) {
            return None;
        }
        let by_role = roles
            .iter()
            .copied()
            .zip(arguments.iter().copied())
            .filter(|(role, _)| *role != Role::Other);
        let fields = Fields { by_role: by_role.collect() };
        Some(Line { name, call: Some(call), begin, end, fields, first })
    }

    /// The communicator of the call, also of those that are not recorded (`MPI_Comm_rank`).
    fn communicator(&self) -> Option<Triple> {
        let unrecorded = || self.first.filter(|_| self.name.starts_with("MPI_Comm_"));
        Triple::parse(self.fields.get(Role::Comm).or_else(unrecorded)?)
    }
}

impl RankImport<'_> {
    fn run(
        &World { rank, size, handle: world_handle }: &World,
        run: u64,
        path: &Path,
        out_dir: &Path,
        senders: &Senders,
    ) -> Result<Import, ImportError> {
        let read = |source| ImportError::Read { path: path.to_owned(), source };
        let preamble = Preamble::read(path).map_err(read)?;
        let mpich = world_handle.is_some_and(|handle| handle as u32 >> 24 == 0x44);
        let start = Anchor { ticks: preamble.start, ns: preamble.start };
        let offset = |at: u64, diff: Option<f64>| match diff {
            Some(us) => ClockOffset {
                here_ns: at,
                offset_ns: (-us * 1000.0).round() as i64,
                // Times have steps of a microsecond.
                round_trip_ns: 2000,
            },
            None => ClockOffset::default(),
        };
        let header = FileHeader {
            run,
            world_rank: rank,
            world_size: size,
            local_rank: 0,
            local_size: 1,
            abi: if mpich { Abi::Mpich } else { Abi::OpenMpi },
            clock: Clock::Monotonic,
            thread_level: 0,
            pid: 0,
            realtime_ns: preamble.start,
            load: start,
            start,
            offset_start: offset(preamble.start, preamble.difference),
            cost_recorded_ps: 0,
            cost_passed_ps: 0,
            host: preamble.host.as_bytes(),
            boot_id: [0; 16],
            library: b"imported from liballprof",
            command: b"",
            flags: 0,
            lost: Lost::default(),
            events: 0,
            chunks: 0,
            threads: 0,
            offset_end: ClockOffset::default(),
            end: Anchor::default(),
        };
        let target = out_dir.join(format!("rank-{rank}.mpi"));
        let write = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => ImportError::Exists(target.clone()),
            _ => ImportError::Write { path: target.clone(), source },
        };
        let writer = RankWriter::create(out_dir, header, Ticks::NS).map_err(write)?;
        let mut import = RankImport {
            writer,
            sum: Import { ranks: 1, ..Import::default() },
            rank,
            size,
            comms: HashMap::new(),
            requests: HashMap::new(),
            next_request: 0,
            found: HashMap::new(),
            senders,
            received: HashMap::new(),
            mpich,
            last: preamble.start,
        };
        let world = CommunicatorDef {
            number: 0,
            key: 1,
            parent: None,
            rank: rank as i32,
            size,
            remote_size: 0,
            topology: 0,
        };
        let members: Vec<i32> = (0..size as i32).collect();
        import.writer.communicator(0, preamble.start, &world, &members).map_err(write)?;
        let rank = rank as i32;
        if let Some(handle) = world_handle {
            import.comms.insert(Triple { handle, rank, size }, Comm { number: 0, rank });
        }
        let mut end_difference = None;
        let mut lines = Lines::open(path).map_err(read)?;
        while let Some((number, line, whole)) = lines.next().map_err(read)? {
            import.sum.lines += 1;
            if let Some(comment) = line.strip_prefix('#') {
                import.sum.headers += 1;
                if let Some(us) = difference(comment).filter(|_| comment.contains("Finalize")) {
                    end_difference = Some(us);
                }
            } else if line.trim().is_empty() {
                import.sum.empty += 1;
            } else if !whole || import.line(line).map_err(write)?.is_none() {
                import.sum.unknown += 1;
                import.writer.lost(0, import.last, 1).map_err(write)?;
                if import.sum.examples.len() < MAX_EXAMPLES {
                    let start: String = line.chars().take(80).collect();
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    import.sum.examples.push(format!("{name}:{number}: {start}"));
                }
            }
        }
        let last = import.last;
        import.writer.header_mut().offset_end = offset(last, end_difference);
        import.writer.header_mut().lost.no_space = import.sum.unknown;
        import.writer.finish(last).map_err(write)?;
        Ok(import.sum)
    }

    /// One call. `None` if the line is not understood.
    fn line(&mut self, line: &str) -> io::Result<Option<()>> {
        let Some(Line { name, call, begin, end, fields, .. }) = Line::parse(line) else {
            return Ok(None);
        };
        let Some(call) = call else {
            self.sum.unrecorded += 1;
            let names = &mut self.sum.unrecorded_calls;
            let name = if names.len() < MAX_NAMES { name } else { "others" };
            *names.entry(name.to_owned()).or_default() += 1;
            return Ok(Some(()));
        };
        let Some(()) = self.event(call, &fields, begin, end)? else { return Ok(None) };
        self.sum.events += 1;
        *self.sum.calls.entry(name.to_owned()).or_default() += 1;
        Ok(Some(()))
    }

    fn event(
        &mut self,
        call: Call,
        fields: &Fields,
        begin: u64,
        end: u64,
    ) -> io::Result<Option<()>> {
        let mut signature = Signature::of(call);
        let begin = begin.max(self.last);
        let end = end.max(begin);
        let (mut root, mut own) = (false, 0);
        if let Some(text) = fields.get(Role::Comm) {
            let Some(comm) = self.comm(text, begin)? else { return Ok(None) };
            signature.object = comm.number;
            signature.present |= present::OBJECT;
            root = fields.int(Role::Root).is_some_and(|root| root == comm.rank);
            own = usize::try_from(comm.rank).unwrap_or(0);
        }
        let exchange = fields.get(Role::Dest).is_some() && fields.get(Role::Source).is_some();
        for role in [Role::Dest, Role::Source, Role::Root, Role::Target] {
            let Some(text) = fields.get(role) else { continue };
            let Some(value) = integer(text) else { return Ok(None) };
            let value = self.special(value as i32);
            if role == Role::Source && exchange {
                signature.source = value;
                signature.present |= present::SOURCE;
            } else {
                signature.peer = value;
                signature.present |= present::PEER;
            }
        }
        for (role, received) in [(Role::Tag, false), (Role::ReceiveTag, true)] {
            let Some(text) = fields.get(role) else { continue };
            let Some(value) = integer(text).map(|value| value as i32) else { return Ok(None) };
            // All libraries have -1 for any tag.
            let value = if value < 0 { tag::ANY } else { value };
            if received {
                signature.source_tag = value;
                signature.present |= present::SOURCE_TAG;
            } else {
                signature.tag = value;
                signature.present |= present::TAG;
            }
        }
        let mut entry = Entry::plain(signature, begin, end);
        let source = if exchange { signature.source } else { signature.peer };
        let label = if exchange { signature.source_tag } else { signature.tag };
        let mut sender = None;
        let receives = fields.get(Role::Source).is_some() && !call.name().contains("robe");
        if receives && signature.object == 0 && source != rank::PROC_NULL {
            let number = self.received.entry(label).or_insert(0);
            let sent = self.senders.get(&(self.rank as i32, label));
            let found = sent.and_then(|sent| sent.get(*number)).map(|(_, from)| *from as i32);
            *number += 1;
            sender = found.filter(|_| source == rank::ANY);
        }
        if receives && source == rank::ANY {
            self.sum.wildcards += 1;
            self.sum.resolved_wildcards += u64::from(sender.is_some());
            if sender.is_some() && fields.get(Role::Request).is_none() {
                entry.signature.shape |= shape::OUTCOME;
                entry.actual.source = sender;
            }
        }
        let Some((sent, got)) = sizes(call, fields, root, own, &mut entry) else { return Ok(None) };
        entry.sent = &sent;
        entry.got = &got;
        if let Some(address) = fields.get(Role::Request) {
            let Some(address) = integer(address) else { return Ok(None) };
            entry.signature.shape |= shape::BEGUN;
            entry.begun = self.next_request;
            self.requests.insert(address, self.next_request);
            if let Some(sender) = sender {
                self.found.insert(self.next_request, sender);
            }
            self.next_request += 1;
        }
        let Some(items) = self.requests(call, fields) else { return Ok(None) };
        if matches!(call.class(), mpi_abi::Class::Request) {
            entry.signature.shape |= shape::REQUESTS;
        }
        entry.requests = &items;
        self.writer.event(0, &entry)?;
        self.last = end;
        Ok(Some(()))
    }

    /// Wildcards and null processes of the library.
    fn special(&self, value: i32) -> i32 {
        match (value, self.mpich) {
            (-2, true) | (-1, false) => rank::ANY,
            (-1, true) | (-2, false) => rank::PROC_NULL,
            _ => value,
        }
    }

    /// The communicator in `handle,rank,size`, defined if it is new.
    fn comm(&mut self, text: &str, now: u64) -> io::Result<Option<&Comm>> {
        let Some(triple) = Triple::parse(text) else { return Ok(None) };
        // A handle may be used again for another communicator.
        if !self.comms.contains_key(&triple) {
            let Triple { handle, rank, size } = triple;
            let number = self.sum.communicators as u32 + 2;
            self.comms.insert(triple, Comm { number, rank });
            self.sum.communicators += 1;
            let of_rank = mix(0x1a11, u64::from(self.rank) << 32 | u64::from(self.size));
            let def = CommunicatorDef {
                number,
                // Handles say nothing about the communicator of another rank.
                key: mix(mix(of_rank, handle as u64), (rank as u64) << 32 | u64::from(size)),
                parent: None,
                rank,
                size,
                remote_size: 0,
                topology: 0,
            };
            self.writer.communicator(0, now, &def, &[])?;
        }
        Ok(self.comms.get(&triple))
    }

    /// The requests of a call, by the addresses of their variables.
    fn requests(&mut self, call: Call, fields: &Fields) -> Option<Vec<RequestItem>> {
        let item = |id, outcome| RequestItem { id, outcome, actual: Actual::AS_POSTED };
        let tests = call.name().starts_with("MPI_Test");
        self.sum.tests += u64::from(tests);
        let outcome = match call {
            _ if tests => Outcome::Pending,
            Call::Request_free => Outcome::Freed,
            Call::Cancel => Outcome::CancelAsked,
            Call::Start | Call::Startall => Outcome::Started,
            Call::Request_get_status => Outcome::Pending,
            Call::Waitany | Call::Waitsome => Outcome::Pending,
            _ => Outcome::Completed,
        };
        let mut addresses = Vec::new();
        for role in [Role::RequestInOut, Role::RequestValue] {
            if let Some(text) = fields.get(role) {
                addresses.push(integer(text)?);
            }
        }
        if let Some(text) = fields.get(Role::Requests) {
            let list: Vec<i64> = text.split(',').map(integer).collect::<Option<_>>()?;
            let count = fields.integer(Role::RequestCount)?;
            match list.as_slice() {
                // One address stands for an array of handles of 4 or 8 bytes.
                [base] if count > 1 => {
                    let stride = if self.mpich { 4 } else { 8 };
                    addresses.extend((0..count.min(1 << 16)).map(|i| base + i * stride));
                }
                list => addresses.extend(list),
            }
        }
        let mut items = Vec::new();
        for address in addresses {
            if let Some(&id) = self.requests.get(&address) {
                // Which request completed is not in the trace: it is the first that was left.
                let outcome = match call {
                    Call::Waitany | Call::Waitsome if items.is_empty() => Outcome::Completed,
                    _ => outcome,
                };
                let mut item = item(id, outcome);
                if outcome == Outcome::Completed {
                    item.actual.source = self.found.remove(&id);
                }
                items.push(item);
                if matches!(outcome, Outcome::Completed | Outcome::Freed) {
                    self.requests.remove(&address);
                }
            }
        }
        Some(items)
    }
}

/// Fills in the sizes of a call and gives the lists for and from every peer. `own` is the rank in the communicator.
fn sizes(
    call: Call,
    fields: &Fields,
    root: bool,
    own: usize,
    entry: &mut Entry,
) -> Option<(Vec<u64>, Vec<u64>)> {
    let rooted = call.has(Role::Root);
    let scatters = call.name().contains("catter") && rooted;
    let gathers = call.name().contains("ather") && rooted;
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    let signature = &mut entry.signature;
    if call.has(Role::Count) && call.has(Role::Type) {
        let bytes = fields.bytes(Role::Count, Role::Type)?;
        // The send arguments of a scatter count at the root only.
        entry.bytes = if scatters && !root { 0 } else { bytes };
        signature.present |= present::BYTES;
    } else if call.has(Role::Counts) {
        if !scatters || root {
            sent = fields.list(Role::Counts, Role::Type).unwrap_or_default();
        }
        entry.bytes = sent.iter().copied().fold(0, u64::saturating_add);
        signature.present |= present::BYTES;
        signature.shape |= shape::SENT;
    }
    if call.has(Role::ReceiveCount) {
        let bytes = fields.bytes(Role::ReceiveCount, Role::ReceiveType)?;
        entry.received = if gathers && !root { 0 } else { bytes };
        signature.present |= present::RECEIVED;
    } else if call.has(Role::ReceiveCounts) {
        if !gathers || root {
            let datatype = if call.has(Role::ReceiveType) { Role::ReceiveType } else { Role::Type };
            got = fields.list(Role::ReceiveCounts, datatype).unwrap_or_default();
        }
        entry.received = got.iter().copied().fold(0, u64::saturating_add);
        if !call.has(Role::Count) && !call.has(Role::Counts) {
            // A reduction of everything, of which each rank gets a part.
            entry.bytes = entry.received;
            entry.received = got.get(own).copied().unwrap_or(0);
            signature.present |= present::BYTES;
        }
        signature.present |= present::RECEIVED;
        signature.shape |= shape::RECEIVED;
    }
    Some((sent, got))
}

/// The clock difference in a header line, in microseconds.
fn difference(comment: &str) -> Option<f64> {
    let (_, value) = comment.split_once("clockdiff:")?;
    value.split_whitespace().next()?.parse().ok().filter(|us: &f64| us.is_finite())
}

/// What is needed before the first event can be written.
#[derive(Default)]
struct Preamble {
    host: String,
    difference: Option<f64>,
    start: u64,
}

impl Preamble {
    fn read(path: &Path) -> io::Result<Preamble> {
        let mut preamble = Preamble::default();
        let mut lines = Lines::open(path)?;
        while let Some((number, line, _)) = lines.next()? {
            if let Some(comment) = line.strip_prefix('#') {
                let text = comment.trim();
                let host = text.strip_prefix("hostname:").or_else(|| text.strip_prefix("host:"));
                if let Some(host) = host {
                    preamble.host = host.trim().trim_end_matches('.').to_owned();
                }
                if preamble.difference.is_none() && !text.contains("Finalize") {
                    preamble.difference = difference(text);
                }
                continue;
            }
            let parts: Vec<&str> = line.split(':').collect();
            let times = [parts.get(1), parts.last()];
            let first = times.into_iter().flatten().find_map(|text| nanoseconds(text));
            preamble.start = first.unwrap_or(0);
            if preamble.start > 0 || number > 10_000 {
                break;
            }
        }
        Ok(preamble)
    }
}

/// Lines of a file, of bounded length.
struct Lines {
    reader: BufReader<File>,
    buffer: Vec<u8>,
    text: String,
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> io::Result<Lines> {
        let reader = BufReader::with_capacity(1 << 16, open_file(path)?);
        Ok(Lines { reader, buffer: Vec::new(), text: String::new(), number: 0 })
    }

    /// Number, text without the line break, and whether it is whole.
    fn next(&mut self) -> io::Result<Option<(u64, &str, bool)>> {
        self.buffer.clear();
        let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let whole = self.buffer.ends_with(b"\n") || (read as u64) < MAX_LINE;
        if !whole {
            // The rest of a line that is too long.
            loop {
                let available = self.reader.fill_buf()?;
                if available.is_empty() {
                    break;
                }
                let end = available.iter().position(|byte| *byte == b'\n');
                let length = end.map_or(available.len(), |at| at + 1);
                self.reader.consume(length);
                if end.is_some() {
                    break;
                }
            }
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.buffer));
        Ok(Some((self.number, self.text.trim_end_matches(['\n', '\r']), whole)))
    }
}
