//! A headless Chromium, driven through its debugging pipe: JSON messages terminated by a zero byte.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PATIENCE: Duration = Duration::from_secs(120);
/// The browser reads from fd 3 and writes to fd 4; the shell redirects our two pipes.
const ON_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
const FLAGS: [&str; 12] = [
    "--headless",
    "--remote-debugging-pipe",
    // Root requires this; the pages are our own.
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
];

/// The browser, if one is installed.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = NAMES.iter().flat_map(|name| directories.iter().map(move |d| d.join(name)));
    candidates.into_iter().find(|program| program.is_file())
}

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Events received since the last [`Browser::open`].
    events: Vec<Value>,
}

impl Browser {
    /// Starts with a fresh profile in this directory.
    pub fn start(program: &Path, profile: &Path) -> Result<Browser> {
        let mut child = Command::new("sh")
            .args(["-c", ON_PIPES])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let to = child.stdin.take().context("the browser has no input")?;
        let mut pipe = BufReader::new(child.stdout.take().context("the browser has no output")?);
        let (send, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while pipe.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if send.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser { child, to, from, next: 0, session: None, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes())?;
        self.to.write_all(&[0])?;
        self.to.flush()?;
        loop {
            let mut answer = self.receive(method)?;
            if answer["id"] == json!(self.next) {
                if let Some(error) = answer.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(answer["result"].take());
            }
            self.events.push(answer);
        }
    }

    fn receive(&self, waiting_for: &str) -> Result<Value> {
        let silent = || format!("no answer from the browser ({waiting_for})");
        self.from.recv_timeout(PATIENCE).with_context(silent)
    }

    /// Loads a file and waits for the load event.
    pub fn open(&mut self, url: &str) -> Result<()> {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}))?;
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let event = self.receive("the page to load")?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Evaluates an expression in the page.
    pub fn ask(&mut self, expression: &str) -> Result<Value> {
        let question =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", question)?;
        if let Some(error) = answer.get("exceptionDetails") {
            bail!("evaluating `{expression}` failed: {}", error["exception"]["description"]);
        }
        Ok(answer["result"]["value"].take())
    }

    /// The centre of the first element that matches a selector, scrolled into view.
    pub fn middle(&mut self, selector: &str) -> Result<(f64, f64)> {
        let place = self.ask(&format!(
            "(() => {{ const e = document.querySelector({}); if (!e) return null; \
             e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()",
            json!(selector)
        ))?;
        let at = |i: usize| place[i].as_f64().with_context(|| format!("no {selector} in the page"));
        Ok((at(0)?, at(1)?))
    }

    pub fn mouse(&mut self, kind: &str, at: (f64, f64)) -> Result<()> {
        self.pointer(kind, at, 0)
    }

    /// With the shift key held.
    pub fn shifted(&mut self, kind: &str, at: (f64, f64)) -> Result<()> {
        self.pointer(kind, at, 8)
    }

    fn pointer(&mut self, kind: &str, (x, y): (f64, f64), modifiers: u8) -> Result<()> {
        let (button, clicks) = if kind == "mouseMoved" { ("none", 0) } else { ("left", 1) };
        let event = json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": clicks,
                           "modifiers": modifiers});
        self.call("Input.dispatchMouseEvent", event)?;
        Ok(())
    }

    pub fn click(&mut self, selector: &str) -> Result<()> {
        let at = self.middle(selector)?;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            self.mouse(kind, at)?;
        }
        Ok(())
    }

    /// Errors since the page was opened, and its network requests.
    pub fn complaints(&mut self) -> Result<Vec<String>> {
        // The answer arrives after all earlier events.
        self.ask(
            "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(1), 50)))",
        )?;
        let mut found = Vec::new();
        let mut documents = 0;
        for event in &self.events {
            let what = &event["params"];
            match event["method"].as_str().unwrap_or("") {
                "Runtime.exceptionThrown" => found.push(format!("exception: {what}")),
                "Runtime.consoleAPICalled" => found.push(format!("console: {what}")),
                "Log.entryAdded" => found.push(format!("log: {}", what["entry"]["text"])),
                "Network.requestWillBeSent" => {
                    let url = what["request"]["url"].as_str().unwrap_or("");
                    documents += usize::from(what["type"] == "Document");
                    if !(url.starts_with("data:") || what["type"] == "Document" && documents == 1) {
                        found.push(format!("request: {url}"));
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.call("Browser.close", json!({}));
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(500));
        }
        // It has exited by now; if not, kill it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
