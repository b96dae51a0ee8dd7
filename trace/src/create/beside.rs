//! A result file while it is being written: without a name, or under a temporary name next to its final
//! path, and moved into place when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{directory, is_recording, name, old_name};
use crate::error::TraceError;

/// Does not appear until it is [committed](NewFile::commit), and never does if it is dropped before. A
/// stream is written directly.
#[derive(Debug)]
pub struct NewFile {
    out: File,
    state: State,
    /// The final path.
    path: PathBuf,
    /// Keep an older recording.
    keep_old: bool,
}

#[derive(Debug)]
enum State {
    Stream,
    /// Has no name yet: however this process ends, nothing is left behind.
    Unnamed,
    /// On file systems without support for unnamed files.
    Named(PathBuf),
    Committed,
}

impl NewFile {
    pub(super) fn stream(out: File) -> NewFile {
        NewFile { out, state: State::Stream, path: PathBuf::new(), keep_old: false }
    }

    pub(super) fn beside(path: &Path, keep_old: bool) -> Result<NewFile, TraceError> {
        let path = path.to_path_buf();
        if let Some(out) = unnamed(directory(&path)) {
            return Ok(NewFile { out, state: State::Unnamed, path, keep_old });
        }
        let temporary = temporary(&path);
        let created = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let cannot = |source| TraceError::Io { what: "create", file: name(&path), source };
        let out = created.map_err(cannot)?;
        Ok(NewFile { out, state: State::Named(temporary), path, keep_old })
    }

    /// Moves it into place. A previous file is replaced or, if it is an older recording to be kept,
    /// renamed with the suffix `.old`.
    pub fn commit(mut self) -> Result<(), TraceError> {
        let cannot = |source| TraceError::Io { what: "write", file: name(&self.path), source };
        self.out.flush().map_err(cannot)?;
        if matches!(self.state, State::Stream) {
            return Ok(());
        }
        let existing = fs::symlink_metadata(&self.path).ok().filter(fs::Metadata::is_file);
        if let Some(existing) = &existing {
            take_over(&self.out, existing);
        }
        // The name must not reach the disk before the data: a crash would leave an empty file.
        self.out.sync_data().or_else(unsupported).map_err(cannot)?;
        if let State::Unnamed = self.state {
            if existing.is_none() && link(&self.out, &self.path).is_ok() {
                self.state = State::Committed;
                return Ok(());
            }
            // linkat() cannot replace a file, but rename() can.
            let temporary = temporary(&self.path);
            link(&self.out, &temporary).map_err(cannot)?;
            self.state = State::Named(temporary);
        }
        if let State::Named(temporary) = &self.state {
            if self.keep_old && is_recording(&self.path) {
                fs::rename(&self.path, old_name(&self.path)).map_err(cannot)?;
            }
            fs::rename(temporary, &self.path).map_err(cannot)?;
            self.state = State::Committed;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let State::Named(temporary) = &self.state {
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A unique name in the same directory: rename works only within one file system.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    directory(path).join(format!(".detour-{}-{number}.tmp", std::process::id()))
}

/// Some file systems do not support fsync.
fn unsupported(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    }
}

/// An unnamed file; None where it is not supported, or cannot be given a name later.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).open(directory).ok()?;
    fs::metadata(by_descriptor(&file)).is_ok().then_some(file)
}

#[cfg(target_os = "linux")]
fn by_descriptor(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, by_descriptor(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_directory: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn link(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Replacing the content keeps owner and permissions, as far as this process is allowed to set them.
fn take_over(file: &File, existing: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let _ = fchown(file, Some(existing.uid()), Some(existing.gid()));
    let _ = file.set_permissions(fs::Permissions::from_mode(existing.mode() & 0o777));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("detour-beside-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        directory
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// As on a file system without support for unnamed files.
    fn named(path: &Path) -> NewFile {
        let temporary = temporary(path);
        let out = OpenOptions::new().write(true).create_new(true).open(&temporary).unwrap();
        let state = State::Named(temporary);
        NewFile { out, state, path: path.to_path_buf(), keep_old: false }
    }

    fn usual(path: &Path) -> NewFile {
        NewFile::beside(path, false).unwrap()
    }

    const WAYS: [fn(&Path) -> NewFile; 2] = [usual, named];

    #[test]
    fn a_file_is_there_once_it_is_committed_and_the_one_before_until_then() {
        let directory = scratch("commit");
        let path = directory.join("result");
        for (number, create) in WAYS.into_iter().enumerate() {
            let mut file = create(&path);
            file.write_all(format!("content {number}").as_bytes()).unwrap();
            let before = number.checked_sub(1).map(|before| format!("content {before}"));
            assert_eq!(fs::read_to_string(&path).ok(), before);
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("content {number}"));
        }
        assert_eq!(names(&directory), ["result"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_is_not_committed_leaves_nothing() {
        let directory = scratch("drop");
        let path = directory.join("result");
        for create in WAYS {
            let mut file = create(&path);
            file.write_all(b"half").unwrap();
            drop(file);
            assert!(names(&directory).is_empty());
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn permissions_stay_as_they_were() {
        use std::os::unix::fs::PermissionsExt;
        let directory = scratch("mode");
        let path = directory.join("result");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        NewFile::beside(&path, false).unwrap().commit().unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.len()), (0o600, 0));
        fs::remove_dir_all(&directory).unwrap();
    }
}
