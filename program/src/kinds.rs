//! What the calls of the table mean for matching and for the profile.

use mpi_abi::{Abi, Call, Class, Role};
use std::sync::LazyLock;

/// Who waits for whom in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Everyone for the last one.
    All,
    /// Everyone for the root.
    FromRoot,
    /// The root for the last one.
    ToRoot,
    /// Everyone for the ranks below, itself included.
    Scan,
    /// Everyone for its neighbours in the topology.
    Neighbours,
}

/// How a call takes part in communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Send,
    Receive,
    Exchange,
    SendRequest,
    ReceiveRequest,
    ExchangeRequest,
    SendInit,
    ReceiveInit,
    Collective(Shape),
    CollectiveRequest(Shape),
    CollectiveInit(Shape),
    /// Collective on a window.
    WindowCollective,
    /// `MPI_Finalize`.
    Finalize,
    /// Waits for a message without receiving it.
    Probe,
    /// Completes, starts, frees or looks at requests.
    Requests,
    Other,
}

/// Rows of the call pattern.
pub(crate) const CLASSES: [&str; 9] = [
    "send",
    "receive",
    "wait",
    "test and probe",
    "collective",
    "communicator",
    "one-sided",
    "io",
    "other",
];

/// What a call means.
#[derive(Clone, Copy, Debug)]
pub struct Meaning {
    /// How it takes part.
    pub kind: Kind,
    /// Position in the rows of the call pattern.
    pub class: u8,
    /// A send that does not return before the receive was posted, whatever its size.
    pub synchronous: bool,
    /// A send that never waits for the receiver.
    pub buffered: bool,
    /// What the bytes of the call come to.
    pub total: Total,
    /// Whether its object is a window, not a communicator.
    pub on_window: bool,
}

/// What the size that a call is given comes to: the bytes that a rank contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// What it says.
    Once,
    /// That for every rank.
    Ranks,
    /// That for every rank that it sends to in the topology.
    Destinations,
    /// What it says if it sends to any rank in the topology.
    AnyDestination,
    /// What is listed for the ranks that it sends to in the topology.
    Listed,
    /// Nothing: it is the size of memory.
    Nothing,
}

/// What a call that returned an error has communicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing: an argument was refused.
    Refused,
    /// A message was received, and did not fit into the buffer.
    Truncated,
    /// Anything.
    Unknown,
}

impl Failure {
    /// From the return value. Error codes have their class in the lowest seven bits with MPICH, and are those
    /// of their class with the others, as far as the library's own errors go.
    #[must_use]
    pub fn of(abi: Abi, error: i32) -> Failure {
        match (abi, error) {
            (Abi::Mpich, _) => match error & 0x7f {
                1..=12 | 19 => Failure::Refused,
                14 => Failure::Truncated,
                _ => Failure::Unknown,
            },
            (_, 1..=13) => Failure::Refused,
            (_, 15) => Failure::Truncated,
            _ => Failure::Unknown,
        }
    }
}

static MEANINGS: LazyLock<Vec<Meaning>> =
    LazyLock::new(|| Call::ALL.iter().map(|call| meaning(*call)).collect());

/// The meanings of all calls, by number.
pub fn meanings() -> &'static [Meaning] {
    &MEANINGS
}

/// Name of the class of a call.
pub(crate) fn class_of(call: Call) -> &'static str {
    let meaning = meanings().get(usize::from(call.number()));
    meaning.and_then(|meaning| CLASSES.get(usize::from(meaning.class))).copied().unwrap_or("other")
}

/// Whether waiting for the call is waiting at a collective.
pub(crate) fn is_collective(call: Call) -> bool {
    let kind = meanings().get(usize::from(call.number())).map(|meaning| meaning.kind);
    matches!(
        kind,
        Some(
            Kind::Collective(_)
                | Kind::CollectiveRequest(_)
                | Kind::CollectiveInit(_)
                | Kind::WindowCollective
                | Kind::Finalize
        )
    )
}

/// The operation of a collective: `allreduce` for `MPI_Iallreduce` and `MPI_Allreduce_init`.
#[must_use]
pub fn operation_name(call: Call) -> String {
    let name = call.name().trim_start_matches("MPI_").to_ascii_lowercase();
    let name = name.trim_end_matches("_init");
    let starts = call.has(Role::Request) && !call.is_persistent();
    name.strip_prefix('i').filter(|_| starts).unwrap_or(name).to_owned()
}

fn collective_shape(call: Call) -> Shape {
    match operation_name(call).as_str() {
        _ if call.is_neighborhood() => Shape::Neighbours,
        "bcast" | "scatter" | "scatterv" => Shape::FromRoot,
        "gather" | "gatherv" | "reduce" => Shape::ToRoot,
        "scan" | "exscan" => Shape::Scan,
        _ => Shape::All,
    }
}

