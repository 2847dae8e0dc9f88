//! The phone in the console: a browser with a fake microphone calls an agent, and hears it.

use std::f64::consts::TAU;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use trunkline_testkit::process::free_port;
use trunkline_testkit::{Daemon, DaemonSetup, tools};

use crate::web::browser::link_to;
use crate::web::webdriver::Browser;

/// Pitch of the fake microphone, in Hz.
const PITCH: f64 = 1_000.0;

/// Makes a microphone that plays beeps of 300 ms: noise suppression takes a continuous tone for noise.
fn microphone(folder: &Path) -> String {
    const RATE: u32 = 48_000;
    let mut octets = Vec::new();
    for at in 0..RATE * 6 {
        let is_on = at % (RATE * 7 / 10) < RATE * 3 / 10;
        let wave = (TAU * PITCH * f64::from(at) / f64::from(RATE)).sin();
        let sample = if is_on { 12_000.0 * wave } else { 0.0 };
        octets.extend((sample as i16).to_le_bytes());
    }

    let length = octets.len() as u32;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());

    for field in [1_u16, 1] {
        file.extend(field.to_le_bytes());
    }
    file.extend(RATE.to_le_bytes());
    file.extend((RATE * 2).to_le_bytes());
    for field in [2_u16, 16] {
        file.extend(field.to_le_bytes());
    }
    file.extend(b"data");
    file.extend(length.to_le_bytes());
    file.extend(octets);

    let path = folder.join("beeps.wav");
    std::fs::write(&path, file).expect("written");
    path.display().to_string()
}

/// A person's browser on the phone's page.
struct Phone {
    browser: Browser,
    home: String,
    _sounds: TempDir,
}

impl Phone {
    fn open(daemon: &Daemon) -> Self {
        let sounds = tempfile::tempdir().expect("a folder");
        let browser = Browser::with(&[
            "--use-fake-device-for-media-stream".to_owned(),
            "--use-fake-ui-for-media-stream".to_owned(),
            format!(
                "--use-file-for-fake-audio-capture={}",
                microphone(sounds.path())
            ),
        ]);
        browser.open(&link_to(daemon));
        let home = format!(
            "http://{}/dashboard/{}",
            daemon.setup.http, daemon.setup.org
        );
        let phone = Self {
            browser,
            home,
            _sounds: sounds,
        };
        phone.load();

        phone
    }

    /// Loads the page, and keeps the messages of its WebSocket.
    fn load(&self) {
        self.browser.open(&format!("{}/phone", self.home));
        self.browser.script(
            "window.heard = [];
             const Original = WebSocket;
             window.WebSocket = class extends Original {
               constructor(...given) {
                 super(...given);
                 this.addEventListener('message', ({ data }) => { if (typeof data !== 'string') window.heard.push(...new Uint8Array(data)); });
               }
             };",
        );
    }

    fn call(&self) {
        self.browser.click("[data-part=call]");
        self.says("Connected");
    }

    fn says(&self, wanted: &str) {
        self.browser
            .changes_to("[data-part=status]", |text| text == wanted);
    }

    /// Returns the octets of audio that the page has got.
    fn heard(&self) -> Vec<u8> {
        let heard = self.browser.script("return window.heard");
        let octets = heard.as_array().expect("a list").iter();
        octets
            .map(|octet| octet.as_u64().expect("an octet") as u8)
            .collect()
    }

    /// Waits until the page hears the microphone's pitch and its meter shows it.
    fn hears(&self) {
        let is_beep = |window: &[u8]| share(window, PITCH) > 0.8;
        let found = trunkline_testkit::Deadline::after(std::time::Duration::from_secs(30))
            .poll(|| self.heard().chunks_exact(800).any(is_beep).then_some(()));
        let heard = self.heard();
        let best = heard
            .chunks_exact(800)
            .map(|window| share(window, PITCH))
            .fold(0.0, f64::max);
        assert!(
            found.is_some(),
            "{} octets, the best tenth of a second has {best}",
            heard.len()
        );

        let moved =
            trunkline_testkit::Deadline::after(std::time::Duration::from_secs(30)).poll(|| {
                let level = self
                    .browser
                    .script("return document.querySelector('[data-part=heard]').value");
                (level.as_f64()? > 0.02).then_some(())
            });
        assert!(moved.is_some(), "the page plays what it gets");
    }

    fn hang_up(&self) {
        self.browser.click("[data-part=hang-up]");
        self.says("You hung up.");
    }
}

