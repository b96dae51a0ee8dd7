//! A recording from start to end: choose CPUs, load the programs, prepare the probes, run, stop in the
//! right order, and write the overhead and the losses.

use std::{
    cell::Cell,
    path::PathBuf,
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use recorder_abi::tick;
use trace::{Lost, Manifest, Mode, Trailer};

use crate::{
    account::{self, Counted, Counters},
    cpulist::CpuSet,
    feed::{Feed, State},
    kernel::{
        bpf::{self, Bpf, Wanted},
        switcher::Switcher,
    },
    launch::{self, Patience},
    naming::{
        members::{Members, Scope},
        names::Names,
        pids,
        symbols::Hidden,
    },
    node::{
        cgroup_counters::CgroupCounters,
        choice,
        hypervisor::{Steal, Stolen},
        incidents::Incidents,
        machine,
        memory::Memory,
        privileges,
    },
    options::{Options, ProgramOption},
    pipeline::{
        assemble::{Assembled, Assembler, Probed, Recorded, Runnable, Subject},
        clock_line::{Anchor, ClockLine},
        drain::Drain,
        output::{self, Output},
        threads::{Stopped, Threads},
        until::Met,
    },
    probe::{
        clock::{Counter, Monotonic, anchor, monotonic_ns},
        pinned::{self, Probe},
    },
    record_error::RecordError,
    start,
};

/// The result of a recording.
#[derive(Debug)]
pub struct RecordResult {
    pub output: PathBuf,
    pub bytes: u64,
    /// Exit code of the recorded command.
    pub exit_code: Option<i32>,
    /// Remarks for the user: limits of this recording, and why.
    pub remarks: Vec<String>,
    /// Set if not everything could be written.
    pub write_error: Option<String>,
    pub lost: Lost,
    /// The settings of the recording.
    pub manifest: Manifest,
    /// What ended the recording, if that was asked for.
    pub met: Option<Met>,
    /// For an audit: attempts to stop the tick on each measured CPU, by [`recorder_abi::tick`].
    pub tick_stops: Vec<(u32, [u64; tick::REASONS])>,
}

/// Control of a running recording.
pub struct Watch<'a> {
    /// Set from outside to end the recording early; unpark the recording thread to end it at once.
    pub stop: &'a AtomicBool,
    /// Set from outside to end the recorded command as well. Ctrl-C reaches it directly.
    pub end_command: &'a AtomicBool,
    /// Called ten times a second with the time recorded so far.
    pub progress: &'a dyn Fn(Duration),
    /// Receives the events instead of a file; then [`Options::output`] is not written.
    pub feed: Option<&'a Feed>,
}

pub fn record(options: &Options, watch: &Watch) -> Result<RecordResult, RecordError> {
    if options.no_bpf && (options.no_probe || options.program.is_some()) {
        return Err(RecordError::NothingToRecord);
    }
    // Before anything is loaded or opened, so that a mistyped command loses nothing.
    let scope = options.program.as_ref().map(launch::resolve).transpose()?;
    let mut _reader = None;
    if watch.feed.is_none() {
        trace::can_record(&options.output, output::overwrite(options))?;
        // A pipe's reader must not see end-of-file before the recording begins.
        let stopped = || watch.stop.load(Ordering::Relaxed);
        _reader = trace::wait_for_reader(&options.output, &stopped)?;
    }
    let session = match best_counter() {
        #[cfg(target_arch = "x86_64")]
        "rdtsc" => Session::prepare::<crate::probe::clock::Tsc>(options, watch.stop),
        #[cfg(target_arch = "aarch64")]
        "cntvct" => Session::prepare::<crate::probe::clock::VirtualCounter>(options, watch.stop),
        _ => Session::prepare::<Monotonic>(options, watch.stop),
    };
    session?.run(options, scope, watch)
}

/// The cheapest counter that the kernel itself uses.
pub fn best_counter() -> &'static str {
    match machine::clocksource().as_str() {
        "tsc" if cfg!(target_arch = "x86_64") => "rdtsc",
        "arch_sys_counter" if cfg!(target_arch = "aarch64") => "cntvct",
        _ => Monotonic::NAME,
    }
}

