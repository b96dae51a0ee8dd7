//! The root file system of the machines: Debian, made once by mmdebstrap and kept in the target directory.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    exec,
    missing::Missing,
    vm::{
        archive::{Archive, mirror, once},
        tools::SUITE,
    },
    workspace::Workspace,
};

/// What the machines have beyond a minimal system.
const PACKAGES: &[&str] = &[
    "adjtimex",
    "apparmor",
    "crun",
    "dbus",
    "dbus-user-session",
    "e2fsprogs",
    "gcc",
    "initramfs-tools",
    "iproute2",
    "jq",
    "kmod",
    "libc6-dev",
    "libmpich-dev",
    "libopenmpi-dev",
    "libpam-systemd",
    "linux-image-amd64",
    "mpich",
    "munge",
    "openmpi-bin",
    "openssh-client",
    "openssh-server",
    "podman",
    "procps",
    "qemu-guest-agent",
    "slurm-client",
    "slurmctld",
    "slurmd",
    "systemd",
    "systemd-sysv",
    "udev",
];

/// Run in the new root, with the programs that it compiles.
const SCRIPT: &str = include_str!("root.sh");
const PROGRAMS: &[(&str, &str)] =
    &[("steps.c", include_str!("steps.c")), ("burn.c", include_str!("burn.c"))];

/// Sparse: only what is used takes space.
const SIZE: &str = "6G";

/// The files that a machine boots from.
pub struct Root {
    pub image: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

impl Root {
    /// Made below `place` unless already there. `tools` holds the package lists.
    pub fn get(workspace: &Workspace, place: &Path, tools: &Path) -> Result<Root> {
        for program in ["perl", "mke2fs", "chroot"] {
            let found = exec::command("sh", &workspace.root)
                .args(["-c", "command -v \"$0\" || ls /usr/sbin/\"$0\"", program])
                .output();
            if !found.is_ok_and(|output| output.status.success()) {
                bail!(Missing(format!(
                    "{program} not found: apt-get install perl e2fsprogs coreutils"
                )));
            }
        }
        let mut hasher = DefaultHasher::new();
        (SUITE, SIZE, PACKAGES, SCRIPT, PROGRAMS).hash(&mut hasher);
        // Another recipe makes another root.
        let directory = place.join(format!("root-{:016x}", hasher.finish()));
        if !directory.exists() {
            remove_others(place)?;
        }
        once(&directory, |into| make(workspace, tools, into))?;
        let file = |name: &str| directory.join(name);
        Ok(Root { image: file("root.img"), kernel: file("vmlinuz"), initrd: file("initrd.img") })
    }
}

/// Those of other recipes are never used again.
fn remove_others(place: &Path) -> Result<()> {
    for entry in fs::read_dir(place)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("root-") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn make(workspace: &Workspace, tools: &Path, into: &Path) -> Result<()> {
    println!("making the root file system (some minutes, once)");
    let mmdebstrap = tools.join("mmdebstrap");
    once(&mmdebstrap, |into| Archive::open(tools, SUITE, "amd64")?.unpack("mmdebstrap", into))?;
    let programs = mmdebstrap.join("usr/bin");
    let (root, given) = (into.join("root"), into.join("given"));
    fs::create_dir_all(&given)?;
    for (name, text) in PROGRAMS.iter().chain(&[("root.sh", SCRIPT)]) {
        fs::write(given.join(name), text)?;
    }
    let mut command = exec::command("perl", &workspace.root);
    exec::search_first(&mut command, "PATH", &programs)?;
    command.arg(programs.join("mmdebstrap"));
    command.args(["--quiet", "--mode=root", "--variant=minbase", "--architectures=amd64"]);
    command.args(["--aptopt=Apt::Install-Recommends false", "--aptopt=Acquire::Languages none"]);
    // The image is made from the directory; nothing has to survive a crash of this host.
    command.arg("--dpkgopt=force-unsafe-io");
    for unwanted in ["doc", "man", "locale"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{unwanted}/*"));
    }
    command.arg(format!("--include={}", PACKAGES.join(",")));
    // The shell of a hook has the root in its first argument.
    let quoted = given.display();
    command.arg(format!("--customize-hook=cp '{quoted}'/*.c \"$1\"/root/"));
    command.arg(format!("--customize-hook=chroot \"$1\" bash -s <'{quoted}/root.sh'"));
    command.arg(SUITE).arg(&root).arg(format!("deb {} {SUITE} main", mirror()?));
    exec::run(&mut command).context("cannot make the root file system")?;
    for name in ["vmlinuz", "initrd.img"] {
        let from = root.join("root").join(name);
        fs::rename(&from, into.join(name))
            .with_context(|| format!("the new root has no {}", from.display()))?;
    }
    let mut mke2fs = exec::command("mke2fs", &workspace.root);
    exec::search_first(&mut mke2fs, "PATH", Path::new("/usr/sbin"))?;
    mke2fs.args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(into.join("root.img")).arg(SIZE);
    exec::run(&mut mke2fs)?;
    fs::remove_dir_all(&root)?;
    fs::remove_dir_all(&given).map_err(Into::into)
}
