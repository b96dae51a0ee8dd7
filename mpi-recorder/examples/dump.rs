//! Prints the file of a rank: header, then one line a record, in the order of the file.
//!
//! `cargo run --example dump -- rank-0.mpi`; with `--library FILE` it writes the collector to FILE instead.

use mpi_abi::{Actual, Call, Decoder, Event, FileHeader, Outcome, Record, Requests, Sizes, chunks};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--library", file] => Ok(std::fs::write(file, mpi_recorder::LIBRARY)?),
        [file] => dump(file, true),
        ["--summary", file] => dump(file, false),
        _ => Err("usage: dump [--summary] rank-N.mpi | dump --library FILE".into()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', " ").trim_end().replace('\n', " ")
}

fn dump(file: &str, records: bool) -> Result<(), Box<dyn Error>> {
    let bytes = std::fs::read(file)?;
    let header = FileHeader::parse(&bytes)?;
    let mut out = BufWriter::new(stdout().lock());
    writeln!(
        out,
        "# rank {} of {} (local {} of {}), run {:016x}, pid {}, host {}, {:?}, {:?}, thread level {}",
        header.world_rank,
        header.world_size,
        header.local_rank,
        header.local_size,
        header.run,
        header.pid,
        text(header.host),
        header.abi,
        header.clock,
        header.thread_level
    )?;
    writeln!(out, "# {}", text(header.library))?;
    writeln!(out, "# {}", text(header.command))?;
    writeln!(
        out,
        "# flags {}, {} events in {} chunks, {} threads, lost {:?}, cost {} ns recorded {} ns passed",
        header.flags,
        header.events,
        header.chunks,
        header.threads,
        header.lost,
        f64::from(header.cost_recorded_ps) / 1000.0,
        f64::from(header.cost_passed_ps) / 1000.0
    )?;
    writeln!(out, "# clock at start {:?}, at end {:?}", header.offset_start, header.offset_end)?;
    let mut counts = vec![[0u64; 2]; Call::ALL.len()];
    let (mut events, mut used) = (0u64, 0u64);
    let mut decoder = Box::new(Decoder::new(&[], 0));
    for chunk in chunks(&bytes) {
        if records {
            writeln!(
                out,
                "# chunk {} thread {} sequence {} events {} used {} {}{}",
                chunk.index,
                chunk.header.thread,
                chunk.header.sequence,
                chunk.header.events,
                chunk.header.used,
                if chunk.header.is_closed() { "closed" } else { "open" },
                if chunk.is_sound() { "" } else { " DAMAGED" },
            )?;
        }
        used += chunk.payload.len() as u64;
        decoder.restart(chunk.payload, chunk.header.base);
        while let Some(record) = decoder.next_record() {
            if let Record::Event(event) = &record {
                counts[usize::from(event.call().number())][usize::from(event.signature.large)] += 1;
                events += 1;
            }
            if records {
                writeln!(out, "{}", line(&record, header.start.ticks))?;
            }
        }
        if let Some(error) = decoder.error() {
            writeln!(out, "# {error}")?;
        }
    }
    for (call, counts) in Call::ALL.iter().zip(&counts) {
        for (name, count) in [Some(call.name()), call.large_name()].into_iter().zip(counts) {
            if let (Some(name), 1..) = (name, *count) {
                writeln!(out, "# count {name} {count}")?;
            }
        }
    }
    writeln!(
        out,
        "# {events} events, {used} bytes of records, {:.2} bytes an event, file {:.2}",
        used as f64 / events.max(1) as f64,
        bytes.len() as f64 / events.max(1) as f64
    )?;
    Ok(())
}

