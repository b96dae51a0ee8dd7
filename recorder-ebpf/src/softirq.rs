//! Softirqs (`irq:softirq_*`) and the timer callbacks that run in them or in the timer interrupt
//! (`timer:timer_expire_entry`, `timer:hrtimer_expire_entry`).

use aya_ebpf::{
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use recorder_abi::{MAX_DEPTH, has_raiser, hook, kind};

use crate::{
    stack::{pop, push, split},
    state::{Cpu, HRTIMER_FUNCTION, TIMER_FUNCTION, field, on_watched_cpu},
};

/// `irq:softirq_raise(unsigned int vec_nr)`: the first to raise it is why it runs.
#[raw_tracepoint]
pub fn softirq_raise(ctx: RawTracePointContext) -> i32 {
    let softirq = ctx.arg::<u32>(0);
    if !has_raiser(softirq) {
        return 0;
    }
    on_watched_cpu(hook::SOFTIRQ_RAISE, |cpu| {
        if cpu.raiser(softirq).get() == 0 {
            let raiser = cpu.origin();
            cpu.raiser(softirq).set(raiser);
        }
    })
}

/// `irq:softirq_entry(unsigned int vec_nr)`.
#[raw_tracepoint]
pub fn softirq_entry(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::SOFTIRQ_ENTRY, |cpu| {
        let softirq = ctx.arg::<u32>(0);
        let mut raiser = 0;
        if has_raiser(softirq) {
            raiser = cpu.raiser(softirq).get();
            cpu.raiser(softirq).set(0);
        }
        push(cpu, kind::SOFTIRQ, softirq, raiser, 0, 0);
    })
}

/// `irq:softirq_exit(unsigned int vec_nr)`.
#[raw_tracepoint]
pub fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::SOFTIRQ_EXIT, |cpu| {
        pop(cpu, kind::SOFTIRQ, ctx.arg::<u32>(0), 0);
    })
}

/// `timer:timer_expire_entry(struct timer_list *timer, ...)`.
#[btf_tracepoint(function = "timer_expire_entry")]
pub fn timer_expire(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::TIMER, |cpu| {
        let timer: *const u8 = ctx.arg(0);
        name_callback(cpu, field(timer, TIMER_FUNCTION.load()));
    })
}

/// `timer:hrtimer_expire_entry(struct hrtimer *hrtimer, ...)`.
#[btf_tracepoint(function = "hrtimer_expire_entry")]
pub fn hrtimer_expire(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::HRTIMER, |cpu| {
        let timer: *const u8 = ctx.arg(0);
        name_callback(cpu, field(timer, HRTIMER_FUNCTION.load()));
    })
}

/// Names the callback run by the innermost frame, a timer interrupt or softirq.
#[inline(always)]
fn name_callback(cpu: &mut Cpu, function: u64) {
    let depth = cpu.depth();
    if depth == 0 || depth as usize >= MAX_DEPTH {
        return;
    }
    let kind = cpu.frame(depth).kind().get();
    if kind == kind::VECTOR || kind == kind::SOFTIRQ || kind == kind::IRQ {
        split(cpu, depth, function);
    }
}
