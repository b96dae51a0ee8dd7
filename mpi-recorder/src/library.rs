//! The collector or the worker where a program can load it: in memory if the kernel allows it, otherwise in a
//! private file. Neither is left behind.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use crate::LIBRARY;

/// The library as long as this value lives.
#[derive(Debug)]
pub struct Placed {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Held open; other processes of this user open it through this process.
    Memory {
        _file: OwnedFd,
    },
    File,
}

impl Placed {
    /// The collector in memory, or below `directory`.
    ///
    /// # Errors
    /// If neither is possible.
    pub fn new(directory: &Path) -> io::Result<Placed> {
        Placed::of(LIBRARY, directory)
    }

    /// Another library.
    ///
    /// # Errors
    /// As [`Placed::new`].
    pub fn of(library: &[u8], directory: &Path) -> io::Result<Placed> {
        in_memory(library).or_else(|_| in_file(library, directory))
    }

    /// For `LD_PRELOAD`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if matches!(self.kind, Kind::File) {
            // It may be gone already; nothing else can be done about it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn in_memory(library: &[u8]) -> io::Result<Placed> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let file = memfd_create("detour-mpi", MemfdFlags::CLOEXEC)?;
    let mut writer = fs::File::from(file.try_clone()?);
    writer.write_all(library)?;
    // The path contains the PID, so that child processes can open it.
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    // A process with capabilities of its own cannot be inspected by those it starts.
    if rustix::process::dumpable_behavior()? != rustix::process::DumpableBehavior::Dumpable {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    fs::File::open(&path)?;
    Ok(Placed { path, kind: Kind::Memory { _file: file } })
}

fn in_file(library: &[u8], directory: &Path) -> io::Result<Placed> {
    // A process on another host may have the same PID.
    let host = rustix::system::uname().nodename().to_string_lossy().replace(['/', ':', ' '], "-");
    let path = directory.join(format!(".detour-mpi-{host}-{}.so", std::process::id()));
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        let why = "its path contains a colon or a space, which separate libraries";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o700).open(&path)?;
    file.write_all(library)?;
    Ok(Placed { path, kind: Kind::File })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_read_while_it_lives_and_is_gone_afterwards() {
        let placed = Placed::new(&std::env::temp_dir()).expect("a place");
        assert_eq!(fs::read(placed.path()).expect("readable"), LIBRARY);
        let directory = std::env::temp_dir();
        let file = in_file(LIBRARY, &directory).expect("a file");
        let path = file.path().to_owned();
        assert_eq!(fs::read(&path).expect("readable"), LIBRARY);
        drop(file);
        assert!(!path.exists());
    }
}
