//! The spectra of the sources, labelled with the periods that passed the test.

use analysis::{Summary, views::Views};

use super::{
    legend::Key,
    plot::{Margins, Plot, WIDE, coordinate, escape},
    scale::{Scale, Unit},
};
use crate::headline::label;
use crate::words::cut;

/// Labels at most; those of the most costly sources.
const NAMES: usize = 14;
/// Rows of labels above the figure, and the height of one.
const ROWS: usize = 9;
const ROW: f64 = 16.0;
/// Lower power is clamped.
const FLOOR: f64 = 1e-5;
/// Approximate width of a character of a label.
const CHARACTER: f64 = 6.4;

struct Peak {
    hertz: f64,
    class: String,
    text: String,
}

/// The figure, and a note on what it does not show.
pub(super) struct Spectrum {
    pub(super) svg: String,
    pub(super) note: Option<String>,
}

/// Unattributed lines of at least this power (1: all in phase) are worth showing.
const STRONG: f64 = 0.1;

/// The figure, or why there is none.
pub(super) fn draw(
    views: &Views,
    summary: &Summary,
    keys: &[Key],
) -> Result<Spectrum, &'static str> {
    let regular = summary.sources.iter().any(|source| source.period_ns.is_some());
    // Unattributed time is not tested for periods: judge it by its lines.
    let unnamed = |series: usize| keys.get(series).is_some_and(|key| key.class == "su");
    let mut unnamed = views.spectra.iter().filter(|s| unnamed(s.series));
    let strong = unnamed.any(|s| s.lines.iter().any(|line| line.1 >= STRONG));
    match figure(views, summary, keys) {
        None => Err("No source occurred often enough for a spectrum."),
        Some(_) if !regular && !strong => {
            Err("No periodic source: none of those with enough events passed the period test.")
        }
        Some((svg, 0)) if !regular => {
            let note = "None did: the periodic noise here is not attributed.".to_owned();
            Ok(Spectrum { svg, note: Some(note) })
        }
        Some((svg, unnamed)) => {
            let words = "more periodic sources, of lower cost, are only in the table.";
            Ok(Spectrum { svg, note: (unnamed > 0).then(|| format!("{unnamed} {words}")) })
        }
    }
}

/// The figure, and the number of periodic sources without a label.
fn figure(views: &Views, summary: &Summary, keys: &[Key]) -> Option<(String, usize)> {
    let spectra: Vec<_> = views.spectra.iter().filter(|s| s.lines.len() > 1).collect();
    let lines = || spectra.iter().flat_map(|s| s.lines.iter());
    let lowest = lines().map(|l| l.0).fold(f64::INFINITY, f64::min);
    let highest = lines().map(|l| l.0).fold(0.0, f64::max);
    if highest <= 0.0 {
        return None;
    }
    let mut peaks: Vec<Peak> = summary
        .sources
        .iter()
        .enumerate()
        .filter_map(|(row, source)| {
            let hertz = 1e9 / source.period_ns.filter(|&ns| ns > 0)? as f64;
            let own = format!("s{row}");
            let class = if keys.iter().any(|k| k.class == own) { own } else { "so".to_owned() };
            let text = format!("{} {}", cut(&label(source), 22), Unit::Hertz.write(hertz));
            (lowest..=highest).contains(&hertz).then_some(Peak { hertz, class, text })
        })
        .collect();
    let mut unnamed = peaks.len().saturating_sub(NAMES);
    peaks.truncate(NAMES);
    peaks.sort_by(|a, b| a.hertz.total_cmp(&b.hertz));

    let power = lines().map(|l| l.1.max(FLOOR));
    let y = Scale::decades(power.chain([1.0]), Unit::Plain)?;
    let x = Scale::log(lowest, highest, Unit::Hertz);
    // Labels in rows above the figure, each beside or above those it would overlap.
    let usual = Margins::default();
    let place = |hertz: f64| usual.left + x.place(hertz) * (WIDE - usual.left - usual.right);
    let mut ends = [f64::NEG_INFINITY; ROWS];
    let mut named: Vec<(&Peak, f64, usize)> = Vec::new();
    for peak in &peaks {
        let width = CHARACTER * peak.text.chars().count() as f64;
        let left = (place(peak.hertz) - width / 2.0).clamp(4.0, WIDE - width - 4.0);
        match ends.iter().position(|end| *end + 8.0 < left) {
            Some(row) => {
                ends[row] = left + width;
                named.push((peak, left, row));
            }
            None => unnamed += 1,
        }
    }
    let rows = named.iter().map(|(_, _, row)| row + 1).max().unwrap_or(0);
    let above = ROW * rows as f64;
    let margins = Margins { top: 12.0 + above, ..usual };
    let mut plot = Plot::new("spectrum", "Spectrum of each source", (WIDE, 320.0 + above), x, y)
        .margins(margins)
        .titles("frequency", "power (1 = all in phase)");
    for spectrum in spectra.iter().rev() {
        let Some(key) = keys.get(spectrum.series) else { continue };
        let lines: Vec<_> = spectrum.lines.iter().map(|&(f, p)| (f, p.max(FLOOR))).collect();
        plot.line(&key.class, &key.name, &lines);
    }
    for (peak, left, row) in named {
        let y = plot.top() - 8.0 - ROW * row as f64;
        let (mark, from) = (coordinate(plot.at_x(peak.hertz)), coordinate(y + 3.0));
        let to = coordinate(plot.bottom());
        let (class, text) = (&peak.class, escape(&peak.text));
        plot.over(&format!(
            concat!(
                r#"<g class="peak {}"><path d="M{} {}V{}"/>"#,
                r#"<text x="{}" y="{}">{}</text></g>"#
            ),
            class,
            mark,
            from,
            to,
            coordinate(left),
            coordinate(y),
            text,
        ));
    }
    Some((plot.finish(), unnamed))
}
