//! `cargo xtask vm --rtla`: the recorder compared with rtla's osnoise, the tool that comes with the
//! kernel. Both watch the same CPU under the same loads, one after the other and at once, on a machine
//! whose clock counts instructions. The table is docs/rtla.md.

use std::{collections::HashMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    Guest,
    accuracy::KERNEL_OPTIONS,
    archive::{Archive, once},
    console::{Console, Outcome, Test},
    contents,
    initramfs::Initramfs,
    kernels,
    machine::TWO_COUNTING,
    page::Fate,
    prepare, tools,
};
use crate::workspace::Workspace;

/// osnoise is compiled only into Debian's real-time kernels.
const KERNEL: &str = "6.12-rt";
const NAME: &str = "rtla";
const PAGE: &str = "docs/rtla.md";

/// Seconds of guest time.
const LASTS_S: f64 = 14.0;

const TESTS: &[&str] = &[
    "every_hit_of_the_daemon_is_recorded_beside_osnoise",
    "every_ipi_is_recorded_beside_osnoise",
    "the_daemon_took_what_the_kernel_charged_it_with",
    "no_less_is_outside_the_kernel_than_osnoise_says",
];

/// Relative tolerance between the daemon's time in the recorder and in the kernel, which charges it
/// with part of the switches to and from it.
const CHARGED_WITHIN: f64 = 0.05;

/// True if the recorder sees what osnoise sees, and what the loads did. Prints lines like a test
/// binary; with `publish` the page is written.
pub fn run(workspace: &Workspace, publish: bool, mut say: impl FnMut(&str)) -> Result<bool> {
    let place = workspace.target.join("vm");
    let kernel = kernels::chosen(&[KERNEL.to_owned()])?[0];
    println!("\n=== rtla on Linux {KERNEL}");
    let guest = Guest {
        name: NAME,
        processors: TWO_COUNTING,
        kernel_options: KERNEL_OPTIONS,
        script: include_str!("rtla.sh").to_owned(),
        lasts_s: Some(LASTS_S),
    };
    let mut built = HashMap::new();
    let mut fate = match prepare(workspace, &place, &kernel, &mut built)? {
        Err(missing) => Fate::Skipped(missing),
        Ok((tools, programs)) => {
            let mut files = contents(&tools, programs, &guest.script)?;
            match add_rtla(&place, &mut files) {
                Err(missing) => Fate::Skipped(format!("{missing:#}")),
                Ok(()) => guest.boot(&place, &tools, files)?,
            }
        }
    };
    let mut text = None;
    if let Fate::Ran { console, .. } = &mut fate {
        match Comparison::of(console) {
            Ok(comparison) => {
                console.tests = comparison.tests();
                text = Some(comparison.page(console));
            }
            Err(error) => println!("{error:#}"),
        }
    }
    for line in fate.lines(NAME, TESTS) {
        say(&line);
    }
    if !fate.is_good() {
        println!("console output: {}", guest.console(&place).display());
    }
    if let Some(text) = text {
        println!("\n{text}");
        if publish {
            let page = workspace.root.join(PAGE);
            fs::write(&page, text).with_context(|| format!("cannot write {PAGE}"))?;
            println!("wrote {PAGE}");
        }
    }
    Ok(fate.is_good())
}

/// The program with the libraries it needs, which are dependencies of its package.
fn add_rtla(place: &Path, files: &mut Initramfs) -> Result<()> {
    let unpacked = place.join(NAME);
    once(&unpacked, |into| {
        println!("fetching rtla");
        Archive::open(place, tools::SUITE, "amd64")?.unpack_with_dependencies(&[NAME], into)
    })?;
    let libraries = unpacked.join("usr/lib/x86_64-linux-gnu");
    for directory in ["/lib", "/lib64"] {
        files.directory(directory);
    }
    let loader = "ld-linux-x86-64.so.2";
    files.program_from(&format!("/lib64/{loader}"), &libraries.join(loader))?;
    for library in ["libc.so.6", "libm.so.6", "libtraceevent.so.1", "libtracefs.so.1"] {
        files.program_from(&format!("/lib/{library}"), &libraries.join(library))?;
    }
    files.program_from("/bin/rtla", &unpacked.join("usr/bin/rtla"))
}

/// Count and total time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amount {
    count: u64,
    ns: u64,
}

/// A tool's results for a run.
#[derive(Debug)]
struct Account {
    watched_s: f64,
    /// By row of the table; None if the tool does not report it.
    amounts: [Option<Amount>; ROWS.len()],
}

const ROWS: [&str; 9] = [
    "interrupts",
    "of these `call_function_single`",
    "softirqs",
    "threads",
    "of these the daemon",
    "NMIs",
    "page faults",
    "outside the kernel",
    "all noise",
];
const IPI: usize = 1;
const DAEMON: usize = 4;
const OUTSIDE: usize = 7;
const ALL: usize = 8;

