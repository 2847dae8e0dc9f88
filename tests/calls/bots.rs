//! Agents on a WebSocket: the example bot (`fixtures/bot/bot.py`), called through the built daemon.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::events::told;
use trunkline_testkit::process::free_port;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Responder, tools};

/// The caller.
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const PATIENCE: Duration = Duration::from_secs(15);

/// The example bot, running.
pub(crate) struct Bot {
    process: Child,
    events: Receiver<Value>,
    url: String,
}

impl Bot {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let port = free_port().to_string();
        let url = format!("ws://127.0.0.1:{port}/ws");
        let place = ["--port", &port, "--url", &url];
        Self::run(url.clone(), &[&place, arguments].concat())
    }

    /// Starts the bot with these arguments, which make it listen at `url`.
    pub(crate) fn run(url: String, arguments: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bot/bot.py");
        let mut process = Command::new("python3")
            .arg(script)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("a line of JSON");
                if sender.send(event).is_err() {
                    break;
                }
            }
        });

        let bot = Self {
            process,
            events,
            url,
        };
        bot.event("listening");
        bot
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the next event of this kind; skips others.
    pub(crate) fn event(&self, kind: &str) -> Value {
        let found = Deadline::after(PATIENCE).poll(|| {
            let event = self.events.recv_timeout(Duration::from_millis(50)).ok()?;
            (event["event"] == kind).then_some(event)
        });
        found.unwrap_or_else(|| panic!("no {kind} came"))
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a setup that allows WebSockets without TLS on this machine.
pub(crate) fn setup() -> DaemonSetup {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8");
    setup.dedicate(&PEER.to_string());
    setup
}

/// Sets the runtime of the first agent.
pub(crate) fn set(daemon: &Daemon, runtime: &Value) {
    let agent = &daemon.setup.first_agent;
    let change = json!({ "runtime": runtime });
    let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();
}

pub(crate) fn token(daemon: &Daemon) -> String {
    let (status, body) = daemon.change("POST", "/phone/bot-token", &json!({}));
    assert_eq!(status, 201, "{body}");
    body["auth_token"].as_str().expect("a token").to_owned()
}

/// A caller and its audio.
pub(crate) struct Caller {
    pub(crate) talker: Talker,
    pub(crate) rtp: Rtp,
    pub(crate) to: SocketAddr,
}

impl Caller {
    pub(crate) fn call(daemon: &Daemon) -> Self {
        Self::dial(daemon, &daemon.setup.first_number)
    }

    pub(crate) fn dial(daemon: &Daemon, number: &str) -> Self {
        let rtp = Rtp::new(PEER);
        let sdp = offer(rtp.address());
        let (talker, answer) = Talker::call(PEER, daemon.sip(), number, &sdp);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        let to = answer.media();
        Self { talker, rtp, to }
    }

    /// Sends this sample until the caller hears audio that `expected` accepts; false if it never does.
    pub(crate) fn hears(&self, says: u8, expected: impl Fn(&[u8]) -> bool) -> bool {
        let heard = Deadline::after(PATIENCE).poll(|| {
            self.rtp.say(self.to, &[says; 160]);
            let audio = self.rtp.audio()?;
            expected(&audio).then_some(())
        });
        heard.is_some()
    }
}

pub(crate) fn is_tone(audio: &[u8]) -> bool {
    let mut levels: Vec<u8> = audio.to_vec();
    levels.sort_unstable();
    levels.dedup();
    levels.len() > 10
}

#[test]
fn a_bot_greets_echoes_hears_digits_and_hangs_up() {
    if !tools(&["python3"]) {
        return;
    }
    let daemon = setup().serve();
    let token = token(&daemon);
    let bot = Bot::start(&["--token", &token]);
    set(&daemon, &json!({"type": "websocket", "uri": bot.url}));

    let caller = Caller::call(&daemon);
    let connected = bot.event("connected");
    assert_eq!(connected["protocol"], "Call", "{connected}");
    let start = bot.event("start");
    let call = &daemon.calls()[0];
    let session = call["session_id"].as_str().expect("a session");
    let parameters = &start["start"]["customParameters"];
    assert_eq!(parameters["session_id"], session, "{start}");
    assert_eq!(parameters["direction"], "inbound", "{start}");
    assert_eq!(parameters["agent_id"], daemon.setup.first_agent, "{start}");
    let sid = format!("CA{}", session.replace('-', ""));
    assert_eq!(start["start"]["callSid"], sid, "{start}");

    assert!(caller.hears(0xff, is_tone), "the greeting");
    assert_eq!(bot.event("mark")["mark"]["name"], "greeting");
    assert!(
        caller.hears(0x23, |audio| audio.iter().all(|octet| *octet == 0x23)),
        "the echo"
    );

    caller.rtp.press(caller.to, 1);
    assert_eq!(bot.event("dtmf")["dtmf"]["digit"], "1");
    assert_eq!(bot.event("mark")["mark"]["name"], "asked");

    let info = "Signal=5\r\nDuration=160\r\n";
    let informed = caller.talker.inform("application/dtmf-relay", info);
    assert_eq!(informed.status(), Some(200), "{informed:?}");
    assert_eq!(bot.event("dtmf")["dtmf"]["digit"], "5", "by INFO");
    // Its sender needn't take a body that nobody reads for a key.
    let unread = caller.talker.inform("text/plain", "d=1");
    assert_eq!(unread.status(), Some(415), "{unread:?}");
    let accepted = unread.header("Accept");
    assert_eq!(accepted, Some("application/dtmf-relay, application/dtmf"));

    let id = call["id"].as_str().expect("an id");
    let during = media_rows(&daemon, id);
    let so_far = [
        "media: port taken",
        "media: first packet",
        "media: peer is heard at",
        "media: bot connected",
        "media: bot has the call",
        "media: first audio of the agent",
        "media: mark reached",
        "media: key pressed",
    ];
    assert_has_rows(&during, &so_far);

    // `#` closes the WebSocket, which ends the call.
    std::thread::sleep(Duration::from_millis(200));
    caller.rtp.press(caller.to, 11);
    let bye = caller.talker.asked("BYE");
    assert!(bye.is_some(), "the call ends with the WebSocket");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "agent", "{record}");

    // The media statistics are in the record, in its event and in its ladder.
    let media = &record["media"];
    let packets = |way: &str| media[way]["packets"].as_u64().unwrap_or_default();
    assert!(packets("received") > 5 && packets("sent") > 5, "{media}");
    assert!(media["received"]["mos"].as_f64() > Some(3.0), "{media}");
    let first_word = media["first_word_ms"].as_f64();
    assert!(first_word.is_some_and(|after| after < 5_000.0), "{media}");

    let is_end = |event: &Value| event["type"] == "call.ended";
    let events = told(&daemon, |events| events.iter().any(is_end));
    let ended = events.iter().find(|event| is_end(event)).expect("the end");
    assert_eq!(&ended["data"]["media"], media);

    let rows = media_rows(&daemon, id);
    assert_has_rows(&rows, &so_far);
    assert_has_rows(
        &rows,
        &["media: bot has gone (closed)", "media: port released"],
    );
}

