//! Whose fault was that wait: the critical path of a real run and its waits, by cause.
//!
//! In: the traces of an MPI program, and recordings of the noise on its nodes, on the same clocks; out:
//! [`TracedBlame`]. The rules are in `traced/causes.rs` and `docs/blame.md`.

mod causes;
mod contents;
mod noise;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use program::{Dependencies, Profile, Program, Timeline, WaitClass, call_name};
use rayon::prelude::*;
use serde::Serialize;
use trace::Class;

use causes::{Cause, Kind, Segment, Sums, Waiting, Waits, Why};
use contents::{Contents, What};
use noise::{Hit, Noise};

use crate::explain::states::quoted;

/// Where the time of a real run went: its critical path and every wait, by cause. Times in ns are exact: the parts of
/// the path add up to the wall time, and `waits` with `other_waits_ns` to the waiting time of `mpi report`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TracedBlame {
    /// Size of `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// From the first call of `MPI_Init` to the end of the last rank.
    pub wall_s: f64,
    /// In ns.
    pub wall_ns: u64,
    /// The critical path: the last rank back to the end of its last wait, from there the rank that it waited for,
    /// and so on to the beginning. No part of it is a wait.
    pub path: CriticalPath,
    /// Waiting of all ranks together.
    pub waiting_s: f64,
    /// In ns.
    pub waiting_ns: u64,
    /// Waiting by what made the late ranks late.
    pub causes: CauseSums,
    /// Waiting by source of noise, the most first.
    pub sources: Vec<SourceWaits>,
    /// Waiting by class, function and cause, the most first.
    pub waits: Vec<WaitRow>,
    /// Waiting that is not in `waits`, because there are too many causes.
    pub other_waits_s: f64,
    /// In ns.
    pub other_waits_ns: u64,
    /// Waiting by the rank that waited.
    pub by_rank: Vec<RankWaits>,
    /// Waiting by the region in which ranks waited, the most first.
    pub by_region: Vec<RegionWaits>,
    /// Share of the waiting for which no cause was found.
    pub unexplained_pct: f64,
    /// How much is known about noise.
    pub noise: NoiseKnown,
    /// What is missing, as text.
    pub remarks: Vec<String>,
}

/// The critical path. Computation, communication and noise add up to the wall time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CriticalPath {
    /// Between calls, without noise.
    pub compute_s: f64,
    /// In calls, without noise.
    pub communication_s: f64,
    /// Lost to noise, between calls or in them.
    pub noise_s: f64,
    /// In ns.
    pub compute_ns: u64,
    /// In ns.
    pub communication_ns: u64,
    /// In ns.
    pub noise_ns: u64,
    /// Noise on the path by source, the most first.
    pub sources: Vec<PathSource>,
    /// The ranks that the path is on, the longest first.
    pub ranks: Vec<PathRank>,
    /// Computation on the path by region, the longest first.
    pub regions: Vec<PathRegion>,
    /// Communication on the path by function, the longest first.
    pub calls: Vec<PathCall>,
    /// How often it goes from one rank to another.
    pub changes: u64,
}

/// A source of noise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Source {
    pub class: Class,
    pub name: String,
    /// systemd unit, or the cgroup path if there is no unit.
    pub unit: Option<String>,
    /// The node that it was on.
    pub host: String,
    /// The recorder's own threads.
    pub own: bool,
}

/// Noise of one source on the path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathSource {
    #[serde(flatten)]
    pub source: Source,
    pub s: f64,
    /// In ns.
    pub ns: u64,
}

/// What the path has of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRank {
    /// World rank.
    pub rank: u32,
    pub s: f64,
    /// Part of it that was lost to noise.
    pub noise_s: f64,
    /// In ns.
    pub ns: u64,
    /// In ns.
    pub noise_ns: u64,
}

/// Computation in one region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRegion {
    /// Names from the outermost region on, with `/` between them; null outside of all regions.
    pub region: Option<String>,
    pub s: f64,
    /// In ns.
    pub ns: u64,
}

/// Communication in one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathCall {
    /// The function.
    pub call: &'static str,
    pub s: f64,
    /// In ns.
    pub ns: u64,
}

