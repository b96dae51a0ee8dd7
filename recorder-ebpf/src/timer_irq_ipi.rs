//! Interrupts: x86 vectors (`irq_vectors:*`: timer, IPIs), device IRQs (`irq:irq_handler_*`), who sent
//! an IPI (`ipi:ipi_send_*`) and which function it ran (`csd:csd_function_entry`). On other
//! architectures the timer and IPIs are ordinary IRQs; `ipi:ipi_entry` identifies the latter.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use recorder_abi::{MAX_DEPTH, Sender, flag, hook, kind, tick};

use crate::{
    stack::{pop, push, split},
    state::{
        Cpu, IRQACTION_NEXT, MASK_WORDS, SENDERS, WITH_STACKS, field, now, on_watched_cpu, stack,
    },
    thread::reconcile,
};

/// One interrupt in this many checks the running thread: at 250 Hz, well before a detour is final.
const RECONCILE_EVERY: u64 = 8;

/// A sender older than this did not send the interrupt that arrives now.
const SENDER_FRESH_NS: u64 = 1_000_000;

/// `irq_vectors:*_entry(int vector)`; attached to all of them.
#[raw_tracepoint]
pub fn vector_entry(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::VECTOR_ENTRY, |cpu| {
        let vector = ctx.arg::<u32>(0);
        let (origin, stack) = if is_ipi(vector) { take_sender(cpu.number) } else { (0, 0) };
        // Ticks are frequent enough to verify from time to time that the assumed thread is running.
        let due = cpu.runs(hook::VECTOR_ENTRY) & (RECONCILE_EVERY - 1) == 0;
        if due && cpu.depth() == 0 && cpu.emits() {
            reconcile(cpu, bpf_get_current_pid_tgid() as u32);
        }
        push(cpu, kind::VECTOR, vector, origin, 0, 0);
        note_sender_stack(cpu, stack);
    })
}

/// `irq_vectors:*_exit(int vector)`.
#[raw_tracepoint]
pub fn vector_exit(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::VECTOR_EXIT, |cpu| {
        if !pop(cpu, kind::VECTOR, ctx.arg::<u32>(0), 0) {
            crate::log_unmatched!(&ctx, "vector", ctx.arg::<u32>(0));
        }
    })
}

/// Stores the kernel stack of the sender in the frame that was just pushed.
#[inline(always)]
fn note_sender_stack(cpu: &mut Cpu, stack: u32) {
    if WITH_STACKS.load() != 0 && stack != 0 {
        let depth = cpu.depth();
        if depth > 0 && (depth as usize) < MAX_DEPTH {
            cpu.frame(depth).stack().set(stack);
        }
    }
}

/// Who sent the interrupt that arrives now, and the stack; 0 if no sender was seen.
#[inline(always)]
fn take_sender(cpu: u32) -> (u32, u32) {
    let Some(sender) = SENDERS.get_ptr_mut(cpu) else { return (0, 0) };
    // Raw accesses, not a reference: another CPU may write a sender at the same time. The worst
    // outcome is a wrong name.
    // SAFETY: the map element outlives the program, and any bit pattern is a valid sender.
    let Sender { origin, at, stack, .. } = unsafe { sender.read_volatile() };
    if origin == 0 {
        return (0, 0);
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*sender).origin).write_volatile(0) };
    if now().wrapping_sub(at) < SENDER_FRESH_NS { (origin, stack) } else { (0, 0) }
}

/// IPIs: reschedule, call function (single and many).
#[inline(always)]
fn is_ipi(vector: u32) -> bool {
    (0xfb..=0xfd).contains(&vector)
}

/// `irq:irq_handler_entry(int irq, struct irqaction *action)`, once per action of a shared line.
#[btf_tracepoint(function = "irq_handler_entry")]
pub fn irq_entry(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::IRQ_ENTRY, |cpu| {
        let action: *const u8 = ctx.arg(1);
        // The next action on a shared line is the `next` of the previous one; a new interrupt starts
        // at the head, which no action's `next` points to.
        let chain = if cpu.irq_next().get() != 0 && cpu.irq_next().get() == action as u64 {
            cpu.irq_chain().get() + 1
        } else {
            0
        };
        cpu.irq_chain().set(chain);
        cpu.irq_next().set(field(action, IRQACTION_NEXT.load()));
        let flags = if chain > 0 { flag::CONTINUED } else { 0 };
        push(cpu, kind::IRQ, ctx.arg::<u32>(0), 0, chain, flags);
    })
}

