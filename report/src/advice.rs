//! What can be done about a source: remedies from a table that people can extend. The table that
//! comes with the program is `report/advice.toml`; a file of one's own has the same form and is
//! looked through first. Nothing here is ever carried out.

use serde::Deserialize;
use thiserror::Error;
use trace::Class;

use crate::{
    Options,
    words::{safe, wrap},
};

const BUILT_IN: &str = include_str!("../advice.toml");

#[derive(Debug, Error)]
pub enum AdviceError {
    #[error("{file} is no table of advice: {why}")]
    Syntax { file: String, why: String },
    #[error(
        "{file}, advice number {number}: {why}; the table that comes with detour \
         (report/advice.toml) shows the form"
    )]
    Entry { file: String, number: usize, why: String },
}

/// One thing that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remedy {
    pub what: String,
    /// Commands, or lines of a file.
    #[serde(default)]
    pub run: Vec<String>,
    pub reason: String,
    pub risk: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    class: OneOrMore<Class>,
    name: Option<OneOrMore<String>>,
    unit: Option<String>,
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

/// A source as far as advice goes.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub class: Class,
    pub name: &'a str,
    pub unit: Option<&'a str>,
    /// As in the report: the number of an interrupt stands here.
    pub detail: Option<&'a str>,
    /// The program that was recorded, itself.
    pub program: bool,
}

/// The node, for commands that name its CPUs. Empty where nobody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub cpus: String,
    pub housekeeping: String,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Advice(Vec<Entry>);

impl Advice {
    /// The table that comes with the program.
    ///
    /// # Errors
    /// Never in practice: a test reads it.
    pub fn built_in() -> Result<Advice, AdviceError> {
        parse("report/advice.toml", BUILT_IN).map(Advice)
    }

    /// This table after the one in a file's text, which goes first.
    ///
    /// # Errors
    /// Where the text is not such a table, and what is wrong with it.
    pub fn extended(self, file: &str, text: &str) -> Result<Advice, AdviceError> {
        let mut entries = parse(file, text)?;
        entries.extend(self.0);
        Ok(Advice(entries))
    }

    /// What can be done about a source, the best first, with names and numbers filled in.
    pub fn remedies(&self, subject: &Subject<'_>, place: &Place) -> Vec<Remedy> {
        let entry = self.0.iter().find(|entry| entry.matches(subject));
        let filled = |remedy: &Remedy| Remedy {
            run: remedy.run.iter().map(|line| fill(line, subject, place)).collect(),
            ..remedy.clone()
        };
        entry.map_or_else(Vec::new, |entry| entry.remedy.iter().map(filled).collect())
    }
}

impl Entry {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        let unit = |pattern: &String| subject.unit.is_some_and(|unit| glob(pattern, unit));
        self.class.any(|class| *class == subject.class)
            && self.name.as_ref().is_none_or(|names| names.any(|name| glob(name, subject.name)))
            && self.unit.as_ref().is_none_or(unit)
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
            return wrong("it has no remedy: add [[advice.remedy]]");
        }
        let unsaid = |text: &String| text.trim().is_empty();
        if entry.remedy.iter().any(|r| [&r.what, &r.reason, &r.risk].into_iter().any(unsaid)) {
            return wrong("a remedy needs words for what, reason and risk");
        }
    }
    Ok(parsed.advice)
}

/// Whether a name fits a pattern in which * stands for anything.
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

fn fill(line: &str, subject: &Subject<'_>, place: &Place) -> String {
    let irq = subject.detail.and_then(|detail| {
        let number = detail.split("irq ").nth(1)?;
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (digits > 0).then(|| &number[..digits])
    });
    let known = |value: &str, unknown: &str| match value {
        "" => unknown.to_owned(),
        value => quoted(value),
    };
    let words = [
        ("{name}", known(subject.name, "NAME")),
        ("{unit}", known(subject.unit.unwrap_or_default(), "UNIT")),
        ("{irq}", known(irq.unwrap_or_default(), "N")),
        ("{cpus}", known(&place.cpus, "CPUS")),
        ("{housekeeping}", known(&place.housekeeping, "HOUSEKEEPING")),
    ];
    // From left to right, so that a name that looks like a word to fill in stays as it is.
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

/// Lines are there to be copied into a shell, and any process may call itself `; rm -rf ~`.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// A source that costs something, and what can be done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// As one would say it.
    pub label: String,
    /// What the job gains without it, in words.
    pub gain: String,
    pub remedies: Vec<Remedy>,
}

