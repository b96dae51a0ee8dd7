//! The payload of an events frame: one block, column by column.
//!
//! Values of one column are similar, so they compress well, and each column stores only what cannot be
//! predicted from the others: a start as the distance from the previous start, a cost as its difference
//! from the net time, a detour's start as its distance from its first record, a detour's length as its
//! difference from the sum of its records and its outside part (normally zero).
//!
//! Layout: twelve `u32` column lengths (top bit set: one value for all rows), then the columns.

use crate::format::v1::{MAX_EVENTS, MAX_RAW, Summary};
use crate::format::varint::{Column, Values};
use crate::model::{Block, Detour, LaneId, Record, RecordFlags, SourceId};

const RECORD_COLUMNS: usize = 8;
const COLUMNS: usize = 12;
const CONSTANT: u32 = 1 << 31;

/// The columns by name, in storage order.
struct Named<'a, C> {
    start: &'a mut C,
    net: &'a mut C,
    nested: &'a mut C,
    extra: &'a mut C,
    source: &'a mut C,
    cpu: &'a mut C,
    depth: &'a mut C,
    flags: &'a mut C,
    d_start: &'a mut C,
    d_rest: &'a mut C,
    d_outside: &'a mut C,
    d_records: &'a mut C,
}

impl<'a, C> Named<'a, C> {
    #[rustfmt::skip]
    fn of(columns: &'a mut [C; COLUMNS]) -> Named<'a, C> {
        let [
            start, net, nested, extra, source, cpu, depth, flags,
            d_start, d_rest, d_outside, d_records,
        ] = columns;
        Named {
            start, net, nested, extra, source, cpu, depth, flags,
            d_start, d_rest, d_outside, d_records,
        }
    }
}

/// Encodes blocks as payloads. Keeps its buffers: after the first block, encoding allocates nothing.
#[derive(Default)]
pub(crate) struct Encoder {
    columns: [Column; COLUMNS],
    raw: Vec<u8>,
}

pub(crate) struct Encoded<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) summary: Summary,
    /// The largest source id, if there are records.
    pub(crate) max_source: Option<u32>,
}

impl Encoder {
    /// The caller has checked the block's size and consistency.
    pub(crate) fn encode(&mut self, block: &Block) -> Encoded<'_> {
        let (of_records, of_detours) = self.columns.split_at_mut(RECORD_COLUMNS);
        of_records.iter_mut().for_each(|column| column.begin(block.records.len()));
        of_detours.iter_mut().for_each(|column| column.begin(block.detours.len()));
        let to = Named::of(&mut self.columns);
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        let mut max_source = None;
        let mut previous = 0_u64;
        for record in &block.records {
            to.start.put_signed(record.start_ns.wrapping_sub(previous) as i64);
            to.net.put(record.net_ns);
            to.nested.put(record.gross_ns.wrapping_sub(record.net_ns));
            to.extra.put_signed(record.cost_ns.wrapping_sub(record.net_ns) as i64);
            to.source.put_small(u64::from(record.source.0));
            to.cpu.put_small(u64::from(record.cpu));
            to.depth.put_small(u64::from(record.depth));
            to.flags.put_small(u64::from(record.flags.0));
            previous = record.start_ns;
            first_ns = first_ns.min(record.start_ns);
            last_ns = last_ns.max(record.start_ns.saturating_add(record.gross_ns));
            max_source = max_source.max(Some(record.source.0));
        }
        let mut expected = 0_u64;
        for (detour, own) in block.composed() {
            let (from, cost) = foretold(expected, own);
            to.d_start.put_signed(detour.start_ns.wrapping_sub(from) as i64);
            let explained = cost.wrapping_add(detour.outside_ns);
            to.d_rest.put_signed(detour.len_ns.wrapping_sub(explained) as i64);
            to.d_outside.put(detour.outside_ns);
            to.d_records.put(u64::from(detour.records));
            expected = detour.start_ns.wrapping_add(detour.len_ns);
            first_ns = first_ns.min(detour.start_ns);
            last_ns = last_ns.max(detour.start_ns.saturating_add(detour.len_ns));
        }
        self.assemble(block);
        let summary = Summary {
            lane: block.lane.0,
            first_ns: first_ns.min(last_ns),
            last_ns,
            detours: block.detours.len() as u32,
            records: block.records.len() as u32,
        };
        Encoded { raw: &self.raw, summary, max_source }
    }

    fn assemble(&mut self, block: &Block) {
        let mut kept = [0; COLUMNS];
        self.raw.clear();
        for (i, (column, kept)) in self.columns.iter().zip(&mut kept).enumerate() {
            let rows = if i < RECORD_COLUMNS { block.records.len() } else { block.detours.len() };
            let bytes = column.as_slice();
            let one = shared(bytes, rows);
            *kept = one.unwrap_or(bytes.len());
            let constant = if one.is_some() { CONSTANT } else { 0 };
            self.raw.extend_from_slice(&(*kept as u32 | constant).to_le_bytes());
        }
        for (column, kept) in self.columns.iter().zip(kept) {
            let bytes = column.as_slice();
            self.raw.extend_from_slice(bytes.get(..kept).unwrap_or(bytes));
        }
    }
}

