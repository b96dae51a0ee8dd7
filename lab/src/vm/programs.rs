//! The programs for the guests, linked statically: the product, the loads and the kernel tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    archive::{Archive, once},
    kernels::Processor,
    tools,
};
use crate::{
    exec,
    tools::{Toolchain, remap},
    workspace::Workspace,
};

pub struct Programs {
    pub detour: PathBuf,
    pub loadgen: PathBuf,
    pub tests: PathBuf,
}

/// What is required to build them for an architecture.
pub struct Compiler {
    processor: Processor,
    c: String,
    c_flags: String,
}

impl Compiler {
    /// An error names what is missing, and the command that installs it.
    pub fn find(workspace: &Workspace, place: &Path, processor: Processor) -> Result<Compiler> {
        let c = c_compiler(&workspace.root, processor)?;
        let c_flags = c_flags(&workspace.root, place, processor, &c)?;
        need_target(&workspace.root, processor.target())?;
        Ok(Compiler { processor, c, c_flags })
    }

    /// Builds only the product, in a separate directory, with nothing of this machine in it.
    pub fn product(&self, workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
        let toolchain = Toolchain::find(&workspace.root)?;
        let mut cargo = self.cargo(workspace);
        cargo.args(["--package", "detour", "--bin", "detour", "--target-dir"]).arg(directory);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", remap(workspace, &toolchain)?.join("\u{1f}"));
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        let messages = exec::output(&mut cargo)?;
        let target = self.processor.target();
        executable(&messages, "detour", false)
            .with_context(|| format!("cargo built no detour for {target}"))
    }

    fn cargo(&self, workspace: &Workspace) -> Command {
        let target = self.processor.target();
        let underscored = target.replace('-', "_");
        let mut cargo = exec::cargo(&workspace.root);
        cargo.args(["build", "--release", "--locked", "--target", target]);
        cargo.arg("--message-format=json-render-diagnostics");
        cargo.env(format!("CC_{underscored}"), &self.c);
        cargo.env(format!("CFLAGS_{underscored}"), &self.c_flags);
        if !self.processor.is_ours() {
            // Ships with rustc and links for every architecture; the system's linker only for its own.
            cargo.env(format!("CARGO_TARGET_{}_LINKER", underscored.to_uppercase()), "rust-lld");
        }
        cargo
    }

    /// Builds in release mode.
    pub fn build(&self, workspace: &Workspace) -> Result<Programs> {
        let target = self.processor.target();
        let mut cargo = self.cargo(workspace);
        cargo.args(["--package", "detour", "--package", "loadgen", "--bins", "--test", "kernel"]);
        let messages = exec::output(&mut cargo)?;
        let found = |name: &str, test: bool| {
            executable(&messages, name, test)
                .with_context(|| format!("cargo built no {name} for {target}"))
        };
        Ok(Programs {
            detour: found("detour", false)?,
            loadgen: found("loadgen", false)?,
            tests: found("kernel", true)?,
        })
    }
}

/// The C compiler, which one dependency needs.
fn c_compiler(root: &Path, processor: Processor) -> Result<String> {
    let (name, remedy) = match (processor, processor.is_ours()) {
        (_, true) => ("cc", "apt-get install gcc"),
        (Processor::Arm, _) => (
            "aarch64-linux-gnu-gcc",
            "apt-get install --no-install-recommends gcc-aarch64-linux-gnu",
        ),
        (Processor::X86, _) => {
            ("x86_64-linux-gnu-gcc", "apt-get install --no-install-recommends gcc-x86-64-linux-gnu")
        }
    };
    match exec::command(name, root).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(name.to_owned()),
        _ => bail!("no C compiler for {}: {remedy}", processor.architecture()),
    }
}

/// The headers of the C library to link, instead of the system's.
fn c_flags(root: &Path, place: &Path, processor: Processor, compiler: &str) -> Result<String> {
    let architecture = processor.architecture();
    let musl = place.join(format!("musl-{architecture}"));
    once(&musl, |into| Archive::open(place, tools::SUITE, architecture)?.unpack("musl-dev", into))?;
    let own = exec::output(exec::command(compiler, root).arg("-print-file-name=include"))?;
    let (name, more) = match processor {
        Processor::X86 => ("x86_64-linux-musl", ""),
        // Otherwise it requires helper functions of libgcc.
        Processor::Arm => ("aarch64-linux-musl", " -mno-outline-atomics"),
    };
    let headers = musl.join("usr/include").join(name);
    Ok(format!("-nostdinc -isystem {} -isystem {}{more}", own.trim(), headers.display()))
}

fn need_target(root: &Path, target: &str) -> Result<()> {
    let mut rustup = exec::command("rustup", root);
    exec::output(rustup.args(["--quiet", "target", "add", target])).map(drop).with_context(|| {
        format!("building for the guests requires `rustup target add {target}` in this directory")
    })
}

/// The file that cargo reports for a program or a test.
fn executable(messages: &str, name: &str, test: bool) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut made = messages.filter(|message| {
        message["reason"] == "compiler-artifact"
            && message["target"]["name"] == name
            && message["profile"]["test"] == test
    });
    made.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_their_own_tests() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"detour"},"profile":{"test":true},"executable":"/t/detour-0123"}
not JSON
{"reason":"compiler-artifact","target":{"name":"detour"},"profile":{"test":false},"executable":"/t/detour"}
{"reason":"compiler-artifact","target":{"name":"kernel"},"profile":{"test":true},"executable":null}"#;
        assert_eq!(executable(messages, "detour", false), Some("/t/detour".into()));
        assert_eq!(executable(messages, "detour", true), Some("/t/detour-0123".into()));
        assert_eq!(executable(messages, "kernel", true), None);
    }
}
