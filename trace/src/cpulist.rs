//! Lists of CPUs as the kernel and the command line write them: `0-3,8`.

use std::collections::BTreeSet;

use thiserror::Error;

pub type CpuSet = BTreeSet<u32>;

/// Above the highest CPU number any kernel is built for; keeps `0-4000000000` from allocating.
const MAX_CPU: u32 = 65_535;

#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{text}' is not a CPU list (expected a list like 1,3-5)")]
pub struct CpuListError {
    text: String,
}

/// Empty text is the empty set, as the kernel prints it.
pub fn parse(text: &str) -> Result<CpuSet, CpuListError> {
    let wrong = || CpuListError { text: text.trim().to_owned() };
    let number = |part: &str| {
        part.trim().parse::<u32>().ok().filter(|cpu| *cpu <= MAX_CPU).ok_or_else(wrong)
    };
    let mut cpus = CpuSet::new();
    // Ranges may repeat: what is bounded is the work, not the result.
    let mut listed = 0;
    for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(wrong());
                }
                listed += last - first;
                if listed > MAX_CPU {
                    return Err(wrong());
                }
                cpus.extend(first..=last);
            }
            None => {
                cpus.insert(number(part)?);
            }
        }
    }
    Ok(cpus)
}

pub fn format(cpus: &CpuSet) -> String {
    let mut text = String::new();
    let mut rest = cpus.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if last > first {
            text.push(if last == first + 1 { ',' } else { '-' });
            text.push_str(&last.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_back() {
        for text in ["", "0", "0,1", "0-3,8", "1,3-5,7,9-11"] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["x", "1-", "3-1", "1,,2", "-1", "0-4000000000", "1;2", "0-65535,0-65535"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("1,3-5"), "{error}");
        }
    }
}
