//! What the sweeps over rank counts have in common: the variation of network and noise.

use clap::Args;
use simulate::loggops::Params;

use super::{
    latency,
    network::{self, RendezvousName},
    noise,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Network between ranks of one node, as for --net; requires --ranks-per-node [default: the same]
    #[arg(long, value_name = "NET", value_parser = network::parse, requires = "ranks_per_node")]
    pub net_local: Option<Params>,
    /// Rendezvous protocol for messages larger than S bytes
    #[arg(long, value_enum, default_value_t)]
    pub rendezvous: RendezvousName,
    /// Speed up the network by these factors (scales L, g and G, not o); one series per factor
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', default_value = "1")]
    pub net_scale: Vec<f64>,
    #[command(flatten)]
    pub latency: latency::Options,
    /// Repeat each series with co-scheduled noise: all ranks see the same detours at the same time
    #[arg(long, conflicts_with_all = ["coscheduled", "synchronised"])]
    pub with_coscheduled: bool,
    #[command(flatten)]
    noise: noise::Options,
}

impl Options {
    pub fn noise(&self) -> study::noise::Request {
        self.noise.request_on(self.net_local.is_some())
    }
}
