//! The layout of a package's files: one tree for both package formats.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Release;
use lab::{exec, workspace::Workspace};

pub struct Tree {
    pub root: PathBuf,
    /// Installed paths such as `usr/bin/detour`, sorted.
    pub files: Vec<String>,
}

/// Copied from the repository unchanged.
const COPIES: &[(&str, &str)] = &[
    ("packaging/detour-record@.service", "usr/lib/systemd/system/detour-record@.service"),
    ("packaging/detour-record@.timer", "usr/lib/systemd/system/detour-record@.timer"),
    ("packaging/slurm/prolog.sh", "usr/share/detour/slurm/prolog.sh"),
    ("packaging/slurm/epilog.sh", "usr/share/detour/slurm/epilog.sh"),
    ("packaging/slurm/healthcheck.sh", "usr/share/detour/slurm/healthcheck.sh"),
    ("mpi-recorder/include/detour.h", "usr/share/detour/mpi/detour.h"),
    ("mpi-recorder/include/detour.f90", "usr/share/detour/mpi/detour.f90"),
    ("mpi-recorder/include/detour.py", "usr/share/detour/mpi/detour.py"),
    ("fixtures/demo.detour", "usr/share/detour/demo.detour"),
    ("README.md", "usr/share/doc/detour/README.md"),
    ("CHANGELOG.md", "usr/share/doc/detour/CHANGELOG.md"),
    ("LICENSE-MIT", "usr/share/doc/detour/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/detour/LICENSE-APACHE"),
    ("LICENSE-GPL-2.0", "usr/share/doc/detour/LICENSE-GPL-2.0"),
    ("packaging/copyright", "usr/share/doc/detour/copyright"),
];

const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/detour"),
    ("zsh", "usr/share/zsh/vendor-completions/_detour"),
    ("fish", "usr/share/fish/vendor_completions.d/detour.fish"),
];

impl Tree {
    /// `binary` is packaged; `program` is the same for this machine and generates the documentation.
    pub fn lay_out(
        workspace: &Workspace,
        root: &Path,
        release: &Release,
        binary: &Path,
        program: &Path,
    ) -> Result<Tree> {
        if root.exists() {
            fs::remove_dir_all(root)?;
        }
        let mut tree = Tree { root: root.to_path_buf(), files: Vec::new() };
        tree.add("usr/bin/detour", &fs::read(binary)?, 0o755)?;
        for (from, to) in COPIES {
            let path = workspace.root.join(from);
            let content =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let mode = if to.ends_with(".sh") { 0o755 } else { 0o644 };
            tree.add(to, &content, mode)?;
        }
        let detour = || exec::command(program, &workspace.root);
        for (shell, to) in COMPLETIONS {
            let script = exec::output(detour().args(["completions", shell]))?;
            tree.add(to, script.as_bytes(), 0o644)?;
        }
        tree.manual(workspace, detour().arg("man"))?;
        tree.files.sort();
        tree.date(workspace, release)?;
        Ok(tree)
    }

    fn add(&mut self, to: &str, content: &[u8], mode: u32) -> Result<()> {
        let path = self.root.join(to);
        let cannot = || format!("cannot write {}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(cannot)?;
        }
        fs::write(&path, content).with_context(cannot)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(cannot)?;
        self.files.push(to.to_owned());
        Ok(())
    }

    fn manual(&mut self, workspace: &Workspace, man: &mut std::process::Command) -> Result<()> {
        const PLACE: &str = "usr/share/man/man1";
        let directory = self.root.join(PLACE);
        exec::run(man.arg("-o").arg(&directory))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        for name in &names {
            // Without the original's name and timestamp, for reproducible bytes.
            exec::run(exec::command("gzip", &workspace.root).arg("-9n").arg(directory.join(name)))?;
            self.files.push(format!("{PLACE}/{name}.gz"));
        }
        Ok(())
    }

    /// Sets all timestamps to the commit's.
    fn date(&self, workspace: &Workspace, release: &Release) -> Result<()> {
        let mut find = exec::command("find", &workspace.root);
        find.arg(&self.root).args(["-exec", "touch", "--no-dereference", "--date"]);
        exec::run(find.arg(format!("@{}", release.epoch)).args(["{}", "+"]))
    }
}
