//! Calls made one after the other over UDP with digest: just enough SIP to set up a call's media.

use std::io::{self, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use crate::digest::{Account, Challenge, md5_hex};
use crate::outbox::Outbox;

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
        (user, password): (&str, &str),
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
            account: Account::new(user, password),
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
    pub fn call(&mut self, caller: &str) -> io::Result<SocketAddrV4> {
        self.send("INVITE", caller, 1, "", "", &self.sdp)?;
        let refused = self.answer(caller, 1)?;
        self.send("ACK", caller, 1, &to_of(&refused), "", "")?;
        let challenge = line(&refused, "WWW-Authenticate")
            .and_then(|value| Challenge::read(value.as_bytes()))
            .ok_or_else(|| io::Error::other(format!("no challenge: {refused}")))?;

        self.account.learn(&challenge);
        let mut proof = Outbox::default();
        let ha2 = md5_hex(&[b"INVITE", self.uri.as_bytes()]);
        self.account
            .put(&mut proof, self.uri.as_bytes(), &ha2, challenge.nonce, 1, 7);
        proof.end(self.server);
        let proof = proof.messages().next().map(|(octets, _)| octets.to_vec());
        let proof = String::from_utf8(proof.unwrap_or_default()).map_err(io::Error::other)?;

        self.send("INVITE", caller, 2, "", &proof, &self.sdp)?;
        let answer = self.answer(caller, 2)?;
        if !answer.starts_with("SIP/2.0 200") {
            return Err(io::Error::other(answer));
        }
        self.send("ACK", caller, 2, &to_of(&answer), "", "")?;
        media_of(&answer).ok_or_else(|| io::Error::other(format!("no media: {answer}")))
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
    fn answer(&self, caller: &str, cseq: u8) -> io::Result<String> {
        let mut octets = vec![0; 8 * 1024];
        // Nothing is sent again: a datagram that is lost on loopback ends the run by the socket's time-out.
        loop {
            let count = self.socket.recv(&mut octets)?;
            let text = String::from_utf8_lossy(&octets[..count]).into_owned();
            let is_final = text.starts_with("SIP/2.0 ") && !text.starts_with("SIP/2.0 1");
            let is_meant = line(&text, "Call-ID") == Some(&format!("bots-{caller}"))
                && line(&text, "CSeq") == Some(&format!("{cseq} INVITE"));
            if is_final && is_meant {
                return Ok(text);
            }
        }
    }
}

fn line<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    let lines = message.split("\r\n");
    lines
        .filter_map(|line| line.split_once(':'))
        .find_map(|(of, value)| of.eq_ignore_ascii_case(name).then_some(value.trim()))
}

fn to_of(message: &str) -> String {
    line(message, "To").unwrap_or_default().to_owned()
}

fn media_of(answer: &str) -> Option<SocketAddrV4> {
    let after = |prefix: &str| {
        let found = answer
            .split("\r\n")
            .find_map(|line| line.strip_prefix(prefix));
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
        let answer = "SIP/2.0 200 OK\r\nTo: <sip:a>;tag=b\r\n\r\nv=0\r\nc=IN IP4 127.0.0.1\r\nm=audio 20002 RTP/AVP 0\r\n";
        assert_eq!(media_of(answer), "127.0.0.1:20002".parse().ok());
        assert_eq!(to_of(answer), "<sip:a>;tag=b");
        assert_eq!(media_of("SIP/2.0 486 Busy Here\r\n\r\n"), None);
    }
}
