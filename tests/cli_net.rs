//! `detour mpi net` and `detour net`: parameters of networks that are known, and round trips against NetPIPE.

mod attempts;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Instant,
};

use attempts::attempts;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;

fn detour() -> &'static str {
    env!("CARGO_BIN_EXE_detour")
}

fn check(holds: bool, why: impl Into<String>) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::from(why.into())) }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn home(name: &str) -> Result<PathBuf, Failed> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("net-{name}"));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    Ok(home)
}

fn json(output: &Output) -> Result<Value, Failed> {
    check(output.status.success(), said(output))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn has(program: &str) -> bool {
    let mut paths = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    paths.any(|path| path.join(program).exists())
}

/// Parameters of a network in ns, ns per byte and bytes, as the shim wants them.
struct Known {
    os: f64,
    or: f64,
    latency: f64,
    gap: f64,
    gap_per_byte: f64,
    overhead_per_byte: f64,
    limit: f64,
}

impl Known {
    fn start(&self, home: &Path, rank: u32, args: &[&str]) -> Result<Child, Failed> {
        let mut command = Command::new("timeout");
        command.arg("300").arg(detour()).args(args).current_dir(home);
        for (name, value) in [
            ("SHIM_OS", self.os),
            ("SHIM_OR", self.or),
            ("SHIM_L", self.latency),
            ("SHIM_g", self.gap),
            ("SHIM_G", self.gap_per_byte),
            ("SHIM_O", self.overhead_per_byte),
            ("SHIM_S", self.limit),
            ("PMI_RANK", rank.into()),
        ] {
            command.env(name, value.to_string());
        }
        command.env_remove("OMPI_COMM_WORLD_RANK").env("SHIM_FILE", home.join("memory"));
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Both ranks; the output of the first.
    fn run(&self, home: &Path, args: &[&str]) -> Result<Output, Failed> {
        let _ = fs::remove_file(home.join("memory"));
        let other = self.start(home, 1, args)?;
        let output = self.start(home, 0, args)?.wait_with_output()?;
        let other = other.wait_with_output()?;
        check(other.status.success(), said(&other))?;
        Ok(output)
    }
}

/// The shim in a directory of its own; None without a compiler.
fn shim(name: &str) -> Result<Option<PathBuf>, Failed> {
    let home = home(name)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/net/shim.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-shared", "-fPIC"])
        .arg(source)
        .arg("-o")
        .arg(home.join("libmpi-shim.so"));
    match compiler.output() {
        Ok(output) => {
            check(output.status.success(), said(&output))?;
            Ok(Some(home))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

const NO_COMPILER: &str = "cc is not installed";

fn known_parameters() -> Result<Completion, Failed> {
    let Some(home) = shim("known")? else { return Ok(Completion::ignored_with(NO_COMPILER)) };
    let slow = Known {
        os: 4_000.0,
        or: 6_000.0,
        latency: 15_000.0,
        gap: 9_000.0,
        gap_per_byte: 1.5,
        overhead_per_byte: 0.25,
        limit: 20_000.0,
    };
    // The other way round: the sender is slower than the receiver.
    let fast = Known {
        os: 5_000.0,
        or: 3_000.0,
        latency: 6_000.0,
        gap: 5_500.0,
        gap_per_byte: 0.6,
        overhead_per_byte: 0.1,
        limit: 65_536.0,
    };
    for known in [slow, fast] {
        attempts(|| {
            let library = home.join("libmpi-shim.so");
            let library = library.to_str().unwrap_or_default();
            let args =
                ["mpi", "net", "--json", "-o", "net.toml", "--largest", "128KiB", "-d", "8s"];
            let output = known.run(&home, &[&args[..], &["--mpi", library]].concat())?;
            let net = json(&output)?;
            for (key, wanted) in [
                ("L_us", known.latency / 1e3),
                ("os_us", known.os / 1e3),
                ("or_us", known.or / 1e3),
                ("g_us", known.gap / 1e3),
                ("G_ns_per_B", known.gap_per_byte),
                ("O_ns_per_B", known.overhead_per_byte),
                ("S_B", known.limit),
            ] {
                let value = net[key].as_f64().ok_or(format!("no {key}: {net}"))?;
                let error = value / wanted - 1.0;
                check(error.abs() < 0.02, format!("{key} is {value}, expected {wanted}"))?;
                let interval = &net[format!("{key}_ci95")];
                let within =
                    interval[0].as_f64() <= Some(value) && interval[1].as_f64() >= Some(value);
                check(within, format!("{key}: {interval}"))?;
            }
            for key in ["residual_pct", "residual_rendezvous_pct", "pieces_residual_pct"] {
                check(
                    net[key].as_f64().is_some_and(|pct| pct < 2.0),
                    format!("{key}: {}", net[key]),
                )?;
            }
            let file: toml::Table = fs::read_to_string(home.join("net.toml"))?.parse()?;
            check(file["L_us"].as_float() == net["L_us"].as_f64(), "the file has another L")?;
            check(file["S_B"].as_integer() == net["S_B"].as_i64(), "the file has another S")
        })?;
    }
    Ok(Completion::Completed)
}

/// NetPIPE's half round trips: bytes and seconds.
fn netpipe(home: &Path, launcher: &[&str], program: &str) -> Result<Vec<(u64, f64)>, Failed> {
    let mut command = Command::new("timeout");
    command
        .arg("300")
        .args(launcher)
        .arg(program)
        .args(["-o", "np.out", "-u", "1048576", "-p", "0", "-n", "1000"]);
    let output = command.current_dir(home).output()?;
    check(output.status.success(), said(&output))?;
    // Bytes, Mb/s, seconds.
    let text = fs::read_to_string(home.join("np.out"))?;
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some((words.first()?.parse().ok()?, words.get(2)?.parse().ok()?))
    });
    Ok(rows.collect())
}

/// Ten sizes from a byte to a megabyte.
const SIZES: [u64; 10] = [1, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];

/// The half round trip that the pieces predict, us.
fn predicted(net: &Value, bytes: u64) -> Option<f64> {
    let sizes = net["sizes"].as_array()?;
    let size = sizes.iter().find(|size| size["bytes"].as_u64() == Some(bytes))?;
    size["pieces_us"].as_f64()
}

fn against_netpipe(
    name: &str,
    launcher: &'static [&'static str],
    program: &str,
) -> Result<Completion, Failed> {
    for needed in [launcher[0], program] {
        if !has(needed) {
            return Ok(Completion::ignored_with(format!("{needed} is not installed")));
        }
    }
    let home = home(name)?;
    attempts(|| {
        let measure = || -> Result<Value, Failed> {
            let mut command = Command::new("timeout");
            command.arg("300").args(launcher).arg(detour());
            command.args(["mpi", "net", "--json", "-o", "net.toml", "-d", "5s"]);
            json(&command.current_dir(&home).output()?)
        };
        // Both in turns: where NetPIPE disagrees with itself, nothing can agree with it.
        let mut pipes = vec![netpipe(&home, launcher, program)?];
        let mut nets = Vec::new();
        for _ in 0..2 {
            nets.push(measure()?);
            pipes.push(netpipe(&home, launcher, program)?);
        }
        let mut wrong = Vec::new();
        for bytes in SIZES {
            let of = |rows: &Vec<(u64, f64)>| Some(rows.iter().find(|row| row.0 == bytes)?.1 * 1e6);
            let times: Option<Vec<f64>> = pipes.iter().map(of).collect();
            let times = times.ok_or(format!("NetPIPE has not measured {bytes} bytes"))?;
            let models: Option<Vec<f64>> = nets.iter().map(|net| predicted(net, bytes)).collect();
            let models = models.ok_or(format!("no size {bytes}: {}", nets[0]))?;
            // NetPIPE writes hundredths of a microsecond.
            let low = times.iter().copied().fold(f64::INFINITY, f64::min) - 0.005;
            let high = times.iter().copied().fold(0.0, f64::max) + 0.005;
            let agrees = |model: &f64| (low * 0.95..=high * 1.05).contains(model);
            if !models.iter().any(agrees) {
                wrong.push(format!("{bytes} B: {models:?} us, NetPIPE {times:?}"));
            }
        }
        check(wrong.is_empty(), wrong.join("\n"))
    })
}

const OPEN_MPI: &[&str] = &["mpirun.openmpi", "--allow-run-as-root", "-n", "2"];
const OPEN_MPI_TCP: &[&str] =
    &["mpirun.openmpi", "--allow-run-as-root", "--mca", "btl", "tcp,self", "-n", "2"];
/// Unlike Open MPI, it does not bind ranks to CPUs by itself.
const MPICH: &[&str] = &["mpirun.mpich", "-bind-to", "hwthread", "-n", "2"];

/// The other end of `detour net`, and the address it waits at.
fn listening(home: &Path) -> Result<(Child, String), Failed> {
    let mut command = Command::new("timeout");
    command.args(["120", detour(), "net", "--tcp", "--listen", "127.0.0.1:0"]).current_dir(home);
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().ok_or("no stderr")?);
    errors.read_line(&mut line)?;
    let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    // It has more to say, and must not wait for a reader.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Ok((child, address))
}

/// Median half round trip of a plain program that polls, us.
fn plain_ping_pong(bytes: usize) -> Result<f64, Failed> {
    fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match stream.read(&mut buffer[done..]) {
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    const REPEATS: usize = 4000;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut buffer = vec![0; bytes];
        for _ in 0..REPEATS {
            read(&mut stream, &mut buffer)?;
            stream.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; bytes];
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let begin = Instant::now();
        stream.write_all(&buffer)?;
        read(&mut stream, &mut buffer)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    echo.join().map_err(|_| "the echo panicked")??;
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[REPEATS / 2])
}

fn over_tcp() -> Result<Completion, Failed> {
    let home = home("tcp")?;
    attempts(|| {
        let (mut server, address) = listening(&home)?;
        let before = plain_ping_pong(1024)?;
        let mut command = Command::new("timeout");
        command.args(["120", detour(), "net", "--tcp", &address, "-d", "4s", "--json"]);
        let output = command.args(["-o", "net.toml"]).current_dir(&home).output()?;
        let net = json(&output)?;
        check(server.wait()?.success(), "the server failed")?;
        let after = plain_ping_pong(1024)?;
        for key in ["L_us", "os_us", "or_us", "g_us", "G_ns_per_B", "O_ns_per_B", "residual_pct"] {
            check(net[key].is_number(), format!("no {key}: {net}"))?;
        }
        check(net["transport"] == "TCP", net["transport"].to_string())?;
        let model = predicted(&net, 1024).ok_or("no size 1024")?;
        let (low, high) = (before.min(after) * 0.9, before.max(after) * 1.1);
        check(
            (low..=high).contains(&model),
            format!("{model} us predicted, {before} and {after} us measured"),
        )
    })
}

fn wrong() -> Result<Completion, Failed> {
    let home = home("wrong")?;
    let run = |args: &[&str]| -> Result<(Option<i32>, String), Failed> {
        let mut command = Command::new(detour());
        command.args(args).current_dir(&home);
        for name in ["PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(name);
        }
        let output = command.output()?;
        Ok((output.status.code(), said(&output)))
    };
    for (args, why) in [
        (&["mpi", "net", "--mpi", "./no-such-library.so"][..], "cannot load an MPI library"),
        (&["mpi", "net", "--largest", "2GiB"], "1 B to 1 GiB"),
        (&["mpi", "net", "-o", "no/such/directory/net.toml"], "no/such/directory"),
        (&["net", "--tcp", "127.0.0.1:1"], "detour net --tcp --listen"),
        (&["net", "--tcp"], "needs a host"),
        (&["net", "--tcp", "a", "--listen"], "cannot be used together"),
    ] {
        let (code, text) = run(args)?;
        check(code == Some(1) && text.contains(why), format!("{args:?}: {text}"))?;
    }
    Ok(Completion::Completed)
}

fn three_ranks() -> Result<Completion, Failed> {
    if !has("mpirun.openmpi") {
        return Ok(Completion::ignored_with("mpirun.openmpi is not installed"));
    }
    let mut command = Command::new("timeout");
    command.args(["120", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3"]);
    let output = command.arg(detour()).args(["mpi", "net"]).output()?;
    let text = said(&output);
    check(!output.status.success(), "three ranks were accepted")?;
    // Said once.
    check(text.matches("measured between 2 ranks, this job has 3").count() == 1, text)?;
    Ok(Completion::Completed)
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let trials = vec![
        Trial::ignorable_test("known_parameters_come_back_within_2_percent", known_parameters),
        Trial::ignorable_test("round_trips_are_those_of_netpipe_with_openmpi", || {
            against_netpipe("openmpi", OPEN_MPI, "NPopenmpi")
        }),
        Trial::ignorable_test("round_trips_are_those_of_netpipe_with_openmpi_over_tcp", || {
            against_netpipe("openmpi-tcp", OPEN_MPI_TCP, "NPopenmpi")
        }),
        Trial::ignorable_test("round_trips_are_those_of_netpipe_with_mpich", || {
            against_netpipe("mpich", MPICH, "NPmpich2")
        }),
        Trial::ignorable_test("without_mpi_tcp_is_measured_as_a_plain_program_sees_it", over_tcp),
        Trial::ignorable_test("what_is_wrong_is_said_with_what_to_do", wrong),
        Trial::ignorable_test("more_than_two_ranks_are_refused_once", three_ranks),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
