//! The command line. Command and option names are a stable interface: scripts use them.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, error::ErrorKind};

use crate::{
    manual::help,
    options::{job_file, judged},
    output, units,
};

#[derive(Parser)]
#[command(
    name = "detour",
    version,
    about = "Record OS noise, attribute it, and simulate what it costs parallel jobs",
    max_term_width = 100
)]
pub struct Cli {
    /// Print less
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more: settings, attached hooks
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub color: output::When,
    /// Do not pipe long text on a terminal into a pager ($DETOUR_PAGER, $PAGER or less)
    #[arg(long, global = true)]
    pub no_pager: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Check what this machine can record and how to enable what is missing
    Doctor(Doctor),
    /// Record detours and their sources to a trace file
    ///
    /// Ctrl-C, SIGTERM, SIGQUIT, SIGXCPU and, unless ignored (as SIGHUP is under nohup), SIGHUP, SIGALRM,
    /// SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT and real-time signals stop the recording; the trace file is
    /// complete. All but Ctrl-C, SIGQUIT and SIGXCPU also terminate the recorded command. SIGUSR1 and SIGUSR2
    /// are ignored. Exceeding the file size limit (SIGXFSZ) is reported like a full disk. If
    /// interrupted while still loading, it writes nothing and exits with status 130.
    Record(Record),
    /// Show sources of noise live in the terminal
    ///
    /// Shows kernel records of all CPUs, at low overhead. The probe measures lost time to the
    /// nanosecond, but occupies every CPU it runs on, so it runs only with --probe. Without the
    /// privileges to load BPF programs, it falls back to a single probe. Press ? for all keys.
    Top(Top),
    /// Report the sources of noise in a recording
    Report(Report),
    /// Import another tool's noise file
    Import(Import),
    /// Export a recording to another tool's format
    Export(Export),
    /// Simulate what noise costs a parallel job
    Simulate(crate::simulate::Simulate),
    /// Generate, convert and check GOAL schedules for `simulate goal`
    Goal(crate::goal::Goal),
    /// Predict the longest detours in more time than was recorded
    ///
    /// A recording of a few seconds lacks the rare detours that delay a job on thousands of ranks.
    /// Periodic and bounded sources are capped, heavy-tailed ones get a fitted tail (peaks over a
    /// threshold, with 95 % intervals), and for events that occurred a few times or never, the rate
    /// is bounded.
    Tail(crate::tail::Options),
    /// Compare two recordings source by source, for example before and after tuning
    Diff(Box<crate::diff::Options>),
    /// Show distributions of any samples side by side: figures, modes, fits, tails, shifts
    Dist(Box<crate::dist::Options>),
    /// Simulate what removing each source of noise would gain at scale
    Whatif(Box<crate::whatif::Options>),
    /// Record MPI programs and show where their time goes; measure the network with MPI
    Mpi(crate::mpi::Mpi),
    /// Attribute waits and the critical path of a recorded MPI run to causes
    ///
    /// Traces every wait back, through the waits of the late rank, to the computation, the
    /// communication or the source of noise that made it late. Nothing is simulated: noise is what
    /// `detour mpi record --noise` recorded next to the traces.
    Blame(crate::blame::Options),
    /// Measure the network between two hosts without MPI: L, os, or, g, G, O and S for --net
    ///
    /// One host waits, `detour net --tcp --listen`; the other connects, `detour net --tcp HOST -o net.toml`.
    /// The waiting end serves one measurement. Both poll, as MPI libraries do.
    Net(crate::net::Options),
    /// Merge the shards of a simulation, the traces of a job's nodes, or the directories of an MPI run
    ///
    /// Shards, as written by `detour simulate --shard`, merge exactly: the output is identical to
    /// that of a single machine. Traces are merged into one trace file, whose report also lists the
    /// nodes. Directories that `detour mpi record` has written on nodes without a common file
    /// system are merged into one; ranks that are still missing are listed.
    Merge(Merge),
    /// Record this machine for 10 s, print a report and write report.html with projections
    Demo(Demo),
    /// Play the detours of a recording back on a quiet node
    ///
    /// On each CPU a thread with a real-time priority (SCHED_FIFO 1, if permitted) takes the CPU when a recorded
    /// detour began, for as long as it took: a program meets the recorded noise, or that of one source, on a node
    /// without it. The recorder's own detours are left out. Nothing on the node is changed.
    #[cfg(target_os = "linux")]
    Inject(crate::inject::Options),
    /// Generate man pages
    Man(Man),
    /// Generate shell completions
    Completions(Completions),
}

