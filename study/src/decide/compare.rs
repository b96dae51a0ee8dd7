//! Two recordings compared, source by source and by what their noise costs a job.

use std::path::Path;

use analysis::{By, Comparison, Contents, Part, RateCounter, Rates};
use anyhow::{Context, Result, bail};
use rand::RngExt;
use random::{Stream, bootstrap};
use serde::Serialize;
use simulate::{
    noise::{Composed, Noise, Offsets},
    stats::{Estimate, Sample},
    sweep::{Plan, SweepError},
    whatif::Node,
};

use crate::{
    decide::{
        action::Action,
        advice::{Advice, Place},
        decision,
    },
    error::{self, in_words},
    jobs::workload::{self, JobKind, Workload},
    noise::{
        placement::{self, Places},
        support::{self, Support},
        tail::Copies,
    },
    recording::{
        load::Load,
        open::{self, AnyReader},
        recorded::{Recorded, no_source},
    },
    run::{point::slowdown, work::Work},
};

/// Usual number of runs per recording.
pub const RUNS: u64 = 100;
/// How often each recording is drawn again from itself, block of time by block of time, and with which share of the
/// runs: another recording of the same noise would have other detours, and a job on many ranks depends on the few
/// longest.
const RESAMPLES: u64 = 40;
const RUNS_PER_RESAMPLE: u64 = 20;
/// Of random numbers, for [`random::key`].
const PURPOSE: u64 = 0x7265_7361_6d70_6c65;

/// How to simulate the job.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Runs per recording.
    pub runs: u64,
    /// Runs for the gain of each action.
    pub action_runs: u64,
    /// Repeat a recording if a run is longer than it.
    pub repeat: bool,
    /// Which CPU each rank is on.
    pub placement: placement::Request,
    /// Processes to ignore: names, units or classes.
    pub exclude: Vec<String>,
    /// Rows of the table.
    pub by: By,
    /// Extend both recordings by fitted tails.
    pub tail: bool,
}

/// The comparison, and what the noise of both recordings costs the job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub comparison: Comparison,
    pub projected: Option<Projection>,
    /// Why there is no projection.
    pub not_projected: Option<String>,
    /// What to do first about the noise of the second recording: at most three, largest gain first; empty
    /// if nothing is worth doing. Null if that is unknown.
    pub actions: Option<Vec<Action>>,
    /// What else kept the node busy. Null if that was not asked for.
    pub load: Option<Loads>,
}

/// What kept the node busy during each recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Loads {
    pub before: Load,
    pub after: Load,
}

/// How long a job takes under the noise of each recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Projection {
    /// Description of the simulated job.
    pub job: String,
    pub net: String,
    pub ranks: u64,
    pub runs: u64,
    pub seed: u64,
    pub noiseless_us: f64,
    pub before: Projected,
    pub after: Projected,
    /// Change of the median; positive if the job takes longer now.
    pub change_pct: f64,
    /// As far as the runs scatter, and as recordings drawn again from blocks of time of these two differ.
    pub change_ci95_pct: [f64; 2],
    /// Noise that was omitted.
    pub remarks: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Projected {
    pub median_us: f64,
    /// As far as the runs scatter, and as the recording drawn again from blocks of time differs.
    pub median_ci95_us: [f64; 2],
    pub slowdown_median: f64,
}

/// The times of the job under the noise of one recording.
#[derive(Clone, Debug)]
struct Simulated {
    /// The median of the runs, ps.
    median: Estimate,
    /// Their medians under the noise of the recording, drawn again.
    resampled: Vec<f64>,
}

impl Simulated {
    fn projected(&self, noiseless: f64) -> Projected {
        let Estimate { value, low, high } = self.median;
        let drawn = bootstrap::interval(value, self.resampled.clone());
        let us = |ps: f64| ps / 1e6;
        Projected {
            median_us: us(value),
            median_ci95_us: [us(low.min(drawn.0)), us(high.max(drawn.1))],
            slowdown_median: slowdown(value, noiseless),
        }
    }

