//! `detour doctor`: what this machine can record, and how to enable what is missing.

use std::process::ExitCode;

use anyhow::Result;

use crate::{Verbosity, cli};

/// What was checked.
#[cfg(target_os = "linux")]
#[derive(serde::Serialize)]
struct Checks {
    checks: Vec<recorder::doctor::Check>,
}

#[cfg(target_os = "linux")]
pub fn run(options: &cli::Doctor, verbosity: Verbosity) -> Result<ExitCode> {
    use recorder::doctor::{State, examine};

    if options.isolation {
        return crate::isolation::run(options);
    }
    let checks = examine();
    let missing = checks.iter().any(|check| check.state == State::Missing);
    let code = ExitCode::from(u8::from(options.strict && missing));
    crate::output::print(&Checks { checks }, options.json, |checks, layout| {
        text(&checks.checks, verbosity.verbose, layout.width)
    })?;
    Ok(code)
}

/// The verdict first. Hooks that work are one line, unless everything is wanted.
#[cfg(target_os = "linux")]
fn text(checks: &[recorder::doctor::Check], all: bool, width: usize) -> String {
    use recorder::doctor::State;
    use report::words::wrap;

    /// Columns before what was found.
    const INDENT: usize = 39;
    let wrapped = |text: &str, indent: usize| {
        let lines = wrap(text, width.max(2 * INDENT) - indent, "");
        lines.replace('\n', &format!("\n{}", " ".repeat(indent)))
    };

    let count = |state: State| checks.iter().filter(|check| check.state == state).count();
    let mut text = match (count(State::Missing), count(State::Reduced)) {
        (0, 0) => "This machine can record everything.".to_owned(),
        (0, n) => format!("This machine can record, with limitations ({n})."),
        (n, _) => format!("Missing requirements: {n}. Only the probe can record."),
    };
    text += "\n\n";
    let is_folded = |check: &&recorder::doctor::Check| {
        !all && check.state == State::Ok && check.what.starts_with("hook ")
    };
    let folded = checks.iter().filter(is_folded).count();
    let mut is_said = false;
    for check in checks {
        if is_folded(&check) {
            if !is_said {
                text += &format!("ok      {:30} {folded} attached (-v lists them)\n", "hooks");
                is_said = true;
            }
            continue;
        }
        let state = match check.state {
            State::Ok => "ok",
            State::Reduced => "limited",
            State::Missing => "MISSING",
        };
        text += &format!("{state:8}{:30} {}\n", check.what, wrapped(&check.found, INDENT));
        if let Some(remedy) = &check.remedy {
            text += &format!("{:38} -> {}\n", "", wrapped(remedy, INDENT + 3));
        }
    }
    text
}

#[cfg(not(target_os = "linux"))]
pub fn run(_options: &cli::Doctor, _verbosity: Verbosity) -> Result<ExitCode> {
    anyhow::bail!("recording requires Linux; report, import and simulate work on this system")
}
