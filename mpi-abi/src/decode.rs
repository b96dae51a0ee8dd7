//! From bytes to calls. A [`Decoder`] reads one chunk; nothing in the bytes can make it panic or run on:
//! every record takes at least one byte, and lists are given as runs.

use crate::bytes::Reader;
use crate::event::code;
use crate::{
    Actual, Call, CommunicatorDef, DICTIONARY, Event, ListKind, MAX_TESTS, Outcome, Record,
    RequestRun, Run, Signature, present, shape,
};

/// The payload is damaged from this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the record in the payload.
    pub at: usize,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        write!(f, "record at byte {} of the chunk does not decode", self.at)
    }
}

impl core::error::Error for DecodeError {}

/// Takes records as they are decoded. An event is larger than the registers: returned as a value, it would be read
/// back from memory in other pieces than it was written in, which waits for the writes.
pub trait Records<'a> {
    /// A call.
    fn event(&mut self, event: Event<'a>);
    /// Any other record.
    fn other(&mut self, record: Record<'a>);
}

/// Keeps the record.
struct Last<'a>(Option<Record<'a>>);

impl<'a> Records<'a> for Last<'a> {
    fn event(&mut self, event: Event<'a>) {
        self.0 = Some(Record::Event(event));
    }

    fn other(&mut self, record: Record<'a>) {
        self.0 = Some(record);
    }
}

#[derive(Clone, Copy)]
struct Known<'a> {
    signature: Signature,
    bytes: u64,
    received: u64,
    sent: Option<Sizes<'a>>,
    got: Option<Sizes<'a>>,
}

const UNKNOWN: Known =
    Known { signature: Signature::of(Call::Send), bytes: 0, received: 0, sent: None, got: None };

/// What is needed to repeat an event.
#[derive(Clone, Copy)]
struct Tested<'a> {
    number: usize,
    found: bool,
    requests: Requests<'a>,
}

/// Repetitions of several tests, handed over one test after the other.
#[derive(Clone, Copy, Default)]
struct Repeat {
    tests: usize,
    times: u64,
    begin: u64,
    ticks: u64,
    inside: u64,
    /// Tests handed over, and their repetitions.
    place: usize,
    before: u64,
}

