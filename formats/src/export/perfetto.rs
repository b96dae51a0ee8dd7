//! The recording as a Perfetto trace in the native format, which ui.perfetto.dev opens.
//!
//! Every lane is a track; below it one for its detours, and per class a group with one track for each
//! source. Packets are written as blocks are read and not kept, so the size of a trace does not matter;
//! neither does their order across lanes, since the importer sorts by time. Times are CLOCK_MONOTONIC of
//! the node, so that an ftrace recording opened together with this one is on the same time axis.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek, Write};
use std::rc::Rc;

use super::protobuf::Message;
use super::{ExportError, lanes};
use trace::Reader;
use trace::{Block, Class, Detour, LaneId, Record, RecordFlags, Wait};

/// Field numbers of the Perfetto messages used here.
mod field {
    pub(super) const TRACE_PACKET: u64 = 1;

    pub(super) const CLOCK_SNAPSHOT: u64 = 6;
    pub(super) const TIMESTAMP: u64 = 8;
    pub(super) const SEQUENCE_ID: u64 = 10;
    pub(super) const TRACK_EVENT: u64 = 11;
    pub(super) const INTERNED_DATA: u64 = 12;
    pub(super) const SEQUENCE_FLAGS: u64 = 13;
    pub(super) const PACKET_DEFAULTS: u64 = 59;
    pub(super) const TRACK_DESCRIPTOR: u64 = 60;

    pub(super) const CLOCK: u64 = 1;
    pub(super) const CLOCK_ID: u64 = 1;
    pub(super) const CLOCK_TIME: u64 = 2;
    pub(super) const PRIMARY_CLOCK: u64 = 2;
    pub(super) const DEFAULT_CLOCK_ID: u64 = 58;

    pub(super) const EVENT_CATEGORIES: u64 = 1;
    pub(super) const EVENT_NAMES: u64 = 2;
    pub(super) const ANNOTATION_NAMES: u64 = 3;
    pub(super) const INTERNED_ID: u64 = 1;
    pub(super) const INTERNED_NAME: u64 = 2;

    pub(super) const TRACK_UUID: u64 = 1;
    pub(super) const TRACK_NAME: u64 = 2;
    pub(super) const TRACK_PARENT: u64 = 5;
    pub(super) const TRACK_CHILD_ORDER: u64 = 11;
    pub(super) const TRACK_RANK: u64 = 12;

    pub(super) const EVENT_CATEGORY_ID: u64 = 3;
    pub(super) const EVENT_ANNOTATION: u64 = 4;
    pub(super) const EVENT_TYPE: u64 = 9;
    pub(super) const EVENT_NAME_ID: u64 = 10;
    pub(super) const EVENT_TRACK: u64 = 11;

    pub(super) const ANNOTATION_NAME_ID: u64 = 1;
    pub(super) const ANNOTATION_NUMBER: u64 = 3;
    pub(super) const ANNOTATION_TEXT: u64 = 6;
}

const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
/// The importer keeps interned names per sequence; there is only one here.
const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// Orders the children of a track by rank.
const EXPLICIT_ORDER: u64 = 3;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;

/// Annotations of a slice, by interned id.
const ANNOTATIONS: [&str; 7] =
    ["net_ns", "cost_ns", "outside_ns", "records", "wait", "policy", "repeated"];
const NET: u64 = 1;
const COST: u64 = 2;
const OUTSIDE: u64 = 3;
const RECORDS: u64 = 4;
const WAIT: u64 = 5;
const POLICY: u64 = 6;
const REPEATED: u64 = 7;

/// An annotation value.
#[derive(Clone, Copy)]
enum Beside<'a> {
    Number(u64, u64),
    Text(u64, &'a str),
}

/// Interned id of the name for unexplained time; that of source n is 2 + n.
const OUTSIDE_NAME: u64 = 1;

pub(super) fn perfetto<R: Read + Seek>(
    reader: &Reader<R>,
    lane: Option<LaneId>,
    out: &mut impl Write,
) -> Result<u64, ExportError> {
    let mut export = Export::new(reader, out);
    export.beginning(reader)?;
    let blocks = match lane {
        Some(lane) => reader.blocks_of(lane),
        None => reader.blocks(),
    };
    for block in blocks {
        let block = block?;
        export.lane(reader, block.lane)?;
        export.block(&block)?;
    }
    Ok(export.rows)
}

/// The track of a source's slices.
struct Place {
    class: Class,
    /// Sources that differ only in their detail share a track.
    row: u64,
    name: String,
    policy: Option<Rc<str>>,
}

struct Export<'a, W> {
    out: &'a mut W,
    packet: Message,
    file: Message,
    /// By source.
    places: Vec<Place>,
    /// Tracks that have been described.
    known: HashSet<u64>,
    /// Time 0 of the trace on CLOCK_MONOTONIC.
    epoch_ns: u64,
    rows: u64,
}

