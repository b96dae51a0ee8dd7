//! The RPM package, built with rpmbuild: the system's, or Debian's unpacked in the target directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{Release, tree::Tree};
use lab::{
    exec,
    missing::Missing,
    vm::{
        archive::{self, Archive, once},
        kernels::Processor,
    },
    workspace::Workspace,
};

/// The Debian suite to take rpm from if the machine has none.
const SUITE: &str = "bookworm";

pub fn build(
    workspace: &Workspace,
    place: &Path,
    release: &Release,
    processor: Processor,
    tree: &Tree,
) -> Result<PathBuf> {
    let work = place.join("rpm");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let files: Vec<String> = tree.files.iter().map(|file| format!("\"/{file}\"")).collect();
    let spec = fs::read_to_string(workspace.root.join("packaging/rpm/detour.spec"))?;
    let spec = spec.replace("@VERSION@", &release.version).replace("@FILES@", &files.join("\n"));
    fs::write(work.join("detour.spec"), spec)?;
    let architecture = match processor {
        Processor::X86 => "x86_64",
        Processor::Arm => "aarch64",
    };
    let mut rpmbuild = tool(workspace, "rpmbuild")?;
    rpmbuild.env("SOURCE_DATE_EPOCH", &release.epoch);
    let definitions = [
        format!("_topdir {}", work.display()),
        format!("tree {}", tree.root.display()),
        // Nothing that depends on this machine or the current time.
        "_buildhost localhost".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
        // The binary is already stripped, and these tools may not support its architecture.
        "__os_install_post %{nil}".to_owned(),
        "debug_package %{nil}".to_owned(),
        "_build_id_links none".to_owned(),
        "_binary_payload w9.gzdio".to_owned(),
    ];
    for definition in definitions {
        rpmbuild.arg("--define").arg(definition);
    }
    rpmbuild.args(["--quiet", "-bb", "--nodeps", "--target", architecture]);
    exec::run(rpmbuild.arg(work.join("detour.spec")))?;
    let name = format!("detour-{}-1.{architecture}.rpm", release.version);
    let built = work.join("RPMS").join(architecture).join(&name);
    let package = place.join(&name);
    fs::rename(&built, &package)
        .with_context(|| format!("rpmbuild did not create {}", built.display()))?;
    fs::remove_dir_all(&work)?;
    Ok(package)
}

/// `rpmbuild` or `rpm`.
pub fn tool(workspace: &Workspace, name: &str) -> Result<Command> {
    if exec::command(name, &workspace.root).arg("--version").output().is_ok() {
        return Ok(exec::command(name, &workspace.root));
    }
    let place = workspace.target.join("vm");
    let root = place.join("rpm");
    once(&root, |into| {
        println!("getting rpm");
        let archive = Archive::open(&place, SUITE, &archive::host()?)?;
        archive.unpack_with_dependencies(&["rpm"], into)
    })
    .with_context(|| {
        Missing("rpmbuild not found: apt-get install rpm, or dnf install rpm-build".to_owned())
    })?;
    unpacked(workspace, &root, name)
}

/// A program of an unpacked package, started by the dynamic loader of its own C library.
fn unpacked(workspace: &Workspace, root: &Path, name: &str) -> Result<Command> {
    let loader = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
    let loader = loader.iter().map(|path| root.join(path)).find(|path| path.exists());
    let Some(loader) = loader else { bail!("the unpacked rpm has no loader") };
    let mut libraries = Vec::new();
    for directory in ["lib", "usr/lib"] {
        for entry in fs::read_dir(root.join(directory))? {
            let path = entry?.path();
            if path.is_dir() && path.to_string_lossy().ends_with("-linux-gnu") {
                libraries.push(path.display().to_string());
            }
        }
    }
    let mut command = exec::command(loader, &workspace.root);
    command.arg("--library-path").arg(libraries.join(":"));
    command.arg(root.join("usr/bin").join(name));
    command.env("RPM_CONFIGDIR", root.join("usr/lib/rpm"));
    Ok(command)
}
