//! The tables of sources, lanes and totals, assembled from rows that may come late, come twice, or be
//! lost with a damaged frame.

use serde::de::DeserializeOwned;

use crate::format::v1::MAX_ROWS;
use crate::model::{Class, Lane, Source};

/// Decompressed size limit of all frames of one table, so that a crafted file cannot exhaust memory.
pub(super) const MAX_TABLE_BYTES: u64 = 256 << 20;
/// How far beyond the present rows an id may be: frames lost to damage leave holes, but a hole of
/// millions is an attempt to make the reader allocate.
const MAX_HOLE: usize = 1 << 16;

/// A table being assembled.
pub(super) struct Table<T> {
    rows: Vec<Option<T>>,
    present: usize,
    bytes: u64,
}

impl<T: DeserializeOwned> Table<T> {
    pub(super) fn new(initial: Vec<T>) -> Self {
        let present = initial.len();
        Table { rows: initial.into_iter().map(Some).collect(), present, bytes: 0 }
    }

    /// Adds the rows of one frame; later rows replace earlier ones of the same id.
    pub(super) fn add_json(&mut self, json: &[u8]) -> Result<(), String> {
        self.bytes += json.len() as u64;
        if self.bytes > MAX_TABLE_BYTES {
            return Err(format!("the table exceeds {} MiB", MAX_TABLE_BYTES >> 20));
        }
        let rows: Vec<(u32, T)> =
            serde_json::from_slice(json).map_err(|error| format!("invalid JSON: {error}"))?;
        rows.into_iter().try_for_each(|(id, row)| self.set(id, row))
    }

    fn set(&mut self, id: u32, row: T) -> Result<(), String> {
        let index = id as usize;
        self.grow_to(index + 1)?;
        if let Some(slot) = self.rows.get_mut(index) {
            self.present += usize::from(slot.is_none());
            *slot = Some(row);
        }
        Ok(())
    }

    /// Grows the table to at least `rows` rows, holes included.
    pub(super) fn grow_to(&mut self, rows: usize) -> Result<(), String> {
        if rows > MAX_ROWS as usize || rows > self.present + 1 + MAX_HOLE {
            return Err(format!("row {} is out of range", rows.saturating_sub(1)));
        }
        if rows > self.rows.len() {
            self.rows.resize_with(rows, || None);
        }
        Ok(())
    }

    pub(super) fn has_holes(&self) -> bool {
        self.present < self.rows.len()
    }

    /// The rows without the holes.
    pub(super) fn present(self) -> impl Iterator<Item = T> {
        self.rows.into_iter().flatten()
    }

    pub(super) fn finish(self, hole: impl Fn() -> T) -> Vec<T> {
        self.rows.into_iter().map(|row| row.unwrap_or_else(&hole)).collect()
    }
}

/// Stands for sources whose rows are lost.
pub(super) fn unknown_source() -> Source {
    Source {
        class: Class::OutsideKernel,
        name: "unknown source".to_owned(),
        unit: None,
        detail: Some("its row was lost with a damaged part of the file".to_owned()),
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

/// Stands for lanes whose rows are lost.
pub(super) fn unknown_lane() -> Lane {
    Lane::Thread { pid: 0, tid: 0, name: "unknown lane".to_owned() }
}
