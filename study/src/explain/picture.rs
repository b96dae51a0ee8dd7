//! One run, rank by rank, to be drawn as a diagram or written as a trace for a viewer.

use std::{collections::HashMap, path::Path};

use anyhow::{Result, bail};
use simulate::{
    event::{Kind, Leg, Log, NOBODY, Part, Schedule, Step, What},
    loggops::Params,
    noise::{Model, RunNoise},
};

use crate::recording::sources::Sources;

/// A run to be drawn. Times are in picoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Title line.
    pub title: String,
    pub ranks: u32,
    pub finish: i64,
    /// Activity of the CPUs.
    pub work: Vec<Bar>,
    /// Occupancy of the NICs.
    pub nics: Vec<Bar>,
    pub flights: Vec<Flight>,
    /// The critical path, from the end to the beginning.
    pub path: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    Compute,
    Send,
    Receive,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub rank: u32,
    /// Which of the rank's CPUs or NICs.
    pub unit: u8,
    pub doing: Doing,
    pub from: i64,
    pub to: i64,
    pub name: String,
    /// Detours within it.
    pub noise: Vec<Detour>,
    pub on_path: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Detour {
    pub source: String,
    pub from: i64,
    pub to: i64,
}

/// A message from CPU to CPU: indices into [`Picture::work`], and when it left and arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight {
    pub sender: usize,
    pub receiver: usize,
    /// NIC at each end.
    pub nics: (u8, u8),
    pub left: i64,
    pub arrived: i64,
    /// A request or grant of the rendezvous protocol, without payload.
    pub control: bool,
    pub on_path: bool,
}

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub rank: u32,
    pub from: i64,
    pub to: i64,
    /// Its part: o, L, noise and so on.
    pub part: &'static str,
}

/// Larger diagrams are unreadable.
const MOST_DRAWN_RANKS: u32 = 64;
const MOST_DRAWN: usize = 3_000;
/// About half a gigabyte of JSON, the most that viewers can handle.
const MOST_TRACED: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Svg,
    Json,
}

/// The format, by file extension.
pub fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("json") => Ok(Format::Json),
        _ => bail!(
            "--timeline {}: unknown extension (expected .svg for a diagram, or .json for \
             ui.perfetto.dev and chrome://tracing)",
            path.display()
        ),
    }
}

/// Rejects runs that are too large for the format, before anything is simulated.
pub fn check(path: &Path, schedule: &Schedule) -> Result<()> {
    let (ranks, operations) = (schedule.ranks(), schedule.operations());
    match format_of(path)? {
        Format::Svg if ranks > MOST_DRAWN_RANKS || operations > MOST_DRAWN => bail!(
            "a diagram is limited to {MOST_DRAWN_RANKS} ranks and {MOST_DRAWN} operations, not \
             {ranks} and {operations}: write {} and view it in ui.perfetto.dev",
            path.with_extension("json").display()
        ),
        Format::Json if operations > MOST_TRACED => bail!(
            "a timeline is limited to {MOST_TRACED} operations, not {operations}: simulate \
             fewer ranks, or use --blame"
        ),
        _ => Ok(()),
    }
}

/// A run with its noise.
pub struct Run<'a> {
    pub schedule: &'a Schedule,
    pub params: &'a Params,
    pub log: &'a Log,
    pub noise: &'a RunNoise<'a>,
    pub sources: &'a Sources,
    /// Description of the simulation.
    pub title: String,
}

/// Which parts of a step are on the critical path.
#[derive(Clone, Copy, Default)]
struct OnPath {
    cpu: bool,
    nic: bool,
    flight: bool,
    /// The acknowledgement of a request.
    answer: bool,
}

/// Consecutive stretches of the critical path.
struct Laid {
    rank: u32,
    at: i64,
    stretches: Vec<Stretch>,
}

impl Laid {
    fn put(&mut self, part: Part, ps: i64) {
        let from = self.at;
        self.at += ps;
        if ps > 0 {
            let (rank, to) = (self.rank, self.at);
            self.stretches.push(Stretch { rank, from, to, part: part.name() });
        }
    }
}

fn mark(leg: &Leg, step: &Step, on_path: &mut OnPath) {
    for (part, ps) in leg.parts {
        match part {
            _ if ps == 0 => {}
            Part::Compute | Part::Overhead | Part::OverheadPerByte => on_path.cpu = true,
            Part::Gap | Part::GapPerByte => on_path.nic = true,
            // Latency after a request has ended is its acknowledgement.
            Part::Latency if step.what == What::Request && leg.from != step.end => {
                on_path.answer = true;
            }
            Part::Latency => on_path.flight = true,
            Part::Noise => on_path.cpu = true,
            Part::Waiting => {}
        }
    }
}

