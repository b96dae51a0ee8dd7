//! A plain round of the butterfly for ranks that differ in one bit: each sends, then receives the
//! other's message.

use super::config::Costs;
use super::detours::{Ahead, Detours, Rank};

/// No noise.
#[inline]
pub(super) fn quiet<A>(costs: Costs, low: &mut [Rank<A>], high: &mut [Rank<A>]) {
    for (a, b) in low.iter_mut().zip(high) {
        let (sent_a, sent_b) = (a.ready + costs.cpu, b.ready + costs.cpu);
        a.ready = sent_a.max(sent_b + costs.flight) + costs.cpu;
        b.ready = sent_b.max(sent_a + costs.flight) + costs.cpu;
    }
}

/// Detours hit sends and receives. They are rare: the common path only checks whether one did.
#[inline]
pub(super) fn noisy<D: Detours>(
    noise: D,
    costs: Costs,
    low: &mut [Rank<D::Ahead>],
    high: &mut [Rank<D::Ahead>],
) {
    for (a, b) in low.iter_mut().zip(high) {
        let (sent_a, sent_b) = (a.ready + costs.cpu, b.ready + costs.cpu);
        let done_a = sent_a.max(sent_b + costs.flight) + costs.cpu;
        let done_b = sent_b.max(sent_a + costs.flight) + costs.cpu;
        if (done_a <= a.next.clear()) & (done_b <= b.next.clear()) {
            a.ready = done_a;
            b.ready = done_b;
        } else {
            hit(noise, costs, a, b);
        }
    }
}

#[cold]
#[inline(never)]
fn hit<D: Detours>(noise: D, costs: Costs, a: &mut Rank<D::Ahead>, b: &mut Rank<D::Ahead>) {
    let sent_a = noise.work(&mut a.next, a.ready, costs.cpu);
    let sent_b = noise.work(&mut b.next, b.ready, costs.cpu);
    a.ready = noise.work(&mut a.next, sent_a.max(sent_b + costs.flight), costs.cpu);
    b.ready = noise.work(&mut b.next, sent_b.max(sent_a + costs.flight), costs.cpu);
}
