//! `detour dist`: distributions of any samples, side by side.

use std::{io::Write, path::PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use study::dist::{Bins, Distributions, Request, Unit, distributions};

use crate::{options::work, output, units};

#[derive(Args)]
pub struct Options {
    /// Samples: numbers (one per line), latencies (JSON, netgauge), histograms (.hlog, .hgrm),
    /// recordings (lengths of detours) or --times of simulations; - is standard input. The first is
    /// compared with all others
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// List the counts of bins in JSON, and draw them: hdr (three digits), fixed:WIDTH, or log:SIZE for the
    /// logarithmic widths of Confidence; e.g. fixed:50ns or log:50ns
    #[arg(long, value_parser = bins)]
    bins: Option<Bins>,
    /// Unit of numbers in text
    #[arg(long, value_enum, default_value_t)]
    unit: UnitName,
    /// One distribution for each source of a recording
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Only this source of recordings: a name, unit or class; may be repeated
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// Show every row of every table, at full width
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    work: work::Options,
    /// Write an HTML page with figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Duration of each interruption by the source
    Source,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum UnitName {
    Ps,
    Ns,
    #[default]
    Us,
    Ms,
    S,
}

impl From<UnitName> for Unit {
    fn from(name: UnitName) -> Unit {
        match name {
            UnitName::Ps => Unit::Picoseconds,
            UnitName::Ns => Unit::Nanoseconds,
            UnitName::Us => Unit::Microseconds,
            UnitName::Ms => Unit::Milliseconds,
            UnitName::S => Unit::Seconds,
        }
    }
}

/// `hdr`, `fixed:50ns`, `log:50ns`.
fn bins(text: &str) -> Result<Bins, String> {
    let width = |text: &str| match units::picoseconds(text)? {
        0 => Err("the width of a bin cannot be 0".to_owned()),
        ps => Ok(ps),
    };
    match text.split_once(':') {
        None if text == "hdr" => Ok(Bins::Hdr),
        Some(("fixed", text)) => Ok(Bins::Fixed(width(text)?)),
        Some(("log", text)) => Ok(Bins::Log(width(text)?)),
        _ => Err(format!("unknown bins '{text}' (expected hdr, fixed:WIDTH or log:SIZE)")),
    }
}

/// The result, and what a person would say about it.
#[derive(Serialize)]
struct Said {
    #[serde(flatten)]
    result: Distributions,
    /// One sentence per comparison, or about the only distribution.
    verdict: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    output::check([&options.html])?;
    if options.json && options.html.as_ref().is_some_and(|path| trace::is_stdout(path)) {
        bail!("both the page and --json would go to stdout: specify a file with --html");
    }
    let request = Request {
        files: options.files.clone(),
        unit: options.unit.into(),
        bins: options.bins,
        by_source: options.by.is_some(),
        sources: options.source.clone(),
    };
    let result = distributions(&request, &options.work.unwatched())?;
    if let Some(path) = &options.html {
        let page = report::dist_html(&result, &request, path)?;
        output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
        // As `detour report`: the page is the report.
        if !options.json {
            return Ok(());
        }
    }
    let said = Said { verdict: report::dist_verdict(&result), result };
    output::print(&said, options.json, |said, layout| {
        report::dist(&said.result, report::Options { all: options.all, ..layout })
    })
}