/// Half the time for which programs run before anything counts.
const WARM_UP: Duration = Duration::from_millis(20);
/// How often to check that the probes have their CPUs.
const CHECK_PROBES_EVERY: Duration = Duration::from_millis(250);
/// Stacks are shown of what takes at least this fraction of the time that ends a recording.
const STACKS_FROM: u64 = 4;
/// Without probes, only a request to stop ends a recording early, and such a request unparks this thread.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What runs during a recording, and the state at its start.
struct Running {
    threads: Threads,
    before: Counters,
    steal: Steal,
    cgroups: CgroupCounters,
    switcher: Option<Switcher>,
    /// When a program's recording ended, by the monotonic clock.
    ended: Arc<AtomicU64>,
}

struct Session {
    measured: CpuSet,
    housekeeping: CpuSet,
    bpf: Option<Bpf>,
    probes: Vec<Probe>,
    clock: ClockLine,
    anchor: fn() -> Anchor,
    remarks: Vec<String>,
    /// Incidents that go into the file.
    incidents: Incidents,
    told: EverySecond,
    /// Whether what ends the recording has happened.
    happened: Arc<AtomicBool>,
    manifest: Manifest,
}

impl Session {
    fn prepare<C: Counter>(options: &Options, stop: &AtomicBool) -> Result<Session, RecordError> {
        let (measured, housekeeping) = match options.program {
            // A program's threads may run anywhere; the recorder's are pinned.
            Some(_) => (machine::online(), choice::housekeeping(options)?),
            None => choice::choose_cpus(options)?,
        };
        if options.fifo.is_some() && housekeeping.is_empty() {
            return Err(RecordError::FifoEverywhere);
        }
        let mut remarks = Vec::new();
        let (online, available) = (machine::online().len(), machine::available_memory());
        let memory = Memory::plan(measured.len(), online, options.ring_bytes, available);
        let take_anchor: fn() -> Anchor = || anchor::<C>(200);
        let mut clock = ClockLine::default();
        clock.push(take_anchor());
        let bpf = if options.no_bpf {
            remarks.push("probe only (--no-bpf): sources have no names".to_owned());
            None
        } else {
            load(options, &measured, &memory, stop, &mut remarks)?
        };
        // Long enough for a slope accurate to a few parts per million.
        std::thread::sleep(Duration::from_millis(50));
        clock.push(take_anchor());
        let with_probe = !options.no_probe && options.program.is_none();
        let probes = if with_probe {
            let slope = ticks_per_ns(&clock);
            let settings = pinned::Settings {
                threshold: options.threshold,
                fifo: options.fifo,
                capacity: memory.jumps(),
                ticks_per_ns: slope,
            };
            if options.fifo.is_none() && machine::is_real_time() {
                remarks.push(
                    "started under a real-time policy: the probes drop it (use --fifo for them)"
                        .to_owned(),
                );
            }
            pinned::prepare::<C>(&measured, &settings)?
        } else {
            Vec::new()
        };
        if probes.iter().any(|probe| !probe.ready.jumps.locked) {
            remarks.push(
                "the probe buffers could not be locked in memory (RLIMIT_MEMLOCK): \
                 use `ulimit -l unlimited`"
                    .to_owned(),
            );
        }
        let manifest = account::manifest(
            options,
            &memory,
            &measured,
            &housekeeping,
            bpf.as_ref(),
            &probes,
            C::NAME,
        );
        Ok(Session {
            measured,
            housekeeping,
            bpf,
            probes,
            clock,
            anchor: take_anchor,
            remarks,
            incidents: Incidents::start(),
            told: EverySecond::default(),
            happened: Arc::default(),
            manifest,
        })
    }

    fn run(
        mut self,
        options: &Options,
        scope: Option<Scope>,
        watch: &Watch,
    ) -> Result<RecordResult, RecordError> {
        let home = machine::allowed();
        let running = self.begin(options, scope.as_ref(), watch)?;
        let mut child = match self.start_command(options, watch, &home) {
            Ok(child) => child,
            Err(error) => {
                let _ = running.threads.stop();
                if watch.feed.is_none() {
                    trace::discard(&options.output);
                }
                return Err(error);
            }
        };
        if options.give_up_privileges {
            privileges::give_up();
        }
        let mut exit_code = self.wait(options, scope.as_ref(), watch, &running, child.as_mut());
        let mut result = self.end(options, running)?;
        // Time is up before the command ends: the recording is complete, the command continues.
        if let (None, Some(child)) = (exit_code, &mut child) {
            exit_code = launch::wait_for_command(child, watch.end_command);
        }
        result.exit_code = exit_code;
        Ok(result)
    }

