//! The event model: what a call was, what became of its requests, which definitions stand between calls.

use crate::{Call, Requests, Runs, Sizes};

/// Special ranks, the same for every MPI library.
pub mod rank {
    /// `MPI_ANY_SOURCE`.
    pub const ANY: i32 = -1;
    /// `MPI_PROC_NULL`.
    pub const PROC_NULL: i32 = -2;
    /// `MPI_ROOT`, the root itself in a collective between two groups.
    pub const ROOT: i32 = -3;
    /// A member of a communicator that is not in this `MPI_COMM_WORLD` (dynamic processes).
    pub const OUTSIDE: i32 = -4;
}

/// Special tags, the same for every MPI library.
pub mod tag {
    /// `MPI_ANY_TAG`.
    pub const ANY: i32 = -1;
}

/// Codes of records that are not an event with a known signature.
pub mod code {
    /// End of the payload.
    pub const END: u64 = 0;
    /// An event whose signature follows.
    pub const NEW: u64 = 1;
    /// The next event returned an error; its code follows.
    pub const ERROR: u64 = 2;
    /// More requests of the thread's previous event.
    pub const MORE: u64 = 3;
    /// Definition of a communicator.
    pub const COMMUNICATOR: u64 = 4;
    /// Part of a list that belongs to a communicator.
    pub const LIST: u64 = 5;
    /// Definition of a one-sided window.
    pub const WINDOW: u64 = 6;
    /// Name of a region.
    pub const REGION_NAME: u64 = 7;
    /// A region begins.
    pub const REGION_BEGIN: u64 = 8;
    /// A region ends.
    pub const REGION_END: u64 = 9;
    /// Recording was switched off.
    pub const OFF: u64 = 10;
    /// Recording was switched on again.
    pub const ON: u64 = 11;
    /// Events of this thread are missing here.
    pub const LOST: u64 = 12;
    /// The previous events, tests that failed, again and again.
    pub const REPEAT: u64 = 13;
    /// The first code that is an event with a known signature.
    pub const EVENT: u64 = 16;
}

/// Bits of [`Signature::present`]: which fields a call has.
pub mod present {
    /// [`super::Signature::object`].
    pub const OBJECT: u8 = 1;
    /// [`super::Signature::peer`].
    pub const PEER: u8 = 2;
    /// [`super::Signature::tag`].
    pub const TAG: u8 = 4;
    /// [`super::Signature::source`].
    pub const SOURCE: u8 = 8;
    /// [`super::Signature::source_tag`].
    pub const SOURCE_TAG: u8 = 16;
    /// [`super::Signature::op`].
    pub const OP: u8 = 32;
    /// [`super::Entry::bytes`].
    pub const BYTES: u8 = 64;
    /// [`super::Entry::received`].
    pub const RECEIVED: u8 = 128;
}

/// Bits of [`Signature::shape`]: which parts follow the times of an event.
pub mod shape {
    /// The number of the request that the call made.
    pub const BEGUN: u8 = 1;
    /// What was received or found ([`super::Actual`]).
    pub const OUTCOME: u8 = 2;
    /// Requests and what became of them.
    pub const REQUESTS: u8 = 4;
    /// Bytes sent to every peer.
    pub const SENT: u8 = 8;
    /// Bytes received from every peer.
    pub const RECEIVED: u8 = 16;
    /// No part: the call was made while recording was switched off. It is in the file because calls of other
    /// ranks meet it, and counts in no table.
    pub const OFF: u8 = 32;
}

/// Reduction operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Op {
    /// Made by the program.
    User = 0,
    Max,
    Min,
    Sum,
    Prod,
    Land,
    Band,
    Lor,
    Bor,
    Lxor,
    Bxor,
    Minloc,
    Maxloc,
    Replace,
    NoOp,
}

impl Op {
    /// All operations, by number.
    pub const ALL: [Op; 15] = [
        Op::User,
        Op::Max,
        Op::Min,
        Op::Sum,
        Op::Prod,
        Op::Land,
        Op::Band,
        Op::Lor,
        Op::Bor,
        Op::Lxor,
        Op::Bxor,
        Op::Minloc,
        Op::Maxloc,
        Op::Replace,
        Op::NoOp,
    ];

