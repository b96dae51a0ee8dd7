//! Reads and writes GOAL files, text or binary. Errors name the file and the position in it.

use std::{
    fs::File,
    io::{BufRead, BufReader, IsTerminal, Read, stdin, stdout},
    path::Path,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use simulate::{
    event::Schedule,
    goal::{self, CalcUnit, Form},
};

use crate::{results, units};

/// Large enough that system call overhead is negligible.
const BUFFER: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    Text,
    /// Binary format of LogGOPSim's txt2bin
    Binary,
}

impl FormName {
    pub fn form(self) -> Form {
        match self {
            FormName::Text => Form::Text,
            FormName::Binary => Form::Binary,
        }
    }
}

/// The schedule and the form it was in. `-` is stdin.
pub fn read_as_it_is(path: &Path, unit: CalcUnit) -> Result<(Schedule, Form)> {
    let cannot = || format!("cannot open {}", path.display());
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(path).with_context(cannot)?)
    };
    let named = || path.display().to_string();
    let mut input = BufReader::with_capacity(BUFFER, input);
    let form = goal::form(input.fill_buf().with_context(named)?);
    Ok((goal::read(input, unit).with_context(named)?, form))
}

pub fn read(path: &Path, unit: CalcUnit) -> Result<Schedule> {
    Ok(read_as_it_is(path, unit)?.0)
}

/// Writes to a file, or to stdout (`-` or None).
pub fn write(path: Option<&Path>, form: Form, schedule: &Schedule, unit: CalcUnit) -> Result<()> {
    match path.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            results::save(path, |out| Ok(goal::write(form, schedule, unit, out.get_mut())?))
        }
        None if form == Form::Binary && stdout().is_terminal() => {
            bail!("refusing to write binary data to a terminal: specify a file with -o")
        }
        None => Ok(goal::write(form, schedule, unit, stdout().lock())?),
    }
}

/// `--calc-unit`: the time unit of calcs. Must be exact, since every calc is multiplied by it.
pub fn calc_unit(text: &str) -> Result<CalcUnit, String> {
    let ps = units::whole_picoseconds(text)?;
    CalcUnit::from_ps(ps).ok_or_else(|| format!("'{text}' is out of range (1ps to 1 hour)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_time_that_is_not_nothing() {
        assert_eq!(calc_unit("1ns"), Ok(CalcUnit::default()));
        assert_eq!(calc_unit("10ps").map(CalcUnit::ps), Ok(10));
        for bad in ["0", "0ns", "-1ns", "ns", "10", "7200s", "0.5ps", "1.4ps"] {
            assert!(calc_unit(bad).is_err(), "{bad}");
        }
    }
}
