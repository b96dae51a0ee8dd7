//! What each source of a recording costs a job: which questions are asked, and the answers as rows.
//!
//! Sources that took time are evaluated individually, up to a limit. The rest, which took the least time
//! and never much at once, are evaluated together. So nothing is omitted, and a node with hundreds of
//! daemons does not take hours.

use std::{cmp::Ordering, collections::HashMap};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use simulate::{
    noise::{Composed, Model, Offsets, Taken},
    stats::Sample,
    sweep::Plan,
    whatif::{self as engine, Effect, Node, Question, Shift, gain::NEGLIGIBLE_PCT},
};
use trace::{Class, Lane, Mode};

use crate::{
    advice::{Advice, AdvisedSource, Place, Remedy},
    open::{self, AnyReader, Opened},
    recorded::{Recorded, Source, lane_words},
    work::Work,
    workload::Workload,
};

/// What to ask.
#[derive(Clone, Debug)]
pub struct Request {
    /// Paired runs with and without each source.
    pub runs: u64,
    /// Sources to remove together: names, units or classes.
    pub remove: Vec<String>,
    /// Also move each source to this CPU.
    pub shift: Option<u32>,
    /// Also co-schedule each source.
    pub quantise: bool,
    /// Sources evaluated individually; the rest are evaluated together.
    pub top: usize,
    /// Repeat the recording if a run is longer than it.
    pub repeat: bool,
}

/// What each source of a recording costs a job. Intervals are 95 % confidence intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// Where the recording was made.
    pub host: String,
    pub ranks: u64,
    pub runs: u64,
    pub seed: u64,
    /// Description of the job.
    pub job: String,
    pub net: String,
    #[serde(serialize_with = "model_name")]
    pub noise_model: Model,
    /// The CPU that sources are moved to.
    pub shift_cpu: Option<u32>,
    #[serde(skip)]
    pub quantise: bool,
    /// Smaller gains are reported as nothing.
    pub negligible_pct: f64,
    pub baseline: Baseline,
    /// Largest gain first. Sources evaluated together with others are not listed.
    pub sources: Vec<OfSource>,
    /// All sources that are not listed.
    pub others: Option<Group>,
    /// All sources of each unit.
    pub units: Vec<Group>,
    /// The sources to be removed together.
    pub together: Option<Group>,
    /// About noise of the recording that is not used, or missing because the recording is incomplete.
    pub remarks: Vec<String>,
}

fn model_name<S: serde::Serializer>(model: &Model, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(model.name())
}

/// The job with all noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Baseline {
    pub median_us: f64,
    pub median_ci95_us: [f64; 2],
    pub noiseless_us: f64,
    pub slowdown_median: f64,
    /// Detours of the recording.
    pub detours: u64,
    pub detour_ns_total: u64,
}

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfSource {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
    /// The recorded program's own threads.
    pub program: bool,
    /// Place by cost to the job, from 1; null if it costs nothing.
    pub place: Option<usize>,
    /// The same as `place`.
    pub rank: Option<usize>,
    /// Place by time taken on the node, from 1.
    pub local_rank: usize,
    /// Share of all detours' time.
    pub local_share_pct: f64,
    pub local_ns_total: u64,
    pub local_ns_max: u64,
    /// Detours it is part of.
    pub detours: u64,
    #[serde(flatten)]
    pub answer: Answer,
    /// What to do about it, best first; empty if it costs nothing.
    pub advice: Vec<Remedy>,
}

/// Several sources at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The unit, or the names given by the user.
    pub names: Vec<String>,
    /// The first of the names.
    pub unit: Option<String>,
    pub source_count: usize,
    pub local_ns_total: u64,
    pub local_share_pct: f64,
    #[serde(flatten)]
    pub answer: Answer,
}

/// What changes without the source, and after the other changes asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub median_us_without: f64,
    pub median_ci95_us_without: [f64; 2],
    #[serde(flatten)]
    pub removed: Change,
    pub shifted: Option<Gain>,
    pub quantised: Option<Gain>,
}

