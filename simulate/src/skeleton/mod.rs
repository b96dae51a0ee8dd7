//! Skeletons of parallel programs: compute, messages between neighbours on a grid, and collectives, as in
//! the applications of the 2010 noise study. They are models: they have the communication pattern of a
//! program, with sizes and times that are assumed.
//!
//! A [`Skeleton`] describes the model, [`Skeleton::program`] turns it into steps ([`Program`]), and these
//! into a schedule of the whole program or into the schedules of its loop bodies ([`Bodies`]), which are run
//! one after another in the memory of one iteration.

mod grid;
mod patterns;
mod presets;
mod program;
mod run;

use thiserror::Error;

pub use grid::Grid;
pub use presets::{Preset, Published};
pub use program::{Only, Program};
pub use run::{Bodies, Runs, Scratch, runs};

use crate::{
    collectives::{CollectiveError, Op},
    event::BuildError,
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SkeletonError {
    #[error("too many ranks for a skeleton: {0} (at most 2 billion)")]
    TooManyRanks(u64),
    #[error("{what} of a skeleton must be {from} to {to}, not {given}")]
    OutOfRange { what: &'static str, from: u64, to: u64, given: u64 },
    #[error("{ranks} ranks are not a multiple of the {grid} ranks of the grid")]
    NotCopies { ranks: u64, grid: u64 },
    #[error("too many operations for one schedule: {operations}; use fewer ranks or iterations")]
    TooLarge { operations: u64 },
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A model of a parallel program.
#[derive(Clone, Debug, PartialEq)]
pub struct Skeleton {
    pub pattern: Pattern,
    /// Copies of the grid side by side, which have only the collectives in common. This is how the study
    /// extrapolates a traced program to more ranks.
    pub copies: u64,
    pub iterations: u64,
    /// CPU time of a rank per iteration, ps.
    pub compute: i64,
    /// Every piece of compute is a multiple of this, ps: files have a unit of time.
    pub resolution: i64,
    /// Bytes of a message between neighbours.
    pub bytes: u64,
    pub imbalance: Imbalance,
    /// Collectives before the first iteration.
    pub setup: Vec<Call>,
    /// Collectives at the end of each iteration.
    pub calls: Vec<Call>,
}

/// Who sends to whom.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Sweeps from the corners of a grid in the plane, two from each, block by block: receive from both
    /// upstream neighbours, compute, send downstream; all blocking, as in Sweep3D.
    Wavefront { sides: [u64; 2], blocks: u64 },
    /// Compute, then exchange with up to six neighbours: receives and sends are posted together, then all
    /// are waited for.
    Halo { sides: [u64; 3], exchanges: u64 },
    /// A V-cycle: exchanges on each level down and up again, with a quarter of the bytes and an eighth of
    /// the compute from level to level. On the first `full` levels all ranks take part, then every second
    /// one in each direction, every fourth, ...; at the coarsest level an allreduce.
    Multigrid { sides: [u64; 3], levels: u64, full: u64, exchanges: u64 },
    /// A step of an ocean model: compute and exchanges with up to four neighbours, then a solver of many
    /// short iterations.
    Ocean { sides: [u64; 2], exchanges: u64, solver: Solver },
}

/// The solver of an ocean model.
#[derive(Clone, Debug, PartialEq)]
pub struct Solver {
    /// Per step.
    pub iterations: u64,
    /// CPU time of a rank per iteration, ps.
    pub compute: i64,
    /// The first of this many iterations exchanges messages with the neighbours.
    pub exchange_every: u64,
    /// Collectives of each iteration.
    pub calls: Vec<Call>,
}

/// A collective over all ranks, by its default algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub op: Op,
    pub bytes: u64,
    pub times: u64,
}

/// Differences in compute between ranks: each step of each rank takes its time multiplied by 1 + x, where x
/// is uniform within this many parts per million. It is the same in every iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imbalance {
    /// At most a million.
    pub ppm: u32,
    pub seed: u64,
}

impl Imbalance {
    /// The time of a rank for a step that takes `ps` on average.
    pub fn of(&self, ps: i64, rank: u64, step: u64) -> i64 {
        if self.ppm == 0 {
            return ps;
        }
        let drawn = random::draw(random::draw(self.seed, rank), step) as i64 >> 32;
        let swing = i128::from(ps) * i128::from(self.ppm) * i128::from(drawn);
        ps + (swing / (1_000_000 << 31)) as i64
    }
}

impl Pattern {
    /// The name used in the command line and in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Pattern::Wavefront { .. } => "wavefront",
            Pattern::Halo { .. } => "halo",
            Pattern::Multigrid { .. } => "multigrid",
            Pattern::Ocean { .. } => "ocean",
        }
    }

    pub fn sides(&self) -> [u64; 3] {
        match *self {
            Pattern::Wavefront { sides: [x, y], .. } | Pattern::Ocean { sides: [x, y], .. } => {
                [x, y, 1]
            }
            Pattern::Halo { sides, .. } | Pattern::Multigrid { sides, .. } => sides,
        }
    }
}

impl Skeleton {
    /// The same on this many ranks: as many copies of its grid as that takes.
    pub fn with_ranks(self, ranks: u64) -> Result<Skeleton, SkeletonError> {
        let grid = Grid { sides: self.pattern.sides(), copies: 1 }.ranks();
        if grid == 0 || ranks == 0 || !ranks.is_multiple_of(grid) {
            return Err(SkeletonError::NotCopies { ranks, grid });
        }
        Ok(Skeleton { copies: ranks / grid, ..self })
    }
}
