//! The part of a rank as instructions, and hypotheses on programs made by hand.

use application::{
    Application, Call, Candidate, Group, Hypothesis, HypothesisError, Operation, Place, Play,
    ReplayError, Step, Tape,
};
use mpi_abi::{
    Call as MpiCall,
    script::{ANY, Act, FIRST_GROUP, HEAD_WORDS, Head, Instruction, WORDS},
};
use simulate::{collectives::Op, event::Test};

const NONE: u32 = u32::MAX;
const US: i64 = 1_000_000;

fn compute(ps: i64) -> Step {
    Step::Compute { ps, taken_ps: 0, after: 0 }
}

fn send(to: u32, channel: u32, bytes: u64, request: u32, call: MpiCall) -> Step {
    Step::Send { to, channel, bytes, request, mpi: call.number() }
}

fn receive(from: u32, channel: u32, bytes: u64, request: u32, call: MpiCall) -> Step {
    Step::Receive { from, channel, bytes, request, mpi: call.number() }
}

fn program(tapes: Vec<Tape>) -> Application {
    let members = (0..tapes.len() as u32).collect();
    let mut application = Application {
        tapes,
        groups: vec![Group { key: 1, members }],
        regions: vec!["foo".to_owned()],
        ..Application::default()
    };
    application.tags.insert(0, 17);
    application
}

fn tape(requests: u32, steps: Vec<Step>) -> Tape {
    Tape { steps, requests, ..Tape::default() }
}

/// The instructions of a rank, and its lists.
fn script(application: &Application, rank: u32) -> (Head, Vec<Instruction>, Vec<u32>) {
    let play = Play { call_ns: 50, ticks: 1 << 32, ..Play::default() };
    let words = application.script(rank, &play).unwrap();
    let head = Head::from_words(*words.first_chunk::<HEAD_WORDS>().unwrap());
    assert_eq!(head.total(), Some(words.len() as u64));
    let (own, rest) = words[HEAD_WORDS..].split_at(head.instructions as usize * WORDS);
    let instructions =
        own.chunks(WORDS).map(|words| Instruction::from_words(words.try_into().unwrap()).unwrap());
    let lists = rest.iter().take(head.lists.div_ceil(2) as usize);
    let lists = lists.flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
    (head, instructions.collect(), lists)
}

#[test]
fn a_call_that_sends_and_receives_is_one_call_again() {
    let mpi = MpiCall::Sendrecv;
    let steps = |peer| {
        vec![
            compute(3 * US),
            receive(peer, 0, 100, 0, mpi),
            send(peer, 0, 200, 1, mpi),
            Step::Wait { request: 1 },
            Step::Wait { request: 0 },
        ]
    };
    let application = program(vec![tape(2, steps(1)), tape(2, steps(0))]);
    let (_, instructions, _) = script(&application, 0);
    let acts: Vec<Act> = instructions.iter().map(|one| one.act).collect();
    assert_eq!(acts, [Act::Compute, Act::Sendrecv, Act::Irecv]);
    // What recording costs was part of the time between two calls.
    assert_eq!(instructions[0].bytes, 3_000 - 50);
    let [_, out, into] = instructions[..] else { panic!("{instructions:?}") };
    assert_eq!((out.peer, out.tag, out.bytes), (1, 17, 200));
    assert_eq!((into.peer, into.tag, into.bytes), (1, 17, 100));
}

#[test]
fn waits_side_by_side_are_one_wait_for_all() {
    let steps = vec![
        receive(1, 0, 10, 0, MpiCall::Irecv),
        receive(1, 0, 10, 1, MpiCall::Irecv),
        Step::Wait { request: 1 },
        Step::Wait { request: 0 },
        compute(US),
        receive(1, 0, 10, 1, MpiCall::Irecv),
        Step::Wait { request: 1 },
    ];
    let application = program(vec![tape(2, steps), tape(0, vec![])]);
    let (head, instructions, lists) = script(&application, 0);
    let all = instructions.iter().find(|one| one.act == Act::Waitall).unwrap();
    assert_eq!(lists[all.place as usize..][..all.bytes as usize], [1, 0]);
    assert_eq!(instructions.last().map(|one| (one.act, one.request)), Some((Act::Wait, 1)));
    // Each request has a buffer of its own.
    let places: Vec<u64> = instructions[..2].iter().map(|one| one.place).collect();
    assert!(places[0] != places[1] && head.buffers >= 20, "{places:?} {head:?}");
}

