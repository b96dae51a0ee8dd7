//! Which MPI calls an error of a run is about.

use mpi_abi::Call as MpiCall;
use simulate::event::{EventError, Place, ScheduleBuilder};

use crate::{
    expand::{Memory, Plan, Rank},
    step::{Application, NONE, Operation, Step, Tape},
};

/// More calls than this do not help to find the mistake.
const SHOWN: usize = 8;

impl Application {
    /// The calls whose operations an error of a run of [`Application::schedule`] names, one each, in words.
    pub fn calls_of(&self, plan: &Plan<'_>, error: &EventError) -> Vec<String> {
        let mut calls: Vec<String> = Vec::new();
        for place in error.places().into_iter().take(SHOWN) {
            let call = self.call_of(plan, place);
            calls.extend(call.filter(|call| !calls.contains(call)));
        }
        calls
    }

    fn call_of(&self, plan: &Plan<'_>, place: &Place) -> Option<String> {
        let own = self.ranks().max(1);
        let (copy, rank) = (place.rank / own, place.rank % own);
        let tape = self.tapes.get(rank as usize)?;
        // The rank alone, as it is in the schedule.
        let mut builder = ScheduleBuilder::new(own.checked_mul(plan.copies)?).with_mpi_matching();
        (0..=place.rank).for_each(|_| {
            builder.begin_rank();
        });
        let mut memory = Memory::default();
        memory.marks = Some(Vec::new());
        let mut one = Rank {
            application: self,
            plan,
            copy,
            rank,
            builder: &mut builder,
            memory: &mut memory,
        };
        one.expand(tape, 0..tape.steps.len()).ok()?;
        let step = memory.marks?.partition_point(|&next| next <= place.index);
        Some(format!("rank {}: {}", place.rank, self.words(tape, step)?))
    }

    fn words(&self, tape: &Tape, at: usize) -> Option<String> {
        let step = tape.steps.get(at)?;
        let name = |mpi: u16| MpiCall::from_number(mpi).map_or("a call", MpiCall::name);
        // Counted among those of its kind in the rank.
        let numbered = |mpi: u16| {
            let number =
                tape.steps[..=at].iter().filter(|step| tape.mpi(step) == Some(mpi)).count();
            format!("{} number {number}", name(mpi))
        };
        let with = |peer: u32, channel: u32| {
            let peer = if peer == NONE { "any source".to_owned() } else { format!("rank {peer}") };
            match self.tags.get(&channel) {
                Some(tag) => format!("{peer}, tag {tag}"),
                None => format!("{peer}, any tag"),
            }
        };
        Some(match *step {
            Step::Send { to, channel, bytes, mpi, .. } => {
                format!("{} (to {}, {bytes} bytes)", numbered(mpi), with(to, channel))
            }
            Step::Receive { from, channel, bytes, mpi, .. } => {
                format!("{} (from {}, {bytes} bytes)", numbered(mpi), with(from, channel))
            }
            Step::Collective { call, .. } => {
                let call = tape.calls.get(call as usize)?;
                let members = self.groups.get(call.group as usize)?.members.len();
                let bytes = match call.operation {
                    Operation::Regular { bytes, .. } | Operation::Rooted { bytes, .. } => bytes,
                    Operation::Messages { ref to, .. } => to.iter().map(|(_, bytes)| bytes).sum(),
                };
                format!("{} ({members} ranks, {bytes} bytes)", numbered(call.mpi))
            }
            Step::Wait { .. } => "a wait for a request".to_owned(),
            Step::Choose { count, .. } => format!("a wait for some of {count} requests"),
            Step::Compute { after, .. } => format!("computation after {}", name(after)),
            Step::Spent { .. } => "time in a call".to_owned(),
            Step::Begin { .. } | Step::End { .. } => return None,
        })
    }
}

impl Tape {
    /// The number of the call that made a step, if it communicates.
    fn mpi(&self, step: &Step) -> Option<u16> {
        match *step {
            Step::Send { mpi, .. } | Step::Receive { mpi, .. } => Some(mpi),
            Step::Collective { call, .. } => Some(self.calls.get(call as usize)?.mpi),
            _ => None,
        }
    }
}
