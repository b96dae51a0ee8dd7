//! The comparison of two recordings as one self-contained page without scripts.

use analysis::{Change, Interval};
use study::compare::Compared;
use trace::Class;

use super::{
    plot::escape,
    tables::{LINES, NAME, ROWS, limited},
};
use crate::{
    diff::{changed, headline, notes, projection_said, signed, word},
    words::{capital, cut, percent, plural, rate, safe},
};

/// As on the report's page, without a script.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #d8dee4}\
th{font-weight:600}td.n,th.n{text-align:right}td.n,td.v{white-space:nowrap}\
tr.more td.v,tr.appeared td.v{color:#b3261e}tr.less td.v,tr.vanished td.v{color:#116329}\
tr.same{color:#6e7781}small{color:#57606a}\
svg{display:block}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}\
th,td{border-color:#30363d}tr.same,small{color:#8b949e}\
tr.more td.v,tr.appeared td.v{color:#ff7b72}tr.less td.v,tr.vanished td.v{color:#56d364}}";

/// The whole page.
#[must_use]
pub fn diff_html(compared: &Compared) -> String {
    let comparison = &compared.comparison;
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page += &format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">");
    page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">";
    page += &format!("<title>detour diff</title><style>{STYLE}</style></head><body>\n");
    page += &format!(
        "<h1>{} before and after</h1>\n<p>{}</p>\n",
        match comparison.after.host.as_str() {
            "" => "Noise".to_owned(),
            host => name(host),
        },
        sentence(&headline(comparison))
    );
    page += &format!("<p>{}</p>\n", sentence(&projection_said(compared)));
    page += &format!("<h2>{} by change in time</h2>\n", capital(comparison.by.rows()));
    page += "<table>\n<tr><th>class</th><th>name</th>\
             <th>unit</th><th>verdict</th><th class=n>/s before</th><th class=n>/s after</th>\
             <th class=n>time before</th><th class=n>time after</th>\
             <th class=n>time change, 95&nbsp;%</th><th></th></tr>\n";
    let widest = comparison
        .rows
        .iter()
        .flat_map(|c| [c.time_change_pct.low.abs(), c.time_change_pct.high.abs()])
        .fold(0.0, f64::max);
    let (first, rest): (Vec<&Change>, Vec<&Change>) =
        comparison.rows.iter().partition(|change| changed(change));
    for change in first.into_iter().chain(rest).take(ROWS) {
        page += &row(change, widest);
    }
    page += "</table>\n";
    let hidden = comparison.rows.len().saturating_sub(ROWS);
    if hidden > 0 {
        let more = plural(hidden as u64, "more row");
        page += &format!("<p>{more}: <code>detour diff --all</code> lists them.</p>\n");
    }
    for line in notes(comparison).iter().take(LINES) {
        page += &format!("<p><small>{}</small></p>\n", sentence(line));
    }
    page + "</body></html>\n"
}

fn row(change: &Change, widest: f64) -> String {
    let verdict = word(change.verdict);
    let class = if changed(change) { verdict } else { "same" };
    let own = if change.own { " (the recorder itself)" } else { "" };
    let Interval { low, high, .. } = change.time_change_pct;
    format!(
        "<tr class=\"{class}\"><td>{}</td><td>{}{own}</td><td>{}</td><td class=v>{verdict}</td>\
         <td class=n>{}</td><td class=n>{}</td><td class=n>{}</td><td class=n>{}</td>\
         <td class=n>{} to {}</td><td>{}</td></tr>\n",
        change.class.map_or("", Class::name),
        name(&change.name),
        name(change.unit.as_deref().unwrap_or_default()),
        escape(&rate(change.before.rate_hz.value)),
        escape(&rate(change.after.rate_hz.value)),
        escape(&percent(change.before.time_pct.value)),
        escape(&percent(change.after.time_pct.value)),
        escape(&signed(low)),
        escape(&signed(high)),
        bar(&change.time_change_pct, widest),
    )
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

/// Names come from the recorded node, where any process may choose any name of any length.
fn name(text: &str) -> String {
    escape(&cut(&safe(text), NAME))
}

fn sentence(text: &str) -> String {
    escape(&limited(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::{By, Comparison, Recording, Scope, SharesOf, Side, Verdict};

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
        let page = diff_html(&Compared {
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
        });
        assert!(page.len() < 100_000, "{}", page.len());
        assert!(page.contains("960 more rows") && page.contains("http-equiv"));
    }
}
