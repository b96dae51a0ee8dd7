//! Single waits, each with the rank that was waited for, for those who follow waiting back to its causes.

use crate::clock::Clocks;
use crate::matching::{Tie, Wait, WaitSpan};
use crate::profile::Profile;
use crate::timeline::Timeline;
use mpi_abi::Call;
use serde::Serialize;

/// Classes of waiting, as in [`crate::WaitSums`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum WaitClass {
    /// In a receive before the send began.
    #[serde(rename = "late sender")]
    LateSender,
    /// In a send before the receive was posted.
    #[serde(rename = "late receiver")]
    LateReceiver,
    /// In a collective before the last rank that it depends on had entered.
    #[serde(rename = "collective")]
    Collective,
}

impl WaitClass {
    /// As in JSON and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WaitClass::LateSender => Wait::NAMES[0],
            WaitClass::LateReceiver => Wait::NAMES[1],
            WaitClass::Collective => Wait::NAMES[2],
        }
    }
}

/// A rank waited for another, from the beginning of a call until the other arrived. Times are those of the common
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Position of the waiting rank in [`crate::Program::ranks`].
    pub slot: u32,
    /// Position of the late one.
    pub late: u32,
    /// What kind of waiting it was.
    pub class: WaitClass,
    /// The call that waited, as for [`call_name`].
    pub call: u16,
    /// The call that was waited for to complete: the collective or receive, where `call` may be `MPI_Wait`.
    pub operation: u16,
    /// When the waiting began.
    pub begin: i64,
    /// When the late rank arrived; at most the end of the call.
    pub end: i64,
    /// When the call returned.
    pub call_end: i64,
    /// When the late rank left the call with which it arrived. The time of its arrival if that did not complete
    /// anything, as that of `MPI_Isend`.
    pub late_end: i64,
}

impl Waited {
    /// How long it waited.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.end.saturating_sub(self.begin).max(0) as u64
    }
}

/// A run with all its waits.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// The profile; its total of waiting is the sum of `waits`.
    pub profile: Profile,
    /// What ranks did over time, unless there are too many.
    pub timeline: Option<Timeline>,
    /// The clocks that all times are on.
    pub clocks: Clocks,
    /// Begin and end of each rank.
    pub spans: Vec<(i64, i64)>,
    /// In the order of their ends. Of those that end at the same time, the one whose call returned first is first,
    /// since the other may depend on it.
    pub waits: Vec<Waited>,
    /// Messages that were not complete soon after both sides had posted them, in order.
    pub ties: Vec<Tie>,
}

/// Name of a call by its number.
#[must_use]
pub fn call_name(number: u16) -> &'static str {
    Call::ALL.get(usize::from(number)).map_or("MPI", |call| call.name())
}

/// The order does not depend on that in which they were found.
pub(crate) fn waited(spans: Vec<WaitSpan>) -> Vec<Waited> {
    let one = |WaitSpan { slot, wait }: WaitSpan| Waited {
        slot,
        late: wait.late,
        class: match wait.class {
            Wait::LateSender => WaitClass::LateSender,
            Wait::LateReceiver => WaitClass::LateReceiver,
            Wait::Collective => WaitClass::Collective,
        },
        call: wait.call,
        operation: wait.kind,
        begin: wait.begin,
        end: wait.begin.saturating_add_unsigned(wait.ns),
        call_end: wait.end,
        late_end: wait.late_end,
    };
    let mut waits: Vec<Waited> = spans.into_iter().map(one).collect();
    waits.sort_unstable_by_key(|wait| {
        let Waited { slot, late, class, call, operation, begin, end, call_end, late_end } = *wait;
        (end, call_end, begin, slot, late, class, call, operation, late_end)
    });
    waits
}
