//! The event engine: whole programs, given as a [`Schedule`] of sends, receives and calcs, in the
//! LogGOPS model. Two sets of rules: the exact ones ([`Rules::Loggops`]) and those of LogGOPSim,
//! quirks included ([`Rules::Loggopsim`]).
//!
//! Times are picoseconds from the start of the run.

mod bits;
mod builder;
mod by_rank;
mod carried;
mod choices;
mod cost;
mod deadlock;
mod engine;
mod error;
mod floors;
mod introsort;
mod labels;
mod latencies;
mod lockstep;
mod log;
mod loggopsim;
mod matching;
mod order;
mod pairs;
mod queue;
mod recorder;
mod schedule;
mod sequence;
#[cfg(test)]
pub(crate) mod sketch;
mod state;
mod wants;
mod watch;
mod watch_loggopsim;
mod wheel;
mod windows;
mod work;

pub use builder::{APART, BuildError, LONGEST, OpId, ScheduleBuilder, WILDCARD};
pub use carried::{Carried, run_on};
pub use choices::{Name, Test};
pub use error::{EventError, Reason, Unmet, Wait};
pub use lockstep::Moments;
pub(crate) use log::{BEGINNING, Moment};
pub use log::{Leg, Log, NOBODY, Part, Step, What};
pub use schedule::{Action, Kind, Operation, Place, Schedule};
pub use sequence::Sequence;

use serde::{Deserialize, Serialize};

use crate::{
    loggops::{Local, Params},
    noise::RunNoise,
};

/// Which simulator's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rules {
    #[default]
    Loggops,
    Loggopsim,
}

impl Rules {
    pub const ALL: [Rules; 2] = [Rules::Loggops, Rules::Loggopsim];

    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Rules::Loggops => "loggops",
            Rules::Loggopsim => "loggopsim",
        }
    }
}

/// Any source, or any tag.
pub(crate) const ANY: u32 = u32::MAX;

/// How a message of more than S bytes waits for its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rendezvous {
    /// Both sides end at max(T_s + N, T_r).
    #[default]
    ClosedForm,
    /// A request, an acknowledgement once the receive is posted, then the payload.
    Handshake,
}

impl Rendezvous {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Rendezvous::ClosedForm => "closed-form",
            Rendezvous::Handshake => "handshake",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub model: Rules,
    /// For [`Rules::Loggops`]; LogGOPSim has neither.
    pub rendezvous: Rendezvous,
    /// Between ranks of one node, if that is another network.
    pub local: Option<Local>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleResult {
    /// When each rank finished, ps.
    pub ends: Vec<i64>,
    pub messages: u64,
    pub operations: u64,
    /// Operations that LogGOPSim silently left undone; 0 with the exact rules, where that is an error.
    pub unfinished: u64,
}

impl ScheduleResult {
    pub fn max(&self) -> i64 {
        self.ends.iter().copied().max().unwrap_or(0)
    }
}

/// One run. If the noise has explicit offsets, there must be one for each rank
/// ([`Noise::check`](crate::noise::Noise::check)).
pub fn run(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
) -> Result<ScheduleResult, EventError> {
    run_with(&mut Scratch::default(), schedule, params, options, noise)
}

/// Memory of a run, reused by the next one on the same thread. Schedules may come in any order.
#[derive(Debug, Default)]
pub struct Scratch {
    engine: state::Buffers,
}

/// When each rank of a run starts; empty if all start at 0.
pub type Starts<'a> = &'a [i64];

/// Upper bound on the memory of a run in addition to the schedule, bytes, excluding its event queue.
pub fn run_memory(schedule: &Schedule, rules: Rules) -> u64 {
    let operations = schedule.operations();
    let matching = operations * matching::bytes_per_operation(schedule);
    let rest = match rules {
        Rules::Loggops => state::bytes(schedule),
        Rules::Loggopsim => loggopsim::bytes(schedule),
    };
    (matching + rest) as u64
}

/// [`run`], with reused memory.
pub fn run_with(
    scratch: &mut Scratch,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
) -> Result<ScheduleResult, EventError> {
    run_from(scratch, schedule, params, options, noise, &[])
}

/// [`run_with`]; ranks start at these times.
pub fn run_from(
    scratch: &mut Scratch,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    starts: Starts<'_>,
) -> Result<ScheduleResult, EventError> {
    match options.model {
        Rules::Loggops => {
            engine::run(&mut scratch.engine, schedule, params, options, noise, starts)
        }
        Rules::Loggopsim => loggopsim::run(schedule, params, options.local, noise, starts),
    }
}

/// Moments are counted in 32 bits, and an operation has at most eight.
const MOST_LOGGED: usize = 1 << 28;

/// [`run_with`], also returning a log of what happened and why.
pub fn run_logged(
    scratch: &mut Scratch,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    log: &mut Log,
) -> Result<ScheduleResult, EventError> {
    if schedule.operations() > MOST_LOGGED {
        return Err(EventError::TooManyToLog { operations: schedule.operations() });
    }
    if options.local.is_some() {
        return Err(EventError::LocalNotLogged);
    }
    match options.model {
        Rules::Loggops => {
            let engine = &mut scratch.engine;
            engine::record(engine, schedule, params, options, noise, log)
        }
        Rules::Loggopsim => loggopsim::record(schedule, params, noise, log),
    }
}
