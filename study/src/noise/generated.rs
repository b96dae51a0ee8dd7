//! Noise by its parameters instead of a recording: periodic detours, random arrivals, and detours whose
//! lengths have a known distribution.

use std::ffi::{OsStr, OsString};

use analysis::words;
use anyhow::{Context, Result, anyhow, bail};
use rand::{
    RngExt,
    distr::{Distribution, weighted::WeightedIndex},
};
use random::Stream;
use simulate::noise::Timeline;

use crate::units;

/// A `--noise` argument such as `periodic:1000Hz,200us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated<'a> {
    kind: Kind,
    /// Rate and length.
    parameters: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Periodic,
    Poisson,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Periodic, Kind::Poisson];

    const fn name(self) -> &'static str {
        match self {
            Kind::Periodic => "periodic",
            Kind::Poisson => "poisson",
        }
    }
}

impl<'a> Generated<'a> {
    /// None for anything else: a file, or `none`. File names need not be UTF-8.
    pub fn of(spec: &'a OsStr) -> Option<Generated<'a>> {
        let (name, parameters) = spec.to_str()?.split_once(':')?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some(Generated { kind, parameters })
    }

    pub fn timeline(&self, seed: u64) -> Result<Timeline> {
        let Generated { kind, parameters } = *self;
        let name = kind.name();
        if parameters.contains('|') {
            bail!(
                "'{name}:{parameters}' lists several kinds of noise, which requires `detour simulate app`, \
                 `collective`, `cycle` or `skeleton`: specify one rate and one length"
            );
        }
        let wrong =
            || format!("'{name}:{parameters}' is not {name} noise (e.g. {name}:1000Hz,200us)");
        let (rate, length) = parameters.split_once(',').with_context(wrong)?;
        let period = units::period(rate).map_err(anyhow::Error::msg).with_context(wrong)?;
        let length = units::picoseconds(length).map_err(anyhow::Error::msg).with_context(wrong)?;
        match kind {
            Kind::Periodic => Ok(Timeline::periodic(period, length)?),
            Kind::Poisson => poisson(period, length, seed),
        }
    }
}

/// `periodic:1000Hz|100Hz,16us|50us` is four kinds of noise: every rate with every length.
pub fn variants(spec: &OsStr) -> Vec<OsString> {
    let Some(Generated { kind, parameters }) = Generated::of(spec) else {
        return vec![spec.to_owned()];
    };
    let mut all = vec![format!("{}:", kind.name())];
    for (number, choices) in parameters.split(',').enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let with = |before: &String| {
            let before = before.clone();
            choices.split('|').map(move |choice| format!("{before}{comma}{choice}"))
        };
        all = all.iter().flat_map(with).collect();
    }
    all.into_iter().map(OsString::from).collect()
}

/// Longest sample of random arrivals: 13 days.
const LONGEST: i64 = 1 << 60;

/// Detours of one length at random times, on average one per `period`: the gaps between them are
/// exponential. A sample, which repeats; ranks start anywhere in it.
fn poisson(period: i64, length: i64, seed: u64) -> Result<Timeline> {
    /// So many that a second detour shortly after the first is sampled well, few enough to stay in the
    /// cache.
    const DETOURS: i64 = 1 << 18;
    let count = (LONGEST / period).clamp(1, DETOURS);
    let mut stream = Stream::new(seed);
    let drawn: Vec<(i64, f64)> = (0..count).map(|_| (length, gap(&mut stream))).collect();
    let detours = spread(&drawn, period.saturating_mul(count)).ok_or_else(|| {
        let time = |ps: i64| words::time(ps as f64 / 1e3);
        anyhow!(
            "detours of {} that arrive every {} on average take all of the time: use a lower rate or a \
             shorter length",
            time(length),
            time(period)
        )
    })?;
    Ok(Timeline::new(detours, period.saturating_mul(count))?.endless())
}