/// Rows of a call's ladder that are no messages.
fn media_rows(daemon: &Daemon, call: &str) -> Vec<String> {
    let trace = daemon.shown(&format!("/phone/calls/{call}/trace"));
    let items = trace["items"].as_array().expect("rows").iter();
    let texts = items.filter_map(|item| Some(item["text"].as_str()?.to_owned()));
    texts.filter(|text| text.starts_with("media: ")).collect()
}

fn assert_has_rows(rows: &[String], expected: &[&str]) {
    for row in expected {
        let has = rows.iter().any(|text| text.starts_with(row));
        assert!(has, "{row} in {rows:?}");
    }
}

#[test]
fn a_bot_hangs_up_by_rest() {
    if !tools(&["python3"]) {
        return;
    }
    let daemon = setup().serve();
    let token = token(&daemon);
    let rest = format!("http://{}", daemon.setup.http);
    let bot = Bot::start(&["--token", &token, "--rest", &rest]);
    set(&daemon, &json!({"type": "websocket", "uri": bot.url}));

    let caller = Caller::call(&daemon);
    assert!(caller.hears(0xff, is_tone), "the greeting");
    caller.rtp.press(caller.to, 0);
    let answered = bot.event("rest");
    assert_eq!(answered["status"], 200, "{answered}");
    assert_eq!(answered["body"]["status"], "completed", "{answered}");
    assert!(caller.talker.asked("BYE").is_some(), "the call ends");
    bot.event("stop");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "agent", "{record}");
    assert_eq!(record["reason"], Value::Null, "{record}");
}

