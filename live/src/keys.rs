//! What keys do.

use crate::{choices::Choices, snapshot::Snapshot};

/// A key, independent of its terminal encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// With the control key.
    Control(char),
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Only draw again.
    Draw,
    Quit,
    /// Pause or resume.
    Pause,
    /// Write what is on screen as a trace.
    Write,
    /// Suspend to the shell.
    Suspend,
    /// Redraw everything: something else wrote to the terminal.
    Redraw,
}

/// Rows per page key.
const PAGE: usize = 10;
/// A longer filter would match nothing.
const MAX_FILTER: usize = 64;

/// Handles a key. `snapshot` is what is on screen.
pub fn press(choices: &mut Choices, snapshot: &Snapshot, key: Key) -> Action {
    choices.message = None;
    match key {
        Key::Control('c') => return Action::Quit,
        Key::Control('z') => return Action::Suspend,
        Key::Control('l') => return Action::Redraw,
        _ => {}
    }
    if choices.typing {
        typed(choices, key);
        return Action::Draw;
    }
    if choices.help {
        choices.help = false;
        return if key == Key::Char('q') { Action::Quit } else { Action::Draw };
    }
    match key {
        Key::Char('q') => return Action::Quit,
        Key::Char('p' | ' ') => return Action::Pause,
        Key::Char('w') => return Action::Write,
        Key::Char('s') => choices.sort = choices.sort.next(),
        Key::Char('r') => choices.reversed = !choices.reversed,
        Key::Char('b') => {
            choices.by = choices.by.next();
            choices.selected = None;
        }
        Key::Char('i') => choices.span = choices.span.next(),
        Key::Char('t') => choices.threads = !choices.threads,
        Key::Char('/') => choices.typing = true,
        Key::Char('?' | 'h') => choices.help = true,
        Key::Escape => escape(choices),
        Key::Up | Key::Char('k') => step(choices, snapshot, |at, _| at.saturating_sub(1)),
        Key::Down | Key::Char('j') => step(choices, snapshot, |at, _| at + 1),
        Key::PageUp => step(choices, snapshot, |at, _| at.saturating_sub(PAGE)),
        Key::PageDown => step(choices, snapshot, |at, _| at + PAGE),
        Key::Home => step(choices, snapshot, |_, _| 0),
        Key::End => step(choices, snapshot, |_, last| last),
        _ => {}
    }
    Action::Draw
}

/// Clears the selection, or the filter if nothing is selected.
fn escape(choices: &mut Choices) {
    if choices.selected.take().is_none() {
        choices.filter.clear();
    }
}

fn typed(choices: &mut Choices, key: Key) {
    match key {
        Key::Char(c) if !c.is_control() && choices.filter.chars().count() < MAX_FILTER => {
            choices.filter.push(c);
        }
        Key::Backspace => {
            choices.filter.pop();
        }
        Key::Enter => choices.typing = false,
        Key::Escape => {
            choices.typing = false;
            choices.filter.clear();
        }
        _ => {}
    }
}

/// Moves the selection; the first move selects the first row.
fn step(choices: &mut Choices, snapshot: &Snapshot, to: impl Fn(usize, usize) -> usize) {
    let rows = choices.rows(snapshot);
    let Some(last) = rows.len().checked_sub(1) else { return };
    let next = match choices.selected_at(&rows) {
        Some(at) => to(at, last).min(last),
        None => {
            if to(0, last) == last {
                last
            } else {
                0
            }
        }
    };
    choices.select(rows.get(next));
}
