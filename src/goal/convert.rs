//! `detour goal convert`: converts between text and binary, optionally changing the unit of calcs.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use simulate::goal::{CalcUnit, Form};
use study::{files, jobs::goal};

use super::FormName;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Output format [default: the opposite of FILE's]
    #[arg(long, value_enum)]
    to: Option<FormName>,
    /// Output file [default: stdout]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Time unit of calcs in the output [default: as in FILE]
    #[arg(long, value_name = "TIME", value_parser = goal::calc_unit)]
    to_unit: Option<CalcUnit>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let from = options.calc_unit;
    // Without rescaling, the smallest unit keeps every number unchanged.
    let smallest = CalcUnit::from_ps(1).context("1 ps is a unit")?;
    let (from, to) = match options.to_unit {
        Some(to) if to != from => (from, to),
        _ => (smallest, smallest),
    };
    if let Some(output) = &options.output {
        files::not_over(std::slice::from_ref(&options.file), output)?;
    }
    let (schedule, form) = goal::read_as_it_is(&options.file, from)?;
    let form = match (options.to, form) {
        (Some(to), _) => to.into(),
        (None, Form::Text) => Form::Binary,
        (None, Form::Binary) => Form::Text,
    };
    goal::write(options.output.as_deref(), form, &schedule, to)?;
    options.output.iter().for_each(|path| crate::output::say_written(path));
    Ok(ExitCode::SUCCESS)
}
