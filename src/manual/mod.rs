//! Man pages, shell completions and `docs/cli.md`, all generated from the clap definitions, so they
//! cannot go out of date.

pub mod help;
mod markdown;

use std::{fs, io::Write, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::Command;

use crate::cli::{self, Completions, Man};

/// `detour man`: writes one page per command to a directory, or the page of `detour` to stdout.
pub fn man(options: &Man) -> Result<ExitCode> {
    let command = built();
    if options.markdown {
        write!(std::io::stdout(), "{}", markdown::page(&command))?;
        return Ok(ExitCode::SUCCESS);
    }
    match &options.output {
        None => {
            std::io::stdout().write_all(&page(&command, "")?)?;
        }
        Some(directory) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            let mut command = cli::command().disable_help_subcommand(true);
            command.build();
            pages(&command, "", directory)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Pages for a command and its subcommands, named as git does: detour.1, detour-simulate-goal.1.
fn pages(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(clap_mangen::Man::new(command.clone()).get_filename());
    let text = page(command, name)?;
    study::files::save(&path, |out| Ok(out.write_all(&text)?))?;
    command.get_subcommands().filter(|sub| shown(sub)).try_for_each(|sub| {
        pages(sub, format!("{name} {}", sub.get_name()).trim_start(), directory)
    })
}

/// The page of a command, which is called `name` after `detour`. What ends its help text has sections of its
/// own here.
fn page(command: &Command, name: &str) -> Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    text.write_all(help::sections(name).as_bytes())?;
    if command.get_version().or(command.get_long_version()).is_some() {
        man.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// `detour completions SHELL`.
pub fn completions(options: &Completions) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut cli::command(), "detour", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// All options of all commands, including global ones.
fn built() -> Command {
    let mut command = cli::command();
    command.build();
    command
}

/// `help` is redundant: every command has --help.
fn shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}