    /// The operation with a number; unknown numbers are operations of the program.
    pub fn from_number(number: u8) -> Op {
        Op::ALL.get(usize::from(number)).copied().unwrap_or(Op::User)
    }
}

/// What repeated calls have in common; sizes and times are apart. Fields that are not
/// [`present`](mod@present) are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The call.
    pub call: Call,
    /// Whether it was the large-count variant (`MPI_Send_c`).
    pub large: bool,
    /// Which of the other fields the call has, bits of [`present`](mod@present).
    pub present: u8,
    /// Which parts an event has, bits of [`shape`](mod@shape).
    pub shape: u8,
    /// Number of an [`Op`].
    pub op: u8,
    /// Number of the window in a one-sided operation, else of the communicator.
    pub object: u32,
    /// Destination, or source of a receive or probe, or root, or target.
    pub peer: i32,
    /// Tag of the message.
    pub tag: i32,
    /// Source in a call that sends and receives.
    pub source: i32,
    /// Tag of the received message in a call that sends and receives.
    pub source_tag: i32,
}

impl Signature {
    /// A signature of which only the call is known.
    pub const fn of(call: Call) -> Signature {
        Signature {
            call,
            large: false,
            present: 0,
            shape: 0,
            op: 0,
            object: 0,
            peer: 0,
            tag: 0,
            source: 0,
            source_tag: 0,
        }
    }

    /// Everything in four words, for comparison and hashing.
    #[inline(always)]
    pub(crate) fn words(&self) -> [u64; 4] {
        [
            u64::from(self.call.number()) << 1
                | u64::from(self.large)
                | u64::from(self.present) << 32
                | u64::from(self.shape) << 40
                | u64::from(self.op) << 48,
            u64::from(self.object) << 32 | u64::from(self.peer as u32),
            u64::from(self.tag as u32) << 32 | u64::from(self.source as u32),
            u64::from(self.source_tag as u32),
        ]
    }
}

/// What a receive or probe really got, where that differs from what was asked for: a wildcard, a shorter
/// message. `None` means as asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Rank of the sender.
    pub source: Option<i32>,
    /// Tag of the message.
    pub tag: Option<i32>,
    /// Bytes of the message.
    pub bytes: Option<u64>,
}

impl Actual {
    /// Everything as asked for.
    pub const AS_POSTED: Actual = Actual { source: None, tag: None, bytes: None };
}

/// What a call did to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// It has completed. A persistent request can be started again.
    Completed = 0,
    /// It was looked at or waited for and has not completed (`MPI_Test`, the others in `MPI_Waitany`).
    Pending = 1,
    /// It has completed because it was cancelled.
    Cancelled = 2,
    /// `MPI_Request_free`.
    Freed = 3,
    /// `MPI_Cancel`; whether it succeeds shows at completion.
    CancelAsked = 4,
    /// `MPI_Start` or `MPI_Startall`.
    Started = 5,
    /// `MPI_Request_get_status`: complete, but the request remains.
    Ready = 6,
}

impl Outcome {
    /// The outcome with a number.
    pub fn from_number(number: u8) -> Option<Outcome> {
        use Outcome::*;
        [Completed, Pending, Cancelled, Freed, CancelAsked, Started, Ready]
            .get(usize::from(number))
            .copied()
    }
}

/// One request in the list of a call, for the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestItem {
    /// Number of the request in the rank, from 0 in the order in which requests were made.
    pub id: u64,
    /// What happened to it.
    pub outcome: Outcome,
    /// What a receive got.
    pub actual: Actual,
}

/// Consecutive requests with the same outcome, as decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRun {
    /// First request.
    pub first: u64,
    /// How many: `first`, `first + 1`, ...
    pub count: u32,
    /// What happened to them.
    pub outcome: Outcome,
    /// What they got, if that differs from what was posted; `count` is then 1. Not known for
    /// `MPI_Isendrecv`, whose status MPICH 4.0 does not fill in.
    pub actual: Actual,
}

