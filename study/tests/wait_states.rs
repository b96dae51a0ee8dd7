//! Wait states of simulated programs: known answers by hand, and that every list adds up to the waiting time, which is
//! calculated independently, whatever the program and the noise.

use application::{
    Application, Call, Group, Operation, Origins, Plan, Rules, Step, Tape, is_collective,
};
use mpi_abi::Call as Mpi;
use simulate::{
    blame,
    collectives::Op,
    event::{Action, Log, Options, Part, Rendezvous, Schedule},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    replay,
};
use study::{
    explain::states::{Tally, Waits, path_in_words},
    recording::sources::Sources,
};

const US: i64 = 1_000_000;
/// Channels of collectives begin with 1 and 0.
const COLLECTIVE: u32 = 2 << 30;
const NONE: u32 = u32::MAX;

fn net() -> Params {
    Params {
        latency: US,
        send_overhead: US / 10,
        recv_overhead: US / 10,
        eager_limit: 1_000,
        ..Params::FREE
    }
}

fn compute(us: i64) -> Step {
    Step::Compute { ps: us * US, taken_ps: 0, after: Mpi::Waitall.number() }
}

fn send(to: u32, bytes: u64) -> Step {
    Step::Send { to, channel: 0, bytes, request: NONE, mpi: Mpi::Send.number() }
}

fn receive(from: u32, bytes: u64) -> Step {
    Step::Receive { from, channel: 0, bytes, request: NONE, mpi: Mpi::Recv.number() }
}

fn program(tapes: Vec<Tape>, regions: &[&str]) -> Application {
    let members = (0..tapes.len() as u32).collect();
    Application {
        tapes,
        groups: vec![Group { key: 1, members }],
        regions: regions.iter().map(|name| (*name).to_owned()).collect(),
        ..Application::default()
    }
}

fn tape(rank: u32, steps: Vec<Step>) -> Tape {
    let call = Call {
        operation: Operation::Regular { op: Op::Allreduce, bytes: 8, root: 0 },
        group: 0,
        rank,
        channel: COLLECTIVE,
        mpi: Mpi::Allreduce.number(),
    };
    Tape { steps, calls: vec![call], requests: 1, ..Tape::default() }
}

const ALLREDUCE: Step = Step::Collective { call: 0, request: NONE };

struct Run {
    schedule: Schedule,
    origins: Origins,
    log: Log,
}

fn run(program: &Application, copies: u32, noise: &Noise, seed: u64, number: u64) -> Run {
    let (rules, net) = (Rules::default(), net());
    let plan = Plan { copies, rules: &rules, only: None, with_taken: false, net: Some(&net) };
    let (schedule, origins) = program.schedule_with_origins(&plan).unwrap();
    let options = Options { rendezvous: Rendezvous::Handshake, ..Options::default() };
    let log = replay::log(&schedule, &net, &options, noise, seed, number).unwrap();
    Run { schedule, origins, log }
}

fn tally(run: &Run, noise: &Noise, seed: u64, number: u64) -> Tally {
    let met = replay::noise_of(&run.schedule, noise, seed, number);
    let of_collective = |op: u32| match run.schedule.operation(op).action {
        Action::Send { tag, .. } | Action::Recv { tag, .. } => tag.is_some_and(is_collective),
        _ => false,
    };
    Tally::of(&run.log, &met, &run.origins, of_collective).unwrap()
}

#[test]
fn a_wait_has_a_rank_a_region_and_a_cause() {
    // Rank 1 waits in `exchange` for rank 0, which computes in `force` for 30 us.
    let late = vec![Step::Begin { region: 0 }, compute(30), Step::End { region: 0 }, send(1, 8)];
    let waiting =
        vec![compute(10), Step::Begin { region: 1 }, receive(0, 8), Step::End { region: 1 }];
    let program = program(vec![tape(0, late), tape(1, waiting)], &["force", "exchange"]);
    let silent = Noise::none();
    let run = run(&program, 1, &silent, 0, 0);
    let tally = tally(&run, &silent, 0, 0);
    let sources = Sources::default();
    let waits = tally.waits(&run.origins, &sources);
    // The message is there after 30 us + o + L.
    assert_eq!(waits.waiting_ps, 21_100_000);
    assert_eq!(waits.late_sender_s, waits.waiting_s);
    let [none, rank] = &waits.ranks[..] else { panic!("{waits:?}") };
    assert_eq!((none.by.ps, rank.rank, rank.by.ps), (0, 1, 21_100_000));
    let [region] = &waits.regions[..] else { panic!("{waits:?}") };
    assert_eq!(region.region.as_deref(), Some("exchange"));
    let state = &waits.states[0];
    assert_eq!((state.class, state.call), ("late sender", Some("MPI_Recv")));
    let cause = &state.cause;
    assert_eq!(
        (cause.kind, cause.rank, cause.region.as_deref()),
        ("compute", Some(0), Some("force"))
    );
    assert_eq!(state.ps, 20_000_000);
    assert_eq!((waits.causes.network_ps, waits.causes.communication_ps), (1_000_000, 100_000));
    let network = waits.states.iter().find(|state| state.cause.kind == "network").unwrap();
    assert_eq!((network.cause.rank, network.cause.call), (None, Some("MPI_Send")));
    // 30 of 31.2 us.
    let path = path_in_words(&tally.path(&run.origins, &sources));
    assert_eq!(path, "compute of rank 0 in force 96 %, network 3.21 %");
}

