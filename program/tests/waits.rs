//! Waiting times of traces made by hand, against closed forms.

mod support;

use mpi_abi::{Actual, Call, Entry, Outcome, RequestItem, Signature, present, rank, shape};
use program::{Profile, open, profile, profile_over_time};
use support::{BLANK, Made, completed, message};
use tempfile::TempDir;

fn of(dir: &TempDir) -> Profile {
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    let pairs: u64 = profile.waits.pairs.iter().map(|pair| pair.wait_ns).sum();
    let waits = &profile.waits;
    assert_eq!(pairs + waits.other_pairs_ns, waits.total_ns, "pairs make up the total");
    assert_eq!(waits.late_sender_ns + waits.late_receiver_ns + waits.collective_ns, waits.total_ns);
    let cells: u64 = waits.matrix_ns.iter().flatten().sum();
    assert_eq!(cells + waits.matrix_other_ns, waits.total_ns, "cells make up the total");
    profile
}

fn waits(profile: &Profile) -> [u64; 3] {
    let waits = &profile.waits;
    [waits.late_sender_ns, waits.late_receiver_ns, waits.collective_ns]
}

fn pair(profile: &Profile) -> Vec<(u32, u32, &str, u64)> {
    let pairs = profile.waits.pairs.iter();
    pairs.map(|pair| (pair.waiting, pair.late, pair.class, pair.wait_ns)).collect()
}

fn two(make: impl FnOnce(&mut Made, &mut Made)) -> Profile {
    let dir = TempDir::new().unwrap();
    let (mut a, mut b) = (Made::new(dir.path(), 0, 2), Made::new(dir.path(), 1, 2));
    make(&mut a, &mut b);
    a.finish(1_000_000);
    b.finish(1_000_000);
    of(&dir)
}

#[test]
fn a_receive_waits_until_the_send_begins() {
    let profile = two(|a, b| {
        a.send(5_000, 6_000, 1, 100);
        b.recv(1_000, 7_000, 0, 100);
    });
    assert_eq!(waits(&profile), [4_000, 0, 0]);
    assert_eq!(pair(&profile), [(1, 0, "late sender", 4_000)]);
    assert_eq!(profile.lost, program::LostSums::default());
}

#[test]
fn a_receive_that_returned_before_the_send_began_waits_only_as_long_as_it_took() {
    let profile = two(|a, b| {
        a.send(50_000, 60_000, 1, 100);
        b.recv(1_000, 7_000, 0, 100);
    });
    assert_eq!(waits(&profile), [6_000, 0, 0]);
    assert_eq!(profile.lost.reversed_messages, 1);
}

#[test]
fn a_large_send_waits_until_the_receive_is_posted() {
    let profile = two(|a, b| {
        a.send(1_000, 9_000, 1, 1 << 20);
        b.recv(5_000, 9_500, 0, 1 << 20);
    });
    assert_eq!(waits(&profile), [0, 4_000, 0]);
    assert_eq!(pair(&profile), [(0, 1, "late receiver", 4_000)]);
}

#[test]
fn a_small_send_and_one_that_returned_earlier_do_not_wait_for_the_receiver() {
    let profile = two(|a, b| {
        a.send(1_000, 9_000, 1, 100);
        a.send(10_000, 11_000, 1, 1 << 20);
        b.recv(5_000, 9_500, 0, 100);
        b.recv(15_000, 16_000, 0, 1 << 20);
    });
    assert_eq!(waits(&profile), [0, 0, 0]);
}

#[test]
fn a_synchronous_send_of_any_size_waits_for_the_receiver() {
    let profile = two(|a, b| {
        let signature = message(Call::Ssend, 1, 0);
        a.call(1_000, 9_000, Entry { signature, bytes: 1, ..BLANK });
        b.recv(5_000, 9_500, 0, 1);
    });
    assert_eq!(waits(&profile), [0, 4_000, 0]);
}

