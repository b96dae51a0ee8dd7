//! What a rank did between any two of given moments: computed, communicated, or lost to noise.
//!
//! In: the calls and regions of a rank, hits of noise, and the moments; out: [`Contents`]. The parts between two
//! moments add up to the time between them, exactly.

use std::{collections::HashMap, io};

use program::{Arena, Clocks, Moment, Program, What as Event};

use super::noise::{Hit, Noise};

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Between calls.
    Compute,
    /// In a call, by its number.
    Communication(u16),
    /// By source.
    Noise(u32),
}

/// Time spent on one thing, in one region of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub what: What,
    /// The rank, which is another one if that was interrupted in a call that both had to finish.
    pub slot: u32,
    /// Position in the table of regions; 0 outside of all.
    pub region: u32,
    pub ns: u64,
}

/// What a rank did, in pieces between moments.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    marks: Vec<i64>,
    /// The first part of each piece, and the end.
    first: Vec<u32>,
    parts: Vec<Part>,
}

impl Contents {
    /// Between two of the moments.
    pub fn between(&self, from: i64, to: i64) -> &[Part] {
        let first = |at: i64| {
            let piece = self.marks.partition_point(|mark| *mark < at);
            self.first.get(piece).or(self.first.last()).copied().unwrap_or(0) as usize
        };
        self.parts.get(first(from)..first(to)).unwrap_or_default()
    }

    pub fn renumber_regions(&mut self, numbers: &[u32]) {
        for part in &mut self.parts {
            part.region = numbers.get(part.region as usize).copied().unwrap_or(0);
        }
    }
}

/// Reads the calls of a rank. `marks` are sorted and different; the first and the last enclose the run. `hits` do
/// not overlap. Also returns the names of the regions, the first of which is none.
pub fn contents(
    program: &Program,
    clocks: &Clocks,
    slot: usize,
    marks: Vec<i64>,
    hits: &[Hit],
    noise: &Noise,
) -> io::Result<(Contents, Vec<String>)> {
    let mut reading = Reading::new(slot as u32, marks, hits, noise);
    reading.started = started(program, clocks, slot);
    program::stream(program, slot, clocks, |moment, arena| reading.take(moment, arena))?;
    Ok(reading.finish())
}

/// When a rank had started, on the common clock. From the end of `MPI_Init` to then, the collector agrees with those of
/// the other ranks on the run and the clocks, and measures its own cost.
pub fn started(program: &Program, clocks: &Clocks, slot: usize) -> i64 {
    let started = |rank: &program::Rank| {
        clocks.host(rank.host).common(i64::try_from(rank.start.ns).unwrap_or(i64::MAX))
    };
    program.ranks.get(slot).map_or(i64::MIN, started)
}

/// Regions inside each other that are told apart, and their names.
const DEPTH: usize = 256;
const NAMES: usize = 1 << 12;

struct Reading<'a> {
    slot: u32,
    contents: Contents,
    hits: &'a [Hit],
    noise: &'a Noise,
    /// When the rank had started.
    started: i64,
    /// Everything before this is in the contents.
    at: i64,
    /// Parts of the piece that `at` is in.
    piece: Vec<Part>,
    names: HashMap<u32, String>,
    /// Regions that each thread is in: number in the trace and position in `regions`.
    stacks: HashMap<u16, Vec<(u32, u32)>>,
    /// Paths of names.
    regions: Vec<String>,
    numbers: HashMap<String, u32>,
    region: u32,
}

