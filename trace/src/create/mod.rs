//! Creates every file that this project writes, whatever is in it.
//!
//! Recordings often run as root, and people write into shared directories. Whoever can plant
//! something there must not choose what gets overwritten, nor own what root writes: names are not
//! followed through a symbolic link, only regular files are written to, and root leaves alone what
//! somebody else put into a directory that is open to others. And a mistyped name does not cost a
//! recording: only another recording goes over it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::TraceError;
use crate::format::v1::MAGIC;

/// What to do when the file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Replace a regular file's content.
    #[default]
    Yes,
    /// Fail.
    No,
    /// Go on at its end.
    Append,
}

/// Creates a file, or opens one that may be written to, for anything but a recording.
pub fn create(path: &Path, overwrite: Overwrite) -> Result<File, TraceError> {
    if is_recording(path) {
        return Err(TraceError::IsRecording { file: path.display().to_string() });
    }
    open_for_writing(path, overwrite, false)
}

/// Why [`create`] would fail, as far as can be said without touching anything: to be asked before hours of
/// work are lost to a mistyped name.
pub fn can_create(path: &Path) -> Result<(), TraceError> {
    let file = || path.display().to_string();
    if is_recording(path) {
        return Err(TraceError::IsRecording { file: file() });
    }
    let existing = fs::symlink_metadata(path);
    if let Some(what) = existing.as_ref().ok().and_then(not_a_file) {
        return Err(TraceError::NotAFile { file: file(), what });
    }
    let at = if existing.is_ok() { path } else { directory(path) };
    #[cfg(unix)]
    let asked = rustix::fs::access(at, rustix::fs::Access::WRITE_OK).map_err(io::Error::from);
    #[cfg(not(unix))]
    let asked = fs::metadata(at).map(drop);
    asked.map_err(|source| TraceError::Io { what: "create", file: file(), source })
}

fn is_recording(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = |mut file: File| file.read_exact(&mut begin);
    // What is no regular file might block, and is refused anyway.
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(read).is_ok()
        && begin == MAGIC
}

/// The same for a recording, which one process writes at a time.
pub(crate) fn create_recording(path: &Path, overwrite: Overwrite) -> Result<File, TraceError> {
    open_for_writing(path, overwrite, true)
}

fn open_for_writing(path: &Path, overwrite: Overwrite, alone: bool) -> Result<File, TraceError> {
    let file = || path.display().to_string();
    if let Ok(existing) = fs::symlink_metadata(path) {
        if overwrite == Overwrite::No {
            return Err(TraceError::Exists { file: file() });
        }
        if let Some(what) = not_a_file(&existing) {
            return Err(TraceError::NotAFile { file: file(), what });
        }
    }
    let mut options = OpenOptions::new();
    match overwrite {
        // Not truncated before it is known whose it is.
        Overwrite::Yes => options.write(true).create(true).truncate(false),
        Overwrite::No => options.write(true).create_new(true),
        Overwrite::Append => options.append(true).create(true),
    };
    // The check above gives the better message; this closes the gap between check and use.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    let opened = options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => TraceError::Exists { file: file() },
        _ => TraceError::Io { what: "create", file: file(), source },
    })?;
    let cannot = |source| TraceError::Io { what: "create", file: file(), source };
    let found = opened.metadata().map_err(cannot)?;
    if let Some(what) = not_a_file(&found) {
        return Err(TraceError::NotAFile { file: file(), what });
    }
    #[cfg(unix)]
    if rustix::process::geteuid().is_root()
        && let Some(why) = planted(&found, fs::metadata(directory(path)).ok().as_ref())
    {
        return Err(TraceError::Planted { file: file(), why });
    }
    // Held until the file is closed. Some network file systems know no locks: then nobody is stopped.
    #[cfg(unix)]
    if alone
        && rustix::fs::flock(&opened, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
    {
        return Err(TraceError::Busy { file: file() });
    }
    if overwrite == Overwrite::Yes && found.len() > 0 {
        opened.set_len(0).map_err(cannot)?;
    }
    Ok(opened)
}

/// What something is that is no regular file.
fn not_a_file(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_symlink() => Some("a symbolic link"),
        () if kind.is_dir() => Some("a directory"),
        () => Some("a device, pipe or socket"),
    }
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Why root must not write to a file that is open already, if so. What belongs to root, or to the
/// owner of the directory, was not put there by a stranger.
#[cfg(unix)]
fn planted(found: &Metadata, directory: Option<&Metadata>) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    if found.nlink() > 1 {
        return Some("it has a second name (a hard link)");
    }
    let open_to_others = directory.is_none_or(|directory| directory.mode() & OTHERS_WRITE != 0);
    let owner_of_directory = directory.map(MetadataExt::uid);
    let stranger = found.uid() != 0 && owner_of_directory != Some(found.uid());
    (open_to_others && stranger)
        .then_some("it belongs to somebody else, in a directory that others can write to")
}

/// Takes back what a failed write left behind, so that the next one continues after the last whole
/// frame.
pub(crate) fn cut_back(file: &mut File, to: u64) -> io::Result<()> {
    file.set_len(to)?;
    file.seek(SeekFrom::Start(to)).map(drop)
}
