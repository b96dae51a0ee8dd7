//! What the absence of events says about their rate.

use statrs::function::gamma::gamma_ur;

/// The probability that the bound is too low.
const MISSED: f64 = 0.05;

/// The largest mean number of events for which so few are not a surprise: at this mean, a Poisson process has at
/// most `events` with a probability of 5 %. 3.0 if there was none, the rule of three.
pub fn most(events: u64) -> f64 {
    let seen = events as f64;
    // P(N <= k) at the mean m is the upper regularised gamma function of k + 1 and m.
    let so_few = |mean: f64| gamma_ur(seen + 1.0, mean);
    let (mut low, mut high) = (seen, seen + 10.0 * (seen + 1.0).sqrt());
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if so_few(middle) > MISSED {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_at_all_is_the_rule_of_three() {
        // Exactly -ln 0.05.
        assert!((most(0) - 2.995_732_273_553_991).abs() < 1e-9);
    }

    /// From published tables of exact Poisson limits, and the sum they come from.
    #[test]
    fn a_few_events_have_the_limits_of_the_tables() {
        for (events, limit) in [(1, 4.743_86), (2, 6.295_79), (5, 10.513_03), (10, 16.962_22)] {
            assert!((most(events) - limit).abs() < 1e-4, "{events}: {}", most(events));
        }
        let mean = most(7);
        let mut term = (-mean).exp();
        let mut sum = term;
        for k in 1..=7 {
            term *= mean / f64::from(k);
            sum += term;
        }
        assert!((sum - 0.05).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn many_events_are_known_to_their_square_root() {
        let found = most(1_000_000);
        assert!((found - 1_001_646.0).abs() < 20.0, "{found}");
    }
}
