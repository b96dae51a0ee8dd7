//! The file of finished points (`--resume`): a header line that identifies the sweep, then one line per
//! point. A point whose line was truncated by a crash is simulated again.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::points::{Point, Series};

pub struct Finished {
    points: Vec<Point>,
    file: Option<File>,
}

impl Finished {
    pub fn nowhere() -> Finished {
        Finished { points: Vec::new(), file: None }
    }

    pub fn open(path: &Path, fingerprint: &str) -> Result<Finished> {
        let cannot = || format!("cannot use {}", path.display());
        let mut file = trace::append(path)?;
        let mut points = Vec::new();
        let mut lines = BufReader::new(File::open(path).with_context(cannot)?).lines();
        let first = lines.next().transpose().with_context(cannot)?;
        if let Some(line) = &first {
            let first: Value = serde_json::from_str(line).unwrap_or_default();
            if first.get("sweep").and_then(Value::as_str) != Some(fingerprint) {
                bail!(
                    "{} belongs to another sweep, or is not a --resume file: choose another file \
                     or remove it",
                    path.display()
                );
            }
        }
        for line in lines {
            let line = line.with_context(cannot)?;
            let value: Result<Value, _> = serde_json::from_str(&line);
            points.extend(value.ok().as_ref().and_then(Point::from_json));
        }
        if first.is_none() {
            writeln!(file, "{}", json!({ "sweep": fingerprint })).with_context(cannot)?;
        } else {
            // Terminates a truncated line.
            writeln!(file).with_context(cannot)?;
        }
        Ok(Finished { points, file: Some(file) })
    }

    pub fn find(&self, series: &Series, ranks: u64) -> Option<Point> {
        self.points.iter().find(|p| p.series == *series && p.ranks == ranks).cloned()
    }

    pub fn add(&mut self, point: &Point) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", point.json()).context("cannot save a finished point")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resumed sweep must give the same results as an uninterrupted one.
    #[test]
    fn fractions_come_back_to_the_last_bit() {
        let point = json!({"ranks": 4, "p99_us": 450.131_356_400_000_36, "between": [0.1, 1e300]});
        let back: Value = serde_json::from_str(&point.to_string()).unwrap();
        assert_eq!(back, point);
    }
}
