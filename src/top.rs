//! `detour top`: a live view of a recording in the terminal (the crate `top`).
//!
//! Watching must not cost a production node its CPUs: kernel records cost a few tenths of a percent, but
//! a probe occupies a whole CPU. So probes run only on request, or as a fallback.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli;

#[cfg(not(target_os = "linux"))]
pub fn run(_options: cli::Top) -> Result<ExitCode> {
    bail!("`detour top` requires Linux; use `detour report` to view a recording on this system")
}

#[cfg(target_os = "linux")]
pub fn run(options: cli::Top) -> Result<ExitCode> {
    use std::io::{IsTerminal, Write};

    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !std::io::stdout().is_terminal() || dumb {
        bail!(
            "stdout is not a terminal, or TERM is unset or dumb; in scripts, use `detour record` \
             and `detour report`"
        );
    }
    let ended = top::run(&request(options), &|message| tell!("detour: {message}"))?;
    let mut out = std::io::stderr();
    let remarks = ended.remarks.iter().map(|remark| format!("detour: {remark}"));
    for line in remarks.chain(ended.said) {
        // The terminal may be gone.
        let _ = writeln!(out, "{line}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(target_os = "linux")]
fn request(options: cli::Top) -> top::Request {
    let program = match options.cgroup {
        Some(path) => Some(recorder::ProgramOption::Cgroup(path)),
        None if options.pid.is_empty() => None,
        None => Some(recorder::ProgramOption::Pids(options.pid)),
    };
    let probe = options.probe || options.no_bpf;
    let look = top::Look { colour: crate::output::colour(), unicode: speaks_unicode() };
    top::Request {
        may_fall_back: !options.no_probe && !probe && program.is_none(),
        options: recorder::Options {
            duration: options.duration,
            cpus: options.cpus,
            housekeeping: options.housekeeping,
            threshold: options.threshold,
            no_bpf: options.no_bpf,
            no_probe: !probe,
            program,
            command_line: recorder::command_line(),
            give_up_privileges: true,
            ..recorder::Options::default()
        },
        interval: options.interval,
        output: options.output,
        look,
        by: options.by.into(),
    }
}

/// Decided by the first of these variables that is set, as in the C library.
#[cfg(target_os = "linux")]
fn speaks_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    set.is_some_and(|value| {
        let value = value.to_string_lossy().to_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}