#[test]
fn the_waiting_of_a_large_count_variant_is_in_its_own_row() {
    let profile = two(|a, b| {
        a.send(4_000, 4_100, 1, 100);
        b.recv(1_000, 5_000, 0, 100);
        a.send(9_000, 9_100, 1, 100);
        let signature = Signature { large: true, ..message(Call::Recv, 0, 0) };
        b.call(8_000, 9_500, Entry { signature, bytes: 100, ..BLANK });
    });
    let rows = ["MPI_Recv", "MPI_Recv_c"].map(|name| {
        let row = profile.calls.iter().find(|row| row.name == name).unwrap();
        (row.count, (row.wait_s * 1e9).round())
    });
    assert_eq!(rows, [(1, 3_000.0), (1, 1_000.0)]);
}

#[test]
fn the_wait_for_a_nonblocking_receive_waits_for_the_sender() {
    let profile = two(|a, b| {
        a.send(8_000, 9_000, 1, 100);
        let request = b.begin(Call::Irecv, 1_000, 1_100, 0, 0, 100);
        b.wait(5_000, 10_000, &[request]);
    });
    assert_eq!(waits(&profile), [3_000, 0, 0]);
}

#[test]
fn a_call_with_several_requests_waits_for_the_last_only() {
    let dir = TempDir::new().unwrap();
    let mut ranks: Vec<Made> = (0..3).map(|rank| Made::new(dir.path(), rank, 3)).collect();
    ranks[1].send(4_000, 4_500, 0, 100);
    ranks[2].send(7_000, 7_500, 0, 100);
    let a = ranks[0].begin(Call::Irecv, 100, 200, 1, 0, 100);
    let b = ranks[0].begin(Call::Irecv, 200, 300, 2, 0, 100);
    ranks[0].wait(1_000, 8_000, &[a, b]);
    ranks.into_iter().for_each(|rank| rank.finish(10_000));
    let profile = of(&dir);
    assert_eq!(pair(&profile), [(0, 2, "late sender", 6_000)]);
}

#[test]
fn an_exchange_waits_for_its_later_half() {
    let profile = two(|a, b| {
        use mpi_abi::present;
        for (made, peer, begin) in [(a, 1, 1_000), (b, 0, 4_000)] {
            let mut signature = message(Call::Sendrecv, peer, 0);
            signature.present |= present::SOURCE | present::SOURCE_TAG | present::RECEIVED;
            signature.source = peer;
            made.call(begin, 6_000, Entry { signature, bytes: 10, received: 10, ..BLANK });
        }
    });
    assert_eq!(pair(&profile), [(0, 1, "late sender", 3_000)]);
}

#[test]
fn a_call_that_completes_few_of_very_many_requests_waits_for_the_last_only() {
    let profile = two(|a, b| {
        a.send(4_000, 4_100, 1, 10);
        a.send(5_000, 5_100, 1, 10);
        let all: Vec<u64> =
            (0..600).map(|n| b.begin(Call::Irecv, 10 + n, 11 + n, 0, 0, 10)).collect();
        // Those that complete are beyond the first record of the call.
        let mut items: Vec<RequestItem> = all.iter().map(|id| completed(*id)).collect();
        items.rotate_left(2);
        let first = items.len() - 2;
        items[..first].iter_mut().for_each(|item| item.outcome = Outcome::Pending);
        b.complete(1_000, 6_000, &items);
    });
    assert_eq!(waits(&profile), [4_000, 0, 0]);
}

#[test]
fn a_nonblocking_exchange_waits_for_its_later_half_only() {
    use mpi_abi::present;
    let dir = TempDir::new().unwrap();
    let mut ranks: Vec<Made> = (0..3).map(|rank| Made::new(dir.path(), rank, 3)).collect();
    let mut signature = message(Call::Isendrecv, 1, 0);
    signature.present |= present::SOURCE | present::SOURCE_TAG | present::RECEIVED;
    (signature.source, signature.shape) = (2, shape::BEGUN);
    let (bytes, received) = (1 << 20, 1 << 20);
    ranks[0].call(100, 200, Entry { signature, bytes, received, begun: 7, ..BLANK });
    ranks[0].wait(1_000, 9_000, &[7]);
    ranks[1].recv(7_000, 9_000, 0, 1 << 20);
    ranks[2].send(8_000, 9_000, 0, 1 << 20);
    ranks.into_iter().for_each(|rank| rank.finish(1_000_000));
    assert_eq!(waits(&of(&dir)), [7_000, 0, 0]);
}

