//! The distribution of the time of an exchange between two nodes under noise.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use simulate::resample::{
    Distribution,
    exchange::{self, Config, ExchangeResult, Order},
};

use crate::{
    network::samples::{Spec, Times},
    noise::{self, Loaded},
    run::{
        shard::{self, Settings, Shard},
        work::Work,
    },
};

#[derive(Clone, Debug)]
pub struct Request {
    /// Duration of an uninterrupted exchange.
    pub exchange: Spec,
    pub noise: noise::Request,
    /// How exchanges are placed in the noise traces.
    pub order: Order,
    pub samples: u64,
    /// Exchanges per pair of nodes, before another pair starts elsewhere in the traces.
    pub per_walk: u64,
    /// Measured exchange times to compare with.
    pub measured: Option<PathBuf>,
}

/// Times of exchanges under noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exchanges {
    #[serde(flatten)]
    pub about: About,
    pub samples: u64,
    pub mean_us: f64,
    /// Population standard deviation.
    pub sd_us: f64,
    pub min_us: f64,
    pub q25_us: f64,
    pub median_us: f64,
    pub q75_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    pub skewness: f64,
    /// Between successive exchanges of the same pair.
    pub autocorrelation: f64,
    /// Kolmogorov-Smirnov distance to the measured exchanges, if any.
    pub ks_distance: Option<f64>,
    /// All times, for histogram files.
    #[serde(skip)]
    pub distribution: Distribution,
}

/// What was simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub seed: u64,
    pub noise: String,
    pub noise_model: String,
    pub order: String,
    pub exchange: String,
    /// Mean time of the same exchanges without interruptions.
    pub uninterrupted_mean_us: f64,
    pub per_walk: u64,
    /// About the noise.
    pub remarks: Vec<String>,
}

/// All exchanges, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    series_ps: Vec<i64>,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        shard::agree(&self.about, &next.about)?;
        self.series_ps.extend(next.series_ps);
        Ok(())
    }

    pub fn finish(self) -> Result<Exchanges> {
        self.compared(None)
    }

    fn compared(self, measured: Option<&Times>) -> Result<Exchanges> {
        let outcome = ExchangeResult::of(self.series_ps, self.about.per_walk, &[])?;
        let ks_distance = measured.and_then(|measured| measured.distance(&outcome.series));
        let us = |ps: i64| ps as f64 / 1e6;
        let all = &outcome.summary;
        Ok(Exchanges {
            about: self.about,
            samples: all.samples,
            mean_us: all.mean / 1e6,
            sd_us: all.sd / 1e6,
            min_us: us(all.min),
            q25_us: us(all.q25),
            median_us: us(all.median),
            q75_us: us(all.q75),
            p99_us: us(all.p99),
            max_us: us(all.max),
            skewness: all.skewness,
            autocorrelation: all.autocorrelation,
            ks_distance,
            distribution: outcome.distribution,
        })
    }
}

/// Simulates all exchanges.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Exchanges> {
    let measured = request.measured.as_deref().map(Times::read).transpose()?;
    simulate_shard(request, work, Shard::WHOLE)?.compared(measured.as_ref())
}

/// Simulates one shard of the exchanges.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    // The series, its sorted copy, and the copy for the comparison.
    if request.samples.saturating_mul(3 * 8) > work.memory() {
        bail!("{} samples do not fit in memory: use fewer --samples", request.samples);
    }
    let loaded = request.noise.load(work)?;
    let config = Config {
        exchange: request.exchange.load()?,
        noise: &loaded.noise,
        order: request.order,
        samples: request.samples,
        per_walk: request.per_walk,
        seed: work.seed,
        measured: &[],
    };
    let walks = shard.range(config.walks());
    let ours = (walks.end - walks.start).saturating_mul(request.per_walk).min(request.samples);
    work.watch.expect(ours);
    work.watch.now("exchanges");
    let counting = work.counting(1);
    let series_ps = work.in_pool(|| exchange::share(&config, walks, Some(&counting)))??;
    let uninterrupted = work.in_pool(|| exchange::uninterrupted_mean(&config))?;
    let about = request.about(work, uninterrupted / 1e6, &loaded);
    Ok(Partial { about, series_ps })
}

impl Request {
    fn about(&self, work: &Work<'_>, uninterrupted_mean_us: f64, loaded: &Loaded) -> About {
        About {
            seed: work.seed,
            noise: loaded.words.clone(),
            noise_model: loaded.model.name().to_owned(),
            order: order_name(self.order).to_owned(),
            exchange: self.exchange.words(),
            uninterrupted_mean_us,
            per_walk: self.per_walk,
            remarks: loaded.remarks.clone(),
        }
    }

    /// Everything that determines the results.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        settings.insert("exchange".to_owned(), self.exchange.content()?);
        settings.insert("order".to_owned(), order_name(self.order).into());
        settings.insert("samples".to_owned(), self.samples.into());
        settings.insert("per_walk".to_owned(), self.per_walk.into());
        settings.insert("seed".to_owned(), work.seed.into());
        Ok(settings)
    }
}

fn order_name(order: Order) -> &'static str {
    match order {
        Order::InTime => "in-time",
        Order::Independent => "independent",
    }
}
