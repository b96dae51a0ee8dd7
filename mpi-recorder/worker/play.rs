//! Re-enacts the part of a rank: the instructions of a script ([`mpi_abi::script`]), with real calls of MPI and
//! waiting in place of computing.
//!
//! The calls are made by the names `MPI_...`, so that a collector that is preloaded too records them. What is
//! prepared before (communicators, buffers) is done by the names `PMPI_...` and not recorded.

use crate::clock::ticks;
use crate::mpi::{Library, UNDEFINED};
use crate::sys;
use core::ffi::{CStr, c_char, c_int, c_long};
use mpi_abi::script::{
    ANY, APART, Act, FIRST_GROUP, HEAD_WORDS, Head, Instruction, NO_REQUEST, WORDS,
};

/// A wait that sleeps ends this much earlier with spinning: the timer and the scheduler need time.
const SPIN_NS: u64 = 150_000;

#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

unsafe extern "C" {
    fn nanosleep(time: *const Timespec, rest: *mut Timespec) -> c_int;
}

macro_rules! calls {
    ($($name:ident($($argument:ident),*);)*) => {
        /// The functions of the process by their names `MPI_...`.
        #[allow(non_snake_case)]
        struct Calls { $($name: usize,)* }

        #[allow(non_snake_case)]
        impl Calls {
            fn find() -> Option<Calls> {
                Some(Calls { $($name: address(concat!("MPI_", stringify!($name), "\0"))?,)* })
            }

            $(
                #[allow(clippy::too_many_arguments)]
                #[inline(always)]
                unsafe fn $name(&self, $($argument: usize),*) {
                    // SAFETY: the address is that of the C function; each argument takes a word. An error ends
                    // the process, which is MPI's default.
                    unsafe {
                        type Function = unsafe extern "C" fn($(calls!(@word $argument)),*) -> i32;
                        let function = core::mem::transmute::<usize, Function>(self.$name);
                        function($($argument),*);
                    }
                }
            )*
        }
    };
    (@word $argument:ident) => { usize };
}

calls! {
    Send(buffer, count, datatype, to, label, comm);
    Ssend(buffer, count, datatype, to, label, comm);
    Recv(buffer, count, datatype, from, label, comm, status);
    Isend(buffer, count, datatype, to, label, comm, request);
    Issend(buffer, count, datatype, to, label, comm, request);
    Irecv(buffer, count, datatype, from, label, comm, request);
    Sendrecv(out, outs, out_type, to, out_label, buffer, count, datatype, from, label, comm, status);
    Request_free(request);
    Wait(request, status);
    Waitall(count, requests, statuses);
    Waitany(count, requests, index, status);
    Waitsome(count, requests, out, indices, statuses);
    Test(request, flag, status);
    Testany(count, requests, index, flag, status);
    Testsome(count, requests, out, indices, statuses);
    Testall(count, requests, flag, statuses);
    Comm_dup(comm, new);
    Barrier(comm);
    Ibarrier(comm, request);
    Bcast(buffer, count, datatype, root, comm);
    Ibcast(buffer, count, datatype, root, comm, request);
    Gather(out, outs, out_type, buffer, count, datatype, root, comm);
    Igather(out, outs, out_type, buffer, count, datatype, root, comm, request);
    Scatter(out, outs, out_type, buffer, count, datatype, root, comm);
    Iscatter(out, outs, out_type, buffer, count, datatype, root, comm, request);
    Allgather(out, outs, out_type, buffer, count, datatype, comm);
    Iallgather(out, outs, out_type, buffer, count, datatype, comm, request);
    Alltoall(out, outs, out_type, buffer, count, datatype, comm);
    Ialltoall(out, outs, out_type, buffer, count, datatype, comm, request);
    Reduce(out, buffer, count, datatype, op, root, comm);
    Ireduce(out, buffer, count, datatype, op, root, comm, request);
    Allreduce(out, buffer, count, datatype, op, comm);
    Iallreduce(out, buffer, count, datatype, op, comm, request);
    Reduce_scatter_block(out, buffer, count, datatype, op, comm);
    Ireduce_scatter_block(out, buffer, count, datatype, op, comm, request);
    Scan(out, buffer, count, datatype, op, comm);
    Iscan(out, buffer, count, datatype, op, comm, request);
    Exscan(out, buffer, count, datatype, op, comm);
    Iexscan(out, buffer, count, datatype, op, comm, request);
    Gatherv(out, outs, out_type, buffer, counts, places, datatype, root, comm);
    Igatherv(out, outs, out_type, buffer, counts, places, datatype, root, comm, request);
    Scatterv(out, counts, places, out_type, buffer, count, datatype, root, comm);
    Iscatterv(out, counts, places, out_type, buffer, count, datatype, root, comm, request);
    Alltoallv(out, outs, out_places, out_type, buffer, counts, places, datatype, comm);
    Ialltoallv(out, outs, out_places, out_type, buffer, counts, places, datatype, comm, request);
    Finalize();
}

