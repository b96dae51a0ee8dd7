//! Wait states of simulated runs: what ranks wait for, by class, rank, region and cause, and what their critical path
//! consists of.
//!
//! In: logs of runs of a program, and where its operations come from; out: [`Waits`] and the parts of the path. Sums are
//! of whole picoseconds: every list of [`Waits`] adds up to the waiting time.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write};

use analysis::words::percent_said;
use application::{Origin, Origins, StepKind};
use mpi_abi::Call;
use program::FastMap;
use serde::Serialize;
use simulate::{
    event::{Log, NOBODY},
    noise::{RunNoise, WorkError},
    waits::{self, Cause, Followed, Late},
};
use trace::Class;

use crate::{
    explain::parted::{Compared, Like},
    recording::sources::Sources,
};

/// What ranks wait for. Seconds are those of all ranks together in one run, the mean of several; picoseconds are summed
/// over the runs, and exact: the classes, the causes and each of the lists add up to `waiting_ps`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    pub late_sender_s: f64,
    /// Large messages only.
    pub late_receiver_s: f64,
    pub collective_s: f64,
    /// For a network interface that is busy.
    pub nic_s: f64,
    /// All of them.
    pub waiting_s: f64,
    /// In ps.
    pub waiting_ps: u128,
    /// Number of runs.
    pub runs: u64,
    /// By what made others late.
    pub causes: CauseSums,
    /// By source of noise, the most first.
    pub sources: Vec<SourceWaits>,
    /// By the rank that waits.
    pub ranks: Vec<RankWaits>,
    /// By the region in which it waits, the most first.
    pub regions: Vec<RegionWaits>,
    /// By class, function and cause, the most first.
    pub states: Vec<WaitState>,
    /// Waiting that is not in `states`, because there are too many causes.
    pub other_s: f64,
    /// In ps.
    pub other_ps: u128,
}

/// Waiting by what made others late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CauseSums {
    /// Noise on the late rank, or on one that it had waited for.
    pub noise_s: f64,
    pub compute_s: f64,
    /// CPU time of calls: o, O, and what they took in the trace beyond the model.
    pub communication_s: f64,
    /// g, G and L of messages.
    pub network_s: f64,
    /// No cause was found.
    pub unexplained_s: f64,
    /// In ps.
    pub noise_ps: u128,
    /// In ps.
    pub compute_ps: u128,
    /// In ps.
    pub communication_ps: u128,
    /// In ps.
    pub network_ps: u128,
    /// In ps.
    pub unexplained_ps: u128,
}

/// Waiting that one source of noise causes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceWaits {
    #[serde(flatten)]
    pub source: SourceName,
    pub s: f64,
    /// In ps.
    pub ps: u128,
    /// Share of all waiting.
    pub share_pct: f64,
}

/// A source of noise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceName {
    /// Null if not recorded by Detour: periodic noise, or another tool's.
    pub class: Option<Class>,
    pub name: String,
    /// systemd unit, or the cgroup path if there is no unit.
    pub unit: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
}

/// Waiting of a rank, or of a block of ranks if there are many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankWaits {
    /// The first rank of the block.
    pub rank: u64,
    /// Ranks of the block.
    pub ranks: u64,
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
    pub nic_s: f64,
    pub noise_s: f64,
    pub compute_s: f64,
    pub communication_s: f64,
    pub network_s: f64,
    pub unexplained_s: f64,
    pub s: f64,
    /// In ps.
    pub late_sender_ps: u128,
    /// In ps.
    pub late_receiver_ps: u128,
    /// In ps.
    pub collective_ps: u128,
    /// In ps.
    pub nic_ps: u128,
    /// In ps.
    pub ps: u128,
}

impl WaitsBy {
    /// By class, in the order of [`CLASSES`]: seconds, and exact.
    pub fn classes(&self) -> [(f64, u128); CLASSES.len()] {
        [
            (self.late_sender_s, self.late_sender_ps),
            (self.late_receiver_s, self.late_receiver_ps),
            (self.collective_s, self.collective_ps),
            (self.nic_s, self.nic_ps),
        ]
    }
}

/// Waiting with the same class, function and cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitState {
    /// `late sender`, `late receiver`, `collective` or `nic`.
    pub class: &'static str,
    /// The function that was waited for to complete; null if none was.
    pub call: Option<&'static str>,
    pub s: f64,
    /// In ps.
    pub ps: u128,
    pub cause: LateBy,
}