fn line(record: &Record, start: u64) -> String {
    match record {
        Record::Event(event) => event_line(event, start),
        Record::More(requests) => format!("  more{}", request_text(*requests)),
        Record::Communicator(def) => format!(
            "communicator {} key {:016x} parent {} rank {} size {} remote {} topology {}",
            def.number,
            def.key,
            def.parent.map_or("-".into(), |parent| parent.to_string()),
            def.rank,
            def.size,
            def.remote_size,
            def.topology
        ),
        Record::List { communicator, kind, offset, runs } => {
            let mut line = format!("list {communicator} {kind:?} from {offset}:");
            for run in *runs {
                let _ = write!(line, " {}", run.first);
                if run.count > 1 {
                    let _ = write!(line, "..{}", run.at(run.count - 1));
                }
                if run.count > 2 && run.step != 1 {
                    let _ = write!(line, "/{}", run.step);
                }
            }
            line
        }
        Record::Window { window, communicator } => format!("window {window} on {communicator}"),
        Record::RegionName { region, name } => format!("region {region} is {}", text(name)),
        Record::RegionBegin { region, at } => format!("{:>12} begin {region}", signed(*at, start)),
        Record::RegionEnd { region, at } => format!("{:>12} end {region}", signed(*at, start)),
        Record::Switch { on, at } => format!("{:>12} recording {on}", signed(*at, start)),
        Record::Lost { events } => format!("lost {events} events"),
        Record::Repeat { event, times, inside } => {
            format!("{} {times} times, {inside} ticks inside", event_line(event, start))
        }
    }
}

fn signed(at: u64, start: u64) -> i64 {
    at.wrapping_sub(start) as i64
}

fn event_line(event: &Event, start: u64) -> String {
    let mut line = format!(
        "{:>12} +{:<8} {}{}",
        signed(event.begin, start),
        event.end - event.begin,
        if event.is_off() { "off " } else { "" },
        event.name()
    );
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(line, " {name} {value}");
        }
    };
    field("window", event.window().map(|value| value.to_string()));
    field("comm", event.communicator().map(|value| value.to_string()));
    field("peer", event.peer().map(|value| value.to_string()));
    field("tag", event.tag().map(|value| value.to_string()));
    field("bytes", event.bytes.map(|value| value.to_string()));
    field("source", event.source().map(|value| value.to_string()));
    field("source-tag", event.source_tag().map(|value| value.to_string()));
    field("received", event.received.map(|value| value.to_string()));
    field("op", event.op().map(|value| format!("{value:?}")));
    field("request", event.begun.map(|value| value.to_string()));
    field("got", (event.actual != Actual::AS_POSTED).then(|| actual_text(&event.actual)));
    field("found", (!event.found).then(|| "no".into()));
    field("error", (event.error != 0).then(|| event.error.to_string()));
    field("sent-list", event.sent.map(size_text));
    field("got-list", event.got.map(size_text));
    line + &request_text(event.requests)
}

fn actual_text(actual: &Actual) -> String {
    let show = |value: Option<i64>| value.map_or("=".into(), |value| value.to_string());
    format!(
        "{}/{}/{}",
        show(actual.source.map(i64::from)),
        show(actual.tag.map(i64::from)),
        show(actual.bytes.map(|bytes| bytes as i64))
    )
}

fn size_text(sizes: Sizes) -> String {
    let parts: Vec<String> = sizes
        .map(|(size, count)| if count == 1 { size.to_string() } else { format!("{count}x{size}") })
        .collect();
    parts.join(",")
}

fn request_text(requests: Requests) -> String {
    let mut text = String::new();
    for run in requests {
        let name = match run.outcome {
            Outcome::Completed => "done",
            Outcome::Pending => "pending",
            Outcome::Cancelled => "cancelled",
            Outcome::Freed => "freed",
            Outcome::CancelAsked => "cancel",
            Outcome::Started => "started",
            Outcome::Ready => "ready",
        };
        let _ = write!(text, " {name} {}", run.first);
        if run.count > 1 {
            let _ = write!(text, "..{}", run.first + u64::from(run.count) - 1);
        }
        if run.actual != Actual::AS_POSTED {
            let _ = write!(text, " as {}", actual_text(&run.actual));
        }
    }
    text
}
