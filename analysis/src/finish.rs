//! Builds the summary from the sums of the pass: shares, windows, rankings, and the period of each row.

use std::borrow::Cow;
use std::collections::BTreeSet;

use trace::{Class, Mode, OutsideEvidence, RowKey, Source, Trailer, Wait, outside_names};

use crate::comparable;
use crate::costs::{self, Bin, Costs, Distribution};
use crate::detail;
use crate::lanes::{self, SourceOnLane, Watched, Window, pct};
use crate::nodes::{self, Durations};
use crate::pass::{Account, Summariser};
use crate::period::{self, Finder, Later, Period, Whole};
use crate::processes;
use crate::program::competition::Crowd;
use crate::program::{self, ThreadFacts, Threads};
use crate::rows::{Row, Rows};
use crate::starts::Starts;
use crate::summary::*;
use crate::{Contents, Summary};

/// A thread that takes more than this part of its period shares the CPU with the measured one: its runs
/// are the scheduler's time slices, which are regular as well.
const TIME_SLICES: f64 = 0.25;
/// Lanes searched for the period of a row: those with the most events. It has to hold on the others too.
const LANES_SEARCHED: usize = 4;
/// Policies listed for a row.
const POLICIES: usize = 4;

impl Summariser {
    /// The summary of everything added.
    #[must_use]
    pub fn finish(self, contents: &Contents<'_>) -> Summary {
        self.finish_with_costs(contents).0
    }

    /// The same, with the distributions behind its quantiles.
    #[must_use]
    pub fn finish_with_costs(mut self, contents: &Contents<'_>) -> (Summary, Costs) {
        self.rows.extend(contents.sources);
        self.close_open();
        build(&mut self, contents)
    }
}

fn build(pass: &mut Summariser, contents: &Contents<'_>) -> (Summary, Costs) {
    let facts = pass.threads.as_ref().map(|threads| threads.finish(contents)).unwrap_or_default();
    let crowd = crowd(pass, contents, &facts);
    let pass = &*pass;
    let manifest = contents.manifest;
    let basis = basis(manifest.mode, pass.all.detours);
    let watched = watched(pass, contents, &facts);
    let base_ns: u64 = watched.iter().map(Watched::base_ns).fold(0, u64::saturating_add);
    let wanted_ns = lanes::wanted_ns(watched.iter());
    let lost_ns = watched
        .iter()
        .filter_map(|w| w.state)
        .map(|s| s.taken_ns(basis))
        .fold(0, u64::saturating_add);
    let duration_ns = duration_ns(&watched);
    let taken_ns = pass.all.len_ns.saturating_add(pass.beside.cost_ns_total);

    let durations = Durations::new(&manifest.nodes, &watched);
    let (sources, costs) = sources(pass, contents, &facts, taken_ns, &watched, &durations);
    let trailer = contents.trailer;
    let nodes = nodes::rows(&manifest.nodes, &watched, basis);
    let wakeup_latency = pass.threads.as_ref().and_then(wakeup_latency);
    let summary = Summary {
        host: manifest.host.clone(),
        kernel: manifest.kernel.clone(),
        detour_version: manifest.detour_version.clone(),
        job_id: manifest.job_id.clone(),
        started_unix_s: manifest.started_unix_s,
        cpu_model: manifest.cpu_model.clone(),
        mode: manifest.mode,
        cost_basis: basis,
        duration_s: duration_ns as f64 / 1e9,
        noise_pct: pct(lost_ns, base_ns),
        wanted_ns_total: wanted_ns,
        detours: pass.all.detours,
        detour_ns_total: pass.all.len_ns,
        taken_ns_total: taken_ns,
        beside_detours: pass.beside,
        outliers: nodes::outliers(&manifest.nodes, &nodes, &sources),
        nodes,
        cpus: watched.iter().filter_map(|w| w.cpu_row(basis)).collect(),
        threads: threads(contents, &watched, basis),
        waits: waits(pass, base_ns),
        wakeup_latency,
        wakeup_latency_from_ns: wakeup_latency.map(|_| shortest_wait_ns(contents)),
        self_competition: self_competition(&sources, crowd, base_ns),
        processes: processes::processes(&pass.rows, contents.sources, taken_ns),
        units: units(&sources, taken_ns),
        sources,
        attributed: attributed(&pass.all),
        attributed_over_1us: attributed(&pass.long),
        outside_kernel: outside(pass, contents, &durations),
        outside_evidence: OutsideEvidence::of(manifest, trailer),
        entry_exit_ns_total: pass.entry_exit_ns,
        cgroups: trailer.map(|t| t.cgroups.clone()).unwrap_or_default(),
        lost: trailer.map_or_else(Losses::default, |t| t.lost.into()),
        entries: trailer.and_then(|t| t.entries.clone()),
        closure_error: trailer.and_then(|t| t.closure_error),
        closure_wall_ns: trailer.and_then(|t| t.closure_wall_ns),
        overhead: trailer.map_or_else(OwnCost::default, |t| OwnCost {
            events: Some(t.overhead.events),
            bpf_ns_total: t.overhead.bpf_ns_total,
            cpu_pct: t.overhead.cpu_pct,
            reader_cpu_ns: Some(t.overhead.reader_cpu_ns),
        }),
        unbalanced_detours: pass.unbalanced,
        unknown_source_records: pass.unknown,
        hooks_missing: manifest.hooks_missing.clone(),
        limits: manifest.limits.clone(),
        remarks: remarks(pass, trailer),
        truncated: contents
            .truncated
            .map(str::to_owned)
            .or_else(|| trailer.is_none().then(|| "the recording has no trailer".to_owned()))
            .or_else(|| {
                let cut_off = manifest.nodes.iter().find(|node| node.lost.is_none())?;
                Some(format!("the recording of {} has no trailer", cut_off.host))
            }),
    };
    let [short, long] = &pass.outside;
    let outside = costs::together(short.costs.bins(), long.costs.bins());
    (summary, Costs { sources: costs, outside })
}

