//! Cycles of compute and butterfly allreduce under noise, and how much of the lost time redundant exchanges
//! recover.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use simulate::{
    cycle::{self, Config, CycleResult, Estimate},
    loggops::Params,
    noise::{Model, Noise, draw},
};

use crate::{
    jobs::collective::several,
    network,
    noise::{self, Loaded},
    run::{
        shard::{self, Settings, Shard},
        work::Work,
    },
    units,
};

#[derive(Clone, Debug)]
pub struct Request {
    /// Powers of two.
    pub ranks: Vec<u64>,
    /// Period and length of the detours on each rank, ps; unless there is other noise.
    pub period: i64,
    pub duration: i64,
    /// Instead of periodic detours; each of its variants.
    pub noise: Option<noise::Request>,
    /// Compute time per cycle, ps.
    pub compute: i64,
    /// Numbers of cycles, ascending: one point for each.
    pub cycles: Vec<u32>,
    /// Runs per point.
    pub runs: u64,
    /// Vector size, bytes.
    pub size: u64,
    /// Only L, o and G are used.
    pub net: Params,
    pub redundant_rounds: Rounds,
}

/// Which rounds have a redundant exchange: bit r for round r.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounds {
    words: String,
    set: u64,
    /// Extends to the last round of any rank count.
    open: bool,
}

/// All rounds of the largest possible job.
const ALL: u64 = u64::MAX >> 1;

/// `1-22`, `1,3,5-7`, `all`, `all-but-first` or `none`.
pub fn parse_rounds(text: &str) -> Result<Rounds, String> {
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

/// `10`, `1,2,5` or `1-10`: ascending, each once.
pub fn parse_cycles(text: &str) -> Result<Vec<u32>, String> {
    /// Enough for a curve.
    const MOST: usize = 10_000;
    let wrong = || format!("'{text}' is not a list of numbers of cycles (e.g. 10, 1,2,5 or 1-10)");
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&cycles| cycles > 0);
    let mut all = std::collections::BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Some(from), Some(to)) = (number(from), number(to)) else { return Err(wrong()) };
        if from > to {
            return Err(wrong());
        }
        all.extend((from..=to).take(MOST + 1));
        if all.len() > MOST {
            return Err(format!("'{text}' lists more than {MOST} numbers of cycles"));
        }
    }
    Ok(all.into_iter().collect())
}

/// Rank counts of a butterfly.
pub fn powers_of_two(text: &str) -> Result<Vec<u64>, String> {
    let ranks = units::ranks(text)?;
    match ranks.iter().find(|&&ranks| ranks < 2 || !ranks.is_power_of_two()) {
        Some(ranks) => {
            Err(format!("{ranks} is not a power of two (a butterfly needs 2, 4, 8, ... ranks)"))
        }
        None => Ok(ranks),
    }
}

/// What noise costs the cycles, and what redundancy recovers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cycles {
    #[serde(flatten)]
    pub about: About,
    pub points: Vec<Point>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub seed: u64,
    /// Of the detours; null with other noise.
    pub period_us: Option<f64>,
    pub duration_us: Option<f64>,
    /// The noise, if it is not that of period and duration.
    #[serde(default)]
    pub noise: Option<String>,
    pub work_us: f64,
    /// The largest number of cycles.
    pub cycles: u32,
    pub size: u64,
    pub net: String,
    pub redundant_rounds: String,
    /// About the network and the noise.
    pub remarks: Vec<String>,
}

/// One rank count and number of cycles: means and their 95 % confidence intervals, which need at least two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The noise, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    pub ranks: u64,
    pub cycles: u32,
    pub runs: usize,
    pub noiseless_us: f64,
    pub noiseless_ci95_us: Option<[f64; 2]>,
    pub conventional_us: f64,
    pub conventional_ci95_us: Option<[f64; 2]>,
    pub redundant_us: f64,
    pub redundant_ci95_us: Option<[f64; 2]>,
    /// How much longer than noiseless the exchanges take, and with redundant exchanges.
    pub conventional_overhead_us: f64,
    pub redundant_overhead_us: f64,
    /// Fraction of the lost time that redundant exchanges recover; null if noise costs nothing.
    pub recovery: Option<f64>,
    pub recovery_ci95: Option<[f64; 2]>,
}