/// Waiting by what made the late ranks late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CauseSums {
    /// Noise on them, or on ranks that they had waited for.
    pub noise_s: f64,
    /// More computation than the waiting rank.
    pub compute_s: f64,
    /// More time in calls than the waiting rank.
    pub communication_s: f64,
    /// No cause was found.
    pub unexplained_s: f64,
    /// In ns.
    pub noise_ns: u64,
    /// In ns.
    pub compute_ns: u64,
    /// In ns.
    pub communication_ns: u64,
    /// In ns.
    pub unexplained_ns: u64,
}

/// Waiting that one source of noise caused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceWaits {
    #[serde(flatten)]
    pub source: Source,
    pub s: f64,
    /// In ns.
    pub ns: u64,
    /// Share of all waiting.
    pub share_pct: f64,
}

/// Waiting of all ranks with the same class, function and cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    /// `late sender`, `late receiver` or `collective`.
    pub class: WaitClass,
    /// The function that was waited for to complete.
    pub call: &'static str,
    pub s: f64,
    /// In ns.
    pub ns: u64,
    /// What was late.
    pub cause: LateBy,
}

/// Waiting of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankWaits {
    /// World rank.
    pub rank: u32,
    #[serde(flatten)]
    pub by: WaitsBy,
}

/// Waiting in a region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionWaits {
    /// Names from the outermost region on, with `/` between them; null outside of all regions.
    pub region: Option<String>,
    #[serde(flatten)]
    pub by: WaitsBy,
}

/// Waiting by class, and again by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitsBy {
    pub late_sender_s: f64,
    pub late_receiver_s: f64,
    pub collective_s: f64,
    pub noise_s: f64,
    pub compute_s: f64,
    pub communication_s: f64,
    pub unexplained_s: f64,
    pub s: f64,
    /// In ns.
    pub late_sender_ns: u64,
    /// In ns.
    pub late_receiver_ns: u64,
    /// In ns.
    pub collective_ns: u64,
    /// In ns.
    pub noise_ns: u64,
    /// In ns.
    pub compute_ns: u64,
    /// In ns.
    pub communication_ns: u64,
    /// In ns.
    pub unexplained_ns: u64,
    /// In ns.
    pub ns: u64,
}

impl WaitsBy {
    fn add(&mut self, waiting: &Waiting, ns: u64) {
        *match waiting.class {
            WaitClass::LateSender => &mut self.late_sender_ns,
            WaitClass::LateReceiver => &mut self.late_receiver_ns,
            WaitClass::Collective => &mut self.collective_ns,
        } += ns;
        *match waiting.kind {
            Kind::Noise => &mut self.noise_ns,
            Kind::Compute => &mut self.compute_ns,
            Kind::Communication => &mut self.communication_ns,
            Kind::Unexplained => &mut self.unexplained_ns,
        } += ns;
        self.ns += ns;
    }

    fn with_seconds(self) -> WaitsBy {
        WaitsBy {
            late_sender_s: seconds(self.late_sender_ns),
            late_receiver_s: seconds(self.late_receiver_ns),
            collective_s: seconds(self.collective_ns),
            noise_s: seconds(self.noise_ns),
            compute_s: seconds(self.compute_ns),
            communication_s: seconds(self.communication_ns),
            unexplained_s: seconds(self.unexplained_ns),
            s: seconds(self.ns),
            ..self
        }
    }

    /// With the names of the classes.
    pub fn classes(&self) -> [(WaitClass, u64); 3] {
        [
            (WaitClass::LateSender, self.late_sender_ns),
            (WaitClass::LateReceiver, self.late_receiver_ns),
            (WaitClass::Collective, self.collective_ns),
        ]
    }
}

/// What made a rank late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LateBy {
    /// `noise`, `compute`, `communication` or `unexplained`.
    pub kind: &'static str,
    /// World rank that lost the time: the late one, or one that it had waited for.
    pub rank: u32,
    /// The region it was in, outer regions first, with `/` between them; null outside of all regions.
    pub region: Option<String>,
    /// The source of the noise; null for everything else.
    pub source: Option<Source>,
    /// The function that took the time, for communication; null for everything else.
    pub call: Option<&'static str>,
}

/// How much of the noise is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NoiseKnown {
    /// Recordings that were read.
    pub recordings: u64,
    /// Share of the ranks' time in which noise was recorded.
    pub covered_pct: f64,
    /// World ranks whose noise was not recorded: on them it counts as computation or communication.
    pub missing_ranks: Vec<u32>,
}

