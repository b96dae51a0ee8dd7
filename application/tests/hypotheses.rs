//! Hypotheses on programs whose times are known by hand, and what they do to each other.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use application::{
    Application, Group, Hypothesis, HypothesisError, NoNoise, Operation, Options, Place, Plan,
    Rules, Shares, Step, Tape, read,
};
use mpi_abi::{Actual, Call, Entry, Outcome, RequestItem, Signature, shape};
use proptest::prelude::*;
use simulate::{
    collectives::Op,
    event::{self, EventError},
    loggops::Params,
    noise::Noise,
};
use support::{BLANK, Made, completed, message};

const US: u64 = 1_000;

fn traced(ranks: u32, deterministic: bool, write: impl Fn(u32, &mut Made) -> u64) -> Application {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..ranks {
        let mut made = Made::new(dir.path(), rank, ranks);
        let end = write(rank, &mut made);
        made.finish(end);
    }
    let program = program::open(dir.path()).unwrap();
    let options = Options { as_traced: false, deterministic };
    read(&program, &program::Clocks::default(), &options, &NoNoise).unwrap()
}

/// When each rank ends, ps.
fn ends(application: &Application, net: &Params) -> Vec<i64> {
    run(application, net).unwrap()
}

fn run(application: &Application, net: &Params) -> Result<Vec<i64>, EventError> {
    let rules = Rules::default();
    let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: true, net: Some(net) };
    let schedule = application.schedule(&plan).unwrap();
    let options = event::Options::default();
    event::run(&schedule, net, &options, &Noise::none().run(0, 0)).map(|ended| ended.ends)
}

/// When each rank ends on a network that costs nothing, ns.
fn free(application: &Application) -> Vec<i64> {
    ends(application, &Params::FREE).into_iter().map(|ps| ps / 1_000).collect()
}

fn changed(application: &Application, hypotheses: &[Hypothesis]) -> Application {
    hypotheses.iter().fold(application.clone(), |changed, next| changed.under(next).unwrap())
}

fn region(name: &str) -> Place {
    Place::Region(name.to_owned())
}

fn call(made: &mut Made, call: Call, peer: i32, tag: i32, bytes: u64, at: [u64; 2]) {
    made.call(at[0], at[1], Entry { signature: message(call, peer, tag), bytes, ..BLANK });
}

fn pending(id: u64) -> RequestItem {
    RequestItem { id, outcome: Outcome::Pending, actual: Actual::AS_POSTED }
}

fn requests(made: &mut Made, call: Call, items: &[RequestItem], at: [u64; 2]) {
    let signature = Signature { shape: shape::REQUESTS, ..Signature::of(call) };
    let found = items.iter().any(|item| item.outcome != Outcome::Pending);
    made.call(at[0], at[1], Entry { signature, requests: items, found, ..BLANK });
}

#[test]
fn dropped_calls_take_their_time_with_them() {
    // 100 sends of 2 us each, 18 us of computation between them.
    let program = traced(2, false, |rank, made| {
        for time in 1..=100 {
            let begin = 20 * US * time;
            match rank {
                0 => call(made, Call::Send, 1, 17, 8, [begin, begin + 2 * US]),
                _ => call(made, Call::Recv, 0, 17, 8, [begin, begin + 2 * US]),
            }
        }
        2_002 * US
    });
    let net = Params { latency: 500_000, send_overhead: 300_000, ..Params::FREE };
    assert_eq!(ends(&program, &net)[0], 2_002_000_000);
    for hypothesis in [
        Hypothesis::DropTag(17),
        Hypothesis::DropCall(Call::Send),
        Hypothesis::DropCall(Call::Recv),
    ] {
        let without = changed(&program, std::slice::from_ref(&hypothesis));
        assert_eq!(ends(&without, &net), [1_802_000_000; 2], "{hypothesis:?}");
    }
}

