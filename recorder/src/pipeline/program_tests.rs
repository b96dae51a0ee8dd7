use trace::Class;

use super::*;
use crate::pipeline::compose::tests::{Collect as Lane, named};

fn slice(start: u64, gross: u64, net: u64, tid: u32, runnable: bool, waited_ns: u64) -> Slice {
    let named = named(Class::Thread, start, gross, net, 0);
    Slice { named, tid, runnable, waited_ns, new: false, found: false, unseen: false }
}

fn on(cpu: u16, mut slice: Slice) -> Slice {
    slice.named.record.cpu = cpu;
    slice
}

const NOBODY: Option<&mut Lane> = None;

fn kinds(lane: &Lane) -> Vec<(u64, u64, Wait)> {
    lane.detours.iter().map(|(d, _)| (d.start_ns, d.len_ns, d.wait)).collect()
}

fn adds_up(lane: &Lane) {
    for (detour, records) in &lane.detours {
        let parts: u64 = records.iter().map(|r| r.cost_ns).sum();
        assert_eq!(parts + detour.outside_ns, detour.len_ns);
    }
}

#[test]
fn being_preempted_is_a_detour_made_of_whoever_ran() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.slice(slice(0, 100_000, 100_000, 7, true, 0), &[], Some(&mut lane));
    program.record(named(Class::Timer, 150_000, 2_000, 2_000, 1));
    program.slice(slice(100_000, 80_000, 78_000, 9, false, 30), &[], NOBODY);
    program.slice(slice(180_000, 50_000, 50_000, 7, false, 0), &[], Some(&mut lane));
    let (detour, records) = &lane.detours[0];
    assert_eq!((detour.start_ns, detour.len_ns, detour.outside_ns), (100_000, 80_000, 0));
    assert_eq!(detour.wait, Wait::Preempted);
    let costs: Vec<u64> = records.iter().map(|r| r.cost_ns).collect();
    assert_eq!(costs, [78_000, 2_000]);
    assert_eq!(lane.lone.len(), 2);
}

#[test]
fn a_number_that_is_used_again_is_another_thread() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.set_lane(7, LaneId(0));
    program.slice(slice(0, 1_000, 1_000, 7, true, 0), &[], Some(&mut lane));
    program.forked(7, true);
    program.set_lane(7, LaneId(1));
    let mut next = Lane::default();
    program.slice(slice(900_000, 1_000, 1_000, 7, false, 0), &[], Some(&mut next));
    assert!(lane.detours.is_empty() && next.detours.is_empty(), "no thread waited in between");
    let mut windows: Vec<_> =
        program.totals().iter().map(|t| (t.lane.0, t.from_ns, t.to_ns)).collect();
    windows.sort_unstable();
    assert_eq!(windows, [(0, 0, 1_000), (1, 900_000, 901_000)]);
}

#[test]
fn an_interrupt_and_its_softirq_are_one_detour() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.record(named(Class::Timer, 10_000, 2_000, 2_000, 1));
    program.record(named(Class::Softirq, 12_300, 1_000, 1_000, 1));
    program.record(named(Class::Timer, 50_000, 2_000, 2_000, 1));
    program.slice(slice(0, 100_000, 95_000, 7, false, 0), &[], Some(&mut lane));
    assert_eq!(lane.detours.len(), 2);
    assert_eq!(lane.detours[0].0.len_ns, 3_300);
    assert_eq!(lane.detours[0].0.records, 2);
    assert_eq!(lane.detours[0].0.wait, Wait::None);
}

#[test]
fn a_thread_that_left_unseen_takes_nothing_along() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.record(named(Class::PageFault, 10_000, 800, 800, 1));
    for gross in [0, 4_000] {
        let unseen = Slice { unseen: true, ..slice(5_000, gross, gross, 9, false, 0) };
        program.slice(unseen, &[], NOBODY);
    }
    program.slice(slice(9_000, 16_000, 15_200, 7, false, 0), &[], Some(&mut lane));
    assert_eq!(lane.detours.len(), 1);
}

