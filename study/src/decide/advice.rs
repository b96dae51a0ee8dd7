//! Remedies for a source, from a table that users can extend. The built-in table is
//! `study/advice.toml`; a custom file has the same format and takes precedence. Nothing here is ever
//! executed.

use std::path::PathBuf;

use analysis::{OutsideRow, SourceRow, Summary, words::shell_quoted};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use trace::{Class, cpulist};

pub use crate::recording::place::{Place, Split};
use crate::recording::{
    open::AnyReader,
    place,
    recorded::{Recorded, Source},
};

const BUILT_IN: &str = include_str!("../../advice.toml");

#[derive(Debug, Error)]
pub enum AdviceError {
    #[error("{file} is not an advice table: {why}")]
    Syntax { file: String, why: String },
    #[error("{file}, advice {number}: {why} (see study/advice.toml for the format)")]
    Entry { file: String, number: usize, why: String },
}

/// One possible remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remedy {
    pub what: String,
    /// Commands, or lines of a file.
    #[serde(default)]
    pub run: Vec<String>,
    pub reason: String,
    pub risk: String,
    /// How to undo it; empty if there is nothing to undo, as for advice to look into something.
    #[serde(default)]
    pub undo: String,
    /// What the node must have for it to apply.
    #[serde(default, skip_serializing)]
    pub needs: Option<Need>,
}

/// What a node must have for a remedy to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// CPUs to reserve for the job, and others for housekeeping.
    Housekeeping,
    /// Several hardware threads per core.
    Smt,
    /// Several NUMA nodes.
    Numa,
    /// A tick of more than 100 Hz.
    FasterTick,
}

impl Need {
    /// False only if known to be absent.
    fn is_met(self, place: &Place) -> bool {
        match self {
            Need::Housekeeping => place.can_isolate(),
            Need::Smt => place.smt != Some(false),
            Need::Numa => place.numa_nodes.is_none_or(|nodes| nodes > 1),
            Need::FasterTick => place.tick_hz == 0 || place.tick_hz > SLOW_HZ,
        }
    }
}

/// The slowest tick a kernel can be configured for.
const SLOW_HZ: u32 = 100;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    class: OneOrMore<Class>,
    name: Option<OneOrMore<String>>,
    unit: Option<OneOrMore<String>>,
    except_unit: Option<OneOrMore<String>>,
    detail: Option<OneOrMore<String>>,
    policy: Option<OneOrMore<String>>,
    #[serde(default)]
    program: bool,
    remedy: Vec<Remedy>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn any(&self, holds: impl Fn(&T) -> bool) -> bool {
        match self {
            OneOrMore::One(one) => holds(one),
            OneOrMore::More(more) => more.iter().any(holds),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    advice: Vec<Entry>,
}

/// What advice depends on in a source.
#[derive(Clone, Copy, Debug)]
pub struct AdvisedSource<'a> {
    pub class: Class,
    /// Of a thread or page fault: that of its process, which is what commands match.
    pub name: &'a str,
    /// The first few process IDs seen.
    pub pids: &'a [u32],
    pub unit: Option<&'a str>,
    /// As in the report; contains the number of an interrupt, or where a cgroup's quota is set.
    pub detail: Option<&'a str>,
    /// Scheduling policy and priority of a process that is load. None for noise, however it is scheduled.
    pub policy: Option<&'a str>,
    /// The recorded program itself.
    pub program: bool,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Advice(Vec<Entry>);

impl Advice {
    /// The built-in table.
    ///
    /// # Errors
    /// Never in practice: a test parses it.
    pub fn built_in() -> Result<Advice, AdviceError> {
        parse("study/advice.toml", BUILT_IN).map(Advice)
    }

    /// The built-in table, preceded by those in files; the last one given has precedence.
    ///
    /// # Errors
    /// If a file cannot be read or is not a valid table.
    pub fn with_tables(files: &[PathBuf]) -> anyhow::Result<Advice> {
        let mut advice = Advice::built_in()?;
        for path in files {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            advice = advice.extended(&path.display().to_string(), &text)?;
        }
        Ok(advice)
    }

    /// Prepends the table in a file's text.
    ///
    /// # Errors
    /// If the text is not a valid table.
    pub fn extended(self, file: &str, text: &str) -> Result<Advice, AdviceError> {
        let mut entries = parse(file, text)?;
        entries.extend(self.0);
        Ok(Advice(entries))
    }

    /// Remedies for a source, best first, with names and numbers filled in.
    pub fn remedies(&self, subject: &AdvisedSource<'_>, place: &Place) -> Vec<Remedy> {
        let Some(entry) = self.0.iter().find(|entry| entry.matches(subject)) else {
            return Vec::new();
        };
        let met = |remedy: &&Remedy| remedy.needs.is_none_or(|need| need.is_met(place));
        let filled = |remedy: &Remedy| {
            let lines = remedy.run.iter().filter(|line| place.can_isolate() || !names_cpus(line));
            let run: Vec<String> = lines.map(|line| fill(line, subject, place)).collect();
            let reason = remedy.reason.replace("{slower_tick}", &slower_tick(place.tick_hz));
            // A remedy that only moves things to other CPUs does not apply if there are none.
            let left = !run.is_empty() || remedy.run.is_empty();
            let undo = fill(&remedy.undo, subject, place);
            left.then(|| Remedy { run, reason, undo, ..remedy.clone() })
        };
        entry.remedy.iter().filter(met).filter_map(filled).collect()
    }
}

/// Remedies for the rows of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedies {
    /// In the order of the summary's sources.
    pub sources: Vec<Vec<Remedy>>,
    /// In the order of its rows outside the kernel.
    pub outside: Vec<Vec<Remedy>>,
}

