//! A job of collectives as a schedule of operations, for the event engine and for GOAL: the same
//! rounds that the round engine evaluates, written out.

use std::ops::ControlFlow;

use thiserror::Error;

use crate::{
    event::{BuildError, OpId, Schedule, ScheduleBuilder},
    job::{Job, Priced},
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    #[error(
        "too many operations for a schedule: {operations}; simulate fewer ranks, or use --graph \
         in-order, which needs no schedule"
    )]
    TooLarge { operations: u64 },
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Dependencies between operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Graph {
    /// Each rank does one operation after the other; a receive is posted as the send of its round
    /// begins.
    #[default]
    InOrder,
    /// As written by LogGOPSim's schedule generator. A send waits only for the previous receive;
    /// receives wait for nothing. So a rank may forward data before its own earlier messages are done.
    /// In a dissemination there is a calc between the two, as long as the reduction or of zero length:
    /// by LogGOPSim's rules a detour on it delays the message, one on the send's o does not.
    LogGopSim,
}

impl Graph {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Graph::InOrder => "in-order",
            Graph::LogGopSim => "peer",
        }
    }
}

/// What a rank does in a round. Peers are ranks, or `NOBODY`.
#[derive(Clone, Copy)]
struct Part {
    to: u32,
    from: u32,
    send: u32,
    recv: u32,
}

const NOBODY: u32 = u32::MAX;
const NOTHING: Part = Part { to: NOBODY, from: NOBODY, send: 0, recv: 0 };

/// A round, rank by rank: which of its spans each rank sends and receives in.
struct Round {
    compute: i64,
    /// A rank computes on received data before it forwards it, even if for zero time.
    combines: bool,
    spans: Vec<Priced>,
    parts: Parts,
}

/// What each rank does. In many rounds of trees and chains only a few ranks do anything.
enum Parts {
    All(Vec<Part>),
    /// By rank.
    Few(Vec<(u32, Part)>),
}

impl Parts {
    /// Empties `touched`; `parts` is blank afterwards.
    fn take(parts: &mut [Part], touched: &mut Vec<u32>) -> Parts {
        if touched.len() > parts.len() / 4 {
            touched.clear();
            let all = parts.to_vec();
            parts.fill(NOTHING);
            return Parts::All(all);
        }
        touched.sort_unstable();
        touched.dedup();
        let part = |rank: u32| (rank, std::mem::replace(&mut parts[rank as usize], NOTHING));
        Parts::Few(touched.drain(..).map(part).collect())
    }

    fn of(&self, rank: u32) -> Part {
        match self {
            Parts::All(parts) => parts[rank as usize],
            Parts::Few(parts) => match parts.binary_search_by_key(&rank, |(rank, _)| *rank) {
                Ok(at) => parts[at].1,
                Err(_) => NOTHING,
            },
        }
    }
}

/// Largest schedule: operations are counted in 32 bits.
const MOST_OPERATIONS: u64 = 1 << 31;

pub fn schedule(job: &Job, graph: Graph) -> Result<Schedule, GraphError> {
    let per_message = if graph == Graph::LogGopSim { 3 } else { 2 };
    let operations = job.messages().saturating_mul(per_message);
    let ranks = u32::try_from(job.ranks()).ok().filter(|_| operations <= MOST_OPERATIONS);
    let ranks = ranks.ok_or(GraphError::TooLarge { operations })?;
    let rounds = rounds(job, ranks);
    let mut builder = ScheduleBuilder::new(ranks);
    for rank in 0..ranks {
        builder.begin_rank();
        let mut program = RankOps::new(&mut builder, graph);
        if ranks == 1 && job.lonely_compute() > 0 {
            program.compute(job.lonely_compute());
        }
        let mut tag = 0;
        for _ in 0..job.iterations() {
            for round in &rounds {
                program.round(round, rank, tag);
                tag = (tag + 1) & 0x7fff_ffff;
            }
        }
    }
    Ok(builder.finish()?)
}

