//! Samples from files of every kind: numbers, latencies, histograms, recordings, times of simulated runs.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Cursor, Read},
    path::Path,
};

use analysis::{Interruptions, words::label_of};
use anyhow::{Context, Result, bail};
use distribution::{
    sketch::{Sample, Sketch},
    text,
};
use formats::import;
use trace::{Class, Reader, RecordFlags, RowKey};

use super::{Request, numbers};
use crate::{
    network::samples::{Series, Times},
    recording::{
        open::{self, AnyReader, Input},
        recorded::no_source,
    },
    run::work::Work,
};

/// Samples with a name.
pub struct Named {
    pub name: String,
    /// The source, or the point of a simulation.
    pub part: Option<String>,
    /// What they are.
    pub of: &'static str,
    pub sample: Sample,
    pub remarks: Vec<String>,
}

/// What is read before the kind of a file is known.
const HEAD: usize = 1 << 16;
/// The first line of `--times`.
const TIMES: &str = "ranks,size,net_scale,coscheduled,run,time_us";
/// Largest file that is read as a whole.
const MOST_BYTES: u64 = 1 << 30;
/// Most distributions of one file.
const MOST: usize = 16;
/// Samples that are counted together.
const BLOCK: usize = 1 << 16;

/// The samples of a file; `-` is standard input.
pub fn read(path: &Path, request: &Request, work: &Work<'_>) -> Result<Vec<Named>> {
    if path == Path::new("-") {
        return of_input("standard input", std::io::stdin(), None, request, work)
            .context("cannot read samples from standard input");
    }
    let (file, run) = open::split_run(path);
    let cannot = || format!("cannot read samples from {}", file.display());
    let mut input = File::open(&file).with_context(cannot)?;
    let name = path.display().to_string();
    let is_file = input.metadata().with_context(cannot)?.is_file();
    let mut head = Vec::new();
    if is_file {
        input.by_ref().take(HEAD as u64).read_to_end(&mut head).with_context(cannot)?;
    }
    // A recording of any size is read where it is.
    if trace::is_trace(&head) {
        return recording(&name, &open::open(path)?, request, work.seed).with_context(cannot);
    }
    of_input(&name, Cursor::new(head).chain(input), run, request, work).with_context(cannot)
}

fn of_input<R: Read + Send>(
    name: &str,
    mut input: R,
    run: Option<usize>,
    request: &Request,
    work: &Work<'_>,
) -> Result<Vec<Named>> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        bail!("it is empty");
    }
    let one = |of: &'static str, sample: Option<Sample>| match sample {
        Some(sample) => {
            Ok(vec![Named { name: name.to_owned(), part: None, of, sample, remarks: Vec::new() }])
        }
        None => bail!("no samples found"),
    };
    if starts_with_a_number(&head) {
        request.no_sources(name)?;
        let all = Cursor::new(head).chain(input);
        return one("samples", numbers::read(all, request.unit.power(), work.threads, work.seed)?);
    }
    if head.starts_with(TIMES.as_bytes()) {
        request.no_sources(name)?;
        return times(name, BufReader::new(Cursor::new(head).chain(input)), work.seed);
    }
    let mut bytes = head;
    input.take(MOST_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("it is larger than {MOST_BYTES} bytes (only numbers, one per line, may be larger)");
    }
    if trace::is_trace(&bytes) {
        if run.is_some() {
            bail!("it is a recording, which has no runs to select: omit #N");
        }
        let input = Box::new(Cursor::new(bytes)) as Box<dyn Input>;
        return recording(name, &Reader::named(input, name.to_owned())?, request, work.seed);
    }
    request.no_sources(name)?;
    let bytes = import::unpacked(name, &bytes)?;
    if starts_with_a_number(&bytes[..bytes.len().min(HEAD)]) {
        let sample = numbers::read(&bytes[..], request.unit.power(), work.threads, work.seed)?;
        return one("samples", sample);
    }
    if let Some(series) = Series::of_bytes(&bytes, run)? {
        return one("latencies", Sample::of_values(&series.values_ps, work.seed));
    }
    let times = Times::of_imported(name, &bytes, run)?;
    // Detours are in the order of time, a histogram has none.
    if let Some(bins) = times.bins() {
        return one("histogram", Sample::of_bins(bins));
    }
    let counts = times.counts();
    if counts.iter().all(|(_, count)| *count == 1) {
        let values: Vec<i64> = counts.iter().map(|(value, _)| *value).collect();
        return one("detours", Sample::of_values(&values, work.seed));
    }
    one("histogram", Sample::of_counts(counts.to_vec()))
}

