//! Compares the cycle engine with a plain discrete-event simulation of the same rules: one queue, one
//! inbox per rank, messages taken in order of arrival. Slow and obvious.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use proptest::prelude::*;
use simulate::cycle::{
    Case, Config, CycleError, Times, end_of_case, ends_under, every_round_but_the_first, phase,
    run, share, share_by_cycle,
};
use simulate::noise::{Local, Model, Noise, Offsets, Timeline};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Of a round, carrying that level.
    Original(u32),
    /// Carrying a level.
    Redundant(u32),
}

/// Ordered by arrival; ties go to the original one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    arrival: i64,
    kind: Kind,
    cycle: u32,
}

struct Rank<'a> {
    noise: Local<'a>,
    cycle: u32,
    /// Its level.
    level: u32,
    /// Until when it is busy.
    busy: i64,
    inbox: Vec<Message>,
}

struct Simulation<'a> {
    config: &'a Config,
    set: u64,
    /// Messages that are not awaited are received as well.
    charge_all: bool,
    ranks: Vec<Rank<'a>>,
    /// (time, rank, message); None if a rank just becomes free.
    events: BinaryHeap<Reverse<(i64, usize, Option<Message>)>>,
}

impl Simulation<'_> {
    fn work(&mut self, rank: usize, work: i64) -> i64 {
        let rank = &mut self.ranks[rank];
        rank.busy = rank.noise.preempt(rank.busy, work).unwrap();
        rank.busy
    }

    fn send(&mut self, from: usize, to: usize, kind: Kind) {
        let cycle = self.ranks[from].cycle;
        let transfer = (self.config.bytes as i64 - 1) * self.config.gap_per_byte_fs / 1000;
        let arrival = self.work(from, self.config.overhead) + self.config.latency + transfer;
        self.events.push(Reverse((arrival, to, Some(Message { arrival, kind, cycle }))));
    }

    fn original(&mut self, rank: usize) {
        let level = self.ranks[rank].level;
        self.send(rank, rank ^ 1 << level, Kind::Original(level));
    }

    fn redundant(&mut self, rank: usize) {
        let level = self.ranks[rank].level;
        if self.set >> level & 1 == 1 {
            self.send(rank, rank ^ 1, Kind::Redundant(level));
        }
    }

    fn begin_cycle(&mut self, rank: usize) {
        self.ranks[rank].level = 0;
        if self.config.work > 0 {
            self.work(rank, self.config.work);
        }
        self.original(rank);
        self.redundant(rank);
    }

    /// The rank is free: it takes the first message that it can use.
    fn take(&mut self, number: usize, now: i64) {
        let rounds = self.config.rounds();
        let rank = &self.ranks[number];
        if rank.cycle == self.config.cycles || rank.busy > now {
            return;
        }
        let useful = |message: &Message| {
            message.cycle == rank.cycle
                && match message.kind {
                    Kind::Original(round) => round == rank.level,
                    Kind::Redundant(level) => level > rank.level,
                }
        };
        let stale = |message: &Message| {
            message.cycle < rank.cycle
                || message.cycle == rank.cycle
                    && match message.kind {
                        Kind::Original(round) => round < rank.level,
                        Kind::Redundant(level) => level <= rank.level,
                    }
        };
        let candidates = rank.inbox.iter().filter(|m| useful(m) || self.charge_all && stale(m));
        let Some(&message) = candidates.min() else { return };
        let wanted = useful(&message);
        self.ranks[number].inbox.retain(|&other| other != message);
        self.ranks[number].busy = now;
        self.work(number, self.config.overhead);
        match message.kind {
            _ if !wanted => {}
            Kind::Original(_) => {
                self.ranks[number].level += 1;
                if self.ranks[number].level == rounds {
                    self.ranks[number].cycle += 1;
                    if self.ranks[number].cycle < self.config.cycles {
                        self.begin_cycle(number);
                    }
                } else {
                    self.original(number);
                    self.redundant(number);
                }
            }
            Kind::Redundant(level) => {
                while self.ranks[number].level < level {
                    self.ranks[number].level += 1;
                    self.original(number);
                }
            }
        }
        self.events.push(Reverse((self.ranks[number].busy, number, None)));
    }

    fn run(mut self) -> Vec<i64> {
        for rank in 0..self.ranks.len() {
            self.begin_cycle(rank);
            self.events.push(Reverse((self.ranks[rank].busy, rank, None)));
        }
        while let Some(&Reverse((now, ..))) = self.events.peek() {
            // Everything at this time, before any rank chooses.
            let mut touched = BTreeSet::new();
            while let Some(&Reverse((time, rank, message))) = self.events.peek() {
                if time > now {
                    break;
                }
                self.events.pop();
                self.ranks[rank].inbox.extend(message);
                touched.insert(rank);
            }
            for rank in touched {
                self.take(rank, now);
            }
        }
        for rank in &self.ranks {
            assert_eq!(rank.cycle, self.config.cycles, "a rank waits forever");
        }
        self.ranks.iter().map(|rank| rank.busy).collect()
    }
}

