//! The kernel's type information: it is read or refused, and whatever was read can be asked for fields.

// The file itself: the rest of the recorder is not needed for it.
#[path = "../../recorder/src/kernel/btf.rs"]
#[allow(dead_code)]
mod reader;

pub fn run(data: &[u8]) {
    let Ok(btf) = reader::Btf::parse(data.to_vec()) else { return };
    for structure in ["task_struct", "outer", ""] {
        for field in ["pid", "comm", "a", "b", ""] {
            let _ = btf.offset(structure, field);
        }
    }
}
