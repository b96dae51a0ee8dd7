//! Which CPU of a recorded node each rank is on.

use clap::{Args, ValueEnum};
use study::noise::placement::{Placement, Request};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Which recorded CPU each rank is on
    #[arg(long, value_enum, default_value_t)]
    placement: PlacementName,
    /// Ranks that share a node [default: as many as CPUs were recorded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ranks_per_node: Option<u64>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum PlacementName {
    /// Consecutive ranks on the CPUs of a node, all at the same moment of the recording
    #[default]
    Node,
    /// Every rank on a random CPU, at an independent random moment
    Random,
}

impl Options {
    pub fn request(&self) -> Request {
        let placement = match self.placement {
            PlacementName::Node => Placement::Node,
            PlacementName::Random => Placement::Random,
        };
        Request { placement, ranks_per_node: self.ranks_per_node, for_network: false }
    }
}
