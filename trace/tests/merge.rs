//! Traces of nodes as one.

use std::io::Cursor;

use trace::{CpuSettings, Lane, Manifest, Overwrite, Reader, Trailer, Writer, merge};

/// Its calibration fills more than half of what a manifest may hold.
fn large(host: &str) -> Manifest {
    let timer_histogram = vec![(10.5, 1); 1 << 20];
    Manifest {
        host: host.to_owned(),
        lanes: vec![Lane::Cpu { cpu: 3 }],
        cpus: vec![CpuSettings { cpu: 3, t_min_ns: 20.0, threshold_ns: 180.0, timer_histogram }],
        ..Manifest::default()
    }
}

fn trace(manifest: &Manifest) -> Reader<Cursor<Vec<u8>>> {
    let writer = Writer::new(Cursor::new(Vec::new()), manifest).unwrap();
    Reader::new(writer.finish(Trailer::default()).unwrap()).unwrap()
}

#[test]
fn calibrations_of_many_nodes_are_left_out_and_their_results_kept() {
    let traces = [trace(&large("one")), trace(&large("other"))];
    let mut bytes = Vec::new();
    let merged = merge(&traces, |manifest| Writer::new(&mut bytes, manifest)).unwrap();
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
