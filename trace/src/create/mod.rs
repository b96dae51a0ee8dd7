//! Creates every file that this project writes, regardless of content.
//!
//! - Result files ([`create`]) are written next to their final path and renamed: complete or absent, and
//!   an existing file stays until then (`beside.rs`).
//! - Recordings ([`Writer::create`](crate::Writer::create)) are written in place, frame by frame, so
//!   that the file of a killed recorder is readable. They replace only an older recording, which is kept
//!   as `.old`.
//! - Pipes, character devices and the process's own file descriptors are written directly (`stream.rs`).
//!
//! Recordings often run as root and write to shared directories. Another user who can create files there
//! must not choose what gets overwritten, nor own what root writes: symbolic links are not followed, and
//! root does not touch another user's file in a directory that others can write to.

mod beside;
mod stream;

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::format::v1::MAGIC;

pub use beside::NewFile;
pub use stream::{is_stdout, is_stream, wait_for_reader};

/// What to do if the file of a recording exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Replace the content of any regular file.
    #[default]
    Yes,
    /// Fail.
    No,
    /// Replace a recording, which is kept as `.old`; refuse to replace anything else.
    Recording,
}

/// A result file, to be written and then [committed](NewFile::commit). For anything but recordings.
pub fn create(path: &Path) -> Result<NewFile, TraceError> {
    can_create(path)?;
    match is_stream(path) {
        true => stream::open(path).map(NewFile::stream),
        false => NewFile::beside(path, false),
    }
}

/// The same for a trace that is computed rather than recorded: it replaces only an older trace.
pub fn create_trace(path: &Path) -> Result<NewFile, TraceError> {
    can_record(path, Overwrite::Recording)?;
    match is_stream(path) {
        true => stream::open(path).map(NewFile::stream),
        false => NewFile::beside(path, true),
    }
}

/// Opens a regular file for appending.
pub fn append(path: &Path) -> Result<File, TraceError> {
    if is_recording(path) {
        return Err(TraceError::IsRecording { file: name(path) });
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    open_in_place(path, &mut options)
}

/// Checks whether [`create`] would fail, without touching anything, so that a mistyped name does not
/// cost hours of work.
pub fn can_create(path: &Path) -> Result<(), TraceError> {
    if is_recording(path) {
        return Err(TraceError::IsRecording { file: name(path) });
    }
    check_place(path)
}

/// The same for a recording.
pub fn can_record(path: &Path, overwrite: Overwrite) -> Result<(), TraceError> {
    check_place(path)?;
    if overwrite == Overwrite::Recording && !is_stream(path) {
        refuse_content(path)?;
        if is_recording(path) {
            refuse_content(&old_name(path))?;
        }
    }
    Ok(())
}

/// Only recordings and empty files may be replaced.
fn refuse_content(path: &Path) -> Result<(), TraceError> {
    let content = fs::symlink_metadata(path).is_ok_and(|found| found.len() > 0);
    match content && !is_recording(path) {
        true => Err(TraceError::NotARecording { file: name(path) }),
        false => Ok(()),
    }
}

/// Whether the path can be written to at all.
fn check_place(path: &Path) -> Result<(), TraceError> {
    if is_stream(path) {
        return Ok(());
    }
    let existing = fs::symlink_metadata(path).ok();
    if let Some(what) = existing.as_ref().and_then(not_a_file) {
        return Err(TraceError::NotAFile { file: name(path), what });
    }
    if let Some(existing) = &existing {
        refuse_planted(path, existing)?;
    }
    let asked =
        rustix::fs::access(directory(path), rustix::fs::Access::WRITE_OK).map_err(io::Error::from);
    asked.map_err(|source| TraceError::Io { what: "create", file: name(path), source })
}

/// Whether these are the first bytes of a trace.
pub fn is_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

pub(crate) fn is_recording(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = |mut file: File| file.read_exact(&mut begin);
    // Opening anything but a regular file might block.
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(read).is_ok()
        && begin == MAGIC
}

/// The name under which an older recording is kept.
pub fn old_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    PathBuf::from(name)
}

