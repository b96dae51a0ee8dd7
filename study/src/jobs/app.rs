//! An MPI program under noise, at its own size and extrapolated.
//!
//! What its trace says becomes a schedule ([`application`]), which is simulated like any other. Compute is
//! the time between calls, less what the kernel took in it, if that was recorded with the trace.

use std::{
    ops::{Deref, Range},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use application::{
    Application, NoNoise, Only, Options, Origins, Plan, Rule, Rules, Segments, Sizes, Taken,
};
use program::Program;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulate::{
    blame as blaming,
    collectives::Op,
    event::{self, Action, EventError, Log, Rendezvous, Schedule},
    loggops::Params,
    noise::{Model, Noise, RunNoise},
    replay,
    sweep::SweepError,
    whatif,
};
use trace::{Lane, LaneId};

use crate::{
    error::{in_words, was_stopped},
    explain::{
        blame::{self, Blame},
        sensitivity::{self, NoiseSensitivity, Sensitivity},
        states::{self, PathPart, Tally, Waits},
    },
    jobs::{
        choices::{Choice, choices, met},
        collective::{self, KneeKeys, SeriesKnee, knees},
        hypotheses::{self, CannotEnd, Change, Question, Refused, Tried},
    },
    network,
    network::variation::{self, Variation},
    noise::{self, Loaded, requires_noise},
    recording::{open, sources::Sources},
    run::{
        point::{Point, Runs, Series},
        resume::Finished,
        shard::{self, Settings, Shard},
        work::{Unwatched, Work},
    },
    units,
};

/// A program from its trace.
#[derive(Clone, Debug)]
pub struct Source {
    /// Directories of the traces: of several sizes of the program, or one.
    pub dirs: Vec<PathBuf>,
    /// Algorithms of collectives.
    pub rules: Rules,
    /// Wildcard receives match the traced message.
    pub as_traced: bool,
    /// Waits for one or some of several requests, and tests, keep the traced order.
    pub deterministic: bool,
    pub only: Option<Only>,
}

/// A part of the communication, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    PointToPoint,
    Collectives,
}

impl Part {
    fn only(self) -> Option<Only> {
        match self {
            Part::All => None,
            Part::PointToPoint => Some(Only::PointToPoint),
            Part::Collectives => Some(Only::Collectives),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Part::All => "all",
            Part::PointToPoint => "p2p",
            Part::Collectives => "collectives",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Request {
    pub source: Source,
    /// What to simulate of the communication, one series for each.
    pub parts: Vec<Part>,
    /// Empty for the program's own size.
    pub ranks: Vec<u64>,
    /// Runs per point.
    pub runs: u64,
    /// One series for each. The first is that of the identity, of questions and of sensitivities.
    pub nets: Vec<Params>,
    pub rendezvous: Rendezvous,
    /// Factors by which the network is faster.
    pub net_scales: Vec<f64>,
    /// Between ranks of one node; None if that is the same network.
    pub net_local: Option<Params>,
    /// None if every message takes L.
    pub latency: Option<variation::Request>,
    /// Repeat each series with co-scheduled noise.
    pub with_coscheduled: bool,
    /// Break down the critical path.
    pub blame: bool,
    /// Each of its variants.
    pub noise: noise::Request,
    /// What to change.
    pub questions: Vec<Question>,
    /// Ask how the time depends on the network.
    pub sensitivity: bool,
    /// Save finished points to this file, and resume from it.
    pub resume: Option<PathBuf>,
}

/// A program under noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    #[serde(flatten)]
    pub about: About,
    /// Time of the simulation at the program's own size without simulated noise; what the kernel took is
    /// where it was in the trace. Null if only a part of the program is simulated.
    pub identity_s: Option<f64>,
    /// How far that is from the trace.
    pub identity_error_pct: Option<f64>,
    pub points: Vec<Point>,
    /// The knee of the first series.
    #[serde(flatten)]
    pub knee: KneeKeys,
    pub knees: Vec<SeriesKnee>,
    /// What each `--if` changes, the largest gain first at each rank count.
    pub hypotheses: Vec<Tried>,
    /// What was not tried: changes of `--if auto` under which the program could not end, and all changes together if
    /// one of them removes what another is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// How the time without noise depends on the network, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sensitivities: Vec<AtRanks>,
}

/// How the time at one rank count depends on the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtRanks {
    pub ranks: u64,
    pub parameters: Vec<Sensitivity>,
    /// How it depends on each source of noise; empty without noise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noise: Vec<NoiseSensitivity>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Command line of the program.
    pub command: String,
    /// Of the trace.
    pub traced_ranks: u32,
    /// From the end of `MPI_Init`, and of what the collector does there, to `MPI_Finalize`.
    pub traced_s: f64,
    /// Mean over the ranks of the time spent computing, without what the kernel took.
    pub compute_s: f64,
    /// Mean over the ranks of what the kernel took from it; null if that was not recorded.
    pub taken_s: Option<f64>,
    pub seed: u64,
    pub noise: String,
    pub noise_model: String,
    pub net: String,
    /// The network between ranks of one node; null if it is the same.
    pub net_local: Option<String>,
    /// File of the latencies of messages, and how they are drawn; null if every message takes L.
    pub latency: Option<String>,
    pub rendezvous: String,
    /// About the trace and the noise.
    pub remarks: Vec<String>,
    /// What traces of several sizes say about others; absent for one trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extrapolation: Option<Extrapolation>,
}

/// A program as a function of the number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extrapolation {
    /// Of the traces.
    pub traced_ranks: Vec<u32>,
    /// What was found, call by call.
    pub found: Vec<FoundCall>,
    /// What was assumed.
    pub assumed: Vec<String>,
}

/// A call as a function of rank and number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundCall {
    /// The MPI function.
    pub call: String,
    /// Null for collectives, and if it depends on rank or round.
    pub tag: Option<i32>,
    /// With whom.
    pub peers: String,
    pub bytes: String,
    /// How the computation before it depends on the number of ranks; empty if it is negligible.
    pub compute: String,
    /// Its part of all computation.
    pub compute_pct: f64,
    /// How often each trace has the call.
    pub count: u64,
}

impl Extrapolation {
    fn of(sizes: &Sizes) -> Extrapolation {
        let call = |found: &application::Found| FoundCall {
            call: found.call.to_owned(),
            tag: found.tag,
            peers: found.peers.clone(),
            bytes: found.bytes.clone(),
            compute: found.compute.clone(),
            compute_pct: 100.0 * found.compute_share,
            count: found.count,
        };
        Extrapolation {
            traced_ranks: sizes.traced().to_vec(),
            found: sizes.found.iter().map(call).collect(),
            assumed: sizes.assumed.clone(),
        }
    }

    /// What was found, one line for each call.
    pub fn words(&self) -> Vec<String> {
        let line = |found: &FoundCall| {
            let tag = found.tag.map_or(String::new(), |tag| format!(" with tag {tag}"));
            let compute = match found.compute.is_empty() {
                true => String::new(),
                false => {
                    format!("; {:.1} % of the computation, {}", found.compute_pct, found.compute)
                }
            };
            format!("{}{tag}: {}, {}{compute}", found.call, found.peers, found.bytes)
        };
        self.found.iter().map(line).collect()
    }
}

