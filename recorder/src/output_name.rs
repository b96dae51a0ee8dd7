//! The name of a trace file: a template with host, job, rank and time.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// The command line, as stored in a recording.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Expands host, job, rank and time.
pub fn output_name(asked: Option<&Path>) -> PathBuf {
    let job = job();
    let usual = match job {
        // One recorder per node, all in the same directory.
        Some(_) => "detour-%j-%h-%r-%t.detour",
        None => "detour-%h-%t.detour",
    };
    fill_in(asked.unwrap_or(Path::new(usual)), job.as_deref())
}

/// The same with an explicit job.
pub fn fill_in(template: &Path, job: Option<&str>) -> PathBuf {
    let mut name = OsString::new();
    // Names need not be UTF-8; other bytes are kept as they are.
    for chunk in pieces(template.as_os_str()) {
        match chunk.to_str() {
            Some("%h") => name.push(host()),
            Some("%j") => name.push(part_of_name(job.unwrap_or("nojob"))),
            Some("%r") => name.push(rank()),
            Some("%t") => name.push(utc_stamp()),
            Some("%%") => name.push("%"),
            _ => name.push(chunk),
        }
    }
    PathBuf::from(name)
}

/// Splits the template before each percent sign and after the character that follows it.
fn pieces(template: &OsStr) -> Vec<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    let (mut pieces, mut rest) = (Vec::new(), template.as_bytes());
    while !rest.is_empty() {
        let length = match rest.iter().position(|&byte| byte == b'%') {
            Some(0) => 2,
            Some(at) => at,
            None => rest.len(),
        };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(OsStr::from_bytes(piece));
        rest = after;
    }
    pieces
}

/// A name from the environment must not lead into another directory.
fn part_of_name(text: &str) -> String {
    text.replace(['/', '\0'], "_")
}

fn host() -> String {
    #[cfg(target_os = "linux")]
    return part_of_name(&crate::machine::host());
    #[cfg(not(target_os = "linux"))]
    return "host".to_owned();
}

fn job() -> Option<String> {
    #[cfg(target_os = "linux")]
    return crate::machine::job_id();
    #[cfg(not(target_os = "linux"))]
    return None;
}

fn rank() -> String {
    #[cfg(target_os = "linux")]
    return part_of_name(&crate::machine::rank().unwrap_or("0".to_owned()));
    #[cfg(not(target_os = "linux"))]
    return "0".to_owned();
}

/// The time as 20260131-235959, UTC.
fn utc_stamp() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |d| d.as_secs());
    let [year, month, day, hour, minute, second] = trace::utc(seconds as i64);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_percent_signs_stay() {
        let name = output_name(Some(Path::new("a%x%%b%")));
        assert_eq!(name, PathBuf::from("a%x%b%"));
    }

    #[test]
    fn names_that_are_not_text_are_filled_in_too() {
        use std::os::unix::ffi::OsStrExt;
        let name = fill_in(Path::new(OsStr::from_bytes(b"\xff-%j-%\xfe%")), Some("7"));
        assert_eq!(name.as_os_str().as_bytes(), b"\xff-7-%\xfe%");
    }

    #[test]
    fn a_job_cannot_lead_out_of_the_directory() {
        let name = fill_in(Path::new("detour-%j"), Some("../../etc/7"));
        assert_eq!(name, PathBuf::from("detour-.._.._etc_7"));
    }
}