#[test]
fn blocking_is_no_detour_but_waiting_after_a_wakeup_is() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.slice(slice(0, 1_000, 1_000, 7, false, 0), &[], Some(&mut lane));
    program.slice(slice(1_000, 90_000, 90_000, 9, false, 0), &[], NOBODY);
    // Woken at 61,000 while 9 was running.
    program.slice(slice(91_000, 1_000, 1_000, 7, false, 30_000), &[], Some(&mut lane));
    assert_eq!(kinds(&lane), [(61_000, 30_000, Wait::Woken)]);
    assert_eq!(lane.detours[0].1[0].cost_ns, 30_000);
}

#[test]
fn the_first_wait_of_a_new_thread_counts() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.forked(7, true);
    program.set_lane(7, LaneId(0));
    program.slice(slice(0, 90_000, 90_000, 9, false, 0), &[], NOBODY);
    let first = Slice { new: true, ..slice(90_000, 1_000, 1_000, 7, false, 40_000) };
    program.slice(first, &[], Some(&mut lane));
    assert_eq!(kinds(&lane), [(50_000, 40_000, Wait::New)]);
    let totals = program.totals()[0];
    assert_eq!((totals.from_ns, totals.to_ns), (50_000, 91_000));
    assert_eq!((totals.run_ns, totals.wait_ns), (1_000, 40_000));
}

#[test]
fn a_record_on_several_lanes_is_one_event() {
    let (mut program, mut one, mut two) = (Program::default(), Lane::default(), Lane::default());
    program.slice(slice(0, 1_000, 1_000, 7, true, 0), &[], Some(&mut one));
    program.slice(slice(1_000, 1_000, 1_000, 8, true, 0), &[], Some(&mut two));
    program.record(named(Class::Timer, 50_000, 2_000, 2_000, 1));
    program.slice(slice(2_000, 98_000, 96_000, 9, false, 0), &[], NOBODY);
    program.slice(slice(100_000, 5_000, 5_000, 7, false, 0), &[], Some(&mut one));
    program.slice(slice(105_000, 5_000, 5_000, 8, false, 0), &[], Some(&mut two));
    let plain = |lane: &Lane| {
        let all = lane.detours.iter().flat_map(|(_, records)| records);
        let mut plain: Vec<u64> = all
            .filter(|record| !record.flags.contains(RecordFlags::REPEATED))
            .map(|record| record.start_ns)
            .collect();
        plain.sort_unstable();
        plain
    };
    // 8 waited for 9, the timer, and 7, while 7 did not wait for itself.
    assert_eq!(plain(&one), [1_000, 2_000, 50_000]);
    assert_eq!(plain(&two), [100_000]);
    assert_eq!(two.detours[0].1.len(), 3);
    adds_up(&one);
    adds_up(&two);
}

#[test]
fn a_wait_that_ends_elsewhere_is_explained_by_the_cpu_where_it_was() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.slice(on(1, slice(0, 1_000, 1_000, 7, true, 0)), &[], Some(&mut lane));
    // On CPU 0 another thread runs all the time, and on CPU 1 a thread that stays for long.
    program.slice(on(0, slice(0, 60_000, 60_000, 5, false, 0)), &[], NOBODY);
    let hog = named(Class::Kthread, 1_000, 0, 0, 0);
    let moved = Move { tid: 7, at: 50_000, woken_at: None, new: false, from: 1, to: 0 };
    let occupant = Some(Occupant { tid: 9, named: hog });
    program.moved(moved, occupant, &[], &mut lane);
    program.slice(on(0, slice(60_000, 9_000, 9_000, 7, false, 0)), &[], Some(&mut lane));
    assert_eq!(kinds(&lane), [(1_000, 49_000, Wait::Preempted), (50_000, 10_000, Wait::Migrated)]);
    let source = |index: usize| lane.detours[index].1[0].source;
    assert_eq!(source(0), hog.record.source);
    assert_eq!(lane.detours[0].1[0].cost_ns, 49_000);
    assert_eq!(lane.detours[1].1[0].start_ns, 0);
    // When the thread on CPU 1 leaves, its record has been seen.
    let mut other = Lane::default();
    program.slice(on(1, slice(1_000, 99_000, 99_000, 9, false, 0)), &[], NOBODY);
    program.slice(on(1, slice(100_000, 9_000, 9_000, 6, false, 30_000)), &[], Some(&mut other));
    assert!(other.detours[0].1[0].flags.contains(RecordFlags::REPEATED));
}

