//! `detour import`: summarises another tool's noise file and converts it to a trace.

use std::{io::Write, process::ExitCode};

use anyhow::{Context, Result};
use serde_json::json;
use trace::import;

use crate::{cli, open, results};

pub fn run(options: &cli::Import) -> Result<ExitCode> {
    let (file, number) = open::split_run(&options.file);
    let import_options =
        import::ImportOptions { lenient: options.lenient, ..import::ImportOptions::default() };
    let mut imported = import::import_file(&file, &import_options)?;
    if let Some(number) = number {
        imported.runs = vec![open::pick(&imported.runs, number, &file.display().to_string())?];
    }
    let skipped: u64 = imported.runs.iter().map(|run| run.skipped_lines).sum();
    if skipped > 0 {
        let lines = skipped + imported.runs.iter().map(import::ImportedRun::rows).sum::<u64>();
        tell!("detour: warning: skipped {skipped} of {lines} lines that could not be parsed");
    }
    if let Some(output) = &options.output {
        results::not_over(std::slice::from_ref(&file), output)?;
        let _reader = trace::wait_for_reader(output, &|| false)?;
        let mut file = trace::create_trace(output)?;
        let written = open::write(&imported.runs, &mut file).and_then(|()| Ok(file.commit()?));
        written.with_context(|| format!("cannot write {}", output.display()))?;
        // A summary on stdout would corrupt the trace.
        if trace::is_stdout(output) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        let runs: Vec<_> = imported
            .runs
            .iter()
            .map(|run| {
                json!({
                    "detours": run.count(),
                    "t_min_ns": run.t_min_ns,
                    "threshold_ns": run.threshold_ns,
                    "clock_step_ns": run.clock_step_ns,
                    "span_s": run.span_ns / 1e9,
                    "noise_pct": run.noise_pct(),
                    "header": run.header,
                    "skipped_lines": run.skipped_lines,
                    "remarks": run.remarks,
                })
            })
            .collect();
        let value = json!({ "format": imported.format.to_string(), "runs": runs });
        writeln!(out, "{}", report::json_safe(&format!("{value:#}")))?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{}: {}", file.display(), imported.format)?;
    for (index, run) in imported.runs.iter().enumerate() {
        let known = |ns: Option<f64>| ns.map_or("unknown".to_owned(), |ns| format!("{ns:.1} ns"));
        let (t_min, threshold) = (known(run.t_min_ns), known(run.threshold_ns));
        writeln!(
            out,
            "run {}: {} detours in {:.3} s, {:.4} % of the time, t_min {t_min}, threshold {threshold}",
            index + 1,
            run.count(),
            run.span_ns / 1e9,
            run.noise_pct(),
        )?;
        for remark in &run.remarks {
            writeln!(out, "  {}", report::message_safe(remark))?;
        }
    }
    if let Some(output) = &options.output {
        writeln!(out, "wrote {}", output.display())?;
    }
    Ok(ExitCode::SUCCESS)
}
