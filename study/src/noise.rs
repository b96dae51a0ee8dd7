//! Noise from traces, other tools' files and periodic detours: which detours hit the ranks, and how they
//! delay work.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use analysis::words;
use anyhow::{Context, Result, anyhow, bail};
use formats::import;
use rand::{
    RngExt,
    distr::{Distribution, weighted::WeightedIndex},
};
use random::Stream;
use serde_json::json;
use simulate::noise::{Model, Nodes, Noise, Offsets, Timeline};

use crate::{
    open::{self, AnyReader, Opened},
    placement::{self, Places},
    recorded::{Recorded, Source, lane_words, no_source},
    shard::{self, Settings},
    sources::Sources,
    units,
    work::Work,
};

/// Which noise to load.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `none`, a trace (or several: `A,B`), or `periodic:1000Hz,200us`; several are superposed.
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
        let mut wishes = Wishes { without, sources, remarks: Vec::new() };
        for spec in self.noise.iter().filter(|spec| *spec != "none") {
            layers.push(self.layer(spec, work.seed, &mut wishes)?);
            names.push(spec.to_string_lossy().into_owned());
        }
        wishes.without.check()?;
        // Superposed layers mix the CPUs of different nodes.
        if layers.len() > 1 && layers.iter().any(|layer| layer.nodes.is_some()) {
            if let Some(ranks) = self.placement.ranks_per_node {
                bail!("--ranks-per-node {ranks} requires a single --noise");
            }
            let remark = "noise is superposed: every rank is on a random CPU of each recording";
            wishes.remarks.push(remark.to_owned());
        }
        let Wishes { sources, remarks, .. } = wishes;
        let sources = sources.unwrap_or_default();
        remarks.iter().for_each(|remark| work.watch.remark(remark));
        if layers.is_empty() {
            if self.coscheduled || self.synchronised.is_some() {
                let option = if self.coscheduled { "--coscheduled" } else { "--synchronised" };
                return Err(requires_noise(option));
            }
            // The model still determines the rules of the peer graph.
            let noise = Noise::none().with_model(model);
            return Ok(Loaded { noise, words: "none".to_owned(), model, sources, remarks });
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
        let noise = Noise::new(timelines, model, offsets)?.repeating(self.repeat_trace);
        let noise = noise.on_nodes(nodes);
        let mut described = names.join(" + ");
        if let Some(window) = self.synchronised.filter(|_| !self.coscheduled) {
            described += &format!(" synchronised within {}", words::time(window as f64 / 1e3));
        }
        if !self.without.is_empty() {
            described += &format!(" without {}", self.without.join(", "));
        }
        Ok(Loaded { noise, words: described, model, sources, remarks })
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
        });
        Ok(value.as_object().cloned().unwrap_or_default())
    }

    fn files(&self) -> Vec<PathBuf> {
        let specs = self.noise.iter().filter(|s| *s != "none" && periodic(s).is_none());
        let paths = specs.flat_map(|spec| open::split_list(spec));
        paths.map(|path| open::split_run(&path).0).collect()
    }

    /// One `--noise` argument: one timeline per node.
    fn layer(&self, spec: &OsStr, seed: u64, wishes: &mut Wishes<'_>) -> Result<Layer> {
        if let Some(periodic) = periodic(spec) {
            let timeline = wishes.named(parse_periodic(periodic)?, &spec.to_string_lossy());
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

/// The part after `periodic:`; None for a file. File names need not be UTF-8.
fn periodic(spec: &OsStr) -> Option<&str> {
    spec.to_str()?.strip_prefix("periodic:")
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
    // One lane at a time: its records take more memory than the noise.
    for (index, lane) in reader.lanes().iter().enumerate() {
        if !places.has(index) {
            continue;
        }
        let composed = places.cut(index, recorded.lane(reader, index)?);
        // The recording was truncated before the first event of this lane.
        let Some(composed) = composed.filter(|lane| lane.span_ns() > 0) else { continue };
        let timeline = match &numbers {
            Some(numbers) => composed.shared_without(&dropped, numbers),
            None => composed.without(&dropped),
        };
        timelines.push(timeline.with_context(|| format!("detours of {}", lane_words(lane)))?);
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
    let nodes = places.nodes().map(|(counts, ranks)| (counts.to_vec(), ranks));
    Ok(Layer { timelines, nodes })
}

/// Detours with lengths from the distribution, at random times, on average one per `period`.
///
/// The gaps between detours are exponential and fill the rest of the span, so that the rate is exact
/// regardless of the lengths.
fn from_distribution(lengths: &[(f64, u64)], period: i64, seed: u64) -> Result<Timeline> {
    /// Enough detours to sample the tail, few enough to stay in the cache.
    const DETOURS: u64 = 100_000;
    if lengths.iter().all(|(_, count)| *count == 0) {
        bail!("the distribution is empty");
    }
    let weights = WeightedIndex::new(lengths.iter().map(|(_, count)| *count))
        .context("the counts of the distribution are too large")?;
    let total = weights.total_weight() as f64;
    let sum: f64 = lengths.iter().map(|&(length, count)| length * 1e3 * count as f64).sum();
    let (mean, rate) = (sum / total, 1e12 / period as f64);
    let no_time_left = || {
        anyhow!(
            "{rate} detours per second with a mean length of {} take all of the time: use a \
             --noise-rate below {:.3}Hz",
            words::time(mean / 1e3),
            1e12 / mean
        )
    };
    if mean >= period as f64 {
        return Err(no_time_left());
    }
    let mut stream = Stream::new(seed);
    let drawn: Vec<(i64, f64)> = (0..DETOURS)
        .map(|_| {
            let length = lengths[weights.sample(&mut stream)].0;
            // Exponential gaps: detours are independent of each other.
            let gap = -(1.0 - stream.random::<f64>()).ln();
            ((length * 1e3).round() as i64, gap)
        })
        .collect();
    let span = period.saturating_mul(DETOURS as i64);
    let busy = drawn.iter().map(|(length, _)| *length).fold(0, i64::saturating_add);
    let gaps: f64 = drawn.iter().map(|(_, gap)| gap).sum();
    let free = span.checked_sub(busy).filter(|&free| free > 0).ok_or_else(no_time_left)?;
    let (mut gone, mut taken, mut detours) = (0.0, 0i64, Vec::new());
    for (length, gap) in drawn {
        gone += gap;
        detours.push((taken + (free as f64 * (gone / gaps)) as i64, length));
        taken += length;
    }
    Ok(Timeline::new(detours, span)?)
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

fn parse_periodic(text: &str) -> Result<Timeline> {
    let wrong = || format!("'periodic:{text}' is not periodic noise (e.g. periodic:1000Hz,200us)");
    let (rate, length) = text.split_once(',').with_context(wrong)?;
    let period = units::period(rate).map_err(anyhow::Error::msg).with_context(wrong)?;
    let length = units::picoseconds(length).map_err(anyhow::Error::msg).with_context(wrong)?;
    Ok(Timeline::periodic(period, length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000_000;

    /// Closed form: a rate r and a length l take r * l of the time.
    #[test]
    fn a_rate_is_the_rate_of_detours_and_not_of_the_gaps_between_them() {
        for (per_s, length_us, busy) in
            [(1_000, 500.0, 0.5), (1_000, 999.0, 0.999), (100, 1.0, 1e-4)]
        {
            let period = 1_000 * MS / per_s;
            let timeline = from_distribution(&[(length_us * 1e3, 7)], period, 3).unwrap();
            let rate = timeline.len() as f64 / (timeline.span() as f64 / 1e12);
            assert!((rate / per_s as f64 - 1.0).abs() < 1e-9, "{rate}");
            assert!((timeline.share() / busy - 1.0).abs() < 1e-9, "{}", timeline.share());
        }
        // Lengths of 100 and 900 us, one in four long: 300 us on average.
        let mixed = from_distribution(&[(100e3, 3), (900e3, 1)], MS, 3).unwrap();
        assert!((mixed.share() / 0.3 - 1.0).abs() < 0.02, "{}", mixed.share());
    }

    #[test]
    fn a_rate_that_leaves_no_time_is_refused() {
        for length_us in [1_000.0, 5_000.0] {
            let error = from_distribution(&[(length_us * 1e3, 1)], MS, 1).unwrap_err().to_string();
            assert!(error.contains("1000 detours per second"), "{error}");
            assert!(error.contains("--noise-rate"), "{error}");
        }
    }
}
