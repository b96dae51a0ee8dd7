//! `detour goal stats`: statistics of a schedule.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use simulate::goal::CalcUnit;
use study::jobs::goal;

use crate::output;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let statistics = goal::statistics(&options.file, options.calc_unit)?;
    let mut out = std::io::stdout().lock();
    match options.json {
        true => writeln!(out, "{}", report::json_line(&statistics)?)?,
        false => write!(out, "{}", report::schedule_stats(&statistics, output::layout(false)))?,
    }
    Ok(ExitCode::SUCCESS)
}
