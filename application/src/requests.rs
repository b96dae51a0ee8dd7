//! Requests of a rank between the call that starts them and the one that completes them.

use program::{FastMap, fast_map};

use crate::step::{Call, NONE};

/// What a persistent request does each time it is started.
#[derive(Clone, Debug)]
pub enum Action {
    /// With the call that made it.
    Send(Message, mpi_abi::Call),
    Receive(Message),
    /// On the communicator with this number in the rank.
    Collective(Call, u32),
}

/// A message as it was called for. Tags and ranks are those of MPI.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Number in the rank.
    pub communicator: u32,
    pub peer: i32,
    pub tag: i32,
    pub bytes: u64,
}

/// One operation of a started request: its number in the tape and its step there. Both are [`NONE`] if
/// there is none.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub slot: u32,
    pub step: u32,
}

impl Part {
    pub const NONE: Part = Part { slot: NONE, step: NONE };
}

/// What a started request consists of. A collective is one operation, an exchange two.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub first: Part,
    /// The receive, which is corrected once it is known what it got.
    pub receive: Part,
    /// Number of the receive's communicator in the rank.
    pub communicator: u32,
}

impl Started {
    pub const NOTHING: Started =
        Started { first: Part::NONE, receive: Part::NONE, communicator: 0 };
}

#[derive(Clone, Debug)]
pub struct Request {
    /// What starting it does, if it is persistent.
    pub action: Option<Box<Action>>,
    /// None if it is not active.
    pub started: Option<Started>,
}

/// Requests by their numbers in the trace. These are consecutive, and few are open at once: each has its
/// place in a small table, and only what finds its place taken is looked up by hash.
#[derive(Debug)]
pub struct Open {
    table: Vec<Option<(u64, Request)>>,
    rest: FastMap<u64, Request>,
    count: usize,
}

/// A power of two.
const PLACES: usize = 256;

impl Open {
    fn new() -> Open {
        Open { table: (0..PLACES).map(|_| None).collect(), rest: fast_map(), count: 0 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Request> {
        match &mut self.table[id as usize % PLACES] {
            Some((own, request)) if *own == id => Some(request),
            _ if self.rest.is_empty() => None,
            _ => self.rest.get_mut(&id),
        }
    }

    pub fn insert(&mut self, id: u64, request: Request) {
        self.remove(id);
        self.count += 1;
        let place = &mut self.table[id as usize % PLACES];
        if place.is_none() {
            *place = Some((id, request));
        } else {
            self.rest.insert(id, request);
        }
    }

    pub fn remove(&mut self, id: u64) {
        let place = &mut self.table[id as usize % PLACES];
        let found = if place.as_ref().is_some_and(|(own, _)| *own == id) {
            *place = None;
            true
        } else {
            !self.rest.is_empty() && self.rest.remove(&id).is_some()
        };
        self.count -= usize::from(found);
    }

    pub fn values(&self) -> impl Iterator<Item = &Request> {
        self.table.iter().flatten().map(|(_, request)| request).chain(self.rest.values())
    }
}

/// The requests of a rank by their numbers in the trace, and the small numbers that they have in the tape.
#[derive(Debug)]
pub struct Requests {
    pub open: Open,
    free: Vec<u32>,
    /// Small numbers in use at once.
    pub most: u32,
}

impl Requests {
    pub fn new() -> Requests {
        Requests { open: Open::new(), free: Vec::new(), most: 0 }
    }

    pub fn slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.most += 1;
            self.most - 1
        })
    }

    pub fn release(&mut self, slot: u32) {
        if slot != NONE {
            self.free.push(slot);
        }
    }
}
