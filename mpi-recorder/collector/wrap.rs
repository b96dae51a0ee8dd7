//! What happens around a call: its arguments are read, the real function runs between two readings of the
//! clock, and an event is written.

use crate::comms::{self, Comm, Message};
use crate::layout::{LAYOUTS, Layout, Sizes, special};
use crate::mpi::{self, Failure, Library, REAL, STATUS_WORDS, UNDEFINED};
use crate::polling::{self, ARGUMENTS, Failed};
use crate::requests::{Open, REQUESTS, flag};
use crate::thread::{self, GAP, Looked, Scratch, Thread};
use crate::{output, start, sys};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use mpi_abi::{
    Actual, Call, Entry, MAX_REQUESTS, Outcome, RequestItem, Signature, at, present, rank,
};

/// Set in the number of a function that was called by its name `PMPI_...`.
pub const PROFILING_NAME: usize = 1 << 16;

/// Record calls by their names `MPI_...` only.
pub static ONLY_MPI: AtomicBool = AtomicBool::new(false);

/// Calls a function with the words of an array as arguments.
pub trait Invoke {
    /// # Safety
    /// `function` is the address of a C function that takes these arguments, each in a word.
    unsafe fn invoke(self, function: usize) -> usize;
}

macro_rules! invoke {
    ($($count:literal [$($argument:ident)*])*) => {$(
        impl Invoke for [usize; $count] {
            #[inline(always)]
            unsafe fn invoke(self, function: usize) -> usize {
                let [$($argument),*] = self;
                // SAFETY: by contract; the C functions return int, of which the upper half is not used.
                unsafe {
                    type Function = unsafe extern "C" fn($(invoke!(@word $argument)),*) -> usize;
                    let function = core::mem::transmute::<usize, Function>(function);
                    function($($argument),*)
                }
            }
        }
    )*};
    (@word $argument:ident) => { usize };
}
invoke! {
    0 [] 1 [a] 2 [a b] 3 [a b c] 4 [a b c d] 5 [a b c d e] 6 [a b c d e f] 7 [a b c d e f g]
    8 [a b c d e f g h] 9 [a b c d e f g h i] 10 [a b c d e f g h i j]
    11 [a b c d e f g h i j k] 12 [a b c d e f g h i j k l] 13 [a b c d e f g h i j k l m]
}

/// The address of the real function.
#[inline(always)]
pub fn real(function: usize) -> usize {
    let function = function & (PROFILING_NAME - 1);
    match REAL.get(function).map(|real| real.load(Ordering::Relaxed)) {
        Some(0) | None => mpi::resolve(function),
        Some(real) => real,
    }
}

/// A call of the program.
///
/// # Safety
/// The arguments are those of the function with this number.
#[inline(always)]
pub unsafe fn call<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: Invoke,
{
    // SAFETY: by contract.
    unsafe { call_from(sys::stack_pointer(), function, args) }
}

/// The same with the frame of the wrapper.
#[inline(always)]
unsafe fn call_from<const N: usize>(frame: usize, function: usize, args: [usize; N]) -> usize
where
    [usize; N]: Invoke,
{
    if !thread::is_recording() {
        // SAFETY: the caller's arguments.
        return unsafe { args.invoke(real(function)) };
    }
    // SAFETY: as above.
    unsafe { call_recording(frame, function, args) }
}

