//! Outputs that are not files: pipes, character devices, and descriptors that this process already has
//! open (`/dev/stdout`, `/dev/fd/63` of a process substitution). Written sequentially.
//!
//! `/dev/stdout` and `/dev/fd/N` are symbolic links, and the only ones not refused: they lead to
//! descriptors that the caller passed in, which no other user can choose.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::name;
use crate::error::TraceError;

/// Whether this path is written to directly rather than replaced by a new file.
pub fn is_stream(path: &Path) -> bool {
    own_descriptor(path).is_some() || is_pipe_or_device(path)
}

/// Whether this path is the process's standard output.
pub fn is_stdout(path: &Path) -> bool {
    own_descriptor(path) == Some(1)
}

/// The descriptor number in a path such as `/dev/fd/N`.
fn own_descriptor(path: &Path) -> Option<u32> {
    let text = path.to_str()?;
    match text {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => {
            let number = text.strip_prefix("/dev/fd/").or(text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok()
        }
    }
}

fn is_pipe_or_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_char_device())
}

/// Opens it. A pipe without a reader is [`TraceError::NoReader`].
pub(super) fn open(path: &Path) -> Result<File, TraceError> {
    let cannot = |source| TraceError::Io { what: "write to", file: name(path), source };
    match own_descriptor(path) {
        Some(number) => descriptor(number).map_err(cannot),
        None => pipe_or_device(path),
    }
}

fn descriptor(number: u32) -> io::Result<File> {
    use std::os::fd::AsFd;
    match number {
        1 => {
            // Output printed before must come first.
            io::stdout().flush()?;
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        }
        2 => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        // Opening a regular file again starts at offset 0, so append.
        _ => {
            let path = PathBuf::from(format!("/proc/self/fd/{number}"));
            OpenOptions::new().append(true).open(path)
        }
    }
}

fn pipe_or_device(path: &Path) -> Result<File, TraceError> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let cannot = |source: io::Error| TraceError::Io { what: "write to", file: name(path), source };
    // Opening a pipe without a reader would block, and could not be interrupted.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path);
    let opened = opened.map_err(|source| match source.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
            TraceError::NoReader { file: name(path) }
        }
        _ => cannot(source),
    })?;
    let found = opened.metadata().map_err(cannot)?;
    let kind = found.file_type();
    if !(kind.is_fifo() || kind.is_char_device()) {
        let what = "no longer the pipe or device it was";
        return Err(TraceError::NotAFile { file: name(path), what });
    }
    super::refuse_planted(path, &found)?;
    // From here on, writes block on a slow reader.
    let flags = rustix::fs::fcntl_getfl(&opened).map_err(|error| cannot(error.into()))?;
    rustix::fs::fcntl_setfl(&opened, flags - OFlags::NONBLOCK)
        .map_err(|error| cannot(error.into()))?;
    Ok(opened)
}

/// Waits until a process reads from a pipe, or until `stop` returns true. Holding the returned file
/// keeps the reader from seeing end-of-file before anything is written. None if there is nothing to wait
/// for.
pub fn wait_for_reader(path: &Path, stop: &dyn Fn() -> bool) -> Result<Option<File>, TraceError> {
    const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);
    if own_descriptor(path).is_some() || !is_pipe_or_device(path) {
        return Ok(None);
    }
    loop {
        match open(path) {
            Err(TraceError::NoReader { .. }) if !stop() => std::thread::sleep(LOOK_EVERY),
            opened => return opened.map(Some),
        }
    }
}
