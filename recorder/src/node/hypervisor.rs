//! Whether this kernel runs under a hypervisor, which one, and how much steal time it reports.

use std::{collections::BTreeMap, fs};

use crate::{cpulist::CpuSet, node::files::text};

/// The hypervisor that this machine is a guest of. None on bare metal, or if it cannot be determined.
pub fn name() -> Option<String> {
    from_cpuid().or_else(from_firmware)
}

/// From CPUID: a bit that is always clear on bare metal, and a name of twelve letters.
#[cfg(target_arch = "x86_64")]
fn from_cpuid() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const GUEST: u32 = 1 << 31;
    if __cpuid(1).ecx & GUEST == 0 {
        return None;
    }
    let leaf = __cpuid(0x4000_0000);
    let letters: Vec<u8> =
        [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|part| part.to_le_bytes()).collect();
    Some(known(&letters))
}

#[cfg(not(target_arch = "x86_64"))]
fn from_cpuid() -> Option<String> {
    None
}

/// The common name.
#[cfg(target_arch = "x86_64")]
fn known(letters: &[u8]) -> String {
    let name: String = letters
        .iter()
        .map(|&b| char::from(b))
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .collect();
    let said = match name.trim() {
        "KVMKVMKVM" | "Linux KVM Hv" => "KVM",
        "TCGTCGTCGTCG" => "QEMU",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "bhyve bhyve" => "bhyve",
        "VBoxVBoxVBox" => "VirtualBox",
        "" => "unknown",
        other => other,
    };
    said.to_owned()
}

/// If the processor does not tell, the firmware's description of the machine may.
fn from_firmware() -> Option<String> {
    let xen = text("/sys/hypervisor/type");
    if !xen.is_empty() {
        return Some(xen);
    }
    if fs::metadata("/proc/device-tree/hypervisor").is_ok() {
        return Some("unknown".to_owned());
    }
    let maker = text("/sys/class/dmi/id/sys_vendor");
    let makers = ["QEMU", "KVM", "VMware, Inc.", "Xen", "innotek GmbH", "BHYVE"];
    makers.contains(&maker.as_str()).then_some(maker)
}

/// Steal time at the start of a recording.
pub struct Steal(Option<BTreeMap<u32, u64>>);

/// What it grew by, ns by CPU.
pub struct Stolen(BTreeMap<u32, u64>);

impl Steal {
    pub fn start() -> Steal {
        Steal(now())
    }

    /// None if the kernel does not report it.
    pub fn stop(self) -> Option<Stolen> {
        let (before, after) = (self.0?, now()?);
        let grown = after.into_iter().map(|(cpu, ns)| {
            // A CPU that came online in between counts from its start.
            (cpu, ns.saturating_sub(before.get(&cpu).copied().unwrap_or(0)))
        });
        Some(Stolen(grown.collect()))
    }
}

impl Stolen {
    pub fn on(&self, cpu: u32) -> Option<u64> {
        self.0.get(&cpu).copied()
    }

    pub fn on_all(&self, cpus: &CpuSet) -> u64 {
        cpus.iter().filter_map(|&cpu| self.on(cpu)).fold(0, u64::saturating_add)
    }
}

fn now() -> Option<BTreeMap<u32, u64>> {
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let steal = parse(&fs::read_to_string("/proc/stat").ok()?, ticks_per_second);
    (!steal.is_empty()).then_some(steal)
}

/// The eighth number of each CPU's line, in ns.
fn parse(stat: &str, ticks_per_second: u64) -> BTreeMap<u32, u64> {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: u64 = words.nth(7)?.parse().ok()?;
        Some((cpu, ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1))))
    };
    stat.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_a_cpus_line() {
        let stat = "cpu  104914 0 7638 15147 3179 0 83 13656 0 0\n\
                    cpu0 52379 0 3742 8545 814 0 13 6803 0 0\n\
                    cpu64 52534 0 3896 6601 2364 0 70 6852 0 0\nintr 12 0 0\n";
        let steal = parse(stat, 100);
        assert_eq!(steal, BTreeMap::from([(0, 68_030_000_000), (64, 68_520_000_000)]));
        assert!(parse("cpu0 1 2 3\ncpuX 1 2 3 4 5 6 7 8\n", 100).is_empty());
    }

    #[test]
    fn what_was_stolen_before_and_elsewhere_is_not_counted() {
        let stolen = Stolen(BTreeMap::from([(0, 5), (1, 7), (2, 11)]));
        assert_eq!(stolen.on_all(&CpuSet::from([1, 2, 9])), 18);
        assert_eq!(stolen.on(9), None);
    }

    #[test]
    fn the_bit_of_the_processor_agrees_with_the_kernels_flag() {
        let info = text("/proc/cpuinfo");
        let flags = info.lines().find(|line| line.starts_with("flags"));
        if let Some(flags) = flags {
            assert_eq!(from_cpuid().is_some(), flags.split(' ').any(|flag| flag == "hypervisor"));
        }
    }
}
