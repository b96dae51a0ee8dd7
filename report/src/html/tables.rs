//! Text and tables of the page.

use analysis::Summary;
use study::{
    decide::{
        advice::{Remedies, Remedy},
        projection::Projection,
    },
    run::point::Point,
};
use trace::{Manifest, Mode};

use super::{
    legend::Key,
    projection,
    scale::{ranks, short, time, us},
};
use crate::{
    headline::{label, outside_label_with_evidence},
    slowdown::knee_or_none,
    tables::wait_words,
    words::{capital, count, cut, date, frequency, name, percent, plural, rate, safe},
};

/// Rows of a table, and lines of a list: a recording may have thousands.
pub(super) const ROWS: usize = 40;
/// Rows of the source table that are shown initially.
pub(super) const FIRST: usize = 12;
pub(super) const LINES: usize = 60;
/// Characters of a name, and of any other text from a recording.
pub(super) const NAME: usize = 80;
const LONGEST: usize = 1_500;

/// Remedies are shown for sources with at least this share of the time.
const ADVISED_PCT: f64 = 0.1;

/// One row of the source table.
pub(super) struct Source {
    /// CSS class of its colour; `so` if it has no series.
    pub(super) key: String,
    pub(super) name: String,
    pub(super) class: String,
    pub(super) unit: String,
    pub(super) detail: String,
    /// Best first.
    pub(super) remedies: Vec<Remedy>,
    pub(super) own: bool,
    /// The recorded program itself.
    pub(super) program: bool,
    pub(super) cells: Vec<String>,
    pub(super) share_pct: f64,
}

impl Source {
    pub(super) fn share(&self) -> String {
        percent(self.share_pct)
    }

    /// 0 to 100.
    pub(super) fn bar(&self) -> String {
        format!("{:.1}", self.share_pct.clamp(0.0, 100.0))
    }
}

/// The projection as the page shows it.
pub(super) struct Projected {
    /// The job, and a description of it.
    pub(super) job: Option<(String, String)>,
    pub(super) boxes: Option<String>,
    pub(super) knee: String,
    pub(super) without: Option<String>,
    pub(super) idle: Option<(String, String)>,
    pub(super) idle_names: Vec<(String, String)>,
    pub(super) idle_rows: Vec<Vec<String>>,
    pub(super) settings: String,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) remarks: Vec<String>,
}

/// Text from a recording, truncated to a length that fits a page.
pub(super) fn limited(text: &str) -> String {
    cut(&safe(text), LONGEST)
}

fn advised(remedies: Option<&Vec<Remedy>>, share_pct: f64) -> Vec<Remedy> {
    let remedies = remedies.filter(|_| share_pct >= ADVISED_PCT);
    remedies.map(|list| list.iter().map(cut_down).collect()).unwrap_or_default()
}

/// Commands contain names from the recording.
fn cut_down(remedy: &Remedy) -> Remedy {
    Remedy { run: remedy.run.iter().map(|line| limited(line)).collect(), ..remedy.clone() }
}

/// `5 us` of the text report becomes `5 µs`, with a non-breaking space before units.
pub(super) fn micro(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, word) in text.split(' ').enumerate() {
        let unit = word.trim_end_matches([',', ';', '.', ':', ')']);
        let of_number = out.ends_with(|c: char| c.is_ascii_digit())
            && matches!(unit, "%" | "s" | "ms" | "us" | "ns");
        match (index, of_number) {
            (0, _) => {}
            (_, true) => out.push('\u{a0}'),
            (_, false) => out.push(' '),
        }
        match word.strip_prefix("us").filter(|_| of_number && unit == "us") {
            Some(rest) => {
                out.push_str("µs");
                out.push_str(rest);
            }
            None => out.push_str(word),
        }
    }
    out
}

pub(super) fn title(summary: &Summary) -> String {
    let host = if summary.host.is_empty() { "an unknown host" } else { &summary.host };
    format!("Detours on {}", cut(&safe(host), NAME))
}

