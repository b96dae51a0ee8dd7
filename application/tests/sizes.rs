//! Programs at sizes that were held back: the messages found from traces of 2 and 4 ranks are those that the program
//! itself has at 8 and 16.

use std::collections::{BTreeMap, HashMap};

use application::{
    Application, Call, Candidate, Group, Null, Operation, Sizes, SizesError, Step, Tape, Topology,
};
use mpi_abi::Call as MpiCall;
use simulate::{collectives::Op, event::Test};

const NONE: u32 = u32::MAX;
const US: i64 = 1_000_000;

/// A rank of a program that is written down call by call.
struct Rank<'a> {
    rank: u32,
    ranks: u32,
    tape: Tape,
    tags: &'a mut HashMap<i32, u32>,
    open: Vec<u32>,
}

impl Rank<'_> {
    fn channel(&mut self, tag: i32) -> u32 {
        let next = self.tags.len() as u32;
        *self.tags.entry(tag).or_insert(next)
    }

    fn request(&mut self) -> u32 {
        self.tape.requests += 1;
        self.open.push(self.tape.requests - 1);
        self.tape.requests - 1
    }

    fn message(&mut self, sends: bool, peer: u32, tag: i32, bytes: u64, starts: bool) {
        let channel = self.channel(tag);
        let call = match (sends, starts) {
            (true, false) => MpiCall::Send,
            (true, true) => MpiCall::Isend,
            (false, false) => MpiCall::Recv,
            (false, true) => MpiCall::Irecv,
        };
        let request = if starts { self.request() } else { NONE };
        let mpi = call.number();
        self.tape.steps.push(match sends {
            true => Step::Send { to: peer, channel, bytes, request, mpi },
            false => Step::Receive { from: peer, channel, bytes, request, mpi },
        });
    }

    fn send(&mut self, to: u32, tag: i32, bytes: u64) {
        self.message(true, to, tag, bytes, false);
    }

    fn recv(&mut self, from: u32, tag: i32, bytes: u64) {
        self.message(false, from, tag, bytes, false);
    }

    /// With a peer, or `MPI_PROC_NULL`.
    fn start(&mut self, sends: bool, peer: Option<u32>, tag: i32, bytes: u64) {
        match peer {
            Some(peer) => self.message(sends, peer, tag, bytes, true),
            None => {
                let call = if sends { MpiCall::Isend } else { MpiCall::Irecv };
                let step = self.tape.steps.len() as u32;
                let mpi = call.number();
                self.tape.nulls.push(Null { step, sends, starts: true, tag, mpi });
            }
        }
    }

    fn exchange(&mut self, to: u32, from: u32, tag: i32, bytes: u64) {
        self.message(false, from, tag, bytes, true);
        self.message(true, to, tag, bytes, true);
        self.wait();
    }

    fn wait(&mut self) {
        for request in std::mem::take(&mut self.open) {
            self.tape.steps.push(Step::Wait { request });
        }
    }

    fn compute(&mut self, ps: i64) {
        self.tape.steps.push(Step::Compute { ps, taken_ps: 0, after: 0 });
    }

    fn allreduce(&mut self, bytes: u64) {
        let call = self.tape.calls.len() as u32;
        let operation = Operation::Regular { op: Op::Allreduce, bytes, root: 0 };
        let mpi = MpiCall::Allreduce.number();
        self.tape.calls.push(Call { operation, group: 0, rank: self.rank, channel: call, mpi });
        self.tape.steps.push(Step::Collective { call, request: NONE });
    }
}

