//! Real noise files, which are not part of this project: `DETOUR_DATA` names their directory, or the one
//! above it if theirs is called `noise`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// All noise files, sorted by name; none if the variable is not set.
pub fn noise_files() -> Result<Vec<PathBuf>> {
    let Some(data) = env::var_os("DETOUR_DATA").map(PathBuf::from) else { return Ok(Vec::new()) };
    let below = data.join("noise");
    let directory = if below.is_dir() { below } else { data };
    let shown = directory.display();
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read DETOUR_DATA, {shown}"))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| is_named(path, "osnoise"));
    ensure!(!files.is_empty(), "DETOUR_DATA, {shown}, has no noise files (*osnoise*)");
    files.sort();
    Ok(files)
}

/// Whether the name of a file, not of its directory, contains `part`.
pub fn is_named(path: &Path, part: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))
}
