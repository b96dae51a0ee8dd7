//! The profile of a run, as `detour mpi report --json` prints it.
//!
//! Times are seconds on the common clock of the run. Waiting times are also given in whole nanoseconds:
//! the sum over `waits.pairs` and `waits.other_pairs_ns` is `waits.total_ns`, exactly.

use crate::chunks::Damage;
use crate::clock::{Clocks, HostCorrection, Slack};
use crate::engine::{Joined, ReadError, Until, rank_span, run};
use crate::kinds::{CLASSES, class_of};
use crate::matching::{LATE_RECEIVER_BYTES, Wait};
use crate::open::Program;
use crate::rank::{BINS, MATRIX, Pass, RankState, matrix_cell};
use crate::stored;
use crate::timeline::Timeline;
use crate::waited::{Dependencies, waited};
use mpi_abi::Call;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of who waits for whom that are kept.
const TOP_PAIRS: usize = 64;
/// Communicators and regions that are kept.
const TOP_ROWS: usize = 256;

/// The profile of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// Size of `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// Ranks whose files were read; fewer than `ranks` if some are missing.
    pub ranks_read: u32,
    /// Ranks that have not finalized: killed, crashed, aborted or still running.
    pub unfinished_ranks: Vec<u32>,
    /// Command line of rank 0.
    pub command: Vec<String>,
    /// Version of the MPI library.
    pub library: String,
    /// From the first call of `MPI_Init` to the last return from `MPI_Finalize`.
    pub wall_s: f64,
    /// Share of the ranks' time that was spent in MPI. Threads that call MPI count one by one.
    pub mpi_pct: f64,
    /// Events read.
    pub events: u64,
    /// Messages between two ranks, and their bytes.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Calls by name, the most time first.
    pub calls: Vec<CallRow>,
    /// Waiting.
    pub waits: WaitSums,
    /// The collector's own cost.
    pub collector: Collector,
    /// What is missing.
    pub lost: LostSums,
    /// Hosts and what was done to their clocks.
    pub hosts: Vec<HostCorrection>,
    /// By how much messages may still arrive before they were sent: no correction satisfies all.
    pub clock_contradiction_ns: i64,
    /// One row a rank.
    pub by_rank: Vec<RankRow>,
    /// Sizes of messages between two ranks.
    pub sizes: Vec<SizeRow>,
    /// Who sends to whom.
    pub matrix: Matrix,
    /// When which calls took the time.
    pub pattern: Pattern,
    /// Regions that the program marked.
    pub regions: Vec<RegionRow>,
    /// How many more regions there are: those with the least time are not kept.
    pub other_regions: u64,
    /// Communicators, the most time first.
    pub communicators: Vec<CommunicatorRow>,
    /// How many more communicators there are: those with the least time are not kept.
    pub other_communicators: u64,
}

/// One MPI function.
#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    /// Name of the function.
    pub name: String,
    /// Its class, as in `pattern.classes`.
    pub class: &'static str,
    /// Calls of all ranks.
    pub count: u64,
    /// Bytes sent by sends and collectives, received by receives; those of an exchange both. Bytes of
    /// nonblocking receives count here when they have arrived, those of persistent requests each time that they
    /// are started or have arrived. The size of a window does not count.
    pub bytes: u64,
    /// Time in the calls of all ranks.
    pub time_s: f64,
    /// Share of all ranks' time.
    pub share_pct: f64,
    /// Part of `time_s` that was waiting.
    pub wait_s: f64,
    /// The longest call.
    pub longest_s: f64,
    /// Ranks that called it.
    pub ranks: u32,
    /// The least and the most time that one of them spent in it.
    pub rank_min_s: f64,
    /// See `rank_min_s`.
    pub rank_max_s: f64,
    /// Calls that returned an error.
    pub errors: u64,
}

