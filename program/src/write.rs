//! Writes the file of one rank with the encoder that the collector uses: for imported traces, tests and
//! benchmarks. In: entries in the order of their times, by thread; out: `rank-N.mpi`.

use mpi_abi::{
    Anchor, CHUNK, CHUNK_HEADER, ChunkHeader, CommunicatorDef, Encoder, Entry, FileHeader, Full,
    HEADER, ListKind, MAX_REQUESTS, RequestItem, chunk_flag, file_flag,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How ticks become nanoseconds in the written file.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// A moment in both.
    pub at: Anchor,
    /// Nanoseconds of a tick.
    pub ns: f64,
}

impl Ticks {
    /// Ticks are nanoseconds.
    pub const NS: Ticks = Ticks { at: Anchor { ticks: 0, ns: 0 }, ns: 1.0 };

    /// The pair of a moment given in ticks.
    #[must_use]
    pub fn anchor(&self, ticks: u64) -> Anchor {
        let passed = ticks.wrapping_sub(self.at.ticks) as i64 as f64 * self.ns;
        Anchor { ticks, ns: self.at.ns.saturating_add_signed(passed.round() as i64) }
    }
}

struct Thread {
    encoder: Box<Encoder>,
    payload: Box<[u8]>,
    /// Place in the file and header of the chunk that is being written.
    chunk: Option<(u64, ChunkHeader)>,
    sequence: u32,
}

/// A file that is being written.
pub struct RankWriter<'h> {
    file: File,
    path: PathBuf,
    header: FileHeader<'h>,
    ticks: Ticks,
    threads: Vec<Thread>,
    chunks: u64,
    events: u64,
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "record does not fit into a chunk")
}

impl<'h> RankWriter<'h> {
    /// Creates `rank-N.mpi` in a directory; an existing file is an error.
    pub fn create(dir: &Path, header: FileHeader<'h>, ticks: Ticks) -> io::Result<Self> {
        let path = dir.join(format!("rank-{}.mpi", header.world_rank));
        let file = File::create_new(&path)?;
        let writer =
            RankWriter { file, path, header, ticks, threads: Vec::new(), chunks: 0, events: 0 };
        writer.write_header()?;
        Ok(writer)
    }

    fn write_header(&self) -> io::Result<()> {
        let mut page = [0; HEADER];
        self.header.write(&mut page);
        self.file.write_all_at(&page, 0)
    }

    /// The header, which is written again at the end.
    pub fn header_mut(&mut self) -> &mut FileHeader<'h> {
        &mut self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events written so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn close(&mut self, thread: usize) -> io::Result<()> {
        let Some(state) = self.threads.get_mut(thread) else { return Ok(()) };
        let Some((index, mut header)) = state.chunk.take() else { return Ok(()) };
        let used = state.encoder.used();
        let payload = state.payload.get(..used).unwrap_or(&[]);
        header.used = used as u32;
        header.flags |= chunk_flag::CLOSED;
        header.crc = mpi_abi::crc32(payload);
        header.latest = self.ticks.anchor(state.encoder.last());
        let at = HEADER as u64 + index * CHUNK as u64;
        self.file.write_all_at(&header.to_bytes(), at)?;
        self.file.write_all_at(payload, at + CHUNK_HEADER as u64)
    }

    fn record(
        &mut self,
        thread: u16,
        now: u64,
        definition: bool,
        events: u32,
        mut write: impl FnMut(&mut Encoder, &mut [u8]) -> Result<(), Full>,
    ) -> io::Result<()> {
        let number = usize::from(thread);
        while self.threads.len() <= number {
            self.threads.push(Thread {
                encoder: Box::new(Encoder::new()),
                payload: vec![0; CHUNK - CHUNK_HEADER].into_boxed_slice(),
                chunk: None,
                sequence: 0,
            });
        }
        for _ in 0..2 {
            let Some(state) = self.threads.get_mut(number) else { break };
            let (_, header) = state.chunk.get_or_insert_with(|| {
                let base = state.encoder.last().max(now);
                state.encoder.restart(base);
                let opened = self.ticks.anchor(base);
                let header = ChunkHeader {
                    thread,
                    sequence: state.sequence,
                    base,
                    opened,
                    latest: opened,
                    ..ChunkHeader::default()
                };
                state.sequence += 1;
                self.chunks += 1;
                (self.chunks - 1, header)
            });
            if write(&mut state.encoder, &mut state.payload).is_ok() {
                header.events += events;
                header.flags |= if definition { chunk_flag::DEFINITIONS } else { 0 };
                self.events += u64::from(events);
                return Ok(());
            }
            self.close(number)?;
        }
        Err(too_long())
    }

    /// Writes a call of a thread. Lists of requests can have any length.
    pub fn event(&mut self, thread: u16, entry: &Entry) -> io::Result<()> {
        let mut lists = entry.requests.chunks(MAX_REQUESTS);
        let entry = Entry { requests: lists.next().unwrap_or(&[]), ..*entry };
        self.record(thread, entry.begin, false, 1, |encoder, payload| {
            encoder.event(payload, &entry)
        })?;
        for requests in lists {
            self.more(thread, entry.end, requests)?;
        }
        Ok(())
    }

