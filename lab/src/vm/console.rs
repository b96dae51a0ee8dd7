//! Messages from the guest: lines that begin with `@vm`, among everything else on its console.

use serde_json::Value;

/// What has been parsed so far.
#[derive(Debug, Default)]
pub struct Console {
    /// Seconds from power-on to the first command, by the guest's clock.
    pub up_s: Option<f64>,
    pub release: Option<String>,
    pub tests: Vec<Test>,
    /// Measured values by name.
    pub figures: Vec<(String, String)>,
    /// Output of `detour doctor --json`.
    pub doctor: Option<Value>,
    /// The script ran to its end.
    pub ended: bool,
    /// The emulator executed an instruction that the other CPU had just patched, and the kernel
    /// crashed. Kernels patch their code wherever hooks are attached; an emulator that translates on
    /// several threads may see it too late.
    pub slipped: bool,
    /// Earlier boots that ended this way.
    pub slips: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    pub name: String,
    pub outcome: Outcome,
    pub seconds: f64,
    /// Why it was skipped; empty for other outcomes.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// An unexpected breakpoint: the kernel inserts one where it is about to patch an instruction.
const SLIP: &str = "Oops: int3:";

/// A request from the guest to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An NMI.
    Nmi,
}

impl Console {
    /// Processes one line; returns the request in it, if any.
    pub fn look(&mut self, line: &str) -> Option<Wish> {
        self.slipped |= line.contains(SLIP);
        // A kernel message may precede it on the same line, or follow it directly.
        let (_, said) = line.split_once("@vm ")?;
        let word_ends = said.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(said.len());
        let (word, rest) = said.split_at(word_ends);
        let rest = rest.trim_start();
        match word {
            "up" => self.up_s = rest.parse().ok(),
            "kernel" => self.release = Some(rest.to_owned()),
            "test" => self.tests.extend(test(rest)),
            "figure" => {
                let figure = rest.split_once(": ");
                self.figures
                    .extend(figure.map(|(what, value)| (what.to_owned(), value.to_owned())));
            }
            "doctor" => self.doctor = serde_json::from_str(rest).ok(),
            "end" => self.ended = true,
            "nmi" => return Some(Wish::Nmi),
            _ => {}
        }
        None
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        self.tests.iter().filter(|test| test.outcome == outcome).count()
    }
}

fn test(text: &str) -> Option<Test> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, outcome, from, to, reason @ ..] = &words[..] else { return None };
    let outcome = match *outcome {
        "passed" => Outcome::Passed,
        "skipped" => Outcome::Skipped,
        _ => Outcome::Failed,
    };
    let (from, to): (f64, f64) = (from.parse().ok()?, to.parse().ok()?);
    let name = (*name).to_owned();
    Some(Test { name, outcome, seconds: to - from, reason: reason.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_understood_among_other_lines() {
        let mut console = Console::default();
        let lines = [
            "[    0.000000] Linux version 6.1",
            "@vm up 3.25",
            "[    3.3] something @vm kernel 6.1.0-50-cloud-amd64",
            "test closure ... ok",
            "@vm test a_daemon passed 3.5 15.75",
            "@vm test an_ipi FAILED 15.75 16",
            "@vm test cut_off",
            "@vm test hot_unplug skipped 16 16.1 no such file",
            "@vm doctor {\"checks\":[]}",
            "@vm figure outside the kernel: 0 of 8: none",
            "@vm figure cut off",
        ];
        assert!(lines.iter().all(|line| console.look(line).is_none()));
        assert_eq!(console.up_s, Some(3.25));
        assert_eq!(console.release.as_deref(), Some("6.1.0-50-cloud-amd64"));
        assert_eq!(console.tests[0].seconds, 12.25);
        let counts = [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|o| console.count(o));
        assert_eq!(counts, [1, 1, 1]);
        let reasons: Vec<&str> = console.tests.iter().map(|test| test.reason.as_str()).collect();
        assert_eq!(reasons, ["", "", "no such file"]);
        assert_eq!(console.figures, [("outside the kernel".into(), "0 of 8: none".into())]);
        assert!(console.doctor.is_some() && !console.ended);
        console.look("@vm end");
        assert!(console.ended);
    }

    #[test]
    fn a_slip_of_the_emulator_is_told_from_other_ends() {
        let mut console = Console::default();
        console.look("[  201.04] Oops: general protection fault: 0000 [#1] SMP");
        assert!(!console.slipped);
        console.look("[  201.045138] Oops: int3: 0000 [#1] SMP NOPTI");
        assert!(console.slipped);
    }

    #[test]
    fn the_guest_may_ask_for_nmis() {
        assert_eq!(Console::default().look("@vm nmi"), Some(Wish::Nmi));
        let disturbed = "@vm nmi[   70.514409] Uhhuh. NMI received for unknown reason 21 on CPU 0.";
        assert_eq!(Console::default().look(disturbed), Some(Wish::Nmi));
        assert_eq!(Console::default().look("nmi"), None);
    }
}
