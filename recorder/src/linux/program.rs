//! A program's threads as they experience the node: what interrupted each while it ran, and what it
//! waited for while it wanted to run. No probe; the account is drawn from switches alone.
//!
//! In: the records of all CPUs in the order they were sent. Out: detours on the threads' lanes:
//! - interrupts, softirqs and page faults inside a time slice, those that touch taken together;
//! - the wait before a slice: from being preempted, or from being woken, until running again, made
//!   up of what that CPU did meanwhile;
//! - page faults that slept, whole.

use std::collections::VecDeque;

use trace::{LaneId, RecordFlags};

use crate::{
    hash::HashMap,
    merge::{Composer, Named, Sink},
};

/// Interruptions closer than this are one detour to the program.
const TOUCHING_NS: u64 = 2_000;
/// Shorter waits are the switch itself.
const SHORTEST_WAIT_NS: u64 = 1_000;
/// How much of a CPU's past is kept to explain a wait.
const PAST: usize = 8_192;
/// Records inside one time slice that are kept; beyond, they are counted as unwritten.
const MAX_INSIDE: usize = 1 << 20;

/// A finished time slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub named: Named,
    pub tid: u32,
    /// Left the CPU although it wanted to run.
    pub runnable: bool,
    /// From being woken to running, 0 when it was not woken.
    pub waited_ns: u64,
    /// It left unseen: whatever was seen is somebody else's.
    pub unseen: bool,
}

#[derive(Default)]
struct Cpu {
    inside: Vec<Named>,
    /// Thread (0 for an interrupt) and record.
    past: VecDeque<(u32, Named)>,
}

/// What is known of a watched thread.
pub struct Thread {
    pub lane: LaneId,
    /// When it was preempted, if that is how it left.
    preempted_at: Option<u64>,
    /// The end of the last event sent on its lane.
    settled: u64,
    pub from_ns: u64,
    pub to_ns: u64,
}

#[derive(Default)]
pub struct Program {
    cpus: HashMap<u16, Cpu>,
    pub threads: HashMap<u32, Thread>,
    /// Those whose numbers have others now.
    over: Vec<Thread>,
    composer: Composer,
    pub dropped: u64,
}

impl Program {
    /// A new thread bears this number: one that had it before is over.
    pub fn forked(&mut self, tid: u32) {
        self.over.extend(self.threads.remove(&tid));
    }

    /// All threads that were ever watched.
    pub fn watched(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values().chain(&self.over)
    }

    /// Takes anything but a slice.
    pub fn record(&mut self, named: Named) {
        let cpu = self.cpus.entry(named.record.cpu).or_default();
        if cpu.inside.len() < MAX_INSIDE {
            cpu.inside.push(named);
        } else {
            self.dropped += 1;
        }
    }

    /// Takes a slice; of a watched thread, with its lane and where its events go.
    pub fn slice<S: Sink>(&mut self, slice: Slice, watched: Option<(LaneId, &mut S)>) {
        let cpu = self.cpus.entry(slice.named.record.cpu).or_default();
        if slice.unseen {
            // What happened since it came belongs to whoever is found running.
            cpu.past.push_back((slice.tid, slice.named));
            return;
        }
        let mut inside = std::mem::take(&mut cpu.inside);
        if let Some((lane, out)) = watched {
            inside.sort_by_key(|named| named.record.start_ns);
            let start = slice.named.record.start_ns;
            let thread = self.threads.entry(slice.tid).or_insert_with(|| Thread {
                lane,
                preempted_at: None,
                settled: start.saturating_sub(slice.waited_ns),
                from_ns: start.saturating_sub(slice.waited_ns),
                to_ns: start,
            });
            let wait_from = thread
                .preempted_at
                .or((slice.waited_ns > 0).then(|| start.saturating_sub(slice.waited_ns)));
            let slept = inside.iter().position(|n| n.record.start_ns < start && is_fault(n));
            // Preempted inside a fault, it waited for the CPU; the fault is counted and costs nothing.
            let slept = match (slept, thread.preempted_at) {
                (Some(index), Some(_)) => {
                    out.lone(inside.remove(index).record);
                    None
                }
                (slept, _) => slept,
            };
            match (slept, wait_from) {
                (Some(index), _) => {
                    let fault = inside.remove(index);
                    let from = fault.record.start_ns.max(thread.settled);
                    let to = fault.end().max(from);
                    self.composer.add(fault);
                    self.composer.compose(from, to, out);
                    thread.settled = to;
                }
                (None, Some(from)) if start.saturating_sub(from) >= SHORTEST_WAIT_NS => {
                    let from = from.max(thread.settled).min(start);
                    // Its own slices are not what it waited for, whatever the clocks say.
                    let recent = cpu.past.iter().rev().take_while(|(_, n)| n.end() > from);
                    for (_, named) in recent.filter(|(tid, _)| *tid != slice.tid) {
                        self.composer.add(*named);
                    }
                    self.composer.compose(from, start, out);
                    thread.settled = start;
                }
                _ => {}
            }
            self.composer.interruptions(&inside, thread, out);
            let mut own = slice.named.record;
            own.flags = own.flags.with(RecordFlags::BASELINE);
            out.lone(own);
            thread.to_ns = slice.named.end();
            thread.preempted_at = slice.runnable.then(|| slice.named.end());
        }
        cpu.past.extend(inside.iter().map(|named| (0, *named)).chain([(slice.tid, slice.named)]));
        while cpu.past.len() > PAST {
            cpu.past.pop_front();
        }
        inside.clear();
        cpu.inside = inside;
    }
}

