//! Writes binary GOAL, byte-identical to LogGOPSim's converter.

use std::io::{BufWriter, Write};

use super::{
    CalcUnit, WriteError,
    binary::{COOKIE, HEADER, NODE, Node},
    choice, in_units,
};
use crate::event::{Action, Schedule};

pub fn write_binary(
    schedule: &Schedule,
    unit: CalcUnit,
    output: impl Write,
) -> Result<(), WriteError> {
    let mut output = BufWriter::new(output);
    let ranks = schedule.ranks();
    let counts = schedule.dependency_counts();
    let roots = |rank: u32| schedule.of_rank(rank).filter(|&op| counts[op as usize] == 0);
    let listed = |op: u32| (schedule.successors(op).len(), schedule.start_successors(op).len());

    output.write_all(&COOKIE.to_le_bytes())?;
    output.write_all(&ranks.to_le_bytes())?;
    // At most 256 of each.
    output.write_all(&[(schedule.cpus() - 1) as u8, (schedule.nics() - 1) as u8])?;
    let mut begin = HEADER + 16 * u64::from(ranks);
    for rank in 0..ranks {
        let successors: usize = schedule.of_rank(rank).map(|op| listed(op).0 + listed(op).1).sum();
        let words = 2 + roots(rank).count() + successors;
        let end = begin + (4 * words + NODE * schedule.of_rank(rank).len()) as u64;
        output.write_all(&begin.to_le_bytes())?;
        output.write_all(&end.to_le_bytes())?;
        begin = end;
    }
    for rank in 0..ranks {
        let ops = schedule.of_rank(rank);
        output.write_all(&(ops.len() as u32).to_le_bytes())?;
        output.write_all(&(roots(rank).count() as u32).to_le_bytes())?;
        for root in roots(rank) {
            output.write_all(&(root - ops.start).to_le_bytes())?;
        }
        let mut at = 0;
        for op in ops.clone() {
            let (successors, start_successors) = listed(op);
            let node = Node {
                dependencies: counts[op as usize],
                successors: successors as u32,
                successors_at: at,
                start_successors: start_successors as u32,
                start_successors_at: at + successors as u32,
                ..node(schedule, op, unit)?
            };
            at += (successors + start_successors) as u32;
            output.write_all(&node.to_bytes())?;
        }
        for op in ops.clone() {
            for successor in schedule.successors(op).iter().chain(schedule.start_successors(op)) {
                output.write_all(&(successor - ops.start).to_le_bytes())?;
            }
        }
    }
    output.flush()?;
    Ok(())
}

fn node(schedule: &Schedule, op: u32, unit: CalcUnit) -> Result<Node, WriteError> {
    let operation = schedule.operation(op);
    let any = |number: Option<u32>| number.unwrap_or(u32::MAX);
    let (peer, size, tag) = match operation.action {
        Action::Send { bytes, to, tag } => (to, bytes, any(tag)),
        Action::Recv { bytes, from, tag } => (any(from), bytes, any(tag)),
        Action::Calc { ps } => (0, in_units(schedule, op, ps, unit)?, 0),
        Action::Choice { .. } | Action::Request => return Err(choice(schedule, op)),
    };
    Ok(Node {
        dependencies: 0,
        kind: schedule.kind(op) as u8,
        peer,
        size,
        tag,
        cpu: operation.cpu,
        nic: operation.nic,
        successors: 0,
        successors_at: 0,
        start_successors: 0,
        start_successors_at: 0,
    })
}
