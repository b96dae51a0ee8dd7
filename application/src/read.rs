//! From the trace of a rank to its steps.
//!
//! Compute is the time between calls, less what the kernel took in it. Calls that involve nobody else count
//! as compute. A request begins where it was begun and must have ended where it was waited for. A test that
//! succeeds is a wait; tests that fail again and again are waiting, not compute. Waits for one or some of
//! several requests, and other tests that fail, are choices ([`Step::Choose`]).

use std::collections::VecDeque;

use std::collections::HashMap;

use mpi_abi::{Abi, Actual, Call as MpiCall, Class, Outcome, RequestRun, present, rank, tag};
use program::{
    Arena, CallMoment, Clocks, Failure, FastMap, Kind, Moment, Program, Repeat, Shape, What,
    fast_map, is_of_buffer, meanings, operation_name, stream,
};
use simulate::{collectives::Op, event::Test};

use crate::{
    abandoned::{self, Unseen},
    communicators::{Communicators, Shared, is_null},
    error::ReadError,
    polling::{Ended, Next, Polling, Spell, is_done},
    requests::{Action, Message, Part, Request, Requests, Started},
    step::{
        Application, Call, Candidate, NONE, Null, Operation, Reach, Spent, Step, Tape, sending,
    },
};

/// What the kernel took from a rank.
pub trait Taken: Sync {
    /// Nanoseconds taken from a rank between two moments of its host's `CLOCK_MONOTONIC`.
    fn ns(&self, rank: u32, begin: i64, end: i64) -> i64;
}

/// Nothing is known of what the kernel took.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNoise;

impl Taken for NoNoise {
    fn ns(&self, _rank: u32, _begin: i64, _end: i64) -> i64 {
        0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Wildcard receives match the traced message.
    pub as_traced: bool,
    /// Waits for one or some of several requests complete those that they completed in the trace.
    pub deterministic: bool,
}

/// What the trace did not tell, and how often something was assumed instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// One-sided operations and file operations, whose time counts as compute.
    pub one_sided: u64,
    pub file: u64,
    /// Calls that overlap calls of other threads of the rank, simulated one after the other.
    pub overlapping: u64,
    /// Receives with any tag that take the traced tag, since others of another communicator stay wildcards.
    pub fixed_tags: u64,
    /// Waits for one or some of several requests, which keep the traced order.
    pub kept_choices: u64,
    /// Vector collectives whose sizes are not in the trace.
    pub unknown_sizes: u64,
    /// Nanoseconds in which recording was switched off, which count as compute.
    pub off_ns: i64,
    /// Nanoseconds that the kernel took from compute.
    pub taken_ns: i64,
    /// Nanoseconds of compute that remain.
    pub compute_ns: i64,
}

impl Assumed {
    fn add(&mut self, other: &Assumed) {
        self.one_sided += other.one_sided;
        self.file += other.file;
        self.overlapping += other.overlapping;
        self.fixed_tags += other.fixed_tags;
        self.kept_choices += other.kept_choices;
        self.unknown_sizes += other.unknown_sizes;
        self.off_ns = self.off_ns.saturating_add(other.off_ns);
        self.taken_ns = self.taken_ns.saturating_add(other.taken_ns);
        self.compute_ns = self.compute_ns.saturating_add(other.compute_ns);
    }
}

/// Reads a program rank by rank.
pub fn read(
    program: &Program,
    clocks: &Clocks,
    options: &Options,
    taken: &dyn Taken,
) -> Result<Application, ReadError> {
    let mut scope = 1;
    loop {
        let (application, shared) = read_once(program, clocks, options, taken, scope)?;
        // Wildcards of one communicator stay; if they are those of another one, read again.
        let most = shared.any_tag.iter().max_by_key(|(key, count)| (**count, **key));
        match most {
            Some((key, _)) if *key != scope && scope == 1 => scope = *key,
            _ => return Ok(application),
        }
    }
}

fn read_once(
    program: &Program,
    clocks: &Clocks,
    options: &Options,
    taken: &dyn Taken,
    scope: u64,
) -> Result<(Application, Shared), ReadError> {
    let mut shared = Shared::new(scope);
    let mut application = Application::default();
    // Durations do not need a common clock, and what the kernel took is on the host's.
    let raw = Clocks::default();
    let (mut unseen, mut truncated) = (Vec::new(), Vec::new());
    for (slot, about) in program.ranks.iter().enumerate() {
        let number = about.rank;
        if !about.finalized {
            let how =
                if about.aborted { "it called MPI_Abort" } else { "it was killed, or crashed" };
            return Err(ReadError::NotEnded { rank: number, how });
        }
        let lost = about.lost.no_space.saturating_add(about.lost.table_full);
        if lost > 0 {
            return Err(ReadError::Lost { rank: number, events: lost });
        }
        let start_ns = i64::try_from(about.start.ns).unwrap_or(0);
        let mut reader = Reader::new(program.size, number, options, taken, &mut shared);
        reader.abi = about.abi;
        (reader.cursor, reader.tape.begin_ns) = (start_ns, start_ns);
        let damage = stream(program, slot, &raw, |moment, arena| reader.take(moment, arena))
            .map_err(|source| ReadError::Io { rank: number, source })?;
        if damage != program::Damage::default() {
            let events = damage.events.max(1);
            return Err(ReadError::Lost { rank: number, events });
        }
        if application.tapes.is_empty() {
            application.grids = reader.communicators.grids(program.size);
        }
        let (mut tape, assumed, own) = reader.finish(about.end_ns() as i64)?;
        unseen.push(own.unseen);
        truncated.push(own.truncated);
        let clock = clocks.host(about.host);
        tape.begin_ns = clock.common(tape.begin_ns);
        tape.end_ns = clock.common(tape.end_ns);
        application.assumed.add(&assumed);
        application.tapes.push(tape);
    }
    abandoned::settle(&mut application, &shared, &unseen, options);
    give_room(&mut application.tapes, &truncated);
    application.groups = std::mem::take(&mut shared.groups);
    application.regions = std::mem::take(&mut shared.regions);
    application.tags = shared.channels.iter().map(|((_, tag), channel)| (*channel, *tag)).collect();
    Ok((application, shared))
}

