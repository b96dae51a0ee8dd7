//! Traces for measurements, written with the collector's encoder: a mixture as stencil codes have it.
//! Nonblocking exchanges with two neighbours completed by one `MPI_Waitall`, a blocking pair, a test, an
//! `MPI_Allreduce` every fourth step, a region.

use mpi_abi::{
    Abi, Actual, Anchor, Call, Clock, ClockOffset, CommunicatorDef, Entry, FileHeader, Lost, Op,
    Outcome, RequestItem, Signature, present, shape,
};
use program::write::{RankWriter, Ticks};
use std::io;
use std::path::{Path, PathBuf};

const STEP: u64 = 20_000;

/// The directory that is given first, which is made; it must not exist.
pub fn directory() -> io::Result<PathBuf> {
    let dir = std::env::args_os().nth(1);
    let dir = PathBuf::from(dir.ok_or_else(|| io::Error::other("requires a directory"))?);
    std::fs::create_dir(&dir)?;
    Ok(dir)
}

/// A number that is given after it, from 1.
pub fn number(at: usize, default: u64) -> u64 {
    std::env::args().nth(at + 1).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What to write.
pub struct Ranks {
    pub count: i32,
    pub hosts: u32,
    /// Of each rank.
    pub events: u64,
    /// By how many ns the clocks of hosts are measured wrongly.
    pub skew: i64,
}

fn header(rank: i32, ranks: &Ranks, host: &'static str, end: u64) -> FileHeader<'static> {
    let number = rank as u32 % ranks.hosts;
    let start = Anchor { ticks: 1_000_000, ns: 1_000_000 };
    let offset_ns = if number > 0 { ranks.skew } else { 0 };
    FileHeader {
        run: 7,
        world_rank: rank as u32,
        world_size: ranks.count as u32,
        local_rank: 0,
        local_size: 1,
        abi: Abi::OpenMpi,
        clock: Clock::Tsc,
        thread_level: 0,
        pid: 1,
        realtime_ns: 0,
        load: start,
        start,
        offset_start: ClockOffset { here_ns: start.ns, offset_ns, round_trip_ns: 2000 },
        cost_recorded_ps: 80_000,
        cost_passed_ps: 10_000,
        host: host.as_bytes(),
        boot_id: [number as u8 + 1; 16],
        library: b"made",
        command: b"bench\0",
        flags: 0,
        lost: Lost::default(),
        events: 0,
        chunks: 0,
        threads: 0,
        offset_end: ClockOffset { here_ns: end, offset_ns, round_trip_ns: 2000 },
        end: Anchor::default(),
    }
}

/// A number below `below` that depends on what it is for only.
fn jitter(rank: i32, step: u64, what: u64, below: u64) -> u64 {
    let mixed = (step ^ (rank as u64) << 40 ^ what << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93) % below
}

/// Writes the trace of a rank; returns its events.
pub fn write(dir: &Path, rank: i32, ranks: &Ranks) -> io::Result<u64> {
    let n = ranks.count;
    let mut writer =
        RankWriter::create(dir, header(rank, ranks, "node", ranks.events / 8 * STEP), Ticks::NS)?;
    let world = CommunicatorDef {
        number: 0,
        key: 1,
        parent: None,
        rank,
        size: n as u32,
        remote_size: 0,
        topology: 0,
    };
    writer.communicator(0, 1_000_000, &world, &(0..n).collect::<Vec<_>>())?;
    writer.region_name(0, 1_000_000, 1, "step")?;
    let blank = Entry::plain(Signature::of(Call::Barrier), 0, 0);
    let message = |call: Call, peer: i32, tag: i32, extra: u8| Signature {
        present: present::OBJECT | present::PEER | present::TAG | present::BYTES,
        shape: extra,
        peer,
        tag,
        ..Signature::of(call)
    };
    let (left, right) = ((rank + n - 1) % n, (rank + 1) % n);
    let partner = rank ^ 1;
    let mut request = 0u64;
    let mut base = 2_000_000u64;
    let mut step = 0u64;
    while writer.events() + 10 < ranks.events {
        let j = |what| jitter(rank, step, what, 3000);
        let bytes = 1024 << jitter(0, step, 9, 6);
        let mut at = base + j(1);
        writer.region(0, 1, true, at)?;
        let first = request;
        for (call, peer, tag) in [
            (Call::Irecv, left, 1),
            (Call::Irecv, right, 2),
            (Call::Isend, right, 1),
            (Call::Isend, left, 2),
        ] {
            let signature = message(call, peer, tag, shape::BEGUN);
            let entry =
                Entry { signature, bytes, begin: at, end: at + 150, begun: request, ..blank };
            writer.event(0, &entry)?;
            request += 1;
            at += 300;
        }
        let test =
            Signature { shape: shape::REQUESTS | shape::OUTCOME, ..Signature::of(Call::Test) };
        let item = |id, outcome| RequestItem { id, outcome, actual: Actual::AS_POSTED };
        let pending = [item(first, Outcome::Pending)];
        let entry = Entry {
            signature: test,
            begin: at,
            end: at + 60,
            found: false,
            requests: &pending,
            ..blank
        };
        writer.event(0, &entry)?;
        let done = [0, 1, 2, 3].map(|i| item(first + i, Outcome::Completed));
        let wait = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitall) };
        let entry = Entry {
            signature: wait,
            begin: at + 200,
            end: base + 8000 + j(2) / 10,
            requests: &done,
            ..blank
        };
        writer.event(0, &entry)?;
        writer.region(0, 1, false, base + 8400)?;
        let at = base + 9000 + j(3);
        if partner < n {
            let call = if rank < partner { Call::Send } else { Call::Recv };
            let extra = if call == Call::Recv { shape::OUTCOME } else { 0 };
            let signature = message(call, partner, 3, extra);
            let end = if call == Call::Send { at + 400 } else { base + 13_000 + j(4) / 10 };
            writer.event(0, &Entry { signature, bytes: 512, begin: at, end, ..blank })?;
        }
        if step.is_multiple_of(4) {
            let signature = Signature {
                present: present::OBJECT | present::OP | present::BYTES,
                op: Op::Sum as u8,
                ..Signature::of(Call::Allreduce)
            };
            let (begin, end) = (base + 14_000 + j(5), base + 18_000 + j(6) / 10);
            writer.event(0, &Entry { signature, bytes: 8, begin, end, ..blank })?;
        }
        base += STEP;
        step += 1;
    }
    writer.finish(base)
}
