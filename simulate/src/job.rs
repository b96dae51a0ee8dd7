//! The job to simulate: a collective, or a loop of several with compute in between, on a given
//! network.

use std::ops::ControlFlow;

use thiserror::Error;

use crate::{
    collectives::{Collective, CollectiveError, Op, Shape, Span},
    cycle,
    event::Rendezvous,
    loggops::{Local, MessageCost, Params, ParamsError},
    time::Time,
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JobError {
    #[error(transparent)]
    Params(#[from] ParamsError),
    #[error("{what} of {} is out of range (0 to 100 hours)", Time(*ps))]
    OutOfRange { what: &'static str, ps: i64 },
    #[error("a job needs at least 1 iteration")]
    NoIterations,
    #[error("a job cannot mix collectives over {0} and {1} ranks")]
    DifferentRanks(u64, u64),
    #[error("a job needs at least one collective")]
    NoCollectives,
    #[error(
        "a nonblocking collective requires messages that do not wait for their receivers: use a network with \
         a larger S, or smaller messages"
    )]
    NonblockingRendezvous,
    #[error("{0} ranks are not a power of two, as redundant-butterfly requires")]
    NotAPowerOfTwo(u64),
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

const MAX_TIME: i64 = 100 * 3_600_000_000_000_000;

/// A nonblocking collective: it is started, the compute that otherwise precedes it follows, and then the
/// rank waits for it. When does it progress meanwhile?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Only inside calls: what was started goes on, but further rounds begin in the wait.
    InCalls,
    /// Always, on a CPU or NIC of its own: compute takes no time of the collective.
    Always,
}

impl Progress {
    pub const ALL: [Progress; 2] = [Progress::InCalls, Progress::Always];

    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Progress::InCalls => "calls",
            Progress::Always => "always",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Job {
    /// One iteration.
    body: Vec<Collective>,
    params: Params,
    reduce_fs_per_byte: i64,
    compute: i64,
    iterations: u64,
    rendezvous: Rendezvous,
    after_barrier: bool,
    local: Option<Local>,
    nonblocking: Option<Progress>,
    /// The body is one allreduce, whose exchanges are redundant.
    redundant: bool,
}

/// A span with its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priced {
    pub span: Span,
    pub cost: MessageCost,
    /// Between ranks of one node, if that is another network.
    local: Option<(Local, MessageCost)>,
    /// CPU time the receiver takes to combine, ps.
    pub reduce: i64,
}

impl Priced {
    /// The cost of a message between these ranks, and whether they are on one node with a network of its
    /// own.
    #[inline]
    pub fn between(&self, src: u64, dst: u64) -> (&MessageCost, bool) {
        match &self.local {
            Some((local, cost)) if local.is_between(src, dst) => (cost, true),
            _ => (&self.cost, false),
        }
    }

    /// Whether some of its messages wait for their receivers.
    pub fn may_wait(&self) -> bool {
        self.cost.rendezvous || self.local.is_some_and(|(_, cost)| cost.rendezvous)
    }
}

impl Job {
    /// One collective.
    pub fn new(collective: Collective, params: Params) -> Result<Job, JobError> {
        Job::of(vec![collective], params)
    }

    /// Several collectives, one after the other.
    pub fn of(body: Vec<Collective>, params: Params) -> Result<Job, JobError> {
        params.check()?;
        let ranks = body.first().ok_or(JobError::NoCollectives)?.ranks();
        if let Some(other) = body.iter().find(|collective| collective.ranks() != ranks) {
            return Err(JobError::DifferentRanks(ranks, other.ranks()));
        }
        let job = Job {
            body,
            params,
            reduce_fs_per_byte: 0,
            compute: 0,
            iterations: 1,
            rendezvous: Rendezvous::default(),
            after_barrier: false,
            local: None,
            nonblocking: None,
            redundant: false,
        };
        job.check_sizes()?;
        Ok(job)
    }

    /// One allreduce by the butterfly with redundant exchanges, which has an engine of its own
    /// ([`cycle`]). The body has the messages of the butterfly without them.
    pub fn redundant_butterfly(ranks: u64, bytes: u64, params: Params) -> Result<Job, JobError> {
        if ranks < 2 || !ranks.is_power_of_two() {
            return Err(JobError::NotAPowerOfTwo(ranks));
        }
        let shape = Shape { op: Op::Allreduce, ranks, bytes, arity: 2, segment: None };
        let butterfly = Collective::new(Some("recursive-doubling"), shape)?;
        Ok(Job { redundant: true, ..Job::new(butterfly, params)? })
    }

    pub fn is_redundant(&self) -> bool {
        self.redundant
    }

    /// The algorithm of each collective.
    pub fn algorithms(&self) -> impl Iterator<Item = &'static str> {
        self.body.iter().map(|collective| match self.redundant {
            true => cycle::NAME,
            false => collective.algorithm(),
        })
    }

    /// CPU time to combine a byte, fs.
    pub fn with_reduction(self, fs_per_byte: i64) -> Result<Job, JobError> {
        if !(0..=MAX_TIME).contains(&fs_per_byte) {
            return Err(JobError::OutOfRange {
                what: "a reduction per byte",
                ps: fs_per_byte / 1_000,
            });
        }
        let job = Job { reduce_fs_per_byte: fs_per_byte, ..self };
        job.check_sizes()?;
        Ok(job)
    }

    /// CPU time to combine a byte, fs.
    pub fn reduction(&self) -> i64 {
        self.reduce_fs_per_byte
    }

    /// How messages of more than S bytes wait for their receiver.
    #[must_use]
    pub fn with_rendezvous(self, rendezvous: Rendezvous) -> Job {
        Job { rendezvous, ..self }
    }

    /// Repeats the job, with this much compute before each collective; ranks proceed as soon as they
    /// can, so the pattern in which they leave one collective is the pattern in which they enter the
    /// next.
    pub fn repeated(self, iterations: u64, compute: i64) -> Result<Job, JobError> {
        if !(0..=MAX_TIME).contains(&compute) {
            return Err(JobError::OutOfRange { what: "compute", ps: compute });
        }
        if iterations == 0 {
            return Err(JobError::NoIterations);
        }
        let job = Job { iterations, compute, ..self };
        job.check_sizes()?;
        Ok(job)
    }

    /// Ranks of one node use another network.
    pub fn with_local(self, local: Option<Local>) -> Result<Job, JobError> {
        if let Some(local) = &local {
            local.params.check()?;
        }
        let local =
            local.map(|local| Local { ranks_per_node: local.ranks_per_node.max(1), ..local });
        let job = Job { local, ..self };
        job.check_sizes()?;
        Ok(job)
    }

    /// Compute overlaps the collectives, if there is any.
    pub fn nonblocking(self, progress: Option<Progress>) -> Result<Job, JobError> {
        let job = Job { nonblocking: progress, ..self };
        job.check_sizes()?;
        Ok(job)
    }

    /// How the collectives progress during compute, if there is any and they do.
    pub fn overlap(&self) -> Option<Progress> {
        self.nonblocking.filter(|_| self.compute > 0)
    }

    pub fn local(&self) -> Option<Local> {
        self.local
    }

    /// Ranks start as a barrier leaves them, and the time of each counts from its own start, as in
    /// measurements.
    #[must_use]
    pub fn after_barrier(self, after_barrier: bool) -> Job {
        Job { after_barrier, ..self }
    }

    /// The barrier before the job: a dissemination of empty messages.
    pub fn barrier(&self) -> Option<Job> {
        let shape =
            Shape { op: Op::Barrier, ranks: self.ranks(), bytes: 0, arity: 2, segment: None };
        let barrier = || {
            let collective = Collective::new(None, shape).ok()?;
            Job::new(collective, self.params).ok()?.with_local(self.local).ok()
        };
        if self.after_barrier { barrier() } else { None }
    }

    fn check_sizes(&self) -> Result<(), JobError> {
        let mut wrong = Ok(());
        for collective in &self.body {
            let _ = collective.rounds(&mut |round| {
                wrong = round.iter().try_for_each(|span| {
                    let priced = self.price(*span)?;
                    match self.overlap() {
                        Some(_) if priced.may_wait() => Err(JobError::NonblockingRendezvous),
                        _ => Ok(()),
                    }
                });
                if wrong.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            wrong.clone()?;
        }
        Ok(())
    }

    fn price(&self, span: Span) -> Result<Priced, JobError> {
        let cost = self.params.message(span.bytes)?;
        let fs = i128::from(span.reduce) * i128::from(self.reduce_fs_per_byte);
        let reduce = i64::try_from((fs + 500) / 1_000).unwrap_or(i64::MAX);
        if reduce > MAX_TIME {
            return Err(JobError::OutOfRange { what: "a reduction", ps: reduce });
        }
        let local = match self.local {
            Some(local) => Some((local, local.params.message(span.bytes)?)),
            None => None,
        };
        Ok(Priced { span, cost, local, reduce })
    }

    /// The rounds of one iteration with their costs, each with the compute before it. Sizes have been
    /// checked, so this cannot fail.
    pub fn rounds(
        &self,
        visit: &mut dyn FnMut(i64, &[Priced]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut priced = Vec::new();
        for collective in &self.body {
            let mut compute = self.compute;
            collective.rounds(&mut |round| {
                priced.clear();
                priced.extend(round.iter().filter_map(|span| self.price(*span).ok()));
                visit(std::mem::take(&mut compute), &priced)
            })?;
        }
        ControlFlow::Continue(())
    }

    /// The total compute of a job with a single rank.
    pub fn lonely_compute(&self) -> i64 {
        let times = self.iterations.saturating_mul(self.body.len() as u64);
        i64::try_from(i128::from(self.compute) * i128::from(times)).unwrap_or(i64::MAX)
    }

    pub fn ranks(&self) -> u64 {
        self.body[0].ranks()
    }

    /// One iteration.
    pub fn body(&self) -> &[Collective] {
        &self.body
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    pub fn rendezvous(&self) -> Rendezvous {
        self.rendezvous
    }

    /// Whether any message needs a handshake with its receiver.
    pub fn has_handshakes(&self) -> bool {
        let any = || {
            self.rounds(&mut |_, round| match round.iter().any(Priced::may_wait) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
            .is_break()
        };
        self.rendezvous == Rendezvous::Handshake && any()
    }

    pub fn compute(&self) -> i64 {
        self.compute
    }

    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// Messages of all iterations.
    pub fn messages(&self) -> u64 {
        let once: u64 = self.body.iter().map(Collective::messages).sum();
        once.saturating_mul(self.iterations)
    }
}