/// Receives of a rank of which its own trace does not tell everything.
struct Receives {
    unseen: Vec<Unseen>,
    truncated: Vec<u32>,
}

/// A message that is too long for its receive is still the one that it gets: it has room for all that it may have met.
fn give_room(tapes: &mut [Tape], truncated: &[Vec<u32>]) {
    let asked = |rank: u32| truncated.get(rank as usize).is_some_and(|places| !places.is_empty());
    // By receiver, sender and channel, also for any of the latter two.
    let mut longest: HashMap<(u32, u32, u32), u64> = HashMap::new();
    for (rank, tape) in (0u32..).zip(&*tapes) {
        for step in &tape.steps {
            let Step::Send { to, channel, bytes, .. } = *step else { continue };
            if asked(to) {
                for (from, label) in [(rank, channel), (rank, NONE), (NONE, channel), (NONE, NONE)]
                {
                    let longest = longest.entry((to, from, label)).or_insert(0);
                    *longest = bytes.max(*longest);
                }
            }
        }
    }
    for ((rank, tape), places) in (0u32..).zip(tapes).zip(truncated) {
        for place in places {
            let step = tape.steps.get_mut(*place as usize);
            if let Some(Step::Receive { from, channel, bytes, .. }) = step {
                let longest = longest.get(&(rank, *from, *channel)).copied().unwrap_or(0);
                *bytes = longest.max(*bytes);
            }
        }
    }
}

/// A send that does not wait for its receiver copies the message, at 100 MB/s or faster.
const COPY_NS: i64 = 20_000;
const COPY_NS_PER_B: u64 = 10;
/// Longer between failing tests, the rank has computed.
const POLL_NS: i64 = 2_000;

struct Reader<'a> {
    rank: u32,
    abi: Abi,
    options: &'a Options,
    taken: &'a dyn Taken,
    shared: &'a mut Shared,
    communicators: Communicators,
    requests: Requests,
    tape: Tape,
    assumed: Assumed,
    /// End of the last call that was not compute, at first that of `MPI_Init`.
    cursor: i64,
    /// The thread of that call.
    thread: u16,
    /// Number of the last call that was not compute.
    after: u16,
    polling: Polling,
    /// Messages that the rank has waited for and not received yet.
    probed: VecDeque<Probed>,
    /// Regions by their numbers in the rank, and those that are open.
    regions: FastMap<u32, u32>,
    open: Vec<u32>,
    off_since: Option<i64>,
    /// Calls made since then are in the trace.
    off_known: bool,
    ended: bool,
    /// Receives whose end the rank does not see.
    unseen: Vec<Unseen>,
    /// Receives whose message may have been too long for their buffers.
    truncated: Vec<u32>,
    /// The call under way has failed.
    fails: bool,
    /// The call under way may choose, and its requests so far are the last candidates of the tape.
    choosing: Option<Choosing>,
    error: Option<ReadError>,
}

/// A call that chooses between requests. Its requests may be spread over several records.
#[derive(Clone, Copy)]
struct Choosing {
    /// Position of its first candidate.
    first: u32,
    test: Test,
    /// What it cost, should it have completed nothing.
    ps: i64,
}

/// A step that does nothing.
pub(crate) const NOTHING: Step =
    Step::Compute { ps: 0, taken_ps: 0, after: MpiCall::Init.number() };

/// Messages that are probed for and not received yet; more are those of other threads.
const MOST_PROBED: usize = 1 << 10;

/// A blocking probe, which waits for a message. The receive that follows it takes its place.
#[derive(Clone, Copy, PartialEq)]
struct Probed {
    thread: u16,
    /// By `MPI_Mprobe`, whose message only `MPI_Mrecv` and `MPI_Imrecv` receive.
    matched: bool,
    /// Its place in the steps.
    step: u32,
    communicator: u32,
    source: i32,
    tag: i32,
}

