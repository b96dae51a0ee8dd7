//! `cargo run --example import -- TEXT_DIR OUT_DIR`: imports a liballprof trace and prints its profile.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("requires TEXT_DIR and OUT_DIR".into());
    };
    let import = program::import(Path::new(&from), Path::new(&to))?;
    println!("{import:#?}");
    let profile = program::profile(&program::open(Path::new(&to))?, 0)?;
    println!("{}", program::text(&profile, 80));
    std::fs::write(Path::new(&to).join("profile.json"), serde_json::to_string_pretty(&profile)?)?;
    Ok(())
}
