//! Reports of the fault tests: how often a fault was injected and the outcome. Appended to the file
//! named by DETOUR_RELIABILITY, from which `docs/reliability.md` is generated; without it nothing is
//! kept.

use std::{fs::OpenOptions, io::Write};

/// One line: the fault, how often it was injected, and the outcome.
pub fn note(fault: &str, times: u64, outcome: &str) {
    let Some(path) = std::env::var_os("DETOUR_RELIABILITY") else { return };
    let line = serde_json::json!({ "fault": fault, "times": times, "outcome": outcome });
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| writeln!(file, "{line}"));
    assert!(written.is_ok(), "cannot append to {}: {written:?}", path.display());
}
