//! How the time of a program depends on the network: dT/dL, dT/do, dT/dg and dT/dG, and the range in which
//! they hold; and on each source of noise.
//!
//! A logged run has its critical path. The slope is the sum of what is on it: how many L, o and g, and how many
//! bytes at G. It holds as long as the time lies on the line and the path has as much of the parameter, which is
//! checked by further runs; a range is found by bisection. Where messages change their order, at a NIC that several
//! share or at a receive from any source, the time may jump: there the range ends, and that is said.

use serde::Serialize;
use simulate::{
    event::{self, Action, EventError, Leg, Log, Part, Schedule, What},
    loggops::Params,
    noise::Noise,
};
use trace::Class;

use crate::explain::blame::{self, Blame};

/// One parameter.
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
    /// By how much the time jumps where the range ends, because messages change their order; null if the slope
    /// changes and the time does not.
    pub from_jump_us: Option<f64>,
    pub to_jump_us: Option<f64>,
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
    part: Part,
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
        part: Part::Latency,
        get: |net| net.latency,
        set: |net, latency| Params { latency, ..net },
        unit: 1e6,
        ps: 1.0,
    },
    Parameter {
        name: "o",
        part: Part::Overhead,
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
        part: Part::Gap,
        get: |net| net.gap,
        set: |net, gap| Params { gap, ..net },
        unit: 1e6,
        ps: 1.0,
    },
    Parameter {
        name: "G",
        part: Part::GapPerByte,
        get: |net| net.gap_per_byte_fs,
        set: |net, gap_per_byte_fs| Params { gap_per_byte_fs, ..net },
        unit: 1e6,
        ps: 1e-3,
    },
];

/// A small change: the slope is that of the next piece if the parameter is at a corner, or 0.
const STEP: i64 = 1_000;
/// How far to look: this many times the parameter, or so many units if it is 0.
const REACH: i64 = 16;
const AT_LEAST: i64 = 1_000_000;
/// Values tried on the way there, each twice as far as the one before.
const PROBES: u32 = 7;

/// The sensitivities of a schedule. Its runs are logged ([`crate::explain::blame::fits`]).
pub fn of(
    schedule: &Schedule,
    net: &Params,
    options: &event::Options,
) -> Result<Vec<Sensitivity>, EventError> {
    let mut runs = Runs {
        schedule,
        options,
        silent: Noise::none(),
        scratch: event::Scratch::default(),
        log: Log::default(),
    };
    let at = runs.time(net)?;
    PARAMETERS.iter().map(|parameter| runs.sensitivity(parameter, net, at)).collect()
}

struct Runs<'a> {
    schedule: &'a Schedule,
    options: &'a event::Options,
    silent: Noise,
    scratch: event::Scratch,
    log: Log,
}

/// A critical path.
#[derive(Clone, Copy, Debug)]
struct Path {
    time: i64,
    /// How much of a parameter is on it: a number of times, or bytes.
    amount: f64,
    legs: u32,
}

/// The time as a function of one parameter, as long as its critical path is this one.
struct Line<'a> {
    parameter: &'a Parameter,
    net: &'a Params,
    value: i64,
    path: Path,
}

impl Line<'_> {
    fn at(&self, value: i64) -> Params {
        (self.parameter.set)(*self.net, value)
    }

    /// By how much a time deviates from it, ps.
    fn off(&self, value: i64, time: i64) -> f64 {
        let moved = (value - self.value) as f64 * self.parameter.ps;
        (time - self.path.time) as f64 - self.path.amount * moved
    }

    /// What rounding explains, ps: of the bytes of each message.
    fn rounding(&self) -> f64 {
        let each = if self.parameter.part == Part::GapPerByte { 2.0 } else { 0.0 };
        1.0 + each * f64::from(self.path.legs)
    }

    fn is_same(&self, path: &Path) -> bool {
        (path.amount - self.path.amount).abs() <= 1e-6 * self.path.amount
    }
}

/// Where a line ends, and by how much the time jumps there, ps.
struct End {
    value: i64,
    jump: Option<f64>,
}