/// Detours with lengths from the distribution, at random times, on average one per `period`.
pub fn from_distribution(lengths: &[(f64, u64)], period: i64, seed: u64) -> Result<Timeline> {
    /// Enough detours to sample the tail, few enough to stay in the cache.
    const DETOURS: u64 = 100_000;
    if lengths.iter().all(|(_, count)| *count == 0) {
        bail!("the distribution is empty");
    }
    let weights = WeightedIndex::new(lengths.iter().map(|(_, count)| *count))
        .context("the counts of the distribution are too large")?;
    let total = weights.total_weight() as f64;
    let sum: f64 = lengths.iter().map(|&(length, count)| length * 1e3 * count as f64).sum();
    let (mean, rate) = (sum / total, 1e12 / period as f64);
    let no_time_left = || {
        anyhow!(
            "{rate} detours per second with a mean length of {} take all of the time: use a \
             --noise-rate below {:.3}Hz",
            words::time(mean / 1e3),
            1e12 / mean
        )
    };
    if mean >= period as f64 {
        return Err(no_time_left());
    }
    let mut stream = Stream::new(seed);
    let drawn: Vec<(i64, f64)> = (0..DETOURS)
        .map(|_| {
            let length = lengths[weights.sample(&mut stream)].0;
            ((length * 1e3).round() as i64, gap(&mut stream))
        })
        .collect();
    let span = period.saturating_mul(DETOURS as i64);
    let detours = spread(&drawn, span).ok_or_else(no_time_left)?;
    Ok(Timeline::new(detours, span)?)
}

/// Exponential: detours are independent of each other.
fn gap(stream: &mut Stream) -> f64 {
    -(1.0 - stream.random::<f64>()).ln()
}

/// Detours as (start, length) from the length of each and the gap before it. The gaps fill the rest of
/// the span, so that the rate is exact regardless of the lengths; None if there is no rest.
fn spread(drawn: &[(i64, f64)], span: i64) -> Option<Vec<(i64, i64)>> {
    let busy = drawn.iter().map(|(length, _)| *length).fold(0, i64::saturating_add);
    let gaps: f64 = drawn.iter().map(|(_, gap)| gap).sum();
    let free = span.checked_sub(busy).filter(|&free| free > 0)?;
    let (mut gone, mut taken) = (0.0, 0i64);
    let place = |&(length, gap): &(i64, f64)| {
        gone += gap;
        let start = taken + (free as f64 * (gone / gaps)) as i64;
        taken += length;
        (start, length)
    };
    Some(drawn.iter().map(place).collect())
}

#[cfg(test)]
mod tests {
    use simulate::noise::Local;

    use super::*;

    const MS: i64 = 1_000_000_000;

    fn generated(spec: &str) -> Result<Timeline> {
        Generated::of(OsStr::new(spec)).unwrap().timeline(3)
    }

    /// Closed form: a rate r and a length l take r * l of the time.
    #[test]
    fn a_rate_is_the_rate_of_detours_and_not_of_the_gaps_between_them() {
        for (per_s, length_us, busy) in
            [(1_000, 500.0, 0.5), (1_000, 999.0, 0.999), (100, 1.0, 1e-4)]
        {
            let period = 1_000 * MS / per_s;
            let drawn = from_distribution(&[(length_us * 1e3, 7)], period, 3).unwrap();
            let arriving = poisson(period, (length_us * 1e6) as i64, 3).unwrap();
            for timeline in [drawn, arriving] {
                let rate = timeline.len() as f64 / (timeline.span() as f64 / 1e12);
                assert!((rate / per_s as f64 - 1.0).abs() < 1e-9, "{rate}");
                assert!((timeline.share() / busy - 1.0).abs() < 1e-9, "{}", timeline.share());
            }
        }
        // Lengths of 100 and 900 us, one in four long: 300 us on average.
        let mixed = from_distribution(&[(100e3, 3), (900e3, 1)], MS, 3).unwrap();
        assert!((mixed.share() / 0.3 - 1.0).abs() < 0.02, "{}", mixed.share());
    }

