//! `detour import`: summarises another tool's noise file and converts it to a trace.

use std::process::ExitCode;

use anyhow::Result;
use study::recording::import::{self, Imported};

use crate::{cli, output};

pub fn run(options: &cli::Import) -> Result<ExitCode> {
    let noise = import::read(&options.file, options.lenient)?;
    output::remark(noise.warning().as_slice());
    if let Some(output) = &options.output {
        noise.write(output)?;
    }
    // A summary on stdout would corrupt the trace.
    if options.output.as_deref().is_some_and(trace::is_stdout) {
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&noise.summary, options.json, |imported, _| text(imported, options))?;
    Ok(ExitCode::SUCCESS)
}

fn text(imported: &Imported, options: &cli::Import) -> String {
    let mut text = format!(
        "{}: {}\n",
        study::recording::open::split_run(&options.file).0.display(),
        imported.format
    );
    for (index, run) in imported.runs.iter().enumerate() {
        let known = |ns: Option<f64>| ns.map_or("unknown".to_owned(), |ns| format!("{ns:.1} ns"));
        let (t_min, threshold) = (known(run.t_min_ns), known(run.threshold_ns));
        text += &format!(
            "run {}: {} detours in {:.3} s, {:.4} % of the time, t_min {t_min}, threshold {threshold}\n",
            index + 1,
            run.detours,
            run.span_s,
            run.noise_pct,
        );
        for remark in &run.remarks {
            text += &format!("  {}\n", report::message_safe(remark));
        }
    }
    if let Some(output) = &options.output {
        text += &format!("wrote {}\n", output.display());
    }
    text
}