/// Reads the records of one chunk. About 50 KiB; [`Decoder::restart`] uses it for the next chunk.
pub struct Decoder<'a> {
    reader: Reader<'a>,
    last: u64,
    next_begun: u64,
    next_done: u64,
    entries: usize,
    next_entry: usize,
    failed: Option<DecodeError>,
    /// The last events, if they can be repeated, and how many.
    tested: [Tested<'a>; MAX_TESTS],
    tests: usize,
    repeat: Repeat,
    known: [Known<'a>; DICTIONARY],
}

impl<'a> Decoder<'a> {
    /// A decoder for a chunk's payload, cut to the used bytes, and the chunk's base.
    pub fn new(payload: &'a [u8], base: u64) -> Self {
        Decoder {
            reader: Reader::new(payload),
            last: base,
            next_begun: 0,
            next_done: 0,
            entries: 0,
            next_entry: 0,
            failed: None,
            tested: [Tested { number: 0, found: false, requests: Requests::none(0) }; MAX_TESTS],
            tests: 0,
            repeat: Repeat::default(),
            known: [UNKNOWN; DICTIONARY],
        }
    }

    /// Goes on with another chunk.
    pub fn restart(&mut self, payload: &'a [u8], base: u64) {
        self.reader = Reader::new(payload);
        self.last = base;
        self.next_begun = 0;
        self.next_done = 0;
        self.entries = 0;
        self.next_entry = 0;
        self.failed = None;
        self.tests = 0;
        self.repeat = Repeat::default();
    }

    /// Where decoding stopped because of damage; `None` while it goes well.
    pub fn error(&self) -> Option<DecodeError> {
        self.failed
    }

    /// The next record; `None` at the end and from the first damaged record on.
    pub fn next_record(&mut self) -> Option<Record<'a>> {
        let mut last = Last(None);
        while last.0.is_none() && self.visit(&mut last) {}
        last.0
    }

    /// Hands over the next record; false at the end and from the first damaged record on.
    #[inline(always)]
    pub fn visit(&mut self, to: &mut impl Records<'a>) -> bool {
        if self.repeat.tests > 0 {
            if let Some(record) = self.next_repeat() {
                to.other(record);
            }
            return true;
        }
        if self.failed.is_some() || self.reader.is_empty() {
            return false;
        }
        let at = self.reader.at();
        match self.record(to) {
            Some(true) => true,
            Some(false) => {
                self.reader = Reader::new(&[]);
                false
            }
            None => {
                self.failed = Some(DecodeError { at });
                false
            }
        }
    }

    /// `None` is damage, false the end.
    #[inline(always)]
    fn record(&mut self, to: &mut impl Records<'a>) -> Option<bool> {
        let mut head = self.reader.number()?;
        let mut error = 0;
        if head == code::ERROR {
            error = self.reader.int()?;
            head = self.reader.number()?;
            if head != code::NEW && head < code::EVENT {
                return None;
            }
        }
        let number = match head {
            code::END => return Some(false),
            code::NEW => self.new_entry()?,
            code::EVENT.. => {
                let number = usize::try_from(head - code::EVENT).ok()?;
                let (number, changed) = (number >> 1, number & 1 == 1);
                if number >= self.entries {
                    return None;
                }
                if changed {
                    let known = self.known.get_mut(number)?;
                    if known.signature.present & present::BYTES != 0 {
                        known.bytes = known.bytes.wrapping_add_signed(self.reader.signed()?);
                    }
                    if known.signature.present & present::RECEIVED != 0 {
                        known.received = known.received.wrapping_add_signed(self.reader.signed()?);
                    }
                }
                number
            }
            code::REPEAT => {
                self.repeat()?;
                return Some(true);
            }
            _ => {
                self.tests = 0;
                to.other(self.other(head)?);
                return Some(true);
            }
        };
        self.event(number, error, to)?;
        Some(true)
    }

    /// A record that is not an event.
    fn other(&mut self, head: u64) -> Option<Record<'a>> {
        Some(match head {
            code::MORE => Record::More(self.requests()?),
            code::COMMUNICATOR => Record::Communicator(CommunicatorDef {
                number: self.reader.small()?,
                key: self.reader.number()?,
                parent: match self.reader.number()? {
                    0 => None,
                    parent => Some(u32::try_from(parent - 1).ok()?),
                },
                rank: self.reader.int()?,
                size: self.reader.small()?,
                remote_size: self.reader.small()?,
                topology: self.reader.byte()?,
            }),
            code::LIST => {
                let communicator = self.reader.small()?;
                let kind = ListKind::from_number(self.reader.byte()?)?;
                let offset = self.reader.small()?;
                let left = self.reader.small()?;
                let runs = Runs { left, previous: 0, reader: self.reader };
                let mut check = runs;
                for _ in 0..left {
                    check.step()?;
                }
                self.reader = check.reader;
                Record::List { communicator, kind, offset, runs }
            }
            code::WINDOW => {
                Record::Window { window: self.reader.small()?, communicator: self.reader.small()? }
            }
            code::REGION_NAME => {
                let region = self.reader.small()?;
                let length = self.reader.small()?;
                Record::RegionName { region, name: self.reader.slice(length)? }
            }
            code::REGION_BEGIN => {
                let at = self.moment()?;
                Record::RegionBegin { at, region: self.reader.small()? }
            }
            code::REGION_END => {
                let at = self.moment()?;
                Record::RegionEnd { at, region: self.reader.small()? }
            }
            code::OFF => Record::Switch { on: false, at: self.moment()? },
            code::ON => Record::Switch { on: true, at: self.moment()? },
            code::LOST => Record::Lost { events: self.reader.number()? },
            _ => return None,
        })
    }

    /// Reads how often the previous events were repeated.
    #[cold]
    fn repeat(&mut self) -> Option<()> {
        let tests = usize::from(self.reader.byte()?);
        let [times, ticks, inside] =
            [self.reader.word()?, self.reader.word()?, self.reader.word()?];
        if tests == 0 || tests > self.tests.min(MAX_TESTS) {
            return None;
        }
        let begin = self.last;
        self.last = begin.checked_add(u64::from(ticks))?;
        self.repeat = Repeat {
            tests,
            times: u64::from(times),
            begin,
            ticks: u64::from(ticks),
            inside: u64::from(inside.min(ticks)),
            place: 0,
            before: 0,
        };
        Some(())
    }

    /// The repetitions of the next test of a [`Record::Repeat`].
    #[cold]
    fn next_repeat(&mut self) -> Option<Record<'a>> {
        let Repeat { tests, times, begin, ticks, inside, place, before } = self.repeat;
        let own = times / tests as u64 + u64::from((place as u64) < times % tests as u64);
        if own == 0 {
            self.repeat = Repeat::default();
            self.tests = 0;
            return None;
        }
        self.repeat.place += 1;
        self.repeat.before += own;
        if self.repeat.place == tests {
            self.repeat.tests = 0;
        }
        let first = self.tests.checked_sub(tests)?;
        if self.repeat.tests == 0 {
            self.tests = 0;
        }
        let Tested { number, found, requests } = *self.tested.get((first + place) % MAX_TESTS)?;
        let &Known { signature, bytes, received, .. } = self.known.get(number)?;
        let part = |of: u64, tests: u64| of * tests / times;
        let event = Event {
            signature,
            begin: begin + part(ticks, before),
            end: begin + part(ticks, before + own),
            error: 0,
            bytes: (signature.present & present::BYTES != 0).then_some(bytes),
            received: (signature.present & present::RECEIVED != 0).then_some(received),
            begun: None,
            actual: Actual::AS_POSTED,
            found,
            requests,
            sent: None,
            got: None,
        };
        let inside = part(inside, before + own) - part(inside, before);
        let inside = inside.min(event.end - event.begin);
        Some(Record::Repeat { event, times: own as u32, inside })
    }

    fn moment(&mut self) -> Option<u64> {
        self.last = self.last.checked_add(self.reader.number()?)?;
        Some(self.last)
    }

    fn new_entry(&mut self) -> Option<usize> {
        let reader = &mut self.reader;
        let call: u16 = reader.small()?;
        let mut signature = Signature::of(Call::from_number(call >> 1)?);
        signature.large = call & 1 == 1;
        signature.present = reader.byte()?;
        signature.shape = reader.byte()?;
        let has = |bit| signature.present & bit != 0;
        if has(present::OBJECT) {
            signature.object = reader.small()?;
        }
        if has(present::PEER) {
            signature.peer = reader.int()?;
        }
        if has(present::TAG) {
            signature.tag = reader.int()?;
        }
        if has(present::SOURCE) {
            signature.source = reader.int()?;
        }
        if has(present::SOURCE_TAG) {
            signature.source_tag = reader.int()?;
        }
        if has(present::OP) {
            signature.op = reader.small()?;
        }
        let bytes = if has(present::BYTES) { reader.number()? } else { 0 };
        let received = if has(present::RECEIVED) { reader.number()? } else { 0 };
        let number = self.next_entry;
        *self.known.get_mut(number)? = Known { signature, bytes, received, sent: None, got: None };
        self.next_entry = (number + 1) % DICTIONARY;
        self.entries = self.entries.max(number + 1);
        Some(number)
    }

    #[inline(always)]
    fn event(&mut self, number: usize, error: i32, to: &mut impl Records<'a>) -> Option<()> {
        let &Known { signature, bytes, received, .. } = self.known.get(number)?;
        let begin = self.last.checked_add(self.reader.number()?)?;
        let end = begin.checked_add(self.reader.number()?)?;
        self.last = end;
        let part = |bit| signature.shape & bit != 0;
        let begun = if part(shape::BEGUN) {
            let begun = self.next_begun.wrapping_add_signed(self.reader.signed()?);
            self.next_begun = begun.wrapping_add(1);
            Some(begun)
        } else {
            None
        };
        let (actual, found) = if part(shape::OUTCOME) {
            read_actual(&mut self.reader)?
        } else {
            (Actual::AS_POSTED, true)
        };
        let requests =
            if part(shape::REQUESTS) { self.requests()? } else { Requests::none(self.next_done) };
        let tests = signature.shape & !(shape::OUTCOME | shape::REQUESTS) == 0 && error == 0;
        if tests && signature.shape != 0 {
            if let Some(tested) = self.tested.get_mut(self.tests % MAX_TESTS) {
                *tested = Tested { number, found, requests };
            }
            self.tests += 1;
        } else {
            self.tests = 0;
        }
        let (mut sent, mut got) = (None, None);
        if part(shape::SENT) {
            let known = &mut self.known.get_mut(number)?.sent;
            sent = read_sizes(&mut self.reader, *known)?;
            *known = sent.or(*known);
        }
        if part(shape::RECEIVED) {
            let known = &mut self.known.get_mut(number)?.got;
            got = read_sizes(&mut self.reader, *known)?;
            *known = got.or(*known);
        }
        to.event(Event {
            signature,
            begin,
            end,
            error,
            bytes: (signature.present & present::BYTES != 0).then_some(bytes),
            received: (signature.present & present::RECEIVED != 0).then_some(received),
            begun,
            actual,
            found,
            requests,
            sent,
            got,
        });
        Some(())
    }

    #[inline]
    fn requests(&mut self) -> Option<Requests<'a>> {
        let requests = Requests { reader: self.reader, next: self.next_done, ended: false };
        let mut check = requests;
        while !check.ended {
            check.step()?;
        }
        self.reader = check.reader;
        self.next_done = check.next;
        Some(requests)
    }
}

