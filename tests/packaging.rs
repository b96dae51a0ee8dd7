//! Packages and documentation request the privileges that the program itself suggests.

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names without `CAP_`, in any notation.
fn capabilities(list: &str) -> BTreeSet<String> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase().trim_start_matches("cap_").to_owned()).collect()
}

/// The text after a word, up to the end of the list.
fn after<'a>(text: &'a str, word: &str) -> &'a str {
    let (_, rest) = text.split_once(word).unwrap_or_else(|| panic!("no {word}"));
    rest.split(['\n', '+']).next().unwrap_or(rest)
}

#[test]
fn unit_container_and_documentation_ask_for_the_capabilities_that_doctor_suggests() {
    let suggested = capabilities(after(recorder::machine::SETCAP, "setcap "));
    assert_eq!(suggested, capabilities("bpf perfmon syslog"));
    let unit = read("packaging/detour-record@.service");
    for setting in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
        assert_eq!(capabilities(after(&unit, setting)), suggested, "{setting}");
    }
    let container = read("packaging/Containerfile");
    let added = after(&container, "--cap-add ").split(' ').next().expect("a list");
    assert_eq!(capabilities(added), suggested, "Containerfile");
    let security = read("docs/security.md");
    assert_eq!(capabilities(after(&security, "setcap ")), suggested, "docs/security.md");
    assert!(security.contains("CAP_SYSLOG"));
}

#[test]
fn the_unit_names_its_files_by_host_and_time() {
    let unit = read("packaging/detour-record@.service");
    // systemd expands its specifiers once, and leaves one of two percent signs.
    let given = after(&unit, "--output %S").split(' ').next().expect("a name").replace("%%", "%");
    let name = recorder::output_name(Some(Path::new(&given)));
    assert!(!name.to_string_lossy().contains('%'), "{}", name.display());
}