#[inline(never)]
unsafe fn call_recording<const N: usize>(frame: usize, function: usize, args: [usize; N]) -> usize
where
    [usize; N]: Invoke,
{
    sys::leave_gap::<GAP>();
    let real = real(function);
    if function & PROFILING_NAME == 0 || !ONLY_MPI.load(Ordering::Relaxed) {
        let thread = thread::enter(frame);
        if let Some(thread) = thread {
            // SAFETY: the caller's arguments.
            let result = unsafe { recorded(thread, function, real, args) };
            thread.leave();
            return result;
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { args.invoke(real) }
}

/// A test or a nonblocking probe. If it has just failed and is made again, it is only counted. Programs that poll
/// make so many that each instruction on this way is measured.
///
/// # Safety
/// The arguments are those of the function with this number.
#[inline(always)]
pub unsafe fn test<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: Invoke,
{
    sys::leave_gap::<GAP>();
    let frame = sys::stack_pointer() + GAP;
    if let Some(layout) = layout_of(function)
        && let Some((thread, mark)) = thread::marked()
        && thread.polling.first().is_marked(mark, function, &args, layout)
    {
        thread.enter(frame);
        // SAFETY: the caller's arguments, as in the test before.
        let result = unsafe { thread.polling.first().make(args, layout) };
        if thread.is_gone() {
            return result;
        }
        if !thread.polling.first().has_failed(result) {
            return end_count::<N>(thread, result);
        }
        let due = thread.polling.count();
        thread.leave_test(if due { 0 } else { mark });
        return result;
    }
    // SAFETY: the caller's arguments.
    unsafe { test_again(function, args, frame) }
}

/// The test that would have been counted has not failed.
#[cold]
#[inline(never)]
fn end_count<const N: usize>(thread: &mut Thread, result: usize) -> usize {
    let end = start::ticks();
    let begin = thread.polling.begin_of_next(end);
    tested::<N>(thread, result, begin, end)
}

/// The same for tests of several requests, several tests in turn, those at which the clock is read, and all that are
/// not expected.
#[cold]
#[inline(never)]
unsafe fn test_again<const N: usize>(function: usize, args: [usize; N], frame: usize) -> usize
where
    [usize; N]: Invoke,
{
    if let Some(layout) = layout_of(function)
        && thread::ON.load(Ordering::Relaxed)
        && let Some((thread, slot)) = thread::polling()
        && slot.is(function, &args)
    {
        thread.enter(frame);
        let due = thread.polling.is_due();
        let begin = if due { start::ticks() } else { 0 };
        // SAFETY: as in `test`.
        let result = unsafe { slot.make(args, layout) };
        if thread.is_gone() {
            return result;
        }
        let failed = slot.has_failed(result);
        if failed && !due {
            thread.polling.count();
            thread.polling.advance();
        } else {
            let end = start::ticks();
            let begin = if due { begin } else { thread.polling.begin_of_next(end) };
            if !(failed && thread.repeat(begin, end)) {
                return tested::<N>(thread, result, begin, end);
            }
        }
        thread.leave_test(thread.polling.mark());
        return result;
    }
    // SAFETY: the caller's arguments.
    unsafe { call_from(frame, function, args) }
}

/// Writes a test that is not counted with those before it.
#[cold]
#[inline(never)]
fn tested<const N: usize>(thread: &mut Thread, result: usize, begin: u64, end: u64) -> usize {
    // SAFETY: the test that has been made, which stays where it is.
    let Some(slot) = (unsafe { thread.polling.next().as_ref() }) else { return result };
    let (place, failed) = (thread.polling.place(), slot.has_failed(result));
    let words = slot.arguments::<N>();
    if let (Some(layout), Some(mut state)) = (layout_of(slot.test().function), slot.test().state) {
        let args = Arguments { words: &words, layout, large: false };
        thread.polling.exchange(place, &mut thread.looked);
        let progress = thread.progress();
        state.look_again(thread);
        state.conclude(thread, &args, begin, end, result as i32);
        thread.polling.exchange(place, &mut thread.looked);
        if failed && thread.has_written(progress).is_some() {
            thread.polling.rearm(place, begin, end);
        }
    }
    thread.leave();
    result
}

/// What the arguments of a function mean.
#[inline(always)]
fn layout_of(function: usize) -> Option<&'static Layout> {
    LAYOUTS.get((function & (PROFILING_NAME - 1)) / 2)
}

/// `MPI_Type_free`: its handle can come back with another size. Counts at any depth.
///
/// # Safety
/// The arguments are those of the function.
pub unsafe fn type_free<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: Invoke,
{
    thread::TYPES_CHANGED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's arguments.
    unsafe { call(function, args) }
}

/// The words of a call whose meaning the layout knows.
struct Arguments<'a> {
    words: &'a [usize],
    layout: &'static Layout,
    large: bool,
}

impl Arguments<'_> {
    #[inline(always)]
    fn word(&self, at: u8) -> usize {
        self.words.get(usize::from(at)).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn int(&self, at: u8) -> i32 {
        self.word(at) as i32
    }

    /// The communicator of the call.
    fn comm(&self, thread: &mut Thread) -> Option<Comm> {
        match self.layout.comm {
            crate::layout::NONE => None,
            at => thread.comm(self.word(at)),
        }
    }

    /// A number of elements.
    #[inline(always)]
    fn count(&self, at: u8) -> u64 {
        if self.large { (self.word(at) as i64).max(0) as u64 } else { self.int(at).max(0) as u64 }
    }

    /// The `int` that an argument points to.
    fn int_at(&self, at: u8, index: usize) -> i32 {
        // SAFETY: the layout says that MPI itself reads or has written an int there.
        unsafe {
            with_exposed_provenance_mut::<i32>(self.word(at)).wrapping_add(index).read_unaligned()
        }
    }

    /// Bytes of a count and a datatype.
    #[inline(always)]
    fn bytes(&self, thread: &mut Thread, count: u8, datatype: u8) -> u64 {
        match self.count(count) {
            // The datatype may be MPI_DATATYPE_NULL then.
            0 => 0,
            count => count.saturating_mul(thread.type_size(self.word(datatype))),
        }
    }

    /// Bytes for every peer and their sum.
    fn list(
        &self,
        thread: &mut Thread,
        list: &mut [u64],
        counts: u8,
        datatype: u8,
        types: u8,
    ) -> u64 {
        let (counts, types) = (self.word(counts), self.word(types));
        if counts == 0 {
            list.fill(0);
            return 0;
        }
        let library = thread.library;
        let mut total = 0u64;
        for (index, place) in list.iter_mut().enumerate() {
            // SAFETY: the arrays of counts and datatypes have an element for every peer.
            let (count, handle) = unsafe {
                let count = if self.large {
                    with_exposed_provenance_mut::<i64>(counts).add(index).read_unaligned().max(0)
                } else {
                    let count = with_exposed_provenance_mut::<i32>(counts).add(index);
                    i64::from(count.read_unaligned().max(0))
                };
                let handle = match types {
                    0 => self.word(datatype),
                    types if count > 0 => library.handle_at(types + index * library.handle_size()),
                    _ => 0,
                };
                (count as u64, handle)
            };
            *place = match count {
                0 => 0,
                count => count.saturating_mul(thread.type_size(handle)),
            };
            total = total.saturating_add(*place);
        }
        total
    }
}

