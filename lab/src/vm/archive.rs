//! Debian packages of any suite, without touching the system: apt works in a private directory, with
//! the machine's mirror and another suite's name. Packages are unpacked, never installed.

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{exec, missing::Missing};

pub struct Archive {
    directory: PathBuf,
    architecture: String,
}

impl Archive {
    /// Fetches the package lists of a suite into a directory below `place`.
    pub fn open(place: &Path, suite: &str, architecture: &str) -> Result<Archive> {
        let mirror = mirror()?;
        let directory = place.join("apt").join(format!("{suite}-{architecture}"));
        for part in ["lists/partial", "archives/partial"] {
            let path = directory.join(part);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        // Nothing counts as installed, so that apt downloads all dependencies of a package.
        fs::write(directory.join("status"), "")?;
        fs::write(directory.join("sources.list"), format!("deb {mirror} {suite} main\n"))?;
        let archive = Archive { directory, architecture: architecture.to_owned() };
        exec::output(archive.apt("apt-get").args(["-qq", "update"])).with_context(|| {
            Missing(format!("cannot fetch the package lists of {suite} from {mirror}"))
        })?;
        Ok(archive)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = exec::command(program, &self.directory);
        let path = |part: &str| self.directory.join(part).display().to_string();
        let settings = [
            ("Dir::State", path("")),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache", path("")),
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", "/dev/null".to_owned()),
            ("APT::Architecture", self.architecture.clone()),
            ("APT::Architectures", self.architecture.clone()),
            ("Acquire::Languages", "none".to_owned()),
            // The sandbox user may not be able to read the directory.
            ("APT::Sandbox::User", "root".to_owned()),
            // The lists of an old suite are still usable after they expire.
            ("Acquire::Check-Valid-Until", "false".to_owned()),
        ];
        for (name, value) in settings {
            command.arg("-o").arg(format!("{name}={value}"));
        }
        command
    }

    /// The newest package whose name has this prefix and suffix.
    pub fn newest(&self, prefix: &str, suffix: &str) -> Result<Option<String>> {
        let names = exec::output(self.apt("apt-cache").args(["pkgnames", prefix]))?;
        Ok(newest(names.lines(), prefix, suffix).map(str::to_owned))
    }

    /// Downloads a package and unpacks it into a directory.
    pub fn unpack(&self, name: &str, into: &Path) -> Result<()> {
        fs::create_dir_all(into)?;
        let before = self.downloaded(&self.directory)?;
        ensure!(before.is_empty(), "{} is not empty", self.directory.display());
        exec::output(self.apt("apt-get").args(["-qq", "download", name]))?;
        self.unpack_all(&self.directory, into)
    }

    /// The same with all dependencies of these packages, including the C library.
    pub fn unpack_with_dependencies(&self, names: &[&str], into: &Path) -> Result<()> {
        fs::create_dir_all(into)?;
        let install = ["-qq", "--yes", "--download-only", "--no-install-recommends", "install"];
        exec::output(self.apt("apt-get").args(install).args(names))?;
        self.unpack_all(&self.directory.join("archives"), into)
    }

    fn unpack_all(&self, directory: &Path, into: &Path) -> Result<()> {
        for package in self.downloaded(directory)? {
            let mut command = exec::command("dpkg-deb", &self.directory);
            exec::run(command.arg("--extract").arg(&package).arg(into))?;
            // The unpacked files are kept; the package is no longer needed.
            fs::remove_file(&package)?;
        }
        Ok(())
    }

    fn downloaded(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let mut packages = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                packages.push(path);
            }
        }
        Ok(packages)
    }
}

/// Creates a directory once; a partial one does not count as present.
pub fn once(directory: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    let name = directory.file_name().context("a directory without a name")?.to_string_lossy();
    let partial = directory.with_file_name(format!("{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    make(&partial)?;
    fs::rename(&partial, directory).with_context(|| format!("cannot rename {}", partial.display()))
}

/// The host's architecture by its Debian name.
pub fn host() -> Result<String> {
    let mut command = exec::command("dpkg", Path::new("."));
    let output = exec::output(command.arg("--print-architecture")).with_context(|| {
        Missing("dpkg not found; kernels and QEMU come from Debian packages".into())
    })?;
    Ok(output.trim().to_owned())
}

/// The mirror from which this machine gets its Debian packages.
pub fn mirror() -> Result<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        let mut more: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    match texts.flat_map(|text| addresses(&text)).find(|address| is_debian(address)) {
        Some(address) => Ok(address),
        None => bail!(Missing(
            "no Debian mirror in the package sources of this machine (/etc/apt); kernels and QEMU \
             come from there"
                .to_owned()
        )),
    }
}

/// The archive itself, not security updates or third-party packages.
fn is_debian(address: &str) -> bool {
    address.trim_end_matches('/').ends_with("/debian")
}

/// The addresses in a list of package sources, in either of apt's formats.
fn addresses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("URIs:") {
            found.extend(rest.split_whitespace().map(str::to_owned));
        } else if let Some(rest) = line.strip_prefix("deb ") {
            // Options in brackets precede the address.
            let rest = match rest.trim_start().strip_prefix('[') {
                Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
                None => rest,
            };
            found.extend(rest.split_whitespace().next().map(str::to_owned));
        }
    }
    found
}

fn newest<'a>(names: impl Iterator<Item = &'a str>, prefix: &str, suffix: &str) -> Option<&'a str> {
    let version = |name: &'a str| {
        let middle = name.trim().strip_prefix(prefix)?.strip_suffix(suffix)?;
        // A version and an ABI, not another flavour.
        middle.starts_with(|c: char| c.is_ascii_digit()).then_some(middle)
    };
    let is_flavour = |middle: &str| middle.contains("-rt") || middle.contains("-cloud");
    names
        .filter_map(|name| Some((version(name)?, name.trim())))
        .filter(|(middle, _)| !is_flavour(middle))
        .max_by(|(a, _), (b, _)| by_numbers(a, b))
        .map(|(_, name)| name)
}

/// Compares the numbers in the names, from the left.
fn by_numbers(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        let parts = text.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let old = "# comment\ndeb http://mirror.example/debian bookworm main\n\
                   deb [arch=amd64 signed-by=/k] https://other.example/apt stable main\n\
                   deb-src http://mirror.example/src bookworm main\n";
        assert_eq!(addresses(old), ["http://mirror.example/debian", "https://other.example/apt"]);
        let new = "Types: deb\nURIs: http://one.example/debian/ http://two.example/debian\n\
                   Suites: trixie\n";
        assert_eq!(addresses(new), ["http://one.example/debian/", "http://two.example/debian"]);
        assert!(is_debian("http://one.example/debian/"));
        assert!(!is_debian("http://one.example/debian-security"));
    }

    #[test]
    fn the_newest_build_of_a_flavour_is_taken() {
        let names = [
            "linux-image-6.18.9+deb13-cloud-amd64",
            "linux-image-6.18.15+deb13-cloud-amd64",
            "linux-image-6.18.15+deb13-cloud-amd64-unsigned",
            "linux-image-6.18.16+deb13-rt-amd64",
            "linux-image-6.180.1-cloud-amd64",
        ];
        let found = |suffix| newest(names.into_iter(), "linux-image-6.18.", suffix);
        assert_eq!(found("-cloud-amd64"), Some("linux-image-6.18.15+deb13-cloud-amd64"));
        assert_eq!(found("-rt-amd64"), Some("linux-image-6.18.16+deb13-rt-amd64"));
        // The plain flavour is not the real-time one.
        assert_eq!(found("-amd64"), None);
        assert_eq!(found("-arm64"), None);
    }
}
