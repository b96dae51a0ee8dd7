//! What-if on synthetic nodes with known answers.

use super::*;
use crate::{
    collectives::{Collective, Op, Shape},
    graph::Graph,
    job::Job,
    loggops::Params,
    noise::Taken,
    rounds,
    stats::Sample,
    sweep,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn job(ranks: u64) -> Job {
    let shape = Shape { op: Op::Allreduce, ranks, bytes: 8, arity: 2, segment: None };
    Job::new(Collective::new(None, shape).unwrap(), Params::named("cnl").unwrap()).unwrap()
}

struct Paired {
    job: Job,
    threads: usize,
    traces: bool,
}

impl Paired {
    fn plan(&self) -> sweep::Plan<'static> {
        let threads = self.threads;
        sweep::Plan { runs: 100, seed: 7, threads, memory: u64::MAX, progress: &|_| true }
    }
}

impl Runs for Paired {
    fn count(&self) -> u64 {
        100
    }

    fn times(&self, noise: &Noise, runs: &[u64]) -> Result<Vec<i64>, SweepError> {
        sweep::times_of(&self.job, Graph::InOrder, noise, &self.plan(), runs)
    }

    fn traced(&self, noise: &Noise) -> Result<Option<Vec<Traced>>, SweepError> {
        match self.traces {
            true => sweep::traced(&self.job, Graph::InOrder, noise, &self.plan()),
            false => Ok(None),
        }
    }
}

fn runs(ranks: u64, threads: usize) -> Paired {
    Paired { job: job(ranks), threads, traces: true }
}

/// Source 0: 5 us every 4 ms. Source 1: 300 us every 500 ms. Source 2: within each of the first, 2 ns
/// long. So by time taken the first is twice the second.
fn node() -> Vec<Composed> {
    let mut lane = Composed::new(0, 10 * S);
    let mut events: Vec<_> = (0..2_500)
        .map(|i| (i * 4 * MS, 5 * US + 2, vec![(0, 5 * US), (2, 2)]))
        .chain((0..20).map(|i| (i * 500 * MS + 2 * MS, 300 * US, vec![(1, 300 * US)])))
        .collect();
    events.sort();
    for (start, len, parts) in events {
        lane.push(start, len, parts).unwrap();
    }
    vec![lane]
}

fn recorded(lanes: &[Composed]) -> Node<'_> {
    Node {
        lanes,
        on_one_clock: None,
        model: Model::Preempt,
        offsets: Offsets::Random,
        nodes: None,
        repeat: false,
    }
}

fn each(sources: &[&[u32]]) -> Vec<Question> {
    let question = |list: &&[u32]| Question { sources: list.to_vec(), ..Question::default() };
    sources.iter().map(question).collect()
}

#[test]
fn what_costs_most_at_scale_is_not_what_takes_the_most_time() {
    let lanes = node();
    let mut accounts = [Taken::default(); 3];
    lanes[0].account(&[0, 1, 2], &mut accounts);
    assert!(accounts[0].ns > 2 * accounts[1].ns);
    let questions = each(&[&[0], &[1], &[2], &[0, 1, 2]]);
    let at = |ranks| ask(&recorded(&lanes), &questions, 1, &runs(ranks, 2)).unwrap();

    // Every run meets the rare one somewhere: hardly anything else matters.
    let [frequent, rare, tiny, all] = at(16_384).answers[..] else { panic!() };
    assert_eq!(rare.removed.effect(), Effect::Gain);
    assert!(rare.removed.gain.low > frequent.removed.gain.high, "{rare:?} {frequent:?}");
    assert_eq!(tiny.removed.effect(), Effect::Nothing);
    assert_eq!(all.removed.median.value, noiseless(16_384) as f64);

    // Few runs meet it here.
    let [frequent, rare, ..] = at(16).answers[..] else { panic!() };
    assert!(!matches!(rare.removed.effect(), Effect::Gain), "{rare:?}");
    assert!(rare.removed.changed_runs < frequent.removed.changed_runs);
}

fn noiseless(ranks: u64) -> i64 {
    sweep::noiseless(&job(ranks), Graph::InOrder, Model::Preempt).unwrap()
}

