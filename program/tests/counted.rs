//! What counts, in the order of messages and collectives and in bytes: calls made while recording is switched off,
//! calls that fail, and the sizes that calls are given.

mod support;

use mpi_abi::{Abi, Actual, Call, Entry, Outcome, RequestItem, Signature, present, rank, shape};
use program::{LostSums, Profile, open, profile};
use support::{BLANK, HostClock, Made, completed, header, message, on_comm};
use tempfile::TempDir;

/// `MPI_ERR_TRUNCATE`, `MPI_ERR_TAG` and `MPI_ERR_OTHER` of Open MPI.
const TRUNCATED: i32 = 15;
const REFUSED: i32 = 4;
const OTHER: i32 = 16;

fn two(make: impl FnOnce(&mut Made, &mut Made)) -> Profile {
    let dir = TempDir::new().unwrap();
    let (mut a, mut b) = (Made::new(dir.path(), 0, 2), Made::new(dir.path(), 1, 2));
    make(&mut a, &mut b);
    a.finish(1_000_000);
    b.finish(1_000_000);
    profile(&open(dir.path()).unwrap(), 2).unwrap()
}

fn pairs(profile: &Profile) -> Vec<(u32, u32, &str, u64)> {
    let pairs = profile.waits.pairs.iter();
    pairs.map(|pair| (pair.waiting, pair.late, pair.class, pair.wait_ns)).collect()
}

fn bytes(profile: &Profile, name: &str) -> u64 {
    profile.calls.iter().find(|call| call.name == name).map_or(0, |call| call.bytes)
}

fn allreduce() -> Entry<'static> {
    Entry { signature: on_comm(Call::Allreduce, 0), bytes: 8, ..BLANK }
}

/// Rank 1 is always late; the first allreduce is made by rank 0 while recording is switched off.
fn late_at_every_allreduce(a: &mut Made, b: &mut Made, kept: bool) {
    a.switch(false, 500);
    if kept {
        a.keeps_off();
        a.off(1_000, 6_000, allreduce());
    }
    a.switch(true, 6_500);
    b.call(5_000, 6_000, allreduce());
    for step in 1..10 {
        let base = step * 10_000;
        a.call(base + 1_000, base + 6_000, allreduce());
        b.call(base + 5_000, base + 6_000, allreduce());
    }
}

#[test]
fn a_collective_made_while_recording_is_off_keeps_the_later_ones_in_step() {
    let profile = two(|a, b| late_at_every_allreduce(a, b, true));
    assert_eq!(pairs(&profile), [(0, 1, "collective", 9 * 4_000)]);
    let lost = LostSums { switched_off_ranks: 1, switched_off_calls: 1, ..LostSums::default() };
    assert_eq!(profile.lost, lost);
    let row = profile.calls.iter().find(|call| call.name == "MPI_Allreduce").unwrap();
    assert_eq!((row.count, row.bytes), (19, 19 * 8));
    assert_eq!(profile.by_rank[0].calls, 9);
}

#[test]
fn a_rank_that_was_switched_off_in_an_older_file_is_not_joined_afterwards() {
    let profile = two(|a, b| late_at_every_allreduce(a, b, false));
    assert_eq!(pairs(&profile), []);
    assert_eq!((profile.lost.switched_off_ranks, profile.lost.switched_off_calls), (1, 0));
    assert_eq!(profile.lost.incomplete_collectives, 10);
}

#[test]
fn messages_sent_and_received_while_recording_is_off_keep_the_later_ones_in_step() {
    let profile = two(|a, b| {
        a.keeps_off();
        b.keeps_off();
        for step in 0..10u64 {
            let (base, size) = (step * 10_000, 4096 + step);
            let send = Entry { signature: message(Call::Send, 1, 0), bytes: size, ..BLANK };
            let recv = Entry { signature: message(Call::Recv, 0, 0), bytes: size, ..BLANK };
            // Off at the receiver, at the sender, at both.
            match step {
                1 | 3 => a.off(base + 5_000, base + 6_000, send),
                _ => a.call(base + 5_000, base + 6_000, send),
            }
            match step {
                0 | 3 => b.off(base + 1_000, base + 6_000, recv),
                _ => b.call(base + 1_000, base + 6_000, recv),
            }
        }
    });
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 8 * 4_000)]);
    assert_eq!(profile.lost, LostSums { switched_off_calls: 4, ..LostSums::default() });
    let all: u64 = (0..10).map(|step| 4096 + step).sum();
    assert_eq!(profile.messages, 8);
    assert_eq!(bytes(&profile, "MPI_Send"), all - 2 * 4096 - 1 - 3);
    assert_eq!(bytes(&profile, "MPI_Recv"), all - 2 * 4096 - 3);
    assert_eq!(profile.matrix.bytes[0][1], bytes(&profile, "MPI_Send"));
    assert_eq!(profile.by_rank[1].received_bytes, bytes(&profile, "MPI_Recv"));
    assert_eq!(profile.communicators[0].calls, 16);
}

