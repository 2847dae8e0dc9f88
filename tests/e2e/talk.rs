//! Traffic on the wire while calls are placed, and the secrets in it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::text;
use crate::e2e::secrets::Scene;
use trunkline_testkit::carrier::Carrier;
use trunkline_testkit::{Caller, Credentials, Deadline, Runtime, Trace};

const LIMIT: Duration = Duration::from_secs(30);
/// The trunks' passwords.
pub(crate) const CHALLENGER: &str = "challenger-password-0815";
pub(crate) const REGISTRAR: &str = "registrar-password-0815";

/// Octets that an eavesdropper has heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn hear(&self, octets: &[u8]) {
        let mut heard = self.0.lock().expect("nobody panics with it");
        heard.extend_from_slice(octets);
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// Waits until this part has arrived.
    pub(crate) fn until(&self, part: &str) {
        let has = || {
            let heard = self.octets();
            heard
                .windows(part.len())
                .any(|window| window == part.as_bytes())
        };
        let came = Deadline::after(LIMIT).poll(|| has().then_some(()));
        assert!(came.is_some(), "{part} isn't heard");
    }
}

/// Starts a server that answers every request with this body.
pub(crate) fn server(body: &'static str) -> (SocketAddr, Heard) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("an address");
    let heard = Heard::default();
    let ears = heard.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let ears = ears.clone();
            thread::spawn(move || answer(stream, body, &ears));
        }
    });
    (at, heard)
}

fn answer(stream: TcpStream, body: &str, heard: &Heard) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        heard.hear(line.as_bytes());
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }

    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).ok()?;
    heard.hear(&sent);

    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let length = body.len();
    write!(
        reader.get_mut(),
        "{head}Content-Length: {length}\r\n\r\n{body}"
    )
    .ok()
}

/// Starts a collector that takes every datagram.
pub(crate) fn collector() -> (SocketAddr, Heard) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = socket.local_addr().expect("an address");
    let heard = Heard::default();
    let ears = heard.clone();
    thread::spawn(move || {
        let mut octets = vec![0; 65_536];
        while let Ok(count) = socket.recv(&mut octets) {
            ears.hear(&octets[..count]);
        }
    });
    (at, heard)
}

/// Returns the digest responses in these header lines.
fn proofs(lines: &str) -> Vec<String> {
    let parts = lines.split("response=\"").skip(1);
    let proofs = parts.filter_map(|part| part.split_once('"'));
    proofs.map(|(proof, _)| proof.to_owned()).collect()
}

impl Scene {
    /// Places calls in and out, with right and wrong credentials, and registers with a carrier.
    pub(crate) fn talk(&mut self) {
        self.registered_with_a_carrier();
        self.called_out();
        self.called_in();
        self.called_in_with_a_wrong_password();
    }

    fn registered_with_a_carrier(&mut self) {
        let carrier = Carrier::start("acme", REGISTRAR);
        let trunk = json!({"name": "Registrar", "host": "127.0.0.1", "port": carrier.address.port(), "username": "acme",
            "password": REGISTRAR, "caller_number": "+442071838750", "register": true});
        self.post("/phone/sip/outbound-trunks", &trunk);
        self.secrets
            .add("a registering trunk's password", &json!(REGISTRAR));
        carrier.until("it is registered", |ways| !ways.registered.is_empty());
        let (_, register) = carrier.ways().registered[0].clone();
        self.hide("a proof to a registrar", &register);
    }

    /// Calls through a carrier that challenges three times.
    fn called_out(&mut self) {
        let carrier = Runtime::new();
        let trunk = json!({"name": "Challenger", "host": "127.0.0.1", "port": carrier.address().port(), "username": "acme",
            "password": CHALLENGER, "caller_number": "+442071838750"});
        let trunk = self.post("/phone/sip/outbound-trunks", &trunk);
        self.secrets
            .add("a calling trunk's password", &json!(CHALLENGER));
        let agent = self.ids["agent_id"].clone();
        let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
        self.change("PUT", &path, &json!({"trunk_id": trunk["id"]}));
        let callee = carrier.play("carrier_challenges");
        let order = json!({"phone_agent_id": agent, "phone_number": "+442071838799"});
        let placed = self.post("/phone/outbound-call", &order);
        let call = format!("/phone/calls/{}", text(&placed["call_id"]));
        self.until(&call, "in_progress");
        self.post(&format!("{call}/hangup"), &json!({}));
        let heard = callee.finish().to_string();

        assert!(proofs(&heard).len() >= 4, "{heard}");

        self.hide("a proof to a carrier", &heard);
        self.calls.push(text(&placed["call_id"]));
    }

    fn caller(&self) -> Caller {
        Caller {
            daemon: self.node.setup.sip,
            credentials: Credentials {
                username: self.username.clone(),
                password: self.password.clone(),
            },
            number: "+441632960001".to_owned(),
            dials: self.ids["phone_number"].clone(),
            extra_header: "X-Agent: none named".to_owned(),
            tcp: false,
            // The session is read meanwhile, on a machine that other tests share.
            talks: Duration::from_secs(6),
            allow: None,
        }
    }

    /// Calls a runtime that uses its session's token.
    fn called_in(&mut self) {
        let runtime = Runtime::new();
        let path = format!("/phone/{}", self.ids["agent_id"]);
        let there = json!({"runtime": {"type": "sip", "uri": runtime.uri()}});
        self.change("PATCH", &path, &there);

        let agent = runtime.play("runtime_answers");
        let caller = self.caller().play("caller_hangs_up");
        agent.wait_for("ACK");

        let heard = agent.so_far();
        let invite = heard.request("INVITE");
        let header = |name| invite.header(name).expect("the header is there").to_owned();
        let token = header("X-PLATFORM-SESSION-TOKEN");
        let session = header("X-PLATFORM-SESSION-ID");
        let (status, shown) = self.node.get(&format!("/phone/sessions/{session}"), &token);
        assert_eq!(status, 200, "{shown}");
        self.secrets.add("a session's token", &json!(token));

        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let call = text(&shown["call_id"]);

        // While the call is up, nothing has been projected, folded or closed.
        self.look_around("while a call is up");

        let said = caller.finish();
        self.hide_sent("the caller's proof", &said);
        agent.finish();
        self.until(&format!("/phone/calls/{call}"), "completed");
        self.ids.insert("call_id", call.clone());
        self.ids.insert("session_id", session);
        self.calls.push(call);
    }

    fn called_in_with_a_wrong_password(&mut self) {
        let mut caller = self.caller();
        "a-mistyped-password-0815".clone_into(&mut caller.credentials.password);
        let said = caller.play("caller_is_refused").finish();
        self.hide_sent("a wrong proof", &said);
    }

    fn hide_sent(&mut self, what: &'static str, said: &Trace) {
        let lines = said
            .sent()
            .filter_map(|message| message.header("Authorization"));
        let lines: Vec<_> = lines.collect();
        self.hide(what, &lines.join("\n"));
    }

    fn hide(&mut self, what: &'static str, lines: &str) {
        let proofs = proofs(lines);
        assert!(!proofs.is_empty(), "no proof: {lines}");
        for proof in proofs {
            self.secrets.add(what, &json!(proof));
        }
    }

    fn until(&self, call: &str, status: &str) {
        let came = Deadline::after(LIMIT).poll(|| {
            let (_, shown) = self.node.get(call, &self.key);
            let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
            (shown["status"] == status).then_some(())
        });
        assert!(came.is_some(), "{call} is never {status}");
    }
}