/// What was found out before the real call.
#[derive(Clone, Copy)]
struct Before {
    bytes: u64,
    received: u64,
    sent: usize,
    got: usize,
}

/// Reads the arguments of a call into its signature and sizes.
#[inline(always)]
fn describe(thread: &mut Thread, args: &Arguments, signature: &mut Signature) -> Before {
    let layout = args.layout;
    let library = thread.library;
    signature.large = args.large;
    signature.present = layout.present;
    signature.shape = layout.shape;
    if layout.comm != crate::layout::NONE {
        match thread.comm_number(args.word(layout.comm)) {
            Some(number) => signature.object = number,
            None => signature.present &= !present::OBJECT,
        }
    } else if layout.window != crate::layout::NONE {
        signature.object = comms::window(library.handle(args.word(layout.window)));
    }
    if layout.present & present::PEER != 0 {
        signature.peer = library.rank(args.int(layout.peer));
    }
    if layout.present & present::TAG != 0 {
        signature.tag = library.tag(args.int(layout.tag));
    }
    if layout.present & present::SOURCE != 0 {
        signature.source = library.rank(args.int(layout.source));
        signature.source_tag = library.tag(args.int(layout.source_tag));
    }
    if layout.present & present::OP != 0 {
        signature.op = library.op(args.word(layout.op));
    }
    let mut before = Before { bytes: 0, received: 0, sent: 0, got: 0 };
    match layout.sizes {
        Sizes::None => {}
        Sizes::One => {
            // In a rooted collective between groups, the root's companions have no part.
            if signature.peer != rank::PROC_NULL
                || layout.count < layout.datatype && !layout_rooted(layout)
            {
                before.bytes = args.bytes(thread, layout.count, layout.datatype);
            }
        }
        Sizes::Element => before.bytes = thread.type_size(args.word(layout.datatype)),
        Sizes::Bytes => before.bytes = args.word(layout.bytes) as u64,
        Sizes::Replace => {
            before.bytes = args.bytes(thread, layout.count, layout.datatype);
            before.received = before.bytes;
        }
        _ => two_sizes(thread, args, signature, &mut before),
    }
    before
}

fn layout_rooted(layout: &Layout) -> bool {
    matches!(layout.call.class(), mpi_abi::Class::Collective)
}

/// Sizes of collectives with two halves, and of exchanges.
#[inline(never)]
fn two_sizes(thread: &mut Thread, args: &Arguments, signature: &Signature, before: &mut Before) {
    let layout = args.layout;
    let comm = args.comm(thread).unwrap_or_default();
    let inter = comm.remote_size > 0;
    let root = signature.peer;
    let is_root = if inter { root == rank::ROOT } else { root == comm.rank };
    let takes_part = !inter || root >= 0;
    let (mut sends, mut receives) = match layout.sizes {
        Sizes::Gather => (takes_part, is_root),
        Sizes::Scatter => (is_root, takes_part),
        Sizes::ReduceScatter => (false, true),
        _ => (true, true),
    };
    let in_place = thread.library.in_place;
    let collective = layout_rooted(layout);
    let send_in_place = collective && args.word(layout.buffer) == in_place;
    let receive_in_place =
        layout.sizes == Sizes::Scatter && args.word(layout.receive_buffer) == in_place;
    sends &= !send_in_place;
    receives &= !receive_in_place;
    let own = comm.rank.max(0) as usize;
    let mut own_part = 0;
    if receives {
        if layout.receive_counts == crate::layout::NONE {
            before.received = args.bytes(thread, layout.receive_count, layout.receive_type);
            own_part = before.received;
        } else {
            let peers = match (layout.neighborhood, layout.sizes) {
                (true, _) => comm.sources,
                (_, Sizes::ReduceScatter) => comm.size,
                _ => comm.peers(),
            };
            let datatype = match layout.sizes {
                Sizes::ReduceScatter => layout.datatype,
                _ => layout.receive_type,
            };
            let mut got = core::mem::take(&mut thread.got);
            let list = got.room(peers as usize);
            before.received =
                args.list(thread, list, layout.receive_counts, datatype, layout.receive_types);
            own_part = list.get(own).copied().unwrap_or(0);
            before.got = list.len();
            thread.got = got;
        }
    }
    if sends {
        if layout.counts == crate::layout::NONE {
            before.bytes = args.bytes(thread, layout.count, layout.datatype);
        } else {
            let peers = if layout.neighborhood { comm.destinations } else { comm.peers() };
            let mut sent = core::mem::take(&mut thread.sent);
            let list = sent.room(peers as usize);
            before.bytes = args.list(thread, list, layout.counts, layout.datatype, layout.types);
            if receive_in_place {
                before.received = list.get(own).copied().unwrap_or(0);
            }
            before.sent = list.len();
            thread.sent = sent;
        }
    }
    match layout.sizes {
        Sizes::ReduceScatter => {
            before.bytes = before.received;
            before.received = own_part;
        }
        _ if send_in_place && layout.counts == crate::layout::NONE => before.bytes = own_part,
        _ if send_in_place => before.bytes = before.received,
        _ if receive_in_place && layout.counts == crate::layout::NONE => {
            before.received = before.bytes;
        }
        _ => {}
    }
}

