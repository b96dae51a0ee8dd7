//! How long the threads of a program waited for a CPU, compared with the kernel's own figures:
//! `run_delay` of schedstat, and `cpu.stat` for throttling.
//!
//! The kernel reads its clock shortly before the tracepoint of a switch, and after the one of a
//! wake-up. So the two may differ by 1 % and by [`edge_ns`] per wait.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use trace::{Class, Detour, Lane, LaneId, LaneTotals, Reader, Wait};

use crate::{
    namespaces,
    support::{
        Load, Needs, Recording, Scratch, Test, cpus, detour, in_vm, load, loadgen, patience, text,
        undisturbed,
    },
};

pub const TESTS: &[Test] = &[
    ("pinned_threads_waited_what_the_kernel_says", Needs::Root, || {
        undisturbed(pinned_threads_waited_what_the_kernel_says)
    }),
    ("threads_that_migrate_and_sleep_waited_what_the_kernel_says", Needs::RootAndTwoCpus, || {
        undisturbed(threads_that_migrate_and_sleep_waited_what_the_kernel_says)
    }),
    ("500_threads_waited_what_the_kernel_says", Needs::Root, || {
        undisturbed(five_hundred_threads_waited_what_the_kernel_says)
    }),
    ("the_first_wait_of_a_new_process_is_recorded", Needs::Root, || {
        undisturbed(the_first_wait_of_a_new_process_is_recorded)
    }),
    ("threads_whose_numbers_collide_are_kept_apart", Needs::RootAndNumbers, || {
        undisturbed(threads_whose_numbers_collide_are_kept_apart)
    }),
    ("a_quota_is_blamed_on_nobody_else", Needs::RootAndQuotas, || {
        undisturbed(|| complete(a_quota_is_blamed_on_nobody_else))
    }),
    ("a_thread_that_is_throttled_at_the_start_is_known_as_such", Needs::RootAndQuotas, || {
        undisturbed(|| complete(a_thread_that_is_throttled_at_the_start_is_known_as_such))
    }),
    ("the_cgroup_whose_quota_is_used_up_is_named", Needs::RootAndQuotas, || {
        undisturbed(|| complete(the_cgroup_whose_quota_is_used_up_is_named))
    }),
    (
        "a_node_recording_names_throttled_cgroups",
        Needs::RootAndQuotas,
        a_node_recording_names_throttled_cgroups,
    ),
    ("a_wait_is_recorded_to_the_end_of_the_recording", Needs::RootAndTwoCpus, || {
        undisturbed(|| complete(a_wait_is_recorded_to_the_end_of_the_recording))
    }),
    ("a_thread_that_never_ran_has_a_lane", Needs::RootAndTwoCpus, || {
        undisturbed(|| complete(a_thread_that_never_ran_has_a_lane))
    }),
    ("in_a_pid_namespace_a_wait_begins_with_the_recording", Needs::RootAndUnshare, || {
        undisturbed(|| complete(in_a_pid_namespace_a_wait_begins_with_the_recording))
    }),
    ("a_wait_is_blamed_on_the_cpu_where_it_was", Needs::RootAndTwoCpus, || {
        undisturbed(|| complete(a_wait_is_blamed_on_the_cpu_where_it_was))
    }),
    ("a_wait_with_many_records_is_explained", Needs::Root, || {
        undisturbed(|| complete(a_wait_with_many_records_is_explained))
    }),
    (
        "a_task_that_faults_and_ends_at_once_has_a_name",
        Needs::Root,
        a_task_that_faults_and_ends_at_once_has_a_name,
    ),
    ("refused_faults_are_counted", Needs::Root, refused_faults_are_counted),
    (
        "the_recorders_threads_go_where_they_are_sent",
        Needs::RootAndTwoCpus,
        the_recorders_threads_go_where_they_are_sent,
    ),
];

/// Tolerance per wait between the kernel and the recorder: a switch at either end, and the path from a
/// wake-up to the run queue of another CPU. All of it takes longer on an emulated machine.
fn edge_ns() -> u64 {
    if in_vm() { 300_000 } else { 10_000 }
}

/// The error for an incomplete recording.
const LOSSES: &str = "records were lost";
const ATTEMPTS: u32 = 3;

/// Repeats the test if records were lost, which the recording tells: on a machine that is busy with
/// something else, millions of page faults come in, and the comparison requires all records.
fn complete<T>(test: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match test() {
            Err(error) if error.to_string() == LOSSES => println!("{LOSSES}: trying again"),
            result => return result,
        }
    }
    test()
}

