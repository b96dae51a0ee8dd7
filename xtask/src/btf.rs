//! Sorts the BTF of an object into an order that does not depend on the machine.
//!
//! LLVM emits structs that are pointed to but never defined last (`FWD`), in the order of a map keyed
//! by address: it depends on the allocator, and therefore on path lengths and the C library. Nothing
//! else in the object varies. These declarations, and their names at the end of the string table, are
//! sorted here; sizes and all other ids stay the same.

use std::{collections::BTreeMap, ops::Range};

use anyhow::{Context, Result, bail, ensure};

const MAGIC: u32 = 0xeb9f;
/// A declaration without a body.
const FWD: u32 = 7;
/// Bytes of a type before the part that depends on its kind.
const TYPE_BYTES: usize = 12;

/// Sorts the section `.BTF` of a 64-bit little-endian ELF file.
pub fn sort_object(object: &mut [u8]) -> Result<()> {
    let section = section(object, b".BTF").context("the object has no readable section .BTF")?;
    sort(&mut object[section]).context("cannot parse the section .BTF")
}

fn section(elf: &[u8], name: &[u8]) -> Option<Range<usize>> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = long(elf, 0x28)?;
    let (entry, count) = (short(elf, 0x3a)?, short(elf, 0x3c)?);
    let body = |index: usize| -> Option<Range<usize>> {
        let header = table + index * entry;
        let start = long(elf, header + 0x18)?;
        Some(start..start.checked_add(long(elf, header + 0x20)?)?)
    };
    let names = elf.get(body(short(elf, 0x3e)?)?)?;
    let is_it = |index: &usize| {
        let offset = word(elf, table + index * entry);
        offset.and_then(|offset| string(names, offset)) == Some(name)
    };
    let found = body((0..count).find(is_it)?)?;
    elf.get(found.clone()).map(|_| found)
}

/// Positions in a BTF section.
#[derive(Default)]
struct Layout {
    /// Ids and positions of forward declarations.
    forward: Vec<(u32, usize)>,
    /// Positions that hold the id of a type, with the id of the type they are part of.
    types: Vec<(usize, u32)>,
    /// Positions that hold a name.
    names: Vec<usize>,
}

