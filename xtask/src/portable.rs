//! Everything but recording works on other systems too: the command is checked for one that is not Linux.

use anyhow::Result;
use lab::{exec, tools::Toolchain, workspace::Workspace};

/// Stands for all others: the C code in the dependencies can be compiled for it with any compiler for
/// x86-64, because nothing is linked.
const TARGET: &str = "x86_64-unknown-freebsd";

pub fn check(workspace: &Workspace, say: &mut dyn FnMut(&str)) -> Result<bool> {
    if let Some(missing) = missing(workspace)? {
        say(&format!("test portable::{TARGET} ... ignored, needs {missing}"));
        say("test result: ok. 0 passed; 0 failed; 1 ignored");
        return Ok(true);
    }
    let mut clippy = exec::cargo(&workspace.root);
    clippy.env("CC_x86_64_unknown_freebsd", "cc");
    clippy.args(["clippy", "--release", "--locked", "--package", "detour", "--target", TARGET]);
    exec::run(clippy.args(["--", "-D", "warnings"]))?;
    say(&format!("test portable::{TARGET} ... ok"));
    say("test result: ok. 1 passed; 0 failed; 0 ignored");
    Ok(true)
}

/// Installs the target if need be; what is missing if that fails.
fn missing(workspace: &Workspace) -> Result<Option<String>> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Some("a compiler for x86-64".to_owned()));
    }
    if Toolchain::find(&workspace.root)?.has_target(TARGET) {
        return Ok(None);
    }
    let mut rustup = exec::command("rustup", &workspace.root);
    let added = exec::run(rustup.args(["target", "add", TARGET]));
    Ok(added.is_err().then(|| format!("`rustup target add {TARGET}`")))
}