impl Runs<'_> {
    fn time(&mut self, net: &Params) -> Result<i64, EventError> {
        let silent = self.silent.run(0, 0);
        let run = event::run_with(&mut self.scratch, self.schedule, net, self.options, &silent);
        run.map(|run| run.max())
    }

    fn path(&mut self, net: &Params, part: Part) -> Result<Path, EventError> {
        let silent = self.silent.run(0, 0);
        let (scratch, log) = (&mut self.scratch, &mut self.log);
        event::run_logged(scratch, self.schedule, net, self.options, &silent, log)?;
        let last = self.log.last();
        let mut path = Path { time: self.log.end(last), amount: 0.0, legs: 0 };
        for leg in self.log.back_from(last) {
            path.amount += self.amount(&leg, net, part);
            path.legs += 1;
        }
        Ok(path)
    }

    /// How much of a parameter is in a leg. The parameter is not 0.
    fn amount(&self, leg: &Leg, net: &Params, part: Part) -> f64 {
        let ps: i64 = leg.parts.iter().filter(|of| of.0 == part).map(|of| of.1).sum();
        if ps == 0 {
            return 0.0;
        }
        let step = &self.log.steps()[leg.step as usize];
        let receives = step.what == What::Receive;
        let each = match part {
            Part::Latency => net.latency,
            Part::Overhead if receives => net.recv_overhead,
            Part::Overhead => net.send_overhead,
            Part::Gap => net.gap,
            _ if net.sizes.is_some() => return ps as f64 * 1e3 / net.gap_per_byte_fs as f64,
            _ => {
                // A receive may have room for more than its message.
                let sender = self.log.steps().get(step.sender as usize);
                let step = if receives { sender.unwrap_or(step) } else { step };
                return match self.schedule.operation(step.op).action {
                    Action::Send { bytes, .. } | Action::Recv { bytes, .. } => {
                        bytes.saturating_sub(1) as f64
                    }
                    _ => 0.0,
                };
            }
        };
        (ps as f64 / each.max(1) as f64).round()
    }

    fn sensitivity(
        &mut self,
        parameter: &Parameter,
        net: &Params,
        at: i64,
    ) -> Result<Sensitivity, EventError> {
        let value = (parameter.get)(net);
        let next = self.path(&(parameter.set)(*net, value + STEP), parameter.part)?;
        let line = Line { parameter, net, value: value + STEP, path: next };
        let (line, near) = if line.off(value, at).abs() <= line.rounding() {
            (Line { value, path: Path { time: at, ..next }, ..line }, value + STEP)
        } else if value > 0 {
            // It does not hold as far as that.
            (Line { value, path: self.path(net, parameter.part)?, ..line }, value)
        } else {
            (line, value + STEP)
        };
        let far = value.saturating_mul(REACH).max(AT_LEAST);
        let to = self.end(&line, near, far)?;
        let from = if value == 0 { None } else { self.end(&line, value, 0)? };
        let in_units = |end: &End| end.value as f64 / parameter.unit;
        let jump = |end: &End| end.jump.map(|ps| ps / 1e6);
        Ok(Sensitivity {
            parameter: parameter.name,
            value: value as f64 / parameter.unit,
            slope: line.path.amount,
            from: from.as_ref().map(in_units),
            to: to.as_ref().map(in_units),
            from_jump_us: from.as_ref().and_then(jump),
            to_jump_us: to.as_ref().and_then(jump),
        })
    }

    fn holds(&mut self, line: &Line<'_>, value: i64) -> Result<bool, EventError> {
        let net = line.at(value);
        if line.off(value, self.time(&net)?).abs() > line.rounding() {
            return Ok(false);
        }
        // Nothing of 0 can be counted.
        Ok(value == 0 || line.is_same(&self.path(&net, line.parameter.part)?))
    }

    /// The last value towards `far` at which it holds; None if it holds there too. A jump may be followed by the
    /// same line: values in between are tried, nearer ones first.
    fn end(&mut self, line: &Line<'_>, near: i64, far: i64) -> Result<Option<End>, EventError> {
        let (mut good, mut bad) = (near, None);
        for part in (0..PROBES).rev() {
            let value = near + ((far - near) >> part);
            if !self.holds(line, value)? {
                bad = Some(value);
                break;
            }
            good = value;
        }
        let Some(mut bad) = bad else { return Ok(None) };
        // To a thousandth of the parameter, or a nanosecond.
        while (bad - good).abs() > (good.abs() / 1_000).max(STEP) {
            let middle = good + (bad - good) / 2;
            if self.holds(line, middle)? { good = middle } else { bad = middle }
        }
        let net = line.at(bad);
        let beyond = self.path(&net, line.parameter.part)?;
        let off = line.off(bad, beyond.time);
        // From a corner between the two on, the time follows the other slope. At 0, that is not known.
        let bends = (beyond.amount - line.path.amount).abs()
            * (bad - good).abs() as f64
            * line.parameter.ps;
        let jumps = bad != 0 && off.abs() > bends + line.rounding();
        Ok(Some(End { value: good, jump: jumps.then_some(off) }))
    }
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

    /// The closed forms: n messages in a row, each as long as o + L + (k-1) G + o.
    #[test]
    fn messages_in_a_row_have_as_many_of_everything() {
        let mut b = ScheduleBuilder::new(2);
        for rank in 0..2u32 {
            b.begin_rank();
            let mut before = None;
            for turn in 0..5 {
                let op = match turn % 2 == rank {
                    true => b.send(101, 1 - rank, 0, 0, 0),
                    false => b.recv(101, 1 - rank, 0, 0, 0),
                };
                if let Some(before) = before {
                    b.requires(op, before);
                }
                before = Some(op);
            }
        }
        let schedule = b.finish().unwrap();
        let net = Params {
            latency: 3_000_000,
            send_overhead: 700_000,
            recv_overhead: 400_000,
            gap: 500_000,
            gap_per_byte_fs: 250_000,
            ..Params::FREE
        };
        for (net, options) in [(net, event::Options::default()), (Params::FREE, rules())] {
            let found = of(&schedule, &net, &options).unwrap();
            let slopes: Vec<f64> = found.iter().map(|one| one.slope).collect();
            if net.latency > 0 {
                assert_eq!(slopes, [5.0, 10.0, 0.0, 500.0], "{found:?}");
            }
            assert!(slopes.iter().all(|slope| *slope >= 0.0), "{found:?}");
        }
    }

    fn rules() -> event::Options {
        event::Options { model: event::Rules::Loggopsim, ..event::Options::default() }
    }

    /// Rank 0 sends three messages at once: the second and the third leave g + (k-1) G after the one before.
    #[test]
    fn messages_of_one_nic_have_g_and_their_bytes_on_the_path() {
        let mut b = ScheduleBuilder::new(4);
        b.begin_rank();
        for to in 1..4 {
            b.send(1001, to, 0, 0, 0);
        }
        for _ in 1..4 {
            b.begin_rank();
            b.recv(1001, 0, 0, 0, 0);
        }
        let net = Params {
            latency: 2_000_000,
            send_overhead: 100_000,
            recv_overhead: 100_000,
            gap: 900_000,
            gap_per_byte_fs: 1_000_000,
            ..Params::FREE
        };
        let found = of(&b.finish().unwrap(), &net, &event::Options::default()).unwrap();
        let slopes: Vec<f64> = found.iter().map(|one| one.slope).collect();
        // The NIC is handed the message while the CPU works: o, two gaps, L, and o of the receiver.
        assert_eq!((slopes[0], slopes[2], slopes[3]), (1.0, 2.0, 3000.0), "{found:?}");
        assert!(slopes[1] == slopes[1].round() && slopes[1] > 0.0, "{found:?}");
    }

    /// Rank 2 has posted two receives. The long message of rank 0 and the short one of rank 1, which a long
    /// computation follows, share its NIC: which is first depends on L of the one message more on the way of
    /// rank 1. The time jumps where they change places.
    #[test]
    fn where_messages_change_places_at_a_nic_the_time_jumps_and_no_slope_is_negative() {
        let mut b = ScheduleBuilder::new(4);
        b.begin_rank();
        let wait = b.calc(9_000_000, 0);
        let long = b.send(1_001, 2, 0, 0, 0);
        b.requires(long, wait);
        b.begin_rank();
        let asked = b.recv(1, 3, 1, 0, 0);
        let short = b.send(1, 2, 1, 0, 0);
        b.requires(short, asked);
        b.begin_rank();
        b.recv(1_001, 0, 0, 0, 0);
        let short = b.recv(1, 1, 1, 0, 0);
        let work = b.calc(80_000_000, 0);
        b.requires(work, short);
        b.begin_rank();
        b.send(1, 1, 1, 0, 0);
        let schedule = b.finish().unwrap();
        // Short: 2 L after 0; long: 9 us + L. They meet at L = 9 us; the long one takes 50 us of the NIC.
        let at = |latency: i64| Params { latency, gap_per_byte_fs: 50_000_000, ..Params::FREE };
        for latency in [5_000_000, 8_999_500, 9_000_500, 14_000_000] {
            let found = of(&schedule, &at(latency), &event::Options::default()).unwrap();
            assert!(found.iter().all(|one| one.slope >= 0.0), "{latency}: {found:?}");
            let l = &found[0];
            assert_eq!(l.slope, l.slope.round(), "{latency}: {l:?}");
            if latency < 9_000_000 {
                assert_eq!(l.slope, 2.0, "{latency}: {l:?}");
                assert!(l.to.is_some_and(|to| (to - 9.0).abs() < 0.02), "{latency}: {l:?}");
                assert!(l.to_jump_us.is_some_and(|jump| jump > 40.0), "{latency}: {l:?}");
            } else {
                assert_eq!(l.slope, 1.0, "{latency}: {l:?}");
                assert!(l.from.is_some_and(|from| (from - 9.0).abs() < 0.02), "{latency}: {l:?}");
                assert!(l.from_jump_us.is_some_and(|jump| jump < -40.0), "{latency}: {l:?}");
            }
        }
    }
}
