//! From a description to steps: one function per pattern.

use super::{
    Call, Grid, Pattern, Program, Skeleton, SkeletonError, Solver,
    program::{Part, Step},
};
use crate::{
    collectives::{Collective, Op, Shape},
    event::LONGEST,
};

/// Ranks are numbered in 31 bits.
const MOST_RANKS: u64 = (1 << 31) - 2;
/// Each is a step in memory.
const MOST_EXCHANGES: u64 = 1 << 12;
/// Sizes would be 0 long before.
const MOST_LEVELS: u64 = 30;
const MOST_BLOCKS: u64 = 1 << 24;
/// Octants of a sweep in space are two sweeps from each corner in the plane, up and down.
const SWEEPS_PER_CORNER: u64 = 2;
/// As Sweep3D does them, from which end in x and in y; up there.
const CORNERS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];
/// Bytes of a message between neighbours on a coarse level, and of a collective for a dot product.
const NUMBER: u64 = 8;

impl Skeleton {
    pub fn program(&self) -> Result<Program, SkeletonError> {
        let grid = Grid { sides: self.pattern.sides(), copies: self.copies };
        for side in grid.sides {
            within("a side of the grid", side, 1, MOST_RANKS)?;
        }
        within("copies", self.copies, 1, MOST_RANKS)?;
        if grid.ranks() > MOST_RANKS {
            return Err(SkeletonError::TooManyRanks(grid.ranks()));
        }
        within("iterations", self.iterations, 1, u64::MAX)?;
        within("imbalance in parts per million", self.imbalance.ppm.into(), 0, 1_000_000)?;
        let mut writer = Writer {
            skeleton: self,
            ids: 0,
            collectives: Vec::new(),
            steps: Vec::new(),
            parts: Vec::new(),
        };
        writer.calls(&self.setup, grid.ranks())?;
        let setup = writer.part();
        match &self.pattern {
            Pattern::Wavefront { blocks, .. } => writer.wavefront(*blocks)?,
            Pattern::Halo { exchanges, .. } => writer.halo(*exchanges)?,
            Pattern::Multigrid { levels, full, exchanges, .. } => {
                writer.multigrid(*levels, *full, *exchanges, grid)?;
            }
            Pattern::Ocean { exchanges, solver, .. } => writer.ocean(*exchanges, solver, grid)?,
        }
        writer.calls(&self.calls, grid.ranks())?;
        let body = writer.part();
        let mut parts = setup;
        parts.push(Part::Repeat(self.iterations, body));
        let collectives = writer.collectives;
        let Skeleton { imbalance, resolution, .. } = *self;
        Ok(Program { grid, imbalance, resolution: resolution.max(1), collectives, parts })
    }
}

fn within(what: &'static str, given: u64, from: u64, to: u64) -> Result<(), SkeletonError> {
    match (from..=to).contains(&given) {
        true => Ok(()),
        false => Err(SkeletonError::OutOfRange { what, from, to, given }),
    }
}

struct Writer<'a> {
    skeleton: &'a Skeleton,
    /// Steps that have an imbalance of their own.
    ids: u64,
    collectives: Vec<Collective>,
    /// The body that is being written, and what precedes it.
    steps: Vec<Step>,
    parts: Vec<Part>,
}

