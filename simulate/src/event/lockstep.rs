//! Runs a [`Sequence`] for several sets of ranks at a time, one in each lane of a vector: all of them take the
//! same steps in the same order, and only their times differ. Most work meets no detour, which a vector
//! finds out by one comparison; the lanes that do are looked up one by one.

use super::{
    EventError,
    builder::LONGEST,
    sequence::{Do, NOBODY, Sequence},
    work::{Met, Work},
};
use crate::{
    noise::{Cursor, Model, RunNoise},
    rounds::RankSlices,
    simd::{Kernel, LANES, Vector, widest},
};

/// One number of each set, in a cache line of its own.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Lanes([i64; LANES]);

impl Lanes {
    #[inline(always)]
    fn get<V: Vector>(&self) -> V {
        V::load(&self.0)
    }

    #[inline(always)]
    fn put<V: Vector>(&mut self, values: V) {
        values.store(&mut self.0);
    }
}

/// A rank of each set. All but the first two are those of [`RankSlices`].
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    begin: Lanes,
    cpu_free: Lanes,
    ends: Lanes,
    received: Lanes,
    send_free: Lanes,
    recv_free: Lanes,
    clear_from: Lanes,
    /// At most the longest time there is.
    clear_until: Lanes,
}

#[derive(Clone, Copy, Debug, Default)]
struct StepTimes {
    end: Lanes,
    start: Lanes,
}

/// Start and end of each step; of a send also its arrival. Memory that one run leaves to the next.
#[derive(Debug, Default)]
pub struct Moments {
    steps: Vec<StepTimes>,
    arrivals: Vec<Lanes>,
    ranks: Vec<Rank>,
}

impl Sequence {
    /// Runs the schedule on each set of ranks; the first rank has this number in the noise.
    pub fn run_on(
        &self,
        noise: &RunNoise<'_>,
        first: u64,
        ranks: &mut RankSlices<'_>,
        moments: &mut Moments,
    ) -> Result<(), EventError> {
        moments.steps.resize(self.steps.len(), StepTimes::default());
        moments.arrivals.resize(self.steps.len(), Lanes::default());
        moments.ranks.resize(self.ranks as usize, Rank::default());
        let own = (self.ranks as usize).max(1);
        let sets = ranks.ranks() / own;
        for begin in (0..sets).step_by(LANES) {
            let lanes = LANES.min(sets - begin);
            let run = |begin: usize, lanes, ranks: &mut RankSlices<'_>, moments: &mut Moments| {
                widest(Run {
                    sequence: self,
                    noise,
                    first,
                    base: begin * own,
                    lanes,
                    ranks,
                    moments,
                })
            };
            if run(begin, lanes, ranks, moments).is_err() {
                // The error is that of the first set that fails, however many run together. Nothing has been stored yet.
                (begin..begin + lanes).try_for_each(|set| run(set, 1, ranks, moments))?;
            }
        }
        Ok(())
    }
}

/// Some sets of ranks, in the first lanes.
struct Run<'a, 'b> {
    sequence: &'a Sequence,
    noise: &'a RunNoise<'a>,
    /// Number in the noise of the first one of `ranks`.
    first: u64,
    /// The place in `ranks` of the first one of these.
    base: usize,
    lanes: usize,
    ranks: &'a mut RankSlices<'b>,
    moments: &'a mut Moments,
}

impl Kernel for Run<'_, '_> {
    type Output = Result<(), EventError>;

    #[inline(always)]
    fn run<V: Vector>(mut self) -> Result<(), EventError> {
        self.load();
        self.steps::<V>()?;
        self.store();
        Ok(())
    }
}

