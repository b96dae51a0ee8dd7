//! `detour simulate goal`: a GOAL schedule of sends, receives and computation, rank by rank.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simulate::{
    blame::{self, Blames},
    event::{self, Rules, Schedule},
    goal::CalcUnit,
    loggops::Params,
    noise::{Model, Noise, Offsets},
    replay,
    stats::Sample,
    sweep::{Plan, SweepError},
};

use super::{
    blame as blaming,
    network::{self, RendezvousName},
    noise,
    shard::{self, Settings},
    sources::Sources,
    timeline, work,
};
use crate::{Verbosity, goal::file, report as layout, results};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Simulation rules
    #[arg(long, value_enum, default_value_t)]
    model: RulesName,
    /// Time unit of the output
    #[arg(long, value_enum, default_value_t)]
    unit: Unit,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// Start offset of each rank in its noise trace: a JSON array with one offset in ns per rank
    #[arg(long, value_name = "FILE", conflicts_with_all = ["coscheduled", "synchronised"])]
    offsets: Option<PathBuf>,
    /// Rendezvous protocol for messages larger than S bytes [default: handshake; --model loggopsim uses
    /// LogGOPSim's]
    #[arg(long, value_enum)]
    rendezvous: Option<RendezvousName>,
    /// Network name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Speed up the network by this factor (scales L, g and G, not o)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    net_scale: f64,
    /// Number of runs, each with different noise; the first is reported rank by rank
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Break down the critical path, and attribute its noise to sources
    #[arg(long, conflicts_with = "shard")]
    blame: bool,
    /// Write a timeline of the first run: a diagram (.svg) or a trace for ui.perfetto.dev (.json)
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    timeline: Option<PathBuf>,
    #[command(flatten)]
    noise: noise::Options,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum RulesName {
    /// Exact LogGOPS model
    #[default]
    Loggops,
    /// As LogGOPSim, including its quirks
    Loggopsim,
}

