//! The Debian package, built with dpkg-deb.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Release, tree::Tree};
use lab::{exec, missing::Missing, vm::kernels::Processor, workspace::Workspace};

pub fn build(
    workspace: &Workspace,
    place: &Path,
    release: &Release,
    processor: Processor,
    tree: &Tree,
) -> Result<PathBuf> {
    let version = exec::command("dpkg-deb", &workspace.root).arg("--version").output();
    version.with_context(|| Missing("dpkg-deb not found: apt-get install dpkg".to_owned()))?;
    let architecture = processor.architecture();
    // The same tree plus the control file.
    let staged = place.join(format!("deb-{architecture}"));
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    let mut copy = exec::command("cp", &workspace.root);
    exec::run(copy.arg("-a").arg(&tree.root).arg(&staged))?;
    let control = fs::read_to_string(workspace.root.join("packaging/deb/control"))?;
    let control = control
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@SIZE@", &kib(tree)?.to_string());
    fs::create_dir_all(staged.join("DEBIAN"))?;
    fs::write(staged.join("DEBIAN/control"), control)?;
    let package = place.join(format!("detour_{}_{architecture}.deb", release.version));
    let mut build = exec::command("dpkg-deb", &workspace.root);
    build.env("SOURCE_DATE_EPOCH", &release.epoch);
    build.args(["--root-owner-group", "-Zxz", "--build"]).arg(&staged).arg(&package);
    exec::output(&mut build)?;
    fs::remove_dir_all(&staged)?;
    Ok(package)
}

/// Installed size.
fn kib(tree: &Tree) -> Result<u64> {
    let mut bytes = 0;
    for file in &tree.files {
        bytes += fs::metadata(tree.root.join(file))?.len();
    }
    Ok(bytes.div_ceil(1024))
}
