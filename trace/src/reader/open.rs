//! Opens a trace: header, then index or scan, then the tables.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek};
use std::sync::Mutex;

use super::by_lane::ByLane;
use super::frames::{Fault, Input, Scratch};
use super::tables::{self, Table};
use super::{Damage, Reader};
use crate::error::TraceError;
use crate::format::sniff;
use crate::format::v1::{self, FOOTER_LEN, Footer, HEADER_LEN, IndexEntry, Kind};
use crate::manifest::{LaneTotals, Manifest, Node, Trailer};
use crate::model::{Lane, Source};

pub(super) fn open<R: Read + Seek>(input: R, file: String) -> Result<Reader<R>, TraceError> {
    let input = match Input::new(input) {
        Ok(input) => input,
        Err(source) => return Err(TraceError::Io { what: "read", file, source }),
    };
    let mut opening = Opening { input, file, damage: BTreeMap::new() };
    opening.check_header()?;
    let (entries, truncated) = opening.find_frames()?;
    opening.finish(entries, truncated)
}

struct Opening<R> {
    input: Input<R>,
    file: String,
    damage: BTreeMap<u64, Damage>,
}

/// Everything but the events.
struct Parts {
    manifest: Option<Manifest>,
    trailer: Option<Trailer>,
    sources: Table<Source>,
    lanes: Table<Lane>,
    totals: Table<LaneTotals>,
    nodes: Table<Node>,
    sources_lost: bool,
}

impl<R: Read + Seek> Opening<R> {
    fn check_header(&mut self) -> Result<(), TraceError> {
        let mut start = vec![0; self.input.len().min(512) as usize];
        self.input.read_at(0, &mut start).map_err(|e| self.io(e))?;
        let Some(header) = start.first_chunk::<HEADER_LEN>() else {
            if !start.is_empty() && v1::header().starts_with(&start) {
                return Err(self.beyond_reading(0, "it ends within its first 16 bytes"));
            }
            return Err(self.foreign(&start));
        };
        let Some(version) = v1::version_of(header) else { return Err(self.foreign(&start)) };
        let sound = v1::header_is_sound(header);
        match version {
            v1::VERSION if sound => {}
            v1::VERSION => self.note(Damage::plain(0, "header", "its checksum is wrong")),
            found if sound && found > v1::VERSION => {
                let (file, known) = (self.file.clone(), v1::VERSION);
                return Err(TraceError::NewerVersion { file, found, known });
            }
            _ => return Err(self.beyond_reading(8, "its version number is not intact")),
        }
        Ok(())
    }

    /// All frames, and why the file ends early if it does.
    fn find_frames(&mut self) -> Result<(Vec<IndexEntry>, Option<String>), TraceError> {
        let footer = self.footer().map_err(|e| self.io(e))?;
        if let Some(footer) = footer {
            match self.read_index(footer) {
                Ok(entries) => return Ok((entries, None)),
                Err(Fault::Io(source)) => return Err(self.io(source)),
                Err(Fault::Damaged(why)) => {
                    self.note(Damage::plain(footer.index_offset, "index", why));
                }
            }
        }
        let end = self.input.len() - if footer.is_some() { FOOTER_LEN as u64 } else { 0 };
        let (entries, stopped_at, why) = self.scan(end)?;
        let truncated = match (footer, why) {
            (Some(_), None) => None,
            (_, why) => Some(format!(
                "the file ends without its index ({}): read up to byte {stopped_at} of {}; \
                 the recorder was stopped before it could finish, or still runs",
                why.unwrap_or_else(|| "it stops after a whole block".to_owned()),
                self.input.len()
            )),
        };
        Ok((entries, truncated))
    }

    fn footer(&mut self) -> io::Result<Option<Footer>> {
        let Some(offset) = self.input.len().checked_sub(FOOTER_LEN as u64) else { return Ok(None) };
        let mut bytes = [0; FOOTER_LEN];
        let whole = self.input.read_at(offset, &mut bytes)?;
        Ok(Footer::parse(&bytes).filter(|_| whole))
    }

    /// The index, if all of it is intact and its frames follow each other inside the file.
    fn read_index(&mut self, footer: Footer) -> Result<Vec<IndexEntry>, Fault> {
        let mut scratch = Scratch::new().map_err(Fault::Io)?;
        let mut entries: Vec<IndexEntry> = Vec::new();
        let mut at = footer.index_offset;
        let mut free_from = HEADER_LEN as u64;
        for _ in 0..footer.index_frames {
            let entry = self.input.frame_header(at)?.entry_at(at);
            if entry.kind != Kind::Index {
                return Err(Fault::Damaged("another frame is in its place".to_owned()));
            }
            let (_, raw) = self.input.load(&entry, &mut scratch)?;
            let rows = v1::parse_index(raw)
                .ok_or_else(|| Fault::Damaged("it is not made of whole rows".to_owned()))?;
            for row in rows {
                // Rows that do not overlap bound the number of rows by the size of the file.
                if row.offset < free_from || row.end() > footer.index_offset {
                    return Err(Fault::Damaged("it points outside the blocks".to_owned()));
                }
                free_from = row.end();
                entries.push(row);
            }
            at = entry.end();
        }
        Ok(entries)
    }

