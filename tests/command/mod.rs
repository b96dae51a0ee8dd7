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
