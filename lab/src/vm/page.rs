//! The matrix on the terminal and as `docs/kernels.md`.

use std::{collections::BTreeMap, fmt::Write, fs, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    console::{Console, Outcome, Test},
    kernels::Kernel,
    machine::End,
};
use crate::{bench::page::machine, workspace::Workspace};

const PAGE: &str = "docs/kernels.md";

/// Boots of a guest at most.
const BOOTS: u32 = 5;

/// The outcome for a kernel.
pub enum Fate {
    Ran { console: Console, end: End, took: Duration },
    Skipped(String),
}

impl Fate {
    /// It ran to its end, and no test failed.
    pub fn is_good(&self) -> bool {
        match self {
            Fate::Skipped(_) => true,
            Fate::Ran { console, end, .. } => {
                *end == End::Itself
                    && console.ended
                    && console.count(Outcome::Failed) == 0
                    && console.count(Outcome::Passed) > 0
            }
        }
    }

    /// Boots again while the emulator fails, which is not the kernel's fault: it happens in up to half of the boots
    /// of a guest with many CPUs.
    pub fn or_again(mut self, boot: impl Fn() -> Result<Fate>) -> Result<Fate> {
        for slips in 1..BOOTS {
            if !matches!(&self, Fate::Ran { console, .. } if console.slipped) {
                break;
            }
            println!("the emulator executed an instruction that was just patched; booting again");
            self = boot()?;
            if let Fate::Ran { console, .. } = &mut self {
                console.slips = slips;
            }
        }
        Ok(self)
    }

    /// None for a test that was not reached.
    fn test(&self, name: &str) -> Option<&Test> {
        let Fate::Ran { console, .. } = self else { return None };
        console.tests.iter().find(|ran| ran.name == name)
    }

    fn outcome(&self, test: &str) -> Option<Outcome> {
        self.test(test).map(|test| test.outcome)
    }

    pub fn cell(&self, test: &str) -> &'static str {
        match (self, self.outcome(test)) {
            (Fate::Skipped(_), _) => "not tried",
            (_, Some(Outcome::Passed)) => "passed",
            (_, Some(Outcome::Skipped)) => "skipped",
            (_, Some(Outcome::Failed)) => "**FAILED**",
            (_, None) => "**not reached**",
        }
    }

    /// Lines like those of a test binary.
    pub fn lines(&self, kernel: &str, tests: &[&str]) -> Vec<String> {
        if let Fate::Skipped(why) = self {
            let why = why.replace('\n', " ");
            return vec![
                format!("test linux_{kernel} ... ignored, {why}"),
                "test result: ok. 0 passed; 0 failed; 1 ignored".to_owned(),
            ];
        }
        let (mut lines, mut counts) = (Vec::new(), [0; 3]);
        for test in tests {
            let (place, word) = match self.outcome(test) {
                Some(Outcome::Passed) => (0, "ok"),
                Some(Outcome::Skipped) => (2, "ignored"),
                Some(Outcome::Failed) | None => (1, "FAILED"),
            };
            counts[place] += 1;
            lines.push(format!("test linux_{kernel}::{test} ... {word}"));
        }
        let word = if self.is_good() { "ok" } else { "FAILED" };
        let [passed, failed, skipped] = counts;
        lines.push(format!(
            "test result: {word}. {passed} passed; {failed} failed; {skipped} ignored"
        ));
        lines
    }
}

/// The result of `doctor` for a hook: whether it is ok, and the text.
fn hook<'a>(doctor: &'a Value, name: &str) -> Option<(bool, &'a str)> {
    let what = format!("hook {name}");
    let check = doctor["checks"].as_array()?.iter().find(|check| check["what"] == what)?;
    Some((check["state"] == "ok", check["found"].as_str()?))
}

fn is_attached(doctor: &Value, name: &str) -> bool {
    hook(doctor, name).is_some_and(|(good, found)| good && found.starts_with("attached"))
}

/// What marks the end of page faults on this kernel.
fn fault_end(doctor: &Value) -> &'static str {
    if is_attached(doctor, "handle_mm_fault return") {
        "return of handle_mm_fault"
    } else if is_attached(doctor, "minor-faults") {
        "software events"
    } else {
        "nothing (point events)"
    }
}

