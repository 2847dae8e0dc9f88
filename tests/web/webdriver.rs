//! Debian's browser, driven over WebDriver (W3C WebDriver §9 and later), with one HTTP request per command.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use trunkline_testkit::process::{Deadline, Process, free_port};

/// Limit on one command: a browser's start takes long on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
#[derive(Debug)]
pub(crate) struct Browser {
    at: SocketAddr,
    session: String,
    _driver: Process,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a browser with further arguments.
    pub(crate) fn with(more: &[String]) -> Self {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={}", at.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let driver = Process::start("chromedriver", &mut command);
        let ready = || TcpStream::connect(at).is_ok().then_some(());
        let waited = Deadline::after(LIMIT).poll(ready);
        assert_eq!(waited, Some(()), "chromedriver doesn't listen");

        let profile = tempfile::tempdir().expect("a folder");
        let folder = format!("--user-data-dir={}", profile.path().display());
        let usual = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // Nothing leaves this machine, and no query for a name takes a port.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            "--window-size=1280,900",
            &folder,
        ];

        let arguments: Vec<&str> = usual
            .into_iter()
            .chain(more.iter().map(String::as_str))
            .collect();
        let options = json!({ "args": arguments });
        let capabilities =
            json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let made = command_to(at, "POST", "/session", &capabilities);
        let session = made["sessionId"].as_str().expect("a session").to_owned();

        Self {
            at,
            session,
            _driver: driver,
            _profile: profile,
        }
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        command_to(
            self.at,
            method,
            &format!("/session/{}{path}", self.session),
            body,
        )
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// Opens a further tab, which all commands are for from then on.
    pub(crate) fn open_tab(&self) {
        let tab = self.command("POST", "/window/new", &json!({"type": "tab"}));
        let chosen = json!({"handle": tab["handle"]});
        self.command("POST", "/window", &chosen);
    }

    pub(crate) fn url(&self) -> String {
        text(&self.command("GET", "/url", &Value::Null))
    }

    /// Returns the path of an element, which must exist.
    fn element(&self, selector: &str) -> String {
        let found = self.command(
            "POST",
            "/element",
            &json!({"using": "css selector", "value": selector}),
        );
        format!("/element/{}", text(&found[ELEMENT]))
    }

    pub(crate) fn count(&self, selector: &str) -> usize {
        let found = self.command(
            "POST",
            "/elements",
            &json!({"using": "css selector", "value": selector}),
        );
        found.as_array().expect("a list").len()
    }

    /// Returns the element's visible text. One script finds and reads it, since the page may be replaced between two commands.
    pub(crate) fn text(&self, selector: &str) -> String {
        let selector = json!(selector);
        let script = format!("return document.querySelector({selector})?.innerText ?? ''");
        text(&self.script(&script))
    }

    /// Returns the text once `is_so` holds: a click or a key may return before the next page is loaded.
    fn once(&self, selector: &str, is_so: impl Fn(&str) -> bool) -> Option<String> {
        let read = || Some(self.text(selector)).filter(|text| is_so(text));
        Deadline::after(LIMIT).poll(read)
    }

    /// Waits until the element has this text.
    pub(crate) fn shows(&self, selector: &str, wanted: &str) {
        let shown = self.once(selector, |text| text == wanted);
        assert!(
            shown.is_some(),
            "{selector} reads {:?}, not {wanted:?}",
            self.text(selector)
        );
    }

    /// Returns the text of an element once it has one.
    pub(crate) fn appears(&self, selector: &str) -> String {
        let there = self.once(selector, |text| !text.is_empty());
        there.unwrap_or_else(|| panic!("there is no {selector}"))
    }

    /// Waits until the element has a text without `word`.
    pub(crate) fn gone(&self, selector: &str, word: &str) {
        let gone = self.once(selector, |text| !text.is_empty() && !text.contains(word));
        assert!(gone.is_some(), "{word:?} is still in {selector}");
    }

    /// Clicks on an element. It is found again if the page is replaced between the two commands.
    pub(crate) fn click(&self, selector: &str) {
        let clicked = Deadline::after(LIMIT).poll(|| {
            let element = self.element(selector);
            let path = format!("/session/{}{element}/click", self.session);
            match try_command_to(self.at, "POST", &path, &json!({})) {
                Ok(_) => Some(()),
                Err(fault) if fault["error"] == "stale element reference" => None,
                Err(fault) => panic!("{selector}: {fault}"),
            }
        });
        assert!(clicked.is_some(), "{selector} is replaced again and again");
    }