fn read_actual(reader: &mut Reader) -> Option<(Actual, bool)> {
    let mask = reader.byte()?;
    if mask & !15 != 0 {
        return None;
    }
    let mut actual = Actual::AS_POSTED;
    if mask & 1 != 0 {
        actual.source = Some(reader.int()?);
    }
    if mask & 2 != 0 {
        actual.tag = Some(reader.int()?);
    }
    if mask & 4 != 0 {
        actual.bytes = Some(reader.number()?);
    }
    Some((actual, mask & 8 == 0))
}

/// The outer `None` is damage, the inner one no list.
fn read_sizes<'a>(reader: &mut Reader<'a>, last: Option<Sizes<'a>>) -> Option<Option<Sizes<'a>>> {
    Some(match reader.byte()? {
        0 | 3 => None,
        1 => Some(last?),
        2 => {
            let length = reader.small()?;
            let sizes = Sizes { reader: Reader::new(reader.slice(length)?), previous: 0 };
            let mut check = sizes;
            while !check.reader.is_empty() {
                check.step()?;
            }
            Some(sizes)
        }
        _ => return None,
    })
}

/// The requests of a call, as runs of consecutive numbers.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    reader: Reader<'a>,
    next: u64,
    ended: bool,
}

impl Requests<'_> {
    const fn none(next: u64) -> Self {
        Requests { reader: Reader::new(&[]), next, ended: true }
    }

    /// `None` is damage; the inner `None` an empty list.
    fn step(&mut self) -> Option<Option<RequestRun>> {
        let head = self.reader.number()?;
        let count = u32::try_from(head >> 4).ok().filter(|count| *count <= 1 << 16)?;
        self.ended = head & 8 == 0;
        if count == 0 {
            return if self.ended { Some(None) } else { None };
        }
        let first = self.next.wrapping_add_signed(self.reader.signed()?);
        self.next = first.wrapping_add(u64::from(count));
        let (outcome, actual) = match (head & 7) as u8 {
            7 => {
                let outcome = Outcome::from_number(self.reader.byte()?)?;
                (outcome, read_actual(&mut self.reader)?.0)
            }
            outcome => (Outcome::from_number(outcome)?, Actual::AS_POSTED),
        };
        Some(Some(RequestRun { first, count, outcome, actual }))
    }
}

