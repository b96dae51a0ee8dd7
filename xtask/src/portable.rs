//! Everything but recording works on other systems too: the command is checked for one that is not Linux.

use anyhow::Result;
use lab::{exec, tools::Toolchain, workspace::Workspace};

/// Stands for all others: the C code in the dependencies can be compiled for it with any compiler, because
/// nothing is linked.
const TARGET: &str = "x86_64-unknown-freebsd";

pub fn check(workspace: &Workspace, say: &mut dyn FnMut(&str)) -> Result<bool> {
    if !Toolchain::find(&workspace.root)?.has_target(TARGET) {
        let mut rustup = exec::command("rustup", &workspace.root);
        if exec::run(rustup.args(["target", "add", TARGET])).is_err() {
            say(&format!(
                "test portable::{TARGET} ... ignored, needs `rustup target add {TARGET}`"
            ));
            say("test result: ok. 0 passed; 0 failed; 1 ignored");
            return Ok(true);
        }
    }
    let mut clippy = exec::cargo(&workspace.root);
    clippy.env("CC_x86_64_unknown_freebsd", "cc");
    clippy.args(["clippy", "--release", "--locked", "--package", "detour", "--target", TARGET]);
    exec::run(clippy.args(["--", "-D", "warnings"]))?;
    say(&format!("test portable::{TARGET} ... ok"));
    say("test result: ok. 1 passed; 0 failed; 0 ignored");
    Ok(true)
}
