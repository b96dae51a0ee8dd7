//! `detour goal check`: whether a schedule can be read and comes to an end. What is wrong is an error
//! that names rank, operation and label.
//!
//! A schedule may end only because messages are buffered: then it is right on this network and a
//! deadlock on another one, which is worth knowing.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use simulate::{
    event::{self, EventError, Rules, Schedule},
    goal::CalcUnit,
    loggops::Params,
    noise::Noise,
};

use super::file;
use crate::simulate::{network, work};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// A GOAL schedule, text or binary; - is standard input
    file: PathBuf,
    /// What a calc in FILE counts
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// The network to run it on: by name, or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Also fail if it ends only because messages are buffered
    #[arg(long)]
    unbuffered: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let schedule = file::read(&options.file, options.calc_unit)?;
    let named = || options.file.display().to_string();
    work::fits(&schedule, Rules::default())?;
    end(&schedule, &options.net).with_context(named)?;
    let unbuffered = end(&schedule, &Params { eager_limit: 0, ..options.net }).err();
    if let (true, Some(error)) = (options.unbuffered, &unbuffered) {
        bail!("{}: without buffers there is a {error}", named());
    }
    let mut out = std::io::stdout().lock();
    let (operations, messages) = (schedule.operations(), schedule.messages());
    if options.json {
        let value = json!({
            "valid": true,
            "ranks": schedule.ranks(),
            "operations": operations,
            "messages": messages,
            "needs_buffers": unbuffered.as_ref().map(ToString::to_string),
        });
        writeln!(out, "{value}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "{}: {} ranks, {operations} operations, {messages} messages: valid, and all of it ends.",
        options.file.display(),
        schedule.ranks()
    )?;
    if let Some(error) = unbuffered {
        writeln!(out, "But only because messages are buffered; if none were, {error}.")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn end(schedule: &Schedule, params: &Params) -> Result<(), EventError> {
    let none = Noise::none();
    event::run(schedule, params, &event::Options::default(), &none.run(0, 0)).map(|_| ())
}
