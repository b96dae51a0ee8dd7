//! Recorded detours, to be played back on a quiet node.
//!
//! In: a recording, which sources of it, and the CPUs to play on. Out: the detours of each CPU, and afterwards
//! what was played.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::Serialize;
use simulate::noise::Composed;
use trace::Lane;

use crate::recording::{
    open::{self, AnyReader},
    recorded::{Recorded, lane_words},
};

#[derive(Clone, Debug)]
pub struct Request {
    pub file: PathBuf,
    /// Names, units, classes or processes; all if empty.
    pub sources: Vec<String>,
    /// CPUs to play on; the recorded ones if None.
    pub cpus: Option<Vec<u32>>,
    /// Shorter detours are left out.
    pub shortest_ns: u64,
}

/// What to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub tracks: Vec<Track>,
    /// Length of the recording.
    pub span_ns: u64,
    pub remarks: Vec<String>,
}

/// The detours for a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub cpu: u32,
    /// What they were recorded on.
    pub lane: String,
    /// Start and length, ns.
    pub detours: Vec<(u64, u64)>,
    pub span_ns: u64,
    /// Left out because they are too short.
    pub short: u64,
    pub short_ns: u64,
}

/// What was played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Injected {
    pub recording: String,
    /// How long it took.
    pub duration_s: f64,
    /// Whether the threads had a real-time priority, and so preempted everything else.
    pub real_time: bool,
    pub cpus: Vec<InjectedCpu>,
    pub remarks: Vec<String>,
}

/// What was played on a CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InjectedCpu {
    pub cpu: u32,
    /// What it was recorded on.
    pub lane: String,
    pub detours: u64,
    /// Their recorded lengths.
    pub wanted_ns: u64,
    /// CPU time used to play them.
    pub taken_ns: u64,
    /// By how much they began too late; null if none was played.
    pub late_ns_p50: Option<u64>,
    pub late_ns_p99: Option<u64>,
    pub late_ns_max: Option<u64>,
    /// Detours of the recording that were left out because they are shorter than --shortest.
    pub short: u64,
    pub short_ns: u64,
}

/// What a thread did, as the recorder tells.
#[derive(Clone, Debug, Default)]
pub struct Played {
    pub detours: u64,
    pub wanted_ns: u64,
    pub taken_ns: u64,
    pub late_ns: Vec<u32>,
    pub real_time: bool,
}

/// What to play. An error if there is nothing.
pub fn plan(request: &Request) -> Result<Plan> {
    let reader = open::open(&request.file)?;
    let recorded = Recorded::new(&reader);
    let selected = match request.sources.is_empty() {
        true => vec![true; recorded.sources.len()],
        false => recorded.excluded(&request.sources)?,
    };
    // The recorder is not part of the node's noise.
    let plays = |source: u32| match recorded.sources.get(source as usize) {
        Some(known) => selected[source as usize] && !known.key.own,
        // Time without a source.
        None => request.sources.is_empty(),
    };
    let mut tracks = Vec::new();
    for (index, lane) in reader.lanes().iter().enumerate() {
        if recorded.lends(index) {
            let lane_name = lane_words(lane);
            tracks.push((index, lane_name, cpu_of(lane)));
        }
    }
    if tracks.is_empty() {
        bail!("{}", open::watched_nothing(&reader));
    }
    let mut remarks: Vec<String> = open::remark_if_not_whole(&reader).into_iter().collect();
    let placed = place(&reader, &tracks, request.cpus.as_deref(), &mut remarks)?;
    let mut found = Vec::new();
    for (index, lane, cpu) in placed {
        let composed = recorded.lane(&reader, index)?;
        found.push(Track::new(&composed, lane, cpu, plays, request.shortest_ns));
    }
    if found.iter().all(|track| track.detours.is_empty()) {
        bail!(
            "nothing to play: {} has no detour of at least {} ns from these sources (see --shortest)",
            reader.name(),
            request.shortest_ns
        );
    }
    let span_ns = found.iter().map(|track| track.span_ns).max().unwrap_or(0);
    Ok(Plan { tracks: found, span_ns, remarks })
}

fn cpu_of(lane: &Lane) -> Option<u32> {
    match lane {
        Lane::Cpu { cpu } => Some(*cpu),
        _ => None,
    }
}

