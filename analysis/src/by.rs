//! What the rows of a table stand for.

use std::collections::HashMap;

use serde::Serialize;
use trace::{Class, ProcessKey, RowKey, Source, is_long_outside};

use crate::rows::{MAX_ROWS, TOO_MANY};

/// Rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A process with all that it causes, or a source of the kernel itself.
    #[default]
    Process,
    Unit,
    Source,
    Class,
    Cpu,
}

impl By {
    pub const ALL: [By; 5] = [By::Process, By::Unit, By::Source, By::Class, By::Cpu];

    #[must_use]
    pub fn next(self) -> By {
        let at = By::ALL.iter().position(|&by| by == self).unwrap_or(0);
        By::ALL[(at + 1) % By::ALL.len()]
    }

    /// What one row is.
    #[must_use]
    pub const fn row(self) -> &'static str {
        match self {
            By::Process => "process",
            By::Unit => "unit",
            By::Source => "source",
            By::Class => "class",
            By::Cpu => "CPU",
        }
    }

    /// What its rows are, in the plural.
    #[must_use]
    pub const fn rows(self) -> &'static str {
        match self {
            By::Process => "processes and kernel sources",
            By::Unit => "units",
            By::Source => "sources",
            By::Class => "classes",
            By::Cpu => "CPUs",
        }
    }

    /// The row of a source; None if that depends on the CPU.
    #[must_use]
    pub fn key(self, source: &Source) -> Option<GroupKey> {
        let process = || source.process_key();
        Some(match self {
            By::Process => {
                let ProcessKey { class, process, unit, own, program } = process();
                GroupKey { class: Some(class), name: process, unit, own, program }
            }
            By::Unit => GroupKey::of_unit(process().unit),
            By::Source => source.row_key().into(),
            By::Class => GroupKey::of_class(source.class),
            By::Cpu => return None,
        })
    }

    /// The row of time outside the kernel; None if that depends on the CPU.
    #[must_use]
    pub fn outside(self, name: &str) -> Option<GroupKey> {
        Some(match self {
            By::Process | By::Source => RowKey::outside(name).into(),
            By::Unit => GroupKey::of_unit(None),
            By::Class => GroupKey::of_class(Class::OutsideKernel),
            By::Cpu => return None,
        })
    }
}

/// What a row stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// None for rows of several classes.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
    pub own: bool,
    /// Of the recorded program.
    pub program: bool,
}

impl From<RowKey> for GroupKey {
    fn from(key: RowKey) -> GroupKey {
        let RowKey { class, name, unit, own, program } = key;
        GroupKey { class: Some(class), name, unit, own, program }
    }
}

impl GroupKey {
    #[must_use]
    pub fn of_cpu(cpu: u32) -> GroupKey {
        GroupKey { class: None, name: format!("CPU {cpu}"), unit: None, own: false, program: false }
    }

    #[must_use]
    pub fn of_unit(unit: Option<String>) -> GroupKey {
        let name = unit.clone().unwrap_or_else(|| "(no unit)".to_owned());
        GroupKey { class: None, name, unit, own: false, program: false }
    }

    #[must_use]
    pub fn of_class(class: Class) -> GroupKey {
        GroupKey {
            class: Some(class),
            name: class.name().to_owned(),
            unit: None,
            own: false,
            program: false,
        }
    }

    /// Class, where there is one, and name.
    #[must_use]
    pub fn said(&self) -> String {
        match self.class {
            Some(class) if class.name() != self.name => format!("{} {}", class.name(), self.name),
            _ => self.name.clone(),
        }
    }

    /// The key by which two recordings are compared: long times outside the kernel are the same regardless
    /// of the class each recording assigns.
    pub(crate) fn comparable(&self) -> GroupKey {
        let long = self.class == Some(Class::OutsideKernel)
            && is_long_outside(&RowKey::outside(&self.name));
        match long {
            true => RowKey::outside(trace::LONG_NAMES[0]).into(),
            false => self.clone(),
        }
    }
}

/// Numbers of rows.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) keys: Vec<GroupKey>,
    index: HashMap<GroupKey, u32>,
}

impl Groups {
    /// Rows beyond the limit become one per class.
    pub(crate) fn number(&mut self, key: GroupKey) -> usize {
        let key = match self.keys.len() >= MAX_ROWS && !self.index.contains_key(&key) {
            true => GroupKey {
                name: TOO_MANY.to_owned(),
                unit: None,
                own: false,
                program: false,
                ..key
            },
            false => key,
        };
        let next = self.keys.len() as u32;
        let number = *self.index.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        });
        number as usize
    }
}