/// The length of one value if all `rows` values of a column are the same.
fn shared(bytes: &[u8], rows: usize) -> Option<usize> {
    if rows < 2 || !bytes.len().is_multiple_of(rows) {
        return None;
    }
    let first = bytes.get(..bytes.len() / rows)?;
    let (last, others) = first.split_last()?;
    let one_value = last & 0x80 == 0 && others.iter().all(|b| b & 0x80 != 0);
    // Nearly every constant column consists of single bytes, and comparing those is cheap.
    let same = match others {
        [] => bytes.iter().all(|b| b == last),
        _ => bytes.chunks_exact(first.len()).all(|chunk| chunk == first),
    };
    (one_value && same).then_some(first.len())
}

/// The predicted start of a detour, and the cost of its records.
fn foretold(expected: u64, own: &[Record]) -> (u64, u64) {
    let from = own.first().map_or(expected, |record| record.start_ns);
    (from, own.iter().fold(0, |sum, record| sum.wrapping_add(record.cost_ns)))
}

/// Decodes a payload; the error describes what is wrong with it.
pub(crate) fn decode(raw: &[u8], summary: &Summary) -> Result<Block, &'static str> {
    let (records, detours) = (summary.records as usize, summary.detours as usize);
    if records + detours > MAX_EVENTS || raw.len() > MAX_RAW {
        return Err("more events than a block can hold");
    }
    let mut columns = split(raw).ok_or("column lengths do not match the payload")?;
    let column = Named::of(&mut columns);
    let mut block = Block {
        lane: LaneId(summary.lane),
        detours: Vec::with_capacity(detours),
        records: Vec::with_capacity(records),
    };
    let mut row = |previous: u64| -> Option<Record> {
        let net_ns = column.net.next()?;
        Some(Record {
            start_ns: previous.wrapping_add(column.start.next_signed()? as u64),
            gross_ns: column.nested.next()?.wrapping_add(net_ns),
            net_ns,
            cost_ns: net_ns.wrapping_add(column.extra.next_signed()? as u64),
            source: SourceId(u32::try_from(column.source.next()?).ok()?),
            cpu: u16::try_from(column.cpu.next()?).ok()?,
            depth: u8::try_from(column.depth.next()?).ok()?,
            flags: RecordFlags(u8::try_from(column.flags.next()?).ok()?),
        })
    };
    let mut previous = 0;
    for _ in 0..records {
        let record = row(previous).ok_or("a record is truncated or out of range")?;
        previous = record.start_ns;
        block.records.push(record);
    }
    let counts = (0..detours).map(|_| column.d_records.next().and_then(|n| u32::try_from(n).ok()));
    let mut detour = |previous: u64, own: &[Record], records: u32| -> Option<Detour> {
        let (from, cost) = foretold(previous, own);
        let outside_ns = column.d_outside.next()?;
        let explained = cost.wrapping_add(outside_ns);
        Some(Detour {
            start_ns: from.wrapping_add(column.d_start.next_signed()? as u64),
            len_ns: explained.wrapping_add(column.d_rest.next_signed()? as u64),
            outside_ns,
            records,
            ..Detour::default()
        })
    };
    let mut owned = OwnRecords::new(&block.records);
    let mut expected = 0_u64;
    for count in counts {
        let count = count.ok_or("a detour's record count is truncated or out of range")?;
        let own = owned.take(count)?;
        let one = detour(expected, own, count).ok_or("a detour is truncated or out of range")?;
        expected = one.start_ns.wrapping_add(one.len_ns);
        block.detours.push(one);
    }
    owned.finish()?;
    columns.iter().all(Values::exhausted).then_some(block).ok_or("trailing bytes")
}

fn split(raw: &[u8]) -> Option<[Values<'_>; COLUMNS]> {
    let (mut table, mut rest) = raw.split_at_checked(COLUMNS * 4)?;
    let mut next = || {
        let (length, tail) = table.split_first_chunk::<4>()?;
        table = tail;
        let length = u32::from_le_bytes(*length);
        let (bytes, tail) = rest.split_at_checked((length & !CONSTANT) as usize)?;
        rest = tail;
        Values::new(bytes, length & CONSTANT != 0)
    };
    let columns = [
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
        next()?,
    ];
    rest.is_empty().then_some(columns)
}

