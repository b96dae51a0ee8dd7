//! The figures' data of a synthetic recording: a periodic tick, an irregular daemon, and unexplained
//! time.

use analysis::views::{Series, Viewer, Views};
use analysis::{Contents, Summariser, Summary};
use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, Record, RecordFlags, Source,
    SourceId, Trailer,
};

const SPAN_NS: u64 = 8_000_000_000;

fn source(class: Class, name: &str) -> Source {
    Source {
        class,
        name: name.into(),
        unit: None,
        detail: None,
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

fn blocks() -> Vec<Block> {
    let mut block = Block::new(LaneId(0));
    let mut state = 7u64;
    for i in 0..2_000u64 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tick = i * 4_000_000;
        // (start, cost, source or nothing)
        let mut events = vec![(tick + 100, 2_000, Some(0))];
        if state >> 61 == 0 {
            events.push((tick + 500_000 + (state >> 43) % 2_000_000, 90_000, Some(1)));
        }
        events.push((tick + 3_500_000, 300, None));
        for (start_ns, len_ns, by) in events {
            let records = u32::from(by.is_some());
            let outside_ns = if by.is_some() { 0 } else { len_ns };
            block.detours.push(Detour {
                start_ns,
                len_ns,
                outside_ns,
                records,
                ..Detour::default()
            });
            if let Some(source) = by {
                block.records.push(Record {
                    start_ns,
                    gross_ns: len_ns,
                    net_ns: len_ns,
                    cost_ns: len_ns,
                    source: SourceId(source),
                    cpu: 0,
                    depth: 1,
                    flags: RecordFlags::IN_DETOUR,
                });
            }
        }
    }
    vec![block]
}

fn viewed() -> (Summary, Views) {
    let sources = [source(Class::Timer, "tick"), source(Class::Thread, "daemon")];
    let lanes = [Lane::Cpu { cpu: 0 }, Lane::Cpu { cpu: 1 }];
    let manifest = Manifest { lanes: lanes.to_vec(), ..Manifest::default() };
    let total = |lane| LaneTotals { lane, to_ns: SPAN_NS, ..LaneTotals::default() };
    let trailer = Trailer { lanes: vec![total(0), total(1)], ..Trailer::default() };
    let contents = Contents {
        manifest: &manifest,
        sources: &sources,
        lanes: &lanes,
        trailer: Some(&trailer),
        cut_off: &[],
        truncated: None,
    };
    let mut summariser = Summariser::new(manifest.mode);
    for block in blocks() {
        summariser.add(&block, &sources);
    }
    let (summary, costs) = summariser.finish_with_costs(&contents);
    for (row, bins) in summary.sources.iter().zip(&costs.sources) {
        assert_eq!(row.count, bins.iter().map(|b| b.count).sum::<u64>());
        assert_eq!(Some(row.cost_ns_max), bins.last().map(|b| b.ns));
    }
    let mut viewer = Viewer::new(&summary, &contents, (0, 0));
    for block in blocks() {
        viewer.add(&block);
    }
    (summary, viewer.finish())
}

#[test]
fn every_detour_and_all_of_its_time_is_in_the_figures() {
    let (summary, views) = viewed();
    assert_eq!(views.scatter.total(), summary.detours);
    assert_eq!(views.lengths.iter().map(|b| b.count).sum::<u64>(), summary.detours);
    let lost: Vec<u64> = views.heat.rows.iter().map(|row| row.lost_ns.iter().sum()).collect();
    assert_eq!(lost, [summary.detour_ns_total, 0]);
    assert_eq!(views.series, [Series::Source(0), Series::Source(1), Series::Outside]);
    assert_eq!(summary.sources[0].name, "daemon");
    assert_eq!(views.scatter.totals[2], 2_000, "unexplained");
}

#[test]
fn a_regular_source_stands_out_of_its_spectrum_and_an_irregular_one_does_not() {
    let (_, views) = viewed();
    let highest = |series: usize| {
        let spectrum = views.spectra.iter().find(|s| s.series == series).expect("a spectrum");
        spectrum.lines.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).expect("lines")
    };
    let (hertz, power) = highest(1);
    assert!((hertz / 250.0).fract().min(1.0 - (hertz / 250.0).fract()) < 0.01, "{hertz} Hz");
    assert!(power > 0.8, "{power}");
    assert!(highest(0).1 < 0.3, "the daemon has no period: {:?}", highest(0));
}
