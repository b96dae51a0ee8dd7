//! Numbers and names for display. Three significant digits everywhere.

use trace::Class;
pub use trace::utc;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Three significant digits of a number from 1 to 999.
fn three(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A length of time with its unit.
#[must_use]
pub fn time(ns: f64) -> String {
    if ns.is_nan() || ns <= 0.0 {
        return "0".to_owned();
    }
    if ns < 999.5 && ns.fract() == 0.0 {
        return format!("{ns} ns");
    }
    for (scale, unit) in [(1.0, "ns"), (1e3, "us"), (1e6, "ms")] {
        if ns / scale < 999.5 {
            return format!("{} {unit}", three(ns / scale));
        }
    }
    format!("{} s", three(ns / 1e9))
}

/// A length of time with four significant digits and its unit, for columns that are compared row by row.
#[must_use]
pub fn precise(ns: f64) -> String {
    let (size, unit) = match ns.abs() {
        0.0 => return "0".to_owned(),
        ns if ns < 999.95 => (1.0, "ns"),
        ns if ns < 999.95e3 => (1e3, "us"),
        ns if ns < 999.95e6 => (1e6, "ms"),
        ns if ns.is_nan() => return "-".to_owned(),
        _ => (1e9, "s"),
    };
    let value = ns / size;
    let digits = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    // Whole nanoseconds need no digits after the point.
    let text = match unit == "ns" && ns.fract() == 0.0 {
        true => format!("{ns:.0}"),
        false => text,
    };
    format!("{text}{unit}")
}

/// [`time`] without the space, for columns.
#[must_use]
pub fn tight(ns: u64) -> String {
    time(ns as f64).replace(' ', "")
}

/// Capitalises the first letter, unless the first word is the name of a file.
pub fn capital(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.trim_end_matches(['.', ',', ':', ';']).contains(['.', '/']) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |c| c.to_uppercase().chain(letters).collect())
}

#[must_use]
pub fn count(n: u64) -> String {
    let v = n as f64;
    match n {
        0..100_000 => n.to_string(),
        100_000..999_500 => format!("{}k", three(v / 1e3)),
        999_500..999_500_000 => format!("{}M", three(v / 1e6)),
        _ => format!("{}G", three(v / 1e9)),
    }
}

/// `1 detour`, `2 detours`.
pub fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

#[must_use]
pub fn rate(hz: f64) -> String {
    match hz {
        v if v.is_nan() || v <= 0.0 => "0".to_owned(),
        v if v < 0.005 => "<0.01".to_owned(),
        v if v < 999.5 => three(v),
        v if v < 999_500.0 => format!("{}k", three(v / 1e3)),
        v => format!("{}M", three(v / 1e6)),
    }
}

/// A frequency with its unit.
#[must_use]
pub fn frequency(hz: f64) -> String {
    if hz.is_nan() || hz <= 0.0 {
        return "0 Hz".to_owned();
    }
    for (scale, unit) in [(1.0, "Hz"), (1e3, "kHz"), (1e6, "MHz")] {
        if hz / scale < 999.5 {
            return format!("{} {unit}", three(hz / scale));
        }
    }
    format!("{} GHz", three(hz / 1e9))
}

/// Never rounds a nonzero value to 0 %, nor a partial one to 100 %.
#[must_use]
pub fn percent(value: f64) -> String {
    match value {
        v if v.is_nan() || v <= 0.0 => "0%".to_owned(),
        v if v < 0.005 => "<0.01%".to_owned(),
        v if v > 99.95 && v < 100.0 => ">99.9%".to_owned(),
        v => format!("{}%", three(v)),
    }
}

/// [`percent`] for a sentence: whole numbers at 10 and above.
pub fn percent_said(value: f64) -> String {
    match value {
        v if (99.5..100.0).contains(&v) => ">99 %".to_owned(),
        v if v >= 9.95 => format!("{v:.0} %"),
        v => percent(v).replace('%', " %"),
    }
}

/// Year, month, day, hour, minute and second of a recording's time; None if it has none.
#[must_use]
pub fn date(unix_s: f64) -> Option<[i64; 6]> {
    const YEAR_10000: f64 = 253_402_300_800.0;
    (unix_s > 0.0 && unix_s < YEAR_10000).then(|| utc(unix_s as i64))
}

/// `2.1 % to 3 %`.
pub fn interval_said([low, high]: [f64; 2]) -> String {
    format!("{} to {}", percent_said(low), percent_said(high))
}

/// `0-3,7`.
pub fn cpu_list(cpus: impl Iterator<Item = u32>) -> String {
    let mut cpus: Vec<u32> = cpus.collect();
    cpus.sort_unstable();
    cpus.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let name = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.iter().map(name).collect::<Vec<_>>().join(",")
}

/// `CPU 3` or `CPUs 0-3,7`, from a CPU list.
#[must_use]
pub fn cpu_list_said(list: &str) -> String {
    let plural = list.contains([',', '-']);
    format!("CPU{} {list}", if plural { "s" } else { "" })
}

/// False for control characters, and for characters that change the direction or position of the
/// surrounding text.
pub fn harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Escapes a name so that it cannot affect the terminal.
#[must_use]
pub fn safe(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for c in name.chars() {
        if harmless(c) {
            safe.push(c);
        } else {
            safe.extend(c.escape_default());
        }
    }
    safe
}

