//! The kernel's type information: it is read or refused, and whatever was read can be asked for fields.

#![no_main]

// The file itself: the rest of the recorder is not needed for it.
#[path = "../../recorder/src/linux/btf.rs"]
#[allow(dead_code)]
mod btf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(btf) = btf::Btf::parse(data.to_vec()) else { return };
    for structure in ["task_struct", "outer", ""] {
        for field in ["pid", "comm", "a", "b", ""] {
            let _ = btf.offset(structure, field);
        }
    }
});
