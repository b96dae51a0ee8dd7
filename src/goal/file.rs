//! Reads and writes GOAL files, text or binary. Errors name the file, then the place in it.

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

/// Large enough that the system calls do not show.
const BUFFER: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    Text,
    /// As LogGOPSim's converter writes it
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

/// The schedule, and the form it was in. `-` is standard input.
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

/// Into a file, or to standard output (`-`, or none).
pub fn write(path: Option<&Path>, form: Form, schedule: &Schedule, unit: CalcUnit) -> Result<()> {
    match path.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            results::save(path, |out| Ok(goal::write(form, schedule, unit, out.get_mut())?))
        }
        None if form == Form::Binary && stdout().is_terminal() => {
            bail!("a binary schedule is nothing for a terminal: name a file with -o")
        }
        None => Ok(goal::write(form, schedule, unit, stdout().lock())?),
    }
}

/// `--calc-unit`: what a calc counts. Every calc is multiplied by it, and its rounding with it.
pub fn calc_unit(text: &str) -> Result<CalcUnit, String> {
    let ps = units::whole_picoseconds(text)?;
    CalcUnit::from_ps(ps).ok_or_else(|| format!("'{text}' is no unit of time: from 1ps to 1 hour"))
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
