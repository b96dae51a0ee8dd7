//! `detour dist` of a large text file: its time and its memory. Best of several, because disturbances only make
//! it slower.

use std::{
    fs::File,
    io::{BufWriter, Write},
    time::Instant,
};

use anyhow::{Context, Result};

use super::{Bench, Figure, grouped};
use crate::exec;

/// Numbers with three digits after the point around three places, as of a network with three paths.
fn write(out: &mut impl Write, samples: u64) -> std::io::Result<()> {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for _ in 0..samples {
        let bits = draw();
        let centre =
            [4600, 4600, 4600, 4600, 4600, 4600, 5700, 5700, 5700, 7500][(bits % 10) as usize];
        // The sum of four, which is almost normal.
        let noise: u64 = (0..4).map(|part| (bits >> (8 + 12 * part)) % 200).sum();
        let ns = centre + noise - 400;
        writeln!(out, "{}.{:03}", ns / 1000, ns % 1000)?;
    }
    Ok(())
}

pub fn speed(bench: &Bench) -> Result<Vec<Figure>> {
    let samples: u64 = if bench.extent.repeats > 1 { 100_000_000 } else { 10_000_000 };
    let path = bench.file("samples.txt");
    let mut file = BufWriter::new(File::create(&path).context("cannot write the samples")?);
    write(&mut file, samples).and_then(|()| file.flush()).context("cannot write the samples")?;
    let (mut seconds, mut peak) = (f64::INFINITY, u64::MAX);
    for _ in 0..bench.extent.repeats {
        let begin = Instant::now();
        peak = peak.min(exec::peak_memory(bench.detour().arg("dist").arg(&path).arg("--json"))?);
        seconds = seconds.min(begin.elapsed().as_secs_f64());
    }
    std::fs::remove_file(&path).context("cannot remove the samples")?;
    let scaled = seconds * 1e8 / samples as f64;
    Ok(vec![
        Figure::judged(
            "distribution of 10^8 numbers in a text file",
            "< 5 s",
            format!("{scaled:.1} s ({} samples per second)", grouped(samples as f64 / seconds)),
            scaled < 5.0,
        ),
        Figure::counted(
            "its memory, however many",
            "<= 100 MB",
            format!("{:.0} MB at {} samples", peak as f64 / 1e6, grouped(samples as f64)),
            peak as f64 <= 100e6,
        ),
    ])
}
