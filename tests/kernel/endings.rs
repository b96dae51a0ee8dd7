//! However a recording ends, what was written can be read and nothing stays behind.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use trace::Reader;

use crate::{
    reliability,
    support::{Needs, Recording, Scratch, Test, detour, patience, report, text},
};

pub const TESTS: &[Test] = &[
    (
        "a_killed_recorder_leaves_a_readable_file_and_no_programs",
        Needs::Root,
        a_killed_recorder_leaves_a_readable_file_and_no_programs,
    ),
    (
        "faults::a_full_disk_ends_in_an_error_and_a_readable_file",
        Needs::Root,
        a_full_disk_ends_in_an_error_and_a_readable_file,
    ),
    ("ctrl_c_ends_a_whole_recording_with_exit_code_0", Needs::Nothing, ctrl_c_ends_a_recording),
];

fn a_killed_recorder_leaves_a_readable_file_and_no_programs() -> Result<()> {
    let scratch = Scratch::new("killed")?;
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["-d", "60s"])?;
    std::thread::sleep(Duration::from_millis(2_500));
    // Dropping it kills it.
    drop(recording);
    let reader = Reader::open(&path)?;
    ensure!(reader.truncated().is_some(), "a killed recording looks complete");
    let mut detours = 0;
    for block in reader.blocks() {
        detours += block?.detours.len();
    }
    ensure!(detours > 100, "only {detours} detours of two seconds are left");
    let report = report(&path)?;
    ensure!(!report["truncated"].is_null(), "the report does not say so");
    Ok(())
}

/// A file system with room for the beginning only.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf) -> Result<SmallDisk> {
        fs::create_dir_all(&at)?;
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(&at)
            .status()
            .context("mount")?;
        ensure!(mount.success(), "cannot mount a small tmpfs");
        Ok(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn a_full_disk_ends_in_an_error_and_a_readable_file() -> Result<()> {
    let scratch = Scratch::new("full")?;
    let disk = SmallDisk::mount(scratch.file("disk"))?;
    let path = disk.0.join("trace.detour");
    // Leave some pages only: the beginning fits, the recording does not.
    fs::write(disk.0.join("filler"), vec![0; 40 << 10])?;
    let output = detour().args(["record", "-d", "4s", "-o"]).arg(&path).output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    ensure!(said.contains("incomplete") && said.contains("space"), "{said}");
    let reader = Reader::open(&path)?;
    for block in reader.blocks() {
        block?;
    }
    drop(reader);
    count_once_there_is_room(&disk)?;
    reliability::note("a full disk", 2, FULL_DISK);
    Ok(())
}

const FULL_DISK: &str = "the command fails and says so, the file is readable; when there is room \
                         again at the end it says how much could not be written";

fn count_once_there_is_room(disk: &SmallDisk) -> Result<()> {
    let path = disk.0.join("counted.detour");
    fs::remove_file(disk.0.join("trace.detour"))?;
    let mut recording = Recording::start(&path, &["-d", "1h"])?;
    // As much as there is room for: less than asked.
    let rest = disk.0.join("rest");
    ensure!(fs::write(&rest, vec![0; 64 << 10]).is_err(), "the disk is larger than it should be");
    // Something is recorded every second, and written unless it cannot be.
    let start = Instant::now();
    let (mut len, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        ensure!(start.elapsed() < patience(), "the disk does not fill up: {len} bytes");
        std::thread::sleep(Duration::from_millis(100));
        let now = fs::metadata(&path)?.len();
        if now != len {
            (len, since) = (now, Instant::now());
        }
    }
    // The rest alone may be a page: how much the recording had taken before it depends on the machine.
    fs::remove_file(rest)?;
    fs::remove_file(disk.0.join("filler"))?;
    recording.signal(rustix::process::Signal::INT)?;
    let output = recording.output()?;
    let said = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {said}", output.status);
    let reader = Reader::open(&path)?;
    let trailer = reader.trailer().with_context(|| format!("no trailer: {said}"))?;
    let unwritten = trailer.lost.unwritten;
    ensure!(unwritten > 0, "nothing is said to be unwritten");
    Ok(())
}

fn ctrl_c_ends_a_recording() -> Result<()> {
    let scratch = Scratch::new("ctrl-c")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["-d", "1h"])?;
    std::thread::sleep(Duration::from_millis(300));
    let trace = recording.stop()?;
    let report = trace.report()?;
    ensure!(report["truncated"].is_null(), "{}", report["truncated"]);
    ensure!(report["duration_s"].as_f64().is_some_and(|s| s < 30.0));
    Ok(())
}
