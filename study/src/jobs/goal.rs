//! GOAL files, text or binary: reading, writing, checking, statistics. Errors name the file and the
//! position in it.

use std::{
    fs::File,
    io::{BufRead, BufReader, IsTerminal, Read, stdin, stdout},
    path::Path,
    time::Instant,
};

use analysis::words::plural;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use simulate::{
    event::{self, EventError, Rules, Schedule},
    goal::{self, CalcUnit, Form, GoalError, Stats},
    loggops::Params,
    noise::Noise,
};

use crate::{error::in_words, files, run::work::Work, units};

/// Large enough that system call overhead is negligible.
const BUFFER: usize = 1 << 18;

/// The schedule and the form it was in. `-` is stdin.
pub fn read_as_it_is(path: &Path, unit: CalcUnit) -> Result<(Schedule, Form)> {
    let cannot = || format!("cannot open {}", path.display());
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(path).with_context(cannot)?)
    };
    let named = || path.display().to_string();
    let mut input = BufReader::with_capacity(BUFFER, input);
    let form = goal::form(input.fill_buf().with_context(named)?);
    Ok((goal::read(input, unit).with_context(named)?, form))
}

pub fn read(path: &Path, unit: CalcUnit) -> Result<Schedule> {
    Ok(read_as_it_is(path, unit)?.0)
}

/// Writes to a file, or to stdout (`-` or None).
pub fn write(path: Option<&Path>, form: Form, schedule: &Schedule, unit: CalcUnit) -> Result<()> {
    match path.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            files::save(path, |out| Ok(goal::write(form, schedule, unit, out.get_mut())?))
        }
        None if form == Form::Binary && stdout().is_terminal() => {
            bail!("refusing to write binary data to a terminal: specify a file with -o")
        }
        None => Ok(goal::write(form, schedule, unit, stdout().lock())?),
    }
}

/// What the schedule of a program says and GOAL cannot.
pub fn not_written(schedule: &Schedule) -> Vec<String> {
    let count = schedule.marked_messages();
    let sends = plural(count, "synchronous or buffered send");
    let remark = format!("{sends} written as standard: GOAL has no other sends");
    if count > 0 { vec![remark] } else { Vec::new() }
}

/// `--calc-unit`: the time unit of calcs. Must be exact, since every calc is multiplied by it.
pub fn calc_unit(text: &str) -> Result<CalcUnit, String> {
    let ps = units::whole_picoseconds(text)?;
    CalcUnit::from_ps(ps).ok_or_else(|| format!("'{text}' is out of range (1ps to 1 hour)"))
}

/// Whether a schedule is well-formed and completes. A schedule may complete only because messages are
/// buffered: it then runs on this network but deadlocks on another. Unknown values are null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    pub valid: bool,
    /// Names the rank, operation and label.
    pub error: Option<String>,
    pub ranks: Option<u32>,
    pub operations: Option<usize>,
    pub messages: Option<u64>,
    /// What happens without buffering, if that is a deadlock.
    pub needs_buffers: Option<String>,
}

/// Checks a schedule. With `unbuffered`, one that needs buffering is invalid.
pub fn check(
    path: &Path,
    unit: CalcUnit,
    net: &Params,
    unbuffered: bool,
    work: &Work<'_>,
) -> Result<Checked> {
    let schedule = match read(path, unit) {
        Ok(schedule) => schedule,
        Err(error) if is_about_schedule(&error) => return Ok(checked(None, None, Some(&error))),
        Err(error) => return Err(error),
    };
    let named = || path.display().to_string();
    work.fits(&schedule, Rules::default())?;
    let ended = end(&schedule, net).with_context(named);
    // A schedule that deadlocks with buffering also deadlocks without it.
    let without = match ended {
        Ok(()) => end(&schedule, &Params { eager_limit: 0, ..*net }).err(),
        Err(_) => None,
    };
    let valid = ended.and_then(|()| match &without {
        Some(error) if unbuffered => bail!("{}: without buffering: {error}", named()),
        _ => Ok(()),
    });
    Ok(checked(Some(&schedule), without.as_ref(), valid.as_ref().err()))
}

fn checked(
    schedule: Option<&Schedule>,
    without: Option<&EventError>,
    error: Option<&anyhow::Error>,
) -> Checked {
    Checked {
        valid: error.is_none(),
        error: error.map(in_words),
        ranks: schedule.map(Schedule::ranks),
        operations: schedule.map(Schedule::operations),
        messages: schedule.map(Schedule::messages),
        needs_buffers: without.map(ToString::to_string),
    }
}

