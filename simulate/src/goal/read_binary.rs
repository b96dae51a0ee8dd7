//! Reads binary GOAL. Every number is validated before it is used, and memory grows with the data
//! read, not with what a header claims.

use std::io::{BufRead, ErrorKind};

use super::{
    CalcUnit,
    binary::{COOKIE, COOKIE_USED_UP, HEADER, NODE, Node, ORIGIN},
    error::{BinaryProblem, GoalError},
};
use crate::event::{OpId, Schedule, ScheduleBuilder};

pub fn read_binary(input: impl BufRead, unit: CalcUnit) -> Result<Schedule, GoalError> {
    let mut input = Input { input, offset: 0 };
    match input.u64("the cookie")? {
        COOKIE => {}
        COOKIE_USED_UP => return Err(GoalError::Binary { offset: 0, what: BinaryProblem::UsedUp }),
        found => {
            return Err(GoalError::Binary { offset: 0, what: BinaryProblem::Cookie { found } });
        }
    }
    let ranks = input.u32("the header")?;
    let [_cpu, _nic] = input.bytes("the header")?;
    let mut builder = ScheduleBuilder::new(ranks);
    if let Some(error) = builder.error() {
        return Err(error.clone().into());
    }
    let mut extents = Vec::new();
    for _ in 0..ranks {
        extents.push((input.u64("the table of ranks")?, input.u64("the table of ranks")?));
    }
    debug_assert_eq!(input.offset, ORIGIN + HEADER + 16 * u64::from(ranks));
    let mut list = Lists::default();
    for (rank, (begin, end)) in (0..).zip(extents) {
        let here = input.offset - ORIGIN;
        if begin < here || end < begin {
            return Err(input.problem(BinaryProblem::Overlap { rank, begin }));
        }
        input.skip(begin - here)?;
        builder.begin_rank();
        read_rank(&mut input, rank, end - begin, unit, &mut builder, &mut list)?;
    }
    Ok(builder.finish()?)
}

/// Reused from rank to rank.
#[derive(Default)]
struct Lists {
    nodes: Vec<Node>,
    successors: Vec<u32>,
    found: Vec<u32>,
}

fn read_rank<R: BufRead>(
    input: &mut Input<R>,
    rank: u32,
    room: u64,
    unit: CalcUnit,
    builder: &mut ScheduleBuilder,
    lists: &mut Lists,
) -> Result<(), GoalError> {
    let Lists { nodes, successors, found } = lists;
    let (count, roots) = (input.u32("a rank")?, input.u32("a rank")?);
    let needed = 8 + 4 * u64::from(roots) + NODE as u64 * u64::from(count);
    let Some(rest) = room.checked_sub(needed).filter(|rest| rest % 4 == 0) else {
        return Err(input.problem(BinaryProblem::TooShort { rank, needed, room }));
    };
    // Roots are the operations without dependencies, so the list is redundant.
    input.skip(4 * u64::from(roots))?;
    nodes.clear();
    for index in 0..count {
        let node = Node::from_bytes(&input.bytes("an operation")?);
        add(input, &node, rank, index, unit, builder)?;
        nodes.push(node);
    }
    if let Some(error) = builder.error() {
        return Err(error.clone().into());
    }
    successors.clear();
    for _ in 0..rest / 4 {
        successors.push(input.u32("the successors")?);
    }
    found.clear();
    found.resize(nodes.len(), 0);
    // Overlapping lists would amplify a small file into a huge schedule.
    let mut left = successors.len();
    for (index, node) in (0..).zip(nodes.iter()) {
        for (count, at, start) in [
            (node.successors, node.successors_at, false),
            (node.start_successors, node.start_successors_at, true),
        ] {
            // Without successors the offset is arbitrary: an older converter left it undefined.
            if count == 0 {
                continue;
            }
            let range = at as usize..at as usize + count as usize;
            let listed = successors.get(range).filter(|listed| listed.len() <= left);
            let Some(listed) = listed else {
                let what = BinaryProblem::Bounds {
                    rank,
                    index,
                    what: "end of the successor list",
                    value: u64::from(at) + u64::from(count),
                };
                return Err(input.problem(what));
            };
            left -= listed.len();
            for &successor in listed {
                let Some(found) = found.get_mut(successor as usize) else {
                    let value = u64::from(successor);
                    let what = BinaryProblem::Bounds { rank, index, what: "successor", value };
                    return Err(input.problem(what));
                };
                *found += 1;
                if start {
                    builder.irequires(OpId(successor), OpId(index));
                } else {
                    builder.requires(OpId(successor), OpId(index));
                }
            }
        }
    }
    for (index, (node, &found)) in (0..).zip(nodes.iter().zip(found.iter())) {
        if node.dependencies != found {
            let stated = node.dependencies;
            let what = BinaryProblem::Dependencies { rank, index, stated, found };
            return Err(input.problem(what));
        }
    }
    Ok(())
}

fn add<R: BufRead>(
    input: &Input<R>,
    node: &Node,
    rank: u32,
    index: u32,
    unit: CalcUnit,
    builder: &mut ScheduleBuilder,
) -> Result<(), GoalError> {
    let &Node { kind, peer, size, tag, cpu, nic, .. } = node;
    match kind {
        1 => builder.send(size, peer, tag, cpu, nic),
        2 => builder.recv(size, peer, tag, cpu, nic),
        3 => match unit.to_ps(size) {
            Some(ps) => builder.calc(ps, cpu),
            None => {
                let what =
                    BinaryProblem::Bounds { rank, index, what: "length of a calc", value: size };
                return Err(input.problem(what));
            }
        },
        kind => return Err(input.problem(BinaryProblem::Kind { rank, index, kind })),
    };
    Ok(())
}

struct Input<R> {
    input: R,
    offset: u64,
}

impl<R: BufRead> Input<R> {
    fn bytes<const N: usize>(&mut self, within: &'static str) -> Result<[u8; N], GoalError> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                self.offset += N as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.problem(BinaryProblem::Truncated { within }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn u32(&mut self, within: &'static str) -> Result<u32, GoalError> {
        Ok(u32::from_le_bytes(self.bytes(within)?))
    }

    fn u64(&mut self, within: &'static str) -> Result<u64, GoalError> {
        Ok(u64::from_le_bytes(self.bytes(within)?))
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), GoalError> {
        while bytes > 0 {
            let available = self.input.fill_buf()?.len() as u64;
            if available == 0 {
                return Err(self.problem(BinaryProblem::Truncated { within: "a rank" }));
            }
            let taken = available.min(bytes);
            self.input.consume(taken as usize);
            self.offset += taken;
            bytes -= taken;
        }
        Ok(())
    }

    fn problem(&self, what: BinaryProblem) -> GoalError {
        GoalError::Binary { offset: self.offset, what }
    }
}