#[test]
fn a_woken_thread_that_moves_waited_on_both_cpus() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    let moved = Move { tid: 7, at: 50_000, woken_at: Some(20_000), new: false, from: 1, to: 0 };
    program.moved(moved, None, &[], &mut lane);
    program.slice(on(0, slice(60_000, 9_000, 9_000, 7, false, 10_000)), &[], Some(&mut lane));
    assert_eq!(kinds(&lane), [(20_000, 30_000, Wait::Woken), (50_000, 10_000, Wait::Migrated)]);
    assert_eq!(lane.detours[0].0.outside_ns, 30_000, "nothing is known of CPU 1");
}

fn throttling(queue: u64, at: u64) -> Throttling {
    Throttling { cpu: 0, queue, at }
}

#[test]
fn throttling_is_a_cause_of_its_own() {
    let quota = Quota { group: 3, source: SourceId(77) };
    for (all, waits) in [(false, 1), (true, 2)] {
        let (mut program, mut one, mut two) =
            (Program::default(), Lane::default(), Lane::default());
        // 8 is preempted by 7 of the same cgroup, which exhausts the quota.
        program.slice(slice(0, 1_000, 1_000, 8, true, 0), &[3, 5], Some(&mut two));
        program.slice(slice(1_000, 9_000, 9_000, 7, true, 0), &[3, 5], Some(&mut one));
        program.throttled(7, throttling(40, 10_000), quota, all);
        program.unthrottled(throttling(41, 20_000));
        program.unthrottled(throttling(40, 80_000));
        program.slice(slice(10_000, 75_000, 75_000, 9, false, 0), &[], NOBODY);
        program.slice(slice(85_000, 5_000, 5_000, 7, false, 0), &[3, 5], Some(&mut one));
        program.slice(slice(90_000, 5_000, 5_000, 8, false, 0), &[3, 5], Some(&mut two));
        assert_eq!(
            kinds(&one),
            [(10_000, 70_000, Wait::Throttled), (80_000, 5_000, Wait::Preempted)]
        );
        assert_eq!(one.detours[0].1[0].source, SourceId(77));
        // If the kernel stops all of them, 8 is throttled as well.
        let throttled = kinds(&two).iter().filter(|(.., wait)| *wait == Wait::Throttled).count();
        assert_eq!(throttled + 1, waits);
        if all {
            let record = two.detours[1].1[0];
            assert!(record.flags.contains(RecordFlags::REPEATED) && record.cost_ns == 70_000);
        }
        adds_up(&one);
        adds_up(&two);
    }
}