fn rounds(job: &Job, ranks: u32) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut combines = job.body().iter().flat_map(|collective| {
        let mut count = 0;
        let _ = collective.rounds(&mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        std::iter::repeat_n(collective.algorithm() == COMBINING, count)
    });
    let mut parts = vec![NOTHING; ranks as usize];
    let mut touched = Vec::new();
    let _ = job.rounds(&mut |compute, spans| {
        for (index, priced) in (0..).zip(spans) {
            for (src, dst) in priced.span.edges(u64::from(ranks)) {
                let sender = &mut parts[src as usize];
                (sender.to, sender.send) = (dst as u32, index);
                let receiver = &mut parts[dst as usize];
                (receiver.from, receiver.recv) = (src as u32, index);
                touched.extend([src as u32, dst as u32]);
            }
        }
        let combines = combines.next().unwrap_or(false);
        let parts = Parts::take(&mut parts, &mut touched);
        rounds.push(Round { compute, combines, spans: spans.to_vec(), parts });
        ControlFlow::Continue(())
    });
    rounds
}

/// The only algorithm for which LogGOPSim's generator writes calcs.
const COMBINING: &str = "dissemination";

/// The operations of one rank, as they are added.
struct RankOps<'a> {
    builder: &'a mut ScheduleBuilder,
    graph: Graph,
    /// Operations that must end before the next one begins: in order, those of the previous round; in
    /// LogGOPSim's graph, all so far, for compute to wait for.
    before: Vec<OpId>,
    /// The last operation that received, combined or computed.
    got: Option<OpId>,
    /// It was a receive, with no computation since.
    raw: bool,
}

impl<'a> RankOps<'a> {
    fn new(builder: &'a mut ScheduleBuilder, graph: Graph) -> RankOps<'a> {
        RankOps { builder, graph, before: Vec::new(), got: None, raw: false }
    }

    /// Computes on received data before it is forwarded.
    fn combine(&mut self) {
        if let (Some(received), true) = (self.got, self.raw) {
            let calc = self.builder.calc(0, 0);
            self.builder.requires(calc, received);
            self.before.push(calc);
            self.got = Some(calc);
            self.raw = false;
        }
    }

    fn compute(&mut self, ps: i64) {
        let calc = self.builder.calc(ps, 0);
        for on in self.before.drain(..) {
            self.builder.requires(calc, on);
        }
        self.before.push(calc);
        self.got = Some(calc);
        self.raw = false;
    }

    fn round(&mut self, round: &Round, rank: u32, tag: u32) {
        if round.compute > 0 {
            self.compute(round.compute);
        }
        let part = round.parts.of(rank);
        let mut now = Vec::new();
        let mut issued = None;
        if part.to != NOBODY {
            if round.combines && self.graph == Graph::LogGopSim {
                self.combine();
            }
            let bytes = round.spans[part.send as usize].span.bytes;
            let send = self.builder.send(bytes, part.to, tag, 0, 0);
            self.wait(send, true);
            now.push(send);
            issued = Some(send);
        }
        if part.from != NOBODY {
            let priced = &round.spans[part.recv as usize];
            let recv = self.builder.recv(priced.span.bytes, part.from, tag, 0, 0);
            self.wait(recv, false);
            if let (Graph::InOrder, Some(send)) = (self.graph, issued) {
                self.builder.irequires(recv, send);
            }
            now.push(recv);
            self.got = Some(recv);
            self.raw = true;
            if priced.reduce > 0 {
                let calc = self.builder.calc(priced.reduce, 0);
                match self.graph {
                    Graph::InOrder => {
                        for on in now.drain(..) {
                            self.builder.requires(calc, on);
                        }
                    }
                    Graph::LogGopSim => self.builder.requires(calc, recv),
                }
                now.push(calc);
                self.got = Some(calc);
                self.raw = false;
            }
        }
        if now.is_empty() {
            return;
        }
        match self.graph {
            Graph::InOrder => self.before = now,
            Graph::LogGopSim => self.before.extend(now),
        }
    }

    fn wait(&mut self, op: OpId, sends: bool) {
        match self.graph {
            Graph::InOrder => {
                for &on in &self.before {
                    self.builder.requires(op, on);
                }
            }
            Graph::LogGopSim => {
                if let (true, Some(on)) = (sends, self.got) {
                    self.builder.requires(op, on);
                }
            }
        }
    }
}
