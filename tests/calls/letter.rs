//! Where the letter of RFC 3261 decides: a caller and a runtime of bare sockets, who look at single lines.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use trunkline_sip::wire::{Framing, lex};

use crate::harness::carrier::reply;
use crate::harness::{Daemon, Deadline, House, Message};

const PATIENCE: Duration = Duration::from_secs(20);
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";

/// One end of a call.
struct End {
    socket: UdpSocket,
    own: SocketAddr,
    daemon: SocketAddr,
}

impl End {
    fn new(daemon: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let limit = Duration::from_millis(200);
        socket.set_read_timeout(Some(limit)).expect("a limit");
        let own = socket.local_addr().expect("an address");
        Self {
            socket,
            own,
            daemon,
        }
    }

    fn send(&self, text: &str) {
        self.socket
            .send_to(text.as_bytes(), self.daemon)
            .expect("it is sent");
    }

    /// The next message like this, whatever else comes before.
    fn next(&self, what: &str, is_meant: impl Fn(&Message) -> bool) -> (Message, Vec<u8>) {
        let mut octets = vec![0; 8192];
        let meant = || {
            let count = self.socket.recv(&mut octets).ok()?;
            let message = Message::of(&String::from_utf8_lossy(&octets[..count]));
            is_meant(&message).then(|| (message, octets[..count].to_vec()))
        };
        let found = Deadline::after(PATIENCE).poll(meant);
        found.unwrap_or_else(|| panic!("no {what} came"))
    }

    fn request(&self, method: &str) -> (Message, Vec<u8>) {
        self.next(method, |message| message.is_request(method))
    }

    fn answer(&self, cseq: &str) -> Message {
        let is_meant = |message: &Message| {
            let is_final = message.status().is_some_and(|status| status >= 200);
            is_final && message.header("CSeq") == Some(cseq)
        };
        self.next(cseq, is_meant).0
    }

    /// Answers a request.
    fn reply(&self, request: &[u8], status: &str) {
        let contact = format!("Contact: <sip:{}>\r\n", self.own);
        let request = lex(request, Framing::Datagram).expect("a request");
        self.send(&reply(&request, status, &contact));
    }
}

/// A caller by its address, and the runtime of the only agent.
struct Call {
    daemon: Daemon,
    caller: End,
    runtime: End,
    uri: String,
    to: String,
}

impl Call {
    fn new() -> Self {
        let house = House::new();
        house.allow("127.0.0.1/32");
        let (caller, runtime) = (End::new(house.sip), End::new(house.sip));
        house.runtime(&house.first_agent, &format!("sip:agent@{}", runtime.own));
        let daemon = house.serve();
        let uri = format!("sip:{}@{}", daemon.house.first_number, daemon.sip());
        Self {
            to: format!("<{uri}>"),
            uri,
            daemon,
            caller,
            runtime,
        }
    }

    /// A request of the caller, with this CSeq number in its branch.
    fn text(&self, cseq: u32, method: &str, lines: &str, body: &str) -> String {
        let (own, uri, to) = (self.caller.own, &self.uri, &self.to);
        let (ack, length) = (if method == "ACK" { "ack" } else { "" }, body.len());
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{cseq}{ack}\r\nMax-Forwards: 70\r\n\
             From: <sip:+441632960001@{own}>;tag=us\r\nTo: {to}\r\nCall-ID: letter@{own}\r\nCSeq: {cseq} {method}\r\n\
             {lines}Content-Length: {length}\r\n\r\n{body}"
        )
    }

    fn offer(&self, cseq: u32, contact: SocketAddr) {
        let lines = format!(
            "Contact: <sip:{contact}>\r\nTimestamp: 54.25\r\nContent-Type: application/sdp\r\n"
        );
        self.caller.send(&self.text(cseq, "INVITE", &lines, SDP));
    }

    fn send(&self, cseq: u32, method: &str) {
        self.caller.send(&self.text(cseq, method, "", ""));
    }
}

