//! The checks of a page in a browser.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use serde_json::{Value, json};

use super::browser::Browser;

/// What a page must show.
pub struct Wanted {
    /// By id.
    pub figures: &'static [&'static str],
    pub projected: &'static [&'static str],
    /// Whether there is more than one series to toggle.
    pub series: bool,
}

/// Size limit for a page of a ten-minute recording.
const LARGEST: u64 = 3_000_000;
/// Contrast of text, and of marks, with the page (WCAG).
const TEXT: f64 = 4.5;
const MARKS: f64 = 2.0;

/// Widths of a phone, a tablet and a desk.
const WIDTHS: [(u64, &str); 3] = [(360, "narrow"), (800, "medium"), (1400, "wide")];

/// Texts that lie over each other: labels of a figure among themselves, and blocks of text that are not
/// inside one another.
const OVERLAPS: &str = r#"
(() => {
  const faults = [];
  // One for each line: the button behind a command of two lines is within the bounds of both.
  const boxes = (e) => [...e.getClientRects()].filter((b) => b.width > 0 && b.height > 0);
  const meet = (p, q) => p.some((a) => q.some((b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5));
  const look = (elements, what) => {
    const seen = elements.map((e) => [e, boxes(e)]).filter(([e, b]) => b.length > 0
      && e.checkVisibility({ visibilityProperty: true }));
    for (let i = 0; i < seen.length; i++) for (let j = i + 1; j < seen.length; j++) {
      const [[a, p], [b, q]] = [seen[i], seen[j]];
      if (a.contains(b) || b.contains(a) || !meet(p, q)) continue;
      faults.push(`${what}: '${a.textContent.trim().slice(0, 30)}' over '${b.textContent.trim().slice(0, 30)}'`);
      if (faults.length > 5) return;
    }
  };
  for (const svg of document.querySelectorAll("svg.plot, svg.heat")) look([...svg.querySelectorAll("text")], svg.id);
  look([...document.querySelectorAll("header p, header h1, header dl, header code, header button, nav a")], "header");
  look([...document.querySelectorAll("main h2, main h3, main > section > p")], "main");
  for (const table of [...document.querySelectorAll("table")].slice(0, 6)) {
    look([...table.querySelectorAll("tr")].slice(0, 12).flatMap((row) => [...row.cells]), "table");
  }
  return faults;
})()"#;

/// Contrast of the given colours (CSS selectors and properties) with the page behind them.
const CONTRAST: &str = r#"
(selector, property) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (css) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    const c = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => {
      v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
  };
  const element = document.querySelector(selector);
  if (!element) return null;
  const [a, b] = [light(getComputedStyle(element)[property]), light(getComputedStyle(document.body).backgroundColor)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"#;

/// Runs all checks; returns the failures as messages.
pub fn all(
    browser: &mut Browser,
    page: &Path,
    wanted: &Wanted,
    pictures: Option<&Path>,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let size = std::fs::metadata(page)?.len();
    if size > LARGEST {
        faults.push(format!("{size} bytes, more than {LARGEST}"));
    }
    let url = format!("file://{}", page.display());
    set(browser, "light", "screen", 1200)?;
    browser.open(&url)?;
    drawn(browser, wanted, &mut faults)?;
    harmless(browser, &mut faults)?;
    if wanted.figures.contains(&"scatter") {
        tooltip(browser, &mut faults)?;
        zoom(browser, "scatter", &mut faults)?;
    }
    if wanted.figures.contains(&"timeline") {
        over_a_cell(browser, &mut faults)?;
        zoom(browser, "timeline", &mut faults)?;
    }
    if wanted.series {
        switched(browser, &mut faults)?;
    }
    contrast(browser, "light", &mut faults)?;
    picture(browser, page, pictures, "light")?;
    set(browser, "dark", "screen", 1200)?;
    contrast(browser, "dark", &mut faults)?;
    picture(browser, page, pictures, "dark")?;
    set(browser, "dark", "print", 800)?;
    let white = "getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'";
    expect(browser, white, "white background in print, even in dark mode", &mut faults)?;
    picture(browser, page, pictures, "print")?;
    for (width, name) in WIDTHS {
        set(browser, "light", "screen", width)?;
        let fits = format!("document.documentElement.scrollWidth <= {width}");
        expect(browser, &fits, &format!("fits {width} pixels"), &mut faults)?;
        apart(browser, width, &mut faults)?;
        picture(browser, page, pictures, name)?;
    }
    copied(browser, &mut faults)?;
    faults.extend(browser.complaints()?);

    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}))?;
    set(browser, "light", "screen", 1200)?;
    browser.open(&url)?;
    drawn(browser, wanted, &mut faults)?;
    if wanted.series {
        switched(browser, &mut faults)?;
    }
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": false}))?;
    Ok(faults)
}

