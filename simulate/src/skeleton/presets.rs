//! Models of the three applications of the 2010 noise study, with the calls that it counts and the share of
//! communication that it measured. Where it is silent, values are assumed: the order of calls, the sizes of
//! messages, the imbalance. Compute is chosen so that communication has its share on the network of the
//! machine that the study traced (`xt4`).

use super::{Call, Imbalance, Pattern, Skeleton, Solver};
use crate::collectives::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    Sweep3d,
    Amg2006,
    Pop,
}

/// What the study prints about an application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Ranks of the traced run.
    pub ranks: u64,
    /// Share of communication in its time.
    pub communication_pct: f64,
    /// Calls of each collective.
    pub calls: &'static [(&'static str, u64)],
    /// Ranks and messages of the largest simulation.
    pub largest_ranks: u64,
    pub largest_messages: u64,
}

const fn call(op: Op, bytes: u64, times: u64) -> Call {
    Call { op, bytes, times }
}

const NANOSECOND: i64 = 1_000;
const MICROSECOND: i64 = 1_000_000;

impl Preset {
    pub const ALL: [Preset; 3] = [Preset::Sweep3d, Preset::Amg2006, Preset::Pop];

    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Sweep3d => "sweep3d",
            Preset::Amg2006 => "amg2006",
            Preset::Pop => "pop",
        }
    }

    pub const fn published(self) -> Published {
        match self {
            Preset::Sweep3d => Published {
                ranks: 100,
                communication_pct: 17.2,
                calls: &[("bcast", 4), ("barrier", 3), ("allreduce", 32)],
                largest_ranks: 16_000,
                largest_messages: 289_000_000,
            },
            // 9.72 % in collectives, and 45 % of the communication between pairs of ranks.
            Preset::Amg2006 => Published {
                ranks: 125,
                communication_pct: 17.7,
                calls: &[
                    ("allgather", 24),
                    ("allreduce", 356),
                    ("barrier", 1),
                    ("bcast", 23),
                    ("scan", 8),
                ],
                largest_ranks: 16_000,
                largest_messages: 222_000_000,
            },
            Preset::Pop => Published {
                ranks: 128,
                communication_pct: 77.2,
                calls: &[("allreduce", 608), ("barrier", 575), ("bcast", 703)],
                largest_ranks: 32_768,
                largest_messages: 625_000_000,
            },
        }
    }

    /// The model at the size of the traced run.
    pub fn skeleton(self) -> Skeleton {
        match self {
            Preset::Sweep3d => sweep3d(),
            Preset::Amg2006 => amg2006(),
            Preset::Pop => pop(),
        }
    }
}

/// One iteration per allreduce; the blocks of a sweep follow from the number of messages.
fn sweep3d() -> Skeleton {
    Skeleton {
        pattern: Pattern::Wavefront { sides: [10, 10], blocks: 39 },
        copies: 1,
        iterations: 32,
        compute: 98_000 * MICROSECOND,
        resolution: NANOSECOND,
        bytes: 1_200,
        imbalance: Imbalance::default(),
        setup: vec![call(Op::Bcast, 64, 4), call(Op::Barrier, 0, 3)],
        calls: vec![call(Op::Allreduce, 8, 1)],
    }
}

/// The setup has all calls but allreduces; each of the 85 V-cycles has four of these, one of them on the
/// coarsest level. The exchanges per level follow from the number of messages.
fn amg2006() -> Skeleton {
    Skeleton {
        pattern: Pattern::Multigrid { sides: [5, 5, 5], levels: 7, full: 5, exchanges: 2 },
        copies: 1,
        iterations: 85,
        compute: 6_900 * MICROSECOND,
        resolution: NANOSECOND,
        bytes: 2_048,
        imbalance: Imbalance { ppm: 50_000, seed: 1 },
        setup: vec![
            call(Op::Barrier, 0, 1),
            call(Op::Bcast, 64, 23),
            call(Op::Allgather, 4, 24),
            call(Op::Scan, 8, 8),
            call(Op::Allreduce, 8, 16),
        ],
        calls: vec![call(Op::Allreduce, 8, 3)],
    }
}

/// 23 time steps of 25 solver iterations with an allreduce, a barrier and a broadcast each; the exchanges
/// follow from the number of messages.
fn pop() -> Skeleton {
    let solver = Solver {
        iterations: 25,
        compute: 31 * MICROSECOND,
        exchange_every: 5,
        calls: vec![call(Op::Allreduce, 8, 1), call(Op::Barrier, 0, 1), call(Op::Bcast, 64, 1)],
    };
    Skeleton {
        pattern: Pattern::Ocean { sides: [16, 8], exchanges: 3, solver },
        copies: 1,
        iterations: 23,
        compute: 1_035 * MICROSECOND,
        resolution: NANOSECOND,
        bytes: 1_024,
        imbalance: Imbalance { ppm: 50_000, seed: 1 },
        setup: vec![call(Op::Bcast, 64, 128), call(Op::Allreduce, 8, 10)],
        calls: vec![call(Op::Allreduce, 8, 1)],
    }
}
