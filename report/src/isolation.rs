//! The audit of CPUs that are meant to be quiet.

use study::decide::isolation::{Audit, AuditedCpu};

use crate::{
    Options,
    words::{capital, count, label_of, safe, tight, time, wrap},
};

#[must_use]
pub fn isolation(audit: &Audit, options: Options) -> String {
    let style = options.style();
    let (all, noisy) = (audit.cpus.len(), audit.cpus.iter().filter(|cpu| !cpu.quiet).count());
    let watched = time(audit.duration_s * 1e9);
    let title = match noisy {
        0 if all == 1 => format!("The audited CPU was quiet for {watched}."),
        0 => format!("All {all} audited CPUs were quiet for {watched}."),
        _ if all == 1 => format!("The audited CPU was not quiet within {watched}."),
        noisy => format!("{noisy} of {all} audited CPUs were not quiet within {watched}."),
    };
    let mut text = style.title(&wrap(&title, style.width, "")) + "\n";
    for cpu in &audit.cpus {
        text += &format!("\n{}", cpu_said(cpu, options));
    }
    text += &format!("\n{}\n", style.title("Settings"));
    for setting in &audit.settings {
        let state = if setting.ok { "ok" } else { "no" };
        text += &format!("{state:4}{:20} {}\n", setting.name, safe(&setting.value));
        if let Some(fix) = &setting.fix {
            // Not wrapped, so that it can be copied.
            text += &format!("    -> {}\n", safe(fix));
        }
    }
    for remark in &audit.remarks {
        text += &format!("\n{}\n", wrap(&capital(&safe(remark)), style.width, ""));
    }
    text
}

fn cpu_said(cpu: &AuditedCpu, options: Options) -> String {
    let style = options.style();
    if cpu.quiet {
        return format!("CPU {}: quiet\n", cpu.cpu);
    }
    let mut text = format!("CPU {}: not quiet\n", cpu.cpu);
    let shown = options.shown(cpu.interruptions.len());
    for interruption in &cpu.interruptions[..shown] {
        let source = match interruption.class {
            Some(class) => safe(&label_of(class, &interruption.source)),
            None => safe(&interruption.source),
        };
        let amount = match interruption.count {
            0 => String::new(),
            1 => format!(" once, {}", tight(interruption.cost_ns_total)),
            times => format!(" {} times, {}", count(times), tight(interruption.cost_ns_total)),
        };
        let line = format!("{source}{amount}: {}", safe(&interruption.reason));
        text += &format!("  {}\n", wrap(&line, style.width - 2, "    "));
        if !interruption.fix.is_empty() {
            text += &format!("    -> {}\n", safe(&interruption.fix));
        }
    }
    if shown < cpu.interruptions.len() {
        text += &format!("  and {} more\n", cpu.interruptions.len() - shown);
    }
    text
}
