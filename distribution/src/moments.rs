//! Moments of a stream in one pass: blocks are summed about their own mean and merged (Chan, Golub and
//! LeVeque 1979; Pébay 2008). Merging is exact algebra but rounds: results are the same bits for any
//! number of threads only if the blocks, and the order in which they are merged, are the same.

/// Number of values, their mean, and sums of powers of their deviations from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    pub n: u64,
    /// Values are relative to it, so that a large common offset costs no digits.
    origin: i64,
    mean: f64,
    /// Sums of the second, third and fourth powers of the deviations.
    sums: [f64; 3],
}

impl Moments {
    pub fn of(values: &[i64], origin: i64) -> Moments {
        if values.is_empty() {
            return Moments { origin, ..Moments::default() };
        }
        let total: i128 = values.iter().map(|&value| i128::from(value - origin)).sum();
        let mean = total as f64 / values.len() as f64;
        let mut sums = [0.0; 3];
        for &value in values {
            let deviation = (value - origin) as f64 - mean;
            let square = deviation * deviation;
            sums[0] += square;
            sums[1] += square * deviation;
            sums[2] += square * square;
        }
        Moments { n: values.len() as u64, origin, mean, sums }
    }

    /// The same value `n` times.
    pub fn repeated(value: i64, n: u64, origin: i64) -> Moments {
        let mean = if n > 0 { (value - origin) as f64 } else { 0.0 };
        Moments { n, origin, mean, sums: [0.0; 3] }
    }

    pub fn mean(&self) -> f64 {
        self.origin as f64 + self.mean
    }

    /// Both must have the same origin.
    pub fn merge(&mut self, other: &Moments) {
        debug_assert!(self.origin == other.origin || self.n == 0 || other.n == 0);
        if self.n == 0 || other.n == 0 {
            if self.n == 0 {
                *self = *other;
            }
            return;
        }
        let (a, b) = (self.n as f64, other.n as f64);
        let n = a + b;
        let delta = other.mean - self.mean;
        let share = delta / n;
        let [a2, a3, a4] = self.sums;
        let [b2, b3, b4] = other.sums;
        let between = delta * share * a * b;
        self.sums = [
            a2 + b2 + between,
            a3 + b3 + between * share * (a - b) + 3.0 * share * (a * b2 - b * a2),
            a4 + b4
                + between * share * share * (a * a - a * b + b * b)
                + 6.0 * share * share * (a * a * b2 + b * b * a2)
                + 4.0 * share * (a * b3 - b * a3),
        ];
        self.mean += share * b;
        self.n += other.n;
    }

    /// Standard deviation, skewness and kurtosis about the mean.
    pub fn about_mean(&self) -> Shape {
        self.about_offset(0.0)
    }

    /// The same about any point: root mean square of the distances from it, and the mean third and
    /// fourth powers of the distances in units of that.
    pub fn about(&self, point: i64) -> Shape {
        self.about_offset(self.mean - (point - self.origin) as f64)
    }

    /// About a point this far below the mean.
    fn about_offset(&self, d: f64) -> Shape {
        if self.n == 0 {
            return Shape::default();
        }
        let n = self.n as f64;
        let [second, third, fourth] = self.sums.map(|sum| sum / n);
        let square = second + d * d;
        if square <= 0.0 {
            return Shape::default();
        }
        let cube = third + 3.0 * d * second + d * d * d;
        let fourth = fourth + 4.0 * d * third + 6.0 * d * d * second + d * d * d * d;
        Shape {
            sd: square.sqrt(),
            skewness: cube / (square * square.sqrt()),
            kurtosis: fourth / (square * square),
        }
    }
}

/// Population moments: the divisor is n. The kurtosis of a normal distribution is 3 (not the excess).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    pub sd: f64,
    pub skewness: f64,
    pub kurtosis: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-9), "{a} is not {b}");
    }

    #[test]
    fn moments_of_a_few_values_are_those_of_their_formulas() {
        // Bernoulli with p = 1/4: skewness (1 - 2p)/sqrt(pq), kurtosis 3 + (1 - 6pq)/pq.
        let shape = Moments::of(&[0, 0, 0, 1], -7).about_mean();
        let pq: f64 = 0.25 * 0.75;
        close(shape.sd, pq.sqrt());
        close(shape.skewness, 0.5 / pq.sqrt());
        close(shape.kurtosis, 3.0 + (1.0 - 6.0 * pq) / pq);
        // About the minimum every moment is p.
        let shape = Moments::of(&[0, 0, 0, 1], -7).about(0);
        close(shape.sd, 0.5);
        close(shape.skewness, 0.25 / 0.125);
        close(shape.kurtosis, 0.25 / 0.0625);
    }

    #[test]
    fn any_division_into_blocks_gives_the_same_moments() {
        let values: Vec<i64> =
            (0..10_000).map(|i| 1 << 50 | (random::draw(3, i) >> 44) as i64).collect();
        let whole = Moments::of(&values, 1 << 50);
        for length in [1, 7, 1000, 9_999] {
            let mut merged = Moments::default();
            values.chunks(length).for_each(|block| merged.merge(&Moments::of(block, 1 << 50)));
            assert_eq!(merged.n, whole.n);
            close(merged.mean(), whole.mean());
            close(merged.about_mean().sd, whole.about_mean().sd);
            close(merged.about_mean().kurtosis, whole.about_mean().kurtosis);
            assert!((merged.about_mean().skewness - whole.about_mean().skewness).abs() < 1e-7);
        }
    }

    #[test]
    fn nothing_and_a_constant_have_no_shape() {
        assert_eq!(Moments::default().about_mean(), Shape::default());
        let mut constant = Moments::repeated(7, 1 << 40, 3);
        constant.merge(&Moments::of(&[7, 7], 3));
        assert_eq!((constant.mean(), constant.about_mean().sd), (7.0, 0.0));
        assert_eq!(constant.about(5).sd, 2.0);
    }
}