/// Calls of several kinds with computation between them, in one region.
fn of_many_kinds(rank: u32, made: &mut Made) -> u64 {
    let peer = 1 - rank as i32;
    made.name(1, "all");
    made.region(1, true, 0);
    let receive = made.begin(Call::Irecv, 10 * US, 11 * US, peer, 5, 8);
    let send = made.begin(Call::Isend, 20 * US, 22 * US, peer, 5, 8);
    requests(made, Call::Test, &[pending(receive)], [30 * US, 31 * US]);
    requests(made, Call::Testsome, &[pending(receive), pending(send)], [40 * US, 41 * US]);
    requests(made, Call::Waitany, &[completed(receive), pending(send)], [50 * US, 51 * US]);
    made.wait(60 * US, 61 * US, &[send]);
    match rank {
        0 => call(made, Call::Send, peer, 6, 100, [70 * US, 73 * US]),
        _ => call(made, Call::Recv, peer, 6, 100, [70 * US, 73 * US]),
    }
    made.collective(Call::Allreduce, 80 * US, 83 * US, 0);
    made.region(1, false, 90 * US);
    90 * US
}

#[test]
fn dropping_everything_leaves_zero() {
    let net = Params { latency: 500_000, send_overhead: 100_000, ..Params::FREE };
    for deterministic in [false, true] {
        let program = traced(2, deterministic, of_many_kinds);
        assert!(ends(&program, &net).iter().all(|ps| *ps > 60_000_000));
        let region = changed(&program, &[Hypothesis::DropRegion("all".to_owned())]);
        assert_eq!(ends(&region, &net), [0; 2]);
        let drops = [Call::Isend, Call::Send, Call::Allreduce].map(Hypothesis::DropCall);
        let nothing = Hypothesis::Scale(self::region("all"), 0.0);
        let calls = changed(&program, &[&drops[..], &[nothing]].concat());
        assert_eq!(ends(&calls, &net), [0; 2], "deterministic: {deterministic}");
    }
}

#[test]
fn nothing_waits_for_a_dropped_message() {
    // 30 us before the send, 10 before the receive and 5 after it.
    let program = traced(2, false, |rank, made| match rank {
        0 => {
            call(made, Call::Send, 1, 17, 8, [30 * US, 30 * US]);
            30 * US
        }
        _ => {
            call(made, Call::Recv, 0, 17, 8, [10 * US, 30 * US]);
            35 * US
        }
    });
    assert_eq!(free(&program), [30_000, 35_000]);
    assert_eq!(free(&changed(&program, &[Hypothesis::DropTag(17)])), [30_000, 15_000]);
    let other = program.under(&Hypothesis::DropTag(18)).err();
    assert_eq!(other, Some(HypothesisError::NoTag { tag: 18 }));
}

#[test]
fn a_resized_message_takes_the_time_of_its_bytes() {
    let program = traced(2, false, |rank, made| {
        match rank {
            0 => call(made, Call::Send, 1, 17, 1_000, [10 * US, 10 * US]),
            _ => call(made, Call::Recv, 0, 17, 1_000, [0, 12 * US]),
        }
        12 * US
    });
    // 1 ns per byte.
    let net = Params { gap_per_byte_fs: 1_000_000, ..Params::FREE };
    let time = |factor: f64| ends(&changed(&program, &[Hypothesis::Resize(17, factor)]), &net)[1];
    assert_eq!(time(1.0), ends(&program, &net)[1]);
    assert_eq!(time(4.0) - time(1.0), 3_000_000);
    assert_eq!(time(1.0) - time(0.25), 750_000);
}

/// A receive with any tag has no tag to tell that its message grows.
#[test]
fn receives_with_any_tag_have_room_for_resized_messages() {
    let any = mpi_abi::tag::ANY;
    let program = traced(2, false, |rank, made| {
        match rank {
            0 => call(made, Call::Send, 1, 17, 1_000, [10 * US, 10 * US]),
            _ => call(made, Call::Recv, 0, any, 1_000, [0, 12 * US]),
        }
        12 * US
    });
    let net = Params { gap_per_byte_fs: 1_000_000, ..Params::FREE };
    let time = |factor: f64| ends(&changed(&program, &[Hypothesis::Resize(17, factor)]), &net)[1];
    assert_eq!(time(4.0) - time(1.0), 3_000_000);
    assert_eq!(time(1.0) - time(0.25), 750_000);
}

