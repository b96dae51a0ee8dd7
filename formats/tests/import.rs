//! Other tools' files: what is read from them, and the errors for malformed ones.

use formats::import::{
    Format, ImportError, ImportOptions, Imported, import_bytes, imported_to_trace,
};
use trace::{Lane, Mode};

const STRICT: ImportOptions = ImportOptions { lenient: false, format: None };
const LENIENT: ImportOptions = ImportOptions { lenient: true, format: None };

fn strict(text: &str) -> Result<Imported, ImportError> {
    import_bytes("noise.txt", text.as_bytes(), &STRICT)
}

fn said(text: &str) -> String {
    strict(text).expect_err(text).to_string()
}

const TWO_RUNS: &str = "\
# Benchmark Method: selfish
# Nodename: node7
# Release : 5.3.18
# Selfish Benchmark
# Minimal cycle length [ns]: 20.5
# Number of iterations (recorded+unrecorded): 5077522722
# Threshold: [% minimal cycle length]: 900
#
# Time [ns]\tselfish duration [ns]
0.00\t10440.03
3999348.21\t6364.41
# CPU overhead due to noise: 0.08%
# Measurement period: 2.00 s
# Benchmark Method: selfish
# Nodename: node7
# Minimal cycle length [ns]: 21
# Time [ns]\tselfish duration [ns]
5.00\t300
# CPU overhead due to noise: 0.01%
# Measurement period: 1.00 s
";

#[test]
fn a_netgauge_file_of_two_runs_gives_two_runs() {
    let imported = strict(TWO_RUNS).unwrap();
    assert_eq!(imported.format, Format::Netgauge);
    let [first, second] = imported.runs.as_slice() else { panic!("two runs") };
    assert_eq!(first.detours, [(0.0, 10440.03), (3999348.21, 6364.41)]);
    assert_eq!(first.t_min_ns, Some(20.5));
    assert_eq!(first.threshold_ns, Some(184.5));
    assert_eq!(first.span_ns, 2e9);
    assert_eq!(first.header["Nodename"], "node7");
    assert_eq!(first.header["CPU overhead due to noise"], "0.08%");
    assert!((first.noise_pct() - 100.0 * 16804.44 / 2e9).abs() < 1e-12);
    assert_eq!(second.detours, [(5.0, 300.0)]);
    assert_eq!(second.t_min_ns, Some(21.0));
}

#[test]
fn loggopsim_files_are_comments_and_pairs() {
    let imported = strict("# made by hand\n0\t100\n1000\t50.5\n").unwrap();
    assert_eq!(imported.format, Format::LogGopSim);
    assert_eq!(imported.runs[0].detours, [(0.0, 100.0), (1000.0, 50.5)]);
    assert_eq!(imported.runs[0].span_ns, 1050.5);
    assert_eq!(strict("10 20\n").unwrap().format, Format::LogGopSim);
}

#[test]
fn csv_units_come_from_the_column_names() {
    let imported = strict("what,Start (us),length_ns\n\"a,b\",1.5,200\nc,3,20\n").unwrap();
    assert_eq!(imported.format, Format::Csv);
    assert_eq!(imported.runs[0].detours, [(1500.0, 200.0), (3000.0, 20.0)]);
    let lanes = strict("lane;start_ms;len_us\nx;1;2\ny;1;3\nx;2;4\n").unwrap();
    assert_eq!(lanes.runs.len(), 2);
    assert_eq!(lanes.runs[0].detours, [(1e6, 2e3), (2e6, 4e3)]);
}

