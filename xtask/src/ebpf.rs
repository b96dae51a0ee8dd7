//! `cargo xtask ebpf`: builds `recorder-ebpf` into the object that the recorder embeds.
//!
//! The object is committed, so that a plain build needs none of this, and it is reproducible byte for
//! byte, so that `--check` can tell whether the committed one matches the sources. For that, compiler,
//! linker and lockfile are pinned, the environment is cleared, this machine's paths are remapped, and
//! the BTF is sorted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use lab::{
    exec,
    tools::{self, Toolchain},
    workspace::Workspace,
};

use crate::btf;

const TARGET: &str = "bpfel-unknown-none";
const PACKAGE: &str = "recorder-ebpf";
const BINARY: &str = "detour-bpf";
const OBJECT: &str = "detour.bpf.o";
const COMMITTED: &str = "recorder/bpf/detour.bpf.o";

/// Variables that affect the compiler's output.
const UNWANTED_PREFIXES: [&str; 4] =
    ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_", "CARGO_UNSTABLE_"];
const UNWANTED: [&str; 3] = ["RUSTFLAGS", "CARGO_INCREMENTAL", "RUSTC_WORKSPACE_WRAPPER"];

/// Builds and writes the committed object.
pub fn update(workspace: &Workspace) -> Result<bool> {
    let built = read(&build(workspace, false)?)?;
    let place = workspace.root.join(COMMITTED);
    if fs::read(&place).is_ok_and(|old| old == built) {
        println!("{COMMITTED} is up to date: {}", identity(&built));
        return Ok(true);
    }
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    fs::write(&place, &built).with_context(|| format!("cannot write {COMMITTED}"))?;
    println!("wrote {COMMITTED}: {}", identity(&built));
    Ok(true)
}

/// Checks whether the committed object matches the sources.
pub fn check(workspace: &Workspace) -> Result<bool> {
    let built = read(&build(workspace, false)?)?;
    let committed = fs::read(workspace.root.join(COMMITTED)).with_context(|| {
        format!("cannot read {COMMITTED}; run `cargo xtask ebpf` and commit it")
    })?;
    if built == committed {
        println!("{COMMITTED} matches the sources: {}", identity(&built));
        return Ok(true);
    }
    let differs = built.iter().zip(&committed).position(|(a, b)| a != b);
    let differs = differs.unwrap_or(built.len().min(committed.len()));
    println!("{COMMITTED} does not match the sources:");
    println!("  committed  {}", identity(&committed));
    println!("  built now  {}", identity(&built));
    println!("  first difference at byte {differs}");
    println!("run `cargo xtask ebpf` and commit {COMMITTED}");
    Ok(false)
}

/// Builds with logging, for debugging; never committed.
pub fn with_log(workspace: &Workspace) -> Result<bool> {
    let path = build(workspace, true)?;
    let built = read(&path)?;
    println!("wrote {}: {}", path.display(), identity(&built));
    Ok(true)
}

/// Lints the programs for the target they are built for; warnings are errors.
pub fn lint(workspace: &Workspace) -> Result<()> {
    let toolchain = Toolchain::find(&workspace.root)?;
    for features in [&[][..], &["--features", "log"]] {
        let mut cargo = cargo(workspace, &toolchain, "clippy")?;
        exec::run(cargo.args(features).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Cargo for the BPF target, in a separate target directory.
fn cargo(workspace: &Workspace, toolchain: &Toolchain, command: &str) -> Result<Command> {
    toolchain.need_sources(&workspace.root)?;
    let mut cargo = exec::cargo(&workspace.root);
    exec::forget(&mut cargo, |name| {
        UNWANTED.contains(&name) || UNWANTED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    });
    cargo
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(workspace, toolchain)?.join("\u{1f}"))
        .args([command, "--release", "--locked", "--package", PACKAGE, "--target", TARGET])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(workspace.target.join("ebpf"));
    Ok(cargo)
}

/// Builds and strips; the result is in the target directory.
fn build(workspace: &Workspace, log: bool) -> Result<PathBuf> {
    let toolchain = Toolchain::find(&workspace.root)?;
    let linker = tools::linker(workspace, &toolchain)?;
    let target = workspace.target.join("ebpf");
    let mut cargo = cargo(workspace, &toolchain, "build")?;
    exec::search_first(&mut cargo, "PATH", &linker)?;
    if log {
        cargo.args(["--features", "log"]);
    }
    exec::run(&mut cargo)?;
    let place = workspace.target.join(if log { "ebpf-log" } else { "ebpf" });
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let object = place.join(OBJECT);
    let linked = target.join(TARGET).join("release").join(BINARY);
    // Debug sections are three quarters of the object, and the kernel reads only BTF.
    let mut objcopy = exec::command(toolchain.objcopy()?, &workspace.root);
    exec::search_first(&mut objcopy, "LD_LIBRARY_PATH", &toolchain.libraries())?;
    exec::run(objcopy.arg("--strip-debug").arg(linked).arg(&object))?;
    let mut bytes = read(&object)?;
    btf::sort_object(&mut bytes)?;
    fs::write(&object, &bytes).with_context(|| format!("cannot write {}", object.display()))?;
    Ok(object)
}

/// BTF is generated from debug information, which is therefore needed although it is stripped later.
fn flags(workspace: &Workspace, toolchain: &Toolchain) -> Result<Vec<String>> {
    let mut flags = vec![
        r#"--cfg=bpf_target_arch="x86_64""#.to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
    ];
    flags.extend(tools::remap(workspace, toolchain)?);
    Ok(flags)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn identity(object: &[u8]) -> String {
    format!("{} bytes, crc32 {:08x}", object.len(), crc32fast::hash(object))
}
