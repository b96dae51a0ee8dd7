//! A GOAL schedule of sends, receives and computation, simulated rank by rank.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize, Serializer};
use simulate::{
    blame as blaming,
    event::{self, Rendezvous, Rules, Schedule, ScheduleResult},
    goal::CalcUnit,
    loggops::Params,
    noise::{Model, Noise, Offsets},
    replay,
    stats::Sample,
    sweep::{Plan, SweepError},
};

use crate::{
    explain::{
        blame::{self, Blame},
        picture::{self, Picture},
    },
    jobs::goal,
    network,
    network::variation,
    noise::{self, Loaded},
    run::{
        shard::{self, Settings, Shard},
        work::Work,
    },
};

#[derive(Clone, Debug)]
pub struct Request {
    /// GOAL file; `-` is stdin.
    pub file: PathBuf,
    pub rules: Rules,
    /// Unit of the results; None for ns, and for readable units in text.
    pub unit: Option<Unit>,
    /// Unit of calcs in the file.
    pub calc_unit: CalcUnit,
    /// A JSON array with one start offset in ns per rank.
    pub offsets: Option<PathBuf>,
    /// None for the default; LogGOPSim's rules have their own protocol.
    pub rendezvous: Option<Rendezvous>,
    pub net: Params,
    pub net_scale: f64,
    /// Between ranks of one node; None if that is the same network.
    pub net_local: Option<Params>,
    /// None if every message takes L.
    pub latency: Option<variation::Request>,
    pub runs: u64,
    /// Break down the critical path.
    pub blame: bool,
    /// Draw the first run, in the format of this file's extension.
    pub picture: Option<PathBuf>,
    pub noise: noise::Request,
}

/// Unit of times in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Ps,
    #[default]
    Ns,
}

impl Unit {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Ps => "ps",
            Unit::Ns => "ns",
        }
    }

    const fn of(self, ps: i64) -> Time {
        Time { ps, unit: self }
    }
}

/// A time, written in its unit; integers stay integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    pub ps: i64,
    unit: Unit,
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.unit {
            Unit::Ps => to.serialize_i64(self.ps),
            Unit::Ns if self.ps % 1_000 == 0 => to.serialize_i64(self.ps / 1_000),
            Unit::Ns => to.serialize_f64(self.ps as f64 / 1e3),
        }
    }
}

/// When the ranks of a schedule finish.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finishes {
    #[serde(flatten)]
    pub about: About,
    /// Unit of all times below.
    pub unit: Unit,
    /// Whether text may use other units, for none was asked for.
    #[serde(skip)]
    pub any_unit: bool,
    /// Each rank in the first run.
    pub ranks: Vec<Time>,
    /// The last rank in the first run.
    pub max: Time,
    pub messages: u64,
    pub operations: u64,
    /// Speed of the simulator.
    pub messages_per_s: f64,
    /// Operations that LogGOPSim silently leaves undone.
    pub unfinished: u64,
    /// The last rank without noise; null if there is no noise, or if that run deadlocks.
    pub noiseless: Option<Time>,
    /// The last rank, over the runs.
    pub min_of_runs: Time,
    pub median_of_runs: Time,
    pub p99_of_runs: Time,
    pub max_of_runs: Time,
    pub max_per_run: Vec<Time>,
    /// Median as a multiple of the noiseless time.
    pub slowdown_median: Option<f64>,
    /// If requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<Blame>,
    /// The first run, if requested.
    #[serde(skip)]
    pub picture: Option<Picture>,
}

/// What was simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub model: String,
    pub rendezvous: String,
    pub net: String,
    pub net_scale: f64,
    /// The network between ranks of one node; null if it is the same.
    #[serde(default)]
    pub net_local: Option<String>,
    /// File of the latencies of messages, and how they are drawn; null if every message takes L.
    #[serde(default)]
    pub latency: Option<String>,
    pub noise: String,
    pub noise_model: String,
    pub seed: u64,
    /// Per rank.
    pub cpus: usize,
    pub nics: usize,
    pub runs: u64,
    /// About the noise.
    pub remarks: Vec<String>,
}