/// A recorded program.
struct Program {
    reader: Reader,
    epoch_ns: u64,
}

impl Program {
    fn read(path: &std::path::Path) -> Result<Program> {
        let reader = Reader::open(path)?;
        let lost = reader.trailer().context("no trailer")?.lost;
        ensure!(lost.records == 0 && lost.unwritten == 0, LOSSES);
        let epoch_ns = reader.manifest().started_monotonic_ns;
        Ok(Program { reader, epoch_ns })
    }

    fn lane(&self, wanted: u64) -> Result<LaneId> {
        let is_it =
            |lane: &Lane| matches!(lane, Lane::Thread { tid, .. } if u64::from(*tid) == wanted);
        let lane = self.reader.lanes().iter().position(is_it);
        Ok(LaneId(lane.with_context(|| format!("thread {wanted} has no lane"))? as u32))
    }

    fn totals(&self, tid: u64) -> Result<&LaneTotals> {
        self.reader.totals(self.lane(tid)?).context("the lane has no totals")
    }

    /// The waits of a thread that began before a time on CLOCK_MONOTONIC.
    fn waits(&self, tid: u64, before: u64) -> Result<Vec<Detour>> {
        let mut waits = Vec::new();
        for block in self.reader.blocks_of(self.lane(tid)?) {
            let early = |d: &Detour| self.epoch_ns + d.start_ns < before;
            waits.extend(block?.detours.into_iter().filter(|d| d.wait != Wait::None && early(d)));
        }
        Ok(waits)
    }

    /// Time that detours lost to sources of a class and name.
    fn cost(&self, class: Class, name: &str) -> Result<u64> {
        let mut cost = 0;
        for block in self.reader.blocks() {
            for record in block?.records {
                let source = &self.reader.sources()[record.source.0 as usize];
                if source.class == class && (name.is_empty() || source.name == name) {
                    cost += record.cost_ns;
                }
            }
        }
        Ok(cost)
    }
}

fn number(value: &Value, key: &str) -> Result<u64> {
    value[key].as_u64().with_context(|| format!("no {key} in {value}"))
}

/// Records a load and compares how long its threads waited with their own schedstat.
fn agrees_with_the_kernel(name: &str, arguments: &[&str], list: &str) -> Result<u64> {
    let mut command = loadgen()?;
    command.args(arguments);
    complete(|| command_agrees_with_the_kernel(name, &command, list))
}

fn command_agrees_with_the_kernel(name: &str, command: &Command, list: &str) -> Result<u64> {
    let scratch = Scratch::new(name)?;
    let path = scratch.file("trace.detour");
    let output = detour()
        .args(["record", "--quiet", "-o"])
        .arg(&path)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let said = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let said = said.collect::<Result<Vec<_>, _>>()?;
    let program = Program::read(&path)?;
    let (mut recorded, mut counted, mut edges) = (0, 0, 0);
    for thread in said.iter().flat_map(|said| said[list].as_array().into_iter().flatten()) {
        let (tid, at) = (number(thread, "tid")?, number(thread, "at_ns")?);
        let waits = program.waits(tid, at)?;
        let waited = waits.iter().map(|wait| wait.len_ns).sum::<u64>();
        let (delay, times) = (number(thread, "delay_ns")?, number(thread, "waits")?);
        ensure!(
            // In a virtual machine the host may take the thread's CPU between the two clock reads.
            in_vm() || waited.abs_diff(delay) <= delay / 100 + times * edge_ns(),
            "{name}: thread {tid} waited {waited} ns as recorded, {delay} ns in schedstat, in \
             {times} waits: {waits:?}"
        );
        recorded += waited;
        counted += delay;
        edges += times;
    }
    ensure!(
        recorded.abs_diff(counted) <= counted / 100 + edges * edge_ns(),
        "{name}: all waited {recorded} ns as recorded, {counted} ns in schedstat, in {edges} waits"
    );
    println!("{name}: recorded {recorded} ns, schedstat {counted} ns, {edges} waits");
    Ok(counted)
}

fn pinned_threads_waited_what_the_kernel_says() -> Result<()> {
    let (cpu, _) = cpus();
    let work = ["work", "--threads", "4", "--seconds", "2", "--cpu", &cpu.to_string()];
    let counted = agrees_with_the_kernel("pinned", &work, "threads")?;
    ensure!(counted > 4_000_000_000, "the threads hardly waited: {counted} ns");
    Ok(())
}

