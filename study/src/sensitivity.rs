//! How the time of a program depends on the network: dT/dL, dT/do, dT/dg and dT/dG, and the range in which
//! they hold; and on each source of noise.
//!
//! Without noise, the end of a schedule is a maximum of sums of the parameters: piecewise linear in each of
//! them. Its slope is how often the parameter occurs on the critical path: the n of n L. A range is found by
//! bisection: as long as the time lies on the line, the same number of L is on the path.

use serde::Serialize;
use simulate::{
    event::{self, EventError, Schedule},
    loggops::Params,
    noise::Noise,
};
use trace::Class;

use crate::blame::{self, Blame};

/// One parameter. `per_unit` is the change of the time per change of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// `L`, `o`, `g` or `G`.
    pub parameter: &'static str,
    /// us, or ns per byte for G.
    pub value: f64,
    /// dT/dL, dT/do and dT/dg have no unit: how often the parameter is on the critical path. dT/dG is in
    /// bytes.
    pub slope: f64,
    /// Where this slope holds, in the unit of `value`; null if it holds as far as was looked.
    pub from: Option<f64>,
    pub to: Option<f64>,
}

/// A source of noise: the time grows by `slope` times what the source takes more from each rank, as long as the
/// critical path stays the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseSensitivity {
    /// Null if not recorded by Detour: periodic noise, or another tool's.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
    /// What it takes from the work of a rank in a run, mean over ranks and runs.
    pub per_rank_us: f64,
    /// What it takes from the critical path, mean over runs: dT if the source had no detours.
    pub on_path_us: f64,
    /// dT/dnoise: 1 if ranks wait for all of each other's noise once, the number of ranks if each detour delays the
    /// run, 0 if all is absorbed.
    pub slope: f64,
}

/// The sensitivities to the sources of noise, the largest effect first.
pub fn to_noise(blame: &Blame) -> Vec<NoiseSensitivity> {
    let ranks = blame.ranks.max(1) as f64;
    let of = |source: &blame::Source| {
        let per_rank_us = (source.on_path_us + source.absorbed_us) / ranks;
        let slope = if per_rank_us > 0.0 { source.on_path_us / per_rank_us } else { 0.0 };
        NoiseSensitivity {
            class: source.class,
            name: source.name.clone(),
            unit: source.unit.clone(),
            per_rank_us,
            on_path_us: source.on_path_us,
            slope,
        }
    };
    blame.sources.iter().map(of).collect()
}

/// A parameter: how to read and how to change it. G is in fs per byte, the others in ps.
struct Parameter {
    name: &'static str,
    get: fn(&Params) -> i64,
    set: fn(Params, i64) -> Params,
    /// Units of the parameter in the unit of [`Sensitivity::value`].
    unit: f64,
    /// Picoseconds in a unit of the parameter.
    ps: f64,
}

const PARAMETERS: [Parameter; 4] = [
    Parameter {
        name: "L",
        get: |net| net.latency,
        set: |net, latency| Params { latency, ..net },
        unit: 1e6,
        ps: 1.0,
    },
    Parameter {
        name: "o",
        get: |net| net.send_overhead,
        // Both ends by as much.
        set: |net, o| Params {
            send_overhead: o,
            recv_overhead: (net.recv_overhead + o - net.send_overhead).max(0),
            ..net
        },
        unit: 1e6,
        ps: 1.0,
    },
    Parameter {
        name: "g",
        get: |net| net.gap,
        set: |net, gap| Params { gap, ..net },
        unit: 1e6,
        ps: 1.0,
    },
    Parameter {
        name: "G",
        get: |net| net.gap_per_byte_fs,
        set: |net, gap_per_byte_fs| Params { gap_per_byte_fs, ..net },
        unit: 1e6,
        ps: 1e-3,
    },
];

/// A small change: the slope is that of the next piece if the parameter is at a corner.
const STEP: i64 = 1_000;
/// How far to look: this many times the parameter, or so many units if it is 0.
const REACH: i64 = 16;
const AT_LEAST: i64 = 1_000_000;
/// Each time on the line is a sum of rounded costs: this many ps for each message on the path.
const ROUNDING: f64 = 1.0;

