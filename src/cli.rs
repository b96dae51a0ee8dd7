//! The command line. Words and options here are a contract: scripts use them.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};

use simulate::loggops::Params;

use crate::{
    simulate::{
        network::{self, RendezvousName},
        projection, work,
    },
    units,
};

#[derive(Parser)]
#[command(
    name = "detour",
    version,
    about = "Who took the time on this node, and what it costs a parallel job",
    max_term_width = 100
)]
pub struct Cli {
    /// Say less
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more: settings, hooks
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Say what this machine can record, what is missing, and the command that mends it
    Doctor(Doctor),
    /// Measure and attribute detours, write a trace file
    ///
    /// Ctrl-C, SIGTERM, SIGHUP (unless ignored, as with nohup), SIGQUIT and SIGXCPU end a recording,
    /// which is complete then; SIGTERM and SIGHUP also end the recorded command. SIGUSR1 and SIGUSR2 are
    /// ignored, and a file size limit (SIGXFSZ) is reported like a full disk. A recording that is ended
    /// while it is still loading writes nothing and exits with 130.
    Record(Record),
    /// Watch who takes the time, live in the terminal
    ///
    /// Shows the kernel's records of all CPUs, which costs little. A probe measures what is lost to
    /// the nanosecond, but takes a CPU whole: it runs only with --probe. Without the right to load
    /// BPF programs a single probe runs in their place. The key ? shows all keys.
    Top(Top),
    /// Say who took the time in a recording
    Report(Report),
    /// Read another tool's noise file
    Import(Import),
    /// Write a recording in another tool's format
    Export(Export),
    /// What the detours of a recording do to a parallel job
    Simulate(crate::simulate::Simulate),
    /// Schedules for `simulate goal`: make, convert, check, count
    Goal(crate::goal::Goal),
    /// Did it help? Two recordings compared, source by source
    Diff(Box<crate::diff::Options>),
    /// What removing each source of a recording would gain at scale
    Whatif(Box<crate::whatif::Options>),
    /// Join the shares of a simulation, or the traces of a job's nodes
    ///
    /// Shares, as `detour simulate --shard` writes them, are joined exactly: what is printed is what
    /// one machine would have printed. Traces become one trace file, whose report has the nodes, too.
    Merge(Merge),
    /// All of it in one go on this machine: record 10 s, attribute, project, write report.html
    Demo(Demo),
    /// Write the manual pages
    Man(Man),
    /// Write what a shell needs to complete this command
    Completions(Completions),
}

#[derive(Args)]
pub struct Doctor {
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Record {
    /// How long to record (10s, 5m, 1h) [default: 10s; with a program, until it ends]
    #[arg(short, long, value_parser = units::duration)]
    pub duration: Option<Duration>,
    /// CPUs to measure, or for the command to run on (1,3-5) [default: all that this process may use]
    #[arg(short, long, value_parser = units::cpus)]
    pub cpus: Option<recorder::CpuSet>,
    /// CPUs for the recorder's own threads [default: those that are not measured]
    #[arg(short = 'H', long, value_parser = units::cpus)]
    pub housekeeping: Option<recorder::CpuSet>,
    /// What counts as a detour: times t_min (9x), or a time (1us) [default: 9x; with a program, all]
    #[arg(short = 'T', long, value_parser = units::threshold)]
    pub threshold: Option<recorder::Threshold>,
    /// Trace file to write; %h, %j, %r and %t become host, job, rank and time
    /// [default: detour-%h-%t.detour; in a job detour-%j-%h-%r-%t.detour]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Replace a file that is not a recording; an older recording is kept as FILE.old
    #[arg(long)]
    pub force: bool,
    /// Start at the next multiple of this on the wall clock, so that all nodes of a job start together
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub align: Option<Duration>,
    /// The probe alone: detours without names, no privileges needed
    #[arg(long, conflicts_with = "no_probe")]
    pub no_bpf: bool,
    /// Kernel records alone: names without detours
    #[arg(long, conflicts_with = "fifo")]
    pub no_probe: bool,
    /// Run the probes under SCHED_FIFO at this priority; real-time throttling then makes noise of
    /// its own
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub fifo: Option<u32>,
    /// Show kernel functions that have no name by their addresses; they tell where the kernel lies in
    /// memory, so they stay out of the file by default
    #[arg(long)]
    pub kernel_addresses: bool,
    /// Memory for each measured CPU's kernel records on their way to the file: more when records are
    /// lost, less on machines with little; `detour doctor` says what is usual
    #[arg(long, value_name = "SIZE", value_parser = units::size, conflicts_with = "no_bpf")]
    pub buffer: Option<u64>,
    /// Record what the kernel takes from these processes
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["cgroup", "command", "no_bpf", "no_probe", "fifo"]
    )]
    pub pid: Vec<u32>,
    /// Record what the kernel takes from everything in this cgroup
    #[arg(
        long,
        conflicts_with_all = ["command", "no_bpf", "no_probe", "fifo"]
    )]
    pub cgroup: Option<PathBuf>,
    /// Say how it went as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Record what the kernel takes from this command; ends with it and exits with its code
    #[arg(
        last = true,
        conflicts_with_all = ["no_bpf", "no_probe", "fifo"]
    )]
    pub command: Vec<OsString>,
}