/// All runs, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    unit: Option<Unit>,
    /// The first run, rank by rank, if it is in this shard.
    first: Option<ScheduleResult>,
    /// Finish time of the last rank in each run.
    times_ps: Vec<i64>,
    /// The same without noise, if there is noise.
    noiseless_ps: Option<i64>,
    /// Wall time of the simulation, summed over shards.
    took_s: f64,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        shard::agree(&self.about, &next.about)?;
        shard::agree(&self.noiseless_ps, &next.noiseless_ps)?;
        // Shards come in order; the first run may be in a later one if the first shards are empty.
        self.first = self.first.take().or(next.first);
        self.times_ps.extend(next.times_ps);
        self.took_s += next.took_s;
        Ok(())
    }

    pub fn finish(self) -> Result<Finishes> {
        let first = self.first.context("the first run is missing")?;
        let unit = self.unit.unwrap_or_default();
        let each = |times: &[i64]| times.iter().map(|&ps| unit.of(ps)).collect::<Vec<_>>();
        let whole = |ps: f64| unit.of(ps.round() as i64);
        let sample = Sample::new(self.times_ps.clone())?;
        let noiseless = self.noiseless_ps.filter(|&ps| ps > 0);
        let messages = first.messages.saturating_mul(self.times_ps.len() as u64);
        Ok(Finishes {
            about: self.about,
            unit,
            any_unit: self.unit.is_none(),
            ranks: each(&first.ends),
            max: unit.of(first.max()),
            messages: first.messages,
            operations: first.operations,
            messages_per_s: messages as f64 / self.took_s.max(1e-9),
            unfinished: first.unfinished,
            noiseless: self.noiseless_ps.map(|ps| unit.of(ps)),
            min_of_runs: unit.of(sample.min()),
            median_of_runs: whole(sample.quantile(0.5)),
            p99_of_runs: whole(sample.quantile(0.99)),
            max_of_runs: unit.of(sample.max()),
            max_per_run: each(&self.times_ps),
            slowdown_median: noiseless.map(|ps| sample.quantile(0.5) / ps as f64),
            blame: None,
            picture: None,
        })
    }
}

/// Simulates all runs.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Finishes> {
    let simulation = Simulation::new(request, work)?;
    let partial = simulation.runs(0..request.runs, if request.blame { 2 } else { 1 })?;
    let mut finishes = partial.finish()?;
    if request.blame {
        finishes.blame = Some(simulation.blame()?);
    }
    finishes.picture = request.picture.as_ref().map(|_| simulation.picture()).transpose()?;
    Ok(finishes)
}

/// Simulates one shard of the runs.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    if request.file.as_os_str() == "-" {
        bail!("--shard requires the schedule as a file, since all shards must use the same one");
    }
    Simulation::new(request, work)?.runs(shard.range(request.runs), 1)
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    schedule: Schedule,
    params: Params,
    rules: event::Options,
    loaded: Loaded,
}

impl<'a> Simulation<'a> {
    fn new(request: &'a Request, work: &'a Work<'a>) -> Result<Simulation<'a>> {
        let rules = request.rules()?;
        let params = request.net.scaled(request.net_scale)?;
        let schedule = goal::read(&request.file, request.calc_unit)?;
        if let Some(path) = &request.picture {
            picture::check(path, &schedule)?;
        }
        work.fits(&schedule, rules.model)?;
        if request.blame {
            blame::check(&schedule, rules.model, work.memory())?;
        }
        let mut loaded = request.loaded(&rules, &schedule, work)?;
        if let Some(latency) = &request.latency {
            let latencies = latency.load()?.of(&params)?;
            loaded.noise = loaded.noise.with_latencies(Some(latencies));
        }
        Ok(Simulation { request, work, schedule, params, rules, loaded })
    }

    fn runs(&self, runs: Range<u64>, passes: u64) -> Result<Partial> {
        let Simulation { schedule, params, rules, .. } = self;
        let (noise, watch) = (&self.loaded.noise, self.work.watch);
        let count = runs.end - runs.start;
        watch.expect(schedule.messages().saturating_mul(count).saturating_mul(passes));
        watch.now(&format!("{} ranks", schedule.ranks()));
        let advance = |messages| watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let begin = Instant::now();
        let share = replay::share(schedule, params, rules, noise, &plan, runs)
            .with_context(|| self.name())?;
        let took_s = begin.elapsed().as_secs_f64();
        Ok(Partial {
            about: self.about(),
            unit: self.request.unit,
            first: share.first,
            times_ps: share.times,
            noiseless_ps: self.noiseless(&plan).with_context(|| self.name())?,
            took_s,
        })
    }

    fn name(&self) -> String {
        self.request.file.display().to_string()
    }

    fn noiseless(&self, plan: &Plan<'_>) -> Result<Option<i64>, SweepError> {
        let noise = &self.loaded.noise;
        if noise.is_silent() {
            return Ok(None);
        }
        let silent = Noise::none().with_model(noise.model());
        let once = Plan { runs: 1, progress: &|_| true, ..*plan };
        // Without noise, messages may be matched in another order, which may deadlock.
        match replay::run(&self.schedule, &self.params, &self.rules, &silent, &once) {
            Err(SweepError::Events(_)) => Ok(None),
            silent => Ok(Some(silent?.first.max())),
        }
    }

    fn blame(&self) -> Result<Blame> {
        let Simulation { schedule, params, rules, loaded, .. } = self;
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let blames = blaming::blame_runs(schedule, params, rules, &loaded.noise, &plan)
            .with_context(|| self.name())?;
        Ok(Blame::of(&blames, &loaded.sources)?)
    }

    /// The first run.
    fn picture(&self) -> Result<Picture> {
        let Simulation { schedule, params, rules, loaded, .. } = self;
        let seed = self.work.seed;
        let log = replay::log(schedule, params, rules, &loaded.noise, seed, 0)?;
        let noise = replay::noise_of(schedule, &loaded.noise, seed, 0);
        let name = self.request.file.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("{name}: {}, noise {}", network::describe(params), loaded.words);
        let sources = &loaded.sources;
        picture::Run { schedule, params, log: &log, noise: &noise, sources, title }.picture()
    }

    fn about(&self) -> About {
        let Simulation { request, work, schedule, rules, loaded, .. } = self;
        About {
            model: rules.model.name().to_owned(),
            rendezvous: rendezvous(rules).to_owned(),
            net: network::describe(&request.net),
            net_scale: request.net_scale,
            net_local: request.net_local.as_ref().map(network::describe),
            latency: request.latency.as_ref().map(variation::Request::words),
            noise: loaded.words.clone(),
            noise_model: loaded.model.name().to_owned(),
            seed: work.seed,
            cpus: schedule.cpus(),
            nics: schedule.nics(),
            runs: request.runs,
            remarks: loaded.remarks.clone(),
        }
    }
}

impl Request {
    fn rules(&self) -> Result<event::Options> {
        if self.rules == Rules::Loggopsim && self.rendezvous.is_some() {
            bail!("--rendezvous does not apply to --model loggopsim: omit one of them");
        }
        let rendezvous = self.rendezvous.unwrap_or(network::RENDEZVOUS);
        Ok(event::Options {
            model: self.rules,
            rendezvous,
            local: network::local(self.net_local, &self.noise.placement)?,
        })
    }

