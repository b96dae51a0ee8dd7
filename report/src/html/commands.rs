//! The commands that reproduce a page and its figures.

use std::path::Path;

use analysis::words::shell_quoted;
use study::{
    decide::projection::{EXCHANGE_US, PROCESSORS, Request, SAMPLES},
    jobs::workload::{self, JobKind},
    network,
    noise::placement::Placement,
};
use trace::Manifest;

use super::tables;

/// A command line that produces something on the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub what: String,
    pub line: String,
}

impl Command {
    pub(super) fn new(what: &str, line: String) -> Command {
        Command { what: what.to_owned(), line }
    }

    /// With lines truncated to fit a page.
    pub(super) fn limited(&self) -> Command {
        let lines: Vec<String> = self.line.lines().map(tables::limited).collect();
        Command { what: tables::limited(&self.what), line: lines.join("\n") }
    }
}

/// For a page at this path, of the recording in file `trace`. Without a request, the projection was
/// omitted; it is `projected` if there was anything to project.
#[must_use]
pub fn commands(
    page: &Path,
    trace: &str,
    manifest: &Manifest,
    request: Option<(&Request, u64)>,
    projected: bool,
) -> Vec<Command> {
    let trace = shell_quoted(trace);
    let mut commands = Vec::new();
    if !manifest.command_line.is_empty() {
        let words: Vec<String> =
            manifest.command_line.iter().take(100).map(|word| shell_quoted(word)).collect();
        commands.push(Command::new("Recording", words.join(" ")));
    }
    let line =
        format!("detour report {trace} --html {}", shell_quoted(&page.display().to_string()));
    let line = match request {
        Some((request, seed)) => line + &options(request, seed),
        None => line + " --no-projection",
    };
    commands.push(Command::new("This page", line));
    let report = format!("detour report {trace} --all\ndetour report {trace} --json");
    commands.push(Command::new("Report in the terminal and as JSON", report));
    if let Some((request, seed)) = request.filter(|_| projected) {
        commands.extend(simulations(request, seed, &trace));
        commands
            .push(Command::new("Gain from removing each source", format!("detour whatif {trace}")));
    }
    commands
}

/// The options of `detour report --html`.
fn options(request: &Request, seed: u64) -> String {
    let mut ranks = request.ranks.clone();
    ranks.sort_unstable();
    // Given, the largest is also that of the job.
    let usual = Request::usual().is_ok_and(|usual| usual.ranks == ranks);
    let ranks = if usual { String::new() } else { format!(" --ranks {}", list(&ranks)) };
    let placement = match request.placement.placement {
        Placement::Node => String::new(),
        random => format!(" --placement {}", random.name()),
    };
    let per_node = request.placement.ranks_per_node;
    let per_node = per_node.map_or_else(String::new, |n| format!(" --ranks-per-node {n}"));
    let exclude = request.exclude.iter().map(|name| format!(" --exclude {}", shell_quoted(name)));
    let placed = placement
        + &per_node
        + &exclude.collect::<String>()
        + if request.tail { "" } else { " --no-tail" };
    format!(
        "{ranks} --runs {} --net {}{}{placed} --seed {seed}",
        request.runs,
        network::describe(&request.workload.net),
        network::rendezvous_option(request.workload.rendezvous),
    ) + &network_options(&request.workload)
        + &job_options(&request.workload)
}

/// The network within nodes and how the network varies, if they are not the usual ones.
fn network_options(workload: &workload::Request) -> String {
    let local =
        workload.local.map(|local| format!(" --net-local {}", network::describe(&local.params)));
    let latency = workload.latency.as_ref().map(|latency| latency.options());
    local.unwrap_or_default() + &latency.unwrap_or_default()
}

fn tail(request: &Request) -> &'static str {
    if request.tail { " --tail" } else { "" }
}

/// The options of the job that differ from the usual one.
fn job_options(workload: &workload::Request) -> String {
    let usual = workload::Request::usual();
    match (&workload.kind, usual.as_ref().map(|usual| &usual.kind)) {
        (
            JobKind::Collectives { job, size, .. },
            Ok(JobKind::Collectives { job: usual, size: usual_size, .. }),
        ) => {
            let size = if size == usual_size { String::new() } else { format!(" --size {size}") };
            job.options(usual) + &size
        }
        _ => String::new(),
    }
}

/// The commands of the figures.
fn simulations(request: &Request, seed: u64, trace: &str) -> Vec<Command> {
    let option = network::rendezvous_option(request.workload.rendezvous);
    let net =
        network::describe(&request.workload.net) + &option + &network_options(&request.workload);
    let nodes = request.workload.local.map(|local| local.ranks_per_node);
    let net = net + &nodes.map_or_else(String::new, |ranks| format!(" --ranks-per-node {ranks}"));
    let mut commands: Vec<Command> = Vec::new();
    let mut ranks = request.ranks.clone();
    ranks.sort_unstable();
    for same in ranks.chunk_by(|&a, &b| request.runs_at(a) == request.runs_at(b)) {
        let Some(&first) = same.first() else { continue };
        let (runs, list) = (request.runs_at(first), list(same));
        commands.push(Command {
            what: format!("Allreduce, {runs} runs per point"),
            line: format!(
                "detour simulate collective --op allreduce --noise {trace} --repeat-trace{} --ranks \
                 {list} --runs {runs} --net {net} --seed {seed}",
                tail(request)
            ),
        });
    }
    let line = format!(
        "detour simulate alltoall --noise {trace} --repeat-trace{} --exchange {EXCHANGE_US}us \
         --ranks {} --samples {SAMPLES} --seed {seed}",
        tail(request),
        PROCESSORS.map(|p| p.to_string()).join(",")
    );
    commands.push(Command::new("All-to-all idle times (omit a source with --without NAME)", line));
    commands
}

/// Rank counts in command-line syntax.
fn list(ranks: &[u64]) -> String {
    match ranks {
        [first, .., last]
            if first.is_power_of_two() && ranks.windows(2).all(|w| w[1] == 2 * w[0]) =>
        {
            format!("{first}..{last}")
        }
        _ => ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    }
}
