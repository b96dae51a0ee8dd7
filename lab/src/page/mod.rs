//! `cargo xtask page`: the report's page in a real browser. Recordings of every shape, an MPI program,
//! measured latencies, distributions and simulations are turned into pages; a headless Chromium opens them and checks that all figures are drawn, that the script works,
//! and that there are no errors and no network requests.

mod browser;
mod checks;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{exec, workspace::Workspace};
use browser::Browser;
use checks::Wanted;

const NAME: &str = "pages_in_a_browser";

/// A recording, the options of `detour report --html`, and what the page must show.
struct PageCase {
    file: &'static str,
    options: &'static [&'static str],
    wanted: Wanted,
}

const FIGURES: &[&str] = &["scatter", "pdf", "cdf", "tail", "spectrum", "heat"];
const PROJECTED: &[&str] = &["job", "slowdown", "without", "idle", "idle-tail"];
const EVERYTHING: Wanted = Wanted { figures: FIGURES, projected: PROJECTED, series: true };
const QUICK: &[&str] = &["--ranks", "2..4096", "--runs", "10"];

const CASES: [PageCase; 10] = [
    PageCase { file: "demo", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "many-cpus", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "one-cpu", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "hostile", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "program", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "nodes", options: QUICK, wanted: EVERYTHING },
    PageCase { file: "records-only", options: QUICK, wanted: EVERYTHING },
    PageCase {
        file: "no-names",
        options: QUICK,
        wanted: Wanted {
            figures: FIGURES,
            projected: &["slowdown", "idle", "idle-tail"],
            series: false,
        },
    },
    PageCase {
        file: "one",
        options: QUICK,
        wanted: Wanted {
            figures: &["scatter", "pdf", "cdf", "tail", "heat"],
            projected: PROJECTED,
            series: false,
        },
    },
    PageCase {
        file: "none",
        options: QUICK,
        wanted: Wanted { figures: &["heat"], projected: &[], series: false },
    },
];

/// The page of a recorded MPI program, `fixtures/mpi/stencil.c`.
const PROGRAM: Wanted = Wanted {
    figures: &["waits", "bytes", "messages", "pattern", "timeline"],
    projected: &[],
    series: false,
};

/// The page of exchanges between all pairs of ranks, `fixtures/mpi/latencies.json`.
const LATENCIES: Wanted =
    Wanted { figures: &["cdf", "tail", "minima", "medians"], projected: &[], series: false };
/// The page of the distributions of a recording's sources.
const DISTRIBUTIONS: Wanted =
    Wanted { figures: &["pdf", "cdf", "tail"], projected: &[], series: true };

/// The pages of simulations.
const SIMULATIONS: [(&str, &[&str], Wanted); 5] = [
    (
        "collective",
        &[
            "collective",
            "--noise",
            "periodic:1kHz|100Hz,20us|90us",
            "--ranks",
            "2..4Ki",
            "--runs",
            "40",
        ],
        Wanted { figures: &["f0"], projected: &[], series: true },
    ),
    (
        "cycle",
        &["cycle", "--ranks", "2..1Ki", "--cycles", "1-5"],
        Wanted { figures: &["cycles-ranks", "cycles-overhead"], projected: &[], series: true },
    ),
    (
        "exchange",
        &["exchange", "--noise", "demo.detour"],
        Wanted { figures: &["density", "tail"], projected: &[], series: false },
    ),
    (
        "alltoall",
        &["alltoall", "--noise", "demo.detour", "--ranks", "2..32"],
        Wanted { figures: &["density", "tail", "idle-ranks"], projected: &[], series: true },
    ),
    (
        "goal",
        &["goal", "small.goal", "--noise", "periodic:1kHz,50us", "--runs", "50"],
        Wanted { figures: &["density", "tail", "ends"], projected: &[], series: false },
    ),
];