#[test]
fn a_wildcard_that_completes_while_recording_is_off_takes_its_message() {
    let profile = two(|a, b| {
        b.keeps_off();
        let wild = b.begin(Call::Irecv, 100, 110, rank::ANY, 0, 10);
        a.send(1_000, 1_100, 1, 10);
        let actual = Actual { source: Some(0), ..Actual::AS_POSTED };
        let requests = [RequestItem { actual, ..completed(wild) }];
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Wait) };
        b.switch(false, 200);
        b.off(500, 1_200, Entry { signature, requests: &requests, ..BLANK });
        b.switch(true, 1_300);
        a.send(5_000, 5_100, 1, 20);
        b.recv(2_000, 5_200, 0, 20);
    });
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 3_000)]);
    assert_eq!((profile.lost.different_sizes, profile.lost.unmatched_messages), (0, 0));
    assert_eq!(bytes(&profile, "MPI_Irecv"), 10);
}

#[test]
fn a_receive_behind_a_wildcard_that_nobody_saw_complete_is_not_joined() {
    // The wildcard may have taken the first message from rank 0.
    let profile = two(|a, b| {
        a.send(1_000, 1_100, 1, 10);
        a.send(5_000, 5_100, 1, 20);
        b.begin(Call::Irecv, 100, 110, rank::ANY, 0, 10);
        b.recv(2_000, 5_200, 0, 20);
    });
    assert_eq!(pairs(&profile), []);
    assert_eq!(profile.lost.different_sizes, 0);
    assert_eq!(profile.lost.unmatched_messages, 3);
}

/// Two messages of which the first receive fails.
fn with_failed(error: i32, received: bool) -> Profile {
    two(|a, b| {
        a.send(1_000, 1_100, 1, 50);
        a.send(15_000, 15_100, 1, 20);
        let signature = message(Call::Recv, 0, 0);
        b.call(500, 2_000, Entry { signature, bytes: 10, error, ..BLANK });
        if !received {
            b.recv(2_100, 2_200, 0, 50);
        }
        b.recv(10_000, 16_000, 0, 20);
    })
}

#[test]
fn a_truncated_receive_has_taken_its_message() {
    let profile = with_failed(TRUNCATED, true);
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 500 + 5_000)]);
    assert_eq!((profile.lost.unmatched_messages, profile.lost.different_sizes), (0, 1));
    assert_eq!(profile.calls.iter().map(|call| call.errors).sum::<u64>(), 1);
}

#[test]
fn a_receive_whose_arguments_were_refused_has_taken_none() {
    let profile = with_failed(REFUSED, false);
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 5_000)]);
    assert_eq!(profile.lost, LostSums::default());
}

#[test]
fn behind_a_receive_that_failed_otherwise_a_channel_is_not_joined() {
    for received in [true, false] {
        let profile = with_failed(OTHER, received);
        assert_eq!(pairs(&profile), []);
        assert!(profile.lost.unmatched_messages > 0);
    }
}