impl Point {
    fn of(outcome: &CycleResult, noise: Option<String>) -> Point {
        let interval = |estimate: Estimate, scale: f64| {
            estimate
                .half_width
                .map(|half| [(estimate.value - half) / scale, (estimate.value + half) / scale])
        };
        let noiseless = outcome.mean(|times| times.noiseless);
        let conventional = outcome.mean(|times| times.conventional);
        let redundant = outcome.mean(|times| times.redundant);
        let recovery = outcome.recovery();
        Point {
            noise,
            ranks: outcome.ranks,
            cycles: outcome.cycles,
            runs: outcome.runs.len(),
            noiseless_us: noiseless.value / 1e6,
            noiseless_ci95_us: interval(noiseless, 1e6),
            conventional_us: conventional.value / 1e6,
            conventional_ci95_us: interval(conventional, 1e6),
            redundant_us: redundant.value / 1e6,
            redundant_ci95_us: interval(redundant, 1e6),
            conventional_overhead_us: (conventional.value - noiseless.value) / 1e6,
            redundant_overhead_us: (redundant.value - noiseless.value) / 1e6,
            recovery: recovery.map(|estimate| estimate.value),
            recovery_ci95: recovery.and_then(|estimate| interval(estimate, 1.0)),
        }
    }
}

/// All runs, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    points: Vec<CycleResult>,
    /// The noise of each point; empty if there is one for all.
    #[serde(default)]
    noises: Vec<String>,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        let what = |part: &Partial| {
            part.points.iter().map(|point| (point.ranks, point.cycles)).collect::<Vec<_>>()
        };
        shard::agree(&self.about, &next.about)?;
        shard::agree(&what(self), &what(&next))?;
        shard::agree(&self.noises, &next.noises)?;
        for (all, next) in self.points.iter_mut().zip(next.points) {
            all.runs.extend(next.runs);
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Cycles> {
        let points = self.points.iter().enumerate();
        let points =
            points.map(|(number, point)| Point::of(point, self.noises.get(number).cloned()));
        let points = points.collect();
        Ok(Cycles { about: self.about, points })
    }
}

/// Simulates all runs.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Cycles> {
    simulate_shard(request, work, Shard::WHOLE)?.finish()
}

/// Simulates one shard of the runs.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    let variants = request.noise.as_ref().map_or_else(Vec::new, noise::Request::variants);
    let loaded = variants.iter().map(|noise| noise.load(work)).collect::<Result<Vec<_>>>()?;
    if loaded.iter().any(|loaded| loaded.model != Model::Preempt) {
        bail!("cycles require the preempt noise model");
    }
    let noises: Vec<Option<&Noise>> = match &loaded[..] {
        [] => vec![None],
        all => all.iter().map(|loaded| Some(&loaded.noise)).collect(),
    };
    let configs = request.configs(work)?;
    if request.size > request.net.eager_limit {
        bail!(
            "a message of {} bytes exceeds the network's eager limit S of {} bytes, and this model \
             has no rendezvous: reduce --size, or omit S",
            request.size,
            request.net.eager_limit
        );
    }
    let steps = |config: &Config| config.ranks * u64::from(config.rounds());
    let runs = shard.range(request.runs);
    let cycles = 3 * (runs.end - runs.start) * u64::from(request.most_cycles());
    let total = configs.iter().map(|config| steps(config).saturating_mul(cycles));
    let total = total.fold(0, u64::saturating_add);
    work.watch.expect(total.saturating_mul(noises.len() as u64));
    let (mut points, mut labels) = (Vec::new(), Vec::new());
    for (number, noise) in noises.iter().enumerate() {
        for config in &configs {
            work.watch.now(&format!("{} ranks", config.ranks));
            let counting = work.counting(steps(config));
            let runs = runs.clone();
            let more = work.in_pool(|| {
                cycle::share_by_cycle(config, *noise, &request.cycles, runs, Some(&counting))
            })??;
            if let (true, Some(variant)) = (noises.len() > 1, variants.get(number)) {
                labels.extend(std::iter::repeat_n(variant.specs(), more.len()));
            }
            points.extend(more);
        }
    }
    Ok(Partial { about: request.about(work, &loaded), points, noises: labels })
}

impl Request {
    fn most_cycles(&self) -> u32 {
        self.cycles.last().copied().unwrap_or(0)
    }

