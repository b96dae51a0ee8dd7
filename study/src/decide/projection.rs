//! Projections for the page of a recording: what its noise costs the job it is judged by, and a bare
//! allreduce, at many rank counts; the same without the largest sources; and the idle times of an
//! all-to-all.

use std::time::Instant;

use analysis::{OutsideRow, Part, Summary, words};
use anyhow::{Result, bail};
use simulate::{
    collectives::{Collective, Op, Shape},
    graph::Graph,
    job::Job,
    noise::{Composed, Model, Noise, Offsets, draw},
    resample::{
        Exchange,
        alltoall::{self, Config, Mode, Schedule},
    },
    stats::{self, Knee},
    sweep,
    whatif::Node,
};
use trace::RowKey;

use crate::{
    decide::decision::{self, Decision, Report},
    error,
    jobs::workload::{self, JobKind},
    network,
    network::variation::{self, Variation},
    noise::{
        placement::{self, Places},
        tail::{Copies, Extended},
    },
    recording::{
        open::{AnyReader, Size},
        recorded::{Recorded, Source},
    },
    run::{
        point::{Point, Runs, Series},
        work::Work,
    },
};

/// Defaults.
pub const RUNS: u64 = 40;
pub const NET: &str = workload::NET;
/// Up to this rank count, every point gets all runs. Beyond it, runs are reduced to keep ranks times runs
/// constant, down to [`FEWEST`]: the slowest of that many ranks varies little between runs.
const FULL_RANKS: u64 = 1 << 15;
const FEWEST: u64 = 5;
/// Number of variants without a source, and the minimum share of time to simulate one.
const VARIANTS: usize = 3;
const WORTHWHILE_PCT: f64 = 1.0;
/// Variants are simulated at every third rank count.
const EVERY: usize = 3;
/// All-to-alls as in the published study, with fewer samples.
pub const PROCESSORS: [u64; 2] = [4, 32];
pub const SAMPLES: u64 = 20_000;
pub const EXCHANGE_US: i64 = 150;

/// What to project.
#[derive(Clone, Debug)]
pub struct Request {
    pub ranks: Vec<u64>,
    /// Runs per point; fewer beyond 32 Ki ranks.
    pub runs: u64,
    /// The job; the bare allreduce has its network.
    pub workload: workload::Request,
    /// Which CPU each rank is on.
    pub placement: placement::Request,
    /// Processes to ignore: names, units or classes.
    pub exclude: Vec<String>,
    /// Extend the recording by fitted tails.
    pub tail: bool,
    /// Runs of the decision, and whether it was made with fitted tails. Its job is shown as it was decided: one
    /// page must not have two answers to one question.
    pub decision_runs: u64,
    pub decision_tail: bool,
}

/// Results of simulations with a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    /// The operation and its algorithm: `allreduce (dissemination)`.
    pub operation: String,
    pub net: String,
    pub seed: u64,
    /// The job, up to as many ranks as the recording supports.
    pub job: Option<JobCurve>,
    /// Ascending ranks.
    pub points: Vec<Point>,
    pub knee: Option<Knee>,
    /// The same without certain sources.
    pub without: Vec<Without>,
    pub idle: Vec<Idle>,
    /// Further remarks.
    pub remarks: Vec<String>,
}

/// The job by which noise is judged, at several rank counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobCurve {
    /// Description of the job.
    pub text: String,
    pub runs: u64,
    /// Ascending ranks.
    pub points: Vec<Point>,
    /// The same without what the first action removes.
    pub without: Option<Without>,
    /// The same with fitted tails, if the others are as recorded.
    pub with_tail: Vec<Point>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Without {
    /// `without fakemond`.
    pub name: String,
    /// The row of the summary's sources; None for noise outside the kernel.
    pub source: Option<usize>,
    pub points: Vec<Point>,
}

/// Idle times of processor 0 in an all-to-all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idle {
    pub processors: u64,
    pub samples: u64,
    pub zero_share: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// (upper bound in us, count), ascending, including zeros.
    pub bins: Vec<(f64, u64)>,
}

impl Request {
    /// The defaults of `detour report --html`.
    pub fn usual() -> Result<Request> {
        Ok(Request {
            ranks: (1..=20).map(|k| 1 << k).collect(),
            runs: RUNS,
            workload: workload::Request::usual()?,
            placement: placement::Request::default(),
            exclude: Vec::new(),
            tail: true,
            decision_runs: decision::RUNS,
            decision_tail: false,
        })
    }