    /// The noise, with the requested rules and offsets.
    fn loaded(
        &self,
        rules: &event::Options,
        schedule: &Schedule,
        work: &Work<'_>,
    ) -> Result<Loaded> {
        let peer = rules.model == Rules::Loggopsim;
        let usual = if peer { Model::LogGopSim } else { Model::default() };
        let attributed = self.blame || self.picture.is_some();
        let mut loaded = self.noise.load_for(work, usual, attributed)?;
        if peer {
            // LogGOPSim repeats its trace silently.
            loaded.noise = loaded.noise.repeating(true);
        }
        if let Some(path) = &self.offsets {
            let offsets = offsets(path, schedule.ranks())
                .with_context(|| format!("cannot read offsets from {}", path.display()))?;
            loaded.noise = loaded.noise.with_offsets(Offsets::Given(offsets));
        }
        Ok(loaded)
    }

    /// Everything that determines the results.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        let offsets = self.offsets.as_deref().map(shard::file).transpose()?;
        let rules = self.rules()?;
        settings.insert("schedule".to_owned(), shard::file(&self.file)?);
        settings.insert("model".to_owned(), rules.model.name().into());
        settings.insert("rendezvous".to_owned(), rendezvous(&rules).into());
        settings.insert("calc_unit_ps".to_owned(), self.calc_unit.ps().into());
        settings.insert("offsets".to_owned(), offsets.into());
        settings.insert("net".to_owned(), format!("{:?}", self.net).into());
        settings.insert("net_scale".to_owned(), self.net_scale.into());
        if let Some(local) = &self.net_local {
            settings.insert("net_local".to_owned(), format!("{local:?}").into());
        }
        if let Some(latency) = &self.latency {
            settings.insert("latency".to_owned(), latency.settings()?);
        }
        settings.insert("runs".to_owned(), self.runs.into());
        settings.insert("unit".to_owned(), self.unit.unwrap_or_default().name().into());
        settings.insert("seed".to_owned(), work.seed.into());
        Ok(settings)
    }
}

fn rendezvous(rules: &event::Options) -> &'static str {
    match rules.model {
        Rules::Loggops => rules.rendezvous.name(),
        // LogGOPSim has its own protocol.
        Rules::Loggopsim => rules.model.name(),
    }
}

/// One offset per rank: ns in the file, ps in the result.
fn offsets(path: &Path, ranks: u32) -> Result<Vec<i64>> {
    let text = std::fs::read_to_string(path)?;
    let list: Vec<f64> =
        serde_json::from_str(&text).context("not a JSON array of numbers, e.g. [0, 1500, 20]")?;
    if list.len() != ranks as usize {
        bail!("{} offsets for {ranks} ranks", list.len());
    }
    let ps = |(rank, ns): (usize, f64)| {
        let ps = (ns * 1e3).round();
        if !(-4e18..4e18).contains(&ps) {
            bail!("offset of rank {rank} is out of range: {ns} ns");
        }
        Ok(ps as i64)
    };
    list.into_iter().enumerate().map(ps).collect()
}
