//! Why a run stopped before its end: a receive without message, a message without receive, or a
//! circle of waits.

use super::{
    error::{EventError, Reason, Wait},
    matching::accepts,
    schedule::{ANY, Kind, NOBODY, Op, Schedule},
};

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its dependencies are not all fulfilled.
    Waiting,
    /// A receive without message, or a message without receive.
    Halfway,
    Done,
}

/// The reason, given how far each operation has come; None when all is done. `blocks` says whether
/// those that require a send which has not been received have to wait for that.
pub(crate) fn explain(
    schedule: &Schedule,
    progress: impl Fn(u32) -> Progress,
    blocks: impl Fn(u32) -> bool,
) -> Option<EventError> {
    let all = 0..schedule.operations() as u32;
    let start = all.clone().find(|&op| progress(op) != Progress::Done)?;
    // What each operation waits for among its own rank's.
    let mut requires = vec![NOBODY; schedule.operations()];
    for op in all.clone() {
        let unfinished = match (progress(op), schedule.kind(op)) {
            (Progress::Done, _) => false,
            (Progress::Halfway, Kind::Send) => blocks(op),
            _ => true,
        };
        if unfinished {
            for &successor in schedule.successors(op) {
                requires[successor as usize] = op;
            }
        }
        if progress(op) == Progress::Waiting {
            for &successor in schedule.start_successors(op) {
                requires[successor as usize] = op;
            }
        }
    }
    let counterpart = |op: u32| {
        let (rank, this) = (schedule.rank_of(op), &schedule.ops[op as usize]);
        if this.pairing.is_fixed() {
            return schedule.partner(op).filter(|&other| progress(other) == Progress::Waiting);
        }
        match this.kind {
            Kind::Send => schedule.of_rank(this.peer).find(|&receive| {
                progress(receive) == Progress::Waiting
                    && could_meet(&schedule.ops[receive as usize], this, rank)
            }),
            Kind::Recv if this.peer != ANY => schedule.of_rank(this.peer).find(|&send| {
                let other = &schedule.ops[send as usize];
                progress(send) == Progress::Waiting
                    && other.peer == rank
                    && could_meet(this, other, this.peer)
            }),
            Kind::Recv => all.clone().find(|&send| {
                let other = &schedule.ops[send as usize];
                progress(send) == Progress::Waiting
                    && other.peer == rank
                    && could_meet(this, other, schedule.rank_of(send))
            }),
            Kind::Calc => None,
        }
    };
    let mut seen_at = vec![NOBODY; schedule.operations()];
    let mut path: Vec<(u32, Reason)> = Vec::new();
    let mut at = start;
    loop {
        if seen_at[at as usize] != NOBODY {
            let circle = &path[seen_at[at as usize] as usize..];
            let wait = |&(op, reason): &(u32, Reason)| Wait { place: schedule.place(op), reason };
            return Some(EventError::Deadlock(circle.iter().map(wait).collect()));
        }
        seen_at[at as usize] = path.len() as u32;
        let (next, reason) = match (progress(at), schedule.kind(at)) {
            (Progress::Waiting, _) => (Some(requires[at as usize]), Reason::Requires),
            (_, Kind::Send) => (counterpart(at), Reason::Receive),
            (_, _) => (counterpart(at), Reason::Message),
        };
        path.push((at, reason));
        match next {
            Some(next) if next != NOBODY => at = next,
            _ => {
                let kind = schedule.kind(at);
                let alike = |&op: &u32| {
                    schedule.kind(op) == kind && progress(op) == Progress::Halfway && op != at
                };
                let (place, more) =
                    (Box::new(schedule.place(at)), all.filter(alike).count() as u64);
                return Some(match kind {
                    Kind::Send => EventError::NoReceive { place, more },
                    _ => EventError::NoMessage { place, more },
                });
            }
        }
    }
}

fn could_meet(receive: &Op, send: &Op, source: u32) -> bool {
    receive.kind == Kind::Recv && send.kind == Kind::Send && accepts(receive, source, send.tag)
}
