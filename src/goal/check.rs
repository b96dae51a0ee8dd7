//! `detour goal check`: whether a schedule is well-formed and completes.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use simulate::{goal::CalcUnit, loggops::Params};
use study::jobs::goal::{self, Checked};

use crate::{
    options::{network, work},
    output,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited)
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
    let Options { file, calc_unit, net, unbuffered, .. } = options;
    let work = work::Options::usual().unwatched();
    let checked = goal::check(file, *calc_unit, net, *unbuffered, &work)?;
    if options.json {
        output::put(&(report::json_line(&checked)? + "\n"))?;
    }
    if let Some(error) = checked.error {
        bail!(error);
    }
    if !options.json {
        output::put(&text(&checked, options))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(checked: &Checked, options: &Options) -> String {
    let mut text = format!(
        "{}: {} ranks, {} operations, {} messages: valid, no deadlock.\n",
        options.file.display(),
        checked.ranks.unwrap_or(0),
        checked.operations.unwrap_or(0),
        checked.messages.unwrap_or(0)
    );
    if let Some(error) = &checked.needs_buffers {
        text += &format!("It relies on message buffering. Without buffering: {error}.\n");
    }
    text
}