impl<'a> Reading<'a> {
    fn new(slot: u32, marks: Vec<i64>, hits: &'a [Hit], noise: &'a Noise) -> Reading<'a> {
        let at = marks.first().copied().unwrap_or(0);
        Reading {
            slot,
            contents: Contents { marks, first: vec![0], parts: Vec::new() },
            hits,
            noise,
            started: i64::MIN,
            at,
            piece: Vec::new(),
            names: HashMap::new(),
            stacks: HashMap::new(),
            regions: vec![String::new()],
            numbers: HashMap::from([(String::new(), 0)]),
            region: 0,
        }
    }

    fn take(&mut self, moment: &Moment, arena: &Arena) {
        match &moment.what {
            Event::Call(call) => {
                self.enter_thread(moment.thread);
                // Time in which any thread is inside of a call counts as communication.
                self.advance(moment.begin, What::Compute);
                let number = call.signature.call.number();
                // Before the collector had started, only the start of MPI was recorded.
                let end = match moment.begin < self.started {
                    true => moment.end.max(self.started),
                    false => moment.end,
                };
                self.advance(end, What::Communication(number));
            }
            Event::Repeat(repeat) => {
                self.enter_thread(moment.thread);
                let number = repeat.call.signature.call.number();
                for (begin, end) in repeat.spread(moment.begin, moment.end) {
                    self.advance(begin, What::Compute);
                    self.advance(end, What::Communication(number));
                }
            }
            Event::RegionName { region, name } if self.names.len() < NAMES => {
                let name = String::from_utf8_lossy(arena.name(*name));
                let name: String = name.chars().filter(|c| !c.is_control()).take(256).collect();
                self.names.insert(*region, name);
            }
            Event::RegionBegin { region } => {
                self.advance(moment.begin, What::Compute);
                self.begin_region(moment.thread, *region);
            }
            Event::RegionEnd { region } => {
                self.advance(moment.begin, What::Compute);
                self.end_region(moment.thread, *region);
            }
            _ => {}
        }
    }

    fn enter_thread(&mut self, thread: u16) {
        let stack = self.stacks.get(&thread);
        self.region = stack.and_then(|stack| stack.last()).map_or(0, |(_, region)| *region);
    }

    fn begin_region(&mut self, thread: u16, number: u32) {
        let stack = self.stacks.entry(thread).or_default();
        if stack.len() >= DEPTH {
            return;
        }
        let outer = stack.last().map_or(0, |(_, region)| *region);
        let unnamed = || format!("region {number}");
        let name = self.names.get(&number).cloned().unwrap_or_else(unnamed);
        let path = match self.regions.get(outer as usize).filter(|path| !path.is_empty()) {
            Some(path) => format!("{path}/{name}"),
            None => name,
        };
        let next = self.regions.len() as u32;
        let region = match self.numbers.get(&path) {
            Some(region) => *region,
            None if self.regions.len() >= NAMES => outer,
            None => {
                self.regions.push(path.clone());
                self.numbers.insert(path, next);
                next
            }
        };
        stack.push((number, region));
        self.region = region;
    }

    /// Ends the innermost region, or the innermost with a number and those inside it.
    fn end_region(&mut self, thread: u16, number: u32) {
        let stack = self.stacks.entry(thread).or_default();
        if number == 0 {
            stack.pop();
        } else if let Some(place) = stack.iter().rposition(|(found, _)| *found == number) {
            stack.truncate(place);
        }
        self.enter_thread(thread);
    }

    /// Spends the time until a moment.
    fn advance(&mut self, until: i64, what: What) {
        while self.at < until {
            let Some(&edge) = self.contents.marks.get(self.contents.first.len()) else { return };
            let to = edge.min(until);
            self.spend(to, what);
            self.at = to;
            if to == edge {
                self.contents.parts.append(&mut self.piece);
                self.contents.first.push(self.contents.parts.len() as u32);
            }
        }
    }

    /// Divides the time until a moment in the same piece between noise and the rest.
    fn spend(&mut self, to: i64, what: What) {
        let mut from = self.at;
        while from < to {
            while self.hits.first().is_some_and(|hit| hit.to <= from) {
                self.hits = &self.hits[1..];
            }
            match self.hits.first().and_then(|hit| hit.within(from, to)) {
                Some(hit) => {
                    self.add(what, self.slot, hit.from - from);
                    let noise = self.noise;
                    noise.sources_of(&hit, |source, ns| {
                        self.add(What::Noise(source), hit.slot, ns as i64);
                    });
                    from = hit.to;
                }
                None => {
                    self.add(what, self.slot, to - from);
                    from = to;
                }
            }
        }
    }

    fn add(&mut self, what: What, slot: u32, ns: i64) {
        if ns <= 0 {
            return;
        }
        let (ns, region) = (ns as u64, self.region);
        let same = |part: &&mut Part| (part.what, part.slot, part.region) == (what, slot, region);
        match self.piece.iter_mut().find(same) {
            Some(part) => part.ns += ns,
            None => self.piece.push(Part { what, slot, region, ns }),
        }
    }

    fn finish(mut self) -> (Contents, Vec<String>) {
        let end = self.contents.marks.last().copied().unwrap_or(0);
        // Regions that were not left end with the last call.
        self.region = 0;
        self.advance(end, What::Compute);
        (self.contents, self.regions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_between_two_moments_add_up_whatever_they_cut() {
        let noise = Noise::made(Vec::new(), &[&[(15, 25, &[(3, 4), (4, 6)]), (58, 62, &[(3, 4)])]]);
        let hits = noise.hits[0].clone().unwrap();
        let marks = vec![0, 10, 20, 60, 100];
        let mut reading = Reading::new(5, marks.clone(), &hits, &noise);
        reading.advance(18, What::Compute);
        reading.advance(70, What::Communication(1));
        let (contents, _) = reading.finish();
        for (place, from) in marks.iter().enumerate() {
            for to in &marks[place..] {
                let sum: u64 = contents.between(*from, *to).iter().map(|part| part.ns).sum();
                assert_eq!(sum, (to - from) as u64, "{from} to {to}");
            }
        }
        let parts: Vec<(What, u64)> =
            contents.between(10, 60).iter().map(|part| (part.what, part.ns)).collect();
        let expected = [
            (What::Compute, 5),
            (What::Noise(3), 4),
            (What::Noise(4), 1),
            (What::Noise(4), 5),
            (What::Communication(1), 33),
            (What::Noise(3), 2),
        ];
        assert_eq!(parts, expected);
    }
}