#[test]
fn a_probe_waits_for_the_sender_of_the_message_received_next() {
    let profile = two(|a, b| {
        a.send(5_000, 6_000, 1, 100);
        a.send(7_000, 7_100, 1, 100);
        b.call(1_000, 5_500, Entry { signature: message(Call::Probe, 0, 0), ..BLANK });
        b.recv(5_600, 5_700, 0, 100);
        b.recv(6_000, 7_200, 0, 100);
    });
    assert_eq!(waits(&profile), [4_000 + 1_000, 0, 0]);
    let probe = profile.calls.iter().find(|call| call.name == "MPI_Probe").unwrap();
    assert!((probe.wait_s - 4e-6).abs() < 1e-12, "{}", probe.wait_s);
}

#[test]
fn messages_meet_in_the_order_in_which_receives_were_posted() {
    // Completed in the other order; a mix-up would show as messages of different sizes.
    let profile = two(|a, b| {
        a.send(1_000, 1_100, 1, 10);
        a.send(2_000, 2_100, 1, 20);
        let first = b.begin(Call::Irecv, 100, 110, 0, 0, 10);
        let second = b.begin(Call::Irecv, 120, 130, 0, 0, 20);
        b.wait(3_000, 3_100, &[second]);
        b.wait(3_200, 3_300, &[first]);
    });
    assert_eq!((profile.lost.different_sizes, profile.lost.unmatched_messages), (0, 0));
}

#[test]
fn a_wildcard_takes_the_first_message_even_if_it_completes_last() {
    let profile = two(|a, b| {
        a.send(1_000, 1_100, 1, 10);
        a.send(2_000, 2_100, 1, 20);
        let wild = b.begin(Call::Irecv, 100, 110, rank::ANY, 0, 10);
        let second = b.begin(Call::Irecv, 120, 130, 0, 0, 20);
        b.wait(3_000, 3_100, &[second]);
        let actual = Actual { source: Some(0), ..Actual::AS_POSTED };
        b.complete(3_200, 3_300, &[RequestItem { actual, ..completed(wild) }]);
    });
    assert_eq!((profile.lost.different_sizes, profile.lost.unmatched_messages), (0, 0));
}

#[test]
fn a_cancelled_receive_leaves_its_message_to_the_next() {
    let profile = two(|a, b| {
        a.send(5_000, 5_100, 1, 20);
        let gone = b.begin(Call::Irecv, 100, 110, 0, 0, 10);
        let taken = b.begin(Call::Irecv, 120, 130, 0, 0, 20);
        b.complete(200, 300, &[RequestItem { outcome: Outcome::Cancelled, ..completed(gone) }]);
        b.wait(4_000, 6_000, &[taken]);
    });
    assert_eq!((profile.lost.different_sizes, profile.lost.unmatched_messages), (0, 0));
    assert_eq!(waits(&profile), [1_000, 0, 0]);
}

#[test]
fn persistent_requests_are_messages_each_time_they_are_started() {
    let profile = two(|a, b| {
        let send = a.begin(Call::Send_init, 10, 20, 1, 0, 64);
        let receive = b.begin(Call::Recv_init, 10, 20, 0, 0, 64);
        for step in 1..=3u64 {
            let base = step * 10_000;
            for (made, id, late) in [(&mut *a, send, 3_000), (&mut *b, receive, 0)] {
                let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Start) };
                let items = [RequestItem { outcome: Outcome::Started, ..completed(id) }];
                made.call(
                    base + late,
                    base + late + 50,
                    Entry { signature, requests: &items, ..BLANK },
                );
                made.wait(base + late + 100, base + 5_000, &[id]);
            }
        }
    });
    assert_eq!(profile.messages, 3);
    assert_eq!(waits(&profile), [3 * 2_900, 0, 0]);
    assert_eq!(profile.lost.unmatched_messages, 0);
}