/// Waiting by class.
#[derive(Clone, Debug, Serialize)]
pub struct WaitSums {
    /// Time in receives, and in calls that complete them, before the send began.
    pub late_sender_s: f64,
    /// Time in sends, and in calls that complete them, before the receive was posted.
    pub late_receiver_s: f64,
    /// Time in collectives, and in calls that complete them, before the last rank that they depend on
    /// had entered.
    pub collective_s: f64,
    /// The same three in ns.
    pub late_sender_ns: u64,
    /// In ns.
    pub late_receiver_ns: u64,
    /// In ns.
    pub collective_ns: u64,
    /// Their sum.
    pub total_ns: u64,
    /// Waiting as a share of the time in MPI.
    pub mpi_share_pct: f64,
    /// Sends below this size are taken to be buffered and never wait for the receiver.
    pub late_receiver_bytes: u64,
    /// `collective_ns` by function.
    pub collectives: Vec<CollectiveWait>,
    /// Who waits for whom, the longest first.
    pub pairs: Vec<Pair>,
    /// Waiting of all other pairs, in ns.
    pub other_pairs_ns: u64,
    /// Who waits for whom, all classes together: a row a waiting rank, a column a late one. Cells stand
    /// for the same ranks as those of `matrix`.
    pub matrix_ns: Vec<Vec<u64>>,
    /// What is missing in `matrix_ns`: pairs that were too many to keep apart.
    pub matrix_other_ns: u64,
}

/// Waiting at one collective function.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveWait {
    /// The function.
    pub name: String,
    /// Waiting time summed over all ranks.
    pub wait_s: f64,
    /// In ns.
    pub wait_ns: u64,
}

/// A rank that waits for another.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// World rank that waits.
    pub waiting: u32,
    /// World rank that is late.
    pub late: u32,
    /// `late sender`, `late receiver` or `collective`.
    pub class: &'static str,
    /// How long.
    pub wait_s: f64,
    /// In ns.
    pub wait_ns: u64,
}

/// What recording cost.
#[derive(Clone, Debug, Serialize)]
pub struct Collector {
    /// Cost of recording a call as the collector measured it at the start; tests that it only counted cost less.
    pub ns_per_call: f64,
    /// That cost times the calls as a share of the ranks' time.
    pub share_pct: f64,
    /// Bytes of the files for each event.
    pub bytes_per_event: f64,
}

/// What is missing from the trace or could not be joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostSums {
    /// Events: without room on the disk, in damaged chunks, or of imported lines that could not be parsed.
    pub events: u64,
    /// Chunks that are damaged or gone.
    pub chunks: u64,
    /// Open chunks of killed ranks that end within an event.
    pub cut_chunks: u64,
    /// Requests, communicators or regions that the collector had no room for.
    pub table_full: u64,
    /// Arguments that the collector could not read.
    pub unreadable: u64,
    /// Lists of sizes that were too long.
    pub lists: u64,
    /// Sends and receives whose other half was not found.
    pub unmatched_messages: u64,
    /// Messages whose sender and receiver recorded different sizes.
    pub different_sizes: u64,
    /// Collectives in which ranks are missing; waiting for those is not counted.
    pub incomplete_collectives: u64,
    /// Messages that arrived before they were sent, on the corrected clock.
    pub reversed_messages: u64,
    /// Ranks that have switched recording off for a time (`MPI_Pcontrol(0)`).
    pub switched_off_ranks: u64,
    /// Calls that they have made meanwhile and that are in the files because other calls meet them. They are in no
    /// table, and nothing waits in them. Files of older versions lack them: the messages and collectives of such a
    /// rank are not joined from there on.
    pub switched_off_calls: u64,
}

