//! Random processes from a seed, for reproducible tests.

/// SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In (0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    pub(crate) fn normal(&mut self, sd: f64) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        sd * radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

pub(crate) const US: f64 = 1e3;
pub(crate) const MS: f64 = 1e6;

pub(crate) fn sorted(times: impl IntoIterator<Item = f64>) -> Vec<u64> {
    let mut times: Vec<u64> = times.into_iter().map(|t| t.max(0.0) as u64).collect();
    times.sort_unstable();
    times
}

pub(crate) fn poisson(rng: &mut Rng, n: usize, mean: f64) -> Vec<f64> {
    let mut at = 0.0;
    (0..n)
        .map(|_| {
            at += rng.exponential(mean);
            at
        })
        .collect()
}

/// Periodic events with independent jitter, some missed.
pub(crate) fn beat(rng: &mut Rng, n: usize, period: f64, jitter: f64, missed: f64) -> Vec<f64> {
    let phase = rng.unit() * period;
    (0..n)
        .filter_map(|i| {
            let at = phase + i as f64 * period + rng.normal(jitter);
            (rng.unit() >= missed).then_some(at)
        })
        .collect()
}

/// Sleeps for the period after each event: the jitter accumulates.
pub(crate) fn sleeper(rng: &mut Rng, n: usize, period: f64, jitter: f64) -> Vec<f64> {
    let mut at = rng.unit() * period;
    (0..n)
        .map(|_| {
            at += period + rng.normal(jitter);
            at
        })
        .collect()
}
