//! A second implementation of the rules of the round engine, slow and obvious: every rank is a small
//! program, messages are put in boxes, all ranks proceed until nothing is left to do. Noise is a list
//! of detours that is walked from the start each time.

use std::{collections::HashMap, ops::ControlFlow};

use simulate::{job::Job, loggops::MessageCost, noise::Model};

/// What a rank does in one round.
#[derive(Clone, Default)]
struct Round {
    compute: i64,
    send: Option<(usize, MessageCost)>,
    recv: Option<(usize, MessageCost, i64)>,
}

#[derive(Clone, Debug)]
pub struct Noise {
    pub detours: Vec<(i64, i64)>,
    pub span: i64,
    pub offsets: Vec<i64>,
    pub model: Model,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Fresh,
    Issued,
    Received,
}

struct Rank {
    program: Vec<Round>,
    round: usize,
    stage: Stage,
    time: i64,
    posted: i64,
    sent: i64,
    received: i64,
    send_free: i64,
    recv_free: i64,
    own_clock: i64,
}

/// When each rank finishes.
pub fn ends(job: &Job, noise: Option<&Noise>) -> Vec<i64> {
    let mut ranks = programs(job);
    // Messages by sender, receiver and number: when they left.
    let mut boxes: HashMap<(usize, usize, usize), i64> = HashMap::new();
    // Receives by sender, receiver and number: when they ended.
    let mut receipts: HashMap<(usize, usize, usize), i64> = HashMap::new();
    loop {
        let mut progress = false;
        for me in 0..ranks.len() {
            while step(&mut ranks, me, noise, &mut boxes, &mut receipts) {
                progress = true;
            }
        }
        if !progress {
            break;
        }
    }
    assert!(ranks.iter().all(|rank| rank.round == rank.program.len()), "the reference deadlocked");
    ranks.iter().map(|rank| rank.time).collect()
}

fn programs(job: &Job) -> Vec<Rank> {
    let ranks = job.ranks() as usize;
    let mut programs = vec![Vec::new(); ranks];
    for _ in 0..job.iterations() {
        if ranks == 1 {
            let compute = job.compute();
            programs[0].extend(job.body().iter().map(|_| Round { compute, ..Round::default() }));
        }
        let _ = job.rounds(&mut |compute, spans| {
            let mut round = vec![Round { compute, ..Round::default() }; ranks];
            for priced in spans {
                for (src, dst) in priced.span.edges(job.ranks()) {
                    let (src, dst) = (src as usize, dst as usize);
                    round[src].send = Some((dst, priced.cost));
                    round[dst].recv = Some((src, priced.cost, priced.reduce));
                }
            }
            for (program, round) in programs.iter_mut().zip(round) {
                program.push(round);
            }
            ControlFlow::Continue(())
        });
    }
    programs
        .into_iter()
        .map(|program| Rank {
            program,
            round: 0,
            stage: Stage::Fresh,
            time: 0,
            posted: 0,
            sent: 0,
            received: 0,
            send_free: 0,
            recv_free: 0,
            own_clock: 0,
        })
        .collect()
}

fn step(
    ranks: &mut [Rank],
    me: usize,
    noise: Option<&Noise>,
    boxes: &mut HashMap<(usize, usize, usize), i64>,
    receipts: &mut HashMap<(usize, usize, usize), i64>,
) -> bool {
    let rank = &mut ranks[me];
    let Some(round) = rank.program.get(rank.round).cloned() else { return false };
    let number = rank.round;
    match rank.stage {
        Stage::Fresh => {
            if round.compute > 0 {
                rank.time = work(rank, noise, me, rank.time, round.compute);
            }
            rank.posted = rank.time;
            if let Some((to, cost)) = round.send {
                rank.posted = rank.time.max(rank.send_free);
                rank.sent = work(rank, noise, me, rank.posted, cost.send_cpu);
                rank.send_free = rank.sent + cost.gap - cost.send_cpu;
                boxes.insert((me, to, number), rank.sent);
            }
            rank.stage = Stage::Issued;
            true
        }
        Stage::Issued => {
            if let Some((from, cost, _)) = round.recv {
                let Some(left) = boxes.remove(&(from, me, number)) else { return false };
                let first = (left + cost.latency).max(rank.recv_free);
                rank.recv_free = first + cost.gap;
                let last = (first + cost.transfer).max(rank.received);
                rank.received = work(rank, noise, me, last, cost.recv_cpu).max(rank.posted);
                receipts.insert((from, me, number), rank.received);
            }
            rank.stage = Stage::Received;
            true
        }
        Stage::Received => {
            let mut time = rank.posted;
            if let Some((to, cost)) = round.send {
                time = time.max(rank.sent);
                if cost.rendezvous {
                    let Some(&ended) = receipts.get(&(me, to, number)) else { return false };
                    time = time.max(ended);
                }
            }
            if let Some((_, _, reduce)) = round.recv {
                time = time.max(rank.received);
                if reduce > 0 {
                    time = work(rank, noise, me, time, reduce);
                }
            }
            rank.time = time;
            rank.round += 1;
            rank.stage = Stage::Fresh;
            true
        }
    }
}

fn work(rank: &mut Rank, noise: Option<&Noise>, me: usize, begin: i64, work: i64) -> i64 {
    let Some(noise) = noise else { return begin + work };
    let offset = noise.offsets[me];
    match noise.model {
        Model::Preempt => preempted(noise, offset, begin, work),
        Model::CpuTime => {
            let after = preempted(noise, offset, rank.own_clock, work);
            let took = after - rank.own_clock;
            rank.own_clock = after;
            begin + took
        }
        Model::LogGopSim => {
            let trace = noise.detours.last().unwrap().0;
            let at = (begin + offset) % (trace - work);
            let first = noise.detours[0].0;
            let mut sum = 0;
            for (index, &(start, length)) in noise.detours.iter().enumerate() {
                if start <= at && at < start + length && at > first {
                    sum += start + length - at;
                } else if index > 0 && at <= start && start < at + work {
                    sum += length;
                }
            }
            begin + work + sum
        }
    }
}

fn preempted(noise: &Noise, offset: i64, begin: i64, work: i64) -> i64 {
    let (mut now, mut left) = (begin, work);
    for turn in 0.. {
        for &(start, length) in &noise.detours {
            let start = turn * noise.span + start - offset;
            let end = start + length;
            if end <= now || length == 0 {
                continue;
            }
            if now + left <= start {
                return now + left;
            }
            left -= (start - now).max(0);
            now = end;
        }
    }
    unreachable!()
}