impl Sweep {
    /// As the sweep of a collective, for tables and figures.
    pub fn as_sweep(&self) -> collective::Sweep {
        let About { command, traced_ranks, noise, latency, net, remarks, .. } = &self.about;
        let about = collective::About {
            op: command.clone(),
            algorithm: format!("traced on {traced_ranks} ranks"),
            noise: noise.clone(),
            latency: latency.clone(),
            net: net.clone(),
            remarks: remarks.clone(),
            ..collective::About::default()
        };
        collective::Sweep::of(about, self.points.clone())
    }

    /// What ranks wait for as CSV: of each point with a breakdown, over all its runs (`role` is `point`); and of the
    /// unchanged program (`before`) and each change (`after`) in the first run. Seconds are means over the runs,
    /// picoseconds sums.
    pub fn waits_csv(&self) -> String {
        let mut text = format!("ranks,if,{},series,role\n", states::CSV_COLUMNS);
        let first = self.points.first().map(|point| point.series.clone()).unwrap_or_default();
        let mut add = |ranks: u64,
                       asked: Option<&str>,
                       role: &str,
                       waits: &Option<Waits>,
                       series: &Series| {
            if let Some(waits) = waits {
                let series = series.label();
                let series = states::quoted((!series.is_empty()).then_some(series.as_str()));
                let lead = format!("{ranks},{},", states::quoted(asked));
                text += &waits.csv_rows(&lead, &format!(",{series},{role}"));
            }
        };
        for point in &self.points {
            if let Some(blame) = &point.blame {
                add(point.ranks, None, "point", &blame.waits, &point.series);
            }
        }
        let mut before = None;
        for effect in &self.hypotheses {
            let ranks = effect.waits_ranks.unwrap_or(effect.ranks);
            if before != Some(effect.ranks) {
                add(ranks, None, "before", &effect.waits_before, &first);
            }
            before = Some(effect.ranks);
            add(ranks, Some(&effect.text), "after", &effect.waits_after, &first);
        }
        text
    }

    /// Whether there is any noise.
    pub fn is_noisy(&self) -> bool {
        self.about.noise != "none" || self.about.latency.is_some()
    }
}

/// The runs of a sweep, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    identity_ps: Option<i64>,
    points: Vec<Runs>,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        shard::agree(&self.about, &next.about)?;
        shard::agree(&self.points.len(), &next.points.len())?;
        for (all, next) in self.points.iter_mut().zip(next.points) {
            all.join(next)?;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Sweep> {
        let points: Result<Vec<Point>, _> = self.points.iter().map(Point::of).collect();
        Ok(Sweep::of(self.about, self.identity_ps, points?))
    }
}

impl Sweep {
    fn of(about: About, identity_ps: Option<i64>, points: Vec<Point>) -> Sweep {
        let identity_s = identity_ps.map(|ps| ps as f64 / 1e12);
        let error = |identity: f64| 100.0 * (identity / about.traced_s - 1.0);
        let identity_error_pct = identity_s.filter(|_| about.traced_s > 0.0).map(error);
        let knees = knees(&points);
        let knee = knees.first().map_or(KneeKeys::default(), |first| first.knee);
        let (hypotheses, refused, sensitivities) = (Vec::new(), Vec::new(), Vec::new());
        Sweep {
            about,
            identity_s,
            identity_error_pct,
            points,
            knee,
            knees,
            hypotheses,
            refused,
            sensitivities,
        }
    }
}

/// `allreduce<4KiB=recursive-doubling,allreduce=ring`: the first rule that applies.
pub fn rules(text: &str) -> Result<Rules, String> {
    let rule = |part: &str| {
        let wrong =
            || format!("'{part}' is not a rule (expected e.g. allreduce<4KiB=recursive-doubling)");
        let (what, algorithm) = part.split_once('=').ok_or_else(wrong)?;
        let (op, below) = match what.split_once('<') {
            Some((op, below)) => (op, Some(units::size(below.trim())?)),
            None => (what, None),
        };
        let names: Vec<&str> = Op::regular().map(|op| op.name()).collect();
        let unknown =
            || format!("unknown collective '{}' (expected one of {})", op.trim(), names.join(", "));
        let op = Op::regular().find(|known| known.name() == op.trim()).ok_or_else(unknown)?;
        let name = algorithm.trim();
        let algorithm =
            Rules::algorithm(name).ok_or_else(|| format!("unknown algorithm '{name}'"))?;
        Ok(Rule { op, below, algorithm })
    };
    let rules = text.split(',').map(rule).collect::<Result<Vec<_>, String>>()?;
    Rules::new(rules).map_err(|error| error.to_string())
}

/// `DIR1,DIR2,…`: several traces of a program, or one whose name may have commas.
pub fn directories(text: &str) -> Vec<PathBuf> {
    match Path::new(text).exists() {
        true => vec![text.into()],
        false => text.split(',').map(PathBuf::from).collect(),
    }
}

/// A program that has been read.
pub struct Read {
    /// At its own size, that of the largest trace.
    pub application: Application,
    pub about: Program,
    /// Whether what the kernel took is known.
    pub recorded: bool,
    pub remarks: Vec<String>,
    /// If there are several traces.
    several: Option<Several>,
}

/// A program of several traces.
struct Several {
    /// The smaller ones.
    others: Vec<Application>,
    sizes: Sizes,
    /// The size that was made last.
    made: Mutex<Option<(u64, Arc<Application>)>>,
}

/// A program at one size.
pub enum AtSize<'a> {
    Traced(&'a Application),
    Made(Arc<Application>),
}

impl Deref for AtSize<'_> {
    type Target = Application;

    fn deref(&self) -> &Application {
        match self {
            AtSize::Traced(application) => application,
            AtSize::Made(application) => application,
        }
    }
}

impl Read {
    /// The program that this many ranks are simulated with: from one trace copies of it, from several the trace of
    /// this size, or what they say about it.
    pub fn at(&self, ranks: u64) -> Result<AtSize<'_>> {
        let Some(several) = &self.several else { return Ok(AtSize::Traced(&self.application)) };
        let traced = std::iter::once(&self.application).chain(&several.others);
        if let Some(traced) = traced.into_iter().find(|one| u64::from(one.ranks()) == ranks) {
            return Ok(AtSize::Traced(traced));
        }
        let mut made = several.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((size, application)) = &*made
            && *size == ranks
        {
            return Ok(AtSize::Made(Arc::clone(application)));
        }
        // First the one made before: it can be most of the memory.
        *made = None;
        let application = Arc::new(several.sizes.at(ranks)?);
        *made = Some((ranks, Arc::clone(&application)));
        Ok(AtSize::Made(application))
    }

    /// What traces of several sizes say.
    pub fn extrapolation(&self) -> Option<Extrapolation> {
        self.several.as_ref().map(|several| Extrapolation::of(&several.sizes))
    }
}

