//! `cargo xtask test`: all checks required before a change is merged. All steps run even if one fails,
//! so that one run shows everything.
//!
//! Everything is built once, in release mode: the kernel tests measure time and need it, and a second
//! profile would double the build.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;

use lab::{
    bench, cluster, exec, fuzz, page,
    reliability::{self, Reliability},
    slurm,
    tally::Tally,
    vm,
    workspace::Workspace,
};

use crate::{collector, dist, docs, ebpf, portable};

/// Tests on the running kernel, which need root, time and an otherwise idle machine.
const KERNEL_TESTS: &str = "kernel";

/// Per target.
const FUZZ_SECONDS: u32 = 60;

struct Step {
    name: &'static str,
    /// The reason, if it failed.
    failed: Option<String>,
    took: Duration,
    tally: Tally,
}

pub fn run(workspace: &Workspace, all: bool) -> Result<bool> {
    let mut steps = Steps::default();
    steps.step("format", |_| exec::run(cargo(workspace).args(["fmt", "--all", "--check"])));
    steps.step("lints", |_| {
        let options = ["clippy", "--release", "--locked", "--all-targets", "--", "-D", "warnings"];
        exec::run(cargo(workspace).args(options))
    });
    steps.lines("another system", "the command does not compile", |say| {
        portable::check(workspace, say)
    });
    steps.step("lints of the BPF programs", |_| ebpf::lint(workspace));
    steps.step("lints of the MPI collector", |_| collector::lint(workspace));
    steps.step("BPF object", |_| match ebpf::check(workspace)? {
        true => Ok(()),
        false => anyhow::bail!("the committed object does not match the sources"),
    });
    steps.step("generated documentation", |_| {
        for (page, current) in [
            ("docs/ARCHITECTURE.md", docs::crates::check(workspace)?),
            ("docs/json.md", docs::json::check(workspace)?),
        ] {
            anyhow::ensure!(current, "{page} is out of date: run cargo xtask docs");
        }
        Ok(())
    });
    // All targets at once: the same features as the steps below, and the programs of other packages
    // that the kernel tests run.
    steps.step("build", |_| {
        exec::run(cargo(workspace).args(["build", "--release", "--locked", "--all-targets"]))
    });
    steps.step("tests", |tally| {
        let mut command = workspace.test();
        command.args(["--lib", "--bins"]);
        for name in workspace.tests.iter().filter(|name| *name != KERNEL_TESTS) {
            command.args(["--test", name]);
        }
        exec::watch(&mut command, |line| tally.look(line))?
    });
    steps.step("examples in the documentation", |tally| {
        exec::watch(workspace.test().arg("--doc"), |line| tally.look(line))?
    });
    steps.lines("pages in a browser", "a page check failed", |say| page::run(workspace, None, say));
    let reliability = Reliability::start(workspace)?;
    steps.step("kernel tests", |tally| {
        let mut command = workspace.test();
        if all {
            reliability.ask(&mut command);
        }
        // One at a time: tests would be noise for each other.
        command.args(["--test", KERNEL_TESTS, "--", "--test-threads=1"]);
        exec::watch(&mut command, |line| tally.look(line))?
    });
    if all {
        steps.lines("other kernels", "a kernel failed", |say| vm::run(workspace, &[], true, say));
        steps.lines("more than 64 CPUs", "a test failed", |say| vm::many_cpus::run(workspace, say));
        steps.lines("isolated CPUs", "a test failed", |say| vm::isolation::run(workspace, say));
        steps.lines("accuracy", "a test failed", |say| vm::accuracy::run(workspace, true, say));
        steps.lines("rtla", "a comparison failed", |say| vm::rtla::run(workspace, true, say));
        steps.step("a day's recording", |tally| {
            for filter in reliability::DAY {
                let mut command = workspace.test();
                command.args(*filter);
                reliability.ask(&mut command);
                exec::watch(&mut command, |line| tally.look(line))??;
            }
            Ok(())
        });
        steps.step("docs/reliability.md", |_| reliability.write(workspace));
        steps.lines("fuzzing", "a target crashed", |say| {
            fuzz::run(workspace, &[], FUZZ_SECONDS, say)
        });
        steps.lines("packages", "a package check failed", |say| dist::run(workspace, true, say));
        steps.lines("Slurm", "a job failed", |say| slurm::run(workspace, say));
        steps.lines("two whole machines", "a check failed", |say| {
            let options = cluster::Options::default();
            cluster::run(workspace, &options, dist::for_this_host(workspace)?, say)
        });
        steps.step("benchmarks, short", |_| match bench::run(workspace, true, None)? {
            true => Ok(()),
            false => anyhow::bail!("a target was missed"),
        });
    }
    Ok(steps.summary())
}

fn cargo(workspace: &Workspace) -> Command {
    exec::cargo(&workspace.root)
}

#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// A step that reports results like a test binary, and whether all passed.
    fn lines(
        &mut self,
        name: &'static str,
        problem: &'static str,
        work: impl FnOnce(&mut dyn FnMut(&str)) -> Result<bool>,
    ) {
        self.step(name, |tally| {
            let good = work(&mut |line| {
                println!("{line}");
                tally.look(line);
            })?;
            if good { Ok(()) } else { anyhow::bail!(problem) }
        });
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Tally) -> Result<()>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let mut tally = Tally::default();
        let failed = work(&mut tally).err().map(|error| format!("{error:#}"));
        if let Some(why) = &failed {
            println!("{name}: {why}");
            // A step that fails without a failing test (a lint, a build, a crash) is a failure all the
            // same.
            tally.failed = tally.failed.max(1);
        }
        self.0.push(Step { name, failed, took: start.elapsed(), tally });
    }

    /// Prints the summary; true if nothing failed.
    fn summary(&self) -> bool {
        let mut total = Tally::default();
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        table.set_header(["step", "result", "seconds"]);
        for step in &self.0 {
            total += &step.tally;
            let result = if step.failed.is_some() { "FAILED" } else { "passed" };
            let seconds = format!("{:.0}", step.took.as_secs_f64());
            table.add_row([step.name, result, &seconds]);
        }
        println!("\n=== summary\n{}", table.trim_fmt());
        names("skipped tests", &total.skipped_names);
        names("failed tests", &total.failed_names);
        let why = |step: &Step| Some(format!("{}: {}", step.name, step.failed.as_ref()?));
        let failed = self.0.iter().filter_map(why);
        names("failed steps", &failed.collect::<Vec<_>>());
        println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
        total.failed == 0
    }
}

fn names(title: &str, names: &[String]) {
    if !names.is_empty() {
        println!("\n{title}:\n  {}", names.join("\n  "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_breaks_counts_as_a_failure_and_the_next_one_still_runs() {
        let mut steps = Steps::default();
        steps.step("first", |_| anyhow::bail!("broken"));
        steps.step("second", |tally| {
            tally.look("test result: ok. 2 passed; 0 failed; 1 ignored");
            Ok(())
        });
        assert_eq!((steps.0[0].tally.failed, steps.0[1].tally.passed), (1, 2));
        assert!(!steps.summary());
    }

    #[test]
    fn failing_tests_are_not_counted_twice() {
        let mut steps = Steps::default();
        steps.step("tests", |tally| {
            tally.look("test result: FAILED. 2 passed; 3 failed; 0 ignored");
            anyhow::bail!("exit code 101")
        });
        assert_eq!(steps.0[0].tally.failed, 3);
    }
}
