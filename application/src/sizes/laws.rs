//! How a size or a time depends on the number of ranks.

/// A function of the number of ranks, up to a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    Constant,
    Power(f64),
    /// The number of rounds of a tree.
    Log,
}

/// The laws to look for, the simplest first.
const NAMED: [Law; 8] = [
    Law::Constant,
    Law::Power(-1.0),
    Law::Power(-0.5),
    Law::Power(-2.0 / 3.0),
    Law::Power(-1.0 / 3.0),
    Law::Power(1.0),
    Law::Power(0.5),
    Law::Log,
];

/// A law and how it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub law: Law,
    /// Times the law at a number of ranks is the value.
    pub factor: f64,
    /// No named law fits: a power between the sizes was taken.
    pub assumed: bool,
}

impl Law {
    pub fn at(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        match self {
            Law::Constant => 1.0,
            Law::Power(exponent) => ranks.powf(exponent),
            Law::Log => ranks.log2().max(1.0),
        }
    }

    /// By how much more a value is at another number of ranks.
    pub fn ratio(self, from: u32, to: u32) -> f64 {
        self.at(to) / self.at(from)
    }

    pub fn words(self) -> String {
        let near = |exponent: f64, named: f64| (exponent - named).abs() < 1e-9;
        match self {
            Law::Constant => "constant".into(),
            Law::Log => "proportional to log(ranks)".into(),
            Law::Power(exponent) if near(exponent, 1.0) => "proportional to ranks".into(),
            Law::Power(exponent) if near(exponent, -1.0) => "proportional to 1/ranks".into(),
            Law::Power(exponent) if near(exponent, -2.0 / 3.0) => {
                "proportional to 1/ranks^(2/3)".into()
            }
            Law::Power(exponent) if near(exponent, -1.0 / 3.0) => {
                "proportional to 1/ranks^(1/3)".into()
            }
            Law::Power(exponent) => format!("proportional to ranks^{exponent:.2}"),
        }
    }
}

/// Fits a law to values at numbers of ranks. `within` is how far values may be from it, as a part of them.
pub fn fit(points: &[(u32, f64)], within: f64) -> Fit {
    let points: Vec<(u32, f64)> =
        points.iter().copied().filter(|(_, value)| *value > 0.0).collect();
    let constant = Fit { law: Law::Constant, factor: 0.0, assumed: false };
    if points.is_empty() {
        return constant;
    }
    let count = points.len() as f64;
    let factor = |law: Law| {
        let logs = points.iter().map(|(ranks, value)| (value / law.at(*ranks)).ln());
        (logs.sum::<f64>() / count).exp()
    };
    let error = |law: Law, factor: f64| {
        let errors =
            points.iter().map(|(ranks, value)| (value / (factor * law.at(*ranks))).ln().abs());
        errors.fold(0.0, f64::max)
    };
    let mut best: Option<(f64, Fit)> = None;
    for law in NAMED {
        let factor = factor(law);
        let error = error(law, factor);
        let found = Fit { law, factor, assumed: false };
        // What does not change needs no other law.
        if law == Law::Constant && error <= within {
            return found;
        }
        if error <= within && best.is_none_or(|(least, _)| error < least) {
            best = Some((error, found));
        }
    }
    if let Some((_, found)) = best {
        return found;
    }
    let x = |ranks: u32| f64::from(ranks.max(1)).ln();
    let mean_x = points.iter().map(|(ranks, _)| x(*ranks)).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, value)| value.ln()).sum::<f64>() / count;
    let above: f64 =
        points.iter().map(|(ranks, value)| (x(*ranks) - mean_x) * (value.ln() - mean_y)).sum();
    let below: f64 = points.iter().map(|(ranks, _)| (x(*ranks) - mean_x).powi(2)).sum();
    if below <= 0.0 {
        return Fit { factor: factor(Law::Constant), ..constant };
    }
    // Steeper than the ranks themselves, it is not the program that grows.
    let law = Law::Power((above / below).clamp(-1.0, 1.0));
    Fit { law, factor: factor(law), assumed: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_laws_are_found() {
        for law in NAMED {
            let points: Vec<(u32, f64)> =
                [2, 4, 16].iter().map(|ranks| (*ranks, 700.0 * law.at(*ranks))).collect();
            let found = fit(&points, 0.01);
            assert_eq!((found.law, found.assumed), (law, false));
            assert!((found.factor - 700.0).abs() < 1e-6);
        }
    }

    #[test]
    fn what_no_law_describes_is_a_power() {
        let found = fit(&[(2, 100.0), (4, 130.0)], 0.01);
        assert!(found.assumed);
        let Law::Power(exponent) = found.law else { panic!("{found:?}") };
        assert!((exponent - 1.3f64.log2()).abs() < 1e-9);
    }

    #[test]
    fn small_differences_are_none() {
        assert_eq!(fit(&[(2, 100.0), (4, 108.0)], 0.1).law, Law::Constant);
        assert_eq!(fit(&[], 0.1).law, Law::Constant);
    }
}