    /// Starts the threads, lets the programs record and releases the probes.
    fn begin(
        &mut self,
        options: &Options,
        scope: Option<&Scope>,
        watch: &Watch,
    ) -> Result<Running, RecordError> {
        let names = self.names(options);
        if !self.housekeeping.is_empty() {
            machine::pin(&self.housekeeping);
        }
        self.manifest.limits = self.remarks.clone();
        if let Some(align) = options.align {
            start::wait(align, 2 * WARM_UP, watch.stop);
        }
        let mut threads = self.start_threads()?;
        let cgroups = CgroupCounters::start();
        self.warm_up();
        if watch.stop.load(Ordering::Relaxed) {
            return Err(RecordError::Stopped);
        }
        self.manifest.started_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let before = self.counters(self.skipped_runs());
        let steal = Steal::start();
        self.manifest.started_monotonic_ns = before.at_ns;
        let output = Output::open(options, watch.feed, &self.manifest, &self.happened)?;
        let at_start = scope.map(launch::runnable).unwrap_or_default();
        if let Some(bpf) = self.bpf.as_mut().filter(|_| !at_start.is_empty()) {
            bpf.look_at_tasks();
        }
        let switcher = self.switch_everywhere()?;
        self.clock.push((self.anchor)());
        let ended = Arc::new(AtomicU64::new(u64::MAX));
        let subject = self.subject(options, scope.cloned(), at_start, &ended);
        let clock = self.clock.clone();
        threads.write(Assembler::new(output, names, subject, before.at_ns, clock));
        for probe in &self.probes {
            probe.release();
        }
        Ok(Running { threads, before, steal, cgroups, switcher, ended })
    }

    fn names(&mut self, options: &Options) -> Names {
        let mut names = Names::of_this_machine(options.kernel_addresses);
        let stacks = self.bpf.as_mut().filter(|_| options.until.is_some()).and_then(Bpf::stacks);
        if let (Some(stacks), Some(until)) = (stacks, &options.until) {
            names.keep_stacks(stacks, until.condition.longer_ns / STACKS_FROM);
        }
        if names.symbols_hidden() && self.bpf.is_some() {
            let Hidden { why, remedy } = Hidden::here();
            self.remarks.push(format!(
                "kernel symbols are hidden ({why}): timer callbacks and work functions have no names; \
                 {remedy}"
            ));
        }
        names
    }

    /// Without a probe, makes every measured CPU switch threads, so that the running ones are known.
    fn switch_everywhere(&mut self) -> Result<Option<Switcher>, RecordError> {
        if !self.probes.is_empty() || self.bpf.is_none() {
            return Ok(None);
        }
        let switcher = Switcher::start().map_err(RecordError::Thread)?;
        let unreached = switcher.switch(&self.measured);
        if !unreached.is_empty() {
            self.remarks.push(format!(
                "the recorder may not run on CPU {}: threads that never leave it are not recorded",
                unreached.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
            ));
        }
        Ok(Some(switcher))
    }

    /// Starts the command to record, if there is one. `home` is where the recorder was started.
    fn start_command(
        &self,
        options: &Options,
        watch: &Watch,
        home: &CpuSet,
    ) -> Result<Option<Child>, RecordError> {
        let Some(ProgramOption::Command(command)) = &options.program else { return Ok(None) };
        // If it was stopped already, the command is not started.
        if watch.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // The command must not run on the recorder's CPUs.
        machine::pin(options.cpus.as_ref().unwrap_or(home));
        // Its children are recognised by its PID, which only the kernel side knows for certain.
        pids::announce_self();
        let started = launch::start(command, options.stdout_is_taken);
        machine::pin(if self.housekeeping.is_empty() { home } else { &self.housekeeping });
        started.map(Some)
    }