#[test]
fn a_receive_posted_early_does_not_hold_up_the_sender() {
    // A large message, which is sent when its receive is posted: after 50 us of computation.
    let program = traced(2, false, |rank, made| match rank {
        0 => {
            call(made, Call::Send, 1, 17, 1_000, [0, 50 * US]);
            60 * US
        }
        _ => {
            made.name(1, "step");
            made.region(1, true, 0);
            call(made, Call::Recv, 0, 17, 1_000, [50 * US, 50 * US]);
            made.region(1, false, 50 * US);
            70 * US
        }
    });
    let net = Params { eager_limit: 100, ..Params::FREE };
    assert_eq!(ends(&program, &net), [60_000_000, 70_000_000]);
    let early = changed(&program, &[Hypothesis::Nonblocking("step".to_owned())]);
    assert_eq!(ends(&early, &net), [10_000_000, 70_000_000]);
}

#[test]
fn what_cannot_be_changed_is_named_with_what_can() {
    let program = traced(2, false, |rank, made| {
        let peer = 1 - rank as i32;
        made.collective(Call::Allreduce, 5 * US, 6 * US, 0);
        match rank {
            0 => call(made, Call::Send, peer, 6, 8, [10 * US, 10 * US]),
            _ => {
                call(made, Call::Probe, peer, 6, 8, [7 * US, 10 * US]);
                call(made, Call::Recv, peer, 6, 8, [10 * US, 10 * US]);
            }
        }
        10 * US
    });
    let why = |hypothesis: Hypothesis| program.under(&hypothesis).unwrap_err().to_string();
    for (dropped, words) in [
        (Call::Probe, "waits for the message of the receive that follows"),
        (Call::Improbe, "waits for the message of the receive that follows"),
        (Call::Startall, "drop MPI_Start"),
        (Call::Send_init, "drop MPI_Start"),
        (Call::Wait, "completes requests"),
        (Call::Put, "counts as computation"),
        (Call::Bcast, "the program does not call MPI_Bcast"),
    ] {
        let said = why(Hypothesis::DropCall(dropped));
        assert!(said.contains(words) && said.contains(dropped.name()), "{said}");
    }
    let scaled = why(Hypothesis::Scale(region("MPI_Allreduce"), 0.5));
    for words in ["is a call, not a region", "map allreduce=", "after MPI_Allreduce"] {
        assert!(scaled.contains(words), "{scaled}");
    }
    let balanced = why(Hypothesis::Balance(region("MPI_Recv")));
    assert!(balanced.contains("drop MPI_Recv") && !balanced.contains("map "), "{balanced}");
}

#[test]
fn a_region_of_some_ranks_is_shared_by_those() {
    let program = traced(3, false, |rank, made| {
        made.name(1, "io");
        if rank < 2 {
            made.region(1, true, 0);
            made.region(1, false, 10 * US * (1 + u64::from(rank)));
        }
        40 * US
    });
    assert_eq!(program.shares(&region("io")), Some(Shares { with: 2, of: 3 }));
    assert_eq!(program.shares(&Place::After(Call::Init)), Some(Shares { with: 3, of: 3 }));
    assert_eq!(program.shares(&region("nowhere")), None);
    let balanced = changed(&program, &[Hypothesis::Balance(region("io"))]);
    assert_eq!(free(&balanced), [45_000, 35_000, 40_000]);
}

/// A part of a random program, in an order in which it cannot deadlock.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute { rank: u32, ps: i64 },
    Message { from: u32, to: u32, tag: u32, bytes: u64 },
    Allreduce,
}

const RANKS: u32 = 3;
/// The regions `a` and `b`, and outside of both.
const REGIONS: u32 = 3;

