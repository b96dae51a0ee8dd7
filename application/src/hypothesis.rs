//! What if: changes to a program before it is simulated.
//!
//! A hypothesis changes what the ranks do, never how long they wait: that follows. What is removed on one
//! side of a message or of a collective is removed on the other sides.

use std::collections::HashMap;

use mpi_abi::Call as MpiCall;
use program::{Kind, meanings, operation_name};
use simulate::collectives::Op;
use thiserror::Error;

use crate::step::{Application, NONE, Spent, Step, Tape};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HypothesisError {
    #[error("the program has no region '{name}' (it has {known})")]
    NoRegion { name: String, known: String },
    #[error("the program does not call {name}")]
    NotCalled { name: String },
    #[error(
        "{name} transfers nothing, but completes requests: drop the calls that start its requests"
    )]
    OnlyCompletes { name: String },
    #[error(
        "{name} transfers nothing: it waits for the message of the receive that follows, and goes with it (drop \
         that)"
    )]
    OnlyProbes { name: String },
    #[error("{name} only makes requests: MPI_Start starts them (drop MPI_Start)")]
    OnlyMakes { name: String },
    #[error("MPI_Startall starts requests as MPI_Start does, and goes with it (drop MPI_Start)")]
    StartsSeveral,
    #[error(
        "{name} takes part in no message and no collective that is simulated: its time counts as computation (use \
         scale after the call before it)"
    )]
    OnlyComputes { name: String },
    #[error(
        "{name} is a call, not a region: how long it takes follows from what the others do and from the network \
         (expected {instead}, or after {name} for the computation that follows it)"
    )]
    IsCall { name: String, instead: String },
    #[error("the program has no message with tag {tag}")]
    NoTag { tag: i32 },
}

impl HypothesisError {
    /// A call in place of a region.
    fn is_call(call: MpiCall) -> HypothesisError {
        let name = call.name().to_owned();
        let instead = match meanings().get(usize::from(call.number())).map(|meaning| meaning.kind) {
            Some(Kind::Collective(_) | Kind::CollectiveRequest(_) | Kind::CollectiveInit(_)) => {
                let operation = operation_name(call).replace('_', "-");
                match Op::regular().any(|op| op.name() == operation) {
                    true => format!("drop {name}, map {operation}=ALGORITHM, net-scale 10"),
                    false => format!("drop {name}, net-scale 10"),
                }
            }
            Some(Kind::WindowCollective) => format!("drop {name}, net-scale 10"),
            _ if moves(call) => format!("drop {name}, resize tag TAG 0.5, net-scale 10"),
            _ => "a region around it, net-scale 10".to_owned(),
        };
        HypothesisError::IsCall { name, instead }
    }

    /// Why a call that no rank has as a step cannot be dropped.
    fn not_dropped(call: MpiCall) -> HypothesisError {
        let name = call.name().to_owned();
        let kind = meanings().get(usize::from(call.number())).map(|meaning| meaning.kind);
        match (call, kind) {
            (MpiCall::Startall, _) => HypothesisError::StartsSeveral,
            (MpiCall::Iprobe | MpiCall::Improbe, _) | (_, Some(Kind::Probe)) => {
                HypothesisError::OnlyProbes { name }
            }
            // Their requests keep the name of the call that made them.
            (MpiCall::Start | MpiCall::Ssend_init | MpiCall::Bsend_init, _) => {
                HypothesisError::NotCalled { name }
            }
            (_, Some(Kind::Requests)) => HypothesisError::OnlyCompletes { name },
            (_, Some(Kind::SendInit | Kind::ReceiveInit)) => HypothesisError::OnlyMakes { name },
            (_, None | Some(Kind::Other | Kind::Finalize)) => {
                HypothesisError::OnlyComputes { name }
            }
            _ => HypothesisError::NotCalled { name },
        }
    }
}

/// Whether a call sends or receives.
fn moves(call: MpiCall) -> bool {
    let kind = meanings().get(usize::from(call.number())).map(|meaning| meaning.kind);
    matches!(
        kind,
        Some(
            Kind::Send
                | Kind::Receive
                | Kind::Exchange
                | Kind::SendRequest
                | Kind::ReceiveRequest
                | Kind::ExchangeRequest
        )
    )
}

/// How many ranks a balanced part of a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Ranks that compute there: they share its time.
    pub with: u32,
    /// All ranks.
    pub of: u32,
}

