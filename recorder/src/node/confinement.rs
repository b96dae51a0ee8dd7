//! What may refuse a process something for which it has the capabilities: lockdown, a security module, a
//! seccomp filter, a user namespace.

use super::files::text;

/// What confines this process, each with the remedy.
pub fn found() -> Vec<String> {
    confinements(&Texts {
        lockdown: &text("/sys/kernel/security/lockdown"),
        apparmor: &text("/proc/self/attr/apparmor/current"),
        label: &text("/proc/self/attr/current"),
        selinux: &text("/sys/fs/selinux/enforce"),
        status: &text("/proc/self/status"),
        users: &text("/proc/self/uid_map"),
    })
}

/// The end of an error message.
pub fn denied_by(found: &[String]) -> String {
    match found {
        [] => "possible cause: a security module or the container's settings; see the kernel log"
            .into(),
        [one] => format!("possible cause: {one}"),
        several => format!("possible causes: {}", several.join("; ")),
    }
}

struct Texts<'a> {
    lockdown: &'a str,
    apparmor: &'a str,
    /// Of whichever module comes first.
    label: &'a str,
    selinux: &'a str,
    status: &'a str,
    users: &'a str,
}

fn confinements(texts: &Texts<'_>) -> Vec<String> {
    let mut found = Vec::new();
    // Integrity allows everything that a recording needs.
    if texts.lockdown.contains("[confidentiality]") {
        found.push("the kernel's lockdown (boot without lockdown=confidentiality)".to_owned());
    }
    let selinux = texts.selinux.trim() == "1";
    let profile = match texts.apparmor.trim_matches(['\n', '\0']) {
        "" if !selinux => texts.label.trim_matches(['\n', '\0']),
        other => other,
    };
    // Other modes of a profile deny nothing.
    if let Some(profile) = profile.strip_suffix(" (enforce)") {
        found
            .push(format!("the AppArmor profile '{profile}' (allow it `capability bpf, perfmon`)"));
    }
    let context = texts.label.trim_matches(['\n', '\0']);
    if selinux && !context.is_empty() && !context.contains(":unconfined_t") {
        found.push(format!("SELinux, in the context {context} (see `ausearch -m avc`)"));
    }
    let filtered = texts
        .status
        .lines()
        .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    if filtered {
        found.push(
            "a seccomp filter (allow bpf and perf_event_open; in a container, for example \
             --security-opt seccomp=unconfined)"
                .to_owned(),
        );
    }
    // The initial user namespace maps all users to themselves.
    let map: Vec<&str> = texts.users.split_whitespace().collect();
    if !map.is_empty() && map != ["0", "0", "4294967295"] {
        found.push("a user namespace, whose capabilities do not count (run outside it)".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Texts<'_> = Texts {
        lockdown: "[none] integrity confidentiality\n",
        apparmor: "unconfined\n",
        label: "unconfined\n",
        selinux: "",
        status: "Name:\tdetour\nSeccomp:\t0\nSeccomp_filters:\t0\n",
        users: "         0          0 4294967295\n",
    };

    #[test]
    fn a_free_process_is_confined_by_nothing() {
        assert!(confinements(&FREE).is_empty());
        let integrity = "none [integrity] confidentiality\n";
        assert!(confinements(&Texts { lockdown: integrity, ..FREE }).is_empty());
        assert!(confinements(&Texts { apparmor: "tool (complain)\n", ..FREE }).is_empty());
    }

    #[test]
    fn each_confinement_is_named() {
        let one = |texts: Texts<'_>, word: &str| {
            let found = confinements(&texts);
            assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
            assert!(denied_by(&found).starts_with("possible cause: "), "{found:?}");
        };
        one(Texts { lockdown: "none integrity [confidentiality]\n", ..FREE }, "lockdown");
        one(Texts { apparmor: "/usr/bin/detour (enforce)\n", ..FREE }, "'/usr/bin/detour'");
        // Before Linux 5.1 there is only one label.
        one(Texts { apparmor: "", label: "tool (enforce)\n", ..FREE }, "'tool'");
        let selinux = Texts { selinux: "1", label: "u:r:tool_t:s0\0", apparmor: "", ..FREE };
        one(selinux, "u:r:tool_t:s0");
        one(Texts { status: "Seccomp:\t2\n", ..FREE }, "seccomp");
        one(Texts { users: " 0 1000 1\n", ..FREE }, "user namespace");
    }

    #[test]
    fn several_are_all_named() {
        let found =
            confinements(&Texts { status: "Seccomp:\t2\n", apparmor: "tool (enforce)\n", ..FREE });
        let said = denied_by(&found);
        assert!(said.contains("seccomp") && said.contains("'tool'"), "{said}");
    }
}