fn set(browser: &mut Browser, scheme: &str, media: &str, width: u64) -> Result<()> {
    let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.call("Emulation.setEmulatedMedia", json!({"media": media, "features": features}))?;
    let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", size)?;
    Ok(())
}

fn expect(browser: &mut Browser, holds: &str, what: &str, faults: &mut Vec<String>) -> Result<()> {
    if browser.ask(holds)? != json!(true) {
        faults.push(format!("failed: {what}"));
    }
    Ok(())
}

/// No text lies over another, and the actions are visible at once.
fn apart(browser: &mut Browser, width: u64, faults: &mut Vec<String>) -> Result<()> {
    let overlaps = browser.ask(OVERLAPS)?;
    let overlaps = overlaps.as_array().into_iter().flatten().filter_map(Value::as_str);
    faults.extend(overlaps.map(|overlap| format!("at {width} pixels, {overlap}")));
    // Unless a hostile name makes a command longer than a line: commands are not cut.
    let seen = "[...document.querySelectorAll('.actions code')]\
                .some(e => e.textContent.length > 150) || \
                [...document.querySelectorAll('.actions li')]\
                .every(e => e.getBoundingClientRect().bottom + scrollY <= 900)";
    let what = format!("the actions are on the first screen at {width} pixels");
    expect(browser, seen, &what, faults)
}

/// The buttons copy their commands.
fn copied(browser: &mut Browser, faults: &mut Vec<String>) -> Result<()> {
    let all = "document.querySelectorAll('.actions code, .remedy code, pre code').length === \
               document.querySelectorAll('button.copy').length";
    expect(browser, all, "a button for every command", faults)?;
    browser.click("pre + .copy")?;
    let selected = "getSelection().toString().trim() === \
                    document.querySelector('pre code').textContent.trim()";
    expect(browser, selected, "the button selects its command", faults)
}

/// Every figure is present, with marks that take up space.
fn drawn(browser: &mut Browser, wanted: &Wanted, faults: &mut Vec<String>) -> Result<()> {
    for id in wanted.figures.iter().chain(wanted.projected) {
        let marks = format!(
            "[...document.querySelectorAll('#{id} .marks path, #{id} .box path, svg#{id}.heat > path')]\
             .filter(p => p.getTotalLength() > 0 || p.getAttribute('d').includes('h0')).length > 0 && \
             document.getElementById('{id}').getBoundingClientRect().height > 50"
        );
        expect(browser, &marks, &format!("figure {id} is drawn"), faults)?;
    }
    let all = wanted.figures.len() + wanted.projected.len();
    let count = "document.querySelectorAll('svg.plot, svg.heat').length";
    let found = browser.ask(count)?;
    if found != json!(all) {
        faults.push(format!("{found} figures (expected {all})"));
    }
    let words = "document.querySelector('h1').textContent.length > 20 && \
                 !/NaN|Infinity|undefined/.test(document.querySelector('main').innerHTML)";
    expect(browser, words, "a headline, and no NaN, Infinity or undefined", faults)
}

/// No markup from the recording has become part of the page.
fn harmless(browser: &mut Browser, faults: &mut Vec<String>) -> Result<()> {
    let only = "document.scripts.length === 1 && document.querySelectorAll('img, iframe, object, \
                embed').length === 0 && document.title !== 'owned' && \
                ![...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => \
                a.name.startsWith('on')))";
    expect(browser, only, "one script, no foreign elements", faults)
}

/// Hovering over a mark shows a tooltip.
fn tooltip(browser: &mut Browser, faults: &mut Vec<String>) -> Result<()> {
    browser.middle("#scatter")?;
    let place = browser.ask(
        "(() => { const p = document.querySelector('#scatter .dots'); \
         const [, x, y] = p.getAttribute('d').match(/M(-?[\\d.]+) (-?[\\d.]+)/); \
         const at = new DOMPoint(+x, +y).matrixTransform(p.ownerSVGElement.getScreenCTM()); \
         return [at.x, at.y]; })()",
    )?;
    let at = |i: usize| place[i].as_f64().context("no dot");
    browser.mouse("mouseMoved", (at(0)? + 2.0, at(1)?))?;
    let said = "!document.getElementById('tip').hidden && \
                /: .+ s, .+(ns|µs|ms|s)$/.test(document.getElementById('tip').textContent)";
    expect(browser, said, "tooltip over a dot", faults)
}

