//! Workspace tasks: `cargo xtask --help`. What a contributor needs daily is here, one file per
//! subcommand; the rest is in `lab`.

mod btf;
mod collector;
mod dist;
mod docs;
mod ebpf;
mod portable;
mod test;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use lab::{bench, cluster, fuzz, page, reliability, slurm, validate, vm, workspace::Workspace};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the BPF object that the recorder embeds, recorder/bpf/detour.bpf.o
    Ebpf(Ebpf),
    /// Run all checks: format, lints, the BPF object, all tests
    Test(Test),
    /// Measure the cost of recording against the targets, and write docs/performance.md
    Bench(Bench),
    /// Feed broken and random input to all file readers and the event engine
    Fuzz(Fuzz),
    /// Check the report's pages in a headless Chromium
    Page(Page),
    /// Inject faults while recording on the running kernel, and write docs/reliability.md
    Reliability(Reliability),
    /// Write docs/cli.md from the options, and man pages and completions to the target directory
    Docs,
    /// Compare the simulator with published results, and write docs/validation.md
    Validate(Validate),
    /// Build the release artifacts: static binary, .deb, .rpm, container
    Dist(Dist),
    /// Start a two-node Slurm on this host; record, merge and split a simulation as jobs
    Slurm,
    /// Boot two whole machines with systemd, Slurm, MPI and podman, try the package there, and write
    /// docs/cluster.md
    Cluster(Cluster),
    /// Boot other kernels in virtual machines, run the kernel tests there, and write docs/kernels.md
    Vm(Vm),
}

#[derive(Args)]
struct Ebpf {
    /// Compare with the committed object instead of writing it
    #[arg(long, conflicts_with = "log")]
    check: bool,
    /// Build with logging, for debugging, into the target directory
    #[arg(long)]
    log: bool,
}

#[derive(Args)]
struct Test {
    /// Also run the long tests: other kernels in virtual machines, a day's recording, packages, Slurm,
    /// two whole machines, fuzzing, the quick benchmarks
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
struct Bench {
    /// Short runs; the figures are printed but not published in docs/
    #[arg(long)]
    quick: bool,
    /// Only measurements whose name contains TEXT; the figures are printed but not published
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Args)]
struct Fuzz {
    /// Targets [default: all]
    targets: Vec<String>,
    /// Seconds per target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

#[derive(Args)]
struct Reliability {
    /// Inject no faults; write the page from the last test results, target/reliability.jsonl
    #[arg(long)]
    page_only: bool,
}

#[derive(Args)]
struct Page {
    /// Save screenshots of the pages to this directory
    #[arg(long, value_name = "DIRECTORY")]
    pictures: Option<PathBuf>,
}

#[derive(Args)]
struct Dist {
    /// Install the packages in a clean root and run them
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct Validate {
    /// Instead, compare predictions with collectives measured on real systems, and write docs/truth.md
    #[arg(long)]
    measured: bool,
    /// Instead, predict real programs with and without a daemon, run them, and write docs/truth.md
    #[arg(long = "loop", conflicts_with = "measured")]
    closed: bool,
    /// A tenth of the runs; the table is printed but not published in docs/
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
struct Cluster {
    /// Only checks whose name contains NAME; nothing is published
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// List the checks and exit
    #[arg(long)]
    list: bool,
    /// Only build the package and the root file system
    #[arg(long)]
    prepare: bool,
    /// Keep the machines running afterwards, and run the checks named on standard input; nothing of them is
    /// published
    #[arg(long, conflicts_with = "prepare")]
    keep: bool,
}

#[derive(Args)]
struct Vm {
    /// Kernels [default: all]
    kernels: Vec<String>,
    /// List the kernels and exit
    #[arg(long)]
    list: bool,
    /// Instead, measure accuracy on machines whose clock counts instructions, for docs/kernels.md
    #[arg(long, conflicts_with_all = ["kernels", "list"])]
    accuracy: bool,
    /// Instead, compare the recorder with rtla's osnoise, and write docs/rtla.md
    #[arg(long, conflicts_with_all = ["kernels", "list", "accuracy"])]
    rtla: bool,
    /// Instead, test on a machine with more than 64 CPUs
    #[arg(long, conflicts_with_all = ["kernels", "list", "accuracy", "rtla"])]
    many_cpus: bool,
    /// Boot a machine with an isolated CPU, and audit it
    #[arg(long, conflicts_with_all = ["kernels", "accuracy", "rtla", "many_cpus"])]
    isolation: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False or an error is a failure; a subcommand that returns false has already printed the reason.
fn run(command: Command) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let good = match command {
        Command::Ebpf(Ebpf { check: true, .. }) => ebpf::check(&workspace)?,
        Command::Ebpf(Ebpf { log: true, .. }) => ebpf::with_log(&workspace)?,
        Command::Ebpf(_) => ebpf::update(&workspace)?,
        Command::Test(options) => test::run(&workspace, options.all)?,
        Command::Bench(options) => bench::run(&workspace, options.quick, options.only.as_deref())?,
        Command::Fuzz(options) => {
            fuzz::run(&workspace, &options.targets, options.seconds, |line| println!("{line}"))?
        }
        Command::Page(options) => {
            page::run(&workspace, options.pictures.as_deref(), |line| println!("{line}"))?
        }
        Command::Reliability(options) => reliability::run(&workspace, options.page_only)?,
        Command::Docs => docs::run(&workspace)?,
        Command::Dist(options) => dist::run(&workspace, options.check, |line| println!("{line}"))?,
        Command::Slurm => slurm::run(&workspace, |line| println!("{line}"))?,
        Command::Cluster(Cluster { list: true, .. }) => cluster::list(),
        Command::Cluster(options) => {
            let payload = dist::for_this_host(&workspace)?;
            let options = cluster::Options {
                only: options.only,
                prepare: options.prepare,
                keep: options.keep,
            };
            cluster::run(&workspace, &options, payload, |line| println!("{line}"))?
        }
        Command::Validate(options) if options.measured => {
            validate::measured::run(&workspace, options.quick)?
        }
        Command::Validate(options) if options.closed => {
            validate::closed::run(&workspace, options.quick)?
        }
        Command::Validate(options) => validate::run(&workspace, options.quick)?,
        Command::Vm(Vm { list: true, .. }) => vm::list(),
        Command::Vm(Vm { accuracy: true, .. }) => {
            vm::accuracy::run(&workspace, true, |line| println!("{line}"))?
        }
        Command::Vm(Vm { rtla: true, .. }) => {
            vm::rtla::run(&workspace, true, |line| println!("{line}"))?
        }
        Command::Vm(Vm { many_cpus: true, .. }) => {
            vm::many_cpus::run(&workspace, |line| println!("{line}"))?
        }
        Command::Vm(Vm { isolation: true, .. }) => {
            vm::isolation::run(&workspace, |line| println!("{line}"))?
        }
        Command::Vm(options) => {
            vm::run(&workspace, &options.kernels, true, |line| println!("{line}"))?
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
