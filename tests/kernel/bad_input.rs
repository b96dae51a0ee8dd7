//! User mistakes and missing machine features: a message that tells what to do, or a smaller result
//! that says so. Never a panic.

use std::{fs, process::Command};

use anyhow::{Result, ensure};

use crate::support::{Needs, Scratch, Test, cpus, detour, report, text};

pub const TESTS: &[Test] = &[
    ("an_unknown_cpu_is_refused_by_number", Needs::Nothing, an_unknown_cpu_is_refused_by_number),
    (
        "a_cpu_outside_the_cpuset_is_refused_with_those_inside",
        Needs::RootAndTwoCpus,
        a_cpu_outside_the_cpuset_is_refused_with_those_inside,
    ),
    (
        "an_unwritable_output_is_refused_with_its_name",
        Needs::Nothing,
        an_unwritable_output_is_refused,
    ),
    ("foreign_and_damaged_files_are_named_as_such", Needs::Nothing, foreign_and_damaged_files),
    (
        "without_privileges_the_probe_records_alone_and_says_so",
        Needs::RootAndSetpriv,
        without_privileges_the_probe_records_alone_and_says_so,
    ),
    ("with_cap_bpf_alone_the_probe_records_and_says_so", Needs::RootAndSetpriv, with_cap_bpf_alone),
    ("a_threshold_below_t_min_is_refused", Needs::Nothing, a_threshold_below_t_min_is_refused),
    ("a_missing_process_or_command_is_named", Needs::Root, a_missing_process_or_command_is_named),
];

/// Runs a command that must fail with this exit code and these messages.
pub fn fails(command: &mut Command, code: i32, words: &[&str]) -> Result<()> {
    let output = command.output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(code), "{:?}: {said}", output.status);
    ensure!(!said.contains("panicked"), "{said}");
    for word in words {
        ensure!(said.contains(word), "no '{word}' in: {said}");
    }
    Ok(())
}

fn an_unknown_cpu_is_refused_by_number() -> Result<()> {
    fails(detour().args(["record", "-c", "9999", "-o", "never"]), 1, &["CPU 9999", "online"])?;
    fails(detour().args(["record", "-c", "zero"]), 2, &["1,3-5"])
}

fn a_cpu_outside_the_cpuset_is_refused_with_those_inside() -> Result<()> {
    let (cpu, other) = cpus();
    let mut command = Command::new("taskset");
    command.args(["-c", &other.to_string()]).arg(env!("CARGO_BIN_EXE_detour")).args([
        "record",
        "-c",
        &cpu.to_string(),
        "-o",
        "never",
    ]);
    fails(&mut command, 1, &[&format!("CPU {cpu} is outside the cpuset"), "-c"])
}

fn an_unwritable_output_is_refused() -> Result<()> {
    let scratch = Scratch::new("unwritable")?;
    let path = scratch.file("no/such/directory/trace.detour");
    fails(detour().args(["record", "--no-bpf", "-d", "1s", "-o"]).arg(&path), 1, &["no/such"])
}

fn foreign_and_damaged_files() -> Result<()> {
    let scratch = Scratch::new("foreign")?;
    let path = scratch.file("trace.detour");
    let report = |words: &[&str]| fails(detour().arg("report").arg(&path), 1, words);
    fs::write(&path, "")?;
    report(&["not a detour trace"])?;
    fs::write(&path, "hello, world\n")?;
    report(&["not a detour trace"])?;
    fs::write(&path, [0u8; 4096])?;
    report(&["not a detour trace"])?;
    fails(detour().arg("report").arg(scratch.file("none")), 1, &["none", "No such file"])?;
    fs::write(&path, "# Benchmark Method: selfish\n0.0\t100.0\ngarbage\n")?;
    fails(detour().arg("import").arg(&path), 1, &["line 3"])
}

/// As user nobody, with these capabilities and no others.
pub fn as_nobody(capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    if !capabilities.is_empty() {
        command.arg(format!("--inh-caps={capabilities}"));
        command.arg(format!("--ambient-caps={capabilities}"));
    }
    command
}

/// A copy of the binary that any user can run, in a directory where any user can write.
pub fn for_everybody(scratch: &Scratch) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let binary = scratch.file("detour");
    fs::copy(env!("CARGO_BIN_EXE_detour"), &binary)?;
    let directory = scratch.file(".");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
    Ok(binary)
}

pub fn record_as(capabilities: &str, name: &str) -> Result<(String, serde_json::Value)> {
    let scratch = Scratch::new(name)?;
    let mut command = as_nobody(capabilities);
    let binary = for_everybody(&scratch)?;
    let path = scratch.file("trace.detour");
    let output = command.arg(binary).args(["record", "-d", "1s", "-o"]).arg(&path).output()?;
    let said = text(&output.stderr);
    ensure!(output.status.success(), "{:?}: {said}", output.status);
    ensure!(!said.contains("panicked"), "{said}");
    Ok((said, report(&path)?))
}

fn without_privileges_the_probe_records_alone_and_says_so() -> Result<()> {
    let (said, report) = record_as("", "nobody")?;
    ensure!(said.contains("probe only") && said.contains("CAP_BPF"), "{said}");
    ensure!(report["mode"] == "probe_only", "{}", report["mode"]);
    ensure!(!report["cpus"].as_array().is_none_or(Vec::is_empty));
    Ok(())
}

fn with_cap_bpf_alone() -> Result<()> {
    let (said, report) = record_as("+bpf", "cap-bpf")?;
    ensure!(said.contains("CAP_PERFMON"), "{said}");
    ensure!(report["mode"] == "probe_only", "{}", report["mode"]);
    Ok(())
}

fn a_threshold_below_t_min_is_refused() -> Result<()> {
    let arguments = ["record", "--no-bpf", "-d", "1s", "-T", "5ns", "-o", "never"];
    fails(detour().args(arguments), 1, &["t_min", "at least"])
}

fn a_missing_process_or_command_is_named() -> Result<()> {
    fails(detour().args(["record", "--pid", "4194300", "-o", "never"]), 1, &["4194300"])?;
    let scratch = Scratch::new("no-command")?;
    let path = scratch.file("trace.detour");
    let no_such = ["--", "no-such-command-anywhere"];
    fails(
        detour().args(["record", "-o"]).arg(&path).args(no_such),
        127,
        &["no-such-command-anywhere"],
    )
}
