//! The text of every result at three widths: nothing is wider than the terminal.

use assert_cmd::Command;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");
/// Four ranks of `fixtures/mpi/stencil.c`.
const STENCIL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/mpi/stencil");
const WIDTHS: [usize; 3] = [80, 100, 200];

fn at_widths(name: &str, args: &[&str]) {
    for width in WIDTHS {
        let mut command = Command::cargo_bin("detour").expect("the command");
        let output = command.args(args).env("COLUMNS", width.to_string()).output().expect("ran");
        let text = String::from_utf8(output.stdout).expect("UTF-8").replace(DEMO, "demo.detour");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        for line in text.lines() {
            // Commands are shown on one line, to be copied.
            let is_command = line.starts_with("      ") || line.contains("detour ");
            assert!(is_command || line.chars().count() <= width, "{width} columns: {line}");
        }
        insta::assert_snapshot!(format!("{name}_{width}"), text);
    }
}

#[test]
fn report() {
    at_widths("report", &["report", DEMO]);
}

#[test]
fn report_by_source() {
    at_widths("report_by_source", &["report", DEMO, "--by", "source", "--longest", "3"]);
}

#[test]
fn whatif() {
    at_widths(
        "whatif",
        &["whatif", "-q", DEMO, "--ranks", "256", "--iterations", "10", "--runs", "10"],
    );
}

#[test]
fn diff() {
    let few = ["--ranks", "256", "--iterations", "10", "--runs", "10"];
    at_widths("diff", &[&["diff", "-q", DEMO, DEMO], &few[..]].concat());
}

#[test]
fn simulations() {
    let noise = ["-q", "--noise", DEMO, "--repeat-trace"];
    let sweep =
        ["simulate", "collective", "--ranks", "16,4096", "--runs", "10", "--net-scale", "1,10"];
    at_widths("collective", &[&sweep[..], &noise].concat());
    let pairs =
        ["simulate", "alltoall", "--ranks", "4,32", "--samples", "1000", "--exchange", "150us"];
    at_widths("alltoall", &[&pairs[..], &noise].concat());
    let exchange = ["simulate", "exchange", "--exchange", "150us", "--samples", "1000"];
    at_widths("exchange", &[&exchange[..], &noise].concat());
}

#[test]
fn tail() {
    at_widths("tail", &["tail", DEMO, "--check"]);
}

#[test]
fn mpi_report() {
    at_widths("mpi_report", &["mpi", "report", STENCIL]);
}
