//! Why a run deadlocked: a receive without a message, a message without a receive, or a cycle of
//! waits.

use std::cell::OnceCell;

use super::{
    ANY,
    error::{EventError, Reason, Unmet, Wait},
    matching::accepts,
    pairs::Sends,
    schedule::{Kind, NOBODY, Op, Schedule},
    wants::End,
};

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not all of its dependencies are satisfied.
    Waiting,
    /// A receive without a message, or a message without a receive.
    Halfway,
    Done,
}

/// The reason, given the progress of each operation; None if all are done. `blocks` states whether
/// operations that require an unreceived send have to wait for it.
pub(crate) fn explain(
    schedule: &Schedule,
    progress: impl Fn(u32) -> Progress,
    blocks: impl Fn(u32) -> bool,
) -> Option<EventError> {
    let all = 0..schedule.operations() as u32;
    let mut at = all.clone().find(|&op| progress(op) != Progress::Done)?;
    let requires = requires(schedule, &progress, blocks);
    let deadlock = Deadlock { schedule, progress, sends: OnceCell::new() };
    let mut seen_at = vec![NOBODY; schedule.operations()];
    let mut path: Vec<(u32, Reason)> = Vec::new();
    loop {
        if seen_at[at as usize] != NOBODY {
            let circle = &path[seen_at[at as usize] as usize..];
            let wait = |&(op, reason): &(u32, Reason)| Wait { place: schedule.place(op), reason };
            return Some(EventError::Deadlock(circle.iter().map(wait).collect()));
        }
        seen_at[at as usize] = path.len() as u32;
        let (next, reason) = match ((deadlock.progress)(at), schedule.kind(at)) {
            (Progress::Waiting, _) => requires[at as usize],
            (_, Kind::Send) => (deadlock.counterpart(at), Reason::Receive),
            (_, Kind::Choice) => (deadlock.request(at), Reason::Request),
            (_, _) => (deadlock.counterpart(at), Reason::Message),
        };
        path.push((at, reason));
        if next == NOBODY {
            return Some(deadlock.unmet(at));
        }
        at = next;
    }
}

/// The operation of its own rank that each operation waits for, and how.
fn requires(
    schedule: &Schedule,
    progress: impl Fn(u32) -> Progress,
    blocks: impl Fn(u32) -> bool,
) -> Vec<(u32, Reason)> {
    let mut requires = vec![(NOBODY, Reason::Requires); schedule.operations()];
    for op in 0..schedule.operations() as u32 {
        let unfinished = match (progress(op), schedule.kind(op)) {
            (Progress::Done, _) => false,
            (Progress::Halfway, Kind::Send) => blocks(op),
            _ => true,
        };
        if unfinished {
            for &successor in schedule.successors(op) {
                requires[successor as usize] = (op, Reason::Requires);
            }
        }
        if progress(op) == Progress::Waiting {
            for &successor in schedule.start_successors(op) {
                requires[successor as usize] = (op, Reason::RequiresStart);
            }
        }
    }
    requires
}

struct Deadlock<'a, P> {
    schedule: &'a Schedule,
    progress: P,
    sends: OnceCell<Sends>,
}

impl<P: Fn(u32) -> Progress> Deadlock<'_, P> {
    fn op(&self, op: u32) -> &Op {
        &self.schedule.ops[op as usize]
    }

    fn is(&self, op: u32, progress: Progress) -> bool {
        (self.progress)(op) == progress
    }

    /// The sends that match a receive by source.
    fn sends_for(&self, receive: u32) -> &[End] {
        let from = self.op(receive).peer;
        let sends = self.sends.get_or_init(|| Sends::by_target(self.schedule));
        let all = sends.to(self.schedule.rank_of(receive));
        if from == ANY {
            return all;
        }
        let rest = &all[all.partition_point(|end| end.1 < from)..];
        &rest[..rest.partition_point(|end| end.1 == from)]
    }

    fn receives_at(&self, rank: u32) -> impl Iterator<Item = u32> {
        self.schedule.of_rank(rank).filter(|&op| self.op(op).kind == Kind::Recv)
    }

    /// A possible counterpart that has not begun; [`NOBODY`] if there is none.
    fn counterpart(&self, op: u32) -> u32 {
        let this = self.op(op);
        if this.pairing.is_fixed() {
            let partner = self.schedule.partner(op);
            return partner.filter(|&op| self.is(op, Progress::Waiting)).unwrap_or(NOBODY);
        }
        self.fitting(op, Progress::Waiting).unwrap_or(NOBODY)
    }

    /// The first possible counterpart with this progress.
    fn fitting(&self, op: u32, progress: Progress) -> Option<u32> {
        let this = self.op(op);
        match this.kind {
            Kind::Send => {
                let rank = self.schedule.rank_of(op);
                self.receives_at(this.peer).find(|&receive| {
                    self.is(receive, progress) && accepts(self.op(receive), rank, this.tag)
                })
            }
            Kind::Recv => {
                let fits = |&&(tag, source, send): &&End| {
                    self.is(send, progress) && accepts(this, source, tag)
                };
                self.sends_for(op).iter().find(fits).map(|end| end.2)
            }
            Kind::Calc | Kind::Choice | Kind::Note => None,
        }
    }

    /// A request that a choice may take and that is not complete. Names may stand for other requests of the
    /// rank, so the last resort is any of these.
    fn request(&self, op: u32) -> u32 {
        let choices = &self.schedule.choices;
        let (done, left) = choices.names(choices.of(self.op(op).partner));
        let notes = done.iter().chain(left).map(|&name| choices.note(name));
        let of_rank = self.schedule.of_rank(self.schedule.rank_of(op));
        let others = of_rank.filter(|&op| self.op(op).kind == Kind::Note);
        notes.chain(others).find(|&note| self.is(note, Progress::Waiting)).unwrap_or(NOBODY)
    }

    /// An unmatched operation at the right rank: its tag, or its target, may be the error.
    fn left_over(&self, op: u32) -> Option<u32> {
        let this = self.op(op);
        let left = |&op: &u32| self.is(op, Progress::Halfway);
        match this.kind {
            Kind::Send => {
                let rank = self.schedule.rank_of(op);
                let left = self.receives_at(this.peer).filter(left);
                left.min_by_key(|&receive| self.op(receive).peer != rank)
            }
            Kind::Recv => {
                let sends = self.sends.get_or_init(|| Sends::by_target(self.schedule));
                let rank = self.schedule.rank_of(op);
                let left = sends.to(rank).iter().filter(|end| left(&end.2));
                left.min_by_key(|end| end.1 != this.peer).map(|end| end.2)
            }
            Kind::Calc | Kind::Choice | Kind::Note => None,
        }
    }

    /// No remaining operation is the counterpart of this one.
    fn unmet(&self, op: u32) -> EventError {
        let kind = self.schedule.kind(op);
        let alike = |&other: &u32| {
            self.schedule.kind(other) == kind && self.is(other, Progress::Halfway) && other != op
        };
        let place = |op: u32| self.schedule.place(op);
        let unmet = Box::new(Unmet {
            place: place(op),
            more: (0..self.schedule.operations() as u32).filter(alike).count() as u64,
            taken: self.fitting(op, Progress::Done).map(place),
            left_over: self.left_over(op).map(place),
        });
        match kind {
            Kind::Send => EventError::NoReceive(unmet),
            _ => EventError::NoMessage(unmet),
        }
    }
}
