//! What the targets in `fuzz/` do with their input. They need a nightly compiler and an afternoon; here
//! everything is compiled and run over the seeds with every test.

pub mod advice;
pub mod btf;
pub mod goal;
pub mod import;
pub mod program;
pub mod samples;
pub mod schedule;
pub mod traces;

/// Panics on what must not be.
pub type Case = fn(&[u8]);

/// A target of the same name in `fuzz/` for each, and seeds.
pub const CASES: [(&str, Case); 10] = [
    ("advice", advice::run),
    ("btf", btf::run),
    ("goal_binary", goal::binary),
    ("goal_text", goal::text),
    ("import", import::run),
    ("program", program::run),
    ("samples", samples::run),
    ("schedule", schedule::run),
    ("trace_file", traces::file),
    ("trace_frames", traces::frames),
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_case_takes_its_seeds_whole_and_cut_short() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
        for (name, case) in CASES {
            let mut count = 0;
            for seed in fs::read_dir(seeds.join(name)).expect("seeds") {
                let seed = fs::read(seed.expect("a seed").path()).expect("a file");
                let step = seed.len().div_ceil(40).max(1);
                (0..=seed.len()).step_by(step).for_each(|end| case(&seed[..end]));
                case(&seed);
                count += 1;
            }
            assert!(count > 0, "{name} has no seeds");
        }
    }
}
