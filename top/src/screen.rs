//! The terminal: raw mode and the alternate screen, restored in every case.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, IsTerminal, Write},
    mem,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use live::{Choices, Colour, Look, Picture, Snapshot, Style};
use rustix::{
    process::Signal,
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};

/// The terminal and its settings before we took it over.
static TAKEN: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);
/// Whether a thread panicked and wrote over the screen.
static BROKEN: AtomicBool = AtomicBool::new(false);

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?1049l\x1b[?25h";
const CLEAR: &str = "\x1b[0m\x1b[2J";

pub struct Screen {
    /// What the terminal shows.
    shown: Picture,
    /// What it is to show.
    next: Picture,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        give_back_on_panic();
        take().inspect_err(|_| give_back())?;
        Ok(Screen { shown: Picture::default(), next: Picture::default() })
    }

    pub fn draw(&mut self, shown: &Snapshot, choices: &Choices, look: &Look) -> io::Result<()> {
        let (width, height) = size();
        let before = self.shown.area();
        if (before.width, before.height) != (width, height) {
            self.next = Picture::new(width, height);
            self.shown = self.next.clone();
            say(CLEAR)?;
        }
        live::draw(shown, choices, look, &mut self.next);
        say(&changes(&self.shown, &self.next))?;
        mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }

    /// Forces a full redraw of the next frame.
    pub fn forget(&mut self) -> io::Result<()> {
        self.shown.clear();
        say(CLEAR)
    }

    /// Returns the terminal to the shell and stops until SIGCONT. In an orphaned process group, the kernel
    /// ignores SIGTSTP, and this returns at once.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_process(rustix::process::getpid(), Signal::TSTP)?;
        self.resume()
    }

    /// Takes over the terminal again after the shell may have changed it.
    pub fn resume(&mut self) -> io::Result<()> {
        take()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// The terminal that keys come from, even if standard input is something else.
pub fn terminal() -> io::Result<OwnedFd> {
    match io::stdin().is_terminal() {
        true => io::stdin().as_fd().try_clone_to_owned(),
        false => Ok(File::options().read(true).write(true).open("/dev/tty")?.into()),
    }
}

/// Whether a thread of this process panicked while the terminal was taken over.
pub fn broken() -> bool {
    BROKEN.load(Ordering::Relaxed)
}

fn take() -> io::Result<()> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if taken.is_none() {
        let terminal = terminal()?;
        let before = tcgetattr(&terminal)?;
        *taken = Some((terminal, before));
    }
    if let Some((terminal, before)) = &*taken {
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw)?;
    }
    say(ENTER)
}

/// Restores the terminal. Errors are ignored: it may be gone.
fn give_back() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((terminal, before)) = taken {
        let _ = say(LEAVE);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
    }
}

/// A panic message on the alternate screen would be lost.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            BROKEN.store(true, Ordering::Relaxed);
            before(panic);
        }));
    });
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The size of the terminal; a terminal that does not know its size, such as a serial line, has 80 columns
/// and 24 rows.
fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// What turns one picture into the other, for the terminal.
fn changes(from: &Picture, to: &Picture) -> String {
    let mut text = String::new();
    let mut cursor = None;
    let mut last = Style::PLAIN;
    for (x, y, glyph) in from.changes(to) {
        // After a wide character the next change is not the neighbour, so the cursor is always set.
        if cursor != Some((x, y)) {
            let _ = write!(text, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1);
        }
        cursor = Some((x.saturating_add(1), y));
        if glyph.style != last {
            set_style(glyph.style, &mut text);
            last = glyph.style;
        }
        text.push(glyph.symbol);
    }
    if last != Style::PLAIN {
        set_style(Style::PLAIN, &mut text);
    }
    text
}

fn set_style(style: Style, text: &mut String) {
    text.push_str("\x1b[0");
    for (set, code) in [(style.bold, 1), (style.dim, 2), (style.reversed, 7)] {
        if set {
            let _ = write!(text, ";{code}");
        }
    }
    if let Some(colour) = style.colour {
        let _ = write!(text, ";{}", code(colour));
    }
    text.push('m');
}

fn code(colour: Colour) -> u8 {
    match colour {
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Blue => 34,
        Colour::Magenta => 35,
        Colour::Cyan => 36,
        Colour::Gray => 90,
        Colour::LightRed => 91,
        Colour::LightGreen => 92,
        Colour::LightYellow => 93,
        Colour::LightBlue => 94,
    }
}