fn acts() -> impl Strategy<Value = Vec<(Act, u32)>> {
    let rank = 0..RANKS;
    let act = prop_oneof![
        4 => (rank.clone(), 1..50_000_000i64).prop_map(|(rank, ps)| Act::Compute { rank, ps }),
        4 => (rank, 1..RANKS, 1..4u32, 0..5_000u64).prop_map(|(from, further, tag, bytes)| {
            Act::Message { from, to: (from + further) % RANKS, tag, bytes }
        }),
        1 => Just(Act::Allreduce),
    ];
    prop::collection::vec((act, 0..REGIONS), 1..60)
}

fn made(acts: &[(Act, u32)]) -> Application {
    let mut tapes = vec![Tape::default(); RANKS as usize];
    let mut inside = [2; RANKS as usize];
    let after = Call::Send.number();
    let mut push = |tapes: &mut Vec<Tape>, rank: u32, region: u32, step: Step| {
        let (tape, inside) = (&mut tapes[rank as usize], &mut inside[rank as usize]);
        if *inside != region {
            if *inside < 2 {
                tape.steps.push(Step::End { region: *inside });
            }
            if region < 2 {
                tape.steps.push(Step::Begin { region });
            }
            *inside = region;
        }
        tape.steps.push(step);
    };
    for (number, (act, region)) in (0..).zip(acts) {
        match *act {
            Act::Compute { rank, ps } => {
                push(&mut tapes, rank, *region, Step::Compute { ps, taken_ps: 0, after });
            }
            Act::Message { from, to, tag: channel, bytes } => {
                let request = u32::MAX;
                let mpi = Call::Send.number();
                push(&mut tapes, from, *region, Step::Send { to, channel, bytes, request, mpi });
                let mpi = Call::Recv.number();
                push(&mut tapes, to, *region, Step::Receive { from, channel, bytes, request, mpi });
            }
            Act::Allreduce => {
                for rank in 0..RANKS {
                    let operation = Operation::Regular { op: Op::Allreduce, bytes: 8, root: 0 };
                    let (channel, mpi) = (1_000 + number, Call::Allreduce.number());
                    let calls = &mut tapes[rank as usize].calls;
                    let call = calls.len() as u32;
                    calls.push(application::Call { operation, group: 0, rank, channel, mpi });
                    let step = Step::Collective { call, request: u32::MAX };
                    push(&mut tapes, rank, *region, step);
                }
            }
        }
    }
    let mut application = Application {
        tapes,
        groups: vec![Group { key: 1, members: (0..RANKS).collect() }],
        regions: vec!["a".to_owned(), "b".to_owned()],
        ..Application::default()
    };
    application.tags.extend((1..4).map(|tag| (tag, tag as i32)));
    application
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Changes of different things, and the same change of different sizes.
    #[test]
    fn hypotheses_commute(acts in acts()) {
        let program = made(&acts);
        let all = [
            Hypothesis::Scale(region("a"), 2.0),
            Hypothesis::Scale(region("a"), 3.0),
            Hypothesis::Balance(region("b")),
            Hypothesis::DropRegion("a".to_owned()),
            Hypothesis::DropTag(1),
            Hypothesis::DropTag(2),
            Hypothesis::DropCall(Call::Allreduce),
            Hypothesis::Resize(2, 4.0),
            Hypothesis::Resize(3, 0.5),
            Hypothesis::Nonblocking("b".to_owned()),
        ];
        let net = Params {
            latency: 1_000_000,
            send_overhead: 100_000,
            recv_overhead: 100_000,
            gap_per_byte_fs: 1_000_000,
            ..Params::FREE
        };
        for (place, one) in all.iter().enumerate() {
            for other in &all[..place] {
                let both = |first, second| {
                    program.under(first).and_then(|changed| changed.under(second))
                };
                // The first one may remove what the second one is about.
                let (Ok(forth), Ok(back)) = (both(one, other), both(other, one)) else { continue };
                prop_assert_eq!(ends(&forth, &net), ends(&back, &net), "{:?}, {:?}", one, other);
            }
        }
    }
}
