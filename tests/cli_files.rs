//! Files that commands write: complete or absent, existing ones not lost, and outputs that are not
//! files. Also names that are not UTF-8. Runs on any Linux, without privileges.

mod command;

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use command::{detour, stdout};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");
const EXPORT: [&str; 4] = ["export", DEMO, "--to", "csv"];
const RECORD: [&str; 4] = ["record", "--no-bpf", "-d", "50ms"];

/// An empty directory for the test.
fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("created");
    path
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// The command, without waiting for it.
fn start(arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fails(arguments: &[&str], code: i32, words: &[&str]) {
    let output = detour(arguments).assert().code(code).get_output().clone();
    for word in words {
        assert!(
            said(&output).contains(word),
            "{arguments:?} printed {:?}, not {word:?}",
            said(&output)
        );
    }
}

#[test]
fn a_result_takes_the_place_of_the_one_before_at_once() {
    let directory = directory("files-replaced");
    let path = directory.join("result.csv");
    fs::write(&path, "what was there before\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut before = fs::File::open(&path).unwrap();
    stdout(&[&EXPORT[..], &["-o", text(&path)]].concat());
    // A process that has it open can continue to read.
    let mut content = String::new();
    before.read_to_string(&mut content).unwrap();
    assert_eq!(content, "what was there before\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), stdout(&EXPORT));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(&directory), ["result.csv"]);
}

#[test]
fn a_result_that_fails_leaves_the_one_before() {
    let directory = directory("files-failed");
    let path = directory.join("times.csv");
    fs::write(&path, "before\n").unwrap();
    // The noise ends before the second point does.
    let noise = directory.join("noise.json");
    fs::write(&noise, r#"{"runs": [{"span_ns": 100000, "detours": [[5000, 10]]}]}"#).unwrap();
    let job = ["simulate", "collective", "--op", "barrier", "--ranks", "2,1Ki", "--runs", "2"];
    let more = ["--noise", text(&noise), "--times", text(&path), "--compute", "5us"];
    fails(&[&job[..], &more, &["--iterations", "3"]].concat(), 1, &["--repeat-trace"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "before\n");
    stdout(&[&job[..], &more, &["--repeat-trace"]].concat());
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 5);
    assert_eq!(names(&directory), ["noise.json", "times.csv"]);
}

fn record<'a>(path: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&RECORD[..], &["-o", text(path)], more].concat()
}

#[test]
fn a_recording_replaces_nothing_but_a_recording_which_is_kept() {
    let directory = directory("files-thesis");
    let thesis = directory.join("thesis.csv");
    fs::write(&thesis, "three years of work\n").unwrap();
    fails(&record(&thesis, &[]), 1, &["refusing to overwrite", "thesis.csv", "--force"]);
    assert_eq!(fs::read_to_string(&thesis).unwrap(), "three years of work\n");
    assert_eq!(names(&directory), ["thesis.csv"]);
    stdout(&record(&thesis, &["--force"]));
    let first = fs::read(&thesis).unwrap();
    assert!(trace::is_trace(&first));

    stdout(&record(&thesis, &[]));
    assert_eq!(names(&directory), ["thesis.csv", "thesis.csv.old"]);
    assert_eq!(fs::read(directory.join("thesis.csv.old")).unwrap(), first);
    let second = fs::read(&thesis).unwrap();
    assert!(second != first && trace::is_trace(&second));

    // Only a recording is kept as .old, and nothing else is overwritten by it.
    let old = directory.join("thesis.csv.old");
    fs::write(&old, "somebody's").unwrap();
    fails(&record(&thesis, &[]), 1, &["refusing to overwrite", "thesis.csv.old"]);
    assert_eq!(fs::read(&thesis).unwrap(), second);
    assert_eq!(fs::read_to_string(&old).unwrap(), "somebody's");

    // An empty file, as created by mktemp, has nothing to lose.
    let empty = directory.join("empty");
    fs::write(&empty, "").unwrap();
    stdout(&record(&empty, &[]));
    assert!(trace::is_trace(&fs::read(&empty).unwrap()) && !trace::old_name(&empty).exists());
}

#[test]
fn traces_that_are_made_replace_nothing_but_traces_either() {
    let directory = directory("files-made");
    let noise = directory.join("noise.csv");
    fs::write(&noise, "start_ns,length_ns\n1000,200\n5000,300\n").unwrap();
    let other = directory.join("other.csv");
    fs::write(&other, "precious").unwrap();
    fails(
        &["import", text(&noise), "-o", text(&other)],
        1,
        &["refusing to overwrite", "other.csv"],
    );
    fails(&["merge", DEMO, "-o", text(&other)], 1, &["refusing to overwrite", "other.csv"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    let trace = directory.join("t.detour");
    fs::copy(DEMO, &trace).unwrap();
    stdout(&["import", text(&noise), "-o", text(&trace)]);
    assert_eq!(fs::read(trace::old_name(&trace)).unwrap(), fs::read(DEMO).unwrap());
    // The file that the kept one would replace is an input.
    let old = trace::old_name(&trace);
    fails(&["merge", text(&old), "-o", text(&trace)], 1, &["refusing to overwrite"]);
    assert_eq!(names(&directory), ["noise.csv", "other.csv", "t.detour", "t.detour.old"]);
}

#[test]
fn standard_output_and_devices_are_outputs() {
    let printed = stdout(&EXPORT);
    assert_eq!(stdout(&[&EXPORT[..], &["-o", "/dev/stdout"]].concat()), printed);
    assert_eq!(stdout(&[&EXPORT[..], &["-o", "/dev/null"]].concat()), "");
    assert_eq!(stdout(&[&RECORD[..], &["-o", "/dev/null"]].concat()), "");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    fails(&[&EXPORT[..], &["-o", "/dev/full"]].concat(), 1, &["/dev/full", "o space"]);
    // A file that standard output is redirected to is appended to.
    let directory = directory("files-appended");
    let path = directory.join("all");
    let script = r#"{ echo first; "$@" -o /dev/stdout; echo last; } > "$0""#;
    let status = Command::new("sh")
        .args(["-c", script, text(&path), env!("CARGO_BIN_EXE_detour")])
        .args(EXPORT)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("first\n{printed}last\n"));
}

#[test]
fn a_recording_goes_through_a_pipe_into_a_report() {
    let arguments = [&RECORD[..], &["-o", "/dev/stdout"]].concat();
    let recorded = detour(&arguments).assert().success().get_output().clone();
    assert!(trace::is_trace(&recorded.stdout));
    let report = detour(&["report", "--json", "/dev/stdin"]).write_stdin(recorded.stdout).assert();
    let report: serde_json::Value =
        serde_json::from_slice(&report.success().get_output().stdout).expect("JSON");
    assert_eq!(report["mode"], "probe_only");
    assert!(report["truncated"].is_null());
    fails(&[&arguments[..], &["--json"]].concat(), 1, &["--json", "stdout"]);
    let noise = "start_ns,length_ns\n1000,200\n5000,300\n";
    detour(&["report", "/dev/stdin"]).write_stdin(noise).assert().success();
}

#[test]
fn pipes_with_a_name_are_outputs_and_are_waited_for() {
    let directory = directory("files-fifo");
    let fifo = directory.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
    for arguments in [words(&EXPORT), words(&RECORD), words(&["import", DEMO])] {
        // A trace cannot be imported: it fails before the pipe is opened.
        let refused = arguments[0] == "import";
        let mut all: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        all.extend([OsStr::new("-o"), fifo.as_os_str()]);
        let child = start(&all).spawn().expect("started");
        if !refused {
            let content = fs::read(&fifo).expect("read to its end");
            assert!(content.len() > 100, "{} bytes", content.len());
        }
        let output = child.wait_with_output().expect("ended");
        assert_eq!(output.status.success(), !refused, "{}", said(&output));
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    }
    assert_eq!(names(&directory), ["pipe"]);
}

#[test]
fn links_are_still_not_followed() {
    let directory = directory("files-links");
    let (target, link) = (directory.join("target"), directory.join("link"));
    fs::write(&target, "precious").unwrap();
    for at in [target.as_path(), Path::new("/dev/null"), Path::new("/dev/stdout")] {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(at, &link).unwrap();
        fails(&[&EXPORT[..], &["-o", text(&link)]].concat(), 1, &["symbolic link"]);
        fails(&[&RECORD[..], &["-o", text(&link)]].concat(), 1, &["symbolic link"]);
        fails(&[&RECORD[..], &["--force", "-o", text(&link)]].concat(), 1, &["symbolic link"]);
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(names(&directory), ["link", "target"]);
}

#[test]
fn a_command_that_cannot_be_run_ends_as_in_a_shell() {
    let directory = directory("files-commands");
    let script = |name: &str, content: &str, mode| {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        text(&path).to_owned()
    };
    let not_executable = script("plain", "#!/bin/sh\n", 0o644);
    let no_interpreter = script("orphan", "#!/nowhere/sh\n", 0o755);
    let absent = text(&directory.join("absent")).to_owned();
    let output = text(&directory.join("never.detour")).to_owned();
    for (command, code) in [
        ("no-such-command-anywhere", 127),
        (absent.as_str(), 127),
        ("", 127),
        (not_executable.as_str(), 126),
        (no_interpreter.as_str(), 126),
        ("/", 126),
    ] {
        fails(&["record", "-o", &output, "--", command], code, &["cannot run"]);
        assert!(!Path::new(&output).exists());
    }
}

/// Every command with each of its options and a value that is not UTF-8: an error or not, but no
/// panic. The list is the one the documentation is generated from.
#[test]
fn nothing_panics_on_arguments_that_are_not_text() {
    let directory = directory("files-bytes");
    let page = stdout(&["man", "--markdown"]);
    let odd = OsStr::from_bytes(b"x\xff");
    // Defaults would take too long, and a page is for a terminal.
    let quick = |command: &str, option: &str| match command {
        "record" if option == "--cgroup" => vec![],
        "record" => vec!["-d", "20ms", "--no-bpf"],
        "top" => vec!["-d", "20ms"],
        "report" if option == "--html" => vec!["--no-projection"],
        "simulate collective" | "whatif" | "diff" => vec!["--ranks", "2", "--runs", "2"],
        "simulate alltoall" => vec!["--ranks", "2", "--samples", "10"],
        "simulate exchange" => vec!["--samples", "10"],
        "simulate cycle" => vec!["--ranks", "2", "--runs", "2"],
        _ => vec![],
    };
    let (mut command, mut tried) = (String::new(), 0);
    let mut try_it = |command: &str, option: Option<&str>, files: usize| {
        let mut all: Vec<&OsStr> = command.split(' ').map(OsStr::new).collect();
        let quick = quick(command, option.unwrap_or_default());
        if !option.is_some_and(|option| quick.contains(&option)) {
            all.extend(quick.into_iter().map(OsStr::new));
        }
        all.extend(vec![OsStr::new(DEMO); files]);
        all.extend(option.map(OsStr::new));
        all.push(odd);
        let output = start(&all).current_dir(&directory).output().expect("ended");
        let code = output.status.code();
        assert!(
            matches!(code, Some(0..=3 | 126 | 127 | 130)),
            "{all:?}: {code:?} {}",
            said(&output)
        );
        assert!(!said(&output).contains("panicked"), "{all:?}: {}", said(&output));
        tried += 1;
    };
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## `detour ") {
            command = title.trim_end_matches('`').to_owned();
        }
        if command.is_empty() || command == "demo" {
            continue;
        }
        if line.starts_with("## ") {
            try_it(&command, None, 0);
            try_it(&command, None, 1);
        }
        // `-o`, `--output FILE`: those that take a value.
        let words = line.strip_prefix("| `").unwrap_or_default();
        let long = words.split('`').find(|word| word.starts_with("--") && word.contains(' '));
        if let Some((option, _)) =
            long.and_then(|long| long.split_once(' ')).filter(|(o, _)| *o != "--")
        {
            for files in 0..3 {
                try_it(&command, Some(option), files);
            }
        }
    }
    assert!(tried > 200, "{tried} tried");
}

#[test]
fn names_that_are_not_text_are_names() {
    let directory = directory("files-odd-names");
    let odd = |name: &[u8]| directory.join(OsStr::from_bytes(name));
    let run = |arguments: &[&OsStr]| {
        let output = start(arguments).current_dir(&directory).output().expect("ended");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        output
    };
    let words = |line: &'static str| line.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let (output, trace, merged) = (OsStr::new("-o"), odd(b"\xff.detour"), odd(b"\xff-merged"));
    let json =
        run(&[&words("record --no-bpf -d 50ms --json")[..], &[output, trace.as_ref()]].concat());
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(value["output"].as_str().unwrap().ends_with("\u{fffd}.detour"));
    run(&[&words("report --json")[..], &[trace.as_ref()]].concat());
    run(&[&words("merge --json")[..], &[trace.as_ref(), output, merged.as_ref()]].concat());
    assert!(trace.exists() && merged.exists());
    let csv = odd(b"\xfe.csv");
    run(&[&words("export --to csv")[..], &[trace.as_ref(), output, csv.as_ref()]].concat());
    run(&[&words("import --json")[..], &[odd(b"\xfe.csv#1").as_ref()]].concat());
    let noise = [OsStr::new("--noise"), trace.as_ref()];
    run(&[&words("simulate collective --ranks 2 --runs 2 -q --json --repeat-trace")[..], &noise]
        .concat());
    let times = odd(b"\xfd.txt");
    fs::write(&times, "150\n151\n").unwrap();
    let exchange = [OsStr::new("--exchange"), times.as_ref()];
    run(&[&words("simulate exchange --samples 10 --json")[..], &exchange].concat());
    // A command may have any name.
    let bad = OsStr::from_bytes(b"/bin/\xff");
    let output = start(&[&words("record -o never --")[..], &[bad]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
    assert!(said(&output).contains("cannot run /bin/\u{fffd}"), "{}", said(&output));
}

#[test]
fn a_file_is_named_once() {
    let directory = directory("files-twice");
    let trace = directory.join("t.detour");
    fs::copy(DEMO, &trace).unwrap();
    let (trace, page) = (text(&trace), text(&directory.join("page")).to_owned());
    // Another name of the same file.
    let also = format!("{}/./t.detour", text(&directory));
    let quick = ["--ranks", "2", "--runs", "2", "--repeat-trace"];
    let noise = format!("{DEMO},{trace}#1");
    let with = |line: &[&'static str]| [line, &quick[..]].concat();
    let samples = text(&directory.join("samples.txt")).to_owned();
    fs::write(&samples, "1\n2\n3\n").unwrap();
    let twice: [(Vec<&str>, &str); 8] = [
        (vec!["dist", &samples, "--html", &samples], "is also an input"),
        (vec!["report", trace, "--html", &also], "refusing to overwrite the recording"),
        (vec!["diff", DEMO, trace, "--html", &also], "refusing to overwrite the recording"),
        (vec!["export", trace, "--to", "csv", "-o", &also], "refusing to overwrite the recording"),
        (vec!["dist", trace, "--html", trace], "refusing to overwrite the recording"),
        (
            [&with(&["simulate", "collective"])[..], &["--noise", &noise, "--csv", trace]].concat(),
            "refusing to overwrite the recording",
        ),
        (
            [&with(&["simulate", "collective"])[..], &["--csv", &page, "--html", &page]].concat(),
            "two outputs have the same path: ",
        ),
        (
            vec!["demo", "-d", "50ms", "-o", &page, "--html", &page],
            "two outputs have the same path: ",
        ),
    ];
    for (arguments, why) in twice {
        fails(&arguments, 1, &[why]);
    }
    assert_eq!(names(&directory), ["samples.txt", "t.detour"]);
    assert_eq!(fs::read_to_string(&samples).unwrap(), "1\n2\n3\n");
    assert_eq!(fs::read(trace).unwrap(), fs::read(DEMO).unwrap());
    // What stands elsewhere in the command line is not a file because of that.
    stdout(&["export", trace, "--to", "csv", "-o", &page]);
}

/// Runs it with a standard output that nothing reads, and one that is closed.
fn unread(arguments: &[&str], code: i32) {
    for shell in [r#""$0" "$@" >&-"#, r#"{ sleep 0.1; "$0" "$@"; echo $? >&3; } 3>&2 | true"#] {
        let run = Command::new("sh")
            .args(["-c", shell, env!("CARGO_BIN_EXE_detour")])
            .args(arguments)
            .output()
            .expect("sh");
        let said = said(&run);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        let ended = match shell.contains("echo") {
            true => said.lines().last().and_then(|line| line.parse().ok()),
            false => run.status.code(),
        };
        assert_eq!(ended, Some(code), "{shell}: {arguments:?}: {said}");
    }
}

#[test]
fn an_output_that_is_not_read_loses_no_file_and_no_exit_code() {
    let directory = directory("files-unread");
    let file = |name: &str| text(&directory.join(name)).to_owned();
    unread(&["report", DEMO], 0);
    unread(&["report", "--json", "--no-projection", DEMO], 0);
    unread(&EXPORT, 0);
    let (csv, page) = (file("points.csv"), file("page.html"));
    let simulate = ["simulate", "collective", "--ranks", "2,4", "--runs", "2"];
    unread(&[&simulate[..], &["--csv", &csv]].concat(), 0);
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
    unread(&["diff", DEMO, DEMO, "--ranks", "2", "--runs", "2", "--html", &page], 0);
    assert!(fs::metadata(&page).unwrap().len() > 1_000);
    // The gate is closed, whether or not its words are read.
    let quiet = file("quiet.csv");
    fs::write(&quiet, "start_ns,length_ns\n1000,200\n2000000000,300\n").unwrap();
    let noisy = file("noisy.csv");
    let rows: String = (0..2_000).map(|ms| format!("{},500000\n", ms * 1_000_000)).collect();
    fs::write(&noisy, format!("start_ns,length_ns\n{rows}")).unwrap();
    let gate = ["--fail-if-worse", "5%", "--ranks", "4", "--runs", "20"];
    unread(&[&["diff", &quiet, &noisy][..], &gate].concat(), 1);
    unread(&["record", "--no-bpf", "-d", "50ms", "--json", "-o", &file("t.detour")], 0);
    assert!(trace::Reader::open(directory.join("t.detour")).unwrap().trailer().is_some());
}
