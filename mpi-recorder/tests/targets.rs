//! The collector and the worker for every target that packages are built for: the build script makes them with the
//! linkers that `cargo xtask dist` uses, they export the same functions everywhere and need no library, so that those
//! inside a statically linked command work in programs with any C library.

mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mpi_recorder::worker::{Request, WORKER, Worker};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Mpi, count_events, fresh, run};

/// A target, its C library and a linker for it; None is the compiler's own choice.
const TARGETS: [(&str, &str, Option<&str>); 3] = [
    ("x86_64-unknown-linux-musl", "musl", None),
    ("aarch64-unknown-linux-musl", "musl", Some("rust-lld")),
    ("aarch64-unknown-linux-gnu", "gnu", Some("aarch64-linux-gnu-gcc")),
];

/// Runs the build script for a target, as Cargo does; the directory with both libraries. `Err` says what is missing.
fn build(target: &str, environment: &str, linker: Option<&str>) -> Result<PathBuf, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let library = run(Command::new(&rustc).args(["--print", "target-libdir", "--target", target]));
    if !Path::new(String::from_utf8_lossy(&library.stdout).trim()).exists() {
        return Err(format!("the target {target} is not installed (rustup target add {target})"));
    }
    let is_compiler = |linker: &&str| *linker != "rust-lld";
    if let Some(linker) = linker.filter(is_compiler)
        && Command::new(linker).arg("--version").output().is_err()
    {
        return Err(format!("{linker} is not installed"));
    }
    let directory = fresh("target");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = directory.join("build");
    run(Command::new(&rustc)
        .args(["--edition=2024", "--crate-name=build", "-o"])
        .arg(&script)
        .arg(root.join("build.rs")));
    let mut command = Command::new(&script);
    command.env("CARGO_MANIFEST_DIR", root).env("OUT_DIR", &directory).env("RUSTC", &rustc);
    command.env("TARGET", target).env("CARGO_CFG_TARGET_ENV", environment);
    match linker {
        Some(linker) => command.env("RUSTC_LINKER", linker),
        None => command.env_remove("RUSTC_LINKER"),
    };
    run(&mut command);
    Ok(directory)
}

/// Exported functions, and libraries that the file names as needed.
fn symbols(library: &Path) -> (BTreeSet<String>, Vec<String>) {
    let text = |options: &[&str]| {
        let output = run(Command::new("readelf").args(options).arg(library));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let names = text(&["--dyn-syms", "--wide"]);
    let defined = names.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, _, _, "FUNC", "GLOBAL" | "WEAK", _, section, name] if section != "UND" => {
                Some(name.to_owned())
            }
            _ => None,
        }
    });
    let dynamic = text(&["--dynamic", "--wide"]);
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)")).map(str::to_owned);
    (defined.collect(), needed.collect())
}

fn has(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

/// A recorded program: sends to nobody, besides the calls at the beginning and at the end.
fn record(mpi: Mpi, library: &Path) {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let directory = fresh("trace");
    let mut command = mpi.mpirun(2);
    command.arg("env").arg(format!("LD_PRELOAD={}", library.display()));
    command.arg(format!("{}={}", mpi_recorder::DIRECTORY, directory.display()));
    run(command.arg(&program).args(["nothing", "1000"]));
    for rank in 0..2 {
        let path = directory.join(format!("rank-{rank}.mpi"));
        assert_eq!(count_events(&path), (1002, true), "{} rank {rank}", mpi.name);
    }
}

/// A job of one rank under the control of this process.
fn control(mpi: Mpi, worker: &[u8]) {
    let library = if mpi.name == "openmpi" { "libmpi.so.40" } else { "libmpich.so.12" };
    let mut worker = Worker::of(worker, Some(library.as_ref())).unwrap();
    assert_eq!((worker.rank, worker.size), (0, 1), "{}", worker.version);
    worker.ask(Request::Barrier).unwrap();
    // Every answer has as many times as were asked for.
    assert_eq!(worker.ask(Request::Timer { repeats: 100 }).unwrap().len(), 100);
    worker.finish().unwrap();
}

fn test(target: &'static str, environment: &str, linker: Option<&str>) -> Completion {
    if Command::new("readelf").arg("--version").output().is_err() {
        return Completion::ignored_with("readelf is not installed");
    }
    let directory = match build(target, environment, linker) {
        Ok(directory) => directory,
        Err(why) => return Completion::ignored_with(why),
    };
    let (library, worker) = (directory.join("collector.so"), directory.join("worker.so"));
    let own = fresh("own").join("collector.so");
    std::fs::write(&own, mpi_recorder::LIBRARY).unwrap();
    let (functions, needed) = symbols(&library);
    assert!(functions.contains("PMPI_Send") && functions.contains("detour_region_begin"));
    assert_eq!(functions, symbols(&own).0, "{target}");
    assert_eq!(needed, [""; 0], "{target}");
    let (functions, needed) = symbols(&worker);
    assert_eq!(functions.into_iter().collect::<Vec<_>>(), ["__libc_start_main"], "{target}");
    assert_eq!(needed, [""; 0], "{target}");
    let worker = std::fs::read(&worker).unwrap();
    // Packages name no path of the machine that built them.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let collector = std::fs::read(&library).unwrap();
    for bytes in [&collector, mpi_recorder::LIBRARY, &worker, WORKER] {
        assert!(!has(bytes, &root.display().to_string()), "{target} has a path of this machine");
    }
    // What can run here does.
    if target.starts_with(std::env::consts::ARCH) {
        for name in ["openmpi", "mpich"] {
            let mpi = Mpi { name };
            match mpi.missing() {
                None => {
                    record(mpi, &library);
                    control(mpi, &worker);
                }
                Some(why) => eprintln!("{target}: not run with {name}: {why}"),
            }
        }
    }
    Completion::Completed
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each is a compiler.
    arguments.test_threads = Some(1);
    let trials = TARGETS.map(|(target, environment, linker)| {
        let name = format!("the_libraries_for_{target}_are_the_same_and_need_no_other");
        Trial::ignorable_test(name, move || Ok::<_, Failed>(test(target, environment, linker)))
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}