fn collective(call: Call, root: Option<i32>, begins: [u64; 3]) -> Profile {
    let dir = TempDir::new().unwrap();
    for (rank, begin) in begins.into_iter().enumerate() {
        let mut made = Made::new(dir.path(), rank as u32, 3);
        match root {
            Some(root) => made.rooted(call, begin, 10_000, root),
            None => made.collective(call, begin, 10_000, 0),
        }
        made.finish(20_000);
    }
    of(&dir)
}

#[test]
fn an_allreduce_waits_for_the_last_rank() {
    let profile = collective(Call::Allreduce, None, [1_000, 4_000, 6_000]);
    assert_eq!(waits(&profile), [0, 0, 5_000 + 2_000]);
    assert_eq!(pair(&profile), [(0, 2, "collective", 5_000), (1, 2, "collective", 2_000)]);
    assert_eq!(profile.waits.collectives[0].name, "MPI_Allreduce");
}

#[test]
fn a_broadcast_waits_for_the_root_only() {
    let profile = collective(Call::Bcast, Some(1), [1_000, 4_000, 6_000]);
    assert_eq!(pair(&profile), [(0, 1, "collective", 3_000)]);
}

#[test]
fn only_the_root_of_a_reduction_waits() {
    let profile = collective(Call::Reduce, Some(0), [1_000, 4_000, 6_000]);
    assert_eq!(pair(&profile), [(0, 2, "collective", 5_000)]);
}

#[test]
fn a_scan_waits_for_lower_ranks_only() {
    let profile = collective(Call::Scan, None, [6_000, 1_000, 4_000]);
    assert_eq!(pair(&profile), [(1, 0, "collective", 5_000), (2, 0, "collective", 2_000)]);
    let profile = collective(Call::Scan, None, [1_000, 4_000, 6_000]);
    assert_eq!(waits(&profile), [0, 0, 0]);
}

#[test]
fn collectives_meet_by_communicator_and_number() {
    let dir = TempDir::new().unwrap();
    // Ranks 0 and 2 share a communicator, which they number differently.
    let mut a = Made::new(dir.path(), 0, 3);
    let mut b = Made::new(dir.path(), 1, 3);
    let mut c = Made::new(dir.path(), 2, 3);
    a.comm(5, 0xabc, 0, &[0, 2]);
    c.comm(9, 0xabc, 1, &[0, 2]);
    a.collective(Call::Barrier, 1_000, 5_000, 5);
    c.collective(Call::Barrier, 4_000, 5_000, 9);
    for made in [&mut a, &mut b, &mut c] {
        made.collective(Call::Barrier, 6_000, 7_000, 0);
    }
    for made in [a, b, c] {
        made.finish(10_000);
    }
    let profile = of(&dir);
    assert_eq!(pair(&profile), [(0, 2, "collective", 3_000)]);
    assert_eq!(profile.communicators.len(), 2);
    assert_eq!(profile.lost.incomplete_collectives, 0);
}

#[test]
fn the_wait_for_a_nonblocking_collective_waits_for_the_last_to_start_it() {
    let profile = two(|a, b| {
        for (made, begin) in [(a, 1_000), (b, 5_000)] {
            let signature =
                Signature { shape: shape::BEGUN, ..support::on_comm(Call::Iallreduce, 0) };
            made.call(begin, begin + 100, Entry { signature, bytes: 8, begun: 0, ..BLANK });
            made.wait(begin + 1_000, 7_000, &[0]);
        }
    });
    assert_eq!(pair(&profile), [(0, 1, "collective", 3_000)]);
    assert_eq!(profile.waits.collectives[0].name, "MPI_Iallreduce");
}

