//! Short-lived cgroups: a task in one is listed under its unit, no matter how briefly the cgroup
//! exists.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::support::{LONG, Needs, Recording, Scratch, Test, monotonic_ns, text};

pub const TESTS: &[Test] = &[
    (
        "services_of_two_milliseconds_keep_their_units",
        Needs::Root,
        services_of_two_milliseconds_keep_their_units,
    ),
    (
        "a_cgroup_is_recorded_with_all_that_come_and_go_below_it",
        Needs::Root,
        a_cgroup_is_recorded_with_all_that_come_and_go_below_it,
    ),
    (
        "thousands_of_other_cgroups_cost_the_recorder_nothing",
        Needs::Root,
        thousands_of_other_cgroups_cost_the_recorder_nothing,
    ),
];

const SERVICES: usize = 40;
const LIFE_NS: u64 = 2_000_000;

/// A cgroup v2 that is removed with the test, as is the mount point if there was none.
pub struct Cgroup {
    pub path: PathBuf,
    mounted: Option<PathBuf>,
}

impl Cgroup {
    pub fn create(scratch: &Scratch, name: &str) -> Result<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let (root, mounted) = match line.and_then(|line| line.split(' ').nth(4)) {
            Some(root) => (PathBuf::from(root), None),
            None => {
                let place = scratch.file("cgroup");
                fs::create_dir(&place)?;
                let mount =
                    Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&place).output()?;
                ensure!(mount.status.success(), "no cgroup v2: {}", text(&mount.stderr));
                (place.clone(), Some(place))
            }
        };
        let path = root.join(format!("detour-test-{name}-{}", std::process::id()));
        let cgroup = Cgroup { path, mounted };
        fs::create_dir(&cgroup.path)?;
        Ok(cgroup)
    }

    /// Moves a command into a child cgroup before it starts, and makes it work there.
    pub fn run_below(&self, name: &str, work_ns: u64, mut command: Command) -> Result<()> {
        let below = self.path.join(name);
        fs::create_dir(&below)?;
        let mut procs = File::options().write(true).open(below.join("cgroup.procs"))?;
        let prepare = move || {
            procs.write_all(b"0")?;
            let end = monotonic_ns() + work_ns;
            while monotonic_ns() < end {
                std::hint::spin_loop();
            }
            Ok(())
        };
        // SAFETY: a write and clock reads, which are allowed between fork and exec.
        unsafe { command.pre_exec(prepare) };
        let status = command.status();
        remove(&below);
        ensure!(status?.success(), "{name} failed");
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for below in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if below.path().is_dir() {
                remove(&below.path());
            }
        }
        remove(&self.path);
        if let Some(place) = &self.mounted {
            let _ = Command::new("umount").arg(place).status();
        }
    }
}

/// Processes still inside are about to exit.
fn remove(directory: &Path) {
    for _ in 0..100 {
        if fs::remove_dir(directory).is_ok() || !directory.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn run_services(parent: &Cgroup) -> Result<()> {
    for index in 0..SERVICES {
        parent.run_below(&format!("short{index}.service"), LIFE_NS, Command::new("true"))?;
    }
    Ok(())
}

fn services_of_two_milliseconds_keep_their_units() -> Result<()> {
    let scratch = Scratch::new("units")?;
    let parent = Cgroup::create(&scratch, "units")?;
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["--no-probe", "-d", LONG])?;
    run_services(&parent)?;
    let report = recording.stop()?.report()?;
    let units = |class: &str| -> Vec<String> {
        let sources = report["sources"].as_array().into_iter().flatten();
        let sources = sources.filter(|source| source["class"] == class);
        sources.filter_map(|source| source["unit"].as_str()).map(str::to_owned).collect()
    };
    let (threads, faults) = (units("thread"), units("page_fault"));
    let missing = |found: &[String]| -> Vec<usize> {
        let unit = |index: usize| format!("short{index}.service");
        (0..SERVICES).filter(|&index| !found.contains(&unit(index))).collect()
    };
    ensure!(missing(&threads).is_empty(), "no threads of {:?}", missing(&threads));
    // The new program's page faults come before its first switch.
    ensure!(missing(&faults).is_empty(), "no page faults of {:?}", missing(&faults));
    Ok(())
}

fn a_cgroup_is_recorded_with_all_that_come_and_go_below_it() -> Result<()> {
    let scratch = Scratch::new("below")?;
    let parent = Cgroup::create(&scratch, "below")?;
    let path = scratch.file("trace.detour");
    let wanted = parent.path.to_str().context("not text")?.to_owned();
    let recording = Recording::start(&path, &["--cgroup", &wanted, "-d", LONG])?;
    run_services(&parent)?;
    // And one outside the cgroup.
    ensure!(Command::new("true").status()?.success());
    let report = recording.stop()?.report()?;
    let threads = report["threads"].as_array().context("no threads")?;
    let ours = threads.iter().filter(|thread| thread["name"] == "true").count();
    ensure!(ours == SERVICES && threads.len() == SERVICES, "{ours} of {SERVICES}: {threads:?}");
    // Its path in the hierarchy works as well.
    let name = parent.path.file_name().and_then(|name| name.to_str()).context("no name")?;
    let path = scratch.file("again.detour");
    let recording = Recording::start(&path, &["--cgroup", &format!("/{name}"), "-d", LONG])?;
    parent.run_below("again.service", LIFE_NS, Command::new("true"))?;
    let report = recording.stop()?.report()?;
    ensure!(report["threads"].as_array().map(Vec::len) == Some(1), "{}", report["threads"]);
    Ok(())
}

/// CPU time of the recorder's reader and writer while services come and go.
fn cost(scratch: &Scratch, parent: &Cgroup, round: &str) -> Result<u64> {
    let path = scratch.file(&format!("{round}.detour"));
    let recording = Recording::start(&path, &["--no-probe", "-d", LONG])?;
    for index in 0..20 {
        parent.run_below(&format!("{round}-{index}.service"), LIFE_NS, Command::new("true"))?;
        std::thread::sleep(Duration::from_millis(100));
    }
    recording.stop()?;
    let reader = trace::Reader::open(&path)?;
    Ok(reader.trailer().context("no trailer")?.overhead.reader_cpu_ns)
}

fn thousands_of_other_cgroups_cost_the_recorder_nothing() -> Result<()> {
    const OTHERS: usize = 3_000;
    // Looking at each takes about 5 us, 15 ms for all, and many of them would be looked at every time.
    const NOTICEABLE_NS: u64 = 30_000_000;
    let scratch = Scratch::new("many")?;
    let others = Cgroup::create(&scratch, "others")?;
    let parent = Cgroup::create(&scratch, "many")?;
    let mut said = Vec::new();
    for round in 0..3 {
        let without = cost(&scratch, &parent, &format!("without{round}"))?;
        for index in 0..OTHERS {
            fs::create_dir(others.path.join(index.to_string()))?;
        }
        let with = cost(&scratch, &parent, &format!("with{round}"));
        for index in 0..OTHERS {
            remove(&others.path.join(index.to_string()));
        }
        let with = with?;
        if with < without + NOTICEABLE_NS {
            return Ok(());
        }
        said.push(format!("{without} ns without them, {with} ns with them"));
    }
    bail!("{}", said.join("; "))
}
