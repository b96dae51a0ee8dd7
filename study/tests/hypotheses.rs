//! Questions about a program: those that have no answer are refused, named, and do not cost the others theirs.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use application::{Application, Step, Tape};
use mpi_abi::{Actual, Call, Entry, shape};
use study::{
    error::in_words,
    jobs::{
        app::{self, Sweep},
        hypotheses, replay,
    },
    noise,
    run::work::{Watch, Work},
};
use support::{BLANK, Made, message};
use tempfile::TempDir;

const US: u64 = 1_000;

fn traced(ranks: u32, write: impl Fn(u32, &mut Made) -> u64) -> TempDir {
    let dir = TempDir::new().unwrap();
    for rank in 0..ranks {
        let mut made = Made::new(dir.path(), rank, ranks);
        let end = write(rank, &mut made);
        made.finish(end);
    }
    dir
}

fn call(made: &mut Made, call: Call, peer: i32, tag: i32, at: [u64; 2]) {
    let entry = Entry { signature: message(call, peer, tag), bytes: 100, ..BLANK };
    made.call(at[0] * US, at[1] * US, entry);
}

/// Counts the runs of sweeps.
#[derive(Default)]
struct Runs(AtomicU64);

impl Watch for Runs {
    fn expect(&self, _total: u64) {}

    fn now(&self, _what: &str) {}

    fn advance(&self, _by: u64) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn remark(&self, _remark: &str) {}
}

/// The sweep, or why there is none, and how many runs it took.
fn asked(dir: &TempDir, questions: &[&str], ranks: &[u64]) -> (Result<Sweep, String>, u64) {
    let question = |text: &&str| hypotheses::parse(text).unwrap();
    let request = app::Request {
        source: app::Source::of(vec![dir.path().to_owned()]),
        parts: vec![app::Part::All],
        ranks: ranks.to_vec(),
        runs: 3,
        nets: vec![simulate::loggops::Params {
            latency: 1_000_000,
            eager_limit: 4_096,
            ..simulate::loggops::Params::FREE
        }],
        rendezvous: study::network::RENDEZVOUS,
        net_scales: vec![1.0],
        net_local: None,
        latency: None,
        with_coscheduled: false,
        blame: false,
        noise: noise::Request { noise: vec!["none".into()], ..noise::Request::default() },
        questions: questions.iter().map(question).collect(),
        sensitivity: false,
        resume: None,
    };
    let runs = Runs::default();
    let work = Work { seed: 1, threads: 2, memory: || 1 << 32, watch: &runs };
    let sweep = app::simulate(&request, &work).map_err(|error| in_words(&error));
    (sweep, runs.0.into_inner())
}

fn replayed(dir: &TempDir, question: &str) -> Result<replay::Replay, String> {
    let request = replay::Request {
        dir: dir.path().to_owned(),
        questions: vec![hypotheses::parse(question).unwrap()],
        deterministic: false,
        sleep: false,
    };
    request.load(1).map_err(|error| in_words(&error))
}

/// Two ranks that send to each other before they receive, with tag 17, and exchange without waiting, with tag 18.
fn swap() -> TempDir {
    traced(2, |rank, made| {
        let peer = 1 - rank as i32;
        call(made, Call::Send, peer, 17, [10, 11]);
        call(made, Call::Recv, peer, 17, [11, 12]);
        let receive = made.begin(Call::Irecv, 12 * US, 12 * US, peer, 18, 100);
        call(made, Call::Send, peer, 18, [12, 13]);
        made.wait(13 * US, 14 * US, &[receive]);
        20 * US
    })
}

#[test]
fn a_circle_is_refused_with_its_calls_before_anything_is_simulated() {
    let dir = swap();
    let (sweep, runs) = asked(&dir, &["resize tag 18 2", "resize tag 17 10000"], &[2, 64]);
    let simulated = sweep.unwrap_err();
    assert_eq!(runs, 0);
    let replay = replayed(&dir, "resize tag 17 10000").unwrap_err();
    let call = |call: &str, which: &str, peer: u32| {
        format!("MPI_{call} number 1 ({which} rank {peer}, tag 17, 1000000 bytes)")
    };
    for said in [&simulated, &replay] {
        assert!(said.contains("deadlock: rank 0: MPI_Send"), "{said}");
        for words in [
            call("Send", "to", 1),
            call("Recv", "from", 0),
            call("Send", "to", 0),
            call("Recv", "from", 1),
        ] {
            assert!(said.contains(&words), "{said} lacks {words}");
        }
        assert!(!said.contains("operation") && !said.contains("tag 0"), "{said}");
    }
    assert!(simulated.starts_with("--if 'resize tag 17 10000': "), "{simulated}");
}

