//! Errors from loading and attaching BPF programs, and what to do about them.

use std::io;

use aya::programs::ProgramError;
use thiserror::Error;

use crate::{
    kernel::btf::BtfError,
    node::{confinement, machine},
};

pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, Error)]
pub enum BpfError {
    #[error(
        "this kernel has no BTF ({BTF_PATH}: {0}), which the BPF programs require: use a kernel \
         built with CONFIG_DEBUG_INFO_BTF=y, or record with --no-bpf"
    )]
    NoBtf(io::Error),
    #[error("cannot read the kernel's BTF: {0}")]
    Btf(#[from] BtfError),
    #[error(
        "cannot load BPF programs: {0} (needs CAP_BPF and CAP_PERFMON; run as root, or `{setcap}`; \
         kernels before 5.8 need CAP_SYS_ADMIN)",
        setcap = machine::SETCAP
    )]
    NotPermitted(String),
    #[error("cannot load BPF programs: {why} (CAP_BPF and CAP_PERFMON are held; {by})")]
    Denied { why: String, by: String },
    #[error(
        "cannot load BPF programs: kernels before 5.11 charge their memory to RLIMIT_MEMLOCK, \
         which is {kib} KiB here; raise it with `ulimit -l unlimited` as root, or with \
         LimitMEMLOCK=infinity in a systemd unit"
    )]
    LockedMemory { kib: u64 },
    #[error("cannot attach the required hook {hook}: {why}")]
    RequiredHook { hook: &'static str, why: String },
    #[error("cannot load the BPF object: {0}")]
    Load(String),
    #[error("cannot access a BPF map: {0}")]
    Map(String),
    #[error("stopped while the BPF programs were being loaded")]
    Stopped,
}

/// Why a hook could not be attached.
pub enum Refused {
    /// A signal arrived while the kernel verified the program.
    Interrupted,
    NotPermitted(String),
    Missing(String),
}

impl Refused {
    pub fn why(self) -> String {
        match self {
            Refused::Interrupted => "interrupted by a signal".to_owned(),
            Refused::NotPermitted(why) | Refused::Missing(why) => why,
        }
    }
}

impl From<ProgramError> for Refused {
    fn from(error: ProgramError) -> Self {
        let why = innermost(&error);
        // The verifier gives up with EAGAIN when a signal is pending.
        if let Some(io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) = io_kind(&error) {
            return Refused::Interrupted;
        }
        if let ProgramError::LoadError { verifier_log, .. } = &error
            && let Some(objection) = objection(&verifier_log.to_string())
        {
            let why = format!("{why}: {objection}");
            return match is_withheld(objection) {
                true => Refused::NotPermitted(why),
                false => Refused::Missing(why),
            };
        }
        if let Some(io::ErrorKind::PermissionDenied) = io_kind(&error) {
            return Refused::NotPermitted(why);
        }
        Refused::Missing(why)
    }
}

/// Whether the verifier lacks the helper that reads kernel memory. Every kernel that loads these programs has it;
/// lockdown for confidentiality takes it away.
fn is_withheld(objection: &str) -> bool {
    let lacking = ["cannot use helper bpf_probe_read", "unknown func bpf_probe_read"];
    lacking.iter().any(|words| objection.contains(words))
}

/// The verifier's reason for rejecting a program, the last line before the statistics.
fn objection(log: &str) -> Option<&str> {
    // Linux 7 changed the word order.
    const STATISTICS: [&str; 4] =
        ["processed ", "insns processed", "verification time", "stack depth"];
    let mut lines = log.lines().map(str::trim);
    lines.rfind(|line| !line.is_empty() && !STATISTICS.iter().any(|word| line.starts_with(word)))
}

pub fn load_error(error: aya::EbpfError) -> BpfError {
    match io_kind(&error) {
        Some(io::ErrorKind::PermissionDenied) => not_permitted(innermost(&error)),
        _ => BpfError::Load(chain(&error)),
    }
}

/// The kernel returns the same error for a missing capability and for RLIMIT_MEMLOCK.
pub fn not_permitted(why: String) -> BpfError {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    match limit {
        Some(bytes) if machine::version() < (5, 11) && machine::may_load_bpf() => {
            BpfError::LockedMemory { kib: bytes / 1024 }
        }
        _ if machine::may_load_bpf() => {
            BpfError::Denied { why, by: confinement::denied_by(&confinement::found()) }
        }
        _ => BpfError::NotPermitted(why),
    }
}

pub fn map_error(error: aya::maps::MapError) -> BpfError {
    BpfError::Map(chain(&error))
}

pub fn no_map() -> BpfError {
    BpfError::Map("not in the object".into())
}

fn errors<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |e| e.source())
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    errors(error).find_map(|e| e.downcast_ref::<io::Error>()).map(io::Error::kind)
}

/// The innermost cause, on one line.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let last = errors(error).last().map(ToString::to_string).unwrap_or_default();
    last.lines().next().unwrap_or_default().to_owned()
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    errors(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_word_is_its_objection() {
        let log = "0: (bf) r6 = r1\n1: (85) call unknown#999\nunknown func #999\n\
                   verification time 12 usec\nstack depth 0\nprocessed 2 insns (limit 1000000)\n";
        assert_eq!(objection(log), Some("unknown func #999"));
        let log = "access beyond struct at member on_rq\nverification time 12 usec\nstack depth 96\n\
                   insns processed 85\n";
        assert_eq!(objection(log), Some("access beyond struct at member on_rq"));
        assert_eq!(objection("\n"), None);
    }

    #[test]
    fn a_helper_that_lockdown_takes_away_is_not_a_missing_hook() {
        assert!(is_withheld("program of this type cannot use helper bpf_probe_read#4"));
        assert!(is_withheld("unknown func bpf_probe_read#4"));
        assert!(!is_withheld("unknown func bpf_get_ns_current_pid_tgid#120"));
    }
}
