//! The guest's only file system: an archive that the kernel unpacks into memory (cpio "newc" format,
//! uncompressed: it is read from the host's memory either way).

use std::{fs, path::Path};

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

#[derive(Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initramfs {
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    pub fn link(&mut self, path: &str, to: &str) {
        self.entry(path, LINK, (0, 0), to.as_bytes());
    }

    /// A character device; the kernel needs one for its console before anything is mounted.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, DEVICE, (major, minor), &[]);
    }

    /// An executable file.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), contents);
    }

    pub fn program_from(&mut self, path: &str, file: &Path) -> Result<()> {
        let contents = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        self.program(path, &contents);
        Ok(())
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            contents.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parsed here: header of 110 bytes, name, contents, each padded to four.
    #[test]
    fn entries_are_padded_and_carry_their_lengths() {
        let mut archive = Initramfs::default();
        archive.directory("/bin");
        archive.program("/bin/sh", b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let second = 110 + 4 + 2;
        assert_eq!(&bytes[second..second + 6], b"070701");
        let field = |index: usize| {
            let at = second + 6 + 8 * index;
            u32::from_str_radix(std::str::from_utf8(&bytes[at..at + 8]).unwrap(), 16).unwrap()
        };
        assert_eq!((field(1), field(6), field(11)), (PROGRAM, 5, 7));
        let name = second + 110;
        assert_eq!(&bytes[name..name + 7], b"bin/sh\0");
        let contents = (name + 7).next_multiple_of(4);
        assert_eq!(&bytes[contents..contents + 5], b"hello");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