/// What made a rank late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LateBy {
    /// `noise`, `compute`, `communication`, `network` or `unexplained`.
    pub kind: &'static str,
    /// The rank that lost the time: the late one, or one that it had waited for; null for the network.
    pub rank: Option<u64>,
    /// The region it was in, outer regions first, with `/` between them; null outside of all regions.
    pub region: Option<String>,
    /// The source of the noise; null for everything else.
    pub source: Option<SourceName>,
    /// The function that took the time or sent the message; null for computation and noise.
    pub call: Option<&'static str>,
    /// For computation: the function before it.
    pub after: Option<&'static str>,
}

/// A part of the critical path; none of them is a wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPart {
    /// As in `cause`; the rank is the one that has the most of it.
    #[serde(flatten)]
    pub what: LateBy,
    /// Share of that rank in it.
    pub rank_pct: f64,
    /// Ranks that have some of it.
    pub ranks: u64,
    pub s: f64,
    /// In ps.
    pub ps: u128,
    /// Share of the path.
    pub share_pct: f64,
}

/// Names of the classes, as in JSON and tables.
pub const CLASSES: [&str; 4] = ["late sender", "late receiver", "collective", "nic"];
const KINDS: [&str; 5] = ["noise", "compute", "communication", "network", "unexplained"];

/// Rows of `states` that are kept.
const ROWS: usize = 200;
/// Ranks with a row of their own; more are summed up in blocks.
const BLOCKS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Noise,
    Compute,
    Communication,
    Network,
    Unexplained,
}

/// A cause by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Because {
    kind: Kind,
    region: u32,
    /// Of noise.
    source: u32,
    /// Of communication, or before computation.
    call: Option<Call>,
    /// [`NOBODY`] for the network.
    rank: u32,
}

/// Sums by class and by kind of cause.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    classes: [u128; CLASSES.len()],
    kinds: [u128; KINDS.len()],
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        let pairs = self.classes.iter_mut().zip(other.classes);
        let pairs = pairs.chain(self.kinds.iter_mut().zip(other.kinds));
        pairs.for_each(|(sum, more)| *sum += more);
    }

    fn by(&self, runs: u64) -> WaitsBy {
        let s = |ps: u128| seconds(ps, runs);
        let [late_sender_s, late_receiver_s, collective_s, nic_s] = self.classes.map(s);
        let [noise_s, compute_s, communication_s, network_s, unexplained_s] = self.kinds.map(s);
        let [late_sender_ps, late_receiver_ps, collective_ps, nic_ps] = self.classes;
        let ps = self.classes.iter().sum();
        WaitsBy {
            late_sender_s,
            late_receiver_s,
            collective_s,
            nic_s,
            noise_s,
            compute_s,
            communication_s,
            network_s,
            unexplained_s,
            s: s(ps),
            late_sender_ps,
            late_receiver_ps,
            collective_ps,
            nic_ps,
            ps,
        }
    }

    fn causes(&self, runs: u64) -> CauseSums {
        let [noise_ps, compute_ps, communication_ps, network_ps, unexplained_ps] = self.kinds;
        let s = |ps: u128| seconds(ps, runs);
        CauseSums {
            noise_s: s(noise_ps),
            compute_s: s(compute_ps),
            communication_s: s(communication_ps),
            network_s: s(network_ps),
            unexplained_s: s(unexplained_ps),
            noise_ps,
            compute_ps,
            communication_ps,
            network_ps,
            unexplained_ps,
        }
    }
}

fn seconds(ps: u128, runs: u64) -> f64 {
    ps as f64 / 1e12 / runs.max(1) as f64
}

fn share(ps: u128, whole: u128) -> f64 {
    if whole > 0 { 100.0 * ps as f64 / whole as f64 } else { 0.0 }
}

/// The number of a class, the call that is waited for, and why.
type State = (usize, Option<Call>, Because);

/// The waits and critical paths of runs of one schedule, summed up. The order of the runs does not matter.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    runs: u64,
    ranks: Vec<Sums>,
    regions: Vec<Sums>,
    states: FastMap<State, u128>,
    path: FastMap<Because, u128>,
}