/// A part of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A region by name.
    Region(String),
    /// Compute that follows this call.
    After(MpiCall),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Hypothesis {
    /// Compute takes this many times as long.
    Scale(Place, f64),
    /// Compute is spread evenly over the ranks, each time.
    Balance(Place),
    /// A region and everything in it is gone.
    DropRegion(String),
    /// All calls of this kind are gone.
    DropCall(MpiCall),
    /// All messages with this tag are gone.
    DropTag(i32),
    /// Messages with this tag have this many times their bytes.
    Resize(i32, f64),
    /// Blocking receives of a region are posted when it begins.
    Nonblocking(String),
}

impl Application {
    /// The program with this change.
    pub fn under(&self, hypothesis: &Hypothesis) -> Result<Application, HypothesisError> {
        let mut changed = self.clone();
        match hypothesis {
            Hypothesis::Scale(place, factor) => {
                let place = self.place(place)?;
                for tape in &mut changed.tapes {
                    place.each(tape, |ps, _| *ps = scaled(*ps, *factor));
                }
            }
            Hypothesis::Balance(place) => changed.balance(&self.place(place)?),
            Hypothesis::DropRegion(name) => {
                let region = self.region(name)?;
                changed.drop_steps(|tape| in_region(tape, region));
            }
            Hypothesis::DropCall(call) => {
                let number = call.number();
                self.moves(*call)?;
                changed.drop_steps(|tape| {
                    let of_call = |step: &Step| match step {
                        Step::Send { mpi, .. } | Step::Receive { mpi, .. } => *mpi == number,
                        Step::Collective { call, .. } => {
                            tape.calls.get(*call as usize).is_some_and(|call| call.mpi == number)
                        }
                        _ => false,
                    };
                    tape.steps.iter().map(of_call).collect()
                });
            }
            Hypothesis::DropTag(tag) => {
                self.tag(*tag)?;
                let tags = &self.tags;
                let is_it = |channel: u32| tags.get(&channel) == Some(tag);
                changed.drop_steps(|tape| {
                    let took = |at: usize| {
                        let found = tape.took.binary_search_by_key(&(at as u32), |took| took.0);
                        found
                            .ok()
                            .and_then(|place| tape.took.get(place))
                            .map_or(NONE, |took| took.2)
                    };
                    let of_tag = |(at, step): (usize, &Step)| match step {
                        Step::Send { channel, .. } => is_it(*channel),
                        Step::Receive { channel: NONE, .. } => is_it(took(at)),
                        Step::Receive { channel, .. } => is_it(*channel),
                        _ => false,
                    };
                    tape.steps.iter().enumerate().map(of_tag).collect()
                });
            }
            Hypothesis::Resize(tag, factor) => {
                self.tag(*tag)?;
                for step in changed.tapes.iter_mut().flat_map(|tape| &mut tape.steps) {
                    if let Step::Send { channel, bytes, .. } | Step::Receive { channel, bytes, .. } =
                        step
                        && self.tags.get(channel) == Some(tag)
                    {
                        *bytes = (*bytes as f64 * factor).round() as u64;
                    }
                }
                changed.make_room(*tag);
            }
            Hypothesis::Nonblocking(name) => {
                let region = self.region(name)?;
                changed.tapes.iter_mut().for_each(|tape| post_early(tape, region));
            }
        }
        Ok(changed)
    }

    /// The ranks that a balanced part is spread over; None if the place does not exist.
    pub fn shares(&self, place: &Place) -> Option<Shares> {
        let place = self.place(place).ok()?;
        let mut with = 0;
        for tape in &self.tapes {
            with += u32::from(place.computes(tape));
        }
        Some(Shares { with, of: self.ranks() })
    }

    fn region(&self, name: &str) -> Result<u32, HypothesisError> {
        if let Some(region) = self.regions.iter().position(|known| known == name) {
            return Ok(region as u32);
        }
        if let Some(call) = MpiCall::ALL.iter().find(|call| call.name() == name) {
            return Err(HypothesisError::is_call(*call));
        }
        Err(HypothesisError::NoRegion {
            name: name.to_owned(),
            known: match self.regions.is_empty() {
                true => {
                    "none: mark them with MPI_Pcontrol(1, \"name\") and MPI_Pcontrol(-1, \"name\")"
                        .into()
                }
                false => self.regions.join(", "),
            },
        })
    }

