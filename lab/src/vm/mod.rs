//! `cargo xtask vm`: the recorder on other kernels. Each is booted in a virtual machine with the
//! statically linked programs in its initramfs, and runs the kernel tests there. What is not available
//! (a kernel, QEMU, a compiler) is skipped by name.

pub mod accuracy;
pub mod archive;
mod console;
mod initramfs;
pub mod isolation;
pub mod kernels;
mod machine;
pub mod many_cpus;
mod page;
pub mod programs;
pub mod rtla;
pub mod tools;

use std::{
    cell::Cell,
    collections::{HashMap, hash_map::Entry},
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

/// Time limit for a kernel and its tests, several times the usual duration.
const LIMIT: Duration = Duration::from_secs(1200);

/// The host may become this many times slower after a guest has booted.
const SLOWER: f64 = 6.0;

/// The kernel tests that are run in the guests.
const TESTS: &[&str] = &[
    "every_hook_that_this_kernel_has_is_attached_and_fires",
    "every_hit_of_a_daemon_is_attributed_to_it_by_name",
    "a_daemons_time_is_what_the_kernel_charges_it_with",
    "a_daemon_is_known_by_its_unit_and_by_who_woke_it",
    "an_ipi_storm_is_recorded_to_the_last",
    "an_ipi_storm_is_recorded_with_its_sender",
    "a_page_fault_storm_is_recorded_to_the_last",
    "major_page_faults_are_as_many_as_the_kernel_counts",
    "detour_time_is_attributed_or_outside_the_kernel_and_adds_up",
    "a_low_limit_of_locked_memory_is_raised_or_the_remedy_said",
    "pinned_threads_waited_what_the_kernel_says",
    "the_first_wait_of_a_new_process_is_recorded",
    "a_wait_is_blamed_on_the_cpu_where_it_was",
    "a_quota_is_blamed_on_nobody_else",
    "injected_nmis_are_counted_one_by_one",
    "a_cpu_that_goes_offline_ends_its_measurement_and_nothing_else",
];

pub fn list() -> bool {
    for kernel in KERNELS {
        println!("{:12} from {}", kernel.name, kernel.suite);
    }
    true
}

/// True if no test failed. Prints lines like a test binary. The page is written if all kernels were
/// selected and `publish` is set.
pub fn run(
    workspace: &Workspace,
    names: &[String],
    publish: bool,
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let kernels = kernels::chosen(names)?;
    let place = workspace.target.join("vm");
    let mut built = HashMap::new();
    let mut fates = Vec::new();
    // Everything is built before the first boot: a build that fails later would waste the tests before it.
    for kernel in &kernels {
        let _missing = prepare(workspace, &place, kernel, &mut built)?;
    }
    for kernel in kernels {
        println!("\n=== Linux {}", kernel.name);
        let guest = Guest {
            name: kernel.name,
            processors: FUNCTIONAL,
            kernel_options: "",
            script: script(),
            lasts_s: None,
        };
        let fate = match prepare(workspace, &place, &kernel, &mut built)? {
            Err(missing) => Fate::Skipped(missing),
            Ok((tools, programs)) => {
                let boot =
                    || guest.boot(&place, &tools, contents(&tools, programs, &guest.script)?);
                boot()?.or_again(boot)?
            }
        };
        for line in fate.lines(kernel.name, TESTS) {
            say(&line);
        }
        if !fate.is_good() {
            println!("console output of {}: {}", kernel.name, guest.console(&place).display());
        }
        fates.push((kernel, fate));
    }
    println!("\n{}", page::table(&fates));
    if publish && names.is_empty() {
        page::write(workspace, &fates, TESTS)?;
    }
    Ok(fates.iter().all(|(_, fate)| fate.is_good()))
}

/// What a kernel's guests need: the inner error is something that this machine lacks.
fn prepare<'a>(
    workspace: &Workspace,
    place: &Path,
    kernel: &Kernel,
    built: &'a mut HashMap<&'static str, Programs>,
) -> Result<Result<(Tools, &'a Programs), String>> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let needed = Compiler::find(workspace, place, kernel.processor)
        .and_then(|compiler| Ok((compiler, Tools::get(place, kernel)?)));
    let (compiler, tools) = match needed {
        Ok(found) => found,
        Err(missing) => return Ok(Err(format!("{missing:#}"))),
    };
    let programs = match built.entry(kernel.processor.architecture()) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(place) => place.insert(compiler.build(workspace)?),
    };
    Ok(Ok((tools, programs)))
}