fn program(ranks: u32, part: impl Fn(&mut Rank<'_>)) -> Application {
    let mut tags = HashMap::new();
    let mut tapes = Vec::new();
    for rank in 0..ranks {
        let (tape, open) = (Tape::default(), Vec::new());
        let mut one = Rank { rank, ranks, tape, tags: &mut tags, open };
        part(&mut one);
        tapes.push(one.tape);
    }
    let mut application = Application {
        tapes,
        groups: vec![Group { key: 1, members: (0..ranks).collect() }],
        ..Application::default()
    };
    application.tags.extend(tags.into_iter().map(|(tag, channel)| (channel, tag)));
    application
}

/// How often each message is sent, and received: from, to, tag and bytes.
type Graph = BTreeMap<(u32, u32, i32, u64), (i64, i64)>;

fn graph(application: &Application) -> Graph {
    let mut graph = Graph::new();
    let tag = |channel: &u32| application.tags.get(channel).copied().unwrap_or(-1);
    for (rank, tape) in (0..).zip(&application.tapes) {
        for step in &tape.steps {
            match step {
                Step::Send { to, channel, bytes, .. } => {
                    graph.entry((rank, *to, tag(channel), *bytes)).or_default().0 += 1;
                }
                Step::Receive { from, channel, bytes, .. } => {
                    graph.entry((*from, rank, tag(channel), *bytes)).or_default().1 += 1;
                }
                _ => {}
            }
        }
    }
    graph
}

/// The calls of each rank in their order: what it does, with whom, and how many bytes.
fn calls(application: &Application) -> Vec<Vec<(char, u32, u64)>> {
    let of = |tape: &Tape| {
        let call = |step: &Step| match step {
            Step::Send { to, bytes, .. } => Some(('s', *to, *bytes)),
            Step::Receive { from, bytes, .. } => Some(('r', *from, *bytes)),
            Step::Wait { .. } => Some(('w', 0, 0)),
            Step::Choose { count, .. } => Some(('o', *count, 0)),
            Step::Collective { call, .. } => match tape.calls[*call as usize].operation {
                Operation::Regular { bytes, .. } => Some(('c', 0, bytes)),
                _ => Some(('v', 0, 0)),
            },
            _ => None,
        };
        tape.steps.iter().filter_map(call).collect()
    };
    application.tapes.iter().map(of).collect()
}

fn trained(sizes: &[u32], part: &impl Fn(&mut Rank<'_>)) -> Result<Sizes, SizesError> {
    let applications: Vec<Application> = sizes.iter().map(|ranks| program(*ranks, part)).collect();
    Sizes::new(&applications.iter().collect::<Vec<_>>())
}

/// Trained on 2 and 4 ranks, the calls of each rank at 8 and 16 are those of the program.
fn check(part: impl Fn(&mut Rank<'_>)) -> Sizes {
    let found = trained(&[2, 4], &part).unwrap();
    for ranks in [2, 4, 8, 16, 32] {
        let (made, own) = (found.at(ranks.into()).unwrap(), program(ranks, &part));
        assert_eq!(calls(&made), calls(&own), "{ranks} ranks, {:#?}", found.found);
        assert_eq!(graph(&made), graph(&own), "{ranks} ranks");
    }
    found
}

/// The same of the messages only: the traces do not tell in which order a rank sends to both sides.
fn check_graph(part: impl Fn(&mut Rank<'_>)) -> Sizes {
    let found = trained(&[2, 4], &part).unwrap();
    for ranks in [2, 4, 8, 16, 32] {
        let (made, own) = (found.at(ranks.into()).unwrap(), program(ranks, &part));
        assert_eq!(graph(&made), graph(&own), "{ranks} ranks, {:#?}", found.found);
    }
    found
}

fn dims2(ranks: u32) -> [u32; 2] {
    match ranks {
        2 => [2, 1],
        4 => [2, 2],
        8 => [4, 2],
        16 => [4, 4],
        32 => [8, 4],
        _ => panic!("{ranks} ranks"),
    }
}

fn dims3(ranks: u32) -> [u32; 3] {
    match ranks {
        2 => [2, 1, 1],
        4 => [2, 2, 1],
        8 => [2, 2, 2],
        16 => [4, 2, 2],
        32 => [4, 4, 2],
        _ => panic!("{ranks} ranks"),
    }
}

/// The neighbour of a rank in a grid; None beyond an open border.
fn beside(dims: &[u32], rank: u32, along: usize, by: i64, periodic: bool) -> Option<u32> {
    let below: u32 = dims[along + 1..].iter().product();
    let extent = i64::from(dims[along]);
    let own = i64::from(rank / below) % extent;
    let to = own + by;
    if !periodic && !(0..extent).contains(&to) {
        return None;
    }
    Some((i64::from(rank) + (to.rem_euclid(extent) - own) * i64::from(below)) as u32)
}

#[test]
fn a_ring() {
    check(|rank| {
        let (own, all) = (rank.rank, rank.ranks);
        for _ in 0..3 {
            rank.compute(10 * US);
            rank.exchange((own + 1) % all, (own + all - 1) % all, 5, 800);
            rank.exchange((own + all - 1) % all, (own + 1) % all, 5, 800);
            rank.allreduce(8);
        }
    });
}

#[test]
fn a_line_whose_ends_do_not_call() {
    check(|rank| {
        let (own, all) = (rank.rank, rank.ranks);
        for _ in 0..4 {
            let peers = [own.checked_sub(1), Some(own + 1).filter(|next| *next < all)];
            for sends in [false, true] {
                for peer in peers.into_iter().flatten() {
                    rank.message(sends, peer, 1, 4_096, true);
                }
            }
            rank.wait();
        }
    });
}

#[test]
fn a_pipeline() {
    check(|rank| {
        for _ in 0..5 {
            if rank.rank > 0 {
                rank.recv(rank.rank - 1, 3, 64);
            }
            rank.compute(US);
            if rank.rank + 1 < rank.ranks {
                rank.send(rank.rank + 1, 3, 64);
            }
        }
        rank.allreduce(16);
    });
}

/// Receives from all neighbours, sends to all, waits.
fn stencil(rank: &mut Rank<'_>, dims: &[u32], periodic: bool, nulls: bool, tags: bool) {
    for sends in [false, true] {
        for along in 0..dims.len() {
            for by in [-1, 1] {
                // A message is received from the other side than it is sent to.
                let way = if sends { by } else { -by };
                let tag = if tags { 10 * along as i32 + (way + 1) as i32 } else { 0 };
                let peer = beside(dims, rank.rank, along, by, periodic);
                if peer.is_some() || nulls {
                    rank.start(sends, peer, tag, 1_000);
                }
            }
        }
    }
    rank.wait();
}

#[test]
fn a_periodic_grid_with_a_tag_for_each_direction() {
    check_graph(|rank| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), true, false, true);
            rank.allreduce(8);
        }
    });
}