/// What is drawn of a run, but is not in the JSON. Times are ns since the beginning.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub profile: Profile,
    /// None with too many ranks.
    pub timeline: Option<Timeline>,
    /// The critical path, from the beginning.
    pub path: Vec<DrawnSegment>,
    /// The longest hits of noise on the path, by time.
    pub hits: Vec<DrawnHit>,
}

/// The critical path on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnSegment {
    /// World rank.
    pub rank: u32,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A hit of noise on a rank. Times are ns since the beginning of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnHit {
    /// World rank.
    pub rank: u32,
    pub from_ns: u64,
    pub to_ns: u64,
    /// The source that took the most of it.
    pub source: Source,
}

/// Rows of `waits` that are kept.
const ROWS: usize = 1_000;
/// Hits that are drawn.
const HITS: usize = 500;
/// Memory for a wait: itself, its marks, and what ranks did between them.
const BYTES_A_WAIT: u64 = 400;
/// And for a message that took long: itself, and two ranks that it held up.
const BYTES_A_TIE: u64 = 150;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}

/// The recordings that `detour mpi record --noise` has left beside the traces, in the order of their names.
///
/// # Errors
/// If the directory cannot be read.
pub fn recordings_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "detour") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Blames a run, with recordings of its noise; of several with the same rank, the first counts. Neither the number
/// of threads nor their timing has an effect on the result.
///
/// # Errors
/// If a file cannot be read or does not belong to the run, or if there are too many waits for the memory.
pub fn blame(
    program: &Program,
    recordings: &[PathBuf],
    threads: usize,
    memory: u64,
) -> Result<(TracedBlame, Drawn)> {
    let dependencies = program::dependencies(program, threads)?;
    let count = dependencies.waits.len() as u64;
    let ties = dependencies.ties.len() as u64;
    let needed =
        count.saturating_mul(BYTES_A_WAIT).saturating_add(ties.saturating_mul(BYTES_A_TIE));
    if needed > memory || count >= u64::from(u32::MAX) {
        bail!(
            "{count} waits need {} MB of memory, {} MB available: record a shorter part of the run",
            needed >> 20,
            memory >> 20
        );
    }
    let Dependencies { clocks, spans, .. } = &dependencies;
    let noise = Noise::read(recordings, program, clocks, spans)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| evaluate(program, dependencies, &noise))
}

/// The longest hits of noise on the ranks of a run, to be drawn on its timeline: of those that its recordings have, on
/// the critical path or not. Also returns what is missing, as text.
///
/// # Errors
/// As [`blame`].
pub fn longest_hits(
    program: &Program,
    recordings: &[PathBuf],
    threads: usize,
) -> Result<(Vec<DrawnHit>, Vec<String>)> {
    let clocks = program::clocks(program, threads)?;
    let spans = vec![clocks.span; program.ranks.len()];
    let noise = Noise::read(recordings, program, &clocks, &spans)?;
    let (begin, end) = clocks.span;
    let slots = 0..program.ranks.len() as u32;
    let hits: Vec<Hit> = slots.flat_map(|slot| noise.hits_within(slot, begin, end)).collect();
    let view = View { program, noise: &noise, regions: &[] };
    let mut remarks = noise.remarks.clone();
    let missing = noise.missing(program).len();
    if missing > 0 {
        remarks.push(format!("the noise of {missing} ranks was not recorded"));
    }
    Ok((view.longest(hits, begin), remarks))
}

