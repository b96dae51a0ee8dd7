//! `cargo run --release --example schedule_speed -- DIR [EVENTS] [RANKS] [REPEATS]`: writes a trace and measures how
//! fast it becomes a schedule, in CPU time of one core. DIR must not exist and is removed. Prints JSON.

#[path = "../../program/examples/made/mod.rs"]
mod made;

use application::{NoNoise, Options, Plan, Rules, read};
use made::{Ranks, directory, number, write};

/// CPU time of this thread in seconds: the machine may be shared.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = &directory()?;
    let count = number(2, 8).max(2);
    let ranks =
        Ranks { count: count as i32, hosts: 1, events: number(1, 10_000_000) / count, skew: 0 };
    let mut events = 0;
    for rank in 0..ranks.count {
        events += write(dir, rank, &ranks)?;
    }
    let (mut reading, mut building) = (f64::INFINITY, f64::INFINITY);
    let mut operations = 0;
    for _ in 0..number(3, 3).max(1) {
        let begin = cpu();
        let program = program::open(dir)?;
        let clocks = program::clocks(&program, 1)?;
        let application = read(&program, &clocks, &Options::default(), &NoNoise)?;
        let read = cpu();
        let rules = Rules::default();
        let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: false, net: None };
        let schedule = application.schedule(&plan)?;
        operations = schedule.operations();
        let built = cpu();
        if built - begin < reading + building {
            (reading, building) = (read - begin, built - read);
        }
    }
    std::fs::remove_dir_all(dir)?;
    let rate = events as f64 / (reading + building);
    println!(
        "{{\"events\": {events}, \"operations\": {operations}, \"read_s\": {reading:.3}, \"build_s\": {building:.3}, \
         \"events_per_s\": {rate:.0}}}"
    );
    Ok(())
}