/// Remarks of the recording, and on what this summary omits.
fn remarks(pass: &Summariser, trailer: Option<&Trailer>) -> Vec<String> {
    let mut remarks = trailer.map(|t| t.remarks.clone()).unwrap_or_default();
    if pass.rows.are_too_many() {
        remarks.push("too many distinct names; the rest are grouped".to_owned());
    }
    if pass.room.full {
        let missing = "too many sources, CPUs or threads; figures by CPU and thread are incomplete";
        remarks.push(missing.to_owned());
    }
    remarks
}

/// Without detours, cost is based on records.
pub(crate) fn basis(mode: Mode, detours: u64) -> CostBasis {
    match mode {
        Mode::KernelOnly => CostBasis::Records,
        Mode::Program if detours == 0 => CostBasis::Records,
        _ => CostBasis::Detours,
    }
}

fn watched<'a>(
    pass: &'a Summariser,
    contents: &Contents<'a>,
    facts: &ThreadFacts,
) -> Vec<Watched<'a>> {
    let lanes = (0u32..).zip(contents.lanes).zip(lanes::totals(contents));
    lanes
        .map(|((id, lane), totals)| {
            let state = pass.lanes.get(&id);
            let host = contents.manifest.node_of(id).map(|node| node.host.as_str());
            let settings = contents.manifest.cpus_of(id);
            let window = Window::of(state.and_then(|s| s.seen), totals);
            let time = facts.times.get(id as usize).copied().flatten();
            let walk = pass.threads.as_ref().and_then(|threads| threads.lanes.get(&id));
            Watched { lane, host, settings, state, totals, window, time, walk }
        })
        .collect()
}