#[test]
fn error_codes_are_those_of_the_library() {
    let dir = TempDir::new().unwrap();
    let mut b = None;
    for rank in 0..2 {
        let header =
            mpi_abi::FileHeader { abi: Abi::Mpich, ..header(rank, 2, HostClock::default()) };
        let ticks = program::write::Ticks::NS;
        let mut made = Made::with(dir.path(), header, HostClock::default(), ticks);
        if rank == 0 {
            made.send(1_000, 1_100, 1, 50);
            made.send(15_000, 15_100, 1, 20);
            made.finish(20_000);
        } else {
            b = Some(made);
        }
    }
    let mut b = b.unwrap();
    // Class 14 with the instance of the error in the higher bits.
    let signature = message(Call::Recv, 0, 0);
    b.call(500, 2_000, Entry { signature, bytes: 10, error: 0x2a_0f0e, ..BLANK });
    b.recv(10_000, 16_000, 0, 20);
    b.finish(20_000);
    let profile = profile(&open(dir.path()).unwrap(), 1).unwrap();
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 500 + 5_000)]);
}

#[test]
fn a_collective_that_failed_keeps_the_later_ones_in_step() {
    let profile = two(|a, b| {
        for (made, late) in [(a, 0), (b, 4_000)] {
            made.call(1_000 + late, 6_000, Entry { error: OTHER, ..allreduce() });
            made.call(11_000 + late, 16_000, allreduce());
        }
    });
    assert_eq!(pairs(&profile), [(0, 1, "collective", 2 * 4_000)]);
    assert_eq!(profile.lost, LostSums::default());
}

#[test]
fn what_a_failed_wait_has_completed_has_arrived() {
    let profile = two(|a, b| {
        a.send(1_000, 1_100, 1, 50);
        a.send(5_000, 5_100, 1, 60);
        let first = b.begin(Call::Irecv, 100, 110, 0, 0, 10);
        let second = b.begin(Call::Irecv, 120, 130, 0, 0, 100);
        let actual = Actual { bytes: Some(60), ..Actual::AS_POSTED };
        let items = [completed(first), RequestItem { actual, ..completed(second) }];
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitall) };
        b.call(2_000, 6_000, Entry { signature, requests: &items, error: 18, ..BLANK });
    });
    assert_eq!(pairs(&profile), [(1, 0, "late sender", 3_000)]);
    assert_eq!(profile.lost.unmatched_messages, 0);
    assert_eq!(bytes(&profile, "MPI_Irecv"), 10 + 60);
}

#[test]
fn the_same_data_has_the_same_bytes_in_a_vector_collective() {
    let profile = two(|a, b| {
        for (place, made) in [a, b].into_iter().enumerate() {
            // Rank 0 has neighbours on both sides, of which one does not exist; rank 1 sends to none.
            let destinations: &[i32] = if place == 0 { &[1, rank::PROC_NULL, 1] } else { &[] };
            made.neighbours(0, &[], destinations);
            let root = place == 0;
            let mut at = 1_000;
            let mut call = |call: Call, bytes: u64, rooted: bool, sent: &[u64]| {
                let mut signature = on_comm(call, 0);
                if rooted {
                    signature.present |= present::PEER;
                }
                if !sent.is_empty() {
                    signature.shape |= shape::SENT;
                }
                made.call(at, at + 500, Entry { signature, bytes, sent, ..BLANK });
                at += 1_000;
            };
            call(Call::Scatter, if root { 100 } else { 0 }, true, &[]);
            call(
                Call::Scatterv,
                if root { 200 } else { 0 },
                true,
                if root { &[100; 2] } else { &[] },
            );
            call(Call::Neighbor_alltoall, 100, false, &[]);
            let (sum, sent): (u64, &[u64]) = if root { (300, &[100; 3]) } else { (0, &[]) };
            call(Call::Neighbor_alltoallv, sum, false, sent);
            call(Call::Neighbor_allgather, 100, false, &[]);
            call(Call::Reduce_scatter_block, 100, false, &[]);
            call(Call::Alltoall, 100, false, &[]);
            call(Call::Allgather, 100, false, &[]);
        }
    });
    for (name, expected) in [
        ("MPI_Scatter", 200),
        ("MPI_Scatterv", 200),
        ("MPI_Neighbor_alltoall", 200),
        ("MPI_Neighbor_alltoallv", 200),
        ("MPI_Neighbor_allgather", 100),
        ("MPI_Reduce_scatter_block", 400),
        ("MPI_Alltoall", 400),
        ("MPI_Allgather", 200),
    ] {
        assert_eq!(bytes(&profile, name), expected, "{name}");
    }
}