/// A call for the encoder.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The call and its arguments.
    pub signature: Signature,
    /// See [`Event::bytes`].
    pub bytes: u64,
    /// See [`Event::received`].
    pub received: u64,
    /// Ticks at the call.
    pub begin: u64,
    /// Ticks at the return.
    pub end: u64,
    /// Return value, 0 if the call succeeded.
    pub error: i32,
    /// Request that the call made, with [`shape::BEGUN`].
    pub begun: u64,
    /// What was received, with [`shape::OUTCOME`].
    pub actual: Actual,
    /// The flag of a test or probe, with [`shape::OUTCOME`].
    pub found: bool,
    /// Requests that the call completed or looked at, with [`shape::REQUESTS`]; at most
    /// [`MAX_REQUESTS`](crate::MAX_REQUESTS).
    pub requests: &'a [RequestItem],
    /// Bytes for every peer, with [`shape::SENT`].
    pub sent: &'a [u64],
    /// Bytes from every peer, with [`shape::RECEIVED`].
    pub got: &'a [u64],
}

impl Entry<'_> {
    /// A call that succeeded, with nothing but its signature and times.
    #[must_use]
    pub const fn plain(signature: Signature, begin: u64, end: u64) -> Self {
        Entry {
            signature,
            bytes: 0,
            received: 0,
            begin,
            end,
            error: 0,
            begun: 0,
            actual: Actual::AS_POSTED,
            found: true,
            requests: &[],
            sent: &[],
            got: &[],
        }
    }
}

/// A call as decoded.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The call and its arguments.
    pub signature: Signature,
    /// Ticks at the call.
    pub begin: u64,
    /// Ticks at the return.
    pub end: u64,
    /// Return value, 0 if the call succeeded.
    pub error: i32,
    /// Bytes of the first count and datatype, as the call has them: the message sent or the receive
    /// buffer posted; in a collective the contribution to one peer (all peers in a vector collective),
    /// 0 where the argument does not count at this rank, and what lies in the receive buffer for
    /// `MPI_IN_PLACE` (the own part of it in a gather, all of it in an exchange of all with all).
    /// `MPI_Reduce_scatter` has the whole vector here and the own part in `received`.
    /// `None` if the call has no size.
    pub bytes: Option<u64>,
    /// Bytes of the receive half, with the same rules: the buffer posted by `MPI_Sendrecv`, the part
    /// received from one peer (from all in a vector collective).
    pub received: Option<u64>,
    /// Number of the request that the call made.
    pub begun: Option<u64>,
    /// What a blocking receive or probe got where that differs from what was asked for.
    pub actual: Actual,
    /// Whether a test or nonblocking probe succeeded; true for all other calls.
    pub found: bool,
    /// Requests that the call completed or looked at. More can follow in [`Record::More`].
    pub requests: Requests<'a>,
    /// Bytes for every peer of a vector collective; `None` if not known at this rank or too long.
    pub sent: Option<Sizes<'a>>,
    /// Bytes from every peer of a vector collective; `None` if not known at this rank or too long.
    pub got: Option<Sizes<'a>>,
}

impl Event<'_> {
    /// The call.
    pub fn call(&self) -> Call {
        self.signature.call
    }

    fn field<T>(&self, bit: u8, value: T) -> Option<T> {
        (self.signature.present & bit != 0).then_some(value)
    }

    /// Number of the window (one-sided operations) or of the communicator (all others).
    pub fn object(&self) -> Option<u32> {
        self.field(present::OBJECT, self.signature.object)
    }

    /// Number of the communicator; `None` for operations on a window and calls without one.
    pub fn communicator(&self) -> Option<u32> {
        self.object().filter(|_| !self.is_on_window())
    }

    /// Number of the window of a one-sided operation.
    pub fn window(&self) -> Option<u32> {
        self.object().filter(|_| self.is_on_window())
    }

    fn is_on_window(&self) -> bool {
        use crate::Role;
        self.call().has(Role::Window) || self.call().has(Role::WindowInOut)
    }

    /// Destination, or source of a receive or probe, or root, or target.
    pub fn peer(&self) -> Option<i32> {
        self.field(present::PEER, self.signature.peer)
    }

    /// Tag.
    pub fn tag(&self) -> Option<i32> {
        self.field(present::TAG, self.signature.tag)
    }

    /// Source of a call that sends and receives.
    pub fn source(&self) -> Option<i32> {
        self.field(present::SOURCE, self.signature.source)
    }

    /// Tag of the message received in a call that sends and receives.
    pub fn source_tag(&self) -> Option<i32> {
        self.field(present::SOURCE_TAG, self.signature.source_tag)
    }

    /// Reduction operation.
    pub fn op(&self) -> Option<Op> {
        self.field(present::OP, Op::from_number(self.signature.op))
    }

    /// Whether the call was made while recording was switched off.
    pub fn is_off(&self) -> bool {
        self.signature.shape & shape::OFF != 0
    }

    /// Name of the function that was called.
    pub fn name(&self) -> &'static str {
        let call = self.call();
        if self.signature.large { call.large_name().unwrap_or(call.name()) } else { call.name() }
    }
}

