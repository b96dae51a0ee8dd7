//! Many runs of a job, spread over threads. A result is a function of run number and seed.

use thiserror::Error;

use crate::{
    cycle::{self, Case, Config, CycleError},
    event::{self, EventError, Rules, Schedule},
    graph::{self, Graph, GraphError},
    job::Job,
    noise::{Model, Noise, RunNoise, SpreadError, draw},
    rounds::{self, RunError},
    runs,
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SweepError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Events(#[from] EventError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Noise(#[from] SpreadError),
    #[error(transparent)]
    Cycle(#[from] CycleError),
    #[error("redundant-butterfly has no graph of LogGOPSim's generator: omit --graph peer")]
    RedundantGraph,
    #[error("stopped")]
    Stopped,
}

/// How to run.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    pub runs: u64,
    pub seed: u64,
    /// At least 1.
    pub threads: usize,
    /// Memory limit for all concurrent runs, bytes; one always runs.
    pub memory: u64,
    /// Called with the messages of each finished run; false stops.
    pub progress: &'a (dyn Fn(u64) -> bool + Sync),
}

/// The engine that runs a job.
enum Engine {
    Rounds,
    Events(Box<Schedule>, event::Options),
    /// The redundant butterfly.
    Redundant(Config),
    /// A barrier first, which may need another engine than the job.
    After {
        barrier: Box<Job>,
        before: Box<Engine>,
        engine: Box<Engine>,
    },
}

/// Memory of a run, reused by the thread's next one.
#[derive(Default)]
struct Scratch {
    rounds: rounds::Scratch,
    events: event::Scratch,
}

/// The rules for a job written out as a schedule. LogGOPSim's graph with LogGOPSim's noise selects
/// LogGOPSim's rules for everything.
pub fn rules(job: &Job, graph: Graph, noise: Model) -> event::Options {
    let peer = graph == Graph::LogGopSim && noise == Model::LogGopSim;
    let model = if peer { Rules::Loggopsim } else { Rules::Loggops };
    event::Options { model, rendezvous: job.rendezvous(), local: job.local() }
}

impl Engine {
    /// The in-order graph needs no schedule if the round engine supports the job.
    fn new(job: &Job, noise: &Noise, graph: Graph) -> Result<Engine, SweepError> {
        if job.is_redundant() {
            return match graph {
                Graph::InOrder => Ok(Engine::Redundant(cycle::config_of(job, noise)?)),
                Graph::LogGopSim => Err(SweepError::RedundantGraph),
            };
        }
        if let Some(barrier) = job.barrier() {
            let before = Box::new(Engine::new(&barrier, noise, graph)?);
            let engine = Box::new(Engine::of(job, noise, graph)?);
            return Ok(Engine::After { barrier: Box::new(barrier), before, engine });
        }
        Ok(Engine::of(job, noise, graph)?)
    }

    fn of(job: &Job, noise: &Noise, graph: Graph) -> Result<Engine, GraphError> {
        if graph == Graph::InOrder && rounds::can(job, &noise.run(0, 0)) {
            return Ok(Engine::Rounds);
        }
        let options = rules(job, graph, noise.model());
        Ok(Engine::Events(Box::new(graph::schedule(job, graph)?), options))
    }

    fn memory(&self, job: &Job, noise: &RunNoise<'_>) -> u64 {
        match self {
            Engine::Rounds => rounds::memory(job, noise),
            Engine::Events(schedule, options) => event::run_memory(schedule, options.model),
            Engine::Redundant(config) => config.memory(),
            Engine::After { engine, .. } => {
                engine.memory(job, noise).saturating_add(job.ranks().saturating_mul(16))
            }
        }
    }

    fn run(
        &self,
        job: &Job,
        noise: &RunNoise<'_>,
        scratch: &mut Scratch,
    ) -> Result<i64, SweepError> {
        match self {
            Engine::Rounds => Ok(rounds::run(job, noise, &mut scratch.rounds)?),
            Engine::Events(schedule, options) => {
                let events = &mut scratch.events;
                Ok(event::run_with(events, schedule, job.params(), options, noise)?.max())
            }
            Engine::Redundant(config) => Ok(cycle::last_end(config, noise, Case::Redundant)?),
            Engine::After { barrier, before, engine } => {
                scratch.rounds.keep_ends();
                let starts = before.ends(barrier, noise, &[], scratch)?;
                // Every rank sends as many messages in the barrier.
                let sent = barrier.messages() / job.ranks().max(1);
                let ends = engine.ends(job, &noise.after_messages(sent), &starts, scratch)?;
                let times = ends.iter().zip(&starts).map(|(end, start)| end - start);
                Ok(times.max().unwrap_or(0))
            }
        }
    }

    /// When each rank finishes.
    fn ends(
        &self,
        job: &Job,
        noise: &RunNoise<'_>,
        starts: &[i64],
        scratch: &mut Scratch,
    ) -> Result<Vec<i64>, SweepError> {
        match self {
            Engine::Rounds => {
                rounds::run_from(job, noise, starts, &mut scratch.rounds)?;
                Ok(scratch.rounds.ends().to_vec())
            }
            Engine::Events(schedule, options) => {
                let events = &mut scratch.events;
                let params = job.params();
                Ok(event::run_from(events, schedule, params, options, noise, starts)?.ends)
            }
            Engine::Redundant(_) => Err(SweepError::Cycle(CycleError::Apart)),
            Engine::After { engine, .. } => engine.ends(job, noise, starts, scratch),
        }
    }
}

/// How long the job takes without noise.
pub fn noiseless(job: &Job, graph: Graph, model: Model) -> Result<i64, SweepError> {
    let none = Noise::none().with_model(model);
    Engine::new(job, &none, graph)?.run(job, &none.run(0, 0), &mut Scratch::default())
}

/// The time of each run, in order of their numbers.
pub fn times(
    job: &Job,
    graph: Graph,
    noise: &Noise,
    plan: &Plan<'_>,
) -> Result<Vec<i64>, SweepError> {
    let all: Vec<u64> = (0..plan.runs).collect();
    times_of(job, graph, noise, plan, &all)
}

/// The times of some of the runs, by their numbers.
pub fn times_of(
    job: &Job,
    graph: Graph,
    noise: &Noise,
    plan: &Plan<'_>,
    runs: &[u64],
) -> Result<Vec<i64>, SweepError> {
    noise.check(job.ranks())?;
    let engine = Engine::new(job, noise, graph)?;
    let seed = point_seed(plan, job);
    let messages = job.messages();
    let per_run = engine.memory(job, &noise.run(seed, 0)).max(1);
    let at_once = (plan.memory / per_run).clamp(1, plan.threads as u64);

    runs::spread(runs.len() as u64, at_once, |index, scratch: &mut Scratch| {
        let noise = noise.run(seed, runs[index as usize]);
        let time = engine.run(job, &noise, scratch)?;
        if (plan.progress)(messages) { Ok(time) } else { Err(SweepError::Stopped) }
    })
}

/// Points of a sweep do not share their draws; variants of one point do, so that they can be compared
/// run by run.
fn point_seed(plan: &Plan<'_>, job: &Job) -> u64 {
    draw(plan.seed, job.ranks())
}

/// An interval of a timeline on the critical path of a run, in ps from its start; `to` may lie in a
/// later turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub timeline: usize,
    pub from: i64,
    pub to: i64,
}