#[test]
fn an_invite_is_told_its_timestamp_and_tag_and_a_second_one_that_it_is_early() {
    let mut call = Call::new();
    call.offer(1, call.caller.own);
    let is_trying = |message: &Message| message.status() == Some(100);
    let (trying, _) = call.caller.next("100", is_trying);
    assert_eq!(trying.header("Timestamp"), Some("54.25"));
    let (_, invite) = call.runtime.request("INVITE");
    call.runtime.reply(&invite, "183 Session Progress");
    let is_progress = |message: &Message| message.status() == Some(183);
    let (progress, _) = call.caller.next("183", is_progress);
    assert_eq!(progress.header("Timestamp"), None);

    let first = std::mem::replace(
        &mut call.to,
        progress.header("To").expect("it is there").to_owned(),
    );
    call.offer(2, call.caller.own);
    let early = call.caller.answer("2 INVITE");
    assert_eq!(early.status(), Some(500), "RFC 3261 §14.2");
    let after = early.header("Retry-After").expect("§14.2 wants it");
    let seconds: u32 = after.parse().expect("seconds");
    assert!(seconds <= 10, "{after}");
    let ack = call
        .text(2, "ACK", "", "")
        .replace("z9hG4bK-2ack", "z9hG4bK-2");
    call.caller.send(&ack);

    call.to = first;
    call.send(1, "CANCEL");
    let canceled = call.caller.answer("1 CANCEL");
    let refused = call.caller.answer("1 INVITE");
    assert_eq!(
        (canceled.status(), refused.status()),
        (Some(200), Some(487))
    );
    assert_eq!(canceled.header("To"), refused.header("To"), "§9.2");
    assert_eq!(canceled.header("To"), progress.header("To"));
}

#[test]
fn cancel_and_its_invite_are_answered_under_one_tag_before_anything_rings() {
    let call = Call::new();
    call.offer(1, call.caller.own);
    call.runtime.request("INVITE");
    call.send(1, "CANCEL");
    let canceled = call.caller.answer("1 CANCEL");
    let refused = call.caller.answer("1 INVITE");
    assert_eq!(
        (canceled.status(), refused.status()),
        (Some(200), Some(487))
    );
    assert_eq!(canceled.header("To"), refused.header("To"));
    assert_eq!(call.daemon.record()["status"], "canceled");
}

#[test]
fn a_change_that_is_refused_moves_nobody() {
    let mut call = Call::new();
    let elsewhere = End::new(call.daemon.sip());
    call.offer(1, call.caller.own);
    let (_, invite) = call.runtime.request("INVITE");
    call.runtime.reply(&invite, "200 OK");
    let accepted = call.caller.answer("1 INVITE");
    call.to = accepted.header("To").expect("it is there").to_owned();
    call.send(1, "ACK");
    call.runtime.request("ACK");

    call.send(2, "OPTIONS");
    let able = call.caller.answer("2 OPTIONS");
    for name in ["Allow", "Accept", "Supported"] {
        assert!(able.header(name).is_some(), "{name}");
    }

    call.offer(3, elsewhere.own);
    let (_, change) = call.runtime.request("INVITE");
    call.runtime.reply(&change, "488 Not Acceptable Here");
    assert_eq!(call.caller.answer("3 INVITE").status(), Some(488));
    let ack = call
        .text(3, "ACK", "", "")
        .replace("z9hG4bK-3ack", "z9hG4bK-3");
    call.caller.send(&ack);

    call.offer(4, elsewhere.own);
    let (_, change) = call.runtime.next("INVITE", |message| {
        message.is_request("INVITE") && message.header("CSeq") == Some("3 INVITE")
    });
    let to_old_place = inform(&call, &invite, 7);
    call.caller.reply(&to_old_place, "200 OK");
    call.runtime.answer("7 INFO");
    call.runtime.reply(&change, "200 OK");
    assert_eq!(call.caller.answer("4 INVITE").status(), Some(200));
    call.send(4, "ACK");

    send_info(&call, &invite, 8);
    let (moved, info) = elsewhere.request("INFO");
    assert_eq!(
        moved.start_line(),
        format!("INFO sip:{} SIP/2.0", elsewhere.own)
    );
    elsewhere.reply(&info, "200 OK");
    call.runtime.answer("8 INFO");
    call.send(5, "BYE");
    let (_, bye) = call.runtime.request("BYE");
    call.runtime.reply(&bye, "200 OK");
    assert_eq!(call.caller.answer("5 BYE").status(), Some(200));
}

/// An INFO of the runtime, as it comes to the caller.
fn inform(call: &Call, invite: &[u8], cseq: u32) -> Vec<u8> {
    send_info(call, invite, cseq);
    call.caller.request("INFO").1
}

fn send_info(call: &Call, invite: &[u8], cseq: u32) {
    let invite = Message::of(&String::from_utf8_lossy(invite));
    let of = |name: &str| invite.header(name).expect("it is there").to_owned();
    let (own, to, from, id) = (call.runtime.own, of("To"), of("From"), of("Call-ID"));
    call.runtime.send(&format!(
        "INFO sip:{} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-rt{cseq}\r\nMax-Forwards: 70\r\n\
         From: {to};tag=carrier\r\nTo: {from}\r\nCall-ID: {id}\r\nCSeq: {cseq} INFO\r\nContent-Length: 0\r\n\r\n",
        call.daemon.sip()
    ));
}
