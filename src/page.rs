//! The HTML report: reads the recording a second time for the figures, simulates, and writes a single
//! file.

use std::{io::Write, path::Path};

use analysis::{
    Contents, Costs, Summary,
    views::{Viewer, Views},
};
use anyhow::Result;
use report::html::{self, Input};
use study::{
    decide::{
        advice::Remedies,
        decision::Report,
        projection::{Request, project},
    },
    recording::open::AnyReader,
    run::work::Work,
};

/// The data of the figures.
pub fn views(reader: &AnyReader, summary: &Summary) -> Views {
    let contents = Contents::of(reader, summary.truncated.as_deref());
    let ends = reader
        .block_infos()
        .fold((u64::MAX, 0), |(from, to), block| (block.first_ns.min(from), block.last_ns.max(to)));
    let ends = if ends.0 > ends.1 { (0, 0) } else { ends };
    let mut viewer = Viewer::new(summary, &contents, ends);
    // The summary stops at the same unreadable block and reports it.
    for block in reader.blocks() {
        let Ok(block) = block else { break };
        viewer.add(&block);
    }
    viewer.finish()
}

/// Without a request, there is no projection.
pub fn write(
    path: &Path,
    reader: &AnyReader,
    (report, costs): (&Report, &Costs),
    request: Option<&Request>,
    work: &Work<'_>,
) -> Result<()> {
    let summary = &report.summary;
    let projection = match request {
        Some(request) => project(reader, report, request, work)?,
        None => Err("Omitted (--no-projection).".to_owned()),
    };
    let asked = request.map(|request| (request, work.seed));
    let commands =
        html::commands(path, reader.name(), reader.manifest(), asked, projection.is_ok());
    let text = html::page(&Input {
        summary,
        decision: &report.decision,
        costs,
        views: &views(reader, summary),
        manifest: reader.manifest(),
        lanes: reader.lanes(),
        remedies: &Remedies::of(reader, summary)?,
        projection: projection.as_ref().map_err(String::as_str),
        commands: &commands,
    })?;
    crate::output::save(path, |out| Ok(out.write_all(text.as_bytes())?))
}