impl<'a, W: Write> Export<'a, W> {
    fn new<R>(reader: &Reader<R>, out: &'a mut W) -> Self {
        let mut rows = HashMap::new();
        let places = reader.sources().iter().map(|source| {
            let next = rows.len() as u64;
            let row = *rows.entry((source.class, &source.name, &source.unit)).or_insert(next);
            let name = match &source.unit {
                Some(unit) => format!("{} ({unit})", source.name),
                None => source.name.clone(),
            };
            let policy = source.policy.as_deref().map(Rc::from);
            Place { class: source.class, row, name, policy }
        });
        Export {
            out,
            packet: Message::default(),
            file: Message::default(),
            places: places.collect(),
            known: HashSet::new(),
            epoch_ns: reader.manifest().started_monotonic_ns,
            rows: 0,
        }
    }

    /// Clocks and interned names, which all later packets refer to.
    fn beginning<R>(&mut self, reader: &Reader<R>) -> Result<(), ExportError> {
        let (monotonic, unix_s) = (self.epoch_ns, reader.manifest().started_unix_s);
        self.packet.message(field::CLOCK_SNAPSHOT, |snapshot| {
            for (clock, time) in [(MONOTONIC, monotonic), (REALTIME, (unix_s * 1e9) as u64)] {
                snapshot.message(field::CLOCK, |entry| {
                    entry.number(field::CLOCK_ID, clock);
                    entry.number(field::CLOCK_TIME, time);
                });
            }
            snapshot.number(field::PRIMARY_CLOCK, MONOTONIC);
        });
        self.send()?;
        self.packet.number(field::SEQUENCE_ID, SEQUENCE);
        self.packet.number(field::SEQUENCE_FLAGS, STATE_CLEARED);
        self.packet.message(field::PACKET_DEFAULTS, |defaults| {
            defaults.number(field::DEFAULT_CLOCK_ID, MONOTONIC);
        });
        self.packet.message(field::INTERNED_DATA, |data| {
            for class in Class::ALL {
                intern(data, field::EVENT_CATEGORIES, category(class), class.name());
            }
            intern(data, field::EVENT_NAMES, OUTSIDE_NAME, "outside the kernel");
            for (id, source) in (OUTSIDE_NAME + 1..).zip(reader.sources()) {
                let name = match &source.detail {
                    Some(detail) => format!("{}: {detail}", source.name),
                    None => source.name.clone(),
                };
                intern(data, field::EVENT_NAMES, id, &name);
            }
            for (id, name) in (1..).zip(ANNOTATIONS) {
                intern(data, field::ANNOTATION_NAMES, id, name);
            }
        });
        self.send()
    }

    fn lane<R>(&mut self, reader: &Reader<R>, lane: LaneId) -> Result<(), ExportError> {
        let name = lanes::name(reader, lane);
        self.track(lane_track(lane), None, &name, u64::from(lane.0))?;
        self.track(detour_track(lane), Some(lane_track(lane)), "detours", 0)
    }

    fn block(&mut self, block: &Block) -> Result<(), ExportError> {
        for (detour, records) in block.composed() {
            self.detour(block.lane, detour, records)?;
        }
        for record in &block.records {
            self.record(block.lane, record)?;
        }
        Ok(())
    }

    /// A detour is named after its largest part.
    fn detour(
        &mut self,
        lane: LaneId,
        detour: &Detour,
        records: &[Record],
    ) -> Result<(), ExportError> {
        let most = records.iter().max_by_key(|record| record.cost_ns);
        let most = most.filter(|record| record.cost_ns >= detour.outside_ns);
        let name = most.map_or(OUTSIDE_NAME, name_of);
        let class = most.and_then(|record| self.places.get(record.source.0 as usize));
        let class = class.map_or(Class::OutsideKernel, |place| place.class);
        let annotations = [
            Beside::Number(OUTSIDE, detour.outside_ns),
            Beside::Number(RECORDS, u64::from(detour.records)),
            Beside::Text(WAIT, detour.wait.name()),
        ];
        // Only threads have waits.
        let shown = if detour.wait == Wait::None { &annotations[..2] } else { &annotations };
        let track = detour_track(lane);
        self.slice(track, name, class, detour.start_ns, detour.len_ns, shown)
    }

