//! For receives with wildcards: which receives match which messages, precomputed. A run then looks at
//! the heads of a few queues instead of at everything that waits.
//!
//! Receives of one target with the same source and tag share a *want*; messages to it with the same
//! source and tag share a *sort*.

use std::ops::Range;

use super::ANY;

/// One end of a message to a target: (tag, source, operation). The source of a receive and both tags
/// may be [`ANY`], which sorts last.
pub(crate) type End = (u32, u32, u32);

#[derive(Clone, Copy, Debug)]
struct Sort {
    /// End of its wants in `fits`; they begin where those of the previous sort end.
    end: u32,
    place: u32,
    any_tag: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// The place of each want.
    place_of: Vec<u32>,
    /// The first want of each place: a target, or a tag at a target.
    first: Vec<u32>,
    sorts: Vec<Sort>,
    /// The wants that match messages of each sort, if they have a tag.
    fits: Vec<u32>,
}

/// The receives that messages of a sort may match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fits<'a> {
    Wants(&'a [u32]),
    /// They have no specific tag. All wants of a place, as far as their source matches: too many to
    /// list.
    AnyTag {
        place: u32,
        wants: Range<u32>,
    },
}

impl Wants {
    /// Adds the next place, where any of these messages may match any of these receives. Both lists
    /// are sorted. `tell` gets the sort of each message and the want of each receive.
    pub fn add(&mut self, incoming: &[End], wanted: &[End], mut tell: impl FnMut(u32, u32)) {
        let (place, base) = (self.first.len() as u32, self.place_of.len() as u32);
        self.first.push(base);
        let same = |a: &End, b: &End| (a.0, a.1) == (b.0, b.1);
        let mut asked: Vec<(u32, u32)> = Vec::new();
        for want in wanted.chunk_by(same) {
            want.iter().for_each(|end| tell(end.2, self.place_of.len() as u32));
            asked.push((want[0].0, want[0].1));
            self.place_of.push(place);
        }
        for sort in incoming.chunk_by(same) {
            let (tag, source) = (sort[0].0, sort[0].1);
            sort.iter().for_each(|end| tell(end.2, self.sorts.len() as u32));
            let any_tag = tag == ANY;
            if !any_tag {
                let could = [(tag, source), (tag, ANY), (ANY, source), (ANY, ANY)];
                let found = could.iter().filter_map(|want| asked.binary_search(want).ok());
                self.fits.extend(found.map(|at| base + at as u32));
            }
            self.sorts.push(Sort { end: self.fits.len() as u32, place, any_tag });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub fn count(&self) -> usize {
        self.place_of.len()
    }

    pub fn places(&self) -> usize {
        self.first.len()
    }

    pub fn place_of(&self, want: u32) -> u32 {
        self.place_of[want as usize]
    }

    pub fn of(&self, sort: u32) -> Fits<'_> {
        let Sort { end, place, any_tag } = self.sorts[sort as usize];
        if any_tag {
            let next = self.first.get(place as usize + 1);
            let end = next.copied().unwrap_or(self.place_of.len() as u32);
            return Fits::AnyTag { place, wants: self.first[place as usize]..end };
        }
        let begin = sort.checked_sub(1).map_or(0, |before| self.sorts[before as usize].end);
        Fits::Wants(&self.fits[begin as usize..end as usize])
    }
}
