//! Calls from the console's page: a session's WebSocket in place of a phone system, and the limits of what a browser may do.

use std::f64::consts::TAU;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::Bot;
use trunkline_testkit::talker::{Rtp, offer};
use trunkline_testkit::web_socket::{WebSocket, WebSocketMessage};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, http, tools};

const PATIENCE: Duration = Duration::from_secs(15);
const FRAME: Duration = Duration::from_millis(20);
/// A runtime on another loopback address.
const RUNTIME: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A person who is logged in.
struct Person {
    cookie: String,
    /// API key of the partner that made the person's login link.
    partner: String,
}

impl Person {
    /// Logs a person with this role in to the first org.
    fn with_role(daemon: &Daemon, name: &str) -> Self {
        let partners = daemon.setup.run(&["partner", "list", "--json"]);
        let id = partners[0]["id"].as_str().expect("an id");
        let key = ["partner", "key", "create", "--partner", id, "--json"];
        let key = daemon.setup.run(&key);
        let partner = text(&key["partner_key"]);
        let at = daemon.setup.http;
        let org = format!("/partner/v1/orgs/{}", daemon.setup.org);

        let roles = http::json(at, &format!("{org}/roles"), &partner);
        let mut roles = roles["items"].as_array().expect("a list").iter();
        let role = roles.find(|of| of["name"] == name).expect("the role");
        let asked = json!({"email": format!("{name}@example.org"), "name": "Ada \"the\" Caller", "role_ids": [role["id"]]});
        let links = format!("{org}/login-links");
        let (status, link) = http::change("POST", at, &links, &partner, &asked);
        assert_eq!(status, 201, "{link}");

        let url = text(&link["url"]);
        let path = url.find("/partner-login").expect("a path");
        let mut stream = TcpStream::connect(at).expect("it connects");
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n",
            &url[path..]
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, cookie) = answer.split_once("set-cookie: ").expect("a cookie");
        let (cookie, _) = cookie.split_once(';').expect("its end");
        Self {
            cookie: cookie.to_owned(),
            partner,
        }
    }

    fn lines(&self, daemon: &Daemon) -> String {
        let at = daemon.setup.http;
        format!("Cookie: {}\r\nOrigin: http://{at}\r\n", self.cookie)
    }

    fn socket(&self, daemon: &Daemon) -> Result<WebSocket, u16> {
        WebSocket::open(daemon.setup.http, &path(daemon), &self.lines(daemon))
    }

    /// Calls the callee that the message names.
    fn call(&self, daemon: &Daemon, callee: &Value) -> Page {
        let mut socket = self.socket(daemon).expect("a WebSocket");
        let mut asked = callee.clone();
        asked["event"] = json!("call");
        socket.text(&asked.to_string());
        Page {
            socket,
            heard: Vec::new(),
            told: Vec::new(),
            due: Deadline::after(Duration::ZERO),
        }
    }
}

