//! Sums per lane (a measured CPU or a watched thread), and the rows of the summary built from them.

use trace::{CpuSettings, Lane, LaneTotals, STEAL, Wait};

use crate::Contents;
use crate::costs::Distribution;
use crate::interruptions::Interruptions;
use crate::program::{ThreadTime, WaitSum, Walk};
use crate::rows::Part;
use crate::starts::Starts;
use crate::summary::{CostBasis, CpuRow, Latency, ThreadRow, ThreadWait};

/// One source row on one lane.
#[derive(Default)]
pub(crate) struct SourceOnLane {
    pub(crate) part: Part,
    /// Start times for the period test.
    pub(crate) starts: Starts,
}

#[derive(Default)]
pub(crate) struct LaneState {
    /// By row.
    pub(crate) cells: Vec<SourceOnLane>,
    pub(crate) detours: u64,
    pub(crate) detour_ns: u64,
    pub(crate) thread_detours: u64,
    pub(crate) longest_ns: u64,
    pub(crate) longest_at_ns: u64,
    /// Cost of records outside any detour.
    pub(crate) beside_ns: u64,
    /// Detours with time outside the kernel, short and long.
    pub(crate) outside: [u64; 2],
    pub(crate) interruptions: Interruptions,
    /// First start and last end of any event.
    pub(crate) seen: Option<(u64, u64)>,
}

impl LaneState {
    pub(crate) fn see(&mut self, start_ns: u64, len_ns: u64) {
        let end = start_ns.saturating_add(len_ns);
        self.seen = Some(match self.seen {
            Some((first, last)) => (first.min(start_ns), last.max(end)),
            None => (start_ns, end),
        });
    }

    /// Time this lane lost.
    pub(crate) fn taken_ns(&self, basis: CostBasis) -> u64 {
        match basis {
            CostBasis::Detours => self.detour_ns,
            CostBasis::Records => self.detour_ns.saturating_add(self.beside_ns),
        }
    }
}

/// The interval a lane was watched.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) known: bool,
}

impl Window {
    /// From the trailer, or, if it has none, from the events.
    pub(crate) fn of(seen: Option<(u64, u64)>, totals: Option<&LaneTotals>) -> Window {
        if let Some(t) = totals.filter(|t| t.to_ns > t.from_ns) {
            return Window { from_ns: t.from_ns, to_ns: t.to_ns, known: true };
        }
        let (from_ns, to_ns) = seen.unwrap_or((0, 0));
        Window { from_ns, to_ns, known: false }
    }

    pub(crate) fn len_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// From the first watched moment of any lane to the last.
pub(crate) fn ends(windows: impl Iterator<Item = Window> + Clone) -> (u64, u64) {
    let windows = windows.filter(|window| window.len_ns() > 0);
    let from = windows.clone().map(|window| window.from_ns).min().unwrap_or(0);
    let to = windows.map(|window| window.to_ns).max().unwrap_or(0);
    (from, to)
}

/// Totals of each lane from the trailer. Looked up once: a program may have 100,000 threads.
pub(crate) fn totals<'a>(contents: &Contents<'a>) -> Vec<Option<&'a LaneTotals>> {
    let mut by_lane = vec![None; contents.lanes.len()];
    for totals in contents.lane_totals() {
        if let Some(of_lane) = by_lane.get_mut(totals.lane as usize) {
            // If a lane occurs twice, the first counts.
            of_lane.get_or_insert(totals);
        }
    }
    by_lane
}

pub(crate) fn pct(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// One lane with everything known about it.
pub(crate) struct Watched<'a> {
    pub(crate) lane: &'a Lane,
    /// In a merged trace.
    pub(crate) host: Option<&'a str>,
    /// Of its node.
    pub(crate) settings: &'a [CpuSettings],
    pub(crate) state: Option<&'a LaneState>,
    pub(crate) totals: Option<&'a LaneTotals>,
    pub(crate) window: Window,
    /// How it spent its time, if it is a thread and that was recorded.
    pub(crate) time: Option<ThreadTime>,
    pub(crate) walk: Option<&'a Walk>,
}

