//! `detour goal convert`: text to binary and back, with calcs in another unit if need be.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use simulate::goal::{CalcUnit, Form};

use super::file::{self, FormName};
use crate::results;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// A GOAL schedule, text or binary; - is standard input
    file: PathBuf,
    /// The form to write [default: the one that FILE is not in]
    #[arg(long, value_enum)]
    to: Option<FormName>,
    /// File to write [default: standard output]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// What a calc in FILE counts
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// What a calc is to count [default: as in FILE]
    #[arg(long, value_name = "TIME", value_parser = file::calc_unit)]
    to_unit: Option<CalcUnit>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let from = options.calc_unit;
    // Where nothing is rescaled, the smallest unit leaves every number as it is.
    let smallest = CalcUnit::from_ps(1).context("1 ps is a unit")?;
    let (from, to) = match options.to_unit {
        Some(to) if to != from => (from, to),
        _ => (smallest, smallest),
    };
    if let Some(output) = &options.output {
        results::not_over(std::slice::from_ref(&options.file), output)?;
    }
    let (schedule, form) = file::read_as_it_is(&options.file, from)?;
    let form = match (options.to, form) {
        (Some(to), _) => to.form(),
        (None, Form::Text) => Form::Binary,
        (None, Form::Binary) => Form::Text,
    };
    file::write(options.output.as_deref(), form, &schedule, to)?;
    Ok(ExitCode::SUCCESS)
}