impl Tally {
    /// One run: its log, its noise, and where its operations come from.
    pub fn of(
        log: &Log,
        noise: &RunNoise<'_>,
        origins: &Origins,
        is_collective: impl Fn(u32) -> bool,
    ) -> Result<Tally, WorkError> {
        let mut tally = Tally {
            runs: 1,
            ranks: vec![Sums::default(); log.ranks() as usize],
            regions: vec![Sums::default(); origins.regions.len()],
            ..Tally::default()
        };
        let mut followed = Followed::new(log, noise);
        let mut compared = Compared::default();
        for wait in waits::each(log, is_collective) {
            let Origin { completed_in, step, .. } = origins.of(wait.rank, wait.op);
            let call = match step {
                StepKind::Call(call) => Some(call),
                StepKind::Compute(_) | StepKind::Other => None,
            };
            let mut sums = Sums::default();
            let class = wait.class as usize;
            sums.classes[class] = ps(wait.end - wait.begin);
            compared.clear();
            followed.parted(&wait, |of_late, late| {
                let because = because(&late, origins);
                compared.add(of_late, like(&because), because, late.ps.max(0) as u64);
            })?;
            compared.divide((wait.end - wait.begin).max(0) as u64, |found, share| {
                let because = found.unwrap_or_else(|| unexplained(wait.rank, wait.op, origins));
                sums.kinds[because.kind as usize] += u128::from(share);
                *tally.states.entry((class, call, because)).or_default() += u128::from(share);
            });
            tally.ranks[wait.rank as usize].add(&sums);
            if let Some(region) = tally.regions.get_mut(completed_in as usize) {
                region.add(&sums);
            }
        }
        followed.path(|late| {
            *tally.path.entry(because(&late, origins)).or_default() += ps(late.ps);
        })?;
        Ok(tally)
    }

    /// Adds other runs of the same schedule.
    pub fn add(&mut self, other: Tally) {
        self.runs += other.runs;
        for (all, more) in [(&mut self.ranks, other.ranks), (&mut self.regions, other.regions)] {
            all.resize(all.len().max(more.len()), Sums::default());
            all.iter_mut().zip(&more).for_each(|(sums, more)| sums.add(more));
        }
        for (state, more) in other.states {
            *self.states.entry(state).or_default() += more;
        }
        for (because, more) in other.path {
            *self.path.entry(because).or_default() += more;
        }
    }

    pub fn waits(&self, origins: &Origins, sources: &Sources) -> Waits {
        let mut all = Sums::default();
        self.ranks.iter().for_each(|sums| all.add(sums));
        let by = all.by(self.runs);
        let mut states: Vec<(&State, u128)> =
            self.states.iter().map(|(state, ps)| (state, *ps)).collect();
        states.sort_unstable_by_key(|(state, ps)| (Reverse(*ps), **state));
        let others = states.split_off(states.len().min(ROWS));
        let other_ps = others.iter().map(|(_, ps)| ps).sum();
        let state = |((class, call, because), ps): (&State, u128)| WaitState {
            class: CLASSES[*class],
            call: call.map(Call::name),
            s: seconds(ps, self.runs),
            ps,
            cause: late_by(because, origins, sources),
        };
        Waits {
            late_sender_s: by.late_sender_s,
            late_receiver_s: by.late_receiver_s,
            collective_s: by.collective_s,
            nic_s: by.nic_s,
            waiting_s: by.s,
            waiting_ps: by.ps,
            runs: self.runs,
            causes: all.causes(self.runs),
            sources: self.sources(sources, by.ps),
            ranks: self.blocks(),
            regions: self.regions(origins),
            states: states.into_iter().map(state).collect(),
            other_s: seconds(other_ps, self.runs),
            other_ps,
        }
    }

    fn sources(&self, sources: &Sources, waiting_ps: u128) -> Vec<SourceWaits> {
        let mut sums: BTreeMap<SourceName, u128> = BTreeMap::new();
        for ((_, _, because), ps) in &self.states {
            if because.kind == Kind::Noise {
                *sums.entry(named(sources, because.source)).or_default() += ps;
            }
        }
        let mut rows: Vec<SourceWaits> = sums
            .into_iter()
            .map(|(source, ps)| {
                let (s, share_pct) = (seconds(ps, self.runs), share(ps, waiting_ps));
                SourceWaits { source, s, ps, share_pct }
            })
            .collect();
        // Stable: those with the same time stay in the order of their names.
        rows.sort_by_key(|row| Reverse(row.ps));
        rows
    }

