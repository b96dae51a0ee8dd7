//! Communicators as one rank sees them, and what all ranks share: groups and channels.

use std::collections::HashMap;

use mpi_abi::{CommunicatorDef, ListKind, Run, rank};
use program::{FastMap, fast_map};

use crate::step::{Group, Topology};

/// Members that a list can have at most, whatever a file says.
const MAX_MEMBERS: usize = 1 << 24;

/// A communicator of a rank.
#[derive(Clone, Debug, Default)]
pub struct Communicator {
    pub key: u64,
    pub size: u32,
    pub rank: u32,
    /// Members of the other group, if there are two.
    pub remote_size: u32,
    /// Collectives so far.
    pub sequence: u64,
    members: Vec<i32>,
    remote: Vec<i32>,
    pub sources: Vec<i32>,
    pub destinations: Vec<i32>,
    /// Extents of its process grid, and which of its dimensions are periodic; empty if it has none.
    dims: Vec<i32>,
    periods: Vec<i32>,
    /// Position in [`Shared::groups`], once it was needed.
    group: Option<u32>,
}

impl Communicator {
    /// Imported traces do not have the members of communicators other than `MPI_COMM_WORLD`.
    pub fn knows_members(&self) -> bool {
        !self.peers().is_empty()
    }

    /// Whether it was made by `MPI_Cart_create`: its neighbours are two for each dimension.
    pub fn is_cartesian(&self) -> bool {
        !self.dims.is_empty()
    }

    /// World rank of a peer.
    pub fn world(&self, peer: i32) -> Option<u32> {
        let world = self.peers().get(usize::try_from(peer).ok()?)?;
        u32::try_from(*world).ok()
    }

    /// The ranks that messages go to: those of the other group, if there is one.
    fn peers(&self) -> &[i32] {
        if self.remote_size > 0 { &self.remote } else { &self.members }
    }
}

/// The communicators of a rank, by their numbers in it.
#[derive(Debug)]
pub struct Communicators {
    list: Vec<Communicator>,
    numbers: FastMap<u32, usize>,
    /// Number and position of the one that was asked for last.
    last: (u32, usize),
    windows: FastMap<u32, u32>,
}

impl Communicators {
    /// `MPI_COMM_WORLD` is known whatever the trace defines.
    pub fn new(size: u32, world_rank: u32) -> Communicators {
        let world = Communicator {
            key: 1,
            size,
            rank: world_rank,
            members: (0..i32::try_from(size).unwrap_or(i32::MAX)).collect(),
            ..Communicator::default()
        };
        let mut numbers = fast_map();
        numbers.insert(0, 0);
        Communicators { list: vec![world], numbers, last: (0, 0), windows: fast_map() }
    }

    pub fn define(&mut self, def: &CommunicatorDef) {
        let communicator = Communicator {
            key: def.key,
            size: def.size,
            rank: u32::try_from(def.rank).unwrap_or(0),
            remote_size: def.remote_size,
            ..Communicator::default()
        };
        if def.number == 0 {
            // Its members are known; the lists that follow are the same.
            if let Some(world) = self.list.first_mut() {
                world.key = def.key;
            }
            return;
        }
        self.numbers.insert(def.number, self.list.len());
        self.last = (def.number, self.list.len());
        self.list.push(communicator);
    }

    /// A part of a list of a communicator.
    pub fn extend(&mut self, number: u32, kind: ListKind, runs: &[Run]) {
        if number == 0 && matches!(kind, ListKind::Members) {
            return;
        }
        let Some(communicator) = self.of(number) else { return };
        let list = match kind {
            ListKind::Members => &mut communicator.members,
            ListKind::Remote => &mut communicator.remote,
            ListKind::Sources => &mut communicator.sources,
            ListKind::Destinations => &mut communicator.destinations,
            ListKind::Dims => &mut communicator.dims,
            ListKind::Periods => &mut communicator.periods,
        };
        for run in runs {
            let room = MAX_MEMBERS.saturating_sub(list.len());
            list.extend((0..run.count).take(room).map(|place| run.at(place)));
        }
    }

    pub fn window(&mut self, window: u32, communicator: u32) {
        self.windows.insert(window, communicator);
    }

