//! Chores of this workspace, one file per subcommand: `cargo xtask --help`.

mod bench;
mod btf;
mod dist;
mod docs;
mod ebpf;
mod exec;
mod fuzz;
mod page;
mod reliability;
mod slurm;
mod tally;
mod test;
mod tools;
mod validate;
mod vm;
mod workspace;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::workspace::Workspace;

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
    /// Everything that has to hold: format, lints, the BPF object, all tests
    Test(Test),
    /// Measure what recording costs, against the targets, and write docs/performance.md
    Bench(Bench),
    /// Feed broken and random input to everything that reads files, and to the event engine
    Fuzz(Fuzz),
    /// Open the report's pages in a headless Chromium and look whether everything holds
    Page(Page),
    /// Make faults while recording, on the running kernel, and write docs/reliability.md
    Reliability(Reliability),
    /// Write docs/cli.md from the options, and man pages and completions beside the build products
    Docs,
    /// Hold the papers' results against the simulator, and write docs/validation.md
    Validate(Validate),
    /// Build what people install: static binary, .deb, .rpm, container
    Dist(Dist),
    /// Start a Slurm of two nodes on this host; record, merge and share a simulation as jobs
    Slurm,
    /// Boot other kernels in virtual machines, run the kernel tests there, write docs/kernels.md
    Vm(Vm),
}

#[derive(Args)]
struct Ebpf {
    /// Compare with the committed object instead of writing it
    #[arg(long, conflicts_with = "log")]
    check: bool,
    /// Build with log lines, for debugging, beside the other build products
    #[arg(long)]
    log: bool,
}

#[derive(Args)]
struct Test {
    /// Also what takes long: other kernels in virtual machines, a day's recording, packages, Slurm,
    /// fuzzing, the short form of the benchmarks
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
struct Bench {
    /// Short runs; the figures are printed but not published in docs/
    #[arg(long)]
    quick: bool,
    /// Only measurements with this in their name; the figures are printed but not published
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Args)]
struct Fuzz {
    /// Targets [default: all]
    targets: Vec<String>,
    /// How long each
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

#[derive(Args)]
struct Reliability {
    /// Make no faults; write the page from what the tests said last, target/reliability.jsonl
    #[arg(long)]
    page_only: bool,
}

#[derive(Args)]
struct Page {
    /// Put pictures of the pages into this directory
    #[arg(long, value_name = "DIRECTORY")]
    pictures: Option<PathBuf>,
}

#[derive(Args)]
struct Dist {
    /// Install the packages in a clean root and run what is in them
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct Validate {
    /// A tenth of the runs; the table is printed but not published in docs/
    #[arg(long)]
    quick: bool,
}

#[derive(Args)]
struct Vm {
    /// Kernels [default: all]
    kernels: Vec<String>,
    /// Name the kernels and run none
    #[arg(long)]
    list: bool,
    /// Machines whose clock counts instructions instead: exact answers, and a section of that page
    #[arg(long, conflicts_with_all = ["kernels", "list"])]
    accuracy: bool,
    /// The recorder beside rtla's osnoise instead, and docs/rtla.md
    #[arg(long, conflicts_with_all = ["kernels", "list", "accuracy"])]
    rtla: bool,
    /// A machine with more than 64 CPUs instead
    #[arg(long, conflicts_with_all = ["kernels", "list", "accuracy", "rtla"])]
    many_cpus: bool,
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

/// False, or an error, is a failure; a subcommand that returns false has said why.
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