    fn blocks(&self) -> Vec<RankWaits> {
        let each = self.ranks.len().div_ceil(BLOCKS).max(1);
        let block = |(place, sums): (usize, &[Sums])| {
            let mut all = Sums::default();
            sums.iter().for_each(|sums| all.add(sums));
            let (rank, ranks) = ((place * each) as u64, sums.len() as u64);
            RankWaits { rank, ranks, by: all.by(self.runs) }
        };
        self.ranks.chunks(each).enumerate().map(block).collect()
    }

    fn regions(&self, origins: &Origins) -> Vec<RegionWaits> {
        let row = |(number, sums): (u32, &Sums)| RegionWaits {
            region: region(origins, number),
            by: sums.by(self.runs),
        };
        let mut rows: Vec<RegionWaits> = (0..).zip(&self.regions).map(row).collect();
        rows.retain(|row| row.by.ps > 0);
        rows.sort_by(|a, b| (b.by.ps, &a.region).cmp(&(a.by.ps, &b.region)));
        rows
    }

    /// The parts of the critical path, the longest first.
    pub fn path(&self, origins: &Origins, sources: &Sources) -> Vec<PathPart> {
        let whole: u128 = self.path.values().sum();
        // By what it is; of the ranks, how many they are and which has the most.
        struct Part {
            ps: u128,
            ranks: u64,
            most: (u128, Reverse<u32>),
        }
        let mut parts: BTreeMap<Because, Part> = BTreeMap::new();
        for (because, ps) in &self.path {
            let alike = Because { rank: NOBODY, ..*because };
            let none = Part { ps: 0, ranks: 0, most: (0, Reverse(NOBODY)) };
            let part = parts.entry(alike).or_insert(none);
            part.ps += ps;
            part.ranks += u64::from(because.rank != NOBODY);
            part.most = part.most.max((*ps, Reverse(because.rank)));
        }
        let mut rows: Vec<PathPart> = parts
            .into_iter()
            .map(|(because, Part { ps, ranks, most: (most, Reverse(rank)) })| PathPart {
                what: late_by(&Because { rank, ..because }, origins, sources),
                rank_pct: share(most, ps),
                ranks,
                s: seconds(ps, self.runs),
                ps,
                share_pct: share(ps, whole),
            })
            .collect();
        rows.sort_by_key(|row| Reverse(row.ps));
        rows
    }
}

fn ps(ps: i64) -> u128 {
    ps.max(0) as u128
}

/// What a part of a path is set off against, as in the blame of a real run.
fn like(because: &Because) -> Like {
    match because.kind {
        Kind::Noise => Like::Noise(because.source),
        Kind::Compute => Like::Compute(because.region),
        Kind::Communication | Kind::Network => Like::Communication,
        Kind::Unexplained => Like::Unexplained,
    }
}

fn unexplained(rank: u32, op: u32, origins: &Origins) -> Because {
    let Origin { region, .. } = origins.of(rank, op);
    Because { kind: Kind::Unexplained, region, source: 0, call: None, rank: NOBODY }
}

fn because(late: &Late, origins: &Origins) -> Because {
    let Origin { region, step, .. } = origins.of(late.rank, late.op);
    let none = Because { kind: Kind::Unexplained, region, source: 0, call: None, rank: late.rank };
    let (before, call) = match step {
        StepKind::Compute(before) => (Some(before), None),
        StepKind::Call(call) => (None, Some(call)),
        StepKind::Other => (None, None),
    };
    match (late.cause, before) {
        (Cause::Compute, Some(before)) => Because { kind: Kind::Compute, call: before, ..none },
        // What a call took beyond the model, or a test.
        (Cause::Compute, None) | (Cause::Overhead, _) => {
            Because { kind: Kind::Communication, call, ..none }
        }
        (Cause::Noise(source), _) => Because { kind: Kind::Noise, source, ..none },
        (Cause::Network, _) => Because { kind: Kind::Network, call, rank: NOBODY, ..none },
        (Cause::Unexplained, _) => none,
    }
}

fn region(origins: &Origins, number: u32) -> Option<String> {
    origins.regions.get(number as usize).filter(|name| !name.is_empty()).cloned()
}

fn named(sources: &Sources, number: u32) -> SourceName {
    let crate::recording::sources::Name { class, name, unit, own } = sources.name(number);
    SourceName { class, name, unit, own }
}