/// Records a call.
///
/// # Safety
/// The arguments are those of the function.
#[inline(always)]
unsafe fn recorded<const N: usize>(
    thread: &mut Thread,
    function: usize,
    real: usize,
    mut words: [usize; N],
) -> usize
where
    [usize; N]: Invoke,
{
    let Some(layout) = layout_of(function) else {
        // SAFETY: the caller's arguments.
        return unsafe { words.invoke(real) };
    };
    let large = function % 2 == 1;
    let mut signature = Signature::of(layout.call);
    let before = describe(thread, &Arguments { words: &words, layout, large }, &mut signature);
    if layout.special == 0 {
        let begin = start::ticks();
        // SAFETY: the caller's arguments.
        let result = unsafe { words.invoke(real) };
        if thread.is_gone() {
            return result;
        }
        let end = start::ticks();
        let mut entry = start::plain(layout.call, begin, end);
        entry.signature = signature;
        entry.bytes = before.bytes;
        entry.received = before.received;
        entry.error = result as i32;
        write(thread, &entry, &before);
        return result;
    }
    let mut status = [0usize; STATUS_WORDS];
    let mut state = State { before, signature, looked: Look::None, freed: 0 };
    state.prepare(thread, &mut words, layout, &mut status, large);
    let begin = start::ticks();
    // SAFETY: the caller's arguments, or our own status in place of MPI_STATUS_IGNORE.
    let result = unsafe { words.invoke(real) };
    if thread.is_gone() {
        return result;
    }
    let end = start::ticks();
    let args = Arguments { words: &words, layout, large };
    if layout.special & special::TESTS == 0 || large {
        state.conclude(thread, &args, begin, end, result as i32);
        return result;
    }
    let (before, written) = (state, thread.polling.open_end());
    let progress = thread.progress();
    state.conclude(thread, &args, begin, end, result as i32);
    let Some(same_chunk) = thread.has_written(progress) else { return result };
    // A record of repetitions can refer only to tests in its own chunk.
    let written = if same_chunk { written } else { 0 };
    let ours = status.as_ptr().expose_provenance();
    if let Some(failed) = before.to_repeat(thread, function, &args, (ours, written), result) {
        let lists = (&mut thread.looked, &mut thread.statuses);
        thread.polling.arm(thread.library, failed, lists, written, (begin, end));
    }
    result
}

/// Writes an event with the lists of a vector collective.
#[inline(always)]
fn write(thread: &mut Thread, entry: &Entry, before: &Before) {
    if before.sent == 0 && before.got == 0 {
        thread.event(entry);
        return;
    }
    let mut sent = core::mem::take(&mut thread.sent);
    let mut got = core::mem::take(&mut thread.got);
    let lists = Entry { sent: sent.room(before.sent), got: got.room(before.got), ..*entry };
    thread.event(&lists);
    thread.sent = sent;
    thread.got = got;
}

/// The requests that a call is about.
#[derive(Clone, Copy)]
enum Look {
    None,
    One(Looked),
    /// In the thread's scratch memory.
    Many(usize),
}

/// A call with something special, while it runs.
#[derive(Clone, Copy)]
pub struct State {
    before: Before,
    signature: Signature,
    looked: Look,
    freed: usize,
}

