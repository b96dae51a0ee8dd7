//! Real noise files, which are not part of this project: `DETOUR_DATA` names their directory, or the one
//! above it if theirs is called `noise`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// All noise files, sorted by name; none if the variable is not set.
pub fn noise_files() -> Result<Vec<PathBuf>> {
    let Some((directory, files)) = files("noise", "osnoise")? else { return Ok(Vec::new()) };
    let shown = directory.display();
    ensure!(!files.is_empty(), "DETOUR_DATA, {shown}, has no noise files (*osnoise*)");
    Ok(files)
}

/// Collectives measured on real systems, sorted by name; none if the variable is not set or there are none.
pub fn measured_files() -> Result<Vec<PathBuf>> {
    Ok(files("measured", ".json.xz")?.map_or_else(Vec::new, |(_, files)| files))
}

/// The files whose names contain `part` in this directory below that of the variable, or in that one itself;
/// None if the variable is not set.
fn files(below: &str, part: &str) -> Result<Option<(PathBuf, Vec<PathBuf>)>> {
    let Some(data) = env::var_os("DETOUR_DATA").map(PathBuf::from) else { return Ok(None) };
    let below = data.join(below);
    let directory = if below.is_dir() { below } else { data };
    let shown = directory.display();
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read DETOUR_DATA, {shown}"))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| is_named(path, part));
    files.sort();
    Ok(Some((directory, files)))
}

/// Whether the name of a file, not of its directory, contains `part`.
pub fn is_named(path: &Path, part: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))
}
