//! Reads GOAL files, text or binary. Errors name the file, then the place in it.

use std::{
    fs::File,
    io::{BufReader, Read, stdin},
    path::Path,
};

use anyhow::{Context, Result};
use simulate::{
    event::Schedule,
    goal::{self, CalcUnit},
};

use crate::units;

/// Large enough that reading is never the bottleneck.
const BUFFER: usize = 1 << 18;

/// `-` is standard input.
pub fn read(path: &Path, unit: CalcUnit) -> Result<Schedule> {
    let named = || path.display().to_string();
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
    };
    goal::read(BufReader::with_capacity(BUFFER, input), unit).with_context(named)
}

/// `--calc-unit`: what a calc counts.
pub fn calc_unit(text: &str) -> Result<CalcUnit, String> {
    let ps = units::picoseconds(text)?;
    CalcUnit::from_ps(ps).ok_or_else(|| format!("'{text}' is no unit of time: from 1ps to 1 hour"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_time_that_is_not_nothing() {
        assert_eq!(calc_unit("1ns"), Ok(CalcUnit::default()));
        assert_eq!(calc_unit("10ps").map(CalcUnit::ps), Ok(10));
        for bad in ["0", "0ns", "-1ns", "ns", "10", "7200s"] {
            assert!(calc_unit(bad).is_err(), "{bad}");
        }
    }
}
