//! What a rank does, call by call. Waiting is not part of it: how long a rank waits follows from what the
//! others do.

use program::{FastMap, meanings};
use simulate::{collectives::Op, event::Test, huge_pages, loggops::Sending};

use crate::read::Assumed;

/// No request: the call returns when it is done. No rank: any source.
pub const NONE: u32 = u32::MAX;

/// One step of a rank. Requests have small numbers, which are used again once they are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Compute {
        /// Without what the kernel took.
        ps: i64,
        taken_ps: i64,
        /// Number of the call before it ([`mpi_abi::Call`]).
        after: u16,
    },
    Send {
        to: u32,
        channel: u32,
        bytes: u64,
        /// [`NONE`] if the rank continues only when it is done.
        request: u32,
        /// Number of the call that made this step ([`mpi_abi::Call`]).
        mpi: u16,
    },
    Receive {
        /// [`NONE`] if from any source.
        from: u32,
        /// [`NONE`] if any user tag of the communicator whose wildcards are kept.
        channel: u32,
        bytes: u64,
        request: u32,
        mpi: u16,
    },
    Collective {
        /// Position in [`Tape::calls`].
        call: u32,
        request: u32,
    },
    /// How long the call before this took, as far as it did not wait for others. The model's overhead is part
    /// of it.
    Spent {
        ps: i64,
        /// Of the message, marked ([`simulate::loggops::Sending::mark`]). Of tests, a request that was tested, or
        /// [`NONE`].
        bytes: u64,
        on: Spent,
    },
    /// The rank continues when this request is complete.
    Wait {
        request: u32,
    },
    /// The rank continues when as many of these requests are complete as the call completed in the trace,
    /// whichever are first; if it completed none, it tests them, which takes this long.
    Choose {
        /// Its requests in [`Tape::candidates`].
        first: u32,
        count: u32,
        test: Test,
        /// Without what the kernel took.
        ps: i64,
    },
    /// A region begins: its position in [`Application::regions`].
    Begin {
        region: u32,
    },
    End {
        region: u32,
    },
}

const _: () = assert!(size_of::<Step>() <= 24);

/// How the message of a call is sent.
pub(crate) fn sending(mpi: u16) -> Sending {
    match meanings().get(usize::from(mpi)) {
        Some(meaning) if meaning.synchronous => Sending::Synchronous,
        Some(meaning) if meaning.buffered => Sending::Buffered,
        _ => Sending::BySize,
    }
}

/// What a call did that took this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Posted a receive.
    Posting,
    /// Started a send.
    Starting,
    /// Sent, without waiting for the receiver if the message is small enough.
    Sending,
    /// Tested requests without completing any.
    Testing,
}

/// A request that a [`Step::Choose`] may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What it consists of: a send and a receive, or one of these; [`NONE`] for the other.
    pub parts: [u32; 2],
    /// The call completed it in the trace.
    pub done: bool,
}

/// A collective, as one rank calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub operation: Operation,
    /// Position in [`Application::groups`].
    pub group: u32,
    /// This rank in the group.
    pub rank: u32,
    pub channel: u32,
    pub mpi: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One that all ranks call with the same sizes. `root` counts in the group, and is 0 if there is none.
    /// `bytes` as in [`simulate::collectives::Shape`].
    Regular { op: Op, bytes: u64, root: u32 },
    /// An allgather or a reduce-scatter in which the blocks of the ranks differ: they go round a ring, each as large
    /// as it is. All ranks call it with the same sizes.
    Blocks { op: Op, sizes: Vec<u64> },
    /// A message between the root and each of the others: `MPI_Gatherv` (`towards` the root) and
    /// `MPI_Scatterv`. `bytes` are this rank's, `sizes` those of all members as far as the root knows them.
    Rooted { towards: bool, root: u32, bytes: u64, sizes: Vec<u64> },
    /// Messages to and from given ranks of the group, all at once: neighbourhood collectives and those
    /// with a size for each peer.
    Messages { to: Vec<(u32, u64)>, from: Vec<(u32, u64)>, reach: Reach },
}

/// Blocks that differ by less than this part of their mean are as large as the largest.
const ALIKE: f64 = 0.1;
/// So are small ones: an allgather of them takes the time of its messages, not of its bytes.
const SMALL: u64 = 2 << 10;

