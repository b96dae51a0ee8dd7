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
mod healthcheck;
mod inject;
mod isolation;
mod left;
mod machine;
mod mpi;
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
mod tutorial;
mod until;
mod waits;
mod whatif;

use std::sync::RwLock;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Tests that measure the machine: two at once would measure each other.
const ALONE: &[&[support::Test]] = &[
    daemon::TESTS,
    whatif::TESTS,
    counts::TESTS,
    counting::TESTS,
    storms::TESTS,
    rings::TESTS,
    programs::TESTS,
    threads::TESTS,
    cgroups::TESTS,
    waits::TESTS,
    machine::TESTS,
    faults::TESTS,
    top::TESTS,
    until::TESTS,
    isolation::TESTS,
    tutorial::TESTS,
    healthcheck::TESTS,
    inject::TESTS,
    mpi::TESTS,
];

/// Tests of what is recorded at all, of endings, and of messages: two at a time.
const IN_PAIRS: &[&[support::Test]] =
    &[endings::TESTS, namespaces::TESTS, privileges::TESTS, bad_input::TESTS];

/// Held for writing by a test that must be alone.
static MACHINE: RwLock<()> = RwLock::new(());

fn run(needs: support::Needs, test: fn() -> anyhow::Result<()>) -> Result<Completion, Failed> {
    if !needs.are_met() {
        return Ok(Completion::ignored_with(format!("needs {needs:?}")));
    }
    match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast_ref::<support::Skip>() {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => Err(failed(&error)),
        },
    }
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}

/// The lock protects no data, so that a test that panicked does not matter to the next.
fn alone(needs: support::Needs, test: fn() -> anyhow::Result<()>) -> Result<Completion, Failed> {
    let _machine = MACHINE.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = left::Loaded::now();
    let completion = run(needs, test)?;
    before.and_then(|before| before.nothing_new()).map_err(|error| failed(&error))?;
    Ok(completion)
}

fn in_pairs(needs: support::Needs, test: fn() -> anyhow::Result<()>) -> Result<Completion, Failed> {
    let _machine = MACHINE.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    run(needs, test)
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(2);
    // What two tests at a time left behind is found by a test of its own, after them.
    let at_start = left::Loaded::now();
    let left = Trial::test("nothing_is_left_in_the_kernel", move || {
        let _machine = MACHINE.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        at_start.and_then(|before| before.nothing_new()).map_err(|error| failed(&error))
    });
    let pairs = IN_PAIRS
        .concat()
        .into_iter()
        .map(|(name, needs, test)| Trial::ignorable_test(name, move || in_pairs(needs, test)));
    let singles = ALONE
        .concat()
        .into_iter()
        .map(|(name, needs, test)| Trial::ignorable_test(name, move || alone(needs, test)));
    libtest_mimic::run(&arguments, pairs.chain([left]).chain(singles).collect()).exit();
}