    /// One per rank count, all validated.
    fn configs(&self, work: &Work<'_>) -> Result<Vec<Config>> {
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
                // Other noise takes the place of these detours.
                duration: if self.noise.is_some() { 0 } else { self.duration },
                work: self.compute,
                cycles: self.most_cycles(),
                latency: self.net.latency,
                overhead: self.net.send_overhead,
                gap_per_byte_fs: self.net.gap_per_byte_fs,
                bytes: self.size,
                redundant_rounds: Some(rounds.set & ((1 << here.min(63)) - 1)),
                runs: self.runs,
                // Each point has its own random stream.
                seed: draw(work.seed, ranks),
            };
            // A cheap call that validates the configuration.
            cycle::phase(&config, 0, 0)?;
            let bytes =
                ranks.saturating_mul(bytes_per_rank(rounds.set, here, self.noise.is_some()));
            if bytes > work.memory() {
                bail!("{ranks} ranks need {bytes} bytes of memory: simulate fewer ranks");
            }
            configs.push(config);
        }
        Ok(configs)
    }

    /// About the network.
    pub fn remarks(&self) -> Vec<String> {
        let ignored = (self.net.gap, self.net.overhead_per_byte_fs) != (0, 0);
        let remark = "this model has no g and O; those of the network are ignored";
        let apart = self.net.send_overhead != self.net.recv_overhead;
        let one = "this model has one o for sender and receiver: that of the sender is used";
        let remarks = [(ignored, remark), (apart, one)];
        remarks
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, text)| text.to_owned())
            .collect()
    }

    fn about(&self, work: &Work<'_>, loaded: &[Loaded]) -> About {
        let us = |ps: i64| ps as f64 / 1e6;
        let periodic = |ps: i64| self.noise.is_none().then_some(us(ps));
        let of_noise = noise::remarks(loaded);
        let net = Params { gap: 0, overhead_per_byte_fs: 0, eager_limit: u64::MAX, ..self.net };
        About {
            seed: work.seed,
            period_us: periodic(self.period),
            duration_us: periodic(self.duration),
            noise: (!loaded.is_empty())
                .then(|| several(loaded.iter().map(|loaded| loaded.words.clone()))),
            work_us: us(self.compute),
            cycles: self.most_cycles(),
            size: self.size,
            net: network::describe(&net),
            redundant_rounds: self.redundant_rounds.words.clone(),
            remarks: self.remarks().into_iter().chain(of_noise).collect(),
        }
    }

    /// Everything that determines the results.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let about = serde_json::to_value(self.about(work, &[]))?;
        let mut settings = about.as_object().cloned().unwrap_or_default();
        // They follow from g and O, which are ignored, and from the noise.
        settings.remove("remarks");
        settings.insert("cycles".to_owned(), self.cycles.clone().into());
        if let Some(noise) = &self.noise {
            settings.extend(noise.settings()?);
        }
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("runs".to_owned(), self.runs.into());
        Ok(settings)
    }
}

/// Time and next detour of each rank, and its number if its noise is looked up. If a level outside the set
/// is below one inside it, the simulation keeps that twice more, and two times.
fn bytes_per_rank(set: u64, rounds: u32, looked_up: bool) -> u64 {
    let from_two = (set & ((1 << rounds.min(63)) - 1)) >> 2;
    let gapless = from_two & (from_two + 1) == 0;
    let state = if looked_up { 24 } else { 16 };
    if gapless { state } else { 3 * state + 16 }
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
        assert_eq!(bytes_per_rank(ALL & !1, 10, false), 16);
        assert_eq!(bytes_per_rank(0, 10, true), 24);
        assert_eq!(bytes_per_rank(0b1110, 10, false), 16);
        assert_eq!(bytes_per_rank(0b10_1110, 10, false), 64);
        assert_eq!(bytes_per_rank(0b10_1110, 10, true), 88);
    }

    #[test]
    fn numbers_of_cycles_are_a_list() {
        assert_eq!(parse_cycles("10"), Ok(vec![10]));
        assert_eq!(parse_cycles("5,1-3,2"), Ok(vec![1, 2, 3, 5]));
        for bad in ["", "0", "3-1", "x", "1-", "-1", "1-4000000000", "99999999999"] {
            assert!(parse_cycles(bad).is_err(), "{bad}");
        }
    }
}
