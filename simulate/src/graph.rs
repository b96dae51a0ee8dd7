//! A job of collectives as a schedule of operations, for the event engine and for GOAL: the same
//! rounds that the round engine evaluates, written out.

use std::ops::ControlFlow;

use thiserror::Error;

use crate::{
    collectives::{Collective, Span},
    event::{BuildError, OpId, Schedule, ScheduleBuilder},
    job::{Job, Progress},
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    #[error(
        "too many operations for a schedule: {operations}; simulate fewer ranks, or use --graph \
         in-order, which needs no schedule"
    )]
    TooLarge { operations: u64 },
    #[error("nonblocking collectives require --graph in-order: LogGOPSim's generator has none")]
    Nonblocking,
    #[error(
        "redundant-butterfly cannot be written as a schedule, as --blame and GOAL require: whether a rank \
         sends again depends on which message arrives first; use recursive-doubling"
    )]
    Redundant,
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
pub(crate) struct Round {
    compute: i64,
    /// A rank computes on received data before it forwards it, even if for zero time.
    combines: bool,
    /// Bytes, and CPU time the receiver takes to combine them, ps.
    spans: Vec<(u64, i64)>,
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
pub(crate) const MOST_OPERATIONS: u64 = 1 << 31;

pub fn schedule(job: &Job, graph: Graph) -> Result<Schedule, GraphError> {
    if job.is_redundant() {
        return Err(GraphError::Redundant);
    }
    let per_message = if graph == Graph::LogGopSim { 3 } else { 2 };
    let operations = job.messages().saturating_mul(per_message);
    let ranks = u32::try_from(job.ranks()).ok().filter(|_| operations <= MOST_OPERATIONS);
    let ranks = ranks.ok_or(GraphError::TooLarge { operations })?;
    if graph == Graph::LogGopSim && job.overlap().is_some() {
        return Err(GraphError::Nonblocking);
    }
    let rounds = rounds(job, ranks);
    let mut builder = ScheduleBuilder::new(ranks);
    for rank in 0..ranks {
        builder.begin_rank();
        let mut program = RankOps::new(&mut builder, graph, job.overlap());
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
    let mut collector = Collector::new(ranks);
    let _ = job.rounds(&mut |compute, spans| {
        let combines = combines.next().unwrap_or(false);
        let spans: Vec<(Span, i64)> =
            spans.iter().map(|priced| (priced.span, priced.reduce)).collect();
        rounds.push(collector.round(compute, combines, &spans));
        ControlFlow::Continue(())
    });
    rounds
}

/// The rounds of a collective over at most 2^32 - 1 ranks whose reductions take no time.
pub(crate) fn rounds_of(collective: &Collective) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut collector = Collector::new(collective.ranks() as u32);
    let _ = collective.rounds(&mut |spans| {
        let spans: Vec<(Span, i64)> = spans.iter().map(|&span| (span, 0)).collect();
        rounds.push(collector.round(0, false, &spans));
        ControlFlow::Continue(())
    });
    rounds
}

/// Turns rounds of messages into what each rank does.
struct Collector {
    /// Blank between rounds.
    parts: Vec<Part>,
    touched: Vec<u32>,
}

impl Collector {
    fn new(ranks: u32) -> Collector {
        Collector { parts: vec![NOTHING; ranks as usize], touched: Vec::new() }
    }

    fn round(&mut self, compute: i64, combines: bool, spans: &[(Span, i64)]) -> Round {
        let Collector { parts, touched } = self;
        for (index, (span, _)) in (0..).zip(spans) {
            for (src, dst) in span.edges(parts.len() as u64) {
                let sender = &mut parts[src as usize];
                (sender.to, sender.send) = (dst as u32, index);
                let receiver = &mut parts[dst as usize];
                (receiver.from, receiver.recv) = (src as u32, index);
                touched.extend([src as u32, dst as u32]);
            }
        }
        let spans = spans.iter().map(|(span, reduce)| (span.bytes, *reduce)).collect();
        Round { compute, combines, spans, parts: Parts::take(parts, touched) }
    }
}

/// The only algorithm for which LogGOPSim's generator writes calcs.
const COMBINING: &str = "dissemination";

/// The operations of one rank, as they are added.
pub(crate) struct RankOps<'a> {
    pub builder: &'a mut ScheduleBuilder,
    graph: Graph,
    /// Operations that must end before the next one begins: in order, those of the previous round; in
    /// LogGOPSim's graph, all so far, for compute to wait for.
    pub before: Vec<OpId>,
    /// The last operation that received, combined or computed.
    got: Option<OpId>,
    /// It was a receive, with no computation since.
    raw: bool,
    /// How collectives progress during compute.
    overlap: Option<Progress>,
    /// Compute that the rank has not waited for yet.
    computing: Option<OpId>,
}

/// The CPU that computes while the other one progresses a collective.
const OTHER_CPU: u8 = 1;

impl<'a> RankOps<'a> {
    pub fn new(
        builder: &'a mut ScheduleBuilder,
        graph: Graph,
        overlap: Option<Progress>,
    ) -> RankOps<'a> {
        let before = Vec::new();
        RankOps { builder, graph, before, got: None, raw: false, overlap, computing: None }
    }

    /// Computes while the collective that begins now progresses.
    fn compute_meanwhile(&mut self, ps: i64) {
        self.before.extend(self.computing.take());
        let calc = self.builder.calc(ps, OTHER_CPU);
        for &on in &self.before {
            self.builder.requires(calc, on);
        }
        self.computing = Some(calc);
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

    pub fn compute(&mut self, ps: i64) {
        let calc = self.builder.calc(ps, 0);
        for on in self.before.drain(..) {
            self.builder.requires(calc, on);
        }
        self.before.push(calc);
        self.got = Some(calc);
        self.raw = false;
    }

    pub fn round(&mut self, round: &Round, rank: u32, tag: u32) {
        let during = match self.overlap {
            _ if round.compute == 0 => None,
            None => {
                self.compute(round.compute);
                None
            }
            Some(Progress::InCalls) => Some(round.compute),
            Some(Progress::Always) => {
                self.compute_meanwhile(round.compute);
                None
            }
        };
        let part = round.parts.of(rank);
        let mut now = Vec::new();
        let mut issued = None;
        if part.to != NOBODY {
            if round.combines && self.graph == Graph::LogGopSim {
                self.combine();
            }
            let (bytes, _) = round.spans[part.send as usize];
            let send = self.builder.send(bytes, part.to, tag, 0, 0);
            self.wait(send, true);
            now.push(send);
            issued = Some(send);
        }
        if let Some(ps) = during {
            let calc = self.builder.calc(ps, 0);
            match issued {
                Some(send) => self.builder.requires(calc, send),
                None => self.wait(calc, false),
            }
            now.push(calc);
        }
        if part.from != NOBODY {
            let (bytes, reduce) = round.spans[part.recv as usize];
            let recv = self.builder.recv(bytes, part.from, tag, 0, 0);
            self.wait(recv, false);
            if let (Graph::InOrder, Some(send)) = (self.graph, issued) {
                self.builder.irequires(recv, send);
            }
            now.push(recv);
            self.got = Some(recv);
            self.raw = true;
            if reduce > 0 {
                let calc = self.builder.calc(reduce, 0);
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
