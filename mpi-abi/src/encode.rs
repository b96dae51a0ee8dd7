//! From calls to bytes. One [`Encoder`] a thread; it keeps the state that the decoder of a chunk rebuilds.

use crate::bytes::{Writer, zigzag};
use crate::event::code;
use crate::{
    Actual, Call, CommunicatorDef, DICTIONARY, Entry, ListKind, RequestItem, Signature, present,
    shape,
};

/// Requests in one record; longer lists go on in records of their own, so that a record fits a chunk.
pub const MAX_REQUESTS: usize = 512;

/// Longest encoded list of sizes; longer ones are left out. Two of them fit a chunk.
const MAX_LIST: usize = 16 << 10;

/// Bytes of a [`Record::Repeat`](crate::Record::Repeat).
pub const REPEAT: usize = 14;
/// Tests that such a record repeats, at most.
pub const MAX_TESTS: usize = 16;

/// Slots of the index into the dictionary. A power of two.
const INDEX: usize = 1024;

/// The record does not fit into the rest of the chunk, whose used part is unchanged. The encoder must be
/// restarted with another chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where a list of sizes stands in the payload.
type Place = (u32, u32);

#[derive(Clone, Copy)]
struct Known {
    words: [u64; 4],
    bytes: u64,
    received: u64,
    sent: Place,
    got: Place,
}

const UNKNOWN: Known =
    Known { words: [u64::MAX; 4], bytes: 0, received: 0, sent: (0, 0), got: (0, 0) };

/// Encodes the records of one chunk after another. About 50 KiB, to be placed where it stays.
pub struct Encoder {
    used: usize,
    last: u64,
    next_begun: u64,
    next_done: u64,
    entries: u32,
    omitted: u64,
    index: [u16; INDEX],
    known: [Known; DICTIONARY],
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder at the start of a chunk whose base is 0 ticks.
    pub const fn new() -> Self {
        Encoder {
            used: 0,
            last: 0,
            next_begun: 0,
            next_done: 0,
            entries: 0,
            omitted: 0,
            index: [u16::MAX; INDEX],
            known: [UNKNOWN; DICTIONARY],
        }
    }

    /// Begins a chunk. Times are stored relative to `base`, which stands in the chunk header and must
    /// not be later than the first record.
    pub fn restart(&mut self, base: u64) {
        self.used = 0;
        self.last = base;
        self.next_begun = 0;
        self.next_done = 0;
        self.entries = 0;
        self.index = [u16::MAX; INDEX];
    }

    /// Bytes of the payload that are written.
    pub fn used(&self) -> usize {
        self.used
    }

    /// End of the last record in ticks.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Lists of sizes left out because they are too long, since the beginning.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Writes a call into the payload.
    #[inline]
    pub fn event(&mut self, payload: &mut [u8], entry: &Entry) -> Result<(), Full> {
        let signature = &entry.signature;
        let words = signature.words();
        let slot = slot(&words);
        let mut out = Writer::new(payload, self.used);
        if entry.error != 0 {
            out.number(code::ERROR);
            out.signed(i64::from(entry.error));
        }
        let number = usize::from(self.index[slot]);
        let number = match self.known.get_mut(number) {
            Some(known) if same(&known.words, &words) => {
                let head = code::EVENT + 2 * number as u64;
                if known.bytes == entry.bytes && known.received == entry.received {
                    out.number(head);
                } else {
                    out.number(head + 1);
                    if signature.present & present::BYTES != 0 {
                        out.signed(entry.bytes.wrapping_sub(known.bytes) as i64);
                        known.bytes = entry.bytes;
                    }
                    if signature.present & present::RECEIVED != 0 {
                        out.signed(entry.received.wrapping_sub(known.received) as i64);
                        known.received = entry.received;
                    }
                }
                number
            }
            _ => {
                let number = self.entries as usize % DICTIONARY;
                out.number(code::NEW);
                write_signature(&mut out, signature, entry.bytes, entry.received);
                self.entries = self.entries.wrapping_add(1);
                self.index[slot] = number as u16;
                self.known[number] = Known {
                    words,
                    bytes: entry.bytes,
                    received: entry.received,
                    sent: (0, 0),
                    got: (0, 0),
                };
                number
            }
        };
        let begin = entry.begin.max(self.last);
        let end = entry.end.max(begin);
        out.number(begin - self.last);
        out.number(end - begin);
        if signature.shape != 0 {
            self.parts(&mut out, entry, number);
        }
        self.used = out.end().ok_or(Full)?;
        self.last = end;
        Ok(())
    }

