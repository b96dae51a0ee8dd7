use std::collections::HashSet;

use super::*;

fn collective(algorithm: &str, op: Op, ranks: u64) -> Collective {
    let shape = Shape { op, ranks, bytes: 10, arity: 3, segment: Some(4) };
    Collective::new(Some(algorithm), shape).unwrap()
}

fn all() -> impl Iterator<Item = (&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops().iter().map(|&op| (a.name(), op)))
}

/// Whose data each rank holds at the end, if everything that has arrived is forwarded.
fn knowledge(collective: &Collective) -> Vec<HashSet<u64>> {
    let ranks = collective.ranks();
    let mut knows: Vec<HashSet<u64>> = (0..ranks).map(|rank| HashSet::from([rank])).collect();
    let _ = collective.rounds(&mut |round| {
        let before = knows.clone();
        for span in round {
            for (src, dst) in span.edges(ranks) {
                knows[dst as usize].extend(&before[src as usize]);
            }
        }
        ControlFlow::Continue(())
    });
    knows
}

#[test]
fn everybody_gets_the_data_the_operation_promises() {
    for (algorithm, op) in all() {
        for ranks in 2..40 {
            let knows = knowledge(&collective(algorithm, op, ranks));
            let has = |rank: u64, of: u64| knows[rank as usize].contains(&of);
            let promised = |rank: u64| match op {
                Op::Bcast | Op::Scatter => has(rank, 0),
                Op::Reduce | Op::Gather => has(0, rank),
                Op::Scan => (0..=rank).all(|of| has(rank, of)),
                Op::Exscan => (0..rank).all(|of| has(rank, of)),
                _ => (0..ranks).all(|of| has(rank, of)),
            };
            assert!((0..ranks).all(promised), "{algorithm} {} over {ranks} ranks", op.name());
        }
    }
}

#[test]
fn in_a_round_a_rank_sends_once_and_receives_once_at_most_and_never_to_itself() {
    for (algorithm, op) in all() {
        for ranks in 1..40 {
            let _ = collective(algorithm, op, ranks).rounds(&mut |round| {
                let (mut senders, mut receivers) = (HashSet::new(), HashSet::new());
                assert!(!round.is_empty());
                for span in round {
                    let mut edges = 0;
                    for (src, dst) in span.edges(ranks) {
                        let at = format!("{algorithm} {} {ranks}: {src} to {dst}", op.name());
                        assert!(src < ranks && dst < ranks && src != dst, "{at}");
                        assert!(senders.insert(src) && receivers.insert(dst), "{at}");
                        edges += 1;
                    }
                    assert_eq!(edges, span.messages(ranks));
                    assert!(edges > 0);
                }
                ControlFlow::Continue(())
            });
        }
    }
}

/// Bytes that rank 0 sends and receives.
fn traffic(collective: &Collective) -> (u64, u64) {
    let (mut sent, mut received) = (0, 0);
    let _ = collective.rounds(&mut |round| {
        for span in round {
            for (src, dst) in span.edges(collective.ranks()) {
                sent += if src == 0 { span.bytes } else { 0 };
                received += if dst == 0 { span.bytes } else { 0 };
            }
        }
        ControlFlow::Continue(())
    });
    (sent, received)
}

#[test]
fn blocks_travel_once_where_the_algorithm_is_thrifty() {
    for ranks in 1..100 {
        let others = 10 * (ranks - 1);
        for (algorithm, op, expected) in [
            ("binomial", Op::Scatter, (others, 0)),
            ("binomial", Op::Gather, (0, others)),
            ("linear", Op::Alltoall, (others, others)),
            ("pairwise", Op::Alltoall, (others, others)),
            ("ring", Op::Allgather, (others, others)),
            ("dissemination", Op::Allgather, (others, others)),
        ] {
            let found = traffic(&collective(algorithm, op, ranks));
            assert_eq!(found, expected, "{algorithm} {} {ranks}", op.name());
        }
    }
}