impl State {
    #[inline]
    fn prepare(
        &mut self,
        thread: &mut Thread,
        words: &mut [usize],
        layout: &'static Layout,
        status: &mut [usize; STATUS_WORDS],
        large: bool,
    ) {
        let library = thread.library;
        let args = Arguments { words, layout, large };
        let special = layout.special;
        let mut wants_status = special & special::STATUS != 0 && layout.receives;
        if special & special::REQUESTS != 0 {
            let (looked, receives) = look(thread, &args);
            self.looked = looked;
            wants_status = receives;
        }
        if special & special::MESSAGE != 0 {
            // SAFETY: the call reads the message there.
            let handle = unsafe { library.handle_at(args.word(layout.message)) };
            match comms::message_taken(handle) {
                Some(Message { comm, source, tag }) => {
                    self.signature.present |= present::OBJECT | present::PEER | present::TAG;
                    self.signature.object = comm;
                    self.signature.peer = source;
                    self.signature.tag = tag;
                }
                None => {
                    self.signature.present |= present::PEER;
                    self.signature.peer = rank::PROC_NULL;
                }
            }
        }
        if special & special::END_COMM != 0 {
            // SAFETY: the call reads the communicator there.
            let handle = unsafe { library.handle_at(args.word(layout.comm_in_out)) };
            match thread.comm(handle) {
                Some(comm) => self.signature.object = comm.number,
                None => self.signature.present &= !present::OBJECT,
            }
            comms::freed(handle);
        }
        if special & special::END_WINDOW != 0 {
            // SAFETY: the call reads the window there.
            self.freed = unsafe { library.handle_at(args.word(layout.window_in_out)) };
            self.signature.object = comms::window(self.freed);
            comms::window_freed(self.freed);
        }
        if wants_status {
            if layout.status != crate::layout::NONE
                && args.word(layout.status) == library.status_ignore
            {
                let address = status.as_mut_ptr().expose_provenance();
                if let Some(word) = words.get_mut(usize::from(layout.status)) {
                    *word = address;
                }
            } else if layout.statuses != crate::layout::NONE
                && args.word(layout.statuses) == library.status_ignore
            {
                let count = args.int(layout.request_count).max(0) as usize;
                let mut statuses = core::mem::take(&mut thread.statuses);
                let room = statuses.room(count.saturating_mul(STATUS_WORDS));
                if !room.is_empty()
                    && let Some(word) = words.get_mut(usize::from(layout.statuses))
                {
                    *word = room.as_mut_ptr().expose_provenance();
                }
                thread.statuses = statuses;
            }
        }
    }

    #[inline]
    fn conclude(
        &mut self,
        thread: &mut Thread,
        args: &Arguments,
        begin: u64,
        end: u64,
        error: i32,
    ) {
        let layout = args.layout;
        let library = thread.library;
        let special = layout.special;
        let mut entry = start::plain(layout.call, begin, end);
        entry.error = error;
        entry.bytes = self.before.bytes;
        entry.received = self.before.received;
        if special & special::STATUS != 0 {
            if layout.flag != crate::layout::NONE {
                entry.found = error == 0 && args.int_at(layout.flag, 0) != 0;
            }
            if layout.receives && error == 0 && entry.found {
                self.received(library, args, &mut entry);
            } else if layout.receives && error != 0 && library.failure(error) == Failure::Truncated
            {
                // The message is gone, so whose it was matters. Its size is not in the status.
                self.received(library, args, &mut entry);
                entry.actual.bytes = None;
            }
        }
        if special & special::BEGINS != 0 {
            if error == 0 {
                entry.begun = self.begin_request(thread, args);
            } else {
                self.signature.shape &= !mpi_abi::shape::BEGUN;
            }
        }
        if error == 0 {
            if special & special::NEW_COMM != 0 && special & special::BEGINS == 0 {
                let place = args.word(layout.new_comm);
                match args.comm(thread) {
                    Some(parent) => {
                        comms::made(thread, layout.call, parent, self.signature.tag, place);
                    }
                    None => comms::joined(thread, place),
                }
            }
            if special & special::NEW_WINDOW != 0
                && let Some(parent) = args.comm(thread)
            {
                comms::window_made(thread, parent, args.word(layout.new_window));
            }
        }
        entry.signature = self.signature;
        match core::mem::replace(&mut self.looked, Look::None) {
            Look::None => write(thread, &entry, &self.before),
            Look::One(looked) => {
                let mut item = [NOTHING];
                let count = conclude_requests(thread, args, &[looked], &mut item, &entry);
                entry.requests = item.get(..count).unwrap_or(&[]);
                thread.event(&entry);
            }
            Look::Many(count) => {
                let mut looked = core::mem::take(&mut thread.looked);
                let mut items = core::mem::take(&mut thread.items);
                let found = items.room(count);
                let count = conclude_requests(thread, args, looked.room(count), found, &entry);
                entry.requests = found.get(..count).unwrap_or(&[]);
                thread.event(&entry);
                thread.looked = looked;
                thread.items = items;
            }
        }
    }

    /// Requests that other threads have completed since they were looked up: those that have their handles now.
    fn look_again(&mut self, thread: &mut Thread) {
        let one = core::slice::from_mut;
        let looked = match &mut self.looked {
            Look::None => return,
            Look::One(looked) => one(looked),
            Look::Many(count) => thread.looked.room(*count),
        };
        REQUESTS.with(|requests| {
            let claim = requests.claim();
            for Looked { found } in looked {
                if let Some((position, open)) = *found
                    && requests.flags(position, open.id).is_none()
                {
                    let active = |(_, open): &(_, Open)| open.flags & flag::ACTIVE != 0;
                    *found = requests.find(open.handle, open.place, claim).filter(active);
                }
            }
        });
    }

