//! Colours and block characters, or plain ASCII if the terminal has neither.

use ratatui_core::style::{Color, Modifier, Style};
use trace::Class;

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
            return Style::new();
        }
        Style::new().fg(match class {
            Class::Timer => Color::Blue,
            Class::Irq => Color::Yellow,
            Class::Ipi => Color::Cyan,
            Class::Softirq => Color::Magenta,
            Class::Nmi => Color::LightRed,
            Class::Thread => Color::Green,
            Class::Kthread => Color::LightGreen,
            Class::PageFault => Color::LightYellow,
            Class::Idle => Color::DarkGray,
            Class::OutsideKernel => Color::Red,
            Class::Throttled => Color::LightBlue,
        })
    }

    /// Dim text is hard to read on some monochrome terminals.
    pub(super) fn modifier(&self, modifier: Modifier) -> Modifier {
        if self.colour { modifier } else { modifier - Modifier::DIM }
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
