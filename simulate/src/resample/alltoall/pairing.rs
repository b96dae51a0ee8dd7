//! The pairing of processors: the tournament of the SP2 study's Figure 2. With m the largest odd
//! number not above P, step i pairs j with (2 i - j) mod m: i + 1 with i - 1, i + 2 with i - 2, and so
//! on. Processor i itself meets the last one if P is even, and sits out if it is odd. After m steps
//! all have met each other.

/// Steps of an all-to-all; 0 for fewer than two processors.
pub fn steps(processors: u64) -> u64 {
    match processors {
        0 | 1 => 0,
        even if even % 2 == 0 => even - 1,
        odd => odd,
    }
}

/// A processor's partner in a step; None if it sits out, or if there is no such step or processor.
pub fn partner(processors: u64, step: u64, processor: u64) -> Option<u64> {
    let m = steps(processors);
    if step >= m || processor >= processors {
        return None;
    }
    if processor == m {
        return Some(step);
    }
    if processor == step {
        return (m < processors).then_some(m);
    }
    Some((m + 2 * step - processor) % m)
}

/// Calls `meet(number, one, other)` for every exchange, step by step. The number identifies the
/// exchange: its random draw depends on nothing else.
#[inline(always)]
pub(super) fn exchanges<E>(
    processors: usize,
    mut meet: impl FnMut(u64, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let m = steps(processors as u64) as usize;
    let pairs = processors.div_ceil(2) as u64;
    for step in 0..m {
        let mut number = step as u64 * pairs;
        if m < processors {
            meet(number, step, m)?;
        }
        // The two opposite runs wrap at different times, each at most once.
        let (mut up, mut down) = (step, step);
        for _ in 0..(m - 1) / 2 {
            number += 1;
            up = if up + 1 == m { 0 } else { up + 1 };
            down = if down == 0 { m - 1 } else { down - 1 };
            meet(number, up, down)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn six_processors_meet_as_in_the_study() {
        let expected = [
            [(0, 5), (1, 4), (2, 3)],
            [(1, 5), (2, 0), (3, 4)],
            [(2, 5), (3, 1), (4, 0)],
            [(3, 5), (4, 2), (0, 1)],
            [(4, 5), (0, 3), (1, 2)],
        ];
        for (step, pairs) in (0..).zip(expected) {
            for (one, other) in pairs {
                assert_eq!(partner(6, step, one), Some(other));
                assert_eq!(partner(6, step, other), Some(one));
            }
        }
        assert_eq!((steps(6), partner(6, 5, 0), partner(6, 0, 6)), (5, None, None));
    }

    #[test]
    fn everybody_meets_everybody_once_and_nobody_twice_in_a_step() {
        for processors in 2..40u64 {
            let mut met = BTreeSet::new();
            let mut numbers = BTreeSet::new();
            let mut order = Vec::new();
            exchanges(processors as usize, |number, one, other| {
                assert!(one != other && met.insert((one.min(other), one.max(other))));
                assert!(numbers.insert(number));
                order.push((number / processors.div_ceil(2), one as u64, other as u64));
                Ok::<_, ()>(())
            })
            .unwrap();
            assert_eq!(met.len() as u64, processors * (processors - 1) / 2);
            for &(step, one, other) in &order {
                assert_eq!(partner(processors, step, one), Some(other));
                assert_eq!(partner(processors, step, other), Some(one));
            }
            for step in 0..steps(processors) {
                let busy = order.iter().filter(|exchange| exchange.0 == step).count() as u64;
                assert_eq!(busy, processors / 2);
                let out = (0..processors).filter(|&p| partner(processors, step, p).is_none());
                assert_eq!(out.count() as u64, processors % 2);
            }
        }
    }
}
