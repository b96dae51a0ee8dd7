//! The HTML report: reads the recording a second time for the figures, simulates, and writes a single
//! file.

use std::{io::Write, path::Path};

use analysis::{Contents, Costs, Summary, views::Viewer};
use anyhow::Result;
use report::{
    advice::{Advice, Remedy, Subject},
    html::{self, Command, Input, Projection},
};

use crate::{
    open::AnyReader,
    results,
    simulate::{
        projection::{self, Projected, Settings},
        recorded::{Recorded, Source},
    },
    whatif,
};

/// What the page shows besides the recording.
pub struct Options {
    /// None omits the projection.
    pub projection: Option<Settings>,
}

/// Returns false if interrupted, in which case nothing is written.
pub fn write(
    path: &Path,
    reader: &AnyReader,
    (summary, costs): &(Summary, Costs),
    options: &Options,
) -> Result<bool> {
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
    let views = viewer.finish();
    let projected = match &options.projection {
        Some(settings) => project(reader, summary, settings)?,
        None => Err("Omitted (--no-projection).".to_owned()),
    };
    let projection = match &projected {
        Ok(Some(projection)) => Ok(projection.as_ref()),
        Ok(None) => return Ok(false),
        Err(reason) => Err(reason.as_str()),
    };
    let remedies = remedies(reader, summary)?;
    let text = html::page(&Input {
        summary,
        costs,
        views: &views,
        manifest: reader.manifest(),
        lanes: reader.lanes(),
        remedies: &remedies.0,
        outside_remedies: &remedies.1,
        projection,
        commands: &commands(path, reader, options, projection.is_ok()),
    })?;
    results::save(path, |out| Ok(out.write_all(text.as_bytes())?))?;
    Ok(true)
}

/// The simulator holds detours in memory, and a small file can claim a huge number.
const MOST_PROJECTED: u64 = 1 << 25;

/// The projection, None if interrupted, or why there is none. A recording too damaged to simulate still
/// gets a page.
fn project(
    reader: &AnyReader,
    summary: &Summary,
    settings: &Settings,
) -> Result<std::result::Result<Option<Box<Projection>>, String>> {
    projection::check(&settings.ranks)?;
    let detours: u64 = reader.block_infos().map(|block| u64::from(block.detours)).sum();
    if detours > MOST_PROJECTED {
        return Ok(Err(format!(
            "{detours} detours are too many to project here; `detour simulate` is limited only by \
             memory."
        )));
    }
    Ok(match projection::project(reader, summary, settings) {
        Ok(Projected::Done(projection)) => Ok(Some(projection)),
        Ok(Projected::Stopped) => Ok(None),
        Ok(Projected::Nothing(reason)) => Err(reason),
        Err(error) => Err(format!("Cannot simulate this recording: {error:#}.")),
    })
}

/// For the sources, and for the rows outside the kernel.
type Remedies = (Vec<Vec<Remedy>>, Vec<Vec<Remedy>>);

fn remedies(reader: &AnyReader, summary: &Summary) -> Result<Remedies> {
    let advice = Advice::built_in()?;
    let place = whatif::place(reader);
    let recorded = Recorded::new(reader);
    let subject = |row: &analysis::SourceRow| {
        let key = row.row_key();
        let same = |source: &&Source| source.key == key;
        let subject = Subject {
            class: row.class,
            name: &row.name,
            unit: row.unit.as_deref(),
            detail: row.detail.as_deref(),
            program: recorded.sources.iter().find(same).is_some_and(|source| source.program),
        };
        // The recorder needs no remedy: it ends with the recording.
        if row.own { Vec::new() } else { advice.remedies(&subject, &place) }
    };
    let outside = |row: &analysis::OutsideRow| {
        let class = trace::Class::OutsideKernel;
        let subject = Subject { class, name: &row.class, unit: None, detail: None, program: false };
        advice.remedies(&subject, &place)
    };
    let named = summary.sources.iter().map(subject).collect();
    Ok((named, summary.outside_kernel.iter().map(outside).collect()))
}

/// The commands that reproduce this page and its figures.
fn commands(path: &Path, reader: &AnyReader, options: &Options, projected: bool) -> Vec<Command> {
    let trace = quoted(reader.name());
    let mut commands = Vec::new();
    let recorded = &reader.manifest().command_line;
    if !recorded.is_empty() {
        let words: Vec<String> = recorded.iter().take(100).map(|word| quoted(word)).collect();
        commands.push(Command { what: "Recording".to_owned(), line: words.join(" ") });
    }
    let mut line = format!("detour report {trace} --html {}", quoted(&path.display().to_string()));
    match &options.projection {
        Some(settings) => line += &settings.words(),
        None => line += " --no-projection",
    }
    commands.push(Command { what: "This page".to_owned(), line });
    commands.push(Command {
        what: "Report in the terminal and as JSON".to_owned(),
        line: format!("detour report {trace} --all\ndetour report {trace} --json"),
    });
    if let Some(settings) = options.projection.as_ref().filter(|_| projected) {
        commands.extend(settings.commands(&trace));
        commands.push(Command {
            what: "Gain from removing each source".to_owned(),
            line: format!("detour whatif {trace}"),
        });
    }
    commands
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("trace-1.detour"), "trace-1.detour");
        assert_eq!(quoted("it's; rm -r"), r"'it'\''s; rm -r'");
        assert_eq!(quoted(""), "''");
    }
}