fn threads_that_migrate_and_sleep_waited_what_the_kernel_says() -> Result<()> {
    let work = ["work", "--threads", "4", "--seconds", "2", "--migrate"];
    agrees_with_the_kernel("migrating", &work, "threads")?;
    let work = ["work", "--threads", "6", "--seconds", "2", "--sleep"];
    agrees_with_the_kernel("sleeping", &work, "threads")?;
    Ok(())
}

fn five_hundred_threads_waited_what_the_kernel_says() -> Result<()> {
    let threads = if in_vm() { "50" } else { "500" };
    let work = ["work", "--threads", threads, "--seconds", "2"];
    agrees_with_the_kernel("500", &work, "threads")?;
    Ok(())
}

fn the_first_wait_of_a_new_process_is_recorded() -> Result<()> {
    let (cpu, _) = cpus();
    let children = ["children", "--cpu", &cpu.to_string(), "--count", "60"];
    let counted = agrees_with_the_kernel("children", &children, "children")?;
    ensure!(counted > 500_000_000, "the threads hardly waited: {counted} ns");
    Ok(())
}

/// The PID of the last process, and the largest allowed PID.
pub const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";
const LARGEST_NUMBER: &str = "/proc/sys/kernel/pid_max";

/// Allows large PIDs, until it is dropped.
struct LargeNumbers(String);

impl LargeNumbers {
    fn allow() -> Result<LargeNumbers> {
        let before = fs::read_to_string(LARGEST_NUMBER)?;
        fs::write(LARGEST_NUMBER, "4194304")?;
        Ok(LargeNumbers(before))
    }
}

impl Drop for LargeNumbers {
    fn drop(&mut self) {
        // Later processes get small PIDs again.
        let _ = fs::write(LAST_NUMBER, "1000");
        let _ = fs::write(LARGEST_NUMBER, self.0.trim());
    }
}

