//! Merging the traces of several nodes.

use std::io::Cursor;

use trace::{CpuSettings, Lane, Manifest, Merge, Overwrite, Reader, Trailer, Writer};

/// Its calibration fills more than half of the size limit of a manifest.
fn large(host: &str) -> Manifest {
    let timer_histogram = vec![(10.5, 1); 1 << 20];
    Manifest {
        host: host.to_owned(),
        lanes: vec![Lane::Cpu { cpu: 3 }],
        cpus: vec![CpuSettings { cpu: 3, t_min_ns: 20.0, threshold_ns: 180.0, timer_histogram }],
        ..Manifest::default()
    }
}

fn trace(manifest: &Manifest) -> Vec<u8> {
    Writer::new(Vec::new(), manifest).unwrap().finish(Trailer::default()).unwrap()
}

fn merged(traces: &[Vec<u8>], out: &mut Vec<u8>) -> Manifest {
    let open = |bytes: &Vec<u8>| Reader::new(Cursor::new(bytes.clone()));
    let merge = Merge::read(traces, open).unwrap();
    let writer = Writer::new(out, merge.manifest()).unwrap();
    merge.write(open, writer).unwrap()
}

#[test]
fn calibrations_of_many_nodes_are_left_out_and_their_results_kept() {
    let traces = [trace(&large("one")), trace(&large("other"))];
    let mut bytes = Vec::new();
    let merged = merged(&traces, &mut bytes);
    for node in &merged.nodes {
        let [settings] = &node.cpus[..] else { panic!("{:?}", node.cpus.len()) };
        assert_eq!((settings.cpu, settings.t_min_ns, settings.threshold_ns), (3, 20.0, 180.0));
        assert!(settings.timer_histogram.is_empty());
    }
    assert_eq!(Reader::new(Cursor::new(bytes)).unwrap().manifest().nodes.len(), 2);
}

#[test]
fn a_manifest_that_is_too_large_leaves_no_file_behind() {
    let mut manifest = large("one");
    manifest.cpus.extend(large("one").cpus);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("too-large.detour");
    assert!(Writer::create(&path, Overwrite::Yes, &manifest).is_err());
    assert!(!path.exists());
}

/// More than one frame can hold.
#[test]
fn a_job_of_1000_nodes_with_256_cpus_each_has_one_trace() {
    const NODES: u32 = 1_000;
    const CPUS: u32 = 256;
    let node = |number: u32| {
        let settings = |cpu| CpuSettings {
            cpu,
            t_min_ns: 20.123_456 + f64::from(cpu),
            threshold_ns: 180.987_654,
            timer_histogram: Vec::new(),
        };
        trace(&Manifest {
            host: format!("node{number}"),
            started_unix_s: f64::from(1_000 + number),
            lanes: (0..CPUS).map(|cpu| Lane::Cpu { cpu }).collect(),
            cpus: (0..CPUS).map(settings).collect(),
            ..Manifest::default()
        })
    };
    let traces: Vec<Vec<u8>> = (0..NODES).map(node).collect();
    let mut bytes = Vec::new();
    let merged = merged(&traces, &mut bytes);
    let reader = Reader::new(Cursor::new(bytes)).unwrap();
    assert_eq!((reader.truncated(), reader.damaged_blocks().len()), (None, 0));
    assert_eq!(reader.manifest().nodes, merged.nodes);
    assert_eq!(reader.lanes(), merged.lanes);
    assert_eq!(reader.lanes().len() as u32, NODES * CPUS);
    for lane in [0, 255, 256, 77_777, NODES * CPUS - 1] {
        let found = reader.manifest().node_of(lane).unwrap();
        assert_eq!(found.host, format!("node{}", lane / CPUS));
        assert_eq!(found.cpus[(lane % CPUS) as usize].cpu, lane % CPUS);
    }
    assert_eq!(reader.manifest().node_of(NODES * CPUS), None);
}

#[test]
fn a_lane_has_the_node_that_a_look_at_all_nodes_finds() {
    let lanes_of = [2, 0, 3, 0, 0, 1, 4, 0];
    let mut first_lane = 0;
    let nodes = lanes_of.map(|lanes| {
        let node = trace::Node { first_lane, lanes, ..trace::Node::default() };
        first_lane += lanes;
        node
    });
    for lane in 0..first_lane + 2 {
        let found = nodes.iter().position(|node| node.has(lane));
        assert_eq!(trace::node_index(&nodes, lane), found, "lane {lane}");
        assert_eq!(found.is_some(), lane < first_lane);
    }
}
