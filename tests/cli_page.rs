//! `detour report --html`: one self-contained file, whatever the recording contains.

mod made;

use std::{
    fs,
    path::{Path, PathBuf},
};

use assert_cmd::Command;
use trace::{Block, Class, Lane, LaneId, LaneTotals, Manifest, Source, SourceId, Trailer, Writer};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");
const STENCIL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/mpi/stencil");
const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The page of a trace.
fn page(trace: &str, name: &str, options: &[&str]) -> String {
    let file = scratch(name);
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(["report", "-q", trace, "--html"]).arg(&file).args(options).assert().success();
    fs::read_to_string(file).expect("a page")
}

fn scattered(i: u64) -> u64 {
    let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 31)
}

/// A recording with this many detours, all of one thread, a millisecond apart.
fn trace(name: &str, detours: u64, thread: &str) -> String {
    let path = scratch(name);
    let detour = |i| (1_000_000 + i * 1_000_000, 20_000 + i % 7 * 1_000);
    write(&path, thread, &(0..detours).map(detour).collect::<Vec<_>>());
    path.display().to_string()
}

/// A recording of these detours (start, length), all of one thread.
fn write(path: &Path, thread: &str, detours: &[(u64, u64)]) {
    let to_ns = 2_000_000 + detours.len() as u64 * 1_000_000;
    let manifest = Manifest {
        host: thread.to_owned(),
        lanes: vec![Lane::Cpu { cpu: 0 }],
        ..Manifest::default()
    };
    let mut writer = Writer::new(fs::File::create(path).unwrap(), &manifest).unwrap();
    let source = Source {
        class: Class::Thread,
        name: thread.to_owned(),
        unit: Some(thread.to_owned()),
        detail: Some(thread.to_owned()),
        pids: vec![7],
        own: false,
        program: false,
        policy: None,
        cause: None,
    };
    writer.add_source(SourceId(0), &source).unwrap();
    let mut block = Block::new(LaneId(0));
    for &(start_ns, len_ns) in detours {
        made::strike(&mut block, SourceId(0), 0, (start_ns, len_ns));
    }
    writer.write_block(&block).unwrap();
    let lanes = vec![LaneTotals { lane: 0, from_ns: 0, to_ns, ..LaneTotals::default() }];
    writer.finish(Trailer { lanes, ..Trailer::default() }).unwrap();
}

const QUICK: [&str; 4] = ["--ranks", "2..256", "--runs", "8"];

