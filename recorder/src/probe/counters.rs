//! perf counters of the calling thread: an independent check of the detours. Each is optional; a machine
//! without a PMU still counts switches and faults.

use std::{collections::BTreeMap, fs};

use perf_event::{
    Builder, Counter,
    events::{Hardware, Software},
};

pub struct Counters {
    open: Vec<(&'static str, Counter)>,
}

impl Counters {
    /// Opens the available counters for the calling thread on the CPU it is pinned to.
    pub fn open(cpu: u32) -> Counters {
        let mut open = Vec::new();
        let software = [
            ("context_switches", Software::CONTEXT_SWITCHES),
            ("migrations", Software::CPU_MIGRATIONS),
            ("page_faults", Software::PAGE_FAULTS),
        ];
        for (name, event) in software {
            let mut builder = Builder::new().kind(event);
            // Switches happen in the kernel; if it is excluded, the count stays 0.
            builder.include_kernel();
            if let Ok(counter) = builder.build() {
                open.push((name, counter));
            }
        }
        for (name, event) in
            [("cycles", Hardware::CPU_CYCLES), ("instructions", Hardware::INSTRUCTIONS)]
        {
            if let Ok(counter) = Builder::new().kind(event).build() {
                open.push((name, counter));
            }
        }
        if let Some(counter) = smi_counter(cpu) {
            open.push(("smi", counter));
        }
        Counters { open }
    }

    pub fn start(&mut self) {
        for (_, counter) in &mut self.open {
            let _ = counter.enable();
        }
    }

    pub fn stop(&mut self) {
        for (_, counter) in &mut self.open {
            let _ = counter.disable();
        }
    }

    pub fn read(&mut self) -> BTreeMap<String, u64> {
        let mut values = BTreeMap::new();
        for (name, counter) in &mut self.open {
            if let Ok(value) = counter.read() {
                values.insert((*name).to_owned(), value);
            }
        }
        values
    }
}

/// System management interrupts of a CPU, if the machine counts them.
fn smi_counter(cpu: u32) -> Option<Counter> {
    let pmu = "/sys/bus/event_source/devices/msr";
    let kind = fs::read_to_string(format!("{pmu}/type")).ok()?.trim().parse().ok()?;
    let event = fs::read_to_string(format!("{pmu}/events/smi")).ok()?;
    let config = u64::from_str_radix(event.trim().strip_prefix("event=0x")?, 16).ok()?;
    let mut builder = Builder::new().any_pid().one_cpu(cpu as usize);
    builder.include_kernel().include_hv();
    let attributes = builder.attrs_mut();
    attributes.type_ = kind;
    attributes.config = config;
    // This PMU rejects every filter.
    attributes.set_exclude_idle(0);
    builder.build().ok()
}