/// Exit status of a gate that cannot judge: 1 means that it judged, and failed.
const CANNOT_JUDGE: u8 = 3;

impl Command {
    /// Exit status after an error.
    pub fn failure_status(&self) -> u8 {
        let is_gate = match self {
            Command::Diff(options) => options.is_gate(),
            Command::Report(options) => options.baseline.is_some(),
            _ => false,
        };
        if is_gate { CANNOT_JUDGE } else { 1 }
    }
}

#[derive(Args)]
pub struct Doctor {
    /// Exit with status 1 if a requirement is missing, so that only the probe can record
    #[arg(long)]
    pub strict: bool,
    /// Audit CPUs that are meant to be quiet: record everything that interrupts them while the probe keeps
    /// them busy, why, and the setting that removes it; exit with status 1 if one is not quiet
    #[arg(long)]
    pub isolation: bool,
    /// CPUs to audit (1,3-5) [default: those isolated by isolcpus, nohz_full or a cpuset]
    #[arg(short, long, value_parser = units::cpus, requires = "isolation")]
    pub cpus: Option<recorder::CpuSet>,
    /// How long to audit
    #[arg(short, long, default_value = "10s", value_parser = units::duration, requires = "isolation")]
    pub duration: Duration,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Record {
    /// How long to record (10s, 5m, 1h) [default: 10s; with a program, until it exits]
    #[arg(short, long, value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// Record for as long as a projection to this many ranks needs (64Ki), and print how long that is
    #[arg(
        long,
        value_name = "RANKS",
        value_parser = units::rank_count,
        conflicts_with_all = ["duration", "until", "pid", "cgroup", "command"]
    )]
    pub for_ranks: Option<u64>,
    /// Time between two synchronisations of the job [default: that of the job of `detour report`, 1 ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "for_ranks")]
    pub interval: Option<Duration>,
    /// CPUs to measure, or to run the command on (1,3-5) [default: all this process may use]
    #[arg(short, long, value_parser = units::cpus)]
    pub cpus: Option<recorder::CpuSet>,
    /// CPUs for the recorder's own threads [default: those not measured]
    #[arg(short = 'H', long, value_parser = units::cpus)]
    pub housekeeping: Option<recorder::CpuSet>,
    /// Minimum length of a detour: a multiple of t_min (9x) or a time (1us) [default: 9x; with a
    /// program, none]
    #[arg(short = 'T', long, value_parser = units::threshold)]
    pub threshold: Option<recorder::Threshold>,
    /// Trace file to write; %h, %j, %r and %t expand to host, job, rank and time
    /// [default: detour-%h-%t.detour; within a job, detour-%j-%h-%r-%t.detour]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Overwrite a file that is not a recording; an older recording is kept as FILE.old
    #[arg(long)]
    pub force: bool,
    /// Start at the next multiple of TIME on the wall clock, so that all nodes of a job start together
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub align: Option<Duration>,
    /// Record until this happens (detour>500us, source=NAME>100us or process=NAME>100us), keep the last
    /// seconds, and show the ten longest detours; with -d, for at most that long
    #[arg(long, value_name = "CONDITION", value_parser = condition)]
    pub until: Option<recorder::Condition>,
    /// How much to keep of a recording with --until
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration, requires = "until")]
    pub keep: Duration,
    /// Run this shell command when the condition occurs; DETOUR_TRACE is the name of the trace file
    #[arg(long, value_name = "COMMAND", requires = "until")]
    pub run: Option<OsString>,
    /// Probe only: detours without sources; needs no privileges
    #[arg(long, conflicts_with = "no_probe")]
    pub no_bpf: bool,
    /// Kernel records only: sources without detours
    #[arg(long, conflicts_with = "fifo")]
    pub no_probe: bool,
    /// Run the probes under SCHED_FIFO at this priority; real-time throttling may then add noise
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub fifo: Option<u32>,
    /// Record the addresses of kernel functions without symbols; omitted by default, since they reveal
    /// the kernel's memory layout (KASLR)
    #[arg(long)]
    pub kernel_addresses: bool,
    /// Ring buffer size per measured CPU: increase it if records are lost, decrease it if memory is
    /// short; `detour doctor` shows the default
    #[arg(long, value_name = "SIZE", value_parser = units::size, conflicts_with = "no_bpf")]
    pub buffer: Option<u64>,
    /// Record the noise these processes see
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["cgroup", "command", "no_bpf", "no_probe", "fifo"]
    )]
    pub pid: Vec<u32>,
    /// Record the noise all processes in this cgroup see: its path, or the name of a systemd unit
    #[arg(
        long,
        conflicts_with_all = ["command", "no_bpf", "no_probe", "fifo"]
    )]
    pub cgroup: Option<PathBuf>,
    /// Print a summary of the recording as JSON to stdout
    #[arg(long)]
    pub json: bool,
    /// Run this command and record the noise it sees; exits with its status
    #[arg(
        last = true,
        conflicts_with_all = ["no_bpf", "no_probe", "fifo"]
    )]
    pub command: Vec<OsString>,
}