    /// Types into an element, which gets the focus.
    pub(crate) fn fill(&self, selector: &str, typed: &str) {
        let element = self.element(selector);
        self.command("POST", &format!("{element}/value"), &json!({"text": typed}));
    }

    /// Sends a key to the element that has the focus.
    pub(crate) fn press(&self, key: char) {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.command("POST", "/actions", &actions);
    }

    /// Moves the focus with Tab, as people without a mouse do, until `selector` has it. Checks that each element on the way shows its focus.
    pub(crate) fn tab_to(&self, selector: &str) {
        const TAB: char = '\u{e004}';
        let wanted = json!(selector);
        let script = format!(
            "const at = document.activeElement, seen = getComputedStyle(at); \
             return [at.matches({wanted}), at === document.body || seen.outlineStyle !== 'none', at.outerHTML.slice(0, 200)]"
        );

        for _ in 0..100 {
            self.press(TAB);
            let found = self.script(&script);
            assert_eq!(
                found[1], true,
                "it has the focus and doesn't show it: {}",
                found[2]
            );
            if found[0] == true {
                return;
            }
        }
        panic!("the tabulator never comes to {selector}");
    }

    pub(crate) fn script(&self, script: &str) -> Value {
        self.command(
            "POST",
            "/execute/sync",
            &json!({"script": script, "args": []}),
        )
    }

    /// Runs a script that calls its last argument with the result.
    pub(crate) fn script_async(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.command("POST", "/execute/async", &body)
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.command(
            "POST",
            "/window/rect",
            &json!({"width": width, "height": height}),
        );
    }

    /// Sends a command of Chromium's own protocol.
    fn chromium(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.command("POST", "/goog/cdp/execute", &body)
    }

    /// Shows pages as on a screen of this size, with light or dark colours.
    pub(crate) fn show_on(&self, [width, height]: [u32; 2], colours: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.chromium("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        self.chromium("Emulation.setEmulatedMedia", &media);
    }

    /// Waits until `wanted` holds for the element's text; returns the text.
    pub(crate) fn changes_to(&self, selector: &str, wanted: impl Fn(&str) -> bool) -> String {
        let shown = self.once(selector, wanted);
        shown.unwrap_or_else(|| panic!("{selector} reads {:?}", self.text(selector)))
    }

    /// Saves the page to its end, not only the visible part, as PNG into the folder of `TRUNKLINE_SCREENSHOTS`, if it is set.
    pub(crate) fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("TRUNKLINE_SCREENSHOTS") else {
            return;
        };
        let size = &self.chromium("Page.getLayoutMetrics", &json!({}))["cssContentSize"];
        // The size is without the scroll bar, which lies over the page's edge.
        let width = self.script("return innerWidth");
        let clip = json!({"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1});
        let whole = json!({"captureBeyondViewport": true, "clip": clip});
        let shot = text(&self.chromium("Page.captureScreenshot", &whole)["data"]);
        let octets = base64::engine::general_purpose::STANDARD.decode(shot);
        let file = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(file, octets.expect("base64")).expect("written");
    }
}

impl Drop for Browser {
    /// The driver closes the browser with the session.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.command("DELETE", "", &Value::Null);
        } else if let Ok(mut stream) = TcpStream::connect(self.at) {
            let _ = write!(
                stream,
                "DELETE /session/{} HTTP/1.1\r\nHost: {}\r\n\r\n",
                self.session, self.at
            );
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 64]);
        }
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

/// Returns the value of the answer to a command, which must succeed.
fn command_to(at: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let done = try_command_to(at, method, path, body);
    done.unwrap_or_else(|fault| panic!("{method} {path}: {fault}"))
}

/// Runs a command; returns the driver's error if it fails.
fn try_command_to(at: SocketAddr, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
    let mut stream = TcpStream::connect(at).expect("the driver listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };

    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("the driver takes it");
    let mut reader = BufReader::new(stream);
    let mut length = 0;

    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(given) = line.strip_prefix("content-length:") {
            length = given.trim().parse().expect("a length");
        }
    }

    let mut answer = vec![0; length];
    reader.read_exact(&mut answer).expect("a whole answer");
    let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let value = answer["value"].take();
    match value.get("error") {
        Some(_) => Err(value),
        None => Ok(value),
    }
}