fn evaluate(
    program: &Program,
    dependencies: Dependencies,
    noise: &Noise,
) -> Result<(TracedBlame, Drawn)> {
    let Dependencies { profile, timeline, clocks, spans, waits, ties } = dependencies;
    let chains = Waits::new(&waits, &spans);
    let starts: Vec<(i64, i64)> = (0..program.ranks.len())
        .zip(&spans)
        .map(|(slot, (begin, _))| (*begin, contents::started(program, &clocks, slot)))
        .collect();
    let hits = chains.hits(noise, &ties, &starts);
    let marks = chains.marks();
    let read: Vec<(Contents, Vec<String>)> = marks
        .into_par_iter()
        .zip(&hits)
        .enumerate()
        .map(|(slot, (marks, hits))| {
            contents::contents(program, &clocks, slot, marks, hits, noise)
                .with_context(|| format!("cannot read {}", program.ranks[slot].path.display()))
        })
        .collect::<Result<_>>()?;
    let (contents, regions) = with_common_regions(read);
    let last = (0u32..).zip(&spans).max_by_key(|(slot, span)| (span.1, std::cmp::Reverse(*slot)));
    let path = last.map_or_else(Vec::new, |(slot, span)| chains.path(slot, span.1));
    let view = View { program, noise, regions: &regions };
    let (begin, end) = chains.span();
    let wall_ns = (end - begin) as u64;
    let Sums { causes, waiting } = chains.causes(&contents, &noise.kinds);
    let waiting_ns = causes.values().sum();
    let (rows, other_waits_ns) = view.rows(&causes);
    let sums = view.sums(&causes);
    let ranks_ns = spans.iter().map(|(begin, end)| end.saturating_sub(*begin).max(0) as u64).sum();
    let known = NoiseKnown {
        recordings: noise.recordings,
        covered_pct: percent(noise.covered_ns, ranks_ns).min(100.0),
        missing_ranks: noise.missing(program),
    };
    let blame = TracedBlame {
        ranks: program.size,
        wall_s: seconds(wall_ns),
        wall_ns,
        path: view.path(&path, &contents),
        waiting_s: seconds(waiting_ns),
        waiting_ns,
        sources: view.sources(&causes, waiting_ns),
        unexplained_pct: percent(sums.unexplained_ns, waiting_ns),
        causes: sums,
        waits: rows,
        other_waits_s: seconds(other_waits_ns),
        other_waits_ns,
        by_rank: view.by_rank(&waiting),
        by_region: view.by_region(&waiting),
        noise: known,
        remarks: noise.remarks.clone(),
    };
    let drawn = Drawn {
        profile,
        timeline,
        hits: view.hits(&path, &hits, begin),
        path: view.drawn(&path, begin),
    };
    Ok((blame, drawn))
}

/// One table of regions for all ranks, in the order of their names.
fn with_common_regions(read: Vec<(Contents, Vec<String>)>) -> (Vec<Contents>, Vec<String>) {
    let mut all: Vec<String> = read.iter().flat_map(|(_, names)| names).cloned().collect();
    // The first has no name.
    all.sort_unstable();
    all.dedup();
    let numbers: HashMap<&str, u32> = all.iter().map(String::as_str).zip(0..).collect();
    let contents = read
        .into_iter()
        .map(|(mut contents, names)| {
            let numbers: Vec<u32> =
                names.iter().map(|name| numbers.get(name.as_str()).copied().unwrap_or(0)).collect();
            contents.renumber_regions(&numbers);
            contents
        })
        .collect();
    (contents, all)
}

/// Makes the tables of a result.
struct View<'a> {
    program: &'a Program,
    noise: &'a Noise,
    regions: &'a [String],
}

