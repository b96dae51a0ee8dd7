//! Advice as text: what to do about each source that costs something.

use study::decide::{
    advice::Remedy,
    whatif::{OfSource, WhatIf},
};

use crate::{
    Options,
    whatif::to_gain,
    words::{label_of, safe, unpunctuated, wrap},
};

/// Advice in the order of the sources. None if there is no advice.
#[must_use]
pub fn advice(results: &WhatIf, options: Options) -> Option<String> {
    let style = options.style();
    let mut text = style.title("What to do about it, largest gain first (nothing was changed)");
    // Reasons and risks are printed once: they are the same for every daemon.
    let mut said: Vec<(&str, &str, &str)> = Vec::new();
    for source in results.sources.iter().filter(|source| !source.advice.is_empty()) {
        let gain = to_gain(&source.answer.removed, results.runs);
        let heading = format!("{}: {gain}", safe(&label(source)));
        text += &format!("\n{}", wrap(&heading, style.width, "    "));
        for remedy in &source.advice {
            let Remedy { what, reason, risk, run, .. } = remedy;
            let words = (&**what, &**reason, &**risk);
            let again = said.contains(&words);
            let what = format!("{}{}", unpunctuated(what), if again { ", as above" } else { "" });
            text += &format!("\n  {}", wrap(&sentence(&what), style.width - 2, "  "));
            for line in run {
                // Not wrapped, so that commands can be copied.
                text += &format!("\n      {}", safe(line));
            }
            if again {
                continue;
            }
            said.push(words);
            let why = format!("Why: {}. Risk: {}.", unpunctuated(reason), unpunctuated(risk));
            text += &format!("\n    {}", wrap(&why, style.width - 4, "    "));
        }
    }
    (!said.is_empty()).then_some(text)
}

fn label(source: &OfSource) -> String {
    let label = label_of(source.class, &source.name);
    if source.program { format!("{label}, the program itself") } else { label }
}

fn sentence(text: &str) -> String {
    let safe = safe(text);
    let mut letters = safe.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), unpunctuated(letters.as_str())),
        None => String::new(),
    }
}
