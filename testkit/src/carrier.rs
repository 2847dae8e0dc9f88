//! A carrier with which an outbound trunk registers: it challenges, checks the digest, grants what it likes, and answers OPTIONS.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use trunkline_sip::auth::{
    Algorithm, NonceKeys, NonceWindow, Nonces, Policy, Secret, Verdict, credentials, verify,
};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use crate::Deadline;

const REALM: &str = "carrier.example";
/// The carrier's clock stands still: its nonces never age.
const NOW: Moment = Moment::from_secs(1_800_000_000);
const PATIENCE: Duration = Duration::from_secs(20);

/// How the carrier behaves, and what it has seen.
#[derive(Debug)]
pub struct Ways {
    /// It says nothing at all.
    pub silent: bool,
    /// What it grants, in seconds.
    pub grants: u32,
    /// What it wants to be asked for at least.
    pub least: u32,
    /// It forgets its nonces so many times.
    pub forgets: u32,
    /// The REGISTERs whose digest was right: the seconds asked for, and the whole message.
    pub registered: Vec<(u32, String)>,
    /// Those whose digest was wrong.
    pub wrong: usize,
    /// Those without credentials.
    pub bare: usize,
    pub options: usize,
}

/// A carrier that listens.
#[derive(Debug, Clone)]
pub struct Carrier {
    pub address: SocketAddr,
    ways: Arc<Mutex<Ways>>,
}

impl Carrier {
    /// Knows one account.
    pub fn start(user: &str, password: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("an address");
        let ways = Arc::new(Mutex::new(Ways {
            silent: false,
            grants: 3_600,
            least: 0,
            forgets: 0,
            registered: Vec::new(),
            wrong: 0,
            bare: 0,
            options: 0,
        }));
        let carrier = Self {
            address,
            ways: Arc::clone(&ways),
        };
        let mut desk = Desk {
            secret: Secret::new(user, REALM, password),
            nonces: Nonces::new(
                NonceKeys {
                    node: [3; 32],
                    deployment: [0; 32],
                },
                Duration::from_secs(60),
            ),
            window: NonceWindow::new(Duration::from_secs(60), 1_000),
            entropy: Entropy::from_seed([4; 32]),
        };
        std::thread::spawn(move || {
            let mut octets = [0; 8192];
            // A retransmission gets the answer of the request: by the whole of it, which is the same octet by octet.
            let mut answered: HashMap<Vec<u8>, String> = HashMap::new();
            while let Ok((count, from)) = socket.recv_from(&mut octets) {
                let request = lex(&octets[..count], Framing::Datagram).expect("a message");
                let mut ways = ways.lock().expect("nobody panics with it");
                if ways.silent {
                    continue;
                }
                let again = answered.get(request.raw()).cloned();
                let answer = again.or_else(|| {
                    let (status, lines) = desk.answer(&request, &mut ways)?;
                    Some(reply(&request, status, &lines))
                });
                if let Some(answer) = answer {
                    socket.send_to(answer.as_bytes(), from).expect("it is sent");
                    answered.insert(request.raw().to_vec(), answer);
                }
            }
        });
        carrier
    }

    pub fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().expect("nobody panics with it")
    }

    /// Waits until what the carrier has seen is as it should be.
    pub fn until(&self, what: &str, seen: impl Fn(&Ways) -> bool) {
        let came = Deadline::after(PATIENCE).poll(|| seen(&self.ways()).then_some(()));
        assert!(came.is_some(), "{what}: {:?}", self.ways());
    }
}

/// What checks a digest.
struct Desk {
    secret: Secret,
    nonces: Nonces,
    window: NonceWindow,
    entropy: Entropy,
}

impl Desk {
    fn answer(&mut self, request: &Message<'_>, ways: &mut Ways) -> Option<(&'static str, String)> {
        if request.method() == Method::Options {
            ways.options += 1;
            return Some(("200 OK", String::new()));
        }
        if request.method() != Method::Register {
            return None;
        }
        let asked = request.number(HeaderName::Expires).unwrap_or(3_600);
        let Some(credentials) = credentials(request, REALM) else {
            ways.bare += 1;
            return Some(("401 Who is it", self.challenge(false)));
        };
        if ways.forgets > 0 {
            ways.forgets -= 1;
            return Some(("401 Again", self.challenge(true)));
        }
        let policy = Policy {
            algorithms: &[Algorithm::Md5],
            allow_rfc2069: false,
        };
        let verdict = verify(
            &credentials,
            request,
            &self.secret,
            &self.nonces,
            &self.window,
            policy,
            NOW,
        );
        if verdict != Verdict::Ok {
            ways.wrong += 1;
            return Some(("401 No", self.challenge(false)));
        }
        if asked > 0 && asked < ways.least {
            return Some(("423 Too Brief", format!("Min-Expires: {}\r\n", ways.least)));
        }
        let text = String::from_utf8_lossy(request.raw()).into_owned();
        ways.registered.push((asked, text));
        let contact = String::from_utf8_lossy(request.first(HeaderName::Contact)?).into_owned();
        let lines = if asked == 0 {
            String::new()
        } else {
            format!("Contact: {contact};expires={}\r\n", ways.grants)
        };
        Some(("200 OK", lines))
    }

    fn challenge(&mut self, stale: bool) -> String {
        let nonce = self.nonces.issue(0, &mut self.entropy, NOW);
        let stale = if stale { ", stale=true" } else { "" };
        format!(
            "WWW-Authenticate: Digest realm=\"{REALM}\", nonce=\"{}\", qop=\"auth\", algorithm=MD5{stale}\r\n",
            nonce.as_str()
        )
    }
}

/// An answer that goes with the request.
pub fn reply(request: &Message<'_>, status: &str, lines: &str) -> String {
    let line = |label: &str, name| {
        let value = String::from_utf8_lossy(request.first(name).expect("it is there"));
        format!("{label}: {value}\r\n")
    };
    let tag = match request.to_tag() {
        None => ";tag=carrier",
        Some(_) => "",
    };
    [
        format!("SIP/2.0 {status}\r\n"),
        line("Via", HeaderName::Via),
        line("From", HeaderName::From),
        line("To", HeaderName::To).trim_end().to_owned() + tag + "\r\n",
        line("Call-ID", HeaderName::CallId),
        line("CSeq", HeaderName::CSeq),
        lines.to_owned(),
        "Content-Length: 0\r\n\r\n".to_owned(),
    ]
    .concat()
}
