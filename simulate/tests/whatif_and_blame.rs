//! The critical path and the counterfactual agree: removing a source helps if it is on the path, in
//! sign and in order.

use simulate::{
    blame::blame_runs,
    collectives::{Collective, Op, Shape},
    event,
    graph::{self, Graph},
    job::Job,
    loggops::Params,
    noise::{Composed, Model, Noise, Offsets, draw},
    sweep::{self, Plan, SweepError, Traced},
    whatif::{Node, Question, Runs, ask},
};

const US: u64 = 1_000;
const RUNS: u64 = 100;

struct Paired(Job);

fn plan() -> Plan<'static> {
    Plan { runs: RUNS, seed: 3, threads: 2, memory: u64::MAX, progress: &|_| true }
}

impl Runs for Paired {
    fn count(&self) -> u64 {
        RUNS
    }

    fn times(&self, noise: &Noise, runs: &[u64]) -> Result<Vec<i64>, SweepError> {
        sweep::times_of(&self.0, Graph::InOrder, noise, &plan(), runs)
    }

    fn traced(&self, noise: &Noise) -> Result<Option<Vec<Traced>>, SweepError> {
        sweep::traced(&self.0, Graph::InOrder, noise, &plan())
    }
}

/// The sources in time order, each with its mean interval (us) and its length (us).
fn detours(sources: &[(u64, u64)]) -> Vec<(u64, u64, u32)> {
    let span = 400_000 * US;
    let mut list = Vec::new();
    for (source, &(every, length)) in (0u32..).zip(sources) {
        let (mut at, mut i) = (0, 0);
        while at < span {
            at += every * US / 2 + draw(u64::from(source), i) % (every * US);
            list.push((at, length * US, source));
            i += 1;
        }
    }
    list.sort_unstable();
    let mut free_at = 0;
    for (start, length, _) in &mut list {
        *start = (*start).max(free_at);
        free_at = *start + *length;
    }
    list
}

#[test]
fn what_is_on_the_critical_path_is_what_removing_helps() {
    // A frequent short one, a rare long one, and one too short to matter; the same with the first two
    // swapped; all equal.
    let scenarios: [&[(u64, u64)]; 3] = [
        &[(1_000, 5), (5_000, 100), (50_000, 1)],
        &[(300, 30), (50_000, 40), (20_000, 2)],
        &[(2_000, 20), (2_500, 60), (3_000, 5)],
    ];
    for sources in scenarios {
        let list = detours(sources);
        let mut lane = Composed::new(0, 0);
        for &(start, length, source) in &list {
            lane.push(start, length, [(source, length)]).unwrap();
        }
        let shape = Shape { op: Op::Allreduce, ranks: 128, bytes: 8, arity: 2, segment: None };
        let collective = Collective::new(None, shape).unwrap();
        let job = Job::new(collective, Params::named("cnl").unwrap()).unwrap();
        let job = job.repeated(5, 100_000_000).unwrap();

        let numbers: Vec<u32> = (0..sources.len() as u32).collect();
        let timeline = lane.shared_without(&[], &numbers).unwrap();
        let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
        let schedule = graph::schedule(&job, Graph::InOrder).unwrap();
        let options = event::Options::default();
        let blames = blame_runs(&schedule, job.params(), &options, &noise, &plan()).unwrap();

        let lanes = [lane];
        let node = Node {
            lanes: &lanes,
            on_one_clock: None,
            model: Model::Preempt,
            offsets: Offsets::Random,
            nodes: None,
            repeat: false,
        };
        let questions: Vec<Question> = (0..sources.len() as u32)
            .map(|source| Question { sources: vec![source], ..Question::default() })
            .collect();
        let paired = Paired(job);
        let answers = ask(&node, &questions, 1, &paired).unwrap();
        // Same draws, same runs, in either engine.
        assert_eq!(answers.as_recorded, blames.finishes);

        // Blame is a mean over runs, so it is compared with the mean gain.
        let mean_of = |times: &[i64]| times.iter().sum::<i64>() as f64 / RUNS as f64;
        let mean = mean_of(&blames.finishes);
        let all: Vec<u64> = (0..RUNS).collect();
        let gain = |source: u32| {
            let removed: Vec<bool> = numbers.iter().map(|&number| number == source).collect();
            let without = paired.times(&node.without(&removed).unwrap(), &all).unwrap();
            mean - mean_of(&without)
        };
        for blamed in &blames.sources {
            let answer = &answers.answers[blamed.source as usize].removed;
            // A run without it on the path is unchanged. One with some may gain more than that: work
            // done earlier may finish before the next detour.
            assert!(answer.changed_runs <= blamed.runs_on_path() as u64);
            let gained = gain(blamed.source);
            assert!(gained >= 0.0, "{gained} {blamed:?}");
            // It may gain nothing if another path is as long, but only if its share is small.
            assert!(gained > 0.0 || blamed.on_path() < 0.01 * mean, "{gained} {blamed:?}");
        }
        // Blame is sorted by time on the path: so are the gains.
        let mut order: Vec<u32> = blames.sources.iter().map(|blamed| blamed.source).collect();
        order.retain(|&source| gain(source) > 0.0);
        assert!(
            order.iter().map(|&source| gain(source)).is_sorted_by(|a, b| a >= b),
            "{order:?}: {:?}",
            order.iter().map(|&s| gain(s)).collect::<Vec<_>>()
        );
        assert!(order.len() >= 2);
    }
}
