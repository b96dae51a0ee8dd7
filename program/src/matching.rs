//! Joins what the ranks did: sends with receives, the members of collectives with each other.
//!
//! In: [`Half`]s of messages and [`Arrival`]s at collectives, in the order in which ranks are read, with a
//! key that both sides compute; out: waiting times ([`Waits`]) or bounds for the clocks ([`Slack`]). What
//! has not met its other half is carried over; there is a limit to how much.

use crate::clock::Slack;
use crate::hash::{FastMap, fast_map};
use crate::kinds::{Kind, Shape, meanings};
use crate::rank::Pass;
use mpi_abi::Call;

/// Sends of fewer bytes are taken to be buffered: they never wait for the receiver. Open MPI sends 4 KiB
/// at once within a node, other libraries more.
pub const LATE_RECEIVER_BYTES: u64 = 4096;

/// Parts into which tables are divided for parallel work. Fixed, so that results do not depend on threads.
pub(crate) const SHARDS: usize = 16;

/// Halves of messages that a shard keeps at most.
const MAX_HALVES: usize = 1 << 19;
/// Arrivals that a shard keeps at most.
const MAX_ARRIVALS: usize = 1 << 19;
/// Pairs of ranks that a shard counts at most before small ones are put together.
const MAX_PAIRS: usize = 1 << 16;
/// Calls with several requests that are open at most in a shard.
const MAX_GROUPS: usize = 1 << 19;

/// Classes of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wait {
    LateSender = 0,
    LateReceiver = 1,
    Collective = 2,
}

impl Wait {
    pub const NAMES: [&'static str; 3] = ["late sender", "late receiver", "collective"];
}

/// Where a rank waited: the call that returned only when the message or collective had come so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    pub begin: i64,
    pub end: i64,
    /// Number of the call.
    pub call: u16,
    /// It was the large-count variant.
    pub large: bool,
    /// Number of the call among those of the rank with several requests, from 1; 0 if there is only one.
    pub group: u32,
}

impl Blocked {
    /// Nobody saw a call that waited.
    pub fn nowhere(at: i64, call: u16) -> Blocked {
        Blocked { begin: at, end: at, call, large: false, group: 0 }
    }

    /// Time in the call before a moment.
    fn before(&self, moment: i64) -> u64 {
        moment.min(self.end).saturating_sub(self.begin).max(0) as u64
    }

    /// When a rank that arrived at a moment left the call with which it arrived; that moment if it is completed by
    /// another call, and not known.
    fn left(&self, moment: i64) -> i64 {
        if self.begin <= moment { self.end.max(moment) } else { moment }
    }
}

/// One side of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub key: u64,
    /// When the send began or the receive was posted.
    pub at: i64,
    pub blocked: Blocked,
    /// Position of the rank in the program.
    pub slot: u32,
    /// Bytes, cut off at 2^32 - 1.
    pub bytes: u32,
    /// Number of the call that made it.
    pub call: u16,
    pub sends: bool,
    /// Part of a neighbourhood collective.
    pub collective: bool,
}

/// A rank at a collective.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub key: u64,
    pub at: i64,
    pub blocked: Blocked,
    pub slot: u32,
    /// Rank in the communicator, and its size.
    pub rank: u32,
    pub size: u32,
    pub call: u16,
    /// Whether this is the root.
    pub root: bool,
}

/// A candidate for what a call with several requests waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub ns: u64,
    pub late: u32,
    pub class: Wait,
    pub call: u16,
    pub large: bool,
    pub kind: u16,
    pub begin: i64,
    pub end: i64,
    /// When the late rank left the call with which it arrived.
    pub late_end: i64,
}

/// What a rank waited for, from the beginning of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitSpan {
    pub slot: u32,
    pub wait: Candidate,
}

/// A message whose call went on for this long after both sides had posted it is worth a [`Tie`]: in less, nothing
/// happens that matters.
const TIE_NS: i64 = 10_000;

