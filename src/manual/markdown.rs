//! The whole command line as one page, `docs/cli.md`.

use std::fmt::Write;

use clap::{Arg, Command, builder::StyledStr};

use super::shown;

pub fn page(command: &Command) -> String {
    let mut page = String::from("# The command line\n\n");
    page.push_str("Made by `cargo xtask docs` from the options themselves; do not edit.\n\n");
    describe(command, "detour", &mut page);
    page
}

fn describe(command: &Command, name: &str, page: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(plain).unwrap_or_default();
    // Writing into a string does not fail.
    let _ = writeln!(page, "## `{name}`\n\n{about}.\n");
    let usage = command.clone().bin_name(name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = writeln!(page, "```\n{usage}\n```\n");
    let inner: Vec<&Command> = command.get_subcommands().filter(|inner| shown(inner)).collect();
    if !inner.is_empty() {
        let _ = writeln!(page, "| command | does |\n|---|---|");
        for command in &inner {
            let about = command.get_about().map(plain).unwrap_or_default();
            let link = format!("{name} {}", command.get_name());
            let _ =
                writeln!(page, "| [`{link}`](#{}) | {} |", link.replace(' ', "-"), cell(&about));
        }
        page.push('\n');
    }
    arguments(command, name == "detour", page);
    for command in inner {
        describe(command, &format!("{name} {}", command.get_name()), page);
    }
}

/// Options that every command has are listed once, at the top.
fn arguments(command: &Command, all: bool, page: &mut String) {
    let is_help = |arg: &Arg| matches!(arg.get_id().as_str(), "help" | "version");
    let wanted = |arg: &&Arg| !arg.is_hide_set() && (all || !arg.is_global_set() && !is_help(arg));
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(wanted).collect();
    if arguments.is_empty() {
        return;
    }
    arguments.sort_by_key(|arg| !arg.is_positional());
    let _ = writeln!(page, "| option | meaning |\n|---|---|");
    for arg in arguments {
        let help = arg.get_long_help().or(arg.get_help()).map(plain).unwrap_or_default();
        let _ = writeln!(page, "| {} | {}{} |", spelling(arg), cell(&help), more(arg));
    }
    page.push('\n');
}

fn spelling(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let value = arg
        .get_value_names()
        .map(|names| names.iter().map(|name| format!("{name}")).collect::<Vec<_>>().join(" "));
    let value = value.filter(|_| takes_value);
    if arg.is_positional() {
        let last = if arg.is_last_set() { "-- " } else { "" };
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        let many = if many { "..." } else { "" };
        return format!("`{last}{}{many}`", value.unwrap_or_default());
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut names: Vec<String> = short.into_iter().chain(long).collect();
    if let (Some(last), Some(value)) = (names.last_mut(), value) {
        last.push_str(&format!(" {value}"));
    }
    format!("`{}`", names.join("`, `"))
}

/// Default and possible values.
fn more(arg: &Arg) -> String {
    let mut more = String::new();
    let defaults = arg.get_default_values();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let text: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        let _ = write!(more, " (default `{}`)", text.join(" "));
    }
    let possible = arg.get_possible_values();
    let possible: Vec<_> = possible.iter().filter(|value| !value.is_hide_set()).collect();
    if arg.get_action().takes_values() && !possible.is_empty() {
        more.push_str(":<br>");
        let lines = possible.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {}", value.get_name(), cell(&plain(help))),
            None => format!("`{}`", value.get_name()),
        });
        more.push_str(&lines.collect::<Vec<_>>().join("<br>"));
    }
    more
}

fn plain(text: &StyledStr) -> String {
    text.to_string()
}

/// What a table's cell can hold.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\n\n", "<br>").replace('\n', " ")
}
