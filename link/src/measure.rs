//! What is measured, in which order. Everything is measured in blocks, each with every pattern and size, so that a
//! disturbance falls into a block and the spread between blocks is the spread of the result.

use std::time::{Duration, Instant};

use crate::{Link, LinkError, Pattern, Result};

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// About how long.
    pub duration: Duration,
    /// Size of the largest message.
    pub largest: u64,
    pub blocks: u32,
}

/// Two views of the times of one pattern in one block, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub minimum: f64,
    pub median: f64,
}

/// One message size in one block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtSize {
    /// PRTT(1, 0, s).
    pub round_trip: Times,
    /// Of eager messages only.
    pub eager: Option<Eager>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Eager {
    /// Inside of a send, with the network idle.
    pub send: Times,
    /// Inside of a receive of a message that has arrived.
    pub receive: Times,
    /// PRTT(n, 0, s), and n.
    pub burst: Times,
    pub messages: u32,
}

/// Raw results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The least time that reading the clock took, at either end, ns. It is subtracted from all times.
    pub timer_ns: [f64; 2],
    /// The largest message whose send ends without the receiver; None if all do.
    pub eager_limit: Option<u64>,
    pub sizes: Vec<u64>,
    /// `blocks[block][size]`.
    pub blocks: Vec<Vec<AtSize>>,
    pub seconds: f64,
}

/// Least and median of times from which `subtracted` is taken; zero if there are none.
fn times(mut values: Vec<f64>, subtracted: f64) -> Times {
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).map_or(0.0, |value| (value - subtracted).max(0.0));
    Times { minimum: at(0), median: at(values.len() / 2) }
}

/// Runs a pattern at both ends; the times of both.
fn both(link: &mut dyn Link, pattern: Pattern) -> Result<[Vec<f64>; 2]> {
    link.send(&pattern.encode())?;
    let own = link.run(pattern, true)?;
    let count = link.receive(8)?;
    let count = count.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if count > crate::MOST {
        return Err(LinkError::Wrong(format!("invalid reply from peer: {count} measurements")));
    }
    let other = if count > 0 { link.receive(8 * count as usize)? } else { Vec::new() };
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
    Ok([own, other.chunks_exact(8).map(number).collect()])
}

/// The other end of [`measure`]: does what the first end asks for until it has finished.
///
/// # Errors
/// If the connection fails.
pub fn serve(link: &mut dyn Link) -> Result<()> {
    loop {
        let request = link.receive(8 * Pattern::WORDS)?;
        let Some(pattern) = Pattern::decode(&request)? else { return Ok(()) };
        let own = link.run(pattern, false)?;
        link.send(&(own.len() as u64).to_le_bytes())?;
        if !own.is_empty() {
            let bytes: Vec<u8> = own.iter().flat_map(|time| time.to_le_bytes()).collect();
            link.send(&bytes)?;
        }
    }
}

/// Shortest delay of a receiver in the search for S: sends of eager messages are far shorter.
const LATE: Duration = Duration::from_millis(2);
/// Messages that follow each other: so many, or fewer of large ones.
const BURST: u64 = 32;
const BURST_BYTES: u64 = 1 << 20;
const SHORTEST_BURST: u64 = 4;
/// Messages of a repetition with delays.
const DELAYED: u32 = 4;
/// Repetitions of a pattern in a block.
const FEWEST: f64 = 5.0;
const MOST: f64 = 2000.0;
/// Blocks that suffice where even the fewest repetitions take longer than was asked for.
const LEAST_BLOCKS: u32 = 5;