#[test]
fn a_periodic_grid_with_one_tag() {
    let found = check_graph(|rank| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), true, false, false);
            rank.allreduce(8);
        }
    });
    // It could be the other way round.
    assert!(found.assumed.iter().any(|words| words.contains("as well as")), "{:?}", found.assumed);
}

#[test]
fn an_open_grid_with_null_processes() {
    check(|rank| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), false, true, false);
        }
    });
}

#[test]
fn an_open_grid_with_a_tag_for_each_direction() {
    check_graph(|rank| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), false, false, true);
        }
    });
}

#[test]
fn an_open_grid_with_one_tag() {
    let found = check_graph(|rank| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), false, false, false);
        }
    });
    assert!(!found.assumed.is_empty());
}

#[test]
fn a_periodic_grid_of_three_dimensions() {
    check_graph(|rank| {
        for _ in 0..2 {
            rank.compute(100 * US);
            stencil(rank, &dims3(rank.ranks), true, false, true);
        }
    });
}

#[test]
fn an_open_grid_of_three_dimensions_with_null_processes() {
    // With fewer ranks nothing is sent in the third dimension.
    let part = |rank: &mut Rank<'_>| {
        for _ in 0..2 {
            stencil(rank, &dims3(rank.ranks), false, true, false);
        }
    };
    let found = trained(&[4, 8], &part).unwrap();
    for ranks in [16, 32] {
        assert_eq!(calls(&found.at(ranks.into()).unwrap()), calls(&program(ranks, part)));
    }
}

#[test]
fn the_process_grid_of_the_program_decides() {
    // One message in each dimension: around, or to either side? The grid that the program made tells.
    let part = |rank: &mut Rank<'_>| {
        let dims = dims2(rank.ranks);
        for along in 0..2 {
            let [to, from] = [1, -1].map(|by| beside(&dims, rank.rank, along, by, true).unwrap());
            rank.exchange(to, from, 0, 500);
        }
    };
    let traced = |ranks: u32| {
        let mut application = program(ranks, part);
        let dims = dims2(ranks).to_vec();
        application.grids = vec![Topology { dims, periodic: vec![true; 2] }];
        application
    };
    let found = Sizes::new(&[&traced(2), &traced(4)]).unwrap();
    for ranks in [8, 16] {
        let (made, own) = (found.at(ranks.into()).unwrap(), program(ranks, part));
        let pairs = |application: &Application| graph(application).len();
        assert_eq!(pairs(&made), pairs(&own));
    }
}

