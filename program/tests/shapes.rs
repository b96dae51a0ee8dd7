//! Real programs under real MPIs, each of which communicates in one way: every message and collective is
//! joined, and the rank that sleeps is the one that is waited for.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mpi_abi::Call;
use program::{LostSums, Program, What, open, profile};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What is expected of a program.
struct Shape {
    name: &'static str,
    messages: u64,
    wait: Option<Expected>,
}

/// A wait that follows from the calls alone: after the first `MPI_Barrier`, rank `late` sleeps before it makes
/// the call `made`, while the other one is in `blocked`.
struct Expected {
    class: &'static str,
    late: u32,
    made: Call,
    blocked: Call,
}

const fn wait(class: &'static str, late: u32, made: Call, blocked: Call) -> Option<Expected> {
    Some(Expected { class, late, made, blocked })
}

const SENDER: &str = "late sender";
const COLLECTIVE: &str = "collective";

const SHAPES: [Shape; 8] = [
    // Two messages each way in 10 steps, then one.
    Shape {
        name: "persistent",
        messages: 42,
        wait: wait(SENDER, 1, Call::Startall, Call::Waitall),
    },
    Shape { name: "between_groups", messages: 5, wait: wait(SENDER, 1, Call::Send, Call::Recv) },
    Shape {
        name: "neighbours",
        messages: 0,
        wait: wait(COLLECTIVE, 1, Call::Neighbor_allgather, Call::Neighbor_allgather),
    },
    Shape {
        name: "fences",
        messages: 0,
        wait: wait(COLLECTIVE, 1, Call::Win_fence, Call::Win_fence),
    },
    Shape { name: "many", messages: 5 * 64, wait: wait(SENDER, 0, Call::Isend, Call::Waitany) },
    Shape { name: "probes", messages: 3, wait: wait(SENDER, 0, Call::Send, Call::Mprobe) },
    Shape { name: "cancelled", messages: 2, wait: wait(SENDER, 0, Call::Send, Call::Wait) },
    Shape {
        name: "switched_off",
        messages: 4,
        wait: wait(COLLECTIVE, 1, Call::Allreduce, Call::Allreduce),
    },
];

/// When a rank first made a call after its first `MPI_Barrier`.
fn begin(program: &Program, rank: u32, wanted: Call) -> Result<i64, Failed> {
    let clocks = program::clocks(program, 1)?;
    let (mut passed, mut found) = (false, None);
    program::stream(program, rank as usize, &clocks, |moment, _| {
        let What::Call(call) = &moment.what else { return };
        if passed && call.signature.call == wanted {
            found = found.or(Some(moment.begin));
        }
        passed |= call.signature.call == Call::Barrier;
    })?;
    found.ok_or_else(|| format!("rank {rank} did not call {}", wanted.name()).into())
}

/// The compiled program and the collector.
struct Mpi {
    name: &'static str,
    home: PathBuf,
}

impl Mpi {
    /// None if there is no compiler; a program that it cannot compile is an error.
    fn new(name: &'static str) -> Result<Option<Mpi>, String> {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shapes-{name}"));
        let _ = std::fs::remove_dir_all(&home);
        let why = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(&home).map_err(why)?;
        std::fs::write(home.join("collector.so"), mpi_recorder::LIBRARY).map_err(why)?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/shapes.c");
        let mut command = Command::new(format!("mpicc.{name}"));
        command.arg("-w").arg(source).arg("-o").arg(home.join("shapes"));
        match command.output() {
            Ok(output) if output.status.success() => Ok(Some(Mpi { name, home })),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(why(error)),
        }
    }

    fn record(&self, shape: &str) -> Result<Program, Failed> {
        let dir = self.home.join(shape);
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new("timeout");
        command.arg("600").arg(format!("mpirun.{}", self.name));
        if self.name == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        command.args(["-n", "2", "env"]);
        command.arg(format!("LD_PRELOAD={}", self.home.join("collector.so").display()));
        command.arg(format!("{}={}", mpi_recorder::DIRECTORY, dir.display()));
        let output = command.arg(self.home.join("shapes")).arg(shape).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(open(&dir)?)
    }
}

fn check(mpi: &Mpi, shape: &Shape) -> Result<(), Failed> {
    let program = mpi.record(shape.name)?;
    let found = profile(&program, 2)?;
    let fail = |what: &str| {
        let sums = (&found.lost, found.messages, &found.waits);
        Err(Failed::from(format!("{what}: {sums:#?}")))
    };
    // What one rank did not record is there for the other one.
    let (switched_off_ranks, switched_off_calls) =
        if shape.name == "switched_off" { (1, 4) } else { (0, 0) };
    if found.lost != (LostSums { switched_off_ranks, switched_off_calls, ..LostSums::default() }) {
        return fail("something is lost or was not joined");
    }
    if found.messages != shape.messages {
        return fail("another number of messages");
    }
    let Some(Expected { class, late, made, blocked }) = shape.wait else { return Ok(()) };
    let least = begin(&program, late, made)? - begin(&program, 1 - late, blocked)?;
    let pairs = found.waits.pairs.iter();
    let waited: u64 = pairs
        .filter(|pair| (pair.class, pair.waiting, pair.late) == (class, 1 - late, late))
        .map(|pair| pair.wait_ns)
        .sum();
    if i64::try_from(waited)? < least {
        return fail(&format!("the rank that slept was waited for {waited} ns instead of {least}"));
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for name in ["openmpi", "mpich"] {
        let mpi = Arc::new(Mpi::new(name));
        for shape in &SHAPES {
            let mpi = Arc::clone(&mpi);
            let test = move || match &*mpi {
                Ok(Some(mpi)) => check(mpi, shape).map(|()| Completion::Completed),
                Ok(None) => Ok(Completion::ignored_with(format!("mpicc.{name} is not installed"))),
                Err(why) => Err(why.into()),
            };
            trials.push(Trial::ignorable_test(format!("{}_with_{name}", shape.name), test));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