/// A changed job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    pub median_us: f64,
    #[serde(flatten)]
    pub change: Change,
}

/// How much a change gains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Reduction of the median.
    pub gain_pct: f64,
    pub gain_ci95_pct: [f64; 2],
    /// Runs whose time differs.
    pub changed_runs: u64,
    /// Runs that get noticeably shorter.
    pub shorter_runs: u64,
    pub effect: Effect,
}

fn us(ps: f64) -> f64 {
    ps / 1e6
}

impl Change {
    fn of(gain: &engine::Gain) -> Change {
        Change {
            gain_pct: gain.gain.value,
            gain_ci95_pct: [gain.gain.low, gain.gain.high],
            changed_runs: gain.changed_runs,
            shorter_runs: gain.shorter_runs,
            effect: gain.effect(),
        }
    }
}

impl Gain {
    fn of(gain: &engine::Gain) -> Gain {
        Gain { median_us: us(gain.median.value), change: Change::of(gain) }
    }
}

impl Answer {
    fn of(answer: &engine::Answer) -> Answer {
        let median = &answer.removed.median;
        Answer {
            median_us_without: us(median.value),
            median_ci95_us_without: [us(median.low), us(median.high)],
            removed: Change::of(&answer.removed),
            shifted: answer.shifted.as_ref().map(Gain::of),
            quantised: answer.quantised.as_ref().map(Gain::of),
        }
    }
}

/// Opens a recording whose detours are attributed to sources.
pub fn open_attributed(path: &std::path::Path) -> Result<AnyReader> {
    match open::open_as_it_is(path)? {
        Opened::Trace(reader) => {
            check(&reader)?;
            Ok(*reader)
        }
        Opened::Runs(_) => bail!(
            "{} is another tool's noise file, which has no sources: use it with `detour simulate \
             --noise`, or record with `detour record`",
            path.display()
        ),
    }
}

/// Rejects recordings without detours or sources.
pub fn check(reader: &AnyReader) -> Result<()> {
    let why = match reader.manifest().mode {
        Mode::Attributed | Mode::Program => return Ok(()),
        Mode::ProbeOnly => {
            "recorded without kernel records, so detours have no sources; record again without \
             --no-bpf"
        }
        Mode::KernelOnly => {
            "recorded without the probe, so there are no detours; record again without --no-probe"
        }
        Mode::Imported => {
            "imported, so detours have no sources; use it with `detour simulate --noise`, or \
             record with `detour record`"
        }
    };
    bail!("{}: {why}", reader.name())
}