/// What is booted, and what it runs.
struct Guest<'a> {
    /// Base name of its files.
    name: &'a str,
    /// QEMU's options for processors and clock.
    processors: &'a [&'a str],
    kernel_options: &'a str,
    /// Shell commands to run once it is up.
    script: String,
    /// Duration in guest seconds, if its clock is slower than ours by a factor that is known only at
    /// run time.
    lasts_s: Option<f64>,
}

impl Guest<'_> {
    /// File for its console output.
    fn console(&self, place: &Path) -> PathBuf {
        place.join(format!("{}.log", self.name))
    }

    fn boot(&self, place: &Path, tools: &Tools, files: Initramfs) -> Result<Fate> {
        println!("{}", tools.package);
        let initramfs = place.join(format!("{}.cpio", self.name));
        fs::write(&initramfs, files.finish())
            .with_context(|| format!("cannot write {}", initramfs.display()))?;
        let machine = Machine {
            tools,
            initramfs: &initramfs,
            processors: self.processors,
            kernel_options: self.kernel_options,
            console: self.console(place),
        };
        let mut console = Console::default();
        let start = Instant::now();
        let limit = Cell::new(LIMIT);
        let end = machine.run(&limit, |line, monitor| {
            // Kernel messages are in the console file.
            if !line.starts_with("@vm doctor") && !line.starts_with('[') {
                println!("{line}");
            }
            let was_up = console.up_s.is_some();
            let wish = console.look(line);
            if let (false, Some(up), Some(lasts)) = (was_up, console.up_s, self.lasts_s) {
                let pace = start.elapsed().div_f64(up);
                limit.set(start.elapsed() + pace.mul_f64(SLOWER * lasts));
            }
            match wish {
                Some(Wish::Nmi) => monitor.say("nmi"),
                None => Ok(()),
            }
        })?;
        Ok(Fate::Ran { console, end, took: start.elapsed() })
    }
}

/// Boots a guest on the kernel of this name and runs tests in it. True if none failed. Prints lines like a
/// test binary.
fn run_tests(
    workspace: &Workspace,
    kernel: &str,
    guest: &Guest<'_>,
    tests: &[&str],
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let place = workspace.target.join("vm");
    let kernel = kernels::chosen(&[kernel.to_owned()])?[0];
    let mut built = HashMap::new();
    let fate = match prepare(workspace, &place, &kernel, &mut built)? {
        Err(missing) => Fate::Skipped(missing),
        Ok((tools, programs)) => {
            let boot = || guest.boot(&place, &tools, contents(&tools, programs, &guest.script)?);
            boot()?.or_again(boot)?
        }
    };
    for line in fate.lines(guest.name, tests) {
        say(&line);
    }
    if !fate.is_good() {
        println!("console output: {}", guest.console(&place).display());
    }
    Ok(fate.is_good())
}

/// A script that prepares the guest, and then runs these tests one by one.
fn script_of(preparation: &str, tests: &[&str]) -> String {
    let tests = tests.iter().map(|test| format!("one_test {test}\n"));
    preparation.to_owned() + &tests.collect::<String>()
}

fn contents(tools: &Tools, programs: &Programs, script: &str) -> Result<Initramfs> {
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
    if let Some(module) = &tools.loop_module {
        files.program_from("/loop.ko", module)?;
    }
    Ok(files)
}

/// The guest's script.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_the_guests_exist() {
        fn text_below(directory: &Path) -> String {
            let mut text = String::new();
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => text += &text_below(&entry.path()),
                    false => text += &fs::read_to_string(entry.path()).unwrap(),
                }
            }
            text
        }
        let text = text_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kernel"));
        for test in TESTS.iter().chain(many_cpus::TESTS).chain(isolation::TESTS) {
            assert!(text.contains(&format!("\"{test}\"")), "no kernel test is called {test}");
        }
    }
}
