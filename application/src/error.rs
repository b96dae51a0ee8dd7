//! Why there is no schedule.

use std::io;

use simulate::{collectives::CollectiveError, event::BuildError};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read the trace of rank {rank}: {source}")]
    Io { rank: u32, source: io::Error },
    #[error(
        "{events} calls of rank {rank} were not recorded or are damaged: the messages of the ranks no longer \
         match; record the program again"
    )]
    Lost { rank: u32, events: u64 },
    #[error(
        "rank {rank} calls {call} on an intercommunicator, which cannot be simulated; record a \
         run without it"
    )]
    BetweenGroups { rank: u32, call: &'static str },
    #[error(
        "rank {rank} calls {call} on a communicator that its trace does not define: the trace is damaged"
    )]
    NoCommunicator { rank: u32, call: &'static str },
    #[error(
        "rank {rank} calls {call} with rank {peer}, which is not in its communicator of {size}: the trace is \
         damaged"
    )]
    NoPeer { rank: u32, call: &'static str, peer: i32, size: u32 },
    #[error(
        "rank {rank} calls {call} on a communicator whose members are not in the trace (imported \
         traces lack them): record the program with `detour mpi record`"
    )]
    NoMembers { rank: u32, call: &'static str },
    #[error(
        "rank {rank} did not reach MPI_Finalize ({how}); an incomplete run cannot be simulated"
    )]
    NotEnded { rank: u32, how: &'static str },
}

#[derive(Debug, Error)]
pub enum ScheduleError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error(
        "{ranks} ranks are not a multiple of the {own} ranks of the trace; {own}, {twice}, … are possible"
    )]
    NotAMultiple { ranks: u64, own: u32, twice: u64 },
    #[error(
        "{ranks} ranks of {steps} calls each are too many for a schedule; simulate fewer ranks"
    )]
    TooLarge { ranks: u64, steps: u64 },
}
