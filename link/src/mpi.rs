//! Two ranks of an MPI job as the ends of a link, and what all ranks have in common.

use std::{ffi::OsStr, thread, time::Duration};

use mpi_recorder::worker::{Pair, Recording, Request, Worker};

use crate::{Link, Pattern, Result};

/// A rank.
#[derive(Debug)]
pub struct Rank {
    worker: Worker,
    ns_per_tick: f64,
}

/// Between the two readings of both clocks that give the length of a tick: it is known to some 10^-6 then.
const CALIBRATION: Duration = Duration::from_millis(50);

impl Rank {
    /// Starts the MPI process of this rank; `library` is the MPI to use.
    ///
    /// # Errors
    /// If there is no MPI library.
    pub fn start(library: Option<&OsStr>) -> Result<Rank> {
        Rank::of(Worker::start(library)?)
    }

    /// A rank that plays a script, which is recorded.
    ///
    /// # Errors
    /// As [`Rank::start`].
    pub fn player(library: Option<&OsStr>, recording: &Recording<'_>) -> Result<Rank> {
        Rank::of(Worker::player(library, recording)?)
    }

    fn of(mut worker: Worker) -> Result<Rank> {
        let mut anchor = || -> Result<[f64; 2]> {
            let words = worker.ask(Request::Anchor)?;
            let [ticks, ns] = words.first_chunk().copied().unwrap_or_default();
            Ok([ticks as f64, ns as f64])
        };
        let before = anchor()?;
        thread::sleep(CALIBRATION);
        let after = anchor()?;
        let ns_per_tick = match worker.counter {
            true => (after[1] - before[1]) / (after[0] - before[0]).max(1.0),
            false => 1.0,
        };
        Ok(Rank { worker, ns_per_tick })
    }

    #[must_use]
    pub fn rank(&self) -> u32 {
        self.worker.rank
    }

    /// Number of ranks of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.worker.size
    }

    /// Name and version of the library: `Open MPI v4.1.4`, `MPICH Version: 4.0.2`.
    #[must_use]
    pub fn version(&self) -> String {
        let name = self.worker.version.split([',', '\n']).next().unwrap_or_default();
        name.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Whether times are read from the processor's counter.
    #[must_use]
    pub fn has_counter(&self) -> bool {
        self.worker.counter
    }

    #[must_use]
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Sends bytes of any length.
    ///
    /// # Errors
    /// If the MPI process has ended.
    pub fn send(&mut self, to: u32, bytes: &[u8]) -> Result<()> {
        self.worker.send(to, &(bytes.len() as u64).to_le_bytes())?;
        Ok(self.worker.send(to, bytes)?)
    }

    /// Receives what [`Rank::send`] sent.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn receive(&mut self, from: u32) -> Result<Vec<u8>> {
        let length = self.worker.receive(from, 8)?;
        let length = length.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(self.worker.receive(from, length as usize)?)
    }

    /// Bytes of rank 0 on all ranks.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.rank() > 0 {
            return self.receive(0);
        }
        for rank in 1..self.size() {
            self.send(rank, &bytes)?;
        }
        Ok(bytes)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn barrier(&mut self) -> Result<()> {
        self.worker.ask(Request::Barrier)?;
        Ok(())
    }

    /// Ticks of exchanges with another rank, which does the same.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn exchange(&mut self, peer: u32, bytes: usize, repeats: usize) -> Result<Exchanged> {
        let mut own = self.worker.ask(Request::Exchange { peer, bytes, repeats })?;
        let timer = own.split_off((2 * repeats).min(own.len()));
        let other = own.split_off(repeats.min(own.len()));
        Ok(Exchanged { own, other, timer })
    }

    /// Ticks that reading the clock takes.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn timer(&mut self, repeats: usize) -> Result<Vec<u64>> {
        Ok(self.worker.ask(Request::Timer { repeats })?)
    }

    /// Plays a script ([`Worker::play`]); how long that took in ns, and how many calls were made.
    ///
    /// # Errors
    /// As [`Rank::send`].
    pub fn play(&mut self, script: &[u64]) -> Result<(f64, u64)> {
        let [begin, end, calls] = self.worker.play(script)?;
        Ok((end.wrapping_sub(begin) as f64 * self.ns_per_tick, calls))
    }

    /// The link to another rank.
    pub fn link(&mut self, peer: u32) -> MpiLink<'_> {
        MpiLink { rank: self, peer }
    }

    /// Ends the MPI process of this rank.
    ///
    /// # Errors
    /// If `MPI_Finalize` fails.
    pub fn finish(self) -> Result<()> {
        Ok(self.worker.finish()?)
    }
}

/// Times of exchanges, each list in its rank's ticks.
#[derive(Clone, Debug, Default)]
pub struct Exchanged {
    pub own: Vec<u64>,
    pub other: Vec<u64>,
    /// Of the clock itself, read during the exchanges.
    pub timer: Vec<u64>,
}

/// The link to one other rank.
#[derive(Debug)]
pub struct MpiLink<'a> {
    rank: &'a mut Rank,
    peer: u32,
}

impl Link for MpiLink<'_> {
    fn run(&mut self, pattern: Pattern, first: bool) -> Result<Vec<f64>> {
        let (peer, ns_per_tick) = (self.peer, self.rank.ns_per_tick);
        let pair = |bytes: u64| Pair { peer, first, bytes: bytes as usize };
        let ticks = |delay: Duration| (delay.as_nanos() as f64 / ns_per_tick) as u64;
        let request = match pattern {
            Pattern::Timer { repeats } => Request::Timer { repeats: repeats as usize },
            Pattern::RoundTrip { bytes, messages, repeats } => Request::RoundTrip {
                pair: pair(bytes),
                messages: messages as usize,
                repeats: repeats as usize,
            },
            Pattern::Delayed { bytes, messages, delay, repeats } => Request::Delayed {
                pair: pair(bytes),
                messages: messages as usize,
                delay: ticks(delay),
                repeats: repeats as usize,
            },
            Pattern::Late { bytes, delay, repeats } => {
                Request::Late { pair: pair(bytes), delay: ticks(delay), repeats: repeats as usize }
            }
            Pattern::Polling { bytes, delay, repeats } => Request::Polling {
                pair: pair(bytes),
                delay: ticks(delay),
                repeats: repeats as usize,
            },
        };
        let times = self.rank.worker.ask(request)?;
        Ok(times.into_iter().map(|ticks| ticks as f64 * ns_per_tick).collect())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.rank.worker.send(self.peer, bytes)?)
    }

    fn receive(&mut self, bytes: usize) -> Result<Vec<u8>> {
        Ok(self.rank.worker.receive(self.peer, bytes)?)
    }
}
