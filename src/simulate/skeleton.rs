//! `detour simulate skeleton`: a model of a program under noise, as a sweep over rank counts.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use simulate::loggops::Params;
use study::{
    jobs::skeleton::{Name, Request, Skeletons, parse_name, simulate},
    run::{point::Series, work::Work},
};

use crate::{
    Verbosity,
    options::{figures, network, skeleton, sweep, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Pattern and grid (wavefront:PxQ, halo:PxQxR, multigrid:PxQxR, ocean:PxQ), or a model of an
    /// application of the 2010 noise study (sweep3d, amg2006, pop)
    #[arg(value_name = "SKELETON", value_parser = parse_name)]
    name: Name,
    /// Rank counts, e.g. 1000,5000: multiples of the grid, whose copies share only collectives
    /// [default: the grid]
    #[arg(long, value_name = "LIST", value_parser = units::ranks)]
    ranks: Option<std::vec::Vec<u64>>,
    /// Runs per point
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Number of iterations [default: 10; presets have their own]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Compute time of a rank per iteration [default: 1ms; presets have their own]
    #[arg(long, value_name = "TIME", value_parser = units::picoseconds)]
    compute: Option<i64>,
    /// Bytes of a message between neighbours [default: 1KiB; presets have their own]
    #[arg(long, value_parser = units::size)]
    size: Option<u64>,
    #[command(flatten)]
    skeleton: skeleton::Options,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited); one series per network of a list ('cnl|xt4')
    #[arg(long, value_delimiter = '|', default_value = "xt4", value_parser = network::parse)]
    net: Vec<Params>,
    #[command(flatten)]
    sweep: sweep::Options,
    /// Break down the critical path, and attribute its noise to sources; needs memory for all iterations
    #[arg(long)]
    blame: bool,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    figures: figures::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let figures = &options.figures;
    output::check([&figures.svg, &figures.html])?;
    figures.check(options.json)?;
    let request = options.request();
    let rows = !options.json && !figures.to_stdout();
    let result = options.work.run(verbosity.quiet, |work| match rows {
        true => print_rows(&request, work),
        false => simulate(&request, work, &mut |_| Ok(())),
    })?;
    figures.write(|| report::skeleton_pictures(&result))?;
    match rows {
        true => output::page(&report::skeleton_findings(&result, output::layout(false))),
        false if options.json => output::print(&result, true, report::skeleton),
        false => Ok(()),
    }
}

/// Prints each row of the table as soon as it is simulated.
fn print_rows(request: &Request, work: &Work<'_>) -> Result<Skeletons> {
    let series: Vec<String> = request.series()?.iter().map(Series::label).collect();
    let table = report::SweepRows::new(&series, output::layout(false));
    let mut header = Some(format!("Model of {}\n{}\n", request.model.words()?, table.header()));
    simulate(request, work, &mut |point| {
        let mut printed = Ok(());
        let text = header.take().unwrap_or_default() + &format!("{}\n", table.row(point));
        work.watch.aside(&mut || printed = std::io::stdout().write_all(text.as_bytes()));
        Ok(printed?)
    })
}

impl Options {
    fn request(&self) -> Request {
        Request {
            model: self.skeleton.request(self.name, self.iterations, self.compute, self.size),
            ranks: self.ranks.clone().unwrap_or_default(),
            runs: self.runs,
            nets: self.net.clone(),
            net_local: self.sweep.net_local,
            rendezvous: self.sweep.rendezvous.into(),
            latency: self.sweep.latency.request(),
            net_scales: self.sweep.net_scale.clone(),
            with_coscheduled: self.sweep.with_coscheduled,
            blame: self.blame,
            noise: self.sweep.noise(),
        }
    }
}