#[test]
fn waits_are_open_at_both_ends_of_the_recording() {
    let (mut program, mut lane) = (Program::default(), Lane::default());
    for tid in [6, 7, 8] {
        program.runnable_at_start(tid, 10, 0);
        program.set_lane(tid, LaneId(tid));
    }
    program.forked(5, true);
    program.set_lane(5, LaneId(5));
    // 6 was on the CPU, 7 waited for it, 8 never runs, 5 is created.
    program.slice(Slice { found: true, ..slice(100, 0, 0, 6, true, 0) }, &[], Some(&mut lane));
    program.slice(slice(100, 39_900, 39_900, 9, false, 0), &[], NOBODY);
    let mut second = Lane::default();
    program.slice(slice(40_000, 10_000, 10_000, 7, true, 0), &[], Some(&mut second));
    assert_eq!(kinds(&second), [(0, 40_000, Wait::Preempted)]);
    program.end_ns = 100_000;
    // The switch at the end does not belong to it.
    program.slice(slice(50_000, 60_000, 60_000, 9, true, 0), &[], NOBODY);
    program.slice(slice(110_000, 10_000, 10_000, 7, true, 0), &[], Some(&mut second));
    assert_eq!(kinds(&second)[1], (50_000, 50_000, Wait::Preempted));
    let woken = |tid| (tid == 5).then_some((70_000, true));
    let open = program.open_waits(woken, |_| Some((true, 0)));
    let expected = [
        (8, Waiting::new(0, 0, Wait::Preempted)),
        (6, Waiting::new(100, 0, Wait::Preempted)),
        (5, Waiting::new(70_000, 0, Wait::New)),
    ];
    assert_eq!(open, expected);
    for (tid, wait) in open {
        program.close(tid, wait, &[], None, &mut lane);
    }
    let totals = program.totals();
    let of = |tid: u32| totals.iter().find(|totals| totals.lane.0 == tid).unwrap();
    assert_eq!((of(8).from_ns, of(8).to_ns, of(8).wait_ns), (0, 100_000, 100_000));
    assert_eq!((of(7).to_ns, of(7).run_ns, of(7).wait_ns), (100_000, 10_000, 90_000));
    assert_eq!((of(5).from_ns, of(5).to_ns), (70_000, 100_000));
}

#[test]
fn a_fault_that_slept_does_not_explain_what_others_waited_for() {
    let (mut program, mut lane, mut other) = (Program::default(), Lane::default(), Lane::default());
    program.slice(slice(0, 10_000, 10_000, 7, false, 0), &[], Some(&mut lane));
    program.slice(slice(10_000, 50_000, 50_000, 9, false, 0), &[], NOBODY);
    // 7 faulted at 8,000, slept, was woken at 45,000, and goes on at 60,000.
    let mut fault = named(Class::PageFault, 8_000, 53_000, 0, 1);
    fault.record.flags = RecordFlags::CUT_SHORT;
    program.record(fault);
    program.slice(slice(60_000, 20_000, 20_000, 7, false, 15_000), &[], Some(&mut lane));
    assert_eq!(
        kinds(&lane),
        [(8_000, 37_000, Wait::None), (45_000, 15_000, Wait::Woken), (60_000, 1_000, Wait::None)]
    );
    assert!(lane.detours[2].1[0].flags.contains(RecordFlags::CONTINUED));
    program.slice(slice(80_000, 5_000, 5_000, 6, false, 75_000), &[], Some(&mut other));
    let explained: Vec<u64> = other.detours[0].1.iter().map(|r| r.start_ns).collect();
    assert_eq!(explained, [0, 10_000, 60_000]);
    adds_up(&other);
}

/// What each source took of a wait.
fn costs(lane: &Lane, detour: usize) -> [u64; 2] {
    [Class::Thread, Class::Timer].map(|class| {
        let of = lane.detours[detour].1.iter().filter(|r| r.source == SourceId(class as u32));
        of.map(|record| record.cost_ns).sum()
    })
}

#[test]
fn a_wait_is_explained_however_many_records_it_has() {
    const SLICES: u64 = 4 * PAST as u64;
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.slice(slice(0, 1_000, 1_000, 7, true, 0), &[], Some(&mut lane));
    for i in 0..SLICES {
        let start = 1_000 + i * 1_000;
        program.record(named(Class::Timer, start + 100, 200, 200, 1));
        program.slice(slice(start, 1_000, 800, 9, false, 0), &[], NOBODY);
    }
    let now = 1_000 + SLICES * 1_000;
    program.slice(slice(now, 1_000, 1_000, 7, false, 0), &[], Some(&mut lane));
    let (detour, records) = &lane.detours[0];
    assert_eq!(detour.len_ns, SLICES * 1_000);
    assert!(records.len() <= PAST / 2 + 100, "{} records", records.len());
    adds_up(&lane);
    // A chunk that begins before the wait may count for a little more.
    assert!(detour.outside_ns <= 1_000, "{} ns are unexplained", detour.outside_ns);
    let [thread, timer] = costs(&lane, 0);
    assert!(timer.abs_diff(SLICES * 200) <= SLICES / 5, "{thread} {timer}");
    assert_eq!(
        program.uncounted() + records.iter().filter(|r| !r.is_sum()).count() as u64,
        2 * SLICES + 1
    );
}