fn path(daemon: &Daemon) -> String {
    format!("/dashboard/{}/phone/call", daemon.setup.org)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// A page in a call.
struct Page {
    socket: WebSocket,
    /// Audio received, in order.
    heard: Vec<u8>,
    told: Vec<Value>,
    due: Deadline,
}

impl Page {
    /// Sends a frame every 20 ms until `is_done`: silence if there is nothing to say.
    fn talk(
        &mut self,
        mut says: impl FnMut() -> [u8; 160],
        mut is_done: impl FnMut(&Self) -> bool,
    ) -> bool {
        let limit = Deadline::after(PATIENCE);
        while !limit.is_over() {
            if self.due.is_over() {
                self.socket.binary(&says());
                self.due = self.due.after_another(FRAME);
            }
            match self.socket.receive(Duration::from_millis(5)) {
                Some(WebSocketMessage::Binary(octets)) => {
                    assert_eq!(octets.len(), 160, "a frame of 20 ms");
                    self.heard.extend(octets);
                }
                Some(WebSocketMessage::Text(text)) => {
                    self.told.push(serde_json::from_str(&text).expect("JSON"));
                }
                Some(WebSocketMessage::Ping(_)) | None => {}
                Some(WebSocketMessage::Close(_) | WebSocketMessage::End) => return is_done(self),
            }
            if is_done(self) {
                return true;
            }
        }

        false
    }

    fn was_told(&self, event: &str) -> Option<&Value> {
        self.told.iter().find(|told| told["event"] == event)
    }

    /// Waits for an event while it sends silence.
    fn event(&mut self, event: &str) -> Value {
        let came = self.talk(|| [0xff; 160], |page| page.was_told(event).is_some());
        assert!(came, "no {event}: {:?}", self.told);
        self.was_told(event).cloned().expect("it came")
    }

    fn press(&mut self, digits: &str) {
        let pressed = json!({"event": "digits", "digits": digits});
        self.socket.text(&pressed.to_string());
    }

    fn hang_up(&mut self) -> Value {
        self.socket.text(&json!({"event": "hang_up"}).to_string());
        self.event("ended")
    }
}

/// A tone of 1 kHz: eight samples a period.
fn tone() -> [u8; 160] {
    let sample = |at: usize| (0.3 * 32_767.0 * (TAU * at as f64 / 8.0).sin()) as i32;
    std::array::from_fn(|at| encoded(sample(at)))
}

fn encoded(sample: i32) -> u8 {
    let (sign, magnitude) = if sample < 0 {
        (0x80, -sample)
    } else {
        (0, sample)
    };
    let magnitude = magnitude.min(32_635) + 132;
    let exponent = 24 - magnitude.leading_zeros() as i32;
    !((sign | exponent << 4 | (magnitude >> (exponent + 3) & 0x0f)) as u8)
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

/// Returns the share of 1 kHz in the power of the last second heard.
fn share_of_tone(heard: &[u8]) -> f64 {
    let Some(last) = heard.len().checked_sub(8_000) else {
        return 0.0;
    };
    let samples: Vec<f64> = heard[last..].iter().map(|octet| decoded(*octet)).collect();
    let total: f64 = samples.iter().map(|sample| sample * sample).sum();
    let (sine, cosine) = samples
        .iter()
        .enumerate()
        .fold((0.0, 0.0), |sums, (at, sample)| {
            let angle = TAU * at as f64 / 8.0;
            (sums.0 + sample * angle.sin(), sums.1 + sample * angle.cos())
        });
    let power = (sine * sine + cosine * cosine) * 2.0 / samples.len() as f64;
    if total > 1e6 { power / total } else { 0.0 }
}

fn echo(daemon: &Daemon) -> Value {
    json!({"agent_id": daemon.setup.first_agent})
}

#[test]
fn a_page_hears_itself_and_its_call_is_recorded() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");
    let hears = page.talk(tone, |page| share_of_tone(&page.heard) > 0.9);
    assert!(hears, "{} octets were heard", page.heard.len());

    let began = page.was_told("began").expect("the call has an id").clone();
    let up = daemon.calls().remove(0);
    assert_eq!(up["id"], began["call_id"], "{up}");
    assert_eq!(page.hang_up()["sentence"], "You hung up.");

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    assert_eq!(record["trunk_id"], Value::Null, "{record}");
    let routing = daemon.routing(&record);
    assert_eq!(routing["log_in"]["by"], "session", "{routing}");

    // The audit log names the person's session.
    let entry = daemon.shown("/phone/audit?resource=call")["items"][0].clone();
    assert_eq!(entry["resource_id"], record["id"], "{entry}");
    assert_eq!(entry["actor_name"], "admin@example.org", "{entry}");
}

/// A browser closes its WebSocket when a write fails, and drops what it has not read.
#[test]
fn a_page_that_speaks_on_reads_the_end_of_its_call() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");
    page.hang_up();

    let masked_by_zero = [&[0x82, 0xfe, 0, 160, 0, 0, 0, 0][..], &[0xff; 160]].concat();
    for _ in 0..30 {
        assert!(page.socket.raw(&masked_by_zero), "the connection is open");
        std::thread::sleep(Duration::from_millis(10));
    }

    let mut rest = std::iter::from_fn(|| page.socket.receive(PATIENCE));
    let close = rest.find(|message| !matches!(message, WebSocketMessage::Binary(_)));
    assert!(
        matches!(close, Some(WebSocketMessage::Close(1000))),
        "{close:?}"
    );
    page.socket.frame(0x88, &[]);
    let end = page.socket.receive(PATIENCE);
    assert!(matches!(end, Some(WebSocketMessage::End)), "{end:?}");
}

#[test]
fn a_number_is_routed_by_the_four_steps() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let number = &daemon.setup.first_number;
    let mut page = ada.call(&daemon, &json!({ "to": number }));
    page.event("answered");
    page.hang_up();
    let record = daemon.record();
    assert_eq!(record["to_number"], **number, "{record}");
    assert_eq!(record["agent_id"], daemon.setup.first_agent, "{record}");

    daemon.setup.disable(&daemon.setup.first_agent);
    daemon.setup.settle();
    let mut page = ada.call(&daemon, &json!({ "to": number }));
    let ended = page.event("ended");
    assert_eq!(
        (&ended["status"], &ended["code"]),
        (&json!(480), &json!("no_agent")),
        "{ended}"
    );
}