/// Simulates the job as recorded, and with each change.
pub fn ask(
    reader: &AnyReader,
    workload: &Workload,
    request: &Request,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<WhatIf> {
    check(reader)?;
    let recorded = Recorded::new(reader);
    let Lanes { lanes, cpus, taken, detours, detour_ns } = lanes(reader, &recorded)?;
    let one_clock = if request.quantise { recorded.on_one_clock(reader)? } else { None };
    let node = Node {
        lanes: &lanes,
        on_one_clock: one_clock.as_deref(),
        model: workload.model,
        offsets: Offsets::Random,
        repeat: request.repeat,
    };
    let shift = request.shift.map(|cpu| match cpus.iter().position(|&lane| lane == Some(cpu)) {
        Some(lane) => Shift::Lane(lane),
        None => Shift::Elsewhere,
    });
    let chosen = choose(&taken, request.top);
    let plans = Plans::new(&recorded.sources, &taken, chosen, request)?;
    let questions: Vec<Question> = plans
        .sets()
        .map(|sources| {
            let movable = sources.iter().all(|&s| can_move(&recorded.sources[s as usize]));
            let shift = shift.filter(|_| movable);
            Question { sources: sources.clone(), shift, quantise: request.quantise }
        })
        .collect();

    let moved = questions.iter().filter(|q| matches!(q.shift, Some(Shift::Lane(_)))).count();
    let each = workload.messages().saturating_mul(request.runs);
    work.watch.expect(((1 + questions.len() + moved) as u64).saturating_mul(each));
    work.watch.now(&format!("{} ranks", workload.ranks()));
    let advance = |messages| work.watch.advance(messages);
    let plan = work.plan(request.runs, &advance);
    let noiseless_us = us(workload.noiseless()? as f64);
    let answers = simulate(&node, &questions, workload, &plan)?;
    let nothing = engine::compare(&answers.as_recorded, &answers.as_recorded, work.seed)?;
    let nothing = engine::Answer {
        removed: nothing,
        shifted: shift.map(|_| nothing),
        quantised: request.quantise.then_some(nothing),
    };
    let results = Results {
        plans: &plans,
        answers: answers.answers.iter().map(Answer::of).collect(),
        nothing: Answer::of(&nothing),
        taken: &taken,
        detour_ns,
        advice,
        place: Place::of_recording(reader.manifest()),
    };
    let median = Sample::new(answers.as_recorded)?.estimate(0.5);
    Ok(WhatIf {
        host: reader.manifest().host.clone(),
        ranks: workload.ranks(),
        runs: request.runs,
        seed: work.seed,
        job: workload.words.clone(),
        net: workload.net().to_owned(),
        noise_model: workload.model,
        shift_cpu: request.shift,
        quantise: request.quantise,
        negligible_pct: NEGLIGIBLE_PCT,
        baseline: Baseline {
            median_us: us(median.value),
            median_ci95_us: [us(median.low), us(median.high)],
            noiseless_us,
            slowdown_median: if noiseless_us > 0.0 { us(median.value) / noiseless_us } else { 1.0 },
            detours,
            detour_ns_total: detour_ns,
        },
        sources: results.sources(&recorded.sources),
        others: results.others(),
        units: results.units(),
        together: results.together(&request.remove),
        remarks: recorded.left_out().into_iter().chain(open::remark_if_not_whole(reader)).collect(),
    })
}

fn simulate(
    node: &Node<'_>,
    questions: &[Question],
    workload: &Workload,
    plan: &Plan<'_>,
) -> Result<engine::Answers> {
    engine::ask(node, questions, plan.seed, &workload.runs(plan))
        .context("cannot simulate this recording")
}

/// The noise assigned to ranks, and totals of the whole recording.
struct Lanes {
    lanes: Vec<Composed>,
    /// The CPU of each lane; None for a thread.
    cpus: Vec<Option<u32>>,
    /// Time taken by each source on all lanes, including those not assigned to ranks, as in the report.
    taken: Vec<Taken>,
    detours: u64,
    detour_ns: u64,
}

fn lanes(reader: &AnyReader, recorded: &Recorded) -> Result<Lanes> {
    let mut all = Lanes {
        lanes: Vec::new(),
        cpus: Vec::new(),
        taken: vec![Taken::default(); recorded.sources.len()],
        detours: 0,
        detour_ns: 0,
    };
    for (index, lane) in reader.lanes().iter().enumerate() {
        let composed = recorded.lane(reader, index)?;
        composed.account(&mut all.taken);
        all.detours += composed.len() as u64;
        all.detour_ns = all.detour_ns.saturating_add(composed.total_ns());
        if !recorded.lends(index) || composed.span_ns() == 0 {
            continue;
        }
        // Checked here, where the lane's name is known.
        composed.timeline().with_context(|| format!("detours of {}", lane_words(lane)))?;
        all.lanes.push(composed);
        all.cpus.push(match lane {
            Lane::Cpu { cpu } => Some(*cpu),
            Lane::Thread { .. } => None,
        });
    }
    if all.lanes.is_empty() {
        bail!("{}", open::watched_nothing(reader));
    }
    Ok(all)
}

/// Whether a source can be moved to another CPU. Ticks, page faults and time outside the kernel belong to
/// their CPU, and the program itself runs where its ranks are.
fn can_move(source: &Source) -> bool {
    let class = source.key.class;
    !source.program && matches!(class, Class::Irq | Class::Softirq | Class::Thread | Class::Kthread)
}

/// Alternates the sources with the most total time and those with the longest detours, which matter at
/// scale.
fn choose(taken: &[Taken], top: usize) -> Vec<u32> {
    let mut by_time: Vec<u32> =
        (0..taken.len() as u32).filter(|&s| taken[s as usize].ns > 0).collect();
    by_time.sort_by_key(|&s| (std::cmp::Reverse(taken[s as usize].ns), s));
    let mut by_length = by_time.clone();
    by_length.sort_by_key(|&s| (std::cmp::Reverse(taken[s as usize].longest_ns), s));
    // A single source is not a group.
    let top = if by_time.len() <= top + 1 { by_time.len() } else { top };
    let mut chosen: Vec<u32> = Vec::new();
    for source in by_time.into_iter().zip(by_length).flat_map(|(a, b)| [a, b]) {
        if chosen.len() < top && !chosen.contains(&source) {
            chosen.push(source);
        }
    }
    chosen
}

/// The questions, in order: each chosen source, the others, units with several sources, and the sources
/// to be removed together.
struct Plans {
    chosen: Vec<Vec<u32>>,
    others: Option<Vec<u32>>,
    units: Vec<(String, Vec<u32>)>,
    /// Units with a single source, which share its answer.
    small_units: Vec<(String, u32)>,
    together: Option<Vec<u32>>,
}

impl Plans {
    fn new(
        sources: &[Source],
        taken: &[Taken],
        chosen: Vec<u32>,
        request: &Request,
    ) -> Result<Plans> {
        let counts = |s: &u32| taken[*s as usize].ns > 0;
        let all: Vec<u32> = (0..sources.len() as u32).filter(counts).collect();
        let others: Vec<u32> = all.iter().copied().filter(|s| !chosen.contains(s)).collect();
        let mut units: Vec<(String, Vec<u32>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for &source in &all {
            let Some(unit) = &sources[source as usize].key.unit else { continue };
            let place = *places.entry(unit).or_insert(units.len());
            if place == units.len() {
                units.push((unit.clone(), Vec::new()));
            }
            units[place].1.push(source);
        }
        let ns = |members: &[u32]| members.iter().map(|&s| taken[s as usize].ns).sum::<u64>();
        units.sort_by_key(|(_, members)| std::cmp::Reverse(ns(members)));
        let (small, large): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|(_, members)| members.len() == 1);
        let small_units = small
            .into_iter()
            .filter(|(_, members)| chosen.contains(&members[0]))
            .map(|(unit, members)| (unit, members[0]))
            .collect();
        let mut together = Vec::new();
        for name in &request.remove {
            let named = |s: &u32| sources[*s as usize].is_called(name);
            let before = together.len();
            together.extend((0..sources.len() as u32).filter(named));
            if together.len() == before {
                bail!(
                    "no source named '{name}' (`detour report` lists the names, units and classes \
                     of a recording)"
                );
            }
        }
        Ok(Plans {
            chosen: chosen.into_iter().map(|source| vec![source]).collect(),
            others: Some(others).filter(|others| !others.is_empty()),
            units: large.into_iter().take(request.top).collect(),
            small_units,
            together: Some(together).filter(|_| !request.remove.is_empty()),
        })
    }

    fn sets(&self) -> impl Iterator<Item = &Vec<u32>> {
        let units = self.units.iter().map(|(_, members)| members);
        self.chosen.iter().chain(&self.others).chain(units).chain(&self.together)
    }
}

struct Results<'a> {
    plans: &'a Plans,
    answers: Vec<Answer>,
    /// The answer for sources that contribute to no detour.
    nothing: Answer,
    taken: &'a [Taken],
    detour_ns: u64,
    advice: &'a Advice,
    place: Place,
}

