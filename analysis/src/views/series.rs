//! The series of the figures, and the series each record belongs to.

use std::collections::HashMap;

use trace::{RowKey, Source, SourceId};

use crate::{OutsideRow, Summary};

/// Sources with their own series. With the others and the unexplained time, that is as many colours as
/// can be distinguished.
const NAMED: usize = 6;

/// One colour of the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Series {
    /// Index into the summary's sources.
    Source(usize),
    /// All other sources; their number.
    Others(usize),
    /// Time that no record explains.
    Outside,
}

/// The most costly sources, the others combined, and unattributed time.
pub(super) fn of(summary: &Summary) -> Vec<Series> {
    let all = summary.sources.len();
    // A single remaining source gets its own series.
    let named = if all == NAMED + 1 { all } else { all.min(NAMED) };
    let mut series: Vec<Series> = (0..named).map(Series::Source).collect();
    if all > named {
        series.push(Series::Others(all - named));
    }
    if summary.outside_kernel.iter().any(|row: &OutsideRow| row.count > 0) {
        series.push(Series::Outside);
    }
    series
}

/// Maps the source of a record to its series.
pub struct SeriesOf {
    by_source: Vec<Option<usize>>,
    outside: Option<usize>,
}

impl SeriesOf {
    #[must_use]
    pub fn new(series: &[Series], summary: &Summary, sources: &[Source]) -> Self {
        let mut named: HashMap<RowKey, usize> = HashMap::new();
        for (index, one) in series.iter().enumerate() {
            if let Series::Source(row) = one
                && let Some(row) = summary.sources.get(*row)
            {
                named.insert(row.row_key(), index);
            }
        }
        let others = series.iter().position(|s| matches!(s, Series::Others(_)));
        let by_source =
            sources.iter().map(|source| named.get(&source.row_key()).copied().or(others)).collect();
        SeriesOf { by_source, outside: series.iter().position(|s| *s == Series::Outside) }
    }

    #[must_use]
    pub fn source(&self, source: SourceId) -> Option<usize> {
        self.by_source.get(source.0 as usize).copied().flatten()
    }

    #[must_use]
    pub fn outside(&self) -> Option<usize> {
        self.outside
    }
}
