//! What each source of a recording costs a job: which questions are asked, and the answers as rows.
//!
//! Sources and processes that took time are evaluated individually, up to a limit. The rest, which took
//! the least time and never much at once, are evaluated together. So nothing is omitted, and a node with
//! hundreds of daemons does not take hours.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

use analysis::{By, Part, words};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use simulate::{
    noise::{Composed, Model, Offsets, Taken},
    stats::Sample,
    sweep::Plan,
    whatif::{self as engine, Effect, Node, Question, Shift, gain::NEGLIGIBLE_PCT},
};
use trace::{Class, Mode, ProcessKey, node_index};

use crate::{
    decide::{
        action::{self, Action, WORTHWHILE_PCT},
        advice::{Advice, AdvisedSource, Place, Remedy},
    },
    jobs::workload::{self, Job, Workload},
    noise::{
        placement::{self, Places},
        support,
        tail::{Copies, Extended},
    },
    recording::{
        load::{Busy, Load},
        open::{self, AnyReader, Opened},
        recorded::{Groups, Recorded, Source, lane_words, no_source},
    },
    run::{point::slowdown, work::Work},
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
    /// The CPUs that count.
    pub part: Part,
    /// Which CPU each rank is on.
    pub placement: placement::Request,
    /// Processes to ignore: names, units or classes.
    pub exclude: Vec<String>,
    /// What is load, and nothing to switch off.
    pub load: Load,
    /// Evaluate more than processes.
    pub further: Further,
    /// Extend the recording by fitted tails.
    pub tail: bool,
}

/// What to evaluate besides processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Further {
    /// Not even processes: only the job as recorded.
    OnlyTheJob,
    Nothing,
    /// Sources and units, and classes or CPUs if asked for.
    By(By),
}

impl Further {
    fn is(self, by: By) -> bool {
        self == Further::By(by)
    }
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
    /// The same in parts.
    #[serde(rename = "job_parts")]
    pub parts: Job,
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
    #[serde(flatten)]
    pub load: Load,
    /// What to do first: at most three, largest gain first; empty if nothing is worth doing.
    pub actions: Vec<Action>,
    /// Largest gain first: a process with all that it causes, or a source of the kernel itself. Those
    /// evaluated together with others are not listed.
    pub processes: Vec<OfProcess>,
    /// Largest gain first. Sources evaluated together with others are not listed.
    pub sources: Vec<OfSource>,
    /// All sources that are not listed.
    pub others: Option<Group>,
    /// All sources of each unit.
    pub units: Vec<Group>,
    /// All sources of each class. Empty unless asked for.
    pub classes: Vec<Group>,
    /// All noise of each CPU, or thread of a recorded program, as if it were silent. Empty unless asked
    /// for.
    pub cpus: Vec<Group>,
    /// The sources to be removed together.
    pub together: Option<Group>,
    /// How far fitted tails extend the recording. Null without `--tail`.
    pub tail: Option<Extended>,
    /// About noise of the recording that is not used, or missing because the recording is incomplete.
    pub remarks: Vec<String>,
    /// The remark that the recording supports fewer ranks.
    #[serde(skip)]
    pub unsupported: Option<String>,
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

/// A process with everything it causes, or a source of the kernel itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfProcess {
    pub process: String,
    /// `thread` for a process, otherwise the class of the source.
    pub class: Class,
    pub unit: Option<String>,
    /// The recorder itself.
    pub own: bool,
    /// The recorded program itself.
    pub program: bool,
    /// Whether the recording marks it as such; otherwise that is inferred.
    #[serde(skip)]
    pub known_program: bool,
    /// Process 1, which cannot be stopped.
    #[serde(skip)]
    pub init: bool,
    /// The largest share of a CPU's time that it took.
    pub busiest_cpu_pct: f64,
    /// Rows of `sources` that it is behind, at least in part.
    pub source_count: usize,
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

impl OfProcess {
    /// As in the report.
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            class: self.class,
            process: self.process.clone(),
            unit: self.unit.clone(),
            own: self.own,
            program: self.known_program,
        }
    }
}

/// Several sources at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The unit, class or CPU, or the names given by the user.
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
    /// Whether it is sure to gain enough to be worth doing.
    pub fn is_worthwhile(&self) -> bool {
        self.gain_pct >= WORTHWHILE_PCT && self.gain_ci95_pct[0] > 0.0
    }

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