/// Address of a function; the name ends with NUL.
fn address(name: &str) -> Option<usize> {
    // SAFETY: the name ends with NUL.
    let found = unsafe { sys::dlsym(sys::RTLD_DEFAULT, name.as_ptr().cast()) };
    (!found.is_null()).then_some(found as usize)
}

/// What the collector offers, if it is there.
struct Recorder {
    adopt: Option<unsafe extern "C" fn(*const usize, usize)>,
    begin: Option<unsafe extern "C" fn(*const c_char)>,
    end: Option<unsafe extern "C" fn()>,
}

impl Recorder {
    fn find() -> Recorder {
        // SAFETY: the collector's functions have these types.
        unsafe {
            Recorder {
                adopt: address("detour_mpi_adopt\0").map(|at| core::mem::transmute(at)),
                begin: address("detour_region_begin\0").map(|at| core::mem::transmute(at)),
                end: address("detour_region_end\0").map(|at| core::mem::transmute(at)),
            }
        }
    }
}

/// A slice of a mapping that is never unmapped: a worker plays one script.
fn area<T>(count: usize) -> Option<&'static mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    let memory = sys::map_memory(count.checked_mul(size_of::<T>())?);
    if memory.is_null() {
        sys::complain(b"detour: out of memory in the MPI worker\n");
        return None;
    }
    // SAFETY: fresh zeroed memory of that size, aligned to a page; used for numbers and bytes only.
    Some(unsafe { core::slice::from_raw_parts_mut(memory.cast(), count) })
}

struct Player<'a> {
    library: &'a Library,
    calls: Calls,
    recorder: Recorder,
    head: Head,
    instructions: &'a [[u64; WORDS]],
    lists: &'a [u32],
    names: &'a [u8],
    communicators: &'a [usize],
    requests: &'a mut [usize],
    /// Handles and indices of a call with many requests.
    handles: &'a mut [u64],
    indices: &'a mut [i32],
    chosen: &'a mut [u32],
    buffers: usize,
}

/// Plays a script; what has been measured: ticks at the beginning and at the end, and calls made.
pub fn play(library: &Library, words: &[u64]) -> Option<[u64; 3]> {
    let head = Head::from_words(*words.first_chunk::<HEAD_WORDS>()?);
    if head.total()? != words.len() as u64 {
        return None;
    }
    let (instructions, rest) =
        words.get(HEAD_WORDS..)?.split_at_checked(head.instructions as usize * WORDS)?;
    let (lists, names) = rest.split_at_checked(head.lists.div_ceil(2) as usize)?;
    // SAFETY: numbers without padding in one slice, read with a smaller or equal alignment.
    let (instructions, lists, names) = unsafe {
        (
            core::slice::from_raw_parts(
                instructions.as_ptr().cast::<[u64; WORDS]>(),
                head.instructions as usize,
            ),
            core::slice::from_raw_parts(lists.as_ptr().cast::<u32>(), head.lists as usize),
            core::slice::from_raw_parts(names.as_ptr().cast::<u8>(), head.names as usize),
        )
    };
    let buffers = area::<u8>((head.buffers as usize).max(1))?;
    // Pages that were never written are one page of zeros.
    buffers.fill(0x5a);
    let requests = area::<usize>(head.requests as usize)?;
    requests.fill(library.request_null);
    let most = head.requests as usize;
    let player = Player {
        library,
        calls: Calls::find()?,
        recorder: Recorder::find(),
        head,
        instructions,
        lists,
        names,
        communicators: communicators(library, &head, lists)?,
        requests,
        handles: area(most)?,
        indices: area(most)?,
        chosen: area(most)?,
        buffers: buffers.as_mut_ptr() as usize,
    };
    player.play()
}

