//! `--job FILE`: the options that describe a job, kept in a file.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

/// The commands that take it.
const COMMANDS: [&str; 4] = ["report", "whatif", "diff", "demo"];

/// The options that a file may have.
const OPTIONS: [&str; 24] = [
    "op",
    "algorithm",
    "map",
    "iterations",
    "compute",
    "reduction",
    "arity",
    "segment",
    "graph",
    "nonblocking",
    "size",
    "sizes",
    "ranks",
    "ranks-per-node",
    "placement",
    "net",
    "net-local",
    "net-scale",
    "rendezvous",
    "latency",
    "latency-rule",
    "latency-order",
    "goal",
    "calc-unit",
];

/// The command line with the options of its job file. Options on the command line take precedence.
pub fn expanded(mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let ours = arguments.iter().take_while(|argument| *argument != "--").count();
    let is_command = |argument: &OsString| COMMANDS.iter().any(|command| argument == command);
    let flag = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    // The value of the only option before the command that has one is not the command.
    let value = |at: usize| arguments[at - 1] == "--color";
    let command = (1..ours).find(|&at| !flag(&arguments[at]) && !value(at));
    let command = command.map(|at| &arguments[at]);
    if !command.is_some_and(is_command) {
        return Ok(arguments);
    }
    let Some(file) = value_of(&arguments[..ours], "job") else { return Ok(arguments) };
    let file = Path::new(&file);
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let wrong = || format!("{} does not describe a job", file.display());
    let table: Table = text.parse().with_context(wrong)?;
    let mut added = Vec::new();
    for (option, value) in &table {
        if !OPTIONS.contains(&option.as_str()) {
            bail!(
                "{}: unknown option '{option}' (expected one of {})",
                file.display(),
                OPTIONS.join(", ")
            );
        }
        if value_of(&arguments[..ours], option).is_none() {
            let values = words(value).with_context(|| format!("option '{option}'"));
            for value in values.with_context(wrong)? {
                added.push(OsString::from(format!("--{option}={value}")));
            }
        }
    }
    arguments.splice(ours..ours, added);
    Ok(arguments)
}

/// The value of an option on the command line, which may be its own argument or the next.
fn value_of(arguments: &[OsString], option: &str) -> Option<OsString> {
    let option = format!("--{option}");
    arguments.iter().enumerate().find_map(|(at, argument)| {
        if *argument == *OsStr::new(&option) {
            return Some(arguments.get(at + 1).cloned().unwrap_or_default());
        }
        let text = argument.to_str()?.strip_prefix(&option)?.strip_prefix('=')?;
        Some(text.into())
    })
}

/// A value as on the command line; a list is an option that is repeated.
fn words(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Integer(number) => Ok(vec![number.to_string()]),
        Value::Float(number) => Ok(vec![number.to_string()]),
        Value::Array(list) => {
            let lists: Result<Vec<Vec<String>>> = list.iter().map(words).collect();
            Ok(lists?.concat())
        }
        _ => bail!("expected a string, a number or a list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_takes_precedence_over_the_file() {
        let file = std::env::temp_dir().join(format!("detour-job-{}.toml", std::process::id()));
        fs::write(&file, "op = ['bcast', 'reduce']\ncompute = '5ms'\nranks = 64\n").unwrap();
        let name = file.to_str().unwrap();
        let given = line(&["detour", "-q", "whatif", "a.detour", "--job", name, "--ranks=8"]);
        let mut expected = given.clone();
        expected.extend(line(&["--compute=5ms", "--op=bcast", "--op=reduce"]));
        assert_eq!(expanded(given).unwrap(), expected);
        let coloured = line(&["detour", "--color", "always", "diff", "--job", name]);
        assert!(expanded(coloured.clone()).unwrap().len() > coloured.len());
        // A recorded command has options of its own.
        let other = line(&["detour", "record", "--", "app", "--job", name]);
        assert_eq!(expanded(other.clone()).unwrap(), other);
        let missing = expanded(line(&["detour", "diff", "--job=/nonexistent"])).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent"), "{missing}");
        fs::write(&file, "opp = 'bcast'\n").unwrap();
        let unknown = expanded(line(&["detour", "report", "--job", name])).unwrap_err();
        assert!(unknown.to_string().contains("unknown option 'opp'"), "{unknown}");
        fs::remove_file(&file).unwrap();
    }
}