pub(super) fn facts(summary: &Summary) -> Vec<(String, String)> {
    let mut facts = vec![("noise".to_owned(), percent(summary.noise_pct))];
    if summary.detours > 0 {
        facts.push(("detours".to_owned(), count(summary.detours)));
        let longest = summary.cpus.iter().map(|c| c.longest_ns);
        let longest = longest.chain(summary.threads.iter().map(|t| t.longest_ns)).max();
        facts.push(("longest".to_owned(), time(longest.unwrap_or(0) as f64)));
    }
    if let Some(pct) = summary.attributed.time_pct.filter(|_| summary.mode == Mode::Attributed) {
        facts.push(("attributed".to_owned(), percent(pct)));
    }
    facts.push(("recorded".to_owned(), time(summary.duration_s * 1e9)));
    let (cpus, threads) = (summary.cpus.len(), summary.threads.len());
    if threads > 0 {
        facts.push((
            if threads == 1 { "thread" } else { "threads" }.to_owned(),
            threads.to_string(),
        ));
    } else {
        facts.push((if cpus == 1 { "CPU" } else { "CPUs" }.to_owned(), cpus.to_string()));
    }
    facts
}

pub(super) fn sources(summary: &Summary, remedies: &Remedies, keys: &[Key]) -> Vec<Source> {
    let row = |(index, source): (usize, &analysis::SourceRow)| {
        let own = format!("s{index}");
        let hits = match source.hits == source.count {
            true => String::new(),
            false => format!(" ({} hits)", count(source.hits)),
        };
        let mut cells = vec![
            format!("{}{hits}", count(source.count)),
            rate(source.rate_hz),
            time(source.cost_ns_total as f64),
            time(source.cost_ns_p50 as f64),
            time(source.cost_ns_p99 as f64),
            time(source.cost_ns_max as f64),
        ];
        cells.push(source.period_ns.map(|ns| time(ns as f64)).unwrap_or_default());
        Source {
            key: if keys.iter().any(|k| k.class == own) { own } else { "so".to_owned() },
            name: cut(&label(source), NAME),
            class: source.class.name().replace('_', " "),
            unit: source.unit.as_deref().map(|u| cut(&safe(u), NAME)).unwrap_or_default(),
            detail: detail(source),
            remedies: advised(remedies.sources.get(index), source.share_pct),
            own: source.own,
            program: source.program,
            cells,
            share_pct: source.share_pct,
        }
    };
    let mut rows: Vec<Source> = summary.sources.iter().enumerate().take(ROWS).map(row).collect();
    rows.extend(outside(summary, &remedies.outside));
    rows.sort_by(|a, b| b.share_pct.total_cmp(&a.share_pct));
    rows
}

