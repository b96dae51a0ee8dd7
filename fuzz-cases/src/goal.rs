//! GOAL, text or binary: whatever it is, it is read or refused; what was read can be written in either
//! form and read again, and is the same.

use simulate::{
    event::Schedule,
    goal::{CalcUnit, Form, read, read_binary, read_text, write},
};

pub fn text(data: &[u8]) {
    read_text(data, CalcUnit::default()).iter().for_each(there_and_back);
}

pub fn binary(data: &[u8]) {
    read_binary(data, CalcUnit::default()).iter().for_each(there_and_back);
}

fn there_and_back(schedule: &Schedule) {
    let unit = CalcUnit::default();
    for form in [Form::Text, Form::Binary] {
        let mut written = Vec::new();
        write(form, schedule, unit, &mut written).expect("what was read can be written");
        let again = read(written.as_slice(), unit).expect("what was written can be read");
        assert!(again == *schedule, "{form:?} does not hold the same");
    }
}
