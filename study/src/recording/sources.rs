//! The names of noise sources across all traces of a simulation; the simulator itself uses numbers.

use std::collections::HashMap;

use trace::Class;

use crate::recording::recorded::Source;

/// A source of noise, as named in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// None if not recorded by Detour: periodic noise, or another tool's.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
}

/// Numbered in order of appearance.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    names: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

impl Sources {
    fn number(&mut self, name: Name) -> u32 {
        let next = self.names.len() as u32;
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        })
    }

    /// Noise named after its --noise argument.
    pub fn named(&mut self, name: &str) -> u32 {
        self.number(Name { name: name.to_owned(), ..Name::default() })
    }

    /// The number of each source of a recording.
    pub fn of_recording(&mut self, sources: &[Source]) -> Vec<u32> {
        let named = |source: &Source| Name {
            class: Some(source.key.class),
            name: source.key.name.clone(),
            unit: source.key.unit.clone(),
            own: source.key.own,
        };
        sources.iter().map(|source| self.number(named(source))).collect()
    }

    /// All of them.
    pub fn all(&self) -> &[Name] {
        &self.names
    }

    pub fn name(&self, source: u32) -> Name {
        let unknown = || Name { name: "unknown".to_owned(), ..Name::default() };
        self.names.get(source as usize).cloned().unwrap_or_else(unknown)
    }
}