impl Remedies {
    /// From the built-in table.
    ///
    /// # Errors
    /// Never in practice, as [`Advice::built_in`].
    pub fn of(reader: &AnyReader, summary: &Summary) -> Result<Remedies, AdviceError> {
        let advice = Advice::built_in()?;
        let place = Place::of_recording(reader.manifest());
        let recorded = Recorded::new(reader);
        let of_source = |row: &SourceRow| {
            let key = row.row_key();
            let source = recorded.sources.iter().find(|source| source.key == key);
            // The recorder ends with the recording, and process 1 must neither be stopped nor moved.
            if row.own || source.is_some_and(|source| source.init) {
                return Vec::new();
            }
            let subject = AdvisedSource {
                class: row.class,
                name: source.map_or(row.name.as_str(), Source::switched_off_by),
                pids: source.map_or(&[], |source| &source.pids),
                unit: row.unit.as_deref(),
                // As recorded: that of the row has counts.
                detail: source.map_or(row.detail.as_deref(), |source| source.detail.as_deref()),
                policy: None,
                program: source.is_some_and(|source| source.program),
            };
            advice.remedies(&subject, &place)
        };
        let of_outside = |row: &OutsideRow| {
            let (class, name) = (Class::OutsideKernel, row.class.as_str());
            let subject = AdvisedSource {
                class,
                name,
                pids: &[],
                unit: None,
                detail: None,
                policy: None,
                program: false,
            };
            advice.remedies(&subject, &place)
        };
        Ok(Remedies {
            sources: summary.sources.iter().map(of_source).collect(),
            outside: summary.outside_kernel.iter().map(of_outside).collect(),
        })
    }
}

impl Entry {
    fn matches(&self, subject: &AdvisedSource<'_>) -> bool {
        let unit = |patterns: &OneOrMore<String>| {
            subject.unit.is_some_and(|unit| patterns.any(|pattern| glob(pattern, unit)))
        };
        let is = |patterns: &Option<OneOrMore<String>>, text: Option<&str>| {
            let found = |patterns: &OneOrMore<String>| {
                text.is_some_and(|text| patterns.any(|pattern| glob(pattern, text)))
            };
            patterns.as_ref().is_none_or(found)
        };
        self.class.any(|class| *class == subject.class)
            && self.name.as_ref().is_none_or(|names| names.any(|name| glob(name, subject.name)))
            && self.unit.as_ref().is_none_or(unit)
            && !self.except_unit.as_ref().is_some_and(unit)
            && is(&self.detail, subject.detail)
            && is(&self.policy, subject.policy)
            && (subject.program || !self.program)
    }
}

