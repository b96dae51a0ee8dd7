//! `detour diff`: compares two recordings source by source, and what their noise costs a job.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use analysis::{Contents, Part, RateCounter, Rates};
use anyhow::{Context, Result, bail};
use clap::Args;
use report::{Projected, Projection};
use serde_json::json;
use simulate::{
    noise::{Noise, Offsets},
    stats::Sample,
    sweep::SweepError,
    whatif::Node,
};

use crate::{
    Verbosity,
    open::{self, AnyReader},
    report as layout, results,
    simulate::{
        recorded::Recorded,
        work,
        workload::{self, Workload},
    },
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Recording before the change
    before: PathBuf,
    /// Recording after the change
    after: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Simulated runs of the job per recording
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    runs: u64,
    /// Also show sources that did not change
    #[arg(short, long)]
    all: bool,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.html])?;
    let (before, after) = (open::open(&options.before)?, open::open(&options.after)?);
    let scope = analysis::scope(&Contents::of(&before, None), &Contents::of(&after, None));
    let scope =
        scope.with_context(|| format!("cannot compare {} and {}", before.name(), after.name()))?;
    let rates = (rates(&before, &scope.before)?, rates(&after, &scope.after)?);
    // Zero watched time does not mean zero noise.
    for (reader, rates) in [(&before, &rates.0), (&after, &rates.1)] {
        if rates.watched_s == 0.0 {
            bail!("{}", open::watched_nothing(reader));
        }
    }
    let comparison = analysis::compare(&rates.0, &rates.1, scope, options.work.seed);
    let workload = options.workload.workload()?;
    let progress =
        work::Progress::new(workload.messages().saturating_mul(2 * options.runs), verbosity.quiet)?;
    progress.now(format!("{} ranks", workload.ranks()));
    let scope = &comparison.compared;
    let sides = [(&before, &scope.before), (&after, &scope.after)];
    let projection = options.project(&workload, sides, &progress);
    progress.finish();
    let projection = match projection {
        Ok(projection) => projection,
        Err(error) if error.downcast_ref() == Some(&SweepError::Stopped) => {
            return Ok(ExitCode::from(130));
        }
        Err(error) => return Err(error),
    };
    let projected = projection.as_ref().map_err(String::as_str);
    if let Some(path) = &options.html {
        let page = report::diff_html(&comparison, projected);
        results::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        let mut value = serde_json::to_value(&comparison)?;
        value["projected"] = json!(projected.ok());
        value["not_projected"] = json!(projected.err());
        value["verdict"] = json!(report::diff_headline(&comparison));
        writeln!(out, "{}", report::json_value_text(&value)?)?;
    } else {
        let layout = layout::layout(options.all);
        write!(out, "{}", report::diff(&comparison, projected, layout))?;
        if let (Some(path), false) = (&options.html, verbosity.quiet) {
            tell!("wrote {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the events of a part of a recording in blocks of time.
fn rates(reader: &AnyReader, part: &Part) -> Result<Rates> {
    let contents = Contents::of(reader, None);
    let mut counter = RateCounter::new(&contents, reader.block_infos(), part);
    for block in reader.blocks() {
        let block = block.with_context(|| format!("cannot read {}", reader.name()))?;
        counter.add(&block, reader.sources());
    }
    let not_whole = open::not_whole(reader);
    Ok(counter.finish(&Contents { truncated: not_whole.as_deref(), ..contents }))
}

impl Options {
    /// What the noise of both recordings costs the job, or why that cannot be simulated; the recordings are
    /// still compared.
    fn project(
        &self,
        workload: &Workload,
        [before, after]: [(&AnyReader, &Part); 2],
        progress: &work::Progress,
    ) -> Result<Result<Projection, String>> {
        let noise = |side| self.noise(workload, side).map_err(|error| crate::in_words(&error));
        let ((noise_before, left_before), (noise_after, left_after)) =
            match (noise(before), noise(after)) {
                (Ok(before), Ok(after)) => (before, after),
                (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
            };
        let advance = |messages| progress.advance(messages);
        let plan = self.work.plan(self.runs, &advance);
        let noiseless = workload.noiseless()? as f64;
        let side = |noise: &Noise, path: &Path| -> Result<Result<Projected, String>> {
            let times = match workload.times(noise, &plan) {
                Err(error) if error != SweepError::Stopped => {
                    let what = format!("cannot simulate the noise of {}", path.display());
                    return Ok(Err(crate::in_words(&anyhow::Error::new(error).context(what))));
                }
                times => times?,
            };
            let median = Sample::new(times)?.estimate(0.5);
            let us = |ps: f64| ps / 1e6;
            let slowdown = if noiseless > 0.0 { median.value / noiseless } else { 1.0 };
            Ok(Ok(Projected {
                median_us: us(median.value),
                median_ci95_us: [us(median.low), us(median.high)],
                slowdown_median: slowdown,
            }))
        };
        let (before, after) =
            match (side(&noise_before, &self.before)?, side(&noise_after, &self.after)?) {
                (Ok(before), Ok(after)) => (before, after),
                (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
            };
        Ok(Ok(Projection {
            job: workload.words.clone(),
            net: workload.net().to_owned(),
            ranks: workload.ranks(),
            runs: self.runs,
            seed: self.work.seed,
            noiseless_us: noiseless / 1e6,
            before,
            after,
            remarks: left_before.into_iter().chain(left_after).collect(),
        }))
    }

    /// The noise of a recording, and a remark about omitted noise.
    fn noise(
        &self,
        workload: &Workload,
        (reader, part): (&AnyReader, &Part),
    ) -> Result<(Noise, Option<String>)> {
        if reader.manifest().mode == trace::Mode::KernelOnly {
            bail!("recordings without detours (--no-probe) cannot be simulated");
        }
        let recorded = Recorded::new(reader);
        let lanes = recorded.lanes_of(reader, part)?;
        if lanes.is_empty() {
            bail!("{}", open::watched_nothing(reader));
        }
        let lanes: Vec<_> = lanes.into_iter().map(|(_, lane)| lane).collect();
        let node = Node {
            lanes: &lanes,
            model: workload.model,
            offsets: Offsets::Random,
            repeat: self.workload.repeat_trace,
        };
        let noise = node.without(&[]);
        let noise = noise.with_context(|| format!("cannot read noise from {}", reader.name()))?;
        let left_out = recorded.left_out().map(|words| format!("{}: {words}", reader.name()));
        Ok((noise, left_out))
    }
}
