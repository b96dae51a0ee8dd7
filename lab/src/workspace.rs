//! Where things are, according to cargo: nothing is known at compile time, so the program keeps
//! working when the checkout moves.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::exec;

pub struct Workspace {
    pub root: PathBuf,
    /// The target directory, regardless of environment and configuration.
    pub target: PathBuf,
    /// Names of the integration tests of the default members.
    pub tests: BTreeSet<String>,
    /// Names of the binaries of the default members.
    pub binaries: BTreeSet<String>,
}

impl Workspace {
    /// Builds the programs that measure and are measured. Examples too, so that features match the
    /// test build and nothing is built twice.
    pub fn build(&self) -> Result<()> {
        let build = ["build", "--release", "--locked", "--bins", "--examples"];
        exec::run(exec::cargo(&self.root).args(build))
    }

    /// `cargo test` for all default members, so that all steps agree on features; every test binary runs,
    /// even after a failure.
    pub fn test(&self) -> Command {
        let mut command = exec::cargo(&self.root);
        // Snapshots are compared, never written: a new one is an error like a changed one.
        command.env("INSTA_UPDATE", "no").env_remove("INSTA_FORCE_PASS");
        command.args(["test", "--release", "--locked", "--no-fail-fast"]);
        command
    }

    pub fn find() -> Result<Workspace> {
        // `cargo run` sets the package directory; otherwise the current directory is used.
        let start =
            std::env::var_os("CARGO_MANIFEST_DIR").map_or(PathBuf::from("."), PathBuf::from);
        let manifest = exec::output(exec::cargo(&start).args([
            "locate-project",
            "--workspace",
            "--message-format=plain",
        ]))?;
        let root = Path::new(manifest.trim()).parent().context("cargo found no workspace")?;
        // Queried from the root: inside a member, only that member is the default.
        let metadata =
            exec::json(exec::cargo(root).args(["metadata", "--no-deps", "--format-version=1"]))?;
        let root = path(&metadata, "workspace_root")?;
        let target = path(&metadata, "target_directory")?;
        let members: BTreeSet<&str> =
            array(&metadata, "workspace_default_members").filter_map(Value::as_str).collect();
        let packages: Vec<&Value> = array(&metadata, "packages")
            .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id)))
            .collect();
        Ok(Workspace {
            root,
            target,
            tests: targets(&packages, "test"),
            binaries: targets(&packages, "bin"),
        })
    }

    /// A program built in release mode.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    pub fn example(&self, name: &str) -> PathBuf {
        self.target.join("release/examples").join(name)
    }

    /// The directories that contain the sources of external packages, one level up: normally the
    /// registry.
    pub fn registries(&self) -> Result<BTreeSet<PathBuf>> {
        let metadata = exec::json(exec::cargo(&self.root).args([
            "metadata",
            "--locked",
            "--format-version=1",
        ]))?;
        let outside = array(&metadata, "packages").filter(|package| !package["source"].is_null());
        let manifests = outside.filter_map(|package| package["manifest_path"].as_str());
        Ok(manifests
            .filter_map(|path| Path::new(path).ancestors().nth(2))
            .map(Into::into)
            .collect())
    }
}

fn path(metadata: &Value, key: &str) -> Result<PathBuf> {
    let text = metadata[key].as_str();
    text.map(PathBuf::from).with_context(|| format!("cargo metadata has no {key}"))
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn targets(packages: &[&Value], kind: &str) -> BTreeSet<String> {
    let all = packages.iter().flat_map(|package| array(package, "targets"));
    let right = all.filter(|target| array(target, "kind").any(|k| k.as_str() == Some(kind)));
    right.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect()
}
