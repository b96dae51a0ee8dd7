//! The comparison of two recordings as one self-contained page: the figures of the report, before and after.

use analysis::{Change, Interval, Summary, views::Views};
use askama::Template;
use study::decide::compare::Compared;
use trace::Class;

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE, actions,
    legend::{self, Key},
    plot::escape,
    scatter, shapes,
    tables::{LINES, NAME, ROWS, limited, micro},
};
use crate::{
    actions::title,
    diff::{changed, headline, not_idle_said, notes, projection_said, signed, word},
    words::{capital, cut, percent, rate, safe},
};

/// What the figures of one recording need.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub summary: &'a Summary,
    pub views: &'a Views,
}

#[derive(Template)]
#[template(path = "diff.html")]
struct Page {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    host: String,
    /// That the node was not idle.
    not_idle: Vec<String>,
    /// The verdict, and how many rows changed.
    headline: String,
    counts: String,
    projected: String,
    actions: Option<Vec<actions::Shown>>,
    /// Above them.
    actions_title: Option<String>,
    /// Of both recordings.
    keys: Vec<Key>,
    scatter: Option<[String; 2]>,
    lengths: Option<(String, String)>,
    rows_are: String,
    rows: Vec<Row>,
    /// Whether any row has a unit.
    units: bool,
    hidden: usize,
    notes: Vec<String>,
}

struct Row {
    /// Of the table's row.
    style: &'static str,
    class: &'static str,
    name: String,
    unit: String,
    verdict: &'static str,
    rates: [String; 2],
    times: [String; 2],
    change: [String; 2],
    bar: String,
}

/// The whole page; without the recordings, without figures.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn diff_html(
    compared: &Compared,
    sides: Option<[Side<'_>; 2]>,
) -> Result<String, std::fmt::Error> {
    let comparison = &compared.comparison;
    let mut keys = Vec::new();
    let (mut scatter, mut lengths) = (None, None);
    if let Some([before, after]) = sides {
        let first = legend::keys(&before.views.series, before.summary);
        let mut second = legend::keys(&after.views.series, after.summary);
        legend::matched(&first, &mut second);
        scatter = scatter::draw_both([(before.views, &first), (after.views, &second)]);
        let of = |class: &str, name: &str| Key { class: class.to_owned(), name: name.to_owned() };
        let [old, new] = [of("i0", "before"), of("i1", "after")];
        lengths = shapes::overlay([(&old, &before.views.lengths), (&new, &after.views.lengths)]);
        keys = first;
        for key in second {
            if !keys.iter().any(|known| known.class == key.class) {
                keys.push(key);
            }
        }
    }
    let widest = comparison
        .rows
        .iter()
        .flat_map(|c| [c.time_change_pct.low.abs(), c.time_change_pct.high.abs()])
        .fold(0.0, f64::max);
    let (first, rest): (Vec<&Change>, Vec<&Change>) =
        comparison.rows.iter().partition(|change| changed(change));
    let rows = first.into_iter().chain(rest).take(ROWS);
    let actions = compared.actions.as_ref();
    let said = limited(&headline(comparison));
    let (verdict, counts) = parted(&said);
    let page = Page {
        style: STYLE,
        script: SCRIPT,
        script_sha256: SCRIPT_SHA256,
        host: match comparison.after.host.as_str() {
            "" => "Noise".to_owned(),
            host => cut(&safe(host), NAME),
        },
        not_idle: not_idle_said(compared).map(|text| limited(&text)).collect(),
        headline: micro(verdict),
        counts: micro(&counts),
        projected: micro(&limited(&projection_said(compared))),
        actions: actions.map(|actions| actions.iter().map(actions::shown).collect()),
        actions_title: actions.and_then(|list| list.first()).map(|first| title(first.ranks)),
        keys,
        scatter,
        lengths,
        rows_are: capital(comparison.by.rows()),
        rows: rows.map(|change| row(change, widest)).collect(),
        units: comparison.rows.iter().any(|change| change.unit.is_some()),
        hidden: comparison.rows.len().saturating_sub(ROWS),
        notes: notes(comparison).iter().take(LINES).map(|line| micro(&limited(line))).collect(),
    };
    page.render().map_err(|_| std::fmt::Error)
}

