//! Proves that a rank's operations have only one order, whatever the times. Then the engine needs no
//! queue for them: the dependencies determine which one is first at the CPU or the NIC.
//!
//! One pass in program order propagates along each dependency the latest operation known to come
//! before. As long as every operation so far depends on the previous one, the latest implies all.

use super::schedule::{Kind, Op, Ordered};
use crate::huge_pages;

/// Latest operations (number in the rank, plus one; 0: none) known to precede one.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    local: u32,
    receive: u32,
    any: u32,
}

impl Before {
    fn join(&mut self, other: Before) {
        self.local = self.local.max(other.local);
        self.receive = self.receive.max(other.receive);
        self.any = self.any.max(other.any);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Prover {
    before: Vec<Before>,
}

impl Prover {
    /// For the rank whose operations begin at `first` and end with `ops`. Messages that are `large` occupy the CPU of
    /// their sender a second time before they end.
    pub fn prove(
        &mut self,
        ops: &[Op],
        edges: &[u32],
        first: u32,
        large: impl Fn(&Op) -> bool,
    ) -> Ordered {
        let own = &ops[first as usize..];
        self.before.clear();
        huge_pages::reserve(&mut self.before, own.len());
        self.before.resize(own.len(), Before::default());
        let mut proven = Ordered { local: true, receives: true, all: true };
        let (mut last_local, mut last_receive) = (0, 0);
        for (index, op) in own.iter().enumerate() {
            // What a choice takes depends on the times.
            if op.kind == Kind::Choice {
                return Ordered::default();
            }
            let number = index as u32 + 1;
            let before = self.before[index];
            proven.all &= before.any == number - 1;
            // State for what begins after the start of this operation, and after its end.
            let mut started = before;
            if op.kind == Kind::Recv {
                proven.receives &= before.receive == last_receive;
                last_receive = number;
            } else {
                proven.local &= before.local == last_local;
                last_local = number;
            }
            let twice = op.kind == Kind::Send && large(op);
            if op.kind != Kind::Recv && !twice {
                started.local = number;
                started.any = number;
            }
            let mut ended = started;
            if op.kind == Kind::Recv {
                // A receive that has begun is only posted: another may match first.
                ended.receive = number;
                ended.any = number;
            } else if twice {
                ended.local = number;
                ended.any = number;
            }
            let end = own.get(index + 1).map_or(edges.len(), |next| next.successors as usize);
            let (begin, split) = (op.successors as usize, op.start_successors as usize);
            for (edges, what) in [(&edges[begin..split], ended), (&edges[split..end], started)] {
                for &successor in edges {
                    let successor = (successor - first) as usize;
                    if successor <= index {
                        // Against program order: one pass cannot decide.
                        return Ordered::default();
                    }
                    self.before[successor].join(what);
                }
            }
        }
        proven
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpId, ScheduleBuilder};
    use super::*;

    fn proven(build: impl FnOnce(&mut ScheduleBuilder)) -> Ordered {
        let mut builder = ScheduleBuilder::new(2);
        builder.begin_rank();
        build(&mut builder);
        builder.begin_rank();
        builder.finish().unwrap().ordered[0]
    }

    #[test]
    fn a_chain_has_one_order() {
        let ordered = proven(|b| {
            let s = b.send(1, 1, 0, 0, 0);
            let r = b.recv(1, 1, 0, 0, 0);
            let c = b.calc(5, 0);
            b.requires(r, s);
            b.requires(c, r);
        });
        assert_eq!(ordered, Ordered { local: true, receives: true, all: true });
    }

    #[test]
    fn receives_posted_together_may_end_in_any_order() {
        let ordered = proven(|b| {
            let s = b.send(1, 1, 0, 0, 0);
            let r = b.recv(1, 1, 0, 0, 0);
            let q = b.recv(1, 1, 1, 0, 0);
            let c = b.calc(5, 0);
            b.irequires(q, r);
            b.requires(c, r);
            b.requires(c, q);
            b.requires(c, s);
        });
        assert_eq!(ordered, Ordered { local: true, receives: false, all: false });
    }

    #[test]
    fn what_depends_on_something_later_is_left_to_the_queue() {
        let ordered = proven(|b| {
            let a = b.calc(5, 0);
            let c = b.calc(5, 0);
            b.requires(a, c);
        });
        assert_eq!(ordered, Ordered::default());
        let independent = proven(|b| {
            b.calc(5, 0);
            b.calc(5, 0);
        });
        assert!(!independent.local && independent.receives);
        assert_eq!(OpId(0).0, 0);
    }
}
