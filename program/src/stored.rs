//! `clocks.json`: the corrected clocks of a run, kept beside its ranks so that only the first command has to
//! compute them.
//!
//! The file is a cache: it names the run and the files that it was computed from, and is only used for
//! exactly these. Without it, or if it cannot be written, every result is the same. A file that is damaged
//! has the length and the header of its good copy: clocks that were computed from it are not stored, since
//! the good copy would be read with them.

use crate::clock::Clocks;
use crate::open::Program;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

/// Its name in the directory of the run.
pub(crate) const NAME: &str = "clocks.json";
/// Changes whenever the same messages give other clocks.
const VERSION: u32 = 2;
/// Changes with every release, also if the version above was forgotten.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The contents of `clocks.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    release: String,
    /// Number of the run, as hexadecimal digits.
    run: String,
    /// Size of `MPI_COMM_WORLD`.
    size: u32,
    /// The files that were read.
    files: Vec<RankFile>,
    clocks: Clocks,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RankFile {
    rank: u32,
    bytes: u64,
    events: u64,
}

fn files(program: &Program) -> Vec<RankFile> {
    let file =
        |rank: &crate::Rank| RankFile { rank: rank.rank, bytes: rank.length, events: rank.events };
    program.ranks.iter().map(file).collect()
}

/// Whether clocks of the program can be stored: a rank that has not finalized may still be running.
fn is_complete(program: &Program) -> bool {
    program.hosts.len() > 1 && program.ranks.iter().all(|rank| rank.finalized)
}

/// Length of the longest file that can be one of the program; longer ones are not read. An entry of a rank
/// takes less than 128 bytes, a knot less than 24.
fn max_bytes(program: &Program, measured: &Clocks) -> u64 {
    let host = measured.max_knots().saturating_mul(24).saturating_add(4096);
    let ranks = program.ranks.len().saturating_mul(128);
    program.hosts.len().saturating_mul(host).saturating_add(ranks).saturating_add(4096) as u64
}

/// The clocks that were stored for these files.
pub(crate) fn read(program: &Program) -> Option<Clocks> {
    if !is_complete(program) {
        return None;
    }
    let path = program.dir.join(NAME);
    // Opening a pipe would wait for its other end.
    if !fs::metadata(&path).ok()?.is_file() {
        return None;
    }
    let measured = Clocks::measured(program);
    let mut text = Vec::new();
    File::open(path).ok()?.take(max_bytes(program, &measured)).read_to_end(&mut text).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    let same = stored.version == VERSION
        && stored.release == RELEASE
        && stored.run == format!("{:x}", program.run)
        && stored.size == program.size
        && stored.files == files(program);
    (same && stored.clocks.can_correct(&measured, program)).then_some(stored.clocks)
}

/// Stores clocks. A directory that cannot be written to is not an error: they are computed again.
pub(crate) fn write(program: &Program, clocks: &Clocks) {
    if !is_complete(program) {
        return;
    }
    let stored = Stored {
        version: VERSION,
        release: RELEASE.to_owned(),
        run: format!("{:x}", program.run),
        size: program.size,
        files: files(program),
        clocks: clocks.clone(),
    };
    let new = program.dir.join(format!(".{NAME}.new-{}", std::process::id()));
    if create(&new, &stored).is_none() || fs::rename(&new, program.dir.join(NAME)).is_err() {
        let _ = fs::remove_file(&new);
    }
}

fn create(path: &Path, stored: &Stored) -> Option<()> {
    let text = serde_json::to_vec(stored).ok()?;
    let mut file = File::create_new(path).ok()?;
    file.write_all(&text).ok()
}