#[test]
fn time_bytes_and_counts_are_those_of_the_calls() {
    let profile = two(|a, b| {
        a.name(1, "solve");
        a.name(2, "halo");
        a.region(1, true, 500);
        a.region(2, true, 900);
        a.send(1_000, 2_000, 1, 100);
        a.region(2, false, 2_500);
        a.send(3_000, 5_000, 1, 3_000);
        a.region(1, false, 6_000);
        b.recv(1_000, 2_000, 0, 100);
        b.recv(3_000, 5_000, 0, 3_000);
    });
    let send = profile.calls.iter().find(|call| call.name == "MPI_Send").unwrap();
    assert_eq!((send.count, send.bytes, send.time_s), (2, 3_100, 3e-6));
    assert_eq!(profile.matrix.bytes, [[0, 3_100], [0, 0]]);
    assert_eq!(profile.matrix.messages, [[0, 2], [0, 0]]);
    let sizes: Vec<_> = profile.sizes.iter().map(|row| (row.from, row.to, row.count)).collect();
    assert_eq!(sizes, [(64, 127, 1), (2048, 4095, 1)]);
    let total: f64 = profile.calls.iter().map(|call| call.time_s).sum();
    let ranks: f64 = profile.by_rank.iter().map(|row| row.wall_s * row.mpi_pct / 100.0).sum();
    assert!((total - ranks).abs() < 1e-12);
    let pattern: f64 = profile.pattern.share_pct.iter().flatten().sum::<f64>() / 100.0;
    assert!((pattern - profile.mpi_pct).abs() < 1e-6, "{pattern} {}", profile.mpi_pct);
    let regions: Vec<_> = profile
        .regions
        .iter()
        .map(|row| {
            (row.path.join("/"), row.count, (row.time_s * 1e9).round(), (row.mpi_s * 1e9).round())
        })
        .collect();
    assert_eq!(
        regions,
        [("solve".to_owned(), 1, 5_500.0, 3_000.0), ("solve/halo".to_owned(), 1, 1_600.0, 1_000.0)]
    );
}

#[test]
fn one_sided_operations_are_on_the_communicator_of_their_window() {
    let put = |window: u32| {
        let present = present::OBJECT | present::BYTES;
        let signature = Signature { present, object: window, ..Signature::of(Call::Put) };
        Entry { signature, bytes: 100, ..BLANK }
    };
    let profile = two(|a, b| {
        for made in [a, b] {
            // The number of a window is also that of some communicator.
            made.comm(2, 77, 0, &[0]);
            made.window(1, 0);
            made.window(2, 2);
            made.call(1_000, 2_000, put(1));
            made.call(3_000, 5_000, put(2));
            made.call(6_000, 7_000, put(3));
        }
    });
    let rows: Vec<_> =
        profile.communicators.iter().map(|row| (row.name.as_str(), row.calls, row.bytes)).collect();
    assert_eq!(rows, [("4d", 2, 200), ("MPI_COMM_WORLD", 2, 200)]);
}

#[test]
fn threads_of_a_rank_are_merged_by_time() {
    let dir = TempDir::new().unwrap();
    let mut a = Made::new(dir.path(), 0, 2);
    let mut b = Made::new(dir.path(), 1, 2);
    // A request of one thread is completed by another.
    let request = b.begin(Call::Irecv, 1_000, 1_100, 0, 0, 8);
    let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Wait) };
    let items = [completed(request)];
    b.on_thread(1, 2_000, 6_000, Entry { signature, requests: &items, ..BLANK });
    b.call(7_000, 7_100, Entry { signature: message(Call::Recv, 0, 1), bytes: 8, ..BLANK });
    a.send(5_000, 5_100, 1, 8);
    a.call(6_500, 6_600, Entry { signature: message(Call::Send, 1, 1), bytes: 8, ..BLANK });
    a.finish(10_000);
    b.finish(10_000);
    let profile = of(&dir);
    assert_eq!(waits(&profile), [3_000, 0, 0]);
    assert_eq!(profile.by_rank[1].threads, 2);
    let program = open(dir.path()).unwrap();
    let clocks = program::clocks(&program, 1).unwrap();
    let mut begins = Vec::new();
    program::stream(&program, 1, &clocks, |moment, _| {
        if matches!(moment.what, program::What::Call(_)) {
            begins.push(moment.begin - support::START as i64);
        }
    })
    .unwrap();
    assert_eq!(begins, [1_000, 2_000, 7_000]);
}

