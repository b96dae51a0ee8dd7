//! Runs of a program body by body: the ranks are carried from one to the next, so a run needs the memory of
//! its longest body, however many iterations there are. The times are those of the whole program as one
//! schedule, to the bit.

use super::{
    Program, SkeletonError,
    program::{Part, Step},
};
use crate::{
    collectives::Collective,
    event::{self, Carried, Options, Rules, Schedule},
    job::Job,
    loggops::Params,
    noise::{Model, Noise, RunNoise, draw},
    rounds::{self, RankStates},
    runs as spreading,
    sweep::{Plan, SweepError},
};

/// The schedules of a program's bodies, and the order in which they are run.
#[derive(Debug)]
pub struct Bodies {
    ranks: u64,
    bodies: Vec<Body>,
    order: Vec<Order>,
}

#[derive(Debug)]
struct Body {
    schedule: Schedule,
    /// If it is nothing but a collective.
    collective: Option<Collective>,
    messages: u64,
}

#[derive(Debug)]
enum Order {
    /// By its number.
    Body(usize),
    Repeat(u64, Vec<Order>),
}

/// Memory of a run, reused by the thread's next one.
#[derive(Debug, Default)]
pub struct Scratch {
    events: event::Scratch,
    carried: Carried,
    rounds: rounds::Scratch,
    ranks: RankStates,
    in_collectives: i128,
}

impl Scratch {
    /// When a rank has finished, and how long it has been in collectives, ps; means over the ranks.
    pub fn means(&self) -> (f64, f64) {
        let ranks = self.ends().len().max(1) as f64;
        (total(self.ends()) as f64 / ranks, self.in_collectives as f64 / ranks)
    }

    /// When each rank has finished, ps.
    pub fn ends(&self) -> &[i64] {
        self.carried.ends()
    }
}

/// Everything a run needs but the noise.
#[derive(Clone, Copy)]
struct Setting<'a> {
    params: &'a Params,
    options: &'a Options,
    progress: &'a dyn Fn(u64) -> bool,
}

impl Bodies {
    pub(super) fn of(program: &Program) -> Result<Bodies, SkeletonError> {
        let mut known: Vec<Vec<Step>> = Vec::new();
        let mut bodies = Vec::new();
        let order = number(program, &program.parts, &mut known, &mut bodies)?;
        Ok(Bodies { ranks: program.ranks(), bodies, order })
    }

    /// Memory of the schedules, bytes.
    pub fn memory(&self) -> u64 {
        self.bodies.iter().map(|body| body.schedule.memory() as u64).sum()
    }

    /// Memory of a run in addition, bytes.
    pub fn run_memory(&self, options: &Options) -> u64 {
        let one = |Body { schedule, .. }: &Body| {
            event::run_memory(schedule, options.model) + Carried::memory(schedule)
        };
        self.bodies.iter().map(one).max().unwrap_or(0)
    }

    /// When the last rank finishes. `progress` gets the messages of each body; false stops.
    pub fn run(
        &self,
        params: &Params,
        options: &Options,
        noise: &RunNoise<'_>,
        progress: &dyn Fn(u64) -> bool,
        scratch: &mut Scratch,
    ) -> Result<i64, SweepError> {
        scratch.carried.clear();
        scratch.in_collectives = 0;
        self.walk(&self.order, &Setting { params, options, progress }, noise, scratch)?;
        Ok(scratch.ends().iter().copied().max().unwrap_or(0))
    }

