//! `cargo xtask vm`: the recorder on other kernels. Each is booted in a virtual machine with the
//! statically linked programs in its initramfs, and runs the kernel tests there. What cannot be had
//! (a kernel, QEMU, a compiler) is skipped by name.

mod archive;
mod console;
mod initramfs;
mod kernels;
mod machine;
mod page;
mod programs;
mod tools;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use console::{Console, Wish};
use initramfs::Initramfs;
use kernels::{KERNELS, Kernel};
use machine::{FUNCTIONAL, Machine};
use page::Fate;
use programs::{Compiler, Programs};
use tools::Tools;

/// Longest time for a kernel and its tests, several times what they take.
const LIMIT: Duration = Duration::from_secs(1200);

/// The kernel tests that are run in the guests.
const TESTS: &[&str] = &[
    "every_hook_that_this_kernel_has_is_attached_and_fires",
    "every_hit_of_a_daemon_is_attributed_to_it_by_name",
    "a_daemon_is_known_by_its_unit_and_by_who_woke_it",
    "an_ipi_storm_is_recorded_to_the_last_with_its_sender",
    "a_page_fault_storm_is_recorded_to_the_last",
    "detour_time_is_attributed_or_outside_the_kernel_and_adds_up",
    "a_low_limit_of_locked_memory_is_raised_or_the_remedy_said",
    "injected_nmis_are_counted_one_by_one",
    "a_cpu_that_goes_offline_ends_its_measurement_and_nothing_else",
];

pub fn list() -> bool {
    for kernel in KERNELS {
        println!("{:12} from {}", kernel.name, kernel.suite);
    }
    true
}

/// True when no test failed. Prints lines as a test binary does. The page is written where all kernels
/// were asked for and `publish` is set.
pub fn run(
    workspace: &Workspace,
    names: &[String],
    publish: bool,
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let kernels = kernels::chosen(names)?;
    let place = workspace.target.join("vm");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let mut built: HashMap<&str, Programs> = HashMap::new();
    let mut fates = Vec::new();
    for kernel in kernels {
        println!("\n=== Linux {}", kernel.name);
        let processor = kernel.processor;
        let needed = Compiler::find(workspace, &place, processor)
            .and_then(|compiler| Ok((compiler, Tools::get(&place, &kernel)?)));
        let fate = match needed {
            Err(missing) => Fate::Skipped(format!("{missing:#}")),
            Ok((compiler, tools)) => {
                let architecture = processor.architecture();
                if !built.contains_key(architecture) {
                    built.insert(architecture, compiler.build(workspace)?);
                }
                boot(&place, &kernel, &tools, &built[architecture])?
            }
        };
        for line in fate.lines(kernel.name, TESTS) {
            say(&line);
        }
        if !fate.is_good() {
            println!("the console of {} is in {}", kernel.name, console(&place, &kernel).display());
        }
        fates.push((kernel, fate));
    }
    println!("\n{}", page::table(&fates));
    if publish && names.is_empty() {
        page::write(workspace, &fates, TESTS)?;
    }
    Ok(fates.iter().all(|(_, fate)| fate.is_good()))
}

fn boot(place: &Path, kernel: &Kernel, tools: &Tools, programs: &Programs) -> Result<Fate> {
    println!("{}", tools.package);
    let initramfs = place.join(format!("{}.cpio", kernel.name));
    fs::write(&initramfs, contents(tools, programs, &script())?)
        .with_context(|| format!("cannot write {}", initramfs.display()))?;
    let machine = Machine {
        tools,
        initramfs: &initramfs,
        processors: FUNCTIONAL,
        console: console(place, kernel),
    };
    let mut console = Console::default();
    let start = Instant::now();
    let end = machine.run(LIMIT, |line, monitor| {
        // What the kernel says is in the console's file.
        if !line.starts_with("@vm doctor") && !line.starts_with('[') {
            println!("{line}");
        }
        match console.look(line) {
            Some(Wish::Nmi) => monitor.say("nmi"),
            None => Ok(()),
        }
    })?;
    Ok(Fate::Ran { console, end, took: start.elapsed() })
}

/// Where what a kernel's guest prints is kept.
fn console(place: &Path, kernel: &Kernel) -> PathBuf {
    place.join(format!("{}.log", kernel.name))
}

fn contents(tools: &Tools, programs: &Programs, script: &str) -> Result<Vec<u8>> {
    let mut files = Initramfs::default();
    for directory in ["/bin", "/dev", "/proc", "/sys", "/tmp", "/run"] {
        files.directory(directory);
    }
    files.device("/dev/console", 5, 1);
    files.program("/init", include_bytes!("init.sh"));
    files.program("/script", script.as_bytes());
    files.program_from("/bin/busybox", &tools.busybox)?;
    files.link("/bin/sh", "busybox");
    files.program_from("/bin/detour", &programs.detour)?;
    files.program_from("/bin/loadgen", &programs.loadgen)?;
    files.program_from("/bin/kernel-tests", &programs.tests)?;
    Ok(files.finish())
}

/// What the guest does once it is up.
fn script() -> String {
    let mut script = String::from(
        "export DETOUR_PROGRAMS=/bin DETOUR_VM=1\n\
         echo \"@vm doctor $(detour doctor --json | tr -d '\\n')\"\n",
    );
    for test in TESTS {
        script.push_str(&format!("one_test {test}\n"));
    }
    script
}