/// One that nobody waits for has a buffer of its own: it takes its message at any time.
#[test]
fn a_receive_that_nobody_waits_for_is_freed_at_once() {
    let steps = vec![
        receive(1, 0, 500, 0, MpiCall::Irecv),
        receive(1, 0, 10, 0, MpiCall::Irecv),
        Step::Wait { request: 0 },
    ];
    let application = program(vec![tape(1, steps), tape(0, vec![])]);
    let (head, instructions, _) = script(&application, 0);
    let [freed, received, wait] = instructions[..] else { panic!("{instructions:?}") };
    assert_eq!([freed.act, received.act, wait.act], [Act::Abandoned, Act::Irecv, Act::Wait]);
    assert!(freed.place + 500 <= head.buffers && received.place + 10 <= head.buffers);
    assert!(freed.place + 500 <= received.place || received.place + 10 <= freed.place);
}

#[test]
fn the_requests_that_were_complete_in_the_trace_come_first() {
    let candidate = |slot, done| Candidate { parts: [NONE, slot], done };
    let mut own = tape(
        3,
        vec![
            Step::Choose { first: 0, count: 3, test: Test::All, ps: 0 },
            Step::Choose { first: 3, count: 2, test: Test::Some, ps: US },
            Step::Choose { first: 5, count: 1, test: Test::All, ps: US },
        ],
    );
    own.candidates = vec![
        candidate(0, false),
        candidate(1, true),
        candidate(2, false),
        candidate(0, false),
        candidate(2, false),
        candidate(2, false),
    ];
    let (_, instructions, lists) = script(&program(vec![own]), 0);
    let acts: Vec<Act> = instructions.iter().map(|one| one.act).collect();
    assert_eq!(acts, [Act::Waitany, Act::Testsome, Act::Test]);
    let list = |one: &Instruction| &lists[one.place as usize..][..one.bytes as usize];
    assert_eq!((list(&instructions[0]), instructions[0].tag), (&[1, 0, 2][..], 1));
    assert_eq!((list(&instructions[1]), instructions[1].tag), (&[0, 2][..], 0));
    assert_eq!(instructions[2].request, 2);
}

#[test]
fn a_wildcard_has_room_for_every_message() {
    let first = tape(0, vec![receive(NONE, NONE, 10, NONE, MpiCall::Recv)]);
    let sender = |bytes| tape(0, vec![send(0, 0, bytes, NONE, MpiCall::Send)]);
    let application = program(vec![first, sender(10), sender(5_000)]);
    let (head, instructions, _) = script(&application, 0);
    let [one] = instructions[..] else { panic!("{instructions:?}") };
    assert_eq!((one.act, one.peer, one.tag, one.bytes), (Act::Recv, ANY, ANY, 5_000));
    assert!(head.buffers >= one.place + 5_000);
}

