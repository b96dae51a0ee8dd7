//! Choices between requests (paper: Boehme et al., "Simulation of MPI non-blocking communication").
//!
//! A wait takes as many requests as its call completed in the trace, those that are complete first. A name
//! that it took in place of another one stands for that one's request from then on: the two are swapped.
//! A test that failed in the trace costs what it took; if its requests are complete now, they are so for
//! good, and tests that have nothing else to test vanish.
//!
//! A choice is decided at its turn in the queue: then every request that is complete by that time is known
//! to be, since what completes it was handled at an earlier time or has a lower number.

use super::super::{
    EventError,
    choices::Test,
    schedule::{NOBODY, Op},
    state::{DONE, NOT_YET, POSTED},
    watch::{Piece, Watch},
};
use super::Engine;

impl<W: Watch> Engine<'_, W> {
    /// A request is complete.
    pub(super) fn note(&mut self, op: u32, rank: u32, record: &Op, time: i64) {
        self.states.set_stage(op, DONE);
        self.calcs += 1;
        self.requests.ends[record.partner as usize] = time;
        let choice = self.requests.waits[rank as usize];
        if choice != NOBODY {
            self.queue.choice(time.max(self.states.time(choice)), choice, rank);
        }
    }

    /// A choice at a time at which it may be decided.
    pub(super) fn choose(
        &mut self,
        time: i64,
        op: u32,
        rank: u32,
        record: &Op,
    ) -> Result<(), EventError> {
        // A choice is looked at whenever one of its rank's requests ends, also after its decision.
        if self.states.stage(op) == DONE {
            return Ok(());
        }
        let schedule = self.schedule;
        let choice = schedule.choices.of(record.partner);
        let (done, left) = schedule.choices.names(choice);
        let requests = &mut self.requests;
        requests.live.clear();
        for (place, &name) in (0..).zip(done.iter().chain(left)) {
            let request = requests.stands_for[name as usize] as usize;
            if !requests.drawn[request] {
                requests.live.push((requests.ends[request], place, name));
            }
        }
        if done.is_empty() {
            return self.test(time, op, rank, record, choice.test);
        }
        let wanted = requests.live.iter().filter(|live| (live.1 as usize) < done.len()).count();
        // In the order of their ends; those that were completed in the trace first.
        requests.live.sort_unstable();
        if let Some(&(end, ..)) = wanted.checked_sub(1).and_then(|last| requests.live.get(last))
            && end > time
        {
            requests.waits[rank as usize] = op;
            self.states.set_stage(op, POSTED);
            if end != NOT_YET {
                self.queue.choice(end, op, rank);
            }
            return Ok(());
        }
        requests.waits[rank as usize] = NOBODY;
        let (taken, others) = requests.live.split_at_mut(wanted);
        // In the order of the call: when these will be complete must not matter yet.
        others.sort_unstable_by_key(|live| live.1);
        let in_trace = |place: u32| (place as usize) < done.len();
        // Those of the trace that were not taken, for those that were taken instead.
        let mut instead = others.iter().filter(|live| in_trace(live.1)).map(|live| live.2);
        for &mut (_, place, name) in taken {
            let note = schedule.choices.note(requests.stands_for[name as usize]);
            let by = self.watch.posted(note);
            self.watch.released(op, by);
            if !in_trace(place)
                && let Some(other) = instead.next()
            {
                requests.stands_for.swap(name as usize, other as usize);
            }
        }
        self.decided(op, rank);
        let moment = self.watch.posted(op);
        self.release(schedule.start_successors(op), rank, time, moment);
        self.release(schedule.successors(op), rank, time, moment);
        Ok(())
    }

    fn decided(&mut self, op: u32, rank: u32) {
        self.waiting[rank as usize] -= 1;
        self.states.set_stage(op, DONE);
        self.calcs += 1;
    }

    /// A test that completed nothing in the trace, of the live requests.
    fn test(
        &mut self,
        time: i64,
        op: u32,
        rank: u32,
        record: &Op,
        test: Test,
    ) -> Result<(), EventError> {
        let schedule = self.schedule;
        if self.requests.live.is_empty() {
            self.decided(op, rank);
            let moment = self.watch.posted(op);
            self.release(schedule.start_successors(op), rank, time, moment);
            self.release(schedule.successors(op), rank, time, moment);
            return Ok(());
        }
        let cpu = schedule.slots[rank as usize] as usize + record.cpu as usize;
        let slot = &mut self.slots[cpu];
        if slot.cpu_free > time {
            // The call begins when the previous one has returned.
            self.queue.choice(slot.cpu_free, op, rank);
            return Ok(());
        }
        let requests = &mut self.requests;
        let complete = |live: &&(i64, u32, u32)| live.0 <= time;
        let all = requests.live.iter().all(|live| complete(&live));
        let first = requests.live.iter().filter(complete).min();
        let taken: &[(i64, u32, u32)] = match (test, first) {
            (Test::All, _) if !all => &[],
            (Test::One, Some(first)) => std::slice::from_ref(first),
            (Test::One, None) => &[],
            (Test::All | Test::Some, _) => &requests.live,
        };
        for &(_, _, name) in taken.iter().filter(complete) {
            requests.drawn[requests.stands_for[name as usize] as usize] = true;
        }
        let work = record.size as i64;
        let end = self.work.done(rank, &mut slot.met, time, work)?;
        slot.cpu_free = end;
        self.decided(op, rank);
        let piece = Piece { op, rank, cpu, nic: cpu, start: time, end, work };
        let (begun, ended) = self.watch.calc(piece);
        self.release(schedule.start_successors(op), rank, time, begun);
        self.release(schedule.successors(op), rank, end, ended);
        Ok(())
    }
}
