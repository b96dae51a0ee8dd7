//! Lines of text in a buffer, clipped to an area.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::look::Look;

/// Writes lines into an area.
pub(super) struct Pen<'a> {
    line: Line<'a>,
    area: Rect,
}

/// A line that is being written from left to right.
pub(super) struct Line<'a> {
    buffer: &'a mut Buffer,
    look: &'a Look,
    x: u16,
    y: u16,
    end: u16,
}

impl<'a> Pen<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, look: &'a Look) -> Pen<'a> {
        Pen { line: Line { buffer, look, x: area.x, y: area.y, end: area.x }, area }
    }

    /// The line with this number; below the area, a line of zero width.
    pub(super) fn line(&mut self, number: u16) -> &mut Line<'a> {
        self.line.x = self.area.x;
        self.line.y = self.area.y + number;
        self.line.end = if number < self.area.height { self.area.right() } else { self.area.x };
        &mut self.line
    }
}

impl Line<'_> {
    pub(super) fn put(&mut self, text: &str, modifier: Modifier) {
        self.styled(text, Style::new().add_modifier(self.look.modifier(modifier)));
    }

    pub(super) fn styled(&mut self, text: &str, style: Style) {
        let room = usize::from(self.end.saturating_sub(self.x));
        if room > 0 {
            (self.x, _) = self.buffer.set_stringn(self.x, self.y, text, room, style);
        }
    }

    /// Right-aligned, overwriting existing text.
    pub(super) fn put_right(&mut self, text: &str, modifier: Modifier) {
        let width = text.chars().count() as u16 + 1;
        if width <= self.end.saturating_sub(self.x) {
            self.x = self.end - width + 1;
            self.put(text, modifier);
        }
    }

    /// Highlights the whole line.
    pub(super) fn select(&mut self, from: u16) {
        let area = Rect { x: from, y: self.y, width: self.end.saturating_sub(from), height: 1 };
        self.buffer.set_style(area, Style::new().add_modifier(Modifier::REVERSED));
    }
}