/// Returns the records of one detour after the other, and checks that they are contiguous and that every
/// flagged record belongs to a detour.
pub(crate) struct OwnRecords<'a> {
    rest: &'a [Record],
}

impl<'a> OwnRecords<'a> {
    pub(crate) fn new(records: &'a [Record]) -> Self {
        OwnRecords { rest: records }
    }

    fn skip_others(&mut self) {
        let outside = |r: &Record| !r.flags.contains(RecordFlags::IN_DETOUR);
        let others = self.rest.iter().take_while(|r| outside(r)).count();
        self.rest = self.rest.get(others..).unwrap_or_default();
    }

    pub(crate) fn take(&mut self, count: u32) -> Result<&'a [Record], &'static str> {
        if count == 0 {
            return Ok(&[]);
        }
        self.skip_others();
        let (own, rest) = self
            .rest
            .split_at_checked(count as usize)
            .ok_or("a detour has more records than the block holds")?;
        if !own.iter().all(|r| r.flags.contains(RecordFlags::IN_DETOUR)) {
            return Err("a detour counts records that are not flagged as part of one");
        }
        self.rest = rest;
        Ok(own)
    }

    pub(crate) fn finish(mut self) -> Result<(), &'static str> {
        self.skip_others();
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err("records are flagged as part of a detour, but no detour counts them")
        }
    }
}

/// Whether the detours' record counts and the records' flags agree.
pub(crate) fn check(block: &Block) -> Result<(), &'static str> {
    let mut owned = OwnRecords::new(&block.records);
    for detour in &block.detours {
        owned.take(detour.records)?;
    }
    owned.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        let record = |i: u64, flags| Record {
            start_ns: i * 4_000_000 + (i * 7919) % 1000,
            gross_ns: 1500 + i % 300,
            net_ns: 1500 + i % 300,
            cost_ns: 1700 + i % 301,
            source: SourceId((i % 5) as u32),
            cpu: 300,
            depth: 1,
            flags: RecordFlags(flags),
        };
        let records: Vec<Record> = (0..40).map(|i| record(i, u8::from(i % 4 != 3))).collect();
        let detour = |i: u64| Detour {
            start_ns: i * 16_000_000,
            len_ns: 9000,
            outside_ns: i % 3,
            records: if i == 3 { 0 } else { 3 },
            ..Detour::default()
        };
        let mut detours: Vec<Detour> = (0..11).map(detour).collect();
        detours[10].records = 3;
        Block { lane: LaneId(2), detours, records }
    }

    #[test]
    fn a_column_of_one_value_is_stored_once() {
        assert_eq!(shared(&[5, 5, 5], 3), Some(1));
        assert_eq!(shared(&[0xac, 0x02, 0xac, 0x02], 2), Some(2));
        assert_eq!(shared(&[5, 5, 6], 3), None);
        // Equal chunks that are not single values: 1, then 129.
        assert_eq!(shared(&[0x01, 0x81, 0x01], 2), None);
        assert_eq!(shared(&[5], 1), None);
        assert_eq!(shared(&[], 0), None);
    }

    #[test]
    fn a_payload_comes_back_and_no_changed_byte_of_it_makes_the_decoder_panic() {
        let block = block();
        assert_eq!(check(&block), Ok(()));
        let mut encoder = Encoder::default();
        let encoded = encoder.encode(&block);
        assert_eq!(encoded.max_source, Some(4));
        assert_eq!(decode(encoded.raw, &encoded.summary).as_ref(), Ok(&block));
        for at in 0..encoded.raw.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = encoded.raw.to_vec();
                changed[at] = value;
                if let Ok(other) = decode(&changed, &encoded.summary) {
                    assert_eq!(check(&other), Ok(()));
                }
            }
            assert!(decode(&encoded.raw[..at], &encoded.summary).is_err());
        }
        for counts in [(0, 0), (1, 1), (11, 41), (12, 40), (u32::MAX, u32::MAX), (1 << 17, 1 << 17)]
        {
            let summary = Summary { detours: counts.0, records: counts.1, ..encoded.summary };
            assert!(decode(encoded.raw, &summary).is_err(), "{counts:?}");
        }
    }

    #[test]
    fn detours_and_flags_that_disagree_are_refused() {
        let mut more = block();
        more.detours[0].records = 4;
        assert!(check(&more).is_err());
        let mut fewer = block();
        fewer.detours[10].records = 2;
        assert!(check(&fewer).is_err());
        let mut beyond = block();
        beyond.detours[10].records = u32::MAX;
        assert!(check(&beyond).is_err());
    }
}