fn parse(file: &str, text: &str) -> Result<Vec<Entry>, AdviceError> {
    let parsed: File = toml::from_str(text).map_err(|error| AdviceError::Syntax {
        file: file.to_owned(),
        why: error.to_string().trim_end().to_owned(),
    })?;
    for (number, entry) in (1..).zip(&parsed.advice) {
        let wrong = |why: &str| {
            Err(AdviceError::Entry { file: file.to_owned(), number, why: why.to_owned() })
        };
        if entry.remedy.is_empty() {
            return wrong("no remedy (add [[advice.remedy]])");
        }
        let unsaid = |text: &String| text.trim().is_empty();
        if entry.remedy.iter().any(|r| [&r.what, &r.reason, &r.risk].into_iter().any(unsaid)) {
            return wrong("a remedy needs what, reason and risk");
        }
        let foreign = |line: &String| line.starts_with("on the host") && names_cpus(line);
        if entry.remedy.iter().flat_map(|r| &r.run).any(foreign) {
            return wrong("a command for the host cannot refer to CPUs of the guest");
        }
    }
    Ok(parsed.advice)
}

/// Whether a name matches a pattern in which * matches anything.
fn glob(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(middle) = last.replace(piece) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}

/// Whether a line refers to CPUs of the node.
fn names_cpus(line: &str) -> bool {
    ["{cpus}", "{housekeeping}", "{housekeeping_mask}"].iter().any(|word| line.contains(word))
}

/// How many fewer ticks a 100 Hz kernel has.
fn slower_tick(tick_hz: u32) -> String {
    let (of, hz) = match tick_hz {
        0 => ("for example ", 250),
        hz => ("", hz),
    };
    let fewer = 100.0 * (1.0 - f64::from(SLOW_HZ) / f64::from(hz.max(SLOW_HZ)));
    let (mut a, mut b) = (SLOW_HZ, hz);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    format!(
        "{of}{SLOW_HZ} Hz instead of {hz} Hz leaves {} of {} ticks, {fewer:.0} % fewer",
        SLOW_HZ / a,
        hz / a
    )
}

