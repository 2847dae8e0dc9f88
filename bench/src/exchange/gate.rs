//! The gate takes the daemon's place in a run without one: it challenges an INVITE and checks the answer, so that the generator can be
//! measured, and tested, against itself.

use std::net::SocketAddrV4;

use trunkline_sip::auth::{
    self, Algorithm, Challenge, LIFETIME, NonceKeys, NonceSource, NonceWindow, Nonces, Policy,
    Secret, Verdict, verify,
};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;

use super::callee_print::put_response_head;
use crate::outbox::Outbox;

const REALM: &str = "trunkline-bench";
/// Most nonces that the window remembers.
const NONCES: usize = 1 << 20;

/// A verifier for one account.
#[derive(Debug)]
pub struct Gate {
    secret: Secret,
    nonces: Nonces,
    window: NonceWindow,
    entropy: Entropy,
}

impl Gate {
    /// A gate for one account.
    pub fn new(user: &str, password: &str) -> Self {
        let keys = NonceKeys {
            node: [1; 32],
            deployment: [2; 32],
        };
        Self {
            secret: Secret::new(user, REALM, password),
            nonces: Nonces::new(keys, LIFETIME),
            window: NonceWindow::new(LIFETIME, NONCES),
            entropy: Entropy::from_seed([3; 32]),
        }
    }

    /// Returns true if the request's credentials are right, and otherwise prints a challenge.
    pub(super) fn admits(
        &mut self,
        out: &mut Outbox,
        request: &Message<'_>,
        peer: SocketAddrV4,
        now: u64,
    ) -> bool {
        // The engine's clock begins at 0, and the window takes no nonce of the first part of a lifetime.
        let now = Moment::from_micros(now) + LIFETIME;
        let source = NonceSource::of(&Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: peer.into(),
            peer: peer.into(),
        });
        let policy = Policy {
            algorithms: &[Algorithm::Md5],
            source,
        };
        let verdict = auth::credentials(request, REALM).map(|credentials| {
            let (secret, nonces, window) = (&self.secret, &self.nonces, &self.window);
            verify(&credentials, request, secret, nonces, window, policy, now)
        });
        if verdict == Some(Verdict::Ok) {
            return true;
        }

        let nonce = self.nonces.issue(0, source, &mut self.entropy, now);
        let challenge = Challenge {
            realm: REALM.as_bytes(),
            nonce: nonce.as_bytes(),
            opaque: None,
            algorithm: Some(b"MD5"),
            qop: Some(b"auth"),
            stale: verdict == Some(Verdict::Stale),
        };
        put_response_head(out, b"401 Unauthorized", request);
        out.put(b"WWW-Authenticate: ");
        out.put(challenge.to_string().as_bytes());
        out.put(b"\r\nContent-Length: 0\r\n\r\n");
        out.end(peer);
        false
    }
}