/// PIDs with the same first place in the BPF programs' task table.
fn threads_whose_numbers_collide_are_kept_apart() -> Result<()> {
    let (cpu, _) = cpus();
    let _numbers = LargeNumbers::allow()?;
    // The first to ask gets the next PID, which may be another process.
    let script = format!(
        "work() {{ {} work --seconds 1.5 --cpu {cpu}; }}
         for i in 1 2 3 4; do
             work & first=$!
             for at in 1 2 3; do
                 echo $((first + at * 65536 - 1)) > {LAST_NUMBER}; work &
             done
             wait; [ $! = $((first + 3 * 65536)) ] && exit 0
         done; exit 9",
        loadgen()?.get_program().display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    let counted = complete(|| command_agrees_with_the_kernel("colliding", &shell, "threads"))?;
    ensure!(counted > 4_000_000_000, "the threads hardly waited: {counted} ns");
    Ok(())
}

/// A cgroup with a CPU quota, removed on drop.
struct Limited {
    directory: PathBuf,
    v2: bool,
}

impl Limited {
    /// None if no CPU controller is available.
    fn new(quota_us: u32, period_us: u32) -> Option<Limited> {
        let root = Limited::root();
        Limited::below(
            &root.0.join(format!("detour-test-{}", std::process::id())),
            root.1,
            quota_us,
            period_us,
        )
    }

    /// The CPU controller's mount point, and whether it is cgroup v2.
    fn root() -> (PathBuf, bool) {
        let v1 = PathBuf::from("/sys/fs/cgroup/cpu");
        let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
        let v2 = v2.is_ok_and(|controllers| controllers.split_whitespace().any(|c| c == "cpu"));
        (if v2 { PathBuf::from("/sys/fs/cgroup") } else { v1 }, v2)
    }

    fn below(directory: &Path, v2: bool, quota_us: u32, period_us: u32) -> Option<Limited> {
        let limited = Limited { directory: directory.to_path_buf(), v2 };
        fs::create_dir(&limited.directory).ok()?;
        let set = |file: &str, value: String| fs::write(limited.directory.join(file), value).ok();
        match v2 {
            true => set("cpu.max", format!("{quota_us} {period_us}"))?,
            false => {
                set("cpu.cfs_period_us", period_us.to_string())?;
                set("cpu.cfs_quota_us", quota_us.to_string())?;
            }
        }
        Some(limited)
    }

    fn throttled_ns(&self) -> Result<u64> {
        let (key, unit) = if self.v2 { ("throttled_usec ", 1000) } else { ("throttled_time ", 1) };
        Ok(self.counter(key)? * unit)
    }

    fn throttled_periods(&self) -> Result<u64> {
        self.counter("nr_throttled ")
    }

    fn counter(&self, key: &str) -> Result<u64> {
        let stat = fs::read_to_string(self.directory.join("cpu.stat"))?;
        let value = stat.lines().find_map(|line| line.strip_prefix(key)).context("no such line")?;
        Ok(value.trim().parse()?)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A node recording names the cgroup whose quota did not last, as often as the kernel says; one whose quota
/// lasts is not throttled there either.
fn a_node_recording_names_throttled_cgroups() -> Result<()> {
    let scratch = Scratch::new("throttled-node")?;
    let limited = Limited::new(20_000, 100_000).context("cannot create a cgroup with a quota")?;
    let (root, v2) = Limited::root();
    let name = format!("detour-enough-{}", std::process::id());
    let enough = Limited::below(&root.join(name), v2, 100_000, 100_000)
        .context("cannot create a cgroup with a quota")?;
    let inside = |limited: &Limited, work: &str| {
        let script = format!("echo $$ > \"$0/cgroup.procs\"; {work}");
        Command::new("sh").args(["-c", &script]).arg(&limited.directory).spawn().map(Load)
    };
    let loads = (
        inside(&limited, "while :; do :; done")?,
        inside(&enough, "while :; do sleep 0.01; done")?,
    );
    let before = limited.throttled_periods()?;
    let recording = Recording::start(&scratch.file("node.detour"), &["--no-probe"])?;
    let begun = limited.throttled_periods()?;
    let start = Instant::now();
    while limited.throttled_periods()? < begun + 5 {
        ensure!(start.elapsed() < patience(), "a spinning shell is not throttled");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = limited.throttled_periods()?;
    let report = recording.stop()?.report()?;
    let after = limited.throttled_periods()?;
    drop(loads);
    let row = |limited: &Limited| {
        let name = limited.directory.file_name()?.to_str()?;
        let rows = report["cgroups"].as_array()?;
        rows.iter().find(|row| row["cgroup"].as_str().is_some_and(|c| c.ends_with(name)))
    };
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
    let found = row(&limited).with_context(|| format!("not named: {}", report["cgroups"]))?;
    ensure!(
        number(found, "quota_us") == 20_000 && number(found, "period_us") == 100_000,
        "{found}"
    );
    // Loading takes time before, and reading after the recording.
    let throttled = number(found, "throttled_periods");
    let possible = ended - begun..=after - before;
    ensure!(possible.contains(&throttled), "{found}: {possible:?} periods are possible");
    ensure!(number(found, "periods") >= throttled, "{found}");
    ensure!(number(found, "throttled_ns") > 0, "{found}");
    let silent = row(&enough).is_none_or(|row| number(row, "throttled_periods") == 0);
    ensure!(silent, "{}", report["cgroups"]);
    Ok(())
}

/// Whether cgroups can have a CPU quota here.
pub fn quotas_can_be_made() -> bool {
    Limited::new(100_000, 100_000).is_some()
}

/// A thread that is out of quota when the recording begins.
fn a_thread_that_is_throttled_at_the_start_is_known_as_such() -> Result<()> {
    let (cpu, _) = cpus();
    let limited = Limited::new(50_000, 1_000_000).context("cannot create a cgroup with a quota")?;
    let mut victim = loadgen()?;
    victim.args(["burn", "--seconds", "60", "--cpu", &cpu.to_string()]);
    let victim = Load(victim.stdout(Stdio::null()).spawn()?);
    let tid = u64::from(victim.0.id());
    fs::write(limited.directory.join("cgroup.procs"), tid.to_string())?;
    std::thread::sleep(Duration::from_millis(300));
    let scratch = Scratch::new("throttled")?;
    // It runs for a twentieth of the time; some recordings may begin just then.
    let mut seen = Vec::new();
    for _ in 0..8 {
        let path = scratch.file("trace.detour");
        let arguments = ["--pid", &tid.to_string(), "-d", "500ms"];
        let program = Program::read(&Recording::start(&path, &arguments)?.wait()?.path)?;
        let waits = program.waits(tid, u64::MAX)?;
        let Some(first) = waits.first().filter(|wait| wait.start_ns == 0) else { continue };
        // Or it has quota and waits for another thread's time slice. A throttled wait lasts longer.
        if first.wait == Wait::Preempted && first.len_ns < 50_000_000 {
            continue;
        }
        ensure!(first.wait == Wait::Throttled, "{waits:?}");
        runs_or_waits(program.totals(tid)?)?;
        // Others may have had the CPU when it got new quota.
        let throttled = waits.iter().filter(|wait| wait.wait == Wait::Throttled);
        let throttled = throttled.map(|wait| wait.len_ns).sum::<u64>();
        let quota = program.cost(Class::Throttled, "CPU quota")?;
        ensure!(quota == throttled, "{quota} of {throttled} ns attributed to the quota: {waits:?}");
        seen.push(quota);
        if seen.len() == 3 {
            break;
        }
    }
    ensure!(seen.len() >= 3, "too few recordings began while it was throttled: {seen:?}");
    Ok(())
}

/// A cgroup has used up its quota earlier, and now its child does.
fn the_cgroup_whose_quota_is_used_up_is_named() -> Result<()> {
    let (cpu, _) = cpus();
    let outer = Limited::new(30_000, 100_000).context("cannot create a cgroup with a quota")?;
    let run = |limited: &Limited, seconds: &str| -> Result<Command> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!(
            "echo $$ > {}/cgroup.procs; exec {} work --seconds {seconds} --cpu {cpu}",
            limited.directory.display(),
            loadgen()?.get_program().display()
        ));
        Ok(shell)
    };
    ensure!(run(&outer, "1")?.stdout(Stdio::null()).status()?.success(), "the load failed");
    if outer.v2 {
        fs::write(outer.directory.join("cgroup.subtree_control"), "+cpu")?;
    }
    let inner = Limited::below(&outer.directory.join("inner"), outer.v2, 10_000, 100_000)
        .context("cannot create a child cgroup")?;
    let scratch = Scratch::new("quotas")?;
    let path = scratch.file("trace.detour");
    let command = run(&inner, "2")?;
    let output = detour()
        .args(["record", "--quiet", "-o"])
        .arg(&path)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let program = Program::read(&path)?;
    let mut costs = std::collections::BTreeMap::<_, u64>::new();
    for block in program.reader.blocks() {
        for record in block?.records {
            let source = &program.reader.sources()[record.source.0 as usize];
            if source.class == Class::Throttled {
                *costs.entry(source.unit.clone().unwrap_or_default()).or_default() +=
                    record.cost_ns;
            }
        }
    }
    let inside: u64 = costs.iter().filter(|(u, _)| u.ends_with("/inner")).map(|(_, ns)| ns).sum();
    let all: u64 = costs.values().sum();
    ensure!(inside > 1_000_000_000 && inside >= all / 100 * 99, "{costs:?}");
    Ok(())
}

fn a_quota_is_blamed_on_nobody_else() -> Result<()> {
    let (cpu, _) = cpus();
    for (quota, period) in [(20_000, 100_000), (5_000, 10_000)] {
        let limited = Limited::new(quota, period).context("cannot create a cgroup with a quota")?;
        let scratch = Scratch::new("quota")?;
        let path = scratch.file("trace.detour");
        let procs = limited.directory.join("cgroup.procs");
        let work = loadgen()?.get_program().to_owned();
        let script = format!(
            "echo $$ > {}; exec {} work --seconds 3 --cpu {cpu}",
            procs.display(),
            work.display()
        );
        let output = detour()
            .args(["record", "--quiet", "-o"])
            .arg(&path)
            .args(["--", "sh", "-c", &script])
            .output()?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout)?;
        let thread = &said["threads"][0];
        let program = Program::read(&path)?;
        let waits = program.waits(number(thread, "tid")?, number(thread, "at_ns")?)?;
        let waited: u64 = waits.iter().map(|wait| wait.len_ns).sum();
        let throttled = waits.iter().filter(|wait| wait.wait == Wait::Throttled);
        let throttled: u64 = throttled.map(|wait| wait.len_ns).sum();
        let (stat, delay) = (limited.throttled_ns()?, number(thread, "delay_ns")?);
        println!(
            "quota {quota}: throttled {throttled} ns, cpu.stat {stat} ns; waited {waited} of {delay} ns"
        );
        let edges = number(thread, "waits")? * edge_ns();
        ensure!(
            waited.abs_diff(delay) <= delay / 100 + edges,
            "waited {waited}, run_delay {delay}"
        );
        // The shell and the first thread count as well, and the clock of cpu.stat starts with the
        // first task that is throttled. Under emulation they use up the quota several times.
        let periods = if in_vm() { 4 } else { 1 };
        let slack = stat / 50 + edges + periods * u64::from(period) * 1000;
        // Older kernels also count throttled run queues without tasks.
        let (least, most) = match recorder::machine::version() >= (6, 6) {
            true => (stat.saturating_sub(slack), stat + slack),
            false => (delay / 10 * if in_vm() { 7 } else { 8 }, stat + slack),
        };
        ensure!((least..=most).contains(&throttled), "throttled {throttled}, cpu.stat {stat}");
        let quota = program.cost(Class::Throttled, "CPU quota")?;
        ensure!(quota >= throttled, "{quota} of {throttled} ns attributed to the quota");
        let unit = program.reader.sources().iter().find(|s| s.class == Class::Throttled);
        let unit = unit.and_then(|source| source.unit.clone()).unwrap_or_default();
        ensure!(limited.directory.ends_with(unit.trim_start_matches('/')), "{unit}");
    }
    Ok(())
}

/// A thread that never sleeps either runs or waits while it is watched.
fn runs_or_waits(totals: &LaneTotals) -> Result<(u64, u64, u64)> {
    let window = totals.to_ns - totals.from_ns;
    let (run, wait) = (totals.run_ns.context("no run_ns")?, totals.wait_ns.context("no wait_ns")?);
    ensure!(
        (run + wait).abs_diff(window) <= window / 100 + 200_000,
        "{run} + {wait} of {window} ns"
    );
    Ok((window, run, wait))
}

fn hog(cpu: u32, seconds: &str) -> Result<Load> {
    let mut hog = loadgen()?;
    hog.args(["burn", "--fifo", "60", "--cpu", &cpu.to_string(), "--seconds", seconds]);
    Ok(Load(hog.stdout(Stdio::null()).spawn()?))
}

/// A single-threaded process that spins on a CPU, and its PID.
fn spinning(cpu: u32) -> Result<(Load, u64)> {
    let load = Load::burn(cpu)?;
    let tid = u64::from(load.0.id());
    std::thread::sleep(Duration::from_millis(200));
    Ok((load, tid))
}

fn a_wait_is_recorded_to_the_end_of_the_recording() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("end")?;
    let (_victim, tid) = spinning(cpu)?;
    let recording =
        Recording::start(&scratch.file("trace.detour"), &["--pid", &tid.to_string(), "-d", "1s"])?;
    std::thread::sleep(Duration::from_millis(400));
    // It begins during the recording and ends after it.
    let _hog = hog(cpu, "0.8")?;
    let trace = recording.wait()?;
    let program = Program::read(&trace.path)?;
    let totals = program.totals(tid)?;
    let (window, _, wait) = runs_or_waits(totals)?;
    ensure!(window > 900_000_000, "watched for only {window} ns of a second");
    ensure!(wait > 100_000_000, "waited only {wait} ns");
    let last = program.waits(tid, u64::MAX)?.last().copied().context("it did not wait")?;
    ensure!(last.start_ns + last.len_ns == totals.to_ns, "{last:?} {totals:?}");
    let blamed = program.cost(Class::Thread, "burn")?;
    ensure!(blamed > 100_000_000, "burn: {blamed} ns");
    let policy =
        |s: &trace::Source| s.name == "burn" && s.policy.as_deref() == Some("SCHED_FIFO 60");
    ensure!(program.reader.sources().iter().any(policy), "{:?}", program.reader.sources());
    Ok(())
}

