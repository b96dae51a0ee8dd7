//! `detour simulate skeleton` and `detour goal gen --pattern`: models of programs, on the command line. Runs
//! anywhere, without privileges.

mod command;

use std::{fs, path::PathBuf};

use serde_json::Value;

use command::{detour, refused, stdout};

fn json(arguments: &[&str]) -> Value {
    let text = stdout(&[&["--quiet"], arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON and nothing else")
}

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path.to_str().expect("text").to_owned()
}

const NOISE: [&str; 4] = ["--noise", "periodic:1000Hz,50us", "--net", "xt4"];

/// Two ways through the program: iteration by iteration, and as a file with all operations.
#[test]
fn a_skeleton_takes_the_time_of_its_schedule() {
    for (name, model) in [
        ("wave", &["wavefront:3x4", "--iterations", "3", "--blocks", "4"][..]),
        ("halo", &["halo:2x3x2", "--imbalance", "7%", "--exchanges", "2"]),
        ("levels", &["multigrid:4x4x2", "--levels", "4", "--size", "100kB", "--ranks", "64"]),
        ("sea", &["ocean:4x4", "--solver", "5", "--only", "collectives"]),
        ("pop", &["pop", "--iterations", "1"]),
    ] {
        let goal = file(&format!("skeleton-{name}.goal"));
        let option = if model[0].contains(':') { "--pattern" } else { "--preset" };
        let told = detour(&[&["goal", "gen", option], model, &["-o", &goal]].concat())
            .assert()
            .success()
            .get_output()
            .stderr
            .clone();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains("a model of a program, not a trace of one"), "{told}");
        let whole = json(
            &[&["simulate", "goal", &goal, "--runs", "3", "--unit", "ps"], &NOISE[..]].concat(),
        );
        let value =
            json(&[&["simulate", "skeleton"], model, &["--runs", "3"], &NOISE[..]].concat());
        let point = &value["points"][0];
        assert_eq!(point["messages"], whole["messages"], "{name}");
        let ps = |key: &str| (point[key].as_f64().unwrap() * 1e6).round() as i64;
        for (key, other) in [
            ("noiseless_us", "noiseless"),
            ("min_us", "min_of_runs"),
            ("median_us", "median_of_runs"),
            ("max_us", "max_of_runs"),
        ] {
            assert_eq!(Some(ps(key)), whole[other].as_i64(), "{name}: {key}");
        }
        assert!(ps("max_us") > ps("noiseless_us"), "{name}");
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let of = |threads: &str| {
        let model = ["simulate", "skeleton", "amg2006", "--iterations", "2", "--ranks", "125,250"];
        let more = ["--runs", "4", "--net-scale", "1,10", "--with-coscheduled", "-j", threads];
        let mut value = json(&[&model[..], &more, &NOISE].concat());
        let points = value["points"].as_array_mut().unwrap();
        assert_eq!(points.len(), 8);
        for point in points {
            point["messages_per_s"] = Value::Null;
        }
        value
    };
    assert_eq!(of("1"), of("3"));
}

#[test]
fn blame_explains_the_runs_and_shares_are_of_the_time() {
    let model =
        ["simulate", "skeleton", "halo:4x2x1", "--iterations", "4", "--runs", "3", "--blame"];
    let value = json(&[&model[..], &NOISE].concat());
    let point = &value["points"][0];
    let finish = point["blame"]["finish_us"].as_f64().unwrap();
    assert!((finish - point["mean_us"].as_f64().unwrap()).abs() < 1e-6);
    let share = |key: &str| point[key].as_f64().unwrap();
    assert!(
        0.0 < share("collectives_pct") && share("collectives_pct") < share("communication_pct")
    );
    let text = stdout(&[&["--quiet"], &model[..], &NOISE].concat());
    assert!(
        text.starts_with("Model of halo 4x2x1") && text.contains("A model, not a program"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_a_skeleton_is_refused_with_a_reason() {
    for (arguments, words) in [
        (&["halo:2x2"][..], "'halo:2x2' is not a pattern"),
        (&["wavefront:0x2"], "is not a pattern"),
        (&["torus"], "'torus' is not a skeleton"),
        (&["pop", "--ranks", "100"], "100 ranks are not a multiple of the 128 ranks"),
        (&["halo:2x2x2", "--blocks", "3"], "--blocks does not apply to halo"),
        (&["wavefront:2x2", "--exchanges", "3"], "--exchanges does not apply to wavefront"),
        (&["pop", "--allreduces", "3"], "--allreduces does not apply to a preset"),
        (&["halo:2x2x2", "--imbalance", "200%"], "exceeds 100 %"),
        (&["multigrid:2x2x2", "--levels", "99"], "levels of a skeleton must be 1 to 30"),
        (&["ocean:99999x99999"], "too many ranks"),
        (&["halo:2x2x2", "--with-coscheduled"], "--with-coscheduled requires --noise"),
        (&["halo:2x2x2", "--iterations", "2^60"], "invalid value"),
        (&["pop", "--iterations", "1000000", "--blame"], "too many operations for one schedule"),
    ] {
        refused(&[&["--quiet", "simulate", "skeleton"], arguments].concat(), &[words]);
    }
    for (arguments, words) in [
        (&["--ranks", "4", "--blocks", "3"][..], "--blocks requires a skeleton"),
        (&["--pattern", "halo:2x2x2", "--op", "bcast"], "cannot be used with"),
        (&["--pattern", "halo:2x2x2", "--preset", "pop"], "cannot be used with"),
        (&["--preset", "halo"], "unknown preset 'halo'"),
        (&["--op", "bcast"], "--ranks"),
    ] {
        refused(&[&["goal", "gen"], arguments].concat(), &[words]);
    }
}
