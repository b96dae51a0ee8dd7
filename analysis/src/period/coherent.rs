//! Periods from the phases of all events: do most fall into one narrow arc of the circle?

use std::f64::consts::TAU;

use realfft::RealFftPlanner;

use super::{
    ALPHA, DEAD, MIN_EVENTS, MIN_SHARE, Period, SCREEN, WIDTHS, comes_once_per, ln_tail, span,
    thinned,
};

/// Peaks of the spectrum that are examined.
const PEAKS: usize = 8;
/// A peak may be a harmonic, up to this one.
const HARMONICS: usize = 4;
/// Highest frequency examined, in units of the mean event rate.
const HIGHEST: usize = 4;
/// Least power of a peak, where 1 is all events in phase. Half of the events within a tenth of the
/// circle give at least 0.2, minus the loss by binning.
const MIN_POWER: f64 = 0.08;

/// Periods of the spectrum's peaks, and of the fundamentals they may be harmonics of.
pub(super) fn candidates(times: &[f64], planner: &mut RealFftPlanner<f64>) -> Vec<f64> {
    let all = span(times);
    if all <= 0.0 {
        return Vec::new();
    }
    // The events fill half of the bins: zero padding halves the spacing of the frequencies.
    let bins = (4 * HIGHEST * times.len()).next_power_of_two();
    let half = bins / 2;
    let transform = planner.plan_fft_forward(bins);
    let mut signal = transform.make_input_vec();
    for t in times {
        let bin = ((t / all * half as f64) as usize).min(half - 1);
        signal[bin] += 1.0;
    }
    let mean = times.len() as f64 / half as f64;
    for value in signal.iter_mut().take(half) {
        *value -= mean;
    }
    let mut spectrum = transform.make_output_vec();
    if transform.process(&mut signal, &mut spectrum).is_err() {
        return Vec::new();
    }
    let scale = (times.len() * times.len()) as f64;
    let power: Vec<f64> = spectrum.iter().map(|c| c.norm_sqr() / scale).collect();

    // Line k is at frequency k / (2 all); fewer than about seven cycles are not significant.
    let mut peaks: Vec<usize> = (2 * (MIN_EVENTS - 1)..power.len() - 1)
        .filter(|&k| power[k] >= MIN_POWER && power[k] >= power[k - 1] && power[k] > power[k + 1])
        .collect();
    peaks.sort_by(|&a, &b| power[b].total_cmp(&power[a]));
    peaks.truncate(PEAKS);
    let mut found: Vec<f64> = Vec::new();
    for period in peaks.iter().map(|&k| 2.0 * all / k as f64) {
        for harmonic in 1..=HARMONICS {
            let period = period * harmonic as f64;
            if !found.iter().any(|f| (f - period).abs() * all < 0.1 * period * period) {
                found.push(period);
            }
        }
    }
    found
}

/// Mean phase (0 to 1) of the events at this frequency.
fn centre(times: &[f64], frequency: f64) -> f64 {
    let (sin, cos) = times.iter().fold((0.0, 0.0), |(s, c), t| {
        let (sin, cos) = (TAU * (t * frequency).fract()).sin_cos();
        (s + sin, c + cos)
    });
    f64::atan2(sin, cos) / TAU
}

/// Fits a straight line through the phases near the centre: its slope corrects the frequency.
fn refined(times: &[f64], mut frequency: f64) -> f64 {
    for reach in [0.25, 0.25, 0.15, 0.1] {
        let centre = centre(times, frequency);
        let (mut n, mut st, mut sp, mut stt, mut stp) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for t in times {
            let turn = t * frequency - centre;
            let phase = turn - turn.round();
            if phase.abs() <= reach {
                n += 1.0;
                st += t;
                sp += phase;
                stt += t * t;
                stp += t * phase;
            }
        }
        let spread = n * stt - st * st;
        if n < MIN_EVENTS as f64 || spread <= 0.0 {
            return frequency;
        }
        frequency -= (n * stp - st * sp) / spread;
    }
    frequency
}

/// Refines a candidate and tests it.
pub(super) fn fit(times: &[f64], candidate: f64) -> Option<Period> {
    if candidate.is_nan() || candidate <= 0.0 {
        return None;
    }
    let kept = thinned(times, DEAD * candidate);
    // The longer the span, the more precisely the frequency must be known beforehand.
    let mut frequency = 1.0 / candidate;
    let mut upto = SCREEN.min(kept.len());
    loop {
        frequency = refined(&kept[..upto], frequency);
        if upto == kept.len() {
            break;
        }
        upto = (2 * upto).min(kept.len());
    }
    if frequency.is_nan() || (frequency * candidate - 1.0).abs() > 0.1 {
        return None;
    }
    let n = kept.len() as f64;
    let cycles = span(&kept) * frequency;
    if cycles < MIN_EVENTS as f64 - 1.0 || !comes_once_per(&kept, 1.0 / frequency) {
        return None;
    }
    let mut phases: Vec<f64> = kept.iter().map(|t| (t * frequency).fract()).collect();
    phases.sort_by(f64::total_cmp);
    let (mut ln_p, mut share) = (0.0f64, 0.0);
    for width in WIDTHS {
        let arc = 2.0 * width;
        let inside = fullest_arc(&phases, arc) as f64;
        let above_chance = (inside / n - arc) / (1.0 - arc);
        if above_chance >= MIN_SHARE {
            // Every distinguishable frequency, and every event as the start of the arc.
            let trials = HIGHEST as f64 * n / width * WIDTHS.len() as f64 * n;
            ln_p = ln_p.min(trials.ln() + ln_tail(n - 1.0, inside - 1.0, arc));
            share = above_chance;
        }
    }
    (ln_p < ALPHA.ln()).then(|| Period { period_ns: 1.0 / frequency, p_value: ln_p.exp(), share })
}

/// The largest number of the sorted phases in one arc of this width.
fn fullest_arc(phases: &[f64], arc: f64) -> usize {
    let n = phases.len();
    let (mut best, mut to) = (0, 0);
    for from in 0..n {
        while to < from + n {
            let turn = if to >= n { 1.0 } else { 0.0 };
            if phases[to % n] + turn - phases[from] > arc {
                break;
            }
            to += 1;
        }
        best = best.max(to - from);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::fullest_arc;

    #[test]
    fn an_arc_may_span_the_zero_of_the_circle() {
        assert_eq!(fullest_arc(&[0.01, 0.02, 0.5, 0.98, 0.99], 0.1), 4);
        assert_eq!(fullest_arc(&[0.3; 9], 0.1), 9);
    }
}