impl Run<'_, '_> {
    #[inline(always)]
    fn load(&mut self) {
        let silent = self.noise.is_none();
        let own = self.sequence.ranks as usize;
        for (number, rank) in self.moments.ranks.iter_mut().enumerate() {
            *rank = Rank { clear_until: Lanes([LONGEST; LANES]), ..Rank::default() };
            for lane in 0..self.lanes {
                let place = self.base + lane * own + number;
                rank.ends.0[lane] = self.ranks.ends[place];
                rank.received.0[lane] = self.ranks.received[place];
                rank.send_free.0[lane] = self.ranks.send_free[place];
                rank.recv_free.0[lane] = self.ranks.recv_free[place];
                if !silent {
                    rank.clear_from.0[lane] = self.ranks.clear_from[place];
                    rank.clear_until.0[lane] = self.ranks.clear_until[place].min(LONGEST);
                }
            }
            (rank.begin, rank.cpu_free) = (rank.ends, rank.ends);
        }
    }

    #[inline(always)]
    fn store(&mut self) {
        let silent = self.noise.is_none();
        let own = self.sequence.ranks as usize;
        for (number, rank) in self.moments.ranks.iter().enumerate() {
            for lane in 0..self.lanes {
                let place = self.base + lane * own + number;
                self.ranks.ends[place] = rank.ends.0[lane];
                self.ranks.received[place] = rank.received.0[lane];
                self.ranks.send_free[place] = rank.send_free.0[lane];
                self.ranks.recv_free[place] = rank.recv_free.0[lane];
                if !silent {
                    self.ranks.clear_from[place] = rank.clear_from.0[lane];
                    self.ranks.clear_until[place] = rank.clear_until.0[lane];
                }
            }
        }
    }

    #[inline(always)]
    fn steps<V: Vector>(&mut self) -> Result<(), EventError> {
        let Run { sequence, noise, first, base, lanes, .. } = *self;
        let Moments { steps: at, arrivals, ranks } = &mut *self.moments;
        let cursors = match !noise.is_none() && noise.model() == Model::Preempt {
            true => vec![None; ranks.len() * LANES],
            false => Vec::new(),
        };
        let first = first + base as u64;
        let mut cpu = Cpu { noise, first, own: sequence.ranks, lanes, cursors };
        for (number, pair) in sequence.steps.windows(2).enumerate() {
            let (step, next) = (&pair[0], &pair[1]);
            let rank = &mut ranks[step.rank as usize];
            let mut ready: V = rank.begin.get();
            for &before in &sequence.before[step.before as usize..next.before as usize] {
                let StepTimes { end, start } = &at[(before >> 1) as usize];
                ready = ready.max(if before & 1 == 0 { end.get() } else { start.get() });
            }
            let (start, end): (V, V);
            match step.what {
                Do::Calc => {
                    start = ready.max(rank.cpu_free.get());
                    end = cpu.done(step.rank, rank, start, step.of)?;
                    rank.cpu_free.put(end);
                }
                Do::Send => {
                    let cost = &sequence.costs[step.cost as usize];
                    start = ready.max(rank.cpu_free.get()).max(rank.send_free.get());
                    end = cpu.done(step.rank, rank, start, cost.send_cpu)?;
                    rank.send_free.put(end.add(V::splat(cost.gap - cost.send_cpu)));
                    arrivals[number].put(end.add(V::splat(cost.latency)));
                    rank.cpu_free.put(end);
                }
                Do::Receive => {
                    let cost = &sequence.costs[step.cost as usize];
                    let arrival: V = arrivals[step.of as usize].get();
                    let first_byte = arrival.max(rank.recv_free.get());
                    rank.recv_free.put(first_byte.add(V::splat(cost.gap)));
                    let begin = first_byte.add(V::splat(cost.transfer)).max(rank.received.get());
                    let taken = cpu.done(step.rank, rank, begin, cost.recv_cpu)?;
                    (start, end) = (ready, taken.max(ready));
                    rank.received.put(end);
                    if step.also != NOBODY {
                        let sender = &mut ranks[step.also as usize].ends;
                        sender.put(sender.get::<V>().max(end));
                    }
                }
                Do::Request => {
                    let cost = &sequence.costs[step.cost as usize];
                    start = ready.max(rank.cpu_free.get()).max(rank.send_free.get());
                    end = cpu.done(step.rank, rank, start, cost.send_overhead())?;
                    arrivals[number].put(end.add(V::splat(cost.latency)));
                    rank.cpu_free.put(end);
                }
                Do::Post => (start, end) = (ready, rank.ends.get()),
                Do::Payload => {
                    let cost = &sequence.costs[step.cost as usize];
                    let posted: V = at[step.also as usize].start.get();
                    let announced: V = arrivals[step.of as usize].get();
                    let granted = posted.max(announced).add(V::splat(cost.latency));
                    start = granted.max(rank.cpu_free.get()).max(rank.send_free.get());
                    let sent = cpu.done(step.rank, rank, start, cost.send_cpu)?;
                    rank.send_free.put(sent.add(V::splat(cost.gap - cost.send_cpu)));
                    arrivals[number].put(sent.add(V::splat(cost.latency)));
                    rank.cpu_free.put(sent);
                    end = sent.add(V::splat(cost.transfer));
                }
            }
            let ends = &mut ranks[step.rank as usize].ends;
            ends.put(ends.get::<V>().max(end));
            at[number].start.put(start);
            at[number].end.put(end);
        }
        Ok(())
    }
}

