//! Matches messages and receives whose pairing depends on the times: first come, first served, in the
//! order in which the engine reports arrivals and posts.
//!
//! Queues are linked through one array with an entry for each operation, which is in at most one
//! queue. With wildcards a message may wait in several ([`Wants`](super::wants::Wants)); once it is
//! matched, the other queues skip it when they reach it.

use super::{
    ANY,
    bits::Bits,
    schedule::{NOBODY, Op, Pairing, Schedule},
    wants::Fits,
};

/// First and last of a queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
}

const EMPTY: Queue = Queue { first: NOBODY, last: NOBODY };

/// A channel's queue holds messages or receives, never both.
#[derive(Clone, Copy, Debug)]
struct Channel {
    queue: Queue,
    holds_messages: bool,
}

/// Receives that wait, and messages that have arrived; some of these may have been matched elsewhere
/// since.
#[derive(Clone, Copy, Debug)]
struct Want {
    posted: Queue,
    /// A queue of notes.
    arrived: Queue,
}

/// A message waiting at a want; it may wait at several.
#[derive(Clone, Copy, Debug)]
struct Note {
    send: u32,
    next: u32,
}

/// Upper bound on the memory per operation.
pub(crate) fn bytes_per_operation(schedule: &Schedule) -> usize {
    const NUMBER: usize = size_of::<u32>();
    match (schedule.is_settled(), schedule.wants.is_empty()) {
        (true, _) => 0,
        (false, true) => NUMBER,
        (false, false) => 2 * NUMBER + 4 * size_of::<Note>(),
    }
}

#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    schedule: &'a Schedule,
    channels: Vec<Channel>,
    wants: Vec<Want>,
    notes: Vec<Note>,
    /// Messages sent with any tag, by place.
    any_tag: Vec<Queue>,
    /// Messages that have been matched, and so have left their wants.
    gone: Bits,
    /// Global sequence number of each message and receive.
    order: Vec<u32>,
    came: u32,
    /// The next in the same queue.
    links: Vec<u32>,
}