impl Source {
    /// The program of these traces, with the usual algorithms.
    pub fn of(dirs: Vec<PathBuf>) -> Source {
        Source { dirs, rules: Rules::default(), as_traced: false, deterministic: false, only: None }
    }

    fn named(&self) -> String {
        let names: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        names.join(", ")
    }

    /// Reads the traces.
    pub fn load(&self, threads: usize) -> Result<Read> {
        let mut all =
            self.dirs.iter().map(|dir| self.read(dir, threads)).collect::<Result<Vec<Read>>>()?;
        all.sort_by_key(|read| read.application.ranks());
        let Some(mut largest) = all.pop() else { bail!("no trace directory") };
        if all.is_empty() {
            return Ok(largest);
        }
        let mut applications: Vec<&Application> =
            all.iter().map(|read| &read.application).collect();
        applications.push(&largest.application);
        let named = || format!("cannot extrapolate {}", self.named());
        let sizes = Sizes::new(&applications).with_context(named)?;
        let remarks: Vec<String> = all.iter().flat_map(|read| read.remarks.clone()).collect();
        for remark in remarks {
            if !largest.remarks.contains(&remark) {
                largest.remarks.push(remark);
            }
        }
        let extrapolation = Extrapolation::of(&sizes);
        let found = extrapolation.words().into_iter().map(|words| format!("found {words}"));
        let assumed = extrapolation.assumed.iter().map(|words| format!("assumed: {words}"));
        largest.remarks.extend(found.chain(assumed));
        let others = all.into_iter().map(|read| read.application).collect();
        largest.several = Some(Several { others, sizes, made: Mutex::new(None) });
        Ok(largest)
    }

    /// Reads a trace, and what the kernel took from the program if that was recorded with it.
    fn read(&self, dir: &Path, threads: usize) -> Result<Read> {
        let program = program::open(dir)?;
        let clocks = program::clocks(&program, threads)?;
        let (taken, mut remarks) = Recorded::of(&program)?;
        let Source { as_traced, deterministic, .. } = *self;
        let options = Options { as_traced, deterministic };
        let nothing = NoNoise;
        let taken_by: &dyn Taken = match &taken {
            Some(taken) => taken,
            None => &nothing,
        };
        let named = || format!("cannot simulate {}", dir.display());
        let application =
            application::read(&program, &clocks, &options, taken_by).with_context(named)?;
        remarks.extend(assumptions(&application));
        let recorded = taken.is_some();
        Ok(Read { application, about: program, recorded, remarks, several: None })
    }

    /// The program as a schedule for this many ranks.
    pub fn schedule(
        &self,
        application: &Application,
        ranks: u64,
        net: Option<&Params>,
        with_taken: bool,
    ) -> Result<Schedule> {
        Ok(application.schedule(&self.plan(application, ranks, net, with_taken)?)?)
    }

    /// Whether a schedule that was made from traces of other sizes can end: the functions that fit them may leave
    /// messages without a receive.
    pub fn check_made(
        &self,
        application: &Application,
        schedule: &Schedule,
        net: Option<&Params>,
    ) -> Result<()> {
        let quiet = Noise::none();
        let run = quiet.run(0, 0);
        let params = net.unwrap_or(&Params::FREE);
        let Err(error) = event::run(schedule, params, &event::Options::default(), &run) else {
            return Ok(());
        };
        let plan = self.plan(application, application.ranks().into(), net, false)?;
        let error = match application.why_stuck(&plan, &error) {
            Some(why) => anyhow::Error::new(CannotEnd(why)),
            None => error.into(),
        };
        Err(error.context(format!(
            "cannot extrapolate {} to {} ranks (trace another size)",
            self.named(),
            application.ranks()
        )))
    }

    pub(crate) fn plan<'a>(
        &'a self,
        application: &Application,
        ranks: u64,
        net: Option<&'a Params>,
        with_taken: bool,
    ) -> Result<Plan<'a>> {
        let copies = application.copies(ranks)?;
        Ok(Plan { copies, rules: &self.rules, only: self.only, with_taken, net })
    }
}

/// Why a program cannot end. Of one whose threads are simulated one after the other, that is the reason: no thread of
/// it may have waited for another one.
fn beside_threads(application: &Application, why: String) -> String {
    match application.assumed.overlapping {
        0 => why,
        calls => format!(
            "{calls} of its calls {} calls of other threads of their rank; threads are simulated one after the \
             other, and programs whose threads wait for each other's messages are not supported ({why})",
            if calls == 1 { "overlaps" } else { "overlap" }
        ),
    }
}

/// What the trace did not tell.
fn assumptions(application: &Application) -> Vec<String> {
    let assumed = &application.assumed;
    let count = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let mut remarks = Vec::new();
    if assumed.one_sided > 0 {
        let calls = count(assumed.one_sided, "one-sided call counts", "one-sided calls count");
        remarks.push(format!("{calls} as computation: waits in them are not simulated"));
    }
    if assumed.file > 0 {
        remarks.push(format!(
            "{} as computation",
            count(assumed.file, "file operation counts", "file operations count")
        ));
    }
    if assumed.overlapping > 0 {
        let calls = count(assumed.overlapping, "call overlaps", "calls overlap");
        remarks.push(format!(
            "{calls} with a call of another thread of the rank: simulated one after the other"
        ));
    }
    if assumed.fixed_tags > 0 {
        let receives = count(assumed.fixed_tags, "receive", "receives");
        remarks.push(format!(
            "{receives} with MPI_ANY_TAG use the traced tag: wildcards are kept on one \
             communicator only"
        ));
    }
    if assumed.kept_choices > 0 {
        let waits = count(assumed.kept_choices, "wait", "waits");
        remarks.push(format!("{waits} for one or some of several requests keep the traced order"));
    }
    if assumed.unknown_sizes > 0 {
        let calls = count(assumed.unknown_sizes, "collective", "collectives");
        remarks.push(format!(
            "{calls} with a size for each peer: the sizes are not in the trace, assumed equal"
        ));
    }
    if assumed.off_ns > 0 {
        let s = assumed.off_ns as f64 / 1e9;
        remarks.push(format!(
            "recording was switched off for {s:.3} s in total, counted as computation"
        ));
    }
    remarks
}

/// The recording of a node, if there is one with the program.
fn recording(program: &Program, host: &program::Host) -> Option<PathBuf> {
    Some(program.dir.join(format!("node-{}.detour", host.name))).filter(|path| path.exists())
}

/// The noise that was recorded with a program: for each node, what its ranks met while it ran.
fn recorded_with(program: &Program) -> Vec<noise::WithProgram> {
    let of_host = |(host, about): (u32, &program::Host)| {
        let ranks = || program.ranks.iter().filter(move |rank| rank.host == host);
        Some(noise::WithProgram {
            path: recording(program, about)?,
            threads: ranks().map(|rank| rank.pid).collect(),
            from_ns: ranks().map(|rank| rank.start.ns).min()?,
            to_ns: ranks().map(program::Rank::end_ns).max()?,
        })
    };
    (0..).zip(&program.hosts).filter_map(of_host).collect()
}

