//! Time in detours that no record explains: two kinds, distinguished by length.

use serde::Serialize;

use crate::{Class, Manifest, RowKey, Trailer};

/// From this length on, time outside the kernel is not a microarchitectural effect.
pub const LONG_NS: u64 = 1_000;

/// Which of the two kinds this much time in a detour is.
#[inline]
pub fn outside_kind(outside_ns: u64) -> usize {
    usize::from(outside_ns >= LONG_NS)
}

/// What a recording knows about who else can take a CPU away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutsideEvidence {
    /// The hypervisor, if the node was a guest. None on bare metal, or if it cannot be determined.
    pub hypervisor: Option<String>,
    /// Steal time of all recorded CPUs together. None if it was not read.
    pub steal_ns: Option<u64>,
    /// System management interrupts on all measured CPUs. None if the machine does not count them.
    pub smi: Option<u64>,
    /// Net time of lost kernel records: it appears as time outside the kernel in their detours.
    pub lost_records_ns: u64,
}

impl OutsideEvidence {
    /// Before the end of a recording, only the manifest is known.
    pub fn of(manifest: &Manifest, trailer: Option<&Trailer>) -> OutsideEvidence {
        let lanes = trailer.map_or(&[][..], |trailer| &trailer.lanes);
        let counted = lanes.iter().filter_map(|totals| totals.counters.get("smi").copied());
        OutsideEvidence {
            hypervisor: manifest.hypervisor.clone(),
            steal_ns: trailer.and_then(|trailer| trailer.steal_ns),
            smi: counted.reduce(u64::saturating_add),
            lost_records_ns: trailer.map_or(0, |trailer| trailer.lost.records_ns),
        }
    }

    /// The resulting name for the long kind, one of [`LONG_NAMES`].
    ///
    /// A guest without steal time is still a guest: a host need not report it, and none reports how long
    /// it takes to handle a VM exit. Lost records are different: their time is in the long kind as well,
    /// and if it exceeds the steal time, most of the time cannot be attributed.
    pub fn name(&self) -> &'static str {
        if self.lost_records_ns > self.steal_ns.unwrap_or(0) {
            return "unexplained";
        }
        let guest = self.hypervisor.is_some() || self.steal_ns.is_some_and(|ns| ns > 0);
        match (guest, self.smi.is_some_and(|count| count > 0)) {
            (true, false) => "hypervisor",
            (false, true) => "smi",
            (true, true) => "hypervisor_or_smi",
            (false, false) => "unexplained",
        }
    }
}

/// Possible names of the long kind, depending on the evidence.
pub const LONG_NAMES: [&str; 4] = ["hypervisor", "smi", "hypervisor_or_smi", "unexplained"];

/// The names of the two kinds. Without kernel records, nothing is known to be outside the kernel.
pub fn outside_names(manifest: &Manifest, trailer: Option<&Trailer>) -> [&'static str; 2] {
    match manifest.mode.has_sources() {
        true => ["microarchitecture", OutsideEvidence::of(manifest, trailer).name()],
        false => ["unattributed_short", "unattributed_long"],
    }
}

/// Whether a row is the long kind of a recording with kernel records, under any of its names.
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
            OutsideEvidence { hypervisor, steal_ns, smi, lost_records_ns: 0 }.name()
        };
        assert_eq!(name(Some("KVM"), Some(0), None), "hypervisor");
        assert_eq!(name(Some("KVM"), Some(120_000_000), Some(0)), "hypervisor");
        assert_eq!(name(None, Some(10_000_000), None), "hypervisor");
        assert_eq!(name(None, Some(0), Some(3)), "smi");
        assert_eq!(name(Some("KVM"), Some(0), Some(3)), "hypervisor_or_smi");
        assert_eq!(name(None, Some(0), Some(0)), "unexplained");
        assert_eq!(name(None, None, None), "unexplained");
    }
    #[test]
    fn time_that_lost_records_may_have_taken_is_not_called_the_hypervisor() {
        let name = |steal_ns, lost_records_ns| {
            let hypervisor = Some("KVM".to_owned());
            OutsideEvidence { hypervisor, steal_ns, smi: Some(2), lost_records_ns }.name()
        };
        assert_eq!(name(Some(100_000_000), 754_000_000), "unexplained");
        assert_eq!(name(Some(0), 1), "unexplained");
        assert_eq!(name(None, 1), "unexplained");
        // Most of it is steal time.
        assert_eq!(name(Some(754_000_000), 100_000_000), "hypervisor_or_smi");
    }

    #[test]
    fn the_evidence_includes_the_records_that_were_lost() {
        let manifest = Manifest { hypervisor: Some("KVM".to_owned()), ..Manifest::default() };
        let mut trailer = Trailer { steal_ns: Some(10_000_000), ..Trailer::default() };
        assert_eq!(outside_names(&manifest, Some(&trailer))[1], "hypervisor");
        trailer.lost.records = 5;
        trailer.lost.records_ns = 20_000_000;
        assert_eq!(outside_names(&manifest, Some(&trailer))[1], "unexplained");
    }
}
