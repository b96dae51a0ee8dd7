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

#[test]
fn an_algorithms_own_segments_are_limited_too() {
    let shape = |segment| Shape { op: Op::Bcast, ranks: 2, bytes: 1 << 50, arity: 2, segment };
    for (algorithm, segment) in [("pipelined", None), ("pipelined", Some(8)), ("nary", Some(8))] {
        let refused = Collective::new(Some(algorithm), shape(segment));
        assert!(matches!(refused, Err(CollectiveError::TooManySegments { .. })), "{algorithm}");
    }
    assert!(Collective::new(Some("nary"), shape(None)).is_ok());
}