fn duration_ns(watched: &[Watched<'_>]) -> u64 {
    let (from, to) = lanes::ends(watched.iter().map(|w| w.window));
    to.saturating_sub(from)
}

fn threads(contents: &Contents<'_>, watched: &[Watched<'_>], basis: CostBasis) -> Vec<ThreadRow> {
    let bases: Vec<u64> = watched.iter().map(Watched::base_ns).collect();
    let lend = program::lend_noise(contents.lanes, &bases);
    let rows = watched.iter().zip(lend).filter_map(|(w, lends)| w.thread_row(basis, lends));
    let mut threads: Vec<ThreadRow> = rows.collect();
    threads.sort_by(|a, b| b.lost_ns_total.cmp(&a.lost_ns_total).then(a.tid.cmp(&b.tid)));
    threads
}

/// Waits of a program's threads for a CPU, longest total first.
fn waits(pass: &Summariser, base_ns: u64) -> Vec<WaitRow> {
    let kinds = Wait::ALL.into_iter().zip(&pass.waits).filter(|(_, waits)| waits.count() > 0);
    let total = |kind: Wait| {
        let threads = pass.threads.iter().flat_map(|threads| threads.lanes.values());
        threads.map(|walk| walk.waits[kind as usize].ns).fold(0, u64::saturating_add)
    };
    let row = |(kind, waits): (Wait, &Distribution)| WaitRow {
        kind,
        count: waits.count(),
        wait_ns_total: total(kind),
        wait_ns_p50: waits.quantile(0.5),
        wait_ns_p99: waits.quantile(0.99),
        wait_ns_max: waits.max(),
        wanted_pct: pct(total(kind), base_ns),
    };
    let mut rows: Vec<WaitRow> = kinds.map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.wait_ns_total));
    rows
}

/// Length of the shortest waits in the file: [`trace::SHORTEST_WAIT_NS`], or the threshold if that is
/// longer.
fn shortest_wait_ns(contents: &Contents<'_>) -> u64 {
    let threshold = comparable::threshold_ns(contents, &comparable::Part::default()).unwrap_or(0.0);
    trace::SHORTEST_WAIT_NS.max(threshold.ceil() as u64)
}

fn wakeup_latency(threads: &Threads) -> Option<Latency> {
    let mut all = Distribution::default();
    let each = threads.lanes.values().filter_map(|walk| walk.latencies.as_ref());
    each.for_each(|latencies| all.join(latencies));
    lanes::latency(&all)
}

/// How many of a program's threads were runnable while they waited for each other.
fn crowd(pass: &mut Summariser, contents: &Contents<'_>, facts: &ThreadFacts) -> Option<Crowd> {
    let Summariser { rows, threads, .. } = pass;
    let competition = threads.as_mut()?.competition.as_mut()?;
    let row = |index: u32| rows.rows.get(index as usize);
    competition.finish(|index| row(index).is_some_and(|row| is_program(row, contents, facts)))
}

/// Whether a row is the recorded program itself.
fn is_program(row: &Row, contents: &Contents<'_>, facts: &ThreadFacts) -> bool {
    let first = row.members.iter().find(|&&id| contents.sources.get(id as usize).is_some());
    first.is_some_and(|&id| facts.program.get(id as usize).copied().unwrap_or(false))
}

fn self_competition(
    sources: &[SourceRow],
    crowd: Option<Crowd>,
    base_ns: u64,
) -> Option<SelfCompetition> {
    let crowd = crowd?;
    let runs = |row: &&SourceRow| matches!(row.class, Class::Thread | Class::Kthread);
    let own = || sources.iter().filter(|row| row.program).filter(runs);
    let wait_ns = own().map(|row| row.cost_ns_total).fold(0, u64::saturating_add);
    let waited_for = |part: &&CpuPart| part.cost_ns_total > 0;
    let cpus = own().flat_map(|row| &row.per_cpu).filter(waited_for).map(|part| part.cpu);
    let cpus: BTreeSet<u32> = cpus.collect();
    Some(SelfCompetition {
        wait_ns_total: wait_ns,
        wanted_pct: pct(wait_ns, base_ns),
        runnable_threads: crowd.runnable,
        cpus: crowd.cpus,
        contested_cpus: cpus.into_iter().collect(),
    })
}

