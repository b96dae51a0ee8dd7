//! What a person would notice when comparing two distributions: modes that are gone, new, moved, or of another
//! share, and quantiles that have shifted.

use super::{ChangeKind, Distribution, Finding, FoundMode, Shift};

/// A mode is gone if less than this part of its share is left in its core.
const GONE: f64 = 1.0 / 3.0;
/// A smaller change of a share, as a factor and in points, is not worth a sentence.
const SHARE_FACTOR: f64 = 1.2;
const SHARE_POINTS: f64 = 0.01;
/// A mode that moved by less than this part of its place has stayed.
const MOVED: f64 = 0.01;

/// The most important first: modes by the share concerned, then quantiles.
pub(super) fn findings(
    first: &Distribution,
    second: &Distribution,
    quantiles: &[Shift],
) -> Vec<Finding> {
    let mut modes = of_modes(first, second);
    modes.sort_by(|a, b| concerned(b).total_cmp(&concerned(a)));
    modes.extend(of_quantiles(quantiles));
    modes
}

fn concerned(finding: &Finding) -> f64 {
    finding.shares.map_or(0.0, |[first, second]| match finding.change {
        ChangeKind::ModeMoved => first.min(second),
        _ => (first - second).abs(),
    })
}

/// The median, or the quantile that differs nearest to it, and the furthest into the tail that differs.
fn of_quantiles(quantiles: &[Shift]) -> Vec<Finding> {
    let differ: Vec<&Shift> = quantiles.iter().filter(|shift| shift.differs).collect();
    let middle =
        differ.iter().min_by(|a, b| (a.p - 0.5).abs().total_cmp(&(b.p - 0.5).abs())).copied();
    let last = differ.last().copied().filter(|last| last.p > 0.9);
    let mut said: Vec<&Shift> = middle.into_iter().chain(last).collect();
    said.dedup_by(|a, b| a.p == b.p);
    let finding = |shift: &Shift| Finding {
        change: ChangeKind::Quantile,
        at: shift.first,
        to: Some(shift.second),
        shares: None,
        p: Some(shift.p),
        ci95: Some(shift.ci95),
    };
    said.into_iter().map(finding).collect()
}

fn of_modes(first: &Distribution, second: &Distribution) -> Vec<Finding> {
    let pairs = matched(&first.modes, &second.modes);
    let finding = |change, at, to, shares| Finding {
        change,
        at,
        to,
        shares: Some(shares),
        p: None,
        ci95: None,
    };
    let mut findings = Vec::new();
    for (number, mode) in first.modes.iter().enumerate() {
        let Some(&(_, other)) = pairs.iter().find(|(of_first, _)| *of_first == number) else {
            let left = left_in_core(mode, second);
            let change = if left < GONE { ChangeKind::ModeGone } else { ChangeKind::ModeMerged };
            findings.push(finding(change, mode.at, None, [mode.share, mode.share * left]));
            continue;
        };
        let other = &second.modes[other];
        let apart = mode.ci95[1] < other.ci95[0] || other.ci95[1] < mode.ci95[0];
        let far = (other.at - mode.at).abs() >= MOVED * mode.at.abs();
        let shares = [mode.share, other.share];
        if apart && far {
            findings.push(finding(ChangeKind::ModeMoved, mode.at, Some(other.at), shares));
        }
        let apart =
            mode.share_ci95[1] < other.share_ci95[0] || other.share_ci95[1] < mode.share_ci95[0];
        let factor = mode.share.max(other.share) / mode.share.min(other.share).max(1e-9);
        let points = (mode.share - other.share).abs();
        // Of a single mode, the share is always all.
        if apart && factor >= SHARE_FACTOR && points >= SHARE_POINTS {
            findings.push(finding(ChangeKind::ModeShare, mode.at, Some(other.at), shares));
        }
    }
    for (number, mode) in second.modes.iter().enumerate() {
        if pairs.iter().all(|(_, of_second)| *of_second != number) {
            let before = left_in_core(mode, first);
            // Those that a mode of the first was divided into are not news of their own.
            if before < GONE {
                let shares = [mode.share * before, mode.share];
                findings.push(finding(ChangeKind::ModeNew, mode.at, None, shares));
            }
        }
    }
    findings
}

/// The samples of another distribution in the core of a mode, compared with the mode's own half.
fn left_in_core(mode: &FoundMode, other: &Distribution) -> f64 {
    let [low, high] = mode.core.map(|us| us * 1e6);
    let wide = (high - low).max(1.0);
    let inside = other.sample.below(high + 0.01 * wide) - other.sample.below(low - 0.01 * wide);
    inside / other.n as f64 / (mode.share / 2.0)
}