fn missing_hooks(doctor: &Value) -> String {
    let checks = doctor["checks"].as_array().into_iter().flatten();
    let names: Vec<&str> = checks
        .filter(|check| check["state"] != "ok")
        .filter_map(|check| check["what"].as_str()?.strip_prefix("hook "))
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn clock(doctor: &Value) -> &str {
    let checks = doctor["checks"].as_array().into_iter().flatten();
    let found = checks.filter(|check| check["what"] == "clock").filter_map(|c| c["found"].as_str());
    found.filter_map(|found| found.rsplit(' ').next()).next().unwrap_or("unknown")
}

const HEADER: [&str; 9] = [
    "kernel",
    "release",
    "boot s",
    "probe reads",
    "hooks missing",
    "page faults end at",
    "IPI senders",
    "tests",
    "total s",
];

fn row(kernel: &Kernel, fate: &Fate) -> [String; 9] {
    let name = kernel.name.to_owned();
    let Fate::Ran { console, took, .. } = fate else {
        let mut row: [String; 9] = Default::default();
        row[0] = name;
        row[1] = "not tried".to_owned();
        return row;
    };
    let nothing = Value::Null;
    let doctor = console.doctor.as_ref().unwrap_or(&nothing);
    let senders = if is_attached(doctor, "ipi_send_cpu") { "named" } else { "unknown" };
    let counts = [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|o| console.count(o));
    let mut tests = format!("{} passed", counts[0]);
    for (count, word) in [(counts[1], "FAILED"), (counts[2], "skipped")] {
        if count > 0 {
            let _ = write!(tests, ", {count} {word}");
        }
    }
    if console.slips > 0 {
        let _ = write!(tests, ", booted {} times", console.slips + 1);
    }
    [
        name,
        console.release.clone().unwrap_or_else(|| "did not boot".to_owned()),
        console.up_s.map_or_else(String::new, |s| format!("{s:.1}")),
        clock(doctor).to_owned(),
        missing_hooks(doctor),
        fault_end(doctor).to_owned(),
        senders.to_owned(),
        tests,
        format!("{:.0}", took.as_secs_f64()),
    ]
}

pub fn table(fates: &[(Kernel, Fate)]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(HEADER);
    table.add_rows(fates.iter().map(|(kernel, fate)| row(kernel, fate)));
    table.trim_fmt()
}

pub fn write(workspace: &Workspace, fates: &[(Kernel, Fate)], tests: &[&str]) -> Result<()> {
    let mut page = text(fates, tests);
    let mut about = String::new();
    for (key, value) in machine(workspace) {
        let _ = writeln!(about, "- host {key}: {value}");
    }
    page = page.replace("HOST\n", &about);
    let (_, accuracy) = split(&written(workspace));
    page.push_str(&accuracy);
    publish(workspace, &page)
}

/// Replaces the section on accuracy, which is measured in a separate run.
pub fn write_accuracy(workspace: &Workspace, section: &str) -> Result<()> {
    let (matrix, _) = split(&written(workspace));
    let matrix = if matrix.is_empty() { NOTE.to_owned() } else { matrix };
    publish(workspace, &format!("{}\n\n{ACCURACY}\n{section}", matrix.trim_end()))
}

const NOTE: &str = "<!-- Generated by `cargo xtask vm`; do not edit. -->\n\n";
const ACCURACY: &str = "## Accuracy\n";

/// The current page; empty if there is none yet.
fn written(workspace: &Workspace) -> String {
    fs::read_to_string(workspace.root.join(PAGE)).unwrap_or_default()
}

/// The part before the section on accuracy, and that section.
fn split(page: &str) -> (String, String) {
    match page.find(&format!("\n{ACCURACY}")) {
        Some(at) => (page[..at].to_owned(), page[at..].to_owned()),
        None => (page.to_owned(), String::new()),
    }
}

fn publish(workspace: &Workspace, page: &str) -> Result<()> {
    fs::write(workspace.root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))?;
    println!("wrote {PAGE}");
    Ok(())
}

fn text(fates: &[(Kernel, Fate)], tests: &[&str]) -> String {
    let mut text = String::from(NOTE);
    text.push_str(
        "# Supported kernels\n\n\
         Each kernel is a stock Debian kernel, booted by QEMU on two emulated CPUs with the statically \
         linked programs in its initramfs; the kernel tests run in the guest. The BPF object is the \
         same on all of them. Times are guest times, on a host with other load.\n\n\
         HOST\n\n",
    );
    markdown(&mut text, &HEADER, fates.iter().map(|(kernel, fate)| row(kernel, fate).to_vec()));
    text.push_str("\n## Tests\n\n");
    let names = std::iter::once("test").chain(fates.iter().map(|(kernel, _)| kernel.name));
    let rows = tests.iter().map(|test| {
        let outcomes = fates.iter().map(|(_, fate)| fate.cell(test).to_owned());
        std::iter::once(test.replace('_', " ")).chain(outcomes).collect()
    });
    markdown(&mut text, &names.collect::<Vec<_>>(), rows);
    text.push_str(&skipped(fates, tests));
    text.push_str(
        "\nA hook counts as present if it fired in a self-test that triggers it. Hooks that cannot be \
         triggered (device interrupts, NMIs, work queues) count if they attach; the tests above make \
         them fire. IPI senders \"unknown\": the kernel has no `ipi_send_cpu`, so IPIs are recorded \
         without their senders, and `detour doctor` reports it. \"Booted 2 times\": the emulator had \
         executed an instruction that the other CPU had just patched, and the kernel crashed.\n",
    );
    text
}