impl Watched<'_> {
    /// Base of percentages: how long it was watched; for a thread, how long it wanted to run.
    pub(crate) fn base_ns(&self) -> u64 {
        base_ns(self.time.map(|time| time.wanted_ns), self.window)
    }

    pub(crate) fn cpu_row(&self, basis: CostBasis) -> Option<CpuRow> {
        let &Lane::Cpu { cpu } = self.lane else { return None };
        let none = LaneState::default();
        let state = self.state.unwrap_or(&none);
        let setting = self.settings.iter().find(|s| s.cpu == cpu);
        let counters = self.totals.map(|t| t.counters.clone()).unwrap_or_default();
        // Imported files may have neither; the trace then contains 0.
        let known = |ns: &f64| *ns > 0.0;
        Some(CpuRow {
            host: self.host.map(str::to_owned),
            cpu,
            t_min_ns: setting.map(|s| s.t_min_ns).filter(known),
            resolution_hz: setting.and_then(CpuSettings::resolution_hz),
            threshold_ns: setting.map(|s| s.threshold_ns).filter(known),
            detours: state.detours,
            noise_pct: pct(state.taken_ns(basis), self.window.len_ns()),
            detour_ns_total: state.detour_ns,
            longest_ns: state.longest_ns,
            longest_at_ns: state.longest_at_ns,
            window_s: self.window.len_ns() as f64 / 1e9,
            window_known: self.window.known,
            iterations: self.totals.map(|t| t.iterations),
            thread_detours: state.thread_detours,
            context_switches: counters
                .iter()
                .find(|(name, _)| name.replace('-', "_") == "context_switches")
                .map(|(_, &n)| n),
            steal_ns: counters.get(STEAL).copied(),
            counters,
        })
    }

    pub(crate) fn thread_row(&self, basis: CostBasis, lends_noise: bool) -> Option<ThreadRow> {
        let Lane::Thread { pid, tid, name } = self.lane else { return None };
        let none = LaneState::default();
        let state = self.state.unwrap_or(&none);
        let lost = state.taken_ns(basis);
        Some(ThreadRow {
            host: self.host.map(str::to_owned),
            name: name.clone(),
            pid: *pid,
            tid: *tid,
            detours: state.detours,
            lost_ns_total: lost,
            lost_pct: pct(lost, self.base_ns()),
            longest_ns: state.longest_ns,
            window_s: self.window.len_ns() as f64 / 1e9,
            window_known: self.window.known,
            run_ns: self.time.map(|time| time.run_ns),
            wait_ns: self.time.map(|time| time.wait_ns),
            wanted_ns: self.time.map(|time| time.wanted_ns),
            waits: self.walk.map(|walk| thread_waits(&walk.waits)).unwrap_or_default(),
            wakeup_latency: self.walk.and_then(|walk| latency(walk.latencies.as_ref()?)),
            lends_noise,
            counters: self.totals.map(|t| t.counters.clone()).unwrap_or_default(),
        })
    }
}

/// Total time lanes wanted to run; None for CPUs, or if unknown.
pub(crate) fn wanted_ns<'a, 'w: 'a>(lanes: impl Iterator<Item = &'a Watched<'w>>) -> Option<u64> {
    let (mut known, mut sum) = (false, 0u64);
    for lane in lanes {
        known |= lane.time.is_some();
        sum = sum.saturating_add(lane.base_ns());
    }
    known.then_some(sum)
}

/// Base of a lane's percentages.
pub(crate) fn base_ns(wanted_ns: Option<u64>, window: Window) -> u64 {
    wanted_ns.unwrap_or(window.len_ns())
}

fn thread_waits(waits: &[WaitSum]) -> Vec<ThreadWait> {
    let kinds = Wait::ALL.into_iter().zip(waits).filter(|(_, sum)| sum.count > 0);
    let row = |(kind, sum): (Wait, &WaitSum)| ThreadWait {
        kind,
        count: sum.count,
        wait_ns_total: sum.ns,
    };
    kinds.map(row).collect()
}

/// None if there were no wake-ups.
pub(crate) fn latency(of: &Distribution) -> Option<Latency> {
    (of.count() > 0).then(|| Latency {
        count: of.count(),
        ns_p50: of.quantile(0.5),
        ns_p99: of.quantile(0.99),
        ns_max: of.max(),
    })
}
