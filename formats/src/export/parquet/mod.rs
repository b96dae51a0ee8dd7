//! The recording as a Parquet table, for data frames and SQL.
//!
//! One row per part of a detour, and one per record outside detours. Time that no record explains is a
//! row of class `outside_kernel`, so `sum(cost_ns)` over a `detour` is its length, and over a source its
//! total cost. The file has one page per column and row group, which keeps the writer small: its only
//! dependency is zstd, which recordings need anyway.

mod column;
mod file;
mod thrift;

use std::collections::HashMap;
use std::io::{Read, Seek, Write};

use self::column::{Column, Kind, Shape};
use self::file::File;
use super::{ExportError, lanes};
use trace::Reader;
use trace::{Block, Class, Detour, Lane, LaneId, Record, RecordFlags, Wait};

/// Rows that are collected before they are written: about 20 MiB.
const ROWS_PER_GROUP: usize = 1 << 18;

const fn shape(name: &'static str, kind: Kind) -> Shape {
    Shape { name, kind, optional: false }
}

const fn optional(name: &'static str, kind: Kind) -> Shape {
    Shape { name, kind, optional: true }
}

static SHAPES: [Shape; 21] = [
    shape("lane", Kind::Text),
    optional("cpu", Kind::I32),
    // Numbered within the lane.
    optional("detour", Kind::I64),
    optional("detour_start_ns", Kind::I64),
    optional("detour_length_ns", Kind::I64),
    shape("start_ns", Kind::I64),
    shape("gross_ns", Kind::I64),
    shape("net_ns", Kind::I64),
    shape("cost_ns", Kind::I64),
    shape("depth", Kind::I32),
    shape("class", Kind::Text),
    shape("name", Kind::Text),
    optional("unit", Kind::Text),
    optional("detail", Kind::Text),
    shape("continued", Kind::Bool),
    shape("point", Kind::Bool),
    shape("cut_short", Kind::Bool),
    shape("baseline", Kind::Bool),
    // The same interruption is on another lane already: count it only once.
    shape("repeated", Kind::Bool),
    // Property of the detour: why a thread waited for a CPU.
    optional("wait", Kind::Text),
    optional("policy", Kind::Text),
];

pub(super) fn parquet<R: Read + Seek>(
    reader: &Reader<R>,
    lane: Option<LaneId>,
    out: &mut impl Write,
) -> Result<u64, ExportError> {
    let mut table = Table::new(reader, File::start(out, &SHAPES)?);
    let blocks = match lane {
        Some(lane) => reader.blocks_of(lane),
        None => reader.blocks(),
    };
    for block in blocks {
        let block = block?;
        table.block(reader, &block)?;
    }
    table.flush()?;
    let manifest = reader.manifest();
    let about = [
        ("detour.host", manifest.host.clone()),
        ("detour.kernel", manifest.kernel.clone()),
        ("detour.started_unix_s", manifest.started_unix_s.to_string()),
        ("detour.started_monotonic_ns", manifest.started_monotonic_ns.to_string()),
        ("detour.manifest", serde_json::to_string(manifest).unwrap_or_default()),
    ];
    let rows = table.total;
    table.file.finish(&about)?;
    Ok(rows)
}

/// A source's strings, by their numbers in the columns.
#[derive(Clone, Copy)]
struct Named {
    class: u32,
    name: u32,
    unit: Option<u32>,
    detail: Option<u32>,
    policy: Option<u32>,
}

/// The detour a row is part of.
#[derive(Clone, Copy)]
struct Within {
    number: u64,
    detour: Detour,
}

struct Table<'a, W> {
    file: File<'a, W>,
    columns: Vec<Column>,
    sources: Vec<Named>,
    outside: Named,
    /// Detours of each lane so far.
    detours: HashMap<LaneId, u64>,
    rows: usize,
    total: u64,
}

impl<'a, W: Write> Table<'a, W> {
    fn new<R>(reader: &Reader<R>, file: File<'a, W>) -> Self {
        let mut columns: Vec<Column> = SHAPES.iter().map(Column::new).collect();
        let mut number = |name: &str, text: &str| {
            let index = SHAPES.iter().position(|shape| shape.name == name);
            match index.and_then(|index| columns.get_mut(index)) {
                Some(Column::Text(texts, _)) => texts.number(text),
                _ => 0,
            }
        };
        let sources = reader.sources().iter().map(|source| Named {
            class: number("class", source.class.name()),
            name: number("name", &source.name),
            unit: source.unit.as_ref().map(|unit| number("unit", unit)),
            detail: source.detail.as_ref().map(|detail| number("detail", detail)),
            policy: source.policy.as_ref().map(|policy| number("policy", policy)),
        });
        let sources = sources.collect();
        let outside = Class::OutsideKernel.name();
        let (class, name) = (number("class", outside), number("name", outside));
        let outside = Named { class, name, unit: None, detail: None, policy: None };
        let detours = HashMap::new();
        Table { file, columns, sources, outside, detours, rows: 0, total: 0 }
    }