fn condition(text: &str) -> Result<recorder::Condition, String> {
    text.parse()
}

impl Record {
    /// Exits with an error if what to wait for cannot happen.
    pub fn refuse_what_cannot_happen(&self) {
        let Some(recorder::Condition { trigger, .. }) = &self.until else { return };
        let why = match trigger {
            recorder::Trigger::Detour if self.no_probe => {
                "without the probe there are no detours: use --until 'source=NAME>500us' or \
                 'process=NAME>500us'"
            }
            recorder::Trigger::Source(_) | recorder::Trigger::Process(_) if self.no_bpf => {
                "--no-bpf records no sources: use --until 'detour>500us'"
            }
            _ => return,
        };
        Cli::command().error(ErrorKind::ArgumentConflict, why).exit()
    }

    /// Exits with an error if an option does not apply to recording a program.
    pub fn refuse_what_programs_lack(&self) {
        if self.pid.is_empty() && self.cgroup.is_none() && self.command.is_empty() {
            return;
        }
        let why = if self.cpus.is_some() && self.command.is_empty() {
            "-c requires a command to run on these CPUs; the threads of a running program are \
             recorded on any CPU (use -H to place the recorder's own threads)"
        } else if matches!(self.threshold, Some(recorder::Threshold::Relative(_))) {
            "a threshold relative to t_min requires the probe; use a time instead, such as -T 5us"
        } else {
            return;
        };
        Cli::command().error(ErrorKind::ArgumentConflict, why).exit()
    }
}

