//! Whether a library can be preloaded into a program, as far as its file tells.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why a program cannot be traced.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unsuitable {
    #[error("{0} is statically linked: nothing can be preloaded; link it dynamically with MPI")]
    Static(String),
    #[error(
        "{0} has set-user-ID or set-group-ID: the dynamic linker ignores preloaded libraries there"
    )]
    Privileged(String),
    #[error("{0} is built for another architecture")]
    Foreign(String),
}

/// The file that a shell would run; None if there is none.
#[must_use]
pub fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let runnable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(program)).find(runnable)
}

/// Checks the program; scripts and what cannot be read pass, since what they start is unknown.
///
/// # Errors
/// If preloading cannot work.
pub fn check(path: &Path) -> Result<(), Unsuitable> {
    let name = || path.display().to_string();
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    // The first page has the headers of every usual program.
    let mut start = vec![0; 4096];
    let mut length = 0;
    while let Ok(more) = file.read(&mut start[length..]) {
        length += more;
        if more == 0 || length == start.len() {
            break;
        }
    }
    start.truncate(length);
    match linked(&start) {
        Linked::Statically => return Err(Unsuitable::Static(name())),
        Linked::Foreign => return Err(Unsuitable::Foreign(name())),
        Linked::Dynamically | Linked::Unknown => {}
    }
    let foreign_user = |facts: std::fs::Metadata| {
        let user = rustix::process::geteuid().as_raw();
        facts.mode() & 0o4000 != 0 && facts.uid() != user || facts.mode() & 0o2000 != 0
    };
    match path.metadata().is_ok_and(foreign_user) {
        true => Err(Unsuitable::Privileged(name())),
        false => Ok(()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Linked {
    Dynamically,
    Statically,
    Foreign,
    Unknown,
}

const CLASS_64: u8 = 2;
const LITTLE: u8 = 1;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
/// A program header that names the dynamic linker.
const INTERPRETER: u32 = 3;

/// From the beginning of the file.
fn linked(start: &[u8]) -> Linked {
    if start.get(..4) != Some(b"\x7fELF") {
        return Linked::Unknown;
    }
    let half = |at: usize| Some(u16::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_le_bytes(*start.get(at..)?.first_chunk()?));
    if start.get(4..6) != Some(&[CLASS_64, LITTLE]) || half(18) != Some(MACHINE) {
        return Linked::Foreign;
    }
    let (Some(first), Some(size), Some(count)) = (long(32), half(54), half(56)) else {
        return Linked::Unknown;
    };
    for number in 0..u64::from(count) {
        let at = first.saturating_add(number.saturating_mul(u64::from(size)));
        match usize::try_from(at).ok().and_then(word) {
            Some(INTERPRETER) => return Linked::Dynamically,
            Some(_) => {}
            None => return Linked::Unknown,
        }
    }
    Linked::Statically
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_linked_dynamically_and_text_is_unknown() {
        let shell = find(OsStr::new("sh")).expect("a shell");
        assert_eq!(check(&shell), Ok(()));
        assert_eq!(linked(b"#!/bin/sh\n"), Linked::Unknown);
        assert_eq!(find(OsStr::new("no-such-program-at-all")), None);
    }

    #[test]
    fn no_header_makes_it_read_beyond_the_end() {
        let mut start = vec![0xff; 64];
        start[..4].copy_from_slice(b"\x7fELF");
        start[4..6].copy_from_slice(&[CLASS_64, LITTLE]);
        start[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        assert_eq!(linked(&start), Linked::Unknown);
        for length in 0..64 {
            linked(&start[..length]);
        }
        start[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(linked(&start), Linked::Statically);
    }
}