    /// What is needed to make a test again that has been made and written, behind so many others; `None` if it has
    /// not failed.
    fn to_repeat(
        self,
        thread: &mut Thread,
        function: usize,
        args: &Arguments,
        (status, written): (usize, usize),
        result: usize,
    ) -> Option<Failed> {
        let layout = args.layout;
        let at = if layout.flag != crate::layout::NONE { layout.flag } else { layout.out_count };
        if result as i32 != 0 || args.int_at(at, 0) != 0 {
            return None;
        }
        let mut passed = [0; ARGUMENTS];
        passed.get_mut(..args.words.len())?.copy_from_slice(args.words);
        let mut given = passed;
        let statuses = thread.statuses.address();
        let lasting = thread.polling.status(written);
        for (at, ours, lasting) in
            [(layout.status, status, lasting), (layout.statuses, statuses, statuses)]
        {
            let at = usize::from(at);
            if let (Some(given), Some(passed)) = (given.get_mut(at), passed.get_mut(at))
                && *passed == ours
            {
                (*given, *passed) = (thread.library.status_ignore, lasting);
            }
        }
        let one = layout.one_request != crate::layout::NONE;
        let (array, count) = if layout.requests != crate::layout::NONE {
            (args.word(layout.requests), args.int(layout.request_count).max(0) as usize)
        } else {
            (args.word(layout.one_request), usize::from(one))
        };
        let flag = args.word(at);
        let lists = layout.requests != crate::layout::NONE || one;
        let requests = lists.then_some(count);
        let failed = Failed {
            function,
            real: real(function),
            mark: polling::mark(function, requests, thread.library.handle_size()),
            given,
            passed,
            flag,
            array,
            count,
            state: Some(self),
        };
        (count <= MAX_REQUESTS).then_some(failed)
    }

    /// What a blocking receive or a probe got.
    #[inline]
    fn received(&mut self, library: &Library, args: &Arguments, entry: &mut Entry) {
        let layout = args.layout;
        let address = args.word(layout.status);
        if layout.status == crate::layout::NONE || address == library.status_ignore {
            return;
        }
        // SAFETY: the call has succeeded and has filled in the status.
        let (source, tag, bytes) = unsafe { library.status(address) };
        let exchange = self.signature.present & present::SOURCE != 0;
        let (peer, label, posted) = if exchange {
            (self.signature.source, self.signature.source_tag, entry.received)
        } else if self.signature.present & present::BYTES != 0 {
            (self.signature.peer, self.signature.tag, entry.bytes)
        } else {
            // A probe asks for any size.
            (self.signature.peer, self.signature.tag, u64::MAX)
        };
        entry.actual = Actual {
            source: (source != peer).then_some(source),
            tag: (tag != label).then_some(tag),
            bytes: (bytes != posted).then_some(bytes),
        };
        if layout.new_message != crate::layout::NONE && source >= 0 {
            // SAFETY: the probe has found a message and stored its handle.
            let handle = unsafe { library.handle_at(args.word(layout.new_message)) };
            comms::message_found(handle, Message { comm: self.signature.object, source, tag });
        }
    }

    /// Numbers the request that a call has made.
    #[inline]
    fn begin_request(&mut self, thread: &mut Thread, args: &Arguments) -> u64 {
        let layout = args.layout;
        let library = thread.library;
        let place = args.word(layout.request);
        // SAFETY: the call has succeeded and has stored the request there.
        let handle = unsafe { library.handle_at(place) };
        let signature = &self.signature;
        let exchange = signature.present & present::SOURCE != 0;
        let duplicates = layout.new_comm != crate::layout::NONE;
        let mut flags = 0;
        // MPICH 4.0 leaves the status of an older request in that of MPI_Isendrecv.
        flags |= if layout.receives && !exchange { flag::RECEIVE } else { 0 };
        flags |= if layout.persistent { flag::PERSISTENT } else { flag::ACTIVE };
        flags |= if duplicates { flag::DUPLICATE } else { 0 };
        let open = Open {
            handle,
            place,
            id: 0,
            bytes: if exchange { self.before.received } else { self.before.bytes },
            peer: if exchange { signature.source } else { signature.peer },
            tag: if exchange { signature.source_tag } else { signature.tag },
            flags,
        };
        let unique = library.request_shared != 0 && handle != library.request_shared;
        let id = REQUESTS.with(|requests| requests.add(open, unique));
        match id {
            Some(id) => {
                if duplicates && let Some(parent) = args.comm(thread) {
                    comms::duplicate(library, parent, args.word(layout.new_comm), id);
                }
                id
            }
            None => {
                output::count(at::LOST_TABLE, 1);
                self.signature.shape &= !mpi_abi::shape::BEGUN;
                0
            }
        }
    }
}

const NOTHING: RequestItem =
    RequestItem { id: 0, outcome: Outcome::Completed, actual: Actual::AS_POSTED };

