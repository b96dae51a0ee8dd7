//! Which algorithm a collective uses: rules by operation and size, the first that applies.

use mpi_abi::Call as MpiCall;
use program::operation_name;
use simulate::{
    collectives::{ALGORITHMS, Collective, CollectiveError, Op, Shape},
    loggops::Params,
};

use crate::step::{Application, Operation};

/// `allreduce<4KiB=recursive-doubling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub op: Op,
    /// Applies to fewer bytes than this; to all if None. Bytes of the vector, or of one block.
    pub below: Option<u64>,
    pub algorithm: &'static str,
}

/// Rules of the user, then the table of a current MPI library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

const fn rule(op: Op, below: Option<u64>, algorithm: &'static str) -> Rule {
    Rule { op, below, algorithm }
}

/// Shorter segments would be mostly overhead.
const LEAST_SEGMENT: u64 = 1 << 10;

/// After the decision tables of Open MPI and MPICH: short messages in as few rounds as possible, long ones
/// with as few bytes as possible.
const USUAL: [Rule; 15] = [
    rule(Op::Barrier, None, "dissemination"),
    rule(Op::Bcast, Some(64 << 10), "binomial"),
    rule(Op::Bcast, None, "pipelined"),
    rule(Op::Reduce, Some(64 << 10), "binomial"),
    rule(Op::Reduce, None, "pipelined"),
    rule(Op::Allreduce, Some(10_000), "recursive-doubling"),
    rule(Op::Allreduce, None, "ring"),
    rule(Op::Allgather, Some(2 << 10), "dissemination"),
    rule(Op::Allgather, None, "ring"),
    rule(Op::Alltoall, Some(256), "dissemination"),
    rule(Op::Alltoall, None, "linear"),
    rule(Op::Scatter, None, "binomial"),
    rule(Op::Gather, None, "binomial"),
    rule(Op::Scan, None, "recursive-doubling"),
    rule(Op::ReduceScatter, None, "recursive-doubling"),
];

impl Rules {
    /// Refuses rules that name an algorithm the operation does not have.
    pub fn new(rules: Vec<Rule>) -> Result<Rules, CollectiveError> {
        for rule in &rules {
            let shape = Shape { op: rule.op, ranks: 2, bytes: 1, arity: 2, segment: None };
            Collective::new(Some(rule.algorithm), shape)?;
        }
        Ok(Rules { rules })
    }

    /// These rules before others.
    #[must_use]
    pub fn over(&self, others: &Rules) -> Rules {
        Rules { rules: [&self.rules[..], &others.rules[..]].concat() }
    }

    /// The operations that these rules are about.
    fn names(&self, op: Op) -> bool {
        self.rules.iter().any(|rule| rule.op == op)
    }

    /// Finds an algorithm by name, for rules.
    pub fn algorithm(name: &str) -> Option<&'static str> {
        ALGORITHMS.iter().map(|algorithm| algorithm.name()).find(|known| *known == name)
    }

    pub fn of(&self, op: Op, bytes: u64) -> &'static str {
        let fits = |rule: &&Rule| rule.op == op && rule.below.is_none_or(|below| bytes < below);
        let found = self.rules.iter().find(fits).or_else(|| USUAL.iter().find(fits));
        found.map_or(op.usual_algorithm(), |rule| rule.algorithm)
    }

    /// The collective that the rules choose. Its segments are short enough to be sent eagerly: MPI libraries post the
    /// next receives early, so that segments do not wait for a handshake each.
    pub fn collective(
        &self,
        op: Op,
        ranks: u64,
        bytes: u64,
        net: Option<&Params>,
    ) -> Result<Collective, CollectiveError> {
        let name = self.of(op, bytes);
        let usual = ALGORITHMS.iter().find(|known| known.name() == name);
        let usual = usual.and_then(|known| known.segment());
        let most = net.map_or(u64::MAX, |net| net.eager_limit.max(LEAST_SEGMENT));
        let segment = usual.map(|usual| usual.min(most));
        Collective::new(Some(name), Shape { op, ranks, bytes, arity: 2, segment })
    }
}

/// What rules change in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Calls of the operations that the rules name, by all ranks.
    pub calls: u64,
    /// Those that get another algorithm.
    pub changed: u64,
    /// Those with a size for each rank, which have no algorithm to choose.
    pub uneven: u64,
}

impl Application {
    /// What these rules change in a program with others.
    pub fn mapped(&self, rules: &Rules, others: &Rules) -> Mapped {
        let over = rules.over(others);
        let mut mapped = Mapped::default();
        for call in self.tapes.iter().flat_map(|tape| &tape.calls) {
            match call.operation {
                Operation::Regular { op, bytes, .. } if rules.names(op) => {
                    mapped.calls += 1;
                    mapped.changed += u64::from(over.of(op, bytes) != others.of(op, bytes));
                }
                Operation::Regular { .. } => {}
                Operation::Blocks { op, .. } => {
                    mapped.calls += u64::from(rules.names(op));
                    mapped.uneven += u64::from(rules.names(op));
                }
                Operation::Rooted { .. } | Operation::Messages { .. } => {
                    // MPI_Alltoallv for alltoall.
                    let name = MpiCall::from_number(call.mpi).map(operation_name);
                    let name = name.unwrap_or_default();
                    let base = name.strip_suffix(['v', 'w']).unwrap_or_default();
                    let named = Op::regular().any(|op| op.name() == base && rules.names(op));
                    mapped.calls += u64::from(named);
                    mapped.uneven += u64::from(named);
                }
            }
        }
        mapped
    }

    /// Whether two sets of rules choose the same algorithm for every collective of the program.
    pub fn maps_alike(&self, one: &Rules, other: &Rules) -> bool {
        let calls = self.tapes.iter().flat_map(|tape| &tape.calls);
        calls
            .filter_map(|call| match call.operation {
                Operation::Regular { op, bytes, .. } => Some((op, bytes)),
                Operation::Blocks { .. }
                | Operation::Rooted { .. }
                | Operation::Messages { .. } => None,
            })
            .all(|(op, bytes)| one.of(op, bytes) == other.of(op, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_an_algorithm_at_every_size() {
        let rules = Rules::default();
        for op in Op::regular() {
            for bytes in [0, 1, 255, 256, 9_999, 10_000, 1 << 20] {
                assert!(rules.collective(op, 7, bytes, None).is_ok(), "{} of {bytes}", op.name());
            }
        }
    }

    #[test]
    fn rules_come_before_the_table_and_the_first_applies() {
        let rules = Rules::new(vec![
            Rule { op: Op::Allreduce, below: Some(100), algorithm: "binomial" },
            Rule { op: Op::Allreduce, below: Some(200), algorithm: "ring" },
        ])
        .unwrap();
        assert_eq!(rules.of(Op::Allreduce, 99), "binomial");
        assert_eq!(rules.of(Op::Allreduce, 100), "ring");
        assert_eq!(rules.of(Op::Allreduce, 200), "recursive-doubling");
        let wrong = vec![Rule { op: Op::Bcast, below: None, algorithm: "dissemination" }];
        assert!(Rules::new(wrong).is_err());
    }
}
