//! Traces made by hand with the collector's encoder.
#![allow(dead_code)]

use mpi_abi::{
    Abi, Actual, Anchor, Call, Clock, ClockOffset, CommunicatorDef, Entry, FileHeader, ListKind,
    Lost, Outcome, RequestItem, Signature, present, shape,
};
use program::write::{RankWriter, Ticks};
use std::path::Path;

/// When all made runs begin, on the clock of the host.
pub const START: u64 = 1_000_000_000;

/// A host: number, offset of its clock to that of host 0, and drift of it.
#[derive(Clone, Copy, Default)]
pub struct HostClock {
    pub host: u8,
    pub offset_ns: i64,
    pub drift: f64,
    /// What the collector would have measured at the start and at the end; the true offset if not given.
    pub measured: Option<(i64, i64)>,
}

pub struct Made {
    writer: RankWriter<'static>,
    clock: HostClock,
    pub request: u64,
}

pub fn header(rank: u32, size: u32, clock: HostClock) -> FileHeader<'static> {
    const NAMES: [&[u8]; 4] = [b"node0", b"node1", b"node2", b"node3"];
    let start = local(clock, START);
    let anchor = Anchor { ticks: start, ns: start };
    let offset = clock.measured.map_or(clock.offset_ns, |(start, _)| start);
    FileHeader {
        run: 42,
        world_rank: rank,
        world_size: size,
        local_rank: 0,
        local_size: 1,
        abi: Abi::OpenMpi,
        clock: Clock::Monotonic,
        thread_level: 3,
        pid: 100 + rank,
        realtime_ns: 0,
        load: anchor,
        start: anchor,
        offset_start: ClockOffset { here_ns: start, offset_ns: offset, round_trip_ns: 1000 },
        cost_recorded_ps: 100_000,
        cost_passed_ps: 10_000,
        host: NAMES[usize::from(clock.host) % 4],
        boot_id: [clock.host + 1; 16],
        library: b"made by hand",
        command: b"./app\0-n\0",
        flags: 0,
        lost: Lost::default(),
        events: 0,
        chunks: 0,
        threads: 0,
        offset_end: ClockOffset::default(),
        end: Anchor::default(),
    }
}

/// True time as the clock of a host shows it.
fn local(clock: HostClock, true_ns: u64) -> u64 {
    let drift = (true_ns as f64 - START as f64) * clock.drift;
    (true_ns as i64 + clock.offset_ns + drift.round() as i64) as u64
}

pub const BLANK: Entry = Entry::plain(Signature::of(Call::Barrier), 0, 0);

pub fn message(call: Call, peer: i32, tag: i32) -> Signature {
    Signature {
        present: present::OBJECT | present::PEER | present::TAG | present::BYTES,
        peer,
        tag,
        ..Signature::of(call)
    }
}

pub fn on_comm(call: Call, comm: u32) -> Signature {
    Signature { present: present::OBJECT | present::BYTES, object: comm, ..Signature::of(call) }
}

impl Made {
    pub fn new(dir: &Path, rank: u32, size: u32) -> Made {
        Made::on(dir, rank, size, HostClock::default())
    }

    pub fn on(dir: &Path, rank: u32, size: u32, clock: HostClock) -> Made {
        Made::with(dir, header(rank, size, clock), clock, Ticks::NS)
    }

    pub fn with(dir: &Path, header: FileHeader<'static>, clock: HostClock, ticks: Ticks) -> Made {
        let (rank, size) = (header.world_rank, header.world_size);
        let writer = RankWriter::create(dir, header, ticks).unwrap();
        let mut made = Made { writer, clock, request: 0 };
        made.comm(0, 1, rank as i32, &(0..size as i32).collect::<Vec<_>>());
        made
    }

    /// A communicator whose members are not recorded.
    pub fn unknown_comm(&mut self, number: u32, key: u64, rank: i32, size: u32) {
        let (parent, remote_size, topology) = (None, 0, 0);
        let def = CommunicatorDef { number, key, parent, rank, size, remote_size, topology };
        self.writer.communicator(0, 0, &def, &[]).unwrap();
    }

    pub fn comm(&mut self, number: u32, key: u64, rank: i32, members: &[i32]) {
        let def = CommunicatorDef {
            number,
            key,
            parent: None,
            rank,
            size: members.len() as u32,
            remote_size: 0,
            topology: 0,
        };
        self.writer.communicator(0, 0, &def, members).unwrap();
    }

    /// A window on a communicator.
    pub fn window(&mut self, number: u32, comm: u32) {
        self.writer.window(0, START, number, comm).unwrap();
    }

    /// The neighbours of the rank in a communicator with a topology.
    pub fn neighbours(&mut self, number: u32, sources: &[i32], destinations: &[i32]) {
        self.writer.list(0, 0, number, ListKind::Sources, sources).unwrap();
        self.writer.list(0, 0, number, ListKind::Destinations, destinations).unwrap();
    }

