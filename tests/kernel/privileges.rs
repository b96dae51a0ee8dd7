//! Least privilege: at start, while recording, and when writing files.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    bad_input::{as_nobody, fails, for_everybody, record_as},
    support::{Needs, Recording, Scratch, Test, detour, sum, text},
};

pub const TESTS: &[Test] = &[
    ("cap_bpf_and_cap_perfmon_suffice", Needs::RootAndSetpriv, cap_bpf_and_cap_perfmon_suffice),
    (
        "with_cap_syslog_functions_have_names",
        Needs::RootSetprivAndSymbols,
        with_cap_syslog_functions_have_names,
    ),
    (
        "doctor_says_what_an_ordinary_user_with_both_capabilities_lacks",
        Needs::RootAndSetpriv,
        doctor_says_what_is_lacking,
    ),
    (
        "no_thread_of_a_recorder_keeps_a_capability",
        Needs::Root,
        no_thread_of_a_recorder_keeps_a_capability,
    ),
    (
        "a_recorded_command_keeps_its_privileges",
        Needs::Root,
        a_recorded_command_keeps_its_privileges,
    ),
    (
        "root_writes_through_no_link_and_to_no_strangers_file",
        Needs::Root,
        root_writes_through_no_link_and_to_no_strangers_file,
    ),
];

const NOBODY: u32 = 65_534;

fn cap_bpf_and_cap_perfmon_suffice() -> Result<()> {
    let (said, report) = record_as("+bpf,+perfmon", "cap-both")?;
    ensure!(report["mode"] == "attributed", "{}", report["mode"]);
    ensure!(sum(&report, "timer", "", "count") > 20, "{}", report["sources"]);
    // No kernel address leaks, whether the kernel shows names or not.
    let sources = report["sources"].to_string();
    // Any thread may be named `0x1`; kernel addresses begin like this on all architectures.
    ensure!(!sources.contains("0xffff"), "kernel address in {sources}");
    let unnamed = sum(&report, "timer", "hrtimer: unknown function", "count");
    if unnamed > 0 {
        // Then the remark tells what is missing, and suggests no setting that is already set.
        let rows = report["sources"].as_array().into_iter().flatten();
        let timers =
            rows.filter(|row| row["name"].as_str().is_some_and(|n| n.starts_with("hrtimer")));
        ensure!(timers.count() == 1, "several rows in {sources}");
        ensure!(said.contains("kernel symbols are hidden (CAP_SYSLOG is missing)"), "{said}");
        ensure!(said.contains("cap_syslog+ep") && !said.contains("sysctl"), "{said}");
    }
    Ok(())
}

fn with_cap_syslog_functions_have_names() -> Result<()> {
    let (said, report) = record_as("+bpf,+perfmon,+syslog", "cap-syslog")?;
    ensure!(!said.contains("kernel symbols are hidden"), "{said}");
    ensure!(sum(&report, "timer", "tick", "count") > 20, "{}", report["sources"]);
    ensure!(
        sum(&report, "timer", "hrtimer: unknown function", "count") == 0,
        "an unknown function"
    );
    Ok(())
}

fn doctor_says_what_is_lacking() -> Result<()> {
    let scratch = Scratch::new("doctor")?;
    let binary = for_everybody(&scratch)?;
    let check = |capabilities: &str, what: &str| -> Result<serde_json::Value> {
        let output = as_nobody(capabilities).arg(&binary).args(["doctor", "--json"]).output()?;
        let checks: serde_json::Value =
            serde_json::from_slice(&output.stdout).with_context(|| text(&output.stderr))?;
        let list = checks.as_array().or(checks["checks"].as_array()).context("no checks")?;
        let found = list.iter().find(|check| check["what"] == what);
        Ok(found.with_context(|| format!("no check of {what}"))?.clone())
    };
    let state_of = |capabilities: &str, what: &str| -> Result<String> {
        Ok(check(capabilities, what)?["state"].to_string())
    };
    ensure!(state_of("+bpf,+perfmon", "privileges")?.contains("ok"), "both are not sufficient");
    ensure!(state_of("+bpf", "privileges")?.contains("missing"), "one is sufficient");
    let symbols = check("+bpf,+perfmon", "kernel symbols")?;
    if symbols["state"] != "ok" && recorder::files::text("/proc/sys/kernel/kptr_restrict") != "2" {
        let remedy = symbols["remedy"].to_string();
        ensure!(remedy.contains("cap_syslog") && !remedy.contains("sysctl"), "{symbols}");
        ensure!(state_of("+bpf,+perfmon,+syslog", "kernel symbols")?.contains("ok"), "{symbols}");
    }
    // Root may always lock memory; other users within their limit.
    let limit = state_of("+bpf,+perfmon", "locked memory")?;
    ensure!(limit.contains("ok") || limit.contains("reduced"), "{limit}");
    Ok(())
}

