//! The table of remedies, which users extend: it is read or refused, and whatever was read can be asked
//! about any source.

use std::sync::LazyLock;

use study::decide::advice::{Advice, AdvisedSource, Place};
use trace::Class;

static BUILT_IN: LazyLock<Advice> =
    LazyLock::new(|| Advice::built_in().expect("the built-in table"));

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(advice) = BUILT_IN.clone().extended("input", text) else { return };
    for class in Class::ALL {
        let (unit, detail) = (Some("fakemond.service"), Some("irq 24"));
        for program in [false, true] {
            let subject = AdvisedSource {
                class,
                name: "fakemond",
                pids: &[],
                unit,
                detail,
                policy: None,
                program,
            };
            advice.remedies(&subject, &Place::default());
        }
    }
}
