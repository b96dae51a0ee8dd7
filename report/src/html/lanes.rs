//! The timeline of a small run: a lane for each rank, in each part of which colours take the share of the
//! time that they stand for.

use std::fmt::Write;

use program::{Timeline, TimelineLane};
use study::explain::traced::{DrawnHit, DrawnSegment};

use super::{
    plot::{coordinate, escape},
    rows::Rows,
    scale::{Scale, Unit, time},
};
use crate::traced::source_on;

/// Steps in which a share is drawn.
const STEPS: u64 = 20;

/// Colours, from the bottom of a lane.
const KINDS: [(&str, &str); 5] = [
    ("t0", "waiting"),
    ("t1", "point-to-point"),
    ("t2", "completing requests"),
    ("t3", "collective"),
    ("t4", "other MPI"),
];

fn sums(lane: &TimelineLane) -> [&[u64]; 5] {
    [
        &lane.waiting_ns,
        &lane.point_to_point_ns,
        &lane.completing_ns,
        &lane.collective_ns,
        &lane.other_ns,
    ]
}

/// The parts in which a rank ran: before it began and after it ended there is nothing.
fn extent(lane: &TimelineLane, part_ns: u64) -> (u64, u64) {
    let parts = lane.waiting_ns.len() as u64;
    let begin = (lane.begin_ns / part_ns.max(1)).min(parts.saturating_sub(1));
    (begin, lane.end_ns.div_ceil(part_ns.max(1)).clamp(begin, parts))
}

/// The outlines of one lane, in parts across and steps down, one for each kind.
fn outlines(lane: &TimelineLane, part_ns: u64) -> [String; 5] {
    let whole = part_ns.saturating_mul(u64::from(lane.threads)).max(1);
    let sums = sums(lane);
    let parts = lane.waiting_ns.len();
    // The steps at which a kind begins and ends in a part.
    let steps = |kind: usize, part: usize| {
        let below = |kinds: usize| {
            let sum = sums.iter().take(kinds).filter_map(|sum| sum.get(part));
            let sum = sum.fold(0u64, |all, ns| all.saturating_add(*ns)).min(whole);
            (sum as f64 / whole as f64 * STEPS as f64).round() as u64
        };
        (below(kind), below(kind + 1))
    };
    std::array::from_fn(|kind| {
        let mut path = String::new();
        let mut part = 0;
        while part < parts {
            let (from, to) = steps(kind, part);
            let mut end = part + 1;
            while end < parts && steps(kind, end) == (from, to) {
                end += 1;
            }
            if to > from {
                let (wide, high) = (end - part, to - from);
                let _ = write!(path, "M{part} {}h{wide}v-{high}h-{wide}z", STEPS - from);
            }
            part = end;
        }
        path
    })
}

/// What is marked on the lanes.
pub(super) struct Marks<'a> {
    pub(super) path: &'a [DrawnSegment],
    pub(super) hits: &'a [DrawnHit],
}

/// Steps that the critical path takes at the top of a lane.
const PATH: u64 = 3;

impl Marks<'_> {
    /// The critical path as a bar, and hits over the whole height, in parts across and steps down.
    fn on(&self, lane: &TimelineLane, part_ns: u64) -> String {
        let parts = lane.waiting_ns.len();
        let part_ns = part_ns.max(1);
        let mut covered = vec![false; parts];
        for segment in self.path.iter().filter(|segment| segment.rank == lane.rank) {
            let first = (segment.from_ns / part_ns) as usize;
            let end = (segment.to_ns.div_ceil(part_ns) as usize).min(parts);
            covered.get_mut(first..end).unwrap_or_default().fill(true);
        }
        let mut outline = String::new();
        let mut part = 0;
        for run in covered.chunk_by(|a, b| a == b) {
            if run.first() == Some(&true) {
                let wide = run.len();
                let _ = write!(outline, "M{part} 0h{wide}v{PATH}h-{wide}z");
            }
            part += run.len();
        }
        let mut marks = match outline.is_empty() {
            true => String::new(),
            false => format!(
                r#"<path class="crit" data-tip="rank {}: on the critical path" d="{outline}"/>"#,
                lane.rank
            ),
        };
        for hit in self.hits.iter().filter(|hit| hit.rank == lane.rank) {
            let place = |ns: u64| ns as f64 / part_ns as f64;
            let long = hit.to_ns.saturating_sub(hit.from_ns);
            let tip = escape(&format!(
                "rank {}: {}, {} at {}",
                hit.rank,
                source_on(&hit.source),
                time(long as f64),
                time(hit.from_ns as f64)
            ));
            let _ = write!(
                marks,
                r#"<rect class="late" data-tip="{tip}" x="{:.2}" y="0" width="{:.2}" height="{STEPS}"/>"#,
                place(hit.from_ns),
                // Wide enough to be seen.
                place(long).max(1.0)
            );
        }
        marks
    }
}

