//! What each source of a recording costs a job: which questions are asked, and the answers as rows.
//!
//! Sources that took time are evaluated individually, up to a limit. The rest, which took the least time
//! and never much at once, are evaluated together. So nothing is omitted, and a node with hundreds of
//! daemons does not take hours.

use anyhow::{Context, Result, bail};
use simulate::{
    noise::{Composed, Offsets, Taken},
    stats::{Estimate, Sample},
    sweep::{Plan, SweepError},
    whatif::{self, Answer, Gain, Node, Question, Shift, WhatIfError},
};
use trace::{Class, Lane, Mode};

use crate::{
    open::{self, AnyReader},
    simulate::{
        recorded::{Recorded, Source, lane_words},
        workload::Workload,
    },
};

/// What to ask.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Sources to remove together: names, units or classes.
    pub remove: Vec<String>,
    /// Also move each source to this CPU.
    pub shift: Option<u32>,
    /// Also co-schedule each source.
    pub quantise: bool,
    /// Sources evaluated individually; the rest are evaluated together.
    pub top: usize,
    pub repeat: bool,
}

/// One source.
#[derive(Clone, Debug)]
pub struct Row {
    pub source: Source,
    pub taken: Taken,
    /// Its rank by time taken, from 1.
    pub local_rank: usize,
    /// Share of all detours' time, per cent.
    pub local_share_pct: f64,
    /// None if it was only evaluated together with others.
    pub answer: Option<Answer>,
    /// Its rank by cost to the job, from 1. None if it costs nothing.
    pub scale_rank: Option<usize>,
}

/// Several sources at once.
#[derive(Clone, Debug)]
pub struct Group {
    /// The unit, or the names given by the user.
    pub names: Vec<String>,
    pub sources: usize,
    pub taken_ns: u64,
    pub local_share_pct: f64,
    pub answer: Answer,
}

#[derive(Clone, Debug)]
pub struct Study {
    pub detours: u64,
    pub detour_ns: u64,
    pub noiseless_ps: i64,
    pub as_recorded: Estimate,
    pub runs: u64,
    /// Largest gain first; those without an answer last.
    pub rows: Vec<Row>,
    /// Sources evaluated together.
    pub others: Option<Group>,
    /// Units with several sources are evaluated as a whole.
    pub units: Vec<Group>,
    pub together: Option<Group>,
    /// Remark about noise of the recording that is not assigned to any rank.
    pub left_out: Option<String>,
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

/// Returns None if interrupted. `begin` receives the number of simulations of the job, each with all of
/// its runs.
pub fn study(
    reader: &AnyReader,
    workload: &Workload,
    asked: &Asked,
    plan: &Plan<'_>,
    begin: &dyn Fn(u64),
) -> Result<Option<Study>> {
    check(reader)?;
    let recorded = Recorded::new(reader);
    let Lanes { lanes, cpus, taken, detours, detour_ns } = lanes(reader, &recorded)?;
    open::warn_if_not_whole(reader);
    let node = Node {
        lanes: &lanes,
        model: workload.model,
        offsets: Offsets::Random,
        repeat: asked.repeat,
    };
    let shift = asked.shift.map(|cpu| match cpus.iter().position(|&lane| lane == Some(cpu)) {
        Some(lane) => Shift::Lane(lane),
        None => Shift::Elsewhere,
    });
    let chosen = choose(&taken, asked.top);
    let plans = Plans::new(&recorded.sources, &taken, chosen, asked)?;
    let questions: Vec<Question> = plans
        .sets()
        .map(|sources| {
            let movable = sources.iter().all(|&s| can_move(&recorded.sources[s as usize]));
            let shift = shift.filter(|_| movable);
            Question { sources: sources.clone(), shift, quantise: asked.quantise }
        })
        .collect();

    let moved = questions.iter().filter(|q| matches!(q.shift, Some(Shift::Lane(_)))).count();
    begin((1 + questions.len() + moved) as u64);
    let noiseless_ps = workload.noiseless()?;
    let answers = match whatif::ask(&node, &questions, plan.seed, &workload.runs(plan)) {
        Ok(answers) => answers,
        Err(WhatIfError::Sweep(SweepError::Stopped)) => return Ok(None),
        Err(error) => return Err(error).context("cannot simulate this recording"),
    };
    let nothing = whatif::compare(&answers.as_recorded, &answers.as_recorded, plan.seed)?;
    let nothing = Answer {
        removed: nothing,
        shifted: shift.map(|_| nothing),
        quantised: asked.quantise.then_some(nothing),
    };
    let share = |ns: u64| if detour_ns == 0 { 0.0 } else { 100.0 * ns as f64 / detour_ns as f64 };
    let results = Results { plans: &plans, answers: &answers.answers, nothing, taken: &taken };
    Ok(Some(Study {
        detours,
        detour_ns,
        noiseless_ps,
        as_recorded: Sample::new(answers.as_recorded.clone())?.estimate(0.5),
        runs: plan.runs,
        rows: results.rows(&recorded.sources, share),
        others: results.others(share),
        units: results.units(share),
        together: results.together(&asked.remove, share),
        left_out: recorded.left_out(),
    }))
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
    fn new(sources: &[Source], taken: &[Taken], chosen: Vec<u32>, asked: &Asked) -> Result<Plans> {
        let counts = |s: &u32| taken[*s as usize].ns > 0;
        let all: Vec<u32> = (0..sources.len() as u32).filter(counts).collect();
        let others: Vec<u32> = all.iter().copied().filter(|s| !chosen.contains(s)).collect();
        let mut units: Vec<(String, Vec<u32>)> = Vec::new();
        for &source in &all {
            let Some(unit) = &sources[source as usize].key.unit else { continue };
            match units.iter_mut().find(|(name, _)| name == unit) {
                Some((_, members)) => members.push(source),
                None => units.push((unit.clone(), vec![source])),
            }
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
        for name in &asked.remove {
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
            units: large.into_iter().take(asked.top).collect(),
            small_units,
            together: Some(together).filter(|_| !asked.remove.is_empty()),
        })
    }

    fn sets(&self) -> impl Iterator<Item = &Vec<u32>> {
        let units = self.units.iter().map(|(_, members)| members);
        self.chosen.iter().chain(&self.others).chain(units).chain(&self.together)
    }
}

struct Results<'a> {
    plans: &'a Plans,
    answers: &'a [Answer],
    /// The answer for sources that contribute to no detour.
    nothing: Answer,
    taken: &'a [Taken],
}