/// Rejects recordings without sources.
pub fn check(reader: &AnyReader) -> Result<()> {
    let why = match reader.manifest().mode {
        Mode::Attributed | Mode::KernelOnly | Mode::Program => return Ok(()),
        Mode::ProbeOnly => {
            "recorded without kernel records, so detours have no sources; record again without \
             --no-bpf"
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
    workload: &workload::Request,
    request: &Request,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<WhatIf> {
    check(reader)?;
    if request.tail && (request.shift.is_some() || request.quantise || request.further.is(By::Cpu))
    {
        bail!(
            "--tail cannot be used with --shift, --quantise or --by cpu, which require the noise \
             as recorded: omit --tail, or these options"
        );
    }
    let recorded = Recorded::new(reader);
    let excluded = recorded.excluded(&request.exclude)?;
    let places =
        Places::new(reader, &recorded, &request.placement, |lane| request.part.has(lane as u32))?;
    let Lanes { lanes, names, cpus, rows, processes, busiest, detours, detour_ns } =
        lanes(reader, &recorded, &places, &excluded)?;
    let support = support::of(&lanes, workload)?;
    let workload = workload.workload(support.as_ref().map(|support| support.ranks))?;
    let noiseless = workload.noiseless()?;
    let one_clock = if request.quantise { recorded.on_one_clock(reader)? } else { None };
    let extend = || Copies::of(reader, &recorded, &lanes, places.nodes(), work.seed);
    let copies = request.tail.then(extend);
    let (of_ranks, nodes) = match &copies {
        Some(copies) => (&copies.lanes, copies.nodes()),
        None => (&lanes, places.nodes()),
    };
    let node = Node {
        lanes: of_ranks,
        on_one_clock: one_clock.as_deref(),
        model: workload.model,
        offsets: Offsets::Random,
        nodes,
        repeat: request.repeat || support::repeats(&lanes, noiseless),
    };
    let shift = request.shift.map(|cpu| match cpus.iter().position(|&lane| lane == Some(cpu)) {
        Some(lane) => Shift::Lane(lane),
        None => Shift::Elsewhere,
    });
    let plans = Plans::new(&recorded.sources, &rows, &processes, request)?;
    let questions: Vec<Question> = plans
        .sets
        .iter()
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
    let noiseless_us = us(noiseless as f64);
    let answers = simulate(&node, &questions, &workload, &plan)?;
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
        rows: &rows,
        processes: &processes,
        busiest: &busiest,
        sources: &recorded.sources,
        detour_ns,
        advice,
        load: &request.load,
        place: Place::of_recording(reader.manifest()),
    };
    let cpus = match request.further.is(By::Cpu) {
        true => of_cpus(&node, &results, &names, request.top, &workload, &plan)?,
        false => Vec::new(),
    };
    let median = Sample::new(answers.as_recorded)?.estimate(0.5);
    let processes = results.processes();
    let mut load = request.load.clone();
    let actions = action::choose(&processes, &mut load, workload.ranks());
    let extended = copies.as_ref().map(|copies| copies.extended);
    // Tails are what a recording lacks for more ranks.
    let unsupported = support.filter(|_| extended.is_none());
    let unsupported = unsupported.and_then(|support| support.remark(workload.ranks()));
    let needs = unsupported.clone();
    let tails = extended.as_ref().map(Extended::words);
    let fewer_cpus = (1..names.len()).contains(&cpus.len()).then(|| {
        format!(
            "simulated only the {} of {} with the most noise (increase --top)",
            words::plural(cpus.len() as u64, "CPU"),
            names.len()
        )
    });
    let remarks =
        [unsupported, tails, fewer_cpus, open::remark_if_not_whole(reader)].into_iter().flatten();
    Ok(WhatIf {
        host: reader.manifest().host.clone(),
        ranks: workload.ranks(),
        runs: request.runs,
        seed: work.seed,
        job: workload.words.clone(),
        parts: workload.parts(places.nodes().map(|(_, ranks)| ranks)),
        net: workload.net().to_owned(),
        noise_model: workload.model,
        shift_cpu: request.shift,
        quantise: request.quantise,
        negligible_pct: NEGLIGIBLE_PCT,
        baseline: Baseline {
            median_us: us(median.value),
            median_ci95_us: [us(median.low), us(median.high)],
            noiseless_us,
            slowdown_median: slowdown(us(median.value), noiseless_us),
            detours,
            detour_ns_total: detour_ns,
        },
        actions,
        load: load.advised(advice, &Place::of_recording(reader.manifest())),
        processes,
        sources: match request.further {
            Further::OnlyTheJob | Further::Nothing => Vec::new(),
            Further::By(_) => results.sources(),
        },
        others: results.others(),
        units: results.groups(&plans.units),
        classes: results.groups(&plans.classes),
        cpus,
        together: results.together(&request.remove),
        tail: extended,
        unsupported: needs,
        remarks: recorded
            .remarks()
            .into_iter()
            .chain(remarks)
            .chain(places.remarks.iter().cloned())
            .collect(),
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
    /// What each lane is called.
    names: Vec<String>,
    /// The CPU of each lane; None for a thread.
    cpus: Vec<Option<u32>>,
    /// The rows of the report, and the processes.
    rows: Accounts,
    processes: Accounts,
    /// The largest share of a CPU's time that each process took.
    busiest: Vec<f64>,
    detours: u64,
    detour_ns: u64,
}

/// Groups of sources, and the time each took on all lanes, including those not assigned to ranks, as in the
/// report.
struct Accounts {
    groups: Groups,
    taken: Vec<Taken>,
}

impl Accounts {
    fn new(groups: Groups) -> Accounts {
        Accounts { taken: vec![Taken::default(); groups.members.len()], groups }
    }

    fn add(&mut self, lane: &Composed) {
        lane.account(&self.groups.of, &mut self.taken);
    }

    /// Those that took time.
    fn some(&self) -> impl Iterator<Item = u32> {
        (0..self.taken.len() as u32).filter(|&group| self.taken[group as usize].ns > 0)
    }
}

fn lanes(
    reader: &AnyReader,
    recorded: &Recorded,
    places: &Places,
    excluded: &[bool],
) -> Result<Lanes> {
    let mut all = Lanes {
        lanes: Vec::new(),
        names: Vec::new(),
        cpus: Vec::new(),
        rows: Accounts::new(recorded.rows()),
        processes: Accounts::new(recorded.processes()),
        busiest: Vec::new(),
        detours: 0,
        detour_ns: 0,
    };
    for (index, lane) in reader.lanes().iter().enumerate() {
        let composed = recorded.lane(reader, index)?.lacking(excluded);
        all.rows.add(&composed);
        let before: Vec<u64> = all.processes.taken.iter().map(|taken| taken.ns).collect();
        all.processes.add(&composed);
        all.busiest.resize(before.len(), 0.0);
        let after = all.processes.taken.iter().zip(before);
        for (busiest, (after, before)) in all.busiest.iter_mut().zip(after) {
            let share = (after.ns - before) as f64 / composed.span_ns().max(1) as f64;
            *busiest = busiest.max(share);
        }
        all.detours += composed.len() as u64;
        all.detour_ns = all.detour_ns.saturating_add(composed.total_ns());
        let Some(composed) = places.cut(index, composed).filter(|lane| lane.span_ns() > 0) else {
            continue;
        };
        // Checked here, where the lane's name is known.
        composed.timeline().with_context(|| format!("detours of {}", lane_words(lane)))?;
        all.lanes.push(composed);
        all.names.push(match node_index(&reader.manifest().nodes, index as u32) {
            Some(node) => format!("{} {}", reader.manifest().nodes[node].host, lane_words(lane)),
            None => lane_words(lane),
        });
        all.cpus.push(lane.cpu());
    }
    if all.lanes.is_empty() {
        bail!("{}", open::watched_nothing(reader));
    }
    Ok(all)
}

/// What each CPU costs: the job with one of them silent, those with the most noise.
fn of_cpus(
    node: &Node<'_>,
    results: &Results<'_>,
    names: &[String],
    top: usize,
    workload: &Workload,
    plan: &Plan<'_>,
) -> Result<Vec<Group>> {
    let groups = &results.rows.groups;
    let count = |lane: &Composed| {
        let mut taken = vec![Taken::default(); groups.members.len()];
        lane.account(&groups.of, &mut taken);
        taken.iter().filter(|taken| taken.ns > 0).count()
    };
    let counts: Vec<usize> = node.lanes.iter().map(count).collect();
    let lanes = (0..).zip(node.lanes).map(|(number, lane)| lane.clone().of_source(number));
    let lanes: Vec<Composed> = lanes.collect();
    let mut noisy: Vec<u32> = (0..lanes.len() as u32).collect();
    noisy.sort_by_key(|&lane| (std::cmp::Reverse(lanes[lane as usize].total_ns()), lane));
    noisy.truncate(top);
    let question = |&lane: &u32| Question { sources: vec![lane], shift: None, quantise: false };
    let questions: Vec<Question> = noisy.iter().map(question).collect();
    let node = Node { lanes: &lanes, on_one_clock: None, ..node.clone() };
    let answers = simulate(&node, &questions, workload, plan)?;
    let group = |(lane, answer): (&u32, &engine::Answer)| {
        let ns = lanes[*lane as usize].total_ns();
        Group {
            names: vec![names[*lane as usize].clone()],
            unit: None,
            source_count: counts[*lane as usize],
            local_ns_total: ns,
            local_share_pct: results.share(ns),
            answer: Answer::of(answer),
        }
    };
    let mut groups: Vec<Group> = noisy.iter().zip(&answers.answers).map(group).collect();
    groups.sort_by(|a, b| by_gain(&a.answer, &b.answer));
    Ok(groups)
}

/// Whether a source can be moved to another CPU. Ticks, page faults and time outside the kernel belong to
/// their CPU, and the program itself runs where its ranks are.
fn can_move(source: &Source) -> bool {
    let class = source.key.class;
    !source.program && matches!(class, Class::Irq | Class::Softirq | Class::Thread | Class::Kthread)
}

/// Alternates the groups with the most total time and those with the longest detours, which matter at
/// scale.
fn choose(accounts: &Accounts, top: usize) -> Vec<u32> {
    let taken = |group: u32| accounts.taken[group as usize];
    let mut by_time: Vec<u32> = accounts.some().collect();
    by_time.sort_by_key(|&group| (std::cmp::Reverse(taken(group).ns), group));
    let mut by_length = by_time.clone();
    by_length.sort_by_key(|&group| (std::cmp::Reverse(taken(group).longest_ns), group));
    // A single source is not a group of others.
    let top = if by_time.len() <= top.saturating_add(1) { by_time.len() } else { top };
    let mut chosen: Vec<u32> = Vec::new();
    for group in by_time.into_iter().zip(by_length).flat_map(|(a, b)| [a, b]) {
        if chosen.len() < top && !chosen.contains(&group) {
            chosen.push(group);
        }
    }
    chosen
}

/// The questions. Several rows of the answer may share one: those with the same sources.
#[derive(Default)]
struct Plans {
    /// The sources of each question.
    sets: Vec<Vec<u32>>,
    /// Rows of the report, each with its question.
    rows: Vec<(u32, usize)>,
    /// All other rows, and their question.
    others: Option<(Vec<u32>, usize)>,
    processes: Vec<(u32, usize)>,
    units: Vec<(String, Vec<u32>, usize)>,
    classes: Vec<(String, Vec<u32>, usize)>,
    /// The sources to be removed together.
    together: Option<(Vec<u32>, usize)>,
}

/// Collects questions.
#[derive(Default)]
struct Questions {
    sets: Vec<Vec<u32>>,
    places: HashMap<Vec<u32>, usize>,
}

impl Questions {
    fn about(&mut self, mut sources: Vec<u32>) -> usize {
        sources.sort_unstable();
        sources.dedup();
        let next = self.sets.len();
        let place = *self.places.entry(sources.clone()).or_insert(next);
        if place == next {
            self.sets.push(sources);
        }
        place
    }
}

impl Plans {
    fn new(
        sources: &[Source],
        rows: &Accounts,
        processes: &Accounts,
        request: &Request,
    ) -> Result<Plans> {
        if request.further == Further::OnlyTheJob {
            return Ok(Plans::default());
        }
        let mut questions = Questions::default();
        let mut of_groups = |accounts: &Accounts| -> Vec<(u32, usize)> {
            let chosen = choose(accounts, request.top).into_iter();
            let members = |group: u32| accounts.groups.members[group as usize].clone();
            chosen.map(|group| (group, questions.about(members(group)))).collect()
        };
        let processes = of_groups(processes);
        if request.further == Further::Nothing {
            return Ok(Plans { sets: questions.sets, processes, ..Plans::default() });
        }
        let chosen = of_groups(rows);
        let is_chosen = |row: &u32| chosen.iter().any(|(chosen, _)| chosen == row);
        let others: Vec<u32> = rows.some().filter(|row| !is_chosen(row)).collect();
        let members = |groups: &[u32]| -> Vec<u32> {
            groups.iter().flat_map(|&row| rows.groups.members[row as usize].clone()).collect()
        };
        let others = (!others.is_empty()).then(|| {
            let question = questions.about(members(&others));
            (others, question)
        });
        let mut units: Vec<(String, Vec<u32>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for row in rows.some() {
            let first = rows.groups.members[row as usize][0];
            let Some(unit) = &sources[first as usize].key.unit else { continue };
            let place = *places.entry(unit).or_insert(units.len());
            if place == units.len() {
                units.push((unit.clone(), Vec::new()));
            }
            units[place].1.push(row);
        }
        let ns = |rows_: &[u32]| rows_.iter().map(|&row| rows.taken[row as usize].ns).sum::<u64>();
        units.sort_by_key(|(_, rows)| std::cmp::Reverse(ns(rows)));
        // A unit with a single source has its answer, if it was asked for.
        units.retain(|(_, rows)| rows.len() > 1 || is_chosen(&rows[0]));
        let mut large = 0;
        units.retain(|(_, rows)| {
            large += usize::from(rows.len() > 1);
            rows.len() == 1 || large <= request.top
        });
        let units = units.into_iter().map(|(unit, rows)| {
            let question = questions.about(members(&rows));
            (unit, rows, question)
        });
        let units = units.collect();
        let mut classes = Vec::new();
        for class in Class::ALL.into_iter().filter(|_| request.further.is(By::Class)) {
            let is_it = |row: &u32| {
                let first = rows.groups.members[*row as usize][0];
                sources[first as usize].key.class == class
            };
            let rows: Vec<u32> = rows.some().filter(is_it).collect();
            if !rows.is_empty() {
                let question = questions.about(members(&rows));
                classes.push((class.name().to_owned(), rows, question));
            }
        }
        let mut together = Vec::new();
        for name in &request.remove {
            let named = |s: &u32| sources[*s as usize].is_called(name);
            let before = together.len();
            together.extend((0..sources.len() as u32).filter(named));
            if together.len() == before {
                bail!("{}", no_source(name));
            }
        }
        let together = (!request.remove.is_empty()).then(|| {
            let question = questions.about(together.clone());
            (together, question)
        });
        let sets = questions.sets;
        Ok(Plans { sets, rows: chosen, others, processes, units, classes, together })
    }
}

struct Results<'a> {
    plans: &'a Plans,
    answers: Vec<Answer>,
    /// The answer for sources that contribute to no detour.
    nothing: Answer,
    rows: &'a Accounts,
    processes: &'a Accounts,
    busiest: &'a [f64],
    sources: &'a [Source],
    detour_ns: u64,
    advice: &'a Advice,
    load: &'a Load,
    place: Place,
}

impl Results<'_> {
    fn share(&self, ns: u64) -> f64 {
        if self.detour_ns == 0 { 0.0 } else { 100.0 * ns as f64 / self.detour_ns as f64 }
    }

    /// The first source of a group, and whether one of them is the program.
    fn first(&self, groups: &Groups, group: usize) -> (&Source, bool) {
        let members = &groups.members[group];
        let program = members.iter().any(|&source| self.sources[source as usize].program);
        (&self.sources[members[0] as usize], program)
    }

    fn sources(&self) -> Vec<OfSource> {
        let taken = &self.rows.taken;
        let mut by_time: Vec<usize> = (0..taken.len()).collect();
        by_time.sort_by_key(|&row| (std::cmp::Reverse(taken[row].ns), row));
        let mut rows: Vec<OfSource> = Vec::new();
        for (local_rank, row) in (1..).zip(by_time) {
            let ((source, program), taken) = (self.first(&self.rows.groups, row), taken[row]);
            // Placeholder row: no time was outside the kernel.
            if taken.ns == 0 && source.key.class == Class::OutsideKernel {
                continue;
            }
            let asked = self.plans.rows.iter().find(|(chosen, _)| *chosen as usize == row);
            let answer = match asked {
                Some((_, question)) => self.answers[*question],
                None if taken.ns == 0 => self.nothing,
                // It is among the others.
                None => continue,
            };
            let key = &source.key;
            rows.push(OfSource {
                class: key.class,
                name: key.name.clone(),
                unit: key.unit.clone(),
                own: key.own,
                program,
                place: None,
                rank: None,
                local_rank,
                local_share_pct: self.share(taken.ns),
                local_ns_total: taken.ns,
                local_ns_max: taken.longest_ns,
                detours: taken.detours,
                answer,
                advice: self.remedies(
                    AdvisedSource {
                        class: key.class,
                        name: source.switched_off_by(),
                        pids: &source.pids,
                        unit: key.unit.as_deref(),
                        detail: source.detail.as_deref(),
                        policy: self.policy(&source.process),
                        program,
                    },
                    key.own || source.init,
                    &answer,
                ),
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

    fn processes(&self) -> Vec<OfProcess> {
        let mut chosen = self.plans.processes.clone();
        chosen.sort_by_key(|(process, _)| {
            (std::cmp::Reverse(self.processes.taken[*process as usize].ns), *process)
        });
        let row = |(process, question): (u32, usize)| {
            let (groups, taken) = (&self.processes.groups, self.processes.taken[process as usize]);
            let (source, program) = self.first(groups, process as usize);
            let (key, answer) = (&source.process, self.answers[question]);
            let members = &groups.members[process as usize];
            let rows: BTreeSet<u32> =
                members.iter().map(|&source| self.rows.groups.of[source as usize]).collect();
            let mut pids: Vec<u32> = Vec::new();
            for pid in members.iter().flat_map(|&source| &self.sources[source as usize].pids) {
                if !pids.contains(pid) {
                    pids.push(*pid);
                }
            }
            let init = members.iter().any(|&source| self.sources[source as usize].init);
            OfProcess {
                process: key.process.clone(),
                class: key.class,
                unit: key.unit.clone(),
                own: key.own,
                program,
                known_program: key.program,
                init,
                busiest_cpu_pct: 100.0 * self.busiest[process as usize],
                source_count: rows.len(),
                local_share_pct: self.share(taken.ns),
                local_ns_total: taken.ns,
                local_ns_max: taken.longest_ns,
                detours: taken.detours,
                answer,
                advice: self.remedies(
                    AdvisedSource {
                        class: key.class,
                        name: &key.process,
                        pids: &pids,
                        unit: key.unit.as_deref(),
                        detail: source.detail.as_deref(),
                        policy: self.policy(key),
                        program,
                    },
                    key.own || init,
                    &answer,
                ),
            }
        };
        let mut rows: Vec<OfProcess> = chosen.into_iter().map(row).collect();
        rows.sort_by(|a, b| by_gain(&a.answer, &b.answer));
        rows
    }

    /// Of a process that is load.
    fn policy(&self, process: &ProcessKey) -> Option<&str> {
        let is_it = |busy: &&Busy| {
            process.class == Class::Thread && !process.program && busy.process == process.process
        };
        self.load.busy.iter().find(is_it)?.policy.as_deref()
    }

    /// For what costs something. The recorder's own threads need none, because they end with the
    /// recording, and process 1 must neither be stopped nor moved.
    fn remedies(&self, subject: AdvisedSource<'_>, none: bool, answer: &Answer) -> Vec<Remedy> {
        if none || !answer.removed.effect.helps() {
            return Vec::new();
        }
        self.advice.remedies(&subject, &self.place)
    }

    fn group(&self, names: Vec<String>, rows: &[u32], question: usize) -> Group {
        let ns = rows.iter().map(|&row| self.rows.taken[row as usize].ns);
        let ns = ns.fold(0, u64::saturating_add);
        Group {
            unit: names.first().cloned(),
            names,
            source_count: rows.len(),
            local_ns_total: ns,
            local_share_pct: self.share(ns),
            answer: self.answers[question],
        }
    }

    fn others(&self) -> Option<Group> {
        let (rows, question) = self.plans.others.as_ref()?;
        Some(self.group(Vec::new(), rows, *question))
    }

    fn groups(&self, planned: &[(String, Vec<u32>, usize)]) -> Vec<Group> {
        let group = |(name, rows, question): &(String, Vec<u32>, usize)| {
            self.group(vec![name.clone()], rows, *question)
        };
        let mut groups: Vec<Group> = planned.iter().map(group).collect();
        groups.sort_by(|a, b| by_gain(&a.answer, &b.answer));
        groups
    }

    fn together(&self, names: &[String]) -> Option<Group> {
        let (sources, question) = self.plans.together.as_ref()?;
        let rows: BTreeSet<u32> =
            sources.iter().map(|&source| self.rows.groups.of[source as usize]).collect();
        let rows: Vec<u32> = rows.into_iter().collect();
        Some(self.group(names.to_vec(), &rows, *question))
    }
}

/// Largest gain first; ties are broken by the number of shortened runs.
fn by_gain(a: &Answer, b: &Answer) -> Ordering {
    let (a, b) = (&a.removed, &b.removed);
    b.gain_pct.total_cmp(&a.gain_pct).then(b.shorter_runs.cmp(&a.shorter_runs))
}