/// Definition of a communicator. Its lists follow as [`Record::List`], possibly in parts and possibly in
/// the thread's next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunicatorDef {
    /// Number in this rank: 0 is `MPI_COMM_WORLD`, 1 `MPI_COMM_SELF`. Never reused.
    pub number: u32,
    /// The same in all members, different between communicators.
    pub key: u64,
    /// Number of the communicator that it was made from.
    pub parent: Option<u32>,
    /// Rank of this process in it.
    pub rank: i32,
    /// Members of the own group.
    pub size: u32,
    /// Members of the other group; 0 if there is only one.
    pub remote_size: u32,
    /// How [`ListKind::Sources`] came about: 0 no topology, 1 graph, 2 Cartesian, 3 distributed graph.
    pub topology: u8,
}

/// What a list says about a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ListKind {
    /// World ranks of the own group.
    Members = 0,
    /// World ranks of the other group.
    Remote = 1,
    /// Ranks (of the communicator) that neighbourhood collectives receive from, in order.
    Sources = 2,
    /// Ranks (of the communicator) that neighbourhood collectives send to, in order.
    Destinations = 3,
    /// Extents of a Cartesian topology.
    Dims = 4,
    /// Whether the dimensions of a Cartesian topology are periodic.
    Periods = 5,
}

impl ListKind {
    /// The kind with a number.
    pub fn from_number(number: u8) -> Option<ListKind> {
        use ListKind::*;
        [Members, Remote, Sources, Destinations, Dims, Periods].get(usize::from(number)).copied()
    }
}

/// `first`, `first + step`, ...: `count` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First number.
    pub first: i32,
    /// Difference between neighbours.
    pub step: i32,
    /// How many, at least 1.
    pub count: u32,
}

impl Run {
    /// The number at a position; what does not fit is cut off at the ends of `i32`.
    pub fn at(&self, index: u32) -> i32 {
        let value = i64::from(self.first) + i64::from(self.step) * i64::from(index);
        value.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }
}

/// One record of a chunk.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A call.
    Event(Event<'a>),
    /// More requests of the thread's previous event.
    More(Requests<'a>),
    /// One of the thread's previous events, a test that failed, was made again with the same result. If there are
    /// several, they took turns; each has a part of the time here, one after the other.
    Repeat {
        /// The call, from the beginning of this time to its end.
        event: Event<'a>,
        /// How often.
        times: u32,
        /// Ticks inside of these calls, together.
        inside: u64,
    },
    /// A communicator. Stands before the call that made it.
    Communicator(CommunicatorDef),
    /// A part of a communicator's list.
    List {
        /// Number of the communicator.
        communicator: u32,
        /// Which list.
        kind: ListKind,
        /// Position of the first number of this part.
        offset: u32,
        /// The numbers.
        runs: Runs<'a>,
    },
    /// A one-sided window.
    Window {
        /// Number in this rank.
        window: u32,
        /// Number of the communicator that it was made on.
        communicator: u32,
    },
    /// Name of a region, once in a rank.
    RegionName {
        /// Number in this rank, from 1.
        region: u32,
        /// Printable, in the encoding of the program.
        name: &'a [u8],
    },
    /// A region begins.
    RegionBegin {
        /// Its number.
        region: u32,
        /// When, in ticks.
        at: u64,
    },
    /// A region ends.
    RegionEnd {
        /// Its number; 0 is the innermost.
        region: u32,
        /// When, in ticks.
        at: u64,
    },
    /// Recording was switched (`MPI_Pcontrol(0)`, `MPI_Pcontrol(2)`).
    Switch {
        /// Whether on.
        on: bool,
        /// When, in ticks.
        at: u64,
    },
    /// Events are missing between the previous record of this thread and the next.
    Lost {
        /// How many.
        events: u64,
    },
}
