//! `detour goal check`: whether a schedule is well-formed and completes. Errors name the rank, operation
//! and label, and are also available as JSON.
//!
//! A schedule may complete only because messages are buffered: it then runs on this network but deadlocks
//! on another, so this is reported.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use simulate::{
    event::{self, EventError, Rules, Schedule},
    goal::{CalcUnit, GoalError},
    loggops::Params,
    noise::Noise,
};

use super::file;
use crate::simulate::{network, work};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// Network name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Also fail if the schedule completes only because messages are buffered
    #[arg(long)]
    unbuffered: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let read = file::read(&options.file, options.calc_unit);
    if options.json
        && let Err(error) = &read
        && is_about_schedule(error)
    {
        write_json(None, None, Some(error))?;
    }
    let schedule = read?;
    let named = || options.file.display().to_string();
    work::fits(&schedule, Rules::default())?;
    let ended = end(&schedule, &options.net).with_context(named);
    // A schedule that deadlocks with buffering also deadlocks without it.
    let unbuffered = match ended {
        Ok(()) => end(&schedule, &Params { eager_limit: 0, ..options.net }).err(),
        Err(_) => None,
    };
    let valid = ended.and_then(|()| match &unbuffered {
        Some(error) if options.unbuffered => {
            bail!("{}: without buffering: {error}", named())
        }
        _ => Ok(()),
    });
    if options.json {
        write_json(Some(&schedule), unbuffered.as_ref(), valid.as_ref().err())?;
        return valid.map(|()| ExitCode::SUCCESS);
    }
    valid?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: {} ranks, {} operations, {} messages: valid, no deadlock.",
        options.file.display(),
        schedule.ranks(),
        schedule.operations(),
        schedule.messages()
    )?;
    if let Some(error) = unbuffered {
        writeln!(out, "It relies on message buffering. Without buffering: {error}.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An I/O error says nothing about the schedule itself.
fn is_about_schedule(error: &anyhow::Error) -> bool {
    error.downcast_ref::<GoalError>().is_some_and(|error| !matches!(error, GoalError::Io(_)))
}

/// The same keys whether it is valid or not; unknown values are null.
fn write_json(
    schedule: Option<&Schedule>,
    unbuffered: Option<&EventError>,
    error: Option<&anyhow::Error>,
) -> Result<()> {
    let value = json!({
        "valid": error.is_none(),
        "error": error.map(crate::in_words),
        "ranks": schedule.map(Schedule::ranks),
        "operations": schedule.map(Schedule::operations),
        "messages": schedule.map(Schedule::messages),
        "needs_buffers": unbuffered.map(ToString::to_string),
    });
    writeln!(std::io::stdout().lock(), "{}", report::json_safe(&value.to_string()))?;
    Ok(())
}

fn end(schedule: &Schedule, params: &Params) -> Result<(), EventError> {
    let none = Noise::none();
    event::run(schedule, params, &event::Options::default(), &none.run(0, 0)).map(|_| ())
}