/// `MPI_COMM_WORLD`, its duplicate, and a communicator for each list of members; 0 where this rank is not one.
fn communicators(library: &Library, head: &Head, lists: &[u32]) -> Option<&'static mut [usize]> {
    let all = area::<usize>(usize::from(FIRST_GROUP) + head.groups as usize)?;
    let (mut world, mut size) = (0usize, 0i32);
    // SAFETY: MPI is initialised; places for the results. All ranks make the same communicators in the same order.
    unsafe {
        let apart = all.get_mut(usize::from(APART))?;
        library.Comm_dup(library.comm_world, apart as *mut usize as usize);
        *apart = library.handle(*apart);
        *all.first_mut()? = library.comm_world;
        library.Comm_group(library.comm_world, &raw mut world as usize);
        library.Comm_size(library.comm_world, &raw mut size as usize);
        let world = library.handle(world);
        let mut at = 0usize;
        for place in all.get_mut(usize::from(FIRST_GROUP)..)? {
            let count = *lists.get(at)? as usize;
            let members = lists.get(at + 1..at.checked_add(1 + count)?)?;
            at += 1 + count;
            let (mut group, mut new) = (0usize, 0usize);
            library.Group_incl(world, count, members.as_ptr() as usize, &raw mut group as usize);
            library.Comm_create(library.comm_world, library.handle(group), &raw mut new as usize);
            library.Group_free(&raw mut group as usize);
            let new = library.handle(new);
            *place = if new == library.comm_null { 0 } else { new };
        }
    }
    Some(all)
}