#[test]
fn a_message_to_nobody_and_the_size_of_a_window_are_no_bytes() {
    let profile = two(|a, b| {
        for made in [a, b] {
            made.send(1_000, 1_100, rank::PROC_NULL, 40);
            made.begin(Call::Isend, 1_200, 1_300, rank::PROC_NULL, 0, 40);
            made.collective(Call::Win_allocate, 2_000, 3_000, 0);
        }
    });
    for call in &profile.calls {
        assert_eq!(call.bytes, 0, "{}", call.name);
    }
    assert_eq!(profile.calls.len(), 3);
    assert_eq!(profile.communicators[0].bytes, 0);
}

#[test]
fn bytes_of_persistent_requests_are_those_of_the_call_that_made_them() {
    let profile = two(|a, b| {
        for (place, made) in [a, b].into_iter().enumerate() {
            let peer = 1 - place as i32;
            let begun = [
                made.begin(Call::Send_init, 10, 20, peer, 0, 17),
                made.begin(Call::Recv_init, 30, 40, peer, 0, 100),
                made.request,
            ];
            let signature = Signature { shape: shape::BEGUN, ..on_comm(Call::Alltoall_init, 0) };
            made.call(50, 60, Entry { signature, bytes: 8, begun: made.request, ..BLANK });
            for step in 1..=3 {
                let base = step * 10_000;
                let signature =
                    Signature { shape: shape::REQUESTS, ..Signature::of(Call::Startall) };
                let started = |id| RequestItem { outcome: Outcome::Started, ..completed(id) };
                let items = begun.map(started);
                made.call(base, base + 50, Entry { signature, requests: &items, ..BLANK });
                let actual = Actual { bytes: Some(17), ..Actual::AS_POSTED };
                let mut items = begun.map(completed);
                items[1].actual = actual;
                made.complete(base + 100, base + 200, &items);
            }
        }
    });
    let rows = ["MPI_Send_init", "MPI_Recv_init", "MPI_Alltoall_init", "MPI_Startall"];
    assert_eq!(rows.map(|name| bytes(&profile, name)), [2 * 51, 2 * 51, 2 * 3 * 16, 0]);
    assert_eq!(profile.lost, LostSums::default());
}

/// Rank 0 tests for 100 us whether a message is there, in a region; each test takes 60 of 100 ns.
fn polls(counted: bool) -> Profile {
    two(|a, b| {
        a.name(1, "poll");
        a.region(1, true, 1_000);
        let request = a.begin(Call::Irecv, 1_000, 1_010, 1, 0, 8);
        let test = |made: &mut Made, place: u64| {
            let end = 2_000 + 100 * place;
            made.fails(Call::Test, end - 60, end, &[request]);
        };
        test(a, 0);
        if counted {
            a.repeat(1, [1_000, 100_000, 60_000]);
        } else {
            (1..=1_000).for_each(|place| test(a, place));
        }
        a.wait(102_100, 102_200, &[request]);
        a.region(1, false, 103_000);
        b.send(101_000, 101_100, 0, 8);
    })
}

#[test]
fn tests_that_were_only_counted_are_in_every_sum() {
    let (counted, written) = (polls(true), polls(false));
    let row = |profile: &Profile| {
        let row = profile.calls.iter().find(|call| call.name == "MPI_Test").unwrap();
        (row.count, (row.time_s * 1e9).round())
    };
    assert_eq!(row(&counted), (1_001, 60_060.0));
    assert_eq!(row(&written), row(&counted));
    assert_eq!(counted.events, written.events);
    assert_eq!(counted.lost, LostSums::default());
    let regions = |profile: &Profile| -> Vec<(f64, f64)> {
        let ns = |s: f64| (s * 1e9).round();
        profile.regions.iter().map(|row| (ns(row.time_s), ns(row.mpi_s))).collect()
    };
    assert_eq!(regions(&counted), regions(&written));
    // Over the run, too, but for the edges of its parts.
    let (a, b) = (&counted.pattern, &written.pattern);
    for (a, b) in a.share_pct.iter().zip(&b.share_pct) {
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 2.0, "{a} and {b} %");
        }
    }
    // Counting a test costs less than writing it.
    assert!(counted.collector.ns_per_call < 0.2 * written.collector.ns_per_call);
}