fn a_thread_that_never_ran_has_a_lane() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("starved")?;
    let (_victim, tid) = spinning(cpu)?;
    // The kernel lets other tasks run for a moment every second, counted from when the hog began. Loading
    // takes about the same time in every attempt, so each has to begin at another part of that second.
    for attempt in 0..8 {
        // Until the end of the attempt, no matter how long loading takes.
        let _hog = hog(cpu, "60")?;
        std::thread::sleep(Duration::from_millis(300 + 125 * attempt));
        let path = scratch.file("trace.detour");
        let recording = Recording::start(&path, &["--pid", &tid.to_string(), "-d", "300ms"])?;
        let trace = recording.wait()?;
        let program = Program::read(&trace.path)?;
        let totals = program.totals(tid)?;
        let (window, run, wait) = runs_or_waits(totals)?;
        ensure!(window > 250_000_000, "watched for only {window} ns of 300 ms: {run} {wait}");
        if run == 0 {
            ensure!(totals.from_ns == 0 && wait == window, "{totals:?}");
            return Ok(());
        }
    }
    anyhow::bail!("it ran in every recording")
}

/// A thread is starved when the recording begins, and runs for a moment every second, which the kernel
/// reserves for others.
fn in_a_pid_namespace_a_wait_begins_with_the_recording() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("ns-starved")?;
    let path = scratch.file("trace.detour");
    for proc in namespaces::PROC {
        // It runs until the end, no matter how long loading takes.
        let _hog = hog(cpu, "60")?;
        let script = "$loadgen burn --cpu $cpu --seconds 60 >/dev/null & burn=$!
            $detour record -q --pid $burn -d 2500ms -o $trace || exit; kill $burn; echo $burn";
        let (code, said, errors) = namespaces::run(proc, &path, script)?;
        ensure!(code == Some(0), "{proc:?}: {code:?} {errors}");
        let program = Program::read(&path)?;
        let totals = program.totals(said.trim().parse().context("its number")?)?;
        let (_, run, wait) = runs_or_waits(totals)?;
        ensure!(totals.from_ns < 1_000_000, "{proc:?}: {totals:?}");
        ensure!(run > 10_000_000 && wait > 1_000_000_000, "{proc:?}: {totals:?}");
    }
    Ok(())
}

