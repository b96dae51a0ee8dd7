//! The job to simulate: a collective, or a loop of several with compute in between, on a given
//! network.

use std::ops::ControlFlow;

use thiserror::Error;

use crate::{
    collectives::{Collective, Span},
    event::Rendezvous,
    loggops::{MessageCost, Params, ParamsError},
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JobError {
    #[error(transparent)]
    Params(#[from] ParamsError),
    #[error("{what} of {ps} ps is out of range (0 to 100 hours)")]
    OutOfRange { what: &'static str, ps: i64 },
    #[error("a job needs at least 1 iteration")]
    NoIterations,
    #[error("a job cannot mix collectives over {0} and {1} ranks")]
    DifferentRanks(u64, u64),
    #[error("a job needs at least one collective")]
    NoCollectives,
}

const MAX_TIME: i64 = 100 * 3_600_000_000_000_000;

#[derive(Clone, Debug)]
pub struct Job {
    /// One iteration.
    body: Vec<Collective>,
    params: Params,
    reduce_fs_per_byte: i64,
    compute: i64,
    iterations: u64,
    rendezvous: Rendezvous,
}

/// A span with its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priced {
    pub span: Span,
    pub cost: MessageCost,
    /// CPU time the receiver takes to combine, ps.
    pub reduce: i64,
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
        };
        job.check_sizes()?;
        Ok(job)
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
        Ok(Job { iterations, compute, ..self })
    }

    fn check_sizes(&self) -> Result<(), JobError> {
        let mut wrong = Ok(());
        for collective in &self.body {
            let _ = collective.rounds(&mut |round| {
                wrong = round.iter().try_for_each(|span| self.price(*span).map(|_| ()));
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
        Ok(Priced { span, cost, reduce })
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
            self.rounds(&mut |_, round| match round.iter().any(|priced| priced.cost.rendezvous) {
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