#[test]
fn a_page_holds_every_figure_and_needs_nothing_else() {
    let html = page(DEMO, "demo.html", &QUICK);
    let figures = [
        "scatter",
        "pdf",
        "cdf",
        "tail",
        "spectrum",
        "heat",
        "slowdown",
        "without",
        "idle",
        "idle-tail",
    ];
    for id in figures {
        assert!(html.contains(&format!(r#"id="{id}""#)), "{id}");
    }
    // A namespace name, not a link.
    let html = html.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http://", "https://", "src=", "@import", "url(h"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("default-src 'none'") && html.trim_end().ends_with("</html>"));
    assert!(html.contains("detour simulate collective") && html.contains("Overhead"));
    assert!(html.len() < 3_000_000, "{} bytes", html.len());
}

#[test]
fn the_same_page_comes_out_for_any_number_of_threads() {
    let one = page(DEMO, "threads.html", &[&QUICK[..], &["-j", "1"]].concat());
    let three = page(DEMO, "threads.html", &[&QUICK[..], &["-j", "3"]].concat());
    assert!(one == three);
    let other = page(DEMO, "threads.html", &[&QUICK[..], &["--seed", "2"]].concat());
    assert!(one != other);
}

#[test]
fn a_name_that_is_markup_is_text() {
    let html = page(&trace("markup.detour", 500, MARKUP), "markup.html", &QUICK);
    assert_eq!(html.matches("<script").count(), 1);
    assert!(!html.contains("<img") && html.contains("script&#62;alert(1)"), "not escaped");
}

#[test]
fn nothing_and_one_detour_are_recordings_too() {
    let html = page(&trace("none.detour", 0, "quiet"), "none.html", &QUICK);
    assert!(html.contains("no detours to project") && html.contains("No detours to show"));
    let html = page(&trace("one.detour", 1, "lonely"), "one.html", &QUICK);
    assert!(html.contains("lonely") && html.contains(r#"id="slowdown""#));
}

#[test]
fn where_nothing_is_regular_the_page_says_so() {
    // A daemon every millisecond has a spectrum; for an irregular one there is a message.
    let html = page(&trace("regular.detour", 500, "beat"), "regular.html", &QUICK);
    assert!(html.contains(r#"id="spectrum""#) && html.contains(">beat 1"));
    let path = scratch("irregular.detour");
    let every = |i: u64| 1_000_000 * i + scattered(i) % 900_000;
    let detours: Vec<(u64, u64)> = (0..500).map(|i| (every(i), 20_000)).collect();
    write(&path, "whenever", &detours);
    let html = page(path.to_str().unwrap(), "irregular.html", &QUICK);
    assert!(html.contains("No periodic source") && !html.contains(r#"id="spectrum""#));
}

#[test]
fn the_projection_can_be_left_out() {
    let html = page(DEMO, "plain.html", &["--no-projection"]);
    assert!(html.contains("--no-projection") && !html.contains(r#"id="slowdown""#));
}

#[test]
fn the_points_are_those_that_the_named_command_gives() {
    let html = page(DEMO, "points.html", &QUICK);
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    let arguments = ["simulate", "collective", "-q", "--repeat-trace", "--tail", "--json"];
    let arguments = [&arguments[..], &["--net", "alps", "--noise", DEMO]].concat();
    let output = command.args(arguments).args(QUICK).assert().success().get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let last = json["points"].as_array().and_then(|points| points.last()).expect("points");
    let slowdown = last["slowdown_median"].as_f64().expect("a slowdown");
    let digits = if slowdown >= 99.95 {
        0
    } else if slowdown >= 9.995 {
        1
    } else {
        2
    };
    let said = format!("{slowdown:.digits$}");
    let said = if digits > 0 { said.trim_end_matches('0').trim_end_matches('.') } else { &said };
    assert!(html.contains(&format!("slowdown {said}×")), "{said}");
}

#[test]
fn a_page_is_about_one_trace() {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(["report", DEMO, DEMO, "--html"]).arg(scratch("two.html"));
    let error = command.assert().failure().get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&error).contains("single trace"));
}

/// The page of a recorded MPI program.
fn mpi_page(directory: &Path, name: &str, options: &[&str]) -> String {
    let file = scratch(name);
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(["-q", "mpi", "report"]).arg(directory).arg("--html").arg(&file).args(options);
    command.assert().success();
    fs::read_to_string(file).expect("a page")
}

#[test]
fn the_page_of_a_program_holds_every_figure_and_needs_nothing_else() {
    let html = mpi_page(Path::new(STENCIL), "stencil.html", &[]);
    for id in ["waits", "bytes", "messages", "pattern", "timeline"] {
        assert!(html.contains(&format!(r#"id="{id}""#)), "{id}");
    }
    let html = html.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http://", "https://", "src=", "@import", "url(h"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("default-src 'none'") && html.trim_end().ends_with("</html>"));
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    let three = mpi_page(Path::new(STENCIL), "stencil.html", &["-j", "3"]);
    assert!(three == mpi_page(Path::new(STENCIL), "stencil.html", &["-j", "1"]));
}

/// A ring of ranks as liballprof would have written it: each sends 8 bytes to the next, `times` times, and a
/// rank is a microsecond late for each rank before it.
fn ring(name: &str, ranks: u32, times: u64) -> PathBuf {
    let (text, traces) = (scratch(&format!("{name}-text")), scratch(&format!("{name}-traces")));
    for directory in [&text, &traces] {
        let _ = fs::remove_dir_all(directory);
    }
    fs::create_dir_all(&text).expect("a directory");
    for rank in 0..ranks {
        let world = format!("0,{rank},{ranks}");
        let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let mut lines = format!("MPI_Init:-:0:0:1000\nMPI_Comm_rank:1001:{world}:0:1002\n");
        for step in 0..times {
            let at = 2_000 + step * 1_000 + u64::from(rank % 7);
            lines.push_str(&format!("MPI_Send:{at}:0:8:1,1,1:{next}:0:{world}:{}\n", at + 2));
            lines.push_str(&format!(
                "MPI_Recv:{}:0:8:1,1,1:{last}:0:{world}:1:{}\n",
                at + 3,
                at + 20
            ));
        }
        let end = 3_000 + times * 1_000;
        lines.push_str(&format!("MPI_Finalize:{end}:{}\n", end + 100));
        fs::write(text.join(format!("pmpi-trace-rank-{rank}.txt")), lines).expect("written");
    }
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(["-q", "mpi", "import"]).arg(&text).arg("-o").arg(&traces).assert().success();
    traces
}

#[test]
fn a_matrix_of_many_ranks_is_drawn_in_blocks_and_the_page_says_so() {
    let html = mpi_page(&ring("many", 130, 3), "many-ranks.html", &[]);
    assert!(html.contains("130 ranks in 64 blocks"), "no blocks");
    // Rank r is in block r * 64 / 130.
    assert!(html.contains(r#"data-names="0-2 3-4 5-6 "#), "other blocks");
    assert!(html.contains("timelines are limited to 32 ranks, and this run has 130"));
    assert!(!html.contains(r#"id="timeline""#) && html.len() < 2_000_000);
}

#[test]
fn a_page_without_some_ranks_says_so_and_how_to_make_it_again() {
    let traces = ring("partial", 4, 3);
    let mut both = Command::cargo_bin("detour").expect("the binary is built");
    both.args(["mpi", "report"]).arg(&traces).args(["--html", "-", "--json"]);
    let error = both.assert().failure().get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&error).contains("would go to stdout"));
    // Neighbours of the two that are left are gone: no message has both halves.
    for rank in [1, 3] {
        fs::remove_file(traces.join(format!("rank-{rank}.mpi"))).expect("removed");
    }
    let html = mpi_page(&traces, "partial.html", &["--partial"]);
    assert!(html.contains("The traces of 2 ranks are missing"));
    assert!(html.contains("No waiting found, but the trace is incomplete."));
    assert!(!html.contains("No rank waited for another."));
    assert!(
        html.contains("partial-traces --partial --html ") && html.contains(" --partial --json")
    );
}

#[test]
fn the_page_of_a_long_run_is_no_larger() {
    let html = mpi_page(&ring("long", 4, 30_000), "long-run.html", &[]);
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}