    /// The process grids of communicators with all ranks.
    pub fn grids(&self, size: u32) -> Vec<Topology> {
        let has_all = |one: &&Communicator| one.size == size && !one.dims.is_empty();
        let grid = |one: &Communicator| Topology {
            dims: one.dims.iter().map(|extent| u32::try_from(*extent).unwrap_or(0)).collect(),
            periodic: one.periods.iter().map(|period| *period != 0).collect(),
        };
        let mut grids: Vec<Topology> = self.list.iter().filter(has_all).map(grid).collect();
        grids.dedup();
        grids
    }

    /// The communicator of a window.
    pub fn of_window(&mut self, window: u32) -> Option<&mut Communicator> {
        let number = *self.windows.get(&window)?;
        self.of(number)
    }

    #[inline]
    pub fn of(&mut self, number: u32) -> Option<&mut Communicator> {
        if self.last.0 != number {
            self.last = (number, *self.numbers.get(&number)?);
        }
        self.list.get_mut(self.last.1)
    }
}

/// What all ranks share.
#[derive(Debug, Default)]
pub struct Shared {
    pub groups: Vec<Group>,
    by_key: FastMap<u64, u32>,
    pub channels: FastMap<(u64, i32), u32>,
    /// Channels that were asked for last, by tag.
    recent: [(u64, i32, u32); RECENT],
    pub regions: Vec<String>,
    by_name: HashMap<String, u32>,
    /// The communicator whose receives with any tag stay wildcards.
    pub scope: u64,
    /// Receives with any tag, by communicator.
    pub any_tag: FastMap<u64, u64>,
}

/// A power of two.
const RECENT: usize = 16;

/// Channels of user messages that no receive with any tag takes.
const APART: u32 = 0xc000_0000;
/// Channels of collectives.
const OF_COLLECTIVES: u32 = 0x8000_0000;
/// Collectives of one group that can be under way at once. More share a channel, in their order.
const AT_ONCE_BITS: u32 = 12;

impl Shared {
    pub fn new(scope: u64) -> Shared {
        Shared { scope, ..Shared::default() }
    }

    pub fn group(&mut self, communicator: &mut Communicator) -> u32 {
        if let Some(group) = communicator.group {
            return group;
        }
        let groups = &mut self.groups;
        let group = *self.by_key.entry(communicator.key).or_insert_with(|| {
            let world = |member: &i32| u32::try_from(*member).unwrap_or(0);
            let members = communicator.members.iter().map(world).collect();
            groups.push(Group { key: communicator.key, members });
            groups.len() as u32 - 1
        });
        communicator.group = Some(group);
        group
    }

    /// The number of a region, shared by all ranks.
    pub fn region(&mut self, name: &str) -> u32 {
        if let Some(region) = self.by_name.get(name) {
            return *region;
        }
        let region = self.regions.len() as u32;
        self.regions.push(name.to_owned());
        self.by_name.insert(name.to_owned(), region);
        region
    }

    /// The channel of messages with a tag.
    #[inline]
    pub fn channel(&mut self, key: u64, tag: i32) -> u32 {
        let recent = self.recent[tag as usize % RECENT];
        // The key 0 marks an empty place.
        if (recent.0, recent.1) == (key, tag) && key != 0 {
            return recent.2;
        }
        let channel = self.new_channel(key, tag);
        self.recent[tag as usize % RECENT] = (key, tag, channel);
        channel
    }

    fn new_channel(&mut self, key: u64, tag: i32) -> u32 {
        let next = self.channels.len() as u32 & !APART;
        let apart = if key == self.scope { 0 } else { APART };
        *self.channels.entry((key, tag)).or_insert(next | apart)
    }

    /// The channel of a collective.
    pub fn of_collective(group: u32, sequence: u64) -> u32 {
        let number = group << AT_ONCE_BITS | (sequence as u32 & ((1 << AT_ONCE_BITS) - 1));
        OF_COLLECTIVES | (number & !APART)
    }
}

/// Whether a channel is one of collectives.
pub fn is_collective(channel: u32) -> bool {
    channel & APART == OF_COLLECTIVES
}

/// The number of a channel whose messages no receive with any tag takes; None for the others.
pub fn number_apart(channel: u32) -> Option<u32> {
    (channel & APART == APART).then_some(channel & !APART)
}

/// Whether a rank is one that a message can go to.
pub fn is_null(peer: i32) -> bool {
    peer == rank::PROC_NULL
}
