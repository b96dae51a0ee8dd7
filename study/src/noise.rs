//! Noise from traces, other tools' files and by its parameters: which detours hit the ranks, and how they
//! delay work.

pub(crate) mod generated;
pub mod placement;
pub mod support;
pub mod tail;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use analysis::words;
use anyhow::{Context, Result, anyhow, bail};
use formats::import;
use serde_json::json;
use simulate::noise::{Composed, Model, Nodes, Noise, Offsets, Timeline, draw};
use trace::Lane;

use crate::{
    noise::{
        generated::{Generated, from_distribution, variants},
        placement::Places,
        tail::Fitted,
    },
    recording::{
        open::{self, AnyReader, Opened},
        recorded::{Recorded, Source, lane_words, no_source},
        sources::Sources,
    },
    run::{
        shard::{self, Settings},
        work::Work,
    },
};

/// Which noise to load.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `none`, a trace (or several: `A,B`), `periodic:1000Hz,200us` or `poisson:1000Hz,200us`; several are
    /// superposed.
    pub noise: Vec<OsString>,
    /// None for the usual model of the simulation.
    pub model: Option<Model>,
    /// All ranks see the same detours at the same time.
    pub coscheduled: bool,
    /// Ranks see the same detours, offset by at most this time, ps.
    pub synchronised: Option<i64>,
    /// Sources of a recording to omit: names, units or classes.
    pub without: Vec<String>,
    /// Repeat the trace if a run is longer than it.
    pub repeat_trace: bool,
    /// Mean time between detours for files that contain only a distribution of lengths, ps.
    pub period: Option<i64>,
    /// Which CPU of a recorded node each rank is on.
    pub placement: placement::Request,
    /// Extend recordings by fitted tails.
    pub tail: bool,
    /// The nodes of a program with which noise was recorded, to be met by its ranks.
    pub with_program: Vec<WithProgram>,
}

/// Noise that was recorded together with a program, on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithProgram {
    /// The recording.
    pub path: PathBuf,
    /// Main threads of the ranks.
    pub threads: Vec<u32>,
    /// Begin and end of the program on the node's `CLOCK_MONOTONIC`, ns.
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The error for an option that is meaningless without noise.
pub fn requires_noise(option: &str) -> anyhow::Error {
    anyhow!("{option} requires --noise: add a trace or periodic:1000Hz,200us, or omit {option}")
}

/// Noise with its description.
pub struct Loaded {
    pub noise: Noise,
    pub words: String,
    pub model: Model,
    /// The sources of the detours; empty unless requested.
    pub sources: Sources,
    /// About recordings that are incomplete or not used as a whole.
    pub remarks: Vec<String>,
    /// How far each file was extended by fitted tails.
    pub tails: Vec<tail::Extended>,
}

/// The remarks about several, each once.
pub(crate) fn remarks(all: &[Loaded]) -> Vec<String> {
    let mut remarks = Vec::new();
    for remark in all.iter().flat_map(|loaded| &loaded.remarks) {
        if !remarks.contains(remark) {
            remarks.push(remark.clone());
        }
    }
    remarks
}

/// The timelines of one `--noise` argument.
#[derive(Default)]
struct Layer {
    timelines: Vec<Timeline>,
    /// The numbers of timelines of each node and the ranks that share one, as long as all of them belong
    /// to nodes that were recorded as a whole.
    nodes: Option<(Vec<usize>, u64)>,
}

impl Layer {
    fn extend(&mut self, more: Layer) {
        self.nodes = match (self.nodes.take(), more.nodes) {
            (None, nodes) if self.timelines.is_empty() => nodes,
            (Some((mut counts, ranks)), Some((further, fewer))) => {
                counts.extend(further);
                Some((counts, ranks.min(fewer)))
            }
            _ => None,
        };
        self.timelines.extend(more.timelines);
    }
}

/// Which parts of a recording to load.
struct Wishes<'a> {
    without: Wanted<'a>,
    /// None if sources are not needed.
    sources: Option<Sources>,
    remarks: Vec<String>,
    /// The seed of the tails to draw; None to use recordings as they are.
    tail: Option<u64>,
    tails: Vec<tail::Extended>,
    /// A file has only lengths of detours.
    has_lengths: bool,
}