/// Modes of both that are the same: each with its nearest, if they are not further apart than they are wide.
fn matched(first: &[FoundMode], second: &[FoundMode]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (a, mode) in first.iter().enumerate() {
        for (b, other) in second.iter().enumerate() {
            let wide = |mode: &FoundMode| mode.core[1] - mode.core[0];
            let reach = (1.5 * wide(mode).max(wide(other))).max(0.03 * mode.at.abs());
            let distance = (mode.at - other.at).abs();
            if distance <= reach {
                pairs.push((distance, a, b));
            }
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut matched: Vec<(usize, usize)> = Vec::new();
    for (_, a, b) in pairs {
        if matched.iter().all(|&(of_first, of_second)| of_first != a && of_second != b) {
            matched.push((a, b));
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use distribution::{normal, sketch::Sample};

    use super::{
        super::{Comparison, Request, Unit, compare, distribution, input::Named},
        *,
    };

    /// Share, place and standard deviation of the parts, us.
    type Parts = &'static [(f64, f64, f64)];
    const PAPER: Parts = &[(0.6, 4.6, 0.1), (0.3, 5.7, 0.2), (0.1, 7.5, 0.25)];

    fn made(key: u64, n: u64, parts: Parts, shift: f64) -> Distribution {
        let value = |i| {
            let mut unit = (random::draw(key, i) >> 11) as f64 / (1u64 << 53) as f64;
            let z = normal(random::draw(key + 1_000, i));
            let part = parts.iter().find(|(share, ..)| {
                unit -= share;
                unit < 0.0
            });
            let (_, at, sd) = part.copied().unwrap_or(parts[0]);
            ((at + shift + sd * z) * 1e6).round() as i64
        };
        let sample = Sample::of_values(&(0..n).map(value).collect::<Vec<_>>(), 1).unwrap();
        let named =
            Named { name: key.to_string(), part: None, of: "samples", sample, remarks: Vec::new() };
        let request = Request {
            files: Vec::new(),
            unit: Unit::Microseconds,
            bins: None,
            by_source: false,
            sources: Vec::new(),
        };
        distribution(named, &request, 1).unwrap()
    }

    fn found(first: (Parts, f64), second: (Parts, f64)) -> Comparison {
        let (a, b) = (made(1, 20_000, first.0, first.1), made(2, 20_000, second.0, second.1));
        compare(&a, &b, 1)
    }

    fn of_kind(comparison: &Comparison, change: ChangeKind) -> Vec<Finding> {
        let all = comparison.findings.iter().copied();
        all.filter(|finding| finding.change == change).collect()
    }

    #[test]
    fn a_mode_that_is_gone_or_new_is_found_with_its_share() {
        const WITHOUT: Parts = &[(0.857, 4.6, 0.1), (0.143, 7.5, 0.25)];
        let gone = found((PAPER, 0.0), (WITHOUT, 0.0));
        let [mode] = of_kind(&gone, ChangeKind::ModeGone)[..] else { panic!("{gone:?}") };
        assert!((mode.at - 5.7).abs() < 0.1 && (mode.shares.unwrap()[0] - 0.3).abs() < 0.02);
        assert_eq!(gone.findings[0].change, ChangeKind::ModeGone, "the most important is first");
        let new = found((WITHOUT, 0.0), (PAPER, 0.0));
        let [mode] = of_kind(&new, ChangeKind::ModeNew)[..] else { panic!("{new:?}") };
        assert!((mode.at - 5.7).abs() < 0.1 && (mode.shares.unwrap()[1] - 0.3).abs() < 0.02);
        assert!(of_kind(&new, ChangeKind::ModeGone).is_empty());
    }

    #[test]
    fn a_shift_moves_the_modes_and_the_median() {
        let moved = found((PAPER, 0.0), (PAPER, 0.15));
        assert_eq!(of_kind(&moved, ChangeKind::ModeMoved).len(), 3, "{moved:?}");
        assert!(of_kind(&moved, ChangeKind::ModeGone).is_empty(), "{moved:?}");
        let quantiles = of_kind(&moved, ChangeKind::Quantile);
        let median = quantiles.iter().find(|finding| finding.p == Some(0.5)).unwrap();
        let [low, high] = median.ci95.unwrap();
        assert!((low..=high).contains(&0.15), "{median:?}");
        const ONE: Parts = &[(1.0, 5.0, 0.5)];
        let rose = found((ONE, 0.0), (ONE, 0.4));
        let [low, high] = of_kind(&rose, ChangeKind::Quantile)[0].ci95.unwrap();
        assert!(low > 0.35 && high < 0.45, "{rose:?}");
    }

    #[test]
    fn a_mode_that_grew_says_so() {
        const MORE: Parts = &[(0.3, 4.6, 0.1), (0.6, 5.7, 0.2), (0.1, 7.5, 0.25)];
        let grew = found((PAPER, 0.0), (MORE, 0.0));
        let shares: Vec<[f64; 2]> =
            of_kind(&grew, ChangeKind::ModeShare).iter().map(|f| f.shares.unwrap()).collect();
        assert_eq!(shares.len(), 2, "{grew:?}");
        assert!(shares.iter().any(|[before, after]| *before < 0.35 && *after > 0.55));
    }

    #[test]
    fn modes_that_merge_are_not_gone() {
        const WIDE: Parts = &[(0.6, 4.6, 0.45), (0.4, 5.3, 0.5)];
        const APART: Parts = &[(0.6, 4.6, 0.1), (0.4, 5.3, 0.12)];
        let merged = found((APART, 0.0), (WIDE, 0.0));
        assert!(of_kind(&merged, ChangeKind::ModeGone).is_empty(), "{merged:?}");
        assert_eq!(of_kind(&merged, ChangeKind::ModeMerged).len(), 1, "{merged:?}");
    }

    #[test]
    fn equal_distributions_have_no_findings() {
        let differ = (0..10u64).filter(|key| {
            let pair =
                [made(10 + 2 * key, 5_000, PAPER, 0.0), made(11 + 2 * key, 5_000, PAPER, 0.0)];
            !compare(&pair[0], &pair[1], 1).findings.is_empty()
        });
        assert!(differ.count() <= 1);
    }
}