    fn walk(
        &self,
        order: &[Order],
        setting: &Setting<'_>,
        noise: &RunNoise<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), SweepError> {
        let Setting { params, options, progress } = *setting;
        for part in order {
            match part {
                Order::Body(number) => {
                    let Body { schedule, collective, messages } = &self.bodies[*number];
                    let before =
                        if collective.is_some() { total(scratch.carried.ends()) } else { 0 };
                    let job = collective.and_then(|one| as_job(one, setting, noise, scratch));
                    let Scratch { events, carried, rounds, ranks, in_collectives } = scratch;
                    match job {
                        Some(job) => {
                            ranks.start(self.ranks)?;
                            if !carried.ends().is_empty() {
                                carried.get(&mut ranks.slices());
                            }
                            rounds::run_on(&job, noise, ranks, rounds)?;
                            carried.set(&ranks.slices());
                        }
                        None => {
                            event::run_on(events, schedule, params, options, noise, carried)?;
                        }
                    }
                    if collective.is_some() {
                        *in_collectives += total(carried.ends()) - before;
                    }
                    if !progress(*messages) {
                        return Err(SweepError::Stopped);
                    }
                }
                Order::Repeat(times, parts) => {
                    for _ in 0..*times {
                        self.walk(parts, setting, noise, scratch)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A collective for the round engine, which takes a fraction of the time of a schedule. None if it takes a
/// schedule: for noise that runs on CPU time, latencies that vary, and ranks with several CPUs.
fn as_job(
    collective: Collective,
    setting: &Setting<'_>,
    noise: &RunNoise<'_>,
    scratch: &Scratch,
) -> Option<Job> {
    let Setting { params, options, .. } = *setting;
    let has_clock = !noise.is_none() && noise.model() == Model::CpuTime;
    if options.model != Rules::Loggops
        || has_clock
        || noise.latencies().is_some()
        || !scratch.carried.is_simple()
    {
        return None;
    }
    // If a size is out of range, the engine says where.
    let job = Job::new(collective, *params).ok()?.with_local(options.local).ok()?;
    let job = job.with_rendezvous(options.rendezvous);
    rounds::can(&job, noise).then_some(job)
}

fn total(ends: &[i64]) -> i128 {
    ends.iter().map(|&end| i128::from(end)).sum()
}

/// Equal bodies have one schedule.
fn number(
    program: &Program,
    parts: &[Part],
    known: &mut Vec<Vec<Step>>,
    bodies: &mut Vec<Body>,
) -> Result<Vec<Order>, SkeletonError> {
    let mut order = Vec::new();
    for part in parts {
        match part {
            Part::Repeat(0, _) => {}
            Part::Repeat(times, parts) => {
                order.push(Order::Repeat(*times, number(program, parts, known, bodies)?));
            }
            Part::Body(steps) => {
                let same = known.iter().position(|known| known == steps);
                order.push(Order::Body(match same {
                    Some(number) => number,
                    None => {
                        let schedule = program.written(std::slice::from_ref(part))?;
                        let collective = match steps[..] {
                            [Step::Collective(number)] => Some(program.collectives[number]),
                            _ => None,
                        };
                        let messages = schedule.messages();
                        bodies.push(Body { schedule, collective, messages });
                        known.push(steps.clone());
                        known.len() - 1
                    }
                }));
            }
        }
    }
    Ok(order)
}

/// The times of many runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Without noise, ps.
    pub noiseless: i64,
    /// When a rank finishes without noise, and how long it is in collectives, ps; means over the ranks.
    pub mean_end: f64,
    pub in_collectives: f64,
    /// When the last rank finished in each run, ps.
    pub times: Vec<i64>,
}

/// `plan.runs` runs, and one without noise. The draws are those of the other simulations.
pub fn runs(
    bodies: &Bodies,
    params: &Params,
    options: &Options,
    noise: &Noise,
    plan: &Plan<'_>,
) -> Result<Runs, SweepError> {
    noise.check(bodies.ranks)?;
    let silent = Noise::none().with_model(Model::default());
    let seed = draw(plan.seed, bodies.ranks);
    // Without noise all runs are alike.
    let noisy = if noise.is_silent() { 0 } else { plan.runs };
    let one = |index: u64, scratch: &mut Scratch| {
        let noise = match index {
            0 => silent.run(seed, 0),
            _ => noise.run(seed, index - 1),
        };
        let time = bodies.run(params, options, &noise, plan.progress, scratch)?;
        Ok((time, (index == 0).then(|| scratch.means())))
    };
    let per_run = bodies.run_memory(options).max(1);
    let at_once = (plan.memory / per_run).clamp(1, plan.threads as u64);
    let all = spreading::spread::<_, _, SweepError>(noisy + 1, at_once, one)?;
    let mut times: Vec<i64> = all.iter().map(|&(time, _)| time).collect();
    let noiseless = times.remove(0);
    if noisy == 0 {
        times = vec![noiseless; plan.runs as usize];
    }
    let (mean_end, in_collectives) = all.first().and_then(|run| run.1).unwrap_or_default();
    Ok(Runs { noiseless, mean_end, in_collectives, times })
}
