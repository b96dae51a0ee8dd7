//! Joins the directories of one run whose nodes share no file system.
//!
//! In: directories with `rank-N.mpi` and, if noise was recorded, `node-HOST.detour`; out: one directory with
//! all of them. It is written beside its place and renamed, so that it is complete or absent. Nothing is
//! deleted that was not there, and known to be of a run, before the copying began.

use crate::open::{OpenError, Program, missing_ranks, open_file, open_partial};
use crate::stored;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why directories cannot be merged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MergeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "{} and {} belong to different runs: merge only directories of the same run",
        .first.display(), .second.display()
    )]
    OtherRun { first: PathBuf, second: PathBuf },
    #[error(
        "{} belongs to a program with {first_size} ranks, {} to one with {second_size}: merge only \
         directories of the same run", .first.display(), .second.display()
    )]
    WorldSize { first: PathBuf, first_size: u32, second: PathBuf, second_size: u32 },
    #[error(
        "rank {rank} is in {} and in {}: omit one of the directories, or remove one of the files",
        .first.display(), .second.display()
    )]
    Duplicate { rank: u32, first: PathBuf, second: PathBuf },
    #[error(
        "{} and {} have the same name: omit one of them if both are of one node; if two nodes have \
         the same host name, rename one of them (node-NAME.detour), so that both are kept",
        .first.display(), .second.display()
    )]
    SameNode { first: PathBuf, second: PathBuf },
    #[error("refusing to overwrite the input {}: choose another directory with -o", .0.display())]
    OverInput(PathBuf),
    #[error("refusing to overwrite {}: choose another directory with -o, or use --force", .0.display())]
    Exists(PathBuf),
    #[error(
        "refusing to replace {}: it holds more than an MPI run ({}); choose another directory with -o",
        .path.display(), .found.display()
    )]
    NotARun { path: PathBuf, found: PathBuf },
    #[error(
        "refusing to replace {}: {} appeared while the files were copied; merge again, or choose another \
         directory with -o", .path.display(), .found.display()
    )]
    Appeared { path: PathBuf, found: PathBuf },
    #[error(
        "cannot restore {}: {source}; the previous version is in {}",
        .path.display(), .old.display()
    )]
    NotBack { path: PathBuf, old: PathBuf, source: io::Error },
    #[error("interrupted: nothing was merged")]
    Stopped,
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// A merged run.
#[derive(Clone, Debug, Serialize)]
pub struct MergedRun {
    /// The directory that was written.
    pub output: String,
    /// Size of `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// Ranks whose files are in the directory.
    pub ranks_present: u32,
    /// Ranks that are still missing, as ranges; empty if all are there.
    pub missing: String,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Recordings of the noise of nodes.
    pub recordings: u32,
}

/// Merges the directories of one run into `output`. An existing directory with traces is only replaced if
/// `force` is set, anything else never. While files are copied, `stopped` is asked again and again; if it says
/// so, what was copied is removed.
pub fn merge(
    dirs: &[PathBuf],
    output: &Path,
    force: bool,
    stopped: &dyn Fn() -> bool,
) -> Result<MergedRun, MergeError> {
    let programs =
        dirs.iter().map(|dir| open_partial(dir)).collect::<Result<Vec<_>, OpenError>>()?;
    let files = plan(&programs)?;
    let replaced = check_output(dirs, output, force)?;
    let new = NewDirectory::create(output)?;
    for (name, from) in &files {
        copy(from, &new.path.join(name), stopped)?;
    }
    // Read back as one run: what is renamed into place can be opened.
    let merged = open_partial(&new.path)?;
    let run = MergedRun {
        output: output.display().to_string(),
        ranks: merged.size,
        ranks_present: merged.ranks.len() as u32,
        missing: missing_ranks(&merged),
        hosts: merged.hosts.iter().map(|host| host.name.clone()).collect(),
        recordings: files.keys().filter(|name| is_recording(name)).count() as u32,
    };
    new.commit(output, &replaced)?;
    Ok(run)
}

/// The files of the merged directory, by name.
fn plan(programs: &[Program]) -> Result<BTreeMap<String, PathBuf>, MergeError> {
    let mut files = BTreeMap::new();
    let mut ranks: BTreeMap<u32, &Path> = BTreeMap::new();
    let Some(first) = programs.first() else { return Ok(files) };
    for program in programs {
        if program.run != first.run {
            return Err(MergeError::OtherRun {
                first: first.dir.clone(),
                second: program.dir.clone(),
            });
        }
        if program.size != first.size {
            return Err(MergeError::WorldSize {
                first: first.dir.clone(),
                first_size: first.size,
                second: program.dir.clone(),
                second_size: program.size,
            });
        }
        for rank in &program.ranks {
            if let Some(other) = ranks.insert(rank.rank, &program.dir) {
                return Err(MergeError::Duplicate {
                    rank: rank.rank,
                    first: other.to_owned(),
                    second: program.dir.clone(),
                });
            }
            files.insert(format!("rank-{}.mpi", rank.rank), rank.path.clone());
        }
        for name in names(&program.dir)?.into_iter().filter(|name| is_recording(name)) {
            let path = program.dir.join(&name);
            if let Some(first) = files.insert(name, path.clone()) {
                return Err(MergeError::SameNode { first, second: path });
            }
        }
    }
    Ok(files)
}

