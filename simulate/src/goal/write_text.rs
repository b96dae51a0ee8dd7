//! Writes GOAL text that LogGOPSim can read.

use std::{
    collections::HashSet,
    io::{self, BufWriter, Write},
};

use super::{CalcUnit, WriteError, choice, in_units};
use crate::event::{Action, Operation, Schedule};

pub fn write_text(
    schedule: &Schedule,
    unit: CalcUnit,
    output: impl Write,
) -> Result<(), WriteError> {
    let mut output = BufWriter::new(output);
    writeln!(output, "num_ranks {}", schedule.ranks())?;
    let mut predecessors = Vec::new();
    for rank in 0..schedule.ranks() {
        writeln!(output, "\nrank {rank} {{")?;
        let ops = schedule.of_rank(rank);
        let names = Names::new(schedule, rank);
        let inline = gather(schedule, rank, &mut predecessors);
        let mut next = 0;
        for op in ops.clone() {
            names.write(op, &mut output)?;
            output.write_all(b": ")?;
            operation(schedule, op, unit, &mut output)?;
            while inline && predecessors.get(next).is_some_and(|&(successor, ..)| successor == op) {
                let (_, on, start) = predecessors[next];
                dependency(&mut output, &names, op, on, start)?;
                next += 1;
            }
        }
        if !inline {
            for on in ops {
                for &op in schedule.successors(on) {
                    dependency(&mut output, &names, op, on, false)?;
                }
                for &op in schedule.start_successors(on) {
                    dependency(&mut output, &names, op, on, true)?;
                }
            }
        }
        writeln!(output, "}}")?;
    }
    output.flush()?;
    Ok(())
}

/// (operation, on, start) of all dependencies of a rank, in the order in which they can follow their
/// operations. False if that would change the order in which an operation's successors were declared,
/// which matters to LogGOPSim.
fn gather(schedule: &Schedule, rank: u32, predecessors: &mut Vec<(u32, u32, bool)>) -> bool {
    predecessors.clear();
    let mut inline = true;
    for on in schedule.of_rank(rank) {
        for (successors, start) in
            [(schedule.successors(on), false), (schedule.start_successors(on), true)]
        {
            inline &= successors.is_sorted() && successors.iter().all(|&op| op > on);
            predecessors.extend(successors.iter().map(|&op| (op, on, start)));
        }
    }
    predecessors.sort_unstable();
    inline
}

fn dependency(
    output: &mut impl Write,
    names: &Names,
    op: u32,
    on: u32,
    start: bool,
) -> Result<(), WriteError> {
    let relation = if start { &b" irequires "[..] } else { b" requires " };
    names.write(op, output)?;
    output.write_all(relation)?;
    names.write(on, output)?;
    output.write_all(b"\n")?;
    Ok(())
}

fn operation(
    schedule: &Schedule,
    op: u32,
    unit: CalcUnit,
    output: &mut impl Write,
) -> Result<(), WriteError> {
    let Operation { action, cpu, nic } = schedule.operation(op);
    let mut number = |before: &[u8], value: u64| {
        output.write_all(before)?;
        decimal(value, output)
    };
    let tag = match action {
        Action::Calc { ps } => {
            number(b"calc ", in_units(schedule, op, ps, unit)?)?;
            None
        }
        Action::Choice { .. } | Action::Request => return Err(choice(schedule, op)),
        Action::Send { bytes, to, tag } => {
            number(b"send ", bytes)?;
            number(b"b to ", u64::from(to))?;
            Some(tag)
        }
        Action::Recv { bytes, from, tag } => {
            number(b"recv ", bytes)?;
            match from {
                Some(from) => number(b"b from ", u64::from(from))?,
                None => number(b"b from -", 1)?,
            }
            Some(tag)
        }
    };
    match tag {
        Some(Some(tag)) => number(b" tag ", u64::from(tag))?,
        Some(None) => number(b" tag -", 1)?,
        None => {}
    }
    if cpu != 0 {
        number(b" cpu ", u64::from(cpu))?;
    }
    if nic != 0 {
        number(b" nic ", u64::from(nic))?;
    }
    output.write_all(b"\n")?;
    Ok(())
}

/// The labels of a rank's operations. Those without one get a unique label.
struct Names<'a> {
    schedule: &'a Schedule,
    first: u32,
    taken: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(schedule: &'a Schedule, rank: u32) -> Names<'a> {
        let ops = schedule.of_rank(rank);
        let given = ops.clone().filter_map(|op| schedule.given_label(op));
        Names { schedule, first: ops.start, taken: given.collect() }
    }

    fn write(&self, op: u32, output: &mut impl Write) -> io::Result<()> {
        let number = op - self.first + 1;
        if self.taken.is_empty() {
            // True for nearly all schedules.
            output.write_all(b"l")?;
            return decimal(u64::from(number), output);
        }
        if let Some(given) = self.schedule.given_label(op) {
            return output.write_all(given.as_bytes());
        }
        let mut label = format!("l{number}");
        while self.taken.contains(label.as_str()) {
            label.push('_');
        }
        output.write_all(label.as_bytes())
    }
}

/// Like `write!`, without its overhead: most of a schedule is numbers.
fn decimal(mut value: u64, output: &mut impl Write) -> io::Result<()> {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return output.write_all(&digits[at..]);
        }
    }
}
