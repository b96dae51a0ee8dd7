//! The attribution of detours: each belongs to one source, or is shared by several. Stored separately,
//! since a simulation that needs only times never reads it.
//!
//! Sources are numbers here. Their names are kept by the reader of the trace.

/// The source of unattributed detours.
pub const UNKNOWN: u32 = u32::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    #[default]
    Unknown,
    /// All of them belong to this source.
    One(u32),
    Each(Shares),
}

/// How each detour of a timeline is shared by sources, in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// End of the parts of each detour.
    ends: Vec<u32>,
    parts: Vec<(u32, i64)>,
}

impl Shares {
    /// Adds a detour: its length, and the time each source took. If the parts exceed the length, the
    /// last ones are cut; if they fall short, the rest is unattributed.
    pub fn push(&mut self, length: i64, parts: impl IntoIterator<Item = (u32, i64)>) {
        let mut left = length;
        for (source, ps) in parts {
            let ps = ps.clamp(0, left);
            if ps > 0 {
                self.parts.push((source, ps));
                left -= ps;
            }
        }
        if left > 0 {
            self.parts.push((UNKNOWN, left));
        }
        // Beyond the capacity of a timeline, which rejects this many detours.
        self.ends.push(self.parts.len().try_into().unwrap_or(u32::MAX));
    }

    /// Number of detours so far.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn of(&self, detour: usize) -> &[(u32, i64)] {
        let begin = detour.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.parts.get(begin..self.ends[detour] as usize).unwrap_or(&[])
    }
}

impl Origin {
    /// The attribution of the last `rest` of a detour, part by part in order of time.
    pub fn tell(&self, detour: usize, rest: i64, mut tell: impl FnMut(u32, i64)) {
        let parts = match self {
            Origin::Unknown => return tell(UNKNOWN, rest),
            Origin::One(source) => return tell(*source, rest),
            Origin::Each(shares) => shares.of(detour),
        };
        let whole = parts.iter().fold(0i64, |sum, part| sum.saturating_add(part.1));
        let mut before = whole - rest;
        for &(source, ps) in parts {
            let kept = ps - before.clamp(0, ps);
            before -= ps;
            if kept > 0 {
                tell(source, kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(origin: &Origin, detour: usize, rest: i64) -> Vec<(u32, i64)> {
        let mut told = Vec::new();
        origin.tell(detour, rest, |source, ps| told.push((source, ps)));
        told
    }

    #[test]
    fn the_rest_of_a_detour_is_that_of_its_last_parts() {
        let mut shares = Shares::default();
        shares.push(10, [(4, 10)]);
        shares.push(100, [(1, 60), (2, 30), (3, 10)]);
        let origin = Origin::Each(shares);
        assert_eq!(told(&origin, 0, 10), [(4, 10)]);
        assert_eq!(told(&origin, 1, 100), [(1, 60), (2, 30), (3, 10)]);
        assert_eq!(told(&origin, 1, 35), [(2, 25), (3, 10)]);
        assert_eq!(told(&origin, 1, 1), [(3, 1)]);
        assert_eq!(told(&Origin::One(7), 1, 5), [(7, 5)]);
        assert_eq!(told(&Origin::Unknown, 1, 5), [(UNKNOWN, 5)]);
    }

    #[test]
    fn parts_always_add_up_to_the_length() {
        let mut shares = Shares::default();
        shares.push(100, [(1, 70), (2, 70), (3, 5)]);
        shares.push(100, [(1, 20), (2, -5)]);
        let origin = Origin::Each(shares);
        assert_eq!(told(&origin, 0, 100), [(1, 70), (2, 30)]);
        assert_eq!(told(&origin, 1, 100), [(1, 20), (UNKNOWN, 80)]);
    }
}