impl<'a> Matcher<'a> {
    pub fn new(schedule: &'a Schedule) -> Matcher<'a> {
        let if_any = |needed: bool| if needed { schedule.operations() } else { 0 };
        let searches = !schedule.wants.is_empty();
        let channel = Channel { queue: EMPTY, holds_messages: false };
        let mut gone = Bits::default();
        gone.reset(if_any(searches));
        Matcher {
            schedule,
            channels: vec![channel; schedule.channels as usize],
            wants: vec![Want { posted: EMPTY, arrived: EMPTY }; schedule.wants.count()],
            notes: Vec::new(),
            any_tag: vec![EMPTY; schedule.wants.places()],
            gone,
            order: vec![0; if_any(searches)],
            came: 0,
            links: vec![NOBODY; if_any(!schedule.is_settled())],
        }
    }

    /// A message has arrived; returns the receive it matches, if posted.
    pub fn arrive(&mut self, send: u32) -> Option<u32> {
        let op = self.schedule.ops[send as usize];
        match op.pairing {
            Pairing::Fixed | Pairing::Uneven => None,
            Pairing::Channel => self.meet(op.partner, send, true),
            Pairing::Search => {
                let schedule = self.schedule;
                let fits = schedule.wants.of(op.partner);
                let first = match &fits {
                    Fits::Wants(wants) => self.first_posted(wants.iter().copied(), |_| true),
                    Fits::AnyTag { wants, .. } => {
                        let source = schedule.rank_of(send);
                        let from = |receive| accepts(&schedule.ops[receive as usize], source, ANY);
                        self.first_posted(wants.clone(), from)
                    }
                };
                if let Some(want) = first {
                    let posted = &mut self.wants[want as usize].posted;
                    return take(posted, &mut self.links, |_| true);
                }
                self.comes(send);
                match fits {
                    Fits::Wants(wants) => wants.iter().for_each(|&want| self.note(want, send)),
                    Fits::AnyTag { place, .. } => {
                        append(&mut self.any_tag[place as usize], &mut self.links, send);
                    }
                }
                None
            }
        }
    }

    /// A receive has been posted; returns the message it matches, if arrived.
    pub fn post(&mut self, receive: u32) -> Option<u32> {
        let op = self.schedule.ops[receive as usize];
        match op.pairing {
            Pairing::Fixed | Pairing::Uneven => None,
            Pairing::Channel => self.meet(op.partner, receive, false),
            Pairing::Search => {
                let noted = self.first_noted(op.partner);
                let place = self.schedule.wants.place_of(op.partner);
                let before = |send: u32| {
                    noted.is_none_or(|noted| self.order[send as usize] < self.order[noted as usize])
                };
                let fits =
                    |send: u32| before(send) && accepts(&op, self.schedule.rank_of(send), ANY);
                let any_tag = &mut self.any_tag[place as usize];
                if let Some(send) = take(any_tag, &mut self.links, fits) {
                    return Some(send);
                }
                match noted {
                    Some(send) => self.gone.insert(send),
                    None => {
                        self.comes(receive);
                        let posted = &mut self.wants[op.partner as usize].posted;
                        append(posted, &mut self.links, receive);
                    }
                }
                noted
            }
        }
    }

    /// The want whose first receive was posted before those of the others, if any matches.
    fn first_posted(
        &self,
        wants: impl Iterator<Item = u32>,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let first = |want: u32| (self.wants[want as usize].posted.first, want);
        let waiting = wants.map(first).filter(|&(receive, _)| receive != NOBODY && fits(receive));
        waiting.min_by_key(|&(receive, _)| self.order[receive as usize]).map(|(_, want)| want)
    }

    fn comes(&mut self, op: u32) {
        self.order[op as usize] = self.came;
        self.came += 1;
    }

    fn note(&mut self, want: u32, send: u32) {
        let new = self.notes.len() as u32;
        self.notes.push(Note { send, next: NOBODY });
        let arrived = &mut self.wants[want as usize].arrived;
        if arrived.first == NOBODY {
            arrived.first = new;
        } else {
            self.notes[arrived.last as usize].next = new;
        }
        arrived.last = new;
    }

    /// The first message that waits at this want and has not been matched elsewhere.
    fn first_noted(&mut self, want: u32) -> Option<u32> {
        let arrived = &mut self.wants[want as usize].arrived;
        while let Some(note) = self.notes.get(arrived.first as usize) {
            if !self.gone.contains(note.send) {
                return Some(note.send);
            }
            arrived.first = note.next;
        }
        None
    }

    fn meet(&mut self, channel: u32, op: u32, is_message: bool) -> Option<u32> {
        let channel = &mut self.channels[channel as usize];
        if channel.queue.first != NOBODY && channel.holds_messages != is_message {
            return take(&mut channel.queue, &mut self.links, |_| true);
        }
        channel.holds_messages = is_message;
        append(&mut channel.queue, &mut self.links, op);
        None
    }
}

/// Whether a receive matches a message of this source and tag.
pub(crate) fn accepts(receive: &Op, source: u32, tag: u32) -> bool {
    (receive.peer == ANY || receive.peer == source)
        && (receive.tag == ANY || tag == ANY || receive.tag == tag)
}

fn append(queue: &mut Queue, links: &mut [u32], op: u32) {
    links[op as usize] = NOBODY;
    if queue.first == NOBODY {
        queue.first = op;
    } else {
        links[queue.last as usize] = op;
    }
    queue.last = op;
}

/// Removes the first match from the queue.
fn take(queue: &mut Queue, links: &mut [u32], fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut before, mut at) = (NOBODY, queue.first);
    while at != NOBODY {
        let next = links[at as usize];
        if fits(at) {
            if before == NOBODY {
                queue.first = next;
            } else {
                links[before as usize] = next;
            }
            if queue.last == at {
                queue.last = before;
            }
            return Some(at);
        }
        (before, at) = (at, next);
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ScheduleBuilder, WILDCARD, pairs::search_all, schedule::Kind};
    use super::*;