impl<'a> Reader<'a> {
    fn new(
        size: u32,
        rank: u32,
        options: &'a Options,
        taken: &'a dyn Taken,
        shared: &'a mut Shared,
    ) -> Reader<'a> {
        Reader {
            rank,
            abi: Abi::OpenMpi,
            options,
            taken,
            shared,
            communicators: Communicators::new(size, rank),
            requests: Requests::new(),
            tape: Tape::default(),
            assumed: Assumed::default(),
            cursor: 0,
            thread: 0,
            after: MpiCall::Init.number(),
            polling: Polling::default(),
            probed: VecDeque::new(),
            regions: fast_map(),
            open: Vec::new(),
            off_since: None,
            off_known: false,
            ended: false,
            unseen: Vec::new(),
            truncated: Vec::new(),
            fails: false,
            choosing: None,
            error: None,
        }
    }

    fn take(&mut self, moment: &Moment, arena: &Arena) {
        if self.error.is_some() || self.ended {
            return;
        }
        if let (Some(choosing), false) = (self.choosing, matches!(moment.what, What::More(_))) {
            self.chosen(choosing);
        }
        let taken = match &moment.what {
            What::Call(call) => self.call(moment, call, arena),
            What::Off(call) => {
                self.off_known = true;
                self.call(moment, call, arena)
            }
            What::More(requests) => self.outcomes(arena.requests(*requests)),
            What::Repeat(repeat) => {
                self.repeat(moment, repeat, arena);
                Ok(())
            }
            What::Communicator(def) => {
                self.communicators.define(def);
                Ok(())
            }
            What::List { communicator, kind, runs, .. } => {
                self.communicators.extend(*communicator, *kind, arena.runs(*runs));
                Ok(())
            }
            What::Window { window, communicator } => {
                self.communicators.window(*window, *communicator);
                Ok(())
            }
            What::Switch { on } => {
                self.switch(*on, moment.begin);
                Ok(())
            }
            What::Lost { events } => {
                Err(ReadError::Lost { rank: self.rank, events: (*events).max(1) })
            }
            What::RegionName { region, name } => {
                let name = String::from_utf8_lossy(arena.name(*name)).into_owned();
                let number = self.shared.region(&name);
                self.regions.insert(*region, number);
                Ok(())
            }
            What::RegionBegin { region } => {
                self.enter_region(*region, moment.begin);
                Ok(())
            }
            What::RegionEnd { region } => {
                self.leave_region(*region, moment.begin);
                Ok(())
            }
        };
        self.error = taken.err();
    }

    fn enter_region(&mut self, region: u32, at: i64) {
        let Some(region) = self.regions.get(&region).copied() else { return };
        self.compute(at);
        self.cursor = self.cursor.max(at);
        self.tape.push(Step::Begin { region });
        self.open.push(region);
    }

    /// Ends the innermost region (0), or a region and those inside it.
    fn leave_region(&mut self, region: u32, at: i64) {
        let wanted = self.regions.get(&region).copied();
        if region != 0 && !wanted.is_some_and(|wanted| self.open.contains(&wanted)) {
            return;
        }
        self.compute(at);
        self.cursor = self.cursor.max(at);
        while let Some(region) = self.open.pop() {
            self.tape.push(Step::End { region });
            if wanted.is_none_or(|wanted| wanted == region) {
                return;
            }
        }
    }

    fn switch(&mut self, on: bool, at: i64) {
        match (on, self.off_since) {
            (false, None) => {
                self.off_since = Some(at);
                self.off_known = false;
            }
            (true, Some(since)) => {
                // Files of older versions lack the calls that others meet.
                if !self.off_known {
                    self.assumed.off_ns = self.assumed.off_ns.saturating_add((at - since).max(0));
                }
                self.off_since = None;
            }
            _ => {}
        }
    }

    fn finish(mut self, end_ns: i64) -> Result<(Tape, Assumed, Receives), ReadError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let Some(choosing) = self.choosing {
            self.chosen(choosing);
        }
        if !self.ended {
            // Imported traces may lack MPI_Finalize.
            self.tape.end_ns = self.cursor.max(end_ns);
            self.compute(self.tape.end_ns);
        }
        if let Some(Ended::Worked(spell)) = self.polling.next(Next::Other, 0) {
            self.computed(spell);
        }
        for (place, spell) in std::mem::take(&mut self.polling).work() {
            if let Some(&Step::Compute { after, .. }) = self.tape.steps.get(place as usize) {
                self.tape.steps[place as usize] = self.compute_step(spell, after);
            }
        }
        let left = self.requests.open.values().filter_map(|request| request.started);
        for started in left.collect::<Vec<_>>() {
            self.not_waited_for(started);
        }
        self.unseen.sort_unstable_by_key(|unseen| unseen.step);
        self.tape.took.sort_unstable();
        self.tape.requests = self.requests.most;
        let receives = Receives { unseen: self.unseen, truncated: self.truncated };
        Ok((self.tape, self.assumed, receives))
    }

    /// Nobody waits for what was started, and nobody sees whether a message came.
    fn not_waited_for(&mut self, started: Started) {
        if started.receive.step != NONE
            && let Some(communicator) = self.communicators.of(started.communicator)
        {
            self.unseen.push(Unseen { step: started.receive.step, key: communicator.key });
        }
    }

    fn erase(&mut self, step: u32) {
        if let Some(step) = self.tape.steps.get_mut(step as usize) {
            *step = NOTHING;
        }
    }

    /// The rank computed until this call, which is not compute itself, or tested in vain.
    fn until(&mut self, moment: &Moment, next: Next<'_>) {
        let cursor = self.cursor;
        if moment.begin < cursor && moment.thread != self.thread {
            self.assumed.overlapping += 1;
        }
        match self.polls(moment) {
            true => {
                let until = if next.fails() { moment.end } else { moment.begin };
                self.polling.spend(self.spell(cursor, until), u64::from(next.fails()));
            }
            false => self.compute(moment.begin),
        }
        let step = self.tape.steps.len() as u32;
        match self.polling.next(next, step) {
            None => {}
            Some(Ended::Worked(spell)) => self.computed(spell),
            // Until all of the rank's tests are known.
            Some(Ended::Unknown) => {
                self.tape.push(Step::Compute { ps: 0, taken_ps: 0, after: self.after })
            }
        }
        self.cursor = cursor.max(moment.end);
        self.thread = moment.thread;
        if let What::Call(call) | What::Off(call) = &moment.what {
            self.after = call.signature.call.number();
        }
    }

    /// A test that has failed and was made again, one soon after the other.
    fn repeat(&mut self, moment: &Moment, repeat: &Repeat, arena: &Arena) {
        let call = &repeat.call;
        let mpi = call.signature.call;
        let next = match mpi.class() {
            Class::Request => Next::Fails(arena.requests(call.requests)),
            _ => Next::Missed,
        };
        self.polling.spend(self.spell(self.cursor, moment.end), u64::from(repeat.times));
        self.polling.next(next, self.tape.steps.len() as u32);
        self.cursor = self.cursor.max(moment.end);
        self.thread = moment.thread;
        self.after = mpi.number();
    }

    /// Whether the call comes soon after a test that failed.
    fn polls(&self, moment: &Moment) -> bool {
        self.polling.is_on() && moment.begin.saturating_sub(self.cursor) <= POLL_NS
    }

    fn spell(&self, from: i64, until: i64) -> Spell {
        let all = until.saturating_sub(from).max(0);
        let taken = if all > 0 { self.taken.ns(self.rank, from, until).clamp(0, all) } else { 0 };
        Spell { own: all - taken, taken }
    }

    /// The rank computed from the end of the last call to this moment.
    fn compute(&mut self, until: i64) {
        if until > self.cursor {
            self.computed(self.spell(self.cursor, until));
        }
    }

    fn computed(&mut self, spell: Spell) {
        let step = self.compute_step(spell, self.after);
        self.tape.push(step);
    }

    fn compute_step(&mut self, Spell { own, taken }: Spell, after: u16) -> Step {
        self.assumed.taken_ns = self.assumed.taken_ns.saturating_add(taken);
        self.assumed.compute_ns = self.assumed.compute_ns.saturating_add(own);
        let ps = |ns: i64| ns.saturating_mul(1_000);
        Step::Compute { ps: ps(own), taken_ps: ps(taken), after }
    }

    fn call(&mut self, moment: &Moment, call: &CallMoment, arena: &Arena) -> Result<(), ReadError> {
        let signature = &call.signature;
        let mpi = signature.call;
        let Some(meaning) = meanings().get(usize::from(mpi.number())) else { return Ok(()) };
        if matches!(mpi, MpiCall::Init | MpiCall::Init_thread) {
            // The collector starts at the end of MPI_Init; the program goes on when it has.
            self.tape.begin_ns = self.tape.begin_ns.max(moment.end);
            self.cursor = self.cursor.max(moment.end);
            self.after = mpi.number();
            return Ok(());
        }
        // A call that failed has communicated nothing, unless a message was too long for the buffer; of its requests,
        // some may have completed.
        if call.error != 0 {
            let truncated = Failure::of(self.abi, call.error) == Failure::Truncated;
            match meaning.kind {
                Kind::Requests => {}
                Kind::Receive | Kind::Exchange if truncated => {}
                _ => return Ok(()),
            }
        }
        self.fails = call.error != 0;
        let bytes = call.bytes.unwrap_or(0);
        let message = Message {
            communicator: signature.object,
            peer: signature.peer,
            tag: signature.tag,
            bytes,
        };
        let other = Message {
            peer: signature.source,
            tag: signature.source_tag,
            bytes: call.received.unwrap_or(bytes),
            ..message
        };
        match meaning.kind {
            Kind::Send => {
                self.until(moment, Next::Other);
                let part = self.send(mpi, message, false)?;
                // Longer than it takes to copy the message, it waited.
                let copied = COPY_NS.saturating_add_unsigned(bytes.saturating_mul(COPY_NS_PER_B));
                let bytes = sending(mpi.number()).mark(bytes);
                self.spent(part, moment, copied, bytes, Spent::Sending);
                Ok(())
            }
            Kind::Receive => {
                self.until(moment, Next::Other);
                let receive = self.receive(mpi, message, false)?;
                self.correct(receive, message.communicator, &call.actual, mpi)?;
                let got = Actual { bytes: None, ..call.actual };
                if let Some(probed) = self.was_probed(mpi, &message, &got) {
                    self.hoist(receive, probed);
                }
                Ok(())
            }
            Kind::Exchange => {
                self.until(moment, Next::Other);
                let receive = self.post(mpi, other)?;
                let send = self.send(mpi, message, true)?;
                self.correct(receive, other.communicator, &call.actual, mpi)?;
                self.complete(Started { first: send, receive, communicator: other.communicator });
                Ok(())
            }
            Kind::SendRequest => {
                self.until(moment, Next::Other);
                let first = self.send(mpi, message, true)?;
                self.spent(first, moment, i64::MAX, bytes, Spent::Starting);
                self.begin(call.begun, Started { first, ..Started::NOTHING });
                Ok(())
            }
            Kind::ReceiveRequest => {
                self.until(moment, Next::Other);
                let receive = self.post(mpi, message)?;
                self.spent(receive, moment, i64::MAX, bytes, Spent::Posting);
                let communicator = message.communicator;
                self.begin(call.begun, Started { receive, communicator, ..Started::NOTHING });
                Ok(())
            }
            Kind::ExchangeRequest => {
                self.until(moment, Next::Other);
                let receive = self.post(mpi, other)?;
                let first = self.send(mpi, message, true)?;
                let communicator = other.communicator;
                self.begin(call.begun, Started { first, receive, communicator });
                Ok(())
            }
            Kind::SendInit => {
                self.keep(call.begun, Action::Send(message, mpi));
                Ok(())
            }
            Kind::ReceiveInit => {
                self.keep(call.begun, Action::Receive(message));
                Ok(())
            }
            Kind::Collective(shape) => {
                self.until(moment, Next::Other);
                let made = self.collective(call, shape, arena)?;
                self.enter(made, signature.object, false);
                Ok(())
            }
            Kind::CollectiveRequest(shape) => {
                self.until(moment, Next::Other);
                let made = self.collective(call, shape, arena)?;
                let first = self.enter(made, signature.object, true);
                self.begin(call.begun, Started { first, ..Started::NOTHING });
                Ok(())
            }
            Kind::CollectiveInit(shape) => {
                match self.collective(call, shape, arena)? {
                    Some(made) => self.keep(call.begun, Action::Collective(made, signature.object)),
                    None => self.begin(call.begun, Started::NOTHING),
                }
                Ok(())
            }
            Kind::WindowCollective => {
                self.until(moment, Next::Other);
                let made = self.fence(signature.object);
                self.enter_made(made, false);
                Ok(())
            }
            Kind::Finalize => {
                self.until(moment, Next::Other);
                self.tape.end_ns = moment.begin;
                self.ended = true;
                Ok(())
            }
            Kind::Probe => {
                self.until(moment, Next::Other);
                self.probe(Probed {
                    thread: moment.thread,
                    matched: mpi == MpiCall::Mprobe,
                    step: self.tape.steps.len() as u32,
                    communicator: message.communicator,
                    source: call.actual.source.unwrap_or(message.peer),
                    tag: call.actual.tag.unwrap_or(message.tag),
                });
                Ok(())
            }
            Kind::Requests => {
                let runs = arena.requests(call.requests);
                let (chooses, test) = match mpi {
                    MpiCall::Waitany | MpiCall::Waitsome => (true, None),
                    MpiCall::Test | MpiCall::Testall => (false, Some(Test::All)),
                    MpiCall::Testany => (true, Some(Test::One)),
                    MpiCall::Testsome => (true, Some(Test::Some)),
                    MpiCall::Request_get_status => (false, Some(Test::All)),
                    _ => (false, None),
                };
                let next = match test {
                    None => Next::Waits(runs),
                    Some(_) if runs.iter().any(is_done) => Next::Succeeds(runs),
                    Some(_) => Next::Fails(runs),
                };
                let fails = next.fails();
                // Soon after a test that failed, the time of another one is that of both.
                let polls = fails && self.polls(moment);
                self.until(moment, next);
                let left = |run: &RequestRun| run.outcome == Outcome::Pending;
                let costs = fails && !polls && runs.iter().any(left);
                let ps = if costs { self.own_ns(moment).saturating_mul(1_000) } else { 0 };
                if self.options.deterministic || mpi == MpiCall::Request_get_status {
                    let kept = chooses && runs.iter().any(is_done) && runs.iter().any(left);
                    self.assumed.kept_choices += u64::from(kept);
                    if ps > 0 {
                        let tested = runs.iter().find(|run| left(run)).map(|run| run.first);
                        let bytes = tested.map_or(NONE, |id| self.slot(id)).into();
                        self.tape.push(Step::Spent { ps, bytes, on: Spent::Testing });
                    }
                } else if chooses || ps > 0 {
                    let (first, test) = (self.tape.candidates.len(), test.unwrap_or(Test::All));
                    self.choosing = Some(Choosing { first: first as u32, test, ps });
                }
                self.outcomes(runs)
            }
            Kind::Other => {
                match mpi.class() {
                    Class::OneSided => self.assumed.one_sided += 1,
                    Class::Io => self.assumed.file += 1,
                    // Waiting until buffered messages have been sent.
                    Class::PointToPoint if is_of_buffer(mpi) => self.until(moment, Next::Other),
                    // Waiting for a message without receiving it.
                    Class::PointToPoint => {
                        self.until(moment, if call.found { Next::Found } else { Next::Missed })
                    }
                    _ => {}
                }
                if let Some(begun) = call.begun {
                    self.begin(Some(begun), Started::NOTHING);
                }
                Ok(())
            }
        }
    }

    /// World rank of the other end; None for `MPI_PROC_NULL`.
    fn peer(&mut self, mpi: MpiCall, message: &Message) -> Result<Option<u32>, ReadError> {
        if is_null(message.peer) {
            return Ok(None);
        }
        let (rank, call) = (self.rank, mpi.name());
        let communicator = self
            .communicators
            .of(message.communicator)
            .ok_or(ReadError::NoCommunicator { rank, call })?;
        let size = communicator.size.max(communicator.remote_size);
        if !communicator.knows_members() {
            return Err(ReadError::NoMembers { rank, call });
        }
        let world = communicator.world(message.peer);
        world.map(Some).ok_or(ReadError::NoPeer { rank, call, peer: message.peer, size })
    }

    fn key(&mut self, mpi: MpiCall, communicator: u32) -> Result<u64, ReadError> {
        let (rank, call) = (self.rank, mpi.name());
        let found = self.communicators.of(communicator);
        found.map(|found| found.key).ok_or(ReadError::NoCommunicator { rank, call })
    }

    fn send(&mut self, mpi: MpiCall, message: Message, starts: bool) -> Result<Part, ReadError> {
        let Some(to) = self.peer(mpi, &message)? else {
            return Ok(self.null(mpi, &message, true, starts));
        };
        let key = self.key(mpi, message.communicator)?;
        let channel = self.shared.channel(key, message.tag);
        let bytes = message.bytes;
        let mpi = mpi.number();
        Ok(self.push(starts, |request| Step::Send { to, channel, bytes, request, mpi }))
    }

    /// A message that is not sent.
    fn null(&mut self, mpi: MpiCall, message: &Message, sends: bool, starts: bool) -> Part {
        let step = self.tape.steps.len() as u32;
        self.tape.nulls.push(Null { step, sends, starts, tag: message.tag, mpi: mpi.number() });
        Part::NONE
    }

    /// A receive, as it was posted.
    fn receive(&mut self, mpi: MpiCall, message: Message, starts: bool) -> Result<Part, ReadError> {
        if is_null(message.peer) {
            return Ok(self.null(mpi, &message, false, starts));
        }
        let key = self.key(mpi, message.communicator)?;
        let from = match message.peer {
            rank::ANY => NONE,
            _ => self.peer(mpi, &message)?.unwrap_or(NONE),
        };
        let channel = match message.tag {
            tag::ANY => {
                *self.shared.any_tag.entry(key).or_insert(0) += 1;
                NONE
            }
            tag => self.shared.channel(key, tag),
        };
        let bytes = message.bytes;
        let mpi = mpi.number();
        Ok(self.push(starts, |request| Step::Receive { from, channel, bytes, request, mpi }))
    }

    /// What a receive got is known.
    fn correct(
        &mut self,
        part: Part,
        communicator: u32,
        actual: &Actual,
        mpi: MpiCall,
    ) -> Result<(), ReadError> {
        if self.fails && part.step != NONE {
            self.truncated.push(part.step);
        }
        let step = self.tape.steps.get(part.step as usize).copied();
        let Some(Step::Receive { mut from, mut channel, bytes, request, mpi: call }) = step else {
            return Ok(());
        };
        let got = actual.bytes.unwrap_or(bytes);
        if from == NONE || channel == NONE {
            let key = self.key(mpi, communicator)?;
            let mut took = (from, channel);
            if let (NONE, Some(source)) = (from, actual.source) {
                let message = Message { communicator, peer: source, tag: 0, bytes };
                took.0 = self.peer(mpi, &message)?.unwrap_or(NONE);
            }
            if let (NONE, Some(tag)) = (channel, actual.tag) {
                took.1 = self.shared.channel(key, tag);
            }
            if self.options.as_traced {
                from = took.0;
            }
            if channel == NONE && (self.options.as_traced || key != self.shared.scope) {
                self.assumed.fixed_tags += u64::from(!self.options.as_traced);
                channel = took.1;
            }
            if from == NONE || channel == NONE {
                self.tape.took.push((part.step, took.0, took.1));
            }
        }
        // A receive that may take another message than in the trace has room for it.
        let bytes = if from == NONE || channel == NONE { bytes } else { got };
        if let Some(step) = self.tape.steps.get_mut(part.step as usize) {
            *step = Step::Receive { from, channel, bytes, request, mpi: call };
        }
        Ok(())
    }

    /// A blocking probe, which a receive follows. Until then, another one finds the same message and does not wait.
    fn probe(&mut self, probed: Probed) {
        let same = |other: &Probed| Probed { step: probed.step, ..*other } == probed;
        if !probed.matched && self.probed.iter().any(same) {
            return;
        }
        if self.probed.len() >= MOST_PROBED {
            self.probed.pop_front();
        }
        self.tape.push(NOTHING);
        self.probed.push_back(probed);
    }

    /// The probe that has waited for the message of this receive of the thread: the oldest one that fits.
    fn was_probed(&mut self, mpi: MpiCall, message: &Message, actual: &Actual) -> Option<Probed> {
        let matched = matches!(mpi, MpiCall::Mrecv | MpiCall::Imrecv);
        let is_it = |asked: i32, any: i32, got: Option<i32>, found: i32| match got {
            Some(got) => got == found,
            None => asked == found || asked == any,
        };
        let thread = self.thread;
        let fits = |probed: &Probed| {
            probed.thread == thread
                && probed.matched == matched
                && message.communicator == probed.communicator
                && is_it(message.peer, rank::ANY, actual.source, probed.source)
                && is_it(message.tag, tag::ANY, actual.tag, probed.tag)
        };
        let place = self.probed.iter().position(fits)?;
        self.probed.remove(place)
    }

    /// A receive that is posted and waited for later, unless a probe has waited for its message: then it is complete
    /// at once.
    fn post(&mut self, mpi: MpiCall, message: Message) -> Result<Part, ReadError> {
        let Some(probed) = self.was_probed(mpi, &message, &Actual::AS_POSTED) else {
            return self.receive(mpi, message, true);
        };
        let receive = self.receive(mpi, message, false)?;
        let actual =
            Actual { source: Some(probed.source), tag: Some(probed.tag), ..Actual::AS_POSTED };
        self.correct(receive, message.communicator, &actual, mpi)?;
        self.hoist(receive, probed);
        Ok(Part::NONE)
    }

    /// A receive takes place where the rank waited for its message.
    fn hoist(&mut self, receive: Part, probed: Probed) {
        let steps = &mut self.tape.steps;
        let (from, to) = (receive.step as usize, probed.step as usize);
        if from >= steps.len() || to >= from {
            return;
        }
        steps[to] = std::mem::replace(&mut steps[from], NOTHING);
        let took = self.tape.took.iter_mut().map(|took| &mut took.0);
        for step in took.chain(&mut self.truncated).filter(|step| **step == receive.step) {
            *step = probed.step;
        }
    }

    /// The call took this long itself.
    fn spent(&mut self, part: Part, moment: &Moment, most_ns: i64, bytes: u64, on: Spent) {
        if part.step != NONE && moment.end > moment.begin {
            let ps = self.own_ns(moment).min(most_ns).saturating_mul(1_000);
            self.tape.push(Step::Spent { ps, bytes, on });
        }
    }

    /// How long a call took, without what the kernel took.
    fn own_ns(&self, moment: &Moment) -> i64 {
        let ns = moment.end.saturating_sub(moment.begin).max(0);
        ns - self.taken.ns(self.rank, moment.begin, moment.end).clamp(0, ns)
    }

    fn push(&mut self, starts: bool, step: impl FnOnce(u32) -> Step) -> Part {
        let slot = if starts { self.requests.slot() } else { NONE };
        let part = Part { slot, step: self.tape.steps.len() as u32 };
        self.tape.push(step(slot));
        part
    }

    /// The number in the tape of a request that was started; [`NONE`] if it has none.
    fn slot(&mut self, id: u64) -> u32 {
        let started = self.requests.open.get_mut(id).and_then(|open| open.started);
        let slots = started.map(|started| [started.first.slot, started.receive.slot]);
        slots.into_iter().flatten().find(|slot| *slot != NONE).unwrap_or(NONE)
    }

    fn begin(&mut self, id: Option<u64>, started: Started) {
        let Some(id) = id else { return };
        let request = Request { action: None, started: Some(started) };
        self.requests.open.insert(id, request);
    }

    fn keep(&mut self, id: Option<u64>, action: Action) {
        let Some(id) = id else { return };
        let request = Request { action: Some(Box::new(action)), started: None };
        self.requests.open.insert(id, request);
    }

    /// The rank waits for everything that was started.
    fn complete(&mut self, started: Started) {
        for part in [started.first, started.receive] {
            if part.slot != NONE {
                self.tape.push(Step::Wait { request: part.slot });
                self.requests.release(part.slot);
            }
        }
    }

    /// A request of the call that chooses.
    fn candidate(&mut self, started: Started, done: bool) {
        let parts = [started.first.slot, started.receive.slot];
        if parts != [NONE; 2] {
            self.tape.candidates.push(Candidate { parts, done });
        }
    }

    /// All requests of the call that chooses are known.
    fn chosen(&mut self, choosing: Choosing) {
        self.choosing = None;
        let Choosing { first, test, ps } = choosing;
        let own = &self.tape.candidates[first as usize..];
        let count = own.len() as u32;
        let done = own.iter().filter(|one| one.done).count() as u32;
        let chooses = done > 0 && done < count || done == 0 && count > 0 && ps > 0;
        if chooses {
            self.tape.push(Step::Choose { first, count, test, ps });
        }
        for at in first..first + count {
            let Candidate { parts, done } = self.tape.candidates[at as usize];
            for slot in parts.into_iter().filter(|slot| done && *slot != NONE) {
                if !chooses {
                    self.tape.push(Step::Wait { request: slot });
                }
                self.requests.release(slot);
            }
        }
        if !chooses {
            self.tape.candidates.truncate(first as usize);
        }
    }

    fn outcomes(&mut self, runs: &[RequestRun]) -> Result<(), ReadError> {
        for run in runs {
            // A damaged file may claim any number; those that exist are few.
            let count = u64::from(run.count).min(self.requests.open.len() as u64 + 1 + (1 << 16));
            for place in 0..count {
                self.outcome(run.first.wrapping_add(place), run)?;
            }
        }
        Ok(())
    }

    fn outcome(&mut self, id: u64, run: &RequestRun) -> Result<(), ReadError> {
        let mpi = MpiCall::Wait;
        match run.outcome {
            Outcome::Completed | Outcome::Cancelled | Outcome::Freed => {
                let Some(request) = self.requests.open.get_mut(id) else { return Ok(()) };
                let started = request.started.take();
                if request.action.is_none() || run.outcome == Outcome::Freed {
                    self.requests.open.remove(id);
                }
                let Some(started) = started else { return Ok(()) };
                match run.outcome {
                    Outcome::Completed => {
                        self.correct(started.receive, started.communicator, &run.actual, mpi)?;
                        self.polling.completed();
                        match self.choosing {
                            Some(_) => self.candidate(started, true),
                            None => self.complete(started),
                        }
                    }
                    Outcome::Cancelled => {
                        for part in [started.first, started.receive] {
                            self.erase(part.step);
                            self.requests.release(part.slot);
                        }
                    }
                    _ => {
                        self.not_waited_for(started);
                        self.requests.release(started.receive.slot);
                        self.requests.release(started.first.slot);
                    }
                }
                Ok(())
            }
            Outcome::Started => {
                let Some(request) = self.requests.open.get_mut(id) else { return Ok(()) };
                let (Some(action), None) = (request.action.clone(), request.started) else {
                    return Ok(());
                };
                let started = self.start(*action)?;
                if let Some(request) = self.requests.open.get_mut(id) {
                    request.started = Some(started);
                }
                Ok(())
            }
            Outcome::Pending if self.choosing.is_some() => {
                if let Some(started) = self.requests.open.get_mut(id).and_then(|open| open.started)
                {
                    self.candidate(started, false);
                }
                Ok(())
            }
            Outcome::Pending | Outcome::CancelAsked | Outcome::Ready => Ok(()),
        }
    }

    fn start(&mut self, action: Action) -> Result<Started, ReadError> {
        let mpi = MpiCall::Start;
        Ok(match action {
            Action::Send(message, init) => {
                // Whether it waits for its receive is known from the call that made it.
                let mpi = match init {
                    MpiCall::Ssend_init | MpiCall::Bsend_init => init,
                    _ => mpi,
                };
                Started { first: self.send(mpi, message, true)?, ..Started::NOTHING }
            }
            Action::Receive(message) => Started {
                receive: self.post(mpi, message)?,
                communicator: message.communicator,
                ..Started::NOTHING
            },
            Action::Collective(call, communicator) => {
                Started { first: self.enter(Some(call), communicator, true), ..Started::NOTHING }
            }
        })
    }

    /// Gives a collective its number on the communicator, and takes part in it.
    fn enter(&mut self, call: Option<Call>, communicator: u32, starts: bool) -> Part {
        let Some(mut call) = call else { return Part::NONE };
        let Some(communicator) = self.communicators.of(communicator) else { return Part::NONE };
        communicator.sequence += 1;
        call.channel = Shared::of_collective(call.group, communicator.sequence);
        self.enter_made(Some(call), starts)
    }

    fn enter_made(&mut self, call: Option<Call>, starts: bool) -> Part {
        let Some(call) = call else { return Part::NONE };
        let number = self.tape.calls.len() as u32;
        self.tape.calls.push(call);
        self.push(starts, |request| Step::Collective { call: number, request })
    }

    /// A barrier on the communicator of a window.
    fn fence(&mut self, window: u32) -> Option<Call> {
        let communicator = self.communicators.of_window(window)?;
        if communicator.size < 2 || communicator.remote_size > 0 || !communicator.knows_members() {
            return None;
        }
        let group = self.shared.group(communicator);
        communicator.sequence += 1;
        Some(Call {
            operation: Operation::Regular { op: Op::Barrier, bytes: 0, root: 0 },
            group,
            rank: communicator.rank,
            channel: Shared::of_collective(group, communicator.sequence),
            mpi: MpiCall::Win_fence.number(),
        })
    }

    /// What a call of a collective does; None if there is nobody else in it.
    fn collective(
        &mut self,
        call: &CallMoment,
        shape: Shape,
        arena: &Arena,
    ) -> Result<Option<Call>, ReadError> {
        let signature = &call.signature;
        let (rank, name) = (self.rank, signature.call.name());
        let communicator = self
            .communicators
            .of(signature.object)
            .ok_or(ReadError::NoCommunicator { rank, call: name })?;
        if communicator.remote_size > 0 {
            return Err(ReadError::BetweenGroups { rank, call: name });
        }
        if communicator.size < 2 && shape != Shape::Neighbours {
            return Ok(None);
        }
        if !communicator.knows_members() {
            return Err(ReadError::NoMembers { rank, call: name });
        }
        let group = self.shared.group(communicator);
        let sizes = |span: Option<program::Span>| -> Option<Vec<u64>> {
            let runs = arena.sizes(span?);
            let sizes = runs.iter().flat_map(|(size, times)| {
                std::iter::repeat_n(*size, (*times).min(1 << 24) as usize)
            });
            Some(sizes.collect())
        };
        let call = Called {
            bytes: call.bytes.unwrap_or(0),
            received: call.received.unwrap_or(0),
            root: if signature.present & present::PEER != 0 {
                signature.peer.max(0) as u32
            } else {
                0
            },
            sent: sizes(call.sent),
            got: sizes(call.got),
            size: communicator.size,
            is_cartesian: communicator.is_cartesian(),
            destinations: &communicator.destinations,
            sources: &communicator.sources,
        };
        let (operation, known) = call.operation(signature.call);
        self.assumed.unknown_sizes += u64::from(!known);
        let rank = communicator.rank;
        let mpi = signature.call.number();
        Ok(Some(Call { operation, group, rank, channel: 0, mpi }))
    }
}

