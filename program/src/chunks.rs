//! Chunks of one file, read one at a time and decoded into [`Moment`]s with times in nanoseconds.
//!
//! A damaged chunk is skipped and counted. An open chunk, the last one of a thread that was killed, is
//! read as far as it decodes. A claimed size never decides how much memory is used.

use crate::open::Rank;
use mpi_abi::{
    Actual, Anchor, CHUNK, CHUNK_HEADER, ChunkHeader, CommunicatorDef, Decoder, Event, HEADER,
    ListKind, Record, Records, RequestRun, Run, Signature, crc32, shape,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A part of a list in an [`Arena`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    length: u32,
}

/// Lists that belong to moments.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    requests: Vec<RequestRun>,
    sizes: Vec<(u64, u32)>,
    runs: Vec<Run>,
    names: Vec<u8>,
}

fn part<T>(list: &[T], span: Span) -> &[T] {
    list.get(span.start as usize..).and_then(|rest| rest.get(..span.length as usize)).unwrap_or(&[])
}

fn extend<T>(list: &mut Vec<T>, items: impl Iterator<Item = T>) -> Span {
    let start = list.len();
    list.extend(items);
    Span { start: start as u32, length: (list.len() - start) as u32 }
}

impl Arena {
    fn clear(&mut self) {
        self.requests.clear();
        self.sizes.clear();
        self.runs.clear();
        self.names.clear();
    }

    /// Keeps the lists of a call.
    #[inline(always)]
    fn call(&mut self, event: &Event) -> CallMoment {
        let mut list = |sizes: mpi_abi::Sizes| extend(&mut self.sizes, sizes);
        CallMoment {
            signature: event.signature,
            error: event.error,
            bytes: event.bytes,
            received: event.received,
            begun: event.begun,
            actual: event.actual,
            found: event.found,
            requests: extend(&mut self.requests, event.requests),
            sent: event.sent.map(&mut list),
            got: event.got.map(&mut list),
        }
    }

    /// Requests of a call.
    #[must_use]
    pub fn requests(&self, span: Span) -> &[RequestRun] {
        part(&self.requests, span)
    }

    /// Sizes for or from every peer, as pairs of a size and how often it follows.
    #[must_use]
    pub fn sizes(&self, span: Span) -> &[(u64, u32)] {
        part(&self.sizes, span)
    }

    /// Members or neighbours.
    #[must_use]
    pub fn runs(&self, span: Span) -> &[Run] {
        part(&self.runs, span)
    }

    /// Name of a region.
    #[must_use]
    pub fn name(&self, span: Span) -> &[u8] {
        part(&self.names, span)
    }
}

/// A call; the fields are those of [`mpi_abi::Event`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CallMoment {
    pub signature: Signature,
    pub error: i32,
    pub bytes: Option<u64>,
    pub received: Option<u64>,
    pub begun: Option<u64>,
    pub actual: Actual,
    pub found: bool,
    pub requests: Span,
    pub sent: Option<Span>,
    pub got: Option<Span>,
}

/// A test that failed, made again with the same result. The moment lasts from the first of these calls to the end of
/// the last; when each was made is not known.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// The call.
    pub call: CallMoment,
    /// How often it was made.
    pub times: u32,
    /// Nanoseconds inside of these calls, as estimated from some of them.
    pub inside: i64,
}

/// Calls that stand for those of a [`Repeat`], at most.
const STAND_INS: i64 = 64;

impl Repeat {
    /// Begins and ends of some calls that stand for all, evenly spread, the same time inside.
    pub fn spread(&self, begin: i64, end: i64) -> impl Iterator<Item = (i64, i64)> {
        let calls = i64::from(self.times).clamp(1, STAND_INS);
        let (all, inside) = (end.saturating_sub(begin).max(0), self.inside.max(0));
        let part = move |of: i64, place: i64| {
            (i128::from(of) * i128::from(place) / i128::from(calls)) as i64
        };
        (0..calls).map(move |place| {
            let end = begin + part(all, place + 1);
            let own = part(inside, place + 1) - part(inside, place);
            ((end - own).max(begin + part(all, place)), end)
        })
    }
}

/// What happened; see [`mpi_abi::Record`]. `Off` is a call that was made while recording was switched off: it is
/// there for the calls that meet it, and counts in no table.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum What {
    Call(CallMoment),
    Off(CallMoment),
    More(Span),
    Repeat(Repeat),
    Communicator(CommunicatorDef),
    List { communicator: u32, kind: ListKind, offset: u32, runs: Span },
    Window { window: u32, communicator: u32 },
    RegionName { region: u32, name: Span },
    RegionBegin { region: u32 },
    RegionEnd { region: u32 },
    Switch { on: bool },
    Lost { events: u64 },
}