impl Request {
    pub fn load(&self, work: &Work<'_>) -> Result<Loaded> {
        self.load_for(work, Model::default(), false)
    }

    /// Loads noise with this default model, and with the sources of detours if `attributed`.
    pub fn load_for(&self, work: &Work<'_>, usual: Model, attributed: bool) -> Result<Loaded> {
        let model = self.model.unwrap_or(usual);
        let mut layers: Vec<Layer> = Vec::new();
        let mut names = Vec::new();
        let found = vec![false; self.without.len()];
        let without = Wanted { without: &self.without, found, recordings: 0 };
        let sources = attributed.then(Sources::default);
        let tail = self.tail.then_some(work.seed);
        let (remarks, tails, has_lengths) = Default::default();
        let mut wishes = Wishes { without, sources, remarks, tail, tails, has_lengths };
        for spec in self.noise.iter().filter(|spec| *spec != "none") {
            // Sources of random noise on one node are independent of each other.
            let seed =
                if layers.is_empty() { work.seed } else { draw(work.seed, layers.len() as u64) };
            layers.push(self.layer(spec, seed, &mut wishes)?);
            names.push(spec.to_string_lossy().into_owned());
        }
        if !self.with_program.is_empty() {
            layers.push(of_program(&self.with_program, &mut wishes)?);
            names.push("recorded with the program".to_owned());
        }
        wishes.without.check()?;
        // Superposed layers mix the CPUs of different nodes.
        if layers.len() > 1 && layers.iter().any(|layer| layer.nodes.is_some()) {
            let per_node = self.placement.ranks_per_node.filter(|_| !self.placement.for_network);
            if let Some(ranks) = per_node {
                bail!("--ranks-per-node {ranks} requires a single --noise");
            }
            let remark = "noise is superposed: every rank is on a random CPU of each recording";
            wishes.remarks.push(remark.to_owned());
        }
        if self.tail && wishes.tails.is_empty() {
            bail!("--tail requires a recording: specify one with --noise, or omit --tail");
        }
        if self.period.is_some() && !wishes.has_lengths {
            bail!(
                "--noise-rate requires a file with only lengths of detours: the times of all other \
                 noise are known, so omit --noise-rate"
            );
        }
        wishes.remarks.extend(wishes.tails.iter().map(tail::Extended::words));
        let Wishes { sources, remarks, tails, .. } = wishes;
        let sources = sources.unwrap_or_default();
        remarks.iter().for_each(|remark| work.watch.remark(remark));
        if layers.is_empty() {
            if self.coscheduled || self.synchronised.is_some() {
                let option = if self.coscheduled { "--coscheduled" } else { "--synchronised" };
                return Err(requires_noise(option));
            }
            // The model still determines the rules of the peer graph.
            let noise = Noise::none().with_model(model);
            return Ok(Loaded { noise, words: "none".to_owned(), model, sources, remarks, tails });
        }
        if self.coscheduled {
            names.push("coscheduled".to_owned());
        }
        let offsets = match self.synchronised {
            _ if self.coscheduled => Offsets::Shared,
            Some(window) => Offsets::Within(window),
            None => Offsets::Random,
        };
        let nodes = match &layers[..] {
            [layer] => {
                let place = |(counts, ranks): &(Vec<usize>, u64)| {
                    Nodes::new(&layer.timelines, counts, *ranks)
                };
                layer.nodes.as_ref().and_then(place)
            }
            _ => None,
        };
        let timelines = superposed(layers.into_iter().map(|layer| layer.timelines).collect())?;
        if model == Model::LogGopSim && timelines.iter().any(Timeline::is_periodic) {
            bail!(
                "the loggopsim noise model requires a trace, not periodic noise: use --noise-model \
                 preempt"
            );
        }
        // That of a program is as long as the program: a run that takes longer begins again with it.
        let repeat = self.repeat_trace || !self.with_program.is_empty();
        let noise = Noise::new(timelines, model, offsets)?.repeating(repeat);
        let noise = noise.on_nodes(nodes);
        let mut described = names.join(" + ");
        if let Some(window) = self.synchronised.filter(|_| !self.coscheduled) {
            described += &format!(" synchronised within {}", words::time(window as f64 / 1e3));
        }
        if !self.without.is_empty() {
            described += &format!(" without {}", self.without.join(", "));
        }
        if self.tail {
            described += " with fitted tails";
        }
        Ok(Loaded { noise, words: described, model, sources, remarks, tails })
    }

