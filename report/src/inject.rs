//! What was played back, CPU by CPU.

use study::recording::inject::Injected;

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{count, plural, safe, time, wrap},
};

#[must_use]
pub fn injected(injected: &Injected, options: Options) -> String {
    let style = options.style();
    let detours: u64 = injected.cpus.iter().map(|cpu| cpu.detours).sum();
    let taken: u64 = injected.cpus.iter().map(|cpu| cpu.taken_ns).sum();
    let title = format!(
        "Played {} of {} for {}: {} of CPU time.",
        plural(detours, "detour"),
        safe(&injected.recording),
        time(injected.duration_s * 1e9),
        time(taken as f64)
    );
    let mut grid = Grid::new(vec![
        Column::number("cpu"),
        Column::text("recorded on", 10).expendable(2),
        Column::number("detours"),
        Column::number("length"),
        Column::number("CPU time"),
        Column::number("late p50").expendable(3),
        Column::number("p99").expendable(4),
        Column::number("max"),
        Column::number("too short").expendable(1),
    ]);
    let late = |ns: Option<u64>| ns.map_or_else(String::new, |ns| time(ns as f64));
    for cpu in &injected.cpus {
        let tone = Tone::Plain;
        let cells = vec![
            cpu.cpu.to_string(),
            safe(&cpu.lane),
            count(cpu.detours),
            time(cpu.wanted_ns as f64),
            time(cpu.taken_ns as f64),
            late(cpu.late_ns_p50),
            late(cpu.late_ns_p99),
            late(cpu.late_ns_max),
            count(cpu.short),
        ];
        grid.row(tone, cells);
    }
    let mut text = style.title(&wrap(&title, style.width, "")) + "\n\n" + &grid.render(style);
    for remark in &injected.remarks {
        text += &format!("{}\n", wrap(&safe(remark), style.width, "    "));
    }
    text
}
