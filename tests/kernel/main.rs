//! Tests on the running kernel: BPF programs are really loaded, disturbances of known size are really
//! generated, and the recording must identify them by name and number. A test that the machine cannot
//! run, for lack of root to begin with, is ignored and reported by name and reason.

mod bad_input;
mod cgroups;
mod counting;
mod counts;
mod daemon;
mod endings;
mod faults;
mod left;
mod machine;
mod namespaces;
mod privileges;
mod programs;
#[path = "../pty/mod.rs"]
mod pty;
#[path = "../reliability/mod.rs"]
mod reliability;
mod rings;
mod storms;
mod support;
mod threads;
mod top;
mod waits;
mod whatif;

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
