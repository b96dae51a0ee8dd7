//! A synthetic recording of a busy node, generated from a seed.
//!
//! What matters for size and speed is the entropy: ticks at 250 Hz with jitter of hundreds of
//! nanoseconds, lengths spread over decades, softirqs after some of the ticks, interrupts at random
//! times, daemons that take up to milliseconds and are themselves interrupted.

use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, Record, RecordFlags, Source,
    SourceId, Trailer,
};

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    fn normal(&mut self) -> f64 {
        (0..6).map(|_| self.unit()).sum::<f64>() * 2.0_f64.sqrt() - 3.0 * 2.0_f64.sqrt()
    }

    fn log_normal(&mut self, median: f64, sigma: f64) -> u64 {
        (median * (sigma * self.normal()).exp()) as u64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

const TICK_NS: u64 = 4_000_000;

pub(crate) fn sources() -> Vec<Source> {
    let source = |class, name: &str, unit: Option<&str>, detail: Option<&str>| Source {
        class,
        name: name.to_owned(),
        unit: unit.map(str::to_owned),
        detail: detail.map(str::to_owned),
        pids: if unit.is_some() { vec![1234] } else { Vec::new() },
        own: false,
        program: false,
        policy: None,
        cause: None,
    };
    let mut sources = vec![
        source(Class::Timer, "tick", None, Some("tick_nohz_handler")),
        source(Class::Softirq, "TIMER", None, None),
        source(Class::Softirq, "SCHED", None, None),
        source(Class::Softirq, "RCU", None, None),
        source(Class::Irq, "virtio0-input", None, None),
        source(Class::Softirq, "NET_RX", None, None),
    ];
    for i in 0..40 {
        let (name, unit) = (format!("daemon{i}"), format!("daemon{i}.service"));
        sources.push(source(Class::Thread, &name, Some(&unit), Some("woken by timer")));
    }
    sources
}

pub(crate) fn manifest(lanes: u32) -> Manifest {
    Manifest {
        detour_version: "0.1.0".to_owned(),
        host: "node1".to_owned(),
        lanes: (0..lanes).map(|cpu| Lane::Cpu { cpu }).collect(),
        ..Manifest::default()
    }
}

pub(crate) fn trailer(lanes: u32, to_ns: u64) -> Trailer {
    let totals = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    Trailer { lanes: (0..lanes).map(totals).collect(), ..Trailer::default() }
}

/// One CPU's noise, as an endless source of blocks.
pub(crate) struct Cpu {
    rng: Rng,
    lane: u32,
    tick: u64,
    phase: f64,
    next_irq: f64,
    next_daemon: f64,
    free_from: u64,
}

impl Cpu {
    pub(crate) fn new(lane: u32, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ u64::from(lane).wrapping_mul(0x1234_5678_9abc_def1));
        let phase = rng.unit() * TICK_NS as f64;
        Cpu { rng, lane, tick: 0, phase, next_irq: 0.0, next_daemon: 0.0, free_from: 0 }
    }

    pub(crate) fn block(&mut self, records: usize) -> Block {
        let mut block = Block::new(LaneId(self.lane));
        while block.records.len() < records {
            let due = self.tick as f64 * TICK_NS as f64 + self.phase;
            if self.next_daemon < due.min(self.next_irq) {
                self.daemon(&mut block);
            } else if self.next_irq < due {
                let start = self.next_irq as u64;
                self.next_irq += self.rng.exponential(9_000_000.0);
                self.interrupt(&mut block, start, 4, 1800.0, &[(5, 0.9, 6000.0)]);
            } else {
                let start = (due + 400.0 * self.rng.normal()).max(0.0) as u64;
                self.tick += 1;
                let behind = [(1, 0.3, 900.0), (2, 0.25, 2500.0), (3, 0.2, 1200.0)];
                self.interrupt(&mut block, start, 0, 1500.0, &behind);
            }
        }
        block
    }

    fn record(&mut self, start: u64, nested: u64, source: u32, median: f64, depth: u8) -> Record {
        let net_ns = self.rng.log_normal(median, 0.5);
        let entry = self.rng.log_normal(160.0, 0.15);
        Record {
            start_ns: start,
            gross_ns: net_ns + nested,
            net_ns,
            cost_ns: net_ns + entry,
            source: SourceId(source),
            cpu: self.lane as u16,
            depth,
            flags: RecordFlags::IN_DETOUR,
        }
    }

    fn interrupt(
        &mut self,
        block: &mut Block,
        start: u64,
        source: u32,
        median: f64,
        softirqs: &[(u32, f64, f64)],
    ) {
        let from = block.records.len();
        let start = start.max(self.free_from);
        let first = self.record(start, 0, source, median, 1);
        let mut at = start + first.gross_ns;
        block.records.push(first);
        for &(softirq, likely, median) in softirqs {
            if self.rng.chance(likely) {
                at += self.rng.log_normal(120.0, 0.2);
                let record = self.record(at, 0, softirq, median, 1);
                at += record.gross_ns;
                block.records.push(record);
            }
        }
        self.close(block, from, start);
    }

    fn daemon(&mut self, block: &mut Block) {
        let from = block.records.len();
        let start = (self.next_daemon as u64).max(self.free_from);
        let which = 6 + (self.rng.unit() * self.rng.unit() * 40.0) as u32;
        let mut nested = Vec::new();
        if self.rng.chance(0.1) {
            let inside = start + 9000 + self.rng.bits() % 4096;
            nested.push(self.record(inside, 0, 0, 1500.0, 1));
        }
        let inside = nested.iter().map(|record| record.gross_ns).sum();
        block.records.push(self.record(start, inside, which, 80_000.0, 0));
        block.records.extend(nested);
        self.close(block, from, start);
        self.next_daemon += self.rng.exponential(15_000_000.0);
    }

    /// Wraps a detour around the records since `from`.
    fn close(&mut self, block: &mut Block, from: usize, start: u64) {
        let own = &block.records[from..];
        let cost: u64 = own.iter().map(|record| record.cost_ns).sum();
        let outside_ns = if self.rng.chance(0.2) { self.rng.log_normal(90.0, 0.5) } else { 0 };
        let detour = Detour {
            start_ns: start.saturating_sub(self.rng.log_normal(110.0, 0.3)),
            len_ns: cost + outside_ns,
            outside_ns,
            records: own.len() as u32,
            ..Detour::default()
        };
        self.free_from = detour.start_ns + detour.len_ns + 500;
        block.detours.push(detour);
    }
}