/// One rank.
#[derive(Clone, Debug, Serialize)]
pub struct RankRow {
    /// World rank.
    pub rank: u32,
    /// Position in `hosts`.
    pub host: u32,
    /// From `MPI_Init` to the end.
    pub wall_s: f64,
    /// Share of it in MPI.
    pub mpi_pct: f64,
    /// Calls.
    pub calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent in messages.
    pub sent_bytes: u64,
    /// Bytes received in messages.
    pub received_bytes: u64,
    /// Time waiting for others.
    pub wait_s: f64,
    /// Time that others waited for this rank.
    pub late_s: f64,
    /// Function of the longest call; null without calls.
    pub slowest: Option<&'static str>,
    /// How long that took.
    pub slowest_s: f64,
    /// Whether it finalized.
    pub finalized: bool,
    /// Threads that called MPI.
    pub threads: u32,
}

/// Messages of `from` to `to` bytes.
#[derive(Clone, Debug, Serialize)]
pub struct SizeRow {
    /// Smallest size.
    pub from: u64,
    /// Largest size.
    pub to: u64,
    /// Messages.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Who sends to whom: a row a sender, a column a receiver. With more than 64 ranks, row `i` of 64 stands
/// for ranks `i * ranks / 64` to `(i + 1) * ranks / 64`.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// Rows and columns.
    pub size: u32,
    /// Whether cells stand for several ranks.
    pub binned: bool,
    /// Bytes.
    pub bytes: Vec<Vec<u64>>,
    /// Messages.
    pub messages: Vec<Vec<u64>>,
}

/// Share of the ranks' time in classes of calls, over 100 equal parts of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Pattern {
    /// Names of the classes.
    pub classes: Vec<&'static str>,
    /// For each class, the share of time in percent in each part.
    pub share_pct: Vec<Vec<f64>>,
}

/// A region.
#[derive(Clone, Debug, Serialize)]
pub struct RegionRow {
    /// Names from the outermost region on.
    pub path: Vec<String>,
    /// How often it was entered.
    pub count: u64,
    /// Time in it, regions inside it included.
    pub time_s: f64,
    /// Part of it in MPI.
    pub mpi_s: f64,
    /// Ranks that entered it.
    pub ranks: u32,
    /// The least and the most time that one of them spent in it.
    pub rank_min_s: f64,
    /// See `rank_min_s`.
    pub rank_max_s: f64,
}

