//! A file of finished points (`--resume`): a header line that identifies the sweep, then one line per
//! point. A point whose line was truncated by a crash is simulated again.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::run::point::{Point, Series};

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
            points.extend(serde_json::from_str::<Point>(&line));
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
            let line = serde_json::to_string(point)?;
            writeln!(file, "{line}").context("cannot save a finished point")?;
        }
        Ok(())
    }
}
