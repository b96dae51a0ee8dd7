//! The line-based formats: netgauge, LogGOPSim, CSV, JSON.

use std::io::{Read, Seek, Write};

use super::ExportError;
use super::lanes::{self, Detours, Union};
use trace::Mode;
use trace::{Blocks, Reader};
use trace::{LaneId, RecordFlags, Source, Wait};

type Rows = Result<u64, ExportError>;

/// Times are absolute on the recording's clock, so that lanes can be compared.
pub(super) fn netgauge<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Rows {
    let mut rows = 0;
    for &lane in all {
        let (host, kernel) = lanes::system(reader, lane);
        writeln!(out, "# Benchmark Method: selfish")?;
        writeln!(out, "# Sysname : Linux")?;
        writeln!(out, "# Nodename: {}", one_line(host))?;
        writeln!(out, "# Release : {}", one_line(kernel))?;
        writeln!(out, "# Machine : {}", one_line(&reader.manifest().arch))?;
        let (from, to) = lanes::span(reader, lane);
        writeln!(out, "# Lane : {}", one_line(&lanes::name(reader, lane)))?;
        writeln!(out, "# Watched [ns]: {from} {to}")?;
        writeln!(out, "# Selfish Benchmark")?;
        if let Some(settings) = lanes::settings(reader, lane) {
            let pct = 100.0 * settings.threshold_ns / settings.t_min_ns;
            writeln!(out, "# Minimal cycle length [ns]: {:.6} ", settings.t_min_ns)?;
            writeln!(out, "# Threshold: [% minimal cycle length]: {pct} ")?;
        }
        writeln!(out, "# ")?;
        writeln!(out, "# Time [ns]\tselfish duration [ns]")?;
        let mut lost = 0.0;
        for detour in Detours::of(reader, lane) {
            let detour = detour?;
            writeln!(out, "{}.00\t{}.00", detour.start_ns, detour.len_ns)?;
            lost += detour.len_ns as f64;
            rows += 1;
        }
        let span = (to - from) as f64;
        let base = lanes::wanted(reader, lane).map_or(span, |wanted| (wanted as f64).max(lost));
        let pct = if base > 0.0 { 100.0 * lost / base } else { 0.0 };
        writeln!(out, "# CPU overhead due to noise: {pct:.2}%")?;
        writeln!(out, "# Measurement period: {:.9} s", span / 1e9)?;
    }
    Ok(rows)
}

pub(super) fn loggopsim<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Rows {
    let names: Vec<String> = all.iter().map(|&lane| lanes::name(reader, lane)).collect();
    writeln!(out, "# host: {}", one_line(&reader.manifest().host))?;
    writeln!(out, "# lanes: {}", one_line(&names.join(" ")))?;
    // With several lanes, from the first moment that any of them was watched to the last.
    let spans = || all.iter().map(|&lane| lanes::span(reader, lane));
    let (from, to) = (spans().map(|s| s.0).min(), spans().map(|s| s.1).max());
    writeln!(out, "# Watched [ns]: {} {}", from.unwrap_or(0), to.unwrap_or(0))?;
    if all.len() > 1 {
        writeln!(out, "# the time that any of these lanes lost")?;
    }
    writeln!(out, "# start [ns]\tduration [ns]")?;
    let mut union = Union::of(reader, all)?;
    let mut rows = 0;
    while let Some((start, length)) = union.next()? {
        writeln!(out, "{start}\t{length}")?;
        rows += 1;
    }
    Ok(rows)
}

