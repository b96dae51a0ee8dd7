//! Guesses what a file that is not a trace contains, for a better error than "wrong magic".

/// Decides by the first bytes of a file (a few hundred are enough).
pub(crate) fn looks_like(start: &[u8]) -> &'static str {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\x1f\x8b", "gzip data; decompress it first with `gzip -d`"),
        (
            b"\xfd7zXZ\0",
            "xz data; decompress a trace with `xz -d`, or read noise data with `detour import`",
        ),
        (b"\x28\xb5\x2f\xfd", "zstd data; decompress it first with `zstd -d`"),
        (b"BZh", "bzip2 data; decompress it first with `bzip2 -d`"),
        (b"PK\x03\x04", "a zip archive; extract it first with `unzip`"),
        (b"\x7fELF", "an ELF executable or library"),
        (b"PERFILE2", "a perf.data file; record with `detour record` instead"),
        (b"\x89PNG", "a PNG image"),
        (b"%PDF", "a PDF document"),
        (b"<!DOCTYPE html", "an HTML page; use the trace it was made from"),
        (b"<html", "an HTML page; use the trace it was made from"),
    ];
    if start.is_empty() {
        return "an empty file; the recorder wrote nothing";
    }
    if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return name;
    }
    let text = start.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..));
    match start.trim_ascii_start().first() {
        _ if !text => "binary data of an unknown kind",
        Some(b'#') => {
            "text that starts with a comment; if it is another tool's noise file use `detour import`"
        }
        Some(b'{' | b'[') => "JSON text; if it lists detours use `detour import`",
        _ => "text; if it is another tool's noise file use `detour import`",
    }
}

#[cfg(test)]
mod tests {
    use super::looks_like;

    #[test]
    fn foreign_files_are_named() {
        assert!(looks_like(b"").contains("empty"));
        assert!(looks_like(b"\x1f\x8b\x08\0").contains("gzip"));
        assert!(looks_like(b"# Benchmark Method: selfish\n").contains("detour import"));
        assert!(looks_like(b"[[1,2]]").contains("JSON"));
        assert!(looks_like(b"start_ns,length_ns\n").contains("text"));
        assert!(looks_like(&[0, 1, 2, 3]).contains("binary"));
    }
}