impl Results<'_> {
    fn share(&self, ns: u64) -> f64 {
        if self.detour_ns == 0 { 0.0 } else { 100.0 * ns as f64 / self.detour_ns as f64 }
    }

    fn sources(&self, sources: &[Source]) -> Vec<OfSource> {
        let mut by_time: Vec<usize> = (0..sources.len()).collect();
        by_time.sort_by_key(|&s| (std::cmp::Reverse(self.taken[s].ns), s));
        let mut rows: Vec<OfSource> = Vec::new();
        for (local_rank, s) in (1..).zip(by_time) {
            let (source, taken) = (&sources[s], self.taken[s]);
            // Placeholder row: no time was outside the kernel.
            if taken.ns == 0 && source.key.class == Class::OutsideKernel {
                continue;
            }
            let asked = self.plans.chosen.iter().position(|set| set[0] as usize == s);
            let answer = match asked {
                Some(at) => self.answers[at],
                None if taken.ns == 0 => self.nothing,
                // It is among the others.
                None => continue,
            };
            rows.push(OfSource {
                class: source.key.class,
                name: source.key.name.clone(),
                unit: source.key.unit.clone(),
                own: source.key.own,
                program: source.program,
                place: None,
                rank: None,
                local_rank,
                local_share_pct: self.share(taken.ns),
                local_ns_total: taken.ns,
                local_ns_max: taken.longest_ns,
                detours: taken.detours,
                answer,
                advice: self.remedies(source, &answer),
            });
        }
        // The sort is stable: ties remain in the order of the time taken.
        rows.sort_by(|a, b| by_gain(&a.answer, &b.answer));
        let costly = rows.iter_mut().filter(|row| row.answer.removed.effect.helps());
        for (place, row) in (1..).zip(costly) {
            (row.place, row.rank) = (Some(place), Some(place));
        }
        rows
    }

    /// For sources that cost something. The recorder's own threads need none: they end with the recording.
    fn remedies(&self, source: &Source, answer: &Answer) -> Vec<Remedy> {
        if source.key.own || !answer.removed.effect.helps() {
            return Vec::new();
        }
        let subject = AdvisedSource {
            class: source.key.class,
            name: &source.key.name,
            unit: source.key.unit.as_deref(),
            detail: source.detail.as_deref(),
            program: source.program,
        };
        self.advice.remedies(&subject, &self.place)
    }

    fn group(&self, names: Vec<String>, members: &[u32], answer: Answer) -> Group {
        let ns = members.iter().map(|&s| self.taken[s as usize].ns).fold(0, u64::saturating_add);
        Group {
            unit: names.first().cloned(),
            names,
            source_count: members.len(),
            local_ns_total: ns,
            local_share_pct: self.share(ns),
            answer,
        }
    }

    fn others(&self) -> Option<Group> {
        let members = self.plans.others.as_ref()?;
        let answer = self.answers[self.plans.chosen.len()];
        Some(self.group(Vec::new(), members, answer))
    }

    fn units(&self) -> Vec<Group> {
        let first = self.plans.chosen.len() + usize::from(self.plans.others.is_some());
        let large = self.plans.units.iter().zip(&self.answers[first..]);
        let large =
            large.map(|((unit, members), answer)| self.group(vec![unit.clone()], members, *answer));
        let small = self.plans.small_units.iter().filter_map(|(unit, source)| {
            let at = self.plans.chosen.iter().position(|set| set[0] == *source)?;
            Some(self.group(vec![unit.clone()], &[*source], self.answers[at]))
        });
        let mut units: Vec<Group> = large.chain(small).collect();
        units.sort_by(|a, b| by_gain(&a.answer, &b.answer));
        units
    }

    fn together(&self, names: &[String]) -> Option<Group> {
        let members = self.plans.together.as_ref()?;
        Some(self.group(names.to_vec(), members, *self.answers.last()?))
    }
}

/// Largest gain first; ties are broken by the number of shortened runs.
fn by_gain(a: &Answer, b: &Answer) -> Ordering {
    let (a, b) = (&a.removed, &b.removed);
    b.gain_pct.total_cmp(&a.gain_pct).then(b.shorter_runs.cmp(&a.shorter_runs))
}
