//! Faults that hit nodes during a recording. The recording survives, or ends and tells why; losses are
//! counted; nothing is left behind.

pub mod clock;
pub mod cpuset;
mod kills;
mod overrun;
mod pair;
mod tasks;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{Needs, Test};

pub const TESTS: &[Test] = &[
    (
        "faults::kills_at_random_moments_leave_readable_files_and_nothing_in_the_kernel",
        Needs::Root,
        kills::at_random_moments,
    ),
    (
        "faults::a_clock_that_is_stepped_does_not_move_what_is_recorded",
        Needs::RootAndTheClock,
        clock::steps_do_not_move_what_is_recorded,
    ),
    (
        "faults::a_cpu_that_leaves_the_cpuset_ends_its_lane_and_the_file_says_so",
        Needs::RootAndCpusets,
        cpuset::a_cpu_that_leaves_ends_its_lane,
    ),
    (
        "faults::thousands_of_short_tasks_keep_their_names_in_bounded_memory",
        Needs::RootAndTwoCpus,
        tasks::short_tasks_keep_their_names,
    ),
    (
        "faults::a_ring_that_overruns_counts_every_loss",
        Needs::RootAndTwoCpus,
        overrun::every_loss_is_counted,
    ),
    (
        "faults::a_recorder_that_is_stopped_for_a_while_goes_on_and_the_account_closes",
        Needs::RootAndTwoCpus,
        overrun::a_stopped_recorder_goes_on,
    ),
    (
        "faults::two_recorders_count_the_same_and_do_not_disturb_each_other",
        Needs::RootAndTwoCpus,
        pair::two_recorders_count_the_same,
    ),
];

/// Emitted equals read plus lost. Returns the number lost.
fn nothing_unaccounted(report: &Value) -> Result<u64> {
    let number = |value: &Value| value.as_u64().with_context(|| format!("no number: {value}"));
    let emitted = number(&report["entries"]["emitted"])?;
    let read = number(&report["entries"]["read"])?;
    let lost = number(&report["lost"]["records"])?;
    ensure!(emitted > 0 && emitted == read + lost, "{emitted} emitted, {read} read, {lost} lost");
    Ok(lost)
}