fn sort(btf: &mut [u8]) -> Result<()> {
    ensure!(word(btf, 0).map(|word| word & 0xffff) == Some(MAGIC as usize), "bad magic number");
    let field = |index: usize| word(btf, 4 * index).context("the header is truncated");
    let header = field(1)?;
    let types = header + field(2)?..header + field(2)? + field(3)?;
    let strings = header + field(4)?..header + field(4)? + field(5)?;
    ensure!(types.end <= btf.len() && strings.end <= btf.len(), "the section is truncated");
    let layout = layout(btf, types)?;

    // Equal names are distinguished by the first type that refers to them; those ids do not vary.
    let mut keyed = Vec::new();
    for &(id, position) in &layout.forward {
        let name = read(btf, position)? as usize;
        let name = string(&btf[strings.clone()], name).context("a name is out of range")?.to_vec();
        let users = layout.types.iter().filter(|(at, _)| word(btf, *at) == Some(id as usize));
        keyed.push((name, read(btf, position + 4)?, users.map(|(_, user)| *user).min(), id));
    }
    keyed.sort();
    let moved_names = sort_names(btf, &strings, &layout)?;
    let mut moved_ids = BTreeMap::new();
    let mut bodies = Vec::new();
    for ((.., old), (new, _)) in keyed.iter().zip(&layout.forward) {
        moved_ids.insert(*old, *new);
        let from = layout.forward.iter().find(|(id, _)| id == old);
        let (_, from) = from.context("a declaration is missing")?;
        bodies.push(btf[*from..from + TYPE_BYTES].to_vec());
    }
    for ((_, position), body) in layout.forward.iter().zip(bodies) {
        btf[*position..position + TYPE_BYTES].copy_from_slice(&body);
    }
    for (positions, moved) in [
        (layout.types.iter().map(|(at, _)| *at).collect::<Vec<_>>(), moved_ids),
        (layout.names, moved_names),
    ] {
        for position in positions {
            if let Some(new) = moved.get(&read(btf, position)?) {
                btf[position..position + 4].copy_from_slice(&new.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Sorts the declarations' names at the end of the string table; returns old and new offsets.
fn sort_names(
    btf: &mut [u8],
    strings: &Range<usize>,
    layout: &Layout,
) -> Result<BTreeMap<u32, u32>> {
    let mut offsets = Vec::new();
    for (_, position) in &layout.forward {
        offsets.push(read(btf, *position)?);
    }
    offsets.sort_unstable();
    offsets.dedup();
    let table = &mut btf[strings.clone()];
    // A name that was used earlier is further up and stays there.
    let mut start = table.len();
    let mut run = Vec::new();
    while let Some(offset) = offsets.pop() {
        let name = string(table, offset as usize).context("a name is out of range")?;
        if offset as usize + name.len() + 1 != start {
            break;
        }
        start = offset as usize;
        run.push((name.to_vec(), offset));
    }
    run.sort();
    let mut moved = BTreeMap::new();
    for (name, old) in run {
        moved.insert(old, start as u32);
        table[start..start + name.len()].copy_from_slice(&name);
        table[start + name.len()] = 0;
        start += name.len() + 1;
    }
    Ok(moved)
}

fn layout(btf: &[u8], types: Range<usize>) -> Result<Layout> {
    let mut layout = Layout::default();
    let mut at = types.start;
    let mut id = 0;
    while at < types.end {
        id += 1;
        let info = read(btf, at + 4)?;
        let (kind, parts) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        layout.names.push(at);
        // Pointer, typedef, volatile, const, restrict, function, prototype, variable, tags.
        if matches!(kind, 2 | 8..=14 | 17 | 18) {
            layout.types.push((at + 8, id));
        }
        if kind == FWD {
            layout.forward.push((id, at));
        }
        let tail = at + TYPE_BYTES;
        // Bytes of each part, and the offsets of a name and of types within it.
        let (count, size, name, inner): (usize, usize, Option<usize>, &[usize]) = match kind {
            2 | FWD..=12 | 16 | 18 => (0, 0, None, &[]),
            1 | 14 | 17 => (1, 4, None, &[]),
            3 => (1, 12, None, &[0, 4]),
            4 | 5 => (parts, 12, Some(0), &[4]),
            6 => (parts, 8, Some(0), &[]),
            13 => (parts, 8, Some(0), &[4]),
            15 => (parts, 12, None, &[0]),
            19 => (parts, 12, Some(0), &[]),
            _ => bail!("type {id} has the unknown kind {kind}"),
        };
        for part in (0..count).map(|index| tail + index * size) {
            layout.names.extend(name.map(|offset| part + offset));
            layout.types.extend(inner.iter().map(|offset| (part + offset, id)));
        }
        at = tail + count * size;
    }
    ensure!(at == types.end, "the last type is truncated");
    Ok(layout)
}

fn read(bytes: &[u8], at: usize) -> Result<u32> {
    word(bytes, at).map(|word| word as u32).with_context(|| format!("out of range at byte {at}"))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize)
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
    // Far larger than any object, and sums do not overflow.
    usize::try_from(u64::from_le_bytes(bytes)).ok().filter(|value| *value < 1 << 40)
}

fn string(table: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = table.get(offset..)?;
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pointers, and the declarations they point to, in either order.
    fn section(names: [&str; 2], pointers: [u32; 2]) -> Vec<u8> {
        let mut strings = b"\0int\0".to_vec();
        let mut offsets = Vec::new();
        for name in names {
            offsets.push(strings.len() as u32);
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
        }
        let int = [1, 1 << 24, 4, 32];
        let pointer = |to: u32| [0, 2 << 24, to];
        let forward = |name: u32| [name, 7 << 24, 0];
        let mut types: Vec<u32> = int.to_vec();
        types.extend(pointer(pointers[0]).into_iter().chain(pointer(pointers[1])));
        types.extend(forward(offsets[0]).into_iter().chain(forward(offsets[1])));
        let header =
            [0x1_eb9f, 24, 0, 4 * types.len() as u32, 4 * types.len() as u32, strings.len() as u32];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn the_order_of_declarations_does_not_show() {
        let mut one = section(["CpuState", "Context"], [4, 5]);
        let mut other = section(["Context", "CpuState"], [5, 4]);
        assert_ne!(one, other);
        sort(&mut one).unwrap();
        sort(&mut other).unwrap();
        assert_eq!(one, other);
        assert_eq!(one, section(["Context", "CpuState"], [5, 4]));
    }

    #[test]
    fn what_points_where_still_shows() {
        let mut one = section(["CpuState", "Context"], [4, 5]);
        let mut other = section(["CpuState", "Context"], [5, 4]);
        sort(&mut one).unwrap();
        sort(&mut other).unwrap();
        assert_ne!(one, other);
    }

    #[test]
    fn a_section_that_is_cut_off_or_foreign_is_refused() {
        let whole = section(["CpuState", "Context"], [4, 5]);
        for length in 0..whole.len() {
            assert!(sort(&mut whole[..length].to_vec()).is_err(), "{length} bytes");
        }
        assert!(sort_object(&mut b"not an object".to_vec()).is_err());
    }
}