impl Composer {
    /// Sends what interrupted a slice, touching ones as one detour.
    fn interruptions(&mut self, inside: &[Named], thread: &mut Thread, out: &mut impl Sink) {
        let settled = thread.settled;
        let mut rest = inside.iter().filter(|n| n.record.start_ns >= settled).peekable();
        while let Some(first) = rest.next() {
            let from = first.record.start_ns;
            let mut to = first.end();
            self.add(*first);
            while let Some(next) =
                rest.next_if(|next| next.record.start_ns <= to.saturating_add(TOUCHING_NS))
            {
                to = to.max(next.end());
                self.add(*next);
            }
            self.compose(from, to, out);
            thread.settled = to;
        }
    }
}

fn is_fault(named: &Named) -> bool {
    named.class == trace::Class::PageFault && named.record.flags.contains(RecordFlags::CUT_SHORT)
}

#[cfg(test)]
mod tests {
    use trace::Class;

    use super::*;
    use crate::merge::tests::{Collect as Lane, named};

    fn slice(start: u64, gross: u64, net: u64, tid: u32, runnable: bool, waited_ns: u64) -> Slice {
        let named = named(Class::Thread, start, gross, net, 0);
        Slice { named, tid, runnable, waited_ns, unseen: false }
    }

    #[test]
    fn being_preempted_is_a_detour_made_of_whoever_ran() {
        let (mut program, mut lane) = (Program::default(), Lane::default());
        program.slice(slice(0, 100_000, 100_000, 7, true, 0), Some((LaneId(0), &mut lane)));
        program.record(named(Class::Timer, 150_000, 2_000, 2_000, 1));
        program.slice(slice(100_000, 80_000, 78_000, 9, false, 30), None::<(LaneId, &mut Lane)>);
        program.slice(slice(180_000, 50_000, 50_000, 7, false, 0), Some((LaneId(0), &mut lane)));
        let (detour, records) = &lane.detours[0];
        assert_eq!((detour.start_ns, detour.len_ns, detour.outside_ns), (100_000, 80_000, 0));
        let costs: Vec<u64> = records.iter().map(|r| r.cost_ns).collect();
        assert_eq!(costs, [78_000, 2_000]);
        assert_eq!(lane.lone.len(), 2);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let (mut program, mut lane) = (Program::default(), Lane::default());
        program.slice(slice(0, 1_000, 1_000, 7, true, 0), Some((LaneId(0), &mut lane)));
        program.forked(7);
        let mut next = Lane::default();
        program.slice(slice(900_000, 1_000, 1_000, 7, false, 0), Some((LaneId(1), &mut next)));
        assert!(
            lane.detours.is_empty() && next.detours.is_empty(),
            "nobody waited between the two"
        );
        let mut windows: Vec<_> =
            program.watched().map(|t| (t.lane.0, t.from_ns, t.to_ns)).collect();
        windows.sort_unstable();
        assert_eq!(windows, [(0, 0, 1_000), (1, 900_000, 901_000)]);
    }

    #[test]
    fn an_interrupt_and_its_softirq_are_one_detour() {
        let (mut program, mut lane) = (Program::default(), Lane::default());
        program.record(named(Class::Timer, 10_000, 2_000, 2_000, 1));
        program.record(named(Class::Softirq, 12_300, 1_000, 1_000, 1));
        program.record(named(Class::Timer, 50_000, 2_000, 2_000, 1));
        program.slice(slice(0, 100_000, 95_000, 7, false, 0), Some((LaneId(0), &mut lane)));
        assert_eq!(lane.detours.len(), 2);
        assert_eq!(lane.detours[0].0.len_ns, 3_300);
        assert_eq!(lane.detours[0].0.records, 2);
    }

    #[test]
    fn a_thread_that_left_unseen_takes_nothing_along() {
        let (mut program, mut lane) = (Program::default(), Lane::default());
        program.record(named(Class::PageFault, 10_000, 800, 800, 1));
        for gross in [0, 4_000] {
            let unseen = Slice { unseen: true, ..slice(5_000, gross, gross, 9, false, 0) };
            program.slice(unseen, None::<(LaneId, &mut Lane)>);
        }
        program.slice(slice(9_000, 16_000, 15_200, 7, false, 0), Some((LaneId(0), &mut lane)));
        assert_eq!(lane.detours.len(), 1);
    }

    #[test]
    fn blocking_is_no_detour_but_waiting_after_a_wakeup_is() {
        let (mut program, mut lane) = (Program::default(), Lane::default());
        program.slice(slice(0, 1_000, 1_000, 7, false, 0), Some((LaneId(0), &mut lane)));
        program.slice(slice(1_000, 90_000, 90_000, 9, false, 0), None::<(LaneId, &mut Lane)>);
        // Woken at 61,000 while 9 was running.
        program.slice(slice(91_000, 1_000, 1_000, 7, false, 30_000), Some((LaneId(0), &mut lane)));
        assert_eq!(lane.detours.len(), 1);
        let (detour, records) = &lane.detours[0];
        assert_eq!((detour.start_ns, detour.len_ns), (61_000, 30_000));
        assert_eq!(records[0].cost_ns, 30_000);
    }
}
