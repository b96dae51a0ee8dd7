//! `detour goal gen`: writes a job of collectives, or a skeleton of a program, as a GOAL schedule, for any
//! simulator.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use simulate::{
    event::Schedule,
    goal::CalcUnit,
    graph::{self, GraphError},
    loggops::Params,
};
use study::jobs::{
    goal,
    skeleton::{Name, parse_pattern, parse_preset},
};

use super::FormName;
use crate::{
    options::{job, skeleton},
    units,
};

/// Options of collectives that a skeleton does not have.
const COLLECTIVES: [&str; 8] =
    ["op", "algorithm", "map", "reduction", "arity", "segment", "graph", "sizes"];

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Skeleton of a program, a model of its communication: wavefront:PxQ, halo:PxQxR,
    /// multigrid:PxQxR or ocean:PxQ; changes the defaults of --iterations, --compute (per
    /// iteration) and --size
    #[arg(long, value_parser = parse_pattern, conflicts_with_all = COLLECTIVES)]
    pattern: Option<Name>,
    /// Model of an application of the 2010 noise study: sweep3d, amg2006 or pop
    #[arg(
        long, value_name = "NAME", value_parser = parse_preset, conflicts_with = "pattern",
        conflicts_with_all = COLLECTIVES
    )]
    preset: Option<Name>,
    #[command(flatten)]
    job: job::Options,
    /// Rank count: 1000, 64Ki, 2^20; for a skeleton, a multiple of its grid, which is replicated
    /// [default: its grid]
    #[arg(
        long, value_parser = units::rank_count, required_unless_present_any = ["pattern", "preset"]
    )]
    ranks: Option<u64>,
    /// Vector or block size in bytes, or bytes of a message between neighbours [default: 1;
    /// skeletons have their own]
    #[arg(long, value_parser = units::size)]
    size: Option<u64>,
    #[command(flatten)]
    skeleton: skeleton::Options,
    /// Time unit of calcs
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    to: FormName,
    /// Output file [default: stdout]
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let schedule = match options.pattern.or(options.preset) {
        Some(name) => options.skeleton(name)?,
        None => options.collectives()?,
    };
    goal::write(options.output.as_deref(), options.to.into(), &schedule, options.calc_unit)?;
    options.output.iter().for_each(|path| crate::output::say_written(path));
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn collectives(&self) -> Result<Schedule> {
        if let Some(option) = self.skeleton.given() {
            bail!("{option} requires a skeleton: add --pattern or --preset, or omit it");
        }
        let ranks = self.ranks.filter(|&ranks| ranks > 0);
        let ranks = ranks.context("a schedule needs at least 1 rank")?;
        // A schedule does not depend on the network.
        let request = self.job.request()?;
        let job = request.job(ranks, self.size.unwrap_or(1), Params::FREE)?;
        graph::schedule(&job, request.graph).map_err(|error| match error {
            // The advice for simulations, which do not always need a schedule, does not help here.
            GraphError::TooLarge { operations } => {
                anyhow!("too many operations for a schedule: {operations}; use fewer --ranks or --iterations")
            }
            error => error.into(),
        })
    }

    fn skeleton(&self, name: Name) -> Result<Schedule> {
        let job::Options { iterations, compute, .. } = self.job;
        let model = self.skeleton.request(name, iterations, compute, self.size);
        let program = model.program(self.ranks)?;
        let schedule = program.schedule()?;
        tell!(
            "detour: a model of a program, not a trace of one: {}; {} ranks, {} messages",
            model.words()?,
            program.ranks(),
            program.messages()
        );
        Ok(schedule)
    }
}