/// A record with its times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Thread in the rank.
    pub thread: u16,
    /// When it began.
    pub begin: i64,
    /// When it ended; the same as `begin` for everything but calls and their repetitions.
    pub end: i64,
    /// What it was.
    pub what: What,
}

/// Ticks to nanoseconds: linear between the two anchors of a chunk.
#[derive(Clone, Copy, Debug)]
struct Scale {
    ticks: u64,
    ns: i64,
    rate: f64,
}

/// Times stay in a range whose differences fit 64 bits, whatever a file says.
pub(crate) const FAR: i64 = 1 << 61;

/// The nearest whole number. `f64::round` is a function call on processors of the baseline, and this is done
/// several times an event.
#[inline]
pub(crate) fn nearest(value: f64) -> i64 {
    (value + 0.5f64.copysign(value)) as i64
}

impl Scale {
    fn new(header: &ChunkHeader, rank_rate: f64) -> Scale {
        let Anchor { ticks, ns } = header.opened;
        let rate = rate(header.opened, header.latest).unwrap_or(rank_rate);
        Scale { ticks, ns: i64::try_from(ns).unwrap_or(FAR).min(FAR), rate }
    }

    #[inline]
    fn ns(&self, ticks: u64) -> i64 {
        let passed = ticks.wrapping_sub(self.ticks) as i64;
        let passed = if self.rate == 1.0 { passed } else { nearest(passed as f64 * self.rate) };
        self.ns.saturating_add(passed).clamp(0, FAR)
    }
}

/// Nanoseconds a tick between two anchors; `None` if they are the same or senseless.
fn rate(first: Anchor, last: Anchor) -> Option<f64> {
    let ticks = last.ticks.checked_sub(first.ticks).filter(|ticks| *ticks > 0)?;
    let ns = last.ns.checked_sub(first.ns)?;
    let rate = ns as f64 / ticks as f64;
    // Counters run at 1 MHz to 100 GHz.
    (1e-2..=1e3).contains(&rate).then_some(rate)
}

/// What was found to be missing or damaged while reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Chunks that do not match their checksum, are cut off, or stand in the wrong order.
    pub chunks: u64,
    /// Events that they counted, as far as that can be true.
    pub events: u64,
    /// Open chunks in which decoding stopped before the end.
    pub cut: u64,
}

/// Reads the chunks of one file. The file is opened for each read.
#[derive(Clone, Debug)]
pub struct ChunkReader {
    path: PathBuf,
    length: u64,
    rate: f64,
}

/// A chunk in memory.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    bytes: Vec<u8>,
    pub header: ChunkHeader,
    /// Header of the chunk behind it.
    pub next: Option<ChunkHeader>,
}

impl ChunkReader {
    /// For the file of a rank.
    #[must_use]
    pub fn new(rank: &Rank) -> ChunkReader {
        let rate = rate(rank.start, rank.end)
            .filter(|_| rank.finalized)
            .or_else(|| rate(rank.load, rank.start))
            .unwrap_or(1.0);
        ChunkReader { path: rank.path.clone(), length: rank.length, rate }
    }

    /// Places for chunks in the file, the last one possibly cut off.
    pub(crate) fn places(&self) -> u64 {
        self.length.saturating_sub(HEADER as u64).div_ceil(CHUNK as u64)
    }

    /// Reads the first chunk at or behind a place. Returns its place, `None` at the end of the file.
    pub(crate) fn load(&self, mut place: u64, loaded: &mut Loaded) -> io::Result<Option<u64>> {
        if place >= self.places() {
            return Ok(None);
        }
        let file = File::open(&self.path)?;
        while place < self.places() {
            let at = HEADER as u64 + place * CHUNK as u64;
            loaded.bytes.resize(CHUNK + CHUNK_HEADER, 0);
            let mut filled = 0;
            while let Some(rest) = loaded.bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match file.read_at(rest, at + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            loaded.bytes.truncate(filled);
            if let Some(header) = ChunkHeader::parse(&loaded.bytes) {
                loaded.header = header;
                loaded.next = loaded.bytes.get(CHUNK..).and_then(ChunkHeader::parse);
                return Ok(Some(place));
            }
            let damaged = loaded.bytes.iter().take(CHUNK_HEADER).any(|byte| *byte != 0);
            if damaged {
                // Not a chunk and not empty: reported as a chunk whose contents are unknown.
                loaded.header = ChunkHeader::default();
                loaded.bytes.clear();
                loaded.next = None;
                return Ok(Some(place));
            }
            if filled < CHUNK {
                break;
            }
            place += 1;
        }
        Ok(None)
    }

    /// Reads only the header at a place.
    fn header(&self, file: &File, place: u64) -> Option<ChunkHeader> {
        let mut bytes = [0; CHUNK_HEADER];
        file.read_exact_at(&mut bytes, HEADER as u64 + place * CHUNK as u64).ok()?;
        ChunkHeader::parse(&bytes)
    }

    /// Opening time of the first chunk at or behind a place.
    pub(crate) fn peek(&self, place: u64) -> Option<ChunkHeader> {
        let file = File::open(&self.path).ok()?;
        (place..self.places()).find_map(|place| self.header(&file, place))
    }
}

/// Where decoding stands in the threads of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    /// Next sequence number and last time of each thread.
    threads: Vec<(u32, i64)>,
    pub damage: Damage,
    /// Whether chunks of the thread are missing before the one that was accepted last.
    pub gap: bool,
    gaps: u64,
}

