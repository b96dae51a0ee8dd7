//! `detour doctor`: what this machine can record, and how to enable what is missing.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli;

/// What was checked.
#[cfg(target_os = "linux")]
#[derive(serde::Serialize)]
struct Checks {
    checks: Vec<recorder::doctor::Check>,
}

#[cfg(target_os = "linux")]
pub fn run(options: &cli::Doctor) -> Result<ExitCode> {
    use std::io::Write;

    use recorder::doctor::{State, examine};

    let checks = examine();
    let missing = checks.iter().filter(|c| c.state == State::Missing).count();
    let reduced = checks.iter().filter(|c| c.state == State::Reduced).count();
    let code = ExitCode::from(u8::from(options.strict && missing > 0));
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", report::json_text(&Checks { checks })?)?;
        return Ok(code);
    }
    for check in &checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Reduced => "limited",
            State::Missing => "MISSING",
        };
        writeln!(out, "{state:8}{:30} {}", check.what, check.found)?;
        if let Some(remedy) = &check.remedy {
            writeln!(out, "{:38} -> {remedy}", "")?;
        }
    }
    writeln!(
        out,
        "\n{}",
        match (missing, reduced) {
            (0, 0) => "This machine can record everything.".to_owned(),
            (0, n) => format!("This machine can record, with limitations ({n})."),
            (n, _) => format!("Missing requirements: {n}. Only the probe can record."),
        }
    )?;
    Ok(code)
}

#[cfg(not(target_os = "linux"))]
pub fn run(_options: &cli::Doctor) -> Result<ExitCode> {
    anyhow::bail!("recording requires Linux; report, import and simulate work on this system")
}