/// More page faults during a wait than records are kept: those of a real-time task, which lets others run
/// for a moment every second.
fn a_wait_with_many_records_is_explained() -> Result<()> {
    const KEPT: u64 = 1 << 17;
    let (cpu, _) = cpus();
    let scratch = Scratch::new("many")?;
    let (_victim, tid) = spinning(cpu)?;
    let mut faults = loadgen()?;
    faults.args(["faults", "--fifo", "60", "--seconds", "60", "--cpu", &cpu.to_string()]);
    let _faults = Load(faults.stdout(Stdio::null()).spawn()?);
    let recording =
        Recording::start(&scratch.file("trace.detour"), &["--pid", &tid.to_string(), "-d", "4s"])?;
    let program = Program::read(&recording.wait()?.path)?;
    let waits = program.waits(tid, u64::MAX)?;
    let (waited, outside) =
        waits.iter().fold((0, 0), |(ns, out), wait| (ns + wait.len_ns, out + wait.outside_ns));
    let remarks = &program.reader.trailer().context("no trailer")?.remarks;
    ensure!(waited > 2_000_000_000, "waited only {waited} ns");
    ensure!(
        remarks.iter().any(|remark| remark.contains("only sums are known")),
        "fewer than {KEPT} records in each wait: {waits:?} {remarks:?}"
    );
    ensure!(outside <= waited / 100, "{outside} of {waited} ns are unexplained: {waits:?}");
    let fault = program.cost(Class::PageFault, "")?;
    ensure!(fault > waited / 4, "page faults took {fault} of {waited} ns");
    println!("waited {waited} ns, page faults {fault} ns, unexplained {outside} ns");
    Ok(())
}