fn attributed(account: &Account) -> Attributed {
    let share = |part, whole| (account.detours > 0).then(|| pct(part, whole));
    Attributed {
        time_pct: share(account.named_ns, account.len_ns),
        count_pct: share(account.named_detours, account.detours),
    }
}

fn outside(pass: &Summariser, contents: &Contents<'_>, durations: &Durations) -> Vec<OutsideRow> {
    let mut rows = Vec::new();
    let names = outside_names(contents.manifest, contents.trailer);
    for (kind, (name, outside)) in names.into_iter().zip(&pass.outside).enumerate() {
        if outside.count == 0 {
            continue;
        }
        let counts = pass.lanes.iter().map(|(&lane, state)| (lane, state.outside[kind]));
        rows.push(OutsideRow {
            class: name.to_owned(),
            count: outside.count,
            rate_hz: durations.rate_hz(outside.count, counts),
            cost_ns_total: outside.cost_ns,
            cost_ns_p50: outside.costs.quantile(0.5),
            cost_ns_p99: outside.costs.quantile(0.99),
            cost_ns_max: outside.costs.max(),
        });
    }
    rows
}

fn units(sources: &[SourceRow], taken_ns: u64) -> Vec<UnitRow> {
    let mut units: Vec<UnitRow> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for source in sources {
        let Some(unit) = source.unit.as_deref() else { continue };
        let at = *index.entry(unit).or_insert_with(|| {
            units.push(UnitRow {
                unit: unit.to_owned(),
                sources: 0,
                count: 0,
                hits: 0,
                cost_ns_total: 0,
                share_pct: 0.0,
            });
            units.len() - 1
        });
        if let Some(row) = units.get_mut(at) {
            row.sources += 1;
            row.count += source.count;
            row.hits += source.hits;
            row.cost_ns_total = row.cost_ns_total.saturating_add(source.cost_ns_total);
            row.share_pct = pct(row.cost_ns_total, taken_ns);
        }
    }
    units.sort_by(|a, b| b.cost_ns_total.cmp(&a.cost_ns_total).then(a.unit.cmp(&b.unit)));
    units
}

