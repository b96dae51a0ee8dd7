//! The MPI collector, and what is needed to start a program with it.
//!
//! The collector itself (`collector/`) is a shared library without dependencies that the build script
//! compiles; here it is [`LIBRARY`], a sequence of bytes to be placed where a program can load it
//! ([`library`]). It is loaded with `LD_PRELOAD` and records into the directory of [`DIRECTORY`], one file
//! per rank. With the files in `include/`, programs name their regions.
//!
//! The worker (`worker/`) is a second library of this kind. It turns a process into a rank that measures on behalf
//! of its parent ([`worker`]).

#![forbid(unsafe_code)]

pub mod executable;
pub mod launcher;
pub mod library;
pub mod worker;

use std::path::{Path, PathBuf};

/// The shared library, for the target that this crate was built for.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/collector.so"));

/// Environment variable with the absolute path of the output directory. Without it the library passes all
/// calls on.
pub const DIRECTORY: &str = "DETOUR_MPI_DIR";

/// Environment variable that, set to `mpi`, leaves out calls by the names `PMPI_...`. Fortran programs under
/// Open MPI make all their calls by these names.
pub const ONLY: &str = "DETOUR_MPI_ONLY";

/// The trace of a rank.
#[must_use]
pub fn rank_file(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank-{rank}.mpi"))
}

/// The rank of a trace, by its name.
#[must_use]
pub fn rank_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("rank-")?.strip_suffix(".mpi")?.parse().ok()
}
