//! Non-maskable interrupts (`nmi:nmi_handler`). The tracepoint fires after the handler and reports its
//! duration; NMI entry and exit are not included.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use recorder_abi::{Frame, flag, hook, kind};

use crate::state::{now, on_watched_cpu};

/// A first handler that has not run for this long has been unregistered.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// `nmi:nmi_handler(void *handler, s64 delta_ns, int handled)`.
#[raw_tracepoint]
pub fn nmi(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::NMI, |cpu| {
        // Signed in the kernel: a negative delta must not turn into centuries.
        let length = ctx.arg::<u64>(1);
        let length = if length > i64::MAX as u64 { 0 } else { length };
        let handler = ctx.arg::<u64>(0);
        let now = now();
        // The kernel calls every registered handler in turn, and possibly none of them handles the
        // NMI; the NMI is counted at the first handler.
        let forgotten = now.wrapping_sub(cpu.nmi_until().get()) > FORGOTTEN_NS;
        let first = forgotten || cpu.nmi_first().get() == handler;
        if first {
            cpu.nmi_first().set(handler);
        }
        cpu.nmi_until().set(now);
        let frame = Frame {
            start: now.wrapping_sub(length),
            detail: handler,
            kind: kind::NMI,
            flags: if first { 0 } else { flag::CONTINUED },
            ..Frame::EMPTY
        };
        let depth = cpu.depth() + 1;
        cpu.account(length);
        cpu.emit(&frame, length, length, 0, depth);
    })
}
