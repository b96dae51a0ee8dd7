//! A measured network: tables of its parameters and round trips, and the file for `--net`.

use study::network::loggops::{Estimate, Net};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, message_safe, percent, precise, safe, wrap},
};

/// Name, value and interval.
type Row = (&'static str, String, String);

/// The parameters as text.
fn rows(estimate: &Estimate) -> Vec<Row> {
    let us = |value: f64| precise(value * 1e3);
    let interval = |[low, high]: [f64; 2], show: &dyn Fn(f64) -> String| {
        format!("{} to {}", show(low), show(high))
    };
    let per_byte = |value: f64| format!("{value:.4} ns/B");
    let mut rows: Vec<Row> = vec![
        ("L", us(estimate.latency_us), interval(estimate.latency_us_ci95, &us)),
        ("os", us(estimate.os_us), interval(estimate.os_us_ci95, &us)),
        ("or", us(estimate.or_us), interval(estimate.or_us_ci95, &us)),
        ("g", us(estimate.g_us), interval(estimate.g_us_ci95, &us)),
        (
            "G",
            per_byte(estimate.gap_ns_per_byte),
            interval(estimate.gap_ns_per_byte_ci95, &per_byte),
        ),
        (
            "O",
            per_byte(estimate.overhead_ns_per_byte),
            interval(estimate.overhead_ns_per_byte_ci95, &per_byte),
        ),
    ];
    let limit = estimate.eager_limit.map_or("unlimited".to_owned(), |limit| format!("{limit} B"));
    rows.push(("S", limit, String::new()));
    rows
}

/// What was measured, its parameters, and how well they describe the round trips.
#[must_use]
pub fn network(net: &Net, options: Options) -> String {
    let [first, second] = &net.about.hosts;
    let place = if first == second {
        format!("between two processes on {}", safe(first))
    } else {
        format!("between {} and {}", safe(first), safe(second))
    };
    let mut text = wrap(
        &format!(
            "Network {place}, {}: messages up to S take os + L + or + (s-1) (G + 2 O), larger ones os + 2 L \
             more; this deviates from the measured round trips by {}.",
            message_safe(&net.about.transport),
            percent(net.chosen.residual_pct)
        ),
        options.width,
        "",
    );
    text += "\n\n";
    let mut grid = Grid::new(vec![
        Column::text("", 2),
        Column::number("median"),
        Column::number("95 % interval"),
        Column::number("minimum"),
        Column::number("95 % interval").expendable(1),
    ]);
    for (usual, least) in rows(&net.median).into_iter().zip(rows(&net.minimum)) {
        let cells = vec![usual.0.to_owned(), usual.1, usual.2, least.1, least.2];
        grid.row(Tone::Plain, cells);
    }
    text += &grid.render(options.style());
    text += "\n\nHalf round trips\n";
    let mut grid = Grid::new(vec![
        Column::number("bytes"),
        Column::number("median"),
        Column::number("minimum"),
        Column::number("parameters"),
        Column::number("off"),
        Column::number("pieces").expendable(1),
        Column::number("off").expendable(1),
    ]);
    let off = |model: f64, time: f64| match time > 0.0 {
        true => format!("{:+.1} %", 100.0 * (model / time - 1.0)),
        false => String::new(),
    };
    for size in &net.sizes {
        let us = |value: f64| precise(value * 1e3);
        grid.row(
            Tone::Plain,
            vec![
                count(size.bytes),
                us(size.median_us),
                us(size.minimum_us),
                us(size.model_us),
                off(size.model_us, size.median_us),
                us(size.pieces_us),
                off(size.pieces_us, size.median_us),
            ],
        );
    }
    text += &grid.render(options.style());
    text += "\n";
    for warning in &net.warnings {
        text += "\n";
        text += &wrap(&format!("warning: {}", message_safe(warning)), options.width, "  ");
        text += "\n";
    }
    text
}

/// The parameters as TOML: the chosen estimate at the top, so that `--net` reads it, then both.
#[must_use]
pub fn network_toml(net: &Net) -> String {
    let mut out = format!(
        "# Measured by detour. Use with --net FILE. The parameters at the top are those of [{}].\n",
        net.estimate
    );
    let text = |text: &str| serde_json::Value::from(message_safe(text)).to_string();
    let pair = |[low, high]: [f64; 2]| format!("[{low:?}, {high:?}]");
    out += &format!("kind = {}\n", text(&net.kind));
    out += &parameters(&net.chosen);
    out += &format!("pieces_residual_pct = {:?}\n", net.pieces_residual_pct);
    out += &format!("estimate = {}\n", text(&net.estimate));
    let [first, second] = &net.about.hosts;
    out += &format!("hosts = [{}, {}]\n", text(first), text(second));
    out += &format!("transport = {}\n", text(&net.about.transport));
    out += &format!("date = {}\n", text(&net.about.date));
    out += &format!("method = {}\n", text(&net.about.method));
    out += &format!("blocks = {}\nmeasured_s = {:?}\n", net.blocks, net.measured_s);
    out += &format!("timer_ns = {}\n", pair(net.timer_ns));
    let warnings: Vec<String> = net.warnings.iter().map(|warning| text(warning)).collect();
    out += &format!("warnings = [{}]\n", warnings.join(", "));
    for (name, estimate) in [("median", &net.median), ("minimum", &net.minimum)] {
        out += &format!("\n[{name}]\n{}", parameters(estimate));
    }
    for piece in &net.pieces {
        out += &format!(
            "\n[[pieces]]\nfrom_bytes = {}\nto_bytes = {}\nfixed_us = {:?}\nns_per_B = {:?}\n",
            piece.from_bytes, piece.to_bytes, piece.fixed_us, piece.ns_per_byte
        );
    }
    for size in &net.sizes {
        out += &format!(
            "\n[[sizes]]\nbytes = {}\nmedian_us = {:?}\nminimum_us = {:?}\nmodel_us = {:?}\npieces_us = {:?}\n",
            size.bytes, size.median_us, size.minimum_us, size.model_us, size.pieces_us
        );
    }
    out
}

fn parameters(estimate: &Estimate) -> String {
    let mut out = String::new();
    for (name, value, [low, high]) in [
        ("L_us", estimate.latency_us, estimate.latency_us_ci95),
        ("os_us", estimate.os_us, estimate.os_us_ci95),
        ("or_us", estimate.or_us, estimate.or_us_ci95),
        ("g_us", estimate.g_us, estimate.g_us_ci95),
        ("G_ns_per_B", estimate.gap_ns_per_byte, estimate.gap_ns_per_byte_ci95),
        ("O_ns_per_B", estimate.overhead_ns_per_byte, estimate.overhead_ns_per_byte_ci95),
    ] {
        out += &format!("{name} = {value:?}\n{name}_ci95 = [{low:?}, {high:?}]\n");
    }
    if let (Some(limit), Some([low, high])) = (estimate.eager_limit, estimate.eager_limit_ci95) {
        out += &format!("S_B = {limit}\nS_B_ci95 = [{low}, {high}]\n");
    }
    out += &format!("residual_pct = {:?}\n", estimate.residual_pct);
    out += &format!("residual_eager_pct = {:?}\n", estimate.residual_eager_pct);
    if let Some(residual) = estimate.residual_rendezvous_pct {
        out += &format!("residual_rendezvous_pct = {residual:?}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    use study::network::loggops::{About, Piece};

    fn made() -> Net {
        let estimate = Estimate {
            latency_us: 1.5,
            latency_us_ci95: [1.4, 1.6],
            eager_limit: Some(4096),
            eager_limit_ci95: Some([4096, 4096]),
            ..Estimate::default()
        };
        Net {
            kind: "detour-net".into(),
            estimate: "median".into(),
            chosen: estimate.clone(),
            median: estimate.clone(),
            minimum: estimate,
            about: About {
                hosts: ["a\"b\\".into(), "c\u{1b}[2J".into()],
                transport: "TCP".into(),
                ..About::default()
            },
            pieces: vec![Piece { from_bytes: 1, to_bytes: 64, fixed_us: 2.0, ns_per_byte: 0.5 }],
            warnings: vec!["noise\n[median]".into()],
            ..Net::default()
        }
    }

    #[test]
    fn the_file_is_valid_and_has_the_parameters_at_the_top() {
        let file: toml::Table = network_toml(&made()).parse().unwrap();
        assert_eq!(file["L_us"].as_float(), Some(1.5));
        assert_eq!(file["L_us_ci95"].as_array().unwrap()[1].as_float(), Some(1.6));
        assert_eq!(file["S_B"].as_integer(), Some(4096));
        assert_eq!(file["median"]["L_us"].as_float(), Some(1.5));
        assert_eq!(file["pieces"].as_array().unwrap().len(), 1);
        assert_eq!(file["hosts"].as_array().unwrap()[0].as_str(), Some("a\"b\\"));
    }

    #[test]
    fn names_cannot_reach_the_terminal() {
        let text = network(&made(), Options::default());
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