/// Which records of a chunk to deliver, by number.
pub(crate) type Slice = std::ops::Range<usize>;

/// Threads from this number are refused as damage, since each costs memory.
const MAX_THREADS: usize = 4096;

impl Position {
    /// Damage found so far, chunks that are gone included.
    pub fn damage(&self) -> Damage {
        Damage { chunks: self.damage.chunks.max(self.gaps), ..self.damage }
    }

    fn wrong(&mut self, loaded: &Loaded) {
        self.damage.chunks += 1;
        // An event takes at least three bytes.
        self.damage.events += u64::from(loaded.header.events).min(CHUNK as u64 / 3);
    }

    /// Whether the chunk can be decoded; damage is counted. To be called once a chunk.
    pub fn accept(&mut self, loaded: &Loaded) -> bool {
        let header = &loaded.header;
        let thread = usize::from(header.thread);
        let used = header.used as usize;
        let payload = loaded.payload();
        let sound = !loaded.bytes.is_empty()
            && thread < MAX_THREADS
            && used <= CHUNK - CHUNK_HEADER
            && (!header.is_closed() || (payload.len() == used && crc32(payload) == header.crc));
        if !sound {
            self.wrong(loaded);
            return false;
        }
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, (0, 0));
        }
        let Some((sequence, _)) = self.threads.get_mut(thread) else { return false };
        if header.sequence < *sequence {
            self.wrong(loaded);
            return false;
        }
        self.gap = header.sequence > *sequence;
        self.gaps += u64::from(header.sequence - *sequence);
        *sequence = header.sequence.saturating_add(1);
        true
    }

    /// Decodes a chunk that was accepted. `common` turns nanoseconds of the host into those that are
    /// wanted. Returns the number of records seen, which is less than the slice's end at the end.
    #[allow(clippy::too_many_arguments)]
    pub fn decode(
        &mut self,
        reader: &ChunkReader,
        loaded: &Loaded,
        slice: Slice,
        arena: &mut Arena,
        keep: bool,
        common: impl Fn(i64) -> i64,
        deliver: impl FnMut(&Moment, &Arena),
    ) -> usize {
        let header = &loaded.header;
        let thread = header.thread;
        let mut decoder = Decoder::new(loaded.payload(), header.base);
        let last = self.threads.get(usize::from(thread)).map_or(0, |thread| thread.1);
        let mut delivery = Delivery {
            slice,
            number: 0,
            thread,
            scale: Scale::new(header, reader.rate),
            last,
            arena,
            keep,
            common,
            deliver,
        };
        let mut ended = false;
        while delivery.number < delivery.slice.end && !ended {
            ended = !decoder.visit(&mut delivery);
        }
        if let Some(state) = self.threads.get_mut(usize::from(thread)) {
            state.1 = delivery.last;
        }
        if ended && decoder.error().is_some() {
            // A closed chunk with the right checksum decodes; only an open one can be cut off.
            self.damage.cut += 1;
        }
        delivery.number
    }
}

/// Turns the records of a chunk into moments.
struct Delivery<'d, Common, Deliver> {
    slice: Slice,
    /// Records so far.
    number: usize,
    thread: u16,
    scale: Scale,
    /// Time of the last record: that of a thread does not go back.
    last: i64,
    arena: &'d mut Arena,
    keep: bool,
    common: Common,
    deliver: Deliver,
}

