//! `--latency` and related options: the variation of the network.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use simulate::noise::{Order, Rule};
use study::network::variation::{Request, parse_order};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Draw the latency of each message from measured ones: a file of `detour mpi latency`, netgauge's
    /// round trips, or one time in us per line
    #[arg(long, value_name = "FILE")]
    latency: Option<PathBuf>,
    /// How a measured latency changes L
    #[arg(long, value_enum, default_value_t, requires = "latency")]
    latency_rule: RuleName,
    /// Order in which latencies are drawn: random, in-order (each rank starts at a random one), or
    /// block:N (each run draws from N consecutive ones)
    #[arg(
        long, value_name = "ORDER", default_value = "random", requires = "latency",
        value_parser = parse_order
    )]
    latency_order: Order,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum RuleName {
    /// Add the difference from the median
    #[default]
    Add,
    /// Multiply by the ratio to the median
    Scale,
    /// Add the differences of two half round trips from the median, which together vary like a
    /// message
    HalfRoundTrip,
    /// Add the difference from the median to one of two messages: in exchanges of `detour mpi
    /// latency`, a delay of one rank is in the times of both
    Exchange,
}

impl Options {
    pub fn request(&self) -> Option<Request> {
        let rule = match self.latency_rule {
            RuleName::Add => Rule::Add,
            RuleName::Scale => Rule::Scale,
            RuleName::HalfRoundTrip => Rule::HalfRoundTrip,
            RuleName::Exchange => Rule::Exchange,
        };
        let file = self.latency.clone()?;
        Some(Request { file, rule, order: self.latency_order })
    }
}