/// Whether the first line, other than empty ones and comments, is a single number.
fn starts_with_a_number(head: &[u8]) -> bool {
    let lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    let first = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    first.is_some_and(|line| line.parse::<f64>().is_ok())
}

/// The run times that a simulation has written, one distribution per point.
fn times(name: &str, input: impl BufRead, seed: u64) -> Result<Vec<Named>> {
    let mut points: Vec<(String, Vec<i64>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, line) in (1u64..).zip(input.lines()).skip(1) {
        let line = line?;
        let parsed = || {
            let (rest, us) = line.rsplit_once(',')?;
            let (point, run) = rest.rsplit_once(',')?;
            run.parse::<u64>().ok()?;
            Some((point, text::of_number(us.parse().ok()?, 6).ok()?))
        };
        let Some((point, ps)) = parsed() else {
            bail!("line {number}: expected {TIMES}");
        };
        let place = match places.get(point) {
            Some(place) => *place,
            None => {
                if points.len() == MOST {
                    bail!("it has more than {MOST} points: simulate fewer, e.g. with --ranks");
                }
                places.insert(point.to_owned(), points.len());
                points.push((said(point), Vec::new()));
                points.len() - 1
            }
        };
        points[place].1.push(ps);
    }
    if points.is_empty() {
        bail!("it has no runs");
    }
    let named = |(point, values): (String, Vec<i64>)| {
        let sample = Sample::of_values(&values, seed)?;
        let name = format!("{name} ({point})");
        Some(Named { name, part: Some(point), of: "runs", sample, remarks: Vec::new() })
    };
    Ok(points.into_iter().filter_map(named).collect())
}

/// The columns of a point in words; what is usual is left out.
fn said(point: &str) -> String {
    let columns: Vec<&str> = point.split(',').collect();
    let [ranks, size, scale, together] = columns[..] else { return point.to_owned() };
    let mut said = format!("{ranks} ranks, {size} B");
    if scale != "1" {
        said += &format!(", network x{scale}");
    }
    if together == "true" {
        said += ", coscheduled";
    }
    said
}

/// Collects samples, and counts them in blocks.
struct Collected {
    sketch: Option<Sketch>,
    block: Vec<i64>,
    number: u64,
    seed: u64,
}

impl Collected {
    fn new(seed: u64) -> Collected {
        Collected { sketch: None, block: Vec::new(), number: 0, seed }
    }

    fn push(&mut self, ns: u64) {
        let ps = i64::try_from(ns).unwrap_or(i64::MAX).saturating_mul(1000).min(text::LONGEST);
        self.block.push(ps);
        if self.block.len() >= BLOCK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(&origin) = self.block.iter().min() else { return };
        let sketch = self.sketch.get_or_insert_with(|| Sketch::new(origin, self.seed));
        sketch.add(self.number, &self.block);
        self.number += 1;
        self.block.clear();
    }

    fn finish(mut self) -> Option<Sample> {
        self.flush();
        self.sketch?.finish()
    }
}

/// The lengths of detours, or of what each source took.
fn recording(name: &str, reader: &AnyReader, request: &Request, seed: u64) -> Result<Vec<Named>> {
    let mut found = match request.by_source || !request.sources.is_empty() {
        true => by_source(name, reader, request, seed)?,
        false => {
            let mut lengths = Collected::new(seed);
            for lane in lanes(reader) {
                for block in reader.blocks_of(lane) {
                    block?.detours.iter().for_each(|detour| lengths.push(detour.len_ns));
                }
            }
            let Some(sample) = lengths.finish() else {
                bail!("the recording has no detours: use --by source for its kernel records");
            };
            let name = name.to_owned();
            vec![Named { name, part: None, of: "detours", sample, remarks: Vec::new() }]
        }
    };
    if let (Some(remark), Some(first)) = (open::remark_if_not_whole(reader), found.first_mut()) {
        first.remarks.push(remark);
    }
    Ok(found)
}

fn lanes(reader: &AnyReader) -> impl Iterator<Item = trace::LaneId> {
    (0..reader.lanes().len() as u32).map(trace::LaneId)
}

