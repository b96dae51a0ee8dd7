//! Two runs of a program compared: what changed in time, waits and calls. The second may be a re-enactment of the
//! first.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result};
use mpi_abi::{Call, Class};
use program::{Clocks, Profile, Program, RankRow, What, stream};
use serde::Serialize;

/// Two runs of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Programs {
    pub before: Run,
    pub after: Run,
    /// Change of the time from `MPI_Init` to `MPI_Finalize`, in per cent of before.
    pub change_pct: f64,
    /// Regions, the largest change of time first. Times are sums over the ranks.
    pub regions: Vec<RegionChange>,
    /// Waits of all ranks by class.
    pub waits: Vec<WaitChange>,
    /// MPI functions, the largest change of time first. Times are sums over the ranks.
    pub calls: Vec<CallChange>,
    /// By rank.
    pub by_rank: Vec<RankChange>,
    /// What the comparison does not show.
    pub remarks: Vec<String>,
}

/// One of the two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    pub directory: String,
    pub command: String,
    pub library: String,
    pub ranks: u32,
    /// From the first rank that goes on after `MPI_Init` to the beginning of the last `MPI_Finalize`.
    pub time_s: f64,
    /// Mean over the ranks of the time between calls.
    pub compute_s: f64,
    /// Calls of all ranks, `MPI_Init`, `MPI_Finalize` and `MPI_Pcontrol` left out.
    pub calls: u64,
    pub messages: u64,
    pub message_bytes: u64,
    /// Waiting of all ranks.
    pub wait_s: f64,
}

/// A number in both runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Both<T> {
    pub before: T,
    pub after: T,
}

impl Both<f64> {
    pub fn change(&self) -> f64 {
        self.after - self.before
    }