/// Serves an agent with a SIP runtime that answers; `allowed` are the private addresses that peers may have.
fn sip_runtime(allowed: &str) -> (Rtp, Responder, Daemon) {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", allowed);
    let rtp = Rtp::new(RUNTIME);
    let runtime = Responder::accepting(RUNTIME, None, offer(rtp.address()));
    setup.runtime(&setup.first_agent, &format!("sip:bot@{}", runtime.address));
    let daemon = setup.serve();
    (rtp, runtime, daemon)
}

#[test]
fn a_sip_runtime_and_the_page_hear_each_other() {
    let (rtp, runtime, daemon) = sip_runtime("127.0.0.0/8");
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");

    let invite = runtime.requests("INVITE").remove(0);
    let to = invite.media();
    let mut heard = false;
    let hears = page.talk(
        || {
            rtp.say(to, &[0x23; 160]);
            tone()
        },
        |page| {
            heard |= rtp.audio().is_some_and(|audio| audio == tone());
            heard && page.heard.ends_with(&[0x23; 160])
        },
    );
    assert!(hears, "the runtime heard the page: {heard}");

    drop(page);
    let bye = Deadline::after(PATIENCE).poll(|| runtime.requests("BYE").pop());
    assert!(bye.is_some(), "a page that is closed hangs up");
}

/// The operator's command line may name a runtime at any address, but the address in its SDP isn't the operator's.
#[test]
fn a_page_learns_why_a_runtime_at_a_private_address_is_silent() {
    let (_rtp, _runtime, daemon) = sip_runtime("");
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));

    let sentence = text(&page.event("no_audio")["sentence"]);
    assert!(
        sentence.contains("127.0.0.3 is a loopback, link-local or private address"),
        "{sentence}"
    );
    assert!(sentence.contains("sip.allow_private_peers"), "{sentence}");
    page.event("answered");
}

#[test]
fn a_transfer_bridges_the_page_to_the_destination() {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8");
    let daemon = setup.serve();
    let rtp = Rtp::new(RUNTIME);
    let sales = Responder::accepting(RUNTIME, None, offer(rtp.address()));
    daemon.destination("Sales", "sip", &format!("sip:sales@{}", sales.address));
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");

    let call = text(&page.was_told("began").expect("an id")["call_id"]);
    let asked = json!({"destination": "sales"});
    let (status, begun) = daemon.change("POST", &format!("/phone/calls/{call}/transfer"), &asked);
    assert_eq!(status, 202, "{begun}");
    let invite = Deadline::after(PATIENCE).poll(|| sales.requests("INVITE").pop());
    let to = invite.expect("the destination is called").media();
    let hears = page.talk(
        || {
            rtp.say(to, &[0x23; 160]);
            tone()
        },
        |page| {
            page.heard.ends_with(&[0x23; 160]) && rtp.audio().is_some_and(|audio| audio == tone())
        },
    );
    assert!(hears, "the page and the destination hear each other");
    let shown = daemon.shown(&format!("/phone/calls/{call}"));
    assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
    page.hang_up();
}

#[test]
fn a_bot_greets_the_page_hears_its_keys_and_hangs_up() {
    if !tools(&["python3"]) {
        return;
    }
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8");
    let daemon = setup.serve();
    let bot = Bot::start(&[]);
    let runtime = json!({"runtime": {"type": "websocket", "uri": bot.url()}});
    let agent = format!("/phone/{}", daemon.setup.first_agent);
    let (status, body) = daemon.change("PATCH", &agent, &runtime);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();

    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");
    assert!(page.was_told("ringing").is_some(), "{:?}", page.told);
    let greeted = page.talk(
        || [0xff; 160],
        |page| {
            page.heard
                .iter()
                .any(|octet| decoded(*octet).abs() > 8_000.0)
        },
    );
    assert!(greeted, "the greeting");
    let hears = page.talk(tone, |page| share_of_tone(&page.heard) > 0.9);
    assert!(hears, "the bot's echo");

    page.press("#");
    let ended = page.event("ended");
    assert_eq!(ended["sentence"], "The other side hung up.");
    let record = daemon.record();
    assert_eq!(record["hangup_by"], "agent", "{record}");
}