#[test]
fn a_replay_does_not_rely_on_messages_that_grow_being_buffered() {
    let dir = swap();
    for question in ["resize tag 17 1", "resize tag 17 0.5", "resize tag 18 10000", "drop tag 17"] {
        replayed(&dir, question).unwrap();
    }
    assert!(replayed(&dir, "resize tag 17 2").is_err());
}

/// Rank 0 receives from any rank, and after a barrier from each: without the barrier it may take the second message of
/// one for the first of another.
fn wild() -> TempDir {
    traced(3, |rank, made| {
        const LATE: u64 = 3_000;
        made.name(1, "work");
        if rank == 2 {
            made.region(1, true, 0);
            made.region(1, false, LATE * US);
        }
        let arrives = match rank {
            0 => {
                for (from, at) in [(1, [10, 20]), (2, [20, LATE + 1])] {
                    let mut signature = message(Call::Recv, -1, 3);
                    signature.shape |= shape::OUTCOME;
                    let actual = Actual { source: Some(from), tag: None, bytes: Some(100) };
                    let entry = Entry { signature, bytes: 100, actual, ..BLANK };
                    made.call(at[0] * US, at[1] * US, entry);
                }
                LATE + 1
            }
            1 => {
                call(made, Call::Send, 0, 3, [10, 11]);
                11
            }
            _ => {
                call(made, Call::Send, 0, 3, [LATE, LATE]);
                LATE
            }
        };
        made.collective(Call::Barrier, arrives * US, (LATE + 3) * US, 0);
        match rank {
            0 => {
                for from in [1, 2] {
                    call(made, Call::Recv, from, 3, [LATE + 4, LATE + 5]);
                }
            }
            _ => call(made, Call::Send, 0, 3, [LATE + 3, LATE + 4]),
        }
        (LATE + 10) * US
    })
}

#[test]
fn an_impossible_question_of_auto_does_not_cost_the_others_their_answers() {
    let dir = wild();
    let sweep = asked(&dir, &["auto"], &[3, 6]).0.unwrap();
    let refused: Vec<(&str, u64)> =
        sweep.refused.iter().map(|refused| (refused.text.as_str(), refused.ranks)).collect();
    assert_eq!(refused, [("drop MPI_Barrier", 3), ("drop MPI_Barrier", 6)]);
    for refused in &sweep.refused {
        let reason = &refused.reason;
        assert!(reason.contains("MPI_Recv") && reason.contains("tag 3"), "{reason}");
        assert!(reason.contains("no matching send"), "{reason}");
    }
    let answered: Vec<&str> = sweep.hypotheses.iter().map(|tried| tried.text.as_str()).collect();
    for text in ["scale work 0.5", "balance work", "net-scale 10"] {
        assert_eq!(
            answered.iter().filter(|answered| **answered == text).count(),
            2,
            "{answered:?}"
        );
    }
    // Asked for by name, it is an error.
    let (sweep, runs) = asked(&dir, &["scale work 0.5", "drop MPI_Barrier"], &[3]);
    let said = sweep.unwrap_err();
    assert!(said.starts_with("--if 'drop MPI_Barrier': ") && runs == 0, "{said}, {runs} runs");
    assert!(said.contains("no matching send"), "{said}");
}

#[test]
fn changes_that_cannot_be_combined_are_answered_one_by_one() {
    let dir = traced(2, |rank, made| {
        let peer = 1 - rank as i32;
        match rank {
            0 => call(made, Call::Send, peer, 7, [100, 110]),
            _ => call(made, Call::Recv, peer, 7, [90, 112]),
        }
        200 * US
    });
    let sweep = asked(&dir, &["drop MPI_Send", "drop MPI_Recv"], &[2]).0.unwrap();
    let mut answered: Vec<&str> =
        sweep.hypotheses.iter().map(|tried| tried.text.as_str()).collect();
    answered.sort_unstable();
    assert_eq!(answered, ["drop MPI_Recv", "drop MPI_Send"]);
    let [refused] = &sweep.refused[..] else { panic!("{:?}", sweep.refused) };
    assert_eq!((refused.text.as_str(), refused.ranks), ("all together", 2));
    assert_eq!(
        refused.reason,
        "an earlier change removed what 'drop MPI_Recv' is about: the program does not call MPI_Recv"
    );
}

#[test]
fn after_a_call_is_refused_where_it_is_no_region() {
    for text in ["nonblocking after MPI_Send", "drop after MPI_Send"] {
        let said = hypotheses::parse(text).unwrap_err();
        assert!(said.contains("computation after a call"), "{said}");
    }
    assert!(hypotheses::parse("balance after MPI_Send").is_ok());
}

