//! The kernel side: which hooks exist, loading and attaching the BPF programs, and the memory shared with
//! them.

pub mod bpf;
pub(crate) mod btf;
pub(crate) mod cpu_pages;
pub(crate) mod error;
pub(crate) mod hooks;
#[cfg(feature = "bpf-log")]
pub(crate) mod log;
pub mod ring;
pub(crate) mod self_test;
pub(crate) mod switcher;
pub mod task_table;
mod test_run;
