//! A file of results in the making: written without a name, or beside its place under one of its own,
//! and put in its place once it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{directory, is_recording, name, old_name};
use crate::error::TraceError;

/// Not there until it is [committed](NewFile::commit), and never there if it is dropped before. What is
/// a stream is written as it goes.
#[derive(Debug)]
pub struct NewFile {
    out: File,
    state: State,
    /// Where it is to be.
    path: PathBuf,
    /// Keep an older recording.
    keep_old: bool,
}

#[derive(Debug)]
enum State {
    Stream,
    /// It has no name yet: whatever ends this process, nothing is left.
    Unnamed,
    /// Where the file system knows no files without a name.
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

    /// Puts it in its place. What was there is gone then, or, if it was an older recording that is to be
    /// kept, has `.old` behind its name.
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
        // A name must not reach the disk before what it names: a crash would leave an empty file.
        self.out.sync_data().or_else(unsupported).map_err(cannot)?;
        if let State::Unnamed = self.state {
            if existing.is_none() && link(&self.out, &self.path).is_ok() {
                self.state = State::Committed;
                return Ok(());
            }
            // A link cannot replace a name, but a name can.
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

/// A name that nothing else has, in the same directory: renaming works within one file system only.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    directory(path).join(format!(".detour-{}-{number}.tmp", std::process::id()))
}

/// Some file systems cannot be asked to write now.
fn unsupported(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    }
}

/// A file without a name; None where there is no such thing, or no way to give it one later.
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

/// Who may read and write a file does not change because its content does. As far as this process may.
#[cfg(unix)]
fn take_over(file: &File, existing: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let _ = fchown(file, Some(existing.uid()), Some(existing.gid()));
    let _ = file.set_permissions(fs::Permissions::from_mode(existing.mode() & 0o777));
}

#[cfg(not(unix))]
fn take_over(_file: &File, _existing: &fs::Metadata) {}

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

    /// As where the file system knows no files without a name.
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

    #[cfg(unix)]
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