/// What the loads report about themselves.
#[derive(Clone, Copy, Debug)]
struct Loads {
    sent: u64,
    wakes: u64,
    /// CPU time of the daemon, as accounted by the kernel.
    charged_ns: f64,
    seconds: f64,
}

impl Loads {
    fn of(value: &Value) -> Option<Loads> {
        Some(Loads {
            sent: value["ipi"]["sent"].as_u64()?,
            wakes: value["daemon"]["wakes"].as_u64()?,
            charged_ns: value["daemon"]["cpu_ns"].as_f64()?,
            seconds: value["seconds"][1].as_f64()? - value["seconds"][0].as_f64()?,
        })
    }
}

/// A tool's results, and what the loads did meanwhile.
struct Run {
    loads: Loads,
    account: Account,
}

struct Comparison {
    osnoise: Run,
    detour: Run,
    osnoise_beside: Run,
    detour_beside: Run,
    /// Shortest gap that the recorder notes.
    threshold_ns: f64,
}

impl Comparison {
    fn of(console: &Console) -> Result<Comparison> {
        let loads: Vec<Loads> =
            figures(console, "loads").filter_map(|text| Loads::of(&json(text)?)).collect();
        // Each of the tools alone, then both.
        let [first, second, third] = loads[..] else {
            bail!("{} runs of the loads (expected 3)", loads.len())
        };
        let report = |run: &str| {
            let report = figures(console, &format!("detour {run}")).find_map(json);
            report.with_context(|| format!("no report for the run {run}"))
        };
        let (alone, beside) = (report("alone")?, report("both")?);
        let threshold_ns = alone["cpus"][0]["threshold_ns"].as_f64().context("no threshold")?;
        Ok(Comparison {
            osnoise: Run { loads: first, account: osnoise(console, "alone", &first)? },
            detour: Run { loads: second, account: detour(&alone)? },
            osnoise_beside: Run { loads: third, account: osnoise(console, "both", &third)? },
            detour_beside: Run { loads: third, account: detour(&beside)? },
            threshold_ns,
        })
    }

    /// In the order of the table's columns.
    fn runs(&self) -> [&Run; 4] {
        [&self.osnoise, &self.detour, &self.osnoise_beside, &self.detour_beside]
    }

    fn tests(&self) -> Vec<Test> {
        let ours = [&self.detour, &self.detour_beside];
        let share = |run: &Run| run.ns(OUTSIDE) / run.account.watched_s;
        let good = [
            ours.iter().all(|run| run.count(DAEMON) >= run.loads.wakes),
            ours.iter().all(|run| run.count(IPI) >= run.loads.sent),
            ours.iter().all(|run| {
                let charged = run.loads.charged_ns;
                (run.ns(DAEMON) - charged).abs() <= CHARGED_WITHIN * charged
            }),
            share(&self.detour) >= share(&self.osnoise),
        ];
        let outcome = |good| if good { Outcome::Passed } else { Outcome::Failed };
        let tests = TESTS.iter().zip(good).map(|(name, good)| Test {
            name: (*name).to_owned(),
            outcome: outcome(good),
            seconds: 0.0,
            reason: String::new(),
        });
        tests.collect()
    }

