//! Statistics over the runs: mean times and the recovery, with confidence intervals.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// One run's end in each case, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub noiseless: i64,
    pub conventional: i64,
    pub redundant: i64,
}

impl Times {
    /// Fraction of the cost of noise in the exchanges that redundancy recovers; None if there is no
    /// cost.
    pub fn recovery(&self) -> Option<f64> {
        ratio(
            i128::from(self.conventional) - i128::from(self.redundant),
            i128::from(self.conventional) - i128::from(self.noiseless),
        )
    }
}

fn ratio(won: i128, lost: i128) -> Option<f64> {
    (lost != 0).then(|| won as f64 / lost as f64)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleResult {
    pub ranks: u64,
    pub cycles: u32,
    pub runs: Vec<Times>,
}

/// An estimate and the half-width of its 95 % confidence interval; None for a single run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub half_width: Option<f64>,
}

impl CycleResult {
    /// Mean end of a case, ps.
    pub fn mean(&self, case: impl Fn(&Times) -> i64) -> Estimate {
        let value = self.sum(&case) as f64 / self.runs.len().max(1) as f64;
        let deviations = self.runs.iter().map(|times| case(times) as f64 - value);
        Estimate { value, half_width: half_width(deviations) }
    }

    /// Recovery of the mean times; None if noise costs nothing. The interval is that of a ratio of
    /// means (delta method): runs are independent, the three cases of one run are not.
    pub fn recovery(&self) -> Option<Estimate> {
        let sum = |case: fn(&Times) -> i64| self.sum(case);
        let (noiseless, conventional, redundant) =
            (sum(|t| t.noiseless), sum(|t| t.conventional), sum(|t| t.redundant));
        let value = ratio(conventional - redundant, conventional - noiseless)?;
        let lost = (conventional - noiseless) as f64 / self.runs.len() as f64;
        // Wide enough for times from an edited file.
        let less = |one: i64, other: i64| (i128::from(one) - i128::from(other)) as f64;
        let deviations = self.runs.iter().map(|times| {
            let won = less(times.conventional, times.redundant);
            (won - value * less(times.conventional, times.noiseless)) / lost
        });
        Some(Estimate { value, half_width: half_width(deviations) })
    }

    fn sum(&self, case: impl Fn(&Times) -> i64) -> i128 {
        self.runs.iter().map(|times| i128::from(case(times))).sum()
    }
}

/// Half-width for a mean, from the deviations from it.
fn half_width(deviations: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = deviations.len();
    if count < 2 {
        return None;
    }
    let squares: f64 = deviations.map(|deviation| deviation * deviation).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    Some(student(count - 1)? * error)
}

/// 97.5 % quantile of Student's t.
fn student(freedom: usize) -> Option<f64> {
    let law = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(law.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(noiseless: i64, conventional: i64, redundant: i64) -> Times {
        Times { noiseless, conventional, redundant }
    }

    #[test]
    fn recovery_is_the_share_won_back() {
        assert_eq!(times(10, 110, 70).recovery(), Some(0.4));
        assert_eq!(times(10, 10, 10).recovery(), None);
        let outcome =
            CycleResult { ranks: 2, cycles: 1, runs: vec![times(0, 100, 60), times(0, 300, 200)] };
        let recovery = outcome.recovery().unwrap();
        assert_eq!(recovery.value, 0.35);
        // Deviations 0.025 and -0.025, one degree of freedom.
        assert!((recovery.half_width.unwrap() - 12.7062 * 0.025).abs() < 1e-5);
        assert_eq!(outcome.mean(|t| t.conventional).value, 200.0);
        let one = CycleResult { ranks: 2, cycles: 1, runs: vec![times(0, 100, 60)] };
        assert_eq!(one.recovery().unwrap(), Estimate { value: 0.4, half_width: None });
    }
}