/// What the kernel took from the ranks, as recorded on their nodes.
struct Recorded {
    /// By rank: start and end of each detour on the host's CLOCK_MONOTONIC, and the time taken before it.
    spans: Vec<Vec<(i64, i64, i64)>>,
}

impl Recorded {
    /// None if no node was recorded.
    fn of(program: &Program) -> Result<(Option<Recorded>, Vec<String>)> {
        let mut recorded = Recorded { spans: vec![Vec::new(); program.ranks.len()] };
        let (mut nodes, mut remarks) = (0, Vec::new());
        for (host, about) in (0..).zip(&program.hosts) {
            let Some(path) = recording(program, about) else { continue };
            nodes += 1;
            recorded.read(program, host, &path, &mut remarks)?;
        }
        if nodes > 0 && nodes < program.hosts.len() {
            remarks.push(format!("{nodes} of {} nodes were recorded", program.hosts.len()));
        }
        Ok(((nodes > 0).then_some(recorded), remarks))
    }

    fn read(
        &mut self,
        program: &Program,
        host: u32,
        path: &Path,
        remarks: &mut Vec<String>,
    ) -> Result<()> {
        let named = || path.display().to_string();
        let reader = open::open(path)?;
        let epoch = reader.manifest().started_monotonic_ns as i64;
        for (slot, rank) in program.ranks.iter().enumerate().filter(|(_, rank)| rank.host == host) {
            let is_rank =
                |lane: &Lane| matches!(lane, Lane::Thread { tid, .. } if *tid == rank.pid);
            let Some(lane) = reader.lanes().iter().position(is_rank) else {
                remarks.push(format!("{} does not have rank {}", named(), rank.rank));
                continue;
            };
            let mut spans: Vec<(i64, i64, i64)> = Vec::new();
            for block in reader.blocks_of(LaneId(lane as u32)) {
                let block = block.with_context(named)?;
                spans.extend(block.detours.iter().map(|detour| {
                    let start = epoch.saturating_add(detour.start_ns as i64);
                    (start, start.saturating_add(detour.len_ns as i64), 0)
                }));
            }
            spans.sort_unstable();
            let (mut until, mut taken) = (i64::MIN, 0i64);
            for (start, end, before) in &mut spans {
                *start = (*start).max(until);
                *end = (*end).max(*start);
                *before = taken;
                taken = taken.saturating_add(*end - *start);
                until = *end;
            }
            if let Some(own) = self.spans.get_mut(slot) {
                *own = spans;
            }
        }
        let lost = reader.trailer().map_or(0, |trailer| trailer.lost.records);
        if lost > 0 {
            remarks.push(format!("{} lost {lost} records: noise is underestimated", named()));
        }
        Ok(())
    }

    /// What was taken from a rank before a moment.
    fn before(spans: &[(i64, i64, i64)], at: i64) -> i64 {
        let after = spans.partition_point(|(start, _, _)| *start < at);
        match after.checked_sub(1).and_then(|last| spans.get(last)) {
            Some((start, end, before)) => before + (at.min(*end) - start),
            None => 0,
        }
    }
}

impl Taken for Recorded {
    fn ns(&self, rank: u32, begin: i64, end: i64) -> i64 {
        let spans = self.spans.get(rank as usize).map_or(&[][..], Vec::as_slice);
        Recorded::before(spans, end) - Recorded::before(spans, begin)
    }
}

/// Simulates all runs.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Sweep> {
    let mut simulation = Simulation::new(request, work)?;
    let mut finished = match &request.resume {
        Some(path) => {
            Finished::open(path, &Value::Object(request.point_settings(work)?).to_string())?
        }
        None => Finished::nowhere(),
    };
    let identity = simulation.identity()?;
    simulation.check()?;
    let (points, runs) = simulation.points(&mut finished)?;
    let (hypotheses, refused) = simulation.hypotheses(&runs)?;
    let sensitivities = if request.sensitivity { simulation.sensitivities()? } else { Vec::new() };
    let sweep = Sweep::of(simulation.about(), identity, points);
    Ok(Sweep { hypotheses, refused, sensitivities, ..sweep })
}

/// Simulates one shard of the runs.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    let mut simulation = Simulation::new(request, work)?;
    let identity_ps = simulation.identity()?;
    let runs = shard.range(request.runs);
    let of_point = |part, choice: &Choice<'_>, ranks| {
        simulation.point(part, choice, ranks, runs.clone()).map(|(runs, _)| runs)
    };
    let points = simulation.each(of_point)?;
    Ok(Partial { about: simulation.about(), identity_ps, points })
}

/// Steps of programs whose waits are looked at, shared by all questions.
const MOST_LOGGED: u64 = 1 << 22;

/// A program that can be run.
enum Ready {
    Whole(Box<Schedule>),
    /// The same, if it is to be explained.
    Explained(Box<(Schedule, Origins)>),
    Segments(Segments),
}

impl Ready {
    fn messages(&self) -> u64 {
        match self {
            Ready::Whole(schedule) => schedule.messages(),
            Ready::Explained(explained) => explained.0.messages(),
            Ready::Segments(segments) => segments.messages(),
        }
    }
}

/// A program and what it meets: as traced and given, or changed.
#[derive(Clone, Copy)]
struct World<'w> {
    source: &'w Source,
    application: &'w Application,
    /// The network, and the same as fast as it is to be.
    net: &'w Params,
    params: &'w Params,
    noise: &'w Noise,
    sources: &'w Sources,
}

/// A program and what it meets, changed.
struct Changed {
    source: Source,
    /// None if the program is as before.
    application: Option<Application>,
    noise: noise::Request,
    /// How many times faster the network is.
    scale: f64,
    notes: Vec<String>,
}

fn asked_by(text: &str) -> String {
    format!("--if '{text}'")
}

/// The first run of a program, explained.
#[derive(Clone)]
struct Explained {
    ranks: u64,
    waits: Waits,
    path: Vec<PathPart>,
}

/// Whether an operation is a message of a collective.
fn of_collective(schedule: &Schedule, op: u32) -> bool {
    match schedule.operation(op).action {
        Action::Send { tag, .. } | Action::Recv { tag, .. } => {
            tag.is_some_and(application::is_collective)
        }
        Action::Calc { .. } | Action::Choice { .. } | Action::Request => false,
    }
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    program: Read,
    /// The first network.
    net: &'a Params,
    /// The noise that is asked for, by variant: that recorded with the program if none is given and sources of it are.
    noises: Vec<noise::Request>,
    loaded: Vec<Loaded>,
    variation: Option<Variation>,
    rules: event::Options,
}

