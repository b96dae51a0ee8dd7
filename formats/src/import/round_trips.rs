//! netgauge round trips (`-x one_one` with all values written): rows of message size in bytes and half a
//! round trip in microseconds. Comments as in its other files; several runs may follow each other.

/// Half round trips of one message size, in the file's order.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrips {
    pub bytes: u64,
    pub half_us: Vec<f64>,
}

/// Larger messages are not measured individually, and starts of detours soon exceed this.
const MOST_BYTES: f64 = (1_u64 << 31) as f64;

/// The round trips of a file, one entry per message size in order of appearance; None for any other
/// file.
///
/// Detours are also rows of two numbers, but their starts increase while message sizes repeat.
pub fn round_trips(bytes: &[u8]) -> Option<Vec<RoundTrips>> {
    let mut sizes: Vec<RoundTrips> = Vec::new();
    let (mut rows, mut current) = (0, 0);
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace().map(str::parse::<f64>);
        let size = words.next()?.ok()?;
        if size.fract() != 0.0 || !(1.0..=MOST_BYTES).contains(&size) {
            return None;
        }
        // A truncated row has no time.
        let Some(half_us) = words.next() else { continue };
        let half_us = half_us.ok().filter(|us| us.is_finite() && *us >= 0.0)?;
        if words.next().is_some() {
            return None;
        }
        rows += 1;
        let size = size as u64;
        if sizes.get(current).is_none_or(|known| known.bytes != size) {
            current = sizes.iter().position(|known| known.bytes == size).unwrap_or(sizes.len());
        }
        if current == sizes.len() {
            // Starts rather than sizes: stop before the linear search becomes quadratic.
            if sizes.len() > 1_000 {
                return None;
            }
            sizes.push(RoundTrips { bytes: size, half_us: Vec::new() });
        }
        sizes[current].half_us.push(half_us);
    }
    (rows > 0 && 2 * sizes.len() <= rows).then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_size_and_a_time_are_round_trips() {
        let text = b"# Nodename: a\n1\t2.5\n1\t0.9\n# Nodename: a\n1\t2.25\n1\n";
        let found = round_trips(text).unwrap();
        assert_eq!(found, [RoundTrips { bytes: 1, half_us: vec![2.5, 0.9, 2.25] }]);
        let several = round_trips(b"1 2\n16 3\n1 4\n16 5\n").unwrap();
        assert_eq!(several.iter().map(|trips| trips.bytes).collect::<Vec<_>>(), [1, 16]);
    }

    #[test]
    fn detours_are_not_round_trips() {
        let rounded = "20000000000000\t500\n".repeat(9);
        let one_after_the_other: String =
            (0..5_000).map(|i| format!("{}\t7\n", 100 * i + 1)).collect();
        for other in [
            "",
            "# no rows\n",
            "100\t5\n200\t5\n",
            "1.5 2\n1.5 2\n",
            "1 2 3\n1 2 3\n",
            "a b\n",
            &rounded,
            &one_after_the_other,
        ] {
            assert_eq!(round_trips(other.as_bytes()), None, "{other:.20}");
        }
    }
}
