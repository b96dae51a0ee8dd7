//! Builds and runs MPI programs with the collector preloaded, and reads back what it wrote as lines like
//! those of `programs/log.h`.

#![allow(dead_code)]

pub mod standard;

use libtest_mimic::{Arguments, Completion, Trial};
use mpi_abi::{
    Actual, Call, Decoder, Event, FileHeader, ListKind, Outcome, Record, Requests, Role, Sizes,
    chunks,
};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// An MPI of the system, as Debian names its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mpi {
    pub name: &'static str,
}

/// What became of a test with one MPI.
pub enum Ended {
    Done,
    /// And why.
    Skipped(String),
}

/// A test by its name; it panics if it fails.
pub type Test = (&'static str, fn(Mpi) -> Ended);

/// Runs every test with every MPI. What is not installed is reported as ignored, by name.
pub fn run_tests(tests: &'static [Test]) -> ! {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for name in ["openmpi", "mpich"] {
        let mpi = Mpi { name };
        let missing = mpi.missing();
        for &(test, run) in tests {
            let missing = missing.clone();
            trials.push(Trial::ignorable_test(format!("{test}_with_{name}"), move || {
                Ok(match missing.map_or_else(|| run(mpi), Ended::Skipped) {
                    Ended::Done => Completion::Completed,
                    Ended::Skipped(why) => Completion::ignored_with(why),
                })
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit()
}

/// A new directory of this test run.
pub fn fresh(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The collector as a file.
pub fn library() -> PathBuf {
    let path = fresh("library").join("collector.so");
    std::fs::write(&path, mpi_recorder::LIBRARY).unwrap();
    path
}

/// Source of a test program.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

impl Mpi {
    /// Which of its commands is not installed.
    pub fn missing(self) -> Option<String> {
        let there = |command: &String| {
            Command::new(command).arg("--version").output().is_ok_and(|out| out.status.success())
        };
        let mut commands =
            ["mpicc", "mpirun"].map(|name| format!("{name}.{}", self.name)).into_iter();
        commands
            .find(|command| !there(command))
            .map(|command| format!("{command} is not installed"))
    }

    /// Compiles a program; None if there is no compiler for it.
    pub fn compile(self, name: &str, options: &[&str]) -> Option<PathBuf> {
        let compiler = if name.ends_with(".c") { "mpicc" } else { "mpif90" };
        let compiler = format!("{compiler}.{}", self.name);
        if Command::new(&compiler).arg("--version").output().is_err() {
            return None;
        }
        let directory = fresh("program");
        let program = directory.join(name.replace('.', "-"));
        let output = Command::new(&compiler)
            .args(["-w", "-O1"])
            .arg("-I")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .args(["-J"].iter().filter(|_| compiler.starts_with("mpif90")))
            .args([&directory].iter().filter(|_| compiler.starts_with("mpif90")))
            .arg(source(name))
            .args(options)
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    }

    /// `mpirun` for so many ranks, without a program.
    pub fn mpirun(self, ranks: u32) -> Command {
        let mut command = Command::new("timeout");
        command.arg("600").arg(format!("mpirun.{}", self.name));
        if self.name == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        command.args(["-n", &ranks.to_string()]);
        command
    }

    /// `mpirun` with a program to which the collector is preloaded.
    pub fn recorded(self, ranks: u32, directory: &Path) -> Command {
        let mut command = self.mpirun(ranks);
        command.arg("env");
        command.arg(format!("LD_PRELOAD={}", library().display()));
        command.arg(format!("{}={}", mpi_recorder::DIRECTORY, directory.display()));
        command
    }
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A line of the log: the name and its fields.
pub type Line = (String, BTreeMap<String, String>);

/// Reads the account that a program wrote.
pub fn read_log(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or("").to_owned();
            let fields = words
                .map(|word| word.split_once('=').unwrap_or((word, "")))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            (name, fields)
        })
        .collect()
}

/// A communicator as defined in a trace.
#[derive(Clone, Debug, Default)]
pub struct Comm {
    pub key: u64,
    pub members: Vec<i32>,
    pub remote: Vec<i32>,
    pub sources: Vec<i32>,
    pub destinations: Vec<i32>,
    pub size: u32,
    pub remote_size: u32,
}

impl Comm {
    fn text(&self) -> String {
        assert_eq!(self.members.len(), self.size as usize);
        assert_eq!(self.remote.len(), self.remote_size as usize);
        let mut text = numbers(&self.members);
        if !self.remote.is_empty() {
            text += "|";
            text += &numbers(&self.remote);
        }
        text
    }
}

fn numbers<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A whole trace of one rank.
#[derive(Default)]
pub struct Trace {
    /// Lines by thread.
    pub threads: BTreeMap<u16, Vec<Line>>,
    pub comms: HashMap<u32, Comm>,
    pub regions: Vec<String>,
    pub events: u64,
    /// Of them, tests that were only counted.
    pub repeated: u64,
    /// How long each of the others took.
    pub tests: Vec<Duration>,
    pub lost_marks: u64,
    pub finalized: bool,
    pub aborted: bool,
    pub run: u64,
    pub abi: Option<mpi_abi::Abi>,
    pub lost: mpi_abi::Lost,
    pub world: (u32, u32),
    pub header_events: u64,
    pub bytes: usize,
    pub open_chunks: u32,
}

#[derive(Clone, Copy)]
struct Posted {
    receives: bool,
    peer: i32,
    tag: i32,
    bytes: u64,
}

#[derive(Default)]
struct Reader {
    comms: HashMap<u32, Comm>,
    windows: HashMap<u32, u32>,
    posted: HashMap<u64, Posted>,
    names: HashMap<u32, String>,
    made: Option<u32>,
}

fn got(actual: &Actual, peer: i32, tag: i32, bytes: u64) -> String {
    format!(
        "{}/{}/{}",
        actual.source.unwrap_or(peer),
        actual.tag.unwrap_or(tag),
        actual.bytes.unwrap_or(bytes)
    )
}

impl Reader {
    fn requests(&self, requests: Requests) -> Vec<String> {
        let mut texts = vec![];
        for run in requests {
            for id in run.first..run.first + u64::from(run.count) {
                let name = match run.outcome {
                    Outcome::Completed => "done",
                    Outcome::Pending => "pending",
                    Outcome::Cancelled => "cancelled",
                    Outcome::Freed => "freed",
                    Outcome::CancelAsked => "cancel",
                    Outcome::Started => "started",
                    Outcome::Ready => "ready",
                };
                let mut text = format!("{id}:{name}");
                let posted = self.posted.get(&id).filter(|posted| posted.receives);
                if let (Some(posted), Outcome::Completed | Outcome::Ready) = (posted, run.outcome) {
                    text += ":";
                    text += &got(&run.actual, posted.peer, posted.tag, posted.bytes);
                }
                texts.push(text);
            }
        }
        texts
    }

    fn event(&mut self, event: &Event) -> Line {
        let call = event.call();
        let mut fields = BTreeMap::new();
        let mut field = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                fields.insert(key.to_owned(), value);
            }
        };
        field("c", event.communicator().map(|number| self.comms[&number].text()));
        field("w", event.window().map(|number| self.comms[&self.windows[&number]].text()));
        field("p", event.peer().map(|value| value.to_string()));
        field("t", event.tag().map(|value| value.to_string()));
        field("b", event.bytes.map(|value| value.to_string()));
        field("s", event.source().map(|value| value.to_string()));
        field("u", event.source_tag().map(|value| value.to_string()));
        field("r", event.received.map(|value| value.to_string()));
        field("op", event.op().map(|value| format!("{value:?}")));
        field("q", event.begun.map(|value| value.to_string()));
        field("f", call.has(Role::Flag).then(|| u32::from(event.found).to_string()));
        field("e", (event.error != 0).then(|| "1".to_owned()));
        let sizes = |sizes: Option<Sizes>| {
            sizes.map(|sizes| {
                let all: Vec<u64> = sizes
                    .flat_map(|(size, count)| std::iter::repeat_n(size, count as usize))
                    .collect();
                numbers(&all)
            })
        };
        field("S", sizes(event.sent));
        field("G", sizes(event.got));
        let exchange = event.source().is_some();
        let posted = Posted {
            receives: call.class() == mpi_abi::Class::PointToPoint
                && (call.has(Role::Source) || call.has(Role::Message)),
            peer: if exchange { event.source() } else { event.peer() }.unwrap_or(0),
            tag: if exchange { event.source_tag() } else { event.tag() }.unwrap_or(0),
            bytes: if exchange { event.received } else { event.bytes }.unwrap_or(0),
        };
        let known = event.error == 0 || event.actual != mpi_abi::Actual::AS_POSTED;
        if posted.receives && call.has(Role::Status) && event.found && known {
            field("g", Some(got(&event.actual, posted.peer, posted.tag, posted.bytes)));
        }
        if let Some(id) = event.begun {
            // What a nonblocking exchange got is not recorded.
            self.posted.insert(id, Posted { receives: posted.receives && !exchange, ..posted });
        }
        let requests = self.requests(event.requests);
        field("R", (!requests.is_empty()).then(|| requests.join(",")));
        if let Some(made) = self.made.take() {
            field("n", Some(self.comms[&made].text()));
        }
        let off = if event.is_off() { "off " } else { "" };
        (format!("{off}{}", event.name()), fields)
    }
}

/// Writes the lines of tests that were made again in turn.
fn take_turns(repeated: &mut Vec<(Line, u32)>, lines: &mut Vec<Line>) {
    for round in 0..repeated.first().map_or(0, |(_, times)| *times) {
        lines.extend(
            repeated.iter().filter(|(_, times)| *times > round).map(|(line, _)| line.clone()),
        );
    }
    repeated.clear();
}

/// Reads the file of a rank. Panics if anything in it is damaged.
pub fn read_trace(path: &Path) -> Trace {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header =
        FileHeader::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut trace = Trace {
        finalized: header.is_finalized(),
        aborted: header.flags & mpi_abi::file_flag::ABORTED != 0,
        run: header.run,
        abi: Some(header.abi),
        lost: header.lost,
        world: (header.world_rank, header.world_size),
        header_events: header.events,
        bytes: bytes.len(),
        ..Trace::default()
    };
    let mut reader = Reader::default();
    let mut all: Vec<_> = chunks(&bytes).collect();
    all.sort_by_key(|chunk| (chunk.header.thread, chunk.header.sequence));
    let mut decoder = Box::new(Decoder::new(&[], 0));
    // Definitions first: another thread may have made what a thread uses.
    for definitions in [true, false] {
        let mut sequence = (0, 0);
        for chunk in &all {
            assert!(chunk.is_sound(), "chunk {} is damaged", chunk.index);
            if chunk.header.thread != sequence.0 {
                sequence = (chunk.header.thread, 0);
            }
            assert_eq!(chunk.header.sequence, sequence.1, "a chunk is missing");
            sequence.1 += 1;
            let lines = trace.threads.entry(chunk.header.thread).or_default();
            decoder.restart(chunk.payload, chunk.header.base);
            let mut events = 0;
            let mut repeated = Vec::new();
            while let Some(record) = decoder.next_record() {
                if !matches!(record, Record::Repeat { .. }) {
                    take_turns(&mut repeated, lines);
                }
                match record {
                    Record::Repeat { times, .. } if definitions => {
                        trace.events += u64::from(times);
                        trace.repeated += u64::from(times);
                    }
                    Record::Repeat { event, times, .. } => {
                        repeated.push((reader.event(&event), times));
                    }
                    Record::Communicator(def) if definitions => {
                        reader.comms.insert(
                            def.number,
                            Comm {
                                key: def.key,
                                size: def.size,
                                remote_size: def.remote_size,
                                ..Comm::default()
                            },
                        );
                    }
                    Record::Communicator(def) => reader.made = Some(def.number).filter(|n| *n > 1),
                    Record::List { communicator, kind, runs, .. } if definitions => {
                        let comm = reader.comms.get_mut(&communicator).unwrap();
                        let list = match kind {
                            ListKind::Members => &mut comm.members,
                            ListKind::Remote => &mut comm.remote,
                            ListKind::Sources => &mut comm.sources,
                            ListKind::Destinations => &mut comm.destinations,
                            _ => continue,
                        };
                        for run in runs {
                            list.extend((0..run.count).map(|index| run.at(index)));
                        }
                    }
                    Record::Window { window, communicator } => {
                        reader.windows.insert(window, communicator);
                    }
                    Record::RegionName { region, name } => {
                        let name = String::from_utf8_lossy(name).into_owned();
                        reader.names.insert(region, name);
                    }
                    Record::Event(event) => {
                        events += 1;
                        if definitions && event.signature.call == Call::Test {
                            let ns = (event.end - event.begin) as f64 / ticks_per_ns(&header);
                            trace.tests.push(Duration::from_nanos(ns as u64));
                        }
                        if !definitions {
                            lines.push(reader.event(&event));
                        }
                    }
                    Record::More(requests) if !definitions => {
                        let more = reader.requests(requests).join(",");
                        let fields = &mut lines.last_mut().unwrap().1;
                        *fields.get_mut("R").unwrap() += &format!(",{more}");
                    }
                    Record::RegionBegin { region, .. } if !definitions => {
                        trace.regions.push(format!("begin {}", reader.names[&region]));
                    }
                    Record::RegionEnd { region, .. } if !definitions => {
                        let name = reader.names.get(&region);
                        trace.regions.push(format!("end {}", name.map_or("", |name| name)));
                    }
                    Record::Switch { on, .. } if !definitions => {
                        trace.regions.push(format!("recording {on}"));
                    }
                    Record::Lost { events } if !definitions => trace.lost_marks += events,
                    _ => {}
                }
            }
            take_turns(&mut repeated, lines);
            assert_eq!(decoder.error(), None, "chunk {}", chunk.index);
            assert_eq!(events, chunk.header.events, "events of chunk {}", chunk.index);
            if definitions {
                trace.events += u64::from(events);
                trace.open_chunks += u32::from(!chunk.header.is_closed());
            }
        }
    }
    trace.comms = reader.comms;
    trace
}

/// Between its first and its last pair of clocks.
fn ticks_per_ns(header: &FileHeader) -> f64 {
    let (start, end) = (header.start, header.end);
    (end.ticks - start.ticks) as f64 / (end.ns - start.ns) as f64
}

/// Decodes the file of a rank without keeping it: its events, and whether the rank has finalized.
pub fn count_events(path: &Path) -> (u64, bool) {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header =
        FileHeader::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = Box::new(Decoder::new(&[], 0));
    let mut events = 0;
    for chunk in chunks(&bytes) {
        assert!(chunk.is_sound(), "chunk {} is damaged", chunk.index);
        decoder.restart(chunk.payload, chunk.header.base);
        while let Some(record) = decoder.next_record() {
            events += match record {
                Record::Event(_) => 1,
                Record::Repeat { times, .. } => u64::from(times),
                _ => 0,
            };
        }
        assert_eq!(decoder.error(), None, "chunk {}", chunk.index);
    }
    (events, header.is_finalized())
}

/// Number of calls by name.
pub fn counts(lines: &[Line]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (name, _) in lines {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

/// Asserts that a trace has exactly the lines of a log.
pub fn assert_same(what: &str, trace: &[Line], log: &[Line]) {
    for (index, (found, expected)) in trace.iter().zip(log).enumerate() {
        assert_eq!(found, expected, "{what}: line {} of the log", index + 1);
    }
    assert_eq!(trace.len(), log.len(), "{what}: number of calls");
}
