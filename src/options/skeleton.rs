//! The options of a skeleton of a program; `detour simulate skeleton` simulates it, `detour goal gen` writes
//! it as a schedule.

use clap::{Args, ValueEnum};
use simulate::skeleton::Only;
use study::jobs::skeleton::{Description, Name};

use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Skeleton: vary the compute of each rank and step by up to this percentage, at random
    /// [default: 0; presets have their own]
    #[arg(long, value_name = "PERCENT", value_parser = units::percent)]
    imbalance: Option<f64>,
    /// Skeleton: allreduces of 8 bytes per iteration; in ocean, per iteration of the solver [default: 1; in
    /// ocean 2]
    #[arg(long, value_name = "N")]
    allreduces: Option<u64>,
    /// Skeleton: exchanges with the neighbours per iteration; in multigrid, per level down and up [default:
    /// 1; presets have their own]
    #[arg(long, value_name = "N")]
    exchanges: Option<u64>,
    /// Wavefront: blocks per sweep [default: 10; presets have their own]
    #[arg(long, value_name = "N")]
    blocks: Option<u64>,
    /// Multigrid: levels; all ranks are active on all but the two coarsest [default: 5; presets have their own]
    #[arg(long, value_name = "N")]
    levels: Option<u64>,
    /// Ocean: iterations of the solver per iteration [default: 20; presets have their own]
    #[arg(long, value_name = "N")]
    solver: Option<u64>,
    /// Ocean: compute time per iteration of the solver [default: 20us; presets have their own]
    #[arg(long, value_name = "TIME", value_parser = units::picoseconds)]
    solver_compute: Option<i64>,
    /// Skeleton: keep only this communication
    #[arg(long, value_enum, value_name = "WHICH")]
    only: Option<OnlyName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnlyName {
    /// Messages between neighbours
    P2p,
    /// Collectives
    Collectives,
}

impl Options {
    pub fn request(
        &self,
        name: Name,
        iterations: Option<u64>,
        compute: Option<i64>,
        size: Option<u64>,
    ) -> Description {
        Description {
            name,
            iterations,
            compute,
            size,
            imbalance_pct: self.imbalance,
            allreduces: self.allreduces,
            blocks: self.blocks,
            levels: self.levels,
            exchanges: self.exchanges,
            solver: self.solver,
            solver_compute: self.solver_compute,
            only: self.only.map(|only| match only {
                OnlyName::P2p => Only::PointToPoint,
                OnlyName::Collectives => Only::Collectives,
            }),
        }
    }

    /// The first of these options that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--imbalance", self.imbalance.is_some()),
            ("--allreduces", self.allreduces.is_some()),
            ("--exchanges", self.exchanges.is_some()),
            ("--blocks", self.blocks.is_some()),
            ("--levels", self.levels.is_some()),
            ("--solver", self.solver.is_some()),
            ("--solver-compute", self.solver_compute.is_some()),
            ("--only", self.only.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}
