//! The event loop: waits for the timer, keys, signals and the end of the recording.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::Poll,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use live::{Action, By, Choices, Key, Model, Snapshot};
use recorder::{Delivery, OwnCost};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::UnboundedReceiver,
    time::{Interval, MissedTickBehavior, interval},
};
use trace::{Overwrite, Writer};

use crate::{
    Ended, Request, keys,
    recording::Recording,
    screen::{self, Screen},
};

/// An event of the loop.
enum Event {
    Time,
    Key(Key),
    Resized,
    /// The terminal is gone.
    NoTerminal,
    Stop,
    Continued,
    RecordingEnded,
}

/// After a stop.
const CONTINUED: SignalKind = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());

struct Events {
    time: Interval,
    keys: UnboundedReceiver<Key>,
    resized: Signal,
    stop: [Signal; 3],
    continued: Signal,
}

impl Events {
    fn new(request: &Request) -> io::Result<Events> {
        let mut time = interval(request.interval);
        // A view that falls behind skips frames.
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Events {
            time,
            keys: keys::read(screen::terminal()?)?,
            resized: signal(SignalKind::window_change())?,
            stop: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::interrupt())?,
            ],
            continued: signal(CONTINUED)?,
        })
    }

    async fn next(&mut self, ended: &mut Pin<&mut (impl Future + ?Sized)>) -> Event {
        poll_fn(|context| {
            if self.stop.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                return Poll::Ready(Event::Stop);
            }
            if ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::RecordingEnded);
            }
            if self.continued.poll_recv(context).is_ready() {
                return Poll::Ready(Event::Continued);
            }
            if let Poll::Ready(key) = self.keys.poll_recv(context) {
                return Poll::Ready(key.map_or(Event::NoTerminal, Event::Key));
            }
            if self.resized.poll_recv(context).is_ready() {
                return Poll::Ready(Event::Resized);
            }
            self.time.poll_tick(context).map(|_| Event::Time)
        })
        .await
    }
}

/// Shows the recording until the user quits, a signal arrives or the recording ends.
pub async fn watch(mut recording: Recording, request: &Request) -> Result<Ended> {
    let Some(manifest) = recording.first.manifest.take() else {
        bail!("the recorder sent no manifest");
    };
    // Keep the view off the measured CPUs, if there are others.
    let housekeeping = recorder::parse_cpus(&manifest.isolation.housekeeping).unwrap_or_default();
    if !housekeeping.is_empty() {
        recorder::machine::pin(&housekeeping);
    }
    let mut view = View::new(Model::new(*manifest), request.by);
    view.accept(std::mem::take(&mut recording.first));
    let mut events = Events::new(request).context("cannot wait for keys and signals")?;
    let mut screen = Screen::take().context("cannot draw on this terminal")?;
    let mut said = Vec::new();
    loop {
        let mut ended = std::pin::pin!(&mut recording.ended);
        let action = match events.next(&mut ended.as_mut()).await {
            Event::Time => {
                view.accept(recording.feed.take());
                view.look_again();
                Action::Draw
            }
            Event::Key(key) => live::press(&mut view.choices, &view.shown, key),
            Event::Resized => Action::Draw,
            Event::Continued => {
                screen.resume()?;
                Action::Draw
            }
            Event::Stop | Event::NoTerminal | Event::RecordingEnded => Action::Quit,
        };
        match action {
            Action::Quit => break,
            Action::Draw => {}
            Action::Pause => view.pause(),
            Action::Write => {
                let message = view.write(request);
                said.push(message.clone());
                view.choices.message = Some(message);
            }
            Action::Suspend => screen.suspend()?,
            Action::Redraw => screen.forget()?,
        }
        if screen::broken() {
            break;
        }
        // If drawing fails, the terminal is gone.
        if screen.draw(&view.shown, &view.choices, &request.look).is_err() {
            break;
        }
    }
    drop(screen);
    let seconds = view.shown.now_ns as f64 / 1e9;
    let outcome = recording.stop()?;
    if let Some(own) = view.own.average_pct() {
        said.push(format!("watched {seconds:.0} s, overhead {own:.2} % of a CPU"));
    }
    Ok(Ended { remarks: outcome.remarks, said })
}

/// The model, what is shown of it, and the cost of this process.
struct View {
    model: Model,
    choices: Choices,
    shown: Snapshot,
    own: Own,
}

impl View {
    fn new(model: Model, by: By) -> View {
        let choices = Choices { by, ..Choices::for_mode(model.manifest().mode) };
        let shown = model.snapshot();
        View { model, choices, shown, own: Own::start() }
    }

    fn accept(&mut self, delivery: Delivery) {
        for (id, source) in delivery.sources {
            self.model.source(id, source);
        }
        for (id, lane) in delivery.lanes {
            self.model.lane(id, lane);
        }
        for block in delivery.blocks {
            self.model.block(block);
        }
        self.model.settled(delivery.settled_ns);
        let overhead = &delivery.state.overhead;
        // Without BPF programs there is no cost.
        let bpf_pct = overhead.bpf_ns_total.and(overhead.cpu_pct);
        self.model.state(delivery.state.lost, bpf_pct);
    }

    fn look_again(&mut self) {
        self.own.look();
        self.model.own_threads(self.own.recent_pct);
        if !self.choices.paused {
            self.shown = self.model.snapshot();
        }
    }

    fn pause(&mut self) {
        self.choices.paused = !self.choices.paused;
        self.shown = match self.choices.paused {
            true => self.model.snapshot_to_keep(),
            false => self.model.snapshot(),
        };
    }

    /// Writes what is on screen to a trace; returns the message to show.
    fn write(&self, request: &Request) -> String {
        let path = recorder::output_name(request.output.as_deref());
        let name = path.display();
        let written = live::write(&self.model, &self.shown, |manifest| {
            Writer::create(&path, Overwrite::No, manifest)
        });
        match written {
            Ok(written) => format!(
                "wrote {name}: {:.1} s, {} detours, {} records; view with: detour report {name}",
                written.span_ns as f64 / 1e9,
                written.detours,
                written.records
            ),
            Err(error) => format!("cannot write the trace: {error}"),
        }
    }
}

/// CPU time of this process's threads, without the probes.
struct Own {
    cost: OwnCost,
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
    recent_pct: Option<f64>,
}

impl Own {
    /// Starts after loading, so that only watching is measured.
    fn start() -> Own {
        let mut cost = OwnCost::default();
        let first = cost.cpu_ns().map(|ns| (Instant::now(), ns));
        Own { cost, first, last: first, recent_pct: None }
    }

    /// Once a second: shorter intervals are too noisy.
    fn look(&mut self) {
        let now = Instant::now();
        if self.last.is_some_and(|(at, _)| now.duration_since(at).as_secs_f64() < 0.95) {
            return;
        }
        let this = self.cost.cpu_ns().map(|ns| (now, ns));
        self.recent_pct = share(self.last, this);
        self.last = this;
    }

    fn average_pct(&mut self) -> Option<f64> {
        share(self.first, self.last)
    }
}

fn share(from: Option<(Instant, u64)>, to: Option<(Instant, u64)>) -> Option<f64> {
    let ((from, before), (to, after)) = (from?, to?);
    let passed = to.duration_since(from).as_nanos() as f64;
    (passed > 0.0).then(|| 100.0 * after.saturating_sub(before) as f64 / passed)
}
