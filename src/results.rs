//! Files of results: whole, or not there.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use trace::Overwrite;

/// Writes a file. Where that fails, none is left that could be taken for a whole one.
pub fn save(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(trace::create(path, Overwrite::Yes)?);
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Asks, before anything is computed, whether these can be written.
pub fn check<const N: usize>(files: [&Option<PathBuf>; N]) -> Result<()> {
    Ok(files.into_iter().flatten().try_for_each(|file| trace::can_create(file))?)
}

/// A file that is read is not written over.
pub fn not_over(inputs: &[PathBuf], output: &Path) -> Result<()> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let output = real(output);
    match inputs.iter().find(|input| output.is_some() && real(input) == output) {
        Some(input) => bail!("{} would be overwritten: name another file", input.display()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_finished_is_not_there() {
        let path = std::env::temp_dir().join(format!("detour-results-{}", std::process::id()));
        let half = |out: &mut BufWriter<File>| {
            out.write_all(b"half")?;
            out.flush()?;
            bail!("no more")
        };
        let error = save(&path, half).unwrap_err();
        assert_eq!(format!("{error:#}"), format!("cannot write {}: no more", path.display()));
        assert!(!path.exists());
        save(&path, |out| Ok(out.write_all(b"whole")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        fs::remove_file(&path).unwrap();
    }
}