/// Written down: what each rank of an exscan combines, from MPI's definition.
#[test]
fn an_exscan_combines_as_often_as_its_partial_results_require() {
    for ranks in 2..70u64 {
        // What a rank forwards covers the ranks up to itself; its result those below.
        let mut forwards: Vec<_> = (0..ranks).map(|rank| rank..rank + 1).collect();
        let mut results: Vec<Option<std::ops::Range<u64>>> = vec![None; ranks as usize];
        let mut rounds = Vec::new();
        let _ = collective("recursive-doubling", Op::Exscan, ranks).rounds(&mut |round| {
            rounds.push(round[0]);
            ControlFlow::Continue(())
        });
        for (number, span) in rounds.iter().enumerate() {
            let before = forwards.clone();
            let mut most = 0;
            for (src, dst) in span.edges(ranks) {
                let (got, dst) = (before[src as usize].clone(), dst as usize);
                let mut combined = 0;
                let result = match results[dst].take() {
                    Some(result) => {
                        assert_eq!(got.end, result.start);
                        combined += 1;
                        got.start..result.end
                    }
                    None => got.clone(),
                };
                results[dst] = Some(result);
                if number + 1 < rounds.len() {
                    combined += 1;
                    forwards[dst] = got.start..forwards[dst].end;
                }
                most = most.max(combined);
            }
            assert_eq!(span.reduce, 10 * most, "round {number} of {ranks} ranks");
        }
        assert_eq!(results[0], None);
        assert!((1..ranks).all(|rank| results[rank as usize] == Some(0..rank)));
    }
}

#[test]
fn the_binomial_broadcast_over_fifteen_ranks_has_the_papers_longest_paths() {
    let mut parent = [0; 15];
    let _ = collective("binomial", Op::Bcast, 15).rounds(&mut |round| {
        for (src, dst) in round[0].edges(15) {
            parent[dst as usize] = src as usize;
        }
        ControlFlow::Continue(())
    });
    let path = |mut rank: usize| {
        let mut path = vec![rank];
        while rank != 0 {
            rank = parent[rank];
            path.insert(0, rank);
        }
        path
    };
    assert_eq!(path(7), [0, 1, 3, 7]);
    assert_eq!(path(14), [0, 2, 6, 14]);
    assert_eq!(path(13), [0, 1, 5, 13]);
    assert_eq!(path(11), [0, 1, 3, 11]);
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let shape = Shape { op: Op::Bcast, ranks: 4, bytes: 1, arity: 2, segment: None };
    let refused = |algorithm: Option<&str>, shape: Shape| {
        Collective::new(algorithm, shape).unwrap_err().to_string()
    };
    assert!(refused(None, Shape { ranks: 0, ..shape }).contains("at least 1"));
    assert!(refused(None, Shape { ranks: u64::MAX, ..shape }).contains("2^32"));
    assert!(refused(Some("rings"), shape).contains("ring"));
    assert!(refused(Some("ring"), shape).contains("binomial"));
    assert!(refused(Some("nary"), Shape { arity: 0, ..shape }).contains("child"));
    assert!(refused(None, Shape { segment: Some(0), ..shape }).contains("segment"));
    let many = Shape { segment: Some(1), bytes: u64::MAX, ..shape };
    assert!(refused(None, many).contains("larger"));
}

fn of_blocks(algorithm: &str, op: Op, ranks: u64, blocks: &Blocks) -> Collective {
    let shape = Shape { op, ranks, bytes: 10, arity: 3, segment: None };
    Collective::of_blocks(Some(algorithm), shape, *blocks).unwrap()
}

fn all_of_blocks() -> impl Iterator<Item = (&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops_of_blocks().iter().map(|&op| (a.name(), op)))
}

