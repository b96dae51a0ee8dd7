//! The calls of each traced rank in one form: what it does, how long it computed before it, and which call waits
//! for what it started.

use std::collections::HashMap;

use crate::step::{Application, NONE, Spent, Step, Tape};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Rank(u32),
    Any,
    Null,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// `tag` is None for any tag.
    Message { sends: bool, starts: bool, peer: Peer, tag: Option<i32>, bytes: u64 },
    /// Waits for the call at this place, or for any of it and the others.
    Wait { of: u32, among: Vec<u32> },
    /// Position in [`Tape::calls`].
    Collective { call: u32, starts: bool },
    /// Number in [`Regions`].
    Region { begins: bool, region: u32 },
}

#[derive(Clone, Debug)]
pub struct Event {
    pub what: What,
    /// Number of the call ([`mpi_abi::Call`]); 0 for waits and regions.
    pub mpi: u16,
    /// Compute before it.
    pub compute_ps: i64,
    /// Number of the call before that compute.
    pub after: u16,
    pub spent: Option<(i64, Spent)>,
    /// Where it is waited for; [`NONE`] if nowhere.
    pub ended: u32,
}

impl Event {
    /// A message to or from `MPI_PROC_NULL`, which nothing waits for.
    pub fn is_null(&self) -> bool {
        matches!(self.what, What::Message { peer: Peer::Null, .. })
    }
}

/// A traced rank.
pub struct Track<'a> {
    /// Ranks of the trace.
    pub ranks: u32,
    pub rank: u32,
    pub events: Vec<Event>,
    /// Compute after the last one, and the call before it.
    pub tail: (i64, u16),
    pub application: &'a Application,
    pub tape: &'a Tape,
}

/// The region names that occur in any of the traces.
#[derive(Default)]
pub struct Regions {
    pub names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Regions {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// The ranks of a trace.
pub fn tracks<'a>(application: &'a Application, regions: &mut Regions) -> Vec<Track<'a>> {
    let numbers: Vec<u32> = application.regions.iter().map(|name| regions.number(name)).collect();
    let track = |(rank, tape): (u32, &'a Tape)| {
        let mut builder = Builder {
            events: Vec::new(),
            open: vec![None; tape.requests as usize],
            compute_ps: 0,
            after: mpi_abi::Call::Init.number(),
        };
        builder.tape(application, tape, &numbers);
        let Builder { events, compute_ps, after, .. } = builder;
        let ranks = application.ranks();
        Track { ranks, rank, events, tail: (compute_ps, after), application, tape }
    };
    (0..).zip(&application.tapes).map(track).collect()
}

struct Builder {
    events: Vec<Event>,
    /// Where each open request was started.
    open: Vec<Option<u32>>,
    compute_ps: i64,
    after: u16,
}

impl Builder {
    fn tape(&mut self, application: &Application, tape: &Tape, regions: &[u32]) {
        let mut nulls = tape.nulls.iter().peekable();
        let region = |region: u32| regions.get(region as usize).copied().unwrap_or(0);
        for at in 0..=tape.steps.len() {
            while let Some(null) = nulls.next_if(|null| null.step as usize <= at) {
                let tag = Some(null.tag);
                let (sends, starts) = (null.sends, null.starts);
                let what = What::Message { sends, starts, peer: Peer::Null, tag, bytes: 0 };
                self.push(what, null.mpi, NONE);
            }
            let Some(step) = tape.steps.get(at) else { break };
            match *step {
                Step::Compute { ps, after, .. } => {
                    self.compute_ps = self.compute_ps.saturating_add(ps);
                    self.after = after;
                }
                Step::Send { to, channel, bytes, request, mpi } => {
                    let tag = application.tags.get(&channel).copied();
                    let (peer, starts) = (Peer::Rank(to), request != NONE);
                    self.push(
                        What::Message { sends: true, starts, peer, tag, bytes },
                        mpi,
                        request,
                    );
                }
                Step::Receive { from, channel, bytes, request, mpi } => {
                    let tag = application.tags.get(&channel).copied();
                    let peer = if from == NONE { Peer::Any } else { Peer::Rank(from) };
                    let starts = request != NONE;
                    self.push(
                        What::Message { sends: false, starts, peer, tag, bytes },
                        mpi,
                        request,
                    );
                }
                Step::Collective { call, request } => {
                    let mpi = tape.calls.get(call as usize).map_or(0, |call| call.mpi);
                    self.push(What::Collective { call, starts: request != NONE }, mpi, request);
                }
                Step::Spent { ps, on: Spent::Testing, .. } => {
                    self.compute_ps = self.compute_ps.saturating_add(ps);
                }
                Step::Spent { ps, on, .. } => {
                    if let Some(event) = self.events.last_mut() {
                        event.spent = Some((ps, on));
                    }
                }
                Step::Wait { request } => {
                    let of = self.open.get_mut(request as usize).and_then(Option::take);
                    if let Some(of) = of {
                        self.wait(of, Vec::new());
                    }
                }
                Step::Choose { first, count, ps, .. } => self.choose(tape, first, count, ps),
                Step::Begin { region: number } => {
                    self.push(What::Region { begins: true, region: region(number) }, 0, NONE);
                }
                Step::End { region: number } => {
                    self.push(What::Region { begins: false, region: region(number) }, 0, NONE);
                }
            }
        }
    }

    fn push(&mut self, what: What, mpi: u16, request: u32) {
        let place = self.events.len() as u32;
        let (compute_ps, after) = (std::mem::take(&mut self.compute_ps), self.after);
        self.events.push(Event { what, mpi, compute_ps, after, spent: None, ended: NONE });
        if let Some(open) = self.open.get_mut(request as usize) {
            *open = Some(place);
        }
    }

    fn wait(&mut self, of: u32, among: Vec<u32>) {
        let place = self.events.len() as u32;
        if let Some(event) = self.events.get_mut(of as usize) {
            event.ended = place;
        }
        self.push(What::Wait { of, among }, 0, NONE);
    }

    /// A choice takes whichever requests are complete first, so they are exchangeable: in every rank it takes those
    /// that were started first. Testing without success counts as compute.
    fn choose(&mut self, tape: &Tape, first: u32, count: u32, ps: i64) {
        let mut list: Vec<(u32, u32, bool)> = Vec::new();
        for candidate in tape.candidates(first, count) {
            for slot in candidate.parts {
                if let Some(Some(event)) = self.open.get(slot as usize) {
                    list.push((*event, slot, candidate.done));
                }
            }
        }
        list.sort_unstable();
        let done = list.iter().filter(|(_, _, done)| *done).count();
        if done == 0 {
            self.compute_ps = self.compute_ps.saturating_add(ps);
            return;
        }
        let events: Vec<u32> = list.iter().map(|(event, _, _)| *event).collect();
        // Requests that remain stand for the calls that remain, their own if possible.
        let (taken, left) = events.split_at(done);
        let is_left = |event: &u32| left.contains(event);
        let kept = |(event, _, done): &(u32, u32, bool)| !done && is_left(event);
        let mut free: Vec<u32> = left.to_vec();
        for (event, _, _) in list.iter().filter(|one| kept(one)) {
            free.retain(|other| other != event);
        }
        for one @ (event, slot, done) in &list {
            let now = match (done, kept(one)) {
                (true, _) => None,
                (false, true) => Some(*event),
                (false, false) => free.pop(),
            };
            if let Some(open) = self.open.get_mut(*slot as usize) {
                *open = now;
            }
        }
        for (place, of) in taken.iter().enumerate() {
            self.wait(*of, events[place + 1..].to_vec());
        }
    }
}
