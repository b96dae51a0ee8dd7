//! Lines of text in a picture, clipped to an area.

use super::look::Look;
use crate::picture::{Area, Picture, Style};

/// Writes lines into an area.
pub(super) struct Pen<'a> {
    line: Line<'a>,
    area: Area,
}

/// A line that is being written from left to right.
pub(super) struct Line<'a> {
    picture: &'a mut Picture,
    look: &'a Look,
    x: u16,
    y: u16,
    end: u16,
}

impl<'a> Pen<'a> {
    pub(super) fn new(picture: &'a mut Picture, area: Area, look: &'a Look) -> Pen<'a> {
        Pen { line: Line { picture, look, x: area.x, y: area.y, end: area.x }, area }
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
    pub(super) fn put(&mut self, text: &str, style: Style) {
        self.x = self.picture.write(self.x, self.y, self.end, text, self.look.style(style));
    }

    /// Right-aligned, overwriting existing text.
    pub(super) fn put_right(&mut self, text: &str, style: Style) {
        let width = text.chars().count() as u16 + 1;
        if width <= self.end.saturating_sub(self.x) {
            self.x = self.end - width + 1;
            self.put(text, style);
        }
    }

    /// Highlights the whole line.
    pub(super) fn select(&mut self, from: u16) {
        let width = self.end.saturating_sub(from);
        self.picture.reverse(Area { x: from, y: self.y, width, height: 1 });
    }
}