/// Returns the share of a pitch in the power of µ-law audio; 0 for near silence.
fn share(window: &[u8], hertz: f64) -> f64 {
    let samples: Vec<f64> = window.iter().map(|octet| decoded(*octet)).collect();
    let total: f64 = samples.iter().map(|sample| sample * sample).sum();
    let (sine, cosine) = samples
        .iter()
        .enumerate()
        .fold((0.0, 0.0), |sums, (at, sample)| {
            let angle = TAU * hertz * at as f64 / 8_000.0;
            (sums.0 + sample * angle.sin(), sums.1 + sample * angle.cos())
        });
    let power = (sine * sine + cosine * cosine) * 2.0 / samples.len() as f64;
    let loud = 300.0 * 300.0 * samples.len() as f64;
    if total > loud { power / total } else { 0.0 }
}

fn decoded(octet: u8) -> f64 {
    let bits = i32::from(!octet);
    let magnitude = ((((bits & 15) << 3) + 132) << (bits >> 4 & 7)) - 132;
    f64::from(if bits & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    })
}

#[test]
fn a_person_calls_the_echo_and_hears_themselves() {
    if !tools(&["chromium", "chromedriver"]) {
        return;
    }
    let daemon = DaemonSetup::new().serve();
    let phone = Phone::open(&daemon);
    let browser = &phone.browser;
    phone.call();
    assert_eq!(
        browser.text("[data-part=source]"),
        "The agent hears your microphone."
    );
    phone.hears();

    // The ladder is drawn, and its messages can be read.
    browser.changes_to("#messages", |text| text.contains("ACK"));
    browser.click("#messages .ladder summary.request");
    assert!(
        browser
            .text("#messages details[open] pre")
            .starts_with("INVITE sip:agent@")
    );

    browser.click("[data-key='5']");
    assert_eq!(browser.text("[data-part=pressed]"), "5");
    // So have the steps of the media, while the call is up.
    browser.changes_to("#messages", |text| {
        text.contains("media: first audio of the agent") && text.contains("media: key pressed")
    });

    for (size, place) in [([1280, 1000], "desktop"), ([390, 1400], "phone")] {
        for colours in ["light", "dark"] {
            browser.show_on(size, colours);
            browser.screenshot(&format!("phone-up-{place}-{colours}"));
        }
    }
    browser.show_on([1280, 1000], "light");
    phone.hang_up();
    browser.changes_to("#messages", |text| text.contains("BYE"));

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["trunk_id"], Value::Null, "{record}");

    // A number without an agent, and a page that is closed.
    daemon.setup.disable(&daemon.setup.first_agent);
    daemon.setup.settle();
    phone.load();
    browser.fill("#number", &daemon.setup.first_number);
    browser.click("[data-part=call]");
    browser.changes_to("[data-part=status][data-tone=bad]", |text| !text.is_empty());
    browser.screenshot("phone-refused");
}

#[test]
fn a_person_without_a_microphone_says_the_sample_and_leaving_hangs_up() {
    if !tools(&["chromium", "chromedriver"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let phone = Phone::open(&daemon);
    phone.browser.click("[data-part=sample]");
    phone.call();
    assert!(
        phone
            .browser
            .text("[data-part=source]")
            .contains("a sample")
    );

    let is_speech = |window: &[u8]| window.iter().any(|octet| decoded(*octet).abs() > 2_000.0);
    let heard = trunkline_testkit::Deadline::after(std::time::Duration::from_secs(30))
        .poll(|| phone.heard().chunks_exact(800).any(is_speech).then_some(()));
    assert!(heard.is_some(), "the sample comes back");

    phone.browser.open(&format!("{}/calls", phone.home));
    let record = daemon.record();
    assert_eq!(record["hangup_by"], "caller", "{record}");
}

/// The example bot, running.
struct Bot(Child);

impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_person_talks_to_the_example_bot() {
    if !tools(&["chromium", "chromedriver", "python3"]) {
        return;
    }

    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8")
        .serve();
    let port = free_port().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bot/bot.py");
    let process = Command::new("python3")
        .arg(script)
        .args(["--port", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 runs");
    let _bot = Bot(process);
    let runtime =
        json!({"runtime": {"type": "websocket", "uri": format!("ws://127.0.0.1:{port}/ws")}});
    let agent = format!("/phone/{}", daemon.setup.first_agent);
    let (status, body) = daemon.change("PATCH", &agent, &runtime);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();

    let phone = Phone::open(&daemon);
    phone.call();
    phone.hears();
    // The bot hangs up at this key.
    phone.browser.click("[data-key='#']");
    phone.says("The other side hung up.");
    assert_eq!(daemon.record()["hangup_by"], "agent");
}
