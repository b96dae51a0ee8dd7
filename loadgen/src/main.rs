//! Noise of known size: each subcommand generates one kind of noise on one CPU, counts what it did, and
//! prints the count as JSON. Tests compare the recorder's results with it.

mod daemon;
mod faults;
mod forks;
mod ipi;
mod job;
mod net;
mod os;
mod threads;
mod waits;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

use crate::daemon::Burn;

#[derive(Parser)]
#[command(about = "Generate noise of known size, for tests and benchmarks")]
struct Cli {
    #[command(subcommand)]
    load: Load,
}

#[derive(Subcommand)]
enum Load {
    /// Wake up periodically and burn CPU time, like a monitoring daemon
    Daemon {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        #[arg(long, default_value_t = 10_000)]
        period_us: u64,
        #[arg(long, default_value_t = 200)]
        burn_us: u64,
        /// Burn that much CPU time, however long it takes on a busy CPU
        #[arg(long)]
        cpu_time: bool,
        #[arg(long, default_value = "fakemond")]
        name: String,
        /// File for the start and end of every burst (CLOCK_MONOTONIC, ns)
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Touch fresh pages, or with --file, pages that must be read from storage
    Faults {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Pages to touch before each pause; 0 never pauses
        #[arg(long, default_value_t = 0)]
        burst: u64,
        /// Map this file or block device and repeatedly drop it from the page cache, so that every
        /// page touched is a major fault
        #[arg(long, conflicts_with = "burst")]
        file: Option<PathBuf>,
        /// Run under SCHED_FIFO at this priority
        #[arg(long, conflicts_with = "file")]
        fifo: Option<i32>,
    },
    /// Start short-lived tasks, each with its own name
    Forks {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Number of different names
        #[arg(long, default_value_t = 64)]
        names: u64,
    },
    /// Send IPIs from one CPU to another
    Ipi {
        #[arg(long)]
        from: u32,
        #[arg(long)]
        to: u32,
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        #[arg(long, default_value_t = 100)]
        pause_us: u64,
        /// Also send each IPI to this CPU, with a mask of both
        #[arg(long)]
        and: Option<u32>,
    },
    /// Send packets over the loopback device
    Net {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        #[arg(long, default_value_t = 20)]
        pause_us: u64,
    },
    /// Run a program with computing and sleeping threads
    Threads {
        /// CPUs for the computing threads
        #[arg(long, value_delimiter = ',', required = true)]
        cpus: Vec<u32>,
        #[arg(long, default_value_t = 1)]
        threads: usize,
        #[arg(long, default_value_t = 0)]
        sleepers: usize,
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        #[arg(long, default_value = "spin")]
        name: String,
    },
    /// Run a parallel job: compute and meet in a barrier, one thread per CPU
    Job {
        #[arg(long, value_delimiter = ',', required = true)]
        cpus: Vec<u32>,
        #[arg(long, default_value_t = 1_000)]
        compute_us: u64,
        #[arg(long, default_value_t = 1_000)]
        iterations: u64,
        #[arg(long, default_value = "job")]
        name: String,
    },
    /// Keep a CPU busy
    Burn {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        #[arg(long, default_value_t = 0)]
        exit_code: i32,
        /// Run under SCHED_FIFO at this priority
        #[arg(long)]
        fifo: Option<i32>,
    },
    /// Burn CPU time in threads, and print the kernel's schedstat of each
    Work {
        #[arg(long, default_value_t = 1)]
        threads: u32,
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Run on this CPU only
        #[arg(long)]
        cpu: Option<u32>,
        /// Alternate between CPU 0 and 1
        #[arg(long)]
        migrate: bool,
        /// Sleep half the time
        #[arg(long)]
        sleep: bool,
    },
    /// Fork children that wait for a CPU behind their parent
    Children {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 60)]
        count: u32,
        #[arg(long, default_value_t = 10)]
        burn_ms: u64,
    },
    /// Wait for a line on stdin, touch fresh pages and exit at once
    Brief {
        #[arg(long, default_value_t = 100)]
        pages: usize,
    },
    /// Fork children that die of a segmentation fault
    Refused {
        #[arg(long)]
        cpu: u32,
        #[arg(long, default_value_t = 50)]
        count: u32,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().load {
        Load::Daemon { cpu, seconds, period_us, burn_us, cpu_time, name, log } => {
            let (period, burn) = (Duration::from_micros(period_us), Duration::from_micros(burn_us));
            let burn = if cpu_time { Burn::CpuTime(burn) } else { Burn::Elapsed(burn) };
            daemon::run(cpu, seconds, period, burn, &name, log.as_deref())
        }
        Load::Faults { cpu, seconds, file: Some(file), .. } => {
            faults::run_on_file(cpu, seconds, &file)
        }
        Load::Faults { cpu, seconds, burst, file: None, fifo } => {
            if let Some(priority) = fifo {
                os::fifo(priority)?;
            }
            faults::run(cpu, seconds, burst)
        }
        Load::Forks { cpu, seconds, names } => forks::run(cpu, seconds, names),
        Load::Ipi { from, to, count, pause_us, and: None } => ipi::run(from, to, count, pause_us),
        Load::Ipi { from, to, count, pause_us, and: Some(and) } => {
            ipi::run_on_several(from, &[to, and], count, pause_us)
        }
        Load::Net { cpu, seconds, pause_us } => net::run(cpu, seconds, pause_us),
        Load::Threads { cpus, threads, sleepers, seconds, name } => {
            let time = Duration::from_secs_f64(seconds);
            threads::run(&cpus, threads, sleepers, time, &name)
        }
        Load::Work { threads, seconds, cpu, migrate, sleep } => {
            waits::work(threads, seconds, waits::Manner { cpu, migrate, sleep })
        }
        Load::Children { cpu, count, burn_ms } => {
            waits::children(cpu, count, Duration::from_millis(burn_ms))
        }
        Load::Brief { pages } => waits::touch_and_end(pages),
        Load::Refused { cpu, count } => waits::refused(cpu, count),
        Load::Job { cpus, compute_us, iterations, name } => {
            job::run(&cpus, Duration::from_micros(compute_us), iterations, &name)
        }
        Load::Burn { cpu, seconds, exit_code, fifo } => {
            os::name("burn");
            os::pin(cpu)?;
            if let Some(priority) = fifo {
                os::fifo(priority)?;
            }
            let cpu_ns = os::thread_cpu_ns();
            os::burn(Duration::from_secs_f64(seconds));
            println!("{}", serde_json::json!({ "cpu_ns": os::thread_cpu_ns() - cpu_ns }));
            std::process::exit(exit_code);
        }
    }
}
