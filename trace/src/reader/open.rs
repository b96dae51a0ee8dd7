//! Opens a trace: header, then index or scan, then the tables.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek};
use std::sync::Mutex;

use super::frames::{Fault, Input, Scratch};
use super::index::{Found, Index};
use super::tables::{self, Table};
use super::totals::Totals;
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
    let (found, truncated) = opening.find_frames()?;
    opening.finish(found, truncated)
}

/// Results repeat the host's name for every lane, and imported files have their path there.
const LONGEST_HOST: usize = 4096;

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
                return Err(self.beyond_reading(0, "the 16-byte header is incomplete"));
            }
            return Err(self.foreign(&start));
        };
        let Some(version) = v1::version_of(header) else { return Err(self.foreign(&start)) };
        let sound = v1::header_is_sound(header);
        match version {
            v1::VERSION if sound => {}
            v1::VERSION => self.note(Damage::plain(0, "header", "checksum mismatch")),
            found if sound && found > v1::VERSION => {
                let (file, known) = (self.file.clone(), v1::VERSION);
                return Err(TraceError::NewerVersion { file, found, known });
            }
            _ => return Err(self.beyond_reading(8, "the version number is corrupt")),
        }
        Ok(())
    }

    /// All frames, and why the file ends early if it does.
    fn find_frames(&mut self) -> Result<(Found, Option<String>), TraceError> {
        let footer = self.footer().map_err(|e| self.io(e))?;
        if let Some(footer) = footer {
            match self.read_index(footer) {
                Ok(found) => return Ok((found, None)),
                Err(Fault::Io(source)) => return Err(self.io(source)),
                Err(Fault::Damaged(why)) => {
                    self.note(Damage::plain(footer.index_offset, "index", why));
                }
            }
        }
        let end = self.input.len() - if footer.is_some() { FOOTER_LEN as u64 } else { 0 };
        let (found, stopped_at, why) = self.scan(end)?;
        let truncated = match (footer, why) {
            (Some(_), None) => None,
            (_, why) => Some(format!(
                "the file has no index ({}): read up to byte {stopped_at} of {}; the recorder was \
                 killed, or is still running",
                why.unwrap_or_else(|| "it ends after a complete block".to_owned()),
                self.input.len()
            )),
        };
        Ok((found, truncated))
    }

    fn footer(&mut self) -> io::Result<Option<Footer>> {
        let Some(offset) = self.input.len().checked_sub(FOOTER_LEN as u64) else { return Ok(None) };
        let mut bytes = [0; FOOTER_LEN];
        let whole = self.input.read_at(offset, &mut bytes)?;
        Ok(Footer::parse(&bytes).filter(|_| whole))
    }

    /// The index, if all of it is valid and its frames follow each other inside the file.
    fn read_index(&mut self, footer: Footer) -> Result<Found, Fault> {
        let mut scratch = Scratch::new().map_err(Fault::Io)?;
        let mut found = Found::default();
        let mut free_from = HEADER_LEN as u64;
        for part in self.index_parts(footer)? {
            let (_, raw) = self.input.load(&part, &mut scratch)?;
            // An index at the end only describes frames before it.
            let end = part.offset.min(footer.index_offset);
            let rows =
                v1::parse_index(raw).ok_or_else(|| Fault::Damaged("incomplete row".to_owned()))?;
            for row in rows {
                let row = row.ok_or_else(|| Fault::Damaged("invalid row".to_owned()))?;
                // Rows that do not overlap bound their number by the size of the file.
                if row.offset < free_from || row.end() > end {
                    return Err(Fault::Damaged("a row points outside the blocks".to_owned()));
                }
                free_from = row.end();
                found.add(row);
            }
        }
        Ok(found)
    }

    /// The frames of the index in file order: all at the end, or parts that each refer to the previous
    /// one.
    fn index_parts(&mut self, footer: Footer) -> Result<Vec<IndexEntry>, Fault> {
        let mut parts: Vec<IndexEntry> = Vec::new();
        let misplaced = || Fault::Damaged("another frame is in its place".to_owned());
        let mut at = footer.index_offset;
        let first = self.input.frame_header(at)?;
        for _ in 0..footer.index_frames {
            let header = self.input.frame_header(at)?;
            let part = header.entry_at(at);
            match header.kind {
                kind if kind != first.kind => return Err(misplaced()),
                Kind::Index => at = part.end(),
                // Strictly towards the start of the file, so that it terminates.
                Kind::IndexPart if header.part_before() < at => at = header.part_before(),
                _ => return Err(misplaced()),
            }
            parts.push(part);
        }
        if first.kind == Kind::IndexPart {
            parts.reverse();
            let in_order = parts.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
            if at != 0 || !in_order {
                return Err(Fault::Damaged("its parts are not linked to each other".to_owned()));
            }
        }
        Ok(parts)
    }

    /// Follows the frames from the start without reading their payloads.
    fn scan(&mut self, end: u64) -> Result<(Found, u64, Option<String>), TraceError> {
        let mut found = Found::default();
        let mut at = HEADER_LEN as u64;
        while at < end {
            match self.input.frame_header(at) {
                Ok(header) => {
                    let entry = header.entry_at(at);
                    at = entry.end();
                    found.add(entry);
                }
                Err(Fault::Io(source)) => return Err(self.io(source)),
                Err(Fault::Damaged(why)) => return Ok((found, at, Some(why))),
            }
        }
        Ok((found, at, None))
    }

    fn finish(
        mut self,
        mut found: Found,
        truncated: Option<String>,
    ) -> Result<Reader<R>, TraceError> {
        let parts = self.load_parts(&found.others)?;
        let progress = std::mem::take(&mut found.progress);
        let Some(mut manifest) = parts.manifest else {
            let why = "no valid manifest: the recording was stopped before it began, or the \
                       beginning of the file is damaged";
            return Err(self.beyond_reading(HEADER_LEN as u64, why));
        };
        manifest.nodes.extend(parts.nodes.present());
        let hosts = manifest.nodes.iter().map(|node| &node.host).chain([&manifest.host]);
        if hosts.map(String::len).max() > Some(LONGEST_HOST) {
            let why = format!("a host name of more than {LONGEST_HOST} bytes");
            return Err(self.beyond_reading(HEADER_LEN as u64, &why));
        }
        let mut lanes = parts.lanes;
        let mut events = found.lanes();
        events.retain(|(lane, blocks)| match lanes.grow_to(*lane as usize + 1) {
            Ok(()) => true,
            Err(why) => {
                for entry in blocks.entries(*lane) {
                    self.note(Damage::of(&entry, format!("lane: {why}")));
                }
                false
            }
        });
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
        let totals = Totals::new(lanes.len(), trailer.as_ref());
        let truncated = truncated.or_else(|| {
            let why = trailer.as_ref()?.cut_off.as_ref()?;
            Some(format!("a write failed, and nothing after that is in the file: {why}"))
        });
        let cut_off = match trailer {
            Some(_) => Vec::new(),
            None => {
                let last_ns = events.iter().map(|(lane, blocks)| (*lane, blocks.last_ns(*lane)));
                progress.windows(&lanes, last_ns)
            }
        };
        Ok(Reader {
            input: Mutex::new(self.input),
            file: self.file,
            manifest,
            trailer,
            sources,
            unknown_source,
            lanes,
            index: Index::new(events),
            totals,
            cut_off,
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
            if matches!(entry.kind, Kind::Index | Kind::IndexPart | Kind::Other(_)) {
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
        let wrong = |error: serde_json::Error| format!("invalid JSON: {error}");
        match kind {
            Kind::Manifest if self.manifest.is_some() => Err("second manifest".to_owned()),
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
            Kind::Events | Kind::Index | Kind::IndexPart | Kind::Settled | Kind::Other(_) => Ok(()),
        }
    }
}