#[test]
fn a_binomial_tree_up_and_down() {
    check(|rank| {
        for _ in 0..3 {
            let mut mask = 1;
            while mask < rank.ranks {
                if rank.rank & mask != 0 {
                    rank.send(rank.rank - mask, 7, 32);
                    break;
                }
                if rank.rank + mask < rank.ranks {
                    rank.recv(rank.rank + mask, 7, 32);
                }
                mask *= 2;
            }
            let mut mask = 1;
            while mask < rank.ranks && rank.rank & mask == 0 {
                mask *= 2;
            }
            if rank.rank > 0 {
                rank.recv(rank.rank - mask, 8, 32);
            }
            mask /= 2;
            while mask > 0 {
                if rank.rank + mask < rank.ranks {
                    rank.send(rank.rank + mask, 8, 32);
                }
                mask /= 2;
            }
        }
    });
}

#[test]
fn a_tree_like_a_heap() {
    check(|rank| {
        for _ in 0..2 {
            for child in [2 * rank.rank + 1, 2 * rank.rank + 2] {
                if child < rank.ranks {
                    rank.recv(child, 1, 100);
                }
            }
            if rank.rank > 0 {
                rank.send((rank.rank - 1) / 2, 1, 100);
            }
        }
    });
}

#[test]
fn a_tree_that_doubles() {
    // At 4 ranks it is that of a heap.
    let part = |rank: &mut Rank<'_>| {
        let mut mask = 1;
        while mask < rank.ranks {
            if rank.rank < mask {
                rank.send(rank.rank + mask, 1, 100);
            } else if rank.rank < 2 * mask {
                rank.recv(rank.rank - mask, 1, 100);
            }
            mask *= 2;
        }
    };
    let found = trained(&[2, 4, 8], &part).unwrap();
    assert_eq!(calls(&found.at(32).unwrap()), calls(&program(32, part)));
}

#[test]
fn a_butterfly_whose_messages_grow() {
    check(|rank| {
        for _ in 0..3 {
            let mut mask = 1;
            while mask < rank.ranks {
                let other = rank.rank ^ mask;
                rank.exchange(other, other, 4, 8 * u64::from(mask));
                rank.compute(2 * US);
                mask *= 2;
            }
        }
    });
}

#[test]
fn a_butterfly_from_far_to_near() {
    check(|rank| {
        let mut mask = rank.ranks / 2;
        while mask > 0 {
            let other = rank.rank ^ mask;
            rank.exchange(other, other, mask.ilog2() as i32, 1_024);
            mask /= 2;
        }
    });
}

#[test]
fn a_dissemination() {
    check(|rank| {
        let mut far = 1;
        while far < rank.ranks {
            let (own, all) = (rank.rank, rank.ranks);
            rank.exchange((own + far) % all, (own + all - far) % all, 1, 0);
            far *= 2;
        }
    });
}

#[test]
fn a_root_that_receives_from_each() {
    check(|rank| match rank.rank {
        0 => (1..rank.ranks).for_each(|from| rank.recv(from, 2, 40)),
        _ => rank.send(0, 2, 40),
    });
}

/// A wildcard receive takes one message; the others still need receives of their own.
#[test]
fn a_root_that_receives_from_any_and_answers_each() {
    for times in 1..=2 {
        check(|rank| {
            for _ in 0..times {
                match rank.rank {
                    0 => {
                        (1..rank.ranks).for_each(|_| rank.recv(NONE, 1, 8));
                        (1..rank.ranks).for_each(|to| rank.send(to, 2, 9));
                    }
                    _ => {
                        rank.send(0, 1, 8);
                        rank.recv(0, 2, 9);
                    }
                }
            }
        });
    }
}

#[test]
fn an_exchange_with_each() {
    check(|rank| {
        for far in 1..rank.ranks {
            let (own, all) = (rank.rank, rank.ranks);
            rank.exchange((own + far) % all, (own + all - far) % all, 1, 256);
        }
    });
}

