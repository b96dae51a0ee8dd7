//! What a rank re-enacts: a list of instructions, which the command makes from a trace and the worker plays with
//! real calls of MPI.
//!
//! A script is a sequence of words: a head ([`Head`]), four words for each instruction, and then its lists:
//! 32-bit numbers, two in a word. Names of regions are bytes at the end.

/// Words of an instruction.
pub const WORDS: usize = 4;
/// Words of a head.
pub const HEAD_WORDS: usize = 8;
/// `MPI_COMM_WORLD` among the communicators of a script. Those it makes itself follow.
pub const WORLD: u16 = 0;
/// A duplicate of it.
pub const APART: u16 = 1;
/// The first communicator that is made from a list of members.
pub const FIRST_GROUP: u16 = 2;
/// Any source, or any tag.
pub const ANY: i32 = -1;

/// An enumeration of acts and the list of them, in the same order.
macro_rules! acts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What an instruction does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Act {
            $($(#[$doc])* $name,)*
        }

        impl Act {
            pub const ALL: &[Act] = &[$(Act::$name,)*];
        }
    };
}

acts! {
    /// Waits for `bytes` ns after the last call.
    Compute,
    Send,
    Ssend,
    Recv,
    Isend,
    Issend,
    Irecv,
    /// Sends and does not look back: the request is freed at once.
    Detached,
    /// Receives and does not look back.
    Abandoned,
    /// Its receive is the next instruction.
    Sendrecv,
    Wait,
    /// The `bytes` requests of the list at `place`.
    Waitall,
    /// One of the requests of the list at `place`, whose first `tag` were complete in the trace.
    Waitsome,
    /// The same, if only one was complete.
    Waitany,
    /// Asks whether a request is complete, which it was not in the trace.
    Test,
    /// The same of one of the requests of a list, of some and of all.
    Testany,
    Testsome,
    Testall,
    Begin,
    End,
    /// A communicator is made.
    Dup,
    Barrier,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    Scan,
    Exscan,
    /// With the list of counts and displacements at `place`.
    Gatherv,
    Scatterv,
    Alltoallv,
}

impl Act {
    #[inline]
    pub fn from_number(number: u8) -> Option<Act> {
        Act::ALL.get(usize::from(number)).copied()
    }
}

/// No request: the call returns when it is done.
pub const NO_REQUEST: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub act: Act,
    /// Position among the communicators.
    pub comm: u16,
    /// Other rank, or root.
    pub peer: i32,
    pub tag: i32,
    pub request: u32,
    pub bytes: u64,
    /// Position of a list, or in the buffers.
    pub place: u64,
}

impl Instruction {
    /// One that only has these.
    pub fn of(act: Act, bytes: u64, place: u64) -> Instruction {
        Instruction { act, comm: WORLD, peer: 0, tag: 0, request: NO_REQUEST, bytes, place }
    }

    pub fn words(&self) -> [u64; WORDS] {
        let first =
            self.act as u64 | u64::from(self.comm) << 16 | u64::from(self.peer as u32) << 32;
        let second = u64::from(self.tag as u32) | u64::from(self.request) << 32;
        [first, second, self.bytes, self.place]
    }

    #[inline]
    pub fn from_words(words: [u64; WORDS]) -> Option<Instruction> {
        let [first, second, bytes, place] = words;
        Some(Instruction {
            act: Act::from_number(first as u8)?,
            comm: (first >> 16) as u16,
            peer: (first >> 32) as i32,
            tag: second as i32,
            request: (second >> 32) as u32,
            bytes,
            place,
        })
    }
}

/// How long a script's parts are, and how it is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub instructions: u64,
    /// 32-bit numbers in the lists.
    pub lists: u64,
    /// Bytes of names.
    pub names: u64,
    /// Requests in use at once.
    pub requests: u64,
    /// Bytes of the buffers.
    pub buffers: u64,
    /// Communicators with lists of their own: the number of members, and the members. They begin the lists.
    pub groups: u64,
    /// Ticks in 2^32 ns.
    pub ticks: u64,
    /// Waits that are longer than this, ns, sleep; 0 if none does.
    pub sleep: u64,
}

impl Head {
    pub fn words(&self) -> [u64; HEAD_WORDS] {
        let Head { instructions, lists, names, requests, buffers, groups, ticks, sleep } = *self;
        [instructions, lists, names, requests, buffers, groups, ticks, sleep]
    }

    pub fn from_words(words: [u64; HEAD_WORDS]) -> Head {
        let [instructions, lists, names, requests, buffers, groups, ticks, sleep] = words;
        Head { instructions, lists, names, requests, buffers, groups, ticks, sleep }
    }

    /// Words of the whole script.
    pub fn total(&self) -> Option<u64> {
        let own = self.instructions.checked_mul(WORDS as u64)?.checked_add(HEAD_WORDS as u64)?;
        own.checked_add(self.lists.div_ceil(2))?.checked_add(self.names.div_ceil(8))
    }
}
