//! The classic noise benchmarks, derived from detours: fixed work quanta (how long the same work
//! takes, repeatedly) and fixed time quanta (how much work fits into the same time).

use thiserror::Error;

use crate::noise::Detours;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuantumError {
    #[error("the quantum must be at least 1 ns")]
    Zero,
    #[error("{quanta} quanta of {quantum_ns} ns exceed {MAX_QUANTA}; use a longer --quantum")]
    TooMany { quanta: u64, quantum_ns: u64 },
}

/// A longer series is most likely a wrong unit.
pub const MAX_QUANTA: u64 = 1 << 28;

/// (start, time taken) of each quantum of work that ends before `to`.
pub fn fixed_work(
    detours: &Detours,
    from: u64,
    to: u64,
    work: u64,
) -> Result<impl Iterator<Item = (u64, u64)> + '_, QuantumError> {
    check(from, to, work)?;
    let mut walk = detours.from(from);
    Ok(std::iter::from_fn(move || {
        let start = walk.now();
        let end = walk.work(work)?;
        (end <= to).then(|| (start, end - start))
    }))
}

/// (start, work done) of each quantum of time.
pub fn fixed_time(
    detours: &Detours,
    from: u64,
    to: u64,
    quantum: u64,
) -> Result<impl Iterator<Item = (u64, u64)> + '_, QuantumError> {
    check(from, to, quantum)?;
    let mut walk = detours.from(from);
    let mut start = from;
    Ok(std::iter::from_fn(move || {
        let end = start.checked_add(quantum)?;
        if end > to {
            return None;
        }
        let quantum = (start, walk.work_until(end));
        start = end;
        Some(quantum)
    }))
}

fn check(from: u64, to: u64, quantum_ns: u64) -> Result<(), QuantumError> {
    if quantum_ns == 0 {
        return Err(QuantumError::Zero);
    }
    let quanta = to.saturating_sub(from) / quantum_ns;
    if quanta > MAX_QUANTA {
        return Err(QuantumError::TooMany { quanta, quantum_ns });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_stretches_the_work_it_hits_and_empties_the_time_it_fills() {
        let detours = Detours::new([(1_500, 1_000)]).unwrap();
        let work: Vec<_> = fixed_work(&detours, 0, 6_000, 1_000).unwrap().collect();
        assert_eq!(
            work,
            [(0, 1_000), (1_000, 2_000), (3_000, 1_000), (4_000, 1_000), (5_000, 1_000)]
        );
        let time: Vec<_> = fixed_time(&detours, 0, 4_000, 1_000).unwrap().collect();
        assert_eq!(time, [(0, 1_000), (1_000, 500), (2_000, 500), (3_000, 1_000)]);
    }

    #[test]
    fn impossible_quanta_are_refused() {
        let detours = Detours::default();
        assert!(fixed_work(&detours, 0, 10, 0).is_err());
        assert!(fixed_time(&detours, 0, u64::MAX, 1).is_err());
    }
}