#[test]
fn removing_more_never_takes_longer_and_all_threads_give_the_same_bits() {
    let lanes = node();
    let questions: Vec<Question> = each(&[&[0], &[0, 1], &[0, 1, 2]])
        .into_iter()
        .map(|question| Question { shift: Some(Shift::Lane(0)), quantise: true, ..question })
        .collect();
    let one = ask(&recorded(&lanes), &questions, 1, &runs(1000, 1)).unwrap();
    assert_eq!(ask(&recorded(&lanes), &questions, 1, &runs(1000, 3)).unwrap(), one);
    let medians: Vec<f64> = one.answers.iter().map(|a| a.removed.median.value).collect();
    assert!(medians.is_sorted_by(|a, b| a >= b), "{medians:?}");
    // The only CPU: moving the source there changes nothing.
    assert!(one.answers.iter().all(|a| a.shifted.unwrap().effect() == Effect::Nothing));
}

#[test]
fn a_source_moved_to_a_housekeeping_cpu_is_gone_unless_ranks_run_there() {
    // Two CPUs, source 1 on the second one only.
    let mut lanes = node();
    lanes.push(lanes[0].clone());
    let mut quiet = Composed::new(0, 10 * S);
    for i in 0..2_500 {
        quiet.push(i * 4 * MS, 5 * US, [(0, 5 * US)]).unwrap();
    }
    lanes[0] = quiet;
    let question = |shift| Question { sources: vec![1], shift: Some(shift), quantise: false };
    let questions =
        [question(Shift::Elsewhere), question(Shift::Lane(0)), question(Shift::Lane(1))];
    let answers = ask(&recorded(&lanes), &questions, 1, &runs(16_384, 2)).unwrap().answers;
    assert_eq!(answers[0].shifted, Some(answers[0].removed));
    // Half the ranks run on either CPU: wherever it is, it is met.
    let there = answers[1].shifted.unwrap();
    assert!(there.gain.high < answers[1].removed.gain.low, "{there:?}");
    assert_eq!(answers[2].shifted.unwrap().effect(), Effect::Nothing);
}

#[test]
fn a_lane_takes_all_of_what_is_moved_there_and_keeps_its_span() {
    let mut here = Composed::new(0, 1_000);
    here.push(100, 50, [(0, 50)]).unwrap();
    let mut there = Composed::new(10, 1_000);
    there.push(130, 40, [(1, 40)]).unwrap();
    there.push(995, 10, [(1, 10)]).unwrap();
    let lanes = [here, there];
    let noise = recorded(&lanes).shifted(&[false, true], 0).unwrap();
    let [a, b] = noise.timelines() else { panic!() };
    let list: Vec<_> = (0..a.len()).map(|i| (a.start(i), a.end(i))).collect();
    assert_eq!(list, [(100_000, 150_000), (150_000, 190_000), (995_000, 1_000_000)]);
    assert_eq!((a.span(), b.len()), (1_000_000, 0));
}

/// Compared with the engine, with all ranks at the same position in the noise.
#[test]
fn a_coscheduled_source_stops_everybody_at_once() {
    let lanes = node();
    let node = recorded(&lanes);
    let only =
        Noise::new(vec![node.together(&[false, true]).unwrap()], Model::Preempt, Offsets::Random);
    let only = only.unwrap();
    let ranks = 64;
    let alone = noiseless(ranks);
    let latency = job(ranks).params().latency;
    let mut met = 0;
    for step in 0..2_000 {
        let offset = 1_700_000_000_000 + step * 500_000_000;
        let shared = only.clone().with_offsets(Offsets::Given(vec![offset; ranks as usize]));
        let exact =
            rounds::run(&job(ranks), &shared.run(1, 0), &mut rounds::Scratch::default()).unwrap();
        let said = Local::new(&only.timelines()[0], offset, true).preempt(0, alone).unwrap();
        let stops = i64::from(said > alone);
        met += stops;
        assert!(exact <= said && said <= exact + latency * stops, "{offset}: {exact} {said}");
    }
    assert!(met > 0);

    // At scale, the rare source costs hardly anything now.
    let question = Question { sources: vec![1], shift: None, quantise: true };
    let answer = ask(&node, &[question], 1, &runs(16_384, 2)).unwrap().answers[0];
    let quantised = answer.quantised.unwrap();
    assert!(quantised.gain.value > 0.9 * answer.removed.gain.value, "{answer:?}");
}

