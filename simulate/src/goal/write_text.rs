//! Writes GOAL text that the peer reads, too.

use std::{
    borrow::Cow,
    collections::HashSet,
    io::{BufWriter, Write},
};

use super::{CalcUnit, WriteError};
use crate::event::{Action, Schedule};

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
            write!(output, "{}: ", names.of(op))?;
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

/// (operation, on, start) of all dependencies of a rank in the order in which they can stand below
/// their operations. False when that would change the order in which an operation's successors were
/// declared, which the peer goes by.
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
    let relation = if start { "irequires" } else { "requires" };
    writeln!(output, "{} {relation} {}", names.of(op), names.of(on))?;
    Ok(())
}

fn operation(
    schedule: &Schedule,
    op: u32,
    unit: CalcUnit,
    output: &mut impl Write,
) -> Result<(), WriteError> {
    let operation = schedule.operation(op);
    match operation.action {
        Action::Calc { ps } => {
            let units = unit.to_units(ps).ok_or_else(|| {
                let place = schedule.place(op);
                WriteError::Unit { rank: place.rank, index: place.index, ps, unit_ps: unit.ps() }
            })?;
            write!(output, "calc {units}")?;
            if operation.cpu != 0 {
                write!(output, " cpu {}", operation.cpu)?;
            }
            writeln!(output)?;
        }
        _ => writeln!(output, "{operation}")?,
    }
    Ok(())
}

/// What the operations of a rank are called. Those without a name get one that nobody else has.
struct Names<'a> {
    schedule: &'a Schedule,
    taken: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(schedule: &'a Schedule, rank: u32) -> Names<'a> {
        let given = schedule.of_rank(rank).filter_map(|op| schedule.given_label(op));
        Names { schedule, taken: given.collect() }
    }

    fn of(&self, op: u32) -> Cow<'a, str> {
        let label = self.schedule.label(op);
        if self.taken.is_empty() || self.schedule.given_label(op).is_some() {
            return label;
        }
        let mut label = label.into_owned();
        while self.taken.contains(label.as_str()) {
            label.push('_');
        }
        Cow::Owned(label)
    }
}
