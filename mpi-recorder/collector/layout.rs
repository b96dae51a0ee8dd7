//! Where a call's arguments are and what must be done around it, computed from the table of calls when the
//! library is compiled.

use mpi_abi::{Call, Class, Role, present, shape};

/// Position of an argument that the call does not have; beyond all arguments.
pub const NONE: u8 = 31;

/// What a call needs besides being written down.
pub mod special {
    /// Makes a request.
    pub const BEGINS: u16 = 1;
    /// Receives or probes: the status says what came.
    pub const STATUS: u16 = 1 << 1;
    /// Completes, starts, cancels or frees requests.
    pub const REQUESTS: u16 = 1 << 2;
    /// Makes a communicator.
    pub const NEW_COMM: u16 = 1 << 3;
    /// Frees a communicator.
    pub const END_COMM: u16 = 1 << 4;
    /// Makes a window.
    pub const NEW_WINDOW: u16 = 1 << 5;
    /// Frees a window.
    pub const END_WINDOW: u16 = 1 << 6;
    /// Receives a message that a probe has matched.
    pub const MESSAGE: u16 = 1 << 7;
    /// Looks whether something has happened, and is made again if not.
    pub const TESTS: u16 = 1 << 8;
}

/// How the sizes of a call are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    None,
    /// A count and a datatype.
    One,
    /// A datatype.
    Element,
    /// A number of bytes.
    Bytes,
    /// Both halves of an exchange that uses one buffer.
    Replace,
    /// Two counts and two datatypes.
    Two,
    /// The same in a gather: the receive half counts at the root.
    Gather,
    /// The same in a scatter: the send half counts at the root.
    Scatter,
    /// A part to be received for every rank, and the datatype of all.
    ReduceScatter,
}

/// Positions of the arguments.
pub struct Layout {
    pub call: Call,
    pub present: u8,
    pub shape: u8,
    pub special: u16,
    pub sizes: Sizes,
    pub neighborhood: bool,
    pub persistent: bool,
    pub receives: bool,
    pub buffer: u8,
    pub count: u8,
    pub datatype: u8,
    pub receive_buffer: u8,
    pub receive_count: u8,
    pub receive_type: u8,
    pub counts: u8,
    pub types: u8,
    pub receive_counts: u8,
    pub receive_types: u8,
    pub peer: u8,
    pub tag: u8,
    pub source: u8,
    pub source_tag: u8,
    pub op: u8,
    pub comm: u8,
    pub comm_in_out: u8,
    pub new_comm: u8,
    pub window: u8,
    pub window_in_out: u8,
    pub new_window: u8,
    pub request: u8,
    pub one_request: u8,
    pub request_value: u8,
    pub request_count: u8,
    pub requests: u8,
    pub index: u8,
    pub flag: u8,
    pub out_count: u8,
    pub indices: u8,
    pub status: u8,
    pub statuses: u8,
    pub message: u8,
    pub new_message: u8,
    pub bytes: u8,
}

const fn at(call: Call, role: Role) -> u8 {
    let roles = call.arguments();
    let mut index = 0;
    while index < roles.len() {
        if roles[index] as u8 == role as u8 {
            return index as u8;
        }
        index += 1;
    }
    NONE
}

const fn has(call: Call, role: Role) -> bool {
    at(call, role) != NONE
}

const fn first_of(call: Call, roles: [Role; 4]) -> u8 {
    let mut index = 0;
    while index < roles.len() {
        if has(call, roles[index]) {
            return at(call, roles[index]);
        }
        index += 1;
    }
    NONE
}

const fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let mut start = 0;
    while start + part.len() <= text.len() {
        let mut index = 0;
        while index < part.len() && text[start + index] == part[index] {
            index += 1;
        }
        if index == part.len() {
            return true;
        }
        start += 1;
    }
    false
}

const fn sizes(call: Call) -> Sizes {
    let two = has(call, Role::ReceiveBuffer)
        && (has(call, Role::ReceiveType) || has(call, Role::ReceiveTypes));
    if has(call, Role::Bytes) {
        Sizes::Bytes
    } else if two && has(call, Role::Root) {
        if contains(call.name(), "catter") { Sizes::Scatter } else { Sizes::Gather }
    } else if two {
        Sizes::Two
    } else if has(call, Role::ReceiveCounts) {
        Sizes::ReduceScatter
    } else if has(call, Role::Count) && has(call, Role::Dest) && has(call, Role::Source) {
        Sizes::Replace
    } else if has(call, Role::Count) {
        Sizes::One
    } else if has(call, Role::Type) {
        Sizes::Element
    } else {
        Sizes::None
    }
}

