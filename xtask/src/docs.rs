//! `cargo xtask docs`: the command-line documentation in other forms. `docs/cli.md` is committed, and
//! a test compares it; man pages and completions go to the target directory for packagers.

use std::fs;

use anyhow::{Context, Result};

use crate::{exec, workspace::Workspace};

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "elvish", "powershell"];

pub fn run(workspace: &Workspace) -> Result<bool> {
    workspace.build()?;
    let detour = || exec::command(workspace.binary("detour"), &workspace.root);
    let page = workspace.root.join("docs/cli.md");
    let text = exec::output(detour().args(["man", "--markdown"]))?;
    fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    println!("wrote docs/cli.md");

    let manual = workspace.target.join("man");
    exec::run(detour().arg("man").arg("-o").arg(&manual))?;
    println!("wrote man pages to {}", manual.display());

    let completions = workspace.target.join("completions");
    fs::create_dir_all(&completions)
        .with_context(|| format!("cannot create {}", completions.display()))?;
    for shell in SHELLS {
        let script = exec::output(detour().args(["completions", shell]))?;
        let path = completions.join(format!("detour.{shell}"));
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote completions to {}", completions.display());
    Ok(true)
}