#[test]
fn the_profile_does_not_depend_on_the_number_of_threads() {
    let dir = TempDir::new().unwrap();
    exchanges(dir.path(), 4, 4_000);
    let program = open(dir.path()).unwrap();
    let json = |threads| serde_json::to_string(&profile(&program, threads).unwrap()).unwrap();
    let one = json(1);
    assert_eq!(one, json(2));
    assert_eq!(one, json(5));
    let profile = of(&dir);
    assert_eq!(profile.events, 4 * 4_000 * 4);
    assert_eq!(profile.lost, program::LostSums::default());
}

#[test]
fn a_timeline_has_what_happened_where_it_happened() {
    let dir = TempDir::new().unwrap();
    let (mut a, mut b) = (Made::new(dir.path(), 0, 2), Made::new(dir.path(), 1, 2));
    a.send(500_000, 600_000, 1, 100);
    b.recv(100_000, 700_000, 0, 100);
    a.collective(Call::Barrier, 800_000, 900_000, 0);
    b.collective(Call::Barrier, 800_000, 900_000, 0);
    a.finish(1_000_000);
    b.finish(1_000_000);
    let (_, timeline) = profile_over_time(&open(dir.path()).unwrap(), 2).unwrap();
    let timeline = timeline.unwrap();
    let within = |cells: &[u64], from: u64, to: u64| -> u64 {
        let begin = |part: usize| part as u64 * timeline.part_ns;
        let inside = |part: usize| begin(part) >= from && begin(part + 1) <= to;
        cells.iter().enumerate().filter(|(part, _)| inside(*part)).map(|(_, ns)| ns).sum()
    };
    let [sender, receiver] = &timeline.lanes[..] else { panic!("{timeline:?}") };
    // The receiver waits until the send begins, and then receives.
    assert_eq!(receiver.waiting_ns.iter().sum::<u64>(), 400_000);
    assert_eq!(within(&receiver.waiting_ns, 100_000 - 2_000, 500_000 + 2_000), 400_000);
    assert_eq!(receiver.point_to_point_ns.iter().sum::<u64>(), 200_000);
    assert_eq!(within(&receiver.point_to_point_ns, 500_000 - 2_000, 700_000 + 2_000), 200_000);
    assert_eq!(receiver.collective_ns.iter().sum::<u64>(), 100_000);
    assert_eq!(sender.waiting_ns.iter().sum::<u64>(), 0);
    assert_eq!(sender.point_to_point_ns.iter().sum::<u64>(), 100_000);
    assert_eq!(sender.other_ns.iter().sum::<u64>(), 0);
}

#[test]
fn completing_a_collective_is_not_point_to_point() {
    let dir = TempDir::new().unwrap();
    for rank in 0..2 {
        let mut made = Made::new(dir.path(), rank, 2);
        let request = made.begin(Call::Ibarrier, 100_000, 110_000, 0, 0, 0);
        made.wait(200_000, 300_000, &[request]);
        made.finish(1_000_000);
    }
    let (_, timeline) = profile_over_time(&open(dir.path()).unwrap(), 1).unwrap();
    for lane in timeline.unwrap().lanes {
        let sum = |cells: &[u64]| cells.iter().sum::<u64>();
        assert_eq!(sum(&lane.point_to_point_ns), 0);
        assert_eq!([&lane.completing_ns, &lane.collective_ns].map(|c| sum(c)), [100_000, 10_000]);
    }
}