/// A run: its end, and its critical path, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    pub end: i64,
    pub stretches: Option<Vec<Stretch>>,
}

/// All runs with their critical paths. None if they are too expensive to find: for schedules, for
/// rounds in which not all ranks send and receive, for models other than exact preemption, and if
/// there is no room for the times after each round.
pub fn traced(
    job: &Job,
    graph: Graph,
    noise: &Noise,
    plan: &Plan<'_>,
) -> Result<Option<Vec<Traced>>, SweepError> {
    noise.check(job.ranks())?;
    if job.is_redundant() {
        return Ok(None);
    }
    let seed = point_seed(plan, job);
    let first = noise.run(seed, 0);
    let per_run = rounds::memory(job, &first).saturating_add(rounds::path::memory(job)).max(1);
    let exact =
        graph == Graph::InOrder && job.barrier().is_none() && rounds::says_its_path(job, &first);
    if !exact || per_run > plan.memory.min(MOST_FOR_A_PATH) {
        return Ok(None);
    }
    let at_once = (plan.memory / per_run).clamp(1, plan.threads as u64);
    let runs = runs::spread(plan.runs, at_once, |run, scratch: &mut Scratch| {
        let noise = noise.run(seed, run);
        let path = rounds::run_with_path(job, &noise, &mut scratch.rounds)?;
        if !(plan.progress)(job.messages()) {
            return Err(SweepError::Stopped);
        }
        let stretch = |window: &rounds::path::Window| {
            let (timeline, offset) = noise.place(window.rank);
            Stretch { timeline, from: window.from + offset, to: window.to + offset }
        };
        Ok(path.map(|path| Traced {
            end: path.end,
            stretches: path.windows.map(|windows| windows.iter().map(stretch).collect()),
        }))
    })?;
    Ok(runs.into_iter().collect())
}