/// [`safe`] for thread names, which may be empty: a row without a name looks like a missing row.
#[must_use]
pub fn name(name: &str) -> String {
    if name.trim().is_empty() { NO_NAME.to_owned() } else { safe(name) }
}

/// Readable name of a class outside the kernel; None where kernel events were not recorded.
#[must_use]
pub fn outside_label(class: &str) -> Option<&'static str> {
    match class {
        "microarchitecture" => Some("microarchitecture"),
        "hypervisor" => Some("hypervisor"),
        "smi" => Some("SMI"),
        "hypervisor_or_smi" => Some("hypervisor or SMI"),
        "unexplained" => Some("unexplained"),
        _ => None,
    }
}

/// Readable name of a source: threads by name, everything else with its class.
#[must_use]
pub fn label_of(class: Class, name: &str) -> String {
    let name = self::name(name);
    match class {
        Class::Thread | Class::Kthread | Class::Throttled => name,
        _ if name.to_lowercase().contains(class.name()) => name,
        _ => format!("{} {name}", class.name().replace('_', " ")),
    }
}

/// Shown for a thread without a name.
pub const NO_NAME: &str = "(no name)";

/// [`safe`] for a message of several lines.
#[must_use]
pub fn message_safe(text: &str) -> String {
    text.split('\n').map(safe).collect::<Vec<_>>().join("\n")
}

/// JSON text that cannot affect the terminal, using JSON escapes. Line breaks are layout: those in
/// strings are already escaped.
#[must_use]
pub fn json_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || harmless(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    safe
}

/// [`safe`], without a final period, to go on after it.
#[must_use]
pub fn unpunctuated(text: &str) -> String {
    safe(text.trim_end_matches('.'))
}

/// A word of a command line as a shell takes it. Any process may call itself `; rm -rf ~`.
#[must_use]
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Truncates to `width` columns of a terminal, ending in `..` if anything was cut.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(2);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push_str("..");
    short
}

fn is_unit(word: &str) -> bool {
    matches!(word.trim_end_matches([',', '.', ';', ':', ')']), "%" | "ns" | "us" | "ms" | "s")
}

/// Breaks lines at spaces to at most `width`; continuation lines start with `indent`.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    let mut words = text.split(' ').filter(|w| !w.is_empty()).peekable();
    while let Some(word) = words.next() {
        let len = word.chars().count();
        // A number and its unit stay on one line.
        let unit = words.peek().filter(|next| is_unit(next)).map_or(0, |u| 1 + u.chars().count());
        if column > 0 && !is_unit(word) && column + 1 + len + unit > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.chars().count();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_keep_their_case() {
        assert_eq!(capital("it is incomplete"), "It is incomplete");
        assert_eq!(capital("processes: 3"), "Processes: 3");
        for name in ["node.detour is incomplete", "runs/node is incomplete"] {
            assert_eq!(capital(name), name);
        }
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(shell_quoted("trace-1.detour"), "trace-1.detour");
        assert_eq!(shell_quoted("it's; rm -r"), r"'it'\''s; rm -r'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        let cases = [
            (0.0, "0"),
            (7.0, "7 ns"),
            (21.46, "21.5 ns"),
            (999.0, "999 ns"),
            (999.7, "1.00 us"),
            (1234.0, "1.23 us"),
            (99_960.0, "100 us"),
            (999_600.0, "1.00 ms"),
            (4e6, "4.00 ms"),
            (10e9, "10.0 s"),
            (3.6e12, "3600 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn names_are_cut_to_columns_not_characters() {
        assert_eq!(cut("kworker", 7), "kworker");
        assert_eq!(cut("kworker/0:1", 7), "kwork..");
        // Five characters, ten columns.
        assert_eq!(
            cut("\u{4e16}\u{754c}\u{4e16}\u{754c}\u{4e16}", 8),
            "\u{4e16}\u{754c}\u{4e16}.."
        );
        assert_eq!(cut("\u{4e16}\u{754c}\u{4e16}", 5), "\u{4e16}..");
    }

    #[test]
    fn percentages_do_not_round_to_nothing_or_to_everything() {
        assert_eq!(percent(0.001), "<0.01%");
        assert_eq!(percent(99.99), ">99.9%");
        assert_eq!(percent(100.0), "100%");
        assert_eq!(percent_said(99.9), ">99 %");
        assert_eq!(percent_said(0.42), "0.42 %");
        assert_eq!(percent_said(61.4), "61 %");
    }

    #[test]
    fn a_hostile_name_cannot_reach_the_terminal() {
        let name = "\u{1b}]0;owned\u{7}\r\n\u{9b}31m\u{202e}x";
        let safe = safe(name);
        assert_eq!(safe, "\\u{1b}]0;owned\\u{7}\\r\\n\\u{9b}31m\\u{202e}x");
        assert!(!safe.chars().any(char::is_control));
    }

    #[test]
    fn cpus_are_listed_as_ranges() {
        assert_eq!(cpu_list([5, 0, 1, 2, 7, u32::MAX].into_iter()), "0-2,5,7,4294967295");
        assert_eq!(cpu_list([].into_iter()), "");
    }

    #[test]
    fn wrapped_lines_fit() {
        let text = wrap("one two three four", 9, "  ");
        assert_eq!(text, "one two\n  three\n  four");
        assert_eq!(wrap("noise of 12 %, 3 us", 12, ""), "noise of\n12 %, 3 us");
    }
}
