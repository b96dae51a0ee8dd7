//! The run in the JSON trace format that Perfetto and Chrome read: a process per rank, with a row per
//! CPU for computation and sends, one for receives (which overlap them), and rows for its NICs; noise
//! as slices inside the work it delays, messages as arrows, the critical path on top.
//!
//! Viewers have nanosecond resolution, so every time is truncated to nanoseconds, which preserves
//! nesting; exact times are in the arguments.

use std::io::{self, Write};

use study::explain::picture::{Bar, Doing, Picture};

/// Events are sorted by time before they are written: viewers build stacks in that order.
struct Event {
    ts: i64,
    /// Of simultaneous events the longest comes first: it contains the others.
    before: (i64, u8),
    text: String,
}

/// Time in the file, ns; rounded the same way for begin and end.
fn ns(ps: i64) -> i64 {
    ps.div_euclid(1_000)
}

/// Microseconds with all digits of a nanosecond.
fn us(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", ns.abs() / 1_000, ns.abs() % 1_000)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Process of a rank: some viewers treat 0 as the idle task.
fn pid(rank: u32) -> u64 {
    u64::from(rank) + 1
}

/// Rows of a rank in order: two per CPU, then two per NIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Work(u8),
    Receives(u8),
    NicOut(u8),
    NicIn(u8),
}

impl Row {
    fn of_work(bar: &Bar) -> Row {
        match bar.doing {
            Doing::Compute | Doing::Send => Row::Work(bar.unit),
            Doing::Receive => Row::Receives(bar.unit),
        }
    }

    fn of_nic(bar: &Bar) -> Row {
        match bar.doing {
            Doing::Receive => Row::NicIn(bar.unit),
            Doing::Compute | Doing::Send => Row::NicOut(bar.unit),
        }
    }

    fn tid(self) -> u64 {
        match self {
            Row::Work(unit) => 1 + 2 * u64::from(unit),
            Row::Receives(unit) => 2 + 2 * u64::from(unit),
            Row::NicOut(unit) => 1001 + 2 * u64::from(unit),
            Row::NicIn(unit) => 1002 + 2 * u64::from(unit),
        }
    }

    fn name(self) -> String {
        match self {
            Row::Work(unit) => format!("CPU {unit}"),
            Row::Receives(unit) => format!("CPU {unit} receives"),
            Row::NicOut(unit) => format!("NIC {unit} out"),
            Row::NicIn(unit) => format!("NIC {unit} in"),
        }
    }
}

/// Writes the trace. The output is valid only if this succeeds.
///
/// # Errors
/// Those of the writer.
pub fn trace_events(picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"title\":{}}},\"traceEvents\":[",
        quoted(&picture.title)
    )?;
    let mut separator = "\n";
    let mut line = |text: &str| {
        let written = write!(out, "{separator}{text}");
        separator = ",\n";
        written
    };
    for text in headers(picture) {
        line(&text)?;
    }
    let mut events = slices(picture);
    events.sort_by_key(|event| (event.ts, event.before));
    for event in events {
        line(&event.text)?;
    }
    write!(out, "\n]}}\n")
}

/// Names and order of processes and rows.
fn headers(picture: &Picture) -> Vec<String> {
    let mut texts = Vec::new();
    let mut meta = |pid: u64, tid: u64, what: &str, argument: String| {
        texts.push(format!(
            "{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{{argument}}}}}"
        ));
    };
    let name = |name: &str| format!("\"name\":{}", quoted(name));
    let path = path_pid(picture);
    if !picture.path.is_empty() {
        meta(path, 0, "process_name", name("critical path"));
        meta(path, 0, "process_sort_index", "\"sort_index\":-1".to_owned());
        meta(path, 1, "thread_name", name("critical path"));
    }
    let mut rows: Vec<(u32, Row)> =
        picture.work.iter().map(|b| (b.rank, Row::of_work(b))).collect();
    rows.extend(picture.nics.iter().map(|bar| (bar.rank, Row::of_nic(bar))));
    rows.sort_unstable();
    rows.dedup();
    for rank in 0..picture.ranks {
        meta(pid(rank), 0, "process_name", name(&format!("rank {rank}")));
        meta(pid(rank), 0, "process_sort_index", format!("\"sort_index\":{rank}"));
    }
    for (rank, row) in rows {
        meta(pid(rank), row.tid(), "thread_name", name(&row.name()));
        meta(pid(rank), row.tid(), "thread_sort_index", format!("\"sort_index\":{}", row.tid()));
    }
    texts
}

fn path_pid(picture: &Picture) -> u64 {
    u64::from(picture.ranks) + 1
}

fn slices(picture: &Picture) -> Vec<Event> {
    let mut events = Vec::new();
    for bar in &picture.work {
        let (pid, tid) = (pid(bar.rank), Row::of_work(bar).tid());
        let category = match bar.doing {
            Doing::Compute => "compute",
            Doing::Send => "send",
            Doing::Receive => "receive",
        };
        let path = format!(",\"critical path\":{}", bar.on_path);
        events.push(slice(pid, tid, category, &bar.name, (bar.from, bar.to), &path));
        for detour in &bar.noise {
            // Rules of other simulators may place noise outside the work.
            let (from, to) = (detour.from.max(bar.from), detour.to.min(bar.to));
            if from < to {
                events.push(slice(pid, tid, "noise", &detour.source, (from, to), ""));
            }
        }
    }
    for bar in &picture.nics {
        let (pid, tid) = (pid(bar.rank), Row::of_nic(bar).tid());
        events.push(slice(pid, tid, "nic", &bar.name, (bar.from, bar.to), ""));
    }
    // Arrows connect slices; control messages have no slice.
    let messages = picture.flights.iter().filter(|flight| !flight.control);
    for (id, flight) in messages.enumerate() {
        for (phase, index) in [("s", flight.sender), ("f", flight.receiver)] {
            let Some(bar) = picture.work.get(index) else { continue };
            let ts = ns(bar.from);
            let binding = if phase == "f" { ",\"bp\":\"e\"" } else { "" };
            let text = format!(
                "{{\"ph\":\"{phase}\",\"pid\":{},\"tid\":{},\"ts\":{},\"id\":{id},\
                 \"cat\":\"message\",\"name\":\"message\"{binding}}}",
                pid(bar.rank),
                Row::of_work(bar).tid(),
                us(ts)
            );
            // After the slice it belongs to.
            events.push(Event { ts, before: (i64::MAX, u8::from(phase == "f")), text });
        }
    }
    for stretch in &picture.path {
        let name = format!("{} (rank {})", stretch.part, stretch.rank);
        let (from, to) = (stretch.from, stretch.to);
        events.push(slice(path_pid(picture), 1, stretch.part, &name, (from, to), ""));
    }
    events
}

fn slice(
    pid: u64,
    tid: u64,
    category: &str,
    name: &str,
    (from, to): (i64, i64),
    more: &str,
) -> Event {
    let (ts, end) = (ns(from), ns(to).max(ns(from)));
    let text = format!(
        "{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{},\"cat\":\"{category}\",\
         \"name\":{},\"args\":{{\"from_ps\":{from},\"to_ps\":{to}{more}}}}}",
        us(ts),
        us(end - ts),
        quoted(name)
    );
    Event { ts, before: (-(end - ts), 0), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_digits_and_nesting() {
        assert_eq!(us(ns(1_234_567)), "1.234");
        assert_eq!(us(ns(-1)), "-0.001");
        assert_eq!(us(ns(999)), "0.000");
    }
}