/// An I/O error says nothing about the schedule itself.
fn is_about_schedule(error: &anyhow::Error) -> bool {
    error.downcast_ref::<GoalError>().is_some_and(|error| !matches!(error, GoalError::Io(_)))
}

fn end(schedule: &Schedule, params: &Params) -> Result<(), EventError> {
    let none = Noise::none();
    event::run(schedule, params, &event::Options::default(), &none.run(0, 0)).map(|_| ())
}

/// Statistics of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    pub ranks: u32,
    pub operations: u64,
    pub sends: u64,
    pub recvs: u64,
    pub calcs: u64,
    pub requires: u64,
    pub irequires: u64,
    /// Operations without dependencies.
    pub roots: u64,
    /// CPUs and NICs per rank.
    pub cpus: usize,
    pub nics: usize,
    pub bytes: f64,
    pub bytes_min: Option<u64>,
    pub bytes_max: Option<u64>,
    /// Messages by size, ascending; sizes without messages are omitted.
    pub sizes: Vec<SizeClass>,
    /// Receives from any source or with any tag, and sends with any tag.
    pub wildcards: u64,
    pub calc_ns: f64,
    /// The rank with the most computation.
    pub busiest_rank: Option<u32>,
    pub busiest_calc_ns: Option<f64>,
    /// The rank with the most operations.
    pub longest_rank: Option<u32>,
    pub longest_operations: Option<u64>,
    /// Ranks whose operations have only one possible order.
    pub ordered_ranks: u32,
    /// Messages whose receive is known in advance.
    pub paired_messages: u64,
    pub memory_bytes: u64,
    /// Speed of reading; null for a pipe.
    pub read_mb_per_s: Option<f64>,
}

/// Messages of 0 bytes, or from a power of two up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    pub from_bytes: u64,
    pub messages: u64,
}

pub fn statistics(path: &Path, unit: CalcUnit) -> Result<Statistics> {
    let begin = Instant::now();
    let schedule = read(path, unit)?;
    let took = begin.elapsed().as_secs_f64();
    // The length of a pipe is unknown.
    let length = std::fs::metadata(path).ok().filter(|file| file.is_file());
    let stats = Stats::of(&schedule);
    let ns = |ps: i128| ps as f64 / 1e3;
    let size = |(power, &messages): (u32, &u64)| SizeClass {
        from_bytes: if power == 0 { 0 } else { 1 << (power - 1) },
        messages,
    };
    Ok(Statistics {
        ranks: stats.ranks,
        operations: stats.operations,
        sends: stats.sends,
        recvs: stats.recvs,
        calcs: stats.calcs,
        requires: stats.requires,
        irequires: stats.irequires,
        roots: stats.roots,
        cpus: stats.cpus,
        nics: stats.nics,
        bytes: stats.bytes as f64,
        bytes_min: stats.sizes.map(|(least, _)| least),
        bytes_max: stats.sizes.map(|(_, most)| most),
        sizes: (0..).zip(&stats.by_size).map(size).filter(|size| size.messages > 0).collect(),
        wildcards: stats.wildcards,
        calc_ns: ns(stats.calc_ps),
        busiest_rank: stats.busiest.map(|(rank, _)| rank),
        busiest_calc_ns: stats.busiest.map(|(_, ps)| ns(ps)),
        longest_rank: stats.longest.map(|(rank, _)| rank),
        longest_operations: stats.longest.map(|(_, count)| count),
        ordered_ranks: stats.ordered,
        paired_messages: stats.paired,
        memory_bytes: stats.memory,
        read_mb_per_s: length.map(|file| file.len() as f64 / 1e6 / took.max(1e-9)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_time_that_is_not_nothing() {
        assert_eq!(calc_unit("1ns"), Ok(CalcUnit::default()));
        assert_eq!(calc_unit("10ps").map(CalcUnit::ps), Ok(10));
        for bad in ["0", "0ns", "-1ns", "ns", "10", "7200s", "0.5ps", "1.4ps"] {
            assert!(calc_unit(bad).is_err(), "{bad}");
        }
    }
    #[test]
    fn sends_that_goal_cannot_express_are_counted() {
        use simulate::{event::ScheduleBuilder, loggops::Sending};

        let written = |how: &[Sending]| {
            let mut builder = ScheduleBuilder::new(2);
            builder.begin_rank();
            for sending in how {
                builder.send_as(*sending, 8, 1, 0, 0, 0);
            }
            builder.begin_rank();
            not_written(&builder.finish().unwrap())
        };
        assert!(written(&[Sending::BySize]).is_empty());
        assert_eq!(
            written(&[Sending::Buffered, Sending::BySize, Sending::Synchronous]),
            ["2 synchronous or buffered sends written as standard: GOAL has no other sends"]
        );
    }
}