/// A communicator.
#[derive(Clone, Debug, Serialize)]
pub struct CommunicatorRow {
    /// Key that all members agree on, as hexadecimal digits.
    pub key: String,
    /// `MPI_COMM_WORLD`, `MPI_COMM_SELF` or its key.
    pub name: String,
    /// Key of the communicator that it was made from.
    pub parent: Option<String>,
    /// Members.
    pub size: u32,
    /// Members of the other group; 0 if there is only one.
    pub remote_size: u32,
    /// Calls on it.
    pub calls: u64,
    /// Bytes that calls on it were given.
    pub bytes: u64,
    /// Time in them.
    pub time_s: f64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A sum of numbers from files, which can say anything.
fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

/// Clocks of a run, corrected by its messages. Reads the whole trace if it has several hosts, unless they are
/// stored in its directory.
pub fn clocks(program: &Program, threads: usize) -> Result<Clocks, ReadError> {
    if program.hosts.len() < 2 {
        return Ok(Clocks::measured(program));
    }
    match stored::read(program) {
        Some(clocks) => Ok(clocks),
        None => pool(threads, || Ok(settle(program, Pass::Messages)?.0)),
    }
}

/// Times that the whole trace is read until the clocks are good, once a sample has corrected them: hardly ever more
/// than once.
const PASSES: usize = 4;

/// Reads the trace until no message arrives before it was sent.
fn settle(program: &Program, pass: Pass) -> Result<(Clocks, Joined), ReadError> {
    if let Some(clocks) = stored::read(program) {
        let joined = run(program, &clocks, None, pass, Until::End)?;
        return Ok((clocks, joined));
    }
    let mut clocks = Clocks::measured(program);
    let several = program.hosts.len() > 1;
    if several {
        // Most clocks are measured so well that no message arrives too early: then the trace is read once.
        let joined = run(program, &clocks, Some(&Slack::new(&clocks)), pass, Until::Reversed)?;
        if let (false, Some(slack)) = (joined.gave_up, &joined.slack)
            && !clocks.correct(program, slack)
        {
            return Ok(settled(program, clocks, joined));
        }
        drop(joined);
        clocks = Clocks::measured(program);
        let slack = Slack::of_sample(&clocks);
        if let Some(sample) = run(program, &clocks, Some(&slack), Pass::Sample, Until::End)?.slack {
            clocks.correct_measured(program, &sample);
        }
    }
    let mut passes = 1;
    loop {
        let slack = several.then(|| Slack::new(&clocks));
        let joined = run(program, &clocks, slack.as_ref(), pass, Until::End)?;
        let changed = match &joined.slack {
            Some(slack) if passes < PASSES => clocks.correct(program, slack),
            _ => false,
        };
        if !changed {
            return Ok(settled(program, clocks, joined));
        }
        passes += 1;
    }
}

/// Clocks that are good, for the next time as well.
fn settled(program: &Program, clocks: Clocks, joined: Joined) -> (Clocks, Joined) {
    if is_whole(program, &joined) {
        stored::write(program, &clocks);
    }
    (clocks, joined)
}

/// Whether the files have been read without finding damage. The end of a file that is gone shows only in the
/// number of events.
fn is_whole(program: &Program, joined: &Joined) -> bool {
    let counted = program.ranks.iter().zip(&joined.states);
    joined.damage.iter().all(|damage| *damage == Damage::default())
        && counted.into_iter().all(|(rank, state)| state.events >= rank.events)
}

/// Runs in a pool of its own, or in the global one if that cannot be made.
fn pool<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

/// The profile of a program, with a number of threads (0: as many as CPUs). It does not depend on that
/// number.
pub fn profile(program: &Program, threads: usize) -> Result<Profile, ReadError> {
    pool(threads, || {
        let (clocks, joined) = settle(program, Pass::Profile)?;
        Ok(Build { program, clocks: &clocks, joined: &joined }.profile())
    })
}

/// The profile with a timeline, which runs of more than [`crate::TIMELINE_RANKS`] ranks do not have. As
/// [`profile`] in everything else.
pub fn profile_over_time(
    program: &Program,
    threads: usize,
) -> Result<(Profile, Option<Timeline>), ReadError> {
    pool(threads, || {
        let (clocks, mut joined) = settle(program, Pass::Timeline)?;
        let timeline = joined.timeline.take();
        Ok((Build { program, clocks: &clocks, joined: &joined }.profile(), timeline))
    })
}

/// Everything that is needed to follow waiting back to its causes: the profile with its timeline, the clocks, begin
/// and end of each rank, and every wait. As [`profile_over_time`] in everything else, except that memory grows
/// with the number of waits.
pub fn dependencies(program: &Program, threads: usize) -> Result<Dependencies, ReadError> {
    pool(threads, || {
        let (clocks, mut joined) = settle(program, Pass::Waits)?;
        let timeline = joined.timeline.take();
        let waits = waited(std::mem::take(&mut joined.spans));
        let mut ties = std::mem::take(&mut joined.ties);
        ties.sort_unstable();
        let rows = program.ranks.iter().zip(&joined.states);
        let spans = rows.map(|(rank, state)| rank_span(&clocks, rank, state)).collect();
        let profile = Build { program, clocks: &clocks, joined: &joined }.profile();
        Ok(Dependencies { profile, timeline, clocks, spans, waits, ties })
    })
}

/// Makes the tables of a profile from what was joined.
struct Build<'a> {
    program: &'a Program,
    clocks: &'a Clocks,
    joined: &'a Joined,
}