impl<'a> Simulation<'a> {
    fn new(request: &'a Request, work: &'a Work<'a>) -> Result<Simulation<'a>> {
        let program = request.source.load(work.threads)?;
        let Some(net) = request.nets.first() else { bail!("no network") };
        let noises = request.met(&program.about).variants();
        let asks = !request.questions.is_empty();
        let named = request.blame || asks || request.sensitivity;
        let load = |noise: &noise::Request| noise.load_for(work, Model::default(), named);
        let loaded = noises.iter().map(load).collect::<Result<Vec<_>>>()?;
        if request.with_coscheduled && loaded.iter().any(|loaded| loaded.noise.is_none()) {
            return Err(requires_noise("--with-coscheduled"));
        }
        if request.blame && request.net_local.is_some() {
            bail!("--blame requires one network: omit it, or --net-local");
        }
        if request.sensitivity && request.net_local.is_some() {
            bail!("--sensitivity follows one network: omit it, or --net-local");
        }
        let variation = request.latency.as_ref().map(variation::Request::load).transpose()?;
        program.remarks.iter().for_each(|remark| work.watch.remark(remark));
        let rules = event::Options {
            rendezvous: request.rendezvous,
            local: network::local(request.net_local, &request.noise.placement)?,
            ..event::Options::default()
        };
        Ok(Simulation { request, work, program, net, noises, loaded, variation, rules })
    }

    /// The noise of the first series.
    fn first_noise(&self) -> &Loaded {
        &self.loaded[0]
    }

    fn own(&self) -> u64 {
        u64::from(self.program.application.ranks())
    }

    /// The program as it was traced, ps.
    fn identity(&mut self) -> Result<Option<i64>> {
        if !self.request.parts.contains(&Part::All) {
            return Ok(None);
        }
        let schedule = self.request.source.schedule(
            &self.program.application,
            self.own(),
            Some(self.net),
            true,
        )?;
        self.work.fits(&schedule, self.rules.model)?;
        let silent = Noise::none();
        let ended = event::run(&schedule, self.net, &self.rules, &silent.run(0, 0));
        let ended = ended.map_err(|error| {
            let (source, application) = (&self.request.source, &self.program.application);
            self.with_calls(self.stuck(error), source, application, self.own(), true)
        })?;
        Ok(Some(ended.max()))
    }

    /// The error of a run in the calls of the program, or with those that it is about.
    fn with_calls(
        &self,
        error: anyhow::Error,
        source: &Source,
        application: &Application,
        ranks: u64,
        with_taken: bool,
    ) -> anyhow::Error {
        // Which calls wait for each other does not depend on the network.
        let Ok(plan) = source.plan(application, ranks, Some(self.net), with_taken) else {
            return error;
        };
        let Some(event) = error.downcast_ref::<EventError>() else { return error };
        if let Some(why) = application.why_stuck(&plan, event) {
            return anyhow::Error::new(CannotEnd(beside_threads(application, why)))
                .context(format!("cannot simulate {}", self.request.source.named()));
        }
        let calls = application.calls_of(&plan, event);
        match calls.is_empty() {
            true => error,
            false => error.context(format!("at {}", calls.join("; "))),
        }
    }

    /// Runs a program once, as large as it was traced and without noise.
    fn ends(&self, source: &Source, application: &Application) -> Result<()> {
        let ranks = u64::from(application.ranks());
        let net = self.net;
        let schedule = source.schedule(application, ranks, Some(net), false)?;
        self.work.fits(&schedule, self.rules.model)?;
        let ended = event::run(&schedule, net, &self.rules, &Noise::none().run(0, 0));
        match ended {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(self.with_calls(self.stuck(error), source, application, ranks, false))
            }
        }
    }

    /// Refuses questions without an answer before anything is simulated for long. Those of `auto` are not asked
    /// for by name: they are left out.
    fn check(&self) -> Result<()> {
        let own = &self.program.application;
        for question in &self.request.questions {
            if !matches!(question.change, Change::Program(_) | Change::Map(_)) {
                continue;
            }
            self.work.watch.now(&format!("checking if {}", question.text));
            let named = || asked_by(&question.text);
            let changed = self.changed(own, std::slice::from_ref(question)).with_context(named)?;
            let Changed { source, application, .. } = &changed;
            let Err(error) = self.ends(source, application.as_ref().unwrap_or(own)) else {
                continue;
            };
            // Then the change is not the reason.
            self.ends(&self.first(), own)?;
            return Err(error.context(named()));
        }
        Ok(())
    }

    /// The program and what it meets with these changes.
    fn changed(&self, own: &Application, changes: &[Question]) -> Result<Changed> {
        let mut changed = Changed {
            source: self.first(),
            application: None,
            noise: self.noises[0].clone(),
            scale: 1.0,
            notes: Vec::new(),
        };
        for Question { change, .. } in changes {
            match change {
                Change::Auto => {}
                Change::Program(hypothesis) => {
                    let before = changed.application.as_ref().unwrap_or(own);
                    changed.notes.extend(hypotheses::note(before, hypothesis));
                    changed.application = Some(before.under(hypothesis)?);
                }
                Change::Map(rules) => {
                    let before = changed.application.as_ref().unwrap_or(own);
                    let note = hypotheses::map_note(before, rules, &changed.source.rules);
                    changed.notes.extend(note);
                    changed.source.rules = rules.over(&changed.source.rules);
                }
                Change::NetScale(factor) => changed.scale *= factor,
                Change::Without(name) => changed.noise.without.push(name.clone()),
            }
        }
        Ok(changed)
    }

    fn stuck(&self, error: EventError) -> anyhow::Error {
        anyhow::Error::new(error)
            .context(format!("cannot simulate {}", self.request.source.named()))
    }

    /// The series, and what each has of the communication.
    fn choices(&self) -> Vec<(Part, Choice<'a>)> {
        let Request { parts, nets, net_scales, with_coscheduled, .. } = self.request;
        let of_part = |&part: &Part| {
            let only = (parts.len() > 1).then(|| part.name().to_owned());
            let alike = Series { only, ..Series::default() };
            let sizes = [alike.size];
            let all = choices(&alike, nets, &self.noises, &sizes, net_scales, *with_coscheduled);
            all.into_iter().map(move |choice| (part, choice))
        };
        parts.iter().flat_map(of_part).collect()
    }