impl Player<'_> {
    fn play(mut self) -> Option<[u64; 3]> {
        // SAFETY: as the collector defines them; collective over all ranks.
        unsafe {
            if let Some(adopt) = self.recorder.adopt {
                adopt(self.communicators.as_ptr(), self.communicators.len());
            }
            self.library.Barrier(self.library.comm_world);
        }
        let begin = ticks();
        let mut last = begin;
        let mut made = 0u64;
        let mut at = 0;
        while let Some(words) = self.instructions.get(at) {
            let instruction = Instruction::from_words(*words)?;
            at += 1;
            if instruction.act == Act::Compute {
                last = self.compute(last, instruction.bytes);
                continue;
            }
            let next = self.instructions.get(at).copied();
            at += usize::from(instruction.act == Act::Sendrecv);
            if self.act(&instruction, next)? {
                last = ticks();
                made += 1;
            }
        }
        // SAFETY: nothing is under way, or MPI waits for it.
        unsafe { self.calls.Finalize() };
        Some([begin, last, made])
    }

    /// Waits until so many ns after a moment; returns when that is.
    #[inline]
    fn compute(&self, after: u64, ns: u64) -> u64 {
        let ticks_of = |ns: u64| ((u128::from(ns) * u128::from(self.head.ticks)) >> 32) as u64;
        let end = after.wrapping_add(ticks_of(ns));
        if self.head.sleep > 0 && ns > self.head.sleep {
            let left = end.wrapping_sub(ticks()) as i64;
            let left_ns =
                (u128::from(left.max(0) as u64) << 32) / u128::from(self.head.ticks.max(1));
            let sleep = (left_ns as u64).saturating_sub(SPIN_NS);
            let time = Timespec {
                seconds: (sleep / 1_000_000_000) as c_long,
                nanoseconds: (sleep % 1_000_000_000) as c_long,
            };
            // SAFETY: a valid time; the rest is not asked for, because the loop below waits for it.
            unsafe { nanosleep(&time, core::ptr::null_mut()) };
        }
        while (ticks().wrapping_sub(end) as i64) < 0 {
            core::hint::spin_loop();
        }
        end
    }

    fn list(&self, instruction: &Instruction) -> Option<&'_ [u32]> {
        let begin = instruction.place as usize;
        self.lists.get(begin..begin.checked_add(instruction.bytes as usize)?)
    }

    /// Whether a call was made; None if the script is wrong.
    fn act(&mut self, instruction: &Instruction, next: Option<[u64; WORDS]>) -> Option<bool> {
        let Instruction { act, comm, peer, tag, request, bytes, place } = *instruction;
        let library = self.library;
        let handle = self.communicators.get(usize::from(comm)).copied()?;
        let (out, byte, ignore) = (self.buffers, library.byte, library.status_ignore);
        let count = bytes as usize;
        let (source, label) = (
            if peer == ANY { library.any_source as usize } else { peer as usize },
            if tag == ANY { library.any_tag as usize } else { tag as usize },
        );
        let to = peer as usize;
        let into = self.buffers.wrapping_add(place as usize);
        let slot = match request {
            NO_REQUEST => 0,
            request => self.requests.get_mut(request as usize)? as *mut usize as usize,
        };
        let calls = &self.calls;
        // SAFETY: buffers are as long as the script's head says, which the command has computed from the same
        // instructions; requests and communicators are those of the tables.
        unsafe {
            match act {
                Act::Compute => return Some(false),
                Act::Send => calls.Send(out, count, byte, to, label, handle),
                Act::Ssend => calls.Ssend(out, count, byte, to, label, handle),
                Act::Recv => calls.Recv(into, count, byte, source, label, handle, ignore),
                Act::Isend => calls.Isend(out, count, byte, to, label, handle, slot),
                Act::Issend => calls.Issend(out, count, byte, to, label, handle, slot),
                Act::Irecv => calls.Irecv(into, count, byte, source, label, handle, slot),
                Act::Detached => {
                    let mut request = 0usize;
                    calls.Isend(out, count, byte, to, label, handle, &raw mut request as usize);
                    calls.Request_free(&raw mut request as usize);
                }
                Act::Abandoned => {
                    let mut request = 0usize;
                    let request = &raw mut request as usize;
                    calls.Irecv(into, count, byte, source, label, handle, request);
                    calls.Request_free(request);
                }
                Act::Sendrecv => {
                    let other = Instruction::from_words(next?)?;
                    let from = if other.peer == ANY { library.any_source } else { other.peer };
                    let other_label = if other.tag == ANY { library.any_tag } else { other.tag };
                    calls.Sendrecv(
                        out,
                        count,
                        byte,
                        to,
                        label,
                        self.buffers.wrapping_add(other.place as usize),
                        other.bytes as usize,
                        byte,
                        from as usize,
                        other_label as usize,
                        handle,
                        ignore,
                    );
                }
                Act::Wait => {
                    if self.is_null(request) {
                        return Some(false);
                    }
                    calls.Wait(slot, ignore);
                }
                Act::Test => {
                    if self.is_null(request) {
                        return Some(false);
                    }
                    let mut flag = 0i32;
                    calls.Test(slot, &raw mut flag as usize, ignore);
                }
                Act::Waitall | Act::Testany | Act::Testsome | Act::Testall => {
                    return self.many(act, instruction);
                }
                Act::Waitany | Act::Waitsome => return self.choose(act, instruction),
                Act::Begin => {
                    let name =
                        CStr::from_bytes_until_nul(self.names.get(place as usize..)?).ok()?;
                    if let Some(begin) = self.recorder.begin {
                        begin(name.as_ptr());
                    }
                    return Some(false);
                }
                Act::End => {
                    if let Some(end) = self.recorder.end {
                        end();
                    }
                    return Some(false);
                }
                Act::Dup => {
                    let mut new = 0usize;
                    calls.Comm_dup(handle, &raw mut new as usize);
                    // Nobody uses it, and a library has room for some thousands only.
                    library.Comm_free(&raw mut new as usize);
                }
                _ if handle == 0 => return None,
                _ => self.collective(instruction, handle, out, into, slot)?,
            }
        }
        Some(true)
    }

    unsafe fn collective(
        &self,
        instruction: &Instruction,
        comm: usize,
        out: usize,
        into: usize,
        slot: usize,
    ) -> Option<()> {
        let (calls, byte, op) = (&self.calls, self.library.byte, self.library.bit_or());
        let (count, root) = (instruction.bytes as usize, instruction.peer as usize);
        let starts = slot != 0;
        // Two halves of a list of counts and displacements, after the place of the buffer.
        let list = |half: usize, size: usize| {
            let begin = instruction.place as usize + 2 + half * size;
            self.lists.get(begin..begin + size).map(|list| list.as_ptr() as usize)
        };
        let buffer = || {
            let place = self.lists.get(instruction.place as usize..)?.first_chunk::<2>()?;
            Some(self.buffers + (u64::from(place[0]) | u64::from(place[1]) << 32) as usize)
        };
        let size = instruction.tag as usize;
        // SAFETY: as in `act`.
        unsafe {
            match (instruction.act, starts) {
                (Act::Barrier, false) => calls.Barrier(comm),
                (Act::Barrier, true) => calls.Ibarrier(comm, slot),
                (Act::Bcast, false) => calls.Bcast(into, count, byte, root, comm),
                (Act::Bcast, true) => calls.Ibcast(into, count, byte, root, comm, slot),
                (Act::Gather, false) => {
                    calls.Gather(out, count, byte, into, count, byte, root, comm)
                }
                (Act::Gather, true) => {
                    calls.Igather(out, count, byte, into, count, byte, root, comm, slot);
                }
                (Act::Scatter, false) => {
                    calls.Scatter(out, count, byte, into, count, byte, root, comm)
                }
                (Act::Scatter, true) => {
                    calls.Iscatter(out, count, byte, into, count, byte, root, comm, slot);
                }
                (Act::Allgather, false) => {
                    calls.Allgather(out, count, byte, into, count, byte, comm)
                }
                (Act::Allgather, true) => {
                    calls.Iallgather(out, count, byte, into, count, byte, comm, slot);
                }
                (Act::Alltoall, false) => calls.Alltoall(out, count, byte, into, count, byte, comm),
                (Act::Alltoall, true) => {
                    calls.Ialltoall(out, count, byte, into, count, byte, comm, slot);
                }
                (Act::Reduce, false) => calls.Reduce(out, into, count, byte, op, root, comm),
                (Act::Reduce, true) => calls.Ireduce(out, into, count, byte, op, root, comm, slot),
                (Act::Allreduce, false) => calls.Allreduce(out, into, count, byte, op, comm),
                (Act::Allreduce, true) => calls.Iallreduce(out, into, count, byte, op, comm, slot),
                (Act::ReduceScatterBlock, false) => {
                    calls.Reduce_scatter_block(out, into, count, byte, op, comm);
                }
                (Act::ReduceScatterBlock, true) => {
                    calls.Ireduce_scatter_block(out, into, count, byte, op, comm, slot);
                }
                (Act::Scan, false) => calls.Scan(out, into, count, byte, op, comm),
                (Act::Scan, true) => calls.Iscan(out, into, count, byte, op, comm, slot),
                (Act::Exscan, false) => calls.Exscan(out, into, count, byte, op, comm),
                (Act::Exscan, true) => calls.Iexscan(out, into, count, byte, op, comm, slot),
                (Act::Gatherv, starts) => {
                    let (into, counts, places) = (buffer()?, list(0, size)?, list(1, size)?);
                    if starts {
                        calls.Igatherv(
                            out, count, byte, into, counts, places, byte, root, comm, slot,
                        );
                    } else {
                        calls.Gatherv(out, count, byte, into, counts, places, byte, root, comm);
                    }
                }
                (Act::Scatterv, starts) => {
                    let (into, counts, places) = (buffer()?, list(0, size)?, list(1, size)?);
                    if starts {
                        calls.Iscatterv(
                            out, counts, places, byte, into, count, byte, root, comm, slot,
                        );
                    } else {
                        calls.Scatterv(out, counts, places, byte, into, count, byte, root, comm);
                    }
                }
                (Act::Alltoallv, starts) => {
                    let into = buffer()?;
                    let (outs, out_places) = (list(0, size)?, list(1, size)?);
                    let (counts, places) = (list(2, size)?, list(3, size)?);
                    if starts {
                        calls.Ialltoallv(
                            out, outs, out_places, byte, into, counts, places, byte, comm, slot,
                        );
                    } else {
                        calls.Alltoallv(
                            out, outs, out_places, byte, into, counts, places, byte, comm,
                        );
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn is_null(&self, request: u32) -> bool {
        let word = self.requests.get(request as usize).copied();
        word.is_none_or(|word| self.library.handle(word) == self.library.request_null)
    }

    /// Collects the requests of a list that are not complete: their handles side by side, as MPI wants them.
    fn gather(&mut self, instruction: &Instruction) -> Option<usize> {
        let begin = instruction.place as usize;
        let mut count = 0;
        for at in begin..begin.checked_add(instruction.bytes as usize)? {
            let request = *self.lists.get(at)?;
            if self.is_null(request) {
                continue;
            }
            let word = *self.requests.get(request as usize)?;
            *self.chosen.get_mut(count)? = request;
            self.put(count, word);
            count += 1;
        }
        Some(count)
    }

    fn put(&mut self, at: usize, word: usize) {
        let array = self.handles.as_mut_ptr();
        if at < self.handles.len() {
            // SAFETY: the array has 8 bytes for each request, handles take 4 or 8.
            unsafe {
                match self.library.short_handles {
                    true => array.cast::<u32>().add(at).write(word as u32),
                    false => array.cast::<usize>().add(at).write(word),
                }
            }
        }
    }

    /// Stores the handles back after a call, which has changed those that are complete.
    fn scatter(&mut self, count: usize) {
        let size = self.library.handle_size();
        for at in 0..count {
            // SAFETY: one of the handles that were written.
            let word =
                unsafe { self.library.handle_at(self.handles.as_ptr() as usize + at * size) };
            let request = self.chosen.get(at).map_or(usize::MAX, |request| *request as usize);
            if let Some(place) = self.requests.get_mut(request) {
                *place = word;
            }
        }
    }

    /// Calls with many requests whose outcome changes nothing else.
    fn many(&mut self, act: Act, instruction: &Instruction) -> Option<bool> {
        let count = self.gather(instruction)?;
        if count == 0 {
            return Some(false);
        }
        let (handles, ignore) = (self.handles.as_ptr() as usize, self.library.status_ignore);
        let (mut index, mut flag) = (0i32, 0i32);
        let (index, flag) = (&raw mut index as usize, &raw mut flag as usize);
        // SAFETY: arrays with a place for each request.
        unsafe {
            match act {
                Act::Testany => self.calls.Testany(count, handles, index, flag, ignore),
                Act::Testall => self.calls.Testall(count, handles, flag, ignore),
                Act::Testsome => {
                    let indices = self.indices.as_mut_ptr() as usize;
                    self.calls.Testsome(count, handles, index, indices, ignore);
                }
                _ => self.calls.Waitall(count, handles, ignore),
            }
        }
        self.scatter(count);
        Some(true)
    }

    /// Completes as many requests of a list as were complete in the trace, whichever they are. One that was not
    /// takes the place of one that was: from now on its number stands for that one.
    fn choose(&mut self, act: Act, instruction: &Instruction) -> Option<bool> {
        let traced = self.list(instruction)?.len().min(instruction.tag as usize);
        let mut first = true;
        let mut called = false;
        while self
            .lists
            .get(instruction.place as usize..)?
            .iter()
            .take(traced)
            .any(|one| !self.is_null(*one))
        {
            let count = self.gather(instruction)?;
            let (handles, ignore) = (self.handles.as_ptr() as usize, self.library.status_ignore);
            let mut out = 0i32;
            // SAFETY: arrays with a place for each request.
            unsafe {
                if act == Act::Waitsome && first {
                    let indices = self.indices.as_mut_ptr() as usize;
                    self.calls.Waitsome(count, handles, &raw mut out as usize, indices, ignore);
                } else {
                    self.calls.Waitany(count, handles, &raw mut out as usize, ignore);
                    *self.indices.first_mut()? = out;
                    out = if out == UNDEFINED { 0 } else { 1 };
                }
            }
            (first, called) = (false, true);
            self.scatter(count);
            for done in 0..out.max(0) as usize {
                let index = usize::try_from(*self.indices.get(done)?).ok()?;
                let request = *self.chosen.get(index)?;
                self.stand_in(instruction, traced, request)?;
            }
        }
        Some(called)
    }

    /// A request is complete: if it was not in the trace, one that was is waited for under its number later.
    fn stand_in(&mut self, instruction: &Instruction, traced: usize, request: u32) -> Option<()> {
        let list = self.list(instruction)?;
        let (complete, _) = list.split_at_checked(traced)?;
        if complete.contains(&request) {
            return Some(());
        }
        let Some(other) = complete.iter().copied().find(|one| !self.is_null(*one)) else {
            return Some(());
        };
        let word =
            core::mem::replace(self.requests.get_mut(other as usize)?, self.library.request_null);
        *self.requests.get_mut(request as usize)? = word;
        Some(())
    }
}