/// Policy, then details.
fn detail(source: &analysis::SourceRow) -> String {
    let parts = [source.policy.as_deref(), source.detail.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    cut(&safe(&parts.join("; ")), 3 * NAME)
}

/// Unexplained time is in the same table: it took time like any source.
fn outside(summary: &Summary, remedies: &[Vec<Remedy>]) -> Vec<Source> {
    let row = |(index, row): (usize, &analysis::OutsideRow)| {
        let label = outside_label_with_evidence(&row.class, &summary.outside_evidence);
        let (name, detail) = match (row.class.as_str(), &label) {
            ("microarchitecture", Some(label)) => {
                (label.as_str(), "below 1 µs, without a kernel record: caches, TLB, SMT sibling")
            }
            ("hypervisor", Some(label)) => {
                (label.as_str(), "1 µs or longer, without a kernel record: the host")
            }
            ("smi", Some(label)) => {
                (label.as_str(), "1 µs or longer, without a kernel record: the firmware")
            }
            (_, Some(label)) => (label.as_str(), "1 µs or longer, without a kernel record"),
            ("unattributed_short", None) => ("below 1 µs", "kernel events were not recorded"),
            (_, None) => ("1 µs or longer", "kernel events were not recorded"),
        };
        let share = row.cost_ns_total as f64 / summary.taken_ns_total.max(1) as f64 * 100.0;
        Source {
            key: "su".to_owned(),
            name: name.to_owned(),
            class: if row.class.starts_with("unattributed") { "detours" } else { "outside" }
                .to_owned(),
            unit: String::new(),
            detail: detail.to_owned(),
            remedies: advised(remedies.get(index), share),
            own: false,
            program: false,
            cells: vec![
                count(row.count),
                rate(row.rate_hz),
                time(row.cost_ns_total as f64),
                time(row.cost_ns_p50 as f64),
                time(row.cost_ns_p99 as f64),
                time(row.cost_ns_max as f64),
                String::new(),
            ],
            share_pct: share,
        }
    };
    summary.outside_kernel.iter().enumerate().map(row).collect()
}

pub(super) fn more_sources(summary: &Summary) -> Option<String> {
    let rest = summary.sources.get(ROWS..).filter(|rest| !rest.is_empty())?;
    let cost = rest.iter().fold(0u64, |sum, s| sum.saturating_add(s.cost_ns_total));
    let more = plural(rest.len() as u64, "more source");
    Some(format!("{more}, {} in total: `detour report --all` lists them.", time(cost as f64)))
}

pub(super) fn cpus(summary: &Summary) -> Vec<Vec<String>> {
    let mut cpus: Vec<_> = summary.cpus.iter().collect();
    if cpus.len() > ROWS {
        cpus.sort_by(|a, b| b.noise_pct.total_cmp(&a.noise_pct).then(a.cpu.cmp(&b.cpu)));
        cpus.truncate(ROWS);
    }
    let row = |c: &&analysis::CpuRow| {
        vec![
            match &c.host {
                Some(host) => format!("{} {}", safe(host), c.cpu),
                None => c.cpu.to_string(),
            },
            c.t_min_ns.map(time).unwrap_or_default(),
            c.resolution_hz.map(frequency).unwrap_or_default(),
            c.threshold_ns.map(time).unwrap_or_default(),
            count(c.detours),
            time(c.detour_ns_total as f64),
            time(c.longest_ns as f64),
            percent(c.noise_pct),
        ]
    };
    cpus.iter().map(row).collect()
}

/// A program's threads, those that lost the most time.
pub(super) fn threads(summary: &Summary) -> Vec<Vec<String>> {
    let latency = |of: Option<analysis::Latency>, ns: fn(&analysis::Latency) -> u64| {
        of.map(|latency| time(ns(&latency) as f64)).unwrap_or_default()
    };
    let row = |t: &analysis::ThreadRow| {
        let name = match &t.host {
            Some(host) => format!("{} {} {}", safe(host), name(&t.name), t.tid),
            None => format!("{} {}", name(&t.name), t.tid),
        };
        vec![
            cut(&name, NAME),
            time(t.window_s * 1e9),
            t.wanted_ns.map(|ns| time(ns as f64)).unwrap_or_default(),
            count(t.detours),
            time(t.lost_ns_total as f64),
            time(t.longest_ns as f64),
            percent(t.lost_pct),
            t.wakeup_latency.map(|latency| count(latency.count)).unwrap_or_default(),
            latency(t.wakeup_latency, |latency| latency.ns_p50),
            latency(t.wakeup_latency, |latency| latency.ns_p99),
            latency(t.wakeup_latency, |latency| latency.ns_max),
            if t.lends_noise { "yes" } else { "no" }.to_owned(),
        ]
    };
    summary.threads.iter().take(ROWS).map(row).collect()
}

/// Waits of a program's threads for a CPU, by kind.
pub(super) fn waits(summary: &Summary) -> Vec<Vec<String>> {
    let row = |wait: &analysis::WaitRow| {
        vec![
            wait.kind.name().to_owned(),
            wait_words(wait.kind).to_owned(),
            count(wait.count),
            time(wait.wait_ns_total as f64),
            time(wait.wait_ns_p50 as f64),
            time(wait.wait_ns_p99 as f64),
            time(wait.wait_ns_max as f64),
            percent(wait.wanted_pct),
        ]
    };
    summary.waits.iter().map(row).collect()
}

pub(super) fn manifest(manifest: &Manifest) -> Vec<(String, String)> {
    let m = manifest;
    let topology = &m.topology;
    let mut rows = vec![
        ("recorded", m.mode.to_string()),
        ("host", m.host.clone()),
        ("started", started(m.started_unix_s)),
        ("kernel", format!("{} {}", m.kernel, m.arch)),
        ("processor", m.cpu_model.clone()),
        ("CPUs online", topology.online.clone()),
        ("measured", m.isolation.measured.clone()),
        ("housekeeping", m.isolation.housekeeping.clone()),
        ("isolated", m.isolation.isolated.clone()),
        ("nohz_full", m.isolation.nohz_full.clone()),
        ("rcu_nocbs", m.isolation.rcu_nocbs.clone().unwrap_or_default()),
        ("IRQ affinity", m.isolation.irq_affinity.clone().unwrap_or_default()),
        ("kernel command line", m.isolation.kernel_command_line.clone()),
        ("clock source", m.clocksource.clone()),
        ("probe clock", m.probe_clock.clone().unwrap_or_default()),
        ("job", m.job_id.clone().unwrap_or_default()),
        ("recorded by", format!("detour {}", m.detour_version)),
        ("hooks", hooks(m)),
    ];
    if topology.cores > 0 {
        let text = format!(
            "{} of {}, {}",
            plural(topology.cores.into(), "core"),
            plural(topology.sockets.into(), "socket"),
            plural(topology.numa_nodes.into(), "NUMA node")
        );
        rows.insert(6, ("topology", text));
    }
    rows.into_iter()
        .filter(|(_, value)| !value.trim().is_empty())
        .map(|(name, value)| (name.to_owned(), limited(value.trim())))
        .collect()
}

fn hooks(manifest: &Manifest) -> String {
    if manifest.hooks_attached.is_empty() {
        return String::new();
    }
    let shown: Vec<&str> = manifest.hooks_attached.iter().take(LINES).map(String::as_str).collect();
    format!("{}: {}", manifest.hooks_attached.len(), shown.join(", "))
}

/// A time in UTC, from seconds since the epoch. Empty if unknown.
fn started(unix_s: f64) -> String {
    let Some([year, month, day, hour, minute, second]) = date(unix_s) else {
        return String::new();
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

pub(super) fn projected(projection: &Projection) -> Projected {
    let knee = capital(&knee_or_none(projection.knee.as_ref(), "noise", &projection.points, ranks));
    let row = |p: &Point| {
        vec![
            ranks(p.ranks),
            p.runs.to_string(),
            us(p.noiseless_us),
            us(p.q25_us),
            us(p.median_us),
            us(p.q75_us),
            us(p.max_us),
            format!("{}×", short(p.slowdown_median)),
        ]
    };
    let idle_names = projection.idle.iter().enumerate();
    let job = projection::job(projection).zip(projection.job.as_ref());
    let job = job.map(|(svg, curve)| {
        let text = capital(&micro(&limited(&curve.text)));
        let tail = match curve.with_tail.is_empty() {
            true => "",
            false => "; fitted tails add detours that are longer or rarer than the recorded ones",
        };
        (svg, format!("{text}, network {}, median of {} runs{tail}", projection.net, curve.runs))
    });
    Projected {
        job,
        boxes: projection::boxes(projection),
        knee,
        without: projection::without(projection),
        idle: projection::idle(projection),
        idle_names: idle_names
            .map(|(i, idle)| (format!("i{i}"), format!("{} processors", idle.processors)))
            .collect(),
        idle_rows: projection::idle_rows(projection),
        settings: format!(
            "{}, 1 byte, network {}, seed {}",
            projection.operation, projection.net, projection.seed
        ),
        rows: projection.points.iter().map(row).collect(),
        remarks: projection.remarks.iter().take(LINES).map(|r| limited(r)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(started(0.0), "");
        assert_eq!(started(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(started(1_700_000_000.5), "2023-11-14 22:13:20 UTC");
        assert_eq!(started(f64::NAN), "");
        assert_eq!(started(1e300), "");
    }

    #[test]
    fn numbers_keep_their_units_and_only_they_get_the_greek_letter() {
        assert_eq!(micro("from 1 us on, 20 us."), "from 1\u{a0}µs on, 20\u{a0}µs.");
        assert_eq!(micro("(28 %), 2.00 s on CPU 1"), "(28\u{a0}%), 2.00\u{a0}s on CPU 1");
        assert_eq!(micro("tell us, 5 users, use us"), "tell us, 5 users, use us");
    }
}