impl Run<'_> {
    pub fn picture(&self) -> Result<Picture> {
        let log = self.log;
        let mut picture = Picture {
            title: self.title.clone(),
            ranks: log.ranks(),
            finish: log.end(log.last()),
            ..Picture::default()
        };
        let mut on_path = vec![OnPath::default(); log.steps().len()];
        for leg in log.back_from(log.last()) {
            mark(&leg, &log.steps()[leg.step as usize], &mut on_path[leg.step as usize]);
            picture.path.extend(self.stretches(&leg)?.into_iter().rev());
        }
        // In LogGOPSim, an empty message gives back the time of one byte: the preceding part is shortened.
        let mut until = picture.finish;
        for stretch in &mut picture.path {
            stretch.to = stretch.to.min(until);
            stretch.from = stretch.from.min(stretch.to);
            until = stretch.from;
        }
        for (step, on_path) in log.steps().iter().zip(&on_path) {
            let bar = self.bar(step, on_path.cpu)?;
            if step.nic_from < step.nic_until {
                let (from, to) = (step.nic_from, step.nic_until);
                let noise = Vec::new();
                picture.nics.push(Bar {
                    unit: step.nic,
                    from,
                    to,
                    on_path: on_path.nic,
                    noise,
                    ..bar.clone()
                });
            }
            picture.work.push(bar);
        }
        self.flights(&mut picture, &on_path);
        Ok(picture)
    }

    fn flights(&self, picture: &mut Picture, on_path: &[OnPath]) {
        let (log, flies) = (self.log, self.params.latency);
        let requests = log.steps().iter().enumerate().filter(|(_, s)| s.what == What::Request);
        let requests: HashMap<u32, usize> = requests.map(|(index, s)| (s.op, index)).collect();
        for (receiver, step) in log.steps().iter().enumerate() {
            if step.sender == NOBODY {
                continue;
            }
            let sender = &log.steps()[step.sender as usize];
            let nics = (sender.nic, step.nic);
            if let (What::Payload, Some(&request)) = (sender.what, requests.get(&sender.op)) {
                let left = log.steps()[request].end;
                let OnPath { flight, answer, .. } = on_path[request];
                let asks = Flight {
                    sender: request,
                    receiver,
                    nics,
                    left,
                    arrived: left + flies,
                    control: true,
                    on_path: flight,
                };
                picture.flights.push(asks);
                picture.flights.push(Flight {
                    sender: receiver,
                    receiver: step.sender as usize,
                    nics: (nics.1, nics.0),
                    left: sender.granted - flies,
                    arrived: sender.granted,
                    on_path: answer,
                    ..asks
                });
            }
            // In LogGOPSim, a message does not wait for the noise of its send.
            let arrived = match step.nic_from < step.nic_until {
                true => step.nic_from.min(sender.end + flies),
                false => sender.end + flies,
            };
            picture.flights.push(Flight {
                sender: step.sender as usize,
                receiver,
                nics,
                left: arrived - flies,
                arrived,
                control: false,
                on_path: on_path[step.sender as usize].flight,
            });
        }
    }

    /// The parts of a leg in order, with noise placed where the detours were.
    fn stretches(&self, leg: &Leg) -> Result<Vec<Stretch>> {
        let step = &self.log.steps()[leg.step as usize];
        let mut laid = Laid { rank: step.rank, at: leg.from, stretches: Vec::new() };
        let of = |wanted: bool| {
            leg.parts.into_iter().filter(move |(p, _)| (*p == Part::Noise) == wanted)
        };
        let mut noise: i64 = of(true).map(|(_, ps)| ps).sum();
        let detours = if noise > 0 { self.detours(step)? } else { Vec::new() };
        let mut detours = detours.iter().filter(|detour| detour.to > leg.from).peekable();
        for (part, mut left) in of(false) {
            while let Some(detour) = detours.next_if(|detour| detour.from < laid.at + left) {
                let before = (detour.from - laid.at).clamp(0, left);
                laid.put(part, before);
                left -= before;
                let taken = (detour.to - laid.at).clamp(0, noise);
                laid.put(Part::Noise, taken);
                noise -= taken;
            }
            laid.put(part, left);
        }
        laid.put(Part::Noise, noise);
        Ok(laid.stretches)
    }

    fn bar(&self, step: &Step, on_path: bool) -> Result<Bar> {
        let operation = self.schedule.operation(step.op);
        let name = match (step.what, self.schedule.kind(step.op)) {
            // LogGOPSim knows the message, not the receive operation.
            (What::Receive, Kind::Send) => {
                format!("receives: rank {} {operation}", self.schedule.rank_of(step.op))
            }
            (What::Request, _) => format!("{operation}, request"),
            (What::Payload, _) => format!("{operation}, payload"),
            _ => match self.schedule.given_label(step.op) {
                Some(label) => format!("{label}: {operation}"),
                None => operation.to_string(),
            },
        };
        let doing = match step.what {
            What::Calc => Doing::Compute,
            What::Receive => Doing::Receive,
            What::Send | What::Request | What::Payload => Doing::Send,
        };
        let noise = self.detours(step)?;
        let (from, to) = (step.start, step.end.max(step.start));
        Ok(Bar { rank: step.rank, unit: step.cpu, doing, from, to, name, noise, on_path })
    }

    fn detours(&self, step: &Step) -> Result<Vec<Detour>> {
        let mut detours = Vec::new();
        if step.noise == 0 || self.noise.is_none() {
            return Ok(detours);
        }
        // Noise on the CPU-time clock is shifted to wall-clock time.
        let later = step.start - step.clock;
        let later = if self.noise.model() == Model::CpuTime { later } else { 0 };
        let local = self.noise.local(u64::from(step.rank));
        local.hits(self.noise.model(), step.clock, step.asked, |hit| {
            let from = hit.at + later;
            let source = self.sources.name(hit.source).name;
            detours.push(Detour { source, from, to: from.saturating_add(hit.length) });
        })?;
        Ok(detours)
    }
}
