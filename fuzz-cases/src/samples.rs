//! Numbers in text, and distributions of any numbers.

use distribution::{
    bins::{Bins, histogram},
    blocks::Blocks,
    excess, fit, modes,
    sketch::Sample,
    text,
};

/// Samples of which everything is computed: more take longer than they are worth.
const MOST: usize = 300;

pub fn run(data: &[u8]) {
    let mut values = Vec::new();
    let read = text::numbers(data, 6, &mut values);
    if read.is_ok() {
        let lines = data.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let rows = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        assert_eq!(rows.count(), values.len(), "a number for each line");
    }
    assert!(values.iter().all(|value| (0..=text::LONGEST).contains(value)));
    values.truncate(MOST);
    let Some(sample) = Sample::of_values(&values, 1) else { return };
    let found = modes::find(&sample, 1.0, 1);
    let share: f64 = found.modes.iter().map(|mode| mode.share).sum();
    assert!((share - 1.0).abs() < 1e-9, "modes have all samples: {found:?}");
    assert!(found.modes.iter().all(|mode| mode.at.is_finite() && mode.density.is_finite()));
    let quantiles = [0.0, 0.1, 0.5, 0.9, 1.0].map(|p| sample.quantile(p));
    assert!(quantiles.is_sorted(), "{quantiles:?}");
    assert!(sample.moments.about_mean().kurtosis.is_finite());
    if let Ok(bins) = histogram(&sample, Bins::Hdr) {
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), sample.n());
    }
    let _ = (Blocks::of(&sample), excess::tail(&sample, 1));
    for fit in fit::fit(&sample, 1).into_iter().flatten() {
        assert!(fit.distance.is_finite(), "{fit:?}");
    }
}
