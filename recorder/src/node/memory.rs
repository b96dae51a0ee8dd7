//! Memory that a recording keeps until its end: the ring buffers in the kernel and the probes' locked
//! buffers. Bounded for the whole machine, and at most one MiB per measured CPU.

use recorder_abi::{CpuState, RING_BYTES, Sender, TASK_SLOTS, TaskSlot, Throttled};

use crate::{
    kernel::{bpf, ring},
    probe::Jump,
};

/// All ring buffers of measured CPUs together; each gets its share, up to [`RING_BYTES`].
const RINGS_BYTES: u64 = 64 << 20;
const LEAST_RING_BYTES: u64 = 32 << 10;
/// CPUs that are not measured send only task names.
const OTHER_RING_BYTES: u32 = 32 << 10;
/// All probe buffers together, and the maximum of each: 16,384 detours.
const PROBES_BYTES: u64 = 32 << 20;
const PROBE_BYTES: u64 = 256 << 10;
const LEAST_PROBE_BYTES: u64 = 16 << 10;

/// The memory of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub measured: u64,
    /// CPUs that are online and not measured.
    pub others: u64,
    /// Size of a measured CPU's ring.
    pub ring_bytes: u32,
    pub other_ring_bytes: u32,
    /// Size of a probe's buffer.
    pub probe_bytes: u64,
}

impl Memory {
    /// For `measured` of `online` CPUs. `ring_bytes` overrides the default size; `available` is the
    /// machine's available memory.
    pub fn plan(measured: usize, online: usize, ring_bytes: Option<u64>, available: u64) -> Memory {
        let count = measured.max(1) as u64;
        let share = |total: u64, least: u64, most: u64| {
            let share = (total.min(available / 8) / count).clamp(least, most);
            1 << share.ilog2()
        };
        let ring = ring_bytes
            .unwrap_or_else(|| share(RINGS_BYTES, LEAST_RING_BYTES, u64::from(RING_BYTES)));
        Memory {
            measured: measured as u64,
            others: online.saturating_sub(measured) as u64,
            ring_bytes: bpf::ring_bytes(u32::try_from(ring).unwrap_or(u32::MAX / 2)),
            other_ring_bytes: bpf::ring_bytes(OTHER_RING_BYTES),
            probe_bytes: share(PROBES_BYTES, LEAST_PROBE_BYTES, PROBE_BYTES),
        }
    }

    /// Capacity of a probe buffer in detours.
    pub fn jumps(&self) -> usize {
        (self.probe_bytes / size_of::<Jump>() as u64) as usize
    }

    /// Per measured CPU: its ring buffer and state, and its probe buffer.
    pub fn per_cpu_bytes(&self, kernel_side: bool, probe: bool) -> u64 {
        let ring = u64::from(self.ring_bytes) + ring::overhead_bytes() + STATE_BYTES;
        u64::from(kernel_side) * ring + u64::from(probe) * self.probe_bytes
    }

    /// For the machine: all CPUs, and the task table.
    pub fn total_bytes(&self, kernel_side: bool, probe: bool) -> u64 {
        let other = u64::from(self.other_ring_bytes) + ring::overhead_bytes() + STATE_BYTES;
        let tasks = u64::from(TASK_SLOTS) * size_of::<TaskSlot>() as u64;
        self.measured * self.per_cpu_bytes(kernel_side, probe)
            + u64::from(kernel_side) * (self.others * other + tasks)
    }
}

/// Per-CPU state of the programs.
const STATE_BYTES: u64 =
    (size_of::<CpuState>() + size_of::<Sender>() + size_of::<Throttled>()) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1 << 40;

    #[test]
    fn a_measured_cpu_takes_at_most_a_mebibyte_and_all_together_are_bounded() {
        for cpus in [1usize, 2, 16, 64, 128, 256, 1024, 8192] {
            let memory = Memory::plan(cpus, cpus, None, PLENTY);
            assert!(memory.per_cpu_bytes(true, true) <= 1 << 20, "{cpus} CPUs: {memory:?}");
            let (ring, probe) = (u64::from(memory.ring_bytes), memory.probe_bytes);
            assert!(ring.is_power_of_two() && probe.is_power_of_two());
            if cpus <= 1024 {
                assert!(cpus as u64 * ring <= RINGS_BYTES, "{cpus} CPUs: {memory:?}");
                assert!(cpus as u64 * probe <= PROBES_BYTES, "{cpus} CPUs: {memory:?}");
            }
        }
        assert_eq!(Memory::plan(128, 128, None, PLENTY).ring_bytes, RING_BYTES);
        assert_eq!(Memory::plan(256, 256, None, PLENTY).ring_bytes, RING_BYTES / 2);
    }

    #[test]
    fn a_small_machine_is_not_filled() {
        let memory = Memory::plan(4, 4, None, 4 << 20);
        assert!(memory.ring_bytes < RING_BYTES && memory.probe_bytes < PROBE_BYTES, "{memory:?}");
    }

    #[test]
    fn cpus_that_are_not_measured_take_little() {
        let one = Memory::plan(1, 256, None, PLENTY);
        assert!(one.total_bytes(true, true) < 32 << 20, "{}", one.total_bytes(true, true));
    }

    #[test]
    fn who_asks_for_a_larger_ring_gets_it() {
        assert_eq!(Memory::plan(2, 2, Some(3 << 20), PLENTY).ring_bytes, 4 << 20);
    }
}