#[test]
fn a_request_is_waited_for_where_the_rank_waits() {
    let late = vec![compute(30), send(1, 8)];
    let start =
        Step::Receive { from: 0, channel: 0, bytes: 8, request: 0, mpi: Mpi::Irecv.number() };
    let waiting = vec![
        Step::Begin { region: 0 },
        start,
        Step::End { region: 0 },
        compute(1),
        Step::Begin { region: 1 },
        Step::Wait { request: 0 },
        compute(1),
        Step::End { region: 1 },
    ];
    let program = program(vec![tape(0, late), tape(1, waiting)], &["post", "wait"]);
    let silent = Noise::none();
    let run = run(&program, 1, &silent, 0, 0);
    let waits = tally(&run, &silent, 0, 0).waits(&run.origins, &Sources::default());
    let [region] = &waits.regions[..] else { panic!("{waits:?}") };
    assert_eq!(region.region.as_deref(), Some("wait"));
    let state = &waits.states[0];
    assert_eq!(state.call, Some("MPI_Irecv"));
    assert_eq!((state.cause.region.as_deref(), state.cause.after), (None, Some("MPI_Waitall")));
}

/// Two regions one after the other, of which only the first is uneven, and a reduction.
#[test]
fn what_both_ranks_do_before_a_wait_is_not_its_cause() {
    let of_rank = |foo: i64| {
        let begin = |region| Step::Begin { region };
        let end = |region| Step::End { region };
        vec![begin(0), compute(foo), end(0), begin(1), compute(10_000), end(1), ALLREDUCE]
    };
    let tapes = vec![tape(0, of_rank(3_000)), tape(1, of_rank(9_000))];
    let program = program(tapes, &["foo", "bar"]);
    let silent = Noise::none();
    let run = run(&program, 1, &silent, 0, 0);
    let waits = tally(&run, &silent, 0, 0).waits(&run.origins, &Sources::default());
    let region = |name: &str| -> u128 {
        let of = |state: &&study::explain::states::WaitState| {
            state.cause.region.as_deref() == Some(name)
        };
        waits.states.iter().filter(of).map(|state| state.ps).sum()
    };
    // Rank 0 waits for the 6 ms that rank 1 takes longer, and both for one message.
    assert_eq!((region("foo"), region("bar")), (6_000_000_000, 0), "{:?}", waits.states);
    assert_eq!(waits.causes.compute_ps, 6_000_000_000);
}

/// Noise before the last thing that a rank did before the wait is its cause all the same.
#[test]
fn noise_long_before_a_wait_is_its_cause() {
    let mut sources = Sources::default();
    let source = sources.named("daemon");
    // 1 ms of each 200 ms; the ranks are at different places of it.
    let timeline = Timeline::new([(0, 1_000 * US)], 200_000 * US).unwrap().of_source(source);
    let noisy =
        Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap().repeating(true);
    let steps = vec![compute(9_000), compute(1_000), ALLREDUCE];
    let tapes = (0..8).map(|rank| tape(rank, steps.clone())).collect();
    let program = program(tapes, &[]);
    let (mut noise, mut waiting) = (0, 0);
    for number in 0..40 {
        let run = run(&program, 1, &noisy, 1, number);
        let waits = tally(&run, &noisy, 1, number).waits(&run.origins, &sources);
        // All compute alike, so only noise and messages remain.
        assert_eq!(waits.causes.compute_ps, 0, "run {number}: {:?}", waits.states);
        noise += waits.causes.noise_ps;
        waiting += waits.waiting_ps - waits.causes.network_ps - waits.causes.communication_ps;
    }
    assert_eq!(noise, waiting);
    assert!(noise > 10_000_000_000, "{noise}");
}

/// A generator of numbers below a bound: the same for each seed.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Rounds of computation in regions, messages of both kinds around a ring, and reductions.
fn random(seed: u64) -> Application {
    let mut next = numbers(seed);
    let ranks = 2 + next(4) as u32;
    let mut steps: Vec<Vec<Step>> = vec![Vec::new(); ranks as usize];
    for _ in 0..1 + next(5) {
        let (bytes, kind) = (1 + next(2) * 5_000, next(3));
        for (rank, steps) in (0..).zip(&mut steps) {
            let region = next(2) as u32;
            steps.push(Step::Begin { region });
            steps.push(compute(next(40) as i64));
            let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            if kind != 0 {
                let mpi = Mpi::Irecv.number();
                steps.push(Step::Receive { from, channel: 0, bytes, request: 0, mpi });
                steps.push(send(to, bytes));
                steps.push(Step::End { region });
                steps.push(compute(next(10) as i64));
                steps.push(Step::Wait { request: 0 });
            } else {
                steps.push(Step::End { region });
            }
            if kind != 1 {
                steps.push(ALLREDUCE);
            }
        }
    }
    let tapes = (0..).zip(steps).map(|(rank, steps)| tape(rank, steps)).collect();
    program(tapes, &["one", "two"])
}