impl<Common: Fn(i64) -> i64, Deliver: FnMut(&Moment, &Arena)> Delivery<'_, Common, Deliver> {
    /// Counts a record; whether it is to be delivered.
    #[inline(always)]
    fn count(&mut self) -> bool {
        self.number += 1;
        let wanted = self.number > self.slice.start;
        if wanted && !self.keep {
            self.arena.clear();
        }
        wanted
    }

    #[inline(always)]
    fn at(&mut self, ticks: u64) -> i64 {
        self.last = self.last.max(self.scale.ns(ticks));
        (self.common)(self.last)
    }
}

impl<'a, Common, Deliver> Records<'a> for Delivery<'_, Common, Deliver>
where
    Common: Fn(i64) -> i64,
    Deliver: FnMut(&Moment, &Arena),
{
    #[inline(always)]
    fn event(&mut self, event: Event<'a>) {
        if !self.count() {
            return;
        }
        let begin = self.at(event.begin);
        let end = if event.end == event.begin { begin } else { self.at(event.end) };
        let call = self.arena.call(&event);
        let off = event.signature.shape & shape::OFF != 0;
        let what = if off { What::Off(call) } else { What::Call(call) };
        (self.deliver)(&Moment { thread: self.thread, begin, end, what }, self.arena);
    }

    fn other(&mut self, record: Record<'a>) {
        if !self.count() {
            return;
        }
        if let Record::Repeat { event, times, inside } = record {
            let (begin, end) = (self.at(event.begin), self.at(event.end));
            let inside = nearest(inside as f64 * self.scale.rate).min(end - begin);
            let what = What::Repeat(Repeat { call: self.arena.call(&event), times, inside });
            (self.deliver)(&Moment { thread: self.thread, begin, end, what }, self.arena);
            return;
        }
        let begin = match record {
            Record::RegionBegin { at, .. }
            | Record::RegionEnd { at, .. }
            | Record::Switch { at, .. } => self.at(at),
            _ => (self.common)(self.last),
        };
        let arena = &mut *self.arena;
        let what = match record {
            Record::Event(_) | Record::Repeat { .. } => return,
            Record::More(requests) => What::More(extend(&mut arena.requests, requests)),
            Record::Communicator(def) => What::Communicator(def),
            Record::List { communicator, kind, offset, runs } => {
                let runs = extend(&mut arena.runs, runs);
                What::List { communicator, kind, offset, runs }
            }
            Record::Window { window, communicator } => What::Window { window, communicator },
            Record::RegionName { region, name } => {
                let name = extend(&mut arena.names, name.iter().copied());
                What::RegionName { region, name }
            }
            Record::RegionBegin { region, .. } => What::RegionBegin { region },
            Record::RegionEnd { region, .. } => What::RegionEnd { region },
            Record::Switch { on, .. } => What::Switch { on },
            Record::Lost { events } => What::Lost { events },
        };
        (self.deliver)(&Moment { thread: self.thread, begin, end: begin, what }, self.arena);
    }
}

impl Loaded {
    fn payload(&self) -> &[u8] {
        let body = self.bytes.get(CHUNK_HEADER..self.bytes.len().min(CHUNK)).unwrap_or(&[]);
        body.get(..self.header.used as usize).unwrap_or(body)
    }

    /// Opening time in ns on the clock of the host.
    pub fn opened(header: &ChunkHeader) -> i64 {
        i64::try_from(header.opened.ns).unwrap_or(FAR).min(FAR)
    }

    /// Closing time, or the last known one.
    pub fn closed(header: &ChunkHeader) -> i64 {
        i64::try_from(header.latest.ns).unwrap_or(FAR).min(FAR).max(Loaded::opened(header))
    }
}

/// Last moment in ns and number of threads of a file whose header does not tell, because its rank was
/// killed.
pub(crate) fn last_moment(reader: &ChunkReader) -> io::Result<(u64, u32)> {
    let file = File::open(&reader.path)?;
    let mut end = 0;
    let mut threads = 1;
    let mut loaded = Loaded::default();
    for place in 0..reader.places() {
        let Some(header) = reader.header(&file, place) else { continue };
        if usize::from(header.thread) >= MAX_THREADS {
            continue;
        }
        threads = threads.max(u32::from(header.thread) + 1);
        end = end.max(Loaded::closed(&header));
        if !header.is_closed() && reader.load(place, &mut loaded)? == Some(place) {
            let mut position = Position::default();
            let mut arena = Arena::default();
            position.decode(
                reader,
                &loaded,
                0..usize::MAX,
                &mut arena,
                false,
                |ns| ns,
                |moment, _| end = end.max(moment.end),
            );
        }
    }
    Ok((end.max(0) as u64, threads))
}
