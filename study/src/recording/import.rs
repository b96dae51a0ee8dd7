//! Another tool's noise file: a summary of its runs, and its conversion to a trace.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use formats::import::{self, ImportOptions, ImportedRun};
use serde::Serialize;

use crate::{files, recording::open};

/// What a noise file contains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imported {
    pub format: String,
    pub runs: Vec<Run>,
}

/// One run of a noise file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    pub detours: u64,
    /// Null if the file does not contain it.
    pub t_min_ns: Option<f64>,
    pub threshold_ns: Option<f64>,
    pub clock_step_ns: Option<f64>,
    pub span_s: f64,
    /// Share of the time that detours took.
    pub noise_pct: f64,
    /// Further values in the file.
    pub header: BTreeMap<String, String>,
    /// Lines that could not be parsed.
    pub skipped_lines: u64,
    pub remarks: Vec<String>,
}

impl Run {
    fn of(run: &ImportedRun) -> Run {
        Run {
            detours: run.count(),
            t_min_ns: run.t_min_ns,
            threshold_ns: run.threshold_ns,
            clock_step_ns: run.clock_step_ns,
            span_s: run.span_ns / 1e9,
            noise_pct: run.noise_pct(),
            header: run.header.clone(),
            skipped_lines: run.skipped_lines,
            remarks: run.remarks.clone(),
        }
    }
}

/// A noise file that was read.
pub struct Noise {
    pub summary: Imported,
    file: PathBuf,
    runs: Vec<ImportedRun>,
}

/// Reads a file; `FILE#2` is its second run.
pub fn read(path: &Path, lenient: bool) -> Result<Noise> {
    let (file, number) = open::split_run(path);
    let options = ImportOptions { lenient, ..ImportOptions::default() };
    let mut imported = import::import_file(&file, &options)?;
    if let Some(number) = number {
        imported.runs = vec![open::pick(&imported.runs, number, &file.display().to_string())?];
    }
    let runs = imported.runs.iter().map(Run::of).collect();
    let summary = Imported { format: imported.format.to_string(), runs };
    Ok(Noise { summary, file, runs: imported.runs })
}

impl Noise {
    /// About lines that were skipped.
    pub fn warning(&self) -> Option<String> {
        let skipped: u64 = self.runs.iter().map(|run| run.skipped_lines).sum();
        let lines = skipped + self.runs.iter().map(ImportedRun::rows).sum::<u64>();
        (skipped > 0).then(|| {
            format!("warning: skipped {skipped} of {lines} lines that could not be parsed")
        })
    }

    /// Writes it as a trace.
    pub fn write(&self, output: &Path) -> Result<()> {
        files::not_over(std::slice::from_ref(&self.file), output)?;
        let _reader = trace::wait_for_reader(output, &|| false)?;
        let mut file = trace::create_trace(output)?;
        let written = open::write(&self.runs, &mut file).and_then(|()| Ok(file.commit()?));
        written.with_context(|| format!("cannot write {}", output.display()))
    }
}
