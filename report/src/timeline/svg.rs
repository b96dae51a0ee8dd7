//! The run as a LogGOP diagram: time to the right, ranks from top to bottom, each with its CPUs (o,
//! computation, detours) above its NICs (g and G), messages slanting from NIC to NIC by L (dashed for
//! rendezvous requests and grants). The critical path is drawn in black.

use std::fmt::Write;

use study::explain::picture::{Bar, Doing, Picture};

use super::{axis, units};
use crate::words::{cut, safe, time};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const WIDTH: f64 = 1_100.0;
const CPU: f64 = 16.0;
const NIC: f64 = 8.0;
/// Space between the lanes of a rank, and between ranks, so that messages are visible.
const GAP: f64 = 2.0;
const BETWEEN: f64 = 16.0;
/// Width of a letter in a bar.
const LETTER: f64 = 5.6;
/// Characters of a title that fit.
const TITLE: usize = 140;

const STYLE: &str = "\
text{font:11px sans-serif;fill:#222}\
.h{font-size:13px;font-weight:bold}\
.m{text-anchor:middle}.e{text-anchor:end}\
.i{font-size:9px;text-anchor:middle}\
.grid{stroke:#ececec}.lane{stroke:#c8c8c8}\
.c{fill:#c3cfdd}.s{fill:#f3c15b}.r{fill:#8fbde4}.g{fill:#dedede}.n{fill:#cf3a24}\
.b{stroke:#777;stroke-width:.5}.p{stroke:#000;stroke-width:1.6}\
line.f{stroke:#8a8a8a}line.fp{stroke:#000;stroke-width:1.8}\
.a{fill:#8a8a8a}.ap{fill:#000}";

/// Layout.
struct Plan {
    span: f64,
    cpus: u8,
    nics: u8,
    rank_height: f64,
    /// Receives overlap other work: each gets half of its CPU's lane.
    halves: bool,
}

impl Plan {
    fn new(picture: &Picture) -> Plan {
        let (cpus, nics) = (units(&picture.work).max(1), units(&picture.nics));
        Plan {
            span: picture.finish.max(1) as f64,
            cpus,
            nics,
            rank_height: f64::from(cpus) * (CPU + GAP) + f64::from(nics) * (NIC + GAP) + BETWEEN,
            halves: overlaps(&picture.work),
        }
    }

    fn x(&self, ps: i64) -> f64 {
        LEFT + ps as f64 / self.span * WIDTH
    }

    fn cpu(&self, rank: u32, unit: u8) -> f64 {
        TOP + f64::from(rank) * self.rank_height + f64::from(unit) * (CPU + GAP)
    }

    fn nic(&self, rank: u32, unit: u8) -> f64 {
        self.cpu(rank, self.cpus) + f64::from(unit) * (NIC + GAP)
    }

    /// Top and height of a bar of work.
    fn lane(&self, bar: &Bar) -> (f64, f64) {
        let top = self.cpu(bar.rank, bar.unit);
        match (self.halves, bar.doing) {
            (false, _) => (top, CPU),
            (true, Doing::Receive) => (top + CPU / 2.0, CPU / 2.0),
            (true, _) => (top, CPU / 2.0),
        }
    }

    /// Where messages of this rank leave and arrive.
    fn port(&self, bar: &Bar, nic: u8) -> f64 {
        if self.nics <= nic {
            return self.cpu(bar.rank, bar.unit) + CPU / 2.0;
        }
        self.nic(bar.rank, nic) + NIC / 2.0
    }
}

/// Whether any receive overlaps other work of its CPU.
fn overlaps(work: &[Bar]) -> bool {
    let mut bars: Vec<_> = work.iter().filter(|bar| bar.from < bar.to).collect();
    bars.sort_by_key(|bar| (bar.rank, bar.unit, bar.from));
    bars.windows(2).any(|pair| {
        let same = (pair[0].rank, pair[0].unit) == (pair[1].rank, pair[1].unit);
        same && pair[1].from < pair[0].to
    })
}

