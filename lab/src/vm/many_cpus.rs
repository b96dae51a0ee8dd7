//! `cargo xtask vm --many-cpus`: a machine with 72 CPUs, of which three run. Emulating them all would
//! take minutes to boot; the kernel starts two, and the script a third beyond the first 64. Names,
//! senders and the balance have to be right there.

use std::collections::HashMap;

use anyhow::Result;

use super::{Guest, contents, kernels, machine::MANY, page::Fate, prepare};
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

/// True if no test failed. Prints lines like a test binary.
pub fn run(workspace: &Workspace, mut say: impl FnMut(&str)) -> Result<bool> {
    let place = workspace.target.join("vm");
    let kernel = kernels::chosen(&[KERNEL.to_owned()])?[0];
    let mut built = HashMap::new();
    println!("\n=== Linux {KERNEL}, CPU 70 of 72");
    let mut script = String::from(
        "export DETOUR_PROGRAMS=/bin DETOUR_VM=1\n\
         echo 1 > /sys/devices/system/cpu/cpu70/online\n\
         echo \"online: $(cat /sys/devices/system/cpu/online)\"\n",
    );
    for test in TESTS {
        script.push_str(&format!("one_test {test}\n"));
    }
    let guest =
        Guest { name: NAME, processors: MANY, kernel_options: "maxcpus=2", script, lasts_s: None };
    let fate = match prepare(workspace, &place, &kernel, &mut built)? {
        Err(missing) => Fate::Skipped(missing),
        Ok((tools, programs)) => {
            let boot = || guest.boot(&place, &tools, contents(&tools, programs, &guest.script)?);
            boot()?.or_again(boot)?
        }
    };
    for line in fate.lines(NAME, TESTS) {
        say(&line);
    }
    if !fate.is_good() {
        println!("console output: {}", guest.console(&place).display());
    }
    Ok(fate.is_good())
}