#[test]
fn collectives_are_called_on_communicators_with_their_members() {
    let call = |operation| Call { operation, group: 0, rank: 1, channel: 0, mpi: 0 };
    let mut own = tape(
        1,
        vec![
            Step::Collective { call: 0, request: NONE },
            Step::Collective { call: 1, request: 0 },
            Step::Wait { request: 0 },
        ],
    );
    own.calls = vec![
        call(Operation::Regular { op: Op::Allgather, bytes: 8, root: 0 }),
        call(Operation::Rooted { towards: true, root: 1, bytes: 3, sizes: vec![2, 3] }),
    ];
    let (head, instructions, lists) = script(&program(vec![tape(0, vec![]), own]), 1);
    assert_eq!((head.groups, &lists[..3]), (1, &[2, 0, 1][..]));
    let [gather, vector, wait] = instructions[..] else { panic!("{instructions:?}") };
    assert_eq!((gather.act, gather.comm, gather.bytes), (Act::Allgather, FIRST_GROUP, 8));
    assert_eq!((vector.act, vector.peer, vector.bytes, vector.request), (Act::Gatherv, 1, 3, 0));
    // After the place of the buffer: counts, then displacements.
    assert_eq!(lists[vector.place as usize + 2..][..4], [2, 3, 0, 2]);
    assert_eq!(wait.act, Act::Wait);
    assert!(head.buffers >= 16);
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let large = tape(0, vec![send(0, 0, 1 << 31, NONE, MpiCall::Send)]);
    let application = program(vec![large]);
    assert_eq!(application.check_replay(), Err(ReplayError::TooLarge { rank: 0, bytes: 1 << 31 }));
    let mut application = program(vec![tape(0, vec![])]);
    application.assumed.one_sided = 2;
    assert_eq!(application.check_replay(), Err(ReplayError::OneSided { calls: 2 }));
}

fn foo() -> Place {
    Place::Region("foo".to_owned())
}

fn in_foo(times: &[&[i64]]) -> Tape {
    let mut steps = Vec::new();
    for parts in times {
        steps.push(Step::Begin { region: 0 });
        steps.extend(parts.iter().map(|ps| compute(*ps)));
        steps.push(Step::End { region: 0 });
    }
    tape(0, steps)
}

fn computed(tape: &Tape) -> i64 {
    let ps = |step: &Step| match step {
        Step::Compute { ps, .. } => *ps,
        _ => 0,
    };
    tape.steps.iter().map(ps).sum()
}

#[test]
fn balancing_keeps_the_sum_even_if_a_rank_does_not_compute_each_time() {
    // The second rank enters twice and computes the second time only.
    let application = program(vec![in_foo(&[&[6 * US], &[1, 3]]), in_foo(&[&[], &[8]])]);
    let balanced = application.under(&Hypothesis::Balance(foo())).unwrap();
    let times: Vec<i64> = balanced.tapes.iter().map(computed).collect();
    assert_eq!(times, [6 * US + 6, 6]);
}

#[test]
fn what_changes_nothing_changes_not_a_bit() {
    let application = program(vec![in_foo(&[&[7, 5], &[1, 3]]), in_foo(&[&[12], &[2, 2]])]);
    for hypothesis in [Hypothesis::Balance(foo()), Hypothesis::Scale(foo(), 1.0)] {
        let changed = application.under(&hypothesis).unwrap();
        assert_eq!(changed.tapes, application.tapes, "{hypothesis:?}");
    }
    let gone = application.under(&Hypothesis::DropRegion("foo".to_owned())).unwrap();
    assert!(gone.tapes.iter().all(|tape| tape.steps.is_empty()));
}

#[test]
fn a_call_that_only_completes_requests_is_not_dropped_silently() {
    let steps = vec![
        receive(0, 0, 1, 0, MpiCall::Irecv),
        send(0, 0, 1, NONE, MpiCall::Send),
        Step::Wait { request: 0 },
        Step::Compute { ps: US, taken_ps: 0, after: MpiCall::Waitall.number() },
    ];
    let application = program(vec![tape(1, steps)]);
    let dropped = application.under(&Hypothesis::DropCall(MpiCall::Waitall));
    let name = "MPI_Waitall".to_owned();
    assert_eq!(dropped.err(), Some(HypothesisError::OnlyCompletes { name }));
    // Without the receive, neither its send nor its wait remains.
    let dropped = application.under(&Hypothesis::DropCall(MpiCall::Irecv)).unwrap();
    assert!(matches!(dropped.tapes[0].steps[..], [Step::Compute { .. }]));
}