/// A collective as one rank called it.
struct Called<'a> {
    bytes: u64,
    received: u64,
    root: u32,
    sent: Option<Vec<u64>>,
    got: Option<Vec<u64>>,
    size: u32,
    is_cartesian: bool,
    destinations: &'a [i32],
    sources: &'a [i32],
}

/// A communicator is made with a reduction of a few words.
const OF_COMMUNICATOR: u64 = 8;

impl Called<'_> {
    /// What it does, and whether all sizes are known.
    fn operation(self, mpi: MpiCall) -> (Operation, bool) {
        let Called { bytes, received, root, size, .. } = self;
        let block = bytes.max(received);
        let regular = |op: Op, bytes: u64| (Operation::Regular { op, bytes, root }, true);
        match operation_name(mpi).as_str() {
            _ if mpi.is_neighborhood() => self.neighbours(),
            "barrier" => regular(Op::Barrier, 0),
            "bcast" => regular(Op::Bcast, bytes),
            "reduce" => regular(Op::Reduce, bytes),
            "allreduce" => regular(Op::Allreduce, bytes),
            "scan" => regular(Op::Scan, bytes),
            "exscan" => regular(Op::Exscan, bytes),
            "gather" => regular(Op::Gather, block),
            "scatter" => regular(Op::Scatter, block),
            "allgather" => regular(Op::Allgather, block),
            "alltoall" => regular(Op::Alltoall, block),
            "reduce_scatter_block" => regular(Op::ReduceScatter, bytes),
            "reduce_scatter" => match self.got {
                Some(sizes) => (Operation::of_blocks(Op::ReduceScatter, sizes), true),
                None => regular(Op::ReduceScatter, bytes / u64::from(size.max(1))),
            },
            "allgatherv" => match self.got {
                Some(sizes) => (Operation::of_blocks(Op::Allgather, sizes), true),
                None => (regular(Op::Allgather, bytes).0, false),
            },
            "gatherv" => {
                let sizes = self.got.unwrap_or_default();
                (Operation::Rooted { towards: true, root, bytes, sizes }, true)
            }
            "scatterv" => {
                let sizes = self.sent.unwrap_or_default();
                (Operation::Rooted { towards: false, root, bytes: received, sizes }, true)
            }
            "alltoallv" | "alltoallw" => {
                // Of a call in place only the receive counts are in the trace, which are also the send counts.
                let (sent, got) = match (self.sent, self.got) {
                    (None, Some(sizes)) | (Some(sizes), None) => (Some(sizes.clone()), Some(sizes)),
                    both => both,
                };
                let known = sent.is_some();
                let even = |sizes: Option<Vec<u64>>, bytes: u64| {
                    let even = || vec![bytes / u64::from(size.max(1)); size as usize];
                    let sizes = sizes.unwrap_or_else(even);
                    let list = (0..).zip(sizes).filter(|(_, bytes)| *bytes > 0);
                    list.collect::<Vec<(u32, u64)>>()
                };
                let (to, from) = (even(sent, bytes), even(got, received));
                (Operation::Messages { to, from, reach: Reach::All }, known)
            }
            // Making communicators, windows and files.
            _ => regular(Op::Allreduce, OF_COMMUNICATOR),
        }
    }

    fn neighbours(self) -> (Operation, bool) {
        let Called { bytes, received, sent, got, is_cartesian, destinations, sources, .. } = self;
        let mut known = true;
        let mut list = |peers: &[i32], sizes: Option<Vec<u64>>, bytes: u64, vector: bool| {
            known &= !vector || sizes.is_some();
            let each = if vector { bytes / peers.len().max(1) as u64 } else { bytes };
            let size = |place: usize| match &sizes {
                Some(sizes) => sizes.get(place).copied().unwrap_or(0),
                None => each,
            };
            let peer =
                |(place, peer): (usize, &i32)| Some((u32::try_from(*peer).ok()?, size(place)));
            peers.iter().enumerate().map(peer).collect::<Vec<_>>()
        };
        let (v, w) = (sent.is_some(), got.is_some());
        let mut to = list(destinations, sent, bytes, v);
        let from = list(sources, got, received.max(if w { 0 } else { bytes }), w);
        if is_cartesian {
            // What goes down a dimension comes from above. If the same rank is on both sides, it is sent second.
            let same = |pair: &&mut [_]| matches!(pair, [Some((a, _)), Some((b, _))] if a == b);
            to.chunks_mut(2).filter(same).for_each(<[_]>::reverse);
        }
        let there = |list: Vec<Option<(u32, u64)>>| list.into_iter().flatten().collect();
        let (to, from) = (there(to), there(from));
        (Operation::Messages { to, from, reach: Reach::Neighbours }, known)
    }
}
