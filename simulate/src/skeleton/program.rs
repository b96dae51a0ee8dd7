//! The steps of a skeleton, in loops; written out as one schedule, or body by body.

use std::collections::HashMap;

use super::{Grid, Imbalance, SkeletonError, run::Bodies};
use crate::{
    collectives::Collective,
    event::{OpId, Schedule, ScheduleBuilder},
    graph::{self, Graph, MOST_OPERATIONS, RankOps, Round},
};

/// What all ranks do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Active ranks compute. `id` selects their imbalance.
    Compute { ps: i64, stride: u64, id: u64 },
    /// Active neighbours exchange messages.
    Exchange { bytes: u64, stride: u64 },
    /// A wave from a corner, block by block; whether it starts at the upper end in x and in y.
    Sweep { from: [bool; 2], blocks: u64, ps: i64, bytes: u64, id: u64, silent: bool },
    /// A collective of the program, by its number.
    Collective(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// A rank begins it when it has ended everything before.
    Body(Vec<Step>),
    Repeat(u64, Vec<Part>),
}

/// Which communication to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    PointToPoint,
    Collectives,
}

impl Only {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Only::PointToPoint => "p2p",
            Only::Collectives => "collectives",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Program {
    pub(super) grid: Grid,
    pub(super) imbalance: Imbalance,
    pub(super) resolution: i64,
    pub(super) collectives: Vec<Collective>,
    pub(super) parts: Vec<Part>,
}

/// Sums over the steps of a program, each as often as it is executed.
fn sum(parts: &[Part], of: &dyn Fn(&Step) -> u64) -> u64 {
    parts.iter().fold(0, |sum: u64, part| {
        let more = match part {
            Part::Body(steps) => steps.iter().map(of).fold(0, u64::saturating_add),
            Part::Repeat(times, parts) => times.saturating_mul(self::sum(parts, of)),
        };
        sum.saturating_add(more)
    })
}

impl Program {
    pub fn ranks(&self) -> u64 {
        self.grid.ranks()
    }

    /// Messages of all iterations.
    pub fn messages(&self) -> u64 {
        sum(&self.parts, &|step| self.messages_of(step))
    }

    fn messages_of(&self, step: &Step) -> u64 {
        match *step {
            Step::Compute { .. } | Step::Sweep { silent: true, .. } => 0,
            Step::Exchange { stride, .. } => self.grid.pairs(stride).saturating_mul(2),
            Step::Sweep { blocks, .. } => self.grid.pairs(1).saturating_mul(blocks),
            Step::Collective(number) => self.collectives[number].messages(),
        }
    }

    /// How often each collective is called: (operation, calls).
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let calls =
            |number: usize| sum(&self.parts, &|step| u64::from(*step == Step::Collective(number)));
        let mut all: Vec<(&'static str, u64)> = Vec::new();
        for (number, collective) in self.collectives.iter().enumerate() {
            let (name, calls) = (collective.shape().op.name(), calls(number));
            match all.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += calls,
                None => all.push((name, calls)),
            }
        }
        all.retain(|&(_, calls)| calls > 0);
        all
    }

    /// Mean CPU time of a rank in all iterations, without communication, imbalance and rounding, ps.
    pub fn compute(&self) -> f64 {
        let total = sum(&self.parts, &|step| match *step {
            Step::Compute { ps, stride, .. } => {
                (ps as u64).saturating_mul(self.grid.active(stride))
            }
            Step::Sweep { blocks, ps, .. } => {
                (ps as u64).saturating_mul(blocks).saturating_mul(self.ranks())
            }
            Step::Exchange { .. } | Step::Collective(_) => 0,
        });
        total as f64 / self.ranks() as f64
    }

    /// Operations of these steps: a send and a receive for each message, and compute.
    fn operations(&self, parts: &[Part]) -> u64 {
        sum(parts, &|step| {
            let compute = match *step {
                Step::Compute { stride, .. } => self.grid.active(stride),
                Step::Sweep { blocks, .. } => self.ranks().saturating_mul(blocks),
                Step::Exchange { .. } | Step::Collective(_) => 0,
            };
            compute.saturating_add(self.messages_of(step).saturating_mul(2))
        })
    }

    /// Without collectives, or without messages between neighbours.
    #[must_use]
    pub fn only(mut self, only: Only) -> Program {
        keep(&mut self.parts, only);
        self
    }

    /// All iterations as one schedule.
    pub fn schedule(&self) -> Result<Schedule, SkeletonError> {
        self.written(&self.parts)
    }

    /// The schedules of the loop bodies, and the order in which they are run.
    pub fn bodies(&self) -> Result<Bodies, SkeletonError> {
        Bodies::of(self)
    }

    /// These parts as one schedule.
    pub(super) fn written(&self, parts: &[Part]) -> Result<Schedule, SkeletonError> {
        let operations = self.operations(parts);
        let ranks = u32::try_from(self.ranks()).ok().filter(|_| operations <= MOST_OPERATIONS);
        let ranks = ranks.ok_or(SkeletonError::TooLarge { operations })?;
        let used =
            |number: usize| sum(parts, &|step| u64::from(*step == Step::Collective(number))) > 0;
        let rounds = (0..self.collectives.len()).filter(|&number| used(number));
        let rounds: HashMap<usize, Vec<Round>> =
            rounds.map(|number| (number, graph::rounds_of(&self.collectives[number]))).collect();
        let mut builder = ScheduleBuilder::new(ranks);
        for rank in 0..ranks {
            builder.begin_rank();
            let ops = RankOps::new(&mut builder, Graph::InOrder, None);
            Writer { program: self, rounds: &rounds, rank, ops, tag: 0 }.parts(parts);
        }
        Ok(builder.finish()?)
    }
}