    /// Whether ranks compute after this call.
    fn calls(&self, call: MpiCall) -> Result<(), HypothesisError> {
        let is_it =
            |step: &Step| matches!(step, Step::Compute { after, .. } if *after == call.number());
        match self.tapes.iter().any(|tape| tape.steps.iter().any(is_it)) {
            true => Ok(()),
            false => Err(HypothesisError::NotCalled { name: call.name().to_owned() }),
        }
    }

    /// Whether this call sends, receives or is a collective, somewhere.
    fn moves(&self, call: MpiCall) -> Result<(), HypothesisError> {
        let number = call.number();
        let is_it = |step: &Step| matches!(step, Step::Send { mpi, .. } | Step::Receive { mpi, .. } if *mpi == number);
        let by_tape = |tape: &Tape| {
            tape.calls.iter().any(|call| call.mpi == number) || tape.steps.iter().any(is_it)
        };
        match self.tapes.iter().any(by_tape) {
            true => Ok(()),
            false => Err(HypothesisError::not_dropped(call)),
        }
    }

    fn tag(&self, tag: i32) -> Result<(), HypothesisError> {
        match self.tags.values().any(|known| *known == tag) {
            true => Ok(()),
            false => Err(HypothesisError::NoTag { tag }),
        }
    }

    fn place(&self, place: &Place) -> Result<Found, HypothesisError> {
        match place {
            Place::Region(name) => Ok(Found::Region(self.region(name)?)),
            Place::After(call) => {
                self.calls(*call)?;
                Ok(Found::After(call.number()))
            }
        }
    }

    /// Receives with any tag have room for the messages with this one that may come.
    fn make_room(&mut self, tag: i32) {
        // By receiver and sender.
        let mut longest: HashMap<(u32, u32), u64> = HashMap::new();
        for (rank, tape) in (0..).zip(&self.tapes) {
            for step in &tape.steps {
                if let Step::Send { to, channel, bytes, .. } = *step
                    && self.tags.get(&channel) == Some(&tag)
                {
                    for from in [rank, NONE] {
                        let longest = longest.entry((to, from)).or_insert(0);
                        *longest = bytes.max(*longest);
                    }
                }
            }
        }
        for (rank, tape) in (0..).zip(&mut self.tapes) {
            for step in &mut tape.steps {
                if let Step::Receive { from, channel: NONE, bytes, .. } = step {
                    let longest = longest.get(&(rank, *from)).copied().unwrap_or(0);
                    *bytes = longest.max(*bytes);
                }
            }
        }
    }

    /// The i-th time, each rank that computes there does so as long as all of them together, divided by their
    /// number.
    fn balance(&mut self, place: &Found) {
        let mut sums: Vec<(i128, i64)> = Vec::new();
        // Compute of each rank and time; None where it does not compute.
        let mut own: Vec<Vec<Option<i64>>> = Vec::new();
        for tape in &mut self.tapes {
            let mut of_rank: Vec<Option<i64>> = Vec::new();
            place.each(tape, |ps, time| {
                if of_rank.len() <= time {
                    of_rank.resize(time + 1, None);
                }
                of_rank[time] = Some(of_rank[time].unwrap_or(0).saturating_add(*ps));
            });
            if sums.len() < of_rank.len() {
                sums.resize(of_rank.len(), (0, 0));
            }
            for ((sum, ranks), ps) in sums.iter_mut().zip(&of_rank) {
                *sum += i128::from(ps.unwrap_or(0));
                *ranks += i64::from(ps.is_some());
            }
            own.push(of_rank);
        }
        for (tape, own) in self.tapes.iter_mut().zip(&own) {
            // What is left of each time's share, so that rounding loses nothing.
            let mut left: Vec<(i64, i64)> = own
                .iter()
                .zip(&sums)
                .map(|(own, (sum, ranks))| {
                    (own.unwrap_or(0), (sum / i128::from((*ranks).max(1))) as i64)
                })
                .collect();
            place.each(tape, |ps, time| {
                let Some((before, after)) = left.get_mut(time) else { return };
                let share = match *before {
                    // Computed for less than a nanosecond: there is nothing to be in proportion to.
                    0 => *after,
                    _ => (i128::from(*ps) * i128::from(*after) / i128::from(*before)) as i64,
                };
                *before -= *ps;
                *after -= share;
                *ps = share;
            });
        }
    }

