//! Time in detours that no record explains: of two kinds, told apart by length.

use serde::Serialize;

use crate::{Class, Manifest, RowKey, Trailer};

/// Where time outside the kernel stops being the processor's own business.
pub const LONG_NS: u64 = 1_000;

/// Which of the two kinds so much time in a detour is of.
#[inline]
pub fn outside_kind(outside_ns: u64) -> usize {
    usize::from(outside_ns >= LONG_NS)
}

/// What a recording knows of who else can take a CPU away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutsideEvidence {
    /// The hypervisor whose guest this was. None on bare metal, and where nothing tells.
    pub hypervisor: Option<String>,
    /// Time that the hypervisor says it ran something else, on all recorded CPUs together. None where
    /// it was not read.
    pub steal_ns: Option<u64>,
    /// System management interrupts on all measured CPUs. None where the machine does not count them.
    pub smi: Option<u64>,
}

impl OutsideEvidence {
    /// Before the end of a recording only what the manifest says is known.
    pub fn of(manifest: &Manifest, trailer: Option<&Trailer>) -> OutsideEvidence {
        let lanes = trailer.map_or(&[][..], |trailer| &trailer.lanes);
        let counted = lanes.iter().filter_map(|totals| totals.counters.get("smi").copied());
        OutsideEvidence {
            hypervisor: manifest.hypervisor.clone(),
            steal_ns: trailer.and_then(|trailer| trailer.steal_ns),
            smi: counted.reduce(u64::saturating_add),
        }
    }

    /// What that says of the long kind, as one of [`LONG_NAMES`].
    pub fn name(&self) -> &'static str {
        let guest = self.hypervisor.is_some() || self.steal_ns.is_some_and(|ns| ns > 0);
        match (guest, self.smi.is_some_and(|count| count > 0)) {
            (true, false) => "hypervisor",
            (false, true) => "smi",
            (true, true) => "hypervisor_or_smi",
            (false, false) => "unexplained",
        }
    }
}

/// What the long kind may be called; which of them depends on the evidence.
pub const LONG_NAMES: [&str; 4] = ["hypervisor", "smi", "hypervisor_or_smi", "unexplained"];

/// What the two kinds are called. Without kernel records nothing is known to lie outside the kernel.
pub fn outside_names(manifest: &Manifest, trailer: Option<&Trailer>) -> [&'static str; 2] {
    match manifest.mode.has_sources() {
        true => ["microarchitecture", OutsideEvidence::of(manifest, trailer).name()],
        false => ["unattributed_short", "unattributed_long"],
    }
}

/// Whether a row is the long kind of a recording with kernel records, whatever it is called there.
pub fn is_long_outside(key: &RowKey) -> bool {
    key.class == Class::OutsideKernel && LONG_NAMES.contains(&key.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_the_evidence_says() {
        let name = |hypervisor: Option<&str>, steal_ns, smi| {
            let hypervisor = hypervisor.map(str::to_owned);
            OutsideEvidence { hypervisor, steal_ns, smi }.name()
        };
        assert_eq!(name(Some("KVM"), Some(0), None), "hypervisor");
        assert_eq!(name(Some("KVM"), Some(120_000_000), Some(0)), "hypervisor");
        assert_eq!(name(None, Some(10_000_000), None), "hypervisor");
        assert_eq!(name(None, Some(0), Some(3)), "smi");
        assert_eq!(name(Some("KVM"), Some(0), Some(3)), "hypervisor_or_smi");
        assert_eq!(name(None, Some(0), Some(0)), "unexplained");
        assert_eq!(name(None, None, None), "unexplained");
    }
}
