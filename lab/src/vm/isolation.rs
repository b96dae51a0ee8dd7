//! `cargo xtask vm --isolation`: a machine whose second CPU is isolated by the kernel's command line. The
//! audit of `detour doctor --isolation` finds it quiet, and finds everything that disturbs it on purpose.

use anyhow::Result;

use super::{Guest, machine::FUNCTIONAL, run_tests, script_of};
use crate::workspace::Workspace;

const KERNEL: &str = "6.12";
const NAME: &str = "isolation";
const KERNEL_OPTIONS: &str =
    "isolcpus=managed_irq,domain,1 nohz_full=1 rcu_nocbs=1 irqaffinity=0 nowatchdog tsc=reliable";

pub(super) const TESTS: &[&str] = &[
    "an_isolated_cpu_is_quiet",
    "a_thread_on_an_isolated_cpu_is_found",
    "ipis_to_an_isolated_cpu_are_found",
    "what_keeps_the_tick_running_is_found",
    "settings_that_do_not_isolate_are_found",
];

/// True if no test failed. Prints lines like a test binary.
pub fn run(workspace: &Workspace, say: impl FnMut(&str)) -> Result<bool> {
    println!("\n=== Linux {KERNEL}, CPU 1 isolated");
    let guest = Guest {
        name: NAME,
        processors: FUNCTIONAL,
        kernel_options: KERNEL_OPTIONS,
        script: script_of("export DETOUR_PROGRAMS=/bin DETOUR_VM=isolated\n", TESTS),
        lasts_s: None,
    };
    run_tests(workspace, KERNEL, &guest, TESTS, say)
}
