//! `cargo run --release --example report -- DIR [WIDTH]`: the profile of a trace as text.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("requires a directory")?;
    let width = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(80);
    let program = program::open(Path::new(&dir))?;
    print!("{}", program::text(&program::profile(&program, 0)?, width));
    Ok(())
}