/// Which lane is played on which CPU.
fn place(
    reader: &AnyReader,
    lanes: &[(usize, String, Option<u32>)],
    cpus: Option<&[u32]>,
    remarks: &mut Vec<String>,
) -> Result<Vec<(usize, String, u32)>> {
    let Some(cpus) = cpus else {
        let mut placed: Vec<(usize, String, u32)> = Vec::new();
        for (index, name, cpu) in lanes {
            let Some(cpu) = *cpu else {
                bail!("{} was not recorded by CPU: choose CPUs with -c", reader.name());
            };
            if placed.iter().any(|(_, _, other)| *other == cpu) {
                bail!("{} has several nodes: choose CPUs with -c", reader.name());
            }
            placed.push((*index, name.clone(), cpu));
        }
        return Ok(placed);
    };
    if lanes.len() > cpus.len() {
        let (all, played) = (lanes.len(), cpus.len());
        remarks.push(format!("{played} of {all} recorded lanes are played: only {played} CPUs"));
    }
    let lanes = lanes.iter().cycle();
    Ok(lanes.zip(cpus).map(|((index, name, _), cpu)| (*index, name.clone(), *cpu)).collect())
}

impl Track {
    fn new(
        composed: &Composed,
        lane: String,
        cpu: u32,
        plays: impl Fn(u32) -> bool,
        shortest_ns: u64,
    ) -> Track {
        let span_ns = composed.span_ns();
        let mut track = Track { cpu, lane, detours: Vec::new(), span_ns, short: 0, short_ns: 0 };
        composed.for_each(|start, parts| {
            let of_sources = parts.iter().filter(|(source, _)| plays(*source)).map(|(_, ns)| ns);
            match of_sources.sum::<u64>() {
                0 => {}
                ns if ns < shortest_ns => {
                    track.short += 1;
                    track.short_ns += ns;
                }
                ns => track.detours.push((start, ns)),
            }
        });
        track
    }
}

impl Plan {
    /// The result, from what the thread of each track did.
    pub fn played(&self, request: &Request, duration_s: f64, played: Vec<Played>) -> Injected {
        let real_time = played.iter().all(|played| played.real_time);
        let mut remarks = self.remarks.clone();
        if !real_time {
            remarks.push(
                "without a real-time priority, other threads may delay detours (needs CAP_SYS_NICE; run as root)"
                    .to_owned(),
            );
        }
        let cpus = self.tracks.iter().zip(played).map(|(track, mut played)| {
            played.late_ns.sort_unstable();
            let late = &played.late_ns;
            let at =
                |share: f64| late.get((late.len() as f64 * share) as usize).map(|&ns| ns.into());
            InjectedCpu {
                cpu: track.cpu,
                lane: track.lane.clone(),
                detours: played.detours,
                wanted_ns: played.wanted_ns,
                taken_ns: played.taken_ns,
                late_ns_p50: at(0.5),
                late_ns_p99: at(0.99),
                late_ns_max: late.last().map(|&ns| ns.into()),
                short: track.short,
                short_ns: track.short_ns,
            }
        });
        let cpus = cpus.collect();
        Injected {
            recording: request.file.display().to_string(),
            duration_s,
            real_time,
            cpus,
            remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo.detour");

    fn request(sources: &[&str], shortest_ns: u64) -> Request {
        let sources = sources.iter().map(|&name| name.to_owned()).collect();
        Request { file: Path::new(DEMO).to_owned(), sources, cpus: None, shortest_ns }
    }

    #[test]
    fn only_what_was_asked_for_is_played_and_nothing_is_lost() {
        let daemon = plan(&request(&["fakemond"], 0)).unwrap();
        let [track] = &daemon.tracks[..] else { panic!("{daemon:?}") };
        // 400 us every 50 ms for 8 s, as the report says.
        let long = track.detours.iter().filter(|(_, ns)| *ns > 300_000).count();
        assert_eq!((track.cpu, long), (1, 160));
        let all = plan(&request(&[], 10_000)).unwrap();
        let whole = plan(&request(&[], 0)).unwrap();
        let sum = |plan: &Plan| plan.tracks[0].detours.iter().map(|(_, ns)| ns).sum::<u64>();
        assert_eq!(sum(&all) + all.tracks[0].short_ns, sum(&whole));
        assert_eq!(
            all.tracks[0].detours.len() as u64 + all.tracks[0].short,
            whole.tracks[0].detours.len() as u64
        );
        let ends = |one: &[(u64, u64)]| one[0].0 + one[0].1 <= one[1].0;
        assert!(whole.tracks[0].detours.windows(2).all(ends));
    }

    #[test]
    fn lanes_are_placed_on_the_chosen_cpus() {
        let cpus = Some(vec![4, 7]);
        let plan = plan(&Request { cpus, ..request(&[], 0) }).unwrap();
        let placed: Vec<(u32, &str)> =
            plan.tracks.iter().map(|track| (track.cpu, track.lane.as_str())).collect();
        assert_eq!(placed, [(4, "CPU 1"), (7, "CPU 1")]);
    }

    #[test]
    fn what_cannot_be_played_is_an_error() {
        let error =
            |sources: &[&str], ns| format!("{:#}", plan(&request(sources, ns)).unwrap_err());
        assert!(error(&["nosuchd"], 0).starts_with("no source named 'nosuchd'"));
        assert!(error(&["fakemond"], 1_000_000_000).starts_with("nothing to play"));
    }
}
