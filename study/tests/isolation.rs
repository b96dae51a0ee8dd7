//! The audit of quiet CPUs: every count is of the CPU that it is printed for, and a process is one finding.

#[path = "../../tests/made/mod.rs"]
mod made;

use std::collections::BTreeMap;

use made::{MS, scratch, strike};
use study::{
    decide::{
        advice::Advice,
        isolation::{Audit, Facts, Interruption, audit},
    },
    recording::{open, summary::summarise},
};
use trace::{
    Block, Class, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Source, SourceId, Trailer,
    Writer, cpulist::CpuSet,
};

/// Ten seconds of two audited CPUs: a source with its process, and how often it hits each of them.
fn audited(name: &str, sources: &[(Source, [u64; 2])], facts: &Facts) -> Audit {
    let path = scratch(name);
    let manifest = Manifest {
        host: "node01".into(),
        mode: Mode::Attributed,
        lanes: (1..3).map(|cpu| Lane::Cpu { cpu }).collect(),
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    for (id, (source, _)) in (0..).zip(sources) {
        writer.add_source(SourceId(id), source).expect("added");
    }
    for (lane, cpu) in [(0, 1), (1, 2)] {
        let mut block = Block::new(LaneId(lane));
        // After the CPUs have settled.
        let mut at = 1000 * MS;
        for (id, (_, hits)) in (0..).zip(sources) {
            for _ in 0..hits[lane as usize] {
                strike(&mut block, SourceId(id), cpu, (at, 2_000));
                at += MS;
            }
        }
        writer.write_block(&block).expect("written");
    }
    let to_ns = 10_000 * MS;
    let lane = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    let trailer = Trailer { lanes: (0..2).map(lane).collect(), ..Trailer::default() };
    writer.finish(trailer).expect("finished");
    let reader = open::open(&path).expect("a recording");
    let advice = Advice::built_in().expect("advice");
    audit(&reader, &summarise(&reader).0, &CpuSet::from([1, 2]), facts, &advice).expect("an audit")
}

fn source(class: Class, name: &str, detail: Option<&str>) -> Source {
    Source {
        class,
        name: name.into(),
        unit: None,
        detail: detail.map(Into::into),
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

fn facts() -> Facts {
    Facts { online: CpuSet::from([0, 1, 2]), ..Facts::default() }
}

fn of(audit: &Audit, cpu: usize, class: Class) -> Vec<&Interruption> {
    let all = audit.cpus[cpu].interruptions.iter();
    all.filter(|interruption| interruption.class == Some(class)).collect()
}

#[test]
fn the_counts_of_a_reason_are_those_of_the_cpu() {
    let timer = |woken: &str| source(Class::Timer, "hrtimer_wakeup", Some(woken));
    let sources = [(timer("wakes misc"), [30, 400]), (timer("wakes other"), [5, 0])];
    let audit = audited("isolation-counts.detour", &sources, &facts());
    let [first] = of(&audit, 0, Class::Timer)[..] else { panic!("{audit:?}") };
    assert_eq!(first.count, 35);
    assert!(first.reason.contains("wakes misc 30x, wakes other 5x"), "{first:?}");
    let [second] = of(&audit, 1, Class::Timer)[..] else { panic!("{audit:?}") };
    assert_eq!(second.count, 400);
    assert!(second.reason.contains("wakes misc 400x"), "{second:?}");
}

/// Moving a process moves its page faults: nobody can make it lock its memory.
#[test]
fn page_faults_of_a_process_belong_to_it() {
    let sources = [
        (source(Class::Thread, "intruder", None), [20, 0]),
        (source(Class::PageFault, "intruder", None), [7, 3]),
    ];
    let audit = audited("isolation-faults.detour", &sources, &facts());
    let [intruder] = &audit.cpus[0].interruptions[..] else { panic!("{audit:?}") };
    assert_eq!((intruder.class, intruder.count), (Some(Class::Thread), 27));
    assert!(intruder.reason.contains("7 of them are page faults"), "{intruder:?}");
    // Alone, they are a finding of their own, with the same fix.
    let [faults] = &audit.cpus[1].interruptions[..] else { panic!("{audit:?}") };
    assert_eq!((faults.class, faults.count), (Some(Class::PageFault), 3));
    for found in [intruder, faults] {
        assert!(found.fix.contains("pgrep -wx intruder") && found.fix.contains("taskset -pc 0"));
    }
}

#[test]
fn interrupts_that_are_sent_to_quiet_cpus_are_numbered_in_the_command() {
    let fix = |irqs: &[u32]| {
        let irqs: BTreeMap<u32, CpuSet> =
            irqs.iter().map(|irq| (*irq, CpuSet::from([0, 1]))).collect();
        let audit = audited("isolation-irqs.detour", &[], &Facts { irqs, ..facts() });
        let setting = audit.settings.into_iter().find(|setting| setting.name == "irq affinity");
        setting.expect("the setting").fix
    };
    assert_eq!(fix(&[24]).as_deref(), Some("echo 0 > /proc/irq/24/smp_affinity_list"));
    let several = "for n in 24 31; do echo 0 > /proc/irq/$n/smp_affinity_list; done";
    assert_eq!(fix(&[24, 31]).as_deref(), Some(several));
    assert_eq!(fix(&[]), None);
}
