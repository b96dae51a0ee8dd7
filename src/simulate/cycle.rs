//! `detour simulate cycle`: repeated compute and butterfly allreduce under periodic noise, and how much
//! of the lost time redundant exchanges recover.

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simulate::{
    cycle::{self, Config, Estimate, Outcome},
    loggops::Params,
    noise::draw,
};

use super::{
    network,
    shard::{self, Settings},
    work,
};
use crate::{Verbosity, report as layout, results, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Rank counts, all powers of two, as 1024,4096 or 2..8Mi
    #[arg(long, value_name = "LIST", default_value = "2..64Ki", value_parser = powers_of_two)]
    ranks: std::vec::Vec<u64>,
    /// Period of the detours on each rank: a time or a rate (100Hz)
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = units::period)]
    period: i64,
    /// Length of a detour
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::picoseconds)]
    duration: i64,
    /// Compute time per cycle
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::picoseconds)]
    work: i64,
    /// Number of cycles of compute and allreduce
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    cycles: u32,
    /// Runs per point; confidence intervals need at least 2
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    runs: u64,
    /// Vector size in bytes
    #[arg(long, default_value = "1", value_parser = units::size)]
    size: u64,
    /// Network: only L, o and G are used
    #[arg(long, default_value = "L=1us,o=1ns,G=1ns", value_parser = network::parse)]
    net: Params,
    /// Rounds with redundant exchanges: 1-22, 1,3,5-7, all, all-but-first or none
    #[arg(long, value_name = "ROUNDS", default_value = "all-but-first", value_parser = parse_rounds)]
    redundant_rounds: Rounds,
    #[command(flatten)]
    run: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// Which rounds have a redundant exchange: bit r for round r.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rounds {
    words: String,
    set: u64,
    /// Extends to the last round of any rank count.
    open: bool,
}

/// All rounds of the largest possible job.
const ALL: u64 = u64::MAX >> 1;

fn parse_rounds(text: &str) -> Result<Rounds, String> {
    let words = text.to_owned();
    match text {
        "none" => return Ok(Rounds { words, set: 0, open: true }),
        "all" => return Ok(Rounds { words, set: ALL, open: true }),
        "all-but-first" => return Ok(Rounds { words, set: ALL & !1, open: true }),
        _ => {}
    }
    let wrong =
        || format!("'{text}' is not a set of rounds (e.g. 1-22, 1,3,5-7, all-but-first, none)");
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&round| round < 63);
    let mut set = 0u64;
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Some(from), Some(to)) = (number(from), number(to)) else { return Err(wrong()) };
        if from > to {
            return Err(wrong());
        }
        set |= (from..=to).fold(0, |set, round| set | 1 << round);
    }
    Ok(Rounds { words, set, open: false })
}

