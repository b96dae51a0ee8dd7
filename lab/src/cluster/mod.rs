//! `cargo xtask cluster`: a cluster of two whole machines. Debian with systemd, Slurm, Open MPI, MPICH and
//! podman is booted twice under QEMU, with clocks that differ, on a network of their own, and the package
//! is tried there as its users will. Without QEMU or packages, the checks are skipped by name.

mod machine;
pub mod page;
mod root;

use std::{
    fs,
    io::BufRead,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    bench::page::machine as host,
    exec,
    missing::{Missing, or_skip},
    vm::tools,
    workspace::Workspace,
};
use machine::Machine;
use page::{Outcome, Row, Topic};
use root::Root;

/// What is done with the machines.
#[derive(Default)]
pub struct Options {
    /// Parts of names of checks; all if empty.
    pub only: Vec<String>,
    /// Only build what the machines need.
    pub prepare: bool,
    /// Keep the machines running after the checks, and run those named on standard input.
    pub keep: bool,
}

/// What the machines get: the package of this commit, and the context of its container.
pub struct Payload {
    pub deb: PathBuf,
    pub container: PathBuf,
}

/// A function of the script.
struct Check {
    name: &'static str,
    /// What is tried, for the table.
    what: &'static str,
    /// The page, besides that of the cluster, whose table it is in.
    topic: Topic,
    /// Most time, in seconds: several times what it takes on a busy host.
    limit_s: u64,
}

const fn check(name: &'static str, what: &'static str, topic: Topic, limit_s: u64) -> Check {
    Check { name, what, topic, limit_s }
}

const R: Topic = Topic::Reliability;
const S: Topic = Topic::Security;

/// In the order in which they are run: those that restart the second machine come last.
const CHECKS: &[Check] = &[
    check("package_installs_and_leaves_nothing", "the Debian package", S, 240),
    check("unit_records_and_stop_completes_the_file", "systemctl start and stop", R, 240),
    check("unit_killed_and_started_again", "SIGKILL of the unit, and a restart", R, 240),
    check("timer_starts_the_unit", "the unit's timer", R, 240),
    check("unit_writes_nowhere_else", "files written by the unit", S, 180),
    check("unit_is_little_exposed", "exposure of the unit", S, 120),
    check("units_of_all_kinds_are_named", "units of real services", R, 240),
    check("cgroup_by_path_and_by_unit", "--cgroup", R, 240),
    check("cpu_max_is_named", "cpu.max", R, 180),
    check("cgroup_of_a_delegated_user_slice", "a delegated user slice", S, 240),
    check("cpuset_changes_while_recording", "a cpuset that changes", R, 240),
    check("memory_limit_is_respected", "a memory limit", R, 180),
    check("container_records_the_host", "the container recipe", S, 600),
    check("container_without_capabilities_says_so", "a container without capabilities", S, 400),
    check("disk_full", "a full disk", R, 180),
    check("read_only_root", "a read-only root", S, 180),
    check("no_tracefs", "no /sys/kernel/tracing", S, 180),
    check("apparmor_denial_is_named", "AppArmor", S, 180),
    check("seccomp_denial_is_named", "a seccomp filter", S, 120),
    check("selinux", "SELinux", S, 30),
    check("suspend_to_ram_is_an_incident", "suspend to RAM", R, 300),
    check("mpi_latency_between_machines", "detour mpi latency between machines", R, 600),
    check("mpi_clocks_openmpi", "clocks of two machines, Open MPI", R, 600),
    check("mpi_clocks_mpich", "clocks of two machines, MPICH", R, 600),
    check("mpi_net_between_machines", "detour mpi net between machines", R, 900),
    check("mpi_blames_a_daemon_on_the_other_machine", "a daemon on the other machine", R, 600),
    check("wall_clocks_that_differ_are_noticed", "wall clocks that differ", R, 240),
    check("slurm_prolog_and_epilog_record_a_job_on_both_nodes", "Slurm: prolog and epilog", R, 600),
    check("slurm_srun_record", "Slurm: srun detour record", R, 400),
    check("slurm_job_array_of_shards", "Slurm: a job array of shards", R, 600),
    check("slurm_node_switched_off_in_a_job", "Slurm: a node switched off in a job", R, 700),
    check("lockdown_integrity", "lockdown=integrity", S, 700),
    check("lockdown_confidentiality", "lockdown=confidentiality", S, 900),
];

const SCRIPT: &str = include_str!("checks.sh");
/// Prepares a machine: the package, and a clock that runs 100 ppm slow on the first and 300 ppm fast on the
/// second one. Its last line is what the machines are.
const PREPARE: &str = r#"
set -e
mkdir -p /root/payload && tar -xf /dev/vdb -C /root/payload
dpkg -i /root/payload/detour.deb >/dev/null
ppm=300
[ "$(uname -n)" = node1 ] && ppm=-100
adjtimex --tick 10000 --frequency $((ppm * 65536))
. /etc/os-release
echo "$PRETTY_NAME, Linux $(uname -r), $(nproc) CPUs each, $(dpkg-query -W -f '${Package} ${Version}, ' \
    systemd slurmd openmpi-bin mpich podman)"
