//! `cargo xtask slurm`: a real Slurm on this host, from Debian's packages, with two node daemons. A
//! job records on both nodes, a job array splits a simulation, prolog and epilog record a job, and an MPI
//! program that `srun` starts is traced.
//!
//! The packages are unpacked, not installed, into a separate root, and everything runs there in
//! separate PID, network, mount and UTS namespaces. All of it ends with the test. If that is not
//! possible, the tests are skipped by name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    exec,
    vm::{
        archive::{self, Archive, once},
        kernels::Processor,
        programs::Compiler,
    },
    workspace::Workspace,
};

/// The Debian suite to take Slurm from, independent of the host. Since this release unpacking the
/// packages is sufficient: directories merged into /usr are symlinks.
const SUITE: &str = "trixie";

/// The first contains the symlinks for merged directories.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "grep",
    "iproute2",
    "mount",
    "mpich",
    "munge",
    "sed",
    "slurm-client",
    "slurmctld",
    "slurmd",
    "util-linux",
];

/// Functions of the script.
const TESTS: &[&str] = &[
    "record_on_two_nodes",
    "simulate_as_a_job_array",
    "job_recorded_by_prolog_and_epilog",
    "mpi_program_recorded_under_srun",
];

const SCRIPT: &str = include_str!("cluster.sh");
const SETTINGS: &str = include_str!("slurm.conf");
const RING: &str = include_str!("ring.c");
/// Ten times the usual duration.
const LIMIT: Duration = Duration::from_secs(300);

/// True if no test failed.
pub fn run(workspace: &Workspace, mut say: impl FnMut(&str)) -> Result<bool> {
    let root = match prepare(workspace) {
        Ok(root) => root,
        Err(missing) => {
            skip(&mut say, &format!("{missing:#}"));
            return Ok(true);
        }
    };
    let root = Temporary(root);
    let mut seen = Seen::default();
    let ended = inside(workspace, &root.0, |line| {
        seen.look(line);
        say(line);
    });
    if seen.cannot_start {
        skip(&mut say, "Slurm does not start");
        return Ok(true);
    }
    ended?;
    Ok(seen.result == Some(true))
}

fn skip(say: &mut impl FnMut(&str), why: &str) {
    for test in TESTS {
        say(&format!("test slurm::{test} ... ignored, {why}"));
    }
    say(&format!("test result: ok. 0 passed; 0 failed; {} ignored", TESTS.len()));
}

#[derive(Default)]
struct Seen {
    cannot_start: bool,
    result: Option<bool>,
}

impl Seen {
    fn look(&mut self, line: &str) {
        self.cannot_start |= line == "@slurm cannot start";
        if let Some(result) = line.strip_prefix("test result: ") {
            self.result = Some(result.starts_with("ok"));
        }
    }
}

/// A directory that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Prepares the root; an error names what is missing.
fn prepare(workspace: &Workspace) -> Result<PathBuf> {
    if !exec::is_root() {
        bail!("needs root");
    }
    let ours = [Processor::X86, Processor::Arm].into_iter().find(|one| one.is_ours());
    let processor = ours.context("no packages for this architecture")?;
    let place = workspace.target.join("vm");
    fs::create_dir_all(&place)?;
    let packages = place.join("slurm");
    once(&packages, |into| {
        println!("getting Slurm");
        let archive = Archive::open(&place, SUITE, &archive::host()?)?;
        // First, for its symlinks; the others would create directories instead.
        archive.unpack("base-files", into)?;
        archive.unpack_with_dependencies(PACKAGES, into)
    })?;
    let compiler = Compiler::find(workspace, &place, processor)?;
    let detour = compiler.product(workspace, &workspace.target.join("dist/build"))?;

    let root = workspace.target.join("slurm");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut copy = exec::command("cp", &workspace.root);
    exec::run(copy.arg("-a").arg(&packages).arg(&root))?;
    fill(workspace, &root, &detour).inspect_err(|_| {
        let _ = fs::remove_dir_all(&root);
    })?;
    Ok(root)
}

/// What installing would have done, our programs and the configuration.
fn fill(workspace: &Workspace, root: &Path, detour: &Path) -> Result<()> {
    for program in ["slurmctld", "slurmd", "slurmstepd"] {
        let link = root.join("usr/sbin").join(program);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("{program}-wlm"), link)?;
        }
    }
    for directory in ["etc/slurm", "cluster"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let files = [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("etc/hosts", "127.0.0.1 localhost\n10.0.0.1 control node1 node2\n"),
        ("etc/slurm/slurm.conf", SETTINGS),
        // Must not touch the host's cgroups.
        ("etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n"),
        ("cluster/run.sh", SCRIPT),
    ];
    for (name, content) in files {
        fs::write(root.join(name), content).with_context(|| format!("cannot write {name}"))?;
    }
    fs::copy(detour, root.join("usr/bin/detour"))?;
    // Without a compiler, its test is skipped.
    let source = root.join("cluster/ring.c");
    fs::write(&source, RING).with_context(|| format!("cannot write {}", source.display()))?;
    let mut compiler = exec::command("mpicc.mpich", root);
    compiler.arg("-O1").arg(&source).arg("-o").arg(root.join("cluster/ring"));
    let _ = compiler.stdout(Stdio::null()).stderr(Stdio::null()).status();
    for name in ["prolog.sh", "epilog.sh"] {
        let from = workspace.root.join("packaging/slurm").join(name);
        fs::copy(&from, root.join("etc/slurm").join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// Runs the script in separate namespaces; everything it started ends with it.
fn inside(workspace: &Workspace, root: &Path, look: impl FnMut(&str)) -> Result<()> {
    // Slurm treats a host with only loopback addresses as one without a network.
    const ENTER: &str = r#"
mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
mount -t tmpfs tmpfs "$0/run" && mount -t tmpfs tmpfs "$0/tmp" &&
exec chroot "$0" /bin/bash -c '
    ip link set lo up && ip address add 10.0.0.1/24 dev lo &&
    echo control >/proc/sys/kernel/hostname && exec bash /cluster/run.sh "$@"' bash "$@""#;
    let mut unshare = exec::command("unshare", &workspace.root);
    unshare.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    unshare.args(["--uts", "--net", "--ipc", "sh", "-c", ENTER]).arg(root).args(TESTS);
    // Must not be mistaken for an outer Slurm.
    exec::forget(&mut unshare, |name| name.starts_with("SLURM"));
    watched(&mut unshare, look)
}

/// Like [`exec::watch`], with a timeout.
fn watched(command: &mut Command, mut look: impl FnMut(&str)) -> Result<()> {
    use std::io::{BufRead, BufReader};
    let said = exec::describe(command);
    let mut child = Killed(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let pipe = child.0.stdout.take().context("no output")?;
    let (send, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let end = Instant::now() + LIMIT;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => look(&line),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                bail!("`{said:.40}…` took longer than {} s", LIMIT.as_secs())
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.0.wait()?;
    if !status.success() {
        bail!("`{said:.40}…` failed ({status})");
    }
    Ok(())
}

/// Kills the first process of the namespace on drop, and all others with it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
