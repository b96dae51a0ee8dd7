//! Measures the connection between two processes. In: a [`Link`], over MPI ([`mpi`]) or TCP ([`tcp`]); out: times
//! in nanoseconds ([`measure::Measured`]), from which `study` computes parameters. Also the exchanges of all pairs
//! of an MPI job ([`pairs`]).
//!
//! One end, the first, decides what is measured and has all results; the other serves it ([`measure::serve`]).

#![forbid(unsafe_code)]

pub mod measure;
#[cfg(target_os = "linux")]
pub mod mpi;
pub mod pairs;
pub mod tcp;

use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum LinkError {
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Mpi(#[from] mpi_recorder::worker::WorkerError),
    #[error("{what}: {source}")]
    Socket { what: String, source: std::io::Error },
    #[error("{0}")]
    Wrong(String),
}

pub type Result<T, E = LinkError> = std::result::Result<T, E>;

/// What both ends do at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// What reading the clock takes.
    Timer { repeats: u32 },
    /// `messages` from the first end one after another, and one back: PRTT(n, 0, s) of Hoefler et al. 2007. The
    /// first end has the times.
    RoundTrip { bytes: u64, messages: u32, repeats: u32 },
    /// `messages` from the first end with a delay after each, and one back. The first end has the times inside of
    /// its sends, one for every message.
    Delayed { bytes: u64, messages: u32, delay: Duration, repeats: u32 },
    /// A message that is received `delay` after the receiver was ready for it. The first end has the times inside
    /// of its sends, the other those inside of its receives.
    Late { bytes: u64, delay: Duration, repeats: u32 },
    /// The same, but the receiver makes progress meanwhile: it looks for another message. Some libraries end an
    /// eager send only then.
    Polling { bytes: u64, delay: Duration, repeats: u32 },
}

/// A process at the other end of a connection.
pub trait Link {
    /// Runs a pattern, which the other end runs too; ns, in order.
    fn run(&mut self, pattern: Pattern, first: bool) -> Result<Vec<f64>>;
    /// Sends bytes to the other end, which knows how many.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;
    fn receive(&mut self, bytes: usize) -> Result<Vec<u8>>;
}

/// Largest message that is measured: an `int` of MPI.
pub const LARGEST: u64 = 1 << 30;
/// Largest number of times that a pattern returns.
const MOST: u64 = 1 << 24;

impl Pattern {
    const WORDS: usize = 5;

    fn encode(self) -> Vec<u8> {
        let ns = |delay: Duration| u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let words: [u64; Self::WORDS] = match self {
            Pattern::Timer { repeats } => [1, 0, 0, 0, repeats.into()],
            Pattern::RoundTrip { bytes, messages, repeats } => {
                [2, bytes, messages.into(), 0, repeats.into()]
            }
            Pattern::Delayed { bytes, messages, delay, repeats } => {
                [3, bytes, messages.into(), ns(delay), repeats.into()]
            }
            Pattern::Late { bytes, delay, repeats } => [4, bytes, 1, ns(delay), repeats.into()],
            Pattern::Polling { bytes, delay, repeats } => [5, bytes, 1, ns(delay), repeats.into()],
        };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// None for the end of the measurement.
    fn decode(bytes: &[u8]) -> Result<Option<Pattern>> {
        let wrong = || {
            LinkError::Wrong(
                "unknown request from peer: use the same version of detour on both hosts"
                    .to_owned(),
            )
        };
        let word = |chunk: &[u8]| chunk.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
        let &[kind, bytes, messages, delay, repeats] = words.as_slice() else {
            return Err(wrong());
        };
        if bytes > LARGEST || messages.saturating_mul(repeats) > MOST || delay > 60_000_000_000 {
            return Err(wrong());
        }
        let number = |word: u64| u32::try_from(word).map_err(|_| wrong());
        let (messages, repeats) = (number(messages)?, number(repeats)?);
        let delay = Duration::from_nanos(delay);
        Ok(match kind {
            0 => None,
            1 => Some(Pattern::Timer { repeats }),
            2 => Some(Pattern::RoundTrip { bytes, messages, repeats }),
            3 => Some(Pattern::Delayed { bytes, messages, delay, repeats }),
            4 => Some(Pattern::Late { bytes, delay, repeats }),
            5 => Some(Pattern::Polling { bytes, delay, repeats }),
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_understands_every_pattern_and_refuses_the_rest() {
        let delay = Duration::from_micros(7);
        for pattern in [
            Pattern::Timer { repeats: 3 },
            Pattern::RoundTrip { bytes: LARGEST, messages: 2, repeats: 9 },
            Pattern::Delayed { bytes: 1, messages: 8, delay, repeats: 9 },
            Pattern::Late { bytes: 0, delay, repeats: 1 },
            Pattern::Polling { bytes: 5, delay, repeats: 1 },
        ] {
            assert_eq!(Pattern::decode(&pattern.encode()).unwrap(), Some(pattern));
        }
        assert_eq!(Pattern::decode(&[0; 40]).unwrap(), None);
        assert!(Pattern::decode(&[0; 39]).is_err());
        assert!(Pattern::decode(&[9; 40]).is_err());
    }
}
