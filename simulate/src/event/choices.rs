//! Choices between requests: `MPI_Waitany`, `MPI_Waitsome` and the tests, as a schedule has them.
//!
//! A *name* stands for a request: one or several operations that must all have ended. A choice lists the
//! names that its call completed in the trace and those it left. Which requests they stand for is decided
//! in each run, by the times.

/// A request that a choice can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub(crate) u32);

/// What a test completes if it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// All requests, once all are complete: `MPI_Test`, `MPI_Testall`.
    All,
    /// The one that was complete first: `MPI_Testany`.
    One,
    /// Those that are complete: `MPI_Testsome`.
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its names in [`Choices::names`]: those that were completed, then those left.
    first: u32,
    done: u32,
    left: u32,
    /// If none was completed.
    pub test: Test,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    list: Vec<Choice>,
    names: Vec<u32>,
    /// The operation that notes the end of each name's request.
    notes: Vec<u32>,
}

impl Choices {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Requests that have names.
    pub fn count(&self) -> usize {
        self.notes.len()
    }

    pub fn name(&mut self, note: u32) -> Name {
        self.notes.push(note);
        Name(self.notes.len() as u32 - 1)
    }

    pub fn add(&mut self, done: &[Name], left: &[Name], test: Test) -> u32 {
        let first = self.names.len() as u32;
        self.names.extend(done.iter().chain(left).map(|name| name.0));
        let (done, left) = (done.len() as u32, left.len() as u32);
        self.list.push(Choice { first, done, left, test });
        self.list.len() as u32 - 1
    }

    pub fn of(&self, choice: u32) -> Choice {
        self.list[choice as usize]
    }

    /// The names that were completed, and those left.
    pub fn names(&self, choice: Choice) -> (&[u32], &[u32]) {
        let names = &self.names[choice.first as usize..][..(choice.done + choice.left) as usize];
        names.split_at(choice.done as usize)
    }

    pub fn note(&self, name: u32) -> u32 {
        self.notes[name as usize]
    }

    pub fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Choice>()
            + (self.names.capacity() + self.notes.capacity()) * size_of::<u32>()
    }
}