const fn bit(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

const fn layout(call: Call) -> Layout {
    let exchange = has(call, Role::Dest) && has(call, Role::Source);
    let sizes = sizes(call);
    let point_to_point = matches!(call.class(), Class::PointToPoint);
    let one_request = at(call, Role::RequestInOut);
    let any_request =
        one_request != NONE || has(call, Role::RequestValue) || has(call, Role::Requests);
    let peer = first_of(call, [Role::Dest, Role::Source, Role::Root, Role::Target]);
    let object = has(call, Role::Comm)
        || has(call, Role::CommInOut)
        || has(call, Role::Window)
        || has(call, Role::WindowInOut);
    let present = bit(object, present::OBJECT as u16)
        | bit(peer != NONE, present::PEER as u16)
        | bit(has(call, Role::Tag), present::TAG as u16)
        | bit(exchange, (present::SOURCE | present::SOURCE_TAG) as u16)
        | bit(has(call, Role::Op), present::OP as u16)
        | bit(!matches!(sizes, Sizes::None), present::BYTES as u16)
        | bit(
            !matches!(sizes, Sizes::None | Sizes::One | Sizes::Element | Sizes::Bytes),
            present::RECEIVED as u16,
        );
    let status = point_to_point && has(call, Role::Status);
    let tests = (point_to_point || any_request)
        && (has(call, Role::Flag) || matches!(call, Call::Testsome));
    let shape = bit(has(call, Role::Request), shape::BEGUN as u16)
        | bit(status || has(call, Role::Flag), shape::OUTCOME as u16)
        | bit(any_request, shape::REQUESTS as u16)
        | bit(has(call, Role::Counts), shape::SENT as u16)
        | bit(has(call, Role::ReceiveCounts), shape::RECEIVED as u16);
    Layout {
        call,
        present: present as u8,
        shape: shape as u8,
        special: bit(has(call, Role::Request), special::BEGINS)
            | bit(status || has(call, Role::Flag), special::STATUS)
            | bit(any_request, special::REQUESTS)
            | bit(has(call, Role::NewComm), special::NEW_COMM)
            | bit(has(call, Role::CommInOut), special::END_COMM)
            | bit(has(call, Role::NewWindow), special::NEW_WINDOW)
            | bit(has(call, Role::WindowInOut), special::END_WINDOW)
            | bit(has(call, Role::Message), special::MESSAGE)
            | bit(tests, special::TESTS),
        sizes,
        neighborhood: contains(call.name(), "eighbor"),
        persistent: contains(call.name(), "_init") && has(call, Role::Request),
        receives: point_to_point && (has(call, Role::Source) || has(call, Role::Message)),
        buffer: at(call, Role::Buffer),
        count: at(call, Role::Count),
        datatype: at(call, Role::Type),
        receive_buffer: at(call, Role::ReceiveBuffer),
        receive_count: at(call, Role::ReceiveCount),
        receive_type: at(call, Role::ReceiveType),
        counts: at(call, Role::Counts),
        types: at(call, Role::Types),
        receive_counts: at(call, Role::ReceiveCounts),
        receive_types: at(call, Role::ReceiveTypes),
        peer,
        tag: at(call, Role::Tag),
        source: if exchange { at(call, Role::Source) } else { NONE },
        source_tag: at(call, Role::ReceiveTag),
        op: at(call, Role::Op),
        comm: at(call, Role::Comm),
        comm_in_out: at(call, Role::CommInOut),
        new_comm: at(call, Role::NewComm),
        window: at(call, Role::Window),
        window_in_out: at(call, Role::WindowInOut),
        new_window: at(call, Role::NewWindow),
        request: at(call, Role::Request),
        one_request,
        request_value: at(call, Role::RequestValue),
        request_count: at(call, Role::RequestCount),
        requests: at(call, Role::Requests),
        index: at(call, Role::Index),
        flag: at(call, Role::Flag),
        out_count: at(call, Role::OutCount),
        indices: at(call, Role::Indices),
        status: at(call, Role::Status),
        statuses: at(call, Role::Statuses),
        message: at(call, Role::Message),
        new_message: at(call, Role::NewMessage),
        bytes: at(call, Role::Bytes),
    }
}

const CALLS: usize = Call::ALL.len();

/// The layouts of all calls, by number.
pub static LAYOUTS: [Layout; CALLS] = {
    let mut layouts = [const { layout(Call::Send) }; CALLS];
    let mut index = 0;
    while index < CALLS {
        layouts[index] = layout(Call::ALL[index]);
        index += 1;
    }
    layouts
};
