//! `--noise` and related options: which detours hit the ranks, and how they delay work.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use simulate::noise::Model;
use study::noise::Request;

use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Noise: none, a trace (or several: A,B), periodic:1000Hz,200us, or poisson:1000Hz,200us for random
    /// arrivals; may be repeated to superpose. Lists of rates and lengths (periodic:1kHz|10Hz,16us|50us) are
    /// series of `detour simulate app`, `collective`, `cycle` and `skeleton`
    #[arg(long, value_name = "NOISE", default_value = "none")]
    noise: Vec<OsString>,
    /// How detours delay work [default: preempt; loggopsim with --model loggopsim]
    #[arg(long, value_enum)]
    noise_model: Option<ModelName>,
    /// Co-schedule noise: all ranks see the same detours at the same time
    #[arg(long, conflicts_with = "synchronised")]
    coscheduled: bool,
    /// Ranks see the same detours, offset by at most this time
    #[arg(long, value_name = "TIME", value_parser = units::picoseconds)]
    synchronised: Option<i64>,
    /// Omit this source of a recording: a name, unit or class; may be repeated
    #[arg(long, value_name = "SOURCE")]
    without: Vec<String>,
    /// Repeat the trace if a run is longer than it
    #[arg(long)]
    repeat_trace: bool,
    /// Detours per second, for files that contain only a distribution of lengths; rate times mean length
    /// must be below 1
    #[arg(long, value_name = "RATE", value_parser = units::period)]
    noise_rate: Option<i64>,
    /// Extend the recording by fitted tails: longer or rarer detours than recorded are drawn from
    /// them (`detour tail` shows them)
    #[arg(long)]
    tail: bool,
    #[command(flatten)]
    placement: super::placement::Options,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ModelName {
    /// Exact preemption: work is suspended by each detour and then resumes
    Preempt,
    /// The trace advances only with local work, not while a rank waits
    CpuTime,
    /// LogGOPSim's noise rule
    Loggopsim,
}

impl From<ModelName> for Model {
    fn from(name: ModelName) -> Model {
        match name {
            ModelName::Preempt => Model::Preempt,
            ModelName::CpuTime => Model::CpuTime,
            ModelName::Loggopsim => Model::LogGopSim,
        }
    }
}

impl Options {
    /// If the network also depends on the nodes.
    pub fn request_on(&self, nodes: bool) -> Request {
        let mut request = self.request();
        request.placement.for_network = nodes;
        request
    }

    pub fn request(&self) -> Request {
        Request {
            noise: self.noise.clone(),
            model: self.noise_model.map(Model::from),
            coscheduled: self.coscheduled,
            synchronised: self.synchronised,
            without: self.without.clone(),
            repeat_trace: self.repeat_trace,
            period: self.noise_rate,
            placement: self.placement.request(),
            tail: self.tail,
            with_program: Vec::new(),
        }
    }
}
