//! From the sums of the pass to the summary: shares, windows, rankings, and the period of each row.

use trace::{Class, Mode, RowKey, Trailer, outside_names};

use crate::costs::{self, Bin, Costs, Distribution};
use crate::detail;
use crate::lanes::{self, Cell, Watched, Window, pct};
use crate::nodes::{self, Durations};
use crate::pass::{Account, Summariser};
use crate::period::{self, Finder, Period};
use crate::rows::Row;
use crate::summary::*;
use crate::{Contents, Summary};

/// Part of the recording that the beats of a source, laid end to end, have to fill. Faults of a program
/// that starts are as regular as can be, for a millisecond; the table would show a period far shorter
/// than its own rate allows.
const LASTING: f64 = 0.01;
/// Lanes tested for a period per row, those with the most events.
const LANES_TESTED: usize = 4;

pub(crate) fn build(pass: &Summariser, contents: &Contents<'_>) -> (Summary, Costs) {
    let manifest = contents.manifest;
    let basis = basis(manifest.mode, pass.all.detours);
    let watched = watched(pass, contents);
    let window_ns: u64 = watched.iter().map(|w| w.window.len_ns()).fold(0, u64::saturating_add);
    let lost_ns = watched
        .iter()
        .filter_map(|w| w.state)
        .map(|s| s.taken_ns(basis))
        .fold(0, u64::saturating_add);
    let duration_ns = duration_ns(&watched);
    let taken_ns = pass.all.len_ns.saturating_add(pass.beside.cost_ns_total);

    let durations = Durations::new(&manifest.nodes, &watched);
    let (sources, costs) = sources(pass, contents, taken_ns, duration_ns, &durations);
    let trailer = contents.trailer;
    let nodes = nodes::rows(&manifest.nodes, &watched, basis);
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
        noise_pct: pct(lost_ns, window_ns),
        detours: pass.all.detours,
        detour_ns_total: pass.all.len_ns,
        taken_ns_total: taken_ns,
        beside_detours: pass.beside,
        outliers: nodes::outliers(&manifest.nodes, &nodes, &sources),
        nodes,
        cpus: watched.iter().filter_map(|w| w.cpu_row(basis)).collect(),
        threads: threads(&watched, basis),
        units: units(&sources, taken_ns),
        sources,
        attributed: attributed(&pass.all),
        attributed_over_1us: attributed(&pass.long),
        outside_kernel: outside(pass, manifest.mode, &durations),
        entry_exit_ns_total: pass.entry_exit_ns,
        lost: trailer.map_or_else(Losses::default, |t| t.lost.into()),
        entries: trailer.and_then(|t| t.entries),
        closure_error: trailer.and_then(|t| t.closure_error),
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
            .or_else(|| trailer.is_none().then(|| "the recording has no end".to_owned()))
            .or_else(|| {
                let cut_off = manifest.nodes.iter().find(|node| node.lost.is_none())?;
                Some(format!("the recording of {} has no end", cut_off.host))
            }),
    };
    let [short, long] = &pass.outside;
    let outside = costs::together(short.costs.bins(), long.costs.bins());
    (summary, Costs { sources: costs, outside })
}

/// What the recording says, and what this summary leaves out.
fn remarks(pass: &Summariser, trailer: Option<&Trailer>) -> Vec<String> {
    let mut remarks = trailer.map(|t| t.remarks.clone()).unwrap_or_default();
    if pass.rows.are_too_many() {
        remarks
            .push("more names than are told apart: those that came last are together".to_owned());
    }
    if pass.room.full {
        let missing = "more sources, CPUs and threads than are told apart: parts by CPU and by thread \
                       are incomplete";
        remarks.push(missing.to_owned());
    }
    remarks
}

/// Records are all there is where nothing watched for detours.
pub(crate) fn basis(mode: Mode, detours: u64) -> CostBasis {
    match mode {
        Mode::KernelOnly => CostBasis::Records,
        Mode::Program if detours == 0 => CostBasis::Records,
        _ => CostBasis::Detours,
    }
}

fn watched<'a>(pass: &'a Summariser, contents: &Contents<'a>) -> Vec<Watched<'a>> {
    let lanes = (0u32..).zip(contents.lanes).zip(lanes::totals(contents));
    lanes
        .map(|((id, lane), totals)| {
            let state = pass.lanes.get(&id);
            let host = contents.manifest.node_of(id).map(|node| node.host.as_str());
            let settings = contents.manifest.cpus_of(id);
            let window = Window::of(state.and_then(|s| s.seen), totals);
            Watched { lane, host, settings, state, totals, window }
        })
        .collect()
}