    fn block<R>(&mut self, reader: &Reader<R>, block: &Block) -> Result<(), ExportError> {
        let lane = lanes::name(reader, block.lane);
        let cpu = match reader.lanes().get(block.lane.0 as usize) {
            Some(Lane::Cpu { cpu }) => Some(*cpu as i32),
            _ => None,
        };
        let in_detour = |record: &&Record| record.flags.contains(RecordFlags::IN_DETOUR);
        for (detour, records) in block.composed() {
            let count = self.detours.entry(block.lane).or_default();
            let within = Within { number: *count, detour: *detour };
            *count += 1;
            if detour.outside_ns > 0 || records.is_empty() {
                self.outside(&lane, cpu, within)?;
            }
            for record in records {
                self.record(&lane, Some(within), record)?;
            }
        }
        for record in block.records.iter().filter(|record| !in_detour(record)) {
            self.record(&lane, None, record)?;
        }
        Ok(())
    }

    fn outside(&mut self, lane: &str, cpu: Option<i32>, within: Within) -> Result<(), ExportError> {
        let detour = within.detour;
        let times = [detour.start_ns, detour.outside_ns, detour.outside_ns, detour.outside_ns];
        self.row(lane, cpu, Some(within), times, 0, self.outside, RecordFlags::default())
    }

    fn record(
        &mut self,
        lane: &str,
        within: Option<Within>,
        record: &Record,
    ) -> Result<(), ExportError> {
        // The reader guarantees that every record's source is in the table.
        let source = self.sources.get(record.source.0 as usize).copied().unwrap_or(self.outside);
        let times = [record.start_ns, record.gross_ns, record.net_ns, record.cost_ns];
        let cpu = Some(i32::from(record.cpu));
        self.row(lane, cpu, within, times, record.depth, source, record.flags)
    }

    #[expect(clippy::too_many_arguments, reason = "a row has as many columns")]
    fn row(
        &mut self,
        lane: &str,
        cpu: Option<i32>,
        within: Option<Within>,
        times: [u64; 4],
        depth: u8,
        source: Named,
        flags: RecordFlags,
    ) -> Result<(), ExportError> {
        let detour = within.map(|within| {
            [within.number, within.detour.start_ns, within.detour.len_ns].map(|n| n as i64)
        });
        let mut cells = self.columns.iter_mut();
        let mut next = || cells.next();
        text(next(), TextCell::New(lane));
        small(next(), cpu);
        for index in 0..3 {
            number(next(), detour.map(|detour| detour[index]));
        }
        for time in times {
            number(next(), Some(time as i64));
        }
        small(next(), Some(i32::from(depth)));
        text(next(), TextCell::Known(source.class));
        text(next(), TextCell::Known(source.name));
        for missing_or_known in [source.unit, source.detail] {
            text(next(), missing_or_known.map_or(TextCell::Missing, TextCell::Known));
        }
        for flag in [
            RecordFlags::CONTINUED,
            RecordFlags::POINT,
            RecordFlags::CUT_SHORT,
            RecordFlags::BASELINE,
            RecordFlags::REPEATED,
        ] {
            if let Some(Column::Bool(values)) = next() {
                values.push(flags.contains(flag));
            }
        }
        let wait = within.map(|within| within.detour.wait).filter(|wait| *wait != Wait::None);
        text(next(), wait.map_or(TextCell::Missing, |wait| TextCell::New(wait.name())));
        text(next(), source.policy.map_or(TextCell::Missing, TextCell::Known));
        self.rows += 1;
        self.total += 1;
        if self.rows == ROWS_PER_GROUP {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        if self.rows > 0 {
            self.file.group(&self.columns, self.rows)?;
            self.columns.iter_mut().for_each(Column::clear);
            self.rows = 0;
        }
        Ok(())
    }
}

enum TextCell<'a> {
    New(&'a str),
    Known(u32),
    Missing,
}

fn text(column: Option<&mut Column>, cell: TextCell<'_>) {
    let Some(Column::Text(texts, present)) = column else { return };
    let value = match cell {
        TextCell::New(text) => Some(texts.number(text)),
        TextCell::Known(number) => Some(number),
        TextCell::Missing => None,
    };
    present.say(value.is_some());
    if let Some(value) = value {
        texts.push(value);
    }
}

fn small(column: Option<&mut Column>, value: Option<i32>) {
    let Some(Column::I32(values, present)) = column else { return };
    present.say(value.is_some());
    values.extend(value);
}

fn number(column: Option<&mut Column>, value: Option<i64>) {
    let Some(Column::I64(values, present)) = column else { return };
    present.say(value.is_some());
    values.extend(value);
}
