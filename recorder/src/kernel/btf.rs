//! A small BTF reader: finds the offset of a field in a kernel structure.
//!
//! aya finds functions and types by name but does not expose members. The input is the bytes of
//! `/sys/kernel/btf/vmlinux`, the result byte offsets. The input is not trusted: every access is
//! checked.

use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    #[error("not BTF: wrong magic number")]
    Magic,
    #[error("BTF is truncated at byte {0}")]
    Truncated(usize),
    #[error("unknown BTF type kind {0}")]
    UnknownKind(u32),
    #[error("the kernel has no struct {0}")]
    NoStruct(String),
    #[error("the kernel's struct {0} has no field {1}")]
    NoField(String, String),
}

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Anonymous members nest; in a hostile file they could form a cycle.
const MAX_NESTING: u32 = 16;
/// There could also be many at every level. The largest structures have some hundreds.
const MAX_MEMBERS: u32 = 1 << 16;

pub struct Btf {
    data: Vec<u8>,
    strings: usize,
    /// Offset of each type, by id; id 0 is void.
    types: Vec<usize>,
}

/// The fixed part of a type.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    entries: usize,
    bitfields: bool,
    /// Size, or the referenced type.
    target: u32,
}

impl Btf {
    pub fn parse(data: Vec<u8>) -> Result<Btf, BtfError> {
        if data.len() < 24 || data[..2] != [0x9f, 0xeb] {
            return Err(BtfError::Magic);
        }
        let mut btf = Btf { data, strings: 0, types: vec![0] };
        let header = btf.word(4)? as usize;
        let types = header.saturating_add(btf.word(8)? as usize);
        let end = types.saturating_add(btf.word(12)? as usize);
        btf.strings = header.saturating_add(btf.word(16)? as usize);
        let mut at = types;
        while at < end {
            btf.types.push(at);
            let ty = btf.type_at(at)?;
            at += 12
                + match ty.kind {
                    kind::INT | kind::VAR | kind::DECL_TAG => 4,
                    kind::ARRAY => 12,
                    kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * ty.entries,
                    kind::ENUM | kind::FUNC_PROTO => 8 * ty.entries,
                    2 | 7..=12 | 16 | 18 => 0,
                    unknown => return Err(BtfError::UnknownKind(unknown)),
                };
        }
        Ok(btf)
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = at
            .checked_add(4)
            .and_then(|end| self.data.get(at..end))
            .ok_or(BtfError::Truncated(at))?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn type_at(&self, at: usize) -> Result<Type, BtfError> {
        let info = self.word(at + 4)?;
        Ok(Type {
            at,
            name: self.word(at)?,
            kind: (info >> 24) & 0x1f,
            entries: (info & 0xffff) as usize,
            bitfields: info >> 31 == 1,
            target: self.word(at + 8)?,
        })
    }

    fn type_of(&self, id: u32) -> Result<Type, BtfError> {
        let at = *self.types.get(id as usize).ok_or(BtfError::Truncated(id as usize))?;
        self.type_at(at)
    }

    fn name_is(&self, offset: u32, name: &str) -> bool {
        let start = self.strings.saturating_add(offset as usize);
        let end = start.saturating_add(name.len());
        self.data.get(start..end) == Some(name.as_bytes()) && self.data.get(end) == Some(&0)
    }

    fn find(&self, wanted: u32, name: &str) -> Option<Type> {
        self.types[1..].iter().find_map(|&at| {
            let ty = self.type_at(at).ok()?;
            (ty.kind == wanted && self.name_is(ty.name, name)).then_some(ty)
        })
    }

    /// Byte offset of a field, including fields of anonymous members.
    pub fn offset(&self, structure: &str, field: &str) -> Result<u32, BtfError> {
        let ty = self
            .find(kind::STRUCT, structure)
            .ok_or_else(|| BtfError::NoStruct(structure.to_owned()))?;
        self.member(ty, field, 0, &mut 0)?
            .ok_or_else(|| BtfError::NoField(structure.to_owned(), field.to_owned()))
    }

    fn member(
        &self,
        ty: Type,
        field: &str,
        nesting: u32,
        looked_at: &mut u32,
    ) -> Result<Option<u32>, BtfError> {
        if nesting > MAX_NESTING {
            return Ok(None);
        }
        for entry in 0..ty.entries {
            *looked_at += 1;
            if *looked_at > MAX_MEMBERS {
                return Ok(None);
            }
            let at = ty.at + 12 + 12 * entry;
            let name = self.word(at)?;
            let mut bits = self.word(at + 8)?;
            if ty.bitfields {
                bits &= 0x00ff_ffff;
            }
            if self.name_is(name, field) {
                return Ok(Some(bits / 8));
            }
            if self.name_is(name, "") {
                let inner = self.resolve(self.word(at + 4)?)?;
                if matches!(inner.kind, kind::STRUCT | kind::UNION)
                    && let Some(offset) = self.member(inner, field, nesting + 1, looked_at)?
                {
                    return Ok(Some(offset.saturating_add(bits / 8)));
                }
            }
        }
        Ok(None)
    }

    /// Strips typedefs and qualifiers.
    fn resolve(&self, id: u32) -> Result<Type, BtfError> {
        let mut ty = self.type_of(id)?;
        for _ in 0..MAX_NESTING {
            match ty.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    ty = self.type_of(ty.target)?
                }
                _ => break,
            }
        }
        Ok(ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF with `struct outer { struct { u32 a; u32 b; }; u32 c; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0a\0b\0c\0outer\0";
        let mut types: Vec<u32> = Vec::new();
        types.extend([1, 1 << 24, 4, 32]); // id 1: int
        types.extend([0, 4 << 24 | 2, 8, 5, 1, 0, 7, 1, 32]); // id 2: anonymous { a; b }
        types.extend([11, 4 << 24 | 2, 12, 0, 2, 0, 9, 1, 64]); // id 3: outer { anonymous; c }
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let bytes = types.len() as u32 * 4;
        for word in [24, 0, bytes, bytes, strings.len() as u32] {
            data.extend(word.to_le_bytes());
        }
        data.extend(types.iter().flat_map(|w| w.to_le_bytes()));
        data.extend(strings);
        data
    }

    #[test]
    fn fields_of_anonymous_members_are_found() {
        let btf = Btf::parse(sample()).unwrap();
        assert_eq!(btf.offset("outer", "a"), Ok(0));
        assert_eq!(btf.offset("outer", "b"), Ok(4));
        assert_eq!(btf.offset("outer", "c"), Ok(8));
        assert_eq!(btf.offset("outer", "d"), Err(BtfError::NoField("outer".into(), "d".into())));
    }

    /// `struct outer` with as many anonymous members as fit, all of them itself.
    #[test]
    fn members_that_nest_without_end_are_given_up() {
        let mut types: Vec<u32> = vec![1, 4 << 24 | 0xffff, 8];
        types.extend([0, 1, 0].repeat(0xffff));
        let strings = b"\0outer\0";
        let mut data = vec![0x9f, 0xeb, 1, 0];
        let bytes = types.len() as u32 * 4;
        for word in [24, 0, bytes, bytes, strings.len() as u32] {
            data.extend(word.to_le_bytes());
        }
        data.extend(types.iter().flat_map(|w| w.to_le_bytes()));
        data.extend(strings);
        let btf = Btf::parse(data).unwrap();
        assert_eq!(btf.offset("outer", "x"), Err(BtfError::NoField("outer".into(), "x".into())));
    }

    #[test]
    fn damaged_btf_is_an_error_never_a_panic() {
        let good = sample();
        for cut in 0..good.len() {
            if let Ok(btf) = Btf::parse(good[..cut].to_vec()) {
                let _ = btf.offset("outer", "b");
            }
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(btf) = Btf::parse(bad) {
                    let _ = btf.offset("outer", "b");
                }
            }
        }
    }
}
