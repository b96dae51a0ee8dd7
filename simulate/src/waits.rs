//! What ranks waited for in a simulated run.
//!
//! A rank waits while its CPU does nothing before the last of its work. The wait is classed by what ends it:
//! a message that is received (its sender was late), the payload of a large message that is sent (its
//! receiver was late), or anything else (the NIC). So the classes add up to the time without work.

use crate::event::{Log, What};

/// Waiting time by class, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub late_sender: i64,
    pub late_receiver: i64,
    /// Either of them for a message of a collective.
    pub collective: i64,
    pub nic: i64,
}

impl Waits {
    pub fn total(&self) -> i64 {
        self.late_sender + self.late_receiver + self.collective + self.nic
    }
}

/// The waits of each rank from its start at 0 to its end.
pub fn of(log: &Log, is_collective: impl Fn(u32) -> bool) -> Vec<Waits> {
    let mut waits = vec![Waits::default(); log.ranks() as usize];
    let mut worked = vec![0; waits.len()];
    let mut order: Vec<u32> = (0..log.steps().len() as u32).collect();
    let key = |step: u32| {
        let step = &log.steps()[step as usize];
        (step.rank, step.start, step.end)
    };
    order.sort_unstable_by_key(|&step| key(step));
    // Until when the rank has worked, and whether what it did last is a large message.
    let (mut rank, mut busy, mut sending) = (u32::MAX, 0, None);
    for step in order {
        let step = &log.steps()[step as usize];
        if step.rank != rank {
            (rank, busy, sending) = (step.rank, 0, None);
        }
        let gap = step.start - busy;
        if gap > 0 {
            let own = &mut waits[rank as usize];
            let in_collective = is_collective(step.op) || sending.is_some_and(&is_collective);
            let class = match (step.what, sending) {
                (What::Receive | What::Payload, _) if is_collective(step.op) => &mut own.collective,
                (What::Receive, _) => &mut own.late_sender,
                (What::Payload, _) => &mut own.late_receiver,
                (_, Some(_)) if in_collective => &mut own.collective,
                (_, Some(_)) => &mut own.late_receiver,
                _ => &mut own.nic,
            };
            *class += gap;
        }
        busy = busy.max(step.end);
        worked[rank as usize] = busy;
        sending = match step.what {
            What::Request | What::Payload => Some(step.op),
            // By the closed form, a large send ends with its receive.
            What::Send if step.done > step.end => Some(step.op),
            _ => None,
        };
    }
    // After the last of its work, a rank may still wait for a large message to be received.
    for ((rank, own), worked) in (0..).zip(&mut waits).zip(&worked) {
        own.late_receiver += (log.end(rank) - worked).max(0);
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{self, Options, ScheduleBuilder, Scratch},
        loggops::Params,
        noise::Noise,
    };

    /// Waits on a network with L = 1 us and o = 100 ns; messages above 100 bytes shake hands.
    fn waits(build: impl FnOnce(&mut ScheduleBuilder)) -> (Vec<Waits>, Vec<i64>) {
        let mut builder = ScheduleBuilder::new(2);
        build(&mut builder);
        let schedule = builder.finish().unwrap();
        let net = Params {
            latency: 1_000_000,
            send_overhead: 100_000,
            recv_overhead: 100_000,
            eager_limit: 100,
            ..Params::FREE
        };
        let options = Options { rendezvous: event::Rendezvous::Handshake, ..Options::default() };
        let (mut scratch, mut log) = (Scratch::default(), Log::default());
        let silent = Noise::none();
        let run =
            event::run_logged(&mut scratch, &schedule, &net, &options, &silent.run(0, 0), &mut log);
        (of(&log, |_| false), run.unwrap().ends)
    }

    #[test]
    fn a_receive_waits_for_a_late_sender() {
        let (waits, ends) = waits(|b| {
            b.begin_rank();
            let calc = b.calc(10_000_000, 0);
            let send = b.send(1, 1, 0, 0, 0);
            b.requires(send, calc);
            b.begin_rank();
            let calc = b.calc(3_000_000, 0);
            let recv = b.recv(1, 0, 0, 0, 0);
            b.requires(recv, calc);
        });
        // The message is there after 11.1 us.
        assert_eq!(ends, [10_100_000, 11_200_000]);
        assert_eq!(waits[0].total(), 0);
        assert_eq!(waits[1], Waits { late_sender: 8_100_000, ..Waits::default() });
    }

    #[test]
    fn a_large_message_waits_for_a_late_receiver() {
        let (waits, ends) = waits(|b| {
            b.begin_rank();
            let send = b.send(1_000, 1, 0, 0, 0);
            let calc = b.calc(1_000_000, 0);
            b.requires(calc, send);
            b.begin_rank();
            let calc = b.calc(10_000_000, 0);
            let recv = b.recv(1_000, 0, 0, 0, 0);
            b.requires(recv, calc);
        });
        let idle = |rank: usize, worked: i64| ends[rank] - worked;
        // Request and payload cost o each, then it computes.
        assert_eq!(waits[0].total(), idle(0, 1_200_000));
        assert_eq!(waits[0].late_receiver, waits[0].total());
        assert!(waits[0].total() > 9_000_000, "{waits:?} {ends:?}");
    }
}