fn duration_ns(watched: &[Watched<'_>]) -> u64 {
    let (from, to) = lanes::ends(watched.iter().map(|w| w.window));
    to.saturating_sub(from)
}

fn threads(watched: &[Watched<'_>], basis: CostBasis) -> Vec<ThreadRow> {
    let mut threads: Vec<ThreadRow> = watched.iter().filter_map(|w| w.thread_row(basis)).collect();
    threads.sort_by(|a, b| b.lost_ns_total.cmp(&a.lost_ns_total).then(a.tid.cmp(&b.tid)));
    threads
}

fn attributed(account: &Account) -> Attributed {
    let share = |part, whole| (account.detours > 0).then(|| pct(part, whole));
    Attributed {
        time_pct: share(account.named_ns, account.len_ns),
        count_pct: share(account.named_detours, account.detours),
    }
}

fn outside(pass: &Summariser, mode: Mode, durations: &Durations) -> Vec<OutsideRow> {
    let mut rows = Vec::new();
    for (kind, (name, outside)) in outside_names(mode).into_iter().zip(&pass.outside).enumerate() {
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
                cost_ns_total: 0,
                share_pct: 0.0,
            });
            units.len() - 1
        });
        if let Some(row) = units.get_mut(at) {
            row.sources += 1;
            row.count += source.count;
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
    taken_ns: u64,
    duration_ns: u64,
    durations: &Durations,
) -> (Vec<SourceRow>, Vec<Vec<Bin>>) {
    let mut finder = Finder::new();
    let by_row = by_row(pass);
    let mut rows: Vec<(SourceRow, &Distribution)> = Vec::new();
    for (index, row) in pass.rows.rows.iter().enumerate() {
        if row.count + row.continued == 0 {
            continue;
        }
        let mut members = row.members.iter();
        let first = members.find_map(|&id| contents.sources.get(id as usize));
        let Some(first) = first else { continue };
        let cells = &by_row[index];
        let period = row_period(pass, cells, first.class, &mut finder)
            .filter(|period| row.count as f64 * period.period_ns >= LASTING * duration_ns as f64);
        let per_lane = per_lane(cells);
        let RowKey { class, name, unit, own } = row.key(first);
        let source = SourceRow {
            class,
            name,
            unit,
            detail: detail::describe(row, &pass.rows, contents.sources),
            count: row.count,
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

fn per_cpu(pass: &Summariser, row: &Row) -> Vec<CpuPart> {
    let mut parts: Vec<CpuPart> = (pass.cpus.cpus.iter().zip(&row.cpus))
        .filter(|(_, p)| p.count > 0 || p.cost_ns > 0)
        .map(|(&cpu, p)| CpuPart { cpu: u32::from(cpu), count: p.count, cost_ns_total: p.cost_ns })
        .collect();
    parts.sort_by_key(|p| p.cpu);
    parts
}

/// A row on the lanes that it occurs on.
type Cells<'a> = Vec<(u32, &'a Cell)>;

/// All lanes are gone through once: there may be as many rows as lanes.
fn by_row(pass: &Summariser) -> Vec<Cells<'_>> {
    let mut by_row = vec![Vec::new(); pass.rows.rows.len()];
    for (&lane, state) in &pass.lanes {
        for (cells, cell) in by_row.iter_mut().zip(&state.cells) {
            if cell.part.count > 0 || cell.part.cost_ns > 0 {
                cells.push((lane, cell));
            }
        }
    }
    by_row
}

fn per_lane(cells: &Cells<'_>) -> Vec<LanePart> {
    let part = |&(lane, cell): &(u32, &Cell)| LanePart {
        lane,
        count: cell.part.count,
        cost_ns_total: cell.part.cost_ns,
    };
    cells.iter().map(part).collect()
}

/// The period of a row: what at least half of the tested lanes agree on. A thread that moves between
/// CPUs shows no period on them, or a different one on each; its events of all lanes together are
/// tested then. (Not so for interrupts: the ticks of several CPUs together have no period of their
/// own.)
fn row_period(
    pass: &Summariser,
    cells: &Cells<'_>,
    class: Class,
    finder: &mut Finder,
) -> Option<Period> {
    let starts = cells.iter().map(|(_, cell)| cell.starts.as_slice());
    let mut lanes: Vec<&[u64]> = starts.filter(|s| s.len() >= period::MIN_EVENTS).collect();
    lanes.sort_by_key(|starts| std::cmp::Reverse(starts.len()));
    lanes.truncate(LANES_TESTED);
    let tested = lanes.len();
    let found: Vec<Period> = lanes
        .iter()
        .filter_map(|starts| finder.find(starts))
        // A period on any of the lanes would have been taken: the bound covers all of them.
        .map(|p| Period { p_value: (p.p_value * tested as f64).min(1.0), ..p })
        .collect();
    for candidate in &found {
        let agree = found.iter().filter(|p| (p.period_ns / candidate.period_ns - 1.0).abs() < 0.01);
        if agree.count() * 2 >= tested {
            return Some(*candidate);
        }
    }
    let moves = matches!(class, Class::Thread | Class::Kthread);
    if moves { finder.find(&merged(pass, cells)?) } else { None }
}

/// The start times of a row on all lanes, as far as every lane has kept them. None when there is
/// but one lane.
fn merged(pass: &Summariser, cells: &Cells<'_>) -> Option<Vec<u64>> {
    let lists = cells.iter().map(|(_, cell)| cell.starts.as_slice());
    let lists: Vec<&[u64]> = lists.filter(|starts| !starts.is_empty()).collect();
    if lists.len() < 2 {
        return None;
    }
    let full = lists.iter().filter(|s| pass.budget.is_full(s));
    let until = full.filter_map(|s| s.last().copied()).min().unwrap_or(u64::MAX);
    let mut all: Vec<u64> = lists.concat().into_iter().filter(|&s| s <= until).collect();
    all.sort_unstable();
    Some(all)
}
