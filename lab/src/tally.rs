//! Counts tests from the output of test binaries, each of which ends with a line such as
//! `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out`.

use std::ops::AddAssign;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Names of skipped tests, with the reason if given.
    pub skipped_names: Vec<String>,
    pub failed_names: Vec<String>,
}

impl Tally {
    /// Processes one line of output.
    pub fn look(&mut self, line: &str) {
        let line = without_colour(line);
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.skipped += count(result, "ignored");
        } else if let Some(test) = line.strip_prefix("test ")
            && let Some((name, outcome)) = test.split_once(" ... ")
        {
            let name = name.trim();
            match outcome.trim() {
                "FAILED" => self.failed_names.push(name.to_owned()),
                "ignored" => self.skipped_names.push(name.to_owned()),
                other => {
                    // The standard harness and libtest-mimic print the reason differently.
                    let bare = other.strip_prefix("ignored, ");
                    let in_brackets = || other.strip_prefix("ignored (")?.strip_suffix(')');
                    if let Some(reason) = bare.or_else(in_brackets) {
                        self.skipped_names.push(format!("{name} ({reason})"));
                    }
                }
            }
        }
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.skipped_names.extend_from_slice(&other.skipped_names);
        self.failed_names.extend_from_slice(&other.failed_names);
    }
}

/// The number before a word in a list separated by semicolons.
fn count(result: &str, word: &str) -> u64 {
    // "ok. 5 passed" is the first part.
    let parts = result.split([';', '.']).map(str::trim);
    let mut numbers = parts.filter_map(|part| part.strip_suffix(word)?.trim().parse().ok());
    numbers.next().unwrap_or(0)
}

/// Colours may be forced by the environment.
fn without_colour(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.look(line));
        tally
    }

    #[test]
    fn results_of_several_binaries_add_up() {
        let all = tally(&[
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.31s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out",
        ]);
        assert_eq!((all.passed, all.failed, all.skipped), (15, 2, 1));
    }

    #[test]
    fn tests_that_did_not_pass_are_named() {
        let all = tally(&[
            "test closure_holds      ... ignored",
            "test counters::agree ... ignored, needs root",
            "test daemons   ... ignored (needs Root (or more))",
            "test breaks ... FAILED",
            "test works ... ok",
        ]);
        assert_eq!(
            all.skipped_names,
            ["closure_holds", "counters::agree (needs root)", "daemons (needs Root (or more))"]
        );
        assert_eq!(all.failed_names, ["breaks"]);
    }

    #[test]
    fn colours_do_not_matter() {
        let all = tally(&[
            "test result: \u{1b}[32mok\u{1b}[0m. 4 passed; 0 failed; 0 ignored",
            "test slow ... \u{1b}[33mignored\u{1b}(B\u{1b}[m",
        ]);
        assert_eq!(all.passed, 4);
        assert_eq!(all.skipped_names, ["slow"]);
    }

    #[test]
    fn a_program_that_merely_talks_about_tests_counts_for_nothing() {
        assert_eq!(tally(&["test the waters", "test result: unclear", ""]), Tally::default());
    }
}