/// `irq:irq_handler_exit(int irq, struct irqaction *action, int ret)`.
#[raw_tracepoint]
pub fn irq_exit(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::IRQ_EXIT, |cpu| {
        pop(cpu, kind::IRQ, ctx.arg::<u32>(0), 0);
    })
}

/// `ipi:ipi_entry(const char *reason)`: the IRQ that is being handled is an IPI.
#[raw_tracepoint]
pub fn ipi_entry(_ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::IPI_ENTRY, |cpu| {
        let depth = cpu.depth();
        if depth > 0 && (depth as usize) < MAX_DEPTH && cpu.frame(depth).kind().get() == kind::IRQ {
            let (origin, stack) = take_sender(cpu.number);
            cpu.frame(depth).other().set(origin);
            note_sender_stack(cpu, stack);
        }
    })
}

/// `ipi:ipi_send_cpu(unsigned int cpu, unsigned long callsite, void *callback)`, since Linux 6.4.
#[raw_tracepoint]
pub fn ipi_send(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::IPI_SEND, |cpu| {
        remember_sender(ctx.arg::<u32>(0), &sender(cpu, ctx.arg::<u64>(2), stack(&ctx)));
    })
}

/// `ipi:ipi_send_cpumask(const struct cpumask *mask, unsigned long callsite, void *callback)`. A mask
/// is only as long as the number of possible CPUs requires; the memory behind it is unrelated.
#[btf_tracepoint(function = "ipi_send_cpumask")]
pub fn ipi_send_mask(ctx: BtfTracePointContext) -> i32 {
    on_watched_cpu(hook::IPI_SEND_MASK, |cpu| {
        let mask: *const u8 = ctx.arg(0);
        let sender = sender(cpu, ctx.arg::<u64>(2), stack(&ctx));
        let mut word = 0;
        while word < MASK_WORDS.load() && word < MOST_MASK_WORDS {
            let bits: u64 = field(mask, 8 * word);
            remember_senders(64 * word, bits, &sender);
            word += 1;
        }
    })
}

/// Words of a mask to scan: 1024 CPUs, as many as the recorder can be pinned to. Each costs the
/// verifier 64 loop iterations.
const MOST_MASK_WORDS: u32 = 16;

#[inline(always)]
fn remember_senders(first: u32, mut bits: u64, sender: &Sender) {
    let mut target = first;
    while target < first + 64 {
        if bits == 0 {
            break;
        }
        if bits & 1 != 0 {
            remember_sender(target, sender);
        }
        bits >>= 1;
        target += 1;
    }
}

/// Who sends from this CPU now, and when: read once, no matter how many CPUs are targeted.
#[inline(always)]
fn sender(cpu: &mut Cpu, callback: u64, stack: u32) -> Sender {
    Sender { origin: cpu.origin(), at: now(), callback, stack, rest: [0; 5] }
}

#[inline(always)]
fn remember_sender(target: u32, sender: &Sender) {
    if let Some(slot) = SENDERS.get_ptr_mut(target) {
        // Not through a reference: other CPUs may write the same element; one of them wins.
        // SAFETY: the map element outlives the program.
        unsafe { slot.write_volatile(*sender) };
    }
}

/// `csd:csd_function_entry(smp_call_func_t func, call_single_data_t *csd)`: what an IPI runs.
#[raw_tracepoint]
pub fn csd_function(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::CSD_FUNCTION, |cpu| {
        let depth = cpu.depth();
        if depth == 0 || depth as usize >= MAX_DEPTH {
            return;
        }
        let kind = cpu.frame(depth).kind().get();
        if kind == kind::VECTOR || kind == kind::IRQ {
            split(cpu, depth, ctx.arg::<u64>(0));
        }
    })
}

/// `timer:tick_stop(int success, int dependency)`: whether the tick could be stopped, or what needs it.
#[raw_tracepoint]
pub fn tick_stop(ctx: RawTracePointContext) -> i32 {
    on_watched_cpu(hook::TICK_STOP, |cpu| {
        let dependency = ctx.arg::<u32>(1);
        let reason = match (ctx.arg::<u32>(0), dependency) {
            (1.., _) => tick::STOPPED,
            (_, 1) => tick::POSIX_TIMER,
            (_, 2) => tick::PERF_EVENTS,
            (_, 4) => tick::SCHED,
            (_, 8) => tick::CLOCK_UNSTABLE,
            (_, 16) => tick::RCU,
            (_, 32) => tick::RCU_EXPEDITED,
            _ => tick::OTHER,
        };
        cpu.count_tick_stop(reason);
    })
}