/// Looks up the requests that a call is given, since it will overwrite their handles. Also says whether the
/// statuses will be needed.
#[inline]
fn look(thread: &mut Thread, args: &Arguments) -> (Look, bool) {
    let layout = args.layout;
    let library = thread.library;
    let starts = matches!(layout.call, Call::Start | Call::Startall);
    let any = matches!(layout.call, Call::Request_free | Call::Cancel);
    let mut wants_status = false;
    let mut find = |handle: usize, place: usize, claim: u32| {
        if handle == library.request_null {
            return Looked { found: None };
        }
        let found = REQUESTS.with(|requests| requests.find(handle, place, claim));
        // An inactive request completes at once and means nothing.
        let found = found.filter(|(_, open)| any || (open.flags & flag::ACTIVE == 0) == starts);
        if let Some((_, open)) = &found {
            wants_status |= open.flags & (flag::RECEIVE | flag::CANCEL) != 0;
        }
        Looked { found }
    };
    if layout.requests != crate::layout::NONE {
        let count = args.int(layout.request_count).max(0) as usize;
        let array = args.word(layout.requests);
        let claim = REQUESTS.with(|requests| requests.claim());
        let mut looked: Scratch<Looked> = core::mem::take(&mut thread.looked);
        let room = looked.room(count);
        let count = room.len();
        for (index, place) in room.iter_mut().enumerate() {
            let address = array.wrapping_add(index * library.handle_size());
            // SAFETY: MPI reads `count` requests there.
            *place = find(unsafe { library.handle_at(address) }, address, claim);
        }
        thread.looked = looked;
        (Look::Many(count), wants_status)
    } else if layout.one_request != crate::layout::NONE {
        let address = args.word(layout.one_request);
        // SAFETY: MPI reads a request there.
        let looked = find(unsafe { library.handle_at(address) }, address, 0);
        (Look::One(looked), wants_status)
    } else {
        let looked = find(library.handle(args.word(layout.request_value)), 0, 0);
        (Look::One(looked), wants_status)
    }
}

/// What became of the requests of a call: fills `items` and returns their number.
#[inline]
fn conclude_requests(
    thread: &mut Thread,
    args: &Arguments,
    looked: &[Looked],
    items: &mut [RequestItem],
    entry: &Entry,
) -> usize {
    let library = thread.library;
    let failure = if entry.error == 0 { Failure::Other } else { library.failure(entry.error) };
    let mut filled = 0;
    for (index, looked) in looked.iter().enumerate() {
        let Some((position, open)) = looked.found else { continue };
        let (mut outcome, status, truncated) = outcome(library, args, index, entry, failure);
        let mut actual = Actual::AS_POSTED;
        if matches!(outcome, Outcome::Completed | Outcome::Ready)
            && let Some(address) = status
        {
            if open.flags & flag::CANCEL != 0 {
                let mut cancelled = 0i32;
                // SAFETY: a status of a completed request, and a place for the result.
                unsafe { library.Test_cancelled(address, &raw mut cancelled as usize) };
                if cancelled != 0 && outcome == Outcome::Completed {
                    outcome = Outcome::Cancelled;
                }
            }
            if open.flags & flag::RECEIVE != 0 && outcome != Outcome::Cancelled {
                // SAFETY: the status of a completed receive.
                let (source, tag, bytes) = unsafe { library.status(address) };
                actual = Actual {
                    source: (source != open.peer).then_some(source),
                    tag: (tag != open.tag).then_some(tag),
                    bytes: (bytes != open.bytes && !truncated).then_some(bytes),
                };
            }
        }
        REQUESTS.with(|requests| match outcome {
            Outcome::Completed | Outcome::Cancelled if open.flags & flag::PERSISTENT != 0 => {
                if let Some(flags) = requests.flags(position, open.id) {
                    *flags &= !(flag::ACTIVE | flag::CANCEL);
                }
            }
            Outcome::Completed | Outcome::Cancelled | Outcome::Freed => {
                requests.remove(position, open.id);
            }
            Outcome::CancelAsked | Outcome::Started => {
                if let Some(flags) = requests.flags(position, open.id) {
                    *flags |= if outcome == Outcome::Started { flag::ACTIVE } else { flag::CANCEL };
                }
            }
            Outcome::Pending | Outcome::Ready => {}
        });
        if open.flags & flag::DUPLICATE != 0 && outcome == Outcome::Completed {
            comms::duplicated(thread, open.id);
        }
        if let Some(item) = items.get_mut(filled) {
            *item = RequestItem { id: open.id, outcome, actual };
            filled += 1;
        }
    }
    filled
}

/// What a call did to the request at a position of its list, the address of its status, and whether its message
/// did not fit.
#[inline]
fn outcome(
    library: &Library,
    args: &Arguments,
    index: usize,
    entry: &Entry,
    failure: Failure,
) -> (Outcome, Option<usize>, bool) {
    let layout = args.layout;
    if entry.error != 0 {
        return failed(library, args, index, failure);
    }
    let one = || one_status(library, args);
    let many = |index: usize| status_at(library, args, index);
    let (outcome, status) = match layout.call {
        Call::Cancel => (Outcome::CancelAsked, None),
        Call::Request_free => (Outcome::Freed, None),
        Call::Start | Call::Startall => (Outcome::Started, None),
        Call::Request_get_status if entry.found => (Outcome::Ready, one()),
        Call::Request_get_status => (Outcome::Pending, None),
        Call::Wait => (Outcome::Completed, one()),
        Call::Waitall => (Outcome::Completed, many(index)),
        Call::Test if entry.found => (Outcome::Completed, one()),
        Call::Testall if entry.found => (Outcome::Completed, many(index)),
        Call::Waitany | Call::Testany if entry.found => {
            if args.int_at(layout.index, 0) == index as i32 {
                (Outcome::Completed, one())
            } else {
                (Outcome::Pending, None)
            }
        }
        Call::Waitsome | Call::Testsome => match position_of(args, index) {
            Some(at) => (Outcome::Completed, many(at)),
            None => (Outcome::Pending, None),
        },
        _ => (Outcome::Pending, None),
    };
    (outcome, status, false)
}