/// The file of a recording, and whether a write to it can be undone.
pub(crate) fn create_recording(
    path: &Path,
    overwrite: Overwrite,
) -> Result<(File, bool), TraceError> {
    if is_stream(path) {
        return stream::open(path).map(|file| (file, false));
    }
    let mut options = OpenOptions::new();
    match overwrite {
        // Not truncated before the owner has been checked.
        Overwrite::Yes | Overwrite::Recording => options.write(true).create(true).truncate(false),
        Overwrite::No => options.write(true).create_new(true),
    };
    if overwrite == Overwrite::Recording {
        can_record(path, overwrite)?;
        if is_recording(path) {
            // A process that is still writing it holds its lock.
            lock(&open_in_place(path, OpenOptions::new().read(true))?, path)?;
            let cannot =
                |source| TraceError::Io { what: "rename the existing", file: name(path), source };
            fs::rename(path, old_name(path)).map_err(cannot)?;
            options.create_new(true);
        }
    }
    let opened = open_in_place(path, &mut options)?;
    lock(&opened, path)?;
    let cannot = |source| TraceError::Io { what: "create", file: name(path), source };
    if opened.metadata().map_err(cannot)?.len() > 0 {
        opened.set_len(0).map_err(cannot)?;
    }
    Ok((opened, true))
}

/// Removes what was created under this name, if it is a regular file.
pub fn discard(path: &Path) {
    if !is_stream(path) && fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        let _ = fs::remove_file(path);
    }
}

/// Opens a regular file without following symbolic links.
fn open_in_place(path: &Path, options: &mut OpenOptions) -> Result<File, TraceError> {
    if let Some(what) = fs::symlink_metadata(path).ok().as_ref().and_then(not_a_file) {
        return Err(TraceError::NotAFile { file: name(path), what });
    }
    // The check above gives the better message; this closes the race between check and use.
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    let opened = options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => TraceError::Exists { file: name(path) },
        _ => TraceError::Io { what: "create", file: name(path), source },
    })?;
    let cannot = |source| TraceError::Io { what: "create", file: name(path), source };
    let found = opened.metadata().map_err(cannot)?;
    if let Some(what) = not_a_file(&found) {
        return Err(TraceError::NotAFile { file: name(path), what });
    }
    refuse_planted(path, &found)?;
    Ok(opened)
}

/// Held until the file is closed. Some network file systems have no locks: then there is no exclusion.
fn lock(file: &File, path: &Path) -> Result<(), TraceError> {
    if rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        == Err(rustix::io::Errno::WOULDBLOCK)
    {
        return Err(TraceError::Busy { file: name(path) });
    }
    Ok(())
}

/// For messages.
fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Describes anything that is not a regular file.
fn not_a_file(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_symlink() => Some("a symbolic link"),
        () if kind.is_dir() => Some("a directory"),
        () => Some("a block device or socket"),
    }
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn refuse_planted(path: &Path, found: &Metadata) -> Result<(), TraceError> {
    let directory = fs::metadata(directory(path)).ok();
    match planted(found, directory.as_ref()) {
        Some(why) if rustix::process::geteuid().is_root() => {
            Err(TraceError::Planted { file: name(path), why })
        }
        _ => Ok(()),
    }
}

/// Why root must not write to a file or pipe, if so. A file that belongs to root or to the owner of the
/// directory was not planted by another user.
fn planted(found: &Metadata, directory: Option<&Metadata>) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    if found.nlink() > 1 {
        return Some("it has more than one hard link");
    }
    let open_to_others = directory.is_none_or(|directory| directory.mode() & OTHERS_WRITE != 0);
    let owner_of_directory = directory.map(MetadataExt::uid);
    let stranger = found.uid() != 0 && owner_of_directory != Some(found.uid());
    (open_to_others && stranger)
        .then_some("it belongs to another user, in a directory that others can write to")
}

/// Truncates what a failed write left behind, so that the next one continues after the last complete
/// frame.
pub(crate) fn cut_back(file: &mut File, to: u64) -> io::Result<()> {
    file.set_len(to)?;
    file.seek(SeekFrom::Start(to)).map(drop)
}