fn a_wait_is_blamed_on_the_cpu_where_it_was() -> Result<()> {
    let (cpu, other) = cpus();
    // Processes take long to start on an emulated machine.
    let unit = Duration::from_millis(if in_vm() { 400 } else { 50 });
    let scratch = Scratch::new("moved")?;
    let (victim, tid) = spinning(cpu)?;
    let recording = Recording::start(
        &scratch.file("trace.detour"),
        &["--pid", &tid.to_string(), "-d", if in_vm() { "14s" } else { "2s" }],
    )?;
    let pid = rustix::process::Pid::from_raw(victim.0.id() as i32);
    let pin = |cpu: u32| {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        rustix::thread::sched_setaffinity(pid, &set)
    };
    for _ in 0..5 {
        let mut hog = hog(cpu, &(2 * unit).as_secs_f64().to_string())?;
        std::thread::sleep(unit);
        pin(other)?;
        hog.0.wait()?;
        pin(cpu)?;
        std::thread::sleep(unit);
    }
    let program = Program::read(&recording.wait()?.path)?;
    runs_or_waits(program.totals(tid)?)?;
    let (mut on_its_cpu, mut elsewhere, mut moved) = (0, 0, 0);
    for block in program.reader.blocks_of(program.lane(tid)?) {
        let block = block?;
        for (detour, records) in block.composed() {
            moved += u32::from(detour.wait == Wait::Migrated);
            // The hog is on one CPU only: what it took, it took there.
            for record in records {
                let source = &program.reader.sources()[record.source.0 as usize];
                if source.policy.as_deref() == Some("SCHED_FIFO 60") {
                    // It has the victim's name but is another process.
                    ensure!(source.name == "burn" && !source.program, "{source:?}");
                    on_its_cpu += record.cost_ns;
                } else if detour.wait == Wait::Preempted && record.cpu != cpu as u16 {
                    elsewhere += record.cost_ns;
                }
            }
        }
    }
    ensure!(moved >= 1, "no wait after a migration");
    ensure!(
        on_its_cpu > 100_000_000,
        "the hog took {on_its_cpu} ns, others on the other CPU {elsewhere}"
    );
    Ok(())
}

