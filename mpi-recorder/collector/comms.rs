//! Communicators and windows: our numbers for them, their members, and a key that all members agree on
//! without communication.
//!
//! The key is made of the parent's key, the members in order, and how many communicators with these members
//! this process has made from that parent before. Making a communicator is collective over its members and
//! ordered in the parent, so all of them compute the same. No message is sent: a broadcast after
//! `MPI_Comm_idup` could deadlock a correct program.

use crate::lock::Locked;
use crate::mpi::Library;
use crate::sys;
use crate::table::Table;
use crate::thread::{COMMS_CHANGED, Thread};
use core::sync::atomic::Ordering;
use mpi_abi::{Abi, Call, CommunicatorDef, ListKind, at, chunk_flag, rank};

/// What is known about a communicator.
#[derive(Clone, Copy, Default)]
pub struct Comm {
    pub number: u32,
    pub rank: i32,
    pub size: u32,
    /// 0 if there is only one group.
    pub remote_size: u32,
    /// Neighbours in the topology.
    pub sources: u32,
    pub destinations: u32,
    key: u64,
    /// Hash of the members.
    members: u64,
}

impl Comm {
    /// Length of the count arrays of collectives.
    pub fn peers(&self) -> u32 {
        if self.remote_size > 0 { self.remote_size } else { self.size }
    }
}

/// A message found by a matching probe.
#[derive(Clone, Copy)]
pub struct Message {
    pub comm: u32,
    pub source: i32,
    pub tag: i32,
}

/// A duplicate that is being made.
#[derive(Clone, Copy)]
struct Duplicate {
    handle: usize,
    parent: Comm,
    key: u64,
}

struct Objects {
    comms: Table<Comm>,
    windows: Table<u32>,
    messages: Table<Message>,
    duplicates: Table<Duplicate>,
    /// How many communicators were made with a key before.
    made: Table<u32>,
    next_comm: u32,
    next_window: u32,
}

static OBJECTS: Locked<Objects> = Locked::new(Objects {
    comms: Table::new(),
    windows: Table::new(),
    messages: Table::new(),
    duplicates: Table::new(),
    made: Table::new(),
    next_comm: 0,
    next_window: 0,
});

/// World ranks are found by translating to this group.
static WORLD_GROUP: Locked<usize> = Locked::new(0);

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.rotate_left(29)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// How a communicator came into being.
#[derive(Clone, Copy)]
enum Origin {
    World,
    Own,
    Made { call: Call, parent: Comm, label: i32 },
    Duplicated { parent: Comm, key: u64 },
    Unknown,
}

/// Defines `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
pub fn begin(thread: &mut Thread) {
    let library = thread.library;
    let mut group = 0usize;
    // SAFETY: a valid communicator and a place large enough for a handle of any ABI.
    unsafe { library.Comm_group(library.comm_world, &raw mut group as usize) };
    WORLD_GROUP.with(|world| *world = library.handle(group));
    register(thread, library.comm_world, Origin::World);
    register(thread, library.comm_self, Origin::Own);
}

/// Frees what `begin` made.
pub fn finish(library: &Library) {
    WORLD_GROUP.with(|world| {
        let mut group = core::mem::take(world);
        if group != 0 {
            // SAFETY: the group that `begin` made.
            unsafe { library.Group_free(&raw mut group as usize) };
        }
    });
}

/// The communicator of a handle. One that was made by a function that is not wrapped (dynamic processes) is
/// defined when it is first used.
pub fn of(thread: &mut Thread, handle: usize) -> Option<Comm> {
    if handle == 0 || handle == thread.library.comm_null {
        return None;
    }
    match OBJECTS.with(|objects| objects.comms.get(handle).copied()) {
        Some(comm) => Some(comm),
        None => register(thread, handle, Origin::Unknown),
    }
}

