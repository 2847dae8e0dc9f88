//! A minimal caller: it tests whether a call is accepted, and where it goes.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};

use crate::dialog::Dialog;
use crate::digest::{Asking, Challenge};
use crate::message::SDP;
use crate::peer::FOREVER;
use crate::{Credentials, Message, Peer};

/// Calls from its own address, without credentials.
#[derive(Debug)]
pub struct Probe {
    pub peer: Peer,
    daemon: SocketAddr,
    turn: Cell<u32>,
}

impl Probe {
    pub fn new(from: Ipv4Addr, daemon: SocketAddr) -> Self {
        Self {
            peer: Peer::on(from, daemon).attentive(),
            ..Self::forged(from, daemon)
        }
    }

    /// A probe that answers no request: a sender with a forged source address gets none of them.
    pub fn forged(from: Ipv4Addr, daemon: SocketAddr) -> Self {
        Self {
            peer: Peer::on(from, daemon),
            daemon,
            turn: Cell::new(0),
        }
    }

    /// The final status of a call to `user` with this header line; an answered call stays up. `None`: the daemon was overloaded.
    pub fn call(&self, user: &str, line: &str) -> Option<u16> {
        let own = self.peer.own;
        let sdp = SDP.replace("127.0.0.1", &own.ip().to_string());
        let mut dialog = self.dialog(&format!("sip:{user}@{}", self.daemon));
        let lines = format!("Contact: <sip:probe@{own}>\r\n{line}\r\n");
        let invite = dialog.request(&self.peer, (1, "INVITE"), &lines, &sdp);
        let answered = self.peer.ask(&invite);
        let status = answered.status().expect("a response");
        if status < 300 {
            dialog.accepted(&answered);
        }
        self.peer.send(dialog.ack(&self.peer, 1, &answered));
        (status != 503).then_some(status)
    }

    /// A dialog with another caller number each time, since one caller may not call a number as often as tests do.
    fn dialog(&self, uri: &str) -> Dialog {
        self.turn.set(self.turn.get() + 1);
        let caller = format!("+441632{:06}", self.turn.get() % 1_000_000);
        let id = format!("{}-{}", self.peer.own.port(), self.turn.get());
        Dialog::calling(uri, &caller, &id, &self.peer)
    }

    /// The final answer to a request outside of a call, with these lines.
    pub fn ask(&self, method: &str, lines: &str) -> Message {
        let dialog = self.dialog(&format!("sip:{}", self.daemon));
        let request = dialog.request(&self.peer, (1, method), lines, "");
        self.peer.ask(&request)
    }

    /// Refuses every REFER from now on, and answers 200 to all other requests.
    pub fn refuse_transfers(self) {
        std::thread::spawn(move || {
            while let Some(message) = self.peer.receive_within(FOREVER) {
                match message.method() {
                    None | Some("ACK") => {}
                    Some("REFER") => self.peer.answer(&message, "403 Forbidden", "", ""),
                    Some(_) => self.peer.answer(&message, "200 OK", "", ""),
                }
            }
        });
    }

    /// The status of a REGISTER with these credentials.
    pub fn register(&self, credentials: &Credentials) -> Option<u16> {
        let contact = format!("Contact: <sip:probe@{}>;expires=60\r\n", self.peer.own);
        let challenged = self.ask("REGISTER", &contact);
        let asking = Asking {
            method: "REGISTER",
            uri: &format!("sip:{}", self.daemon),
            nc: 1,
        };
        let proof = Challenge::of(&challenged).answer(&asking, credentials);
        self.ask("REGISTER", &format!("{proof}\r\n{contact}"))
            .status()
    }
}