    /// Waits for the end of the recording; returns the command's exit code if it ended first.
    fn wait(
        &self,
        options: &Options,
        scope: Option<&Scope>,
        watch: &Watch,
        running: &Running,
        child: Option<&mut Child>,
    ) -> Option<i32> {
        let look = |passed: Duration| {
            (watch.progress)(passed);
            self.look_for_incidents(passed);
            if let Some(feed) = watch.feed {
                self.tell(feed, passed, &running.before);
            }
            let happened = self.happened.load(Ordering::Acquire);
            !happened && !self.incidents.no_probe_is_left(&self.probes)
        };
        let soon = scope.is_some() || watch.feed.is_some() || options.until.is_some();
        let every = if soon {
            launch::LOOK_EVERY
        } else if !self.probes.is_empty() {
            CHECK_PROBES_EVERY
        } else {
            CHECK_EVERY
        };
        let patience = Patience { duration: options.duration, every };
        launch::wait(scope, patience, watch.stop, &look, child)
    }

    /// Stops everything and closes the file.
    fn end(mut self, options: &Options, running: Running) -> Result<RecordResult, RecordError> {
        let Running { threads, before, steal, cgroups, switcher, ended } = running;
        let finished = self.stop_probes();
        // What the final switches do to a program's threads is not part of its recording.
        ended.store(monotonic_ns(), Ordering::Release);
        if let Some(switcher) = switcher {
            switcher.switch(&self.measured);
            switcher.stop();
        }
        // Records of the last moments are in the ring buffer once the switches are done.
        std::thread::sleep(Duration::from_millis(5));
        let ended_ns = monotonic_ns();
        let stolen = steal.stop();
        if let Some(bpf) = &self.bpf {
            bpf.watch_nothing();
        }
        let cgroups = cgroups.stop();
        let stopped = threads.stop().ok_or(RecordError::WriterBroke)?;
        let incidents = self.incidents.said();
        self.remarks.extend_from_slice(&incidents);
        let times = (before.at_ns, ended_ns);
        let after = Counters { at_ns: ended_ns, ..self.counters(self.skipped_runs()) };
        let counted = Counted { before, after };
        let tick_stops = match options.audit {
            true => counted.tick_stops(&self.measured),
            false => Vec::new(),
        };
        let totals = self.totals(options, finished, times, &stopped, &counted, stolen);
        let overhead = counted.overhead(&self.measured, stopped.assembled.own_ns, stopped.cpu_ns);
        let mut trailer = Trailer { overhead, cgroups, ..totals };
        trailer.remarks.extend(incidents);
        if options.program.is_some() {
            self.remark_on_threads(&stopped.assembled, &mut trailer);
        }
        let result = self.close(options, stopped.assembled, trailer, None);
        Ok(RecordResult { tick_stops, ..result })
    }

    /// Which threads of the program are not in the recording.
    fn remark_on_threads(&mut self, assembled: &Assembled, trailer: &mut Trailer) {
        if assembled.threads.is_empty() {
            let none = "no thread of the program ran or waited for a CPU while it was recorded";
            self.remarks.push(none.to_owned());
        }
        let mut remarks = Vec::new();
        if assembled.unheard_waiting > 0 {
            remarks.push(format!(
                "{} threads of the program waited for a CPU throughout and are omitted: their host \
                 PIDs are unknown in this PID namespace",
                assembled.unheard_waiting
            ));
        }
        if assembled.unlisted > 0 {
            remarks.push(format!(
                "too many threads in the program: {} time slices of those beyond the limit are \
                 omitted",
                assembled.unlisted
            ));
        }
        if assembled.uncounted > 0 {
            remarks.push(format!(
                "some threads waited so long that only sums are known of the beginning: counts and \
                 rates lack {} events, times are complete",
                assembled.uncounted
            ));
        }
        trailer.remarks.extend_from_slice(&remarks);
        self.remarks.extend(remarks);
    }

    /// Lets the programs run briefly before the recording starts: interrupts that were in progress when
    /// the stack began are over, and caches are warm.
    fn warm_up(&self) {
        let Some(bpf) = &self.bpf else { return };
        bpf.watch(|_| Wanted::Track);
        std::thread::sleep(WARM_UP);
        bpf.watch(|cpu| self.wanted(cpu));
        std::thread::sleep(WARM_UP);
    }

    /// What the programs do on a CPU while it is recorded.
    fn wanted(&self, cpu: u32) -> Wanted {
        match self.measured.contains(&cpu) {
            false => Wanted::Track,
            true => Wanted::Records,
        }
    }

