//! Which step of the program each operation of a schedule comes from: its region and its MPI call.

use std::{collections::HashMap, ops::Range};

use mpi_abi::Call as MpiCall;
use simulate::event::{NOBODY, Schedule};

use crate::{
    error::ScheduleError,
    expand::Plan,
    step::{Application, Step, Tape},
};

/// Where in the program an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The region that it begins in: a position in [`Origins::regions`].
    pub region: u32,
    /// The region in which the rank waits for it to be complete, if it does.
    pub completed_in: u32,
    pub step: StepKind,
}

/// What kind of step an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// Computation, and the call before it, if there is one.
    Compute(Option<MpiCall>),
    /// This call.
    Call(MpiCall),
    /// Tests and waits, which belong to no one message.
    Other,
}

impl Origin {
    /// Outside of all regions, and of no step.
    pub const NOWHERE: Origin = Origin { region: 0, completed_in: 0, step: StepKind::Other };
}

/// The steps that the operations of a schedule come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Names from the outermost region on, with `/` between them. The first is that outside of all regions, without a
    /// name.
    pub regions: Vec<String>,
    /// By step, for each rank of a copy.
    steps: Vec<Vec<Origin>>,
    /// Of each rank: the operation that follows each step.
    marks: Vec<u32>,
    ranks: Vec<Range<usize>>,
}

impl Origins {
    /// Where an operation of a rank comes from.
    pub fn of(&self, rank: u32, op: u32) -> Origin {
        let own = self.steps.len().max(1);
        let found = || {
            let marks = self.marks.get(self.ranks.get(rank as usize)?.clone())?;
            let step = marks.partition_point(|&next| next <= op);
            self.steps.get(rank as usize % own)?.get(step).copied()
        };
        if op == NOBODY { Origin::NOWHERE } else { found().unwrap_or(Origin::NOWHERE) }
    }
}

/// Collects the marks of one rank after the other.
#[derive(Default)]
pub(crate) struct Marks {
    marks: Vec<u32>,
    ranks: Vec<Range<usize>>,
}

impl Marks {
    /// `of_rank` are positions among the operations of the rank, the first of which is `first`.
    pub(crate) fn add(&mut self, first: u32, of_rank: &[u32]) {
        let begin = self.marks.len();
        self.marks.extend(of_rank.iter().map(|next| first + next));
        self.ranks.push(begin..self.marks.len());
    }
}

impl Application {
    /// The program as a schedule, and where its operations come from.
    pub fn schedule_with_origins(
        &self,
        plan: &Plan<'_>,
    ) -> Result<(Schedule, Origins), ScheduleError> {
        let mut marks = Marks::default();
        let schedule = self.expanded(plan, Some(&mut marks))?;
        let mut paths = Paths { regions: vec![String::new()], numbers: HashMap::new() };
        let steps = self.tapes.iter().map(|tape| self.origins(tape, &mut paths)).collect();
        let Marks { marks, ranks } = marks;
        Ok((schedule, Origins { regions: paths.regions, steps, marks, ranks }))
    }

    fn origins(&self, tape: &Tape, paths: &mut Paths) -> Vec<Origin> {
        // Regions that the rank is in, with their paths.
        let mut inside: Vec<(u32, u32)> = Vec::new();
        // The step that each request was started by.
        let mut started: Vec<Option<usize>> = vec![None; tape.requests as usize];
        let mut origins: Vec<Origin> = Vec::with_capacity(tape.steps.len());
        let mut last_call = StepKind::Other;
        for (at, step) in tape.steps.iter().enumerate() {
            let here = |inside: &[(u32, u32)]| inside.last().map_or(0, |(_, path)| *path);
            let region = here(&inside);
            let mut complete = |request: u32, origins: &mut Vec<Origin>| {
                let slot = started.get_mut(request as usize).and_then(Option::take);
                if let Some(origin) = slot.and_then(|start| origins.get_mut(start)) {
                    origin.completed_in = region;
                }
            };
            let kind = match *step {
                Step::Compute { after, .. } => StepKind::Compute(MpiCall::from_number(after)),
                Step::Send { mpi, .. } | Step::Receive { mpi, .. } => called(mpi),
                Step::Collective { call, .. } => {
                    tape.calls.get(call as usize).map_or(StepKind::Other, |call| called(call.mpi))
                }
                // It belongs to the call before it.
                Step::Spent { .. } => last_call,
                Step::Wait { request } => {
                    complete(request, &mut origins);
                    StepKind::Other
                }
                Step::Choose { first, count, .. } => {
                    let done = tape.candidates(first, count).iter().filter(|one| one.done);
                    done.flat_map(|one| one.parts).for_each(|part| complete(part, &mut origins));
                    StepKind::Other
                }
                Step::Begin { region: number } => {
                    let name = self.regions.get(number as usize).map_or("", String::as_str);
                    inside.push((number, paths.inner(region, name)));
                    StepKind::Other
                }
                Step::End { region: number } => {
                    if let Some(place) = inside.iter().rposition(|(found, _)| *found == number) {
                        inside.truncate(place);
                    }
                    StepKind::Other
                }
            };
            if let Step::Send { request, .. }
            | Step::Receive { request, .. }
            | Step::Collective { request, .. } = *step
            {
                last_call = kind;
                if let Some(slot) = started.get_mut(request as usize) {
                    *slot = Some(at);
                }
            }
            origins.push(Origin { region, completed_in: region, step: kind });
        }
        origins
    }
}

fn called(number: u16) -> StepKind {
    MpiCall::from_number(number).map_or(StepKind::Other, StepKind::Call)
}

/// Paths of regions, numbered in the order in which they appear.
struct Paths {
    regions: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Paths {
    fn inner(&mut self, outer: u32, name: &str) -> u32 {
        let path = match self.regions.get(outer as usize).filter(|path| !path.is_empty()) {
            Some(path) => format!("{path}/{name}"),
            None => name.to_owned(),
        };
        let next = self.regions.len() as u32;
        *self.numbers.entry(path).or_insert_with_key(|path| {
            self.regions.push(path.clone());
            next
        })
    }
}