#[test]
fn a_mu_in_a_header_is_micro_and_an_unknown_unit_is_refused() {
    for header in [
        "Start [\u{b5}s];Duration [\u{b5}s]",
        "start_\u{3bc}s;length_\u{3bc}s",
        "START (\u{39c}S);LENGTH (usec)",
    ] {
        let imported = strict(&format!("{header}\n271.5;20\n1077.5;20\n")).unwrap();
        assert_eq!(imported.runs[0].detours, [(271_500.0, 20e3), (1_077_500.0, 20e3)], "{header}");
    }
    let known = "(known: ns, us, ms and s)";
    for (header, unit) in [
        ("start [cycles],length_ns", "unknown unit `cycles` in `start [cycles]`"),
        ("start_ns,length_min", "unknown unit `min` in `length_min`"),
        ("start_ns,length_usecs", "unknown unit `usecs` in `length_usecs`"),
    ] {
        let said = said(&format!("{header}\n1,2\n"));
        assert!(said.contains("line 1") && said.contains(unit) && said.contains(known), "{said}");
    }
    // Latin-1, which is not UTF-8: the unit is unreadable, not seconds.
    let latin = import_bytes("noise.txt", b"Start [\xb5s],length_ns\n1,2\n", &LENIENT);
    assert!(latin.unwrap_err().to_string().contains(known));
    // Not a start in the unit `cpu`.
    let other = strict("start_cpu,start_us,length_ns\n3,1,2\n").unwrap();
    assert_eq!(other.runs[0].detours, [(1e3, 2.0)]);
}

#[test]
fn netgauge_and_loggopsim_headers_name_the_unit() {
    let in_us = |unit: &str| {
        TWO_RUNS.replace("length [ns]", &format!("length [{unit}]")).replacen(
            "Time [ns]\tselfish duration [ns]",
            &format!("Time [{unit}]\tselfish duration [{unit}]"),
            1,
        )
    };
    let run = strict(&in_us("us")).unwrap().runs.remove(0);
    assert_eq!((run.detours[0], run.t_min_ns), ((0.0, 10_440_030.0), Some(20_500.0)));
    assert_eq!((run.threshold_ns, run.span_ns), (Some(184_500.0), 4_005_712_620.0));
    assert_eq!(strict(&in_us("\u{b5}s")).unwrap().runs[0].detours[0], (0.0, 10_440_030.0));
    // A unit is that of its own run.
    assert_eq!(strict(&in_us("us")).unwrap().runs[1].detours, [(5.0, 300.0)]);
    for (text, why) in [
        (in_us("cycles"), "line 5: unknown unit `cycles` in `Minimal cycle length [cycles]`"),
        (TWO_RUNS.replace("Time [ns]", "Time [min]"), "line 9: unknown unit `min`"),
        (TWO_RUNS.replace("2.00 s", "2.00 h"), "line 13: unknown unit `h`"),
        ("# Time [us] length\n1 2\n".to_owned(), "line 1: no unit for the length"),
    ] {
        let said = said(&text);
        assert!(said.contains(why), "{said}");
    }
    let short = strict(&TWO_RUNS.replace("2.00 s", "2000 ms")).unwrap();
    assert_eq!(short.runs[0].span_ns, 2e9);
    let plain = strict("# start [us]\tduration [ns]\n1 20\n2 20\n").unwrap();
    assert_eq!(plain.format, Format::LogGopSim);
    assert_eq!(plain.runs[0].detours, [(1e3, 20.0), (2e3, 20.0)]);
}

#[test]
fn every_documented_json_shape_is_read() {
    let shapes = [
        "[[1, 2], [5, 1.5]]",
        "[{\"start_ns\": 1, \"len_ns\": 2}, {\"start_ns\": 5, \"length_ns\": 1.5}]",
        "{\"detours\": [[1, 2], [5, 1.5]]}",
        "{\"runs\": [{\"t_min_ns\": 9, \"detours\": [[1, 2], [5, 1.5]]}]}",
    ];
    for shape in shapes {
        let imported = strict(shape).unwrap();
        assert_eq!(imported.format, Format::Json);
        assert_eq!(imported.runs[0].detours, [(1.0, 2.0), (5.0, 1.5)], "{shape}");
    }
}

#[test]
fn a_percentile_table_gives_a_distribution() {
    let table = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n\
                 100.000 0.000000000000          2           1.00\n\
                 200.000 0.500000000000          5           2.00\n\
                 200.000 0.600000000000          5           2.50\n\
                 900.000 1.000000000000          6\n\
                 #[Mean    =      250.0, StdDeviation   =       10.0]\n";
    let imported = strict(table).unwrap();
    assert_eq!(imported.format, Format::Percentiles);
    assert_eq!(imported.runs[0].distribution, [(100.0, 2), (200.0, 3), (900.0, 1)]);
    assert_eq!(imported.runs[0].header["Mean"], "250.0");
    assert!(matches!(imported_to_trace(&imported.runs[0]), Err(ImportError::NoTimes)));
}

