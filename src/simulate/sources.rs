//! The names of the sources of noise, over all traces of a simulation: the simulator knows numbers.

use std::collections::HashMap;

use simulate::noise::UNKNOWN;
use trace::{Class, Source, SourceId};

/// Who took the time, as scripts know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// None where the noise was not recorded here: periodic, or another tool's.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
}

/// Numbered as they appear.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    names: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

/// The sources of one trace by their numbers there.
pub struct OfTrace {
    numbers: Vec<u32>,
    pub outside: u32,
}

impl OfTrace {
    pub fn of(&self, source: SourceId) -> u32 {
        self.numbers.get(source.0 as usize).copied().unwrap_or(UNKNOWN)
    }
}

impl Sources {
    fn number(&mut self, name: Name) -> u32 {
        let next = self.names.len() as u32;
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        })
    }

    /// Noise that is called what it was asked for with.
    pub fn named(&mut self, name: &str) -> u32 {
        self.number(Name { name: name.to_owned(), ..Name::default() })
    }

    /// As in a report, one for each class, name and unit, whatever the details.
    pub fn of_trace(&mut self, sources: &[Source]) -> OfTrace {
        let named = |source: &Source| Name {
            class: Some(source.class),
            name: source.name.clone(),
            unit: source.unit.clone(),
        };
        let numbers = sources.iter().map(|source| self.number(named(source))).collect();
        let class = Class::OutsideKernel;
        let outside = Name { class: Some(class), name: class.name().to_owned(), unit: None };
        OfTrace { numbers, outside: self.number(outside) }
    }

    pub fn name(&self, source: u32) -> Name {
        let unknown = || Name { name: "unknown".to_owned(), ..Name::default() };
        self.names.get(source as usize).cloned().unwrap_or_else(unknown)
    }
}