#[test]
fn lanes_stop_together_when_they_were_recorded_so() {
    let mut a = Composed::new(1_000, 100);
    a.push(1_010, 10, [(0, 10)]).unwrap();
    let mut b = Composed::new(1_005, 100);
    b.push(1_015, 10, [(0, 10)]).unwrap();
    b.push(1_050, 5, [(0, 5)]).unwrap();
    let lanes = [a, b];
    let together = recorded(&lanes).together(&[true]).unwrap();
    let list: Vec<_> = (0..together.len()).map(|i| (together.start(i), together.end(i))).collect();
    assert_eq!(list, [(10_000, 25_000), (50_000, 55_000)]);
    assert_eq!(together.span(), 105_000);
}

#[test]
fn a_node_without_detours_or_with_one_has_answers() {
    let quiet = [Composed::new(0, S)];
    let answers = ask(&recorded(&quiet), &each(&[&[0]]), 1, &runs(64, 1)).unwrap();
    assert_eq!(answers.answers[0].removed.effect(), Effect::Nothing);
    let mut one = Composed::new(0, S);
    one.push(MS, US, [(0, US)]).unwrap();
    let one = [one];
    let answers = ask(&recorded(&one), &each(&[&[0]]), 1, &runs(64, 1)).unwrap();
    let median = Sample::new(answers.as_recorded).unwrap().quantile(0.5);
    assert_eq!(median, noiseless(64) as f64);
    let none = ask(&recorded(&[]), &[], 1, &runs(4, 1));
    assert_eq!(none, Err(WhatIfError::Spread(SpreadError::NoTimelines)));
}

/// Runs skipped because their critical path does not contain a source give the same result as if
/// simulated, bit for bit.
#[test]
fn sparing_runs_changes_nothing() {
    // Many sources, some within the others' detours, on three CPUs.
    let mut lanes = Vec::new();
    for cpu in 0..3u64 {
        let mut lane = Composed::new(cpu * 1_000, 2 * S);
        let mut at = cpu * 1_000;
        for i in 0..6_000u64 {
            let bits = crate::noise::draw(cpu, i);
            at += 20 * US + bits % (300 * US);
            let first = (bits >> 32) as u32 % 8;
            let length = US + (bits >> 40) % (40 * US);
            lane.push(at, length, [(first, length / 2), ((first + 1) % 8, length / 4)]).unwrap();
            at += length;
        }
        lanes.push(lane);
    }
    let mut questions = each(&[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7], &[0, 5]]);
    questions[3].quantise = true;
    let net = |text: &str| Params::named(text).unwrap();
    // g > o, where NICs matter, and g < o; shifts and swaps; loops; odd numbers of ranks.
    let gaps = Params { gap: 9_000_000, ..net("cnl") };
    for (ranks, params, algorithm) in [
        (1, net("cnl"), None),
        (2, net("cnl"), None),
        (1000, net("cnl"), None),
        (1024, net("cnl"), Some("recursive-doubling")),
        (600, gaps, None),
    ] {
        let shape = Shape { op: Op::Allreduce, ranks, bytes: 8, arity: 2, segment: None };
        let collective = Collective::new(algorithm, shape).unwrap();
        let job = Job::new(collective, params).unwrap().with_reduction(1_000_000).unwrap();
        let job = job.repeated(3, 5_000_000).unwrap();
        let mut asked = Paired { job, threads: 2, traces: true };
        let spared = ask(&recorded(&lanes), &questions, 1, &asked).unwrap();
        asked.traces = false;
        assert_eq!(spared, ask(&recorded(&lanes), &questions, 1, &asked).unwrap(), "{ranks}");
    }
}

#[test]
fn most_runs_are_spared() {
    let lanes = node();
    let node = recorded(&lanes);
    let asked = runs(4096, 1);
    let (_, touched) = as_recorded(&node, &each(&[&[0], &[1], &[2]]), &asked).unwrap();
    assert!(touched.unknown.is_empty());
    // The first two share the runs; a run never depends on the detours of all 4096 ranks.
    assert!(touched.by_source[0].len() < 100 || touched.by_source[1].len() < 100);
}