#[test]
fn nonsense_is_reported_with_file_line_and_expectation() {
    for (text, wanted) in [
        ("# x\n0\t100\nfoo bar\n", "`foo` is not a number"),
        ("# x\n0\t100\n5\n", "`5` is not two numbers"),
        ("# x\n0\t100\n-5\t1\n", "negative"),
        ("# x\n0\t100\nNaN\t1\n", "not a number"),
        ("# x\n0\t100\ninf\t1\n", "not a number"),
        ("# x\n5000\t100\n300\t1\n", "not in time order"),
        ("# x\n0\t100\n50\t1\n", "overlaps"),
        ("# x\n0\t100\n1e300\t1\n", "out of range"),
    ] {
        let said = said(text);
        assert!(said.contains("noise.txt, line 3") && said.contains(wanted), "{said}");
        assert!(said.contains("expected a start and a length"), "{said}");
        let lenient = import_bytes("noise.txt", text.as_bytes(), &LENIENT).unwrap();
        assert_eq!(lenient.runs[0].skipped_lines, 1);
        assert!(lenient.runs[0].remarks.iter().any(|r| r.contains("1 lines")));
    }
    assert!(said("start_ns,width\n1,2\n").contains("no column for the length"));
    assert!(said("[[1,2],[3]]").contains("detour 1"));
    assert!(said("[[1,2],\n[3").contains("line 2"));
    assert!(said("{\"a\": 1}").contains("unexpected JSON"));
}

/// Starts relative to the measurement, and on the clock of a host that has been up for four days.
#[test]
fn times_on_a_running_clock_have_the_same_noise_as_relative_ones() {
    const UP: u64 = 300_000_000_000_000;
    let rows = |from: u64, cells: fn(u64) -> String| {
        (0..100).map(|i| cells(from + 1_000_000 * i + 500)).collect::<Vec<_>>()
    };
    let csv = |from| {
        let rows = rows(from, |start| format!("{start},20000")).join("\n");
        format!("start_ns,length_ns\n{rows}\n")
    };
    let plain = |from| rows(from, |start| format!("{start} 20000")).join("\n");
    let json = |from, keys: &str| {
        format!(
            "{{{keys}\"detours\":[{}]}}",
            rows(from, |start| format!("[{start},20000]")).join(",")
        )
    };
    let netgauge = |from, period| {
        format!("# Selfish Benchmark\n{}\n# Measurement period: {period} s\n", plain(from))
    };
    let run = |text: &str| strict(text).unwrap().runs.remove(0);
    for (relative, up, how) in [
        (csv(0), csv(UP), "columns watched_from_ns and watched_to_ns"),
        (plain(0), plain(UP), "# Watched [ns]: BEGIN END"),
        (json(0, ""), json(UP, ""), "from_ns and span_ns"),
        (json(0, "\"span_ns\":200000000,"), json(UP, "\"span_ns\":200000000,"), "from_ns"),
        (netgauge(0, 0.2), netgauge(UP, 0.2), "# Watched [ns]: BEGIN END"),
    ] {
        let (relative, up) = (run(&relative), run(&up));
        assert_eq!((relative.from_ns, relative.window_remark.as_deref()), (0.0, None), "{how}");
        assert_eq!(up.from_ns, UP as f64 + 500.0, "{how}");
        assert!((relative.span_ns - up.span_ns).abs() <= 500.0, "{how}: {}", up.span_ns);
        assert!((relative.noise_pct() - up.noise_pct()).abs() < 1e-3, "{how}");
        let remark = up.window_remark.as_ref().unwrap();
        assert!(remark.contains(how) && up.remarks.contains(remark), "{remark}");
    }
    // What the file says counts.
    let known = run(&json(UP, "\"from_ns\":0,"));
    assert!(known.from_known && known.noise_pct() < 1e-3 && known.window_remark.is_none());
    let known = run(&format!("# Watched [ns]: {} {}\n{}", UP - 500, UP + 200_000_000, plain(UP)));
    assert_eq!((known.from_ns, known.span_ns), (UP as f64 - 500.0, 200_000_500.0));
    // A single detour does not show how long the measurement lasted, unless other lanes do.
    let alone = run(&format!("start_ns,length_ns\n{UP},20000\n"));
    assert_eq!((alone.from_ns, alone.window_remark), (0.0, None));
    let lanes =
        format!("lane,start_ns,length_ns\na,{UP},20\na,{},20\nb,{},20\n", UP + 9_000, UP + 5_000);
    let lanes = strict(&lanes).unwrap().runs;
    assert_eq!((lanes[1].from_ns, lanes[1].span_ns), (UP as f64, 5_020.0));
    assert!(lanes[1].window_remark.is_some());
}