/// Both sides of a message that was not complete at once: the sender first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tie {
    /// When both sides had posted it.
    pub from: i64,
    /// Positions of the ranks in [`crate::Program::ranks`].
    pub slots: [u32; 2],
    /// Begin and end of the calls that completed it.
    pub calls: [(i64, i64); 2],
}

/// Sums of waiting.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub total: [u64; 3],
    /// By waiting and late rank (positions) and class.
    pub pairs: FastMap<(u32, u32, u8), u64>,
    /// Pairs that were too small to keep.
    pub others: [u64; 3],
    /// By the call that waited: two rows each, the second for its large-count variant.
    pub by_call: Vec<u64>,
    /// By the collective that was waited for.
    pub by_kind: Vec<u64>,
    /// By waiting rank and by late rank, and class.
    pub waiting: Vec<[u64; 3]>,
    pub late: Vec<[u64; 3]>,
    /// What was added since the last time that it was taken, if that is wanted.
    pub spans: Option<Vec<WaitSpan>>,
}

impl Waits {
    pub fn new(ranks: usize) -> Waits {
        Waits {
            total: [0; 3],
            pairs: fast_map(),
            others: [0; 3],
            by_call: vec![0; Call::ALL.len() * 2],
            by_kind: vec![0; Call::ALL.len()],
            waiting: vec![[0; 3]; ranks],
            late: vec![[0; 3]; ranks],
            spans: None,
        }
    }

    fn add(&mut self, slot: u32, wait: &Candidate) {
        let class = wait.class as usize;
        let add = |place: Option<&mut u64>| {
            if let Some(place) = place {
                *place = place.saturating_add(wait.ns);
            }
        };
        add(self.total.get_mut(class));
        add(self.by_call.get_mut(usize::from(wait.call) * 2 + usize::from(wait.large)));
        add(self.by_kind.get_mut(usize::from(wait.kind)));
        add(self.waiting.get_mut(slot as usize).and_then(|row| row.get_mut(class)));
        add(self.late.get_mut(wait.late as usize).and_then(|row| row.get_mut(class)));
        if let Some(spans) = &mut self.spans {
            spans.push(WaitSpan { slot, wait: *wait });
        }
        let pair = self.pairs.entry((slot, wait.late, wait.class as u8)).or_insert(0);
        *pair = pair.saturating_add(wait.ns);
        if self.pairs.len() > MAX_PAIRS {
            self.prune();
        }
    }

    /// Puts the smaller half of the pairs together.
    fn prune(&mut self) {
        let mut sums: Vec<u64> = self.pairs.values().copied().collect();
        let middle = sums.len() / 2;
        let (_, limit, _) = sums.select_nth_unstable(middle);
        let limit = *limit;
        let others = &mut self.others;
        self.pairs.retain(|(_, _, class), ns| {
            let keep = *ns > limit;
            if !keep && let Some(sum) = others.get_mut(usize::from(*class)) {
                *sum = sum.saturating_add(*ns);
            }
            keep
        });
    }

    pub fn merge(&mut self, other: Waits) {
        fn rows(to: &mut [[u64; 3]], from: &[[u64; 3]]) {
            for (to, from) in to.iter_mut().zip(from) {
                sums(to, from);
            }
        }
        fn sums(to: &mut [u64], from: &[u64]) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = to.saturating_add(*from);
            }
        }
        sums(&mut self.total, &other.total);
        sums(&mut self.others, &other.others);
        sums(&mut self.by_call, &other.by_call);
        sums(&mut self.by_kind, &other.by_kind);
        rows(&mut self.waiting, &other.waiting);
        rows(&mut self.late, &other.late);
        for (pair, ns) in other.pairs {
            let sum = self.pairs.entry(pair).or_insert(0);
            *sum = sum.saturating_add(ns);
        }
    }
}

/// What could not be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unjoined {
    /// Sends or receives without their other half.
    pub messages: u64,
    /// Sends and receives that met with different sizes.
    pub sizes: u64,
    /// Collectives in which members are missing.
    pub collectives: u64,
    /// Messages that arrived before they were sent, on the clock used.
    pub reversed: u64,
}