    /// Removes steps, and their counterparts in other ranks.
    fn drop_steps(&mut self, chosen: impl Fn(&Tape) -> Vec<bool>) {
        let mut dropped: Vec<Vec<bool>> = self.tapes.iter().map(&chosen).collect();
        self.drop_counterparts(&mut dropped);
        for (tape, dropped) in self.tapes.iter_mut().zip(&dropped) {
            remove(tape, dropped);
        }
    }

    fn drop_counterparts(&self, dropped: &mut [Vec<bool>]) {
        // The n-th message of a channel between two ranks is received by the n-th receive; the n-th
        // collective that a member of a group calls is the n-th of every other member.
        let mut messages: HashMap<(u32, u32, u32), [Vec<At>; 2]> = HashMap::new();
        let mut collectives: HashMap<(u32, u64), Vec<At>> = HashMap::new();
        for (rank, tape) in self.tapes.iter().enumerate() {
            let own = rank as u32;
            let mut entered: HashMap<u32, u64> = HashMap::new();
            let mut took = tape.took.iter().peekable();
            for (at, step) in tape.steps.iter().enumerate() {
                match *step {
                    Step::Send { to, channel, .. } => {
                        let [sends, _] = messages.entry((own, to, channel)).or_default();
                        sends.push((rank, at));
                    }
                    Step::Receive { mut from, mut channel, .. } => {
                        if let Some((_, source, label)) = took.next_if(|took| took.0 as usize == at)
                        {
                            (from, channel) = (*source, *label);
                        }
                        let [_, receives] = messages.entry((from, own, channel)).or_default();
                        receives.push((rank, at));
                    }
                    Step::Collective { call, .. } => {
                        let Some(call) = tape.calls.get(call as usize) else { continue };
                        let number = entered.entry(call.group).or_insert(0);
                        *number += 1;
                        collectives.entry((call.group, *number)).or_default().push((rank, at));
                    }
                    _ => {}
                }
            }
        }
        for [sends, receives] in messages.values() {
            for (send, receive) in sends.iter().zip(receives) {
                let either = dropped[send.0][send.1] || dropped[receive.0][receive.1];
                dropped[send.0][send.1] = either;
                dropped[receive.0][receive.1] = either;
            }
        }
        for members in collectives.values() {
            if members.iter().any(|(rank, at)| dropped[*rank][*at]) {
                members.iter().for_each(|(rank, at)| dropped[*rank][*at] = true);
            }
        }
    }
}

/// A step: its rank and its place there.
type At = (usize, usize);

fn scaled(ps: i64, factor: f64) -> i64 {
    if factor == 1.0 { ps } else { (ps as f64 * factor).round() as i64 }
}

/// A part of a program, found.
enum Found {
    Region(u32),
    After(u16),
}

impl Found {
    /// Whether a rank computes there.
    fn computes(&self, tape: &Tape) -> bool {
        match self {
            Found::Region(wanted) => {
                let inside = in_region(tape, *wanted);
                let mut of_region = tape.steps.iter().zip(inside).filter(|(_, inside)| *inside);
                of_region.any(|(step, _)| matches!(step, Step::Compute { .. }))
            }
            Found::After(wanted) => tape
                .steps
                .iter()
                .any(|step| matches!(step, Step::Compute { after, .. } if after == wanted)),
        }
    }

    /// Calls `visit` with each compute of this part, and which time of it that is, from 0.
    fn each(&self, tape: &mut Tape, mut visit: impl FnMut(&mut i64, usize)) {
        let (mut depth, mut times) = (0usize, 0usize);
        for step in &mut tape.steps {
            match (self, step) {
                (Found::Region(wanted), Step::Begin { region }) if region == wanted => {
                    times += usize::from(depth == 0);
                    depth += 1;
                }
                (Found::Region(wanted), Step::End { region }) if region == wanted => {
                    depth = depth.saturating_sub(1);
                }
                (Found::Region(_), Step::Compute { ps, .. }) if depth > 0 => visit(ps, times - 1),
                (Found::After(wanted), Step::Compute { ps, after, .. }) if after == wanted => {
                    visit(ps, times);
                    times += 1;
                }
                _ => {}
            }
        }
    }
}

/// Which steps are in a region.
fn in_region(tape: &Tape, wanted: u32) -> Vec<bool> {
    let mut depth = 0usize;
    let inside = |step: &Step| match step {
        Step::Begin { region } if *region == wanted => {
            depth += 1;
            true
        }
        Step::End { region } if *region == wanted => {
            depth = depth.saturating_sub(1);
            true
        }
        _ => depth > 0,
    };
    tape.steps.iter().map(inside).collect()
}

