//! The terminal: taken over, drawn on, and given back whatever happens.

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

/// Whether the terminal is ours at the moment.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether some thread panicked, and has written over the picture.
static BROKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    /// Not dropped: it would complain on standard error about a terminal that is gone, which
    /// panics where that is the same terminal. What it would do is done by `give_back`.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        give_back_on_panic();
        take()?;
        // A whole picture in one write.
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

    /// Forgets what is on the terminal, so that the next picture is drawn whole. Not by
    /// `Terminal::clear`: that asks the terminal where its cursor is, and some never answer.
    pub fn forget(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().clear_region(ClearType::All)?;
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Gives the terminal to the shell and stops, until it says to go on. Without a shell that
    /// could, the kernel does not stop anybody, and it goes on at once.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::raise(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again after the shell had it, and may have changed it.
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

/// True when a thread of this process panicked while the terminal was ours.
pub fn broken() -> bool {
    BROKEN.load(Ordering::Relaxed)
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// As it was. A terminal that is gone cannot be helped.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

/// A message on the other screen would be gone with it.
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

/// The keys that mean something here.
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
