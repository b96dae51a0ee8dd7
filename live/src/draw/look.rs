//! Colours and block characters, or plain ASCII if the terminal has neither.

use trace::Class;

use crate::picture::{Colour, Style};

/// The capabilities of this terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: bool,
    /// Unicode block elements; plain ASCII otherwise.
    pub unicode: bool,
}

impl Look {
    pub(super) fn class(&self, class: Class) -> Style {
        if !self.colour {
            return Style::PLAIN;
        }
        let colour = match class {
            Class::Timer => Colour::Blue,
            Class::Irq => Colour::Yellow,
            Class::Ipi => Colour::Cyan,
            Class::Softirq => Colour::Magenta,
            Class::Nmi => Colour::LightRed,
            Class::Thread => Colour::Green,
            Class::Kthread => Colour::LightGreen,
            Class::PageFault => Colour::LightYellow,
            Class::Idle => Colour::Gray,
            Class::OutsideKernel => Colour::Red,
            Class::Throttled => Colour::LightBlue,
        };
        Style { colour: Some(colour), ..Style::PLAIN }
    }

    /// Dim text is hard to read on some monochrome terminals.
    pub(super) fn style(&self, style: Style) -> Style {
        Style { dim: style.dim && self.colour, ..style }
    }

    pub(super) fn bar(&self) -> &'static str {
        if self.unicode { "█" } else { "#" }
    }

    /// A fraction of a bar cell, in eighths; empty without Unicode.
    pub(super) fn part(&self, eighths: usize) -> &'static str {
        let signs = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        if self.unicode { signs[eighths.min(7)] } else { "" }
    }

    pub(super) fn rest(&self) -> &'static str {
        if self.unicode { "·" } else { "." }
    }

    /// The height of a strip column: one step per factor of ten, starting at a microsecond.
    pub(super) fn height(&self, ns: u64) -> &'static str {
        let signs = match self.unicode {
            true => ["▁", "▂", "▃", "▅", "▆", "█"],
            false => [".", ":", "-", "=", "+", "#"],
        };
        let step = match ns {
            0..1_000 => 0,
            1_000..10_000 => 1,
            10_000..100_000 => 2,
            100_000..1_000_000 => 3,
            1_000_000..10_000_000 => 4,
            _ => 5,
        };
        signs[step]
    }
}