/// The diagram as an SVG file. For small runs: every bar and every message is drawn.
#[must_use]
pub fn diagram(picture: &Picture) -> String {
    let plan = Plan::new(picture);
    let height = TOP + f64::from(picture.ranks) * plan.rank_height + BOTTOM;
    let width = LEFT + WIDTH + RIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <defs>\n{}{}</defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        arrow("a"),
        arrow("ap")
    );
    // Writing to a string cannot fail.
    let _ = head(&mut svg, picture, &plan);
    let _ = frame(&mut svg, picture, &plan);
    let _ = bars(&mut svg, picture, &plan);
    let _ = flights(&mut svg, picture, &plan);
    svg + "</svg>\n"
}

fn arrow(name: &str) -> String {
    format!(
        "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
         <path class=\"{name}\" d=\"M0 1 8 4 0 7z\"/></marker>\n"
    )
}

/// Escapes text for SVG.
fn text(name: &str) -> String {
    safe(name)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A coordinate: a hundredth of a pixel is enough.
fn at(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn head(svg: &mut String, picture: &Picture, plan: &Plan) -> std::fmt::Result {
    let title = text(&cut(&picture.title, TITLE));
    writeln!(svg, "<text class=\"h\" x=\"{LEFT}\" y=\"22\">{title}</text>")?;
    let all = [
        (Doing::Compute, ("c", "compute")),
        (Doing::Send, ("s", "o of a send")),
        (Doing::Receive, ("r", "o of a receive")),
    ];
    let there = |doing: Doing| picture.work.iter().any(|bar| bar.doing == doing);
    let keys = all.into_iter().filter(|(doing, _)| there(*doing)).map(|(_, key)| key);
    let mut keys: Vec<_> = keys.collect();
    if plan.nics > 0 {
        keys.push(("g", "NIC: g and G"));
    }
    if picture.work.iter().any(|bar| !bar.noise.is_empty()) {
        keys.push(("n", "noise"));
    }
    let mut x = LEFT;
    for (class, name) in keys {
        writeln!(svg, "<rect class=\"{class} b\" x=\"{x}\" y=\"34\" width=\"14\" height=\"10\"/>")?;
        writeln!(svg, "<text x=\"{}\" y=\"43\">{name}</text>", x + 19.0)?;
        x += 19.0 + 6.5 * name.len() as f64 + 14.0;
    }
    let flies = !picture.flights.is_empty();
    let lines = [("f", "a", "message (L)"), ("fp", "ap", "critical path")];
    for (class, marker, name) in lines.into_iter().filter(|_| flies) {
        writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x}\" y1=\"39\" x2=\"{}\" y2=\"39\" \
             marker-end=\"url(#{marker})\"/>",
            x + 22.0
        )?;
        writeln!(svg, "<text x=\"{}\" y=\"43\">{name}</text>", x + 28.0)?;
        x += 28.0 + 6.5 * name.len() as f64 + 14.0;
    }
    Ok(())
}

/// Axis, lanes and the names of the ranks.
fn frame(svg: &mut String, picture: &Picture, plan: &Plan) -> std::fmt::Result {
    let bottom = TOP + f64::from(picture.ranks) * plan.rank_height - BETWEEN / 2.0;
    let step = axis::distance(picture.finish, 12);
    let unit = axis::unit(picture.finish);
    let mut ps = 0;
    while ps <= picture.finish {
        let x = at(plan.x(ps));
        writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\"/>\
             <text class=\"m\" x=\"{x}\" y=\"{}\">{}</text>",
            TOP - 6.0,
            bottom + 15.0,
            axis::label(ps, unit)
        )?;
        ps += step;
    }
    writeln!(
        svg,
        "<text class=\"e\" x=\"{}\" y=\"{}\">time in {}</text>",
        LEFT + WIDTH,
        bottom + 31.0,
        unit.1
    )?;
    for rank in 0..picture.ranks {
        let y = plan.cpu(rank, 0) + CPU / 2.0 + 4.0;
        writeln!(svg, "<text class=\"e\" x=\"{}\" y=\"{y}\">rank {rank}</text>", LEFT - 8.0)?;
        let cpus = (0..plan.cpus).map(|cpu| plan.cpu(rank, cpu) + CPU / 2.0);
        let nics = (0..plan.nics).map(|nic| plan.nic(rank, nic) + NIC / 2.0);
        for y in cpus.chain(nics) {
            let right = LEFT + WIDTH;
            writeln!(
                svg,
                "<line class=\"lane\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\"/>"
            )?;
        }
    }
    Ok(())
}

