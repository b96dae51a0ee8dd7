//! What happened in a run, when and why.
//!
//! A [`Step`] is a piece of work on a CPU. A moment is a point in time that something waits for: the
//! end of a step, a NIC that is free again, a message at its target. Each follows from an earlier one
//! at a cost that the model defines: so the way back from the last one is the critical path, and its
//! costs sum to its duration.

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    Compute,
    /// o: CPU time per message.
    Overhead,
    /// O: CPU time per byte.
    OverheadPerByte,
    /// g: between messages of a NIC.
    Gap,
    /// G: per byte.
    GapPerByte,
    /// L.
    Latency,
    Waiting,
    Noise,
}

impl Part {
    pub const ALL: [Part; 8] = [
        Part::Compute,
        Part::Overhead,
        Part::OverheadPerByte,
        Part::Gap,
        Part::GapPerByte,
        Part::Latency,
        Part::Waiting,
        Part::Noise,
    ];

    /// The name used in tables and in JSON, as in the model.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Compute => "compute",
            Part::Overhead => "o",
            Part::OverheadPerByte => "O",
            Part::Gap => "g",
            Part::GapPerByte => "G",
            Part::Latency => "L",
            Part::Waiting => "waiting",
            Part::Noise => "noise",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Calc,
    Send,
    /// Announces a large message.
    Request,
    /// The payload of a large message.
    Payload,
    Receive,
}

/// No counterpart, or not yet.
pub const NOBODY: u32 = u32::MAX;

/// A piece of work on a CPU. Times are picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub op: u32,
    pub rank: u32,
    pub what: What,
    pub cpu: u8,
    pub nic: u8,
    /// For a receive: the step that sent its message.
    pub sender: u32,
    pub start: i64,
    pub end: i64,
    /// The part of it due to detours.
    pub noise: i64,
    /// CPU cost of a message beyond o: O, or for LogGOPSim G if that is larger.
    pub beyond: Part,
    /// CPU time exposed to noise: all but the noise itself, less for LogGOPSim.
    pub asked: i64,
    /// Its start, on the clock of the noise.
    pub clock: i64,
    /// Interval in which the NIC is busy; empty if it is not used.
    pub nic_from: i64,
    pub nic_until: i64,
    /// For a payload: when it was acknowledged.
    pub granted: i64,
    /// When the operation was complete: a receive ends no sooner than it is posted, a large send when
    /// it has been received.
    pub done: i64,
}

/// Time 0, before anything has happened.
pub(crate) const BEGINNING: u32 = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub time: i64,
    /// The moment it follows from.
    pub from: u32,
    /// The step whose cost is between them.
    pub step: u32,
    pub cost: Cost,
}

/// The cost between two moments: an amount of the first part, the noise of the step if it counts, the
/// rest of the second part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub first: Part,
    pub amount: i64,
    pub rest: Part,
    pub noisy: bool,
}

impl Cost {
    pub fn all(part: Part, amount: i64) -> Cost {
        Cost { first: part, amount, rest: part, noisy: false }
    }

    pub fn of(first: Part, amount: i64, rest: Part) -> Cost {
        Cost { first, amount, rest, noisy: false }
    }

    pub fn noisy(self) -> Cost {
        Cost { noisy: true, ..self }
    }
}

/// The steps of a run in the order they were taken, and the predecessor of each moment.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(crate) steps: Vec<Step>,
    pub(crate) moments: Vec<Moment>,
    /// The last moment of each rank.
    pub(crate) ends: Vec<u32>,
}

/// A leg of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The step whose cost it is.
    pub step: u32,
    pub from: i64,
    pub to: i64,
    /// What it is spent on, noise last; parts may be empty.
    pub parts: [(Part, i64); 3],
}

impl Log {
    pub(crate) fn clear(&mut self, ranks: u32) {
        self.steps.clear();
        self.moments.clear();
        let cost = Cost::all(Part::Waiting, 0);
        self.moments.push(Moment { time: 0, from: BEGINNING, step: NOBODY, cost });
        self.ends.clear();
        self.ends.resize(ranks as usize, BEGINNING);
    }

    /// Approximate size of the log of a run, bytes.
    pub fn memory(operations: usize) -> u64 {
        (operations * (size_of::<Step>() + 3 * size_of::<Moment>() + 16)) as u64
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn ranks(&self) -> u32 {
        self.ends.len() as u32
    }

    /// When a rank finished.
    pub fn end(&self, rank: u32) -> i64 {
        self.time(self.ends[rank as usize])
    }

    /// The rank that finished last, the first of them if there are several.
    pub fn last(&self) -> u32 {
        let mut last = 0;
        for rank in 1..self.ranks() {
            if self.end(rank) > self.end(last) {
                last = rank;
            }
        }
        last
    }

    /// The legs from the end of a rank back to the start.
    pub fn back_from(&self, rank: u32) -> impl Iterator<Item = Leg> + '_ {
        let mut at = self.ends[rank as usize];
        std::iter::from_fn(move || {
            if at == BEGINNING {
                return None;
            }
            let Moment { time, from, step, cost } = self.moments[at as usize];
            at = from;
            let begin = self.time(from);
            let noise = if cost.noisy { self.steps[step as usize].noise } else { 0 };
            let rest = time - begin - noise - cost.amount;
            let parts = [(cost.first, cost.amount), (cost.rest, rest), (Part::Noise, noise)];
            Some(Leg { step, from: begin, to: time, parts })
        })
    }

    #[inline]
    pub(crate) fn time(&self, moment: u32) -> i64 {
        self.moments[moment as usize].time
    }

    pub(crate) fn push(&mut self, time: i64, from: u32, step: u32, cost: Cost) -> u32 {
        self.moments.push(Moment { time, from, step, cost });
        (self.moments.len() - 1) as u32
    }

    /// The later of two; the first one if they coincide.
    #[inline]
    pub(crate) fn later(&self, a: u32, b: u32) -> u32 {
        if self.time(b) > self.time(a) { b } else { a }
    }

    /// A rank is busy at least until then.
    pub(crate) fn until(&mut self, rank: u32, moment: u32) {
        self.ends[rank as usize] = self.later(self.ends[rank as usize], moment);
    }
}