#[test]
fn a_region_of_one_rank_cannot_be_balanced_which_is_said() {
    let dir = wild();
    let sweep = asked(&dir, &["balance work", "balance after MPI_Init"], &[3]).0.unwrap();
    let note = |text: &str| {
        let tried = sweep.hypotheses.iter().find(|tried| tried.text == text).unwrap();
        tried.note.as_deref()
    };
    assert!(note("balance work").is_some_and(|note| note.contains("only 1 of 3 ranks")));
    assert_eq!(note("balance after MPI_Init"), None);
    let replay = replayed(&dir, "balance work").unwrap();
    assert!(replay.remarks.iter().any(|remark| remark.contains("only 1 of 3 ranks")));
}

/// Rules that change no collective of the program say so instead of showing a gain of 0.
#[test]
fn a_rule_that_changes_nothing_says_why() {
    let dir = traced(4, |_, made| {
        let sizes = [100_000, 0, 0, 0];
        made.collective(Call::Allreduce, 0, 10, 0);
        let mut signature = support::on_comm(Call::Allgatherv, 0);
        signature.shape |= shape::RECEIVED;
        made.call(20, 30, Entry { signature, got: &sizes, ..BLANK });
        30
    });
    let questions = [
        ("map alltoall=linear", "does not call"),
        ("map allreduce=recursive-doubling", "already"),
        ("map allgather=dissemination", "no algorithm to choose: nothing changes"),
        ("map allreduce=ring,allgather=dissemination", "no algorithm to choose (4 of 8 calls)"),
    ];
    for (question, expected) in questions {
        let sweep = asked(&dir, &[question], &[4]).0.unwrap();
        let note = sweep.hypotheses[0].note.clone().unwrap_or_default();
        assert!(note.contains(expected), "{question}: {note}");
    }
    let sweep = asked(&dir, &["map allreduce=ring"], &[4]).0.unwrap();
    assert_eq!(sweep.hypotheses[0].note, None);
}

/// One thread of rank 0 receives while another one sends what its answer depends on.
#[test]
fn threads_that_wait_for_each_other_are_named_as_the_reason() {
    let dir = traced(2, |rank, made| {
        let entry = |call, peer| Entry { signature: message(call, peer, 1), bytes: 8, ..BLANK };
        match rank {
            0 => {
                made.on_thread(0, 0, 100 * US, entry(Call::Recv, 1));
                made.on_thread(1, 10 * US, 11 * US, entry(Call::Send, 1));
            }
            _ => {
                made.call(0, 50 * US, entry(Call::Recv, 0));
                made.call(50 * US, 51 * US, entry(Call::Send, 0));
            }
        }
        100 * US
    });
    let error = asked(&dir, &[], &[2]).0.unwrap_err();
    assert!(error.contains("1 of its calls overlaps calls of other threads"), "{error}");
    assert!(error.contains("are not supported"), "{error}");
}

/// With a breakdown of the points, the unchanged program is twice in the CSV of waits: over all runs and in the first.
#[test]
fn the_csv_of_waits_tells_points_from_comparisons() {
    let dir = wild();
    let sweep = asked(&dir, &["scale work 0.5"], &[3]).0.unwrap();
    let csv = sweep.waits_csv();
    let mut lines = csv.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("ranks,if,") && head.ends_with(",series,role"), "{head}");
    for line in lines {
        let role = if line.starts_with("3,,") { "before" } else { "after" };
        assert!(line.ends_with(&format!(",{role}")), "{line}");
        assert_eq!(line.split(',').count(), head.split(',').count(), "{line}");
    }
}

/// A schedule with a message that is not received is not written.
#[test]
fn a_made_program_with_unmatched_messages_cannot_be_extrapolated() {
    let mpi = Call::Send.number();
    let send = Step::Send { to: 1, channel: 0, bytes: 8, request: u32::MAX, mpi };
    let tapes = vec![Tape { steps: vec![send], ..Tape::default() }, Tape::default()];
    let application = Application { tapes, ..Application::default() };
    let source = app::Source::of(vec!["run-2".into(), "run-4".into()]);
    let schedule = source.schedule(&application, 2, None, false).unwrap();
    let error = source.check_made(&application, &schedule, None).unwrap_err();
    let error = in_words(&error);
    assert!(error.contains("cannot extrapolate run-2, run-4 to 2 ranks"), "{error}");
    assert!(error.contains("no matching receive"), "{error}");
}