    #[test]
    fn a_wildcard_takes_the_first_message_that_fits() {
        let mut b = ScheduleBuilder::new(3);
        for _ in 0..2 {
            b.begin_rank();
            b.send(1, 2, 5, 0, 0);
            b.send(1, 2, 6, 0, 0);
        }
        b.begin_rank();
        b.recv(1, WILDCARD, 6, 0, 0);
        b.recv(1, 1, WILDCARD, 0, 0);
        b.recv(1, 0, WILDCARD, 0, 0);
        let schedule = b.finish().unwrap();
        let mut matcher = Matcher::new(&schedule);
        assert_eq!(matcher.arrive(2), None);
        assert_eq!(matcher.arrive(1), None);
        assert_eq!(matcher.arrive(3), None);
        assert_eq!(matcher.post(4), Some(1));
        assert_eq!(matcher.post(6), None);
        assert_eq!(matcher.post(5), Some(2));
        assert_eq!(matcher.arrive(0), Some(6));
        assert_eq!(matcher.post(5), Some(3));
    }

    /// First come, first served by linear search.
    #[derive(Default)]
    struct Plain {
        arrived: Vec<u32>,
        posted: Vec<u32>,
    }

    impl Plain {
        fn comes(&mut self, schedule: &Schedule, op: u32) -> Option<u32> {
            let is_send = schedule.kind(op) == Kind::Send;
            let fits = |&other: &u32| {
                let (send, receive) = if is_send { (op, other) } else { (other, op) };
                let tag = schedule.ops[send as usize].tag;
                accepts(&schedule.ops[receive as usize], schedule.rank_of(send), tag)
            };
            let others = if is_send { &mut self.posted } else { &mut self.arrived };
            if let Some(at) = others.iter().position(fits) {
                return Some(others.remove(at));
            }
            (if is_send { &mut self.arrived } else { &mut self.posted }).push(op);
            None
        }
    }

    fn any_of(count: u32) -> impl Strategy<Value = u32> {
        prop_oneof![4 => 0..count, 1 => Just(WILDCARD)]
    }

    proptest! {
        /// Messages to two targets and their receives, in any order.
        #[test]
        fn it_finds_what_a_plain_search_finds(
            sends in prop::collection::vec((0u32..3, 3u32..5, any_of(4)), 0..60),
            receives in prop::collection::vec((3u32..5, any_of(3), any_of(4)), 0..60),
            seed: u64,
        ) {
            let mut b = ScheduleBuilder::new(5);
            for rank in 0..5 {
                b.begin_rank();
                for &(_, to, tag) in sends.iter().filter(|send| send.0 == rank) {
                    b.send(1, to, tag, 0, 0);
                }
                for &(_, from, tag) in receives.iter().filter(|receive| receive.0 == rank) {
                    b.recv(1, from, tag, 0, 0);
                }
            }
            let mut schedule = b.finish().unwrap();
            search_all(&mut schedule);
            let mut order: Vec<u32> = (0..schedule.operations() as u32).collect();
            order.sort_by_key(|&op| u64::from(op + 1).wrapping_mul(seed | 1));
            let (mut matcher, mut plain) = (Matcher::new(&schedule), [(); 2].map(|()| Plain::default()));
            for op in order {
                let (found, target) = match schedule.kind(op) {
                    Kind::Send => (matcher.arrive(op), schedule.ops[op as usize].peer),
                    _ => (matcher.post(op), schedule.rank_of(op)),
                };
                prop_assert_eq!(found, plain[target as usize - 3].comes(&schedule, op));
            }
        }
    }
}
