//! Small files of /proc and /sys.

use std::{fs, path::Path};

/// A file's text without the final newline; empty if there is none.
pub fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|s| s.trim_end().to_owned()).unwrap_or_default()
}
