//! Calls made one after the other over UDP with digest: just enough SIP to set up a call's media.

use std::io::{self, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use trunkline_sip::wire::{Method, OwnedMessage};

use crate::digest::{Account, challenge};
use crate::message::read;

/// Longest wait for a datagram; after it the call fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A phone that dials.
#[derive(Debug)]
pub struct Dialler {
    socket: UdpSocket,
    own: SocketAddrV4,
    server: SocketAddrV4,
    uri: String,
    account: Account,
    sdp: String,
}

impl Dialler {
    /// A phone whose media address is `media`.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(
        server: SocketAddrV4,
        number: &str,
        user: &str,
        password: &str,
        media: SocketAddrV4,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind((*media.ip(), 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let own = match socket.local_addr()? {
            std::net::SocketAddr::V4(own) => own,
            std::net::SocketAddr::V6(_) => return Err(ErrorKind::Unsupported.into()),
        };

        let (ip, port) = (media.ip(), media.port());
        Ok(Self {
            socket,
            own,
            server,
            uri: format!("sip:{number}@{server}"),
            account: Account {
                user: user.to_owned(),
                password: password.to_owned(),
            },
            sdp: format!(
                "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0 101\r\n\
                 a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n"
            ),
        })
    }

    /// Calls from this number; returns the address of the daemon's media.
    ///
    /// # Errors
    /// The call isn't answered.
    pub fn call(&self, caller: &str) -> io::Result<SocketAddrV4> {
        self.send("INVITE", caller, 1, "", "", &self.sdp)?;
        let refused = self.answer(caller, 1)?;
        let refused = refused.message();
        self.send("ACK", caller, 1, &text(refused.to()), "", "")?;
        let uri = self.uri.as_bytes();
        let proof = challenge(refused)
            .and_then(|challenge| self.account.authorization(&challenge, "INVITE", uri, "7"))
            .ok_or_else(|| io::Error::other(format!("no challenge: {}", text(refused.raw()))))?;

        let proof = format!("Authorization: {proof}\r\n");
        self.send("INVITE", caller, 2, "", &proof, &self.sdp)?;
        let answer = self.answer(caller, 2)?;
        let answer = answer.message();
        if answer.status() != 200 {
            return Err(io::Error::other(text(answer.raw())));
        }
        self.send("ACK", caller, 2, &text(answer.to()), "", "")?;
        media_of(&text(answer.body()))
            .ok_or_else(|| io::Error::other(format!("no media: {}", text(answer.raw()))))
    }

    fn send(
        &self,
        method: &str,
        caller: &str,
        cseq: u8,
        to: &str,
        lines: &str,
        body: &str,
    ) -> io::Result<()> {
        let Self { own, uri, .. } = self;
        let to = match to {
            "" => format!("<{uri}>"),
            to => to.to_owned(),
        };
        let kind = match body {
            "" => "",
            _ => "Content-Type: application/sdp\r\n",
        };

        // The ACK of a 2xx is its own transaction (RFC 3261 §17.1.1.3). Giving every ACK its own branch does no harm.
        let transaction = match (method, cseq) {
            ("ACK", 2) => "acknowledged",
            _ => "invite",
        };

        let message = format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{caller}-{cseq}-{transaction};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{caller}@{own}>;tag=t{caller}\r\nTo: {to}\r\nCall-ID: bots-{caller}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:bench@{own}>\r\n{lines}{kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.socket.send_to(message.as_bytes(), self.server)?;
        Ok(())
    }

    /// Waits for the final response to the INVITE with this caller and CSeq.
    fn answer(&self, caller: &str, cseq: u32) -> io::Result<OwnedMessage> {
        let mut octets = vec![0; 8 * 1024];
        let call_id = format!("bots-{caller}");
        // Nothing is sent again: a datagram that is lost on loopback ends the run by the socket's time-out.
        loop {
            let count = self.socket.recv(&mut octets)?;
            let Ok(message) = read(&octets[..count]) else {
                continue;
            };
            let is_meant = message.call_id() == call_id.as_bytes()
                && message.cseq().number == cseq
                && message.cseq().method == Method::Invite;
            // A request has the status 0.
            if message.status() >= 200 && is_meant {
                return Ok(OwnedMessage::from(&message));
            }
        }
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Returns the address of the audio in an SDP.
fn media_of(sdp: &str) -> Option<SocketAddrV4> {
    let after = |prefix: &str| {
        let found = sdp.split("\r\n").find_map(|line| line.strip_prefix(prefix));
        found.and_then(|rest| rest.split(' ').next())
    };
    let ip = after("c=IN IP4 ")?.parse().ok()?;
    Some(SocketAddrV4::new(ip, after("m=audio ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_media() {
        let sdp = "v=0\r\nc=IN IP4 127.0.0.1\r\nm=audio 20002 RTP/AVP 0\r\n";
        assert_eq!(media_of(sdp), "127.0.0.1:20002".parse().ok());
        assert_eq!(media_of(""), None);
    }
}