#[test]
fn a_call_needs_a_session_that_may_change_things_and_its_own_page() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let (at, cookie) = (daemon.setup.http, &ada.cookie);
    let own = format!("Origin: http://{at}\r\n");
    let other_org = "/dashboard/01a21891-4cbe-7917-9262-ca2d82a1e75e/phone/call".to_owned();
    for (name, path, lines, status) in [
        ("no session", path(&daemon), own.clone(), 401),
        (
            "an unknown session",
            path(&daemon),
            format!("{own}Cookie: trunkline_session=x\r\n"),
            401,
        ),
        (
            "another org",
            other_org,
            format!("{own}Cookie: {cookie}\r\n"),
            404,
        ),
        (
            "no origin",
            path(&daemon),
            format!("Cookie: {cookie}\r\n"),
            403,
        ),
        (
            "another origin",
            path(&daemon),
            format!("Origin: http://evil.example\r\nCookie: {cookie}\r\n"),
            403,
        ),
        (
            "the same host by another scheme",
            path(&daemon),
            format!("Origin: https://{at}\r\nCookie: {cookie}\r\n"),
            403,
        ),
        (
            "another site",
            path(&daemon),
            format!("{own}Sec-Fetch-Site: same-site\r\nCookie: {cookie}\r\n"),
            403,
        ),
        (
            "its own page",
            path(&daemon),
            format!("{own}Sec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\n"),
            101,
        ),
    ] {
        let answered = WebSocket::open(at, &path, &lines).err().unwrap_or(101);
        assert_eq!(answered, status, "{name}");
    }

    let reader = Person::with_role(&daemon, "member");
    assert_eq!(reader.socket(&daemon).err(), Some(403), "a member");

    let stranger = daemon.setup.foreign_agent();
    let mut page = ada.call(&daemon, &json!({ "agent_id": stranger }));
    assert_eq!(page.event("ended")["code"], "not_found");
    assert_eq!(daemon.calls(), Vec::<Value>::new());
}

/// Waits for the end of the WebSocket; returns the status of its close frame, or `None` for a bare end of the connection.
fn closed(page: &mut Page) -> Option<u16> {
    let limit = Deadline::after(PATIENCE);
    while !limit.is_over() {
        match page.socket.receive(Duration::from_millis(50)) {
            Some(WebSocketMessage::Close(status)) => return Some(status),
            Some(WebSocketMessage::End) => return None,
            Some(_) | None => {}
        }
    }
    panic!("it stays open")
}

#[test]
fn a_browser_that_breaks_a_rule_ends_its_own_call_alone() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let mut bystander = Person::with_role(&daemon, "admin").call(&daemon, &echo(&daemon));
    bystander.event("answered");

    type Misdeed = fn(&mut WebSocket);
    // The codes are those of RFC 6455 §7.4.1.
    let misdeeds: [(&str, u16, Misdeed); 10] = [
        ("no JSON", 1008, |socket| socket.text("junk")),
        ("an unknown event", 1008, |socket| {
            socket.text("{\"event\": \"dance\"}")
        }),
        ("another call", 1008, |socket| {
            socket.text("{\"event\": \"call\", \"to\": \"1\"}");
        }),
        ("no key", 1008, |socket| {
            socket.text("{\"event\": \"digits\", \"digits\": \"x\"}");
        }),
        ("a long frame", 1009, |socket| socket.binary(&[0xff; 4_000])),
        ("a short frame", 1008, |socket| socket.binary(&[0xff; 159])),
        ("an unmasked frame", 1002, |socket| {
            socket.raw(&[0x82, 1, 0]);
        }),
        ("no UTF-8", 1007, |socket| socket.frame(0x81, &[0xff])),
        ("endless fragments", 1009, |socket| {
            socket.frame(0x02, &[0xff; 100]);
            (0..100).for_each(|_| socket.frame(0x00, &[0xff; 100]));
        }),
        ("frames without end", 1008, |socket| {
            (0..2_000).for_each(|_| socket.binary(&[0xff; 160]));
        }),
    ];
    for (name, code, misdeed) in misdeeds {
        let mut page = ada.call(&daemon, &echo(&daemon));
        page.event("answered");
        misdeed(&mut page.socket);
        assert_eq!(closed(&mut page), Some(code), "{name}");
        let call = text(&page.was_told("began").expect("an id")["call_id"]);
        let ended = daemon.stored(&call);
        assert_eq!(ended["status"], "completed", "{name}: {ended}");
    }

    bystander.heard.clear();
    let hears = bystander.talk(tone, |page| share_of_tone(&page.heard) > 0.9);
    assert!(hears, "the other call goes on");
    bystander.hang_up();
}

#[test]
fn a_session_has_one_call_which_ends_with_it() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");
    assert_eq!(ada.socket(&daemon).err(), Some(429));

    let sessions = format!("/partner/v1/orgs/{}/sessions", daemon.setup.org);
    let at = daemon.setup.http;
    let (status, _) = http::change("DELETE", at, &sessions, &ada.partner, &Value::Null);
    assert!((200..300).contains(&status), "{status}");
    assert_eq!(
        closed(&mut page),
        Some(1008),
        "the call ends with its session"
    );
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_browser_that_is_silent_has_gone() {
    let daemon = DaemonSetup::new().serve();
    let ada = Person::with_role(&daemon, "admin");
    let mut page = ada.call(&daemon, &echo(&daemon));
    page.event("answered");

    // The page neither reads nor answers pings, as when its network is gone.
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
}
