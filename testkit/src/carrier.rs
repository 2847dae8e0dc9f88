//! A carrier with which an outbound trunk registers: it challenges, checks the digest, grants an expiry, and answers OPTIONS.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::digest::{parts, proves};
use crate::{Credentials, Deadline, Message, Responder};

const REALM: &str = "carrier.example";
const PATIENCE: Duration = Duration::from_secs(20);

/// Behaviour of the carrier, and the messages it has seen.
#[derive(Debug)]
pub struct Ways {
    /// True if it never answers.
    pub silent: bool,
    /// Expiry that it grants, in seconds.
    pub grants: u32,
    /// Least expiry that it accepts (`Min-Expires`), in seconds.
    pub least: u32,
    /// Number of times that it forgets its nonces.
    pub forgets: u32,
    /// Further header lines of the 200 to a REGISTER, each with its line end.
    pub lines: String,
    /// REGISTERs with a correct digest: the expiry asked for, and the whole message.
    pub registered: Vec<(u32, String)>,
    /// Number of REGISTERs with a wrong digest.
    pub wrong: usize,
    /// Number of REGISTERs without credentials.
    pub bare: usize,
    pub options: usize,
    /// INVITEs, all of which it refuses.
    pub invites: Vec<String>,
}

/// A carrier that listens.
#[derive(Debug, Clone)]
pub struct Carrier {
    pub address: SocketAddr,
    ways: Arc<Mutex<Ways>>,
}

impl Carrier {
    /// Starts a carrier with one account.
    pub fn start(user: &str, password: &str) -> Self {
        let ways = Arc::new(Mutex::new(Ways {
            silent: false,
            grants: 3_600,
            least: 0,
            forgets: 0,
            lines: String::new(),
            registered: Vec::new(),
            wrong: 0,
            bare: 0,
            options: 0,
            invites: Vec::new(),
        }));

        let mut desk = Desk {
            account: Credentials {
                username: user.to_owned(),
                password: password.to_owned(),
            },
            uses: HashMap::new(),
        };

        // A retransmission is octet by octet the same as its request, and gets the same answer.
        let mut answered: HashMap<String, String> = HashMap::new();
        let seen = Arc::clone(&ways);
        let responder = Responder::start(Ipv4Addr::LOCALHOST, move |request| {
            let mut ways = seen.lock().expect("nobody panics with it");
            if ways.silent {
                return None;
            }
            let again = answered.get(&request.text()).cloned();
            let answer = again.or_else(|| {
                let (status, lines) = desk.answer(request, &mut ways)?;
                Some(request.reply(status, &lines))
            })?;
            answered.insert(request.text(), answer.clone());
            Some(answer)
        });

        let address = responder.address;
        Self { address, ways }
    }

    pub fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().expect("nobody panics with it")
    }

    /// Waits until `seen` accepts what the carrier has seen.
    pub fn until(&self, what: &str, seen: impl Fn(&Ways) -> bool) {
        let came = Deadline::after(PATIENCE).poll(|| seen(&self.ways()).then_some(()));
        assert!(came.is_some(), "{what}: {:?}", self.ways());
    }
}

/// Verifier of a digest.
struct Desk {
    account: Credentials,
    /// The nonces that it has issued, each with its last count. They never expire, and no count is accepted twice.
    uses: HashMap<String, u32>,
}

impl Desk {
    fn answer(&mut self, request: &Message, ways: &mut Ways) -> Option<(&'static str, String)> {
        match request.method()? {
            "OPTIONS" => {
                ways.options += 1;
                return Some(("200 OK", String::new()));
            }
            "INVITE" => {
                ways.invites.push(request.text());
                return Some(("486 Busy Here", String::new()));
            }
            "REGISTER" => {}
            _ => return None,
        }

        let asked = request
            .header("Expires")
            .and_then(|value| value.parse().ok());
        let asked = asked.unwrap_or(3_600);
        if request.header("Authorization").is_none() {
            ways.bare += 1;
            return Some(("401 Who is it", self.challenge(false)));
        }

        if ways.forgets > 0 {
            ways.forgets -= 1;
            return Some(("401 Again", self.challenge(true)));
        }

        if !self.is_proved(request) {
            ways.wrong += 1;
            return Some(("401 No", self.challenge(false)));
        }
        // RFC 3261 §10.3: an interval is too brief only if it "is greater than zero". Zero removes the binding.
        if asked > 0 && asked < ways.least {
            return Some(("423 Too Brief", format!("Min-Expires: {}\r\n", ways.least)));
        }
        ways.registered.push((asked, request.text()));

        let contact = request.header("Contact")?;
        let lines = if asked == 0 {
            String::new()
        } else {
            format!(
                "Contact: {contact};expires={}\r\n{}",
                ways.grants, ways.lines
            )
        };

        Some(("200 OK", lines))
    }

    fn challenge(&mut self, stale: bool) -> String {
        let nonce = format!("carrier-{}", self.uses.len());
        let stale = if stale { ", stale=true" } else { "" };
        let line = format!(
            "WWW-Authenticate: Digest realm=\"{REALM}\", nonce=\"{}\", qop=\"auth\", algorithm=MD5{stale}\r\n",
            nonce
        );
        self.uses.insert(nonce, 0);
        line
    }

    /// Returns true if the digest is right, for one of our nonces with a rising count, and with the `qop` that we asked for.
    fn is_proved(&mut self, message: &Message) -> bool {
        let parts = parts(message.header("Authorization").unwrap_or_default());
        let part = |name: &str| parts.get(name).map_or("", String::as_str);
        let count = u32::from_str_radix(part("nc"), 16).unwrap_or(0);
        let Some(last) = self.uses.get_mut(part("nonce")) else {
            return false;
        };
        let is_new = count > *last && part("qop") == "auth" && part("realm") == REALM;
        *last = count.max(*last);
        is_new && proves(message, "Authorization", "REGISTER", &self.account)
    }
}