fn fill(line: &str, subject: &AdvisedSource<'_>, place: &Place) -> String {
    let irq = subject.detail.and_then(irq_number);
    let known = |value: &str, unknown: &str| match value {
        "" => unknown.to_owned(),
        value => shell_quoted(value),
    };
    let of_split = |list: &dyn Fn(&Split) -> String, unknown: &str| {
        place.split.as_ref().map_or_else(|| unknown.to_owned(), list)
    };
    // pgrep and pkill take a regular expression.
    let pattern = line.contains("pgrep") || line.contains("pkill");
    let name = if pattern { literally(subject.name) } else { subject.name.to_owned() };
    let words = [
        ("{name}", known(&name, "NAME")),
        ("{pids}", known_pids(subject.pids)),
        ("{unit}", known(subject.unit.unwrap_or_default(), "UNIT")),
        ("{irq}", known(irq.unwrap_or_default(), "N")),
        ("{cgroup}", known(&cgroup(subject), "CGROUP")),
        ("{policy_options}", policy_options(subject.policy.unwrap_or_default())),
        ("{cpus}", of_split(&|split| cpulist::format(&split.job), "CPUS")),
        ("{housekeeping}", of_split(&|split| cpulist::format(&split.housekeeping), "HOUSEKEEPING")),
        ("{housekeeping_mask}", of_split(&|split| place::mask(&split.housekeeping), "MASK")),
    ];
    // From left to right, so that a name that looks like a placeholder is left as it is.
    let (mut filled, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        match words.iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, value)) => {
                filled.push_str(value);
                rest = &rest[word.len()..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

/// The directory of a cgroup: below the mount point of the CPU controller, if the detail says where that is.
fn cgroup(subject: &AdvisedSource<'_>) -> String {
    let mount = subject.detail.and_then(|detail| detail.split_once(CGROUP_AT));
    let mount = mount.map_or("/sys/fs/cgroup", |(_, mount)| mount);
    subject.unit.map_or_else(String::new, |unit| format!("{}{unit}", mount.trim_end_matches('/')))
}

/// What precedes the mount point in the detail of an exhausted quota: `cgroup v1 at /sys/fs/cgroup/cpu`.
const CGROUP_AT: &str = " at ";

/// The options of chrt for a policy: `--fifo 40` for `SCHED_FIFO 40`, its priority last.
fn policy_options(policy: &str) -> String {
    let mut words = policy.split_whitespace();
    let name = words.next().and_then(|word| word.strip_prefix("SCHED_")).unwrap_or("POLICY");
    let priority = words.next().filter(|word| word.parse::<u32>().is_ok()).unwrap_or("PRIORITY");
    format!("--{} --pid {priority}", name.to_ascii_lowercase())
}

fn known_pids(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    if pids.is_empty() { "PID".to_owned() } else { pids.join(" ") }
}

/// The number of an interrupt in the detail of its source: `irq 24`.
pub(crate) fn irq_number(detail: &str) -> Option<&str> {
    let number = detail.split("irq ").nth(1)?;
    let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    (digits > 0).then(|| &number[..digits])
}

/// A regular expression that matches exactly this name and cannot be mistaken for an option.
pub(crate) fn literally(name: &str) -> String {
    let mut pattern = String::new();
    for (at, c) in name.char_indices() {
        match c {
            '-' if at == 0 => pattern.push_str("[-]"),
            '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '\\' => {
                pattern.push('\\');
                pattern.push(c);
            }
            _ => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use trace::cpulist::CpuSet;

    use super::*;

    fn subject<'a>(class: Class, name: &'a str, unit: Option<&'a str>) -> AdvisedSource<'a> {
        AdvisedSource { class, name, pids: &[], unit, detail: None, policy: None, program: false }
    }

    fn place() -> Place {
        let split = Split { job: (2..8).collect(), housekeeping: (0..2).collect() };
        Place { split: Some(split), tick_hz: 250, smt: Some(true), numa_nodes: Some(2) }
    }

    fn runs(advice: &Advice, subject: &AdvisedSource<'_>) -> String {
        let lines = advice.remedies(subject, &place());
        lines.iter().flat_map(|remedy| remedy.run.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_class_has_a_remedy_and_known_sources_have_theirs() {
        let advice = Advice::built_in().unwrap();
        for class in Class::ALL {
            assert!(!runs(&advice, &subject(class, "anything", None)).is_empty(), "{class:?}");
        }
        let service = Some("fakemond.service");
        for (class, name, unit, word) in [
            (Class::Timer, "tick", None, "nohz_full=2-7"),
            (Class::Timer, "hrtimer: watchdog_timer_fn", None, "kernel.watchdog_cpumask=0,1"),
            (Class::Irq, "virtio0-input", None, "smp_affinity_list"),
            (Class::Kthread, "kworker: vmstat_update", None, "vm.stat_interval"),
            (Class::Kthread, "kworker: something", None, "workqueue/cpumask"),
            (Class::Softirq, "RCU", None, "rcu_nocbs=2-7"),
            (Class::Kthread, "rcu_preempt", None, "rcu_nocbs=2-7"),
            (Class::Nmi, "NMI", None, "nmi_watchdog"),
            (Class::Thread, "fakemond", service, "systemctl mask --now fakemond.service"),
            (Class::Thread, "fakemond", service, "CPUAffinity=0,1"),
            (Class::Thread, "agent", Some("docker-1.scope"), "AllowedCPUs=0,1"),
            (
                Class::Thread,
                "agent",
                Some("/kubepods/pod1"),
                "/sys/fs/cgroup/kubepods/pod1/cpuset.cpus",
            ),
            (Class::Thread, "stray", Some("session-1.scope"), "pkill -x stray"),
            (Class::Thread, "stray", None, "taskset"),
            (Class::PageFault, "fakemond", service, "systemctl mask --now fakemond.service"),
            (Class::PageFault, "stray", None, "taskset"),
            (Class::Idle, "idle", None, "sched_rt_runtime_us"),
            (Class::Idle, "idle", None, "cpu.max"),
            (Class::OutsideKernel, "hypervisor", None, "vcpupin"),
            (Class::OutsideKernel, "hypervisor_or_smi", None, "vcpupin"),
            (Class::OutsideKernel, "hypervisor_or_smi", None, "turbostat"),
            (Class::OutsideKernel, "smi", None, "turbostat"),
            (Class::OutsideKernel, "unexplained", None, "turbostat"),
            (Class::OutsideKernel, "microarchitecture", None, "smt/control"),
            (Class::OutsideKernel, "unattributed_long", None, "detour record"),
            (Class::OutsideKernel, "unattributed_short", None, "detour record"),
        ] {
            let run = runs(&advice, &subject(class, name, unit));
            assert!(run.contains(word), "{class:?} {name}: {run}");
        }
    }

    #[test]
    fn a_program_is_not_moved_out_of_its_own_way() {
        let advice = Advice::built_in().unwrap();
        let of = |class, program| AdvisedSource {
            program,
            ..subject(class, "solver", Some("job.scope"))
        };
        let (threads, faults) = (of(Class::Thread, true), of(Class::PageFault, true));
        assert!(runs(&advice, &threads).contains("OMP_NUM_THREADS"));
        assert!(runs(&advice, &faults).contains("MAP_POPULATE"));
        assert!(runs(&advice, &faults).contains("MADV_HUGEPAGE"));
        for class in [Class::Thread, Class::PageFault] {
            assert!(runs(&advice, &of(class, false)).contains("AllowedCPUs=0,1"));
        }
        // A source that is not a thread has the same remedy either way.
        let tick = |program| AdvisedSource { program, ..subject(Class::Timer, "tick", None) };
        assert_eq!(runs(&advice, &tick(true)), runs(&advice, &tick(false)));
    }

    #[test]
    fn numbers_and_names_are_filled_in_and_cannot_become_commands() {
        let advice = Advice::built_in().unwrap();
        let irq =
            AdvisedSource { detail: Some("irq 24 1000x"), ..subject(Class::Irq, "eth0", None) };
        assert!(runs(&advice, &irq).contains("echo 0,1 > /proc/irq/24/smp_affinity_list"));
        assert!(runs(&advice, &subject(Class::Irq, "eth0", None)).contains("/proc/irq/N/"));
        let hostile = subject(Class::Thread, "$(reboot) '{unit}'", None);
        let run = runs(&advice, &hostile);
        assert!(run.contains(r"pgrep -x '\$\(reboot\) '\''\{unit\}'\'''"), "{run}");
        // Nor do they match any other process, or become an option.
        let run = runs(&advice, &subject(Class::Thread, ".*", None));
        assert!(run.contains(r"pkill -x '\.\*'"), "{run}");
        let run = runs(&advice, &subject(Class::Thread, "-9", None));
        assert!(run.contains("pkill -x '[-]9'"), "{run}");
        let nowhere = advice.remedies(&subject(Class::Timer, "tick", None), &Place::default());
        assert!(nowhere[0].run[0].contains("nohz_full=CPUS"));
    }

    /// The files differ between the versions, and so does the place of a cgroup.
    #[test]
    fn a_quota_is_raised_where_the_hierarchy_has_it() {
        let advice = Advice::built_in().unwrap();
        let run = |detail| {
            let quota = subject(Class::Throttled, "CPU quota", Some("/aud14"));
            runs(&advice, &AdvisedSource { detail, ..quota })
        };
        let v1 = run(Some("cgroup v1 at /sys/fs/cgroup/cpu"));
        assert!(v1.contains("echo -1 > /sys/fs/cgroup/cpu/aud14/cpu.cfs_quota_us"), "{v1}");
        assert!(!v1.contains("cpu.max"), "{v1}");
        let v2 = run(Some("cgroup v2 at /sys/fs/cgroup"));
        assert!(v2.contains("echo max > /sys/fs/cgroup/aud14/cpu.max"), "{v2}");
        assert!(!v2.contains("cfs_quota"), "{v2}");
        // An old recording does not say which.
        let old = run(None);
        assert!(old.contains("cpu.max") && old.contains("cgroup v1: echo -1 > "), "{old}");
    }

    /// A real-time process that takes a CPU is not stopped like a daemon; one that is noise is.
    #[test]
    fn a_real_time_load_has_a_remedy_of_its_own() {
        let advice = Advice::built_in().unwrap();
        let pids = [77, 78];
        let of = |policy| {
            let burn = subject(Class::Thread, "burn", None);
            let subject = AdvisedSource { pids: &pids, policy, ..burn };
            advice.remedies(&subject, &Place::default())
        };
        let ordinary = of(Some("SCHED_FIFO 40"));
        let ordinary = ordinary.iter().find(|remedy| remedy.what.contains("ordinary policy"));
        let ordinary = ordinary.expect("a remedy");
        assert_eq!(ordinary.run, ["for p in 77 78; do chrt --all-tasks --other --pid 0 $p; done"]);
        assert_eq!(ordinary.undo, "for p in 77 78; do chrt --all-tasks --fifo --pid 40 $p; done");
        for policy in [None, Some("SCHED_OTHER nice 0")] {
            assert_eq!(of(policy)[0].run, ["pkill -x burn"]);
        }
    }

    /// Whatever the unit: shells, package managers, editors, compilers and launchers are neither killed nor
    /// masked, nor is what a node cannot be reached or used without.
    #[test]
    fn nothing_that_people_or_jobs_depend_on_is_stopped() {
        let advice = Advice::built_in().unwrap();
        let stops = |line: &str| {
            let killed = line.contains("kill") && !line.contains("jskill");
            killed || line.contains("systemctl mask") || line.contains("systemctl stop")
        };
        let names = "bash,sh,zsh,-bash,tmux: server,sudo,sshd,sshd-session,ssh,vim,emacs,nano,apt,apt-get,dpkg,\
                     dnf,rpm,unattended-upgr,cargo,rustc,cc1plus,make,ld,git,systemd,systemd-journal,\
                     systemd-logind,(sd-pam),dbus-daemon,dbus-broker,mpirun,mpiexec,mpiexec.hydra,orted,\
                     prted,hydra_pmi_proxy,srun,slurmstepd,slurmd,munged,dockerd,containerd-shim,kubelet,\
                     screen,login,agetty,gdb,perf,detour,detour-read";
        let units = [
            None,
            Some("session-1.scope"),
            Some("/job"),
            Some("user.slice"),
            Some("slurmstepd.scope"),
        ];
        for name in names.split(',') {
            for unit in units {
                for class in [Class::Thread, Class::PageFault] {
                    let run = runs(&advice, &subject(class, name, unit));
                    assert!(!run.lines().any(stops), "{name} {unit:?}: {run}");
                }
            }
        }
        for unit in [
            "sshd.service",
            "ssh.service",
            "systemd-journald.service",
            "user@1000.service",
            "slurmd.service",
            "munge.service",
            "dbus.service",
            "docker.service",
            "getty@tty1.service",
        ] {
            let run = runs(&advice, &subject(Class::Thread, "anything", Some(unit)));
            assert!(!run.lines().any(stops), "{unit}: {run}");
            assert!(
                run.contains(&format!("systemctl set-property {unit} AllowedCPUs=0,1")),
                "{run}"
            );
        }
        // Anything else is stopped the way it was started: a service by systemctl, the rest by its name.
        let run = runs(&advice, &subject(Class::Thread, "fakemond", Some("mon.service")));
        assert!(
            run.starts_with("systemctl mask --now mon.service") && !run.contains("pkill"),
            "{run}"
        );
        for unit in [None, Some("session-1.scope")] {
            let run = runs(&advice, &subject(Class::Thread, "fakemond", unit));
            assert!(run.starts_with("pkill -x fakemond"), "{unit:?}: {run}");
        }
        // A name that many programs share does not say which to stop.
        let pids = [812, 813];
        let python = AdvisedSource { pids: &pids, ..subject(Class::Thread, "python3", None) };
        let run = runs(&advice, &python);
        assert!(run.contains("\nkill 812 813\n") && !run.contains("pkill"), "{run}");
        let unknown = runs(&advice, &subject(Class::Thread, "java", None));
        assert!(unknown.contains("kill PID"), "{unknown}");
    }

    fn node(cpus: u32, smt: bool, tick_hz: u32) -> Place {
        let cores = if smt { cpus / 2 } else { cpus };
        let siblings = (0..cores).map(|core| format!("{core},{}", core + cores));
        let all: CpuSet = (0..cpus).collect();
        Place::of(&trace::Manifest {
            tick_hz,
            topology: trace::Topology {
                online: cpulist::format(&all),
                numa_nodes: 1,
                smt_siblings: if smt { siblings.collect() } else { Vec::new() },
                ..trace::Topology::default()
            },
            isolation: trace::Isolation {
                measured: cpulist::format(&all),
                ..trace::Isolation::default()
            },
            ..trace::Manifest::default()
        })
    }

    /// All CPU lists in a command, with the option that precedes each.
    fn cpu_lists(line: &str) -> Vec<(&'static str, CpuSet)> {
        const BEFORE: [&str; 9] = [
            "nohz_full=",
            "rcu_nocbs=",
            "isolcpus=domain,managed_irq,",
            "isolcpus=managed_irq,",
            "isolcpus=domain,",
            "BANNED_CPULIST=",
            "AllowedCPUs=",
            "CPUAffinity=",
            "unbound_cpus=",
        ];
        let more = ["watchdog_cpumask=", "taskset -pc ", "taskset -apc ", "rcuop to "];
        let mut found = Vec::new();
        for before in BEFORE.into_iter().chain(more) {
            for rest in line.split(before).skip(1) {
                let end = rest.find(|c: char| !(c.is_ascii_digit() || ",-".contains(c)));
                let list = rest[..end.unwrap_or(rest.len())].trim_end_matches(',');
                if !list.is_empty() {
                    found.push((
                        before,
                        cpulist::parse(list).unwrap_or_else(|e| panic!("{line}: {e}")),
                    ));
                }
            }
        }
        found
    }

    #[test]
    fn commands_can_be_followed_on_nodes_of_every_size() {
        let advice = Advice::built_in().unwrap();
        let names =
            ["tick", "eth0", "RCU", "SCHED", "NET_RX", "kworker: x", "rcu_preempt", "fakemond"];
        for (cpus, smt) in
            [(1, false), (2, false), (2, true), (16, false), (16, true), (128, false), (128, true)]
        {
            let place = node(cpus, smt, 250);
            let cores = if smt { cpus / 2 } else { cpus };
            let mut seen = 0;
            for class in Class::ALL {
                for name in names {
                    for unit in [None, Some("fakemond.service"), Some("session-1.scope")] {
                        let remedies = advice.remedies(&subject(class, name, unit), &place);
                        for line in remedies.iter().flat_map(|remedy| &remedy.run) {
                            assert!(!line.contains('{'), "{line}");
                            assert!(
                                !["CPUS", "HOUSEKEEPING", "MASK"].iter().any(|w| {
                                    line.split(|c: char| !c.is_ascii_uppercase())
                                        .any(|word| word == *w)
                                }) || line.contains("taskset -c CPUS COMMAND")
                                    || line.contains("HOST_CPUS"),
                                "{line}"
                            );
                            for (before, list) in cpu_lists(line) {
                                seen += 1;
                                let job = ["nohz", "rcu_n", "isol", "BANNED"];
                                let for_job = job.iter().any(|word| before.contains(word));
                                let boot = list.contains(&0);
                                assert!(list.iter().all(|cpu| *cpu < cpus), "{cpus}: {line}");
                                assert!((list.len() as u32) < cpus, "every CPU: {line}");
                                assert_eq!(boot, !for_job, "{cpus}: {line}");
                                // Both threads of a core, or neither.
                                let whole =
                                    |cpu: &u32| !smt || list.contains(&((cpu + cores) % cpus));
                                assert!(list.iter().all(whole), "{cpus}: {line}");
                            }
                        }
                    }
                }
            }
            assert_eq!(seen > 0, cores > 1, "{cpus} CPUs");
        }
        let tick = |place: &Place| advice.remedies(&subject(Class::Timer, "tick", None), place);
        let sixteen = tick(&node(16, true, 250));
        assert_eq!(sixteen[0].run[0], "kernel command line: nohz_full=1-7,9-15 rcu_nocbs=1-7,9-15");
        assert!(tick(&node(1, false, 250)).iter().all(|r| !r.what.contains("CPUs of the job")));
    }

    #[test]
    fn a_slower_tick_is_advised_with_the_right_figures_and_only_where_there_is_one() {
        let advice = Advice::built_in().unwrap();
        let slower = |hz| {
            let remedies =
                advice.remedies(&subject(Class::Timer, "tick", None), &node(2, false, hz));
            remedies.into_iter().find(|r| r.run.iter().any(|l| l.contains("CONFIG_HZ=100")))
        };
        for (hz, said) in [
            (250, "100 Hz instead of 250 Hz leaves 2 of 5 ticks, 60 % fewer"),
            (300, "100 Hz instead of 300 Hz leaves 1 of 3 ticks, 67 % fewer"),
            (1000, "100 Hz instead of 1000 Hz leaves 1 of 10 ticks, 90 % fewer"),
            (0, "for example 100 Hz instead of 250 Hz"),
        ] {
            let reason = slower(hz).expect("advised").reason;
            assert!(reason.contains(said), "{reason}");
        }
        assert_eq!(slower(100), None);
    }

    #[test]
    fn commands_for_the_host_do_not_name_cpus_of_the_guest() {
        let advice = Advice::built_in().unwrap();
        for name in ["hypervisor", "hypervisor_or_smi"] {
            let host = runs(&advice, &subject(Class::OutsideKernel, name, None));
            assert!(host.contains("on the host") && !host.contains("0,1"), "{host}");
        }
        let own = "[[advice]]\nclass = 'irq'\n[[advice.remedy]]\nwhat = 'w'\nreason = 'r'\n\
                   risk = 'k'\nrun = ['on the host: taskset {housekeeping}']\n";
        let error = advice.extended("own.toml", own).unwrap_err().to_string();
        assert!(error.contains("CPUs of the guest"), "{error}");
    }

    #[test]
    fn a_file_of_ones_own_goes_first_and_the_rest_stays() {
        let own = r#"
            [[advice]]
            class = ["thread", "kthread"]
            name = "lustre*"
            [[advice.remedy]]
            what = "mount it elsewhere"
            reason = "r"
            risk = "k"
        "#;
        let advice = Advice::built_in().unwrap().extended("own.toml", own).unwrap();
        let lustre = subject(Class::Kthread, "lustre_io", None);
        assert_eq!(advice.remedies(&lustre, &place())[0].what, "mount it elsewhere");
        assert!(runs(&advice, &subject(Class::Timer, "tick", None)).contains("nohz_full"));
    }

    #[test]
    fn a_table_that_is_wrong_says_where_and_what() {
        let complaint = |text: &str| {
            Advice::built_in().unwrap().extended("own.toml", text).unwrap_err().to_string()
        };
        let remedy = "[[advice.remedy]]\nwhat = 'w'\nreason = 'r'\n";
        for (text, wanted) in [
            ("[[advice]\n", "line 1"),
            ("[[advice]]\nclass = 'tick'\nremedy = []\n", "class"),
            ("[[advice]]\nclass = 'irq'\nremedy = []\n", "no remedy"),
            ("[[advice]]\nclass = 'irq'\nnames = 'x'\nremedy = []\n", "names"),
            (&format!("[[advice]]\nclass = 'irq'\n{remedy}"), "risk"),
            (&format!("[[advice]]\nclass = 'irq'\n{remedy}risk = ' '\n"), "needs what"),
            ("[[advise]]\n", "advise"),
        ] {
            let said = complaint(text);
            assert!(said.contains("own.toml") && said.contains(wanted), "{text}: {said}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*b*c", "axbxxc", true),
            ("a*b*c", "axxc", false),
            ("a*a", "a", false),
            ("*.service", "x.service", true),
            ("*.service", "x.services", false),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
    }
}
