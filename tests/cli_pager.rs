//! Long output on a terminal goes through a pager, which has the terminal until it ends; that of MPI ranks does not.

mod pty;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Result, ensure};
use pty::Terminal;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

/// A pager that notes Ctrl-C, as less does, and ends when told to.
const PAGER: &str = "trap 'echo GOT' INT; cat > \"$PAGED\"; echo READY; \
                     while [ ! -e \"$PAGED.end\" ]; do sleep 0.1; done; echo BYE";

fn paged(name: &str, arguments: &[&str]) -> Result<()> {
    let text = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let end = text.with_extension("txt.end");
    let _ = fs::remove_file(&end);
    let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
    command.args(arguments).env("DETOUR_PAGER", PAGER).env("PAGED", &text);
    let mut terminal = Terminal::start(&mut command, 80, 24)?;
    terminal.until_shown("READY")?;
    terminal.press("\x03")?;
    terminal.until_shown("GOT")?;
    // Longer than a simulation waits after Ctrl-C; the pager still has the terminal.
    std::thread::sleep(Duration::from_secs(1));
    terminal.press("\x03")?;
    terminal.until("a second Ctrl-C", |shown| shown.matches("GOT").count() == 2)?;
    fs::write(&end, "")?;
    ensure!(terminal.end()?.success());
    ensure!(terminal.shown().contains("BYE"), "{}", terminal.shown());
    let text = fs::read_to_string(&text)?;
    ensure!(text.lines().count() > 24 && text.contains("About this recording"), "{text}");
    Ok(())
}

#[test]
fn ctrl_c_is_the_pagers() -> Result<()> {
    paged("paged-plain.txt", &["report", DEMO, "--no-projection"])
}

/// A simulation has a handler of its own for Ctrl-C, which must not act any more.
#[test]
fn ctrl_c_is_the_pagers_after_a_simulation_too() -> Result<()> {
    paged("paged-simulated.txt", &["report", DEMO, "--ranks", "16", "--runs", "2"])
}

/// Open MPI gives its ranks a terminal whatever the output of mpirun goes to: no pager, no colour.
#[test]
fn a_terminal_of_mpirun_is_not_one() -> Result<()> {
    for (rank, coloured) in [(None, true), (Some("0"), false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
        command.args(["report", DEMO, "--no-projection"]).env("DETOUR_PAGER", "cat");
        command.env_remove("NO_COLOR").env_remove("OMPI_COMM_WORLD_RANK");
        command.envs(rank.map(|rank| ("OMPI_COMM_WORLD_RANK", rank)));
        let mut terminal = Terminal::start(&mut command, 80, 200)?;
        ensure!(terminal.end()?.success());
        ensure!(terminal.shown().contains("About this recording"), "{}", terminal.shown());
        ensure!(terminal.has_colour() == coloured, "{}", terminal.shown());
    }
    Ok(())
}