    /// In per cent of before; None if that is 0.
    pub fn change_pct(&self) -> Option<f64> {
        (self.before > 0.0).then(|| 100.0 * (self.after / self.before - 1.0))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionChange {
    /// Names from the outermost region on.
    pub path: Vec<String>,
    /// How often it was entered.
    pub count: Both<u64>,
    /// Time in it, regions inside it included.
    pub time_s: Both<f64>,
    /// Part of it in MPI.
    pub mpi_s: Both<f64>,
    /// The most time that one rank spent in it.
    pub rank_max_s: Both<f64>,
    /// Change of the time in per cent of before; null if it was not there.
    pub change_pct: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitChange {
    /// `late sender`, `late receiver`, or the function of a collective.
    pub class: String,
    pub time_s: Both<f64>,
    pub change_pct: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallChange {
    pub name: String,
    pub count: Both<u64>,
    pub bytes: Both<u64>,
    pub time_s: Both<f64>,
    /// Part of it that was waiting.
    pub wait_s: Both<f64>,
    pub change_pct: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankChange {
    pub rank: u32,
    /// From `MPI_Init` to `MPI_Finalize`.
    pub time_s: Both<f64>,
    pub wait_s: Both<f64>,
    /// Time that others waited for this rank.
    pub late_s: Both<f64>,
}

/// A run that has been read.
struct Side {
    profile: Profile,
    /// When each rank goes on after `MPI_Init`, and the beginning of its `MPI_Finalize`, on the common clock, ns.
    spans: Vec<(i64, i64)>,
    run: Run,
}

/// Compares two runs of a program.
pub fn compare(before: &Path, after: &Path, threads: usize) -> Result<Programs> {
    let [before, after] = [before, after].map(|dir| read(dir, threads));
    let (before, after) = (before?, after?);
    let time = Both { before: before.run.time_s, after: after.run.time_s };
    Ok(Programs {
        change_pct: time.change_pct().unwrap_or(0.0),
        regions: regions(&before.profile, &after.profile),
        waits: waits(&before.profile, &after.profile),
        calls: calls(&before.profile, &after.profile),
        by_rank: by_rank(&before, &after),
        remarks: remarks(&before, &after),
        before: before.run,
        after: after.run,
    })
}

fn read(dir: &Path, threads: usize) -> Result<Side> {
    let program = program::open(dir)?;
    let named = || format!("cannot read {}", dir.display());
    let clocks = program::clocks(&program, threads).with_context(named)?;
    let profile = program::profile(&program, threads).with_context(named)?;
    let spans = spans(&program, &clocks).with_context(named)?;
    let begin = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let own = || profile.calls.iter().filter(|row| !is_frame(&row.name));
    let in_mpi: f64 = own().map(|row| row.time_s).sum();
    let all: i64 = spans.iter().map(|(begin, end)| (end - begin).max(0)).sum();
    let ranks = f64::from(profile.ranks.max(1));
    let run = Run {
        directory: dir.display().to_string(),
        command: profile.command.join(" "),
        library: profile.library.lines().next().unwrap_or_default().to_owned(),
        ranks: profile.ranks,
        time_s: (end - begin).max(0) as f64 / 1e9,
        compute_s: ((all as f64 / 1e9 - in_mpi) / ranks).max(0.0),
        calls: own().map(|row| row.count).sum(),
        messages: profile.messages,
        message_bytes: profile.message_bytes,
        wait_s: profile.waits.total_ns as f64 / 1e9,
    };
    Ok(Side { profile, spans, run })
}

/// Calls that begin and end a run, or mark its regions.
fn is_frame(name: &str) -> bool {
    Call::ALL.iter().any(|call| call.name() == name && call.class() == Class::Environment)
}

fn spans(program: &Program, clocks: &Clocks) -> Result<Vec<(i64, i64)>> {
    let mut spans = Vec::with_capacity(program.ranks.len());
    for (slot, rank) in program.ranks.iter().enumerate() {
        let clock = clocks.host(rank.host);
        let mut begin = clock.common(rank.start.ns as i64);
        let mut end = clock.common(rank.end_ns() as i64);
        stream(program, slot, clocks, |moment, _| {
            let (What::Call(call) | What::Off(call)) = &moment.what else { return };
            match call.signature.call {
                // The collector starts after it, on all ranks together.
                Call::Init | Call::Init_thread => begin = begin.max(moment.end),
                Call::Finalize => end = moment.begin,
                _ => {}
            }
        })?;
        spans.push((begin, end.max(begin)));
    }
    Ok(spans)
}

/// The rows of two lists with the same key.
fn join<'a, T, K: Ord>(
    before: &'a [T],
    after: &'a [T],
    key: impl Fn(&T) -> K,
) -> Vec<(K, Option<&'a T>, Option<&'a T>)> {
    let mut rows: BTreeMap<K, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for row in before {
        rows.entry(key(row)).or_default().0 = Some(row);
    }
    for row in after {
        rows.entry(key(row)).or_default().1 = Some(row);
    }
    rows.into_iter().map(|(key, (before, after))| (key, before, after)).collect()
}

fn both<T, V: Default>(before: Option<&T>, after: Option<&T>, of: impl Fn(&T) -> V) -> Both<V> {
    Both { before: before.map(&of).unwrap_or_default(), after: after.map(&of).unwrap_or_default() }
}

/// The largest change first; the order of equal ones does not depend on rounding.
fn by_change<T>(rows: &mut [T], time: impl Fn(&T) -> Both<f64>) {
    rows.sort_by(|a, b| time(b).change().abs().total_cmp(&time(a).change().abs()));
}

fn regions(before: &Profile, after: &Profile) -> Vec<RegionChange> {
    let rows = join(&before.regions, &after.regions, |row| row.path.clone());
    let change = |(path, before, after): (Vec<String>, _, _)| {
        let time_s = both(before, after, |row: &program::RegionRow| row.time_s);
        RegionChange {
            path,
            count: both(before, after, |row| row.count),
            time_s,
            mpi_s: both(before, after, |row| row.mpi_s),
            rank_max_s: both(before, after, |row| row.rank_max_s),
            change_pct: time_s.change_pct(),
        }
    };
    let mut changes: Vec<RegionChange> = rows.into_iter().map(change).collect();
    by_change(&mut changes, |row| row.time_s);
    changes
}

fn calls(before: &Profile, after: &Profile) -> Vec<CallChange> {
    let rows = join(&before.calls, &after.calls, |row| row.name.clone());
    let change = |(name, before, after): (String, _, _)| {
        let time_s = both(before, after, |row: &program::CallRow| row.time_s);
        CallChange {
            name,
            count: both(before, after, |row| row.count),
            bytes: both(before, after, |row| row.bytes),
            time_s,
            wait_s: both(before, after, |row| row.wait_s),
            change_pct: time_s.change_pct(),
        }
    };
    let mut changes: Vec<CallChange> =
        rows.into_iter().filter(|(name, ..)| !is_frame(name)).map(change).collect();
    by_change(&mut changes, |row| row.time_s);
    changes
}

fn waits(before: &Profile, after: &Profile) -> Vec<WaitChange> {
    let classes = |profile: &Profile| -> BTreeMap<String, u64> {
        let waits = &profile.waits;
        let messages = [
            ("late sender".to_owned(), waits.late_sender_ns),
            ("late receiver".to_owned(), waits.late_receiver_ns),
        ];
        let collectives = waits.collectives.iter();
        // Waiting in MPI_Finalize is after the run.
        messages.into_iter().chain(collectives.map(|row| (row.name.clone(), row.wait_ns))).collect()
    };
    let (before, after) = (classes(before), classes(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let ns = |classes: &BTreeMap<String, u64>, name: &String| {
        classes.get(name).copied().unwrap_or(0) as f64 / 1e9
    };
    let change = |name: &String| {
        let time_s = Both { before: ns(&before, name), after: ns(&after, name) };
        WaitChange { class: name.clone(), time_s, change_pct: time_s.change_pct() }
    };
    let mut changes: Vec<WaitChange> = names.into_iter().map(change).collect();
    by_change(&mut changes, |row| row.time_s);
    changes
}

fn by_rank(before: &Side, after: &Side) -> Vec<RankChange> {
    let time = |side: &Side, rank: u32| {
        let slot = side.profile.by_rank.iter().position(|row| row.rank == rank);
        let span = slot.and_then(|slot| side.spans.get(slot)).copied().unwrap_or_default();
        (span.1 - span.0) as f64 / 1e9
    };
    let rows = join(&before.profile.by_rank, &after.profile.by_rank, |row: &RankRow| row.rank);
    let change = |(rank, one, other): (u32, _, _)| RankChange {
        rank,
        time_s: Both { before: time(before, rank), after: time(after, rank) },
        wait_s: both(one, other, |row: &RankRow| row.wait_s),
        late_s: both(one, other, |row| row.late_s),
    };
    rows.into_iter().map(change).collect()
}

fn remarks(before: &Side, after: &Side) -> Vec<String> {
    let mut remarks = Vec::new();
    let ranks = [&before.run, &after.run].map(|run| run.ranks);
    if ranks[0] != ranks[1] {
        let [before, after] = ranks;
        remarks.push(format!(
            "the runs have {before} and {after} ranks: sums over the ranks are not comparable"
        ));
    }
    for (name, side) in [("before", before), ("after", after)] {
        let unfinished = side.profile.unfinished_ranks.len();
        if unfinished > 0 {
            remarks.push(format!("{name}: {unfinished} ranks did not reach MPI_Finalize"));
        }
        let hidden = side.profile.other_regions;
        if hidden > 0 {
            remarks.push(format!("{name}: {hidden} regions with the least time are omitted"));
        }
    }
    remarks
}
