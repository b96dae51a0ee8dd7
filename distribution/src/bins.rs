//! Histograms of a sample with bins that other tools use.

use crate::sketch::Sample;

/// How values are grouped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bins {
    /// As in an HdrHistogram with three digits: at least 1024 bins for every doubling.
    Hdr,
    /// Bins of this width, from 0.
    Fixed(i64),
    /// The widths of Confidence (Settlemyer, Hodson, Kuehn and Poole, 2010): the first bin is S wide, bin i
    /// exp(S i) - 1. S and the widths are in seconds: for bins from nanoseconds to milliseconds, the widths
    /// grow by about S from bin to bin. Here in ps.
    Log(i64),
}

/// Values from `from` to below `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    pub from: f64,
    pub to: f64,
    pub count: u64,
}

/// Most bins, empty or not.
pub const MOST: usize = 1 << 20;

/// That the bins are too narrow for the longest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Width of bin `i` in seconds.
fn log_width(size: f64, i: u64) -> f64 {
    if i == 0 { size } else { (size * i as f64).exp_m1() }
}

/// The bins that are not empty. A sample that is only known in bins of its own is counted by their middles.
pub fn histogram(sample: &Sample, bins: Bins) -> Result<Vec<Bin>, TooMany> {
    let mut filled: Vec<Bin> = Vec::new();
    let mut edge = Edges::new(bins);
    if let Bins::Fixed(width) = bins
        && sample.max / width.max(1) >= MOST as i64
    {
        return Err(TooMany);
    }
    for atom in sample.atoms() {
        let value = atom.value();
        let (from, to) = edge.around(value)?;
        match filled.last_mut() {
            Some(last) if last.from == from => last.count += atom.count,
            _ => filled.push(Bin { from, to, count: atom.count }),
        }
    }
    Ok(filled)
}

/// Finds the bin of each value; values come in order.
struct Edges {
    bins: Bins,
    /// Of logarithmic bins: the current one.
    number: u64,
    from: f64,
    to: f64,
}

impl Edges {
    fn new(bins: Bins) -> Edges {
        let to = if let Bins::Log(size) = bins { size.max(1) as f64 } else { 0.0 };
        Edges { bins, number: 0, from: 0.0, to }
    }

    fn around(&mut self, value: i64) -> Result<(f64, f64), TooMany> {
        match self.bins {
            Bins::Hdr => {
                let bits = 64 - value.max(0).leading_zeros();
                let shift = bits.saturating_sub(11);
                let from = (value >> shift) << shift;
                Ok((from as f64, (from + (1 << shift)) as f64))
            }
            Bins::Fixed(width) => {
                let width = width.max(1);
                let from = value.div_euclid(width) * width;
                Ok((from as f64, (from + width) as f64))
            }
            Bins::Log(size) => {
                let size = size.max(1) as f64 / 1e12;
                while value as f64 >= self.to {
                    self.number += 1;
                    if self.number >= MOST as u64 {
                        return Err(TooMany);
                    }
                    self.from = self.to;
                    self.to += (log_width(size, self.number) * 1e12).max(f64::MIN_POSITIVE);
                }
                Ok((self.from, self.to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64], bins: Bins) -> Vec<(f64, f64, u64)> {
        let sample = Sample::of_values(values, 1).unwrap();
        let bins = histogram(&sample, bins).unwrap();
        bins.iter().map(|bin| (bin.from, bin.to, bin.count)).collect()
    }

    #[test]
    fn fixed_bins_start_at_zero() {
        assert_eq!(
            of(&[0, 9, 10, 25, 29], Bins::Fixed(10)),
            [(0.0, 10.0, 2), (10.0, 20.0, 1), (20.0, 30.0, 2)]
        );
    }

    /// Figure 1 of the paper: the first 1000 bins of S = 50 ns grow to 50 us.
    #[test]
    fn logarithmic_bins_have_the_published_widths() {
        assert_eq!(log_width(5e-8, 0), 5e-8);
        assert!((log_width(5e-8, 1) / 5e-8 - 1.0).abs() < 1e-6);
        assert!((log_width(5e-8, 999) / 4.995e-5 - 1.0).abs() < 1e-4);
        // 50 ns, 50 ns, 100 ns, 150 ns: edges at 50, 100, 200, 350 ns.
        let found = of(&[49_000, 51_000, 99_000, 150_000, 349_000], Bins::Log(50_000));
        let edges: Vec<(f64, f64, u64)> =
            found.iter().map(|(from, to, n)| (from.round(), to.round(), *n)).collect();
        assert_eq!(
            edges,
            [
                (0.0, 50_000.0, 1),
                (50_000.0, 100_000.0, 2),
                (100_000.0, 200_000.0, 1),
                (200_000.0, 350_000.0, 1)
            ]
        );
    }

    #[test]
    fn hdr_bins_keep_three_digits_and_all_samples() {
        let values: Vec<i64> =
            (0..5_000).map(|i| (random::draw(1, i) >> (4 + i % 50)) as i64).collect();
        let bins = of(&values, Bins::Hdr);
        assert_eq!(bins.iter().map(|bin| bin.2).sum::<u64>(), 5_000);
        assert!(bins.iter().all(|(from, to, _)| to - from <= (from / 1024.0).max(1.0)));
        assert!(bins.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn too_many_bins_are_refused() {
        let sample = Sample::of_values(&[1, 1 << 50], 1).unwrap();
        assert_eq!(histogram(&sample, Bins::Fixed(1)), Err(TooMany));
        assert_eq!(histogram(&sample, Bins::Log(1)), Err(TooMany));
        assert_eq!(histogram(&sample, Bins::Hdr).unwrap().len(), 2);
    }
}