    #[inline]
    fn parts(&mut self, out: &mut Writer, entry: &Entry, number: usize) {
        let shape = entry.signature.shape;
        if shape & shape::BEGUN != 0 {
            out.signed(entry.begun.wrapping_sub(self.next_begun) as i64);
            self.next_begun = entry.begun.wrapping_add(1);
        }
        if shape & shape::OUTCOME != 0 {
            write_actual(out, &entry.actual, entry.found);
        }
        if shape & shape::REQUESTS != 0 {
            self.requests(out, entry.requests);
        }
        if shape & (shape::SENT | shape::RECEIVED) != 0
            && let Some(known) = self.known.get_mut(number)
        {
            if shape & shape::SENT != 0 {
                self.omitted += u64::from(!write_sizes(out, entry.sent, &mut known.sent));
            }
            if shape & shape::RECEIVED != 0 {
                self.omitted += u64::from(!write_sizes(out, entry.got, &mut known.got));
            }
        }
    }

    /// Runs of requests: `count << 4 | more << 3 | outcome`, then the first number relative to the one
    /// expected. Outcome 7 is a single completed receive with what it got.
    fn requests(&mut self, out: &mut Writer, requests: &[RequestItem]) {
        let mut rest = requests.get(..MAX_REQUESTS).unwrap_or(requests);
        if rest.is_empty() {
            out.number(0);
        }
        while let [first, following @ ..] = rest {
            let plain = first.actual == Actual::AS_POSTED;
            let mut count = 1u64;
            if plain {
                for next in following {
                    if next.outcome != first.outcome
                        || next.id != first.id.wrapping_add(count)
                        || next.actual != Actual::AS_POSTED
                    {
                        break;
                    }
                    count += 1;
                }
            }
            rest = rest.get(count as usize..).unwrap_or(&[]);
            let more = u64::from(!rest.is_empty());
            let outcome = if plain { first.outcome as u64 } else { 7 };
            out.number(count << 4 | more << 3 | outcome);
            out.signed(first.id.wrapping_sub(self.next_done) as i64);
            self.next_done = first.id.wrapping_add(count);
            if !plain {
                out.byte(first.outcome as u8);
                write_actual(out, &first.actual, true);
            }
        }
    }

    fn record(
        &mut self,
        payload: &mut [u8],
        write: impl FnOnce(&mut Writer, &mut Self),
    ) -> Result<(), Full> {
        let mut out = Writer::new(payload, self.used);
        write(&mut out, self);
        self.used = out.end().ok_or(Full)?;
        Ok(())
    }

    /// Writes further requests of the previous event, at most [`MAX_REQUESTS`].
    pub fn more(&mut self, payload: &mut [u8], requests: &[RequestItem]) -> Result<(), Full> {
        self.record(payload, |out, encoder| {
            out.number(code::MORE);
            encoder.requests(out, requests);
        })
    }

    /// Begins to count repetitions of the previous events, at most [`MAX_TESTS`] tests that failed, which are made
    /// again in the same order. The record's numbers grow where they are: three `u32`, little-endian, 0 so far. They
    /// are the repetitions, the ticks from the end of the last event to that of the last repetition, and the ticks
    /// inside of the calls. Returns their place.
    pub fn repeat(&mut self, payload: &mut [u8], tests: u8) -> Result<usize, Full> {
        let mut place = 0;
        self.record(payload, |out, _| {
            out.number(code::REPEAT);
            out.byte(tests);
            place = out.at();
            out.slice(&[0; 12]);
        })?;
        Ok(place)
    }

