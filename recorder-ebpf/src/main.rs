//! The BPF side of the recorder: one program per hook, one file per source of noise. Programs send
//! numbers; names, strings and policy belong to user space.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![allow(internal_features)]

mod nmi;
mod page_fault;
mod softirq;
mod stack;
mod state;
mod thread;
mod timer_irq_ipi;
mod wait;
mod who;

/// Logs an exit without a matching entry; compiled in only with the feature `log`.
#[macro_export]
macro_rules! log_unmatched {
    ($ctx:expr, $what:literal, $id:expr) => {
        #[cfg(feature = "log")]
        {
            let id: u32 = $id;
            aya_log_ebpf::debug!($ctx, "unmatched exit of {} {}", $what, id);
        }
    };
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
