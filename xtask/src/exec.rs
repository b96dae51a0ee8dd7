//! Running other programs. Whatever goes wrong, the message names the command.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// What `cargo run` tells the program it runs. Passed on to another cargo it would look like a
/// changed environment to build scripts that watch it, and everything would be built again.
const OWN_PREFIXES: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// A program to be run in a directory.
pub fn command(program: impl AsRef<OsStr>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    forget(&mut command, |name| OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    command
}

/// The cargo that runs this program, and with it the pinned toolchain.
pub fn cargo(directory: &Path) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), directory)
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

/// Keeps the matching environment variables from a command.
pub fn forget(command: &mut Command, unwanted: impl Fn(&str) -> bool) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(&unwanted) {
            command.env_remove(name);
        }
    }
}

/// Puts a directory at the front of a search path such as PATH.
pub fn search_first(command: &mut Command, variable: &str, directory: &Path) -> Result<()> {
    let inherited = std::env::var_os(variable).unwrap_or_default();
    let rest = std::env::split_paths(&inherited).filter(|path| path.as_os_str() != "");
    let joined = std::env::join_paths(std::iter::once(PathBuf::from(directory)).chain(rest))
        .with_context(|| format!("cannot put {} on {variable}", directory.display()))?;
    command.env(variable, joined);
    Ok(())
}

/// The command as one would type it.
pub fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs to the end, with our own input and output. An exit code other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| cannot_start(command))?;
    succeeded(command, status)
}

/// The same, and gives what was printed on standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| cannot_start(command))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something that is not text", describe(command)))
}

/// The same, and reads what was printed as JSON.
pub fn json(command: &mut Command) -> Result<serde_json::Value> {
    let text = output(command)?;
    serde_json::from_str(&text).with_context(|| {
        format!("`{}` did not print JSON: {}", describe(command), first_line(&text))
    })
}

/// Runs to the end, passing standard output on while showing each line of it to `look`. The error
/// of a command that fails is inside, because what it printed before counts too.
pub fn watch(command: &mut Command, mut look: impl FnMut(&str)) -> Result<Result<()>> {
    let mut out = std::io::stdout();
    lines(command, |line| {
        // Nobody may be reading ours any more; the tests are to be finished nevertheless.
        let _ = out.write_all(line).and_then(|()| out.flush());
        look(String::from_utf8_lossy(line).trim_end());
    })
}

fn lines(command: &mut Command, mut see: impl FnMut(&[u8])) -> Result<Result<()>> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| cannot_start(command))?;
    if let Some(pipe) = child.stdout.take() {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            let reading = format!("cannot read the output of `{}`", describe(command));
            if pipe.read_until(b'\n', &mut line).context(reading)? == 0 {
                break;
            }
            see(&line);
        }
    }
    let status = child.wait().with_context(|| format!("lost `{}`", describe(command)))?;
    Ok(succeeded(command, status))
}

/// The most memory a command had, bytes, by the kernel's account of it while it ran.
pub fn peak_memory(command: &mut Command) -> Result<u64> {
    let said = describe(command);
    let failed = || format!("failed: {said}");
    let mut child = command.stdout(std::process::Stdio::null()).spawn().with_context(failed)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        // `VmHWM` never falls, so the last look before the end is what counts.
        if let Ok(text) = std::fs::read_to_string(&status) {
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
            peak = peak.max(kib.unwrap_or(0u64) * 1024);
        }
        if let Some(status) = child.try_wait().with_context(failed)? {
            anyhow::ensure!(status.success(), "{}", failed());
            return Ok(peak);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs to the end and gives the seconds it took; its output is thrown away.
pub fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().with_context(|| cannot_start(command))?;
    let passed = start.elapsed();
    succeeded(command, status).map(|()| passed)
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", describe(command));
    }
    Ok(())
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", describe(command))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = command("sh", Path::new("."));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_command_is_named_with_its_exit_code() {
        let error = run(&mut sh("exit 3")).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let error = run(&mut command("no-such-program", Path::new("."))).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot start `no-such-program`"), "{error:#}");
    }

    #[test]
    fn lines_are_seen_even_when_the_command_fails_in_the_end() {
        let mut seen = Vec::new();
        let end = lines(&mut sh("echo one; printf two; exit 1"), |line| seen.push(line.to_vec()));
        assert!(end.unwrap().is_err());
        assert_eq!(seen, [b"one\n".as_slice(), b"two"]);
    }
}