fn bars(svg: &mut String, picture: &Picture, plan: &Plan) -> std::fmt::Result {
    // Bars on the path are drawn last, so that their edges are complete.
    for on_path in [false, true] {
        for bar in picture.nics.iter().filter(|bar| bar.on_path == on_path && bar.from < bar.to) {
            let top = plan.nic(bar.rank, bar.unit);
            rect(svg, "g", bar.on_path, plan, (bar.from, bar.to), (top, NIC), &bar.name)?;
        }
        for bar in picture.work.iter().filter(|bar| bar.on_path == on_path && bar.from < bar.to) {
            work(svg, bar, plan)?;
        }
    }
    Ok(())
}

fn work(svg: &mut String, bar: &Bar, plan: &Plan) -> std::fmt::Result {
    let (class, letter) = match bar.doing {
        Doing::Compute => ("c", "compute"),
        Doing::Send => ("s", "o"),
        Doing::Receive => ("r", "o"),
    };
    let lane = plan.lane(bar);
    rect(svg, class, bar.on_path, plan, (bar.from, bar.to), lane, &bar.name)?;
    for detour in &bar.noise {
        let span = (detour.from.max(bar.from), detour.to.min(bar.to));
        if span.0 < span.1 {
            rect(svg, "n", bar.on_path, plan, span, lane, &detour.source)?;
        }
    }
    let width = plan.x(bar.to) - plan.x(bar.from);
    if bar.noise.is_empty() && width > LETTER * letter.len() as f64 + 2.0 && !plan.halves {
        let x = at((plan.x(bar.from) + plan.x(bar.to)) / 2.0);
        let y = at(lane.0 + lane.1 / 2.0 + 3.0);
        writeln!(svg, "<text class=\"i\" x=\"{x}\" y=\"{y}\">{letter}</text>")?;
    }
    Ok(())
}

fn rect(
    svg: &mut String,
    class: &str,
    on_path: bool,
    plan: &Plan,
    (from, to): (i64, i64),
    (top, height): (f64, f64),
    name: &str,
) -> std::fmt::Result {
    let edge = if on_path { "p" } else { "b" };
    let width = plan.x(to) - plan.x(from);
    writeln!(
        svg,
        "<rect class=\"{class} {edge}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">\
         <title>{}, {}</title></rect>",
        at(plan.x(from)),
        at(top),
        at(width),
        at(height),
        text(name),
        time((to - from) as f64 / 1e3)
    )
}

fn flights(svg: &mut String, picture: &Picture, plan: &Plan) -> std::fmt::Result {
    for on_path in [false, true] {
        for flight in picture.flights.iter().filter(|flight| flight.on_path == on_path) {
            let ends = (picture.work.get(flight.sender), picture.work.get(flight.receiver));
            let (Some(sender), Some(receiver)) = ends else { continue };
            let (class, marker) = if on_path { ("fp", "ap") } else { ("f", "a") };
            let dashed = if flight.control { " stroke-dasharray=\"4 3\"" } else { "" };
            writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" \
                 marker-end=\"url(#{marker})\"{dashed}/>",
                at(plan.x(flight.left)),
                at(plan.port(sender, flight.nics.0)),
                at(plan.x(flight.arrived)),
                at(plan.port(receiver, flight.nics.1)),
            )?;
        }
    }
    Ok(())
}