impl Writer<'_> {
    /// Ends the body.
    fn end(&mut self) {
        if !self.steps.is_empty() {
            self.parts.push(Part::Body(std::mem::take(&mut self.steps)));
        }
    }

    /// Everything written since the last call.
    fn part(&mut self) -> Vec<Part> {
        self.end();
        std::mem::take(&mut self.parts)
    }

    fn compute(&mut self, ps: i64, stride: u64) -> Result<(), SkeletonError> {
        within("compute in picoseconds", ps as u64, 0, LONGEST as u64)?;
        if ps > 0 {
            self.steps.push(Step::Compute { ps, stride, id: self.ids });
            self.ids += 1;
        }
        Ok(())
    }

    /// Collectives are bodies of their own: most programs call the same one in many places.
    fn calls(&mut self, calls: &[Call], ranks: u64) -> Result<(), SkeletonError> {
        for &Call { op, bytes, times } in calls {
            let shape = Shape { op, ranks, bytes, arity: 2, segment: None };
            let known = self.collectives.iter().position(|known| *known.shape() == shape);
            let number = match known {
                Some(number) => number,
                None => {
                    self.collectives.push(Collective::new(None, shape)?);
                    self.collectives.len() - 1
                }
            };
            self.end();
            let body = Part::Body(vec![Step::Collective(number)]);
            match times {
                0 => {}
                1 => self.parts.push(body),
                _ => self.parts.push(Part::Repeat(times, vec![body])),
            }
        }
        Ok(())
    }

    fn wavefront(&mut self, blocks: u64) -> Result<(), SkeletonError> {
        within("blocks of a sweep", blocks, 1, MOST_BLOCKS)?;
        let Skeleton { compute, bytes, .. } = *self.skeleton;
        let sweeps = CORNERS.len() as u64 * SWEEPS_PER_CORNER;
        within("compute in picoseconds", compute as u64, 0, LONGEST as u64)?;
        let ps = compute / (sweeps * blocks) as i64;
        for from in CORNERS {
            let id = self.ids;
            self.ids += blocks;
            let sweep = Step::Sweep { from, blocks, ps, bytes, id, silent: false };
            let body = Part::Body(vec![sweep]);
            self.parts.push(Part::Repeat(SWEEPS_PER_CORNER, vec![body]));
        }
        Ok(())
    }

    /// Compute, then exchange, this many times.
    fn halo(&mut self, exchanges: u64) -> Result<(), SkeletonError> {
        within("exchanges per iteration", exchanges, 1, MOST_EXCHANGES)?;
        let Skeleton { compute, bytes, .. } = *self.skeleton;
        for _ in 0..exchanges {
            self.compute(compute / exchanges as i64, 1)?;
            self.steps.push(Step::Exchange { bytes, stride: 1 });
        }
        Ok(())
    }

    fn multigrid(
        &mut self,
        levels: u64,
        full: u64,
        exchanges: u64,
        grid: Grid,
    ) -> Result<(), SkeletonError> {
        within("levels", levels, 1, MOST_LEVELS)?;
        within("levels on which all ranks are active", full, 1, levels)?;
        within("exchanges per level", exchanges, 1, MOST_EXCHANGES)?;
        let Skeleton { compute, bytes, .. } = *self.skeleton;
        within("compute in picoseconds", compute as u64, 0, LONGEST as u64)?;
        // A rank has at least one point on each level.
        let weight = |level: u64| 0.125f64.powi(level.min(full) as i32);
        let weights: f64 = (0..levels).map(weight).sum();
        let down = 0..levels;
        for (level, is_down) in
            down.clone().map(|l| (l, true)).chain(down.rev().map(|l| (l, false)))
        {
            let stride = 1 << (level + 1).saturating_sub(full);
            let bytes = (bytes >> (2 * level)).max(NUMBER.min(bytes));
            let share = weight(level) / weights / (2 * exchanges) as f64;
            for _ in 0..exchanges {
                self.steps.push(Step::Exchange { bytes, stride });
                self.compute((compute as f64 * share) as i64, stride)?;
            }
            if is_down && level == levels - 1 {
                let coarse = Call { op: Op::Allreduce, bytes: NUMBER, times: 1 };
                self.calls(&[coarse], grid.ranks())?;
            }
        }
        Ok(())
    }

    fn ocean(&mut self, exchanges: u64, solver: &Solver, grid: Grid) -> Result<(), SkeletonError> {
        self.halo(exchanges)?;
        let Solver { iterations, compute, exchange_every, ref calls } = *solver;
        let every = exchange_every.max(1);
        self.end();
        let outer = std::mem::take(&mut self.parts);
        self.compute(compute, 1)?;
        self.calls(calls, grid.ranks())?;
        let plain = self.part();
        self.compute(compute, 1)?;
        self.steps.push(Step::Exchange { bytes: self.skeleton.bytes, stride: 1 });
        self.calls(calls, grid.ranks())?;
        let mut group = self.part();
        group.push(Part::Repeat(every - 1, plain.clone()));
        self.parts = outer;
        self.parts.push(Part::Repeat(iterations / every, group));
        self.parts.push(Part::Repeat(iterations % every, plain));
        Ok(())
    }
}
