//! `cargo xtask docs`: documentation that is generated. `docs/cli.md`, `docs/json.md` and the figure in
//! `docs/ARCHITECTURE.md` are committed, and tests compare them; man pages and completions go to the
//! target directory for packagers.

pub mod crates;
pub mod json;
mod structs;

use std::fs;

use anyhow::{Context, Result};

use lab::{exec, workspace::Workspace};

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "elvish", "powershell"];

pub fn run(workspace: &Workspace) -> Result<bool> {
    workspace.build()?;
    let detour = || exec::command(workspace.binary("detour"), &workspace.root);
    let page = workspace.root.join("docs/cli.md");
    let text = exec::output(detour().args(["man", "--markdown"]))?;
    fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    println!("wrote docs/cli.md");

    json::write(workspace)?;
    crates::write(workspace)?;

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
