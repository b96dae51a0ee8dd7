//! Small files of /proc and /sys.

use std::{fs, path::Path};

/// A file's text. Names in it, of tasks and directories, need not be UTF-8.
pub fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// A file's text without the final newline; empty if there is none.
pub fn text(path: impl AsRef<Path>) -> String {
    read(path).map(|text| text.trim_end().to_owned()).unwrap_or_default()
}