/// Limit for a run and the times after each of its rounds, bytes.
const MOST_FOR_A_PATH: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        collectives::{Collective, Op, Shape},
        loggops::Params,
        noise::{Model, Offsets, Timeline},
    };

    fn job(op: Op) -> Job {
        let shape = Shape { op, ranks: 100, bytes: 1, arity: 2, segment: None };
        let collective = Collective::new(None, shape).unwrap();
        Job::new(collective, Params::named("xt4").unwrap()).unwrap()
    }

    fn plan(threads: usize, progress: &(dyn Fn(u64) -> bool + Sync)) -> Plan<'_> {
        Plan { runs: 200, seed: 9, threads, memory: u64::MAX, progress }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_for_any_number_of_threads() {
        let detours = (0..100).map(|i| (i * 1_000_000_000 + i * i * 77_777, 100_000_000));
        let timeline = Timeline::new(detours, 101_000_000_000).unwrap();
        for model in Model::ALL {
            let noise = Noise::new(vec![timeline.clone()], model, Offsets::Random).unwrap();
            for (op, graph) in [
                (Op::Allreduce, Graph::InOrder),
                (Op::Bcast, Graph::InOrder),
                (Op::Allreduce, Graph::LogGopSim),
            ] {
                let time = |threads, seed| {
                    let plan = Plan { seed, ..plan(threads, &|_| true) };
                    times(&job(op), graph, &noise, &plan).unwrap()
                };
                let one = time(1, 9);
                for threads in [2, 7] {
                    assert_eq!(time(threads, 9), one);
                }
                assert_ne!(time(2, 10), one);
            }
        }
    }

    /// The engine of the cycles agrees with an event-driven simulation (`tests/cycle_reference.rs`).
    #[test]
    fn a_loop_of_redundant_butterflies_takes_what_the_same_cycles_take() {
        let detours =
            (0..500).map(|i| (i * 9_000_000 + i * i * 7_777, 1_000_000 + 50_000 * (i % 7)));
        let timeline = Timeline::new(detours, 9_000_000_000).unwrap();
        let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
        let noise = noise.repeating(true);
        let params = Params {
            latency: 1_000_000,
            send_overhead: 300_000,
            recv_overhead: 300_000,
            gap_per_byte_fs: 1_000_000,
            ..Params::FREE
        };
        let plan = Plan { runs: 20, ..plan(2, &|_| true) };
        let job = Job::redundant_butterfly(256, 100, params).unwrap();
        let job = job.repeated(5, 2_000_000).unwrap();
        let found = times(&job, Graph::InOrder, &noise, &plan).unwrap();
        let config = Config {
            work: 2_000_000,
            cycles: 5,
            overhead: 300_000,
            bytes: 100,
            runs: 20,
            seed: draw(9, 256),
            ..Config::paper(256)
        };
        let cycles = cycle::share_by_cycle(&config, Some(&noise), &[5], 0..20, None).unwrap();
        let redundant: Vec<i64> = cycles[0].runs.iter().map(|times| times.redundant).collect();
        assert_eq!(found, redundant);
        assert!(cycles[0].runs.iter().any(|times| times.redundant < times.conventional));
        // Without noise, a round takes o + L + (k - 1) G + o.
        let round = 300_000 + 1_000_000 + 99_000 + 300_000;
        let alone = noiseless(&job, Graph::InOrder, Model::Preempt).unwrap();
        assert_eq!(alone, 5 * (2_000_000 + 8 * round));
        assert_eq!(traced(&job, Graph::InOrder, &noise, &plan).unwrap(), None);
    }

    #[test]
    fn what_a_redundant_butterfly_cannot_have_is_refused() {
        let params = Params::named("alps").unwrap();
        assert!(Job::redundant_butterfly(100, 1, params).is_err());
        let job = |bytes| Job::redundant_butterfly(64, bytes, params).unwrap();
        let refused = |job: &Job, graph, noise: &Noise| {
            times(job, graph, noise, &plan(1, &|_| true)).unwrap_err().to_string()
        };
        let none = Noise::none();
        let order = Graph::InOrder;
        assert!(refused(&job(1), Graph::LogGopSim, &none).contains("--graph peer"));
        assert!(refused(&job(5_000), order, &none).contains("larger than S"));
        assert!(refused(&job(1).after_barrier(true), order, &none).contains("--after-barrier"));
        assert!(refused(&job(1).with_reduction(5).unwrap(), order, &none).contains("--reduction"));
        let timeline = Timeline::new([(10, 5)], 1_000_000).unwrap();
        let noise = Noise::new(vec![timeline], Model::CpuTime, Offsets::Random).unwrap();
        assert!(refused(&job(1), order, &noise).contains("preempt"));
        assert!(graph::schedule(&job(1), order).unwrap_err().to_string().contains("GOAL"));
    }

    #[test]
    fn a_sweep_stops_when_told_to_and_when_a_run_fails() {
        let stop = |_| false;
        let none = Noise::none();
        assert_eq!(
            times(&job(Op::Barrier), Graph::InOrder, &none, &plan(2, &stop)),
            Err(SweepError::Stopped)
        );
        let short = Timeline::new([(10, 5)], 100).unwrap();
        let short = Noise::new(vec![short], Model::Preempt, Offsets::Random).unwrap();
        assert!(times(&job(Op::Barrier), Graph::InOrder, &short, &plan(2, &|_| true)).is_err());
    }
}