    /// Follows the frames from the start without reading what is in them.
    fn scan(&mut self, end: u64) -> Result<(Vec<IndexEntry>, u64, Option<String>), TraceError> {
        let mut entries = Vec::new();
        let mut at = HEADER_LEN as u64;
        while at < end {
            match self.input.frame_header(at) {
                Ok(header) => {
                    let entry = header.entry_at(at);
                    at = entry.end();
                    entries.push(entry);
                }
                Err(Fault::Io(source)) => return Err(self.io(source)),
                Err(Fault::Damaged(why)) => return Ok((entries, at, Some(why))),
            }
        }
        Ok((entries, at, None))
    }

    fn finish(
        mut self,
        entries: Vec<IndexEntry>,
        truncated: Option<String>,
    ) -> Result<Reader<R>, TraceError> {
        let parts = self.load_parts(&entries)?;
        let Some(mut manifest) = parts.manifest else {
            let why = "it holds no intact manifest: the recording stopped before it began, \
                       or the beginning is damaged";
            return Err(self.beyond_reading(HEADER_LEN as u64, why));
        };
        manifest.nodes.extend(parts.nodes.present());
        let mut lanes = parts.lanes;
        let mut events: Vec<IndexEntry> = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.kind == Kind::Events) {
            match lanes.grow_to(entry.summary.lane as usize + 1) {
                Ok(()) => events.push(entry),
                Err(why) => self.note(Damage::of(&entry, format!("its lane: {why}"))),
            }
        }
        let mut trailer = parts.trailer;
        if let Some(trailer) = &mut trailer {
            trailer.lanes.extend(parts.totals.present());
        }
        let unknown_row = parts.sources_lost || parts.sources.has_holes();
        let mut sources = parts.sources.finish(tables::unknown_source);
        let unknown_source = unknown_row.then(|| {
            sources.push(tables::unknown_source());
            (sources.len() - 1) as u32
        });
        let lanes = lanes.finish(tables::unknown_lane);
        let by_lane = ByLane::new(lanes.len(), &events, trailer.as_ref());
        Ok(Reader {
            input: Mutex::new(self.input),
            file: self.file,
            manifest,
            trailer,
            sources,
            unknown_source,
            lanes,
            events,
            by_lane,
            truncated,
            damage: Mutex::new(self.damage),
        })
    }

    fn load_parts(&mut self, entries: &[IndexEntry]) -> Result<Parts, TraceError> {
        let mut scratch = Scratch::new().map_err(|e| self.io(e))?;
        let mut parts = Parts {
            manifest: None,
            trailer: None,
            sources: Table::new(Vec::new()),
            lanes: Table::new(Vec::new()),
            totals: Table::new(Vec::new()),
            nodes: Table::new(Vec::new()),
            sources_lost: false,
        };
        for entry in entries {
            if matches!(entry.kind, Kind::Events | Kind::Index | Kind::Other(_)) {
                continue;
            }
            let read = match self.input.load(entry, &mut scratch) {
                Ok((_, raw)) => parts.take(entry.kind, raw),
                Err(Fault::Damaged(why)) => Err(why),
                Err(Fault::Io(source)) => return Err(self.io(source)),
            };
            if let Err(why) = read {
                parts.sources_lost |= entry.kind == Kind::Sources;
                self.note(Damage::of(entry, why));
            }
        }
        Ok(parts)
    }

    fn note(&mut self, damage: Damage) {
        self.damage.entry(damage.offset).or_insert(damage);
    }

    fn io(&self, source: io::Error) -> TraceError {
        TraceError::Io { what: "read", file: self.file.clone(), source }
    }

    fn foreign(&self, start: &[u8]) -> TraceError {
        TraceError::NotATrace { file: self.file.clone(), looks_like: sniff::looks_like(start) }
    }

    fn beyond_reading(&self, offset: u64, why: &str) -> TraceError {
        TraceError::Damaged { file: self.file.clone(), offset, why: why.to_owned() }
    }
}

impl Parts {
    fn take(&mut self, kind: Kind, raw: &[u8]) -> Result<(), String> {
        let wrong = |error: serde_json::Error| format!("its JSON is wrong: {error}");
        match kind {
            Kind::Manifest if self.manifest.is_some() => Err("it is a second one".to_owned()),
            Kind::Manifest => {
                let manifest: Manifest = serde_json::from_slice(raw).map_err(wrong)?;
                self.lanes = Table::new(manifest.lanes.clone());
                self.manifest = Some(manifest);
                Ok(())
            }
            Kind::Trailer => {
                self.trailer = Some(serde_json::from_slice(raw).map_err(wrong)?);
                Ok(())
            }
            Kind::Sources => self.sources.add_json(raw),
            Kind::Lanes => self.lanes.add_json(raw),
            Kind::Totals => self.totals.add_json(raw),
            Kind::Nodes => self.nodes.add_json(raw),
            Kind::Events | Kind::Index | Kind::Other(_) => Ok(()),
        }
    }
}
