//! What tests of faults have to tell: how often a fault was made and what came of it. Gathered in the
//! file that DETOUR_RELIABILITY names, from which `docs/reliability.md` is made; without it nothing
//! is kept.

use std::{fs::OpenOptions, io::Write};

/// One line: the fault, how often it was made, what was lost and what was found.
pub fn note(fault: &str, times: u64, outcome: &str) {
    let Some(path) = std::env::var_os("DETOUR_RELIABILITY") else { return };
    let line = serde_json::json!({ "fault": fault, "times": times, "outcome": outcome });
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| writeln!(file, "{line}"));
    assert!(written.is_ok(), "cannot keep what happened in {}: {written:?}", path.display());
}