    fn record(&mut self, lane: LaneId, record: &Record) -> Result<(), ExportError> {
        // A sum over many records is at no particular time.
        if record.is_sum() {
            return Ok(());
        }
        // The reader guarantees that every record's source is in the table.
        let Some(place) = self.places.get(record.source.0 as usize) else { return Ok(()) };
        let (class, policy) = (place.class, place.policy.clone());
        let (group, track) = (class_track(lane, class), source_track(lane, place.row));
        if !self.known.contains(&track) {
            let name = place.name.clone();
            self.track(group, Some(lane_track(lane)), class.name(), 1 + class as u64)?;
            self.track(track, Some(group), &name, place_rank(track))?;
        }
        let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
        let mut shown = vec![Beside::Number(NET, record.net_ns)];
        if in_detour {
            shown.push(Beside::Number(COST, record.cost_ns));
        }
        shown.extend(policy.as_deref().map(|policy| Beside::Text(POLICY, policy)));
        if record.flags.contains(RecordFlags::REPEATED) {
            shown.push(Beside::Number(REPEATED, 1));
        }
        self.slice(track, name_of(record), class, record.start_ns, record.gross_ns, &shown)
    }

    /// Describes a track once.
    fn track(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        name: &str,
        rank: u64,
    ) -> Result<(), ExportError> {
        if !self.known.insert(uuid) {
            return Ok(());
        }
        self.packet.number(field::SEQUENCE_ID, SEQUENCE);
        self.packet.message(field::TRACK_DESCRIPTOR, |track| {
            track.number(field::TRACK_UUID, uuid);
            track.text(field::TRACK_NAME, name);
            if let Some(parent) = parent {
                track.number(field::TRACK_PARENT, parent);
            }
            track.number(field::TRACK_CHILD_ORDER, EXPLICIT_ORDER);
            track.number(field::TRACK_RANK, rank);
        });
        self.send()
    }

    fn slice(
        &mut self,
        track: u64,
        name: u64,
        class: Class,
        start_ns: u64,
        len_ns: u64,
        annotations: &[Beside<'_>],
    ) -> Result<(), ExportError> {
        // Only the entry was seen: an instant, not a slice.
        let kind = if len_ns == 0 { INSTANT } else { SLICE_BEGIN };
        self.event(start_ns, kind, track, |event| {
            event.number(field::EVENT_NAME_ID, name);
            event.number(field::EVENT_CATEGORY_ID, category(class));
            for &beside in annotations {
                event.message(field::EVENT_ANNOTATION, |annotation| match beside {
                    Beside::Number(name, value) => {
                        annotation.number(field::ANNOTATION_NAME_ID, name);
                        annotation.number(field::ANNOTATION_NUMBER, value);
                    }
                    Beside::Text(name, text) => {
                        annotation.number(field::ANNOTATION_NAME_ID, name);
                        annotation.text(field::ANNOTATION_TEXT, text);
                    }
                });
            }
        })?;
        if kind == SLICE_BEGIN {
            self.event(start_ns.saturating_add(len_ns), SLICE_END, track, |_| {})?;
        }
        self.rows += 1;
        Ok(())
    }

    fn event(
        &mut self,
        at_ns: u64,
        kind: u64,
        track: u64,
        more: impl FnOnce(&mut Message),
    ) -> Result<(), ExportError> {
        self.packet.number(field::TIMESTAMP, self.epoch_ns.saturating_add(at_ns));
        self.packet.number(field::SEQUENCE_ID, SEQUENCE);
        self.packet.number(field::SEQUENCE_FLAGS, NEEDS_STATE);
        self.packet.message(field::TRACK_EVENT, |event| {
            event.number(field::EVENT_TYPE, kind);
            event.number(field::EVENT_TRACK, track);
            more(event);
        });
        self.send()
    }

    /// A trace file is a message with a single repeated field: the packets.
    fn send(&mut self) -> Result<(), ExportError> {
        let packet = &self.packet;
        self.file.message(field::TRACE_PACKET, |file| file.append(packet));
        self.out.write_all(self.file.as_bytes())?;
        self.file.clear();
        self.packet.clear();
        Ok(())
    }
}

fn intern(data: &mut Message, kind: u64, id: u64, name: &str) {
    data.message(kind, |entry| {
        entry.number(field::INTERNED_ID, id);
        entry.text(field::INTERNED_NAME, name);
    });
}

fn name_of(record: &Record) -> u64 {
    OUTSIDE_NAME + 1 + u64::from(record.source.0)
}

fn category(class: Class) -> u64 {
    1 + class as u64
}

/// Track ids: the lane, then within it the lane itself, its detours, its classes, its sources.
fn lane_track(lane: LaneId) -> u64 {
    (u64::from(lane.0) + 1) << 32
}

fn detour_track(lane: LaneId) -> u64 {
    lane_track(lane) | 1
}

fn class_track(lane: LaneId, class: Class) -> u64 {
    lane_track(lane) | (2 + class as u64)
}

fn source_track(lane: LaneId, row: u64) -> u64 {
    lane_track(lane) | (64 + row)
}

/// Sources of a class are in the order of the table.
fn place_rank(track: u64) -> u64 {
    track & 0x7fff_ffff
}
