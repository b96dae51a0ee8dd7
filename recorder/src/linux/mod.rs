//! Everything that needs Linux.

pub(crate) mod account;
pub(crate) mod assemble;
pub mod bpf;
pub(crate) mod bpf_error;
#[cfg(feature = "bpf-log")]
pub(crate) mod bpf_log;
pub(crate) mod btf;
pub(crate) mod cgroups;
pub(crate) mod choice;
pub mod clock;
pub(crate) mod closure;
pub(crate) mod counters;
pub mod doctor;
pub(crate) mod drain;
pub(crate) mod gaps;
pub(crate) mod hooks;
pub(crate) mod hypervisor;
pub(crate) mod incidents;
pub(crate) mod irqs;
pub mod machine;
pub(crate) mod merge;
pub(crate) mod names;
pub(crate) mod output;
pub mod own_cost;
pub(crate) mod privileges;
pub mod probe;
pub(crate) mod probes;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod record_error;
pub(crate) mod rules;
pub(crate) mod self_test;
pub(crate) mod sent;
pub(crate) mod shared;
pub(crate) mod start;
pub(crate) mod subject;
pub(crate) mod switcher;
pub(crate) mod symbols;
pub(crate) mod targets;
pub(crate) mod threads;

pub use own_cost::OwnCost;
pub use probes::PROBE_THREAD;
pub use record::{Outcome, Watch, record};
pub use record_error::RecordError;