    /// Stops recording CPUs that are gone.
    fn look_for_incidents(&self, passed: Duration) {
        if self.incidents.look(passed, &self.probes)
            && let Some(bpf) = &self.bpf
        {
            let gone = |cpu| self.incidents.has_gone(cpu);
            bpf.watch(|cpu| if gone(cpu) { Wanted::Nothing } else { self.wanted(cpu) });
        }
    }

    /// Reports progress to the feed once a second, not more often: the counters are in cache lines that
    /// the CPUs write to.
    fn tell(&self, feed: &Feed, passed: Duration, before: &Counters) {
        if !self.told.is_due(passed) {
            return;
        }
        // Skipped runs take a file per program to read; they are counted at the end.
        let after = self.counters(before.skipped);
        let counted = Counted { before: before.clone(), after };
        let lost = counted.losses(&self.measured);
        let detours = self.probes.iter().map(|probe| probe.ready.jumps.lost()).sum();
        let lost = trace::Lost { detours, ..lost };
        let overhead = counted.overhead(&self.measured, 0, 0);
        feed.say(State { lost, overhead });
    }

    fn counters(&self, skipped: u64) -> Counters {
        Counters {
            at_ns: monotonic_ns(),
            cpus: self.bpf.as_ref().map(Bpf::states).unwrap_or_default(),
            skipped,
        }
    }

    fn skipped_runs(&self) -> u64 {
        self.bpf.as_ref().map_or(0, Bpf::skipped_runs)
    }

    fn subject(
        &self,
        options: &Options,
        scope: Option<Scope>,
        at_start: Vec<Runnable>,
        ended: &Arc<AtomicU64>,
    ) -> Subject {
        match scope {
            Some(scope) => Subject::Program(Box::new(Recorded::new(
                Members::new(scope, std::process::id()),
                account::program_threshold_ns(options).unwrap_or(0.0) as u64,
                at_start,
                self.bpf.as_ref().map(Bpf::cpu_pages),
                // Without it, waits of woken threads that are open at the end are not seen.
                self.bpf.as_ref().and_then(|bpf| bpf.tasks().ok()),
                Arc::clone(ended),
            ))),
            None if self.probes.is_empty() => {
                Subject::Cpus(self.measured.iter().copied().collect())
            }
            None => Subject::Probes(
                self.probes
                    .iter()
                    .map(|probe| Probed {
                        cpu: probe.ready.cpu,
                        tid: probe.ready.tid,
                        t_min: probe.ready.t_min,
                        jumps: Arc::clone(&probe.ready.jumps),
                    })
                    .collect(),
            ),
        }
    }

    fn start_threads(&self) -> Result<Threads, RecordError> {
        let drain = Drain::new(
            self.bpf.as_ref().map(Bpf::rings).unwrap_or_default(),
            |cpu| self.measured.contains(&cpu),
            self.bpf.as_ref().map(Bpf::cpu_pages),
            self.probes
                .iter()
                .map(|probe| (probe.ready.cpu, Arc::clone(&probe.ready.jumps)))
                .collect(),
            self.anchor,
        );
        Threads::start(drain, &self.housekeeping, self.manifest.mode == Mode::Program)
            .map_err(RecordError::Thread)
    }

    fn stop_probes(&mut self) -> Vec<(u32, Option<pinned::Finished>, u64)> {
        for probe in &self.probes {
            probe.ready.jumps.end_at(0);
        }
        let probes = std::mem::take(&mut self.probes);
        let stopped = probes.into_iter().map(Probe::join);
        stopped.map(|(ready, finished)| (ready.cpu, finished, ready.jumps.lost())).collect()
    }

