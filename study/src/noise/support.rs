//! For how many ranks a recording is long enough.
//!
//! Between two synchronisations, every rank meets the noise of one interval, and the slowest decides. With
//! more ranks than the recording has such intervals, the slowest would always be one that was recorded:
//! what is rarer is missing, and the projection flattens out. So a recording supports as many ranks as it
//! has intervals, on all CPUs together.

use std::time::Duration;

use analysis::words;
use anyhow::Result;
use serde::Serialize;
use simulate::noise::Composed;

use crate::jobs::workload;

/// How many ranks a recording supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Support {
    /// The largest power of two; at least 2.
    pub ranks: u64,
    /// Time between synchronisations, ns.
    interval_ns: f64,
    /// CPUs or threads.
    lanes: usize,
}

/// None for a schedule, whose intervals are its own.
pub fn of(lanes: &[Composed], workload: &workload::Request) -> Result<Option<Support>> {
    let Some(interval_ps) = workload.interval()? else { return Ok(None) };
    let watched_ns = lanes.iter().map(Composed::span_ns).fold(0, u64::saturating_add);
    Ok(Some(Support::new(watched_ns, lanes.len(), interval_ps as f64 / 1e3)))
}

/// How long to record for a number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Needed {
    pub ranks: u64,
    /// On how many CPUs.
    pub cpus: u64,
    /// Time between two synchronisations of the job.
    pub interval_us: f64,
    /// Until there are as many intervals as ranks.
    pub needed_s: f64,
    /// Whole seconds, and one more: CPUs start and stop one after another.
    pub recorded_s: u64,
}

impl Needed {
    /// For the usual job, or one that synchronises this often.
    pub fn new(ranks: u64, cpus: usize, interval: Option<Duration>) -> Result<Needed> {
        let usual_ps =
            || Ok::<_, anyhow::Error>(workload::Request::usual()?.interval()?.unwrap_or(0));
        let interval_ns = match interval {
            Some(interval) => interval.as_nanos() as f64,
            None => usual_ps()? as f64 / 1e3,
        };
        let needed_s = Support::new(0, cpus, interval_ns).needed_s(ranks);
        let recorded_s = needed_s.ceil() as u64 + 1;
        Ok(Needed {
            ranks,
            cpus: cpus as u64,
            interval_us: interval_ns / 1e3,
            needed_s,
            recorded_s,
        })
    }

    pub fn words(&self) -> String {
        format!(
            "{} ranks that synchronise every {} need {} on {}",
            words::count(self.ranks),
            words::time(self.interval_us * 1e3),
            words::time(self.needed_s * 1e9),
            words::plural(self.cpus, "CPU")
        )
    }
}

/// Whether a job that noise makes longer than the recording may meet it again from its start: if it would
/// take at most half of it without noise, the noise it meets is still that of the recording.
pub fn repeats(lanes: &[Composed], noiseless_ps: i64) -> bool {
    let shortest_ns = lanes.iter().map(Composed::span_ns).min().unwrap_or(0);
    noiseless_ps as f64 / 1e3 <= shortest_ns as f64 / 2.0
}

impl Support {
    fn new(watched_ns: u64, lanes: usize, interval_ns: f64) -> Support {
        let intervals = (watched_ns as f64 / interval_ns.max(1.0)) as u64;
        Support { ranks: 1 << intervals.max(2).ilog2().min(40), interval_ns, lanes }
    }

    /// How long to record for so many ranks, in seconds.
    pub fn needed_s(&self, ranks: u64) -> f64 {
        ranks as f64 * self.interval_ns / self.lanes.max(1) as f64 / 1e9
    }

    /// For results with more ranks than are supported.
    pub fn remark(&self, ranks: u64) -> Option<String> {
        (ranks > self.ranks).then(|| {
            format!(
                "the recording supports {} ranks; for {} it needs {} on the same number of CPUs, \
                 because rarer detours are missing",
                words::count(self.ranks),
                words::count(ranks),
                words::time(self.needed_s(ranks) * 1e9)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is recorded supports the ranks it was recorded for.
    #[test]
    fn a_recording_of_the_needed_length_is_long_enough() {
        for (ranks, cpus) in [(1 << 20, 2), (64, 128), (1000, 1), (1 << 30, 256)] {
            for interval in [None, Some(Duration::from_micros(50)), Some(Duration::from_millis(7))]
            {
                let needed = Needed::new(ranks, cpus, interval).unwrap();
                let watched_ns = needed.recorded_s * 1_000_000_000 * cpus as u64;
                let support = Support::new(watched_ns, cpus, needed.interval_us * 1e3);
                assert!(2 * support.ranks > ranks, "{needed:?} {support:?}");
                assert_eq!(support.remark(ranks.next_power_of_two() / 2), None);
                assert!(needed.recorded_s as f64 >= needed.needed_s + 1.0);
            }
        }
        let usual = Needed::new(1 << 20, 2, None).unwrap();
        assert!((usual.interval_us - 1000.0).abs() < 20.0, "{usual:?}");
        assert!(usual.words().contains("on 2 CPUs"), "{}", usual.words());
    }

    #[test]
    fn a_recording_supports_as_many_ranks_as_it_has_intervals() {
        // 2 CPUs for 10 s, 1 ms between synchronisations: 20,000 intervals.
        let support = Support::new(20_000_000_000, 2, 1e6);
        assert_eq!(support.ranks, 16_384);
        assert_eq!(support.needed_s(1 << 20), 524.288);
        assert_eq!(support.remark(16_384), None);
        let remark = support.remark(1 << 20).unwrap_or_default();
        assert!(remark.contains("16384 ranks") && remark.contains("1.05M"), "{remark}");
        assert_eq!(Support::new(0, 1, 1e6).ranks, 2);
        assert!(Support::new(u64::MAX, 4096, 0.0).ranks >= 1 << 40);
    }
}