fn powers_of_two(text: &str) -> Result<Vec<u64>, String> {
    let ranks = units::ranks(text)?;
    match ranks.iter().find(|&&ranks| ranks < 2 || !ranks.is_power_of_two()) {
        Some(ranks) => {
            Err(format!("{ranks} is not a power of two (a butterfly needs 2, 4, 8, ... ranks)"))
        }
        None => Ok(ranks),
    }
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.share.output])?;
    super::on_threads(&options.run)?;
    let configs = options.configs()?;
    if (options.net.gap, options.net.overhead_per_byte_fs) != (0, 0) && !verbosity.quiet {
        tell!("detour: this model has no g and O; those of the network are ignored");
    }
    if options.size > options.net.eager_limit {
        bail!(
            "a message of {} bytes exceeds the network's eager limit S of {} bytes, and this model \
             has no rendezvous: reduce --size, or omit S",
            options.size,
            options.net.eager_limit
        );
    }
    let steps = |config: &Config| config.ranks * u64::from(config.rounds());
    let runs = options.share.range(options.runs);
    let cycles = 3 * (runs.end - runs.start) * u64::from(options.cycles);
    let total = configs.iter().map(|config| steps(config).saturating_mul(cycles));
    let progress = work::Progress::new(total.fold(0, u64::saturating_add), verbosity.quiet)?;
    let mut outcomes = Vec::new();
    for config in &configs {
        progress.now(format!("{} ranks", config.ranks));
        let counting = super::counting(&progress, steps(config));
        let outcome = cycle::share(config, runs.clone(), Some(&counting));
        if outcome.is_err() {
            progress.finish();
        }
        outcomes.push(outcome?);
    }
    progress.finish();
    let results = Results { head: options.head(), points: outcomes };
    if options.share.is_some() {
        options.share.write(options.settings(), shard::Results::Cycle(results))?;
    } else {
        results.write(options.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// One per rank count, all validated.
    fn configs(&self) -> Result<Vec<Config>> {
        let most = self.ranks.iter().map(|ranks| ranks.trailing_zeros()).max().unwrap_or(1);
        let rounds = &self.redundant_rounds;
        if !rounds.open && rounds.set >> most != 0 {
            bail!(
                "--redundant-rounds {} exceeds the last round, which is {} for 2^{most} ranks",
                rounds.words,
                most - 1
            );
        }
        let mut configs = Vec::new();
        for &ranks in &self.ranks {
            let here = ranks.trailing_zeros();
            let config = Config {
                ranks,
                period: self.period,
                duration: self.duration,
                work: self.work,
                cycles: self.cycles,
                latency: self.net.latency,
                overhead: self.net.overhead,
                gap_per_byte_fs: self.net.gap_per_byte_fs,
                bytes: self.size,
                redundant_rounds: Some(rounds.set & ((1 << here.min(63)) - 1)),
                runs: self.runs,
                // Each point has its own random stream.
                seed: draw(self.run.seed, ranks),
            };
            // A cheap call that validates the configuration.
            cycle::phase(&config, 0, 0)?;
            let bytes = ranks.saturating_mul(bytes_per_rank(rounds.set, here));
            if bytes > work::memory() {
                bail!("{ranks} ranks need {bytes} bytes of memory: simulate fewer ranks");
            }
            configs.push(config);
        }
        Ok(configs)
    }

    fn net(&self) -> Params {
        Params { gap: 0, overhead_per_byte_fs: 0, eager_limit: u64::MAX, ..self.net }
    }

    /// Everything that determines the results.
    fn settings(&self) -> Settings {
        let mut settings = self.head();
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("runs".to_owned(), self.runs.into());
        settings
    }

    /// The settings shown in the output.
    fn head(&self) -> Settings {
        let us = |ps: i64| ps as f64 / 1e6;
        let value = json!({
            "seed": self.run.seed,
            "period_us": us(self.period),
            "duration_us": us(self.duration),
            "work_us": us(self.work),
            "cycles": self.cycles,
            "size": self.size,
            "net": network::describe(&self.net()),
            "redundant_rounds": self.redundant_rounds.words,
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

/// A shard of the runs, or all of them.
#[derive(Serialize, Deserialize)]
pub struct Results {
    head: Settings,
    points: Vec<Outcome>,
}

impl Results {
    pub fn join(&mut self, next: Results) -> Result<()> {
        let what =
            |results: &Results| results.points.iter().map(|point| point.ranks).collect::<Vec<_>>();
        shard::agree(&self.head, &next.head)?;
        shard::agree(&what(self), &what(&next))?;
        for (all, next) in self.points.iter_mut().zip(next.points) {
            all.runs.extend(next.runs);
        }
        Ok(())
    }

    pub fn write(&self, as_json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if as_json {
            let mut value = json!({ "points": self.points.iter().map(json).collect::<Vec<_>>() });
            shard::put_first(&mut value, &self.head);
            writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
            return Ok(());
        }
        let rows: Vec<_> = self.points.iter().map(row).collect();
        write!(out, "{}", report::cycle(&rows, layout::layout(true)))?;
        Ok(())
    }
}

/// Time and next detour of each rank. If a level outside the set is below one inside it, the simulation
/// keeps six more numbers.
fn bytes_per_rank(set: u64, rounds: u32) -> u64 {
    let from_two = (set & ((1 << rounds.min(63)) - 1)) >> 2;
    let gapless = from_two & (from_two + 1) == 0;
    if gapless { 16 } else { 64 }
}

fn json(outcome: &Outcome) -> Value {
    let noiseless = outcome.mean(|times| times.noiseless);
    let conventional = outcome.mean(|times| times.conventional);
    let redundant = outcome.mean(|times| times.redundant);
    let recovery = outcome.recovery();
    let interval = |estimate: Estimate, scale: f64| {
        estimate
            .half_width
            .map(|half| [(estimate.value - half) / scale, (estimate.value + half) / scale])
    };
    json!({
        "ranks": outcome.ranks,
        "runs": outcome.runs.len(),
        "noiseless_us": noiseless.value / 1e6,
        "noiseless_ci95_us": interval(noiseless, 1e6),
        "conventional_us": conventional.value / 1e6,
        "conventional_ci95_us": interval(conventional, 1e6),
        "redundant_us": redundant.value / 1e6,
        "redundant_ci95_us": interval(redundant, 1e6),
        "recovery": recovery.map(|estimate| estimate.value),
        "recovery_ci95": recovery.and_then(|estimate| interval(estimate, 1.0)),
    })
}

fn row(outcome: &Outcome) -> report::CycleRow {
    let us = |estimate: Estimate| estimate.value / 1e6;
    let recovery = outcome.recovery();
    report::CycleRow {
        ranks: outcome.ranks,
        noiseless: us(outcome.mean(|times| times.noiseless)),
        conventional: us(outcome.mean(|times| times.conventional)),
        redundant: us(outcome.mean(|times| times.redundant)),
        recovery: recovery.map(|estimate| estimate.value),
        recovery_half_width: recovery.and_then(|estimate| estimate.half_width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_a_list_or_a_name() {
        assert_eq!(parse_rounds("1-3,5").unwrap().set, 0b10_1110);
        assert_eq!(parse_rounds("none").unwrap().set, 0);
        assert_eq!(parse_rounds("all").unwrap().set & 3, 3);
        assert_eq!(parse_rounds("all-but-first").unwrap().set & 3, 2);
        for bad in ["", "x", "3-1", "1-", "63", "-1", "1..3"] {
            assert!(parse_rounds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_powers_of_two_make_a_butterfly() {
        assert_eq!(powers_of_two("2..8"), Ok(vec![2, 4, 8]));
        for bad in ["1", "1000", "4,6", "0"] {
            assert!(powers_of_two(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_set_with_a_gap_needs_more_memory() {
        assert_eq!(bytes_per_rank(ALL & !1, 10), 16);
        assert_eq!(bytes_per_rank(0, 10), 16);
        assert_eq!(bytes_per_rank(0b1110, 10), 16);
        assert_eq!(bytes_per_rank(0b10_1110, 10), 64);
    }
}
