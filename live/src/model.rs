//! Consumes the data of a recording and produces snapshots. What counts as noise follows the rules of the
//! report.

use std::sync::Arc;

use trace::{
    Block, Class, Detour, Lane, LaneId, Lost, Manifest, Mode, Record, RecordFlags, Source,
    SourceId, outside_kind, outside_names,
};

use crate::{
    kept::Kept,
    lanes::{LaneState, STRIP},
    rows::{Key, Rows},
    snapshot::{Cost, LaneShown, SPANS, Snapshot, SourceShown},
    window::{BUCKET_NS, Ring, Sum, WINDOW, bucket},
};

/// Number of full buckets in each sliding span.
const SPAN_BUCKETS: [u64; 2] = [4, WINDOW];
/// A program may create thousands of threads; those beyond this limit are not shown.
const MAX_LANES: usize = 4_096;
const DETAILS: usize = 4;

pub struct Model {
    pub(crate) manifest: Manifest,
    pub(crate) rows: Rows,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) kept: Kept,
    /// Rows for time outside the kernel: short and long.
    outside: [usize; 2],
    now_ns: u64,
    lost: Lost,
    bpf_pct: Option<f64>,
    threads_pct: Option<f64>,
}

impl Model {
    pub fn new(manifest: Manifest) -> Model {
        let mut rows = Rows::default();
        let outside = outside_names(&manifest, None).map(|name| rows.row(Key::outside(name)));
        let lanes = manifest.lanes.iter().cloned().map(LaneState::new).collect();
        Model {
            manifest,
            rows,
            lanes,
            kept: Kept::default(),
            outside,
            now_ns: 0,
            lost: Lost::default(),
            bpf_pct: None,
            threads_pct: None,
        }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn source(&mut self, id: SourceId, source: Source) {
        self.rows.learn(id, source);
    }

    /// A new lane, or a new name for one.
    pub fn lane(&mut self, id: LaneId, lane: Lane) {
        let at = id.0 as usize;
        // Lanes arrive in order of their numbers.
        if at == self.lanes.len() && at < MAX_LANES {
            self.lanes.push(LaneState::new(lane));
        } else if let Some(known) = self.lanes.get_mut(at) {
            known.lane = lane;
        }
    }

    pub fn block(&mut self, block: Block) {
        for (detour, records) in block.composed() {
            self.detour(block.lane, detour, records);
        }
        for record in &block.records {
            self.record(block.lane, record);
        }
        self.kept.add(Arc::new(block));
    }

    /// All events up to this time have been delivered.
    pub fn settled(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.kept.forget(self.now_ns);
    }

    /// State of the recording: losses so far, and the share of the watched CPUs' time taken by BPF
    /// programs.
    pub fn state(&mut self, lost: Lost, bpf_pct: Option<f64>) {
        self.lost = lost;
        self.bpf_pct = bpf_pct;
    }

    /// CPU time of this process's own threads, percent of one CPU.
    pub fn own_threads(&mut self, pct: Option<f64>) {
        self.threads_pct = pct;
    }

    fn record(&mut self, lane: LaneId, record: &Record) {
        if record.flags.contains(RecordFlags::BASELINE) {
            return;
        }
        let Some(class) = self.rows.class(record.source) else { return };
        let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
        // Idle time of a CPU on which nothing is runnable is not noise.
        if class == Class::Idle && !in_detour {
            return;
        }
        // A record that hits several threads counts as one event, as in the report.
        let counted = !record.flags.contains(RecordFlags::CONTINUED)
            && !record.flags.contains(RecordFlags::REPEATED)
            && !record.is_sum();
        let (start, length, cost) = (record.start_ns, record.gross_ns, record.cost_ns);
        self.rows.add(record.source, counted, start, length, cost);
        let Some(lane) = self.lanes.get_mut(lane.0 as usize) else { return };
        lane.see(start, length);
        lane.take(class, counted, start, length, cost);
        // With a probe, the strip shows detours instead.
        if self.manifest.mode == Mode::KernelOnly {
            lane.mark(class, start, record.net_ns, class == Class::Thread);
        }
    }

    fn detour(&mut self, lane: LaneId, detour: &Detour, records: &[Record]) {
        let (start, length) = (detour.start_ns, detour.len_ns);
        let most = records.iter().max_by_key(|record| record.cost_ns);
        let most = most.filter(|record| record.cost_ns >= detour.outside_ns);
        let class = most.and_then(|record| self.rows.class(record.source));
        let class = class.unwrap_or(Class::OutsideKernel);
        if detour.outside_ns > 0 {
            let row = self.outside[outside_kind(detour.outside_ns)];
            self.rows.add_to(row, true, start, length, detour.outside_ns);
        }
        let Some(lane) = self.lanes.get_mut(lane.0 as usize) else { return };
        lane.see(start, length);
        lane.detours += 1;
        lane.mark(class, start, length, false);
        if detour.outside_ns > 0 {
            lane.take(Class::OutsideKernel, true, start, length, detour.outside_ns);
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let end = bucket(self.now_ns);
        let passed = |buckets: u64| end.min(buckets) * BUCKET_NS;
        let rows = self.rows.rows.iter().enumerate().filter(|(_, row)| row.total.ns > 0);
        let rows = rows.map(|(index, row)| SourceShown {
            source: row.key.source.clone().into(),
            process: row.key.process.clone(),
            sums: sums(row.total, &row.recent, end),
            details: self.rows.details(index, DETAILS),
        });
        let manifest = &self.manifest;
        Snapshot {
            host: manifest.host.clone(),
            kernel: manifest.kernel.clone(),
            mode: manifest.mode,
            cpus: manifest.isolation.measured.clone(),
            now_ns: self.now_ns,
            span_ns: [passed(SPAN_BUCKETS[0]), passed(SPAN_BUCKETS[1]), self.now_ns],
            sources: rows.collect(),
            lanes: self.lanes.iter().map(|lane| shown(lane, end)).collect(),
            lost: crate::Lost {
                records: self.lost.records,
                detours: self.lost.detours,
                unseen: self.lost.unwritten,
            },
            cost: Cost {
                threads_pct: self.threads_pct,
                bpf_pct: self.bpf_pct,
                probes: manifest.cpus.len(),
            },
            limits: manifest.limits.clone(),
            kept_events: self.kept.events() as u64,
            kept_ns: self.now_ns.saturating_sub(self.kept.begins_ns()),
            kept: None,
        }
    }

    /// A snapshot for a paused view, including the events to write.
    pub fn snapshot_to_keep(&self) -> Snapshot {
        Snapshot { kept: Some(self.kept.clone()), ..self.snapshot() }
    }

    pub(crate) fn losses(&self) -> Lost {
        self.lost
    }

    pub(crate) fn bpf_share(&self) -> Option<f64> {
        self.bpf_pct
    }
}

fn over_spans<T>(total: T, recent: impl Fn(u64) -> T) -> [T; SPANS] {
    [recent(SPAN_BUCKETS[0]), recent(SPAN_BUCKETS[1]), total]
}

fn sums(total: Sum, recent: &Ring<Sum>, end: u64) -> [Sum; SPANS] {
    over_spans(total, |buckets| {
        let mut sum = Sum::default();
        recent.last(end, buckets).for_each(|part| sum.add(part));
        sum
    })
}

fn shown(lane: &LaneState, end: u64) -> LaneShown {
    let taken = over_spans(lane.total, |buckets| {
        let mut sum = [0u64; Class::ALL.len()];
        for part in lane.taken.last(end, buckets) {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.saturating_add(part));
        }
        sum
    });
    let columns = end.saturating_sub(STRIP as u64 - 1)..end;
    let strip = columns.map(|bucket| lane.strip.get(bucket).unwrap_or_default());
    LaneShown {
        name: lane.name(),
        key: lane.key(),
        sums: sums(lane.all, &lane.recent, end),
        taken,
        strip: strip.map(|column| (column.thread, column.kernel)).collect(),
    }
}
