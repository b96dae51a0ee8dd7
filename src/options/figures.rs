//! `--svg` and `--html`: the figures of a simulation.

use std::{io::Write, path::PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use report::{Pictures, words::shell_quoted};

use crate::output;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Write the figures to this SVG file
    #[arg(long, value_name = "FILE", value_parser = output::file())]
    pub svg: Option<PathBuf>,
    /// Write an HTML page with figures to this file
    #[arg(long, value_name = "FILE", value_parser = output::file())]
    pub html: Option<PathBuf>,
}

impl Options {
    /// Whether a figure goes to stdout, where nothing else may then go.
    pub fn to_stdout(&self) -> bool {
        self.svg.iter().chain(&self.html).any(|path| trace::is_stdout(path))
    }

    /// Only one output can go to stdout.
    pub fn check(&self, json: bool) -> Result<()> {
        let both = self.svg.iter().chain(&self.html).filter(|path| trace::is_stdout(path)).count();
        if both + usize::from(json) > 1 {
            bail!("several outputs would go to stdout: specify files with --svg and --html");
        }
        Ok(())
    }

    /// Writes what was asked for.
    pub fn write(&self, pictures: impl FnOnce() -> Pictures) -> Result<()> {
        if self.svg.is_none() && self.html.is_none() {
            return Ok(());
        }
        let pictures = pictures();
        if let Some(path) = &self.svg {
            output::save(path, |out| Ok(out.write_all(pictures.svg().as_bytes())?))?;
        }
        if let Some(path) = &self.html {
            let page = pictures.html(&command_line())?;
            output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
        }
        Ok(())
    }
}

/// This command, as it can be entered again.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_quoted(&word.to_string_lossy()));
    std::iter::once("detour".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