/// The largest first, then in the order of the keys.
fn ordered<K: Ord>(sums: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut rows: Vec<(K, u64)> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

impl View<'_> {
    fn rank(&self, slot: u32) -> u32 {
        self.program.ranks.get(slot as usize).map_or(slot, |rank| rank.rank)
    }

    fn region(&self, region: u32) -> Option<String> {
        self.regions.get(region as usize).filter(|name| !name.is_empty()).cloned()
    }

    fn source(&self, number: u32) -> Option<Source> {
        self.noise.sources.get(number as usize).cloned()
    }

    fn path(&self, path: &[Segment], contents: &[Contents]) -> CriticalPath {
        let mut ranks: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let (mut sources, mut regions, mut calls) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let parts = |segment: &Segment| {
            let contents = contents.get(segment.slot as usize);
            contents.map_or(&[][..], |all| all.between(segment.from, segment.to))
        };
        for segment in path {
            let rank = ranks.entry(self.rank(segment.slot)).or_default();
            for part in parts(segment) {
                rank.0 += part.ns;
                let sum: &mut u64 = match part.what {
                    What::Compute => regions.entry(part.region).or_default(),
                    What::Communication(call) => calls.entry(call).or_default(),
                    What::Noise(source) => {
                        rank.1 += part.ns;
                        sources.entry(self.source(source)).or_default()
                    }
                };
                *sum += part.ns;
            }
        }
        let compute_ns = regions.values().sum();
        let communication_ns = calls.values().sum();
        let noise_ns = sources.values().sum();
        let mut ranks: Vec<PathRank> = ranks
            .into_iter()
            .map(|(rank, (ns, noise_ns))| PathRank {
                rank,
                s: seconds(ns),
                noise_s: seconds(noise_ns),
                ns,
                noise_ns,
            })
            .collect();
        ranks.sort_by_key(|row| (std::cmp::Reverse(row.ns), row.rank));
        CriticalPath {
            compute_s: seconds(compute_ns),
            communication_s: seconds(communication_ns),
            noise_s: seconds(noise_ns),
            compute_ns,
            communication_ns,
            noise_ns,
            sources: ordered(sources)
                .into_iter()
                .filter_map(|(source, ns)| Some(PathSource { source: source?, s: seconds(ns), ns }))
                .collect(),
            ranks,
            regions: ordered(regions)
                .into_iter()
                .map(|(region, ns)| PathRegion { region: self.region(region), s: seconds(ns), ns })
                .collect(),
            calls: ordered(calls)
                .into_iter()
                .map(|(call, ns)| PathCall { call: call_name(call), s: seconds(ns), ns })
                .collect(),
            changes: path.windows(2).filter(|two| two[0].slot != two[1].slot).count() as u64,
        }
    }

    fn rows(&self, causes: &BTreeMap<Cause, u64>) -> (Vec<WaitRow>, u64) {
        let mut rows = ordered(causes.clone());
        let others = rows.split_off(rows.len().min(ROWS));
        let row = |(cause, ns): (Cause, u64)| WaitRow {
            class: cause.class,
            call: call_name(cause.operation),
            s: seconds(ns),
            ns,
            cause: self.late_by(&cause),
        };
        (rows.into_iter().map(row).collect(), others.iter().map(|(_, ns)| ns).sum())
    }

    /// All ranks, also those that did not wait.
    fn by_rank(&self, waiting: &BTreeMap<Waiting, u64>) -> Vec<RankWaits> {
        let mut sums = vec![WaitsBy::default(); self.program.ranks.len()];
        for (waiting, ns) in waiting {
            if let Some(sum) = sums.get_mut(waiting.slot as usize) {
                sum.add(waiting, *ns);
            }
        }
        let row =
            |(slot, by): (u32, WaitsBy)| RankWaits { rank: self.rank(slot), by: by.with_seconds() };
        (0..).zip(sums).map(row).collect()
    }

    fn by_region(&self, waiting: &BTreeMap<Waiting, u64>) -> Vec<RegionWaits> {
        let mut sums: BTreeMap<u32, WaitsBy> = BTreeMap::new();
        for (waiting, ns) in waiting {
            sums.entry(waiting.region).or_default().add(waiting, *ns);
        }
        let row = |(region, by): (u32, WaitsBy)| RegionWaits {
            region: self.region(region),
            by: by.with_seconds(),
        };
        let mut rows: Vec<RegionWaits> = sums.into_iter().map(row).collect();
        rows.retain(|row| row.by.ns > 0);
        // Stable: those with the same time stay in the order of their names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.by.ns));
        rows
    }

    fn late_by(&self, cause: &Cause) -> LateBy {
        let (kind, source, call) = match cause.why {
            Why::Spent(What::Compute) => ("compute", None, None),
            Why::Spent(What::Communication(call)) => ("communication", None, Some(call_name(call))),
            Why::Spent(What::Noise(source)) => ("noise", self.source(source), None),
            Why::Unexplained => ("unexplained", None, None),
        };
        let (rank, region) = (self.rank(cause.slot), self.region(cause.region));
        LateBy { kind, rank, region, source, call }
    }

    fn sums(&self, causes: &BTreeMap<Cause, u64>) -> CauseSums {
        let mut sums = CauseSums::default();
        for (cause, ns) in causes {
            *match cause.why {
                Why::Spent(What::Compute) => &mut sums.compute_ns,
                Why::Spent(What::Communication(_)) => &mut sums.communication_ns,
                Why::Spent(What::Noise(_)) => &mut sums.noise_ns,
                Why::Unexplained => &mut sums.unexplained_ns,
            } += ns;
        }
        CauseSums {
            noise_s: seconds(sums.noise_ns),
            compute_s: seconds(sums.compute_ns),
            communication_s: seconds(sums.communication_ns),
            unexplained_s: seconds(sums.unexplained_ns),
            ..sums
        }
    }

    fn sources(&self, causes: &BTreeMap<Cause, u64>, waiting_ns: u64) -> Vec<SourceWaits> {
        let mut sums: BTreeMap<Option<Source>, u64> = BTreeMap::new();
        for (cause, ns) in causes {
            if let Why::Spent(What::Noise(source)) = cause.why {
                *sums.entry(self.source(source)).or_default() += ns;
            }
        }
        let row = |(source, ns): (Option<Source>, u64)| {
            let share_pct = percent(ns, waiting_ns);
            Some(SourceWaits { source: source?, s: seconds(ns), ns, share_pct })
        };
        ordered(sums).into_iter().filter_map(row).collect()
    }

    /// The path from the beginning; what follows on the same rank is one segment.
    fn drawn(&self, path: &[Segment], begin: i64) -> Vec<DrawnSegment> {
        let since = |at: i64| at.saturating_sub(begin).max(0) as u64;
        let mut drawn: Vec<DrawnSegment> = Vec::new();
        for segment in path.iter().rev() {
            let rank = self.rank(segment.slot);
            match drawn.last_mut().filter(|last| last.rank == rank) {
                Some(last) => last.to_ns = since(segment.to),
                None => drawn.push(DrawnSegment {
                    rank,
                    from_ns: since(segment.from),
                    to_ns: since(segment.to),
                }),
            }
        }
        drawn
    }

    fn hits(&self, path: &[Segment], hits: &[Vec<Hit>], begin: i64) -> Vec<DrawnHit> {
        let mut found: Vec<Hit> = Vec::new();
        for segment in path {
            let Some(hits) = hits.get(segment.slot as usize) else { continue };
            let first = hits.partition_point(|hit| hit.to <= segment.from);
            let within = hits[first..].iter().map_while(|hit| hit.within(segment.from, segment.to));
            found.extend(within);
        }
        self.longest(found, begin)
    }

    /// The longest of some hits, by time.
    fn longest(&self, mut found: Vec<Hit>, begin: i64) -> Vec<DrawnHit> {
        found.sort_by_key(|hit| (std::cmp::Reverse(hit.to - hit.from), hit.from, hit.slot));
        found.truncate(HITS);
        found.sort_by_key(|hit| (hit.from, hit.slot));
        let since = |at: i64| at.saturating_sub(begin).max(0) as u64;
        let drawn = |hit: &Hit| {
            let mut most = (0, 0);
            self.noise.sources_of(hit, |source, ns| {
                if ns > most.0 {
                    most = (ns, source);
                }
            });
            let source = self.source(most.1)?;
            let (from_ns, to_ns) = (since(hit.from), since(hit.to));
            Some(DrawnHit { rank: self.rank(hit.slot), from_ns, to_ns, source })
        };
        found.iter().filter_map(drawn).collect()
    }
}