fn sources(
    pass: &Summariser,
    contents: &Contents<'_>,
    facts: &ThreadFacts,
    taken_ns: u64,
    watched: &[Watched<'_>],
    durations: &Durations,
) -> (Vec<SourceRow>, Vec<Vec<Bin>>) {
    let mut finder = Finder::new();
    let by_row = by_row(pass);
    let mut rows: Vec<(SourceRow, &Distribution)> = Vec::new();
    for (index, row) in pass.rows.rows.iter().enumerate() {
        if row.hits + row.continued == 0 {
            continue;
        }
        let mut members = row.members.iter();
        let first = members.find_map(|&id| contents.sources.get(id as usize));
        let Some(first) = first else { continue };
        let cells = &by_row[index];
        let thread = matches!(first.class, Class::Thread | Class::Kthread);
        let takes_turns = |period: &Period| {
            let mean_ns = row.cost_ns as f64 / row.count.max(1) as f64;
            thread && mean_ns > TIME_SLICES * period.period_ns
        };
        let period = row_period(&struck(pass, row, cells, watched), thread, &mut finder)
            .filter(|p| !takes_turns(p));
        let per_lane = per_lane(cells);
        let RowKey { class, name, unit, own, program: known_program } = row.key(first);
        let source = SourceRow {
            class,
            name,
            unit,
            detail: detail::describe(row, &pass.rows, contents),
            policy: policy(row, &pass.rows, contents.sources),
            program: is_program(row, contents, facts),
            known_program,
            count: row.count,
            hits: row.hits,
            continued: row.continued,
            rate_hz: durations.rate_hz(row.count, per_lane.iter().map(|p| (p.lane, p.count))),
            net_ns_total: row.net_ns,
            cost_ns_total: row.cost_ns,
            cost_ns_p50: row.costs.quantile(0.5),
            cost_ns_p99: row.costs.quantile(0.99),
            cost_ns_max: row.costs.max(),
            period_ns: period.map(|p| p.period_ns.round() as u64),
            period_p_value: period.map(|p| p.p_value),
            share_pct: pct(row.cost_ns, taken_ns),
            own,
            per_cpu: per_cpu(pass, row),
            per_lane,
        };
        rows.push((source, &row.costs));
    }
    rows.sort_by(|(a, _), (b, _)| {
        b.cost_ns_total.cmp(&a.cost_ns_total).then_with(|| a.row_key().cmp(&b.row_key()))
    });
    rows.into_iter().map(|(row, costs)| (row, costs.bins())).unzip()
}

/// Scheduling policies of a row's threads, most costly first.
fn policy(row: &Row, rows: &Rows, sources: &[Source]) -> Option<String> {
    let mut policies: Vec<(&str, u64)> = Vec::new();
    for &id in &row.members {
        let (Some(source), Some(fine)) = (sources.get(id as usize), rows.fine.get(id as usize))
        else {
            continue;
        };
        let Some(policy) = source.policy.as_deref() else { continue };
        if fine.part.hits == 0 && fine.part.cost_ns == 0 {
            continue;
        }
        match policies.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, cost)) => *cost = cost.saturating_add(fine.part.cost_ns),
            None => policies.push((policy, fine.part.cost_ns)),
        }
    }
    policies.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let names: Vec<&str> = policies.into_iter().take(POLICIES).map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn per_cpu(pass: &Summariser, row: &Row) -> Vec<CpuPart> {
    let mut parts: Vec<CpuPart> = (pass.cpus.cpus.iter().zip(&row.cpus))
        .filter(|(_, p)| p.hits > 0 || p.cost_ns > 0)
        .map(|(&cpu, p)| CpuPart {
            cpu: u32::from(cpu),
            count: p.count,
            hits: p.hits,
            cost_ns_total: p.cost_ns,
        })
        .collect();
    parts.sort_by_key(|p| p.cpu);
    parts
}

/// A row's cells on the lanes where it occurs.
type Cells<'a> = Vec<(u32, &'a SourceOnLane)>;

/// Visits every lane once: there may be as many rows as lanes.
fn by_row(pass: &Summariser) -> Vec<Cells<'_>> {
    let mut by_row = vec![Vec::new(); pass.rows.rows.len()];
    for (&lane, state) in &pass.lanes {
        for (cells, cell) in by_row.iter_mut().zip(&state.cells) {
            if cell.part.hits > 0 || cell.part.cost_ns > 0 {
                cells.push((lane, cell));
            }
        }
    }
    by_row
}

fn per_lane(cells: &Cells<'_>) -> Vec<LanePart> {
    let part = |&(lane, cell): &(u32, &SourceOnLane)| LanePart {
        lane,
        count: cell.part.count,
        hits: cell.part.hits,
        cost_ns_total: cell.part.cost_ns,
    };
    cells.iter().map(part).collect()
}

/// When a row occurred on one lane, or on one CPU if lanes are threads.
struct Struck<'a> {
    starts: Cow<'a, [u64]>,
    later: Option<Cow<'a, Later>>,
    events: u64,
    window: Window,
}

impl Struck<'_> {
    fn period(&self, finder: &mut Finder) -> Option<Period> {
        finder.find(&self.starts, &self.whole())
    }

    fn has(&self, period: &Period) -> bool {
        self.whole().keeps(&self.starts, period.period_ns)
    }

    fn whole(&self) -> Whole<'_> {
        let Window { from_ns, to_ns, .. } = self.window;
        Whole { from_ns, to_ns, events: self.events, later: self.later.as_deref() }
    }
}

