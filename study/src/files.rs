//! Result files are written atomically: an existing file is kept until the new one is complete.

use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use trace::NewFile;

/// Writes a file, pipe or device.
pub fn save(path: &Path, write: impl FnOnce(&mut BufWriter<NewFile>) -> Result<()>) -> Result<()> {
    let mut out = create(path)?;
    let written = write(&mut out);
    written.and_then(|()| finish(out)).with_context(|| format!("cannot write {}", path.display()))
}

/// A file written incrementally, which appears once it is [finished](finish).
pub fn create(path: &Path) -> Result<BufWriter<NewFile>> {
    let _reader = trace::wait_for_reader(path, &|| false)?;
    Ok(BufWriter::new(trace::create(path)?))
}

pub fn finish(mut out: BufWriter<NewFile>) -> Result<()> {
    out.flush()?;
    let (file, _) = out.into_parts();
    Ok(file.commit()?)
}

/// Checks that these files can be written, before anything is computed.
pub fn check<const N: usize>(files: [&Option<PathBuf>; N]) -> Result<()> {
    Ok(files.into_iter().flatten().try_for_each(|file| trace::can_create(file))?)
}

/// Refuses to overwrite an input file, also by the backup of an older trace (`FILE.old`).
pub fn not_over(inputs: &[PathBuf], output: &Path) -> Result<()> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let outputs = [real(output), real(&trace::old_name(output))];
    let written = |input: &&PathBuf| outputs.iter().any(|at| at.is_some() && *at == real(input));
    match inputs.iter().find(written) {
        Some(input) => bail!("refusing to overwrite the input {}", input.display()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_finished_changes_nothing() {
        let path = std::env::temp_dir().join(format!("detour-files-{}", std::process::id()));
        let half = |out: &mut BufWriter<NewFile>| {
            out.write_all(b"half")?;
            out.flush()?;
            bail!("no more")
        };
        let fails = || {
            let error = save(&path, half).unwrap_err();
            assert_eq!(format!("{error:#}"), format!("cannot write {}: no more", path.display()));
        };
        fails();
        assert!(!path.exists());
        save(&path, |out| Ok(out.write_all(b"whole")?)).unwrap();
        fails();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        fs::remove_file(&path).unwrap();
    }
}
