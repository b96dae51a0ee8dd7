//! Detours over time, coloured by what took most of each.

use analysis::views::Views;

use super::{
    legend::Key,
    plot::{Plot, WIDE},
    scale::{Scale, Unit},
};
use crate::words::count;

/// Fewer dots than this are drawn larger.
const FEW: usize = 200;

pub(super) fn draw(views: &Views, keys: &[Key]) -> Option<String> {
    let points = &views.scatter.points;
    let y = Scale::decades(points.iter().map(|p| p.len_ns as f64), Unit::Nanoseconds)?;
    let seconds = |ns: u64| ns.saturating_sub(views.from_ns) as f64 / 1e9;
    let x = Scale::linear(0.0, seconds(views.to_ns), Unit::Seconds);
    let label = "Detours over time: each dot is one, as high as it is long";
    let mut plot = Plot::new("scatter", label, (WIDE, 400.0), x, y)
        .titles("time since the start of the recording", "length of the detour");
    // A few small dots are easily overlooked.
    let big = if points.len() < FEW { " big" } else { "" };
    // What has no name first: it lies under what has one.
    for (series, key) in keys.iter().enumerate().rev() {
        let own = points.iter().filter(|p| p.series == series);
        let own = own.map(|p| (seconds(p.start_ns), p.len_ns.max(1) as f64));
        plot.dots(&format!("{}{big}", key.class), &key.name, own);
    }
    Some(plot.finish())
}

/// What was left out, in words; empty where nothing was.
pub(super) fn thinned(views: &Views) -> String {
    let (shown, total) = (views.scatter.points.len() as u64, views.scatter.total());
    if total == 1 {
        return "There is one.".to_owned();
    }
    if shown >= total {
        return format!("All {} are shown.", count(total));
    }
    format!(
        "{} of {} are shown: of those of one colour that would lie on top of each other only the \
         longest, so that no maximum is missing.",
        count(shown),
        count(total)
    )
}
