//! What the guests need from the host: QEMU with its firmware, and a busybox per architecture. All
//! from one Debian suite with its own C library, so that the host's does not matter.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    archive::{self, Archive, once},
    kernels::{Kernel, Processor},
};
use crate::exec;

/// The Debian suite to take tools from, independent of the host.
pub const SUITE: &str = "trixie";

/// Everything for one kernel.
pub struct Tools {
    pub processor: Processor,
    /// The kernel image, and the package it comes from.
    pub kernel: PathBuf,
    pub package: String,
    pub busybox: PathBuf,
    /// The loop device module, the guests' only storage; None if the package has none.
    pub loop_module: Option<PathBuf>,
    qemu: PathBuf,
}

impl Tools {
    /// Unpacked below `place` unless already there.
    pub fn get(place: &Path, kernel: &Kernel) -> Result<Tools> {
        let qemu = get_qemu(place)?;
        let architecture = kernel.processor.architecture();
        let busybox = place.join(format!("busybox-{architecture}"));
        once(&busybox, |into| {
            Archive::open(place, SUITE, architecture)?.unpack("busybox-static", into)
        })?;
        let directory = place.join(format!("linux-{}", kernel.name));
        once(&directory, |into| {
            println!("fetching Linux {}", kernel.name);
            get_kernel(&Archive::open(place, kernel.suite, architecture)?, kernel, into)
        })?;
        Ok(Tools {
            processor: kernel.processor,
            kernel: directory.join("vmlinuz"),
            package: fs::read_to_string(directory.join("package"))?,
            busybox: busybox.join("usr/bin/busybox"),
            loop_module: Some(directory.join(LOOP_MODULE)).filter(|path| path.exists()),
            qemu,
        })
    }

    /// QEMU for the kernel's architecture.
    pub fn qemu(&self) -> Result<Command> {
        let program = match self.processor {
            Processor::X86 => "qemu-system-x86_64",
            Processor::Arm => "qemu-system-aarch64",
        };
        qemu_command(&self.qemu, program)
    }
}

/// QEMU for all architectures, unpacked below `place` unless already there.
pub fn get_qemu(place: &Path) -> Result<PathBuf> {
    let qemu = place.join("qemu");
    once(&qemu, |into| {
        println!("fetching QEMU");
        let archive = Archive::open(place, SUITE, &archive::host()?)?;
        archive.unpack_with_dependencies(&["qemu-system-x86", "qemu-system-arm"], into)
    })?;
    Ok(qemu)
}

/// A program of QEMU, started by the dynamic loader of its own C library. The kernel kills it with the
/// thread that started it: an emulated machine that nobody waits for would keep two CPUs busy for ever.
pub fn qemu_command(qemu: &Path, program: &str) -> Result<Command> {
    let libraries = find(&qemu.join("usr/lib"), "-linux-gnu")?;
    let loader = find(&libraries, "ld-linux-")?;
    let mut command = exec::command("setpriv", qemu);
    command.args(["--pdeathsig", "KILL"]).arg(loader);
    command.arg("--library-path").arg(&libraries);
    command.arg(qemu.join("usr/bin").join(program));
    command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
    for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        command.arg("-L").arg(qemu.join(firmware));
    }
    Ok(command)
}

const LOOP_MODULE: &str = "loop.ko";

/// Keeps the image, the loop module and the package's name in a directory.
fn get_kernel(archive: &Archive, kernel: &Kernel, into: &Path) -> Result<()> {
    let mut package = None;
    // Since 6.19 the image is in a separate package.
    for kind in ["linux-binary-", "linux-image-"] {
        let prefix = format!("{kind}{}", kernel.series);
        package = package.or(archive.newest(&prefix, kernel.flavour)?);
    }
    let package = package.with_context(|| {
        format!("{}: no package linux-image-{}*{}", kernel.suite, kernel.series, kernel.flavour)
    })?;
    let unpacked = into.join("unpacked");
    archive.unpack(&package, &unpacked)?;
    fs::rename(image(&unpacked)?, into.join("vmlinuz"))?;
    keep_loop_module(&unpacked, &into.join(LOOP_MODULE))?;
    fs::write(into.join("package"), &package)?;
    fs::remove_dir_all(unpacked).map_err(Into::into)
}

/// Newer packages compress their modules. Those of 6.19 and later contain none.
fn keep_loop_module(unpacked: &Path, place: &Path) -> Result<()> {
    let modules = ["lib/modules", "usr/lib/modules"].map(|path| unpacked.join(path));
    let Some(version) = modules.iter().find_map(|path| find(path, "").ok()) else { return Ok(()) };
    let Ok(module) = find(&version.join("kernel/drivers/block"), "loop.ko") else { return Ok(()) };
    if module.extension().is_some_and(|extension| extension == "xz") {
        exec::run(exec::command("xz", unpacked).arg("--decompress").arg(&module))?;
    }
    let plain = module.with_file_name(LOOP_MODULE);
    fs::rename(&plain, place).with_context(|| format!("cannot keep {}", plain.display()))
}

/// The image in an unpacked package: in /boot, or since 6.19 with the modules.
fn image(unpacked: &Path) -> Result<PathBuf> {
    if let Ok(image) = find(&unpacked.join("boot"), "vmlinuz-") {
        return Ok(image);
    }
    let modules = unpacked.join("usr/lib/modules");
    let version = fs::read_dir(&modules)
        .with_context(|| format!("no kernel in {}", unpacked.display()))?
        .flatten()
        .map(|entry| entry.path().join("vmlinuz"))
        .find(|image| image.is_file());
    version.with_context(|| format!("no kernel in {}", modules.display()))
}

/// The entry of a directory whose name contains this.
fn find(directory: &Path, part: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part));
    let found = entries.flatten().map(|entry| entry.path()).find(named);
    found.with_context(|| format!("no {part}* in {}", directory.display()))
}