    /// One request for each combination of rates and lengths, where `--noise` lists several.
    pub fn variants(&self) -> Vec<Request> {
        let mut all: Vec<Vec<OsString>> = vec![Vec::new()];
        for spec in &self.noise {
            let with = |so_far: &Vec<OsString>| {
                let so_far = so_far.clone();
                variants(spec).into_iter().map(move |one| {
                    let mut noise = so_far.clone();
                    noise.push(one);
                    noise
                })
            };
            all = all.iter().flat_map(with).collect();
        }
        all.into_iter().map(|noise| Request { noise, ..self.clone() }).collect()
    }

    /// The arguments of `--noise`.
    pub fn specs(&self) -> String {
        let specs = self.noise.iter().map(|spec| spec.to_string_lossy());
        specs.collect::<Vec<_>>().join(" + ")
    }

    /// Everything that determines the noise, including the content of its files.
    pub fn settings(&self) -> Result<Settings> {
        let value = json!({
            "noise": self.noise.iter().map(|spec| spec.to_string_lossy()).collect::<Vec<_>>(),
            "noise_files": self.files().iter().map(|path| shard::file(path)).collect::<Result<Vec<_>>>()?,
            "noise_model": self.model.map(Model::name),
            "coscheduled": self.coscheduled,
            "synchronised_ps": self.synchronised,
            "without": self.without,
            "repeat_trace": self.repeat_trace,
            "noise_period_ps": self.period,
            "placement": self.placement.placement.name(),
            "ranks_per_node": self.placement.ranks_per_node,
            "tail": self.tail,
        });
        Ok(value.as_object().cloned().unwrap_or_default())
    }

    /// The files among them.
    pub fn files(&self) -> Vec<PathBuf> {
        let specs = self.noise.iter().filter(|s| *s != "none" && Generated::of(s).is_none());
        let paths = specs.flat_map(|spec| open::split_list(spec));
        let paths = paths.map(|path| open::split_run(&path).0);
        paths.chain(self.with_program.iter().map(|node| node.path.clone())).collect()
    }

    /// One `--noise` argument: one timeline per node.
    fn layer(&self, spec: &OsStr, seed: u64, wishes: &mut Wishes<'_>) -> Result<Layer> {
        if let Some(generated) = Generated::of(spec) {
            let timeline = generated.timeline(seed)?;
            let timeline = wishes.named(timeline, &spec.to_string_lossy());
            return Ok(Layer { timelines: vec![timeline], nodes: None });
        }
        let mut layer = Layer::default();
        for path in open::split_list(spec) {
            layer.extend(
                self.file(&path, seed, wishes)
                    .with_context(|| format!("cannot read noise from {}", path.display()))?,
            );
        }
        Ok(layer)
    }

    fn file(&self, path: &Path, seed: u64, wishes: &mut Wishes<'_>) -> Result<Layer> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        match open::open_as_it_is(path)? {
            Opened::Trace(reader) => lanes(&reader, wishes, &self.placement),
            Opened::Runs(runs) => {
                for remark in runs.iter().filter_map(|run| run.window_remark.as_ref()) {
                    let remark = format!("{name}: {remark}");
                    if !wishes.remarks.contains(&remark) {
                        wishes.remarks.push(remark);
                    }
                }
                wishes.has_lengths |= runs.iter().any(|run| !run.distribution.is_empty());
                if let Some(seed) = wishes.tail {
                    let timelines = extended(&runs, seed, wishes)?;
                    let named = |timeline| wishes.named(timeline, &name);
                    return Ok(Layer {
                        timelines: timelines.into_iter().map(named).collect(),
                        nodes: None,
                    });
                }
                let run = |run| Ok(wishes.named(self.run(run, seed)?, &name));
                let timelines = runs.iter().map(run).collect::<Result<_>>()?;
                Ok(Layer { timelines, nodes: None })
            }
        }
    }

    /// A run imported from another tool's file.
    fn run(&self, run: &import::ImportedRun, seed: u64) -> Result<Timeline> {
        let ps = |ns: f64| (ns * 1e3).round() as i64;
        if !run.distribution.is_empty() {
            let Some(period) = self.period else {
                bail!(
                    "the file has only lengths of detours, not their times: specify a rate, e.g. \
                     --noise-rate 1000Hz"
                );
            };
            return from_distribution(&run.distribution, period, seed);
        }
        Timeline::check_span((run.span_ns * 1e3).round() as i128)?;
        let mut end = 0;
        let detours = run.detours.iter().map(|&(start, length)| {
            // Rounding to picoseconds must not make neighbours overlap.
            let start = ps(start - run.from_ns).max(end);
            let length = ps(length).max(0);
            end = start.saturating_add(length);
            (start, length)
        });
        Ok(Timeline::new(detours.collect::<Vec<_>>(), ps(run.span_ns))?)
    }
}

