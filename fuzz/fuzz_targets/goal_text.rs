//! GOAL text: whatever it is, it is read or refused; what was read can be written in either form and
//! read again, and is the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use simulate::goal::{CalcUnit, Form, read, read_text, write};

fuzz_target!(|data: &[u8]| {
    let unit = CalcUnit::default();
    let Ok(schedule) = read_text(data, unit) else { return };
    for form in [Form::Text, Form::Binary] {
        let mut written = Vec::new();
        write(form, &schedule, unit, &mut written).expect("what was read can be written");
        let again = read(written.as_slice(), unit).expect("what was written can be read");
        assert!(again == schedule, "{form:?} does not hold the same");
    }
});
