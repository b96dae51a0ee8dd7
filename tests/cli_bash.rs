//! Process substitution in place of files. Without bash the test is reported as skipped.

mod command;

fn main() {
    use libtest_mimic::{Arguments, Completion, Trial};

    let test = Trial::ignorable_test("process_substitution_is_an_output_and_an_input", || {
        if std::process::Command::new("bash").args(["-c", "true"]).output().is_err() {
            return Ok(Completion::ignored_with("bash not found"));
        }
        substitution::is_an_output_and_an_input();
        Ok(Completion::Completed)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit();
}

mod substitution {
    use std::{fs, path::PathBuf, process::Command};

    use super::command::stdout;

    const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");
    const EXPORT: [&str; 4] = ["export", DEMO, "--to", "csv"];

    pub fn is_an_output_and_an_input() {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bash-substituted");
        let script = r#"set -e; "$@" -o >(cat > "$0"); wait $!"#;
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).arg(&path).arg(env!("CARGO_BIN_EXE_detour")).args(EXPORT);
        assert!(bash.status().expect("bash").success());
        assert_eq!(fs::read_to_string(&path).expect("a copy"), stdout(&EXPORT));
        let script = r#""$0" report --json <(cat "$1")"#;
        let arguments = ["-c", script, env!("CARGO_BIN_EXE_detour"), DEMO];
        let report = Command::new("bash").args(arguments).output().expect("bash");
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        // Only the name differs.
        let sources = |text: &[u8]| {
            let report: serde_json::Value = serde_json::from_slice(text).expect("JSON");
            report["sources"].clone()
        };
        let whole = stdout(&["report", "--json", DEMO]);
        assert_eq!(sources(&report.stdout), sources(whole.as_bytes()));
    }
}
