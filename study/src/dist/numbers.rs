//! Numbers in text, one per line, from a file or a pipe of any size: several threads read and count chunks of
//! fixed size, so that the result does not depend on their number.

use std::{
    io::{self, Read},
    sync::Mutex,
};

use anyhow::{Context, Result, anyhow, bail};
use distribution::{
    sketch::{Sample, Sketch},
    text::{self, BadLine},
};

/// More do not read faster, but each takes memory.
const MOST_THREADS: usize = 8;
/// Bytes of a chunk, which ends with a whole line.
const CHUNK: usize = 1 << 20;

/// Hands out chunks of whole lines, numbered.
struct Chunks<R> {
    input: R,
    /// The beginning of a line whose end was not in the last chunk.
    rest: Vec<u8>,
    number: u64,
    ended: bool,
}

impl<R: Read> Chunks<R> {
    fn new(input: R) -> Chunks<R> {
        Chunks { input, rest: Vec::new(), number: 0, ended: false }
    }

    /// Fills the buffer with the next chunk; None at the end.
    fn next(&mut self, chunk: &mut Vec<u8>) -> io::Result<Option<u64>> {
        chunk.clear();
        chunk.append(&mut self.rest);
        while !self.ended {
            let room = CHUNK.saturating_sub(chunk.len()) as u64;
            if self.input.by_ref().take(room).read_to_end(chunk)? < room as usize {
                self.ended = true;
            } else if let Some(end) = chunk.iter().rposition(|&byte| byte == b'\n') {
                self.rest.extend_from_slice(&chunk[end + 1..]);
                chunk.truncate(end + 1);
                break;
            } else {
                return Err(io::Error::other("a line is longer than 1 MiB (expected one number)"));
            }
        }
        if chunk.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(self.number - 1))
    }
}

/// What one thread has counted.
struct Part {
    sketch: Sketch,
    /// Number of a chunk, and how many lines it has.
    lines: Vec<(u64, u64)>,
    failed: Option<(u64, Wrong)>,
}

enum Wrong {
    Line(BadLine),
    Input(io::Error),
}

/// Reads all numbers, in units of 10^`power` ps; None if there are none.
pub fn read<R: Read + Send>(
    input: R,
    power: u32,
    threads: usize,
    seed: u64,
) -> Result<Option<Sample>> {
    let mut chunks = Chunks::new(input);
    let (mut chunk, mut values) = (Vec::new(), Vec::new());
    // The first one determines the origin of the counts.
    let first = chunks.next(&mut chunk).context("cannot read the numbers")?;
    let lines = match text::numbers(&chunk, power, &mut values) {
        Ok(lines) => lines,
        Err(bad) => bail!(wrong(&bad, 0)),
    };
    if first.is_none() {
        return Ok(None);
    }
    let origin = values.iter().min().copied().unwrap_or(0);
    let mut whole =
        Part { sketch: Sketch::new(origin, seed), lines: vec![(0, lines)], failed: None };
    whole.sketch.add(0, &values);
    let chunks = Mutex::new((chunks, false));
    let parts: Vec<Part> = std::thread::scope(|scope| {
        let work = || count(&chunks, power, Sketch::new(origin, seed));
        let others: Vec<_> =
            (1..threads.clamp(1, MOST_THREADS)).map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| thread.join());
        std::iter::once(Ok(own)).chain(joined).collect::<std::thread::Result<_>>()
    })
    .map_err(|_| anyhow!("a thread that counted numbers failed"))?;
    for part in parts {
        whole.sketch.merge(part.sketch);
        whole.lines.extend(part.lines);
        // The first one in the text.
        let earlier = |a: &(u64, Wrong), b: &(u64, Wrong)| a.0 <= b.0;
        whole.failed = match (whole.failed, part.failed) {
            (Some(a), Some(b)) => Some(if earlier(&a, &b) { a } else { b }),
            (a, b) => a.or(b),
        };
    }
    match whole.failed {
        Some((_, Wrong::Input(error))) => Err(anyhow!(error).context("cannot read the numbers")),
        Some((chunk, Wrong::Line(bad))) => {
            let before = whole.lines.iter().filter(|(number, _)| *number < chunk);
            Err(wrong(&bad, before.map(|(_, lines)| lines).sum()))
        }
        None => Ok(whole.sketch.finish()),
    }
}

fn wrong(bad: &BadLine, before: u64) -> anyhow::Error {
    anyhow!("line {}: {bad} (expected one number per line)", before + bad.line)
}

/// Counts chunks until there are no more, or one is wrong.
fn count<R: Read>(chunks: &Mutex<(Chunks<R>, bool)>, power: u32, sketch: Sketch) -> Part {
    let mut part = Part { sketch, lines: Vec::new(), failed: None };
    let (mut chunk, mut values) = (Vec::new(), Vec::new());
    loop {
        let next = {
            // A thread that panicked has not changed the chunks halfway.
            let mut chunks = chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if chunks.1 {
                return part;
            }
            let next = chunks.0.next(&mut chunk);
            chunks.1 |= next.is_err();
            next.map_err(|error| (chunks.0.number, Wrong::Input(error)))
        };
        let number = match next {
            Ok(Some(number)) => number,
            Ok(None) => return part,
            Err(failed) => {
                part.failed = Some(failed);
                return part;
            }
        };
        values.clear();
        match text::numbers(&chunk, power, &mut values) {
            Ok(lines) => part.lines.push((number, lines)),
            Err(bad) => {
                chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).1 = true;
                part.failed = Some((number, Wrong::Line(bad)));
                return part;
            }
        }
        part.sketch.add(number, &values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, like a pipe.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(self.0.len()).min(70_001);
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn text(n: u64) -> Vec<u8> {
        let line =
            |i| format!("{}.{:03}\n", 4 + random::draw(1, i) % 90, random::draw(2, i) % 1000);
        (0..n).map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn any_number_of_threads_reads_the_same_from_files_and_pipes() {
        let text = text(1_200_000);
        assert!(text.len() > 5 * CHUNK);
        let one = read(&text[..], 6, 1, 3).unwrap().unwrap();
        assert_eq!(one.n(), 1_200_000);
        for threads in [2, 5] {
            assert!(one == read(&text[..], 6, threads, 3).unwrap().unwrap());
            assert!(one == read(Slowly(&text), 6, threads, 3).unwrap().unwrap());
        }
    }

    #[test]
    fn a_bad_line_is_named_wherever_it_is() {
        let mut text = text(1_000_000);
        text.extend_from_slice(b"1\n2 3\n4\n");
        for threads in [1, 3] {
            let error = read(&text[..], 6, threads, 3).unwrap_err().to_string();
            assert_eq!(error, "line 1000002: '2 3' is not a number (expected one number per line)");
        }
        let long = vec![b'1'; 3 * CHUNK];
        let error = format!("{:#}", read(&long[..], 6, 2, 3).unwrap_err());
        assert!(error.contains("longer than 1 MiB"), "{error}");
        assert!(read(&b""[..], 6, 2, 3).unwrap().is_none());
        assert!(read(&b"# nothing\n"[..], 6, 2, 3).unwrap().is_none());
    }
}