fn late_by(because: &Because, origins: &Origins, sources: &Sources) -> LateBy {
    let name = because.call.map(Call::name);
    let (call, after) = if because.kind == Kind::Compute { (None, name) } else { (name, None) };
    LateBy {
        kind: KINDS[because.kind as usize],
        rank: (because.rank != NOBODY).then_some(u64::from(because.rank)),
        region: region(origins, because.region),
        source: (because.kind == Kind::Noise).then(|| named(sources, because.source)),
        call,
        after,
    }
}

/// Parts that are named, and from which share.
const SAID: usize = 4;
const SAID_PCT: f64 = 1.0;

/// The critical path in words: "compute of rank 3 in force 62 %, network 20 %, ...".
pub fn path_in_words(path: &[PathPart]) -> String {
    // Messages and the calls that make them are one thing each.
    let mut parts: Vec<(String, f64)> = Vec::new();
    for part in path {
        let words = words(part);
        match parts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, share)) => *share += part.share_pct,
            None => parts.push((words, part.share_pct)),
        }
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut text, mut left) = (String::new(), 100.0);
    for (words, share) in parts.iter().take(SAID).filter(|(_, share)| *share >= SAID_PCT) {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{words} {}", percent_said(*share));
        left -= share;
    }
    match text.is_empty() {
        true => "nothing".to_owned(),
        false if left >= SAID_PCT => format!("{text}, other {}", percent_said(left)),
        false => text,
    }
}

fn words(part: &PathPart) -> String {
    let LateBy { kind, rank, region, source, after, .. } = &part.what;
    let ranks = match rank {
        Some(rank) if part.ranks == 1 || part.rank_pct >= 50.0 => format!("rank {rank}"),
        _ => format!("{} ranks", part.ranks),
    };
    let within = match (region, after) {
        (Some(region), _) => format!(" in {region}"),
        (None, Some(after)) => format!(" after {after}"),
        (None, None) => String::new(),
    };
    match (*kind, source) {
        ("compute", _) => format!("compute of {ranks}{within}"),
        ("noise", Some(source)) => match source.class {
            Some(class) => format!("noise from {}", analysis::words::label_of(class, &source.name)),
            None => format!("noise from {}", source.name),
        },
        ("communication", _) => "CPU time of MPI calls".to_owned(),
        (kind, _) => kind.to_owned(),
    }
}

/// Columns of [`Waits::csv_rows`].
pub const CSV_COLUMNS: &str =
    "by,rank,ranks,region,class,call,cause,late_rank,late_region,source,late_call,after,s,ps,runs";

impl Waits {
    /// As CSV: one line per rank and class, then per region and class, then per state. Each line begins with `lead` and
    /// ends with `tail`. Of each of the three kinds, the lines add up to the waiting time.
    pub fn csv_rows(&self, lead: &str, tail: &str) -> String {
        let tail = format!("{}{tail}", self.runs);
        let ranks = self.ranks.iter().map(|row| {
            let place = format!("rank,{},{},", row.rank, row.ranks);
            (place, &row.by)
        });
        let regions = self.regions.iter().map(|row| {
            let place = format!("region,,,{}", quoted(row.region.as_deref()));
            (place, &row.by)
        });
        let mut text = String::new();
        for (place, by) in ranks.chain(regions) {
            for (class, (s, ps)) in CLASSES.iter().zip(by.classes()) {
                if ps > 0 {
                    let _ = writeln!(text, "{lead}{place},{class},,,,,,,,{s},{ps},{tail}");
                }
            }
        }
        for WaitState { class, call, s, ps, cause } in &self.states {
            let LateBy { kind, rank, region, source, call: late_call, after } = cause;
            let rank = rank.map(|rank| rank.to_string()).unwrap_or_default();
            let source = quoted(source.as_ref().map(|source| source.name.as_str()));
            let (region, call) = (quoted(region.as_deref()), call.unwrap_or_default());
            let (late_call, after) = (late_call.unwrap_or_default(), after.unwrap_or_default());
            let _ = writeln!(
                text,
                "{lead}state,,,,{class},{call},{kind},{rank},{region},{source},{late_call},{after},{s},{ps},{tail}"
            );
        }
        if self.other_ps > 0 {
            let (s, ps) = (self.other_s, self.other_ps);
            let _ = writeln!(text, "{lead}state,,,,,,other,,,,,,{s},{ps},{tail}");
        }
        text
    }
}

/// A name in CSV.
pub fn quoted(name: Option<&str>) -> String {
    name.map(|name| format!("\"{}\"", name.replace('"', "\"\""))).unwrap_or_default()
}
