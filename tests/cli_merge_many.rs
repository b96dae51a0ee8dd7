//! `detour merge` of a large job: as many nodes as users have, with as few open files as a shell
//! allows.

mod made;

use std::{fs, io, path::PathBuf, process::Command, time::Duration};

use trace::{Mode, Reader};

const NODES: u64 = 2_000;
const FEWER: u64 = 500;
const OPEN_FILES: u32 = 256;

/// Small recordings of many nodes in a separate directory, which is removed with the test.
struct Job {
    directory: PathBuf,
    files: Vec<String>,
}

impl Job {
    fn new(name: &str, nodes: u64) -> Job {
        let directory = made::scratch(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("created");
        let recording = |number| {
            let node = made::Node {
                host: format!("node{number:04}"),
                job: Some("4711".to_owned()),
                // All overlap: each lasts a second.
                started_unix_s: 1000.0 + number as f64 / 10_000.0,
            };
            let name = format!("{name}/{number}.detour");
            made::recording_of(&name, node, Mode::Attributed, 2, 1, &[made::TICK, made::DAEMON])
        };
        let files = (0..nodes).map(recording).collect();
        Job { directory, files }
    }

    /// Merges the first `nodes` under the limit; returns the CPU time of the process.
    fn merge(&self, nodes: u64, out: &str) -> Duration {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {OPEN_FILES} && exec \"$0\" \"$@\"")]);
        shell.args([env!("CARGO_BIN_EXE_detour"), "merge", "-q", "-o"]).arg(self.out(out));
        shell.args(&self.files[..nodes as usize]);
        cpu_time_of(&mut shell).expect("merged")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Runs a command to completion and gets its CPU time from the kernel.
fn cpu_time_of(command: &mut Command) -> io::Result<Duration> {
    let child = command.spawn()?;
    let mut status = 0;
    // SAFETY: all zeros is a valid value of a structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers refer to live values; the child is ours and is waited for only here.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    if waited < 0 {
        return Err(io::Error::last_os_error());
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        return Err(io::Error::other(format!("failed: status {status:#x}")));
    }
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

#[test]
fn two_thousand_nodes_are_merged_with_256_open_files_in_four_times_what_500_take() {
    let job = Job::new("merge-many", NODES);
    let best = |nodes, out: &str| (0..3).map(|_| job.merge(nodes, out)).min().expect("tries");
    let (fewer, all) = (best(FEWER, "fewer.detour"), best(NODES, "all.detour"));
    // Four times as many nodes; quadratic cost would be 16 times the work.
    let ratio = all.as_secs_f64() / fewer.as_secs_f64();
    assert!(
        ratio < 8.0,
        "{FEWER} nodes took {fewer:?} of CPU time, {NODES} {all:?}: {ratio:.1} times"
    );

    let merged = Reader::open(job.out("all.detour")).expect("a trace");
    let nodes = &merged.manifest().nodes;
    assert_eq!((nodes.len() as u64, merged.lanes().len() as u64), (NODES, 2 * NODES));
    assert!((0..).zip(nodes).all(|(number, node)| node.host == format!("node{number:04}")));
    // The last node's events are present, on its own lanes.
    let last = trace::LaneId(2 * NODES as u32 - 1);
    let own = Reader::open(job.files.last().expect("files")).expect("a trace");
    let events = |reader: &Reader, lane| {
        let blocks = reader.blocks_of(lane).map(|block| block.expect("a block"));
        blocks.map(|block| block.detours.len()).sum::<usize>()
    };
    assert_eq!(events(&merged, last), events(&own, trace::LaneId(1)));
    assert!(events(&merged, last) > 200);
}
