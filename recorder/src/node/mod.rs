//! The node: its CPUs, memory and hypervisor, what this process may do on it, and what recording costs it.

pub(crate) mod cgroup_counters;
pub(crate) mod choice;
pub(crate) mod confinement;
pub mod doctor;
pub mod files;
pub(crate) mod hypervisor;
pub(crate) mod incidents;
pub mod machine;
pub mod memory;
pub(crate) mod memory_limit;
pub mod own_cost;
pub(crate) mod privileges;