    fn page(&self, console: &Console) -> String {
        let release = console.release.as_deref().unwrap_or(KERNEL);
        let Loads { sent, wakes, .. } = self.osnoise.loads;
        let mut text = format!(
            "<!-- Generated by `cargo xtask vm --rtla`; do not edit. -->\n\n\
             # Comparison with rtla\n\n\
             `rtla osnoise top` and `detour record` on CPU 1 of a two-CPU machine with Linux {release} \
             whose clock counts instructions. The loads are the same in each run: a daemon that wakes \
             {wakes} times, every 10 ms for 200 us, and {sent} interrupts from CPU 0. CPU 0 does \
             everything else. Only one CPU runs at a time, so CPU 0 steals time from CPU 1 like a \
             hypervisor. Each cell is a count and a total time.\n\n\
             | | osnoise, alone | detour, alone | osnoise, both | detour, both |\n\
             |---|---|---|---|---|\n"
        );
        let watched = self.runs().map(|run| format!("{:.2} s", run.account.watched_s));
        let _ = writeln!(text, "| watched | {} |", watched.join(" | "));
        for (row, name) in ROWS.iter().enumerate() {
            let cells = self.runs().map(|run| match run.account.amounts[row] {
                None => "not reported".to_owned(),
                Some(Amount { count, ns }) => format!("{count}, {:.3} ms", ns as f64 / 1e6),
            });
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        let charged = self.runs().map(|run| format!("{:.3} ms", run.loads.charged_ns / 1e6));
        let _ = writeln!(text, "| charged to the daemon by the kernel | {} |", charged.join(" | "));
        text.push_str(&self.differences());
        text
    }

    fn differences(&self) -> String {
        // Interrupts, softirqs, threads, NMIs, page faults, and outside the kernel.
        let parts = [0, 2, 3, 5, 6, OUTSIDE];
        let all = |run: &Run| run.ns(ALL) / 1e6;
        let rest = |run: &Run| all(run) - parts.iter().map(|&row| run.ns(row)).sum::<f64>() / 1e6;
        format!(
            "\n## Why they differ\n\n\
             - **Outside the kernel.** osnoise counts a gap as hardware noise only if it contains no \
             interrupt and no thread; for other gaps, it reports what they contain, not the \
             remainder. Of {theirs:.1} ms of noise, its classes leave {untold:.1} ms unattributed. \
             detour splits every gap; of {ours:.1} ms, its classes leave {entry:.1} ms, reported as \
             entry and exit.\n\
             - **Observer effect.** While detour records, its reader and writer run on CPU 0 and steal \
             time from CPU 1, so there is more time outside the kernel.\n\
             - **Short gaps.** osnoise ignores gaps below its threshold, by default 1 us. detour's \
             threshold is nine iterations of its loop, here {threshold:.0} ns.\n\
             - **User space.** osnoise's loop runs in a kernel thread, detour's in user space. \
             osnoise therefore sees no transitions between user space and kernel and no page faults; \
             with detour every interruption is slightly longer, as it is for a program.\n\
             - **Softirqs.** On a real-time kernel most softirqs run in threads, and osnoise counts \
             them as threads. detour reports both, the softirq and the thread it ran in, net of each \
             other.\n\
             - **Counts.** Of {wakes} wake-ups, osnoise counts {their_hits} and detour {our_hits}; of \
             {sent} interrupts, {their_ipis} and {our_ipis}. The excess is from starting and stopping \
             the loads, and from the kernel itself. The number of ticks depends on how long each tool \
             watched; that of other threads also on what the tools on CPU 0 wake on CPU 1.\n\
             - **Both at once.** They share the CPU, and each is the other's largest thread: osnoise \
             reports `detour-probe`, detour reports `osnoise/1`. Events while the other runs are in \
             the same gap as the other, so gaps are fewer and longer.\n\
             - **Names.** rtla prints only the counts of these classes; the times are sums of \
             osnoise's trace events. detour also names the daemon, its unit and waker, and the \
             sender and function of the IPI.\n",
            theirs = all(&self.osnoise),
            untold = rest(&self.osnoise),
            ours = all(&self.detour),
            entry = rest(&self.detour),
            threshold = self.threshold_ns,
            wakes = self.osnoise.loads.wakes,
            sent = self.osnoise.loads.sent,
            their_hits = self.osnoise.count(DAEMON),
            our_hits = self.detour.count(DAEMON),
            their_ipis = self.osnoise.count(IPI),
            our_ipis = self.detour.count(IPI),
        )
    }
}

impl Run {
    fn count(&self, row: usize) -> u64 {
        self.account.amounts[row].map_or(0, |amount| amount.count)
    }

    fn ns(&self, row: usize) -> f64 {
        self.account.amounts[row].map_or(0.0, |amount| amount.ns as f64)
    }
}

fn figures<'a>(console: &'a Console, what: &str) -> impl Iterator<Item = &'a str> {
    let what = what.to_owned();
    let of_it = move |(name, _): &&(String, String)| *name == what;
    console.figures.iter().filter(of_it).map(|(_, value)| value.as_str())
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// From osnoise's events, which contain durations; rtla's summary has counts only.
fn osnoise(console: &Console, run: &str, loads: &Loads) -> Result<Account> {
    let summary = figures(console, &format!("rtla {run}")).next();
    summary.with_context(|| format!("no output from rtla for the run {run}"))?;
    let event = |class: &str| {
        let value = figures(console, &format!("osnoise {run} {class}")).next()?;
        let (count, ns) = value.split_once(' ')?;
        Some(Amount { count: count.parse().ok()?, ns: ns.parse().ok()? })
    };
    let lost = event("lost").with_context(|| format!("no count of lost events for {run}"))?;
    anyhow::ensure!(lost.count == 0, "{} osnoise events lost in {run}", lost.count);
    let some = |class| Some(event(class).unwrap_or_default());
    let amounts = [
        some("irq"),
        some("ipi"),
        some("softirq"),
        some("thread"),
        some("daemon"),
        some("nmi"),
        None,
        some("hw"),
        some("all"),
    ];
    Ok(Account { watched_s: loads.seconds, amounts })
}

