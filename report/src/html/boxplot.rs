//! A box of a box plot.

use study::run::point::Point;

use super::{
    legend::Key,
    plot::{Plot, coordinate, escape},
    scale::{US, ranks, short, us},
};

/// A box with whiskers and outliers, or only the longest run.
pub(super) fn one(plot: &mut Plot, point: &Point, key: Option<&Key>, x: f64, half: f64) {
    let y = |us: f64| coordinate(plot.at_y(us * US));
    let (l, r, c) = (coordinate(x - half), coordinate(x + half), coordinate(x));
    let dots = |us: &[f64]| us.iter().map(|&us| format!("M{c} {}h0", y(us))).collect::<String>();
    let (name, class, (beyond, dots)) = match key {
        Some(key) => {
            (format!("{}: ", key.name), key.class.as_str(), ("outliers", dots(&point.outliers_us)))
        }
        None => (String::new(), "", ("max", dots(&[point.max_us]))),
    };
    let tip = format!(
        "{name}{} ranks, {} runs: median {} (95 %: {} to {}), quartiles {} and {}, longest {}; noiseless \
         {}; slowdown {}×",
        ranks(point.ranks),
        point.runs,
        us(point.median_us),
        us(point.median_ci95_us[0]),
        us(point.median_ci95_us[1]),
        us(point.q25_us),
        us(point.q75_us),
        us(point.max_us),
        us(point.noiseless_us),
        short(point.slowdown_median)
    );
    let mark = format!(
        concat!(
            r#"<g class="box" data-tip="{tip}"><title>{tip}</title>"#,
            r#"<path class="whisker {class}" d="M{c} {low}V{q25}M{c} {q75}V{high}M{l} {low}H{r}M{l} {high}H{r}"/>"#,
            r#"<path class="body {class}" d="M{l} {q25}H{r}V{q75}H{l}z"/><path class="median {class}" d="M{l} {mid}H{r}"/>"#,
            r#"<path class="{beyond} {class}" d="{dots}"/></g>"#
        ),
        class = class,
        tip = escape(&tip),
        l = l,
        r = r,
        c = c,
        low = y(point.whiskers_us[0]),
        high = y(point.whiskers_us[1]),
        q25 = y(point.q25_us),
        q75 = y(point.q75_us),
        mid = y(point.median_us),
        beyond = beyond,
        dots = dots,
    );
    plot.mark(&mark);
}