fn struck<'a>(
    pass: &'a Summariser,
    row: &'a Row,
    cells: &Cells<'a>,
    watched: &[Watched<'_>],
) -> Vec<Struck<'a>> {
    if pass.threads.is_some() {
        return by_cpu(row, watched);
    }
    let of_lane = |&(lane, cell): &(u32, &'a SourceOnLane)| {
        Some(Struck {
            starts: Cow::Borrowed(&cell.starts.first),
            later: cell.starts.later.as_deref().map(Cow::Borrowed),
            events: cell.part.count,
            window: watched.get(lane as usize)?.window,
        })
    };
    cells.iter().filter_map(of_lane).collect()
}

/// A program's threads share CPUs. Their events come lane by lane, so the last kept start times lack
/// those of other lanes.
fn by_cpu<'a>(row: &'a Row, watched: &[Watched<'_>]) -> Vec<Struck<'a>> {
    let (from_ns, to_ns) = lanes::ends(watched.iter().map(|watched| watched.window));
    let window = Window { from_ns, to_ns, known: true };
    let of_cpu = |(slot, kept): (usize, &Starts)| {
        let mut starts = kept.first.clone();
        starts.sort_unstable();
        let mut later = kept.later.as_deref().cloned();
        if let Some(later) = &mut later {
            let certain = starts.len() - starts.len() / 8;
            starts.split_off(certain).into_iter().for_each(|start| later.add(start));
        }
        Struck {
            starts: Cow::Owned(starts),
            later: later.map(Cow::Owned),
            events: row.cpus.get(slot).map_or(0, |part| part.count),
            window,
        }
    };
    row.starts.iter().enumerate().map(of_cpu).collect()
}

/// The period of a row: one that holds on at least half of the lanes with enough events for one, and for
/// at least half of all events. A thread that migrates
/// has no period on a single CPU, or a different one on each; then its events of all lanes are tested
/// together. (Not so for interrupts: the ticks of several CPUs combined have no period.)
fn row_period(struck: &[Struck<'_>], moves: bool, finder: &mut Finder) -> Option<Period> {
    let mut lanes: Vec<&Struck<'_>> =
        struck.iter().filter(|lane| lane.starts.len() >= period::MIN_EVENTS).collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.events));
    let all: u64 = struck.iter().map(|lane| lane.events).sum();
    let searched = lanes.len().min(LANES_SEARCHED);
    for lane in &lanes[..searched] {
        let Some(period) = lane.period(finder) else { continue };
        let having: Vec<u64> =
            lanes.iter().filter(|lane| lane.has(&period)).map(|lane| lane.events).collect();
        if 2 * having.len() >= lanes.len() && 2 * having.iter().sum::<u64>() >= all {
            // A period on any of them would have been accepted: the bound covers all of them.
            let p_value = (period.p_value * searched as f64).min(1.0);
            return Some(Period { p_value, ..period });
        }
    }
    if moves && struck.len() > 1 { together(struck).period(finder) } else { None }
}

/// A row over all lanes, with start times up to where every lane kept them.
fn together(struck: &[Struck<'_>]) -> Struck<'static> {
    let cut = struck.iter().filter(|lane| lane.later.is_some());
    let until = cut.filter_map(|lane| lane.starts.last().copied()).min();
    let all = struck.iter().flat_map(|lane| lane.starts.iter().copied());
    let (mut starts, beyond): (Vec<u64>, Vec<u64>) =
        all.partition(|&start| until.is_none_or(|until| start <= until));
    starts.sort_unstable();
    let later = until.map(|_| {
        let mut later = Later::default();
        beyond.into_iter().for_each(|start| later.add(start));
        struck.iter().filter_map(|lane| lane.later.as_ref()).for_each(|more| later.merge(more));
        Cow::Owned(later)
    });
    let (from_ns, to_ns) = lanes::ends(struck.iter().map(|lane| lane.window));
    Struck {
        starts: Cow::Owned(starts),
        later,
        events: struck.iter().map(|lane| lane.events).sum(),
        window: Window { from_ns, to_ns, known: true },
    }
}