fn one_status(library: &Library, args: &Arguments) -> Option<usize> {
    Some(args.word(args.layout.status)).filter(|address| *address != library.status_ignore)
}

fn status_at(library: &Library, args: &Arguments, index: usize) -> Option<usize> {
    Some(args.word(args.layout.statuses))
        .filter(|address| *address != library.status_ignore)
        .map(|address| address + index * library.status_size)
}

/// Where a request is among those that `MPI_Waitsome` or `MPI_Testsome` has completed.
#[inline]
fn position_of(args: &Arguments, index: usize) -> Option<usize> {
    let count = args.int_at(args.layout.out_count, 0);
    let count = if count == UNDEFINED { 0 } else { count.max(0) as usize };
    (0..count).find(|at| args.int_at(args.layout.indices, *at) == index as i32)
}

/// The same for a call that has returned an error. Requests may have completed nevertheless; those that failed
/// are gone or will never complete (Open MPI leaves their handles), and what they have received is gone too.
#[cold]
#[inline(never)]
fn failed(
    library: &Library,
    args: &Arguments,
    index: usize,
    failure: Failure,
) -> (Outcome, Option<usize>, bool) {
    let layout = args.layout;
    let array = match layout.call {
        Call::Wait | Call::Test => layout.one_request,
        Call::Waitall | Call::Waitany | Call::Waitsome => layout.requests,
        Call::Testall | Call::Testany | Call::Testsome => layout.requests,
        _ => return (Outcome::Pending, None, false),
    };
    if failure == Failure::InStatus {
        let status = match layout.call {
            Call::Waitall | Call::Testall => status_at(library, args, index),
            Call::Waitsome | Call::Testsome => match position_of(args, index) {
                Some(at) => status_at(library, args, at),
                None => return (Outcome::Pending, None, false),
            },
            _ => None,
        };
        if let Some(status) = status {
            // SAFETY: the call has filled in the statuses of all requests, or of all that it lists.
            let error = unsafe { library.status_error(status) };
            if error == 0 {
                return (Outcome::Completed, Some(status), false);
            }
            if library.is_pending(error) {
                return (Outcome::Pending, None, false);
            }
            if library.failure(error) == Failure::Truncated {
                return (Outcome::Completed, Some(status), true);
            }
        }
    }
    let failing = match layout.call {
        Call::Wait | Call::Test => true,
        Call::Waitany | Call::Testany => args.int_at(layout.index, 0) == index as i32,
        _ => false,
    };
    if failure == Failure::Truncated && failing {
        return (Outcome::Completed, one_status(library, args), true);
    }
    // Otherwise a request is gone if its handle is; its status is not looked at.
    let address = args.word(array).wrapping_add(index * library.handle_size());
    // SAFETY: the program's requests are still there.
    match unsafe { library.handle_at(address) } == library.request_null {
        true => (Outcome::Completed, None, false),
        false => (Outcome::Pending, None, false),
    }
}

/// Measures what a recorded and a passed call cost, in thousandths of a nanosecond: sends to nobody whose
/// real function does nothing, written into memory.
pub fn measure_cost(thread: &mut Thread) -> (u32, u32) {
    extern "C" fn nothing() -> usize {
        0
    }
    const CALLS: u32 = 2000;
    let library = thread.library;
    let real = nothing as *const () as usize;
    let args = [0, 1, library.byte, 1, 0, library.comm_self];
    let function = usize::from(Call::Send.number()) * 2;
    let mut costs = (0, 0);
    let time = |work: &mut dyn FnMut()| {
        let mut best = u64::MAX;
        for _ in 0..3 {
            let begin = crate::sys::monotonic_ns();
            for _ in 0..CALLS {
                work();
            }
            best = best.min(crate::sys::monotonic_ns().wrapping_sub(begin));
        }
        (best * 1000 / u64::from(CALLS)) as u32
    };
    // SAFETY: the function takes no arguments and ignores those that it gets.
    unsafe {
        let args = core::hint::black_box(args);
        let bare = time(&mut || {
            core::hint::black_box(args.invoke(core::hint::black_box(real)));
        });
        thread.rehearse(|thread| {
            thread.enter(sys::stack_pointer());
            let recorded = time(&mut || {
                core::hint::black_box(recorded(
                    thread,
                    function,
                    core::hint::black_box(real),
                    args,
                ));
            });
            costs.0 = recorded.saturating_sub(bare);
            thread.leave();
        });
        // Looking for the state and finding a call going on is what a call that is not recorded costs.
        let frame = 0u8;
        let high = (&raw const frame as usize).wrapping_add(1 << 16);
        thread.enter(high);
        let passed = time(&mut || {
            let entered = thread::enter(&raw const frame as usize);
            if entered.is_none() {
                core::hint::black_box(args.invoke(core::hint::black_box(real)));
            }
        });
        thread.leave();
        costs.1 = passed.saturating_sub(bare);
    }
    costs
}
