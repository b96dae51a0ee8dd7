//! A claim, the figure for it, and the verdict.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Missed,
    DataAbsent,
    /// Could not be checked, which counts as missed.
    Broken(String),
}

impl Verdict {
    pub fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Missed }
    }

    pub fn is_bad(&self) -> bool {
        matches!(self, Verdict::Missed | Verdict::Broken(_))
    }

    pub fn text(&self) -> String {
        match self {
            Verdict::Holds => "holds".to_owned(),
            Verdict::Missed => "MISSED".to_owned(),
            Verdict::DataAbsent => "data absent".to_owned(),
            Verdict::Broken(why) => format!("FAILED: {why}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub what: String,
    /// The value from the paper, or from an earlier reproduction.
    pub paper: String,
    pub here: String,
    pub verdict: Verdict,
}

impl Claim {
    pub fn new(
        what: impl Into<String>,
        paper: impl Into<String>,
        here: impl Into<String>,
        holds: bool,
    ) -> Claim {
        Claim {
            what: what.into(),
            paper: paper.into(),
            here: here.into(),
            verdict: Verdict::of(holds),
        }
    }

    pub fn absent(what: impl Into<String>, paper: impl Into<String>) -> Claim {
        Claim {
            what: what.into(),
            paper: paper.into(),
            here: String::new(),
            verdict: Verdict::DataAbsent,
        }
    }
}

/// Linearity of y over x: the coefficient of determination.
pub fn straightness(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let cov: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    let vx: f64 = points.iter().map(|(x, _)| (x - mx).powi(2)).sum();
    let vy: f64 = points.iter().map(|(_, y)| (y - my).powi(2)).sum();
    if vx == 0.0 || vy == 0.0 { 0.0 } else { cov * cov / (vx * vy) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_straight_and_a_bend_is_not() {
        assert!((straightness(&[(1.0, 3.0), (2.0, 5.0), (3.0, 7.0)]) - 1.0).abs() < 1e-12);
        assert!(straightness(&[(1.0, 0.0), (2.0, 1.0), (3.0, 0.0)]) < 0.01);
    }
}