    /// The trailer without the overhead.
    fn totals(
        &mut self,
        options: &Options,
        probes: Vec<(u32, Option<pinned::Finished>, u64)>,
        (epoch_ns, ended_ns): (u64, u64),
        stopped: &Stopped,
        counted: &Counted,
        stolen: Option<Stolen>,
    ) -> Trailer {
        let assembled = &stopped.assembled;
        let mut lost = counted.losses(&self.measured);
        lost.unwritten = assembled.unwritten;
        for (cpu, finished, lost_jumps) in &probes {
            lost.detours += lost_jumps;
            if finished.is_none() {
                self.remarks.push(format!("the probe thread of CPU {cpu} panicked"));
            }
        }
        let unprobed: Vec<u32> = match options.program {
            None => self.measured.iter().copied().collect(),
            Some(_) => Vec::new(),
        };
        let times = (epoch_ns, ended_ns);
        let lanes = account::lanes(probes, &unprobed, times, stolen.as_ref(), assembled);
        let entries = self.bpf.as_ref().map(|bpf| counted.entries(&bpf.sent(), &stopped.read));
        let closure = self.bpf.as_ref().and(assembled.closure);
        Trailer {
            lanes,
            lost,
            entries,
            closure_error: closure.map(|(error, _)| error),
            closure_wall_ns: closure.map(|(_, wall)| wall),
            steal_ns: stolen.map(|stolen| stolen.on_all(&self.measured)),
            // A file that is cut off contains the reason itself.
            remarks: match assembled.output.cut_off() {
                Some(_) => Vec::new(),
                None => assembled.write_error.iter().cloned().collect(),
            },
            ..Trailer::default()
        }
    }

    /// Finishes the file.
    fn close(
        self,
        options: &Options,
        assembled: Assembled,
        trailer: Trailer,
        exit_code: Option<i32>,
    ) -> RecordResult {
        let mut write_error = assembled.write_error;
        let lost = trailer.lost;
        let mut bytes = 0;
        let (mut met, tick_stops) = (None, Vec::new());
        let finished = match assembled.output {
            Output::File(writer) => {
                bytes = writer.bytes_written();
                writer.finish_and_count(trailer).map(|(_, whole)| whole)
            }
            Output::Kept(kept) => {
                met = kept.met();
                kept.finish(trailer)
            }
            Output::Feed(_) => Ok(0),
        };
        match finished {
            Ok(whole) => bytes = whole,
            Err(error) => {
                write_error.get_or_insert(error.to_string());
            }
        }
        let output = options.output.clone();
        let Session { remarks, manifest, .. } = self;
        RecordResult {
            output,
            bytes,
            exit_code,
            remarks,
            write_error,
            lost,
            manifest,
            met,
            tick_stops,
        }
    }
}

/// Fires once per second, however irregularly it is polled.
#[derive(Default)]
struct EverySecond(Cell<Option<u64>>);

impl EverySecond {
    /// True on the first call in each second of a recording, given the time that has passed.
    fn is_due(&self, passed: Duration) -> bool {
        let second = Some(passed.as_secs());
        self.0.replace(second) != second
    }
}

/// Loads the programs. Without the privileges, a recording of the node continues with the probe only and
/// reports it; a recording that needs them fails.
fn load(
    options: &Options,
    measured: &CpuSet,
    memory: &Memory,
    stop: &AtomicBool,
    remarks: &mut Vec<String>,
) -> Result<Option<Bpf>, RecordError> {
    let wanted = bpf::LoadOptions {
        program: options.program.is_some(),
        audit: options.audit,
        stacks: options.until.is_some(),
        ..bpf::LoadOptions::new(measured, (memory.ring_bytes, memory.other_ring_bytes), stop)
    };
    match Bpf::load(&wanted).map_err(RecordError::from) {
        Ok(bpf) => {
            if pids::own_namespace().is_some() {
                remarks.push(
                    "recorded inside a PID namespace: processes outside it are listed by their \
                     host PIDs"
                        .to_owned(),
                );
            }
            Ok(Some(bpf))
        }
        Err(RecordError::Bpf(bpf::BpfError::Stopped)) => Err(RecordError::Stopped),
        Err(error) if options.needs_sources() => Err(error),
        Err(error) => {
            remarks.push(format!("recorded with the probe only, sources have no names: {error}"));
            Ok(None)
        }
    }
}

fn ticks_per_ns(clock: &ClockLine) -> f64 {
    clock.slope().filter(|slope| slope.is_finite() && *slope > 0.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_second_is_once_a_second_however_late_it_is_asked() {
        let due = EverySecond::default();
        // Every 104 ms, which is what sleeps of 100 ms become; then a machine that is busy for three
        // seconds.
        let asked = (0..96).map(|turn| 104 * turn).chain([9_999, 13_200, 13_250, 14_001]);
        let told = asked.filter(|&ms| due.is_due(Duration::from_millis(ms))).count();
        assert_eq!(told, 10 + 2);
    }
}
