//! From steps to a schedule: every call becomes operations, each with what it must wait for.
//!
//! A rank does one thing after the other. A call that only starts something lets the rank continue as soon
//! as it has begun; a wait lets it continue when that has ended.

use std::{collections::HashMap, ops::Range, rc::Rc};

use simulate::{
    collectives::Op,
    event::{Name, OpId, Schedule, ScheduleBuilder, Test, WILDCARD},
    loggops::Params,
};

use crate::{
    algorithms::Rules,
    collective::{self, Part},
    error::ScheduleError,
    origins::Marks,
    step::{Application, Call, Candidate, NONE, Operation, Reach, Spent, Step, Tape, sending},
};

/// How to make a schedule of a program.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// How many times the traced ranks are there. Messages stay within a copy; collectives of all ranks
    /// have all copies.
    pub copies: u32,
    pub rules: &'a Rules,
    /// Leave out the rest of the communication.
    pub only: Option<Only>,
    /// With what the kernel took from compute in the trace, where it took it.
    pub with_taken: bool,
    /// The network, if it is known: what calls took beyond its overhead counts as work of the rank.
    pub net: Option<&'a Params>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    PointToPoint,
    Collectives,
}

/// Largest schedule: operations are counted in 32 bits.
const MOST_OPERATIONS: u64 = 1 << 31;
/// Operations joined into one before more depend on them.
const MANY: usize = 4;

impl Application {
    /// How many copies make this many ranks.
    pub fn copies(&self, ranks: u64) -> Result<u32, ScheduleError> {
        let own = self.ranks();
        let twice = 2 * u64::from(own);
        if ranks == 0 || !ranks.is_multiple_of(u64::from(own.max(1))) {
            return Err(ScheduleError::NotAMultiple { ranks, own, twice });
        }
        let copies = u32::try_from(ranks / u64::from(own.max(1)));
        copies.map_err(|_| self.too_large(ranks))
    }

    fn too_large(&self, ranks: u64) -> ScheduleError {
        let steps: u64 = self.tapes.iter().map(|tape| tape.steps.len() as u64).sum();
        ScheduleError::TooLarge { ranks, steps: steps / u64::from(self.ranks().max(1)) }
    }

    /// The program as a schedule.
    pub fn schedule(&self, plan: &Plan<'_>) -> Result<Schedule, ScheduleError> {
        self.expanded(plan, None)
    }

    pub(crate) fn expanded(
        &self,
        plan: &Plan<'_>,
        mut marks: Option<&mut Marks>,
    ) -> Result<Schedule, ScheduleError> {
        let own = u64::from(self.ranks());
        let ranks = own * u64::from(plan.copies);
        let steps: u64 = self.tapes.iter().map(|tape| tape.steps.len() as u64).sum();
        let count = u32::try_from(ranks)
            .ok()
            .filter(|_| steps.saturating_mul(u64::from(plan.copies)) < MOST_OPERATIONS);
        let Some(count) = count else { return Err(self.too_large(ranks)) };
        let mut builder = ScheduleBuilder::new(count).with_mpi_matching();
        let mut memory = Memory { marks: marks.is_some().then(Vec::new), ..Memory::default() };
        let mut first = 0;
        for copy in 0..plan.copies {
            for (rank, tape) in (0..).zip(&self.tapes) {
                builder.begin_rank();
                let mut rank = Rank {
                    application: self,
                    plan,
                    copy,
                    rank,
                    builder: &mut builder,
                    memory: &mut memory,
                };
                rank.expand(tape, 0..tape.steps.len())?;
                if let (Some(all), Some(own)) = (&mut marks, &mut memory.marks) {
                    all.add(first, own);
                    own.clear();
                    first += builder.next_op().0;
                }
            }
        }
        Ok(builder.finish()?)
    }
}

