//! Opens the file a trace is written to.
//!
//! Recordings often run as root, so the name is not followed through a symbolic link: whoever can
//! plant one in a shared directory must not choose what gets overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use crate::error::TraceError;

/// What to do when the file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Replace a regular file's content.
    #[default]
    Yes,
    /// Fail.
    No,
}

pub(crate) fn create(path: &Path, overwrite: Overwrite) -> Result<File, TraceError> {
    let file = path.display().to_string();
    if let Ok(existing) = fs::symlink_metadata(path) {
        if overwrite == Overwrite::No {
            return Err(TraceError::Exists { file });
        }
        let kind = existing.file_type();
        if !kind.is_file() {
            let what = match () {
                () if kind.is_symlink() => "a symbolic link",
                () if kind.is_dir() => "a directory",
                () => "a device, pipe or socket",
            };
            return Err(TraceError::NotAFile { file, what });
        }
    }
    let mut options = OpenOptions::new();
    options.write(true);
    match overwrite {
        Overwrite::Yes => options.create(true).truncate(true),
        Overwrite::No => options.create_new(true),
    };
    // The check above gives the better message; this closes the gap between check and use.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => TraceError::Exists { file },
        _ => TraceError::Io { what: "create", file, source },
    })
}

/// Takes back what a failed write left behind, so that the next one continues after the last whole
/// frame.
pub(crate) fn cut_back(file: &mut File, to: u64) -> io::Result<()> {
    file.set_len(to)?;
    file.seek(SeekFrom::Start(to)).map(drop)
}
