//! `cargo xtask dist --check`: installs the packages in an otherwise empty root and runs their
//! contents. Each check is a named test; what this machine cannot do is skipped by name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use super::{Packages, Release, rpm};
use lab::{exec, workspace::Workspace};

/// Above this, systemd rates the unit's exposure as medium.
const MOST_EXPOSED: f64 = 3.0;

struct Check<'a> {
    workspace: &'a Workspace,
    release: &'a Release,
    packages: &'a Packages,
}

/// The outcome of a check that did not fail.
enum Done {
    Passed,
    Skipped(String),
}

type Test = (&'static str, fn(&Check<'_>) -> Result<Done>);

const TESTS: &[Test] = &[
    ("the_binary_is_static_and_names_no_path_of_this_machine", |check| check.binary()),
    ("the_deb_installs_in_an_empty_root_runs_and_leaves_nothing", |check| check.deb()),
    ("the_rpm_holds_the_same_files", |check| check.rpm()),
    ("the_same_commit_gives_the_same_bytes", |check| check.again()),
    ("the_unit_is_well_formed_and_hardened", |check| check.unit()),
    ("prolog_and_epilog_never_fail_a_job", |check| check.slurm()),
];

/// True if no check failed.
pub fn run(
    workspace: &Workspace,
    release: &Release,
    packages: &Packages,
    say: &mut impl FnMut(&str),
) -> Result<bool> {
    let check = Check { workspace, release, packages };
    let architecture = packages.processor.architecture();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in TESTS {
        let outcome = match test(&check) {
            Ok(Done::Passed) => {
                passed += 1;
                "ok".to_owned()
            }
            Ok(Done::Skipped(why)) => {
                skipped += 1;
                format!("ignored, {why}")
            }
            Err(error) => {
                failed += 1;
                println!("{name} ({architecture}): {error:#}");
                "FAILED".to_owned()
            }
        };
        say(&format!("test dist::{architecture}::{name} ... {outcome}"));
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    say(&format!("test result: {word}. {passed} passed; {failed} failed; {skipped} ignored"));
    Ok(failed == 0)
}

/// A directory that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(check: &Check<'_>, name: &str) -> Result<Temporary> {
        let path = check.workspace.target.join("dist").join(format!("check-{name}"));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Check<'_> {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        exec::command(program, &self.workspace.root)
    }

    fn has(&self, program: &str) -> bool {
        self.command(program).arg("--version").output().is_ok()
    }

    fn binary(&self) -> Result<Done> {
        let content = fs::read(&self.packages.binary)?;
        ensure!(content.starts_with(b"\x7fELF"), "not an ELF file");
        // A dynamically linked program names its loader; a static one does not.
        ensure!(!contains(&content, b"/ld-linux"), "it requires a dynamic loader");
        let home = std::env::var("HOME").unwrap_or_default();
        for path in [self.workspace.root.display().to_string(), format!("{home}/.cargo")] {
            ensure!(!contains(&content, path.as_bytes()), "it contains the path {path}");
        }
        Ok(Done::Passed)
    }

    fn deb(&self) -> Result<Done> {
        let Some(deb) = &self.packages.deb else { return Ok(Done::Skipped("no .deb".to_owned())) };
        if !self.packages.processor.is_ours() {
            return Ok(Done::Skipped("built for another architecture".to_owned()));
        }
        for tool in ["dpkg", "unshare"] {
            if !self.has(tool) {
                return Ok(Done::Skipped(format!("{tool} not found")));
            }
        }
        if !exec::is_root() {
            return Ok(Done::Skipped("needs root".to_owned()));
        }
        let root = Temporary::new(self, "root")?;
        let before = prepare(&root.0)?;
        let dpkg = || {
            let mut dpkg = self.command("dpkg");
            dpkg.arg("--root").arg(&root.0).arg("--force-script-chrootless");
            dpkg
        };
        exec::output(dpkg().arg("--install").arg(deb))?;
        let version = self.inside(&root.0, &["--version"])?;
        ensure!(version.contains(&self.release.version), "wrong version: {version}");
        let doctor = self.inside(&root.0, &["doctor", "--json"])?;
        let doctor: serde_json::Value =
            serde_json::from_str(&doctor).context("doctor --json did not print JSON")?;
        ensure!(doctor.is_object(), "doctor printed {doctor}");
        let report = self.inside(&root.0, &["report", "/usr/share/detour/demo.detour"])?;
        ensure!(report.contains("Processes and kernel sources"), "report printed {report}");
        // The static binary has another C library than the tests.
        self.inside(&root.0, &["record", "--quiet", "--no-bpf", "-d", "100ms", "-o", "/a.detour"])?;
        fs::remove_file(root.0.join("a.detour")).context("nothing was recorded")?;
        let page = root.0.join("usr/share/man/man1/detour-record.1.gz");
        let page = exec::output(self.command("gzip").arg("-dc").arg(&page))?;
        ensure!(page.contains(".TH detour-record 1"), "unexpected man page: {page:.80}");
        exec::output(dpkg().args(["--purge", "detour"]))?;
        let after = listing(&root.0)?;
        let left: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
        let ours = |path: &&&String| !path.starts_with("var/lib/dpkg");
        let left: Vec<_> = left.iter().filter(|path| ours(path)).collect();
        ensure!(left.is_empty(), "files left behind: {left:?}");
        Ok(Done::Passed)
    }

    /// Runs the program in a root with only itself and the kernel's file systems, in its own mount
    /// namespace.
    fn inside(&self, root: &Path, arguments: &[&str]) -> Result<String> {
        let script = "mount -t proc proc \"$0/proc\" && mount --rbind /sys \"$0/sys\" \
                      && exec chroot \"$0\" /usr/bin/detour \"$@\"";
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(root);
        exec::output(command.args(arguments))
    }

    fn rpm(&self) -> Result<Done> {
        let Some(package) = &self.packages.rpm else {
            return Ok(Done::Skipped("no .rpm".to_owned()));
        };
        let mut rpm = rpm::tool(self.workspace, "rpm")?;
        let listed = exec::output(rpm.args(["-qp", "--list"]).arg(package))?;
        let mut listed: Vec<&str> = listed.lines().map(|line| line.trim_matches('/')).collect();
        listed.sort_unstable();
        let tree = listing(&self.packages.tree)?;
        let files: Vec<&str> = tree
            .iter()
            .filter(|path| self.packages.tree.join(path).is_file())
            .map(String::as_str)
            .collect();
        ensure!(listed == files, "wrong files: {listed:?} (expected {files:?})");
        let mut rpm = rpm::tool(self.workspace, "rpm")?;
        let needed = exec::output(rpm.args(["-qp", "--requires"]).arg(package))?;
        let needed: Vec<&str> =
            needed.lines().filter(|line| !line.trim().starts_with("rpmlib(")).collect();
        ensure!(needed.is_empty(), "unexpected dependencies: {needed:?}");
        Ok(Done::Passed)
    }

    /// Packs the same tree again.
    fn again(&self) -> Result<Done> {
        let place = Temporary::new(self, "again")?;
        let tree = super::Tree {
            root: self.packages.tree.clone(),
            files: {
                let all = listing(&self.packages.tree)?;
                all.into_iter().filter(|path| self.packages.tree.join(path).is_file()).collect()
            },
        };
        let processor = self.packages.processor;
        let mut compared = 0;
        if let Some(deb) = &self.packages.deb {
            let again =
                super::deb::build(self.workspace, &place.0, self.release, processor, &tree)?;
            ensure!(fs::read(deb)? == fs::read(again)?, "the .deb is not reproducible");
            compared += 1;
        }
        if let Some(rpm) = &self.packages.rpm {
            let again =
                super::rpm::build(self.workspace, &place.0, self.release, processor, &tree)?;
            ensure!(fs::read(rpm)? == fs::read(again)?, "the .rpm is not reproducible");
            compared += 1;
        }
        match compared {
            0 => Ok(Done::Skipped("no packages".to_owned())),
            _ => Ok(Done::Passed),
        }
    }

    fn unit(&self) -> Result<Done> {
        if !self.has("systemd-analyze") {
            return Ok(Done::Skipped("systemd-analyze not found".to_owned()));
        }
        let unit = self.packages.tree.join("usr/lib/systemd/system/detour-record@.service");
        let mut analyze = self.command("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(&unit);
        let said = exec::output(&mut analyze)?;
        let line = said.lines().rev().find(|line| line.contains("exposure level"));
        let level = line.and_then(|line| {
            line.split_whitespace().find_map(|word| word.trim_end_matches(',').parse::<f64>().ok())
        });
        let Some(level) = level else { bail!("no exposure level from systemd-analyze: {said}") };
        println!("exposure level of the unit: {level}");
        ensure!(level <= MOST_EXPOSED, "exposure level {level} exceeds {MOST_EXPOSED}");
        Ok(Done::Passed)
    }

    /// The failure cases: no program, no directory, no job, a stale pid file.
    fn slurm(&self) -> Result<Done> {
        let home = Temporary::new(self, "slurm")?;
        let scripts = self.workspace.root.join("packaging/slurm");
        let run = |name: &str, job: &str| -> Result<()> {
            let mut sh = self.command("sh");
            sh.arg(scripts.join(name)).env("SLURM_JOB_ID", job);
            sh.env("SLURM_JOB_COMMENT", "detour").env_remove("DETOUR_DIR");
            exec::run(&mut sh)
        };
        for job in ["", "12; touch /nowhere", "4711"] {
            run("epilog.sh", job)?;
        }
        for name in ["prolog.sh", "epilog.sh", "healthcheck.sh"] {
            let text = fs::read_to_string(scripts.join(name))?;
            ensure!(text.trim_end().ends_with("exit 0"), "{name} does not end with exit 0");
            let text = text.replace("/var/lib/detour/jobs", &home.0.display().to_string());
            // A program that does not exist, and one that exits at once.
            for program in ["/nowhere/detour", "/bin/false"] {
                let text = text.replace("/usr/bin/detour", program);
                let copy = home.0.join(name);
                fs::write(&copy, text)?;
                let mut sh = self.command("sh");
                sh.arg(&copy).env("SLURM_JOB_ID", "4711").env("SLURM_JOB_COMMENT", "detour");
                exec::run(&mut sh)?;
            }
        }
        Ok(Done::Passed)
    }
}

fn contains(content: &[u8], wanted: &[u8]) -> bool {
    content.windows(wanted.len()).any(|window| window == wanted)
}

/// Creates dpkg's database and the mount points for the kernel's file systems.
fn prepare(root: &Path) -> Result<Vec<String>> {
    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "proc", "sys"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    fs::write(root.join("var/lib/dpkg/available"), "")?;
    listing(root)
}

/// Everything below a directory, sorted.
fn listing(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            found.push(path.strip_prefix(root)?.display().to_string());
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
