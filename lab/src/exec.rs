//! Runs other programs. Every error message names the command.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// Variables that `cargo run` sets for the program it runs. Passed on to another cargo, build scripts
/// that watch them would see a changed environment, and everything would be rebuilt.
const OWN_PREFIXES: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// A program to run in a directory.
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

/// Whether this process runs as root.
pub fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

/// Removes the matching environment variables from a command.
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

/// The command as typed in a shell.
pub fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs to completion with inherited stdin and stdout. A nonzero exit code is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| cannot_start(command))?;
    succeeded(command, status)
}

/// The same, and returns the standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| cannot_start(command))?;
    succeeded(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` did not print UTF-8", describe(command)))
}

/// The same, and parses the output as JSON.
pub fn json(command: &mut Command) -> Result<serde_json::Value> {
    let text = output(command)?;
    serde_json::from_str(&text).with_context(|| {
        format!("`{}` did not print JSON: {}", describe(command), first_line(&text))
    })
}

/// Runs to completion, passing standard output on and each of its lines to `look`. The error of a
/// failing command is the inner result, because its output still counts.
pub fn watch(command: &mut Command, mut look: impl FnMut(&str)) -> Result<Result<()>> {
    let mut out = std::io::stdout();
    lines(command, |line| {
        // Our reader may be gone; the tests must be finished nevertheless.
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
    let status =
        child.wait().with_context(|| format!("cannot wait for `{}`", describe(command)))?;
    Ok(succeeded(command, status))
}

/// The peak memory of a command in bytes, as reported by the kernel while it ran.
pub fn peak_memory(command: &mut Command) -> Result<u64> {
    let said = describe(command);
    let failed = || format!("failed: {said}");
    let mut child = command.stdout(std::process::Stdio::null()).spawn().with_context(failed)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        // `VmHWM` never falls, so the last value before the end counts.
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

/// Runs to completion and returns the CPU time it took, in seconds; its output is discarded. What other work on
/// the machine takes is not part of it. The kernel counts it in hundredths.
pub fn cpu_seconds(command: &mut Command) -> Result<f64> {
    let before = of_children()?;
    let status = command.stdout(Stdio::null()).status().with_context(|| cannot_start(command))?;
    succeeded(command, status)?;
    Ok(of_children()? - before)
}

/// CPU time of this program's children that have ended, in seconds.
fn of_children() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| rest.split_ascii_whitespace().nth(at)?.parse::<f64>().ok();
    let both = ticks(13).zip(ticks(14)).context("no times in /proc/self/stat")?;
    Ok((both.0 + both.1) / 100.0)
}

/// Runs to completion and returns the time it took; its output is discarded.
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