/// When each rank ends.
fn reference(config: &Config, number: u64, set: u64, charge_all: bool) -> Vec<i64> {
    let timeline = Timeline::periodic(config.period, config.duration).unwrap();
    let local = |rank| Local::new(&timeline, phase(config, number, rank).unwrap(), true);
    reference_under(config, local, set, charge_all)
}

/// The same, each rank under its own noise.
fn reference_under<'a>(
    config: &Config,
    noise: impl Fn(u64) -> Local<'a>,
    set: u64,
    charge_all: bool,
) -> Vec<i64> {
    let ranks = (0..config.ranks).map(|rank| Rank {
        noise: noise(rank),
        cycle: 0,
        level: 0,
        busy: 0,
        inbox: Vec::new(),
    });
    let ranks = ranks.collect();
    Simulation { config, set, charge_all, ranks, events: BinaryHeap::new() }.run()
}

fn configs() -> impl Strategy<Value = Config> {
    let noise = (20i64..3000, 0.0..0.7f64);
    let times = (0i64..2, 0i64..2000, 1i64..80, 0i64..12);
    (1u32..7, noise, times, 1u32..5, 1u64..4, any::<u64>(), any::<u64>()).prop_map(
        |(rounds, (period, share), (works, work, latency, overhead), cycles, bytes, set, seed)| {
            Config {
                ranks: 1 << rounds,
                period,
                duration: (period as f64 * share) as i64,
                work: work * works,
                cycles,
                latency,
                overhead,
                gap_per_byte_fs: 7000,
                bytes,
                redundant_rounds: Some(set & ((1 << rounds) - 1)),
                runs: 1,
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_redundant_set_gives_every_rank_the_reference_time(config in configs()) {
        let set = config.redundant_rounds.unwrap();
        let fast = end_of_case(&config, 3, Case::Redundant).unwrap();
        prop_assert_eq!(fast, reference(&config, 3, set, false));
    }

    #[test]
    fn the_papers_set_gives_every_rank_the_reference_time(config in configs()) {
        let config = Config { redundant_rounds: None, ..config };
        let set = every_round_but_the_first(config.rounds());
        let fast = end_of_case(&config, 0, Case::Redundant).unwrap();
        prop_assert_eq!(fast, reference(&config, 0, set, false));
    }

    #[test]
    fn the_conventional_butterfly_gives_every_rank_the_reference_time(config in configs()) {
        let fast = end_of_case(&config, 1, Case::Conventional).unwrap();
        prop_assert_eq!(&fast, &reference(&config, 1, 0, false));
        // An empty set is the conventional butterfly.
        let none = Config { redundant_rounds: Some(0), ..config };
        prop_assert_eq!(fast, end_of_case(&none, 1, Case::Redundant).unwrap());
    }

    #[test]
    fn recorded_noise_gives_every_rank_the_reference_time(
        config in configs(), gaps in prop::collection::vec((0i64..400, 1i64..200), 1..12),
        offsets in prop::sample::select(vec![Offsets::Random, Offsets::Shared, Offsets::Within(70)]),
    ) {
        let mut at = 0;
        let detours: Vec<_> = gaps.iter().map(|&(gap, length)| {
            let start = at + gap;
            at = start + length;
            (start, length)
        }).collect();
        let lanes = vec![
            Timeline::new(detours.clone(), at + 50).unwrap(),
            Timeline::new(detours, at + 900).unwrap(),
        ];
        let noise = Noise::new(lanes, Model::Preempt, offsets).unwrap().repeating(true);
        let set = config.redundant_rounds.unwrap();
        for (case, set) in [(Case::Conventional, 0), (Case::Redundant, set)] {
            let fast = ends_under(&config, &noise, 2, case).unwrap();
            let run = noise.run(config.seed, 2);
            prop_assert_eq!(fast, reference_under(&config, |rank| run.local(rank), set, false));
        }
    }

    /// The first cycles of a run are a run of fewer cycles.
    #[test]
    fn a_run_is_known_after_each_of_its_cycles(config in configs(), recorded in any::<bool>()) {
        let config = Config { cycles: 4, runs: 2, ..config };
        let lane = Timeline::new([(40, 30), (200, 90)], 1000).unwrap();
        let noise = Noise::new(vec![lane], Model::Preempt, Offsets::Random).unwrap().repeating(true);
        let noise = recorded.then_some(&noise);
        let all = share_by_cycle(&config, noise, &[1, 2, 4], 0..2, None).unwrap();
        for (cycles, found) in [1, 2, 4].into_iter().zip(all) {
            let few = Config { cycles, ..config.clone() };
            let alone = share_by_cycle(&few, noise, &[cycles], 0..2, None).unwrap();
            prop_assert_eq!(&alone, std::slice::from_ref(&found));
            if noise.is_none() {
                prop_assert_eq!(share(&few, 0..2, None).unwrap(), found);
            }
        }
    }

    #[test]
    fn without_noise_or_work_the_conventional_butterfly_takes_its_closed_form(config in configs()) {
        let quiet = Config { duration: 0, work: 0, ..config };
        let transfer = (quiet.bytes as i64 - 1) * 7;
        let round = 2 * quiet.overhead + quiet.latency + transfer;
        let end = i64::from(quiet.cycles) * i64::from(quiet.rounds()) * round;
        for case in [Case::Noiseless, Case::Conventional] {
            let ends = end_of_case(&quiet, 0, case).unwrap();
            prop_assert!(ends.iter().all(|&rank| rank == end));
        }
    }
}

#[test]
fn a_recording_that_is_too_short_is_refused() {
    let config = Config { work: 2_000_000_000, ..Config::paper(64) };
    let lane = Timeline::new([(1_000_000, 1_000_000)], 5_000_000_000).unwrap();
    let noise = Noise::new(vec![lane], Model::Preempt, Offsets::Random).unwrap();
    let refused = share_by_cycle(&config, Some(&noise), &[10], 0..2, None);
    assert!(matches!(refused, Err(CycleError::Noise(_))), "{refused:?}");
    let repeated =
        share_by_cycle(&config, Some(&noise.repeating(true)), &[10], 0..2, None).unwrap();
    let took = |times: &Times| times.conventional >= 10 * config.work;
    assert!(repeated[0].runs.iter().all(took));
}

#[test]
fn messages_that_nobody_waits_for_cost_next_to_nothing_at_the_papers_overhead() {
    let config = Config { cycles: 10, runs: 12, ..Config::paper(256) };
    let set = every_round_but_the_first(8);
    let free = run(&config, None).unwrap();
    let last = |number| reference(&config, number, set, true).into_iter().max().unwrap();
    let charged: i64 = (0..config.runs).map(last).sum();
    let uncharged: i64 = free.runs.iter().map(|times| times.redundant).sum();
    let change = (charged - uncharged) as f64 / uncharged as f64;
    assert!(change.abs() < 0.02, "{change}");
}