/// (sender, receiver, bytes, bytes combined) of each round.
fn messages(collective: &Collective) -> Vec<Vec<(u64, u64, u64, u64)>> {
    let mut rounds = Vec::new();
    let _ = collective.rounds(&mut |round| {
        let of = |span: &Span| {
            let Span { bytes, reduce, .. } = *span;
            span.edges(collective.ranks()).map(move |(src, dst)| (src, dst, bytes, reduce))
        };
        let mut all: Vec<_> = round.iter().flat_map(of).collect();
        all.sort_unstable();
        rounds.push(all);
        ControlFlow::Continue(())
    });
    rounds
}

static TENS: [u64; 40] = [10; 40];

#[test]
fn blocks_of_one_size_make_the_messages_of_the_regular_operation() {
    for (algorithm, op) in all_of_blocks() {
        for ranks in 1..40 {
            let regular = Collective::new(
                Some(algorithm),
                Shape { op: op.evened(), ranks, bytes: 10, arity: 3, segment: None },
            )
            .unwrap();
            for blocks in [
                Blocks::Uniform { from: 10, to: 10, seed: 3 },
                Blocks::Listed(&[10]),
                Blocks::Listed(&TENS[..ranks as usize]),
            ] {
                let found = messages(&of_blocks(algorithm, op, ranks, &blocks));
                assert_eq!(found, messages(&regular), "{algorithm} {} {ranks}", op.name());
            }
            let equal = Shape { op, ..*regular.shape() };
            let equal = Collective::new(Some(algorithm), equal).unwrap();
            assert_eq!(messages(&equal), messages(&regular));
        }
    }
}

/// Blocks are moved one by one, by what each rank has and what it is to get. Independent of how the messages are
/// described.
#[test]
fn each_message_is_as_long_as_the_blocks_that_it_carries() {
    let blocks = Blocks::Uniform { from: 1, to: 1 << 40, seed: 5 };
    for (algorithm, op) in all_of_blocks() {
        for ranks in 2..20u64 {
            let at = format!("{algorithm} {} {ranks}", op.name());
            // The blocks by origin that each rank has; of a reduction, partial results by destination.
            let mut has: Vec<HashSet<u64>> = (0..ranks)
                .map(|rank| match op {
                    Op::Allgatherv => HashSet::from([rank]),
                    _ => (0..ranks).collect(),
                })
                .collect();
            let mut exchanged = HashSet::new();
            let mut combined = vec![1; ranks as usize];
            for round in messages(&of_blocks(algorithm, op, ranks, &blocks)) {
                let before = has.clone();
                for (src, dst, bytes, reduce) in round {
                    assert!(exchanged.insert((src, dst)) || algorithm == "ring", "{at}");
                    match op {
                        Op::Gatherv => assert_eq!((dst, bytes), (0, blocks.of_rank(src)), "{at}"),
                        Op::Scatterv => assert_eq!((src, bytes), (0, blocks.of_rank(dst)), "{at}"),
                        Op::Alltoallv => assert_eq!(bytes, blocks.of_pair(ranks, src, dst), "{at}"),
                        Op::ReduceScatter => {
                            assert_eq!(reduce, bytes, "{at}");
                            let sent = (0..ranks).find(|&block| blocks.of_rank(block) == bytes);
                            let sent = sent.expect("one block");
                            // A partial result leaves its rank for good.
                            assert!(before[src as usize].contains(&sent), "{at}");
                            has[src as usize].remove(&sent);
                            combined[sent as usize] += 1;
                        }
                        _ => {
                            let lacks = &before[src as usize] - &before[dst as usize];
                            let all = |set: &HashSet<u64>| -> u64 {
                                set.iter().map(|&rank| blocks.of_rank(rank)).sum()
                            };
                            // Of the linear algorithm, each sends only its own.
                            let one = if algorithm == "dissemination" {
                                all(&lacks)
                            } else if algorithm == "linear" {
                                blocks.of_rank(src)
                            } else {
                                bytes
                            };
                            assert_eq!(bytes, one, "{at}: {src} to {dst}");
                            let got = lacks.iter().filter(|&&rank| {
                                algorithm == "dissemination" || blocks.of_rank(rank) == bytes
                            });
                            has[dst as usize].extend(got);
                        }
                    }
                }
            }
            match op {
                Op::Allgatherv => assert!(has.iter().all(|has| has.len() as u64 == ranks), "{at}"),
                Op::ReduceScatter => {
                    assert!(combined.iter().all(|&ranks_of| ranks_of == ranks), "{at}");
                    let own = |rank: u64| has[rank as usize] == HashSet::from([rank]);
                    assert!((0..ranks).all(own), "{at}");
                }
                Op::Alltoallv => assert_eq!(exchanged.len() as u64, ranks * (ranks - 1), "{at}"),
                _ => assert_eq!(exchanged.len() as u64, ranks - 1, "{at}"),
            }
        }
    }
}

