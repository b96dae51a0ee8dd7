//! `cargo xtask vm --accuracy`: machines whose clock counts instructions, on which the recorder's
//! results are exact. They run one kernel in two configurations: one CPU, from which no time is
//! stolen, and two that take turns, so that each has half of its time stolen.

use std::{collections::HashMap, fmt::Write};

use anyhow::Result;

use super::{
    Guest, contents, kernels,
    machine::{ONE_COUNTING, TWO_COUNTING},
    page::{self, Fate},
    prepare,
};
use crate::workspace::Workspace;

const KERNEL: &str = "6.12";

/// A configuration of the machine.
struct Form {
    name: &'static str,
    /// Title on the page.
    title: &'static str,
    processors: &'static [&'static str],
    /// Prefix of its tests' names.
    prefix: &'static str,
    tests: &'static [&'static str],
}

const FORMS: [Form; 2] = [
    Form {
        name: "counting-1",
        title: "One CPU",
        processors: ONE_COUNTING,
        prefix: "one_cpu",
        tests: &[
            "one_cpu::ticks_come_at_exactly_their_rate",
            "one_cpu::every_page_fault_is_recorded",
            "one_cpu::every_hit_of_a_daemon_is_recorded",
            "one_cpu::nothing_is_outside_the_kernel",
            "one_cpu::less_than_a_percent_is_unexplained",
        ],
    },
    Form {
        name: "counting-2",
        title: "Two CPUs",
        processors: TWO_COUNTING,
        prefix: "two_cpus",
        tests: &[
            "two_cpus::stolen_time_is_outside_the_kernel",
            "two_cpus::so_is_what_is_stolen_around_a_tick",
        ],
    },
];

/// Seconds of guest time for its recordings and their reports.
const LASTS_S: f64 = 8.0;

/// The clock is the same for all CPUs, whatever the kernel assumes about such machines; and ticks are
/// skewed between CPUs, so that one's tick ends the other's turn.
pub const KERNEL_OPTIONS: &str = "tsc=reliable skew_tick=1";

/// True if no test failed. Prints lines like a test binary; with `publish`, writes the section of
/// docs/kernels.md unless a machine is missing.
pub fn run(workspace: &Workspace, publish: bool, mut say: impl FnMut(&str)) -> Result<bool> {
    let place = workspace.target.join("vm");
    let kernel = kernels::chosen(&[KERNEL.to_owned()])?[0];
    let mut built = HashMap::new();
    let mut fates = Vec::new();
    for form in &FORMS {
        println!("\n=== Linux {KERNEL}, {}, instructions counted", form.title);
        let guest = Guest {
            name: form.name,
            processors: form.processors,
            kernel_options: KERNEL_OPTIONS,
            script: format!(
                "export DETOUR_PROGRAMS=/bin DETOUR_VM=counting\ntests_of {}\n",
                form.prefix
            ),
            lasts_s: Some(LASTS_S),
        };
        let fate = match prepare(workspace, &place, &kernel, &mut built)? {
            Err(missing) => Fate::Skipped(missing),
            Ok((tools, programs)) => {
                guest.boot(&place, &tools, contents(&tools, programs, &guest.script)?)?
            }
        };
        for line in fate.lines(form.name, form.tests) {
            say(&line);
        }
        if !fate.is_good() {
            println!("console output: {}", guest.console(&place).display());
        }
        fates.push(fate);
    }
    let all_ran = fates.iter().all(|fate| matches!(fate, Fate::Ran { .. }));
    if publish && all_ran {
        page::write_accuracy(workspace, &section(&fates))?;
    }
    Ok(fates.iter().all(Fate::is_good))
}

fn section(fates: &[Fate]) -> String {
    let mut text = format!(
        "Measured by `cargo xtask vm --accuracy`, on Linux {KERNEL}. The clock of these machines \
         counts instructions, one per nanosecond: load on the host has no effect, and the correct \
         results are known.\n"
    );
    for (form, fate) in FORMS.iter().zip(fates) {
        let _ = writeln!(text, "\n### {}\n", form.title);
        for test in form.tests {
            let name = test.split_once("::").map_or(*test, |(_, name)| name).replace('_', " ");
            let _ = writeln!(text, "- {name}: {}", fate.cell(test));
        }
        let Fate::Ran { console, .. } = fate else { continue };
        text.push_str("\n| figure | value |\n|---|---|\n");
        for (what, value) in &console.figures {
            let _ = writeln!(text, "| {what} | {value} |");
        }
    }
    text.push_str(
        "\nThe two CPUs take turns, so each steals the time it runs from the other. The stolen time \
         is the elapsed time minus the time of the probe's iterations, which always take the same \
         number of instructions. osnoise counts a steal only if it contains no interrupt, so it omits \
         those with a tick inside. Stolen time that is not reported as outside the kernel was stolen \
         from a running handler, or is no longer than a plausible entry or exit.\n\n\
         Pass criteria, one CPU: no detour without a source, and less than 0.1 % of the time outside \
         the kernel (rare kinds of gaps are longer than the recorder's estimate of entry and exit). \
         Two CPUs: at least 95 % of the stolen time is outside the kernel, and, on average, all but \
         50 us of each long detour with a tick inside.\n",
    );
    text
}