/// Returns the final answer to a call, its record, and its attempts.
pub(crate) fn refused(daemon: &Daemon) -> (Message, Value, Vec<Value>) {
    let sdp = offer(SocketAddr::new(PEER, 40_000));
    let (_, answer) = Talker::call(PEER, daemon.sip(), &daemon.setup.first_number, &sdp);
    let record = daemon.record();
    let routing = daemon.routing(&record);
    let attempts = routing["attempts"].as_array().cloned().unwrap_or_default();
    (answer, record, attempts)
}

#[test]
fn a_bot_that_cant_be_reached_is_no_answer() {
    let daemon = setup().serve();
    let nobody = format!("ws://127.0.0.1:{}/ws", free_port());
    set(&daemon, &json!({"type": "websocket", "uri": nobody}));
    let (answer, record, attempts) = refused(&daemon);
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(attempts[0]["outcome"], "connection_refused", "{attempts:?}");
    assert_eq!(attempts[0]["target"], nobody, "{attempts:?}");
}

#[test]
fn a_runtime_over_sip_follows_a_dead_bot() {
    let runtime = Responder::busy();
    let daemon = setup().serve();
    let nobody = format!("ws://127.0.0.1:{}/ws", free_port());
    let fallback = format!("sip:{{called}}@{}", runtime.address);
    set(
        &daemon,
        &json!({"type": "websocket", "uri": nobody, "fallbacks": [fallback]}),
    );

    let (answer, record, attempts) = refused(&daemon);
    assert_eq!(answer.status(), Some(486), "{answer:?}");
    assert_eq!(record["reason"], "declined", "{record}");
    assert_eq!(attempts[0]["outcome"], "connection_refused", "{attempts:?}");

    let invite = runtime.requests("INVITE").pop().expect("an INVITE");
    assert!(
        invite.start_line().contains(&daemon.setup.first_number),
        "{invite:?}"
    );
}

#[test]
fn a_bot_refuses_a_wrong_signature() {
    if !tools(&["python3"]) {
        return;
    }

    let daemon = setup().serve();
    token(&daemon);
    let bot = Bot::start(&["--token", "another"]);
    set(&daemon, &json!({"type": "websocket", "uri": bot.url}));
    let (answer, record, attempts) = refused(&daemon);
    bot.event("refused");
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(attempts[0]["outcome"], "handshake_failed", "{attempts:?}");
    let said = attempts[0]["explanation"].as_str().expect("a sentence");
    assert!(said.contains("403"), "{said}");
}

/// Starts a receiver of status callbacks; it passes on signature and form of each.
pub(crate) fn receiver() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut length, mut signature) = (0, String::new());
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                let (name, value) = line.split_once(':').unwrap_or_default();
                match &*name.to_ascii_lowercase() {
                    "content-length" => length = value.trim().parse().unwrap_or(0),
                    "x-twilio-signature" => signature = value.trim().to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let is_read = reader.read_exact(&mut body).is_ok();
            if !is_read || reader.get_mut().write_all(answer).is_err() {
                continue;
            }
            let body = String::from_utf8_lossy(&body).into_owned();
            if sender.send((signature, body)).is_err() {
                break;
            }
        }
    });

    (format!("http://127.0.0.1:{port}/status?a=b"), received)
}