impl Iterator for Requests<'_> {
    type Item = RequestRun;

    fn next(&mut self) -> Option<RequestRun> {
        if self.ended {
            return None;
        }
        let run = self.step().flatten();
        self.ended |= run.is_none();
        run
    }
}

/// The numbers of a list, as runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    reader: Reader<'a>,
    left: u32,
    previous: i64,
}

impl Runs<'_> {
    fn step(&mut self) -> Option<Run> {
        let first = i32::try_from(self.previous.checked_add(self.reader.signed()?)?).ok()?;
        let step = self.reader.int()?;
        let count: u32 = self.reader.small()?;
        let last = i64::from(step)
            .checked_mul(i64::from(count.checked_sub(1)?))?
            .checked_add(i64::from(first))?;
        i32::try_from(last).ok()?;
        self.previous = last;
        self.left = self.left.saturating_sub(1);
        Some(Run { first, step, count })
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        self.step()
    }
}

/// The sizes of a list in bytes, as pairs of a size and how often it follows.
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'a> {
    reader: Reader<'a>,
    previous: u64,
}

impl Sizes<'_> {
    fn step(&mut self) -> Option<(u64, u32)> {
        let head = self.reader.number()?;
        let delta = head >> 1;
        let delta = (delta >> 1) as i64 ^ -((delta & 1) as i64);
        self.previous = self.previous.wrapping_add_signed(delta);
        let count = if head & 1 == 1 { self.reader.small::<u32>()?.checked_add(1)? } else { 1 };
        Some((self.previous, count))
    }
}

impl Iterator for Sizes<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        if self.reader.is_empty() {
            return None;
        }
        self.step()
    }
}