#[test]
fn a_wait_that_begins_in_the_middle_of_the_sums_is_explained() {
    const EACH: u64 = 2 * PAST as u64;
    let (mut program, mut lane) = (Program::default(), Lane::default());
    // Short slices first, then ones ten times as long: in proportion to time, the chunk in which the
    // wait begins would explain too little of it.
    let mut at = 0;
    for i in 0..2 * EACH {
        if i == EACH - 100 {
            program.slice(slice(at, 1_000, 1_000, 7, true, 0), &[], Some(&mut lane));
            at += 1_000;
        }
        let length = if i < EACH { 1_000 } else { 10_000 };
        program.slice(slice(at, length, length, 9, false, 0), &[], NOBODY);
        at += length;
    }
    program.slice(slice(at, 1_000, 1_000, 7, false, 0), &[], Some(&mut lane));
    let (detour, _) = &lane.detours[0];
    assert_eq!(detour.len_ns, 100 * 1_000 + EACH * 10_000);
    assert!(detour.outside_ns <= 1_000, "{} ns are unexplained", detour.outside_ns);
    adds_up(&lane);
}

#[test]
fn interrupts_that_are_only_sums_are_subtracted_from_the_thread_they_interrupted() {
    const TICKS: u64 = 8 * PAST as u64;
    let (mut program, mut lane) = (Program::default(), Lane::default());
    program.slice(slice(0, 1_000, 1_000, 7, true, 0), &[], Some(&mut lane));
    // One thread runs all the time; it is found again and again, so that its slices are long.
    let mut at = 1_000;
    for _ in 0..8 {
        for tick in 0..TICKS / 8 {
            program.record(named(Class::Timer, at + tick * 1_000 + 300, 300, 300, 1));
        }
        let length = TICKS / 8 * 1_000;
        program.slice(slice(at, length, length / 10 * 7, 9, true, 0), &[], NOBODY);
        at += length;
    }
    program.slice(slice(at, 1_000, 1_000, 7, false, 0), &[], Some(&mut lane));
    adds_up(&lane);
    let (detour, [thread, timer]) = (lane.detours[0].0, costs(&lane, 0));
    assert!(detour.outside_ns <= 1_000, "{} ns are unexplained", detour.outside_ns);
    assert!(timer.abs_diff(TICKS * 300) <= TICKS * 3, "{thread} {timer}");
}

#[test]
fn what_is_shorter_than_the_threshold_is_no_detour_and_still_waiting() {
    let (mut program, mut lane) = (Program::with_threshold(10_000), Lane::default());
    program.set_lane(7, LaneId(0));
    program.record(named(Class::Timer, 20_000, 2_000, 2_000, 1));
    program.slice(slice(0, 100_000, 98_000, 7, true, 0), &[], Some(&mut lane));
    program.slice(slice(100_000, 8_000, 8_000, 9, false, 0), &[], NOBODY);
    program.slice(slice(108_000, 10_000, 10_000, 7, true, 0), &[], Some(&mut lane));
    program.slice(slice(118_000, 12_000, 12_000, 9, false, 0), &[], NOBODY);
    program.slice(slice(130_000, 10_000, 10_000, 7, false, 0), &[], Some(&mut lane));
    assert_eq!(kinds(&lane), [(118_000, 12_000, Wait::Preempted)]);
    adds_up(&lane);
    assert_eq!(program.totals()[0].wait_ns, 20_000);
    // The tick and the first preemptor stand alone, and cost nothing.
    let lone = lane.lone.iter().filter(|record| !record.flags.contains(RecordFlags::BASELINE));
    assert_eq!(
        lone.map(|record| (record.start_ns, record.cost_ns)).collect::<Vec<_>>(),
        [(20_000, 0), (100_000, 0)]
    );
}
