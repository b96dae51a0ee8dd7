//! `detour net`: the LogGOPS parameters of a network without MPI, and what it shares with `detour mpi net`.

use std::{
    io::Write,
    net::TcpListener,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use link::{
    Link,
    measure::{Measured, Plan, measure, serve},
    tcp::{TcpLink, with_port},
};
use study::network::loggops::{About, fit};

use crate::{Verbosity, output, units};

#[derive(Args)]
pub struct Options {
    /// Measure over TCP: connect to this host (HOST or HOST:PORT), or wait there with --listen
    #[arg(long, value_name = "HOST", num_args = 0..=1, required = true)]
    tcp: Option<Option<String>>,
    /// Wait for the other end at this address [default address: 0.0.0.0:7172]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    listen: Option<Option<String>>,
    #[command(flatten)]
    measurement: Measurement,
}

/// How to measure, and where the result goes.
#[derive(Args)]
pub struct Measurement {
    /// File for the parameters, for --net
    #[arg(short, long, value_name = "FILE", value_parser = output::file())]
    output: Option<PathBuf>,
    /// About how long to measure
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// Size of the largest message
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = units::size)]
    largest: u64,
    /// Seed of the confidence intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

const BLOCKS: u32 = 20;
/// In a file that may be found years later.
const METHOD: &str = "PRTT(n,d,s) (Hoefler et al. 2007); os and or timed inside calls, with an \
                      idle network and with a message that has arrived; S by bisection; intervals \
                      by resampling blocks";

impl Measurement {
    /// Refuses what cannot be measured, before it takes time.
    pub fn check(&self) -> Result<()> {
        output::check([&self.output])?;
        if !(1..=link::LARGEST).contains(&self.largest) {
            bail!("--largest must be 1 B to 1 GiB");
        }
        Ok(())
    }

    /// Measures from the first end of a link.
    pub fn run(&self, link: &mut dyn Link, verbosity: Verbosity) -> Result<Measured> {
        let plan = Plan { duration: self.duration, largest: self.largest, blocks: BLOCKS };
        let bar = if verbosity.quiet { ProgressBar::hidden() } else { ProgressBar::new(100) };
        bar.set_style(ProgressStyle::with_template("measuring {wide_bar} {percent:>3} %")?);
        let measured = measure(link, &plan, &mut |share| {
            bar.set_position((share * 100.0) as u64);
            true
        });
        bar.finish_and_clear();
        Ok(measured?)
    }

    /// Fits the parameters, writes and prints them.
    pub fn finish(&self, measured: &Measured, hosts: [String; 2], transport: &str) -> Result<()> {
        let about = About {
            hosts,
            transport: transport.to_owned(),
            date: now(),
            method: METHOD.to_owned(),
        };
        let net = fit(measured, about, self.seed);
        if let Some(path) = &self.output {
            let text = report::network_toml(&net);
            output::save(path, |out| Ok(out.write_all(text.as_bytes())?))?;
        }
        output::print(&net, self.json, report::network)
    }
}

/// UTC, ISO 8601.
pub fn now() -> String {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = report::words::date(unix.as_secs_f64()).unwrap_or_default();
    let [year, month, day, hour, minute, second] = date;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(target_os = "linux")]
fn host() -> String {
    recorder::machine::host()
}

/// Unknown on this platform, unless a shell says it.
#[cfg(not(target_os = "linux"))]
fn host() -> String {
    std::env::var("HOSTNAME").unwrap_or_else(|_| "this host".to_owned())
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let host = host();
    let peer = options.tcp.as_ref().and_then(Option::as_deref);
    match (peer, &options.listen) {
        (Some(_), Some(_)) => bail!("--tcp HOST and --listen cannot be used together"),
        (None, None) => {
            bail!("--tcp needs a host to connect to; start `detour net --tcp --listen` there first")
        }
        (None, Some(address)) => {
            let address = with_port(address.as_deref().unwrap_or("0.0.0.0"));
            let listener = TcpListener::bind(&address)
                .with_context(|| format!("cannot listen on {address}"))?;
            if !verbosity.quiet {
                tell!("waiting at {}", listener.local_addr()?);
            }
            let mut link = TcpLink::accept(&listener, &host)?;
            if !verbosity.quiet {
                tell!("measuring with {}", report::message_safe(&link.hosts[1]));
            }
            serve(&mut link)?;
        }
        (Some(peer), None) => {
            options.measurement.check()?;
            let mut link = TcpLink::connect(peer, &host)?;
            let measured = options.measurement.run(&mut link, verbosity)?;
            options.measurement.finish(&measured, link.hosts.clone(), "TCP")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