/// Removes steps of a rank. The time of a call goes with it. A wait goes with what it waits for, wherever that was
/// started, and stays otherwise: a wait in a dropped region for a message that is still there is not dropped.
fn remove(tape: &mut Tape, dropped: &[bool]) {
    let mut gone = vec![false; tape.requests as usize];
    let mut steps = Vec::with_capacity(tape.steps.len());
    let mut moved = Vec::with_capacity(tape.took.len());
    let mut took = tape.took.iter().peekable();
    let mut dropped_before = false;
    for (at, step) in tape.steps.iter().enumerate() {
        let mut drop = dropped.get(at).copied().unwrap_or(false);
        match *step {
            Step::Send { request, .. }
            | Step::Receive { request, .. }
            | Step::Collective { request, .. } => {
                if let Some(gone) = gone.get_mut(request as usize) {
                    *gone = drop;
                }
            }
            // Which requests it still has is seen when it is expanded.
            Step::Choose { first, count, .. } => {
                drop &= !tape.candidates(first, count).iter().any(|candidate| candidate.done);
            }
            Step::Wait { request } => drop = gone.get(request as usize).copied().unwrap_or(drop),
            Step::Spent { on: Spent::Posting | Spent::Starting | Spent::Sending, .. } => {
                drop |= dropped_before;
            }
            Step::Spent { bytes, on: Spent::Testing, .. } => {
                let request = usize::try_from(bytes).unwrap_or(usize::MAX);
                drop |= gone.get(request).copied().unwrap_or(false);
            }
            _ => {}
        }
        dropped_before = drop;
        if let Some((_, from, channel)) = took.next_if(|took| took.0 as usize == at)
            && !drop
        {
            moved.push((steps.len() as u32, *from, *channel));
        }
        if !drop {
            steps.push(*step);
        }
    }
    (tape.steps, tape.took) = (steps, moved);
}

/// Posts the blocking receives of a region when it begins.
fn post_early(tape: &mut Tape, wanted: u32) {
    let steps = std::mem::take(&mut tape.steps);
    let mut took: HashMap<usize, (u32, u32)> =
        tape.took.drain(..).map(|(at, from, channel)| (at as usize, (from, channel))).collect();
    let own = tape.requests;
    let mut at = 0;
    while at < steps.len() {
        let begins = matches!(steps[at], Step::Begin { region } if region == wanted);
        let mut note = |tape: &mut Tape, at: usize| {
            if let Some((from, channel)) = took.remove(&at) {
                tape.took.push((tape.steps.len() as u32, from, channel));
            }
        };
        if !begins {
            note(tape, at);
            tape.push(steps[at]);
            at += 1;
            continue;
        }
        let end = region_end(&steps, at, wanted);
        tape.push(steps[at]);
        // A receive may not be posted before an earlier one that could take its message.
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut early: HashMap<usize, u32> = HashMap::new();
        for (place, step) in steps.iter().enumerate().take(end).skip(at + 1) {
            let Step::Receive { from, channel, bytes, request, mpi } = *step else { continue };
            let meets = |other: &(u32, u32)| {
                (other.0 == from || other.0 == NONE || from == NONE)
                    && (other.1 == channel || other.1 == NONE || channel == NONE)
            };
            if request != NONE || held.iter().any(meets) {
                held.push((from, channel));
                continue;
            }
            let request = own + early.len() as u32;
            note(tape, place);
            tape.push(Step::Receive { from, channel, bytes, request, mpi });
            early.insert(place, request);
        }
        tape.requests = tape.requests.max(own + early.len() as u32);
        for (place, step) in steps.iter().enumerate().take(end).skip(at + 1) {
            match early.get(&place) {
                Some(request) => tape.push(Step::Wait { request: *request }),
                None => {
                    note(tape, place);
                    tape.push(*step);
                }
            }
        }
        at = end;
    }
    tape.took.sort_unstable();
}

/// Where the region that begins here ends.
fn region_end(steps: &[Step], begin: usize, wanted: u32) -> usize {
    let mut depth = 0usize;
    for (at, step) in steps.iter().enumerate().skip(begin) {
        match step {
            Step::Begin { region } if *region == wanted => depth += 1,
            Step::End { region } if *region == wanted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    steps.len()
}