/// Advice as text, in the order given. None where there is none.
#[must_use]
pub fn advice(advised: &[Advised], options: Options) -> Option<String> {
    let style = options.style();
    let mut text =
        style.title("What to do about it, most to gain first (nothing has been changed)");
    // Reasons and risks are said once: what is true of one daemon is true of the next.
    let mut said: Vec<(&str, &str, &str)> = Vec::new();
    for source in advised.iter().filter(|source| !source.remedies.is_empty()) {
        text += &format!("\n{}: {}", safe(&source.label), source.gain);
        for remedy in &source.remedies {
            let words = (&*remedy.what, &*remedy.reason, &*remedy.risk);
            let again = said.contains(&words);
            let what = format!("{}{}", end(&remedy.what), if again { ", as above" } else { "" });
            text += &format!("\n  {}", wrap(&sentence(&what), style.width - 2, "  "));
            for line in &remedy.run {
                // Not wrapped: a command that is copied has to stay whole.
                text += &format!("\n      {}", safe(line));
            }
            if again {
                continue;
            }
            said.push(words);
            let why = format!("Why: {}. Risk: {}.", end(&remedy.reason), end(&remedy.risk));
            text += &format!("\n    {}", wrap(&why, style.width - 4, "    "));
        }
    }
    (!said.is_empty()).then_some(text)
}

fn sentence(text: &str) -> String {
    let safe = safe(text);
    let mut letters = safe.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), end(letters.as_str())),
        None => String::new(),
    }
}

fn end(text: &str) -> String {
    safe(text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject<'a>(class: Class, name: &'a str, unit: Option<&'a str>) -> Subject<'a> {
        Subject { class, name, unit, detail: None, program: false }
    }

    fn place() -> Place {
        Place { cpus: "2-7".into(), housekeeping: "0-1".into() }
    }

    fn runs(advice: &Advice, subject: &Subject<'_>) -> String {
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
            (Class::Timer, "hrtimer: watchdog_timer_fn", None, "kernel.watchdog_cpumask=0-1"),
            (Class::Irq, "virtio0-input", None, "smp_affinity_list"),
            (Class::Kthread, "kworker: vmstat_update", None, "vm.stat_interval"),
            (Class::Kthread, "kworker: something", None, "workqueue/cpumask"),
            (Class::Softirq, "RCU", None, "rcu_nocbs=2-7"),
            (Class::Kthread, "rcu_preempt", None, "rcu_nocbs=2-7"),
            (Class::Nmi, "NMI", None, "nmi_watchdog"),
            (Class::Thread, "fakemond", service, "systemctl mask --now fakemond.service"),
            (Class::Thread, "fakemond", service, "CPUAffinity=0-1"),
            (Class::Thread, "bash", Some("session-1.scope"), "AllowedCPUs=0-1"),
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
        let of =
            |class, program| Subject { program, ..subject(class, "solver", Some("job.scope")) };
        let (threads, faults) = (of(Class::Thread, true), of(Class::PageFault, true));
        assert!(runs(&advice, &threads).contains("OMP_NUM_THREADS"));
        assert!(runs(&advice, &faults).contains("MAP_POPULATE"));
        assert!(runs(&advice, &faults).contains("MADV_HUGEPAGE"));
        for class in [Class::Thread, Class::PageFault] {
            assert!(runs(&advice, &of(class, false)).contains("AllowedCPUs=0-1"));
        }
        // What is nobody's program has the same remedy either way.
        let tick = |program| Subject { program, ..subject(Class::Timer, "tick", None) };
        assert_eq!(runs(&advice, &tick(true)), runs(&advice, &tick(false)));
    }

    #[test]
    fn numbers_and_names_are_filled_in_and_cannot_become_commands() {
        let advice = Advice::built_in().unwrap();
        let irq = Subject { detail: Some("irq 24 1000x"), ..subject(Class::Irq, "eth0", None) };
        assert!(runs(&advice, &irq).contains("echo 0-1 > /proc/irq/24/smp_affinity_list"));
        assert!(runs(&advice, &subject(Class::Irq, "eth0", None)).contains("/proc/irq/N/"));
        let hostile = subject(Class::Thread, "$(reboot) '{unit}'", None);
        let run = runs(&advice, &hostile);
        assert!(run.contains(r"pgrep -wx '$(reboot) '\''{unit}'\'''"), "{run}");
        let nowhere = advice.remedies(&subject(Class::Timer, "tick", None), &Place::default());
        assert!(nowhere[0].run[0].contains("nohz_full=CPUS"));
    }

    #[test]
    fn reasons_are_given_once() {
        let advice = Advice::built_in().unwrap();
        let advised = ["one", "two"].map(|name| Advised {
            label: name.to_owned(),
            gain: "up to 1 % to gain".to_owned(),
            remedies: advice.remedies(&subject(Class::Thread, name, None), &place()),
        });
        let text = super::advice(&advised, Options::default()).unwrap();
        assert_eq!(text.matches("Why:").count(), 1, "{text}");
        assert!(text.contains("pgrep -wx one") && text.contains("pgrep -wx two"), "{text}");
        assert!(text.contains("Start it where no rank runs, as above."), "{text}");
        assert_eq!(super::advice(&[], Options::default()), None);
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
            (&format!("[[advice]]\nclass = 'irq'\n{remedy}risk = ' '\n"), "needs words"),
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
