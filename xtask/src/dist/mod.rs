//! `cargo xtask dist`: what people install. A static binary, a `.deb`, an `.rpm` and what a container
//! is built from, for every processor that this machine can build for. All bytes follow from the
//! commit: times are the commit's, and no path of this machine gets in.

mod check;
mod deb;
mod rpm;
mod tree;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    exec,
    vm::{kernels::Processor, programs::Compiler},
    workspace::Workspace,
};
use tree::Tree;

/// What the packages are of.
pub struct Release {
    pub version: String,
    /// Seconds since 1970 of the commit: the time of every file.
    pub epoch: String,
}

impl Release {
    fn find(workspace: &Workspace) -> Result<Release> {
        let mut git = exec::command("git", &workspace.root);
        let epoch = exec::output(git.args(["log", "-1", "--format=%ct"]))
            .context("packages are dated by the last commit, and git does not say when that was")?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Release { version, epoch: epoch.trim().to_owned() })
    }
}

/// What was made for one processor.
pub struct Packages {
    pub processor: Processor,
    pub binary: PathBuf,
    pub deb: Option<PathBuf>,
    pub rpm: Option<PathBuf>,
    pub tree: PathBuf,
}

/// Builds everything; with `check`, looks whether it works. What this machine cannot do is skipped
/// by name. True when nothing failed.
pub fn run(workspace: &Workspace, check: bool, mut say: impl FnMut(&str)) -> Result<bool> {
    let place = workspace.target.join("dist");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let release = Release::find(workspace)?;
    let mut good = true;
    // Man pages and completions come from the program itself, run on this machine.
    let mut runs_here = None;
    for processor in [Processor::X86, Processor::Arm] {
        let architecture = processor.architecture();
        let tools = workspace.target.join("vm");
        let compiler = match Compiler::find(workspace, &tools, processor) {
            Ok(compiler) => compiler,
            Err(missing) => {
                skip(&mut say, &format!("packages_for_{architecture}"), &format!("{missing:#}"));
                continue;
            }
        };
        let binary = compiler.product(workspace, &place.join("build"))?;
        if processor.is_ours() {
            runs_here = Some(binary.clone());
        }
        let Some(program) = &runs_here else {
            let why = "man pages come from a binary for this host, and there is none";
            skip(&mut say, &format!("packages_for_{architecture}"), why);
            continue;
        };
        let packages = make(workspace, &place, &release, processor, &binary, program, &mut say)?;
        if check {
            good &= check::run(workspace, &release, &packages, &mut say)?;
        }
    }
    Ok(good)
}

fn make(
    workspace: &Workspace,
    place: &Path,
    release: &Release,
    processor: Processor,
    binary: &Path,
    program: &Path,
    say: &mut impl FnMut(&str),
) -> Result<Packages> {
    let architecture = processor.architecture();
    let tree = Tree::lay_out(workspace, &place.join(architecture), release, binary, program)?;
    let alone = place.join(format!("detour-{}-{architecture}", release.version));
    fs::copy(binary, &alone).with_context(|| format!("cannot write {}", alone.display()))?;
    println!("wrote {}", alone.display());
    let deb = skipping(deb::build(workspace, place, release, processor, &tree), "deb", say);
    let rpm = skipping(rpm::build(workspace, place, release, processor, &tree), "rpm", say);
    if processor.is_ours() {
        let container = place.join("container");
        fs::create_dir_all(&container)?;
        fs::copy(workspace.root.join("packaging/Containerfile"), container.join("Containerfile"))?;
        fs::copy(binary, container.join("detour"))?;
        println!("wrote {}", container.display());
    }
    Ok(Packages { processor, binary: alone, deb, rpm, tree: tree.root })
}

/// A tool that is not there is no failure of ours.
fn skipping(built: Result<PathBuf>, what: &str, say: &mut impl FnMut(&str)) -> Option<PathBuf> {
    match built {
        Ok(path) => {
            println!("wrote {}", path.display());
            Some(path)
        }
        Err(missing) => {
            skip(say, &format!("the_{what}_is_built"), &format!("{missing:#}"));
            None
        }
    }
}

/// Said as a test binary says it.
fn skip(say: &mut impl FnMut(&str), name: &str, why: &str) {
    say(&format!("test dist::{name} ... ignored, {why}"));
    say("test result: ok. 0 passed; 0 failed; 1 ignored");
}