/// A part of the tables: halves and arrivals whose keys fall into it.
pub(crate) struct Shard {
    halves: FastMap<u64, Half>,
    collectives: FastMap<u64, Vec<Arrival>>,
    arrivals: usize,
    spare: Vec<Vec<Arrival>>,
    /// Bounds for the clocks, if they are wanted.
    pub slack: Option<Slack>,
    pub waits: Waits,
    pub unjoined: Unjoined,
    /// What calls with several requests may have waited for, by shard of the rank.
    pub candidates: [Vec<((u32, u32), Candidate)>; SHARDS],
    pub matched: u64,
    /// Messages that took long, if they are wanted.
    pub ties: Option<Vec<Tie>>,
    /// Whether waiting is wanted, or only bounds for the clocks.
    waiting: bool,
}

impl Shard {
    pub fn new(slack: Option<Slack>, ranks: usize, pass: Pass) -> Shard {
        Shard {
            waiting: pass.makes_sums(),
            ties: (pass == Pass::Waits).then(Vec::new),
            halves: fast_map(),
            collectives: fast_map(),
            arrivals: 0,
            spare: Vec::new(),
            slack,
            waits: Waits::new(ranks),
            unjoined: Unjoined::default(),
            candidates: std::array::from_fn(|_| Vec::new()),
            matched: 0,
        }
    }

    /// Takes what one rank did.
    pub fn take(&mut self, halves: &[Half], arrivals: &[Arrival], hosts: &[u32]) {
        for half in halves {
            match self.halves.remove(&half.key) {
                Some(other) if other.sends != half.sends => {
                    let (send, receive) = if half.sends { (half, &other) } else { (&other, half) };
                    self.message(send, receive, hosts);
                }
                Some(_) => {
                    // Two of the same side: keys have collided, or the file is not from a real run.
                    self.unjoined.messages += 1;
                    self.halves.insert(half.key, *half);
                }
                None => {
                    self.halves.insert(half.key, *half);
                }
            }
        }
        for arrival in arrivals {
            let members = self
                .collectives
                .entry(arrival.key)
                .or_insert_with(|| self.spare.pop().unwrap_or_default());
            members.push(*arrival);
            self.arrivals += 1;
            if members.len() >= arrival.size as usize
                && let Some(members) = self.collectives.remove(&arrival.key)
            {
                self.collective(members, hosts);
            }
        }
        if self.halves.len() > MAX_HALVES {
            self.forget_halves();
        }
        if self.arrivals > MAX_ARRIVALS {
            self.finish_collectives(hosts, true);
        }
    }

    /// Forgets the older half of what waits for its other half.
    fn forget_halves(&mut self) {
        let mut times: Vec<i64> = self.halves.values().map(|half| half.at).collect();
        let middle = times.len() / 2;
        let (_, limit, _) = times.select_nth_unstable(middle);
        let limit = *limit;
        let before = self.halves.len();
        self.halves.retain(|_, half| half.at > limit);
        self.unjoined.messages += (before - self.halves.len()) as u64;
    }

    /// Evaluates collectives in which members are missing: the older half, or all at the end.
    fn finish_collectives(&mut self, hosts: &[u32], half: bool) {
        let first = |members: &Vec<Arrival>| members.first().map_or(i64::MIN, |first| first.at);
        let mut open: Vec<(i64, u64)> =
            self.collectives.iter().map(|(key, members)| (first(members), *key)).collect();
        open.sort_unstable();
        if half {
            open.truncate(open.len().div_ceil(2));
        }
        for (_, key) in open {
            if let Some(members) = self.collectives.remove(&key) {
                self.unjoined.collectives += 1;
                self.collective(members, hosts);
            }
        }
    }

    /// At the end of the trace.
    pub fn finish(&mut self, hosts: &[u32]) {
        self.finish_collectives(hosts, false);
        self.unjoined.messages += self.halves.len() as u64;
        self.halves = fast_map();
    }

