//! The nesting stack: interruptions interrupt each other, and each is charged only its own time.
//!
//! Every CPU has one running sum, `accounted`: the net time of everything that has finished there. A
//! frame stores the sum at its start; its net time is its length minus the growth of the sum. What is
//! added to the sum is exactly what is sent, so the net times add up to wall time no matter what
//! interrupts what, NMIs included; a race can only move nanoseconds between neighbours.

use recorder_abi::{Frame, MAX_DEPTH, flag, kind};

use crate::state::{Cpu, WITH_STACKS};

/// Begins an interruption. The clock is read last, so that the program's own cost stays outside.
#[inline(always)]
pub fn push(cpu: &mut Cpu, kind: u8, id: u32, other: u32, aux: u32, flags: u8) {
    let depth = cpu.depth() + 1;
    if depth as usize >= MAX_DEPTH {
        cpu.count_overflow();
        return;
    }
    // The frame is claimed first, so that an interrupt that arrives here uses the next one.
    cpu.set_depth(depth);
    let frame = cpu.frame(depth);
    frame.kind().set(kind);
    frame.flags().set(flags);
    frame.id().set(id);
    frame.other().set(other);
    frame.aux().set(aux);
    frame.detail().set(0);
    frame.woke().set(0);
    if WITH_STACKS.load() != 0 {
        frame.stack().set(0);
    }
    let (now, accounted) = cpu.stamp();
    frame.accounted().set(accounted);
    frame.start().set(now);
}

/// Ends an interruption of this kind and id, normally the innermost one. Returns false if none is
/// open.
#[inline(always)]
pub fn pop(cpu: &mut Cpu, kind: u8, id: u32, flags: u8) -> bool {
    let (now, accounted) = cpu.stamp();
    let mut depth = cpu.depth();
    if depth as usize >= MAX_DEPTH || !cpu.frame(depth).is(kind, id) || depth == 0 {
        depth = drop_stale(cpu, kind, id);
        if depth == 0 {
            return false;
        }
    }
    let frame = cpu.frame(depth).copy();
    let (gross, net) = charge(cpu, &frame, now, accounted);
    // Of the programs that end an interruption, only those of vectors run with interrupts disabled.
    if kind != kind::VECTOR || !cpu.emit_in_slot(&frame, gross, net, flags, depth) {
        cpu.emit(&frame, gross, net, flags, depth);
    }
    if depth == 1 {
        cpu.interrupted_until().set(now);
    }
    cpu.set_depth(depth - 1);
    true
}

/// Drops frames whose exits were never seen and which lie on top of the one that ends now; their time
/// goes to the frame below. Returns the depth of the matching frame; 0 if there is none: then the
/// entry was never seen, and the stack stays unchanged.
#[inline(always)]
fn drop_stale(cpu: &mut Cpu, kind: u8, id: u32) -> u32 {
    let depth = cpu.depth();
    let mut below = 1;
    // Bounded by a constant, for the verifier.
    while below < MAX_DEPTH as u32 {
        if below >= depth {
            break;
        }
        let at = depth - below;
        if cpu.frame(at).is(kind, id) {
            cpu.unmatched().add(below as u64);
            return at;
        }
        below += 1;
    }
    cpu.count_unmatched();
    0
}

/// Sends the elapsed part of the innermost interruption under its current detail, and continues under
/// another: several callbacks run in one softirq, several functions in one IPI.
#[inline(always)]
pub fn split(cpu: &mut Cpu, depth: u32, detail: u64) {
    let open = cpu.frame(depth);
    let known = open.detail().get();
    if known == 0 {
        open.detail().set(detail);
        return;
    }
    if known == detail {
        return;
    }
    // The frame before the time: if a switch comes between them, no length is negative.
    let frame = open.copy();
    let (now, accounted) = cpu.stamp();
    if open.start().get() != frame.start {
        // Preempted here, which Linux allows from 7.0 on: the switch has sent this part.
        open.detail().set(detail);
        return;
    }
    let (gross, net) = charge(cpu, &frame, now, accounted);
    open.start().set(now);
    // Not the current sum: interruptions since `now` belong to the new part.
    open.accounted().set(accounted.wrapping_add(net));
    open.detail().set(detail);
    open.woke().set(0);
    open.flags().set(frame.flags | flag::CONTINUED);
    // Last: while it is sent, the program may be preempted, and the switch needs the new part.
    cpu.emit(&frame, gross, net, 0, depth);
}

/// Charges a finished frame, sends its record and returns its net time.
#[inline(always)]
pub fn close(cpu: &mut Cpu, frame: &Frame, now: u64, accounted: u64, flags: u8, depth: u32) -> u64 {
    let (gross, net) = charge(cpu, frame, now, accounted);
    cpu.emit(frame, gross, net, flags, depth);
    net
}

/// Gross and net time of a frame that ends; adds the net time to the accounted sum.
#[inline(always)]
fn charge(cpu: &mut Cpu, frame: &Frame, now: u64, accounted: u64) -> (u64, u64) {
    let gross = now.wrapping_sub(frame.start);
    let nested = accounted.wrapping_sub(frame.accounted);
    let net = gross.saturating_sub(nested);
    cpu.account(net);
    (gross, net)
}