#[test]
fn a_key_of_json_that_is_not_a_time_is_refused() {
    for (key, value) in
        [("span_ns", "-5"), ("from_ns", "-1"), ("t_min_ns", "\"20\""), ("threshold_ns", "[]")]
    {
        let said = said(&format!("{{\"runs\":[{{\"detours\":[[1,2]],\"{key}\":{value}}}]}}"));
        assert!(said.contains(&format!("{key} is not a non-negative number ({value})")), "{said}");
    }
    let null = strict("{\"detours\":[[1,2]],\"t_min_ns\":null,\"span_ns\":9}").unwrap();
    assert_eq!((null.runs[0].t_min_ns, null.runs[0].span_ns), (None, 9.0));
}

#[test]
fn a_measured_time_out_of_range_is_refused() {
    let header = "# Selfish Benchmark\n";
    let long = TWO_RUNS.replacen(header, &format!("{header}# Measurement period: 1e300 s\n"), 1);
    assert_ne!(long, TWO_RUNS);
    assert!(said(&long).contains("the measured time is out of range"), "{}", said(&long));
    let csv = "start_ns,len_ns,watched_from_ns,watched_to_ns\n1,2,0,inf\n";
    assert!(said(csv).contains("the measured time is out of range"), "{}", said(csv));
}

#[test]
fn files_that_are_no_noise_files_are_refused() {
    assert!(said("").contains("empty"));
    assert!(said("# only a comment\n").contains("no detours"));
    assert!(said("hello world\n").contains("unknown format"));
    let refused = |bytes: &[u8]| import_bytes("f", bytes, &STRICT).unwrap_err().to_string();
    assert!(refused(b"\x1f\x8b\x08").contains("gzip -d"));
    assert!(refused(b"\x89DETOUR\n\x01\0\0\0").contains("already a detour trace"));
    assert!(refused(b"\0\x01\x02").contains("binary"));
    assert!(refused(b"\xfd7zXZ\0junkjunkjunkjunk").contains("xz -t"));
}

/// A header and a detour, with CRC-64.
const XZ_FIRST: &[u8] = b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x0c\x00\x00\x00\x8f\x98A\x9c\
    \x01\x00\x18start_ns,len_ns\x0a1000,200\x0a\x00\x00\x00\x00B\xa0\x94]\xc8\x07\xd1^\x00\x011\x19Y\
    \x1a\xb0\x82\x1f\xb6\xf3}\x01\x00\x00\x00\x00\x04YZ";
/// Another detour, with CRC-32.
const XZ_SECOND: &[u8] = b"\xfd7zXZ\x00\x00\x01i\x22\xde6\x02\x00!\x01\x0c\x00\x00\x00\x8f\x98A\x9c\x01\x00\
    \x085000,300\x0a\x00\x00\x00\x00\x86\xcf,V\x00\x01\x1d\x09\x93a6\xa6\x90B\x99\x0d\x01\x00\x00\x00\
    \x00\x01YZ";