/// Measures from the first end; `progress` receives the share that is done and may stop it.
///
/// # Errors
/// If the connection fails.
pub fn measure(
    link: &mut dyn Link,
    plan: &Plan,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Measured> {
    let begin = Instant::now();
    let [own, other] = both(link, Pattern::Timer { repeats: 10_000 })?;
    let timer_ns = [times(own, 0.0).minimum, times(other, 0.0).minimum];
    // The first messages open connections, which may take long.
    rough(link, 1, 100)?;
    let eager_limit = eager_limit(link, plan.largest)?;
    let sizes = sizes(plan.largest, eager_limit);
    let rough: Vec<Duration> =
        sizes.iter().map(|&bytes| rough(link, bytes, 5)).collect::<Result<_>>()?;
    let is_eager = |bytes: u64| eager_limit.is_none_or(|limit| bytes <= limit);
    let patterns: usize = sizes.iter().map(|&bytes| if is_eager(bytes) { 4 } else { 1 }).sum();
    let each = plan.duration.as_secs_f64() / (plan.blocks.max(1) as usize * patterns.max(1)) as f64;
    let repeats = |seconds: f64| (each / seconds.max(1e-9)).clamp(FEWEST, MOST) as u32;
    let mut measured =
        Measured { timer_ns, eager_limit, sizes: sizes.clone(), ..Measured::default() };
    for number in 0..plan.blocks {
        let mut block = Vec::new();
        for (&bytes, trip) in sizes.iter().zip(&rough) {
            let seconds = trip.as_secs_f64();
            let pattern = Pattern::RoundTrip { bytes, messages: 1, repeats: repeats(seconds) };
            let round_trip = times(both(link, pattern)?[0].clone(), timer_ns[0]);
            let mut eager = None;
            if is_eager(bytes) {
                // Long enough for a message to arrive.
                let delay = *trip;
                let cycle = f64::from(DELAYED) * 2.0 * seconds + seconds;
                let (messages, count) = (DELAYED, repeats(cycle));
                let delayed = Pattern::Delayed { bytes, messages, delay, repeats: count };
                let send = times(both(link, delayed)?[0].clone(), timer_ns[0]);
                let delay = *trip * 2 + Duration::from_micros(5);
                let late = Pattern::Late { bytes, delay, repeats: repeats(4.0 * seconds) };
                let receive = times(both(link, late)?[1].clone(), timer_ns[1]);
                let messages = BURST_BYTES / bytes.max(1);
                let messages = messages.clamp(SHORTEST_BURST, BURST) as u32;
                let count = repeats(seconds * f64::from(messages) / 2.0);
                let burst = Pattern::RoundTrip { bytes, messages, repeats: count };
                let burst = times(both(link, burst)?[0].clone(), timer_ns[0]);
                eager = Some(Eager { send, receive, burst, messages });
            }
            block.push(AtSize { round_trip, eager });
        }
        measured.blocks.push(block);
        let goes_on = progress(f64::from(number + 1) / f64::from(plan.blocks));
        if !goes_on || is_late(number + 1, begin.elapsed(), plan.duration) {
            break;
        }
    }
    link.send(&[0; 8 * Pattern::WORDS])?;
    measured.seconds = begin.elapsed().as_secs_f64();
    Ok(measured)
}

/// Whether a slow network has taken long enough.
fn is_late(blocks: u32, passed: Duration, asked: Duration) -> bool {
    blocks >= LEAST_BLOCKS && passed > asked.saturating_mul(2)
}

/// Median round trip of a few.
fn rough(link: &mut dyn Link, bytes: u64, repeats: u32) -> Result<Duration> {
    let [own, _] = both(link, Pattern::RoundTrip { bytes, messages: 1, repeats })?;
    Ok(Duration::from_nanos(times(own, 0.0).median.max(1.0) as u64))
}

/// The largest message whose send ends although its receive begins later; None if that is so for all.
fn eager_limit(link: &mut dyn Link, largest: u64) -> Result<Option<u64>> {
    let mut waits = |bytes: u64| -> Result<bool> {
        let delay = LATE.max(rough(link, bytes, 3)? * 4);
        let [own, _] = both(link, Pattern::Polling { bytes, delay, repeats: 5 })?;
        Ok(times(own, 0.0).median > delay.as_nanos() as f64 / 2.0)
    };
    if !waits(largest)? {
        return Ok(None);
    }
    let (mut eager, mut rendezvous) = (0, largest);
    while rendezvous - eager > 1 {
        let middle = eager + (rendezvous - eager) / 2;
        if waits(middle)? { rendezvous = middle } else { eager = middle }
    }
    Ok(Some(eager))
}

/// Powers of two up to the largest, and both sides of the eager limit.
fn sizes(largest: u64, eager_limit: Option<u64>) -> Vec<u64> {
    let powers = std::iter::successors(Some(1u64), |bytes| bytes.checked_mul(2));
    let mut sizes: Vec<u64> = powers.take_while(|&bytes| bytes < largest).collect();
    sizes.push(largest);
    if let Some(limit) = eager_limit {
        sizes
            .extend([limit, limit + 1].into_iter().filter(|&bytes| (1..=largest).contains(&bytes)));
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_both_sides_of_the_limit() {
        assert_eq!(sizes(10, None), [1, 2, 4, 8, 10]);
        assert_eq!(sizes(16, Some(6)), [1, 2, 4, 6, 7, 8, 16]);
        assert_eq!(sizes(1, Some(0)), [1]);
    }

    #[test]
    fn a_slow_network_is_measured_in_fewer_blocks() {
        let (asked, long) = (Duration::from_secs(10), Duration::from_secs(21));
        assert!(!is_late(LEAST_BLOCKS, asked, asked), "within the time asked for");
        assert!(!is_late(LEAST_BLOCKS - 1, long, asked), "too few blocks");
        assert!(is_late(LEAST_BLOCKS, long, asked));
        assert!(!is_late(u32::MAX, Duration::MAX, Duration::MAX));
    }

    #[test]
    fn times_lose_what_the_clock_takes_and_never_become_negative() {
        assert_eq!(times(vec![30.0, 10.0, 5.0], 6.0), Times { minimum: 0.0, median: 4.0 });
        assert_eq!(times(Vec::new(), 6.0), Times::default());
    }
}