    /// Closed forms, for work W that begins at a random time, noise of rate r and length l, and s = r l:
    /// the work is inside a detour with probability s, for l / 2 on average; then the number of detours it
    /// meets is Poisson distributed, with r / (1 - s) per unit of work. Mean W / (1 - s) + s l / 2,
    /// variance W r l^2 / (1 - s) + s l^2 / 3 - (s l / 2)^2. Under periodic noise the number of detours
    /// varies by one at most.
    #[test]
    fn random_arrivals_stretch_work_by_a_poisson_number_of_detours() {
        for (period, length, work) in
            [(MS, MS / 5, 3 * MS), (MS, MS / 10, MS / 2), (MS / 10, MS / 1000, 2 * MS)]
        {
            let timeline = poisson(period, length, 11).unwrap();
            const STARTS: i64 = 200_000;
            let step = timeline.span() / STARTS;
            let (mut sum, mut squares) = (0.0, 0.0);
            for start in 0..STARTS {
                let took = Local::new(&timeline, start * step, false).preempt(0, work).unwrap();
                let longer = (took - work) as f64;
                sum += longer;
                squares += longer * longer;
            }
            let mean = sum / STARTS as f64;
            let variance = squares / STARTS as f64 - mean * mean;
            let (l, s) = (length as f64, length as f64 / period as f64);
            let (w, r) = (work as f64, 1.0 / period as f64);
            let expected = w / (1.0 - s) - w + s * l / 2.0;
            assert!((mean / expected - 1.0).abs() < 0.01, "{mean} {expected}");
            let expected = w * r * l * l / (1.0 - s) + s * l * l / 3.0 - (s * l / 2.0).powi(2);
            assert!((variance / expected - 1.0).abs() < 0.03, "{variance} {expected}");
        }
    }

    /// Not correlated from one gap to the next, and as often short as an exponential distribution is.
    #[test]
    fn the_gaps_of_random_arrivals_are_exponential() {
        let drawn: Vec<(i64, f64)> = {
            let mut stream = Stream::new(5);
            (0..100_000).map(|_| (0, gap(&mut stream))).collect()
        };
        let gaps: Vec<f64> = drawn.iter().map(|(_, gap)| *gap).collect();
        for below in [0.01, 0.1, 0.5, 1.0, 3.0] {
            let share = gaps.iter().filter(|gap| **gap < below).count() as f64 / gaps.len() as f64;
            let expected = 1.0 - f64::exp(-below);
            assert!((share - expected).abs() < 0.005, "{share} {expected}");
        }
        let lag: f64 = gaps.windows(2).map(|two| (two[0] - 1.0) * (two[1] - 1.0)).sum();
        assert!((lag / gaps.len() as f64).abs() < 0.02, "{lag}");
    }

    #[test]
    fn rates_and_lengths_that_leave_no_time_are_refused() {
        for length_us in [1_000.0, 5_000.0] {
            let error = from_distribution(&[(length_us * 1e3, 1)], MS, 1).unwrap_err().to_string();
            assert!(error.contains("1000 detours per second"), "{error}");
            assert!(error.contains("--noise-rate"), "{error}");
            let error = poisson(MS, (length_us * 1e6) as i64, 1).unwrap_err().to_string();
            assert!(error.contains("take all of the time"), "{error}");
        }
        // Any rate and length: refused or simulated, but no panic.
        for period in [1, 1000, MS, i64::MAX / 4, i64::MAX] {
            for length in [0, 1, MS, i64::MAX / 4, i64::MAX] {
                let _ = poisson(period, length, 1);
            }
        }
    }

    #[test]
    fn noise_is_a_rate_and_a_length() {
        assert_eq!(generated("periodic:1kHz,25us").unwrap().share(), 0.025);
        assert!((generated("poisson:1kHz,25us").unwrap().share() - 0.025).abs() < 1e-9);
        for bad in
            ["periodic:", "poisson:1000Hz", "poisson:0Hz,1us", "periodic:1,2,3", "poisson:x,y"]
        {
            let error = format!("{:#}", generated(bad).unwrap_err());
            assert!(error.contains(":1000Hz,200us"), "{error}");
        }
        let error = generated("poisson:1Hz|2Hz,1us").unwrap_err().to_string();
        assert!(error.contains("collective"), "{error}");
        for file in ["none", "trace.dtr", "other:1,2", "a,b", "C:x"] {
            assert_eq!(Generated::of(OsStr::new(file)), None);
        }
    }

    #[test]
    fn lists_are_every_rate_with_every_length() {
        let all = |spec: &str| variants(OsStr::new(spec));
        assert_eq!(
            all("poisson:1kHz|10Hz,16us|50us"),
            ["poisson:1kHz,16us", "poisson:1kHz,50us", "poisson:10Hz,16us", "poisson:10Hz,50us"]
        );
        assert_eq!(all("periodic:10Hz,1us"), ["periodic:10Hz,1us"]);
        // A file may have any name.
        assert_eq!(all("a|b,c"), ["a|b,c"]);
    }
}
