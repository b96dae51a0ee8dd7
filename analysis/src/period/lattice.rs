//! Periods from the gaps between neighbours: are most of them whole multiples of P?

use super::{
    ALPHA, DEAD, MIN_EVENTS, MIN_SHARE, Period, WIDTHS, comes_once_per, gaps, ln_tail, span,
    thinned,
};

/// Candidates come from at most this many scales, a factor of two apart.
const SCALES: usize = 24;
/// Width of the window in which a mode is searched.
const MODE_WIDTH: f64 = 1.05;
/// Tolerances of the successive refinements of a candidate, and the longest gap that each uses, in
/// periods: for a rough candidate the number of periods in a long gap is uncertain.
const REFINEMENTS: [(f64, f64); 4] = [(0.25, 1.0), (0.15, 2.0), (0.1, 4.0), (0.1, 8.0)];

/// The most frequent gap at every scale.
pub(super) fn candidates(times: &[f64]) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::new();
    let mut dead = span(times) / 8.0;
    let mut previous = 0;
    for _ in 0..SCALES {
        let kept = thinned(times, dead);
        // A scale that merges no more events than the previous one adds nothing new.
        if kept.len() >= MIN_EVENTS && kept.len() != previous {
            previous = kept.len();
            let mut gaps: Vec<f64> = gaps(&kept).collect();
            gaps.sort_by(f64::total_cmp);
            if let Some(mode) = mode(&gaps)
                && !found.iter().any(|f| (f / mode - 1.0).abs() < 0.005)
            {
                found.push(mode);
            }
        }
        if kept.len() == times.len() {
            break;
        }
        dead /= 2.0;
    }
    found
}

/// Middle of the fullest window of sorted gaps.
fn mode(sorted: &[f64]) -> Option<f64> {
    let (mut best, mut from) = ((0, 0), 0);
    for (to, &gap) in sorted.iter().enumerate() {
        while sorted[from] * MODE_WIDTH < gap {
            from += 1;
        }
        if to + 1 - from > best.1 - best.0 {
            best = (from, to + 1);
        }
    }
    sorted.get((best.0 + best.1) / 2).copied().filter(|&gap| gap > 0.0)
}

/// The number of periods in a gap, if within the tolerance of a positive whole number.
pub(super) fn multiple(gap: f64, period: f64, tolerance: f64) -> Option<f64> {
    let n = (gap / period).round();
    (n >= 1.0 && (gap - n * period).abs() <= tolerance * period).then_some(n)
}

/// Refines a candidate and tests it.
pub(super) fn fit(times: &[f64], candidate: f64) -> Option<Period> {
    let mut period = candidate;
    for (tolerance, longest) in REFINEMENTS {
        let (mut sum, mut periods) = (0.0, 0.0);
        for gap in gaps(&thinned(times, DEAD * period)) {
            if let Some(n) = multiple(gap, period, tolerance).filter(|&n| n <= longest) {
                sum += gap;
                periods += n;
            }
        }
        if periods == 0.0 {
            return None;
        }
        period = sum / periods;
    }

    let kept = thinned(times, DEAD * period);
    if !comes_once_per(&kept, period) {
        return None;
    }
    let gaps: Vec<f64> = gaps(&kept).collect();
    let all = gaps.len() as f64;
    let trials = ((SCALES * WIDTHS.len()) as f64).ln();
    let (mut ln_p, mut share) = (0.0f64, 0.0);
    for width in WIDTHS {
        let hits = gaps.iter().filter(|&&g| multiple(g, period, width).is_some()).count() as f64;
        if hits >= MIN_SHARE * all {
            ln_p = ln_p.min(trials + ln_tail(all - 2.0, hits - 2.0, 2.0 * width));
            share = hits / all;
        }
    }
    (ln_p < ALPHA.ln()).then(|| Period { period_ns: period, p_value: ln_p.exp(), share })
}