/// Names of the files in a directory, sorted. One that is not UTF-8 is none of ours, but is there.
fn names(dir: &Path) -> Result<Vec<String>, MergeError> {
    let error = |source| MergeError::Read { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(error)? {
        names.push(entry.map_err(error)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn is_recording(name: &str) -> bool {
    name.starts_with("node-") && name.ends_with(".detour")
}

/// Whether a file is one that recording, merging or reading a run has written.
fn is_of_a_run(name: &str) -> bool {
    name == stored::NAME
        || is_recording(name)
        || (name.starts_with("rank-") && name.ends_with(".mpi"))
}

/// Refuses to overwrite anything of value; gives the files that are to be replaced.
fn check_output(dirs: &[PathBuf], output: &Path, force: bool) -> Result<Vec<String>, MergeError> {
    let Ok(facts) = fs::symlink_metadata(output) else { return Ok(Vec::new()) };
    let real = fs::canonicalize(output).ok();
    let input = dirs.iter().find(|dir| real.is_some() && fs::canonicalize(dir).ok() == real);
    if let Some(input) = input {
        return Err(MergeError::OverInput(input.clone()));
    }
    if !facts.is_dir() {
        return Err(MergeError::Exists(output.to_owned()));
    }
    let names = names(output)?;
    if !names.is_empty() && !force {
        return Err(MergeError::Exists(output.to_owned()));
    }
    // A directory is none of ours whatever its name, nor is a name that is not UTF-8, which is not found.
    let is_file =
        |name: &str| fs::symlink_metadata(output.join(name)).is_ok_and(|facts| !facts.is_dir());
    match names.iter().find(|name| !is_of_a_run(name) || !is_file(name)) {
        Some(found) => {
            Err(MergeError::NotARun { path: output.to_owned(), found: output.join(found) })
        }
        None => Ok(names),
    }
}

/// Bytes that are copied before asking whether to stop.
const BLOCK: u64 = 16 << 20;

fn copy(from: &Path, to: &Path, stopped: &dyn Fn() -> bool) -> Result<(), MergeError> {
    let source =
        open_file(from).map_err(|source| MergeError::Read { path: from.to_owned(), source })?;
    let error = |source| MergeError::Write { path: to.to_owned(), source };
    let mut target = File::create_new(to).map_err(error)?;
    loop {
        if stopped() {
            return Err(MergeError::Stopped);
        }
        if io::copy(&mut (&source).take(BLOCK), &mut target).map_err(error)? == 0 {
            break;
        }
    }
    // The name must not appear before the contents.
    target.sync_data().map_err(error)
}

/// A directory beside its later place, removed again unless it gets there.
struct NewDirectory {
    path: PathBuf,
    kept: bool,
}

/// Of the directories beside an output, the one that is to take its place, and the one that had it.
const NEW: &str = "new";
const OLD: &str = "old";

fn beside(output: &Path, what: &str) -> PathBuf {
    output.with_file_name(format!("{}{}", prefix(output, what), std::process::id()))
}

fn prefix(output: &Path, what: &str) -> String {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.{what}-")
}

/// What merges into `output` have left beside it that were killed, or are still running: directories that are
/// incomplete, and directories that were there before.
#[must_use]
pub fn leftovers(output: &Path) -> Vec<PathBuf> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let names = names(parent.unwrap_or(Path::new("."))).unwrap_or_default();
    let is_left = |name: &&String| {
        [NEW, OLD].into_iter().any(|what| {
            let process = name.strip_prefix(&prefix(output, what));
            process.is_some_and(|process| process.parse::<u32>().is_ok())
        })
    };
    names.iter().filter(is_left).map(|name| output.with_file_name(name)).collect()
}

impl NewDirectory {
    fn create(output: &Path) -> Result<NewDirectory, MergeError> {
        let path = beside(output, NEW);
        match fs::create_dir(&path) {
            Ok(()) => Ok(NewDirectory { path, kept: false }),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                Err(MergeError::Write { path, source })
            }
            Err(source) => Err(MergeError::Write { path: output.to_owned(), source }),
        }
    }

    /// Takes the place of `output`, which holds the files `replaced` or is empty or absent.
    fn commit(mut self, output: &Path, replaced: &[String]) -> Result<(), MergeError> {
        let error = |source| MergeError::Write { path: output.to_owned(), source };
        if replaced.is_empty() {
            // Replaces an empty directory, and no other one.
            fs::rename(&self.path, output).map_err(|source| match source.kind() {
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                    MergeError::Exists(output.to_owned())
                }
                _ => error(source),
            })?;
            self.kept = true;
            return Ok(());
        }
        let old = beside(output, OLD);
        fs::rename(output, &old).map_err(error)?;
        let put = || {
            // Under its old name it could have been written to until now.
            let names = names(&old)?;
            match names.iter().find(|name| replaced.binary_search(name).is_err()) {
                Some(found) => {
                    Err(MergeError::Appeared { path: output.to_owned(), found: output.join(found) })
                }
                None => fs::rename(&self.path, output).map_err(error),
            }
        };
        if let Err(why) = put() {
            return Err(match fs::rename(&old, output) {
                Ok(()) => why,
                Err(source) => MergeError::NotBack { path: output.to_owned(), old, source },
            });
        }
        self.kept = true;
        // Only what was there: a process inside of the directory can still write to it.
        let removed = replaced.iter().try_for_each(|name| match fs::remove_file(old.join(name)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(source),
            _ => Ok(()),
        });
        removed
            .and_then(|()| fs::remove_dir(&old))
            .map_err(|source| MergeError::Write { path: old.clone(), source })
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
