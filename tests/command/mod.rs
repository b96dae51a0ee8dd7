//! The command as called by the tests.

use assert_cmd::Command;

pub fn detour(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(arguments);
    command
}

/// Not used by every test file.
#[allow(dead_code)]
pub fn stdout(arguments: &[&str]) -> String {
    let output = detour(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("text")
}

/// It fails, prints these messages, and nothing else.
#[allow(dead_code)]
pub fn refused(arguments: &[&str], words: &[&str]) {
    let output = detour(arguments).assert().failure().get_output().clone();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in words {
        assert!(said.contains(word), "{arguments:?} printed {said:?}, not {word:?}");
    }
    assert!(output.stdout.is_empty());
}
