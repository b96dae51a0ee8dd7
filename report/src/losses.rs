//! What a recording lost, as messages.

use trace::Lost;

use crate::words::{plural, time};

/// Losses of a recording, and how to avoid them.
#[must_use]
pub fn losses(lost: &Lost) -> Vec<String> {
    let mut said = Vec::new();
    if lost.records > 0 {
        said.push(format!(
            "{} lost: ring buffer full ({} of kernel time); increase --buffer",
            plural(lost.records, "record"),
            time(lost.records_ns as f64)
        ));
    }
    if lost.detours > 0 {
        said.push(format!(
            "{} lost: probe buffer full; increase the threshold (-T)",
            plural(lost.detours, "detour")
        ));
    }
    if lost.unwritten > 0 {
        said.push(format!("{} not written", plural(lost.unwritten, "event")));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_said_with_what_helps() {
        assert!(losses(&Lost::default()).is_empty());
        let lost =
            Lost { records: 181_000, records_ns: 754_000_000, unwritten: 3, ..Lost::default() };
        let said = [
            "181k records lost: ring buffer full (754 ms of kernel time); increase --buffer",
            "3 events not written",
        ];
        assert_eq!(losses(&lost), said);
    }
}