impl RulesName {
    fn rules(self) -> Rules {
        match self {
            RulesName::Loggops => Rules::Loggops,
            RulesName::Loggopsim => Rules::Loggopsim,
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Ps,
    #[default]
    Ns,
}

impl Unit {
    /// The report's unit.
    fn shown(self) -> report::ScheduleUnit {
        match self {
            Unit::Ps => report::ScheduleUnit::Ps,
            Unit::Ns => report::ScheduleUnit::Ns,
        }
    }

    fn name(self) -> &'static str {
        self.shown().name()
    }

    /// Integers stay integers.
    fn of(self, ps: i64) -> Value {
        match self {
            Unit::Ps => json!(ps),
            Unit::Ns if ps % 1_000 == 0 => json!(ps / 1_000),
            Unit::Ns => json!(ps as f64 / 1e3),
        }
    }
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.timeline, &options.share.output])?;
    let rules = options.rules()?;
    if options.share.is_some() && options.file.as_os_str() == "-" {
        bail!("--shard requires the schedule as a file, since all shards must use the same one");
    }
    let params = options.net.scaled(options.net_scale)?;
    let schedule = file::read(&options.file, options.calc_unit)?;
    if let Some(path) = &options.timeline {
        timeline::check(path, &schedule)?;
    }
    work::fits(&schedule, rules.model)?;
    if options.blame {
        blaming::check(&schedule, rules.model, work::memory())?;
    }
    let loaded = options.noise(&rules, &schedule)?;
    let passes = if options.blame { 2 } else { 1 };
    let runs = options.share.range(options.runs);
    let progress = work::Progress::new(
        schedule.messages().saturating_mul(runs.end - runs.start).saturating_mul(passes),
        verbosity.quiet || options.runs == 1,
    )?;
    progress.now(format!("{} ranks", schedule.ranks()));
    let ended = options.simulate(&schedule, &params, &rules, &loaded, &progress);
    progress.finish();
    match ended {
        Ok((results, _)) if options.share.is_some() => {
            options.share.write(options.settings()?, shard::Results::Goal(results))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok((results, blames)) => {
            let blames = blames.as_ref().map(|blames| (blames, &loaded.sources));
            results.write_with(blames, options.json)?;
            if let (true, Some(rate)) = (verbosity.verbose, results.messages_per_s()) {
                tell!("detour: simulated {rate:.0} messages per second of wall time");
            }
            options.draw(&schedule, &params, &rules, &loaded)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(SweepError::Stopped) => Ok(ExitCode::from(130)),
        Err(error) => Err(error).with_context(|| options.file.display().to_string()),
    }
}

impl Options {
    fn rules(&self) -> Result<event::Options> {
        let model = self.model.rules();
        if model == Rules::Loggopsim && self.rendezvous.is_some() {
            bail!("--rendezvous does not apply to --model loggopsim: omit one of them");
        }
        let rendezvous = self.rendezvous.unwrap_or_default().rendezvous();
        Ok(event::Options { model, rendezvous })
    }

    /// Whether the sources of noise are needed.
    fn asks_why(&self) -> bool {
        self.blame || self.timeline.is_some()
    }

    /// The noise, with the requested rules and offsets.
    fn noise(&self, rules: &event::Options, schedule: &Schedule) -> Result<noise::Loaded> {
        let peer = rules.model == Rules::Loggopsim;
        let usual = if peer { Model::LogGopSim } else { Model::default() };
        let mut loaded = self.noise.load_for(self.work.seed, usual, self.asks_why())?;
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

    fn simulate(
        &self,
        schedule: &Schedule,
        params: &Params,
        rules: &event::Options,
        loaded: &noise::Loaded,
        progress: &work::Progress,
    ) -> Result<(Results, Option<Blames>), SweepError> {
        let noise = &loaded.noise;
        let advance = |messages| progress.advance(messages);
        let plan = self.work.plan(self.runs, &advance);
        let runs = self.share.range(self.runs);
        let begin = Instant::now();
        let share = replay::share(schedule, params, rules, noise, &plan, runs)?;
        let took_s = begin.elapsed().as_secs_f64();
        let noiseless_ps = if noise.is_none() {
            None
        } else {
            let silent = Noise::none().with_model(noise.model());
            let once = Plan { runs: 1, progress: &|_| true, ..plan };
            // Without noise, messages may be matched in another order, which may deadlock.
            match replay::run(schedule, params, rules, &silent, &once) {
                Err(SweepError::Events(_)) => None,
                silent => Some(silent?.first.max()),
            }
        };
        let blames = match self.blame {
            true => Some(blame::blame_runs(schedule, params, rules, noise, &plan)?),
            false => None,
        };
        let results = Results {
            head: self.head(schedule, rules, loaded),
            unit: self.unit,
            first: share.first,
            times_ps: share.times,
            noiseless_ps,
            took_s,
        };
        Ok((results, blames))
    }

    /// Writes the timeline of the first run, if requested.
    fn draw(
        &self,
        schedule: &Schedule,
        params: &Params,
        rules: &event::Options,
        loaded: &noise::Loaded,
    ) -> Result<()> {
        let Some(path) = &self.timeline else { return Ok(()) };
        let seed = self.work.seed;
        let log = replay::log(schedule, params, rules, &loaded.noise, seed, 0)?;
        let noise = replay::noise_of(schedule, &loaded.noise, seed, 0);
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("{name}: {}, noise {}", network::describe(params), loaded.words);
        let sources = &loaded.sources;
        timeline::write(
            path,
            &timeline::Run { schedule, params, log: &log, noise: &noise, sources, title },
        )
    }

    /// Everything that determines the results.
    fn settings(&self) -> Result<Settings> {
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
        settings.insert("runs".to_owned(), self.runs.into());
        settings.insert("unit".to_owned(), self.unit.name().into());
        settings.insert("seed".to_owned(), self.work.seed.into());
        Ok(settings)
    }

    /// The settings shown in the output.
    fn head(
        &self,
        schedule: &Schedule,
        rules: &event::Options,
        loaded: &noise::Loaded,
    ) -> Settings {
        let value = json!({
            "model": rules.model.name(),
            "rendezvous": rendezvous(rules),
            "net": network::describe(&self.net),
            "net_scale": self.net_scale,
            "noise": loaded.words,
            "noise_model": loaded.model,
            "seed": self.work.seed,
            "cpus": schedule.cpus(),
            "nics": schedule.nics(),
            "runs": self.runs,
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

fn rendezvous(rules: &event::Options) -> &'static str {
    match rules.model {
        Rules::Loggops => network::rendezvous_name(rules.rendezvous),
        // LogGOPSim has its own protocol.
        Rules::Loggopsim => rules.model.name(),
    }
}

/// A shard of the runs, or all of them.
#[derive(Serialize, Deserialize)]
pub struct Results {
    head: Settings,
    unit: Unit,
    /// The first run, rank by rank, if it is in this shard.
    first: Option<event::Outcome>,
    /// Finish time of the last rank in each run.
    times_ps: Vec<i64>,
    /// The same without noise, if there is noise.
    noiseless_ps: Option<i64>,
    /// Wall time of the simulation, summed over shards.
    took_s: f64,
}

impl Results {
    pub fn join(&mut self, next: Results) -> Result<()> {
        shard::agree(&self.head, &next.head)?;
        shard::agree(&self.noiseless_ps, &next.noiseless_ps)?;
        // Shards come in order; the first run may be in a later one if the first shards are empty.
        self.first = self.first.take().or(next.first);
        self.times_ps.extend(next.times_ps);
        self.took_s += next.took_s;
        Ok(())
    }

    pub fn write(&self, json: bool) -> Result<()> {
        self.write_with(None, json)
    }

    fn write_with(&self, blames: Option<(&Blames, &Sources)>, json: bool) -> Result<()> {
        let first = self.first.as_ref().context("the first run is missing")?;
        if first.unfinished > 0 {
            tell!(
                "detour: warning: {} of {} operations never executed, which LogGOPSim would not \
                 report; --model loggops shows why",
                first.unfinished,
                first.operations
            );
        }
        let text = if json { self.json(first, blames)? } else { self.text(first, blames)? };
        write!(std::io::stdout().lock(), "{text}")?;
        Ok(())
    }

    /// The speed of the simulator, not of the schedule.
    fn messages_per_s(&self) -> Option<f64> {
        let messages = self.first.as_ref()?.messages.saturating_mul(self.times_ps.len() as u64);
        Some(messages as f64 / self.took_s.max(1e-9))
    }

    fn text(&self, first: &event::Outcome, blames: Option<(&Blames, &Sources)>) -> Result<String> {
        let figures = report::ScheduleFigures {
            unit: self.unit.shown(),
            ends_ps: &first.ends,
            messages: first.messages,
            operations: first.operations,
            noiseless_ps: self.noiseless_ps,
            runs_ps: &self.times_ps,
        };
        let mut text = report::schedule(&figures, layout::layout(false));
        if let Some((blames, sources)) = blames {
            let figures = blaming::figures(blames, sources)?;
            text += &format!("\n{}", report::blame(&figures, layout::layout(false)));
        }
        Ok(text)
    }

    /// On one line: a million ranks would otherwise be a million lines.
    fn json(&self, first: &event::Outcome, blames: Option<(&Blames, &Sources)>) -> Result<String> {
        let unit = self.unit;
        let each = |times: &[i64]| times.iter().map(|&ps| unit.of(ps)).collect::<Vec<_>>();
        let whole = |ps: f64| unit.of(ps.round() as i64);
        let sample = Sample::new(self.times_ps.clone())?;
        let slowdown = self.noiseless_ps.filter(|&ps| ps > 0);
        let slowdown = slowdown.map(|ps| sample.quantile(0.5) / ps as f64);
        let mut value = json!({
            "unit": unit.name(),
            "ranks": each(&first.ends),
            "max": unit.of(first.max()),
            "messages": first.messages,
            "operations": first.operations,
            "messages_per_s": self.messages_per_s(),
            "unfinished": first.unfinished,
            "noiseless": self.noiseless_ps.map(|ps| unit.of(ps)),
            "min_of_runs": unit.of(sample.min()),
            "median_of_runs": whole(sample.quantile(0.5)),
            "p99_of_runs": whole(sample.quantile(0.99)),
            "max_of_runs": unit.of(sample.max()),
            "max_per_run": each(&self.times_ps),
            "slowdown_median": slowdown,
        });
        shard::put_first(&mut value, &self.head);
        if let Some((blames, sources)) = blames {
            value["blame"] = blaming::json(blames, sources)?;
        }
        Ok(report::json_safe(&value.to_string()) + "\n")
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