/// Returns Twilio's signature of a form, computed by Python's standard library.
fn signed(token: &str, url: &str, form: &str) -> String {
    const SCRIPT: &str = "import base64, hmac, sys, urllib.parse as u
token, url, form = sys.argv[1:]
fields = sorted(u.parse_qsl(form, keep_blank_values=True))
text = url + ''.join(name + value for name, value in fields)
print(base64.b64encode(hmac.digest(token.encode(), text.encode(), 'sha1')).decode())";
    let output = Command::new("python3")
        .args(["-c", SCRIPT, token, url, form])
        .output()
        .expect("python3 runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_progress_of_calls_is_posted_as_twilio_does() {
    if !tools(&["python3"]) {
        return;
    }

    let allowed = setup().set("TRUNKLINE__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true");
    let daemon = allowed.serve();
    let token = token(&daemon);
    let bot = Bot::start(&["--token", &token]);
    let (url, received) = receiver();
    set(
        &daemon,
        &json!({"type": "websocket", "uri": bot.url, "status_callback": url,
            "status_callback_events": ["initiated", "ringing", "answered", "completed"]}),
    );

    let caller = Caller::call(&daemon);
    assert!(caller.hears(0xff, is_tone), "the greeting");
    caller.rtp.press(caller.to, 11);
    assert!(caller.talker.asked("BYE").is_some(), "the call ends");
    let record = daemon.record();
    let session = record["session_id"].as_str().expect("a session");
    let sid = format!("CallSid=CA{}&", session.replace('-', ""));

    let mut statuses = Vec::new();
    while statuses.len() < 4 {
        let (signature, form) = received.recv_timeout(PATIENCE).expect("a callback");
        assert_eq!(signature, signed(&token, &url, &form), "{form}");
        assert!(form.contains(&sid), "{form}");
        let field = |name: &str| {
            let mut fields = form.split('&').filter_map(|field| field.split_once('='));
            let value = fields.find(|(of, _)| *of == name).map(|(_, value)| value);
            value.unwrap_or_default().to_owned()
        };
        statuses.push((field("SequenceNumber"), field("CallStatus")));
    }

    statuses.sort();
    let expected = ["initiated", "ringing", "in-progress", "completed"];
    let statuses: Vec<&str> = statuses.iter().map(|(_, status)| &**status).collect();
    assert_eq!(statuses, expected);

    // The callback belongs to the agent, isn't one of the org's webhooks, and ends with the runtime.
    let webhooks = daemon.shown("/webhooks");
    assert_eq!(webhooks["total"], 0, "{webhooks}");
    set(&daemon, &json!({"type": "websocket", "uri": bot.url}));
    let caller = Caller::call(&daemon);
    assert!(caller.hears(0xff, is_tone), "the greeting");
    caller.rtp.press(caller.to, 11);
    assert!(caller.talker.asked("BYE").is_some(), "the call ends");
    daemon.records(2);
    assert!(received.recv_timeout(Duration::from_secs(2)).is_err());
}

#[test]
fn a_status_callback_is_judged_as_a_webhook() {
    let daemon = setup().serve();
    let agent = &daemon.setup.first_agent;

    for (url, fault) in [
        ("http://hooks.example.com/", "must be an https: URL"),
        (
            "https://10.0.0.1/",
            "names no address of the public Internet",
        ),
        (
            "https://user@hooks.example.com/",
            "an https: URL of at most",
        ),
    ] {
        let runtime =
            json!({"type": "websocket", "uri": "ws://127.0.0.1:9/", "status_callback": url});
        let change = json!({ "runtime": runtime });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        assert_eq!(status, 400, "{url}: {body}");
        let message = body["message"].as_str().unwrap_or_default();
        let is_named = message.starts_with("runtime.status_callback: ");
        assert!(is_named && message.contains(fault), "{url}: {message}");
    }
}
