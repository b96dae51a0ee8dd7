//! Which sources are told apart in the figures, and to which of them a record belongs.

use std::collections::HashMap;

use trace::{RowKey, Source, SourceId};

use crate::{OutsideRow, Summary};

/// Sources with a series of their own. Together with the rest and the unexplained that is as many as
/// colours can be told apart.
const NAMED: usize = 6;

/// One colour of the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Series {
    /// Index into the summary's sources.
    Source(usize),
    /// All other sources; how many.
    Others(usize),
    /// What no record explains.
    Outside,
}

/// The most costly sources, the others together, and what has no name.
pub(super) fn of(summary: &Summary) -> Vec<Series> {
    let all = summary.sources.len();
    // A rest of one may as well be named.
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

/// From the source of a record to its series.
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
