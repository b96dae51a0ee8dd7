//! Detours over time, coloured by their largest source.

use analysis::views::Views;

use super::{
    legend::Key,
    plot::{HALF, Plot, WIDE},
    scale::{Scale, Unit},
};
use crate::words::count;

/// Below this number dots are drawn larger.
const FEW: usize = 200;

pub(super) fn draw(views: &Views, keys: &[Key]) -> Option<String> {
    let (x, y) = scales(&[views])?;
    Some(plot("scatter", (WIDE, 400.0), views, keys, x, y))
}

/// Two recordings on the same axes.
pub(super) fn draw_both(sides: [(&Views, &[Key]); 2]) -> Option<[String; 2]> {
    let (x, y) = scales(&sides.map(|(views, _)| views))?;
    let ids = ["scatter-before", "scatter-after"];
    let draw = |side: usize| plot(ids[side], (HALF, 320.0), sides[side].0, sides[side].1, x, y);
    Some([0, 1].map(draw))
}

fn scales(all: &[&Views]) -> Option<(Scale, Scale)> {
    let lengths = all.iter().flat_map(|views| &views.scatter.points).map(|p| p.len_ns as f64);
    let y = Scale::decades(lengths, Unit::Nanoseconds)?;
    let longest = all.iter().map(|views| views.to_ns.saturating_sub(views.from_ns)).max()?;
    Some((Scale::linear(0.0, longest as f64 / 1e9, Unit::Seconds), y))
}

fn plot(
    id: &'static str,
    size: (f64, f64),
    views: &Views,
    keys: &[Key],
    x: Scale,
    y: Scale,
) -> String {
    let points = &views.scatter.points;
    let seconds = |ns: u64| ns.saturating_sub(views.from_ns) as f64 / 1e9;
    let label = "Detours over time: one dot per detour, by length";
    let mut plot = Plot::new(id, label, size, x, y)
        .titles("time since the start of the recording", "length of the detour");
    // A few small dots are easily missed.
    let big = if points.len() < FEW { " big" } else { "" };
    // Unattributed detours first, so that they lie under the attributed ones.
    for (series, key) in keys.iter().enumerate().rev() {
        let own = points.iter().filter(|p| p.series == series);
        let own = own.map(|p| (seconds(p.start_ns), p.len_ns.max(1) as f64));
        plot.dots(&format!("{}{big}", key.class), &key.name, own);
    }
    plot.finish()
}

/// Describes how many dots are shown.
pub(super) fn thinned(views: &Views) -> String {
    let (shown, total) = (views.scatter.points.len() as u64, views.scatter.total());
    if total == 1 {
        return "One detour.".to_owned();
    }
    if shown >= total {
        return format!("All {} are shown.", count(total));
    }
    format!(
        "{} of {} are shown: where dots of one colour overlap, only the longest is kept, so that \
         no maximum is missing.",
        count(shown),
        count(total)
    )
}
