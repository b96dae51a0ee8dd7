//! The command as the tests call it.

use assert_cmd::Command;

pub fn detour(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(arguments);
    command
}

/// Not every file of tests only looks at what went well.
#[allow(dead_code)]
pub fn stdout(arguments: &[&str]) -> String {
    let output = detour(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("text")
}

/// It fails, says why in these words, and prints nothing else.
#[allow(dead_code)]
pub fn refused(arguments: &[&str], words: &[&str]) {
    let output = detour(arguments).assert().failure().get_output().clone();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in words {
        assert!(said.contains(word), "{arguments:?} says {said:?}, not {word:?}");
    }
    assert!(output.stdout.is_empty());
}
