//! `cargo xtask fuzz`: runs every target of `fuzz/` for a while, from its seeds. Requires cargo-fuzz
//! and a nightly compiler; without them targets are skipped, not failed. Each target is reported like
//! a test, so that it can be counted as one.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::{exec, workspace::Workspace};

/// MiB that a few megabytes of input may need; more than this is a leak.
const MEMORY: &str = "-rss_limit_mb=2048";

/// False if a target found a crash; the input is in `fuzz/artifacts`.
pub fn run(
    workspace: &Workspace,
    wanted: &[String],
    seconds: u32,
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let directory = workspace.root.join("fuzz");
    let targets = targets(&directory)?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        bail!("unknown fuzz target '{unknown}' (expected {})", targets.join(", "));
    }
    if let Some(missing) = missing(&directory) {
        for target in &targets {
            say(&format!("test fuzz::{target} ... ignored, {missing}"));
        }
        say(&format!("test result: ok. 0 passed; 0 failed; {} ignored", targets.len()));
        return Ok(true);
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for target in targets.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        println!("\n{target}, {seconds} s");
        let corpus = directory.join("corpus").join(target);
        fs::create_dir_all(&corpus)
            .with_context(|| format!("cannot create {}", corpus.display()))?;
        let mut command = nightly(&directory);
        command.args(["fuzz", "run", target]).arg("--target-dir");
        command.arg(workspace.target.join("fuzz"));
        // New inputs go to the corpus, which is not kept; seeds are only read.
        command.arg(&corpus).arg(directory.join("seeds").join(target));
        command.args(["--", &format!("-max_total_time={seconds}"), "-timeout=10", MEMORY]);
        match exec::run(&mut command) {
            Ok(()) => {
                passed += 1;
                say(&format!("test fuzz::{target} ... ok"));
            }
            Err(error) => {
                println!("{target}: {error:#}");
                say(&format!("test fuzz::{target} ... FAILED"));
                failed.push(target.as_str());
            }
        }
    }
    if !failed.is_empty() {
        println!("\nfailed: {}; the inputs are in fuzz/artifacts", failed.join(", "));
    }
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    say(&format!("test result: {result}. {passed} passed; {} failed; 0 ignored", failed.len()));
    Ok(failed.is_empty())
}

/// Names of the targets, sorted.
fn targets(directory: &Path) -> Result<Vec<String>> {
    let sources = directory.join("fuzz_targets");
    let cannot = || format!("cannot list {}", sources.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&sources).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// The missing requirement, with the command that installs it.
fn missing(directory: &Path) -> Option<&'static str> {
    let there = |args: &[&str]| {
        let mut command = nightly(directory);
        command.args(args).stderr(std::process::Stdio::null());
        command.output().is_ok_and(|output| output.status.success())
    };
    if !there(&["--version"]) {
        Some("no nightly compiler: rustup toolchain install nightly")
    } else if !there(&["fuzz", "--version"]) {
        Some("no cargo-fuzz: cargo install cargo-fuzz")
    } else {
        None
    }
}

/// The nightly cargo, without the settings of the cargo that runs this program.
fn nightly(directory: &Path) -> Command {
    let mut command = exec::command("rustup", directory);
    exec::forget(&mut command, |name| name == "CARGO" || name == "RUSTUP_TOOLCHAIN");
    command.args(["run", "nightly", "cargo"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target without seeds, or one missing from the manifest or the list of cases, would never run.
    #[test]
    fn every_target_has_seeds_and_is_listed() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("the manifest");
        let cases = fs::read_to_string(directory.join("../fuzz-cases/src/lib.rs")).expect("cases");
        let targets = targets(&directory).expect("targets");
        assert!(!targets.is_empty());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            assert!(cases.contains(&format!("(\"{target}\", ")), "{target}");
            let seeds = fs::read_dir(directory.join("seeds").join(&target)).expect("seeds");
            assert!(seeds.count() > 0, "{target}");
        }
    }
}
