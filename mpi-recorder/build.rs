//! Compiles the collector and the worker, shared libraries without dependencies, with the compiler that builds
//! this crate: Cargo cannot embed a `cdylib` of the same workspace. The results are `collector.so` and
//! `worker.so` in `OUT_DIR`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let abi = workspace().join("mpi-abi/src");
    let collector = workspace().join("mpi-recorder/collector");
    let worker = workspace().join("mpi-recorder/worker");
    for path in [&abi, &collector, &worker] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let rlib = out.join("libmpi_abi.rlib");
    compile(&abi.join("lib.rs"), "mpi_abi", &rlib, &["--crate-type=rlib", "-Cembed-bitcode=no"]);
    let external = format!("mpi_abi={}", rlib.display());
    let mut options = vec![
        "--crate-type=cdylib",
        "--extern",
        &external,
        // Understood by compilers that link and by linkers themselves, such as rust-lld.
        "-Clink-arg=-nostdlib",
        "-Cstrip=symbols",
    ];
    if variable("CARGO_CFG_TARGET_ENV") == "musl" {
        // A shared library for musl; it works in glibc programs too, since it names no library.
        options.extend(["-Ctarget-feature=-crt-static", "-Clink-self-contained=no"]);
    }
    compile(&collector.join("lib.rs"), "detour_mpi", &out.join("collector.so"), &options);
    compile(&worker.join("lib.rs"), "detour_mpi_worker", &out.join("worker.so"), &options);
}

fn workspace() -> PathBuf {
    let own = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    own.parent().map_or(own.clone(), Path::to_owned)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name} for build scripts"))
}

fn compile(source: &Path, name: &str, output: &Path, options: &[&str]) {
    let mut command = Command::new(variable("RUSTC"));
    command
        .arg(source)
        .args(["--edition=2024", "--crate-name", name, "--target", &variable("TARGET")])
        // The bytes depend on the sources only, not on where they are.
        .arg(format!("--remap-path-prefix={}=/_detour", workspace().display()))
        .args(["-Cpanic=abort", "-Copt-level=3", "-Ccodegen-units=1", "-Crelocation-model=pic"])
        .args(options)
        .arg("-o")
        .arg(output);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        command.arg(format!("-Clinker={linker}"));
    }
    let status = command.status().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(status.success(), "{command:?} failed");
}
