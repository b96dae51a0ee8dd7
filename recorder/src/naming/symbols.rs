//! Names of kernel functions by address, from /proc/kallsyms.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use crate::node::{files, machine};

#[derive(Default)]
pub struct Symbols {
    /// Address and offset of its name in `names`, sorted by address.
    index: Vec<(u64, u32)>,
    names: String,
}

impl Symbols {
    pub fn of_this_kernel() -> io::Result<Symbols> {
        Symbols::parse(BufReader::new(File::open("/proc/kallsyms")?))
    }

    /// Functions only. Addresses of 0 mean that the kernel hides them (kptr_restrict).
    pub fn parse(mut input: impl BufRead) -> io::Result<Symbols> {
        let mut symbols = Symbols::default();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            if let Ok(text) = std::str::from_utf8(&line) {
                let mut fields = text.split_ascii_whitespace();
                let address = fields.next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
                let is_text = matches!(fields.next(), Some("t" | "T" | "w" | "W"));
                if let (Some(address @ 1..), true, Some(name)) = (address, is_text, fields.next()) {
                    symbols.index.push((address, symbols.names.len() as u32));
                    symbols.names.push_str(name);
                    symbols.names.push('\n');
                }
            }
            line.clear();
        }
        symbols.index.sort_unstable();
        Ok(symbols)
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The function that contains an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.index.partition_point(|&(start, _)| start <= address);
        let (_, name) = *self.index.get(after.checked_sub(1)?)?;
        self.names.get(name as usize..)?.lines().next()
    }
}

/// Why the kernel hides the addresses of its symbols, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Hidden {
    pub why: String,
    pub remedy: String,
}

impl Hidden {
    pub fn here() -> Hidden {
        let restrict = files::text("/proc/sys/kernel/kptr_restrict").parse().unwrap_or(0);
        Hidden::given(restrict, machine::has_capability(machine::CAP_SYSLOG))
    }

    /// The kernel's rule (`kallsyms_show_value`): with `kptr_restrict` at 2, addresses are hidden from
    /// all users; below, they are shown with CAP_SYSLOG in the initial user namespace. (At 0 they are
    /// also shown to all users if `perf_event_paranoid` is 1 or less, which should not be lowered just
    /// for this.)
    fn given(kptr_restrict: u32, syslog: bool) -> Hidden {
        let setcap = format!("sudo detour ..., or: {}", machine::SETCAP);
        let (why, remedy) = match (kptr_restrict, syslog) {
            (0 | 1, false) => ("CAP_SYSLOG is missing".to_owned(), setcap),
            (0 | 1, true) => (
                "CAP_SYSLOG has no effect in a nested user namespace".to_owned(),
                "run in the host's user namespace".to_owned(),
            ),
            (level, syslog) => (
                format!("kernel.kptr_restrict={level} hides them from all users"),
                match syslog {
                    true => "sudo sysctl kernel.kptr_restrict=1".to_owned(),
                    false => format!("sudo sysctl kernel.kptr_restrict=1, then: {setcap}"),
                },
            ),
        };
        Hidden { why, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_names_what_is_missing_and_no_setting_that_is_set_already() {
        for level in [0, 1] {
            let hidden = Hidden::given(level, false);
            assert!(hidden.why.contains("CAP_SYSLOG"), "{hidden:?}");
            assert!(hidden.remedy.contains("cap_syslog") && !hidden.remedy.contains("sysctl"));
            assert!(Hidden::given(level, true).remedy.contains("user namespace"));
        }
        assert_eq!(Hidden::given(2, true).remedy, "sudo sysctl kernel.kptr_restrict=1");
        let both = Hidden::given(2, false);
        assert!(both.remedy.contains("kptr_restrict=1") && both.remedy.contains("cap_syslog"));
    }

    #[test]
    fn an_address_inside_a_function_has_its_name() {
        let text = "ffffffff81000000 T startup\nffffffff81000100 t tick\nffffffff81000180 D data\n";
        let symbols = Symbols::parse(text.as_bytes()).unwrap();
        assert_eq!(symbols.name(0xffff_ffff_8100_0104), Some("tick"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("startup"));
        assert_eq!(symbols.name(0x1000), None);
    }

    #[test]
    fn hidden_addresses_give_no_names() {
        let symbols = Symbols::parse("0000000000000000 T startup\ngarbage\n".as_bytes()).unwrap();
        assert!(symbols.is_empty());
    }
}