/// What the ranks of the sets work on.
struct Cpu<'a> {
    noise: &'a RunNoise<'a>,
    /// Number of the first rank in it.
    first: u64,
    own: u32,
    lanes: usize,
    /// Where each rank of each set is in its noise, and since when, once it was looked up. Empty if the model has no
    /// such place.
    cursors: Vec<Option<(i64, Cursor<'a>)>>,
}

impl<'a> Cpu<'a> {
    #[inline(always)]
    fn done<V: Vector>(
        &mut self,
        number: u32,
        rank: &mut Rank,
        start: V,
        work: i64,
    ) -> Result<V, EventError> {
        let end = start.add(V::splat(work));
        let early = rank.clear_from.get::<V>().above(start);
        let late = end.above(rank.clear_until.get());
        if early | late == 0 {
            return Ok(end);
        }
        let (mut starts, mut ends) = ([0; LANES], [0; LANES]);
        start.store(&mut starts);
        end.store(&mut ends);
        self.look_up(number, rank, early | late, &starts, &mut ends, work)?;
        Ok(V::load(&ends))
    }

    /// The lanes that may meet a detour, or end too late.
    #[inline(never)]
    fn look_up(
        &mut self,
        number: u32,
        rank: &mut Rank,
        mask: u8,
        starts: &[i64; LANES],
        ends: &mut [i64; LANES],
        work: i64,
    ) -> Result<(), EventError> {
        for lane in (0..self.lanes).filter(|lane| mask >> lane & 1 == 1) {
            let noise = self.noise.from_rank(self.first + u64::from(self.own) * lane as u64);
            let begin = starts[lane];
            if let Some(cursor) = self.cursors.get_mut(number as usize * LANES + lane) {
                let (since, cursor) =
                    cursor.get_or_insert_with(|| (begin, noise.local(u64::from(number)).at(begin)));
                if begin < *since {
                    *cursor = cursor.moved_to(begin);
                }
                let worked = cursor.work_and_clear(begin, work);
                let (done, clear) =
                    worked.map_err(|source| EventError::Noise { rank: number, source })?;
                if done > LONGEST {
                    return Err(EventError::TooLong { rank: number });
                }
                (ends[lane], *since) = (done, clear.from);
                rank.clear_from.0[lane] = clear.from;
                rank.clear_until.0[lane] = clear.until.min(LONGEST);
                continue;
            }
            let mut met = Met::known(rank.clear_from.0[lane], rank.clear_until.0[lane]);
            ends[lane] = Work::new(&noise).done(number, &mut met, begin, work)?;
            let (from, until) = met.clear();
            (rank.clear_from.0[lane], rank.clear_until.0[lane]) = (from, until.min(LONGEST));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        event::{
            self, Carried, Options, Rendezvous,
            sketch::{self, Sketch},
        },
        noise::{Noise, Offsets, Timeline},
        rounds::RankStates,
        simd::{WIDTHS, at_most},
    };

    const RANKS: usize = 4;

    fn on_one_cpu(mut ranks: Vec<Vec<Sketch>>) -> Vec<Vec<Sketch>> {
        ranks.iter_mut().flatten().for_each(|op| op.4 = (0, 0));
        ranks
    }

    proptest! {
        #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::with_cases(400) })]

        /// Any number of sets, in vectors of any width: the times of the event engine, one set after the other.
        #[test]
        fn sets_side_by_side_take_what_each_takes_alone(
            ranks in sketch::sketches().prop_map(on_one_cpu),
            params in sketch::params(),
            (eager, handshake) in (0..4_000u64, any::<bool>()),
            sets in 1..20usize,
            noisy in any::<bool>(),
        ) {
            let schedule = sketch::schedule(&ranks, false, u8::MAX);
            let params = crate::loggops::Params { eager_limit: eager, ..params };
            let rendezvous = if handshake { Rendezvous::Handshake } else { Rendezvous::ClosedForm };
            let options = Options { rendezvous, ..Options::default() };
            let sequence = Sequence::of(&schedule, &params, &options);
            prop_assume!(sequence.is_some());
            let sequence = sequence.unwrap();
            let noise = match noisy {
                false => Noise::none(),
                true => {
                    let timeline = Timeline::periodic(20_000, 3_000).unwrap();
                    Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap()
                }
            };
            let noise = noise.run(7, 3);
            let ends_of = |states: &RankStates| {
                [&states.ends, &states.received, &states.send_free, &states.recv_free]
                    .map(|list| list.to_vec())
            };
            let mut alone = RankStates::default();
            alone.start((sets * RANKS) as u64).unwrap();
            let (mut scratch, mut carried) = (event::Scratch::default(), Carried::default());
            for _ in 0..2 {
                let mut rest = alone.slices();
                for set in 0..sets {
                    let (mut one, after) = rest.split_at(RANKS);
                    rest = after;
                    carried.set(&one);
                    let noise = noise.from_rank((set * RANKS) as u64);
                    let run = &mut carried;
                    event::run_on(&mut scratch, &schedule, &params, &options, &noise, run).unwrap();
                    carried.get(&mut one);
                }
            }
            for width in WIDTHS {
                let mut together = RankStates::default();
                together.start((sets * RANKS) as u64).unwrap();
                let mut moments = Moments::default();
                for _ in 0..2 {
                    let run = || sequence.run_on(&noise, 0, &mut together.slices(), &mut moments);
                    at_most(width, run).unwrap();
                }
                prop_assert_eq!(ends_of(&together), ends_of(&alone), "{:?}", width);
            }
        }
    }

    /// The error names the same set of ranks however many sets run together.
    #[test]
    fn the_first_set_that_fails_is_reported() {
        let mut builder = event::ScheduleBuilder::new(2);
        builder.begin_rank();
        builder.calc(LONGEST / 2, 0);
        builder.begin_rank();
        builder.calc(LONGEST / 2, 0);
        let schedule = builder.finish().unwrap();
        let sequence =
            Sequence::of(&schedule, &crate::loggops::Params::FREE, &Options::default()).unwrap();
        let mut states = RankStates::default();
        states.start(10).unwrap();
        // The third set fails at its second rank, a later one at its first.
        states.ends[5] = LONGEST / 2 + 1;
        states.ends[8] = LONGEST / 2 + 1;
        let noise = Noise::none();
        let run = noise.run(0, 0);
        let failed = sequence.run_on(&run, 0, &mut states.slices(), &mut Moments::default());
        assert!(matches!(failed, Err(EventError::TooLong { rank: 1 })), "{failed:?}");
    }
}
