//! Softirqs (`irq:softirq_*`) and the timer callbacks that run in them or in the timer interrupt
//! (`timer:timer_expire_entry`, `timer:hrtimer_expire_entry`).

use aya_ebpf::{
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use detour_abi::{MAX_DEPTH, hook, kind};

use crate::{
    stack::{pop, push, split},
    state::{Cpu, HRTIMER_FUNCTION, TIMER_FUNCTION, field},
};

/// `irq:softirq_entry(unsigned int vec_nr)`.
#[raw_tracepoint]
pub fn softirq_entry(ctx: RawTracePointContext) -> i32 {
    let Some(mut cpu) = Cpu::current(hook::SOFTIRQ_ENTRY) else { return 0 };
    push(&mut cpu, kind::SOFTIRQ, ctx.arg::<u32>(0), 0, 0, 0);
    0
}

/// `irq:softirq_exit(unsigned int vec_nr)`.
#[raw_tracepoint]
pub fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    let Some(mut cpu) = Cpu::current(hook::SOFTIRQ_EXIT) else { return 0 };
    pop(&mut cpu, kind::SOFTIRQ, ctx.arg::<u32>(0), 0);
    0
}

/// `timer:timer_expire_entry(struct timer_list *timer, ...)`.
#[btf_tracepoint(function = "timer_expire_entry")]
pub fn timer_expire(ctx: BtfTracePointContext) -> i32 {
    let Some(mut cpu) = Cpu::current(hook::TIMER) else { return 0 };
    let timer: *const u8 = ctx.arg(0);
    name_callback(&mut cpu, unsafe { field(timer, TIMER_FUNCTION.load()) });
    0
}

/// `timer:hrtimer_expire_entry(struct hrtimer *hrtimer, ...)`.
#[btf_tracepoint(function = "hrtimer_expire_entry")]
pub fn hrtimer_expire(ctx: BtfTracePointContext) -> i32 {
    let Some(mut cpu) = Cpu::current(hook::HRTIMER) else { return 0 };
    let timer: *const u8 = ctx.arg(0);
    name_callback(&mut cpu, unsafe { field(timer, HRTIMER_FUNCTION.load()) });
    0
}

/// The innermost frame is the timer interrupt or softirq that runs the callback.
#[inline(always)]
fn name_callback(cpu: &mut Cpu, function: u64) {
    let depth = cpu.depth();
    if depth == 0 || depth as usize >= MAX_DEPTH {
        return;
    }
    let kind = cpu.frame(depth).kind;
    if kind == kind::VECTOR || kind == kind::SOFTIRQ || kind == kind::IRQ {
        split(cpu, depth, function);
    }
}
