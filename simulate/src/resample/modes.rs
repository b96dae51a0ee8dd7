//! The modes of a distribution: exchanges that take one of several paths have several, which a mean
//! hides.

use super::Distribution;

/// A mode: its highest point, and its share of the distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    pub at: i64,
    pub share: f64,
}

/// Two peaks are separate if the valley between them falls below this fraction of the lower one.
const VALLEY: f64 = 0.7;
/// A smaller share of the distribution is considered random.
const LEAST_SHARE: f64 = 0.01;
const MAX_BINS: i64 = 1 << 20;

impl Distribution {
    /// Counts in bins of equal width, starting at the smallest value; `width` in ps. Beyond a million
    /// bins the rest goes into the last.
    pub fn linear(&self, width: i64) -> Vec<u64> {
        let width = width.max(1);
        let from = self.min();
        let bins = ((self.max() - from) / width + 1).min(MAX_BINS);
        let mut counts = vec![0; bins as usize];
        for bin in self.bins() {
            let middle = (bin.low + (bin.high - bin.low) / 2).clamp(from, self.max());
            counts[((middle - from) / width).min(bins - 1) as usize] += bin.count;
        }
        counts
    }

    /// Modes at a resolution of `width` ps, in order. The counts are smoothed over three bins; a mode
    /// is a highest bin that is separated from the next by a valley below 70 % of the lower of the
    /// two, and has at least 1 % of all values between its valleys.
    pub fn modes(&self, width: i64) -> Vec<Peak> {
        let counts = self.linear(width);
        let at = |bin: usize| counts.get(bin).copied().unwrap_or(0);
        let smooth: Vec<u64> = (0..counts.len())
            .map(|bin| bin.checked_sub(1).map_or(0, at) + 2 * at(bin) + at(bin + 1))
            .collect();
        let mut peaks: Vec<(usize, usize)> = Vec::new(); // highest bin, last bin
        let (mut highest, mut lowest) = (0, 0);
        for bin in 0..smooth.len() {
            let rises = smooth[lowest] as f64 <= VALLEY * smooth[bin] as f64;
            let fell = smooth[lowest] as f64 <= VALLEY * smooth[highest] as f64;
            if rises && fell && lowest > highest {
                peaks.push((highest, lowest));
                (highest, lowest) = (bin, bin);
            }
            if smooth[bin] > smooth[highest] {
                (highest, lowest) = (bin, bin);
            }
            if smooth[bin] < smooth[lowest] {
                lowest = bin;
            }
        }
        peaks.push((highest, smooth.len()));
        let mut from = 0;
        let mut modes = Vec::new();
        for (highest, to) in peaks {
            let count: u64 = counts.iter().take(to).skip(from).sum();
            let share = count as f64 / self.len().max(1) as f64;
            from = to;
            if share >= LEAST_SHARE {
                let at = self.min() + highest as i64 * width.max(1) + width.max(1) / 2;
                modes.push(Peak { at: at.min(self.max()), share });
            }
        }
        modes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::draw;

    const US: f64 = 1e6;

    fn normal(counter: u64) -> f64 {
        let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
        let (u, v) = (unit(draw(8, counter)), unit(draw(9, counter)));
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn three_modes_of_an_exchange_stay_three_after_binning_merging_and_resampling() {
        let mixture = |counter: u64| {
            let (centre, width) = match draw(7, counter) % 10 {
                0..5 => (4.6, 0.15),
                5..8 => (5.7, 0.2),
                _ => (7.5, 0.25),
            };
            ((centre + width * normal(counter)) * US) as i64
        };
        let part = |range: std::ops::Range<u64>| {
            Distribution::of(&range.map(mixture).collect::<Vec<_>>()).unwrap()
        };
        let mut all = part(0..20_000);
        all.merge(&part(20_000..50_000)).unwrap();
        let sampler = all.sampler().unwrap();
        let drawn: Vec<_> = (0..50_000).map(|i| sampler.pick(draw(10, i))).collect();
        for all in [all, Distribution::of(&drawn).unwrap()] {
            let modes = all.modes(100_000);
            assert_eq!(modes.len(), 3, "{modes:?}");
            for (mode, (at, share)) in modes.iter().zip([(4.6, 0.5), (5.7, 0.3), (7.5, 0.2)]) {
                assert!((mode.at as f64 / US - at).abs() < 0.15, "{mode:?}");
                assert!((mode.share - share).abs() < 0.02, "{mode:?}");
            }
        }
    }

    #[test]
    fn one_peak_is_one_mode_however_fine_the_bins() {
        let times: Vec<_> = (0..50_000).map(|i| ((50.0 + normal(i)) * US) as i64).collect();
        let all = Distribution::of(&times).unwrap();
        assert_eq!(all.modes(200_000).len(), 1);
        assert_eq!(all.modes(1_000_000).len(), 1);
        assert_eq!(Distribution::of(&[5]).unwrap().modes(1).len(), 1);
        assert_eq!(Distribution::of(&[]).unwrap().modes(0).len(), 0);
    }
}