    /// The last of the repetitions ended this many ticks after the record before.
    pub fn repeated(&mut self, ticks: u32) {
        self.last += u64::from(ticks);
    }

    /// Writes the definition of a communicator.
    pub fn communicator(&mut self, payload: &mut [u8], def: &CommunicatorDef) -> Result<(), Full> {
        self.record(payload, |out, _| {
            out.number(code::COMMUNICATOR);
            out.number(u64::from(def.number));
            out.number(def.key);
            out.number(def.parent.map_or(0, |parent| u64::from(parent) + 1));
            out.signed(i64::from(def.rank));
            out.number(u64::from(def.size));
            out.number(u64::from(def.remote_size));
            out.byte(def.topology);
        })
    }

    /// Writes as much of a list as fits into `limit` bytes (at least one number) and returns how many
    /// numbers that is.
    pub fn list(
        &mut self,
        payload: &mut [u8],
        communicator: u32,
        kind: ListKind,
        offset: u32,
        values: &[i32],
    ) -> Result<usize, Full> {
        let mut written = 0;
        // Without the numbers in sight the decoder cannot know the length of a part.
        const MAX_RUNS: usize = 1024;
        self.record(payload, |out, _| {
            out.number(code::LIST);
            out.number(u64::from(communicator));
            out.byte(kind as u8);
            out.number(u64::from(offset));
            let mut runs = 0;
            let mut rest = values;
            while runs < MAX_RUNS && !rest.is_empty() {
                rest = rest.get(run_of(rest).1..).unwrap_or(&[]);
                runs += 1;
            }
            written = values.len() - rest.len();
            out.number(runs as u64);
            let mut rest = values.get(..written).unwrap_or(values);
            let mut previous = 0i64;
            while let [first, ..] = rest {
                let (step, count) = run_of(rest);
                out.signed(i64::from(*first) - previous);
                out.signed(step);
                out.number(count as u64);
                previous = i64::from(*first) + step * (count as i64 - 1);
                rest = rest.get(count..).unwrap_or(&[]);
            }
        })?;
        Ok(written)
    }

    /// Writes the definition of a window.
    pub fn window(&mut self, payload: &mut [u8], window: u32, comm: u32) -> Result<(), Full> {
        self.record(payload, |out, _| {
            out.number(code::WINDOW);
            out.number(u64::from(window));
            out.number(u64::from(comm));
        })
    }

    /// Writes the name of a region.
    pub fn region_name(
        &mut self,
        payload: &mut [u8],
        region: u32,
        name: &[u8],
    ) -> Result<(), Full> {
        self.record(payload, |out, _| {
            out.number(code::REGION_NAME);
            out.number(u64::from(region));
            out.number(name.len() as u64);
            out.slice(name);
        })
    }

    /// Writes the beginning or the end of a region.
    pub fn region(
        &mut self,
        payload: &mut [u8],
        region: u32,
        begins: bool,
        at: u64,
    ) -> Result<(), Full> {
        let code = if begins { code::REGION_BEGIN } else { code::REGION_END };
        let at = at.max(self.last);
        self.record(payload, |out, encoder| {
            out.number(code);
            out.number(at - encoder.last);
            out.number(u64::from(region));
        })?;
        self.last = at;
        Ok(())
    }

    /// Writes that recording was switched.
    pub fn switch(&mut self, payload: &mut [u8], on: bool, at: u64) -> Result<(), Full> {
        let at = at.max(self.last);
        self.record(payload, |out, encoder| {
            out.number(if on { code::ON } else { code::OFF });
            out.number(at - encoder.last);
        })?;
        self.last = at;
        Ok(())
    }

    /// Writes that events are missing here.
    pub fn lost(&mut self, payload: &mut [u8], events: u64) -> Result<(), Full> {
        self.record(payload, |out, _| {
            out.number(code::LOST);
            out.number(events);
        })
    }
}

/// Compares word by word: the new words are in registers, and a vector comparison would have to wait until they
/// are stored.
#[inline(always)]
fn same(known: &[u64; 4], new: &[u64; 4]) -> bool {
    known[0] == new[0] && known[1] == new[1] && known[2] == new[2] && known[3] == new[3]
}

