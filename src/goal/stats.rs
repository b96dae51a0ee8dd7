//! `detour goal stats`: statistics of a schedule.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use simulate::goal::{CalcUnit, Stats};

use super::file;
use crate::report as layout;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let begin = Instant::now();
    let schedule = file::read(&options.file, options.calc_unit)?;
    let took = begin.elapsed().as_secs_f64();
    // The length of a pipe is unknown.
    let length = std::fs::metadata(&options.file).ok().filter(|file| file.is_file());
    let mb_per_s = length.map(|file| file.len() as f64 / 1e6 / took.max(1e-9));
    let stats = Stats::of(&schedule);
    let mut out = std::io::stdout().lock();
    let ns = |ps: i128| ps as f64 / 1e3;
    if options.json {
        let sizes: Vec<_> = (0..)
            .zip(&stats.by_size)
            .filter(|(_, messages)| **messages > 0)
            .map(|(power, messages)| {
                let from = if power == 0 { 0 } else { 1u64 << (power - 1) };
                json!({ "from_bytes": from, "messages": messages })
            })
            .collect();
        let value = json!({
            "ranks": stats.ranks,
            "operations": stats.operations,
            "sends": stats.sends,
            "recvs": stats.recvs,
            "calcs": stats.calcs,
            "requires": stats.requires,
            "irequires": stats.irequires,
            "roots": stats.roots,
            "cpus": stats.cpus,
            "nics": stats.nics,
            "bytes": stats.bytes as f64,
            "bytes_min": stats.sizes.map(|(least, _)| least),
            "bytes_max": stats.sizes.map(|(_, most)| most),
            "sizes": sizes,
            "wildcards": stats.wildcards,
            "calc_ns": ns(stats.calc_ps),
            "busiest_rank": stats.busiest.map(|(rank, _)| rank),
            "busiest_calc_ns": stats.busiest.map(|(_, ps)| ns(ps)),
            "longest_rank": stats.longest.map(|(rank, _)| rank),
            "longest_operations": stats.longest.map(|(_, count)| count),
            "ordered_ranks": stats.ordered,
            "paired_messages": stats.paired,
            "memory_bytes": stats.memory,
            "read_mb_per_s": mb_per_s,
        });
        writeln!(out, "{value}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let figures = report::ScheduleStats {
        ranks: u64::from(stats.ranks),
        sends: stats.sends,
        recvs: stats.recvs,
        calcs: stats.calcs,
        requires: stats.requires,
        irequires: stats.irequires,
        cpus: stats.cpus as u64,
        nics: stats.nics as u64,
        bytes: stats.bytes as f64,
        by_size: stats.by_size,
        wildcards: stats.wildcards,
        calc_ns: ns(stats.calc_ps),
        busiest: stats.busiest.map(|(rank, ps)| (rank, ns(ps))),
        longest: stats.longest,
        ordered: u64::from(stats.ordered),
        paired: stats.paired,
        memory: stats.memory,
    };
    write!(out, "{}", report::schedule_stats(&figures, layout::layout(true)))?;
    Ok(ExitCode::SUCCESS)
}