/// Defines the communicator that a call has stored at `place`.
pub fn made(thread: &mut Thread, call: Call, parent: Comm, label: i32, place: usize) {
    // SAFETY: the call has succeeded, so a handle is there.
    let handle = unsafe { thread.library.handle_at(place) };
    if handle != thread.library.comm_null {
        register(thread, handle, Origin::Made { call, parent, label });
    }
}

/// Defines the communicator that `MPI_Comm_join`, which is called on none, has stored at `place`.
pub fn joined(thread: &mut Thread, place: usize) {
    // SAFETY: the call has succeeded, so a handle is there.
    let handle = unsafe { thread.library.handle_at(place) };
    if handle != thread.library.comm_null {
        register(thread, handle, Origin::Unknown);
    }
}

/// Remembers a duplicate that can be used when its request completes. Its handle is stored at `place` now; the
/// variable may be gone later, as in Open MPI's Fortran bindings.
pub fn duplicate(library: &Library, parent: Comm, place: usize, request: u64) {
    // SAFETY: the call has succeeded, so a handle is there.
    let handle = unsafe { library.handle_at(place) };
    OBJECTS.with(|objects| {
        let key = mix(parent.key, parent.members);
        let key = nth(&mut objects.made, key);
        objects.duplicates.set(request as usize + 1, Duplicate { handle, parent, key });
    });
}

/// Defines the duplicate whose request has completed.
pub fn duplicated(thread: &mut Thread, request: u64) {
    let Some(Duplicate { handle, parent, key }) =
        OBJECTS.with(|objects| objects.duplicates.take(request as usize + 1))
    else {
        return;
    };
    if handle != thread.library.comm_null {
        register(thread, handle, Origin::Duplicated { parent, key });
    }
}

/// Forgets a communicator that is about to be freed: its handle can come back at once.
pub fn freed(handle: usize) {
    OBJECTS.with(|objects| objects.comms.take(handle));
    COMMS_CHANGED.fetch_add(1, Ordering::Relaxed);
}

fn nth(made: &mut Table<u32>, key: u64) -> u64 {
    let slot = (key as usize).max(1);
    let count = made.get(slot).copied().unwrap_or(0);
    made.set(slot, count + 1);
    mix(key, u64::from(count))
}

/// Lists of ranks for one definition.
struct List {
    memory: *mut i32,
    length: usize,
}

impl List {
    fn new(length: usize) -> List {
        List { memory: sys::map_memory((length.max(1)) * 4).cast(), length }
    }

    fn address(&self) -> usize {
        self.memory as usize
    }

    fn values(&mut self) -> &mut [i32] {
        if self.memory.is_null() {
            return &mut [];
        }
        // SAFETY: mapped for `length` numbers in `new`.
        unsafe { core::slice::from_raw_parts_mut(self.memory, self.length) }
    }

    fn hash(&mut self) -> u64 {
        self.values().iter().fold(1, |hash, value| mix(hash, *value as u32 as u64))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: mapped in `new` with this length.
            unsafe { sys::unmap(self.memory.cast(), self.length.max(1) * 4) };
        }
    }
}

fn number(ask: impl FnOnce(usize) -> i32) -> i32 {
    let mut value = 0i32;
    ask(&raw mut value as usize);
    value
}

/// World ranks of a group, which is freed.
fn world_ranks(library: &Library, mut group: usize) -> List {
    let world = WORLD_GROUP.with(|world| *world);
    let handle = library.handle(group);
    // SAFETY: a group that the caller got from MPI, and arrays of its size.
    unsafe {
        let size = number(|out| library.Group_size(handle, out)).max(0) as usize;
        let mut own = List::new(size);
        let mut ranks = List::new(size);
        for (index, value) in own.values().iter_mut().enumerate() {
            *value = index as i32;
        }
        if !own.memory.is_null() && !ranks.memory.is_null() {
            library.Group_translate_ranks(handle, size, own.address(), world, ranks.address());
        }
        for value in ranks.values() {
            if *value < 0 {
                *value = rank::OUTSIDE;
            }
        }
        library.Group_free(&raw mut group as usize);
        ranks
    }
}

