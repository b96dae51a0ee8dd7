//! Tests on the running kernel: BPF programs are really loaded, disturbances of known size are
//! really made, and the recording must know them by name and number. They need root; without it
//! each is reported as ignored, by name.

#[cfg(target_os = "linux")]
mod bad_input;
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
mod storms;
#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod whatif;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    use libtest_mimic::{Arguments, Failed, Trial};

    let tests: Vec<support::Test> = [
        daemon::TESTS,
        whatif::TESTS,
        counts::TESTS,
        counting::TESTS,
        storms::TESTS,
        programs::TESTS,
        endings::TESTS,
        machine::TESTS,
        faults::TESTS,
        privileges::TESTS,
        bad_input::TESTS,
        top::TESTS,
    ]
    .concat();
    let mut arguments = Arguments::from_args();
    // They measure the machine; two at once would measure each other.
    arguments.test_threads = Some(1);
    let trials = tests
        .into_iter()
        .map(|(name, needs, test)| {
            let body = move || {
                let before = left::Loaded::now();
                test()
                    .and_then(|()| before.and_then(|before| before.nothing_new()))
                    .map_err(|error| Failed::from(format!("{error:#}")))
            };
            Trial::test(name, body).with_ignored_flag(!needs.are_met())
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}