pub(super) fn draw(timeline: &Timeline, marked: Option<&Marks<'_>>) -> String {
    let lanes = &timeline.lanes;
    let parts = lanes.iter().map(|lane| lane.waiting_ns.len()).max().unwrap_or(1).max(1);
    let high = (400.0 / lanes.len().max(1) as f64).clamp(14.0, 44.0);
    let seconds = parts as f64 * timeline.part_ns as f64 / 1e9;
    let figure = Rows {
        id: "timeline",
        label: "What each rank did over time",
        title: "time since the start of the run",
        x: Scale::linear(0.0, seconds, Unit::Seconds),
        tick: 62.0,
        left: 76.0,
        top: 12.0,
        high,
        rows: lanes.len(),
    };
    let mut marks = String::new();
    for (index, lane) in lanes.iter().enumerate() {
        let whole = lane.end_ns.saturating_sub(lane.begin_ns) as f64 * f64::from(lane.threads);
        let said = |name: &str, ns: f64| {
            let share = Unit::Share.write(ns / whole.max(1.0));
            format!("rank {}, {name}: {} in total, {share}", lane.rank, time(ns))
        };
        let sums = sums(lane).map(|sum| sum.iter().map(|ns| *ns as f64).sum::<f64>());
        let outside = (whole - sums.iter().sum::<f64>()).max(0.0);
        let (begin, end) = extent(lane, timeline.part_ns);
        let _ = write!(
            marks,
            concat!(
                r#"<g transform="translate({left} {y}) scale({across:e} {down:e})">"#,
                r#"<path class="lane" data-tip="{tip}" d="M{begin} 0h{long}v{steps}h-{long}z"/>"#
            ),
            left = figure.left,
            y = coordinate(figure.y(index) + 1.0),
            across = figure.width() / parts as f64,
            down = (high - 2.0) / STEPS as f64,
            tip = said("outside of MPI", outside),
            begin = begin,
            long = end - begin,
            steps = STEPS,
        );
        let paths = outlines(lane, timeline.part_ns);
        for (((class, name), path), sum) in KINDS.iter().zip(&paths).zip(sums) {
            if !path.is_empty() {
                let tip = said(name, sum);
                let _ = write!(marks, r#"<path class="{class}" data-tip="{tip}" d="{path}"/>"#);
            }
        }
        if let Some(marked) = marked {
            marks.push_str(&marked.on(lane, timeline.part_ns));
        }
        marks.push_str("</g>");
    }
    let labels: Vec<String> = lanes.iter().map(|lane| format!("rank {}", lane.rank)).collect();
    figure.draw(&labels, &marks, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_filled_by_what_was_done_in_it() {
        let lane = TimelineLane {
            rank: 0,
            threads: 1,
            begin_ns: 0,
            end_ns: 300,
            point_to_point_ns: vec![50, 0, 0],
            completing_ns: vec![0, 0, 30],
            collective_ns: vec![0, 0, 0],
            other_ns: vec![0, 70, 70],
            waiting_ns: vec![25, 0, 0],
        };
        let [waiting, point, completing, collective, other] = outlines(&lane, 100);
        // A quarter from the bottom, then a half; two equal parts are one outline.
        assert_eq!(waiting, "M0 20h1v-5h-1z");
        assert_eq!(point, "M0 15h1v-10h-1z");
        assert_eq!(collective, "");
        assert_eq!(completing, "M2 20h1v-6h-1z");
        assert_eq!(other, "M1 20h1v-14h-1zM2 14h1v-14h-1z");
    }

    #[test]
    fn a_rank_has_a_lane_only_while_it_ran() {
        let lane = |rank, begin_ns, end_ns| TimelineLane {
            rank,
            threads: 1,
            begin_ns,
            end_ns,
            point_to_point_ns: vec![0; 10],
            completing_ns: vec![0; 10],
            collective_ns: vec![0; 10],
            other_ns: vec![0; 10],
            waiting_ns: vec![0, 0, 0, 50, 0, 0, 0, 0, 0, 0],
        };
        let lanes =
            vec![lane(0, 0, 1_000), lane(1, 250, 450), lane(2, 0, 0), lane(3, 5_000, 5_100)];
        let svg = draw(&Timeline { part_ns: 100, lanes }, None).replace('\u{a0}', " ");
        assert!(svg.contains(r#"d="M0 0h10v20h-10z""#) && svg.contains(r#"d="M2 0h3v20h-3z""#));
        // Half of a part is a twentieth of the run, and a quarter of what the killed rank has of it.
        assert!(svg.contains("rank 0, waiting: 50 ns in total, 5 %"), "{svg}");
        assert!(svg.contains("rank 1, waiting: 50 ns in total, 25 %"), "{svg}");
    }

    #[test]
    fn a_page_of_the_longest_timeline_stays_small() {
        let alternating = |on: u64| (0..4096u64).map(|part| part % 2 * on).collect::<Vec<u64>>();
        let lane = |rank| TimelineLane {
            rank,
            threads: 1,
            begin_ns: 0,
            end_ns: 4_096_000,
            point_to_point_ns: alternating(300),
            completing_ns: alternating(0),
            collective_ns: alternating(200),
            other_ns: alternating(100),
            waiting_ns: alternating(400),
        };
        let svg = draw(&Timeline { part_ns: 1000, lanes: (0..4).map(lane).collect() }, None);
        assert!(svg.len() < 1_500_000, "{}", svg.len());
    }
}