fn a_task_that_faults_and_ends_at_once_has_a_name() -> Result<()> {
    let scratch = Scratch::new("brief")?;
    let mut brief = loadgen()?
        .args(["brief", "--pages", "200"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(brief.stdout.take().context("no output")?).read_line(&mut line)?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["--no-probe", "-d", "300s"])?;
    brief.stdin.take().context("no input")?.write_all(b"\n")?;
    brief.wait()?;
    let trace = recording.stop()?;
    let faults = trace.records().filter(|(s, _)| s.class == Class::PageFault && s.name == "brief");
    let faults = faults.count();
    ensure!(faults >= 200, "{faults} of 200 faults have the right name");
    Ok(())
}

fn refused_faults_are_counted() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("refused")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["--no-probe", "-d", "300s"])?;
    let said = load(&["refused", "--cpu", &cpu.to_string(), "--count", "50"])?;
    let trace = recording.stop()?;
    let refused = number(&said, "refused")?;
    ensure!(refused == 50, "{said}");
    // A fault without an end is a point, neither minor nor major.
    let point = |detail: &str| !detail.ends_with("minor") && !detail.ends_with("major");
    let recorded = trace.records().filter(|(source, _)| {
        source.class == Class::PageFault
            && source.name == "refused"
            && source.detail.as_deref().is_some_and(point)
    });
    let recorded = recorded.count() as u64;
    ensure!(recorded >= refused, "{recorded} of {refused} refused faults recorded");
    Ok(())
}

fn the_recorders_threads_go_where_they_are_sent() -> Result<()> {
    let (cpu, other) = cpus();
    let scratch = Scratch::new("housekeeping")?;
    let path = scratch.file("trace.detour");
    let allowed = "grep Cpus_allowed_list /proc/self/status";
    let recorders = "for t in /proc/$PPID/task/*; do grep Cpus_allowed_list $t/status; done";
    let output = detour()
        .args(["record", "--quiet", "-H", &other.to_string(), "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", &format!("sleep 0.2; {allowed}; {recorders}")])
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let mut lists = said.lines().filter_map(|line| line.split_whitespace().last());
    let own = lists.next().context("no output")?;
    ensure!(own != other.to_string(), "the command was moved to CPU {own} as well");
    let placed = lists.filter(|list| *list == other.to_string()).count();
    ensure!(placed >= 3, "{said}");
    // With the command pinned to one CPU, the others are left to the recorder.
    let output = detour()
        .args(["record", "--quiet", "-c", &cpu.to_string(), "-T", "20us", "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", &format!("sleep 0.2; {allowed}; {recorders}")])
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lists: Vec<_> = said.lines().filter_map(|line| line.split_whitespace().last()).collect();
    ensure!(lists[0] == cpu.to_string(), "the command was moved to CPU {}", lists[0]);
    ensure!(lists[1..].iter().all(|list| *list != lists[0]), "{said}");
    let reader = Reader::open(&path)?;
    for block in reader.blocks() {
        let block = block?;
        let short = block.detours.iter().find(|detour| detour.len_ns < 20_000);
        ensure!(short.is_none(), "shorter than the threshold: {short:?}");
    }
    for (arguments, why) in [
        (["-c", "0", "--pid", "1"], "-c requires a command"),
        (["-T", "9x", "--", "true"], "requires the probe"),
    ] {
        let output = detour().arg("record").args(arguments).output()?;
        ensure!(output.status.code() == Some(2), "{:?}", output.status);
        ensure!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    Ok(())
}