fn meaning(call: Call) -> Meaning {
    use Call::*;
    let kind = match (call.class(), call) {
        (Class::PointToPoint, Probe | Mprobe) => Kind::Probe,
        (Class::PointToPoint, Iprobe | Improbe) => Kind::Other,
        (Class::PointToPoint, _) if !call.has(Role::Buffer) => Kind::Other,
        (Class::PointToPoint, Sendrecv | Sendrecv_replace) => Kind::Exchange,
        (Class::PointToPoint, Isendrecv | Isendrecv_replace) => Kind::ExchangeRequest,
        (Class::PointToPoint, _) if call.is_persistent() => {
            if call.has(Role::Dest) {
                Kind::SendInit
            } else {
                Kind::ReceiveInit
            }
        }
        (Class::PointToPoint, _) => match (call.has(Role::Dest), call.has(Role::Request)) {
            (true, false) => Kind::Send,
            (true, true) => Kind::SendRequest,
            (false, false) => Kind::Receive,
            (false, true) => Kind::ReceiveRequest,
        },
        (Class::Request, Grequest_start | Grequest_complete) => Kind::Other,
        (Class::Request, _) => Kind::Requests,
        (Class::Collective, _) if call.is_persistent() => {
            Kind::CollectiveInit(collective_shape(call))
        }
        (Class::Collective, _) if call.has(Role::Request) => {
            Kind::CollectiveRequest(collective_shape(call))
        }
        (Class::Collective, _) => Kind::Collective(collective_shape(call)),
        // Collective over the new group only, which is not known at the call.
        (
            Class::Communicator,
            Comm_create_group | Comm_free | Comm_disconnect | Intercomm_merge | Comm_join,
        ) => Kind::Other,
        // Collective by the standard, but libraries answer without communication; and name servers.
        (Class::Communicator, _) if !call.has(Role::NewComm) => Kind::Other,
        (Class::Communicator, _) if call.has(Role::Request) => Kind::CollectiveRequest(Shape::All),
        (Class::Communicator, _) => Kind::Collective(Shape::All),
        (Class::OneSided, Win_create | Win_allocate | Win_allocate_shared | Win_create_dynamic) => {
            Kind::Collective(Shape::All)
        }
        (Class::OneSided, Win_fence | Win_free) => Kind::WindowCollective,
        (Class::Io, File_open) => Kind::Collective(Shape::All),
        (Class::Environment, Finalize) => Kind::Finalize,
        _ => Kind::Other,
    };
    let class = match (call.class(), kind) {
        (_, Kind::Send | Kind::SendRequest | Kind::SendInit) => 0,
        (_, Kind::Receive | Kind::ReceiveRequest | Kind::ReceiveInit) => 1,
        (_, Kind::Exchange | Kind::ExchangeRequest) => 1,
        // They wait until buffered messages have been sent.
        (_, _) if is_of_buffer(call) => 2,
        (Class::PointToPoint, _) => 3,
        (Class::Request, _) if call.name().starts_with("MPI_Wait") => 2,
        (Class::Request, _) if call.name().starts_with("MPI_Test") => 3,
        (Class::Request, _) => 8,
        (Class::Collective, _) => 4,
        (Class::Communicator, _) => 5,
        (Class::OneSided, _) => 6,
        (Class::Io, _) => 7,
        _ => 8,
    };
    Meaning {
        kind,
        class,
        synchronous: matches!(call, Ssend | Issend | Ssend_init),
        buffered: matches!(call, Bsend | Ibsend | Bsend_init),
        total: total(call),
        on_window: call.has(Role::Window) || call.has(Role::WindowInOut),
    }
}

fn total(call: Call) -> Total {
    if call.has(Role::Bytes) {
        return Total::Nothing;
    }
    if !matches!(call.class(), Class::Collective) {
        return Total::Once;
    }
    let name = operation_name(call);
    match (call.is_neighborhood(), call.has(Role::Counts)) {
        (true, true) => Total::Listed,
        (true, false) if name.contains("alltoall") => Total::Destinations,
        (true, false) => Total::AnyDestination,
        (false, true) => Total::Once,
        (false, false) => match name.as_str() {
            "alltoall" | "scatter" | "reduce_scatter_block" => Total::Ranks,
            _ => Total::Once,
        },
    }
}

/// Whether a call waits for the messages in the buffer of the process or a communicator.
#[must_use]
pub fn is_of_buffer(call: Call) -> bool {
    use Call::*;
    matches!(call, Buffer_detach | Buffer_flush | Comm_detach_buffer | Comm_flush_buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_have_the_dependency_of_their_operation() {
        let shape = |call: Call| match meaning(call).kind {
            Kind::Collective(shape)
            | Kind::CollectiveRequest(shape)
            | Kind::CollectiveInit(shape) => shape,
            other => panic!("{} is {other:?}", call.name()),
        };
        assert_eq!(shape(Call::Bcast), Shape::FromRoot);
        assert_eq!(shape(Call::Ibcast), Shape::FromRoot);
        assert_eq!(shape(Call::Scatterv_init), Shape::FromRoot);
        assert_eq!(shape(Call::Ireduce), Shape::ToRoot);
        assert_eq!(shape(Call::Gatherv), Shape::ToRoot);
        assert_eq!(shape(Call::Iexscan), Shape::Scan);
        assert_eq!(shape(Call::Allreduce), Shape::All);
        assert_eq!(shape(Call::Ireduce_scatter), Shape::All);
        assert_eq!(shape(Call::Ineighbor_alltoall), Shape::Neighbours);
        assert_eq!(shape(Call::Comm_split), Shape::All);
    }
}
