//! The MPI collector and the MPI worker are compiled by a build script, so that `cargo fmt` and `cargo clippy` do
//! not see them.

use std::{fs, process::Command};

use anyhow::{Context, Result};
use lab::{exec, workspace::Workspace};

/// Checks their format and lints them as the rest of the workspace.
pub fn lint(workspace: &Workspace) -> Result<()> {
    ["collector", "worker"].into_iter().try_for_each(|library| lint_one(workspace, library))
}

fn lint_one(workspace: &Workspace, library: &str) -> Result<()> {
    let source = workspace.root.join("mpi-recorder").join(library).join("lib.rs");
    exec::run(Command::new("rustfmt").args(["--edition=2024", "--check"]).arg(&source))?;
    let target = workspace.target.join("collector");
    fs::create_dir_all(&target).context("cannot create the target directory")?;
    let abi = target.join("libmpi_abi.rlib");
    let usual = ["--edition=2024", "-Cpanic=abort"];
    let mut rustc = Command::new("rustc");
    rustc.arg(workspace.root.join("mpi-abi/src/lib.rs")).args(usual);
    exec::run(rustc.args(["--crate-name", "mpi_abi", "--crate-type=rlib", "-o"]).arg(&abi))?;
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let mut clippy = Command::new("clippy-driver");
    clippy.args(["--sysroot", sysroot.trim()]);
    clippy.arg(&source).args(usual);
    clippy.args(["--crate-name", "detour_mpi", "--crate-type=cdylib", "--emit=metadata"]);
    clippy.args(["-Dwarnings", "-Dclippy::undocumented_unsafe_blocks", "--extern"]);
    clippy.arg(format!("mpi_abi={}", abi.display())).arg("-o");
    clippy.arg(target.join(format!("{library}.rmeta")));
    exec::run(&mut clippy)
}