#[derive(Args)]
pub struct Top {
    /// How long to watch (10s, 5m, 1h) [default: until q is pressed]
    #[arg(short, long, value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// CPUs to watch (1,3-5) [default: all this process may use]
    #[arg(short, long, value_parser = units::cpus)]
    pub cpus: Option<recorder::CpuSet>,
    /// CPUs for the recorder's own threads [default: those not watched]
    #[arg(short = 'H', long, value_parser = units::cpus)]
    pub housekeeping: Option<recorder::CpuSet>,
    /// Also run the probe on every watched CPU, which it occupies completely
    #[arg(long)]
    pub probe: bool,
    /// Kernel records only: fail instead of falling back to the probe
    #[arg(long, conflicts_with_all = ["probe", "no_bpf"])]
    pub no_probe: bool,
    /// Probe only: detours without sources; needs no privileges
    #[arg(long)]
    pub no_bpf: bool,
    /// Minimum length of a detour: a multiple of t_min (9x) or a time (1us)
    #[arg(short = 'T', long, default_value = "9x", value_parser = units::threshold)]
    pub threshold: recorder::Threshold,
    /// Watch the noise these processes see
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["cgroup", "probe", "no_bpf", "cpus", "threshold"]
    )]
    pub pid: Vec<u32>,
    /// Watch the noise all processes in this cgroup see: its path, or the name of a systemd unit
    #[arg(long, conflicts_with_all = ["probe", "no_bpf", "cpus", "threshold"])]
    pub cgroup: Option<PathBuf>,
    /// What a row of the table stands for
    #[arg(long, value_enum, default_value_t, value_name = "ROWS")]
    pub by: By,
    /// Refresh interval
    #[arg(short, long, default_value = "500ms", value_parser = units::interval)]
    pub interval: Duration,
    /// Trace file the w key writes; %h, %j, %r and %t expand to host, job, rank and time
    /// [default: detour-%h-%t.detour; within a job, detour-%j-%h-%r-%t.detour]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}

#[derive(Args)]
pub struct Report {
    /// Trace files [default: the newest recording in this directory]
    pub traces: Vec<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// Show all sources, with full names
    #[arg(short, long)]
    pub all: bool,
    /// Write an HTML report with figures and projections for parallel jobs to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Rows of the first table
    #[arg(long, value_enum, default_value_t)]
    pub by: By,
    /// Compare every trace with this recording of a good node, and exit with status 1 if the job takes
    /// longer on one of them by more than --tolerance, with 95 % confidence (3 if that cannot be judged)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "no_projection"])]
    pub baseline: Option<PathBuf>,
    /// How much longer a job may take than on the good node
    #[arg(long, value_name = "PERCENT", default_value = study::decide::fleet::TOLERANCE, value_parser = units::percent, requires = "baseline")]
    pub tolerance: f64,
    /// Also list the longest detours, each with all its details
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["html", "baseline"], default_missing_value = "10", num_args = 0..=1, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub longest: u16,
    #[command(flatten)]
    pub judged: judged::Options,
    /// In the projections of the HTML report, use the recording without fitted tails
    #[arg(long, requires = "html", conflicts_with_all = ["no_projection", "tail"])]
    pub no_tail: bool,
    /// Skip the simulations: no gains, no actions, no projection
    #[arg(long, conflicts_with = "tail")]
    pub no_projection: bool,
}

/// Rows of the first table.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One row per process with everything it causes, and one per kernel source
    #[default]
    Process,
    /// One row per systemd unit or cgroup
    Unit,
    /// One row per source
    Source,
    /// One row per class of sources
    Class,
    /// One row per CPU
    Cpu,
}

impl From<By> for analysis::By {
    fn from(by: By) -> analysis::By {
        match by {
            By::Process => analysis::By::Process,
            By::Unit => analysis::By::Unit,
            By::Source => analysis::By::Source,
            By::Class => analysis::By::Class,
            By::Cpu => analysis::By::Cpu,
        }
    }
}

/// The command line with the defaults of each command: commands that evaluate a recording have the usual
/// job, simulations a single collective.
pub fn command() -> clap::Command {
    let usual = |command: clap::Command| {
        command
            .mut_arg("iterations", |arg| {
                arg.help("Number of iterations").default_value(study::jobs::workload::ITERATIONS)
            })
            .mut_arg("compute", |arg| {
                let help = "Compute time before each collective";
                arg.help(help).default_value(study::jobs::workload::COMPUTE)
            })
    };
    let command = ["whatif", "diff", "report", "demo"]
        .into_iter()
        .fold(Cli::command(), |command, name| command.mut_subcommand(name, usual));
    help::with_examples(with_outputs(command))
}