fn keep(parts: &mut Vec<Part>, only: Only) {
    for part in &mut *parts {
        match part {
            Part::Repeat(_, parts) => keep(parts, only),
            Part::Body(steps) => {
                steps.retain(|step| match step {
                    Step::Collective(_) => only == Only::Collectives,
                    Step::Exchange { .. } => only == Only::PointToPoint,
                    Step::Compute { .. } | Step::Sweep { .. } => true,
                });
                for step in steps {
                    if let Step::Sweep { silent, .. } = step {
                        *silent = only == Only::Collectives;
                    }
                }
            }
        }
    }
    parts.retain(|part| match part {
        Part::Body(steps) => !steps.is_empty(),
        Part::Repeat(_, parts) => !parts.is_empty(),
    });
}

/// Writes the operations of one rank.
struct Writer<'a> {
    program: &'a Program,
    rounds: &'a HashMap<usize, Vec<Round>>,
    rank: u32,
    ops: RankOps<'a>,
    /// Every message between two ranks has its own.
    tag: u32,
}

impl Writer<'_> {
    fn parts(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Body(steps) => steps.iter().for_each(|step| self.step(step)),
                Part::Repeat(times, parts) => (0..*times).for_each(|_| self.parts(parts)),
            }
        }
    }

    fn next_tag(&mut self) -> u32 {
        let tag = self.tag;
        self.tag = (tag + 1) & 0x7fff_ffff;
        tag
    }

    fn step(&mut self, step: &Step) {
        let (grid, rank) = (&self.program.grid, u64::from(self.rank));
        match *step {
            Step::Compute { ps, stride, id } => {
                if grid.is_active(rank, stride) {
                    self.compute(ps, id);
                }
            }
            Step::Exchange { bytes, stride } => {
                let tag = self.next_tag();
                if grid.is_active(rank, stride) {
                    self.exchange(bytes, stride, tag);
                }
            }
            Step::Sweep { from, blocks, ps, bytes, id, silent } => {
                for block in 0..blocks {
                    let tag = self.next_tag();
                    if silent {
                        self.compute(ps, id + block);
                    } else {
                        self.block(from, ps, bytes, id + block, tag);
                    }
                }
            }
            Step::Collective(number) => {
                let rounds = self.rounds;
                for round in rounds.get(&number).into_iter().flatten() {
                    let tag = self.next_tag();
                    self.ops.round(round, self.rank, tag);
                }
            }
        }
    }

    fn compute(&mut self, ps: i64, id: u64) {
        let Program { imbalance, resolution, .. } = self.program;
        let ps = imbalance.of(ps, u64::from(self.rank), id) / resolution * resolution;
        if ps > 0 {
            self.ops.compute(ps);
        }
    }

    /// Receives are posted and sends are issued at once; whatever comes next waits for all of them.
    fn exchange(&mut self, bytes: u64, stride: u64, tag: u32) {
        let RankOps { builder, before, .. } = &mut self.ops;
        let grid = &self.program.grid;
        let neighbours = || grid.neighbours(u64::from(self.rank), stride).map(|rank| rank as u32);
        let mut now = Vec::new();
        for other in neighbours() {
            let receive = builder.recv(bytes, other, tag, 0, 0);
            before.iter().for_each(|&on| builder.requires(receive, on));
            now.push(receive);
        }
        let mut last = None;
        for other in neighbours() {
            let send = builder.send(bytes, other, tag, 0, 0);
            match last {
                // A large message may not have left when the next one is issued.
                Some(last) => builder.irequires(send, last),
                None => before.iter().for_each(|&on| builder.requires(send, on)),
            }
            last = Some(send);
            now.push(send);
        }
        if !now.is_empty() {
            *before = now;
        }
    }

    /// A block of a sweep: one operation after the other.
    fn block(&mut self, from: [bool; 2], ps: i64, bytes: u64, id: u64, tag: u32) {
        let (grid, rank) = (self.program.grid, u64::from(self.rank));
        let neighbour = |direction: usize, up: bool| {
            grid.neighbour(rank, direction, up, 1).map(|rank| rank as u32)
        };
        for (direction, upper) in (0..).zip(from) {
            if let Some(upstream) = neighbour(direction, upper) {
                let receive = self.ops.builder.recv(bytes, upstream, tag, 0, 0);
                self.chain(receive);
            }
        }
        self.compute(ps, id);
        for (direction, upper) in (0..).zip(from) {
            if let Some(downstream) = neighbour(direction, !upper) {
                let send = self.ops.builder.send(bytes, downstream, tag, 0, 0);
                self.chain(send);
            }
        }
    }

    /// The operation requires all before it.
    fn chain(&mut self, op: OpId) {
        let RankOps { builder, before, .. } = &mut self.ops;
        before.drain(..).for_each(|on| builder.requires(op, on));
        before.push(op);
    }
}