    /// What `visit` makes of each point, series by series.
    fn each<T>(
        &self,
        mut visit: impl FnMut(Part, &Choice<'_>, u64) -> Result<T>,
    ) -> Result<Vec<T>> {
        let choices = self.choices();
        let mut found: Vec<(usize, T)> = Vec::new();
        // One program at a time: it can be most of the memory.
        for ranks in self.ranks() {
            for (place, (part, choice)) in choices.iter().enumerate() {
                found.push((place, visit(*part, choice, ranks)?));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// All points; those that are not finished are run, and their runs returned.
    fn points(&self, finished: &mut Finished) -> Result<(Vec<Point>, Vec<Runs>)> {
        let runs = 0..self.request.runs;
        let mut all = Vec::new();
        let points = self.each(|part, choice, ranks| {
            let series = &choice.series;
            if let Some(known) = finished.find(series, ranks).filter(|_| !self.request.blame) {
                return Ok(known);
            }
            let (runs, blame) = self.point(part, choice, ranks, runs.clone())?;
            let point = Point::of(&runs)?;
            if finished.find(series, ranks).is_none() {
                finished.add(&point)?;
            }
            all.push(runs);
            Ok(Point { blame, ..point })
        })?;
        Ok((points, all))
    }

    fn point(
        &self,
        part: Part,
        Choice { series, net, noise }: &Choice<'_>,
        ranks: u64,
        runs: Range<u64>,
    ) -> Result<(Runs, Option<Blame>)> {
        let loaded = &self.loaded[*noise];
        let watch = self.work.watch;
        let label = format!("{ranks} ranks {}", series.label());
        watch.now(&format!("{label}, schedule"));
        let params = net.scaled(series.net_scale)?;
        let noise = met(series, loaded, self.variation.as_ref(), &params)?;
        let source = &Source { only: part.only(), ..self.request.source.clone() };
        let application = &self.program.at(ranks)?;
        let sources = &loaded.sources;
        let world = World { source, application, net, params: &params, noise: &noise, sources };
        let ready = self.prepare(&world, ranks)?;
        let passes = if self.request.blame { 2 } else { 1 };
        watch.expect(ready.messages().saturating_mul((runs.end - runs.start) * passes));
        watch.now(&label);
        let advance = |messages| watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let silent = Noise::none().with_model(noise.model());
        let once = simulate::sweep::Plan { runs: 1, progress: &|_| true, ..plan };
        let whole = !matches!(ready, Ready::Segments(_));
        let noiseless =
            self.times(&ready, &params, &silent, &once, 0..1).map_err(|error| match whole {
                true => self.with_calls(error, source, application, ranks, false),
                false => error,
            })?;
        let begin = Instant::now();
        let runs = Runs {
            series: series.clone(),
            ranks,
            messages: ready.messages(),
            noiseless_ps: noiseless.first().copied().unwrap_or(0),
            times_ps: self.times(&ready, &params, &noise, &plan, runs)?,
            took_s: begin.elapsed().as_secs_f64(),
        };
        let blame = match &ready {
            Ready::Explained(explained) => Some(self.blame(&world, explained, &plan)?),
            Ready::Whole(_) | Ready::Segments(_) => None,
        };
        Ok((runs, blame))
    }

    /// Why the runs of a program took as long as they did, and what its ranks waited for.
    fn blame(
        &self,
        world: &World<'_>,
        (schedule, origins): &(Schedule, Origins),
        plan: &simulate::sweep::Plan<'_>,
    ) -> Result<Blame> {
        let World { params, noise, sources, .. } = *world;
        let all = Mutex::new(Tally::default());
        let look = |log: &Log, met: &RunNoise<'_>| {
            let run = Tally::of(log, met, origins, |op| of_collective(schedule, op))?;
            all.lock().unwrap_or_else(PoisonError::into_inner).add(run);
            Ok(())
        };
        let blames = blaming::blame_runs_with(schedule, params, &self.rules, noise, plan, &look)?;
        let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        let waits = Some(all.waits(origins, sources));
        let parts = all.path(origins, sources);
        Ok(Blame { waits, parts, ..Blame::of(&blames, sources)? })
    }

    /// A program for this many ranks: extrapolated ones segment by segment, if that is possible; the times are
    /// the same.
    fn prepare(&self, world: &World<'_>, ranks: u64) -> Result<Ready> {
        let World { source, application, net, params, noise, .. } = *world;
        let plan = source.plan(application, ranks, Some(net), false)?;
        if self.request.blame {
            let explained = application.schedule_with_origins(&plan)?;
            self.work.fits(&explained.0, self.rules.model)?;
            blame::check(&explained.0, self.rules.model, self.work.memory())?;
            return Ok(Ready::Explained(Box::new(explained)));
        }
        let is_larger = plan.copies > 1 || ranks > self.own();
        if is_larger
            && let Some(segments) = application.segments(&plan, params, &self.rules, noise)?
        {
            return Ok(Ready::Segments(segments));
        }
        let schedule = application.schedule(&plan)?;
        self.work.fits(&schedule, self.rules.model)?;
        Ok(Ready::Whole(Box::new(schedule)))
    }

    /// The times of these runs, ps.
    fn times(
        &self,
        ready: &Ready,
        params: &Params,
        noise: &Noise,
        plan: &simulate::sweep::Plan<'_>,
        runs: Range<u64>,
    ) -> Result<Vec<i64>> {
        let by_events = |schedule: &Schedule, runs| {
            let share = replay::share(schedule, params, &self.rules, noise, plan, runs);
            share.map(|share| share.times)
        };
        let times = match ready {
            Ready::Whole(schedule) => by_events(schedule, runs),
            Ready::Explained(explained) => by_events(&explained.0, runs),
            Ready::Segments(segments) => segments.times(params, &self.rules, noise, plan, runs),
        };
        match times {
            Err(SweepError::Events(error)) => Err(self.stuck(error)),
            times => Ok(times?),
        }
    }

    fn ranks(&self) -> Vec<u64> {
        match self.request.ranks.is_empty() {
            true => vec![self.own()],
            false => self.request.ranks.clone(),
        }
    }

    fn sensitivities(&self) -> Result<Vec<AtRanks>> {
        let of_ranks = |ranks: u64| {
            self.work.watch.now(&format!("{ranks} ranks, sensitivity"));
            let schedule =
                self.first().schedule(&*self.program.at(ranks)?, ranks, Some(self.net), false)?;
            blame::fits("--sensitivity", &schedule, self.rules.model, self.work.memory())?;
            let found = sensitivity::of(&schedule, self.net, &self.rules);
            let parameters = found.map_err(|error| self.stuck(error))?;
            Ok(AtRanks { ranks, parameters, noise: self.to_noise(&schedule)? })
        };
        self.ranks().into_iter().map(of_ranks).collect()
    }

    /// How the time under noise depends on its sources.
    fn to_noise(&self, schedule: &Schedule) -> Result<Vec<NoiseSensitivity>> {
        let loaded = self.first_noise();
        if loaded.noise.is_none() {
            return Ok(Vec::new());
        }
        blame::check(schedule, self.rules.model, self.work.memory())?;
        let net = self.net;
        let noise = met(&Series::default(), loaded, self.variation.as_ref(), net)?;
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let blames = blaming::blame_runs(schedule, net, &self.rules, &noise, &plan)?;
        Ok(sensitivity::to_noise(&Blame::of(&blames, &loaded.sources)?))
    }

    /// What the changes gain, paired run by run with the points of the first series.
    fn hypotheses(&mut self, points: &[Runs]) -> Result<(Vec<Tried>, Vec<Refused>)> {
        let mut questions: Vec<Question> = Vec::new();
        // Positions of the questions of `auto`.
        let mut of_auto = 0..0;
        for question in &self.request.questions {
            match question.change {
                Change::Auto if !of_auto.is_empty() => {}
                Change::Auto => {
                    let names = hypotheses::names(&self.first_noise().sources);
                    let rules = &self.request.source.rules;
                    let ranks = self.ranks().into_iter().max().unwrap_or(1);
                    let application = &self.program.application;
                    of_auto.start = questions.len();
                    questions.extend(hypotheses::auto(application, rules, &names, ranks)?);
                    of_auto.end = questions.len();
                }
                _ => questions.push(question.clone()),
            }
        }
        let together = self.request.questions.len() > 1
            && !self.request.questions.iter().any(|question| question.change == Change::Auto);
        let Some(first) = points.first().map(|point| point.series.clone()) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let (mut effects, mut refused) = (Vec::new(), Vec::new());
        for base in points.iter().filter(|point| point.series == first) {
            let mut of_point = Vec::new();
            let before = match questions.is_empty() {
                true => None,
                false => self.before(base, questions.len())?,
            };
            let asked = |text: &str, changes: &[Question]| {
                self.effect(base, before.as_ref(), text, changes, questions.len())
            };
            for (place, question) in questions.iter().enumerate() {
                let Question { text, .. } = question;
                match asked(text, std::slice::from_ref(question)) {
                    Ok(effect) => of_point.push(effect),
                    // The other answers do not depend on it.
                    Err(error) if of_auto.contains(&place) && !was_stopped(&error) => {
                        let reason = match error.downcast_ref::<CannotEnd>() {
                            Some(CannotEnd(why)) => why.clone(),
                            None => in_words(&error),
                        };
                        refused.push(Refused { text: text.clone(), ranks: base.ranks, reason });
                    }
                    Err(error) => return Err(error.context(asked_by(text))),
                }
            }
            of_point.sort_by(|a, b| b.gain_pct.total_cmp(&a.gain_pct));
            if together {
                // One change may remove what another one is about.
                match asked("all together", &questions) {
                    Ok(effect) => of_point.push(effect),
                    Err(error)
                        if error.is::<application::HypothesisError>()
                            || error.is::<CannotEnd>() =>
                    {
                        let reason = self.apart(base.ranks, &questions, &error)?;
                        let text = "all together".to_owned();
                        refused.push(Refused { text, ranks: base.ranks, reason });
                    }
                    Err(error) => return Err(error.context("all together")),
                }
            }
            effects.extend(of_point);
        }
        Ok((effects, refused))
    }

    /// Why changes that are possible one by one cannot be combined.
    fn apart(&self, ranks: u64, questions: &[Question], error: &anyhow::Error) -> Result<String> {
        if let Some(CannotEnd(why)) = error.downcast_ref() {
            return Ok(why.clone());
        }
        let own = self.program.at(ranks)?;
        let fails = |many: &usize| {
            questions.get(..*many).is_some_and(|first| self.changed(&own, first).is_err())
        };
        let last = (1..=questions.len()).find(fails);
        let text = last.and_then(|many| questions.get(many - 1)).map(|question| &question.text);
        Ok(match text {
            Some(text) => {
                format!("an earlier change removed what '{text}' is about: {}", in_words(error))
            }
            None => in_words(error),
        })
    }

    /// The program of the first series.
    fn first(&self) -> Source {
        let only = self.request.parts.first().and_then(|part| part.only());
        Source { only, ..self.request.source.clone() }
    }

    /// The unchanged program, explained.
    fn before(&self, base: &Runs, questions: usize) -> Result<Option<Explained>> {
        let (net, loaded) = (self.net, self.first_noise());
        let params = net.scaled(base.series.net_scale)?;
        let noise = met(&base.series, loaded, self.variation.as_ref(), &params)?;
        let sources = &loaded.sources;
        let (source, application) = (&self.first(), &self.program.at(base.ranks)?);
        let world = World { source, application, net, params: &params, noise: &noise, sources };
        self.explain(&world, base.ranks, questions)
    }

    /// What the ranks wait for in the first run, and its critical path: of as many ranks as can be looked at in
    /// reasonable time. None if that is not even the traced number.
    fn explain(
        &self,
        world: &World<'_>,
        ranks: u64,
        questions: usize,
    ) -> Result<Option<Explained>> {
        let World { source, application, net, params, noise, sources } = *world;
        if self.rules.local.is_some() {
            return Ok(None);
        }
        // The same number for all questions: that of the unchanged program.
        let before = self.program.at(ranks)?;
        let steps: u64 = before.tapes.iter().map(|tape| tape.steps.len() as u64).sum();
        let copies = u64::from(before.copies(ranks)?);
        let most = MOST_LOGGED / (questions as u64 + 1) / steps.max(1);
        let copies = match copies <= most {
            true => copies,
            false if steps > MOST_LOGGED => return Ok(None),
            // Collectives have power-of-two algorithms: the same number of ranks would be another case.
            false => {
                (0..copies.ilog2()).map(|by| copies >> by).find(|few| *few <= most).unwrap_or(1)
            }
        };
        let ranks = copies * u64::from(before.ranks());
        let plan = source.plan(application, ranks, Some(net), false)?;
        let (schedule, origins) = application.schedule_with_origins(&plan)?;
        if schedule.operations() as u64 > 8 * MOST_LOGGED {
            return Ok(None);
        }
        let log = replay::log(&schedule, params, &self.rules, noise, self.work.seed, 0)?;
        let met = replay::noise_of(&schedule, noise, self.work.seed, 0);
        let tally = Tally::of(&log, &met, &origins, |op| of_collective(&schedule, op))
            .map_err(|source| self.stuck(EventError::Noise { rank: log.last(), source }))?;
        let (waits, path) = (tally.waits(&origins, sources), tally.path(&origins, sources));
        Ok(Some(Explained { ranks, waits, path }))
    }

    fn effect(
        &self,
        base: &Runs,
        before: Option<&Explained>,
        text: &str,
        changes: &[Question],
        questions: usize,
    ) -> Result<Tried> {
        self.work.watch.now(&format!("{} ranks, if {text}", base.ranks));
        let own = self.program.at(base.ranks)?;
        let Changed { source, application: changed, noise, scale, notes } =
            self.changed(&own, changes)?;
        let scale = base.series.net_scale * scale;
        let application = changed.as_ref().unwrap_or(&own);
        let net = self.net;
        let params = net.scaled(scale)?;
        let without = match noise.without.len() == self.noises[0].without.len() {
            true => None,
            false => {
                let quietly = self.quietly();
                Some(noise.load_for(&quietly, Model::default(), true)?)
            }
        };
        let loaded = without.as_ref().unwrap_or(self.first_noise());
        let noise = met(&base.series, loaded, self.variation.as_ref(), &params)?;
        let sources = &loaded.sources;
        let (source, params, noise) = (&source, &params, &noise);
        let world = World { source, application, net, params, noise, sources };
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let runs = 0..base.times_ps.len() as u64;
        // What changes nothing takes as long as before.
        let untouched = scale == base.series.net_scale
            && without.is_none()
            && application.tapes == own.tapes
            && application.maps_alike(&source.rules, &self.request.source.rules);
        let (times, after) = match untouched {
            true => (base.times_ps.clone(), before.cloned()),
            false => std::thread::scope(|scope| {
                // One run, while the others are run.
                let explaining =
                    before.map(|_| scope.spawn(|| self.explain(&world, base.ranks, questions)));
                let ready = self.prepare(&world, base.ranks)?;
                let times = self.times(&ready, params, noise, &plan, runs)?;
                let after = match explaining.map(|thread| thread.join()) {
                    Some(Ok(after)) => after?,
                    Some(Err(_)) | None => None,
                };
                anyhow::Ok((times, after))
            })
            .map_err(|error| self.unanswered(error, source, application))?,
        };
        let gain = whatif::compare(&base.times_ps, &times, self.work.seed)?;
        Ok(Tried {
            text: text.to_owned(),
            ranks: base.ranks,
            median_us: gain.median.value / 1e6,
            gain_pct: gain.gain.value,
            gain_ci95_pct: [gain.gain.low, gain.gain.high],
            changed_runs: gain.changed_runs,
            waits_before: before.map(|before| before.waits.clone()),
            waits_ranks: after.as_ref().map(|after| after.ranks),
            path_before: before.map(|before| before.path.clone()).unwrap_or_default(),
            critical: after.as_ref().map(|after| states::path_in_words(&after.path)),
            path_after: after.as_ref().map(|after| after.path.clone()).unwrap_or_default(),
            waits_after: after.map(|after| after.waits),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        })
    }

    /// Why a changed program has no time.
    fn unanswered(
        &self,
        error: anyhow::Error,
        source: &Source,
        application: &Application,
    ) -> anyhow::Error {
        if !error.is::<EventError>() {
            return error;
        }
        // The operations of segments are not those of the program, which ends at no size if it does not at its own.
        match self.ends(source, application) {
            Err(own) if own.is::<CannotEnd>() => own,
            _ => error,
        }
    }

    /// Remarks about the noise have been made.
    fn quietly(&self) -> Work<'static> {
        Work {
            seed: self.work.seed,
            threads: self.work.threads,
            memory: self.work.memory,
            watch: &Unwatched,
        }
    }

    fn about(&self) -> About {
        let Request { nets, net_local, rendezvous, latency, .. } = self.request;
        let Read { application, about, recorded, remarks, .. } = &self.program;
        let mean_s = |ns: i64| ns as f64 / 1e9 / f64::from(application.ranks().max(1));
        let mut all = remarks.clone();
        all.extend(noise::remarks(&self.loaded));
        About {
            command: about.command.join(" "),
            traced_ranks: application.ranks(),
            traced_s: application.traced_ps() as f64 / 1e12,
            compute_s: mean_s(application.assumed.compute_ns),
            taken_s: recorded.then(|| mean_s(application.assumed.taken_ns)),
            seed: self.work.seed,
            noise: collective::several(self.loaded.iter().map(|loaded| loaded.words.clone())),
            noise_model: self.first_noise().model.name().to_owned(),
            net: collective::several(nets.iter().map(network::describe)),
            net_local: net_local.as_ref().map(network::describe),
            latency: latency.as_ref().map(variation::Request::words),
            rendezvous: rendezvous.name().to_owned(),
            remarks: all,
            extrapolation: self.program.extrapolation(),
        }
    }
}

impl Request {
    /// The noise that the program meets. Sources to be left out, without any noise given, are those of the noise that was
    /// recorded with the program.
    fn met(&self, program: &Program) -> noise::Request {
        let leaves_out =
            |question: &Question| matches!(question.change, Change::Auto | Change::Without(_));
        let none = self.noise.noise.iter().all(|spec| spec == "none");
        let asks = !self.noise.without.is_empty() || self.questions.iter().any(leaves_out);
        if !none || !asks {
            return self.noise.clone();
        }
        noise::Request { with_program: recorded_with(program), ..self.noise.clone() }
    }

    /// Everything that determines a point's figures; identifies a --resume file.
    fn point_settings(&self, work: &Work<'_>) -> Result<Settings> {
        let programs = self.source.dirs.iter().map(|dir| Ok(program::open(dir)?));
        let programs = programs.collect::<Result<Vec<Program>>>()?;
        let largest = programs.iter().max_by_key(|program| program.size);
        let met = largest.map_or_else(|| self.noise.clone(), |program| self.met(program));
        let mut settings = met.settings()?;
        let runs = programs.iter().map(|program| program.run.into()).collect();
        settings.insert("program".to_owned(), several(runs));
        settings.insert("rules".to_owned(), format!("{:?}", self.source.rules).into());
        settings.insert("as_traced".to_owned(), self.source.as_traced.into());
        settings.insert("deterministic".to_owned(), self.source.deterministic.into());
        if let [part] = self.parts[..] {
            settings.insert("only".to_owned(), part.name().into());
        }
        settings.insert("runs".to_owned(), self.runs.into());
        let nets = self.nets.iter().map(|net| format!("{net:?}").into()).collect();
        settings.insert("net".to_owned(), several(nets));
        settings.insert("net_local".to_owned(), format!("{:?}", self.net_local).into());
        settings.insert("rendezvous".to_owned(), self.rendezvous.name().into());
        if let Some(latency) = &self.latency {
            settings.insert("latency".to_owned(), latency.settings()?);
        }
        settings.insert("seed".to_owned(), work.seed.into());
        Ok(settings)
    }

    /// The same plus the list of points: shards must have the same points.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.point_settings(work)?;
        let parts: Vec<Value> = self.parts.iter().map(|part| part.name().into()).collect();
        settings.insert("only".to_owned(), several(parts));
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("net_scale".to_owned(), self.net_scales.clone().into());
        settings.insert("with_coscheduled".to_owned(), self.with_coscheduled.into());
        Ok(settings)
    }
}

/// One value alone, several as a list.
fn several(mut values: Vec<Value>) -> Value {
    match values.len() {
        1 => values.remove(0),
        _ => values.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_a_collective_a_size_and_an_algorithm() {
        let given = rules("allreduce<4KiB=recursive-doubling, allreduce=ring").unwrap();
        assert_eq!(given.of(Op::Allreduce, 4095), "recursive-doubling");
        assert_eq!(given.of(Op::Allreduce, 4096), "ring");
        for bad in [
            "",
            "allreduce",
            "allreduce=",
            "allreduce=nothing",
            "send=ring",
            "bcast=ring",
            "allreduce<x=ring",
        ] {
            assert!(rules(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_taken_between_two_moments_is_counted_once() {
        let recorded = Recorded { spans: vec![vec![(100, 110, 0), (200, 250, 10)]] };
        assert_eq!(recorded.ns(0, 0, 1_000), 60);
        assert_eq!(recorded.ns(0, 105, 205), 10);
        assert_eq!(recorded.ns(0, 110, 200), 0);
        assert_eq!(recorded.ns(0, 210, 220), 10);
        assert_eq!(recorded.ns(1, 0, 1_000), 0);
    }
}
