//! The framing of a Parquet file: row groups, then a footer that describes them.

use std::io::Write;

use super::column::{Column, Kind, Shape};
use super::thrift::Thrift;
use crate::export::ExportError;

const MAGIC: &[u8; 4] = b"PAR1";
const ZSTD: i32 = 6;
/// The same as for recordings.
const LEVEL: i32 = 3;

const PLAIN: i32 = 0;
const RLE: i32 = 3;
const RLE_DICTIONARY: i32 = 8;

/// The type of a string column for older readers.
const UTF8: i32 = 0;

#[derive(Clone, Copy)]
enum Page {
    Dictionary,
    Data { encoding: i32 },
}

/// A column chunk as described in the footer.
struct Chunk {
    values: usize,
    dictionary_at: Option<u64>,
    data_at: u64,
    compressed: u64,
    uncompressed: u64,
}

struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

pub(super) struct File<'a, W> {
    out: &'a mut W,
    shapes: &'static [Shape],
    compressor: zstd::bulk::Compressor<'static>,
    at: u64,
    groups: Vec<Group>,
}

impl<'a, W: Write> File<'a, W> {
    pub(super) fn start(
        out: &'a mut W,
        shapes: &'static [Shape],
    ) -> Result<File<'a, W>, ExportError> {
        let compressor = zstd::bulk::Compressor::new(LEVEL)?;
        let mut file = File { out, shapes, compressor, at: 0, groups: Vec::new() };
        file.send(MAGIC)?;
        Ok(file)
    }

    /// Writes the collected rows, in the order of the shapes.
    pub(super) fn group(&mut self, columns: &[Column], rows: usize) -> Result<(), ExportError> {
        let mut chunks = Vec::new();
        for column in columns {
            let at = self.at;
            let mut uncompressed = 0;
            let dictionary = column.dictionary();
            if let Some((page, values)) = &dictionary {
                uncompressed += self.page(page, Page::Dictionary, *values)?;
            }
            let data_at = self.at;
            let encoding = if dictionary.is_some() { RLE_DICTIONARY } else { PLAIN };
            uncompressed += self.page(&column.page(), Page::Data { encoding }, rows)?;
            chunks.push(Chunk {
                values: rows,
                dictionary_at: dictionary.map(|_| at),
                data_at,
                compressed: self.at - at,
                uncompressed,
            });
        }
        self.groups.push(Group { rows, chunks });
        Ok(())
    }

    /// Writes a page and returns its size before compression, header included.
    fn page(&mut self, content: &[u8], kind: Page, values: usize) -> Result<u64, ExportError> {
        let packed = self.compressor.compress(content)?;
        let mut header = Thrift::default();
        let (number, description) = match kind {
            Page::Data { .. } => (0, 5),
            Page::Dictionary => (2, 7),
        };
        header.i32(1, number);
        header.i32(2, content.len() as i32);
        header.i32(3, packed.len() as i32);
        header.structure(description, |inner| {
            inner.i32(1, values as i32);
            match kind {
                Page::Dictionary => inner.i32(2, PLAIN),
                Page::Data { encoding } => {
                    inner.i32(2, encoding);
                    inner.i32(3, RLE);
                    inner.i32(4, RLE);
                }
            }
        });
        let header = header.finish();
        self.send(&header)?;
        self.send(&packed)?;
        Ok((header.len() + content.len()) as u64)
    }

    /// Writes the footer; `about` is the key-value metadata of the file.
    pub(super) fn finish(mut self, about: &[(&str, String)]) -> Result<(), ExportError> {
        let footer = self.footer(about);
        let length = (footer.len() as u32).to_le_bytes();
        self.send(&footer)?;
        self.send(&length)?;
        self.send(MAGIC)
    }

    fn footer(&self, about: &[(&str, String)]) -> Vec<u8> {
        let rows: usize = self.groups.iter().map(|group| group.rows).sum();
        let mut footer = Thrift::default();
        footer.i32(1, 2);
        // The root element comes first, then its children.
        let elements: Vec<Option<&Shape>> =
            std::iter::once(None).chain(self.shapes.iter().map(Some)).collect();
        footer.structures(2, &elements, |element, shape| match shape {
            None => {
                element.text(4, "detour");
                element.i32(5, self.shapes.len() as i32);
            }
            Some(shape) => {
                element.i32(1, shape.kind as i32);
                element.i32(3, i32::from(shape.optional));
                element.text(4, shape.name);
                if shape.kind == Kind::Text {
                    element.i32(6, UTF8);
                    element.structure(10, |logical| logical.structure(1, |_| {}));
                }
            }
        });
        footer.i64(3, rows as i64);
        footer.structures(4, &self.groups, |element, group| {
            let chunks: Vec<(&Shape, &Chunk)> = self.shapes.iter().zip(&group.chunks).collect();
            element.structures(1, &chunks, |element, (shape, chunk)| {
                element.i64(2, chunk.data_at as i64);
                element.structure(3, |meta| describe(meta, shape, chunk));
            });
            let bytes: u64 = group.chunks.iter().map(|chunk| chunk.uncompressed).sum();
            element.i64(2, bytes as i64);
            element.i64(3, group.rows as i64);
        });
        footer.structures(5, about, |element, (key, value)| {
            element.text(1, key);
            element.text(2, value);
        });
        footer.text(6, concat!("detour version ", env!("CARGO_PKG_VERSION")));
        footer.finish()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn describe(meta: &mut Thrift, shape: &Shape, chunk: &Chunk) {
    let encodings = match chunk.dictionary_at {
        Some(_) => [PLAIN, RLE, RLE_DICTIONARY].as_slice(),
        None => &[PLAIN, RLE],
    };
    meta.i32(1, shape.kind as i32);
    meta.i32s(2, encodings);
    meta.texts(3, &[shape.name]);
    meta.i32(4, ZSTD);
    meta.i64(5, chunk.values as i64);
    meta.i64(6, chunk.uncompressed as i64);
    meta.i64(7, chunk.compressed as i64);
    meta.i64(9, chunk.data_at as i64);
    if let Some(at) = chunk.dictionary_at {
        meta.i64(11, at as i64);
    }
}
