//! `cargo xtask vm --many-cpus`: a machine with 72 CPUs, of which three run. Emulating them all would
//! take minutes to boot; the kernel starts two, and the script a third beyond the first 64. Names,
//! senders and the balance have to be right there.

use anyhow::Result;

use super::{Guest, machine::MANY, run_tests, script_of};
use crate::workspace::Workspace;

const KERNEL: &str = "6.12";
const NAME: &str = "many-cpus";

/// The measured CPU of these tests is the last one.
pub(super) const TESTS: &[&str] = &[
    "an_ipi_storm_is_recorded_to_the_last",
    "an_ipi_storm_is_recorded_with_its_sender",
    "the_sender_of_ipis_to_a_mask_is_known_on_every_cpu_of_it",
    "every_hit_of_a_daemon_is_attributed_to_it_by_name",
    "detour_time_is_attributed_or_outside_the_kernel_and_adds_up",
];

const PREPARATION: &str = "export DETOUR_PROGRAMS=/bin DETOUR_VM=1\n\
    echo 1 > /sys/devices/system/cpu/cpu70/online\n\
    echo \"online: $(cat /sys/devices/system/cpu/online)\"\n";

/// True if no test failed. Prints lines like a test binary.
pub fn run(workspace: &Workspace, say: impl FnMut(&str)) -> Result<bool> {
    println!("\n=== Linux {KERNEL}, CPU 70 of 72");
    let guest = Guest {
        name: NAME,
        processors: MANY,
        kernel_options: "maxcpus=2",
        script: script_of(PREPARATION, TESTS),
        lasts_s: None,
    };
    run_tests(workspace, KERNEL, &guest, TESTS, say)
}