/// From `detour report --json`.
fn detour(report: &Value) -> Result<Account> {
    let sources = report["sources"].as_array().context("no sources in the report")?;
    let sum = |classes: &[&str], name: &str| {
        let wanted = |source: &&Value| {
            classes.iter().any(|class| source["class"] == *class)
                && (name.is_empty() || source["name"] == name)
        };
        let add = |sum: Amount, source: &Value| Amount {
            count: sum.count + source["count"].as_u64().unwrap_or(0),
            ns: sum.ns + source["net_ns_total"].as_u64().unwrap_or(0),
        };
        Some(sources.iter().filter(wanted).fold(Amount::default(), add))
    };
    let outside = report["outside_kernel"].as_array().context("no outside_kernel in the report")?;
    let add = |sum: Amount, row: &Value| Amount {
        count: sum.count + row["count"].as_u64().unwrap_or(0),
        ns: sum.ns + row["cost_ns_total"].as_u64().unwrap_or(0),
    };
    let all = Amount {
        count: report["detours"].as_u64().context("no detours in the report")?,
        ns: report["detour_ns_total"].as_u64().context("no detours in the report")?,
    };
    let amounts = [
        sum(&["timer", "irq", "ipi"], ""),
        sum(&["ipi"], "call_function_single"),
        sum(&["softirq"], ""),
        sum(&["thread", "kthread"], ""),
        sum(&["thread"], "fakemond"),
        sum(&["nmi"], ""),
        sum(&["page_fault"], ""),
        Some(outside.iter().fold(Amount::default(), add)),
        Some(all),
    ];
    let watched_s = report["cpus"][0]["window_s"].as_f64().context("no CPU in the report")?;
    Ok(Account { watched_s, amounts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"detours":9,"detour_ns_total":900,"cpus":[{"window_s":2.0,"threshold_ns":36.0}],
        "sources":[
            {"class":"ipi","name":"call_function_single","count":7,"net_ns_total":70},
            {"class":"timer","name":"tick","count":5,"net_ns_total":50},
            {"class":"thread","name":"fakemond","count":3,"net_ns_total":300}],
        "outside_kernel":[{"count":1,"cost_ns_total":400},{"count":2,"cost_ns_total":10}]}"#;

    fn console(daemon_hits: u64) -> Console {
        let mut console = Console::default();
        let daemon = format!("{{\"wakes\":{daemon_hits},\"cpu_ns\":305}}");
        let loads = format!(
            "@vm figure loads: {{\"seconds\":[3.0,5.0],\"ipi\":{{\"sent\":7}},\"daemon\":{daemon}}}"
        );
        let report = REPORT.replace('\n', "");
        let mut lines = vec![loads.clone(), loads.clone(), loads];
        for run in ["alone", "both"] {
            lines.push(format!("@vm figure rtla {run}:   1 #20 2000000 40 99.9 8 1 29 0 12 0 3"));
            lines.push(format!("@vm figure osnoise {run} irq: 12 130"));
            lines.push(format!("@vm figure osnoise {run} hw: 1 200"));
            lines.push(format!("@vm figure osnoise {run} all: 8 900"));
            lines.push(format!("@vm figure osnoise {run} lost: 0 0"));
            lines.push(format!("@vm figure detour {run}: {report}"));
        }
        for line in lines {
            console.look(&line);
        }
        console
    }

    #[test]
    fn both_accounts_are_read_and_what_was_not_seen_fails() {
        let outcomes = |hits| {
            let tests = Comparison::of(&console(hits)).unwrap().tests();
            tests.iter().map(|test| test.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(3), [Outcome::Passed; 4]);
        assert_eq!(outcomes(4)[0], Outcome::Failed);
        assert_eq!(outcomes(4)[1..], [Outcome::Passed; 3]);
    }

    #[test]
    fn the_page_has_every_row_and_says_what_is_not_told() {
        let console = console(3);
        let page = Comparison::of(&console).unwrap().page(&console);
        let row = |name: &str| page.lines().find(|line| line.starts_with(&format!("| {name} |")));
        for name in ROWS {
            assert_eq!(row(name).map(|row| row.matches('|').count()), Some(6), "{name}: {page}");
        }
        assert!(row("page faults").is_some_and(|row| row.contains("not reported")), "{page}");
        assert!(row("interrupts").is_some_and(|row| row.contains("12, 0.000 ms")), "{page}");
    }

    #[test]
    fn a_run_that_broke_off_is_an_error() {
        let mut console = console(3);
        console.figures.retain(|(what, _)| what != "detour both");
        assert!(Comparison::of(&console).is_err());
    }
}