    /// How much longer the other one takes, in percent, and the interval of that.
    fn change(&self, after: &Simulated) -> (f64, [f64; 2]) {
        let change =
            |after: f64, before: f64| 100.0 * (after / before.max(f64::MIN_POSITIVE) - 1.0);
        let value = change(after.median.value, self.median.value);
        let pairs = self
            .resampled
            .iter()
            .flat_map(|before| after.resampled.iter().map(move |after| change(*after, *before)));
        let (low, high) = bootstrap::interval(value, pairs.collect());
        let of_runs = [
            change(after.median.low, self.median.high),
            change(after.median.high, self.median.low),
        ];
        (value, [low.min(of_runs[0]), high.max(of_runs[1])])
    }
}

/// The recording before: what is known of it is kept for further comparisons with it.
pub struct Before {
    reader: AnyReader,
    kept: Option<Kept>,
}

/// What was read and simulated of the recording before.
struct Kept {
    part: Part,
    exclude: Vec<String>,
    rates: Rates,
    /// Or why it cannot be simulated.
    side: Result<Side, String>,
    /// For so many ranks, repeated or not.
    simulated: Option<(u64, bool, Simulated)>,
}

impl Before {
    pub fn open(path: &Path) -> Result<Before> {
        Ok(Before { reader: open::open(path)?, kept: None })
    }

    pub fn reader(&self) -> &AnyReader {
        &self.reader
    }

    /// What to compare with: read once for all recordings that have the same part in common with it.
    fn part(
        &mut self,
        part: &Part,
        workload: &workload::Request,
        request: &Request,
        seed: u64,
    ) -> Result<&mut Kept> {
        let is_it = |kept: &Kept| kept.part == *part && kept.exclude == request.exclude;
        let kept = match self.kept.take().filter(is_it) {
            Some(kept) => kept,
            None => Kept {
                part: part.clone(),
                exclude: request.exclude.clone(),
                rates: rates(&self.reader, part, request.by)?,
                side: Side::of(workload, (&self.reader, part), request, seed)
                    .map_err(|error| in_words(&error)),
                simulated: None,
            },
        };
        Ok(self.kept.insert(kept))
    }
}

/// Compares the recordings in two files; with advice, also what to do about the second one.
pub fn compare(
    before: &Path,
    after: &Path,
    workload: &workload::Request,
    request: &Request,
    advice: Option<&Advice>,
    work: &Work<'_>,
) -> Result<Compared> {
    let (mut before, after) = (Before::open(before)?, open::open(after)?);
    let mut compared = compare_with(&mut before, &after, workload, request, work)?;
    let Some(advice) = advice else { return Ok(compared) };
    let load = |reader: &AnyReader| {
        let place = Place::of_recording(reader.manifest());
        Load::of_recording(reader, &request.exclude).advised(advice, &place)
    };
    let load = Loads { before: load(before.reader()), after: load(&after) };
    if let Some(projection) = &compared.projected {
        let side = (&after, &compared.comparison.compared.after);
        let asked = (workload, request, projection.ranks);
        compared.actions = actions(side, asked, &load.after, advice, work)?;
    }
    compared.load = Some(load);
    Ok(compared)
}

