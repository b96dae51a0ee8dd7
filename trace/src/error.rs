//! Why a trace could not be written or read, in words that say what to do about it.

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

    #[error("{file} exists already: choose another name with -o, or remove it")]
    Exists { file: String },

    #[error(
        "{file} is {what}: nothing is written through it; give the name of a file or of a pipe"
    )]
    NotAFile { file: String, what: &'static str },

    #[error("{file} is a recording, and this is none: give another name, or remove it first")]
    IsRecording { file: String },

    #[error(
        "refusing to overwrite {file}: it is not a recording; give another name, or --force where a \
         recording is to replace it"
    )]
    NotARecording { file: String },

    #[error("nobody reads from {file}: start what reads from it")]
    NoReader { file: String },

    #[error("another process is recording into {file}: give another name")]
    Busy { file: String },

    #[error("root does not write to {file}: {why}. Remove it, or choose another name or directory")]
    Planted { file: String, why: &'static str },

    #[error("{file} is not a detour trace: it is {looks_like}")]
    NotATrace { file: String, looks_like: &'static str },

    #[error(
        "{file} has trace format version {found}, this program reads up to version {known}: \
         read it with the detour that recorded it, or a newer one"
    )]
    NewerVersion { file: String, found: u32, known: u32 },

    #[error(
        "{file} is damaged beyond reading: {why} (at byte {offset}); \
         restore it from a copy, or record again"
    )]
    Damaged { file: String, offset: u64, why: String },

    #[error(
        "cannot write a block of {detours} detours and {records} records: at most {limit} \
         events fit; write smaller blocks"
    )]
    BlockTooLarge { detours: usize, records: usize, limit: usize },

    #[error("cannot write a block whose parts contradict each other: {why}")]
    InconsistentBlock { why: String },

    #[error("cannot write a block that names source {id}: that source was not added before")]
    UnknownSource { id: u32 },

    #[error("cannot write a block of lane {id}: neither the manifest nor add_lane named that lane")]
    UnknownLane { id: u32 },

    #[error("cannot add {what} {id}: ids count up from 0 and end at {limit}")]
    IdOutOfRange { what: &'static str, id: u32, limit: u32 },

    #[error("cannot write the {what}: {bytes} bytes exceed the {limit} a block may hold")]
    TableTooLarge { what: &'static str, bytes: usize, limit: usize },

    #[error("cannot turn the {what} into JSON: {source}")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },

    #[error(
        "nothing more is written to {file}: an earlier write failed; what came before it is readable"
    )]
    AlreadyFailed { file: String },
}

/// What a person can do about the usual I/O errors.
fn io_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or write elsewhere with -o (what was written so far is readable)"
        }
        io::ErrorKind::PermissionDenied => "; check the permissions of the file and its directory",
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::ReadOnlyFilesystem => "; write elsewhere with -o",
        _ => "",
    }
}