    fn more(&mut self, thread: u16, now: u64, requests: &[RequestItem]) -> io::Result<()> {
        self.record(thread, now, false, 0, |encoder, payload| encoder.more(payload, requests))
    }

    /// Counts repetitions of the last events of a thread, so many tests that failed: how often, the ticks from the
    /// end of the last event to that of the last repetition, and the ticks inside of the calls.
    pub fn repeat(&mut self, thread: u16, tests: u8, numbers: [u32; 3]) -> io::Result<()> {
        let [times, ticks, _] = numbers;
        self.record(thread, 0, false, 0, |encoder, payload| {
            let place = encoder.repeat(payload, tests)?;
            if let Some(place) = payload.get_mut(place..place + 12) {
                for (place, number) in place.chunks_exact_mut(4).zip(numbers) {
                    place.copy_from_slice(&number.to_le_bytes());
                }
            }
            encoder.repeated(ticks);
            Ok(())
        })?;
        self.events += u64::from(times);
        Ok(())
    }

    /// Defines a communicator with the world ranks of its members.
    pub fn communicator(
        &mut self,
        thread: u16,
        now: u64,
        def: &CommunicatorDef,
        members: &[i32],
    ) -> io::Result<()> {
        self.record(thread, now, true, 0, |encoder, payload| encoder.communicator(payload, def))?;
        self.list(thread, now, def.number, ListKind::Members, members)
    }

    /// Writes a list of a communicator.
    pub fn list(
        &mut self,
        thread: u16,
        now: u64,
        communicator: u32,
        kind: ListKind,
        values: &[i32],
    ) -> io::Result<()> {
        let mut offset = 0usize;
        while let Some(rest) = values.get(offset..).filter(|rest| !rest.is_empty()) {
            let mut written = 0;
            self.record(thread, now, true, 0, |encoder, payload| {
                written = encoder.list(payload, communicator, kind, offset as u32, rest)?;
                Ok(())
            })?;
            offset += written.max(1);
        }
        Ok(())
    }

    /// Defines a window on a communicator.
    pub fn window(&mut self, thread: u16, now: u64, window: u32, comm: u32) -> io::Result<()> {
        self.record(thread, now, true, 0, |encoder, payload| encoder.window(payload, window, comm))
    }

    /// Names a region.
    pub fn region_name(
        &mut self,
        thread: u16,
        now: u64,
        region: u32,
        name: &str,
    ) -> io::Result<()> {
        self.record(thread, now, true, 0, |encoder, payload| {
            encoder.region_name(payload, region, name.as_bytes())
        })
    }

    /// Begins or ends a region.
    pub fn region(&mut self, thread: u16, region: u32, begins: bool, at: u64) -> io::Result<()> {
        self.record(thread, at, false, 0, |encoder, payload| {
            encoder.region(payload, region, begins, at)
        })
    }

    /// Switches recording off or on.
    pub fn switch(&mut self, thread: u16, on: bool, at: u64) -> io::Result<()> {
        self.record(thread, at, false, 0, |encoder, payload| encoder.switch(payload, on, at))
    }

    /// Notes that events are missing.
    pub fn lost(&mut self, thread: u16, now: u64, events: u64) -> io::Result<()> {
        self.record(thread, now, false, 0, |encoder, payload| encoder.lost(payload, events))
    }

    /// Closes the file as `MPI_Finalize` does, `end` being the ticks at its return.
    pub fn finish(mut self, end: u64) -> io::Result<u64> {
        for thread in 0..self.threads.len() {
            self.close(thread)?;
        }
        self.header.flags |= file_flag::FINALIZED;
        self.header.events = self.events;
        self.header.chunks = self.chunks;
        self.header.threads = self.threads.len() as u32;
        self.header.end = self.ticks.anchor(end);
        self.write_header()?;
        self.file.set_len(HEADER as u64 + self.chunks * CHUNK as u64)?;
        Ok(self.events)
    }

    /// Leaves the file as a killed rank does: the last chunks are open and have no checksum.
    pub fn kill(mut self) -> io::Result<u64> {
        for thread in &mut self.threads {
            let Some((index, mut header)) = thread.chunk.take() else { continue };
            header.used = thread.encoder.used() as u32;
            let payload = thread.payload.get(..thread.encoder.used()).unwrap_or(&[]);
            let at = HEADER as u64 + index * CHUNK as u64;
            self.file.write_all_at(&header.to_bytes(), at)?;
            self.file.write_all_at(payload, at + CHUNK_HEADER as u64)?;
        }
        self.header.chunks = self.chunks;
        self.write_header()?;
        self.file.set_len(HEADER as u64 + self.chunks * CHUNK as u64)?;
        Ok(self.events)
    }
}