#[test]
fn a_lane_of_a_timeline_ends_with_its_rank() {
    let dir = TempDir::new().unwrap();
    let (mut a, mut b) = (Made::new(dir.path(), 0, 2), Made::new(dir.path(), 1, 2));
    a.send(100_000, 200_000, 1, 100);
    b.recv(150_000, 300_000, 0, 100);
    a.finish(1_000_000);
    b.kill();
    let (profile, timeline) = profile_over_time(&open(dir.path()).unwrap(), 1).unwrap();
    let ends: Vec<u64> = timeline.unwrap().lanes.iter().map(|lane| lane.end_ns).collect();
    assert_eq!(ends, [1_000_000, 300_000]);
    assert_eq!(profile.by_rank[1].wall_s, 300e-6);
}

/// Nonblocking exchanges and reductions of several ranks.
fn exchanges(dir: &std::path::Path, ranks: u32, steps: u64) {
    for rank in 0..ranks {
        let mut made = Made::new(dir, rank, ranks);
        for step in 0..steps {
            let begin = step * 10_000 + u64::from(rank * 37 % 13) * 100;
            let (left, right) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
            let a = made.begin(Call::Irecv, begin, begin + 10, left as i32, 0, 4096);
            let b = made.begin(Call::Isend, begin + 20, begin + 30, right as i32, 0, 4096);
            made.wait(begin + 40, step * 10_000 + 5_000, &[a, b]);
            let enter = step * 10_000 + 5_100 + begin % 777;
            made.collective(Call::Allreduce, enter, step * 10_000 + 9_000, 0);
        }
        made.finish(steps * 10_000);
    }
}

#[test]
fn a_timeline_adds_up_to_the_profile_and_does_not_depend_on_threads() {
    let dir = TempDir::new().unwrap();
    exchanges(dir.path(), 5, 2_000);
    let program = open(dir.path()).unwrap();
    let (with, timeline) = profile_over_time(&program, 2).unwrap();
    let json = |profile: &Profile| serde_json::to_string(profile).unwrap();
    assert_eq!(json(&with), json(&profile(&program, 3).unwrap()));
    let timeline = timeline.unwrap();
    let again = profile_over_time(&program, 5).unwrap().1.unwrap();
    assert_eq!(serde_json::to_string(&timeline).unwrap(), serde_json::to_string(&again).unwrap());
    let sum = |cells: &[u64]| cells.iter().sum::<u64>();
    let waiting: u64 = timeline.lanes.iter().map(|lane| sum(&lane.waiting_ns)).sum();
    assert_eq!(waiting, with.waits.total_ns);
    let calls: u64 = timeline
        .lanes
        .iter()
        .flat_map(|lane| {
            [&lane.point_to_point_ns, &lane.completing_ns, &lane.collective_ns, &lane.other_ns]
        })
        .map(|cells| sum(cells))
        .sum();
    let time_s: f64 = with.calls.iter().map(|call| call.time_s).sum();
    assert_eq!(calls + waiting, (time_s * 1e9).round() as u64);
    // No part holds more than its length.
    for lane in &timeline.lanes {
        for part in 0..lane.waiting_ns.len() {
            let cells = [
                &lane.point_to_point_ns,
                &lane.completing_ns,
                &lane.collective_ns,
                &lane.other_ns,
                &lane.waiting_ns,
            ];
            assert!(cells.iter().map(|cells| cells[part]).sum::<u64>() <= timeline.part_ns);
        }
    }
}

#[test]
fn a_run_of_many_ranks_has_no_timeline() {
    let dir = TempDir::new().unwrap();
    exchanges(dir.path(), program::TIMELINE_RANKS as u32 + 1, 3);
    let (profile, timeline) = profile_over_time(&open(dir.path()).unwrap(), 2).unwrap();
    assert!(timeline.is_none() && profile.events > 0);
}
