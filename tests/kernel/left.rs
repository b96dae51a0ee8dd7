//! The kernel's lists of BPF programs, maps, links and pins: none of ours may be left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::support::{Needs, patience};

/// Program types in the object, by the kernel's names.
const KINDS: [&str; 3] = ["_RAW_TRACEPOINT", "_TRACING", "_PERF_EVENT"];
/// Maps of the object.
const MAPS: [&str; 5] = ["STATE", "SENDERS", "TASKS", "CGROUPS", "RING"];
const PINS: &str = "/sys/fs/bpf";

/// All loaded objects of our types, by kernel id.
#[derive(Default)]
pub struct Loaded {
    programs: BTreeMap<u32, String>,
    maps: BTreeMap<u32, String>,
    /// The program of each link.
    links: BTreeMap<u32, u32>,
    pins: BTreeSet<PathBuf>,
}

impl Loaded {
    pub fn now() -> Result<Loaded> {
        let mut loaded = Loaded::default();
        // Without permission to list there is none to load.
        if !Needs::Root.are_met() {
            return Ok(loaded);
        }
        // Objects that disappear during the listing are ignored.
        for program in aya::programs::loaded_programs().flatten() {
            let kind = format!("{:?}", program.program_type());
            if KINDS.iter().any(|ours| kind.ends_with(ours)) {
                let name = program.name_as_str().unwrap_or_default().to_owned();
                loaded.programs.insert(program.id(), name);
            }
        }
        for map in aya::maps::loaded_maps().flatten() {
            if let Some(name) = map.name_as_str().filter(|name| MAPS.contains(name)) {
                loaded.maps.insert(map.id(), name.to_owned());
            }
        }
        for link in aya::programs::loaded_links().flatten() {
            loaded.links.insert(link.id(), link.program_id());
        }
        let pins = fs::read_dir(PINS).into_iter().flatten().flatten();
        loaded.pins.extend(pins.map(|entry| entry.path()));
        Ok(loaded)
    }

    /// Fails if there are new objects that do not go away.
    pub fn nothing_new(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let new = Loaded::now()?.without(self);
            if new.is_empty() {
                return Ok(());
            }
            // The kernel frees programs shortly after the last reference is dropped.
            ensure!(start.elapsed() < patience(), "left in the kernel: {}", new.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether one of our programs is loaded.
    pub fn has_programs_beyond(&self, before: &Loaded) -> bool {
        self.programs.keys().any(|id| !before.programs.contains_key(id))
    }

    fn without(mut self, before: &Loaded) -> Loaded {
        self.programs.retain(|id, _| !before.programs.contains_key(id));
        self.maps.retain(|id, _| !before.maps.contains_key(id));
        // Others may attach programs meanwhile.
        let programs = &self.programs;
        self.links.retain(|_, program| programs.contains_key(program));
        self.pins.retain(|pin| !before.pins.contains(pin));
        self
    }

    fn is_empty(&self) -> bool {
        let Loaded { programs, maps, links, pins } = self;
        programs.is_empty() && maps.is_empty() && links.is_empty() && pins.is_empty()
    }

    fn said(&self) -> String {
        let Loaded { programs, maps, links, pins } = self;
        format!("programs {programs:?}, maps {maps:?}, links {links:?}, pins {pins:?}")
    }
}