"#;

/// Time to boot and to prepare, several times that on a busy host.
const BOOT: Duration = Duration::from_secs(600);
const PREPARATION: Duration = Duration::from_secs(300);

/// Exit status of a check that cannot be tried.
const SKIPPED: i64 = 77;

pub fn list() -> bool {
    for check in CHECKS {
        println!("{:52} {}", check.name, check.what);
    }
    true
}

/// True if no check failed. Prints lines like a test binary. The page is written if all checks were
/// selected. The inner error of `payload` is what this machine lacks to build it.
pub fn run(
    workspace: &Workspace,
    options: &Options,
    payload: Result<Payload, String>,
    mut say: impl FnMut(&str),
) -> Result<bool> {
    let checks = chosen(&options.only)?;
    let started = Instant::now();
    // The commit at the start: what is tried is built from it.
    let host = host(workspace);
    let place = workspace.target.join("cluster");
    let prepared = match payload {
        Ok(payload) => or_skip(prepare(workspace, &place, &payload))?,
        Err(missing) => Err(missing),
    };
    let (files, qemu) = match prepared {
        Ok(prepared) => prepared,
        Err(missing) => {
            for check in &checks {
                say(&format!("test cluster::{} ... ignored, {missing}", check.name));
            }
            say(&format!("test result: ok. 0 passed; 0 failed; {} ignored", checks.len()));
            return Ok(true);
        }
    };
    if options.prepare {
        println!("everything for the machines is in {}", place.display());
        return Ok(true);
    }
    let _removed = Removed(&place);
    let boot = Instant::now();
    let start = |number| Machine::start(&place, &qemu, &files, &place.join(PAYLOAD), number);
    let mut machines = [start(1)?, start(2)?];
    let mut about = String::new();
    for machine in &mut machines {
        machine.wait_until_up(BOOT)?;
        let ended = machine.shell(&format!("exec 2>&1\n{PREPARE}"), PREPARATION)?;
        if ended.status != Some(0) {
            bail!("cannot prepare a machine: {}", ended.output);
        }
        about = ended.output.trim().trim_end_matches(',').to_owned();
    }
    println!("both machines are up after {:.0} s: {about}", boot.elapsed().as_secs_f64());

    write_script(&mut machines[0], SCRIPT)?;
    let publish = options.only.is_empty();
    let mut rows = Vec::new();
    for check in checks {
        rows.push(shown(&mut machines[0], check, &mut say));
        // An interrupted run leaves what it has found.
        if publish {
            page::write(workspace, &host, &about, &rows, CHECKS.len(), started.elapsed())?;
        }
    }
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let failed = count(Outcome::Failed);
    say(&format!(
        "test result: {}. {} passed; {failed} failed; {} ignored",
        if failed == 0 { "ok" } else { "FAILED" },
        count(Outcome::Passed),
        count(Outcome::Skipped),
    ));
    if failed > 0 {
        println!(
            "console output: {}",
            machines[0].console.with_file_name("console*.log").display()
        );
    }
    let took = started.elapsed().as_secs_f64();
    println!("cluster: {took:.0} s");
    if publish && took > 60.0 * page::MOST_MINUTES {
        println!("longer than the {} minutes wanted", page::MOST_MINUTES);
    }
    if publish {
        println!("wrote {}", page::PAGE);
    }
    if options.keep {
        on_request(workspace, &mut machines[0], &mut say)?;
    }
    Ok(failed == 0)
}

/// Runs a check and prints its outcome.
fn shown(machine: &mut Machine, check: &'static Check, say: &mut impl FnMut(&str)) -> Row {
    let start = Instant::now();
    let row = one(machine, check);
    let seconds = start.elapsed().as_secs_f64();
    let found = &row.found;
    let line = match row.outcome {
        Outcome::Passed => format!("ok\n    {found} ({seconds:.0} s)"),
        Outcome::Skipped => format!("ignored, {found}"),
        Outcome::Failed => format!("FAILED\n    after {seconds:.0} s: {found}"),
    };
    let mut lines = line.lines();
    say(&format!("test cluster::{} ... {}", check.name, lines.next().unwrap_or_default()));
    lines.for_each(|line| println!("{line}"));
    row
}