/// The sensitivities of a schedule.
pub fn of(
    schedule: &Schedule,
    net: &Params,
    options: &event::Options,
) -> Result<Vec<Sensitivity>, EventError> {
    let silent = Noise::none();
    let mut scratch = event::Scratch::default();
    let mut time = |net: &Params| {
        event::run_with(&mut scratch, schedule, net, options, &silent.run(0, 0))
            .map(|run| run.max())
    };
    let at = time(net)?;
    let mut all = Vec::new();
    for parameter in &PARAMETERS {
        let value = (parameter.get)(net);
        let mut of = |value: i64| time(&(parameter.set)(*net, value));
        let slope = (of(value + STEP)? - at) as f64 / STEP as f64;
        let tolerance = |moved: i64| ROUNDING * slope.abs().max(1.0) + (moved as f64 * 1e-9).abs();
        let mut holds = |other: i64| -> Result<bool, EventError> {
            let line = at as f64 + slope * (other - value) as f64;
            Ok((of(other)? as f64 - line).abs() <= tolerance(other - value))
        };
        let far = value.saturating_mul(REACH).max(AT_LEAST);
        let to = boundary(value + STEP, far, &mut holds)?;
        let from = if value == 0 { None } else { boundary(value, 0, &mut holds)? };
        all.push(Sensitivity {
            parameter: parameter.name,
            value: value as f64 / parameter.unit,
            slope: slope / parameter.ps,
            from: from.map(|value| value as f64 / parameter.unit),
            to: to.map(|value| value as f64 / parameter.unit),
        });
    }
    Ok(all)
}

/// The last value towards `far` at which it holds; None if it holds there too.
fn boundary(
    near: i64,
    far: i64,
    holds: &mut impl FnMut(i64) -> Result<bool, EventError>,
) -> Result<Option<i64>, EventError> {
    if holds(far)? {
        return Ok(None);
    }
    let (mut good, mut bad) = (near, far);
    // To a thousandth of the parameter, or a nanosecond.
    while (bad - good).abs() > (good.abs() / 1_000).max(1_000) {
        let middle = good + (bad - good) / 2;
        if holds(middle)? { good = middle } else { bad = middle }
    }
    Ok(Some(good))
}

#[cfg(test)]
mod tests {
    use simulate::event::ScheduleBuilder;

    use super::*;

    /// Rank 1 receives three messages one after the other from rank 0, or waits 20 us for rank 2.
    fn schedule() -> Schedule {
        let mut b = ScheduleBuilder::new(3);
        b.begin_rank();
        let mut before = None;
        for _ in 0..3 {
            let receive = b.recv(1, 1, 1, 0, 0);
            let send = b.send(1, 1, 0, 0, 0);
            if let Some(before) = before {
                b.requires(receive, before);
            }
            b.requires(send, receive);
            before = Some(send);
        }
        b.begin_rank();
        let mut before = None;
        for _ in 0..3 {
            let send = b.send(1, 0, 1, 0, 0);
            let receive = b.recv(1, 0, 0, 0, 0);
            if let Some(before) = before {
                b.requires(send, before);
            }
            b.requires(receive, send);
            before = Some(receive);
        }
        let late = b.recv(1, 2, 2, 0, 0);
        if let Some(before) = before {
            b.requires(late, before);
        }
        b.begin_rank();
        let calc = b.calc(20_000_000, 0);
        let send = b.send(1, 1, 2, 0, 0);
        b.requires(send, calc);
        b.finish().unwrap()
    }

    #[test]
    fn the_slope_is_how_often_l_is_on_the_path_and_the_range_ends_where_the_path_changes() {
        let schedule = schedule();
        let options = event::Options::default();
        // Six messages one after the other take 6 L + 12 o; the other one 20 us + L + 2 o, and each ends
        // with the receive of the last, which costs o at most.
        let net = Params { latency: 5_000_000, ..Params::FREE };
        let found = of(&schedule, &net, &options).unwrap();
        let l = &found[0];
        assert_eq!((l.parameter, l.value, l.slope, l.to), ("L", 5.0, 6.0, None));
        // Below 4 us, 6 L is less than 20 us + L.
        assert!(l.from.is_some_and(|from| (from - 4.0).abs() < 0.01), "{l:?}");
        let slow = Params { latency: 1_000_000, ..Params::FREE };
        let l = &of(&schedule, &slow, &options).unwrap()[0];
        assert_eq!((l.slope, l.from), (1.0, None));
        assert!(l.to.is_some_and(|to| (to - 4.0).abs() < 0.01), "{l:?}");
    }
}
