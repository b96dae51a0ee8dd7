//! Why a trace could not be written or read, and what to do about it.

use std::io;

/// Everything that can go wrong with a trace file. Damage inside a file that opens is not an error:
/// see [`crate::Reader::damaged_blocks`] and [`crate::Reader::truncated`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error("cannot {what} {file}: {source}{}", io_hint(.source))]
    Io {
        what: &'static str,
        file: String,
        #[source]
        source: io::Error,
    },

    #[error("{file} already exists: choose another name with -o, or remove it")]
    Exists { file: String },

    #[error("refusing to write to {file}: it is {what}; specify a file or a pipe")]
    NotAFile { file: String, what: &'static str },

    #[error("refusing to overwrite the recording {file}: choose another name, or remove it first")]
    IsRecording { file: String },

    #[error(
        "refusing to overwrite {file}: not a recording; choose another name, or record with --force"
    )]
    NotARecording { file: String },

    #[error("no process is reading from {file}: start the reader first")]
    NoReader { file: String },

    #[error("another process is recording to {file}: choose another name")]
    Busy { file: String },

    #[error(
        "refusing to write to {file} as root: {why}; remove it, or choose another name or directory"
    )]
    Planted { file: String, why: &'static str },

    #[error("{file} is not a detour trace: it is {looks_like}")]
    NotATrace { file: String, looks_like: &'static str },

    #[error(
        "{file} has trace format version {found}; this program reads up to version {known}: \
         use the detour that recorded it, or a newer one"
    )]
    NewerVersion { file: String, found: u32, known: u32 },

    #[error(
        "{file} is damaged and cannot be read: {why} (at byte {offset}); \
         restore a copy, or record again"
    )]
    Damaged { file: String, offset: u64, why: String },

    #[error(
        "cannot write a block of {detours} detours and {records} records: the limit is {limit} \
         events; write smaller blocks"
    )]
    BlockTooLarge { detours: usize, records: usize, limit: usize },

    #[error("cannot write an inconsistent block: {why}")]
    InconsistentBlock { why: String },

    #[error("cannot write a block with source {id}: that source has not been added")]
    UnknownSource { id: u32 },

    #[error("cannot write a block of lane {id}: neither in the manifest nor added with add_lane")]
    UnknownLane { id: u32 },

    #[error("cannot add {what} {id}: ids must be less than {limit}")]
    IdOutOfRange { what: &'static str, id: u32, limit: u32 },

    #[error("cannot write the {what}: {bytes} bytes exceed the block limit of {limit}")]
    TableTooLarge { what: &'static str, bytes: usize, limit: usize },

    #[error("cannot serialize the {what} as JSON: {source}")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },

    #[error("cannot write to {file}: an earlier write failed; the data before it is readable")]
    AlreadyFailed { file: String },
}

/// Hint for the common I/O errors.
fn io_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or write elsewhere with -o (the data written so far is readable)"
        }
        io::ErrorKind::PermissionDenied => "; check the permissions of the file and its directory",
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::ReadOnlyFilesystem => "; write elsewhere with -o",
        _ => "",
    }
}
