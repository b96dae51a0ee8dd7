//! Axes: from values to positions, and the choice of ticks.

use crate::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Nanoseconds,
    Hertz,
    Ranks,
    /// A fraction of 1, written in percent.
    Share,
    /// A factor.
    Times,
    Plain,
}

impl Unit {
    /// Identifier in the page's script.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Nanoseconds => "ns",
            Unit::Hertz => "hz",
            Unit::Ranks => "ranks",
            Unit::Share => "share",
            Unit::Times => "times",
            Unit::Plain => "plain",
        }
    }

    pub(super) fn write(self, value: f64) -> String {
        match self {
            Unit::Seconds => format!("{}\u{a0}s", short(value)),
            Unit::Nanoseconds => time(value),
            Unit::Hertz if value >= 1_000.0 => format!("{}\u{a0}kHz", short(value / 1e3)),
            Unit::Hertz => format!("{}\u{a0}Hz", short(value)),
            Unit::Ranks => ranks(value as u64),
            Unit::Share => format!("{}\u{a0}%", short(value * 100.0)),
            Unit::Times => format!("{}×", short(value)),
            Unit::Plain => short(value),
        }
    }
}

// Numbers and units are joined by a non-breaking space.

/// Up to three significant digits, without trailing zeros after the decimal point.
pub(super) fn short(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m => (2.0 - m.log10().floor()).clamp(0.0, 9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A microsecond in ns, the unit of the axes.
pub(super) const US: f64 = 1e3;

/// Microseconds as text.
pub(super) fn us(us: f64) -> String {
    time(us * US)
}

/// A duration in its shortest form.
pub(super) fn time(ns: f64) -> String {
    let (scale, unit) = match ns.abs() {
        v if v < 999.5 => (1.0, "ns"),
        v if v < 999_500.0 => (1e3, "µs"),
        v if v < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{}\u{a0}{unit}", short(ns / scale))
}

/// `64 Ki` for multiples of 1024, in full otherwise.
pub(super) fn ranks(n: u64) -> String {
    match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{}\u{a0}Mi", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{}\u{a0}Ki", n >> 10),
        n if n < 100_000 => n.to_string(),
        n => words::count(n),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) log: bool,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) unit: Unit,
}

impl Scale {
    pub(super) fn linear(from: f64, to: f64, unit: Unit) -> Scale {
        let to = if to > from { to } else { from + 1.0 };
        Scale { log: false, from, to, unit }
    }

    /// Both ends must be positive; invalid ones are replaced.
    pub(super) fn log(from: f64, to: f64, unit: Unit) -> Scale {
        let from = if from.is_finite() && from > 0.0 { from } else { 1.0 };
        let to = if to.is_finite() && to > from * 1.01 { to } else { from * 10.0 };
        Scale { log: true, from, to, unit }
    }

    /// A logarithmic axis of whole decades around all values; None if there are no values.
    pub(super) fn decades(values: impl Iterator<Item = f64>, unit: Unit) -> Option<Scale> {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|v| v.is_finite() && *v > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if high <= 0.0 {
            return None;
        }
        let down = 10f64.powf(low.log10().floor());
        let up = 10f64.powf(high.log10().ceil());
        Some(match up > down {
            true => Scale::log(down, up, unit),
            // A share cannot exceed 1.
            false if unit == Unit::Share && up >= 1.0 => Scale::log(down / 10.0, up, unit),
            false => Scale::log(down, down * 10.0, unit),
        })
    }

    /// 0 at the lower end, 1 at the upper.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.log {
            (value.max(1e-300) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    /// Labelled values, about `about` of them.
    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log && self.unit == Unit::Ranks {
            let (low, high) = (self.from.log2().ceil() as i32, self.to.log2().floor() as i32);
            let every = ((high - low) as usize).div_ceil(about.max(1)).max(1);
            return (low..=high).step_by(every).map(|k| 2f64.powi(k)).collect();
        }
        if self.log {
            let (low, high) =
                ((self.from.log10() - 1e-9).ceil() as i32, (self.to.log10() + 1e-9).floor() as i32);
            let every = ((high - low).max(0) as usize).div_ceil(about.max(1)).max(1);
            return (low..=high).step_by(every).map(|k| 10f64.powi(k)).collect();
        }
        let rough = (self.to - self.from) / about.max(1) as f64;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * unit >= rough).unwrap_or(10.0);
        let step = step * unit;
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last.min(first.saturating_add(100))).map(|i| i as f64 * step).collect()
    }

    /// For the page's script: kind, ends, unit.
    pub(super) fn data(&self) -> String {
        let kind = if self.log { "log" } else { "lin" };
        format!("{kind} {:e} {:e} {}", self.from, self.to, self.unit.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(
            Scale::linear(0.0, 10.0, Unit::Seconds).ticks(5),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        let log = Scale::log(100.0, 1e6, Unit::Nanoseconds);
        assert_eq!(log.ticks(6).len(), 5);
        assert_eq!(log.ticks(2).len(), 3);
        let ranks = Scale::log(2.0, 1_048_576.0, Unit::Ranks);
        assert_eq!(ranks.ticks(20).len(), 20);
        assert!((log.place(1e4) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn an_axis_of_one_value_or_none_is_still_an_axis() {
        assert_eq!(Scale::decades([].into_iter(), Unit::Nanoseconds), None);
        let one = Scale::decades([1000.0].into_iter(), Unit::Nanoseconds).unwrap();
        assert!(one.to > one.from && one.place(1000.0) >= 0.0);
        assert_eq!(Scale::linear(5.0, 5.0, Unit::Seconds).ticks(3).len(), 3);
        assert!(Scale::log(f64::NAN, -1.0, Unit::Plain).place(3.0).is_finite());
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(time(100_000.0), "100\u{a0}µs");
        assert_eq!(time(1e9), "1\u{a0}s");
        assert_eq!(ranks(1 << 20), "1\u{a0}Mi");
        assert_eq!(ranks(1000), "1000");
        assert_eq!(Unit::Share.write(1e-5), "0.001\u{a0}%");
        assert_eq!(Unit::Hertz.write(249.96), "250\u{a0}Hz");
        assert_eq!(short(0.0), "0");
    }
}