    /// Runs of a point.
    pub fn runs_at(&self, ranks: u64) -> u64 {
        let fewer = self.runs.saturating_mul(FULL_RANKS) / ranks.max(1);
        fewer.clamp(FEWEST.min(self.runs), self.runs)
    }

    fn job(&self, ranks: u64) -> Result<Job> {
        let shape = Shape { op: Op::Allreduce, ranks, bytes: 1, arity: 2, segment: None };
        let job = Job::new(Collective::new(None, shape)?, self.workload.net)?;
        Ok(job.with_rendezvous(self.workload.rendezvous).with_local(self.workload.local)?)
    }

    /// Validates the rank counts.
    pub fn check(&self) -> Result<()> {
        if self.ranks.iter().any(|&ranks| ranks < 2) {
            bail!("a projection needs at least 2 ranks, e.g. --ranks 2..1Mi");
        }
        Ok(())
    }
}

/// Simulates. Or says why there is nothing to show: a recording too damaged to simulate still gets a page.
pub fn project(
    reader: &AnyReader,
    report: &Report,
    request: &Request,
    work: &Work<'_>,
) -> Result<Result<Projection, String>> {
    let (summary, decision) = (&report.summary, &report.decision);
    request.check()?;
    let Size { detours, events } = Size::of(reader);
    if detours > Size::MOST_DETOURS {
        return Ok(Err(format!(
            "{detours} detours are too many to project here; `detour simulate` is limited only by \
             memory."
        )));
    }
    if summary.detours == 0 && summary.taken_ns_total == 0 {
        return Ok(Err("This recording has no detours to project.".to_owned()));
    }
    if events > Size::MOST_EVENTS {
        return Ok(Err(format!(
            "This recording has {events} detours and records, too many for a projection: record \
             for a shorter time."
        )));
    }
    let recorded = Recorded::new(reader);
    let projected = placed(reader, &recorded, request, work.seed).and_then(|placed| {
        let recorded = &recorded;
        let variation = request.workload.latency.as_ref();
        let variation = variation.map(variation::Request::load).transpose()?;
        Simulation { request, work, placed, recorded, summary, decision, variation }.run()
    });
    match projected {
        Err(error) if error::was_stopped(&error) => Err(error),
        projected => {
            Ok(projected.map_err(|error| format!("Cannot simulate this recording: {error:#}.")))
        }
    }
}

/// The lanes that ranks are on.
struct Lanes {
    lanes: Vec<Composed>,
    /// The numbers of lanes of each node, and the ranks that share one.
    nodes: Option<(Vec<usize>, u64)>,
}

struct Placed {
    all: Lanes,
    /// With fitted tails.
    extended: Option<Extended>,
    /// As recorded, for the decision's job.
    recorded: Option<Lanes>,
}

fn placed(reader: &AnyReader, recorded: &Recorded, request: &Request, seed: u64) -> Result<Placed> {
    let places = Places::new(reader, recorded, &request.placement, |_| true)?;
    let excluded = recorded.excluded(&request.exclude)?;
    let lanes = places.lanes(recorded.lanes_of(reader, &Part::default())?, &excluded);
    let nodes = places.nodes().map(|(counts, ranks)| (counts.to_vec(), ranks));
    if !request.tail {
        return Ok(Placed { all: Lanes { lanes, nodes }, extended: None, recorded: None });
    }
    let copies = Copies::of(reader, recorded, &lanes, places.nodes(), seed);
    Ok(Placed {
        all: Lanes { lanes: copies.lanes, nodes: copies.nodes },
        extended: Some(copies.extended),
        recorded: (!request.decision_tail).then_some(Lanes { lanes, nodes }),
    })
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    placed: Placed,
    recorded: &'a Recorded,
    summary: &'a Summary,
    decision: &'a Decision,
    variation: Option<Variation>,
}

/// A source to omit.
struct Variant {
    name: String,
    row: Option<usize>,
    removed: Vec<bool>,
}

