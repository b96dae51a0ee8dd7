//! The result of many samples of an all-to-all.

use serde::{Deserialize, Serialize};

use super::schedule::Extent;
use crate::resample::{Distribution, DistributionError, Unit};

/// Times in ps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlltoallResult {
    pub processors: u64,
    pub samples: u64,
    /// Idle time per sample, of every processor.
    pub idle: Distribution,
    /// The same for processor 0 only, as shown in the study.
    pub idle_first: Distribution,
    /// When the last processor finishes.
    pub total: Distribution,
    /// Time in exchanges, over all processors and samples.
    #[serde(with = "as_text")]
    exchanging: i128,
    /// Exchanges per sample, of all processors and on the longest chain.
    ends: u64,
    depth: u64,
}

/// Needs more digits than JSON readers support.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(number: &i128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&number.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i128, D::Error> {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

impl AlltoallResult {
    pub(super) fn new(processors: u64, extent: Extent, unit: Unit) -> AlltoallResult {
        let none = || Distribution::new(unit);
        AlltoallResult {
            processors,
            samples: 0,
            idle: none(),
            idle_first: none(),
            total: none(),
            exchanging: 0,
            ends: extent.ends,
            depth: extent.depth,
        }
    }

    /// Adds one sample: when each processor finished, and how long it was idle.
    pub(super) fn record(
        &mut self,
        each: impl Iterator<Item = (i64, i64)>,
    ) -> Result<(), DistributionError> {
        let mut last = 0;
        for (processor, (done, idle)) in each.enumerate() {
            last = last.max(done);
            self.exchanging += i128::from(done - idle);
            self.idle.record(idle)?;
            if processor == 0 {
                self.idle_first.record(idle)?;
            }
        }
        self.total.record(last)?;
        self.samples += 1;
        Ok(())
    }

    /// Adds other samples of the same configuration.
    pub fn join(&mut self, other: &AlltoallResult) -> Result<(), DistributionError> {
        self.idle.merge(&other.idle)?;
        self.idle_first.merge(&other.idle_first)?;
        self.total.merge(&other.total)?;
        self.samples += other.samples;
        self.exchanging += other.exchanging;
        Ok(())
    }

    /// Mean time of an exchange, interruptions included.
    pub fn exchange_mean(&self) -> f64 {
        let ends = self.samples as f64 * self.ends as f64;
        self.exchanging as f64 / ends.max(1.0)
    }

    /// Throughput over the mean total time, relative to exchanges that all take the mean time: nobody waits
    /// then. 1 for two processors.
    pub fn relative_throughput(&self) -> f64 {
        let total = self.total.sum() * i128::from(self.ends) / i128::from(self.depth.max(1));
        if total == 0 { 1.0 } else { self.exchanging as f64 / total as f64 }
    }
}