/// The same, with SHA-256.
const XZ_SHA: &[u8] =
    b"\xfd7zXZ\x00\x00\x0a\xe1\xfb\x0c\xa1\x02\x00!\x01\x0c\x00\x00\x00\x8f\x98A\x9c\
    \x01\x00\x085000,300\x0a\x00\x00\x00\x00\xf6-\xa5\xf5\xbe\x92\xfb\x95\xf96>\xfeRwc\x04\x9aO\xa7\
    \xa0\xe3e\x08\xe5\x83\x87\x1d\x0b\x1b\xd5\xca\xff\x00\x019\x095\x80\xdeW\x18\x9bK\x9a\x01\x00\
    \x00\x00\x00\x0aYZ";

#[test]
fn xz_files_are_decompressed_stream_by_stream() {
    let both = [XZ_FIRST, &[0; 8], XZ_SECOND, &[0; 4]].concat();
    let plain = import_bytes("f", b"start_ns,len_ns\n1000,200\n5000,300\n", &STRICT).unwrap();
    assert_eq!(import_bytes("f", &both, &STRICT).unwrap(), plain);

    assert_eq!(import_bytes("f", &[XZ_FIRST, XZ_SHA].concat(), &STRICT).unwrap(), plain);

    let refused = |bytes: &[u8]| import_bytes("f", bytes, &STRICT).unwrap_err().to_string();
    // A byte of the text is changed: the checksum notices.
    for at in 30..50 {
        let mut damaged = XZ_FIRST.to_vec();
        damaged[at] ^= 1;
        assert!(refused(&damaged).contains("xz -t"), "{at}: {}", refused(&damaged));
    }
    for cut in 6..XZ_FIRST.len() {
        let said = refused(&XZ_FIRST[..cut]);
        assert!(said.contains("xz -t"), "{cut}: {said}");
    }
    // Block headers that are too short for what they announce, with correct checksums.
    for header in [
        b"\x01\x01\x03\x01\x1b\xb1\x10\xc4",
        b"\x01\x02\x04\x00\x13\xa9\x10\xfe",
        b"\x01A\x80\x01S\xf7$\xa4",
    ] {
        let bytes = [&XZ_FIRST[..12], header].concat();
        assert!(refused(&bytes).contains("xz -t"), "{}", refused(&bytes));
    }
}

#[test]
fn no_prefix_and_no_flipped_byte_of_a_file_makes_the_importer_panic() {
    let hlog = "#[Histogram log format version 1.3]\nTag=a,0.127,1.007,2.769,\
                HISTFAAAABx42pNpmSzMwMDAxAABzFCaEUoz2X+AsQA/awKA\n";
    let table = "Value Percentile TotalCount 1/(1-Percentile)\n100.0 0.5 2 2.0\n300.0 1.0 3\n";
    let csv = "lane,start_us,length_ns\na,1,2\nb,3,4\n";
    let json = "{\"runs\":[{\"detours\":[[1,2],[5,1]]}]}";
    let texts = [TWO_RUNS, hlog, table, csv, json].map(str::as_bytes);
    for text in texts.into_iter().chain([XZ_FIRST, XZ_SECOND, XZ_SHA]) {
        for at in 0..text.len() {
            let _ = import_bytes("f", &text[..at], &STRICT);
            for flip in [0x01, 0x10, 0x80] {
                let mut bytes = text.to_vec();
                bytes[at] ^= flip;
                let _ = import_bytes("f", &bytes, &STRICT);
                let _ = import_bytes("f", &bytes, &LENIENT);
            }
        }
    }
}

#[test]
fn an_imported_run_becomes_a_trace_without_sources() {
    let imported = strict(TWO_RUNS).unwrap();
    let trace = imported_to_trace(&imported.runs[0]).unwrap();
    assert_eq!(trace.manifest.mode, Mode::Imported);
    assert_eq!((trace.manifest.host.as_str(), trace.manifest.kernel.as_str()), ("node7", "5.3.18"));
    assert_eq!(trace.manifest.lanes, [Lane::Cpu { cpu: 0 }]);
    assert_eq!(trace.manifest.cpus[0].t_min_ns, 20.5);
    assert_eq!(trace.trailer.lanes[0].to_ns, 2_000_000_000);
    let detours = &trace.blocks[0].detours;
    assert_eq!((detours[1].start_ns, detours[1].len_ns), (3_999_348, 6364));
    assert!(detours.iter().all(|d| d.outside_ns == d.len_ns && d.records == 0));
}