    #[inline]
    fn message(&mut self, send: &Half, receive: &Half, hosts: &[u32]) {
        self.matched += 1;
        if let Some(slack) = &mut self.slack {
            let host = |slot: u32| hosts.get(slot as usize).copied().unwrap_or(0);
            slack.add(host(send.slot), host(receive.slot), send.at, receive.blocked.end);
        }
        if !self.waiting {
            return;
        }
        // The collector does not know what MPI_Isendrecv received: its size is that of the buffer.
        let receiver = meanings().get(usize::from(receive.call)).map(|meaning| meaning.kind);
        let known = !send.collective && receiver != Some(Kind::ExchangeRequest);
        self.unjoined.sizes += u64::from(known && send.bytes != receive.bytes);
        self.unjoined.reversed += u64::from(receive.blocked.end < send.at);
        if let Some(ties) = self.ties.as_mut().filter(|_| !send.collective) {
            let from = send.at.max(receive.at);
            let calls = [send.blocked, receive.blocked].map(|call| (call.begin, call.end));
            if calls.iter().any(|(begin, end)| end.saturating_sub(from.max(*begin)) >= TIE_NS) {
                ties.push(Tie { from, slots: [send.slot, receive.slot], calls });
            }
        }
        let late = receive.blocked.before(send.at);
        if late > 0 {
            let class = if receive.collective { Wait::Collective } else { Wait::LateSender };
            let sender = (send.slot, send.blocked.left(send.at));
            self.wait(receive.slot, &receive.blocked, sender, late, class, receive.call);
            return;
        }
        let meaning = meanings().get(usize::from(send.call));
        let rendezvous = meaning.is_some_and(|meaning| {
            meaning.synchronous
                || (!meaning.buffered && u64::from(send.bytes) >= LATE_RECEIVER_BYTES)
        });
        // A send that returned before the receive was posted did not wait for it.
        if rendezvous && !send.collective && send.blocked.end >= receive.at {
            let late = send.blocked.before(receive.at);
            if late > 0 {
                let class = Wait::LateReceiver;
                let receiver = (receive.slot, receive.blocked.left(receive.at));
                self.wait(send.slot, &send.blocked, receiver, late, class, send.call);
            }
        }
    }

    /// `late` is the rank that was waited for, and when it left the call with which it arrived.
    fn wait(
        &mut self,
        slot: u32,
        blocked: &Blocked,
        late: (u32, i64),
        ns: u64,
        class: Wait,
        kind: u16,
    ) {
        let Blocked { begin, end, call, large, .. } = *blocked;
        let (late, late_end) = late;
        let candidate = Candidate { ns, late, class, call, large, kind, begin, end, late_end };
        if blocked.group == 0 {
            self.waits.add(slot, &candidate);
        } else if let Some(list) = self.candidates.get_mut(slot as usize % SHARDS) {
            list.push(((slot, blocked.group), candidate));
        }
    }

    fn collective(&mut self, mut members: Vec<Arrival>, hosts: &[u32]) {
        self.arrivals = self.arrivals.saturating_sub(members.len());
        let shape = members.first().and_then(|first| meanings().get(usize::from(first.call)));
        let shape = match shape.map(|meaning| meaning.kind) {
            Some(
                Kind::Collective(shape)
                | Kind::CollectiveRequest(shape)
                | Kind::CollectiveInit(shape),
            ) => shape,
            _ => Shape::All,
        };
        self.bound(&members, shape, hosts);
        match shape {
            _ if !self.waiting => {}
            Shape::All | Shape::Neighbours => {
                let last = latest(members.iter());
                for member in &members {
                    self.late_member(member, last);
                }
            }
            Shape::FromRoot => {
                let root = members.iter().find(|member| member.root).copied();
                for member in members.iter().filter(|member| !member.root) {
                    self.late_member(member, root);
                }
            }
            Shape::ToRoot => {
                let last = latest(members.iter().filter(|member| !member.root));
                if let Some(root) = members.iter().find(|member| member.root).copied() {
                    self.late_member(&root, last);
                }
            }
            Shape::Scan => {
                members.sort_unstable_by_key(|member| member.rank);
                let mut last: Option<Arrival> = None;
                for member in &members {
                    self.late_member(member, last);
                    if last.is_none_or(|last| member.at > last.at) {
                        last = Some(*member);
                    }
                }
            }
        }
        members.clear();
        if self.spare.len() < 64 && members.capacity() <= 1024 {
            self.spare.push(members);
        }
    }