/// Runs the checks whose names are read, one line at a time, with the script as it is by then.
fn on_request(
    workspace: &Workspace,
    machine: &mut Machine,
    say: &mut impl FnMut(&str),
) -> Result<()> {
    println!("the machines stay up; checks to run (an empty line ends):");
    for line in std::io::stdin().lock().lines() {
        let names: Vec<String> = line?.split_whitespace().map(str::to_owned).collect();
        if names.is_empty() {
            break;
        }
        match chosen(&names) {
            Ok(checks) => {
                let path = workspace.root.join("lab/src/cluster/checks.sh");
                write_script(machine, &fs::read_to_string(path)?)?;
                for check in checks {
                    shown(machine, check, say);
                }
            }
            Err(error) => println!("{error:#}"),
        }
    }
    Ok(())
}

fn write_script(machine: &mut Machine, script: &str) -> Result<()> {
    let written =
        machine.shell_with("cat >/root/payload/checks.sh", script.as_bytes(), PREPARATION)?;
    if written.status != Some(0) {
        bail!("cannot write the script into a machine");
    }
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Check>> {
    for name in only {
        if !CHECKS.iter().any(|check| check.name.contains(name.as_str())) {
            bail!("unknown check '{name}' (cargo xtask cluster --list shows all)");
        }
    }
    let wanted = |check: &&Check| {
        only.is_empty() || only.iter().any(|name| check.name.contains(name.as_str()))
    };
    Ok(CHECKS.iter().filter(wanted).collect())
}

fn one(machine: &mut Machine, check: &'static Check) -> Row {
    let row = |outcome, found| Row { what: check.what, topic: check.topic, outcome, found };
    let script = format!(
        "exec 2>&1\ntimeout -k 10 {} bash /root/payload/checks.sh {}",
        check.limit_s, check.name
    );
    // The limit inside comes first, so that what was printed is seen.
    let ended = match machine.shell(&script, Duration::from_secs(check.limit_s + 120)) {
        Ok(ended) => ended,
        Err(error) => return row(Outcome::Failed, format!("{error:#}")),
    };
    let said = |mark: &str| {
        let lines = ended.output.lines().rev();
        let text = lines.filter_map(|line| line.strip_prefix(mark)).next().unwrap_or_default();
        text.trim().to_owned()
    };
    match ended.status {
        Some(0) if !said("@found").is_empty() => row(Outcome::Passed, said("@found")),
        Some(0) => row(Outcome::Failed, "it does not say what was found".to_owned()),
        Some(SKIPPED) => row(Outcome::Skipped, said("@skip")),
        status => {
            println!("{}", ended.output);
            let why = match status {
                Some(124 | 137) => format!("not finished after {} s", check.limit_s),
                _ => ended.output.lines().last().unwrap_or("nothing printed").to_owned(),
            };
            row(Outcome::Failed, why)
        }
    }
}

const PAYLOAD: &str = "payload.tar";

/// What the machines need.
fn prepare(workspace: &Workspace, place: &Path, payload: &Payload) -> Result<(Root, PathBuf)> {
    if !cfg!(target_arch = "x86_64") {
        bail!(Missing("the machines are x86-64, and this host is not".to_owned()));
    }
    if !exec::is_root() {
        bail!(Missing("needs root, to make the root file system".to_owned()));
    }
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let tools = workspace.target.join("vm");
    fs::create_dir_all(&tools)?;
    let qemu = tools::get_qemu(&tools)?;
    let root = Root::get(workspace, place, &tools)?;
    let files = place.join("payload");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(files.join("container"))?;
    fs::copy(&payload.deb, files.join("detour.deb"))?;
    for name in ["Containerfile", "detour"] {
        fs::copy(payload.container.join(name), files.join("container").join(name))?;
    }
    let mut tar = exec::command("tar", &files);
    exec::run(tar.arg("-cf").arg(place.join(PAYLOAD)).arg("."))?;
    fs::remove_dir_all(&files)?;
    Ok((root, qemu))
}

/// Removes what was made for the machines, but for the cached root and their consoles.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join(PAYLOAD));
        for name in ["agent", "monitor", "cable"] {
            for number in [1, 2] {
                let _ = fs::remove_file(self.0.join(format!("{name}{number}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_a_function_of_the_script_and_the_other_way_round() {
        for check in CHECKS {
            assert!(SCRIPT.contains(&format!("\n{}() {{\n", check.name)), "no {}", check.name);
        }
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len(), "a name is there twice");
    }

    #[test]
    fn checks_are_chosen_by_part_of_their_name() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            chosen(&only).unwrap().into_iter().map(|check| check.name).collect()
        };
        assert_eq!(names(&[]).len(), CHECKS.len());
        assert_eq!(names(&["lockdown"]), ["lockdown_integrity", "lockdown_confidentiality"]);
        assert_eq!(names(&["disk_full", "selinux"]), ["disk_full", "selinux"]);
        assert!(chosen(&["no such check".to_owned()]).is_err());
    }
}
