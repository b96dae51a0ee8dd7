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

/// Checks that these files can be written, and that they are different files, before anything is
/// computed.
pub fn check<const N: usize>(files: [&Option<PathBuf>; N]) -> Result<()> {
    let files: Vec<&PathBuf> = files.into_iter().flatten().collect();
    for (index, file) in files.iter().enumerate() {
        if files[..index].iter().any(|other| same_file(other, file)) {
            bail!("two outputs have the same path: {}", file.display());
        }
        trace::can_create(file)?;
    }
    Ok(())
}

/// Whether two names are of the same file, which need not exist. Pipes and devices take any number of
/// outputs.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let is_file = |path: &Path| !trace::is_stream(path);
    is_file(one) && is_file(other) && real(one).is_some_and(|file| real(other) == Some(file))
}

/// The file behind a name: without links, and absolute.
fn real(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().or_else(|| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?;
        Some(parent.join(path.file_name()?))
    })
}

/// Refuses to overwrite an input file, also by the backup of an older trace (`FILE.old`).
pub fn not_over(inputs: &[PathBuf], output: &Path) -> Result<()> {
    let outputs = [output, &trace::old_name(output)];
    let written = |input: &&PathBuf| outputs.iter().any(|output| same_file(input, output));
    match inputs.iter().find(written) {
        Some(input) => bail!("refusing to overwrite the input {}", input.display()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_takes_one_output() {
        let directory = std::env::temp_dir();
        let name = format!("detour-two-{}", std::process::id());
        let one = Some(directory.join(&name));
        let same = Some(directory.join(".").join(&name));
        let other = Some(directory.join(format!("{name}-other")));
        assert!(check([&one, &None, &other]).is_ok());
        let said = check([&one, &other, &same]).unwrap_err().to_string();
        assert!(said.contains("two outputs have the same path"), "{said}");
        let stdout = Some(PathBuf::from("/dev/stdout"));
        assert!(check([&stdout, &stdout]).is_ok());
    }

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
