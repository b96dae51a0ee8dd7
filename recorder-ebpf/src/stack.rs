//! The nesting stack: interruptions interrupt each other, and each is charged its own time only.
//!
//! Every CPU has one running sum, `accounted`: the net time of all that has finished there. A frame
//! remembers the sum at its start; its net time is its length less what the sum has grown by. What
//! is added to the sum is exactly what is sent, so the net times add up to wall time whatever
//! interrupts whatever, NMIs included; a race can only move nanoseconds between neighbours.

use detour_abi::{Frame, MAX_DEPTH, flag, kind};

use crate::state::Cpu;

/// Begins an interruption. The clock is read last: the program's own cost stays outside.
#[inline(always)]
pub fn push(cpu: &mut Cpu, kind: u8, id: u32, other: u32, aux: u32, flags: u8) {
    let depth = cpu.depth() + 1;
    if depth as usize >= MAX_DEPTH {
        cpu.count_overflow();
        return;
    }
    // The slot is claimed first, so that an interrupt that lands here uses the next one.
    cpu.set_depth(depth);
    let frame = cpu.frame(depth);
    frame.kind = kind;
    frame.flags = flags;
    frame.id = id;
    frame.other = other;
    frame.aux = aux;
    frame.detail = 0;
    let (now, accounted) = cpu.stamp();
    let frame = cpu.frame(depth);
    frame.accounted = accounted;
    frame.start = now;
}

/// Ends the innermost interruption, which must be of this kind and id. Returns false otherwise.
#[inline(always)]
pub fn pop(cpu: &mut Cpu, kind: u8, id: u32, flags: u8) -> bool {
    let (now, accounted) = cpu.stamp();
    let mut depth = cpu.depth();
    if depth == 0 || depth as usize >= MAX_DEPTH {
        cpu.count_unmatched();
        return false;
    }
    let mut frame = *cpu.frame(depth);
    if frame.kind != kind || frame.id != id {
        // An exit that was never seen may have left its frame on top of the right one. Its time
        // goes to the frame below.
        cpu.count_unmatched();
        depth -= 1;
        if depth == 0 {
            return false;
        }
        frame = *cpu.frame(depth);
        if frame.kind != kind || frame.id != id {
            return false;
        }
    }
    let (gross, net) = charge(cpu, &frame, now, accounted);
    // Of the programs that end something, those of vectors alone run with interrupts disabled.
    if kind != kind::VECTOR || !cpu.emit_in_slot(&frame, gross, net, flags, depth) {
        cpu.emit(&frame, gross, net, flags, depth);
    }
    if depth == 1 {
        cpu.state.interrupted_until = now;
    }
    cpu.set_depth(depth - 1);
    true
}

/// Sends what has passed of the innermost interruption under the detail it had, and goes on under
/// another: several callbacks run in one softirq, several functions in one IPI.
#[inline(always)]
pub fn split(cpu: &mut Cpu, depth: u32, detail: u64) {
    if cpu.frame(depth).detail == 0 {
        cpu.frame(depth).detail = detail;
        return;
    }
    if cpu.frame(depth).detail == detail {
        return;
    }
    let (now, accounted) = cpu.stamp();
    let frame = *cpu.frame(depth);
    let net = close(cpu, &frame, now, accounted, 0, depth);
    let frame = cpu.frame(depth);
    frame.start = now;
    // Not the sum as it is now: what interrupted since `now` belongs to the new part.
    frame.accounted = accounted.wrapping_add(net);
    frame.detail = detail;
    frame.flags |= flag::CONTINUED;
}

/// Charges a finished frame, sends its record, returns its net time.
#[inline(always)]
pub fn close(cpu: &mut Cpu, frame: &Frame, now: u64, accounted: u64, flags: u8, depth: u32) -> u64 {
    let (gross, net) = charge(cpu, frame, now, accounted);
    cpu.emit(frame, gross, net, flags, depth);
    net
}

/// Gross and net time of a frame that ends, which is accounted for from here on.
#[inline(always)]
fn charge(cpu: &mut Cpu, frame: &Frame, now: u64, accounted: u64) -> (u64, u64) {
    let gross = now.wrapping_sub(frame.start);
    let nested = accounted.wrapping_sub(frame.accounted);
    let net = if gross > nested { gross - nested } else { 0 };
    cpu.account(net);
    (gross, net)
}