    fn late_member(&mut self, member: &Arrival, last: Option<Arrival>) {
        let Some(last) = last.filter(|last| last.slot != member.slot) else { return };
        let late = member.blocked.before(last.at);
        if late > 0 {
            let class = Wait::Collective;
            let last = (last.slot, last.blocked.left(last.at));
            self.wait(member.slot, &member.blocked, last, late, class, member.call);
        }
    }

    /// Bounds for the clocks: a rank leaves after those that it depends on have entered.
    fn bound(&mut self, members: &[Arrival], shape: Shape, hosts: &[u32]) {
        let Some(slack) = &mut self.slack else { return };
        // MPI_Finalize need not wait for the others, and imported traces do not know its end.
        if members.iter().any(|member| member.call == Call::Finalize.number()) {
            return;
        }
        let host = |member: &Arrival| hosts.get(member.slot as usize).copied().unwrap_or(0);
        let mut between = |from: &Arrival, to: &Arrival| {
            slack.add(host(from), host(to), from.at, to.blocked.end);
        };
        let root = members.iter().find(|member| member.root);
        match shape {
            Shape::All => {
                // The last to enter and the first to leave decide whether any bound is violated; those
                // of the first member are for the width of the band.
                let last = members.iter().max_by_key(|member| (member.at, member.slot));
                let first = members.iter().min_by_key(|member| (member.blocked.end, member.slot));
                let reference = members.iter().min_by_key(|member| member.slot);
                for member in members {
                    for from in [last, reference].into_iter().flatten() {
                        between(from, member);
                    }
                    for to in [first, reference].into_iter().flatten() {
                        between(member, to);
                    }
                }
            }
            Shape::FromRoot => {
                for member in members {
                    root.into_iter().for_each(|root| between(root, member));
                }
            }
            Shape::ToRoot => {
                for member in members {
                    root.into_iter().for_each(|root| between(member, root));
                }
            }
            Shape::Scan | Shape::Neighbours => {}
        }
    }
}

/// The last to enter; the lowest of those at the same time.
fn latest<'a>(members: impl Iterator<Item = &'a Arrival>) -> Option<Arrival> {
    members.copied().max_by_key(|member| (member.at, std::cmp::Reverse(member.slot)))
}

/// Calls with several requests: each waits for the last one only.
pub(crate) struct Groups {
    open: FastMap<(u32, u32), Candidate>,
}

impl Groups {
    pub fn new() -> Groups {
        Groups { open: fast_map() }
    }

    pub fn take(&mut self, candidates: &[((u32, u32), Candidate)]) {
        for (call, candidate) in candidates {
            let best = self.open.entry(*call).or_insert(*candidate);
            // The longest; of equal ones the lowest rank, so that the order does not matter.
            if (candidate.ns, std::cmp::Reverse(candidate.late))
                > (best.ns, std::cmp::Reverse(best.late))
            {
                *best = *candidate;
            }
        }
    }

    /// Counts the calls that ended before a moment up to which everything is joined.
    pub fn settle(&mut self, complete: i64, waits: &mut Waits) {
        let mut until = complete;
        if self.open.len() > MAX_GROUPS {
            let mut ends: Vec<i64> = self.open.values().map(|best| best.end).collect();
            let middle = ends.len() / 2;
            until = until.max(*ends.select_nth_unstable(middle).1);
        }
        self.open.retain(|(slot, _), best| {
            let done = best.end < until;
            if done {
                waits.add(*slot, best);
            }
            !done
        });
    }
}