impl Application {
    /// A part of the steps of each rank as a schedule of the traced ranks.
    pub(crate) fn part(
        &self,
        plan: &Plan<'_>,
        steps: &[Range<usize>],
    ) -> Result<Schedule, ScheduleError> {
        let mut builder = ScheduleBuilder::new(self.ranks()).with_mpi_matching();
        let mut memory = Memory::default();
        for ((rank, tape), steps) in (0..).zip(&self.tapes).zip(steps) {
            builder.begin_rank();
            let (builder, memory) = (&mut builder, &mut memory);
            Rank { application: self, plan, copy: 0, rank, builder, memory }
                .expand(tape, steps.clone())?;
        }
        Ok(builder.finish()?)
    }
}

/// What an operation waits for, and whether only for its start.
type After = (OpId, bool);

/// Operation, algorithm, ranks, bytes and rank of a part in a collective.
type Shape = (Op, &'static str, u64, u64, u32);

/// What an open request ends with.
#[derive(Clone, Copy)]
enum Open {
    Op(OpId),
    /// Which one it is depends on the choices so far. With the number of its other part.
    Name(Name, u32),
}

/// Reused from rank to rank.
#[derive(Default)]
pub(crate) struct Memory {
    /// The operation that follows each step, if asked for.
    pub marks: Option<Vec<u32>>,
    open: Vec<Option<Open>>,
    /// The requests of a choice: those that the call completed in the trace, and those it left.
    done: Vec<Name>,
    left: Vec<Name>,
    /// What the next operation waits for.
    after: Vec<After>,
    /// Parts of collectives.
    parts: HashMap<Shape, Rc<[Part]>>,
}

/// So many parts are remembered at most.
const REMEMBERED: usize = 1 << 12;

pub(crate) struct Rank<'a> {
    pub application: &'a Application,
    pub plan: &'a Plan<'a>,
    pub copy: u32,
    /// In its copy.
    pub rank: u32,
    pub builder: &'a mut ScheduleBuilder,
    pub memory: &'a mut Memory,
}