impl Build<'_> {
    fn profile(&self) -> Profile {
        let Build { program, clocks, joined } = *self;
        let by_rank = self.by_rank();
        let thread_s: f64 =
            by_rank.iter().map(|row| row.wall_s * f64::from(row.threads.max(1))).sum();
        let states = &joined.states;
        let mpi_ns = total(states.iter().map(|state| state.mpi_ns));
        let events = total(states.iter().map(|state| state.events));
        let (begin, end) = clocks.span;
        let (regions, other_regions) = self.regions();
        let (communicators, other_communicators) = self.communicators();
        Profile {
            ranks: program.size,
            ranks_read: program.ranks.len() as u32,
            unfinished_ranks: program
                .ranks
                .iter()
                .filter(|rank| !rank.finalized)
                .map(|rank| rank.rank)
                .collect(),
            command: program.command.clone(),
            library: program.library.clone(),
            wall_s: seconds(end.saturating_sub(begin).max(0) as u64),
            mpi_pct: percent(seconds(mpi_ns), thread_s),
            events,
            messages: total(states.iter().map(|state| state.messages)),
            message_bytes: total(states.iter().map(|state| state.sent)),
            calls: self.calls(thread_s),
            waits: self.waits(mpi_ns),
            collector: self.collector(events, thread_s),
            lost: self.lost(),
            hosts: clocks.corrections.clone(),
            clock_contradiction_ns: clocks.contradiction_ns,
            by_rank,
            sizes: self.sizes(),
            matrix: self.matrix(),
            pattern: self.pattern(),
            regions,
            other_regions,
            communicators,
            other_communicators,
        }
    }

    fn states(&self) -> impl Iterator<Item = (usize, &RankState)> {
        self.joined.states.iter().enumerate()
    }

    fn by_rank(&self) -> Vec<RankRow> {
        let rows = self.program.ranks.iter().zip(&self.joined.states).enumerate();
        rows.map(|(slot, (rank, state))| {
            let (begin, end) = rank_span(self.clocks, rank, state);
            let wall_s = seconds(end.saturating_sub(begin).max(0) as u64);
            let threads = rank.threads.max(1);
            let sum = |rows: &[[u64; 3]]| rows.get(slot).map_or(0, |row| total(*row));
            RankRow {
                rank: rank.rank,
                host: rank.host,
                wall_s,
                mpi_pct: percent(seconds(state.mpi_ns), wall_s * f64::from(threads)),
                calls: state.events.saturating_sub(state.off_calls),
                messages: state.messages,
                sent_bytes: state.sent,
                received_bytes: state.received,
                wait_s: seconds(sum(&self.joined.waits.waiting)),
                late_s: seconds(sum(&self.joined.waits.late)),
                slowest: Call::from_number(state.slowest.1)
                    .filter(|_| state.events > state.off_calls)
                    .map(Call::name),
                slowest_s: seconds(state.slowest.0),
                finalized: rank.finalized,
                threads,
            }
        })
        .collect()
    }

    fn calls(&self, thread_s: f64) -> Vec<CallRow> {
        let mut rows = Vec::new();
        let waits = &self.joined.waits.by_call;
        for number in 0..Call::ALL.len() * 2 {
            let Some(call) = Call::from_number((number / 2) as u16) else { continue };
            let used: Vec<_> = self
                .states()
                .filter_map(|(_, state)| state.calls.get(number))
                .filter(|sum| sum.count > 0)
                .collect();
            if used.is_empty() {
                continue;
            }
            let ns = total(used.iter().map(|sum| sum.ns));
            let name = if number % 2 == 0 { Some(call.name()) } else { call.large_name() };
            rows.push(CallRow {
                name: name.unwrap_or(call.name()).to_owned(),
                class: class_of(call),
                count: total(used.iter().map(|sum| sum.count)),
                bytes: total(used.iter().map(|sum| sum.bytes)),
                time_s: seconds(ns),
                share_pct: percent(seconds(ns), thread_s),
                wait_s: seconds(waits.get(number).copied().unwrap_or(0)),
                longest_s: seconds(used.iter().map(|sum| sum.longest).max().unwrap_or(0)),
                ranks: used.len() as u32,
                rank_min_s: seconds(used.iter().map(|sum| sum.ns).min().unwrap_or(0)),
                rank_max_s: seconds(used.iter().map(|sum| sum.ns).max().unwrap_or(0)),
                errors: total(used.iter().map(|sum| sum.errors)),
            });
        }
        rows.sort_by(|a, b| b.time_s.total_cmp(&a.time_s).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    fn waits(&self, mpi_ns: u64) -> WaitSums {
        let waits = &self.joined.waits;
        let [late_sender_ns, late_receiver_ns, collective_ns] = waits.total;
        let total_ns = total(waits.total);
        let rank = |slot: u32| self.program.ranks.get(slot as usize).map_or(0, |rank| rank.rank);
        let mut pairs: Vec<_> = waits.pairs.iter().map(|(pair, ns)| (*ns, *pair)).collect();
        pairs.sort_unstable_by_key(|(ns, pair)| (std::cmp::Reverse(*ns), *pair));
        let size = self.program.size.min(MATRIX) as usize;
        let mut matrix_ns = vec![vec![0u64; size]; size];
        for (ns, (waiting, late, _)) in &pairs {
            let (row, column) = (self.cell(rank(*waiting)), self.cell(rank(*late)));
            if let Some(sum) = matrix_ns.get_mut(row).and_then(|row| row.get_mut(column)) {
                *sum = sum.saturating_add(*ns);
            }
        }
        let others = total(waits.others.iter().copied());
        let rest = total(pairs.iter().skip(TOP_PAIRS).map(|(ns, _)| *ns));
        pairs.truncate(TOP_PAIRS);
        let mut collectives: Vec<CollectiveWait> = waits
            .by_kind
            .iter()
            .enumerate()
            .filter_map(|(number, ns)| Some((Call::from_number(number as u16)?, *ns)))
            .filter(|(call, ns)| *ns > 0 && crate::kinds::is_collective(*call))
            .map(|(call, ns)| CollectiveWait {
                name: call.name().to_owned(),
                wait_s: seconds(ns),
                wait_ns: ns,
            })
            .collect();
        collectives.sort_by_key(|row| std::cmp::Reverse(row.wait_ns));
        WaitSums {
            late_sender_s: seconds(late_sender_ns),
            late_receiver_s: seconds(late_receiver_ns),
            collective_s: seconds(collective_ns),
            late_sender_ns,
            late_receiver_ns,
            collective_ns,
            total_ns,
            mpi_share_pct: percent(total_ns as f64, mpi_ns as f64),
            late_receiver_bytes: LATE_RECEIVER_BYTES,
            collectives,
            pairs: pairs
                .into_iter()
                .map(|(ns, (waiting, late, class))| Pair {
                    waiting: rank(waiting),
                    late: rank(late),
                    class: Wait::NAMES.get(usize::from(class)).copied().unwrap_or(""),
                    wait_s: seconds(ns),
                    wait_ns: ns,
                })
                .collect(),
            other_pairs_ns: rest.saturating_add(others),
            matrix_ns,
            matrix_other_ns: others,
        }
    }

    fn collector(&self, events: u64, thread_s: f64) -> Collector {
        let cost_ns: f64 = self
            .program
            .ranks
            .iter()
            .zip(&self.joined.states)
            .map(|(rank, state)| {
                let written = state.events.saturating_sub(state.repeated);
                rank.cost_ns * written as f64 + rank.passed_ns * state.repeated as f64
            })
            .sum();
        let divide = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        Collector {
            ns_per_call: divide(cost_ns, events as f64),
            share_pct: percent(cost_ns / 1e9, thread_s),
            bytes_per_event: divide(self.program.bytes() as f64, events as f64),
        }
    }

    fn lost(&self) -> LostSums {
        let unjoined = &self.joined.unjoined;
        let mut lost = LostSums {
            unmatched_messages: unjoined.messages,
            different_sizes: unjoined.sizes,
            incomplete_collectives: unjoined.collectives,
            reversed_messages: unjoined.reversed,
            ..LostSums::default()
        };
        let rows = self.program.ranks.iter().zip(&self.joined.states).zip(&self.joined.damage);
        for ((rank, state), damage) in rows {
            let Damage { chunks, events, cut } = *damage;
            lost.chunks = lost.chunks.saturating_add(chunks);
            lost.cut_chunks = lost.cut_chunks.saturating_add(cut);
            // What the header counts and was not read is lost even if its chunk is gone.
            let missing = rank.events.saturating_sub(state.events).min(rank.length);
            lost.events = total([lost.events, events.max(missing), rank.lost.no_space]);
            lost.table_full = lost.table_full.saturating_add(rank.lost.table_full);
            lost.unreadable = lost.unreadable.saturating_add(rank.lost.unreadable);
            lost.lists = lost.lists.saturating_add(rank.lost.lists);
            lost.unmatched_messages = lost.unmatched_messages.saturating_add(state.unjoined);
            lost.switched_off_ranks += u64::from(state.switched_off > 0);
            lost.switched_off_calls = lost.switched_off_calls.saturating_add(state.off_calls);
        }
        lost
    }

    fn sizes(&self) -> Vec<SizeRow> {
        let bucket = |number: usize| {
            let mut row = SizeRow {
                from: number.checked_sub(1).map_or(0, |power| 1 << power),
                to: number.checked_sub(1).map_or(0, |power| (1u64 << power) - 1 + (1u64 << power)),
                count: 0,
                bytes: 0,
            };
            for (_, state) in self.states() {
                let (count, bytes) = state.sizes.get(number).copied().unwrap_or_default();
                row.count = row.count.saturating_add(count);
                row.bytes = row.bytes.saturating_add(bytes);
            }
            row
        };
        (0..65).map(bucket).filter(|row| row.count > 0).collect()
    }

    fn cell(&self, world: u32) -> usize {
        matrix_cell(world, self.program.size)
    }

    fn matrix(&self) -> Matrix {
        let size = self.program.size.min(MATRIX);
        let cells = vec![vec![0u64; size as usize]; size as usize];
        let (mut bytes, mut messages) = (cells.clone(), cells);
        for (rank, (_, state)) in self.program.ranks.iter().zip(self.states()) {
            let row = self.cell(rank.rank);
            let (Some(bytes), Some(messages)) = (bytes.get_mut(row), messages.get_mut(row)) else {
                continue;
            };
            for ((sum, count), (to, all)) in
                state.row.iter().zip(bytes.iter_mut().zip(messages.iter_mut()))
            {
                *to = to.saturating_add(*sum);
                *all = all.saturating_add(*count);
            }
        }
        Matrix { size, binned: self.program.size > MATRIX, bytes, messages }
    }

    fn pattern(&self) -> Pattern {
        let (begin, end) = self.clocks.span;
        let threads: f64 =
            self.program.ranks.iter().map(|rank| f64::from(rank.threads.max(1))).sum();
        let whole = end.saturating_sub(begin) as f64 / BINS as f64 * threads;
        let share = |class: usize, bin: usize| {
            let ns = |state: &RankState| {
                state.pattern.get(bin).and_then(|bin| bin.get(class)).copied().unwrap_or(0)
            };
            percent(total(self.states().map(|(_, state)| ns(state))) as f64, whole)
        };
        Pattern {
            classes: CLASSES.to_vec(),
            share_pct: (0..CLASSES.len())
                .map(|class| (0..BINS).map(|bin| share(class, bin)).collect())
                .collect(),
        }
    }

    /// Those with the most time, and how many more there are.
    fn regions(&self) -> (Vec<RegionRow>, u64) {
        /// Distinct region paths kept; the rest are only counted.
        const MAX_REGIONS: usize = 1 << 14;
        let mut rows: BTreeMap<Vec<String>, Vec<(u64, u64, u64)>> = BTreeMap::new();
        let mut more = 0;
        for (_, state) in self.states() {
            let mut own: BTreeMap<Vec<String>, (u64, u64, u64)> = BTreeMap::new();
            for node in 1..state.regions.len() {
                let mut path = Vec::new();
                let mut at = node;
                while let Some(sum) = state.regions.get(at).filter(|_| at > 0) {
                    let name = state.names.get(&sum.region).cloned();
                    path.push(name.unwrap_or_else(|| format!("region {}", sum.region)));
                    at = sum.parent;
                }
                path.reverse();
                if let Some(sum) = state.regions.get(node) {
                    let row = own.entry(path).or_default();
                    row.0 = row.0.saturating_add(sum.count);
                    row.1 = row.1.saturating_add(sum.ns);
                    row.2 = row.2.saturating_add(sum.mpi_ns);
                }
            }
            for (path, sums) in own {
                // Ranks with regions of their own must not take memory without bounds; what is known stays
                // complete.
                if rows.len() < MAX_REGIONS || rows.contains_key(&path) {
                    rows.entry(path).or_default().push(sums);
                } else {
                    more += 1;
                }
            }
        }
        let mut rows: Vec<RegionRow> = rows
            .into_iter()
            .map(|(path, ranks)| RegionRow {
                path,
                count: total(ranks.iter().map(|sums| sums.0)),
                time_s: seconds(total(ranks.iter().map(|sums| sums.1))),
                mpi_s: seconds(total(ranks.iter().map(|sums| sums.2))),
                ranks: ranks.len() as u32,
                rank_min_s: seconds(ranks.iter().map(|sums| sums.1).min().unwrap_or(0)),
                rank_max_s: seconds(ranks.iter().map(|sums| sums.1).max().unwrap_or(0)),
            })
            .collect();
        rows.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
        let others = more + rows.len().saturating_sub(TOP_ROWS) as u64;
        rows.truncate(TOP_ROWS);
        // Outer regions stand before inner ones.
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        (rows, others)
    }

    /// Those with the most time, and how many more there are.
    fn communicators(&self) -> (Vec<CommunicatorRow>, u64) {
        let mut rows: BTreeMap<u64, CommunicatorRow> = BTreeMap::new();
        let mut own = CommunicatorRow {
            key: String::new(),
            name: "MPI_COMM_SELF".to_owned(),
            parent: None,
            size: 1,
            remote_size: 0,
            calls: 0,
            bytes: 0,
            time_s: 0.0,
        };
        for (_, state) in self.states() {
            for comm in &state.comms {
                let row = if comm.number == 1 {
                    &mut own
                } else {
                    let key = format!("{:x}", comm.key);
                    rows.entry(comm.key).or_insert_with(|| CommunicatorRow {
                        name: if comm.number == 0 {
                            "MPI_COMM_WORLD".to_owned()
                        } else {
                            key.clone()
                        },
                        key,
                        parent: comm.parent.map(|key| format!("{key:x}")),
                        size: comm.size,
                        remote_size: comm.remote_size,
                        calls: 0,
                        bytes: 0,
                        time_s: 0.0,
                    })
                };
                row.calls = row.calls.saturating_add(comm.calls);
                row.bytes = row.bytes.saturating_add(comm.bytes);
                row.time_s += seconds(comm.ns);
            }
        }
        let mut rows: Vec<_> =
            rows.into_values().chain([own]).filter(|row| row.calls > 0).collect();
        rows.sort_by(|a, b| b.time_s.total_cmp(&a.time_s).then_with(|| a.key.cmp(&b.key)));
        let others = rows.len().saturating_sub(TOP_ROWS) as u64;
        rows.truncate(TOP_ROWS);
        (rows, others)
    }
}
