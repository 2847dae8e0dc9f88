//! What a probe does beside calling: it registers, and it refuses transfers.

use trunkline_sip::auth::client::{Asking, Login, answer, challenge};
use trunkline_sip::wire::{Framing, Method, lex};

use crate::harness::Credentials;
use crate::harness::carrier::reply;
use crate::harness::probe::Probe;

impl Probe {
    /// Refuses every REFER from now on, and says 200 to everything else.
    pub(crate) fn refuse_transfers(self) {
        std::thread::spawn(move || {
            let mut octets = [0; 8192];
            loop {
                let Ok(count) = self.socket.recv(&mut octets) else {
                    continue;
                };
                let message = lex(&octets[..count], Framing::Datagram).expect("a message");
                if !message.is_request() || message.method() == Method::Ack {
                    continue;
                }
                let status = match message.method() == Method::Refer {
                    true => "403 Forbidden",
                    false => "200 OK",
                };
                // The daemon may have gone.
                let _ = self.socket.send(reply(&message, status, "").as_bytes());
            }
        });
    }

    /// The status of a REGISTER with these credentials.
    pub(crate) fn register(&self, credentials: &Credentials) -> u16 {
        let (own, daemon) = (self.own, self.daemon);
        let uri = format!("sip:{daemon}");
        let contact = format!("Contact: <sip:probe@{own}>;expires=60\r\n");
        let (_, challenged) = self.ask("REGISTER", &uri, &contact, "");
        let refused = lex(&challenged, Framing::Datagram).expect("a response");
        let (_, challenge) = challenge(&refused).expect("a challenge");
        let asking = Asking {
            method: "REGISTER",
            uri: uri.as_bytes(),
            body: b"",
        };
        let login = Login {
            user: &credentials.username,
            password: &credentials.password,
        };
        let value = answer(&challenge, &asking, &login, 1, "c0").expect("an answer");
        let more = format!("Authorization: {value}\r\n{contact}");
        let (_, answered) = self.ask("REGISTER", &uri, &more, "");
        lex(&answered, Framing::Datagram)
            .expect("a response")
            .status()
    }
}