#[test]
fn stencil_tree_and_butterfly_in_one_program() {
    check_graph(|rank| {
        for _ in 0..4 {
            rank.compute(50 * US);
            stencil(rank, &dims2(rank.ranks), true, false, true);
            let mut mask = 1;
            while mask < rank.ranks {
                let other = rank.rank ^ mask;
                rank.exchange(other, other, 99, 8);
                mask *= 2;
            }
            if rank.rank > 0 {
                rank.send((rank.rank - 1) / 2, 98, 100);
            }
            for child in [2 * rank.rank + 1, 2 * rank.rank + 2] {
                if child < rank.ranks {
                    rank.recv(child, 98, 100);
                }
            }
            rank.allreduce(8);
        }
    });
}

#[test]
fn sizes_and_times_follow_the_number_of_ranks() {
    let part = |rank: &mut Rank<'_>| {
        let (own, all) = (rank.rank, rank.ranks);
        rank.compute(1_000_000 * US / i64::from(all));
        rank.exchange((own + 1) % all, (own + all - 1) % all, 1, 1 << 20 >> all.ilog2());
        rank.compute(77 * US);
        rank.exchange((own + 1) % all, (own + all - 1) % all, 2, 512);
    };
    let found = check(part);
    let computed = |application: &Application| -> Vec<i64> {
        let ps = |step: &Step| match step {
            Step::Compute { ps, .. } => Some(*ps),
            _ => None,
        };
        application.tapes.iter().flat_map(|tape| tape.steps.iter().filter_map(ps)).collect()
    };
    for ranks in [8, 64] {
        let (made, own) = (found.at(ranks.into()).unwrap(), program(ranks, part));
        assert_eq!(computed(&made), computed(&own));
    }
}

#[test]
fn waiting_for_any_is_a_choice_at_every_size() {
    // Ranks complete their requests in different orders.
    let part = |rank: &mut Rank<'_>| {
        let (own, all) = (rank.rank, rank.ranks);
        let peers = [(own + all - 1) % all, (own + 1) % all];
        for tag in [0, 1] {
            rank.message(false, peers[tag as usize], tag, 100, true);
        }
        rank.message(true, peers[1], 0, 100, false);
        rank.message(true, peers[0], 1, 100, false);
        let mut open = std::mem::take(&mut rank.open);
        if own % 2 == 1 {
            open.reverse();
        }
        let first = rank.tape.candidates.len() as u32;
        for (place, request) in open.iter().enumerate() {
            let done = place == 0;
            rank.tape.candidates.push(Candidate { parts: [NONE, *request], done });
        }
        rank.tape.steps.push(Step::Choose { first, count: 2, test: Test::All, ps: 0 });
        rank.tape.steps.push(Step::Wait { request: open[1] });
    };
    check(part);
}

#[test]
fn what_is_not_a_function_is_named() {
    let error = trained(&[2, 4], &|rank: &mut Rank<'_>| {
        rank.allreduce(8);
        match (rank.rank, rank.ranks) {
            (1, 4) => rank.send(3, 17, 8),
            (3, 4) => rank.recv(1, 17, 8),
            _ => {}
        }
    });
    let Err(SizesError::NotFound { call, number, rank, ranks }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((call.as_str(), number, rank, ranks), ("MPI_Send to rank 3 with tag 17", 2, 1, 4));
}

#[test]
fn traces_must_differ_in_size() {
    let part = |rank: &mut Rank<'_>| rank.allreduce(8);
    assert_eq!(trained(&[4, 4], &part).err(), Some(SizesError::SameSize { ranks: 4 }));
    assert_eq!(trained(&[1, 4], &part).err(), Some(SizesError::OneRank));
}

#[test]
fn more_sizes_leave_less_to_assume() {
    let part = |rank: &mut Rank<'_>| {
        for _ in 0..3 {
            stencil(rank, &dims2(rank.ranks), false, false, false);
        }
    };
    let found = trained(&[4, 8, 16], &part).unwrap();
    assert!(found.assumed.is_empty(), "{:?}", found.assumed);
    assert_eq!(calls(&found.at(32).unwrap()), calls(&program(32, part)));
}
