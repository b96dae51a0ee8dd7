//! Tests on the running kernel: BPF programs are really loaded, disturbances of known size are really
//! generated, and the recording must identify them by name and number. A test that the machine cannot
//! run, for lack of root to begin with, is ignored and reported by name and reason.

#[cfg(target_os = "linux")]
mod bad_input;
#[cfg(target_os = "linux")]
mod cgroups;
#[cfg(target_os = "linux")]
mod counting;
#[cfg(target_os = "linux")]
mod counts;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod endings;
mod faults;
#[cfg(target_os = "linux")]
mod left;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
#[path = "../pty/mod.rs"]
mod pty;
#[cfg(target_os = "linux")]
#[path = "../reliability/mod.rs"]
mod reliability;
#[cfg(target_os = "linux")]
mod rings;
#[cfg(target_os = "linux")]
mod storms;
#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod waits;
#[cfg(target_os = "linux")]
mod whatif;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    use libtest_mimic::{Arguments, Completion, Failed, Trial};

    let tests: Vec<support::Test> = [
        daemon::TESTS,
        whatif::TESTS,
        counts::TESTS,
        counting::TESTS,
        storms::TESTS,
        rings::TESTS,
        programs::TESTS,
        threads::TESTS,
        cgroups::TESTS,
        namespaces::TESTS,
        waits::TESTS,
        endings::TESTS,
        machine::TESTS,
        faults::TESTS,
        privileges::TESTS,
        bad_input::TESTS,
        top::TESTS,
    ]
    .concat();
    let mut arguments = Arguments::from_args();
    // Tests measure the machine; two at once would measure each other.
    arguments.test_threads = Some(1);
    let trials = tests
        .into_iter()
        .map(|(name, needs, test)| {
            Trial::ignorable_test(name, move || {
                if !needs.are_met() {
                    return Ok(Completion::ignored_with(format!("needs {needs:?}")));
                }
                let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
                let before = left::Loaded::now();
                let outcome = match test() {
                    Ok(()) => Completion::Completed,
                    Err(error) => match error.downcast_ref::<support::Skip>() {
                        Some(why) => Completion::ignored_with(why),
                        None => return Err(failed(error)),
                    },
                };
                before.and_then(|before| before.nothing_new()).map_err(failed)?;
                Ok(outcome)
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}