/// The waiting of a run as CSV: one line per rank and class, then per region and class, then per cause. Of each of the
/// three kinds, the lines add up to the waiting time.
pub fn csv(blame: &TracedBlame) -> String {
    let mut text =
        "by,rank,region,class,call,cause,late_rank,late_region,source,host,late_call,s,ns\n"
            .to_owned();
    let ranks = blame.by_rank.iter().map(|row| (format!("rank,{},", row.rank), &row.by));
    let regions = blame
        .by_region
        .iter()
        .map(|row| (format!("region,,{}", quoted(row.region.as_deref())), &row.by));
    for (place, by) in ranks.chain(regions) {
        for (class, ns) in by.classes().into_iter().filter(|(_, ns)| *ns > 0) {
            let _ = writeln!(text, "{place},{},,,,,,,,{},{ns}", class.name(), seconds(ns));
        }
    }
    for WaitRow { class, call, s, ns, cause } in &blame.waits {
        let LateBy { kind, rank, region, source, call: late_call } = cause;
        let region = quoted(region.as_deref());
        let host = quoted(source.as_ref().map(|source| source.host.as_str()));
        let source = quoted(source.as_ref().map(|source| source.name.as_str()));
        let (class, late_call) = (class.name(), late_call.unwrap_or_default());
        let _ = writeln!(
            text,
            "cause,,,{class},{call},{kind},{rank},{region},{source},{host},{late_call},{s},{ns}"
        );
    }
    if blame.other_waits_ns > 0 {
        let (s, ns) = (blame.other_waits_s, blame.other_waits_ns);
        let _ = writeln!(text, "cause,,,,,other,,,,,,{s},{ns}");
    }
    text
}