/// Options that name a file to write.
const OUTPUTS: [&str; 7] = ["output", "html", "csv", "times", "hlog", "hgrm", "timeline"];

/// Lets all of them be `-`.
fn with_outputs(command: clap::Command) -> clap::Command {
    let output = |arg: clap::Arg| match OUTPUTS.contains(&arg.get_id().as_str()) {
        true => arg.value_parser(output::file()),
        false => arg,
    };
    command.mut_args(output).mut_subcommands(with_outputs)
}

/// Reads the command line, or exits with a message.
pub fn read() -> Cli {
    let arguments = job_file::expanded(std::env::args_os().collect());
    let arguments = arguments.unwrap_or_else(|error| {
        command().error(clap::error::ErrorKind::Io, study::error::in_words(&error)).exit()
    });
    let read = Cli::from_arg_matches(&command().get_matches_from(arguments));
    read.unwrap_or_else(|error| error.exit())
}

#[derive(Args)]
pub struct Import {
    /// Noise file of netgauge or LogGOPSim, CSV, JSON, .hlog or .hgrm
    pub file: PathBuf,
    /// Trace file to write; FILE#2 selects the second run of a file with several runs
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Skip and count malformed lines; fails if more than half are malformed
    #[arg(long)]
    pub lenient: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Export {
    /// Trace file, or any file `detour import` reads
    pub trace: PathBuf,
    /// Output format
    #[arg(long, value_enum)]
    pub to: Format,
    /// Output file [default: stdout]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Export only this CPU's detours [default: all]
    #[arg(short, long)]
    pub cpu: Option<u32>,
    /// Amount of work per quantum (fwq) or length of a quantum (ftq)
    #[arg(long, default_value = "1ms", value_parser = units::duration)]
    pub quantum: Duration,
    /// Number of sources listed by name (openmetrics); the rest are summed as `other`
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub top: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Output of netgauge's noise benchmark
    Netgauge,
    /// Noise trace for LogGOPSim's --noise-trace
    Loggopsim,
    /// One line per detour
    Csv,
    /// One line per kernel record
    RecordsCsv,
    /// Detours and the records they consist of
    Json,
    /// HdrHistogram log of detour lengths
    Hlog,
    /// HdrHistogram percentiles of detour lengths
    Hgrm,
    /// Fixed work quantum: time taken by each quantum
    Fwq,
    /// Fixed time quantum: work done in each quantum
    Ftq,
    /// Trace for ui.perfetto.dev, with tracks per CPU, class and source
    Perfetto,
    /// Metrics for the textfile collector of Prometheus node_exporter
    Openmetrics,
    /// Table for data frames and SQL: one row per part of a detour and per record outside detours
    Parquet,
}

#[derive(Args)]
pub struct Merge {
    /// All shards of one simulation, the traces of one job's nodes, or directories of one MPI run
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Traces: trace file to write; %j expands to the job. MPI run: new directory
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Traces: merge even if they do not overlap in time, or if two contain the same CPU or thread. MPI run:
    /// replace the output directory
    #[arg(long)]
    pub force: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Demo {
    /// How long to record
    #[arg(short, long, default_value = "10s", value_parser = units::duration)]
    pub duration: Duration,
    /// Trace file to write [default: detour-%h-%t.detour]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// HTML report to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub html: PathBuf,
    #[command(flatten)]
    pub judged: judged::Options,
}

#[derive(Args)]
pub struct Man {
    /// Directory for one page per subcommand [default: print the page of `detour` to stdout]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Print the whole command line as Markdown to stdout
    #[arg(long, hide = true, conflicts_with = "output")]
    pub markdown: bool,
}

#[derive(Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
