//! Which MPI calls an error of a run is about.

use std::collections::{BTreeMap, BTreeSet};

use mpi_abi::Call as MpiCall;
use simulate::event::{EventError, Place, Reason, ScheduleBuilder, Unmet, Wait};

use crate::{
    expand::{Memory, Plan, Rank},
    step::{Application, NONE, Operation, Step, Tape},
};

/// More calls than this do not help to find the mistake.
const SHOWN: usize = 8;

/// Longer circles of calls that wait for each other are cut.
const LINKS: usize = 12;

/// Which step each operation of a rank comes from, for those that were asked about.
#[derive(Default)]
struct Steps {
    /// The operation that follows each step, by rank.
    marks: BTreeMap<u32, Option<Vec<u32>>>,
}

impl Steps {
    fn of(&mut self, application: &Application, plan: &Plan<'_>, place: &Place) -> Option<usize> {
        let of_rank = || marks(application, plan, place.rank);
        let marks = self.marks.entry(place.rank).or_insert_with(of_rank);
        Some(marks.as_ref()?.partition_point(|&next| next <= place.index))
    }
}

/// Expands a rank alone, as it is in the schedule.
fn marks(application: &Application, plan: &Plan<'_>, rank: u32) -> Option<Vec<u32>> {
    let own = application.ranks().max(1);
    let tape = application.tapes.get((rank % own) as usize)?;
    let mut builder = ScheduleBuilder::new(own.checked_mul(plan.copies)?).with_mpi_matching();
    (0..=rank).for_each(|_| {
        builder.begin_rank();
    });
    let mut memory = Memory::default();
    memory.marks = Some(Vec::new());
    let (copy, in_copy) = (rank / own, rank % own);
    let (builder, memory_of) = (&mut builder, &mut memory);
    Rank { application, plan, copy, rank: in_copy, builder, memory: memory_of }
        .expand(tape, 0..tape.steps.len())
        .ok()?;
    memory.marks
}

impl Application {
    /// The calls whose operations an error of a run of [`Application::schedule`] names, one each, in words.
    pub fn calls_of(&self, plan: &Plan<'_>, error: &EventError) -> Vec<String> {
        let mut calls: Vec<String> = Vec::new();
        let mut steps = Steps::default();
        for place in error.places().into_iter().take(SHOWN) {
            let call = steps.of(self, plan, place).and_then(|step| self.call(place, step));
            calls.extend(call.filter(|call| !calls.contains(call)));
        }
        calls
    }

    /// Why a run of [`Application::schedule`] cannot end, with the calls of the program: what nothing is sent or
    /// received for, or the whole circle of calls that wait for each other. None for other errors.
    pub fn why_stuck(&self, plan: &Plan<'_>, error: &EventError) -> Option<String> {
        let mut steps = Steps::default();
        let call = |place: &Place, steps: &mut Steps| {
            steps.of(self, plan, place).and_then(|step| self.call(place, step))
        };
        let unmet = |unmet: &Unmet, steps: &mut Steps, [counterpart, other, own]: [&str; 3]| {
            let Unmet { place, more, taken, left_over } = unmet;
            let mut text = format!("{} has no matching {counterpart}", call(place, steps)?);
            if let Some(taken) = taken.as_ref().and_then(|taken| call(taken, steps)) {
                text += &format!(": another {other} matched {taken}");
            }
            match more {
                0 => {}
                1 => text += &format!(" (and 1 other {own})"),
                more => text += &format!(" (and {more} other {own}s)"),
            }
            if let Some(left) = left_over.as_ref().and_then(|left| call(left, steps)) {
                text += &format!("; also unmatched: {left}");
            }
            Some(text)
        };
        match error {
            EventError::NoMessage(of) => unmet(of, &mut steps, ["send", "receive", "receive"]),
            EventError::NoReceive(of) => unmet(of, &mut steps, ["receive", "send", "send"]),
            EventError::Deadlock(waits) => self.circle(plan, waits, &mut steps),
            EventError::TooSmall { receive, send } => {
                let (receive, send) = (call(receive, &mut steps)?, call(send, &mut steps)?);
                Some(format!("{receive} is too small for the message of {send}"))
            }
            _ => None,
        }
    }

    /// A circle of waits. What is not communication only comes between two calls of a rank.
    fn circle(&self, plan: &Plan<'_>, waits: &[Wait], steps: &mut Steps) -> Option<String> {
        let mut links: Vec<(String, Reason)> = Vec::new();
        let mut more = false;
        for Wait { place, reason } in waits {
            if links.len() > LINKS {
                more = true;
                break;
            }
            let Some(step) = steps.of(self, plan, place) else { continue };
            let tape = self.tapes.get((place.rank % self.ranks().max(1)) as usize)?;
            let waits_itself = matches!(
                tape.steps.get(step),
                Some(
                    Step::Send { .. }
                        | Step::Receive { .. }
                        | Step::Collective { .. }
                        | Step::Choose { .. }
                )
            );
            if !waits_itself {
                continue;
            }
            let words = self.call(place, step)?;
            match links.last_mut() {
                // Operations of one call.
                Some((last, last_reason)) if *last == words => *last_reason = *reason,
                _ => links.push((words, *reason)),
            }
        }
        // The circle may begin inside a call.
        if !more
            && links.len() > 1
            && links.first().map(|first| &first.0) == links.last().map(|last| &last.0)
        {
            links.pop();
        }
        let more = more || links.len() > LINKS;
        links.truncate(LINKS);
        let mut text = "deadlock: ".to_owned();
        for (place, (words, reason)) in links.iter().enumerate() {
            let reason = match reason {
                Reason::Requires | Reason::RequiresStart => "comes after",
                Reason::Message => "waits for its message from",
                Reason::Receive => "waits until it is received by",
                Reason::Request => "waits for",
            };
            let which = if place > 0 { ", which " } else { " " };
            text += &format!("{words}{which}{reason} ");
        }
        let first = links.first()?;
        if more {
            let ranks: BTreeSet<u32> = waits.iter().map(|wait| wait.place.rank).collect();
            text += &format!("others, and so on: {} ranks wait for each other", ranks.len());
            return Some(text);
        }
        Some(text + &first.0 + " again")
    }

    fn call(&self, place: &Place, step: usize) -> Option<String> {
        let own = self.ranks().max(1);
        let tape = self.tapes.get((place.rank % own) as usize)?;
        let words = self.words(tape, step, place.rank / own * own)?;
        Some(format!("rank {}: {words}", place.rank))
    }

    /// A step in words; `first` is the first rank of its copy.
    fn words(&self, tape: &Tape, at: usize, first: u32) -> Option<String> {
        let step = tape.steps.get(at)?;
        let name = |mpi: u16| MpiCall::from_number(mpi).map_or("a call", MpiCall::name);
        // Counted among those of its kind in the rank.
        let numbered = |mpi: u16| {
            let number =
                tape.steps[..=at].iter().filter(|step| tape.mpi(step) == Some(mpi)).count();
            format!("{} number {number}", name(mpi))
        };
        let with = |peer: u32, channel: u32| {
            let peer = match peer {
                NONE => "any source".to_owned(),
                peer => format!("rank {}", first + peer),
            };
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
                    Operation::Blocks { ref sizes, .. } => sizes.iter().sum(),
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
