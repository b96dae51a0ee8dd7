//! Real netgauge files, plain or xz, in the directory given by DETOUR_DATA or its subdirectory `noise`.
//! Without it the test is reported as skipped: the files are not part of this project.

use std::{env, fs, path::Path};

use formats::import::{Format, ImportOptions, import_file, imported_to_trace};
use libtest_mimic::{Arguments, Completion, Trial};

const STRICT: ImportOptions = ImportOptions { lenient: false, format: None };

fn main() {
    let test = Trial::ignorable_test(
        "real_netgauge_files_are_read_and_agree_with_their_own_summary",
        || match env::var_os("DETOUR_DATA") {
            Some(directory) => {
                real_netgauge_files_are_read_and_agree_with_their_own_summary(directory.as_ref());
                Ok(Completion::Completed)
            }
            None => Ok(Completion::ignored_with(
                "set DETOUR_DATA to a directory of netgauge noise files",
            )),
        },
    );
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit();
}

fn real_netgauge_files_are_read_and_agree_with_their_own_summary(directory: &Path) {
    let mut files = 0;
    let below = directory.join("noise");
    let directory = if below.is_dir() { &below } else { directory };
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().contains("ng_osnoise") {
            continue;
        }
        files += 1;
        let imported = import_file(&path, &STRICT).unwrap();
        assert_eq!(imported.format, Format::Netgauge);
        for run in &imported.runs {
            let stated = run.header["CPU overhead due to noise"].trim_end_matches('%');
            let stated: f64 = stated.parse().unwrap();
            println!(
                "{}: {} detours, t_min {:?} ns, step {:?} ns, {:.1} s, {:.3} % (stated {stated} %)",
                path.file_name().unwrap().to_string_lossy(),
                run.count(),
                run.t_min_ns,
                run.clock_step_ns,
                run.span_ns / 1e9,
                run.noise_pct(),
            );
            assert!((run.noise_pct() - stated).abs() <= 0.0051);
            assert!(run.t_min_ns.is_some() && run.threshold_ns.is_some());
            imported_to_trace(run).unwrap();
        }
    }
    assert!(files > 0, "DETOUR_DATA holds no netgauge files");
}