#[test]
fn listed_sizes_are_repeated_and_random_ones_are_in_their_range() {
    let listed = Blocks::Listed(&[3, 5]);
    assert_eq!((0..5).map(|rank| listed.of_rank(rank)).collect::<Vec<_>>(), [3, 5, 3, 5, 3]);
    assert_eq!((listed.of_pair(3, 0, 1), listed.of_pair(3, 1, 0)), (5, 5));
    for (from, to) in [(7, 7), (0, 1), (10, 20), (0, u64::MAX)] {
        let blocks = Blocks::Uniform { from, to, seed: 1 };
        let sizes: HashSet<u64> = (0..1000).map(|rank| blocks.of_rank(rank)).collect();
        assert!(sizes.iter().all(|size| (from..=to).contains(size)));
        assert!(sizes.len() as u64 > (to - from).min(9));
    }
}

#[test]
fn sizes_that_do_not_fit_the_operation_are_refused() {
    let shape = Shape { op: Op::Gatherv, ranks: 4, bytes: 1, arity: 2, segment: None };
    let refused = |algorithm: Option<&str>, op: Op, blocks: Blocks| {
        Collective::of_blocks(algorithm, Shape { op, ..shape }, blocks).unwrap_err().to_string()
    };
    let few = || Blocks::Listed(&[1, 2]);
    assert!(refused(None, Op::Gatherv, Blocks::Listed(&[])).contains("at least one"));
    assert!(refused(None, Op::Gatherv, Blocks::Listed(&[1; 5])).contains("at most 4"));
    assert!(refused(None, Op::Alltoallv, Blocks::Listed(&[1; 17])).contains("at most 16"));
    assert!(refused(None, Op::Bcast, few()).contains("alltoallv"));
    assert!(refused(Some("recursive-doubling"), Op::ReduceScatter, few()).contains("ring"));
    assert!(refused(Some("ring"), Op::Gatherv, few()).contains("linear"));
    let many = Shape { op: Op::Alltoallv, ranks: 1 << 20, ..shape };
    let many = Collective::of_blocks(None, many, Blocks::Listed(&[1])).unwrap_err();
    assert!(many.to_string().contains("fewer ranks"), "{many}");
    let none = Blocks::Uniform { from: 2, to: 1, seed: 0 };
    assert!(refused(None, Op::Gatherv, none).contains("between 2 and 1"));
}

#[test]
fn an_algorithms_own_segments_are_limited_too() {
    let shape = |segment| Shape { op: Op::Bcast, ranks: 2, bytes: 1 << 50, arity: 2, segment };
    for (algorithm, segment) in [("pipelined", None), ("pipelined", Some(8)), ("nary", Some(8))] {
        let refused = Collective::new(Some(algorithm), shape(segment));
        assert!(matches!(refused, Err(CollectiveError::TooManySegments { .. })), "{algorithm}");
    }
    assert!(Collective::new(Some("nary"), shape(None)).is_ok());
}