impl Rank<'_> {
    /// These steps, of which no other waits for a request.
    pub(crate) fn expand(&mut self, tape: &Tape, steps: Range<usize>) -> Result<(), ScheduleError> {
        self.memory.after.clear();
        self.memory.open.clear();
        self.memory.open.resize(tape.requests as usize, None);
        if steps.start == 0 {
            self.compute(self.application.delay_ps(self.rank));
        }
        let messages = self.plan.only != Some(Only::Collectives);
        let collectives = self.plan.only != Some(Only::PointToPoint);
        for step in tape.steps.get(steps).unwrap_or(&[]) {
            match *step {
                Step::Compute { ps, taken_ps, .. } if self.plan.with_taken => {
                    self.compute(ps.saturating_add(taken_ps));
                }
                Step::Compute { ps, .. } => self.compute(ps),
                Step::Send { to, channel, bytes, request, mpi } if messages => {
                    let (to, sending) = (self.here(to), sending(mpi));
                    let send = self.builder.send_as(sending, bytes, to, channel, 0, 0);
                    self.issue(send, request);
                }
                Step::Receive { from, channel, bytes, request, .. } if messages => {
                    let from = if from == NONE { WILDCARD } else { self.here(from) };
                    let receive = self.builder.recv(bytes, from, channel, 0, 0);
                    self.issue(receive, request);
                }
                Step::Collective { call, request } if collectives => {
                    if let Some(call) = tape.calls.get(call as usize) {
                        self.collective(call, request)?;
                    }
                }
                Step::Send { request, .. }
                | Step::Receive { request, .. }
                | Step::Collective { request, .. } => {
                    if let Some(open) = self.memory.open.get_mut(request as usize) {
                        *open = None;
                    }
                }
                Step::Wait { request } => self.wait(request),
                Step::Choose { first, count, test, ps } => {
                    self.choose(tape.candidates(first, count), test, ps);
                }
                Step::Spent { ps, bytes, on } if messages => self.spent(ps, bytes, on),
                Step::Spent { .. } | Step::Begin { .. } | Step::End { .. } => {}
            }
            if let Some(marks) = &mut self.memory.marks {
                marks.push(self.builder.next_op().0);
            }
        }
        Ok(())
    }

    /// A rank of this copy.
    fn here(&self, rank: u32) -> u32 {
        self.copy * self.application.ranks() + rank
    }

    fn compute(&mut self, ps: i64) {
        if ps > 0 {
            let calc = self.builder.calc(ps, 0);
            self.issue(calc, NONE);
        }
    }

    /// The operation waits for what came before. The rank continues when it has ended or, with a request,
    /// when it has begun.
    fn issue(&mut self, op: OpId, request: u32) {
        for &(on, start) in &self.memory.after {
            depend(self.builder, op, on, start);
        }
        self.memory.after.clear();
        let starts = match self.memory.open.get_mut(request as usize) {
            Some(open) => {
                *open = Some(Open::Op(op));
                true
            }
            None => false,
        };
        self.memory.after.push((op, starts));
    }

    /// A call takes longer than the model says: the rest is work of the rank.
    fn spent(&mut self, ps: i64, bytes: u64, on: Spent) {
        if on == Spent::Testing {
            return self.compute(ps);
        }
        let Some(net) = self.plan.net else { return };
        let Ok(cost) = net.marked_message(bytes) else { return };
        match on {
            Spent::Posting | Spent::Testing => self.compute(ps),
            Spent::Sending if cost.rendezvous => {}
            Spent::Starting | Spent::Sending => self.compute(ps - cost.send_cpu),
        }
    }

    fn wait(&mut self, request: u32) {
        let op = match self.memory.open.get_mut(request as usize).and_then(Option::take) {
            Some(Open::Op(op)) => op,
            Some(Open::Name(name, other)) => {
                if let Some(open) = self.memory.open.get_mut(other as usize) {
                    *open = None;
                }
                let choice = self.builder.choose(&[name], &[], 0);
                return self.issue(choice, NONE);
            }
            None => return,
        };
        let after = &mut self.memory.after;
        // That it has begun follows from its end.
        after.retain(|(on, start)| !(*on == op && *start));
        after.push((op, false));
        if after.len() > MANY {
            self.join();
        }
    }

    /// The name of a request that choices can take; None if it is not there any more.
    fn name(&mut self, parts: [u32; 2]) -> Option<Name> {
        let mut ops = [OpId(0); 2];
        let mut count = 0;
        for part in parts {
            match self.memory.open.get(part as usize) {
                Some(Some(Open::Name(name, _))) => return Some(*name),
                Some(Some(Open::Op(op))) => {
                    ops[count] = *op;
                    count += 1;
                }
                _ => {}
            }
        }
        if count == 0 {
            return None;
        }
        let name = self.builder.name(&ops[..count]);
        let [first, second] = parts;
        for (part, other) in [(first, second), (second, first)] {
            if let Some(open @ Some(_)) = self.memory.open.get_mut(part as usize) {
                *open = Some(Open::Name(name, other));
            }
        }
        Some(name)
    }

    fn choose(&mut self, candidates: &[Candidate], test: Test, ps: i64) {
        let waits = candidates.iter().any(|candidate| candidate.done);
        let open = &self.memory.open;
        let there = |part: &u32| matches!(open.get(*part as usize), Some(Some(_)));
        let any = |done: bool| {
            candidates.iter().any(|one| one.done == done && one.parts.iter().any(there))
        };
        if waits && !(any(true) && any(false)) {
            // Nothing to choose from: no request is left, or those completed had nothing to do.
            let done = candidates.iter().filter(|candidate| candidate.done);
            return done.flat_map(|candidate| candidate.parts).for_each(|part| self.wait(part));
        }
        let (mut done, mut left) =
            (std::mem::take(&mut self.memory.done), std::mem::take(&mut self.memory.left));
        done.clear();
        left.clear();
        for candidate in candidates {
            let Some(name) = self.name(candidate.parts) else { continue };
            if !candidate.done {
                left.push(name);
                continue;
            }
            done.push(name);
            for part in candidate.parts {
                if let Some(open) = self.memory.open.get_mut(part as usize) {
                    *open = None;
                }
            }
        }
        // Without the requests that it completed or tested, the call has nothing to do.
        if waits && !done.is_empty() {
            let choice = self.builder.choose(&done, &left, 0);
            self.issue(choice, NONE);
        } else if !waits && !left.is_empty() && ps > 0 {
            let choice = self.builder.test(&left, test, ps, 0);
            self.issue(choice, NONE);
        }
        (self.memory.done, self.memory.left) = (done, left);
    }

    /// One operation in place of many that the next ones would wait for.
    fn join(&mut self) -> OpId {
        let join = self.builder.calc(0, 0);
        self.issue(join, NONE);
        join
    }

    fn collective(&mut self, call: &Call, request: u32) -> Result<(), ScheduleError> {
        let first = self.builder.next_op();
        match &call.operation {
            Operation::Regular { op, bytes, root } => self.rounds(call, *op, *bytes, *root)?,
            Operation::Blocks { op, sizes } => self.ring(call, *op, sizes),
            Operation::Rooted { towards, root, bytes, sizes } => {
                self.rooted(call, *towards, *root, *bytes, sizes);
            }
            Operation::Messages { to, from, reach } => {
                let (to, from) = (self.reached(call, to, *reach), self.reached(call, from, *reach));
                self.messages(call, &to, &from);
            }
        }
        let Some(open) = self.memory.open.get_mut(request as usize) else { return Ok(()) };
        if self.builder.next_op() == first {
            // Nothing to do: it is complete at once.
            *open = None;
            return Ok(());
        }
        let end = self.join();
        self.memory.open[request as usize] = Some(Open::Op(end));
        // The rank continues as soon as the first message is on its way.
        self.memory.after.clear();
        self.memory.after.push((first, true));
        Ok(())
    }

    fn rounds(&mut self, call: &Call, op: Op, bytes: u64, root: u32) -> Result<(), ScheduleError> {
        let members = self.members(call);
        let Some(own) = self.member(call) else { return Ok(()) };
        // Algorithms count from the root.
        let relative = ((u64::from(own) + members - u64::from(root) % members) % members) as u32;
        let algorithm = self.plan.rules.of(op, bytes);
        let key = (op, algorithm, members, bytes, relative);
        let parts = match self.memory.parts.get(&key) {
            Some(parts) => Rc::clone(parts),
            None => {
                let collective = self.plan.rules.collective(op, members, bytes, self.plan.net)?;
                let parts: Rc<[Part]> = collective::parts(&collective, relative).into();
                if self.memory.parts.len() >= REMEMBERED {
                    self.memory.parts.clear();
                }
                self.memory.parts.insert(key, Rc::clone(&parts));
                parts
            }
        };
        self.parts(call, &parts, root);
        Ok(())
    }

    /// In each round of a ring, a rank passes on the block that it received in the one before, or adds its own to it.
    fn ring(&mut self, call: &Call, op: Op, sizes: &[u64]) {
        let Some(own) = self.member(call) else { return };
        let members = self.members(call);
        let own = u64::from(own);
        // The blocks of the trace again and again.
        let size = |block: u64| {
            let place = (block % members) as usize % sizes.len().max(1);
            sizes.get(place).copied().unwrap_or(0)
        };
        // A reduction ends with the own block, an allgather begins with it.
        let first = own + 2 * members - u64::from(op == Op::ReduceScatter);
        let neighbour = |by: u64| ((own + by) % members) as u32;
        let parts: Vec<Part> = (1..members)
            .map(|round| Part {
                to: Some((neighbour(1), size(first + 1 - round))),
                from: Some((neighbour(members - 1), size(first - round))),
            })
            .collect();
        self.parts(call, &parts, 0);
    }

    /// Round by round.
    fn parts(&mut self, call: &Call, parts: &[Part], root: u32) {
        let members = self.members(call);
        for part in parts {
            let actual = |rank: u32| ((u64::from(rank) + u64::from(root)) % members) as u32;
            let send = part.to.map(|(to, bytes)| {
                let to = self.world(call, actual(to));
                self.builder.send(bytes, to, call.channel, 0, 0)
            });
            let receive = part.from.map(|(from, bytes)| {
                let from = self.world(call, actual(from));
                self.builder.recv(bytes, from, call.channel, 0, 0)
            });
            for op in [send, receive].into_iter().flatten() {
                for &(on, start) in &self.memory.after {
                    depend(self.builder, op, on, start);
                }
            }
            // A receive is posted as the send of its round begins.
            if let (Some(send), Some(receive)) = (send, receive) {
                self.builder.irequires(receive, send);
            }
            self.memory.after.clear();
            self.memory.after.extend([send, receive].into_iter().flatten().map(|op| (op, false)));
        }
    }

    /// The root exchanges a message with each of the others.
    fn rooted(&mut self, call: &Call, towards: bool, root: u32, bytes: u64, sizes: &[u64]) {
        let Some(own) = self.member(call) else { return };
        let list: Vec<(u32, u64)> = match own == root {
            false => vec![(root, bytes)],
            true => {
                let size = |member: u64| {
                    let place = member as usize % sizes.len().max(1);
                    sizes.get(place).copied().unwrap_or(bytes)
                };
                (0..self.members(call)).map(|member| (member as u32, size(member))).collect()
            }
        };
        match (own == root) == towards {
            true => self.messages(call, &[], &list),
            false => self.messages(call, &list, &[]),
        }
    }

    /// All at once: receives are posted, messages sent one after the other, then all are waited for. What a
    /// rank sends to itself costs nothing.
    fn messages(&mut self, call: &Call, to: &[(u32, u64)], from: &[(u32, u64)]) {
        let own = self.here(self.rank);
        let mut ends: Vec<OpId> = Vec::new();
        for (list, sends) in [(from, false), (to, true)] {
            for &(peer, bytes) in list {
                let peer = self.world(call, peer);
                if peer == own {
                    continue;
                }
                let op = match sends {
                    true => self.builder.send(bytes, peer, call.channel, 0, 0),
                    false => self.builder.recv(bytes, peer, call.channel, 0, 0),
                };
                match ends.last() {
                    Some(&last) => self.builder.irequires(op, last),
                    None => {
                        for &(on, start) in &self.memory.after {
                            depend(self.builder, op, on, start);
                        }
                    }
                }
                ends.push(op);
            }
        }
        if ends.is_empty() {
            return;
        }
        self.memory.after.clear();
        self.memory.after.extend(ends.into_iter().map(|op| (op, false)));
        if self.memory.after.len() > MANY {
            self.join();
        }
    }

    /// The listed peers of a call: those of every copy if it reaches beyond its own.
    fn reached(&self, call: &Call, list: &[(u32, u64)], reach: Reach) -> Vec<(u32, u64)> {
        let size = self.application.ranks();
        if self.plan.copies == 1 || !self.application.is_whole(call.group) {
            return list.to_vec();
        }
        let copies = match reach {
            Reach::Neighbours => self.copy..self.copy + 1,
            Reach::All => 0..self.plan.copies,
        };
        let of_copy =
            |copy: u32| list.iter().map(move |&(peer, bytes)| (copy * size + peer, bytes));
        copies.flat_map(of_copy).collect()
    }

    /// Members of the group of a call: those of all copies if it has all ranks.
    fn members(&self, call: &Call) -> u64 {
        let group = self.application.groups.get(call.group as usize);
        let members = group.map_or(1, |group| group.members.len()) as u64;
        let whole = self.application.is_whole(call.group);
        if whole { members * u64::from(self.plan.copies) } else { members }
    }

    /// This rank's number among them.
    fn member(&self, call: &Call) -> Option<u32> {
        let group = self.application.groups.get(call.group as usize)?;
        let whole = self.application.is_whole(call.group);
        let before = if whole { self.copy * group.members.len() as u32 } else { 0 };
        Some(before + call.rank)
    }

    /// The rank in the schedule of a member.
    fn world(&self, call: &Call, member: u32) -> u32 {
        let Some(group) = self.application.groups.get(call.group as usize) else { return 0 };
        let size = group.members.len().max(1) as u32;
        let own = self.application.ranks();
        let copy = if self.application.is_whole(call.group) { member / size } else { self.copy };
        let rank = group.members.get((member % size) as usize).copied().unwrap_or(0);
        copy * own + rank
    }
}

fn depend(builder: &mut ScheduleBuilder, op: OpId, on: OpId, start: bool) {
    match start {
        true => builder.irequires(op, on),
        false => builder.requires(op, on),
    }
}
