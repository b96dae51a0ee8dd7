//! Programs as the simulator runs them.
//!
//! In: the trace of an MPI program ([`program::Program`]); out: what each rank does, call by call
//! ([`Application`]), and from it a schedule of sends, receives and computation at the program's own size
//! or a multiple of it ([`Application::schedule`]).
//!
//! Traces of several sizes give the program at other sizes ([`Sizes`]).
//!
//! Collectives stay collectives until then: which messages they are made of depends on the number of ranks
//! and on [`Rules`].

#![forbid(unsafe_code)]

mod abandoned;
mod algorithms;
mod collective;
mod communicators;
mod error;
mod expand;
mod explain;
mod hypothesis;
mod origins;
mod polling;
mod read;
mod requests;
mod script;
mod segments;
mod sizes;
mod step;

pub use algorithms::{Mapped, Rule, Rules};
pub use communicators::is_collective;
pub use error::{ReadError, ScheduleError};
pub use expand::{Only, Plan};
pub use hypothesis::{Hypothesis, HypothesisError, Place, Shares};
pub use origins::{Origin, Origins, StepKind};
pub use read::{Assumed, NoNoise, Options, Taken, read};
pub use script::{Play, ReplayError};
pub use segments::Segments;
pub use sizes::{Found, Sizes, SizesError};
pub use step::{
    Application, Call, Candidate, Group, Null, Operation, Reach, Spent, Step, Tape, Topology,
};