impl Record {
    /// Ends the process with an error where an option means nothing for a program.
    pub fn refuse_what_programs_lack(&self) {
        if self.pid.is_empty() && self.cgroup.is_none() && self.command.is_empty() {
            return;
        }
        let why = if self.cpus.is_some() && self.command.is_empty() {
            "-c is for a command, which then runs on these CPUs; the threads of a program that runs \
             already are recorded wherever they are. Keep the recorder's own threads away with -H"
        } else if matches!(self.threshold, Some(recorder::Threshold::Relative(_))) {
            "without a probe there is no t_min: give the threshold as a time, such as -T 5us"
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
    /// CPUs to watch (1,3-5) [default: all that this process may use]
    #[arg(short, long, value_parser = units::cpus)]
    pub cpus: Option<recorder::CpuSet>,
    /// CPUs for the recorder's own threads [default: those that are not watched]
    #[arg(short = 'H', long, value_parser = units::cpus)]
    pub housekeeping: Option<recorder::CpuSet>,
    /// Run the probe, too, on every CPU watched: it takes them whole
    #[arg(long)]
    pub probe: bool,
    /// Kernel records or nothing: no probe where they cannot be had
    #[arg(long, conflicts_with_all = ["probe", "no_bpf"])]
    pub no_probe: bool,
    /// The probe alone: detours without names, no privileges needed
    #[arg(long)]
    pub no_bpf: bool,
    /// What the probe counts as a detour: times t_min (9x), or a time (1us)
    #[arg(short = 'T', long, default_value = "9x", value_parser = units::threshold)]
    pub threshold: recorder::Threshold,
    /// Watch what the kernel takes from these processes
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["cgroup", "probe", "no_bpf", "cpus", "threshold"]
    )]
    pub pid: Vec<u32>,
    /// Watch what the kernel takes from everything in this cgroup
    #[arg(long, conflicts_with_all = ["probe", "no_bpf", "cpus", "threshold"])]
    pub cgroup: Option<PathBuf>,
    /// Time between two pictures
    #[arg(short, long, default_value = "500ms", value_parser = units::interval)]
    pub interval: Duration,
    /// Trace file that w writes; %h, %j, %r and %t become host, job, rank and time
    /// [default: detour-%h-%t.detour; in a job detour-%j-%h-%r-%t.detour]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}

#[derive(Args)]
pub struct Report {
    /// Trace files
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// All sources, not only the largest, and their whole names
    #[arg(short, long)]
    pub all: bool,
    /// Write a page with figures, and what this noise costs parallel jobs, to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Page: rank counts, 1000,5000 or 2..1Mi (the powers of two)
    #[arg(long, value_name = "LIST", default_value = "2..1Mi", value_parser = units::ranks, requires = "html")]
    pub ranks: std::vec::Vec<u64>,
    /// Page: simulated runs per point; fewer beyond 32 Ki ranks
    #[arg(long, default_value_t = projection::RUNS, value_parser = clap::value_parser!(u64).range(1..=100_000), requires = "html")]
    pub runs: u64,
    /// Page: a network by name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..
    #[arg(long, default_value = projection::NET, value_parser = network::parse, requires = "html")]
    pub net: Params,
    /// Page: how messages of more than S bytes wait for their receiver
    #[arg(long, value_enum, default_value_t, requires = "html")]
    pub rendezvous: RendezvousName,
    /// Page: leave the simulations out
    #[arg(long, requires = "html")]
    pub no_projection: bool,
    #[command(flatten)]
    pub work: work::Options,
}

#[derive(Args)]
pub struct Import {
    /// A netgauge or LogGOPSim noise file, CSV, JSON, .hlog or .hgrm
    pub file: PathBuf,
    /// Write the run as a trace; FILE#2 picks the second run of a file that holds several
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Skip lines that cannot be read, and count them; fails if they are more than half
    #[arg(long)]
    pub lenient: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Export {
    /// A trace, or any file that import reads
    pub trace: PathBuf,
    /// The format to write
    #[arg(long, value_enum)]
    pub to: Format,
    /// File to write [default: standard output]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Only this CPU's detours [default: all]
    #[arg(short, long)]
    pub cpu: Option<u32>,
    /// Work per quantum (fwq), or length of a quantum (ftq)
    #[arg(long, default_value = "1ms", value_parser = units::duration)]
    pub quantum: Duration,
    /// Sources that bear their names in openmetrics; the rest is `other`
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub top: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// netgauge's noise benchmark
    Netgauge,
    /// LogGOPSim's --noise-trace
    Loggopsim,
    /// One line per detour
    Csv,
    /// One line per kernel record
    RecordsCsv,
    /// Detours and what they are made of
    Json,
    /// HdrHistogram log of detour lengths
    Hlog,
    /// HdrHistogram percentiles of detour lengths
    Hgrm,
    /// Fixed work quanta: how long each took
    Fwq,
    /// Fixed time quanta: how much work fitted in each
    Ftq,
    /// A trace that ui.perfetto.dev opens: tracks per CPU, class and source
    Perfetto,
    /// Metrics for a node exporter's text-file collector
    Openmetrics,
    /// A table for data frames and SQL: one row per part of a detour and per record in none
    Parquet,
}

#[derive(Args)]
pub struct Merge {
    /// All shares of one simulation, or the traces of one job's nodes
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Traces: the trace file to write; %j becomes the job
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Traces: merge them even if they do not overlap in time, or if a CPU or thread is in two of them
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
    /// Page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub html: PathBuf,
    /// Page: how messages of more than S bytes wait for their receiver
    #[arg(long, value_enum, default_value_t)]
    pub rendezvous: RendezvousName,
}

#[derive(Args)]
pub struct Man {
    /// Directory for one page per command [default: this command's own, to standard output]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// The whole command line as Markdown, to standard output
    #[arg(long, hide = true, conflicts_with = "output")]
    pub markdown: bool,
}

#[derive(Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
