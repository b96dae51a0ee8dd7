//! The kernels under test: one of each age in use, real-time, and another architecture.

/// Where a kernel comes from. Debian's archive has one or two builds of each series at a time; the
/// newest is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name on the command line and in tables.
    pub name: &'static str,
    pub suite: &'static str,
    /// The series, as in the names of image packages.
    pub series: &'static str,
    /// The rest of the package's name, after version and ABI: cloud images if available, because they
    /// are small and boot faster.
    pub flavour: &'static str,
    pub processor: Processor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm,
}

impl Processor {
    /// Debian's name.
    pub fn architecture(self) -> &'static str {
        match self {
            Processor::X86 => "amd64",
            Processor::Arm => "arm64",
        }
    }

    /// Whether this machine has this architecture.
    pub fn is_ours(self) -> bool {
        match self {
            Processor::X86 => cfg!(target_arch = "x86_64"),
            Processor::Arm => cfg!(target_arch = "aarch64"),
        }
    }

    /// The Rust target, with a C library that can be linked statically.
    pub fn target(self) -> &'static str {
        match self {
            Processor::X86 => "x86_64-unknown-linux-musl",
            Processor::Arm => "aarch64-unknown-linux-musl",
        }
    }
}

const fn x86(
    name: &'static str,
    suite: &'static str,
    series: &'static str,
    flavour: &'static str,
) -> Kernel {
    Kernel { name, suite, series, flavour, processor: Processor::X86 }
}

pub const KERNELS: &[Kernel] = &[
    x86("5.10", "bullseye", "5.10.", "-cloud-amd64"),
    x86("6.1", "bookworm", "6.1.", "-cloud-amd64"),
    x86("6.12", "trixie", "6.12.", "-cloud-amd64"),
    x86("6.18", "trixie-backports", "6.18.", "-cloud-amd64"),
    x86("7.2", "sid", "7.2.", "-cloud-amd64"),
    x86("6.12-rt", "trixie", "6.12.", "-rt-amd64"),
    Kernel {
        name: "6.12-arm64",
        suite: "trixie",
        series: "6.12.",
        flavour: "-cloud-arm64",
        processor: Processor::Arm,
    },
];

/// The kernels with the given names, or all.
pub fn chosen(names: &[String]) -> anyhow::Result<Vec<Kernel>> {
    let known = || KERNELS.iter().map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| KERNELS.iter().all(|k| k.name != **name)) {
        anyhow::bail!("unknown kernel '{unknown}' (expected {})", known());
    }
    let wanted = |kernel: &&Kernel| names.is_empty() || names.iter().any(|n| n == kernel.name);
    Ok(KERNELS.iter().filter(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_name_and_unknown_ones_are_refused() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&names).map(|kernels| kernels.iter().map(|k| k.name).collect::<Vec<_>>())
        };
        assert_eq!(named(&["7.2", "5.10"]).unwrap(), ["5.10", "7.2"]);
        assert_eq!(named(&[]).unwrap().len(), KERNELS.len());
        let error = named(&["6.1", "4.19"]).unwrap_err().to_string();
        assert!(error.contains("4.19") && error.contains("6.12-rt"), "{error}");
    }
}
