//! Results as JSON. Keys are a stable interface: they are added, never renamed or removed.

use serde::Serialize;

/// Version of the JSON of all commands. It changes only if the meaning of a key changes.
pub const SCHEMA: u32 = 1;

/// A result with the version of its keys. The result must be a struct.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Document<'a, T: ?Sized> {
    schema: u32,
    #[serde(flatten)]
    result: &'a T,
}

impl<'a, T: Serialize + ?Sized> Document<'a, T> {
    pub fn of(result: &'a T) -> Document<'a, T> {
        Document { schema: SCHEMA, result }
    }
}