    /// A list of a communicator.
    pub fn list(&mut self, number: u32, kind: ListKind, list: &[i32]) {
        self.writer.list(0, 0, number, kind, list).unwrap();
    }

    /// Writes a call of a thread; times in ns of true time since the start.
    pub fn on_thread(&mut self, thread: u16, begin: u64, end: u64, entry: Entry) {
        let (begin, end) = (local(self.clock, START + begin), local(self.clock, START + end));
        self.writer.event(thread, &Entry { begin, end, ..entry }).unwrap();
    }

    pub fn call(&mut self, begin: u64, end: u64, entry: Entry) {
        self.on_thread(0, begin, end, entry);
    }

    pub fn send(&mut self, begin: u64, end: u64, peer: i32, bytes: u64) {
        self.call(begin, end, Entry { signature: message(Call::Send, peer, 0), bytes, ..BLANK });
    }

    pub fn recv(&mut self, begin: u64, end: u64, peer: i32, bytes: u64) {
        self.call(begin, end, Entry { signature: message(Call::Recv, peer, 0), bytes, ..BLANK });
    }

    pub fn begin(
        &mut self,
        call: Call,
        begin: u64,
        end: u64,
        peer: i32,
        tag: i32,
        bytes: u64,
    ) -> u64 {
        let signature = Signature { shape: shape::BEGUN, ..message(call, peer, tag) };
        let begun = self.request;
        self.call(begin, end, Entry { signature, bytes, begun, ..BLANK });
        self.request += 1;
        begun
    }

    pub fn wait(&mut self, begin: u64, end: u64, requests: &[u64]) {
        let items: Vec<RequestItem> = requests.iter().map(|id| completed(*id)).collect();
        self.complete(begin, end, &items);
    }

    pub fn complete(&mut self, begin: u64, end: u64, items: &[RequestItem]) {
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitall) };
        self.call(begin, end, Entry { signature, requests: items, ..BLANK });
    }

    /// A test of these requests that fails.
    pub fn fails(&mut self, call: Call, begin: u64, end: u64, requests: &[u64]) {
        let items = requests.iter().map(|id| RequestItem {
            id: *id,
            outcome: Outcome::Pending,
            actual: Actual::AS_POSTED,
        });
        let items: Vec<RequestItem> = items.collect();
        let signature =
            Signature { shape: shape::REQUESTS | shape::OUTCOME, ..Signature::of(call) };
        self.call(begin, end, Entry { signature, requests: &items, found: false, ..BLANK });
    }

    /// The last tests, which failed, were made again: see [`RankWriter::repeat`].
    pub fn repeat(&mut self, tests: u8, numbers: [u32; 3]) {
        self.writer.repeat(0, tests, numbers).unwrap();
    }

    pub fn collective(&mut self, call: Call, begin: u64, end: u64, comm: u32) {
        self.call(begin, end, Entry { signature: on_comm(call, comm), bytes: 8, ..BLANK });
    }

    pub fn rooted(&mut self, call: Call, begin: u64, end: u64, root: i32) {
        let mut signature = on_comm(call, 0);
        signature.present |= present::PEER;
        signature.peer = root;
        self.call(begin, end, Entry { signature, bytes: 8, ..BLANK });
    }

    pub fn region(&mut self, number: u32, begins: bool, at: u64) {
        self.writer.region(0, number, begins, START + at).unwrap();
    }

    pub fn name(&mut self, number: u32, name: &str) {
        self.writer.region_name(0, START, number, name).unwrap();
    }

    pub fn switch(&mut self, on: bool, at: u64) {
        self.writer.switch(0, on, START + at).unwrap();
    }

    /// From now on, calls are in the file even if recording is switched off.
    pub fn keeps_off(&mut self) {
        self.writer.header_mut().flags |= mpi_abi::file_flag::KEEPS_OFF;
    }

    /// A call made while recording is switched off.
    pub fn off(&mut self, begin: u64, end: u64, mut entry: Entry) {
        entry.signature.shape |= shape::OFF;
        self.call(begin, end, entry);
    }

    pub fn lost(&mut self, at: u64, events: u64) {
        self.writer.lost(0, START + at, events).unwrap();
    }

    pub fn finish(mut self, at: u64) {
        let end = local(self.clock, START + at);
        let true_offset = end as i64 - (START + at) as i64;
        let offset_ns = self.clock.measured.map_or(true_offset, |(_, end)| end);
        self.writer.header_mut().offset_end =
            ClockOffset { here_ns: end, offset_ns, round_trip_ns: 1000 };
        self.writer.finish(end).unwrap();
    }

    pub fn kill(self) {
        self.writer.kill().unwrap();
    }
}

pub fn completed(id: u64) -> RequestItem {
    RequestItem { id, outcome: Outcome::Completed, actual: Actual::AS_POSTED }
}