impl Results<'_> {
    fn rows(&self, sources: &[Source], share: impl Fn(u64) -> f64) -> Vec<Row> {
        let mut by_time: Vec<usize> = (0..sources.len()).collect();
        by_time.sort_by_key(|&s| (std::cmp::Reverse(self.taken[s].ns), s));
        let mut rows: Vec<Row> = Vec::new();
        for (rank, s) in (1..).zip(by_time) {
            let (source, taken) = (&sources[s], self.taken[s]);
            // Placeholder row: no time was outside the kernel.
            if taken.ns == 0 && source.key.class == Class::OutsideKernel {
                continue;
            }
            let asked = self.plans.chosen.iter().position(|set| set[0] as usize == s);
            let answer = match asked {
                Some(at) => Some(self.answers[at]),
                None => (taken.ns == 0).then_some(self.nothing),
            };
            rows.push(Row {
                source: source.clone(),
                taken,
                local_rank: rank,
                local_share_pct: share(taken.ns),
                answer,
                scale_rank: None,
            });
        }
        // Largest gain first; ties are broken by the number of shortened runs, then by time taken.
        let key = |row: &Row| row.answer.map_or((f64::MIN, f64::MIN), |a| order(&a.removed));
        rows.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        let costly = rows
            .iter_mut()
            .filter(|row| row.answer.is_some_and(|answer| answer.removed.effect().helps()));
        for (rank, row) in (1..).zip(costly) {
            row.scale_rank = Some(rank);
        }
        rows
    }

    fn group(
        &self,
        names: Vec<String>,
        members: &[u32],
        answer: Answer,
        share: &impl Fn(u64) -> f64,
    ) -> Group {
        let ns = members.iter().map(|&s| self.taken[s as usize].ns).fold(0, u64::saturating_add);
        Group { names, sources: members.len(), taken_ns: ns, local_share_pct: share(ns), answer }
    }

    fn others(&self, share: impl Fn(u64) -> f64) -> Option<Group> {
        let members = self.plans.others.as_ref()?;
        let answer = self.answers[self.plans.chosen.len()];
        Some(self.group(Vec::new(), members, answer, &share))
    }

    fn units(&self, share: impl Fn(u64) -> f64) -> Vec<Group> {
        let first = self.plans.chosen.len() + usize::from(self.plans.others.is_some());
        let large = self.plans.units.iter().zip(&self.answers[first..]);
        let large = large.map(|((unit, members), answer)| {
            self.group(vec![unit.clone()], members, *answer, &share)
        });
        let small = self.plans.small_units.iter().filter_map(|(unit, source)| {
            let at = self.plans.chosen.iter().position(|set| set[0] == *source)?;
            Some(self.group(vec![unit.clone()], &[*source], self.answers[at], &share))
        });
        let mut units: Vec<Group> = large.chain(small).collect();
        units.sort_by(|a, b| {
            let (a, b) = (order(&a.answer.removed), order(&b.answer.removed));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        units
    }

    fn together(&self, names: &[String], share: impl Fn(u64) -> f64) -> Option<Group> {
        let members = self.plans.together.as_ref()?;
        let answer = *self.answers.last()?;
        Some(self.group(names.to_vec(), members, answer, &share))
    }
}

fn order(gain: &Gain) -> (f64, f64) {
    (gain.gain.value, gain.shorter_runs as f64)
}