/// The verdict, and everything else: what was compared comes before it, how many rows changed after it.
fn parted(said: &str) -> (&str, String) {
    let begin = said.find("Noise took").unwrap_or(0);
    let end = said[begin..].find(". ").map_or(said.len(), |at| begin + at + 1);
    let rest = [said[..begin].trim(), said[end..].trim()];
    (&said[begin..end], rest.join(" ").trim().to_owned())
}

fn row(change: &Change, widest: f64) -> Row {
    let verdict = word(change.verdict);
    let own = if change.own { " (the recorder itself)" } else { "" };
    let Interval { low, high, .. } = change.time_change_pct;
    // Names come from the recorded node, where any process may choose any name of any length.
    let name = |text: &str| cut(&safe(text), NAME);
    Row {
        style: if changed(change) { verdict } else { "same" },
        class: change.class.map_or("", Class::name),
        name: name(&change.name) + own,
        unit: name(change.unit.as_deref().unwrap_or_default()),
        verdict,
        rates: [&change.before, &change.after].map(|side| rate(side.rate_hz.value)),
        times: [&change.before, &change.after].map(|side| percent(side.time_pct.value)),
        change: [low, high].map(signed),
        bar: bar(&change.time_change_pct, widest),
    }
}

/// The interval on an axis with zero in the middle.
fn bar(interval: &Interval, widest: f64) -> String {
    let (half, height) = (60.0, 14.0);
    let scale = if widest > 0.0 { (half - 2.0) / widest } else { 0.0 };
    let x = |value: f64| half + value * scale;
    let colour = match interval {
        i if i.low > 0.0 => "#cf4a3f",
        i if i.high < 0.0 => "#2da44e",
        _ => "#8c959f",
    };
    let width = ((interval.high - interval.low) * scale).max(2.0);
    format!(
        "<svg width=\"{0}\" height=\"{height}\" role=\"img\" aria-label=\"{1} to {2}\">\
         <line x1=\"{half}\" x2=\"{half}\" y1=\"0\" y2=\"{height}\" stroke=\"#8c959f\"/>\
         <rect x=\"{3:.1}\" y=\"4\" width=\"{width:.1}\" height=\"6\" fill=\"{colour}\"/></svg>",
        2.0 * half,
        escape(&signed(interval.low)),
        escape(&signed(interval.high)),
        x(interval.low),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::{By, Comparison, Recording, Scope, SharesOf, Side, Verdict};

    #[test]
    fn the_verdict_is_the_heading_whatever_comes_before_it() {
        let said = "Compared: only CPU 1. Noise took 1 % (0.5 % to 2 %) before and 2 % after: more. 3 rows.";
        let (verdict, rest) = parted(said);
        assert_eq!(verdict, "Noise took 1 % (0.5 % to 2 %) before and 2 % after: more.");
        assert_eq!(rest, "Compared: only CPU 1. 3 rows.");
        assert_eq!(parted("no sentence"), ("no sentence", String::new()));
    }

    #[test]
    fn a_page_stays_small_whatever_the_recordings_say() {
        let long = "x".repeat(100_000);
        let recording = Recording {
            host: long.clone(),
            kernel: long.clone(),
            started_unix_s: 0.0,
            duration_s: 1.0,
            watched_s: 1.0,
            lanes: 1,
            noise_pct: Interval::default(),
            threshold_ns: None,
            truncated: true,
        };
        let change = Change {
            class: Some(Class::Thread),
            name: long.clone(),
            unit: Some(long.clone()),
            own: false,
            verdict: Verdict::More,
            before: Side::default(),
            after: Side::default(),
            rate_change_hz: Interval::default(),
            time_change_pct: Interval::default(),
        };
        let compared = Compared {
            comparison: Comparison {
                before: Recording { kernel: String::new(), ..recording.clone() },
                after: recording,
                compared: Scope::default(),
                shares_of: SharesOf::CpuTime,
                noise_change_pct: Interval::default(),
                sources: Vec::new(),
                by: By::Process,
                rows: vec![change; 1000],
            },
            projected: None,
            not_projected: Some(long.clone()),
            actions: None,
            load: None,
        };
        let page = diff_html(&compared, None).expect("a page");
        assert!(page.len() < 100_000, "{}", page.len());
        assert!(page.contains("960 more rows") && page.contains("http-equiv"));
    }
}
