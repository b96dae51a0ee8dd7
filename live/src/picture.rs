//! What a terminal is to show: a rectangle of characters with styles.

use unicode_width::UnicodeWidthChar;

/// A foreground colour; the user chooses its shade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    Gray,
    LightRed,
    LightGreen,
    LightYellow,
    LightBlue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: Option<Colour>,
    pub bold: bool,
    pub dim: bool,
    pub reversed: bool,
}

impl Style {
    pub const PLAIN: Style = Style { colour: None, bold: false, dim: false, reversed: false };
    pub const BOLD: Style = Style { bold: true, ..Style::PLAIN };
    pub const DIM: Style = Style { dim: true, ..Style::PLAIN };
    pub const REVERSED: Style = Style { reversed: true, ..Style::PLAIN };
}

/// One position of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyph {
    /// NUL to the right of a wide character, which also covers this position.
    pub symbol: char,
    pub style: Style,
}

const BLANK: Glyph = Glyph { symbol: ' ', style: Style::PLAIN };

/// A part of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
}

impl Area {
    pub(crate) fn right(&self) -> u16 {
        self.x.saturating_add(self.width)
    }

    pub(crate) fn bottom(&self) -> u16 {
        self.y.saturating_add(self.height)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    width: u16,
    height: u16,
    glyphs: Vec<Glyph>,
}

impl Picture {
    /// A blank picture.
    pub fn new(width: u16, height: u16) -> Picture {
        let glyphs = vec![BLANK; usize::from(width) * usize::from(height)];
        Picture { width, height, glyphs }
    }

    pub fn area(&self) -> Area {
        Area { x: 0, y: 0, width: self.width, height: self.height }
    }

    pub fn clear(&mut self) {
        self.glyphs.fill(BLANK);
    }

    /// The lines from top to bottom.
    pub fn lines(&self) -> impl Iterator<Item = &[Glyph]> {
        self.glyphs.chunks(usize::from(self.width.max(1)))
    }

    /// The positions at which `next`, a picture of the same size, differs: column, line and glyph. Drawing
    /// these turns one into the other.
    pub fn changes<'a>(&'a self, next: &'a Picture) -> impl Iterator<Item = (u16, u16, Glyph)> {
        let both = self.lines().zip(next.lines());
        (0..).zip(both).flat_map(|(y, (before, after))| {
            let columns = (0..).zip(before.iter().zip(after));
            columns.filter_map(move |(x, (before, after))| {
                (before != after && after.symbol != '\0').then_some((x, y, *after))
            })
        })
    }

    fn at(&mut self, x: u16, y: u16) -> Option<&mut Glyph> {
        let inside = x < self.width && y < self.height;
        inside.then(|| &mut self.glyphs[usize::from(y) * usize::from(self.width) + usize::from(x)])
    }

    /// Writes text up to the column `end`; returns the column after it.
    pub(crate) fn write(&mut self, mut x: u16, y: u16, end: u16, text: &str, style: Style) -> u16 {
        let end = end.min(self.width);
        for symbol in text.chars() {
            // Marks that combine with the character before them have no place of their own.
            let Some(width @ 1..=2) = symbol.width() else { continue };
            let after = x.saturating_add(width as u16);
            if after > end {
                break;
            }
            self.set(x, y, symbol, style);
            if width == 2 {
                self.set(x + 1, y, '\0', style);
            }
            x = after;
        }
        x
    }

    /// No half of a wide character is left over.
    fn set(&mut self, x: u16, y: u16, symbol: char, style: Style) {
        let Some(glyph) = self.at(x, y) else { return };
        let covered = glyph.symbol == '\0' && symbol != '\0';
        *glyph = Glyph { symbol, style };
        if covered && let Some(wide) = x.checked_sub(1).and_then(|x| self.at(x, y)) {
            wide.symbol = ' ';
        }
        if let Some(right) = self.at(x.saturating_add(1), y)
            && right.symbol == '\0'
        {
            right.symbol = ' ';
        }
    }

    pub(crate) fn reverse(&mut self, area: Area) {
        for y in area.y..area.bottom() {
            for x in area.x..area.right() {
                if let Some(glyph) = self.at(x, y) {
                    glyph.style.reversed = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(picture: &Picture) -> Vec<String> {
        picture.lines().map(|line| line.iter().map(|glyph| glyph.symbol).collect()).collect()
    }

    #[test]
    fn text_is_cut_at_the_end_and_below_the_picture() {
        let mut picture = Picture::new(5, 2);
        assert_eq!(picture.write(1, 0, 4, "abcdef", Style::BOLD), 4);
        assert_eq!(picture.write(3, 1, 99, "xyz", Style::PLAIN), 5);
        picture.write(0, 2, 99, "below", Style::PLAIN);
        picture.write(u16::MAX, 0, u16::MAX, "right of it", Style::PLAIN);
        assert_eq!(text(&picture), [" abc ", "   xy"]);
    }

    #[test]
    fn wide_characters_take_two_places_and_marks_none() {
        let mut picture = Picture::new(6, 1);
        assert_eq!(picture.write(0, 0, 6, "a\u{4e16}e\u{301}\u{754c}", Style::PLAIN), 6);
        assert_eq!(text(&picture), ["a\u{4e16}\0e\u{754c}\0"]);
        // Overwriting either half removes the other.
        picture.write(2, 0, 6, "x", Style::PLAIN);
        assert_eq!(text(&picture), ["a xe\u{754c}\0"]);
        picture.write(4, 0, 6, "y", Style::PLAIN);
        assert_eq!(text(&picture), ["a xey "]);
        // Half of one does not fit.
        assert_eq!(picture.write(5, 0, 6, "\u{4e16}", Style::PLAIN), 5);
    }

    #[test]
    fn changes_turn_one_picture_into_the_other() {
        let mut before = Picture::new(4, 2);
        before.write(0, 0, 4, "abcd", Style::PLAIN);
        let mut after = before.clone();
        assert_eq!(before.changes(&after).count(), 0);
        after.write(1, 0, 4, "bX", Style::PLAIN);
        after.write(0, 1, 4, "\u{4e16}", Style::DIM);
        let changed: Vec<_> = before.changes(&after).map(|(x, y, g)| (x, y, g.symbol)).collect();
        assert_eq!(changed, [(2, 0, 'X'), (0, 1, '\u{4e16}')]);
    }
}