impl Simulation<'_> {
    fn run(&self) -> Result<Projection> {
        let request = self.request;
        let mut ranks = request.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let mut few: Vec<u64> = ranks.iter().rev().step_by(EVERY).copied().collect();
        few.reverse();
        let variants = self.variants();
        let messages = |ranks: &[u64]| -> Result<u64> {
            ranks.iter().try_fold(0u64, |sum, &r| {
                let of_point = request.job(r)?.messages().saturating_mul(request.runs_at(r));
                Ok(sum.saturating_add(of_point))
            })
        };
        let total = messages(&few)?.saturating_mul(variants.len() as u64);
        let noise = self.noise(&self.placed.all, &[])?;
        let job = self.job_curve(&noise)?;
        self.work.watch.expect(total.saturating_add(messages(&ranks)?));
        let bare = |ranks: u64| Ok((request.job(ranks)?, request.runs_at(ranks)));
        let points = self.points(&noise, &ranks, "with all sources", &bare)?;
        let mut without = Vec::new();
        for Variant { name, row, removed } in variants {
            let noise = self.noise(&self.placed.all, &removed)?;
            let points = self.points(&noise, &few, &name, &bare)?;
            without.push(Without { name, source: row, points });
        }
        self.work.watch.now("all-to-all");
        let idle = self.work.in_pool(|| self.idle(&noise))??;
        let largest = request.job(ranks.last().copied().unwrap_or(2))?;
        let algorithm = largest.body().first().map_or("", Collective::algorithm);
        Ok(Projection {
            operation: format!("allreduce ({algorithm})"),
            net: network::describe(&request.workload.net),
            job,
            seed: self.work.seed,
            knee: stats::knee(&points.iter().map(Point::for_knee).collect::<Vec<_>>()),
            points,
            without,
            idle,
            remarks: self.remarks(),
        })
    }

    fn noise(&self, Lanes { lanes, nodes }: &Lanes, removed: &[bool]) -> Result<Noise> {
        let node = Node {
            on_one_clock: None,
            lanes,
            model: Model::Preempt,
            offsets: Offsets::Random,
            nodes: nodes.as_ref().map(|(counts, ranks)| (&counts[..], *ranks)),
            repeat: true,
        };
        Ok(node.without(removed)?)
    }

    /// The largest sources in the report, and time outside the kernel.
    fn variants(&self) -> Vec<Variant> {
        let all = &self.recorded.sources;
        let set = |hit: &dyn Fn(&Source) -> bool| all.iter().map(hit).collect::<Vec<bool>>();
        let rows = self.summary.sources.iter().enumerate();
        // The recorder does not run in production.
        let rows = rows.filter(|(_, row)| row.share_pct >= WORTHWHILE_PCT && !row.own);
        let rows = rows.take(VARIANTS - 1);
        let mut variants: Vec<Variant> = rows
            .map(|(index, row)| {
                let key = row.row_key();
                Variant {
                    name: format!("without {}", words::label_of(row.class, &row.name)),
                    row: Some(index),
                    removed: set(&|source| source.key == key),
                }
            })
            .collect();
        let long = |row: &&OutsideRow| trace::LONG_NAMES.contains(&row.class.as_str());
        let outside = self.summary.outside_kernel.iter().find(long);
        let share = outside.map_or(0.0, |row| {
            row.cost_ns_total as f64 / self.summary.taken_ns_total.max(1) as f64 * 100.0
        });
        if let Some(outside) = outside.filter(|_| share >= WORTHWHILE_PCT) {
            let label = words::outside_label(&outside.class).unwrap_or(&outside.class);
            variants.push(Variant {
                name: format!("without {label}"),
                row: None,
                removed: set(&|source| source.key == RowKey::outside(&outside.class)),
            });
        }
        variants
    }

    /// The job of the decision at every second power of two, and at its own rank count, with the noise of the
    /// decision; `noise` is that of the other projections.
    fn job_curve(&self, noise: &Noise) -> Result<Option<JobCurve>> {
        let (Some(job), JobKind::Collectives { job: shape, size, .. }) =
            (&self.decision.job, &self.request.workload.kind)
        else {
            return Ok(None);
        };
        let (workload, runs) = (&self.request.workload, self.request.decision_runs);
        let params = workload.net.scaled(workload.net_scale)?;
        let mut ranks: Vec<u64> = std::iter::successors(Some(4), |ranks| Some(ranks * 4))
            .take_while(|&ranks| ranks < job.ranks)
            .collect();
        ranks.push(job.ranks);
        let one = |ranks: u64| {
            let job = shape.job(ranks, *size, params)?.with_rendezvous(workload.rendezvous);
            let job = job.with_local(workload.local)?;
            Ok((job, runs))
        };
        let total = ranks.iter().map(|&ranks| Ok(one(ranks)?.0.messages()));
        let total = total.sum::<Result<u64>>()?.saturating_mul(runs);
        let removed = self.decision.actions.first().map(|action| {
            let removed =
                self.recorded.sources.iter().map(|source| action.removes(&source.process));
            (format!("without {}", words::name(&action.process)), removed.collect::<Vec<bool>>())
        });
        let recorded = self.placed.recorded.as_ref();
        let curves = 1 + u64::from(removed.is_some()) + u64::from(recorded.is_some());
        self.work.watch.expect(total.saturating_mul(curves));
        let decided = recorded.unwrap_or(&self.placed.all);
        let points = self.points(&self.noise(decided, &[])?, &ranks, "of the job", &one)?;
        let without = match removed {
            None => None,
            Some((name, removed)) => {
                let points = self.points(&self.noise(decided, &removed)?, &ranks, &name, &one)?;
                Some(Without { name, source: None, points })
            }
        };
        let with_tail = match recorded {
            None => Vec::new(),
            Some(_) => self.points(noise, &ranks, "with fitted tails", &one)?,
        };
        let text = job.text.clone();
        Ok(Some(JobCurve { text, runs, points, without, with_tail }))
    }

    /// `job` is the job of a rank count and its number of runs.
    fn points(
        &self,
        noise: &Noise,
        ranks: &[u64],
        what: &str,
        job: &dyn Fn(u64) -> Result<(Job, u64)>,
    ) -> Result<Vec<Point>> {
        let series = Series { size: 1, net_scale: 1.0, ..Series::default() };
        let advance = |messages| self.work.watch.advance(messages);
        let mut points = Vec::new();
        for &ranks in ranks {
            self.work.watch.now(&format!("{ranks} ranks {what}"));
            let (job, runs) = job(ranks)?;
            let plan = self.work.plan(runs, &advance);
            let latencies = self.variation.as_ref().map(|all| all.of(job.params())).transpose()?;
            let noise = &noise.clone().with_latencies(latencies);
            let begin = Instant::now();
            let runs = Runs {
                series: series.clone(),
                ranks,
                messages: job.messages(),
                times_ps: sweep::times(&job, Graph::InOrder, noise, &plan)?,
                noiseless_ps: sweep::noiseless(&job, Graph::InOrder, noise.model())?,
                took_s: begin.elapsed().as_secs_f64(),
            };
            points.push(Point::of(&runs)?);
        }
        Ok(points)
    }

    fn idle(&self, noise: &Noise) -> Result<Vec<Idle>> {
        let mut all = Vec::new();
        for processors in PROCESSORS {
            let config = Config {
                processors,
                samples: SAMPLES,
                schedule: Schedule::Tournament,
                mode: Mode::Trace { exchange: Exchange::Constant(EXCHANGE_US * 1_000_000), noise },
                // As in `detour simulate alltoall`.
                seed: draw(self.work.seed, processors),
            };
            let outcome = alltoall::run(&config, None)?;
            let idle = &outcome.idle_first;
            let us = |ps: i64| ps as f64 / 1e6;
            all.push(Idle {
                processors,
                samples: outcome.samples,
                zero_share: idle.zero_share(),
                mean_us: idle.mean() / 1e6,
                p99_us: us(idle.quantile(0.99)),
                max_us: us(idle.max()),
                bins: idle.bins().map(|b| (us(b.high.min(idle.max())), b.count)).collect(),
            });
        }
        Ok(all)
    }

    fn remarks(&self) -> Vec<String> {
        let longest = self.placed.all.lanes.iter().map(Composed::span_ns).max().unwrap_or(0);
        let what = match self.summary.threads.is_empty() {
            true => "CPU",
            false => "thread",
        };
        let copies = self.placed.extended.map_or(1, |extended| extended.copies as usize);
        let whose = match self.placed.all.lanes.len() / copies {
            1 => format!("the single {what}"),
            several => format!("one of {several} {what}s"),
        };
        let starts = match &self.placed.all.nodes {
            Some((_, ranks)) if *ranks > 1 => format!(
                "Every node has {ranks} ranks, each on its own CPU, all at the same random position in \
                 the recording"
            ),
            _ => format!("Every rank starts at a random position in the recording of {whose}"),
        };
        let mut remarks = vec![format!(
            "{starts} ({:.1} s), which repeats at its end. LogGOPS model with exact preemption. Beyond \
             {FULL_RANKS} ranks there are fewer runs per point (see the table).",
            longest as f64 / 1e9
        )];
        let recorded = self.recorded.remarks();
        remarks.extend(recorded.iter().map(|remark| format!("{}.", words::capital(remark))));
        remarks.extend(self.placed.extended.map(|extended| format!("{}.", extended.words())));
        remarks
    }
}
