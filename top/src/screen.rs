//! The terminal: raw mode and the alternate screen, restored in every case.

use std::{
    io::{self, BufWriter, Stdout, Write},
    mem::ManuallyDrop,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, Show},
    event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use live::{Choices, Key, Look, Snapshot};
use ratatui_core::{
    backend::{Backend, ClearType},
    terminal::Terminal,
};
use ratatui_crossterm::CrosstermBackend;
use rustix::process::Signal;

/// Whether we have taken over the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a thread panicked and wrote over the screen.
static BROKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    /// Not dropped: `drop` would report a lost terminal on stderr, which panics if stderr is the same
    /// terminal. `give_back` restores it instead.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        give_back_on_panic();
        take()?;
        // A whole frame in one write.
        let out = BufWriter::with_capacity(1 << 16, io::stdout());
        match Terminal::new(CrosstermBackend::new(out)) {
            Ok(terminal) => Ok(Screen { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub fn draw(&mut self, shown: &Snapshot, choices: &Choices, look: &Look) -> io::Result<()> {
        self.terminal.draw(|frame| live::draw(shown, choices, look, frame.buffer_mut()))?;
        Ok(())
    }

    /// Forces a full redraw of the next frame. Not with `Terminal::clear`, which queries the cursor
    /// position: some terminals never answer.
    pub fn forget(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().clear_region(ClearType::All)?;
        self.terminal.swap_buffers();
        Ok(())
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
        let _ = disable_raw_mode();
        take()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether a thread of this process panicked while the terminal was taken over.
pub fn broken() -> bool {
    BROKEN.load(Ordering::Relaxed)
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal. Errors are ignored: it may be gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
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

/// Translates the keys that are used.
pub fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char(c) if control => Key::Control(c.to_ascii_lowercase()),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
