//! SIGKILL, from before the programs are loaded to well into the recording.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use trace::{Reader, TraceError};

use crate::{
    left::Loaded,
    reliability,
    support::{Scratch, detour, report},
};

/// Seed of the random times; the same in every run.
const SEED: u64 = 0x5eed_0006;
const TRIES: u64 = 6;
const LATEST_MS: u64 = 1_500;

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub fn at_random_moments() -> Result<()> {
    let scratch = Scratch::new("kills")?;
    let mut state = SEED;
    let (mut before_the_file, mut loaded, mut events) = (0, 0, 0);
    for attempt in 0..TRIES {
        let path = scratch.file(&format!("{attempt}.detour"));
        let before = Loaded::now()?;
        let start = Instant::now();
        let mut child = detour()
            .args(["record", "--quiet", "-d", "60s", "-o"])
            .arg(&path)
            .stderr(Stdio::null())
            .spawn()?;
        // Every other one only after it has begun to record, however slow the machine.
        while attempt.is_multiple_of(2) && !has_events(&path) {
            ensure!(start.elapsed() < Duration::from_secs(60), "nothing is recorded");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(draw(&mut state) % LATEST_MS));
        loaded += u64::from(Loaded::now()?.has_programs_beyond(&before));
        child.kill()?;
        child.wait()?;
        before.nothing_new()?;
        match readable(&path)? {
            Some(found) => events += found,
            None => before_the_file += 1,
        }
    }
    ensure!(loaded > 0, "no kill while programs were loaded");
    ensure!(events > 0, "no kill while events were recorded");
    reliability::note(
        "SIGKILL of the recorder at a random time, during start or recording",
        TRIES,
        &format!(
            "every file readable up to its last block ({before_the_file} killed before there was \
             one), {loaded} with programs loaded, no program, map, link or pin left"
        ),
    );
    Ok(())
}

fn has_events(path: &std::path::Path) -> bool {
    Reader::open(path).is_ok_and(|reader| reader.block_infos().len() > 0)
}

/// Events in a truncated file; None if it was not begun.
fn readable(path: &std::path::Path) -> Result<Option<u64>> {
    if !fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
        return Ok(None);
    }
    let reader = match Reader::open(path) {
        Ok(reader) => reader,
        // Between its first bytes and its manifest.
        Err(TraceError::Damaged { why, .. }) if why.contains("before it began") => return Ok(None),
        Err(error) => bail!("{error}"),
    };
    ensure!(reader.truncated().is_some(), "a killed recording looks complete");
    let mut events = 0;
    for block in reader.blocks() {
        let block = block?;
        events += (block.detours.len() + block.records.len()) as u64;
    }
    let damaged = reader.damaged_blocks();
    ensure!(damaged.is_empty(), "{damaged:?}");
    ensure!(!report(path)?["truncated"].is_null(), "the report does not say so");
    Ok(Some(events))
}