#[inline(always)]
fn slot(words: &[u64; 4]) -> usize {
    let [a, b, c, d] = *words;
    let mixed = (a ^ b.rotate_left(23) ^ c.rotate_left(41) ^ d.rotate_left(11))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - INDEX.trailing_zeros())) as usize & (INDEX - 1)
}

#[inline(never)]
fn write_signature(out: &mut Writer, signature: &Signature, bytes: u64, received: u64) {
    let Signature { call, large, present, shape, op, object, peer, tag, source, source_tag } =
        *signature;
    out.number(u64::from(Call::number(call)) << 1 | u64::from(large));
    out.byte(present);
    out.byte(shape);
    for (bit, value) in [
        (present::OBJECT, u64::from(object)),
        (present::PEER, zigzag(i64::from(peer))),
        (present::TAG, zigzag(i64::from(tag))),
        (present::SOURCE, zigzag(i64::from(source))),
        (present::SOURCE_TAG, zigzag(i64::from(source_tag))),
        (present::OP, u64::from(op)),
        (present::BYTES, bytes),
        (present::RECEIVED, received),
    ] {
        if present & bit != 0 {
            out.number(value);
        }
    }
}

#[inline(always)]
fn write_actual(out: &mut Writer, actual: &Actual, found: bool) {
    let mask = u8::from(actual.source.is_some())
        | u8::from(actual.tag.is_some()) << 1
        | u8::from(actual.bytes.is_some()) << 2
        | u8::from(!found) << 3;
    out.byte(mask);
    if mask & 7 != 0 {
        if let Some(source) = actual.source {
            out.signed(i64::from(source));
        }
        if let Some(tag) = actual.tag {
            out.signed(i64::from(tag));
        }
        if let Some(bytes) = actual.bytes {
            out.number(bytes);
        }
    }
}

/// 0: none, 1: as in the last event with this signature, 2: follows, 3: left out.
/// Returns whether the list is in the payload.
fn write_sizes(out: &mut Writer, sizes: &[u64], last: &mut Place) -> bool {
    if sizes.is_empty() {
        out.byte(0);
        return true;
    }
    // The list is written first to see its length; then both are moved into place by writing again.
    let head = out.at();
    out.byte(2);
    let length_at = out.at();
    // Three bytes of length, so that the list needs to be written only once.
    out.slice(&[0; 3]);
    let start = out.at();
    let mut previous = 0u64;
    let mut rest = sizes;
    while let [first, following @ ..] = rest {
        let repeats = following.iter().take_while(|size| *size == first).count();
        let delta = zigzag(first.wrapping_sub(previous) as i64);
        // A change of more than 2^62 bytes does not happen; it would lose its highest bit.
        out.number(delta << 1 | u64::from(repeats > 0));
        if repeats > 0 {
            out.number(repeats as u64);
        }
        previous = *first;
        rest = following.get(repeats..).unwrap_or(&[]);
        if out.at() - start > MAX_LIST {
            out.rewind(head);
            out.byte(3);
            return false;
        }
    }
    let end = out.at();
    let length = end - start;
    let (last_start, last_end) = (last.0 as usize, last.1 as usize);
    if last_end - last_start == length
        && out.written(last_start, last_end) == out.written(start, end)
    {
        out.rewind(head);
        out.byte(1);
        return true;
    }
    out.rewind(length_at);
    out.slice(&[length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8]);
    out.rewind(end);
    *last = (start as u32, end as u32);
    true
}

/// Step and length of the run at the beginning of a list that is not empty.
fn run_of(values: &[i32]) -> (i64, usize) {
    let [first, second, ..] = values else { return (0, values.len()) };
    let step = i64::from(*second) - i64::from(*first);
    if i32::try_from(step).is_err() {
        return (0, 1);
    }
    let mut count = 2;
    while let (Some(a), Some(b)) = (values.get(count - 1), values.get(count))
        && i64::from(*b) - i64::from(*a) == step
    {
        count += 1;
    }
    (step, count)
}