#[cold]
#[inline(never)]
fn register(thread: &mut Thread, handle: usize, origin: Origin) -> Option<Comm> {
    let library = thread.library;
    // SAFETY: a valid communicator of the program, and a place for the result.
    let test_inter = |out| unsafe { library.Comm_test_inter(handle, out) };
    let inter = number(test_inter) != 0;
    let mut group = 0usize;
    // SAFETY: as above.
    unsafe { library.Comm_group(handle, &raw mut group as usize) };
    let mut members = world_ranks(library, group);
    let mut remote = List::new(0);
    if inter {
        let mut group = 0usize;
        // SAFETY: as above, a communicator with two groups.
        unsafe { library.Comm_remote_group(handle, &raw mut group as usize) };
        remote = world_ranks(library, group);
    }
    // The two sides see the groups the other way round.
    let hash = match inter {
        false => members.hash(),
        true => mix(members.hash().min(remote.hash()), members.hash().max(remote.hash())),
    };
    let mut comm = Comm {
        number: 0,
        // SAFETY: as above.
        rank: number(|out| unsafe { library.Comm_rank(handle, out) }),
        size: members.length as u32,
        remote_size: remote.length as u32,
        sources: 0,
        destinations: 0,
        key: 0,
        members: hash,
    };
    let (topology, mut lists) = topology(library, handle, &mut comm);
    OBJECTS.with(|objects| {
        comm.number = objects.next_comm;
        objects.next_comm += 1;
        comm.key = match origin {
            Origin::World => 1,
            Origin::Own => mix(2, hash),
            Origin::Made { call: Call::Intercomm_create, label, .. } => {
                nth(&mut objects.made, mix(mix(3, label as u32 as u64), hash))
            }
            // The two sides have no common parent.
            Origin::Made { call: Call::Comm_accept | Call::Comm_connect, .. } => {
                nth(&mut objects.made, mix(4, hash))
            }
            Origin::Made { parent, .. } => nth(&mut objects.made, mix(parent.key, hash)),
            Origin::Duplicated { key, .. } => key,
            Origin::Unknown => nth(&mut objects.made, mix(4, hash)),
        };
        if !objects.comms.set(handle, comm) {
            crate::output::count(at::LOST_TABLE, 1);
        }
    });
    COMMS_CHANGED.fetch_add(1, Ordering::Relaxed);
    let parent = match origin {
        Origin::Made { parent, .. } | Origin::Duplicated { parent, .. } => Some(parent.number),
        _ => None,
    };
    let definition = CommunicatorDef {
        number: comm.number,
        key: comm.key,
        parent,
        rank: comm.rank,
        size: comm.size,
        remote_size: comm.remote_size,
        topology,
    };
    let flags = chunk_flag::DEFINITIONS;
    thread.record(flags, |encoder, payload| encoder.communicator(payload, &definition));
    write_list(thread, comm.number, ListKind::Members, members.values());
    write_list(thread, comm.number, ListKind::Remote, remote.values());
    for (kind, list) in &mut lists {
        write_list(thread, comm.number, *kind, list.values());
    }
    Some(comm)
}

fn write_list(thread: &mut Thread, communicator: u32, kind: ListKind, values: &[i32]) {
    let mut offset = 0;
    while let Some(rest) = values.get(offset..).filter(|rest| !rest.is_empty()) {
        let mut written = 0;
        let stored = thread.record(chunk_flag::DEFINITIONS, |encoder, payload| {
            written = encoder.list(payload, communicator, kind, offset as u32, rest)?;
            Ok(())
        });
        if !stored || written == 0 {
            return;
        }
        offset += written;
    }
}