/// True if all checks pass, or if no browser is installed. Prints lines like a test binary. `pictures`
/// is the directory for screenshots.
pub fn run(
    workspace: &Workspace,
    pictures: Option<&Path>,
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let Some(program) = browser::find() else {
        say(&format!("test {NAME} ... ignored, no Chromium: apt-get install chromium"));
        say("test result: ok. 0 passed; 0 failed; 1 ignored");
        return Ok(true);
    };
    workspace.build()?;
    let directory = workspace.target.join("page");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("cannot remove the previous pages")?;
    }
    std::fs::create_dir_all(&directory)?;
    exec::run(exec::command(workspace.example("page_traces"), &directory).arg(&directory))?;
    let demo = workspace.root.join("fixtures/two-cpus.detour");
    std::fs::copy(&demo, directory.join("demo.detour")).context("cannot copy demo.detour")?;

    let mut merge = exec::command(workspace.binary("detour"), &directory);
    merge.args(["merge", "-q", "-o", "nodes.detour"]);
    exec::run(merge.args(["node1.detour", "node2.detour", "node3.detour"]))?;

    let mut browser = Browser::start(&program, &directory.join("profile"))?;
    let (mut passed, mut failed) = (0, 0);
    let mut pages = Vec::new();
    for case in &CASES {
        pages.push((make(workspace, &directory, case)?, case.file, &case.wanted));
    }
    pages.push((make_of_program(workspace, &directory)?, "mpi", &PROGRAM));
    pages.push((make_of_latencies(workspace, &directory)?, "latencies", &LATENCIES));
    pages.push((make_of_samples(workspace, &directory)?, "dist", &DISTRIBUTIONS));
    for (name, options, wanted) in &SIMULATIONS {
        pages.push((make_of_simulation(workspace, &directory, name, options)?, *name, wanted));
    }
    for (page, file, wanted) in pages {
        let result = checks::all(&mut browser, &page, wanted, pictures);
        let faults = result.unwrap_or_else(|error| vec![format!("{error:#}")]);
        let name = format!("page_{}", file.replace('-', "_"));
        if faults.is_empty() {
            passed += 1;
            say(&format!("test {name} ... ok"));
        } else {
            failed += 1;
            say(&format!("test {name} ... FAILED"));
            for fault in faults {
                say(&format!("    {fault}"));
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    say(&format!("test result: {word}. {passed} passed; {failed} failed; 0 ignored"));
    Ok(failed == 0)
}

fn make(workspace: &Workspace, directory: &Path, case: &PageCase) -> Result<PathBuf> {
    let page = directory.join(format!("{}.html", case.file));
    let mut command = exec::command(workspace.binary("detour"), directory);
    command.args(["report", "-q"]).arg(format!("{}.detour", case.file));
    exec::run(command.arg("--html").arg(&page).args(case.options))?;
    Ok(page)
}

fn make_of_program(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    let page = directory.join("mpi.html");
    let mut command = exec::command(workspace.binary("detour"), directory);
    command.args(["-q", "mpi", "report"]).arg(workspace.root.join("fixtures/mpi/stencil"));
    exec::run(command.arg("--html").arg(&page))?;
    Ok(page)
}

fn make_of_latencies(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    let page = directory.join("latencies.html");
    let mut command = exec::command(workspace.binary("detour"), directory);
    command.args(["-q", "mpi", "latency", "--from"]);
    command.arg(workspace.root.join("fixtures/mpi/latencies.json"));
    exec::run(command.arg("--html").arg(&page))?;
    Ok(page)
}

fn make_of_samples(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    let page = directory.join("dist.html");
    let mut command = exec::command(workspace.binary("detour"), directory);
    command.args(["-q", "dist", "demo.detour", "--by", "source"]);
    exec::run(command.arg("--html").arg(&page))?;
    Ok(page)
}

fn make_of_simulation(
    workspace: &Workspace,
    directory: &Path,
    name: &str,
    options: &[&str],
) -> Result<PathBuf> {
    let page = directory.join(format!("simulate-{name}.html"));
    if name == "goal" {
        let mut command = exec::command(workspace.binary("detour"), directory);
        command.args(["-q", "goal", "gen", "--ranks", "16", "--iterations", "20"]);
        exec::run(command.args(["--compute", "1ms", "-o", "small.goal"]))?;
    }
    let mut command = exec::command(workspace.binary("detour"), directory);
    command.args(["-q", "simulate"]).args(options).arg("--html").arg(&page);
    // The table is not of interest here.
    exec::json(command.arg("--json"))?;
    Ok(page)
}