/// What each source took with each of its interruptions, those named or the costliest ones.
fn by_source(name: &str, reader: &AnyReader, request: &Request, seed: u64) -> Result<Vec<Named>> {
    let mut rows: Vec<RowKey> = Vec::new();
    let mut places = HashMap::new();
    let row_of: Vec<usize> = reader
        .sources()
        .iter()
        .map(|source| {
            *places.entry(source.row_key()).or_insert_with(|| {
                rows.push(source.row_key());
                rows.len() - 1
            })
        })
        .collect();
    let mut totals = vec![0u64; rows.len()];
    interruptions(reader, &row_of, |row, ns| totals[row] = totals[row].saturating_add(ns))?;
    let mut chosen: Vec<usize> = match request.sources.is_empty() {
        true => (0..rows.len()).filter(|&row| totals[row] > 0).collect(),
        false => {
            let mut chosen = Vec::new();
            for wanted in &request.sources {
                let before = chosen.len();
                chosen.extend(
                    (0..rows.len()).filter(|&row| totals[row] > 0 && is_called(&rows[row], wanted)),
                );
                if chosen.len() == before {
                    bail!("{}", no_source(wanted));
                }
            }
            chosen
        }
    };
    chosen.sort_by(|&a, &b| totals[b].cmp(&totals[a]).then(a.cmp(&b)));
    chosen.dedup();
    let left_out = chosen.len().saturating_sub(MOST);
    chosen.truncate(MOST);
    if chosen.is_empty() {
        bail!("the recording has no records of sources");
    }
    let mut samples: Vec<Option<Collected>> = rows.iter().map(|_| None).collect();
    chosen.iter().for_each(|&row| samples[row] = Some(Collected::new(seed)));
    interruptions(reader, &row_of, |row, ns| {
        if let Some(collected) = &mut samples[row] {
            collected.push(ns);
        }
    })?;
    let mut found: Vec<Named> = Vec::new();
    for row in chosen {
        let sample = samples[row].take().and_then(Collected::finish);
        let label = label_of(rows[row].class, &rows[row].name);
        let name = format!("{name} ({label})");
        let named =
            |sample| Named { name, part: Some(label), of: "source", sample, remarks: Vec::new() };
        found.extend(sample.map(named));
    }
    if let (true, Some(first)) = (left_out > 0, found.first_mut()) {
        first
            .remarks
            .push(format!("{left_out} more sources are not shown: select some with --source"));
    }
    Ok(found)
}

/// By its name, its class, or both: `irq`, `nvme0q1`, `irq:nvme0q1`.
fn is_called(row: &RowKey, name: &str) -> bool {
    let class = row.class.name();
    name == row.name
        || name == class
        || row.unit.as_deref() == Some(name)
        || name.strip_prefix(class).and_then(|rest| rest.strip_prefix(':')) == Some(&row.name)
}

/// Calls this with the row and the cost of every interruption, lane by lane in the order of time. Parts of one
/// interruption are one, as in the report.
fn interruptions(
    reader: &AnyReader,
    row_of: &[usize],
    mut each: impl FnMut(usize, u64),
) -> Result<()> {
    for lane in lanes(reader) {
        let mut whole = Interruptions::default();
        for block in reader.blocks_of(lane) {
            for record in &block?.records {
                let flags = record.flags;
                let source = record.source.0 as usize;
                let Some(&row) = row_of.get(source) else { continue };
                let class = reader.sources()[source].class;
                let idle = class == Class::Idle && !flags.contains(RecordFlags::IN_DETOUR);
                if flags.contains(RecordFlags::BASELINE) || idle || record.is_sum() {
                    continue;
                }
                if let Some((row, cost)) = whole.add(record, row) {
                    each(row, cost);
                }
            }
        }
        whole.finish().for_each(|(row, cost)| each(row, cost));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_numbers_from_other_files() {
        for text in ["5.7\n", "# us\n\n 1e3 \n", "5"] {
            assert!(starts_with_a_number(text.as_bytes()), "{text}");
        }
        for text in ["", "a\n5\n", "1 2\n", "1,2\n", "[1]", "# only\n"] {
            assert!(!starts_with_a_number(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn times_of_simulations_are_one_distribution_per_point() {
        let text = format!("{TIMES}\n4,8,1,false,0,2.5\n16,8,2.5,true,0,3\n4,8,1,false,1,2.75\n");
        let found = times("t.csv", text.as_bytes(), 1).unwrap();
        let names: Vec<&str> = found.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(
            names,
            ["t.csv (4 ranks, 8 B)", "t.csv (16 ranks, 8 B, network x2.5, coscheduled)"]
        );
        assert_eq!((found[0].sample.n(), found[0].sample.max), (2, 2_750_000));
        for bad in ["4,8,1,false,0,x\n", "4,8\n", "4,8,1,false,0,-1\n"] {
            let error = times("t.csv", format!("{TIMES}\n{bad}").as_bytes(), 1).err().unwrap();
            assert!(error.to_string().starts_with("line 2"), "{error}");
        }
        assert!(times("t.csv", format!("{TIMES}\n").as_bytes(), 1).is_err());
    }
}
