//! `--sizes`: the block sizes of vector collectives, from a file or at random.

use std::path::Path;

use anyhow::{Context, Result, bail};
use simulate::collectives::Blocks;

use crate::units;

/// Block sizes, and how they were specified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub text: String,
    pub blocks: Blocks,
}

/// `uniform:1..4KiB`, with a seed of its own `uniform:1..4KiB,7`, or a file of sizes.
pub fn parse(text: &str) -> Result<Sizes, String> {
    let blocks = match text.strip_prefix("uniform:") {
        Some(range) => uniform(range).map_err(|why| format!("'{text}': {why}"))?,
        None => read(Path::new(text)).map_err(|error| format!("{error:#}"))?,
    };
    Ok(Sizes { text: text.to_owned(), blocks })
}

/// The seed is not that of the noise, so that a schedule and a simulation have the same sizes.
fn uniform(range: &str) -> Result<Blocks, String> {
    let (range, seed) = range.split_once(',').unwrap_or((range, "1"));
    let (from, to) = range.split_once("..").ok_or("expected e.g. uniform:1..4KiB")?;
    let (from, to) = (units::size(from)?, units::size(to)?);
    let seed = seed.trim().parse().map_err(|_| format!("'{seed}' is not a seed"))?;
    match from <= to {
        true => Ok(Blocks::Uniform { from, to, seed }),
        false => Err(format!("{from} exceeds {to}")),
    }
}

fn read(path: &Path) -> Result<Blocks> {
    let named = || format!("cannot read block sizes from {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    let mut sizes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words = line.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty());
        for word in words {
            let size = units::size(word).map_err(anyhow::Error::msg);
            sizes.push(size.with_context(|| format!("line {number}")).with_context(named)?);
        }
    }
    if sizes.is_empty() {
        bail!("{} has no block sizes (expected one for each rank)", path.display());
    }
    // It lives as long as the options, which is as long as the process.
    Ok(Blocks::Listed(Vec::leak(sizes)))
}

impl Sizes {
    /// The first of them, for a job of two ranks.
    #[must_use]
    pub fn of_pair(&self) -> Sizes {
        let blocks = match self.blocks {
            Blocks::Listed(sizes) => Blocks::Listed(&sizes[..sizes.len().min(2)]),
            uniform @ Blocks::Uniform { .. } => uniform,
        };
        Sizes { blocks, ..self.clone() }
    }

    /// Everything that determines the sizes, as text.
    pub fn describe(&self) -> String {
        match self.blocks {
            Blocks::Uniform { .. } => self.text.clone(),
            Blocks::Listed(sizes) => {
                let mut hash = crc32fast::Hasher::new();
                sizes.iter().for_each(|size| hash.update(&size.to_le_bytes()));
                format!("{}, {} sizes, checksum {:08x}", self.text, sizes.len(), hash.finalize())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_range_or_a_file() {
        let uniform = |from, to, seed| Blocks::Uniform { from, to, seed };
        assert_eq!(parse("uniform:1..4KiB").unwrap().blocks, uniform(1, 4096, 1));
        assert_eq!(parse("uniform:8..8,7").unwrap().blocks, uniform(8, 8, 7));
        for bad in ["uniform:", "uniform:4", "uniform:5..4", "uniform:1..4,x", "/nonexistent"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let file = std::env::temp_dir().join(format!("detour-sizes-{}", std::process::id()));
        let name = file.to_str().unwrap();
        std::fs::write(&file, "# bytes\n1, 2KiB\n\n3\t4 # last\n").unwrap();
        let sizes = parse(name).unwrap();
        assert_eq!(sizes.blocks, Blocks::Listed(&[1, 2048, 3, 4]));
        assert_eq!(sizes.of_pair().blocks, Blocks::Listed(&[1, 2048]));
        assert!(sizes.describe().contains("4 sizes"));
        std::fs::write(&file, "1\nx\n").unwrap();
        assert!(parse(name).unwrap_err().contains("line 2"));
        std::fs::write(&file, "# none\n").unwrap();
        assert!(parse(name).unwrap_err().contains("no block sizes"));
        std::fs::remove_file(&file).unwrap();
    }
}