/// Compares a recording with another one, which may be compared with many. The same workload and seed each
/// time, please: what is kept depends on them.
pub fn compare_with(
    before: &mut Before,
    after: &AnyReader,
    workload: &workload::Request,
    request: &Request,
    work: &Work<'_>,
) -> Result<Compared> {
    let name = before.reader.name().to_owned();
    let scope = analysis::scope(&Contents::of(&before.reader, None), &Contents::of(after, None));
    let scope = scope.with_context(|| format!("cannot compare {name} and {}", after.name()))?;
    let nothing_before = open::watched_nothing(&before.reader);
    let kept = before.part(&scope.before, workload, request, work.seed)?;
    let rates_after = rates(after, &scope.after, request.by)?;
    // Zero watched time does not mean zero noise.
    for (nothing, rates) in
        [(nothing_before, &kept.rates), (open::watched_nothing(after), &rates_after)]
    {
        if rates.watched_s == 0.0 {
            bail!("{nothing}");
        }
    }
    let comparison = analysis::compare(&kept.rates, &rates_after, scope, work.seed);
    let side = (after, &comparison.compared.after);
    let (projected, not_projected) = match project(workload, kept, side, request, work)? {
        Ok(projection) => (Some(projection), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Compared { comparison, projected, not_projected, actions: None, load: None })
}

/// What to do about the noise of a recording; None if its detours have no sources.
fn actions(
    (reader, part): (&AnyReader, &Part),
    (workload, request, ranks): (&workload::Request, &Request, u64),
    load: &Load,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<Option<Vec<Action>>> {
    let mut exclude = request.exclude.clone();
    if !exclude.is_empty() {
        let (_, unknown) = Recorded::new(reader).excluded_if_known(&exclude);
        exclude.retain(|name| !unknown.contains(name));
    }
    let mut workload = workload.clone();
    if let JobKind::Collectives { ranks: of_job, .. } = &mut workload.kind {
        *of_job = Some(ranks);
    }
    let (placement, part) = (request.placement, part.clone());
    let (runs, tail) = (request.action_runs, request.tail);
    let asked = decision::Request { workload, part, placement, runs, exclude, tail };
    match decision::ask(reader, &asked, load, advice, work) {
        Err(error) if error::was_stopped(&error) => Err(error),
        asked => Ok(asked.ok().map(|asked| asked.actions)),
    }
}

/// Counts the events of a part of a recording in blocks of time.
fn rates(reader: &AnyReader, part: &Part, by: By) -> Result<Rates> {
    let contents = Contents::of(reader, None);
    let mut counter = RateCounter::new(&contents, reader.block_infos(), part, by);
    for block in reader.blocks() {
        let block = block.with_context(|| format!("cannot read {}", reader.name()))?;
        counter.add(&block, reader.sources());
    }
    let not_whole = open::not_whole(reader);
    Ok(counter.finish(&Contents { truncated: not_whole.as_deref(), ..contents }))
}

/// What the noise of both recordings costs the job, or why that cannot be simulated; the recordings are
/// still compared.
fn project(
    workload: &workload::Request,
    kept: &mut Kept,
    after: (&AnyReader, &Part),
    request: &Request,
    work: &Work<'_>,
) -> Result<Result<Projection, String>> {
    let after = Side::of(workload, after, request, work.seed).map_err(|error| in_words(&error));
    let (before, after) = match (&kept.side, &after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return Ok(Err(why.clone())),
    };
    // What ran in one of them only may be excluded.
    if let Some(name) = before.unknown.iter().find(|name| after.unknown.contains(name)) {
        bail!("{}", no_source(name));
    }
    let supported = [before, after].into_iter().filter_map(|side| side.support);
    let supported = supported.min_by_key(|support| support.ranks);
    let workload = workload.workload(supported.map(|support| support.ranks))?;
    let noiseless = workload.noiseless()?;
    let repeats = |side: &Side| request.repeat || support::repeats(&side.lanes, noiseless);
    let key = (workload.ranks(), repeats(before));
    let known = kept.simulated.take().filter(|(ranks, repeat, _)| (*ranks, *repeat) == key);
    let sides = if known.is_some() { 1 } else { 2 };
    let runs_again = request.runs.div_ceil(RUNS_PER_RESAMPLE);
    let runs = request.runs.saturating_add(RESAMPLES * runs_again);
    work.watch.expect(workload.messages().saturating_mul(sides * runs));
    work.watch.now(&format!("{} ranks", workload.ranks()));
    let advance = |messages| work.watch.advance(messages);
    let noiseless = noiseless as f64;
    // The median of some runs under the noise of a recording, as it is or drawn again.
    let median = |side: &Side, draw: Option<u64>| -> Result<Result<Estimate, String>> {
        let seed = draw.map_or(work.seed, |draw| random::key(work.seed, PURPOSE, draw));
        let runs = if draw.is_some() { runs_again } else { request.runs };
        let plan = Plan { seed, ..work.plan(runs, &advance) };
        let noise = match side.noise(&workload, repeats(side), draw.map(|_| seed)) {
            Ok(noise) => noise,
            Err(error) => return Ok(Err(in_words(&error))),
        };
        match workload.times(&noise, &plan) {
            Err(error) if error != SweepError::Stopped => {
                let what = format!("cannot simulate the noise of {}", side.name);
                Ok(Err(in_words(&anyhow::Error::new(error).context(what))))
            }
            times => Ok(Ok(Sample::new(times?)?.estimate(0.5))),
        }
    };
    let simulated = |side: &Side| -> Result<Result<Simulated, String>> {
        let as_recorded = match median(side, None)? {
            Ok(median) => median,
            Err(why) => return Ok(Err(why)),
        };
        let mut resampled = Vec::new();
        for draw in 0..RESAMPLES {
            // One that leaves the job no time at all has no median.
            resampled.extend(median(side, Some(draw))?.ok().map(|median| median.value));
        }
        Ok(Ok(Simulated { median: as_recorded, resampled }))
    };
    let of_before = match known {
        Some((_, _, simulated)) => Ok(simulated),
        None => simulated(before)?,
    };
    let (of_before, of_after) = match (of_before, simulated(after)?) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
    };
    let remarks: Vec<String> = before.remarks.iter().chain(&after.remarks).cloned().collect();
    let (change_pct, change_ci95_pct) = of_before.change(&of_after);
    let (before, after) = (of_before.projected(noiseless), of_after.projected(noiseless));
    kept.simulated = Some((key.0, key.1, of_before));
    // Tails are what a recording lacks for more ranks.
    let unsupported = supported.filter(|_| !request.tail);
    let unsupported = unsupported.and_then(|support| support.remark(workload.ranks()));
    let remarks = remarks.into_iter().chain(unsupported);
    Ok(Ok(Projection {
        change_pct,
        change_ci95_pct,
        job: workload.words.clone(),
        net: workload.net().to_owned(),
        ranks: workload.ranks(),
        runs: request.runs,
        seed: work.seed,
        noiseless_us: noiseless / 1e6,
        before,
        after,
        remarks: remarks.collect(),
    }))
}

/// A recording, ready to be simulated.
struct Side {
    name: String,
    lanes: Vec<Composed>,
    places: Places,
    /// With fitted tails.
    copies: Option<Copies>,
    support: Option<Support>,
    /// Excluded names that it does not have.
    unknown: Vec<String>,
    /// About omitted noise.
    remarks: Vec<String>,
}

impl Side {
    fn of(
        workload: &workload::Request,
        (reader, part): (&AnyReader, &Part),
        request: &Request,
        seed: u64,
    ) -> Result<Side> {
        let recorded = Recorded::new(reader);
        let (excluded, unknown) = recorded.excluded_if_known(&request.exclude);
        let used = |lane: usize| part.has(lane as u32);
        let places = Places::new(reader, &recorded, &request.placement, used)?;
        let lanes = places.lanes(recorded.lanes_of(reader, part)?, &excluded);
        if lanes.is_empty() {
            bail!("{}", open::watched_nothing(reader));
        }
        let support = support::of(&lanes, workload)?;
        let extend = || Copies::of(reader, &recorded, &lanes, places.nodes(), seed);
        let copies = request.tail.then(extend);
        let tails = copies.as_ref().map(|copies| copies.extended.words());
        let remarks = recorded.remarks().into_iter().chain(places.remarks.iter().cloned());
        let remarks = remarks.chain(tails).map(|words| format!("{}: {words}", reader.name()));
        let remarks = remarks.collect();
        let name = reader.name().to_owned();
        Ok(Side { name, lanes, places, copies, support, unknown, remarks })
    }

    /// The noise as recorded, or drawn again from its blocks of time: the same ones on all lanes, so that what lanes
    /// have at the same time stays together.
    fn noise(&self, workload: &Workload, repeat: bool, drawn: Option<u64>) -> Result<Noise> {
        let (lanes, nodes) = match &self.copies {
            Some(copies) => (&copies.lanes, copies.nodes()),
            None => (&self.lanes, self.places.nodes()),
        };
        let drawn = drawn.map(|key| {
            let span_ns = lanes.iter().map(Composed::span_ns).max().unwrap_or(0);
            let blocks = analysis::blocks_of_time(span_ns) as usize;
            let mut stream = Stream::new(key);
            let order: Vec<usize> = (0..blocks).map(|_| stream.random_range(0..blocks)).collect();
            lanes.iter().map(|lane| lane.rearranged(&order)).collect::<Vec<_>>()
        });
        let lanes = drawn.as_ref().unwrap_or(lanes);
        let node = Node {
            on_one_clock: None,
            lanes,
            model: workload.model,
            offsets: Offsets::Random,
            nodes,
            repeat,
        };
        let noise = node.without(&[]);
        noise.with_context(|| format!("cannot read noise from {}", self.name))
    }
}
