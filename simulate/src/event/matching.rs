//! Matches messages and receives whose pairing depends on the times: first come first served, in the
//! order in which the engine tells of arrivals and posts.
//!
//! Queues are linked through one array that has a place for each operation: an operation is in one
//! queue at most, so nothing is allocated during a run.

use super::schedule::{ANY, NOBODY, Op, Pairing, Schedule};

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

/// What may be meant by receives with wildcards, at one target.
#[derive(Clone, Copy, Debug)]
struct Target {
    arrived: Queue,
    posted: Queue,
}

#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    schedule: &'a Schedule,
    channels: Vec<Channel>,
    targets: Vec<Target>,
    /// The next in the same queue.
    links: Vec<u32>,
}

impl<'a> Matcher<'a> {
    pub fn new(schedule: &'a Schedule) -> Matcher<'a> {
        let needed = !schedule.is_settled();
        let channel = Channel { queue: EMPTY, holds_messages: false };
        Matcher {
            schedule,
            channels: vec![channel; schedule.channels as usize],
            targets: vec![Target { arrived: EMPTY, posted: EMPTY }; schedule.searches as usize],
            links: vec![NOBODY; if needed { schedule.operations() } else { 0 }],
        }
    }

    /// A message has arrived; the receive it is for, if that has been posted.
    pub fn arrive(&mut self, send: u32) -> Option<u32> {
        let op = self.schedule.ops[send as usize];
        match op.pairing {
            Pairing::Fixed | Pairing::Uneven => None,
            Pairing::Channel => self.meet(op.partner, send, true),
            Pairing::Search => {
                let source = self.schedule.rank_of(send);
                let target = &mut self.targets[op.partner as usize];
                let ops = &self.schedule.ops;
                let fits = |receive: u32| accepts(&ops[receive as usize], source, op.tag);
                let found = take(&mut target.posted, &mut self.links, fits);
                if found.is_none() {
                    append(&mut target.arrived, &mut self.links, send);
                }
                found
            }
        }
    }

    /// A receive has been posted; the message for it, if that has arrived.
    pub fn post(&mut self, receive: u32) -> Option<u32> {
        let op = self.schedule.ops[receive as usize];
        match op.pairing {
            Pairing::Fixed | Pairing::Uneven => None,
            Pairing::Channel => self.meet(op.partner, receive, false),
            Pairing::Search => {
                let schedule = self.schedule;
                let target = &mut self.targets[op.partner as usize];
                let fits = |send: u32| {
                    accepts(&op, schedule.rank_of(send), schedule.ops[send as usize].tag)
                };
                let found = take(&mut target.arrived, &mut self.links, fits);
                if found.is_none() {
                    append(&mut target.posted, &mut self.links, receive);
                }
                found
            }
        }
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

/// Whether a receive may get a message of this source and tag.
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

/// Takes the first that fits out of the queue.
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
    use super::super::{ScheduleBuilder, WILDCARD};
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
}