/// Hovering over a cell of a matrix, and over a lane, shows a tooltip.
fn over_a_cell(browser: &mut Browser, faults: &mut Vec<String>) -> Result<()> {
    let said = |text: &str| {
        format!(
            "!document.getElementById('tip').hidden && \
             /{text}/.test(document.getElementById('tip').textContent)"
        )
    };
    let at = browser.middle("#waits > path")?;
    browser.mouse("mouseMoved", at)?;
    let text = said("^rank \\d+ waits for rank \\d+: ");
    expect(browser, &text, "tooltip over a cell", faults)?;
    let at = browser.middle("#timeline .lane")?;
    browser.mouse("mouseMoved", at)?;
    expect(browser, &said("^rank \\d+, .+; here .+ s$"), "tooltip over a lane", faults)
}

/// A rectangle zooms in, dragging with the shift key pans, and a button resets.
fn zoom(browser: &mut Browser, id: &str, faults: &mut Vec<String>) -> Result<()> {
    let (x, y) = browser.middle(&format!("#{id}"))?;
    browser.mouse("mouseMoved", (x - 60.0, y - 40.0))?;
    browser.mouse("mousePressed", (x - 60.0, y - 40.0))?;
    browser.mouse("mouseMoved", (x + 60.0, y + 40.0))?;
    browser.mouse("mouseReleased", (x + 60.0, y + 40.0))?;
    let matrix = format!("document.querySelector('#{id} .marks').getAttribute('transform')");
    let zoomed = format!(
        "/matrix\\([2-9]/.test({matrix}) && \
         document.querySelectorAll('#{id} .ticks text').length > 2"
    );
    expect(browser, &zoomed, "a rectangle zooms in", faults)?;
    let before = browser.ask(&matrix)?;
    browser.shifted("mousePressed", (x, y))?;
    browser.shifted("mouseMoved", (x + 30.0, y))?;
    browser.shifted("mouseReleased", (x + 30.0, y))?;
    let panned = browser.ask(&matrix)?;
    // Panning keeps the scale, but for the last digits.
    let scale = |matrix: &Value| {
        let text = matrix.as_str().unwrap_or_default().trim_start_matches("matrix(");
        let number = text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
        number.map(|number| (number * 1e6).round())
    };
    if panned == before || scale(&panned) != scale(&before) {
        faults.push(format!("failed: shift pans {id}: {before} became {panned}"));
    }
    browser.click(&format!("#{id} ~ .reset"))?;
    let back = format!("{matrix}.startsWith('matrix(1 0 0 1')");
    expect(browser, &back, "the button resets the zoom", faults)
}

/// A click on a name hides its series in every figure, another click shows it.
fn switched(browser: &mut Browser, faults: &mut Vec<String>) -> Result<()> {
    let shown = "[...document.querySelectorAll('svg.plot path.s0')].filter(p => \
                 getComputedStyle(p).display !== 'none').length";
    let before = browser.ask(shown)?;
    browser.click(".legend label.s0")?;
    let without = browser.ask(shown)?;
    browser.click(".legend label.s0")?;
    let after = browser.ask(shown)?;
    if before == json!(0) || without != json!(0) || after != before {
        faults.push(format!("series switched off and on: {before}, {without}, {after} marks"));
    }
    Ok(())
}

fn contrast(browser: &mut Browser, scheme: &str, faults: &mut Vec<String>) -> Result<()> {
    let colours = [
        ("h1", "color", TEXT),
        ("figcaption", "color", TEXT),
        (".note", "color", TEXT),
        ("nav a", "color", TEXT),
        ("svg.plot .ticks text", "fill", TEXT),
        ("svg.plot .s0", "stroke", MARKS),
        ("svg.plot .s1", "stroke", MARKS),
        ("svg.plot .s2", "stroke", MARKS),
        ("svg.plot .s3", "stroke", MARKS),
        ("svg.plot .s4", "stroke", MARKS),
        ("svg.plot .s5", "stroke", MARKS),
        ("svg.plot .so", "stroke", MARKS),
        ("svg.plot .su", "stroke", MARKS),
    ];
    for (selector, property, least) in colours {
        let question = format!("({CONTRAST})({}, {})", json!(selector), json!(property));
        if let Some(contrast) = browser.ask(&question)?.as_f64().filter(|c| *c < least) {
            faults.push(format!("{scheme}: {selector}: contrast {contrast:.1} is below {least}"));
        }
    }
    Ok(())
}

fn picture(browser: &mut Browser, page: &Path, pictures: Option<&Path>, what: &str) -> Result<()> {
    let Some(directory) = pictures else { return Ok(()) };
    std::fs::create_dir_all(directory)?;
    browser.ask("scrollTo(0, 0)")?;
    let shot = json!({"format": "png", "captureBeyondViewport": true});
    let answer: Value = browser.call("Page.captureScreenshot", shot)?;
    let text = answer["data"].as_str().context("no screenshot")?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
    let name = page.file_stem().unwrap_or_default().to_string_lossy();
    std::fs::write(directory.join(format!("{name}-{what}.png")), bytes)?;
    Ok(())
}
