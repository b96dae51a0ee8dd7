//! Keys: the bytes a terminal sends, decoded on a thread of its own.

use std::{io, os::fd::OwnedFd, time::Duration};

use live::Key;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const ESCAPE: u8 = 0x1b;
/// The rest of an escape sequence follows within this time; otherwise it was the escape key.
const REST: Duration = Duration::from_millis(50);

/// The keys typed on `terminal`. The channel closes when the terminal is gone.
pub fn read(terminal: OwnedFd) -> io::Result<UnboundedReceiver<Key>> {
    let (sender, keys) = unbounded_channel();
    let read = move || {
        recorder::give_up();
        let mut bytes = Vec::new();
        while more(&terminal, &mut bytes) {
            while unfinished(&bytes) && soon(&terminal) && more(&terminal, &mut bytes) {}
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (key, length) = decode(rest);
                rest = &rest[length..];
                if key.is_some_and(|key| sender.send(key).is_err()) {
                    return;
                }
            }
            bytes.clear();
        }
    };
    std::thread::Builder::new().name("detour-keys".to_owned()).spawn(read)?;
    Ok(keys)
}

/// Waits for more bytes; false if there will be none.
fn more(terminal: &OwnedFd, bytes: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 256];
    loop {
        match rustix::io::read(terminal, &mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                bytes.extend_from_slice(&buffer[..length]);
                return true;
            }
            Err(Errno::INTR) => {}
            // Another program may have left the terminal in this mode.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(terminal, PollFlags::IN)], None);
            }
            Err(_) => return false,
        }
    }
}

fn soon(terminal: &OwnedFd) -> bool {
    let wait = Timespec { tv_sec: 0, tv_nsec: REST.subsec_nanos().into() };
    poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&wait)).is_ok_and(|ready| ready > 0)
}

/// Whether the last key in `bytes` is incomplete.
fn unfinished(bytes: &[u8]) -> bool {
    let last = bytes.iter().rposition(|&byte| byte == ESCAPE || byte >= 0xc0);
    let Some(rest) = last.map(|last| &bytes[last..]) else { return false };
    match rest {
        [ESCAPE] | [ESCAPE, b'O' | b'['] | [ESCAPE, b'[', b'['] => true,
        [ESCAPE, b'[', parameters @ ..] => !parameters.iter().any(|&byte| ends_sequence(byte)),
        [ESCAPE, ..] => false,
        [first, ..] => rest.len() < utf8_length(*first),
        [] => false,
    }
}

fn ends_sequence(byte: u8) -> bool {
    (0x40..=0x7e).contains(&byte)
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    }
}

/// The first key in `bytes`, if it is one that is used, and its length: at least one byte.
fn decode(bytes: &[u8]) -> (Option<Key>, usize) {
    match bytes {
        // A function key of the Linux console.
        [ESCAPE, b'[', b'[', _, ..] => (None, 4),
        [ESCAPE, b'[', rest @ ..] => match rest.iter().position(|&byte| ends_sequence(byte)) {
            Some(end) => (sequence(&rest[..end], rest[end]), 2 + end + 1),
            None => (None, bytes.len()),
        },
        [ESCAPE, b'O', letter, ..] => (sequence(&[], *letter), 3),
        // Two escapes in a row are two keys. Another key counts without Alt: it may as well have followed
        // the escape key on a slow line.
        [ESCAPE, next, ..] if *next != ESCAPE => {
            let (key, length) = decode(&bytes[1..]);
            (key, 1 + length)
        }
        [ESCAPE, ..] => (Some(Key::Escape), 1),
        [b'\r' | b'\n', ..] => (Some(Key::Enter), 1),
        [0x7f | 0x08, ..] => (Some(Key::Backspace), 1),
        [control @ 1..=26, ..] => (Some(Key::Control(char::from(control - 1 + b'a'))), 1),
        [0..0x20, ..] => (None, 1),
        [first, ..] => {
            let length = utf8_length(*first).min(bytes.len());
            let text = std::str::from_utf8(&bytes[..length]).ok();
            match text.and_then(|text| text.chars().next()) {
                Some(c) => (Some(Key::Char(c)), length),
                None => (None, 1),
            }
        }
        [] => (None, 1),
    }
}

/// A key sent as an escape sequence; modifiers follow a semicolon and make no difference.
fn sequence(parameters: &[u8], last: u8) -> Option<Key> {
    let number = parameters.split(|&byte| byte == b';').next().unwrap_or_default();
    Some(match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'M', b"") => Key::Enter,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(mut bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        while !bytes.is_empty() {
            let (key, length) = decode(bytes);
            keys.extend(key);
            bytes = &bytes[length..];
        }
        keys
    }

    #[test]
    fn what_terminals_send_for_each_key() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOA", Key::Up),
            (b"\x1b[1;5B", Key::Down),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6;2~", Key::PageDown),
            (b"\x1b[H", Key::Home),
            (b"\x1b[1~", Key::Home),
            (b"\x1bOF", Key::End),
            (b"\x1b[8~", Key::End),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            (b"\x08", Key::Backspace),
            (b"\x1b", Key::Escape),
            (b"\x03", Key::Control('c')),
            (b"\x1a", Key::Control('z')),
            (b"q", Key::Char('q')),
            ("\u{e9}".as_bytes(), Key::Char('\u{e9}')),
            ("\u{1f600}".as_bytes(), Key::Char('\u{1f600}')),
        ] {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
    }

    #[test]
    fn unknown_sequences_are_skipped_whole() {
        assert_eq!(keys(b"a\x1b[200~b\x1b[<0;1;2Mc\x1b[[Ad"), ['a', 'b', 'c', 'd'].map(Key::Char));
        assert_eq!(keys(b"\x1bq\x1b\x03"), [Key::Char('q'), Key::Control('c')]);
        assert_eq!(keys(b"\x1b\x1b"), [Key::Escape, Key::Escape]);
        assert_eq!(keys(b"\xff\xc3q\0"), [Key::Char('q')]);
    }

    #[test]
    fn only_an_incomplete_key_waits_for_its_rest() {
        for bytes in [&b"\x1b"[..], b"\x1b[", b"\x1b[1;5", b"\x1bO", b"a\x1b[", b"\xe2\x82"] {
            assert!(unfinished(bytes), "{bytes:?}");
        }
        for bytes in [&b""[..], b"q", b"\x1b[A", b"\x1bOA", b"\x1bx", "\u{20ac}q".as_bytes()] {
            assert!(!unfinished(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn no_bytes_make_it_loop_or_panic() {
        for a in 0..=255_u8 {
            for b in 0..=255_u8 {
                for bytes in [[a, b, b'q'], [ESCAPE, a, b], [ESCAPE, b'[', a]] {
                    keys(&bytes);
                    unfinished(&bytes);
                }
            }
        }
    }
}