/// A field of /proc/PID/status.
fn field(status: &Path, name: &str) -> Result<String> {
    let text = fs::read_to_string(status)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no {name} in {}", status.display()))?.trim().to_owned())
}

fn no_thread_of_a_recorder_keeps_a_capability() -> Result<()> {
    let scratch = Scratch::new("capabilities")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["-d", "60s"])?;
    let tasks = fs::read_dir(format!("/proc/{}/task", recording.pid()))?;
    let mut threads = 0;
    for task in tasks {
        let status = task?.path().join("status");
        let name = field(&status, "Name")?;
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let value = field(&status, set)?;
            ensure!(u64::from_str_radix(&value, 16)? == 0, "{name} has {set} {value}");
        }
        ensure!(field(&status, "NoNewPrivs")? == "1", "{name} may gain privileges");
        threads += 1;
    }
    // Main, reader, writer, and a probe.
    ensure!(threads >= 4, "only {threads} threads");
    // And it still names its sources.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let report = recording.stop()?.report()?;
    ensure!(report["mode"] == "attributed", "{}", report["mode"]);
    ensure!(sum(&report, "timer", "", "count") > 20, "{}", report["sources"]);
    Ok(())
}

fn a_recorded_command_keeps_its_privileges() -> Result<()> {
    let scratch = Scratch::new("command")?;
    let command = ["--", "grep", "-E", "^(CapEff|NoNewPrivs):", "/proc/self/status"];
    let path = scratch.file("trace.detour");
    let output = detour().args(["record", "--quiet", "-o"]).arg(path).args(command).output()?;
    let said = text(&output.stdout);
    let own = Path::new("/proc/self/status");
    for name in ["CapEff", "NoNewPrivs"] {
        let expected = field(own, name)?;
        let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        ensure!(
            found.map(str::trim) == Some(expected.as_str()),
            "{name} is not {expected}: {said}"
        );
    }
    Ok(())
}

/// Every command that writes a file, with the file name as its last argument.
fn writers(trace: &Path) -> Vec<Vec<PathBuf>> {
    let words = |line: &str| -> Vec<PathBuf> {
        let word = |word: &str| match word {
            "TRACE" => trace.to_path_buf(),
            word => PathBuf::from(word),
        };
        line.split(' ').map(word).collect()
    };
    [
        "record --no-bpf -d 100ms -o",
        "report TRACE --no-projection --html",
        "diff TRACE TRACE --runs 1 --ranks 2 --html",
        "export TRACE --to csv -o",
        "import NUMBERS -o",
        "goal gen --op barrier --ranks 4 -o",
        "simulate collective --ranks 2 --runs 1 --csv",
        "simulate collective --ranks 2 --runs 1 --resume",
    ]
    .map(words)
    .to_vec()
}

fn root_writes_through_no_link_and_to_no_strangers_file() -> Result<()> {
    let scratch = Scratch::new("links")?;
    let trace = scratch.file("good.detour");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/two-cpus.detour"), &trace)?;
    let csv = scratch.file("good.csv");
    fs::write(&csv, "start_ns,length_ns\n1000,200\n5000,300\n")?;
    // Like /tmp: world-writable and sticky.
    let shared = scratch.file("shared");
    fs::create_dir(&shared)?;
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777))?;
    let precious = scratch.file("precious");
    for mut arguments in writers(&trace) {
        for word in &mut arguments {
            if word.ends_with("NUMBERS") {
                *word = csv.clone();
            }
        }
        let bait = shared.join("output");
        let plant: [(&str, &dyn Fn() -> Result<()>); 3] = [
            ("symbolic link", &|| Ok(symlink(&precious, &bait)?)),
            ("hard link", &|| Ok(fs::hard_link(&precious, &bait)?)),
            ("another user", &|| {
                fs::write(&bait, "precious")?;
                Ok(chown(&bait, Some(NOBODY), None)?)
            }),
        ];
        for (word, plant) in plant {
            fs::write(&precious, "precious")?;
            plant()?;
            let name = || format!("{} with {word}", arguments[0].display());
            fails(detour().args(&arguments).arg(&bait), 1, &[word]).with_context(name)?;
            ensure!(fs::read_to_string(&precious)? == "precious", "{}: written", name());
            fs::remove_file(&bait)?;
        }
        // Root may write in a user's own directory.
        let own = scratch.file("own");
        fs::create_dir(&own)?;
        chown(&own, Some(NOBODY), None)?;
        let theirs = own.join("output");
        if !arguments.iter().any(|word| word.ends_with("--resume")) {
            fs::write(&theirs, "")?;
            chown(&theirs, Some(NOBODY), None)?;
        }
        let output = detour().args(&arguments).arg(&theirs).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        ensure!(!fs::read(&theirs)?.is_empty(), "{arguments:?} wrote nothing");
        fs::remove_dir_all(&own)?;
    }
    Ok(())
}