fn check(waits: &Waits, waiting_ps: u128) {
    assert_eq!(waits.waiting_ps, waiting_ps);
    let causes = &waits.causes;
    let all = [
        causes.noise_ps,
        causes.compute_ps,
        causes.communication_ps,
        causes.network_ps,
        causes.unexplained_ps,
    ];
    assert_eq!(all.iter().sum::<u128>(), waiting_ps);
    assert_eq!(causes.unexplained_ps, 0);
    assert_eq!(waits.ranks.iter().map(|row| row.by.ps).sum::<u128>(), waiting_ps);
    assert_eq!(waits.regions.iter().map(|row| row.by.ps).sum::<u128>(), waiting_ps);
    let states = waits.states.iter().map(|state| state.ps).sum::<u128>();
    assert_eq!(states + waits.other_ps, waiting_ps);
    let rows = waits.ranks.iter().map(|row| &row.by);
    for by in rows.chain(waits.regions.iter().map(|row| &row.by)) {
        let classes = by.classes().map(|(_, ps)| ps);
        assert_eq!(classes.iter().sum::<u128>(), by.ps);
        let kinds = [by.noise_s, by.compute_s, by.communication_s, by.network_s];
        assert!((kinds.iter().sum::<f64>() - by.s).abs() <= 1e-12 * by.s.max(1.0), "{by:?}");
    }
    let noise: u128 = waits.sources.iter().map(|source| source.ps).sum();
    assert_eq!(noise, causes.noise_ps);
    // The lines of the CSV, once for each way of adding up.
    let csv = waits.csv_rows("", "");
    for by in ["rank,", "region,", "state,"] {
        let lines = csv.lines().filter(|line| line.starts_with(by));
        let sum: u128 =
            lines.filter_map(|line| line.rsplit(',').nth(1)?.parse::<u128>().ok()).sum();
        assert_eq!(sum, waiting_ps, "{by}\n{csv}");
    }
}

#[test]
fn every_list_adds_up_to_the_waiting_time_whatever_the_program_and_the_noise() {
    let mut sources = Sources::default();
    let numbers = ["one", "two"].map(|name| sources.named(name));
    let timelines = vec![
        Timeline::new([(3 * US, US), (20 * US, 5 * US)], 50 * US).unwrap().of_source(numbers[0]),
        Timeline::new([(10 * US, 2 * US)], 70 * US).unwrap().of_source(numbers[1]),
    ];
    let noisy = Noise::new(timelines, Model::Preempt, Offsets::Random).unwrap().repeating(true);
    let silent = Noise::none();
    let mut waited_for_noise = 0;
    for seed in 0..200 {
        let program = random(seed);
        for noise in [&silent, &noisy] {
            let (mut all, mut waiting, mut finish, mut origins) = (Tally::default(), 0, 0, None);
            for number in 0..2 {
                let run = run(&program, 1 + (seed % 3) as u32, noise, seed, number);
                let met = replay::noise_of(&run.schedule, noise, seed, number);
                let blamed = blame::blame(&run.log, &net(), &met).unwrap();
                let of_ranks = blamed.ranks.iter().map(|split| split.of(Part::Waiting) as u128);
                waiting += of_ranks.sum::<u128>();
                finish += blamed.finish as u128;
                all.add(tally(&run, noise, seed, number));
                origins = Some(run.origins);
            }
            let origins = origins.unwrap();
            let waits = all.waits(&origins, &sources);
            check(&waits, waiting);
            waited_for_noise += usize::from(waits.causes.noise_ps > 0);
            let path = all.path(&origins, &sources);
            assert_eq!(path.iter().map(|part| part.ps).sum::<u128>(), finish, "seed {seed}");
        }
    }
    assert!(waited_for_noise > 50, "{waited_for_noise}");
}

#[test]
fn many_ranks_are_summed_up_in_blocks() {
    let program = random(3);
    let (silent, copies) = (Noise::none(), 101);
    let run = run(&program, copies, &silent, 0, 0);
    let waits = tally(&run, &silent, 0, 0).waits(&run.origins, &Sources::default());
    let ranks = u64::from(program.ranks() * copies);
    assert!(waits.ranks.len() <= 128 && waits.ranks.len() > 60, "{}", waits.ranks.len());
    assert_eq!(waits.ranks.iter().map(|row| row.ranks).sum::<u64>(), ranks);
    let mut next = 0;
    for row in &waits.ranks {
        assert_eq!(row.rank, next);
        next += row.ranks;
    }
    assert_eq!(waits.ranks.iter().map(|row| row.by.ps).sum::<u128>(), waits.waiting_ps);
}
