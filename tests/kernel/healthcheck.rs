//! The Slurm scripts of the package: a noisy node is drained and a good one is not, and the prolog records
//! the job's own cgroup.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    cgroups::Cgroup,
    support::{
        Load, Needs, Scratch, Test, detour, idle_share, loadgen, patience, skip, text, undisturbed,
    },
};

pub const TESTS: &[Test] = &[
    ("a_noisy_node_is_drained_and_a_good_one_is_not", Needs::RootAndTwoCpus, || {
        undisturbed(a_noisy_node_is_drained)
    }),
    ("the_prolog_records_the_cgroup_of_the_job", Needs::RootAndTwoCpus, of_the_job),
];

/// Other work on this machine is noise, too.
const ATTEMPTS: u32 = 3;

/// A copy of a script with other settings.
fn script(scratch: &Scratch, name: &str, settings: &[(&str, &str)]) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slurm");
    let mut lines: Vec<String> =
        fs::read_to_string(root.join(name))?.lines().map(str::to_owned).collect();
    for (key, value) in settings {
        let setting = format!("{key}=");
        let line = lines.iter_mut().find(|line| line.starts_with(&setting));
        *line.with_context(|| format!("no {key} in {name}"))? = format!("{key}='{value}'");
    }
    let copy = scratch.file(name);
    fs::write(&copy, lines.join("\n") + "\n")?;
    Ok(copy)
}

fn program() -> String {
    detour().get_program().to_string_lossy().into_owned()
}

fn a_noisy_node_is_drained() -> Result<()> {
    let scratch = Scratch::new("healthcheck")?;
    let baseline = scratch.file("baseline.detour");
    let record = ["record", "-q", "--no-probe", "-d", "4s", "-o"];
    let (output, idle) = idle_share(1, || Ok(detour().args(record).arg(&baseline).output()?))?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    // Health checks are for idle nodes.
    if idle < 0.5 {
        return skip(format!("CPU 1 is idle for only {:.0} % of the time", 100.0 * idle));
    }
    let drained = scratch.file("drained");
    let check = script(
        &scratch,
        "healthcheck.sh",
        &[
            ("DETOUR", &program()),
            ("DETOUR_BASELINE", &baseline.display().to_string()),
            ("DETOUR_CHECK_TIME", "4s"),
            ("DETOUR_TOLERANCE", "12%"),
            // Of two ranks, one meets the daemon and takes a quarter longer. Rare noise of this machine,
            // which decides for thousands of ranks, hardly matters.
            ("DETOUR_JOB", "--ranks 2"),
            ("DETOUR_DRAIN", &format!("tee {} -- ", drained.display())),
        ],
    )?;
    // `tee` creates the file it is told to, and another of the reason's name.
    let run = || -> Result<bool> {
        let _ = fs::remove_file(&drained);
        let output = Command::new("sh").arg(&check).current_dir(scratch.file(".")).output()?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
        Ok(drained.exists())
    };
    let mut good = !run()?;
    for _ in 1..ATTEMPTS {
        good = good || !run()?;
    }
    ensure!(good, "a node like the good one was drained");
    let daemon = ["daemon", "--cpu", "1", "--period-us", "10000", "--burn-us", "2000"];
    let _load = Load(
        loadgen()?
            .args(daemon)
            .args(["--name", "hogd", "--seconds", "120"])
            .stdout(std::process::Stdio::null())
            .spawn()?,
    );
    ensure!(run()?, "a node with a daemon that takes a fifth of a CPU was not drained");
    Ok(())
}

/// The cgroup appears after the prolog has ended, as with Slurm.
fn of_the_job() -> Result<()> {
    let scratch = Scratch::new("prolog")?;
    let jobs = scratch.file("jobs");
    let steps = Cgroup::create(&scratch, "slurm")?;
    let settings = [("DETOUR", program()), ("DETOUR_DIR", jobs.display().to_string())];
    let cgroups = steps.path.display().to_string();
    let run = |name: &str, more: &[(&str, &str)]| -> Result<()> {
        let mut settings: Vec<(&str, &str)> =
            settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        // The epilog starts no program.
        settings.retain(|(key, _)| name == "prolog.sh" || *key != "DETOUR");
        settings.extend(more);
        if name == "prolog.sh" {
            // Whatever goes wrong, it ends.
            settings.push(("DETOUR_LONGEST", "60s"));
        }
        let copy = script(&scratch, name, &settings)?;
        let mut sh = Command::new("sh");
        sh.arg(&copy).env("SLURM_JOB_ID", "4711").env("SLURM_JOB_COMMENT", "detour");
        let output = sh.output()?;
        ensure!(output.status.success(), "{name}: {}", text(&output.stderr));
        Ok(())
    };
    run("prolog.sh", &[("DETOUR_CGROUPS", &cgroups)])?;
    let job = steps.path.join("job_4711");
    fs::create_dir(&job)?;
    let task = Load(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
    fs::write(job.join("cgroup.procs"), task.0.id().to_string())?;
    let begin = Instant::now();
    let recording = || -> Option<PathBuf> {
        let files = fs::read_dir(&jobs).ok()?.flatten().map(|entry| entry.path());
        files.into_iter().find(|path| path.extension() == Some("detour".as_ref()))
    };
    while recording().is_none() {
        ensure!(begin.elapsed() < patience(), "the prolog started no recording");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(2));
    run("epilog.sh", &[])?;
    drop(task);
    fs::remove_dir(&job)?;
    let path = recording().context("the recording is gone")?;
    // The epilog does not wait long for the end of the file.
    let begin = Instant::now();
    while trace::Reader::open(&path)?.trailer().is_none() && begin.elapsed() < patience() {
        std::thread::sleep(Duration::from_millis(100));
    }
    let reader = trace::Reader::open(&path)?;
    ensure!(reader.manifest().mode == trace::Mode::Program, "{:?}", reader.manifest().mode);
    ensure!(reader.trailer().is_some(), "the epilog did not end the recording");
    ensure!(
        reader
            .lanes()
            .iter()
            .any(|lane| matches!(lane, trace::Lane::Thread { name, .. } if name == "sh")),
        "no task of the job"
    );
    Ok(())
}