impl Operation {
    /// An allgather or a reduce-scatter of these blocks.
    pub(crate) fn of_blocks(op: Op, sizes: Vec<u64>) -> Operation {
        let most = sizes.iter().copied().max().unwrap_or(0);
        if most <= SMALL || most as f64 <= (1.0 + ALIKE) * mean(&sizes) as f64 {
            return Operation::Regular { op, bytes: most, root: 0 };
        }
        Operation::Blocks { op, sizes }
    }
}

/// The mean of sizes.
pub(crate) fn mean(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size)) / sizes.len().max(1) as u64
}

/// With whom the messages of [`Operation::Messages`] are exchanged when the program is extrapolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// With the same neighbours in each copy.
    Neighbours,
    /// With all ranks of all copies.
    All,
}

/// Ranks that call collectives together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Identifies the communicator; every member has the same key.
    pub key: u64,
    /// World ranks, in the order of their ranks in the group.
    pub members: Vec<u32>,
}

/// A process grid, as `MPI_Cart_create` makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub dims: Vec<u32>,
    pub periodic: Vec<bool>,
}

/// A message to or from `MPI_PROC_NULL`, which is not a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Null {
    /// The step that it comes before.
    pub step: u32,
    pub sends: bool,
    pub starts: bool,
    pub tag: i32,
    /// Number of the call ([`mpi_abi::Call`]).
    pub mpi: u16,
}

/// What a rank does from the end of `MPI_Init` to `MPI_Finalize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    pub steps: Vec<Step>,
    pub calls: Vec<Call>,
    /// What receives from any source, or with any tag, took in the trace: step, source and channel.
    pub took: Vec<(u32, u32, u32)>,
    /// Requests of [`Step::Choose`].
    pub candidates: Vec<Candidate>,
    /// As the trace has them: hypotheses do not keep them.
    pub nulls: Vec<Null>,
    /// Requests that are in use at once.
    pub requests: u32,
    /// End of `MPI_Init` and beginning of `MPI_Finalize` on the common clock, ns.
    pub begin_ns: i64,
    pub end_ns: i64,
}

impl Tape {
    /// Inlined: as an argument, a step would be written to memory and read back in other pieces.
    #[inline(always)]
    pub(crate) fn push(&mut self, step: Step) {
        huge_pages::reserve(&mut self.steps, 1);
        self.steps.push(step);
    }
}

/// A program.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// By rank.
    pub tapes: Vec<Tape>,
    pub groups: Vec<Group>,
    /// Names of the regions.
    pub regions: Vec<String>,
    /// Process grids of all ranks that the program made.
    pub grids: Vec<Topology>,
    /// Tags of the channels of messages.
    pub tags: FastMap<u32, i32>,
    /// What the trace did not tell, and what was assumed instead.
    pub assumed: Assumed,
}

impl Tape {
    /// The requests of a [`Step::Choose`].
    pub fn candidates(&self, first: u32, count: u32) -> &[Candidate] {
        let end = (first as usize).saturating_add(count as usize);
        self.candidates.get(first as usize..end).unwrap_or(&[])
    }
}

impl Application {
    pub fn ranks(&self) -> u32 {
        self.tapes.len() as u32
    }

    /// From the first rank's start to the last one's end, ps.
    pub fn traced_ps(&self) -> i64 {
        let begin = self.tapes.iter().map(|tape| tape.begin_ns).min().unwrap_or(0);
        let end = self.tapes.iter().map(|tape| tape.end_ns).max().unwrap_or(0);
        end.saturating_sub(begin).max(0).saturating_mul(1_000)
    }

    /// How much later than the first one a rank starts, ps.
    pub fn delay_ps(&self, rank: u32) -> i64 {
        let first = self.tapes.iter().map(|tape| tape.begin_ns).min().unwrap_or(0);
        let begin = self.tapes.get(rank as usize).map_or(first, |tape| tape.begin_ns);
        begin.saturating_sub(first).saturating_mul(1_000)
    }

    /// Whether a group has all ranks, and so grows when the program is extrapolated.
    pub fn is_whole(&self, group: u32) -> bool {
        let members = self.groups.get(group as usize).map_or(0, |group| group.members.len());
        members == self.tapes.len()
    }
}
