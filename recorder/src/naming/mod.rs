//! From the kernel's numbers to names: sources, kernel functions, IRQ lines, cgroups and quotas, processes.

pub(crate) mod cgroups;
pub(crate) mod irqs;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod pids;
pub(crate) mod quotas;
pub(crate) mod rules;
pub(crate) mod symbols;