impl Wishes<'_> {
    /// Attributes all detours to a single source.
    fn named(&mut self, timeline: Timeline, name: &str) -> Timeline {
        match &mut self.sources {
            Some(sources) => timeline.of_source(sources.named(name)),
            None => timeline,
        }
    }
}

/// Sources to omit, and which of them were found.
struct Wanted<'a> {
    without: &'a [String],
    found: Vec<bool>,
    /// Number of recordings searched; other noise has no sources.
    recordings: usize,
}

impl Wanted<'_> {
    /// Whether to omit this source.
    fn drops(&mut self, source: &Source) -> bool {
        let mut drops = false;
        for (name, found) in self.without.iter().zip(&mut self.found) {
            let hit = source.is_called(name);
            *found |= hit;
            drops |= hit;
        }
        drops
    }

    fn check(&self) -> Result<()> {
        let missing: Vec<_> =
            self.without.iter().zip(&self.found).filter(|(_, found)| !**found).collect();
        match missing.first() {
            Some((name, _)) if self.recordings == 0 => bail!(
                "--without {name} requires a recording: specify one with --noise, or omit --without"
            ),
            Some((name, _)) => bail!("{}", no_source(name)),
            None => Ok(()),
        }
    }
}

/// One timeline per measured CPU, or per thread of a recorded program.
fn lanes(
    reader: &AnyReader,
    wishes: &mut Wishes<'_>,
    placement: &placement::Request,
) -> Result<Layer> {
    let recorded = Recorded::new(reader);
    let places = Places::new(reader, &recorded, placement, |_| true)?;
    let without = &mut wishes.without;
    without.recordings += 1;
    let dropped: Vec<bool> = recorded.sources.iter().map(|source| without.drops(source)).collect();
    let numbers = wishes.sources.as_mut().map(|sources| sources.of_recording(&recorded.sources));
    let mut timelines = Vec::new();
    let mut kept = Vec::new();
    let mut nodes = places.nodes().map(|(counts, ranks)| (counts.to_vec(), ranks));
    // One lane at a time: its records take more memory than the noise.
    for (index, lane) in reader.lanes().iter().enumerate() {
        if !places.has(index) {
            continue;
        }
        let composed = places.cut(index, recorded.lane(reader, index)?);
        // The recording was truncated before the first event of this lane.
        let Some(composed) = composed.filter(|lane| lane.span_ns() > 0) else { continue };
        if wishes.tail.is_some() {
            kept.push(composed.lacking(&dropped));
            continue;
        }
        let timeline = match &numbers {
            Some(numbers) => composed.shared_without(&dropped, numbers),
            None => composed.without(&dropped),
        };
        timelines.push(timeline.with_context(|| format!("detours of {}", lane_words(lane)))?);
    }
    if let Some(seed) = wishes.tail {
        let (copies, extended) = Fitted::of(reader, &recorded, &kept).extend(&kept, seed);
        for lane in copies.iter().flatten() {
            timelines.push(match &numbers {
                Some(numbers) => lane.shared_without(&[], numbers)?,
                None => lane.timeline()?,
            });
        }
        // Each copy has the nodes of the recording.
        nodes = nodes.map(|(counts, ranks)| (counts.repeat(copies.len()), ranks));
        wishes.tails.push(extended);
    }
    if timelines.is_empty() && reader.truncated().is_some() {
        bail!("{}", open::watched_nothing(reader));
    }
    if timelines.is_empty() {
        bail!("the recording has no detours");
    }
    let remarks = recorded.remarks();
    let remarks = remarks.iter().chain(&places.remarks);
    let remarks = remarks.map(|words| format!("{}: {words}", reader.name()));
    let remarks = remarks.chain(open::remark_if_not_whole(reader));
    wishes.remarks.extend(remarks);
    Ok(Layer { timelines, nodes })
}

