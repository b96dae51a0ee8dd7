//! The recorder's cpuset loses a CPU that it measures.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};

use crate::{
    reliability,
    support::{Recording, Scratch, cpus, monotonic_ns, text},
};

/// Where cpusets are created: cgroup v1 has a separate hierarchy for them, v2 a unified one.
pub enum Hierarchy {
    V1(PathBuf),
    V2(PathBuf),
}

impl Hierarchy {
    pub fn find() -> Option<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let place = |line: &str| line.split(' ').nth(4).map(PathBuf::from);
        let is_v1 = |line: &&str| {
            line.contains(" - cgroup ")
                && line.rsplit(' ').next().is_some_and(|o| o.split(',').any(|o| o == "cpuset"))
        };
        if let Some(line) = mounts.lines().find(is_v1) {
            return place(line).map(Hierarchy::V1);
        }
        let root = place(mounts.lines().find(|line| line.contains(" - cgroup2 "))?)?;
        let delegated = fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
        delegated.split_whitespace().any(|c| c == "cpuset").then_some(Hierarchy::V2(root))
    }

    fn root(&self) -> &PathBuf {
        match self {
            Hierarchy::V1(root) | Hierarchy::V2(root) => root,
        }
    }
}

/// A cpuset that is removed with the test.
struct Cpuset(PathBuf);

impl Cpuset {
    fn create(hierarchy: &Hierarchy) -> Result<Cpuset> {
        let path = hierarchy.root().join(format!("detour-test-{}", std::process::id()));
        fs::create_dir(&path)?;
        let set = Cpuset(path);
        // cgroup v1 cpusets start empty.
        if let Hierarchy::V1(root) = hierarchy {
            for what in ["cpuset.mems", "cpuset.cpus"] {
                fs::write(set.0.join(what), fs::read_to_string(root.join(what))?)?;
            }
        }
        Ok(set)
    }

    fn allow(&self, cpus: &str) -> Result<()> {
        fs::write(self.0.join("cpuset.cpus"), cpus).context("cannot change the cpuset")
    }

    fn take_in(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("cannot move a process")
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // Processes still inside are about to exit.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn a_cpu_that_leaves_ends_its_lane() -> Result<()> {
    let (gone, stays) = cpus();
    let hierarchy = Hierarchy::find().context("no cpusets")?;
    let set = Cpuset::create(&hierarchy)?;
    let scratch = Scratch::new("cpuset")?;
    let both = format!("{stays},{gone}");
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &["-c", &both, "-d", "60s"])?;
    set.take_in(recording.pid())?;
    set.allow(&both)?;
    std::thread::sleep(Duration::from_millis(700));
    let taken_at = monotonic_ns();
    set.allow(&stays.to_string())?;
    std::thread::sleep(Duration::from_millis(1_500));
    let trace = recording.stop()?;
    let report = trace.report()?;
    let remarks = report["remarks"].to_string();
    ensure!(remarks.contains(&format!("CPU {gone} was taken away")), "{remarks}");
    ensure!(!remarks.contains(&format!("CPU {stays} was taken away")), "{remarks}");
    let [first, second] = trace.lanes_watched()[..] else { anyhow::bail!("not two lanes") };
    let seconds = |(from, to): (u64, u64)| (to - from) as f64 / 1e9;
    let (kept, cut) = (seconds(first), seconds(second));
    ensure!(kept > cut + 1.0, "CPU {stays} {kept} s, CPU {gone} {cut} s");
    let later = second.1.saturating_sub(taken_at);
    ensure!(later < 1_000_000_000, "the lane of CPU {gone} continued for {later} ns");
    let last = trace.records().map(|(_, r)| (r.cpu, trace.span(r).0));
    let last = last.filter(|(cpu, _)| u32::from(*cpu) == gone).map(|(_, start)| start).max();
    ensure!(last.is_some_and(|last| last <= second.1), "events after the end of the lane");
    let page = crate::support::detour().args(["report", "--no-projection"]).arg(&path).output()?;
    ensure!(text(&page.stdout).contains("was taken away"), "the report does not say so");
    reliability::note(
        "a measured CPU removed from the recorder's cpuset",
        1,
        "its lane ends within a second and the report says so; the other CPUs continue",
    );
    Ok(())
}