pub(super) fn csv<R: Read + Seek>(
    reader: &Reader<R>,
    lane: Option<LaneId>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Rows {
    writeln!(out, "lane,start_ns,length_ns,outside_ns,records,wait,watched_from_ns,watched_to_ns")?;
    let mut rows = 0;
    // The first row of a lane contains its window; a lane without detours has a row just for that.
    let mut new = vec![true; reader.lanes().len()];
    let mut watched = |lane: LaneId| {
        let new = new.get_mut(lane.0 as usize)?;
        std::mem::take(new).then(|| {
            let (from, to) = lanes::span(reader, lane);
            format!("{from},{to}")
        })
    };
    for block in blocks(reader, lane) {
        let block = block?;
        let name = lane_cell(reader, block.lane);
        for d in &block.detours {
            let (start, length, outside) = (d.start_ns, d.len_ns, d.outside_ns);
            let wait = d.wait.name();
            let watched = watched(block.lane);
            let watched = watched.as_deref().unwrap_or(",");
            writeln!(out, "{name},{start},{length},{outside},{},{wait},{watched}", d.records)?;
            rows += 1;
        }
    }
    for &lane in all {
        if let Some(watched) = watched(lane) {
            writeln!(out, "{},,,,,,{watched}", lane_cell(reader, lane))?;
        }
    }
    Ok(rows)
}

pub(super) fn records_csv<R: Read + Seek>(
    reader: &Reader<R>,
    lane: Option<LaneId>,
    out: &mut impl Write,
) -> Rows {
    writeln!(
        out,
        "lane,start_ns,gross_ns,net_ns,cost_ns,cpu,depth,flags,class,name,unit,detail,policy,\
         repeated,wait"
    )?;
    let sources: Vec<String> = reader.sources().iter().map(source_cells).collect();
    let mut rows = 0;
    for block in blocks(reader, lane) {
        let block = block?;
        let name = lane_cell(reader, block.lane);
        for (r, detour) in block.records_with_detours() {
            let source = sources.get(r.source.0 as usize).map_or(",,,,", String::as_str);
            let repeated = r.flags.contains(RecordFlags::REPEATED);
            let wait = detour.map_or(Wait::None, |detour| detour.wait).name();
            writeln!(
                out,
                "{name},{},{},{},{},{},{},{},{source},{repeated},{wait}",
                r.start_ns, r.gross_ns, r.net_ns, r.cost_ns, r.cpu, r.depth, r.flags.0
            )?;
            rows += 1;
        }
    }
    Ok(rows)
}

/// The format that [`crate::import`] reads back.
pub(super) fn json<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Rows {
    let mut rows = 0;
    write!(out, "{{\"runs\":[")?;
    for (n, &lane) in all.iter().enumerate() {
        let settings = lanes::settings(reader, lane);
        let (from, to) = lanes::span(reader, lane);
        let (host, kernel) = lanes::system(reader, lane);
        let header = serde_json::json!({
            "host": one_line(host),
            "kernel": one_line(kernel),
            "lane": one_line(&lanes::name(reader, lane)),
        });
        let t_min = serde_json::json!(settings.map(|s| s.t_min_ns));
        let threshold = serde_json::json!(settings.map(|s| s.threshold_ns));
        let comma = if n > 0 { "," } else { "" };
        write!(out, "{comma}\n{{\"header\":{header},\"t_min_ns\":{t_min},")?;
        write!(out, "\"threshold_ns\":{threshold},\"from_ns\":{from},")?;
        write!(out, "\"span_ns\":{},\"detours\":[", to - from)?;
        let mut comma = "";
        for detour in Detours::of(reader, lane) {
            let detour = detour?;
            write!(out, "{comma}\n[{},{}]", detour.start_ns, detour.len_ns)?;
            comma = ",";
            rows += 1;
        }
        write!(out, "]")?;
        if reader.manifest().mode == Mode::Program {
            waits(reader, lane, out)?;
        }
        write!(out, "}}")?;
    }
    writeln!(out, "]}}")?;
    Ok(rows)
}

/// Why a thread of a program waited, for each of its detours in order. A separate list, so that a detour
/// stays a pair of numbers for existing readers.
fn waits<R: Read + Seek>(
    reader: &Reader<R>,
    lane: LaneId,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    write!(out, ",\"waits\":[")?;
    let mut comma = "";
    for detour in Detours::of(reader, lane) {
        write!(out, "{comma}\n\"{}\"", detour?.wait.name())?;
        comma = ",";
    }
    write!(out, "]")?;
    Ok(())
}

fn blocks<R: Read + Seek>(reader: &Reader<R>, lane: Option<LaneId>) -> Blocks<'_, R> {
    match lane {
        Some(lane) => reader.blocks_of(lane),
        None => reader.blocks(),
    }
}

fn source_cells(source: &Source) -> String {
    let unit = source.unit.as_deref().unwrap_or_default();
    let detail = source.detail.as_deref().unwrap_or_default();
    let class = source.class.name();
    let policy = source.policy.as_deref().unwrap_or_default();
    let [name, unit, detail, policy] = [&source.name, unit, detail, policy].map(quoted);
    format!("{class},{name},{unit},{detail},{policy}")
}

/// A lane's name as a CSV cell.
pub fn lane_cell<R>(reader: &Reader<R>, lane: LaneId) -> String {
    quoted(&lanes::name(reader, lane))
}

/// A CSV cell. Names come from processes, so they must not end the cell or the line, nor be interpreted
/// as a formula by a spreadsheet.
fn quoted(cell: &str) -> String {
    let mut cell = one_line(cell);
    if cell.starts_with(['=', '+', '-', '@']) {
        cell.insert(0, '\'');
    }
    if cell.contains([',', '"', ';']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