/// Why tests were skipped, and on which kernels.
fn skipped(fates: &[(Kernel, Fate)], tests: &[&str]) -> String {
    let mut text = String::new();
    for name in tests {
        let mut kernels = BTreeMap::<&str, Vec<&str>>::new();
        for (kernel, fate) in fates {
            if let Some(test) = fate.test(name).filter(|test| test.outcome == Outcome::Skipped) {
                kernels.entry(&test.reason).or_default().push(kernel.name);
            }
        }
        for (reason, on) in kernels {
            let _ = writeln!(text, "- {}: {reason} ({})", name.replace('_', " "), on.join(", "));
        }
    }
    if text.is_empty() { text } else { format!("\nSkipped:\n\n{text}") }
}

fn markdown(text: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(text, "| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels::KERNELS;

    fn ran(lines: &[&str]) -> Fate {
        let mut console = Console::default();
        for line in lines {
            console.look(line);
        }
        Fate::Ran { console, end: End::Itself, took: Duration::from_secs(70) }
    }

    const DOCTOR: &str = r#"@vm doctor {"checks":[
        {"what":"hook handle_mm_fault return","state":"ok","found":"attached, 9 hits in the self-test"},
        {"what":"hook minor-faults","state":"ok","found":"not needed: it is used"},
        {"what":"hook ipi_send_cpu","state":"reduced","found":"no such tracepoint"},
        {"what":"clock","state":"ok","found":"clocksource tsc, the probe uses rdtsc"}]}"#;

    #[test]
    fn a_kernel_is_good_when_it_came_to_its_end_and_nothing_failed() {
        let start = ["@vm test a passed 1 2"];
        assert!(!ran(&start).is_good());
        assert!(ran(&["@vm test a passed 1 2", "@vm end"]).is_good());
        assert!(!ran(&["@vm test a passed 1 2", "@vm test b FAILED 2 3", "@vm end"]).is_good());
        // A run without tests shows nothing.
        assert!(!ran(&["@vm end"]).is_good());
    }

    #[test]
    fn a_slip_of_the_emulator_is_tried_again_and_said() {
        let slip = || ran(&["[  2.0] Oops: int3: 0000 [#1] SMP"]);
        let good = || Ok(ran(&["@vm test a passed 1 2", "@vm end"]));
        let fate = slip().or_again(good).unwrap();
        assert!(fate.is_good());
        assert!(row(&KERNELS[0], &fate).join(" ").contains("booted 2 times"));
        assert!(!slip().or_again(|| Ok(slip())).unwrap().is_good());
        // Other crashes are not retried.
        let panicked = ran(&["[  2.0] Kernel panic - not syncing"]);
        assert!(!panicked.or_again(good).unwrap().is_good());
    }

    #[test]
    fn what_was_not_reached_counts_as_failed_and_a_kernel_that_is_not_there_as_ignored() {
        let mut tally = crate::tally::Tally::default();
        let cut_off = ran(&["@vm test a passed 1 2", "@vm test b skipped 2 3"]);
        let skipped = Fate::Skipped("no mirror:\nno kernel".into());
        for line in [cut_off, skipped].iter().flat_map(|fate| fate.lines("6.1", &["a", "b", "c"])) {
            tally.look(&line);
        }
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 2));
        assert_eq!(tally.failed_names, ["linux_6.1::c"]);
        assert_eq!(tally.skipped_names, ["linux_6.1::b", "linux_6.1 (no mirror: no kernel)"]);
    }

    #[test]
    fn the_section_on_accuracy_stays_when_the_rest_is_written_anew() {
        let page = format!("# Kernels\n\n## Tests\n\n{ACCURACY}\nexact\n");
        let (matrix, accuracy) = split(&page);
        assert_eq!(matrix, "# Kernels\n\n## Tests\n");
        assert_eq!(accuracy, format!("\n{ACCURACY}\nexact\n"));
        assert_eq!(split("# Kernels\n"), ("# Kernels\n".to_owned(), String::new()));
    }

    #[test]
    fn the_page_names_what_is_missing_and_keeps_its_tables_in_shape() {
        let doctor = DOCTOR.replace('\n', "");
        let tests = ["@vm test a_b passed 1 2", "@vm test d skipped 2 3 no such device"];
        let first = ran(&["@vm kernel 6.1.0", &doctor, tests[0], tests[1], "@vm end"]);
        let fates = [(KERNELS[1], first), (KERNELS[2], Fate::Skipped("no mirror".into()))];
        let text = text(&fates, &["a_b", "c", "d"]);
        for words in ["ipi_send_cpu", "return of handle_mm_fault", "| unknown |", "rdtsc", "a b"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(text.contains("not reached") && text.contains("not tried"), "{text}");
        assert!(text.contains("Skipped:\n\n- d: no such device (6.1)\n"), "{text}");
        // Paths and addresses of this machine must not leak.
        assert!(!text.contains("mirror"), "{text}");
        let bars = |line: &str| line.matches('|').count();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| 6.")).collect();
        assert!(rows.iter().all(|line| bars(line) == HEADER.len() + 1), "{rows:?}");
    }
}