/// What the ranks of a program met, each for itself: ranks of a node meet it at the same moment of the recording.
fn of_program(nodes: &[WithProgram], wishes: &mut Wishes<'_>) -> Result<Layer> {
    let mut layer = Layer::default();
    for WithProgram { path, threads, from_ns, to_ns } in nodes {
        let named = || format!("cannot read noise from {}", path.display());
        let reader = open::open(path).with_context(named)?;
        let recorded = Recorded::new(&reader);
        let without = &mut wishes.without;
        without.recordings += 1;
        let dropped: Vec<bool> =
            recorded.sources.iter().map(|source| without.drops(source)).collect();
        let numbers =
            wishes.sources.as_mut().map(|sources| sources.of_recording(&recorded.sources));
        let epoch = reader.manifest().started_monotonic_ns;
        let (from, to) = (from_ns.saturating_sub(epoch), to_ns.saturating_sub(epoch));
        let mut timelines = Vec::new();
        for thread in threads {
            let is_it = |lane: &Lane| matches!(lane, Lane::Thread { tid, .. } if tid == thread);
            // Which ranks are missing is among the remarks about the program.
            let Some(index) = reader.lanes().iter().position(is_it) else { continue };
            let lane = recorded.lane_as_it_was(&reader, index).with_context(named)?;
            let lane = lane.within(from, to);
            let timeline = match &numbers {
                Some(numbers) => lane.shared_without(&dropped, numbers),
                None => lane.without(&dropped),
            };
            timelines.push(timeline.with_context(named)?);
        }
        if timelines.is_empty() {
            continue;
        }
        wishes.remarks.extend(open::remark_if_not_whole(&reader));
        let ranks = timelines.len();
        layer.extend(Layer { timelines, nodes: Some((vec![ranks], ranks as u64)) });
    }
    if layer.timelines.is_empty() {
        bail!(
            "the noise recorded with the program covers none of its ranks: specify noise with \
             --noise"
        );
    }
    Ok(layer)
}

/// Another tool's runs, extended by a fitted tail. Its times become whole nanoseconds.
fn extended(
    runs: &[import::ImportedRun],
    seed: u64,
    wishes: &mut Wishes<'_>,
) -> Result<Vec<Timeline>> {
    let lane = |run: &import::ImportedRun| {
        if run.detours.is_empty() && !run.distribution.is_empty() {
            bail!(
                "--tail requires the times of detours, and the file has only their lengths: omit --tail"
            );
        }
        let mut lane = Composed::new(0, run.span_ns.max(0.0).round() as u64);
        let mut end = 0;
        for &(start, length) in &run.detours {
            // Rounding must not make neighbours overlap.
            let start = ((start - run.from_ns).max(0.0).round() as u64).max(end);
            let length = length.max(0.0).round() as u64;
            end = start.saturating_add(length);
            lane.push(start, length, [(0, length)])?;
        }
        Ok(lane)
    };
    let lanes = runs.iter().map(lane).collect::<Result<Vec<_>>>()?;
    let (copies, extended) = Fitted::new(&lanes, &[0], &[None]).extend(&lanes, seed);
    wishes.tails.push(extended);
    Ok(copies.iter().flatten().map(Composed::timeline).collect::<Result<_, _>>()?)
}

/// Superposes the layers of noise for every node; a layer with several nodes keeps them apart.
fn superposed(layers: Vec<Vec<Timeline>>) -> Result<Vec<Timeline>> {
    let nodes = layers.iter().map(Vec::len).max().unwrap_or(0);
    if layers.len() == 1 {
        return Ok(layers.into_iter().flatten().collect());
    }
    let mut together = Vec::new();
    for node in 0..nodes {
        let parts: Vec<Timeline> = layers
            .iter()
            .filter_map(|layer| layer.get(node % layer.len().max(1)).cloned())
            .collect();
        together.push(Timeline::superposed(&parts)?);
    }
    Ok(together)
}