/// The topology's number and its lists: sources, destinations, extents, periods.
fn topology(library: &Library, handle: usize, comm: &mut Comm) -> (u8, [(ListKind, List); 4]) {
    // MPI_GRAPH, MPI_CART, MPI_DIST_GRAPH.
    let [graph, cart, dist] = match library.abi {
        Abi::Mpich => [1, 2, 3],
        Abi::OpenMpi => [2, 1, 3],
        Abi::Standard => [212, 211, 213],
    };
    let mut sources = List::new(0);
    let mut destinations = List::new(0);
    let mut dims = List::new(0);
    let mut periods = List::new(0);
    let rank = comm.rank as usize;
    // SAFETY: a valid communicator, places for the results and arrays of the lengths that MPI gave.
    let topology = unsafe {
        let kind = number(|out| library.Topo_test(handle, out));
        if kind == cart {
            let count = number(|out| library.Cartdim_get(handle, out)).max(0) as usize;
            dims = List::new(count);
            periods = List::new(count);
            let coordinates = List::new(count);
            let [a, b, c] = [dims.address(), periods.address(), coordinates.address()];
            library.Cart_get(handle, count, a, b, c);
            sources = List::new(2 * count);
            for dimension in 0..count {
                let (mut before, mut after) = (0i32, 0i32);
                let [a, b] = [&raw mut before as usize, &raw mut after as usize];
                library.Cart_shift(handle, dimension, 1, a, b);
                for (index, value) in [before, after].into_iter().enumerate() {
                    if let Some(place) = sources.values().get_mut(2 * dimension + index) {
                        *place = library.rank(value);
                    }
                }
            }
            destinations = List::new(2 * count);
            destinations.values().copy_from_slice(sources.values());
            2
        } else if kind == graph {
            let count =
                number(|out| library.Graph_neighbors_count(handle, rank, out)).max(0) as usize;
            sources = List::new(count);
            library.Graph_neighbors(handle, rank, count, sources.address());
            destinations = List::new(count);
            destinations.values().copy_from_slice(sources.values());
            1
        } else if kind == dist {
            let (mut ins, mut outs, mut weighted) = (0i32, 0i32, 0i32);
            let [a, b, c] =
                [&raw mut ins as usize, &raw mut outs as usize, &raw mut weighted as usize];
            library.Dist_graph_neighbors_count(handle, a, b, c);
            let (ins, outs) = (ins.max(0) as usize, outs.max(0) as usize);
            sources = List::new(ins);
            destinations = List::new(outs);
            let weights = List::new(ins.max(outs));
            let [a, b, w] = [sources.address(), destinations.address(), weights.address()];
            library.Dist_graph_neighbors(handle, ins, a, w, outs, b, w);
            3
        } else {
            0
        }
    };
    comm.sources = sources.length as u32;
    comm.destinations = destinations.length as u32;
    let lists = [
        (ListKind::Sources, sources),
        (ListKind::Destinations, destinations),
        (ListKind::Dims, dims),
        (ListKind::Periods, periods),
    ];
    (topology, lists)
}

/// Number of a window; 0 is one that the collector has not seen being made.
pub fn window(handle: usize) -> u32 {
    OBJECTS.with(|objects| objects.windows.get(handle).copied().unwrap_or(0))
}

/// Numbers the window that a call has stored at `place`.
pub fn window_made(thread: &mut Thread, parent: Comm, place: usize) {
    // SAFETY: the call has succeeded, so a handle is there.
    let handle = unsafe { thread.library.handle_at(place) };
    let window = OBJECTS.with(|objects| {
        objects.next_window += 1;
        objects.windows.set(handle, objects.next_window);
        objects.next_window
    });
    thread.record(chunk_flag::DEFINITIONS, |encoder, payload| {
        encoder.window(payload, window, parent.number)
    });
}

/// Forgets a window that is about to be freed.
pub fn window_freed(handle: usize) {
    OBJECTS.with(|objects| objects.windows.take(handle));
}

/// Remembers the message of a matching probe.
pub fn message_found(handle: usize, message: Message) {
    OBJECTS.with(|objects| objects.messages.set(handle, message));
}

/// The message that is about to be received.
pub fn message_taken(handle: usize) -> Option<Message> {
    OBJECTS.with(|objects| objects.messages.take(handle))
}
