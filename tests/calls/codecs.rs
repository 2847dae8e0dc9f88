//! Codecs of media of our own: each format that offer and answer have in common is heard, whatever the first one is.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{PEER, set, setup};
use crate::calls::outbound::{give_trunk, order};
use trunkline_testkit::bot::audio_of;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::talker::Rtp;
use trunkline_testkit::{BotCall, BotServer, Daemon, Deadline, Message, Peer, Runtime};

const PATIENCE: Duration = Duration::from_secs(15);
const PCMU: u8 = 0;
const PCMA: u8 = 8;
/// The same loudness in both laws: what one is made into in the other, both ways.
const MU: u8 = 0x23;
const A: u8 = 0x0e;

/// An SDP with these formats; each map is an `a=rtpmap`.
fn sdp(rtp: &Rtp, formats: &str, maps: &[&str]) -> String {
    let at = rtp.address();
    let maps: String = maps
        .iter()
        .map(|map| format!("a=rtpmap:{map}\r\n"))
        .collect();
    let ip = at.ip();
    format!(
        "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio {} RTP/AVP {formats}\r\n{maps}",
        at.port()
    )
}

/// A party on a call with a bot.
struct Party<'r> {
    rtp: &'r Rtp,
    to: std::net::SocketAddr,
    bot: &'r BotCall,
}

impl Party<'_> {
    /// Says a word under this payload type until the bot has heard it.
    fn is_heard(&self, name: &str, payload_type: u8, octet: u8, expected: u8) {
        let heard = Deadline::after(PATIENCE).poll(|| {
            self.rtp.send_as(self.to, payload_type, &[octet; 160]);
            let event = self.bot.within(Duration::from_millis(20))?;
            let is_media = event["event"] == "media";
            (is_media && audio_of(&event)[100..] == [expected; 60]).then_some(())
        });
        assert!(heard.is_some(), "{name}: the bot hears nothing");
    }

    /// Presses a key under this payload type; the bot gets it.
    fn key_is_heard(&self, name: &str, payload_type: u8, key: u8) {
        self.rtp.press_as(self.to, payload_type, key);
        let digit = Value::from(key.to_string());
        let pressed = |event: &Value| event["event"] == "dtmf" && event["dtmf"]["digit"] == digit;
        self.bot.until(name, pressed);
        // A key that is pressed at once after another may be taken for its repetition.
        std::thread::sleep(Duration::from_millis(60));
    }

    /// Has the bot speak and press a key: both come under these payload types.
    fn hears(&self, name: &str, (audio, octet): (u8, u8), event: u8) {
        self.bot.play(&[MU; 1_600]);
        let heard = Deadline::after(PATIENCE).poll(|| {
            let (payload_type, payload) = self.rtp.received()?;
            (payload_type == audio && payload == [octet; 160]).then_some(())
        });
        assert!(heard.is_some(), "{name}: the bot isn't heard");

        self.bot
            .say(&json!({"event": "dtmf", "dtmf": {"digit": "5"}}));
        let pressed = Deadline::after(PATIENCE).poll(|| {
            let (payload_type, payload) = self.rtp.received()?;
            (payload_type == event && payload.first() == Some(&5)).then_some(())
        });
        assert!(pressed.is_some(), "{name}: no key comes under {event}");
    }
}

/// Our offer has numbers of its own for the keys, the answer another: "in the case of RTP, it is possible that the payload type numbers differ"
/// (RFC 3264 §5.1).
const BOTH: (&str, &[&str]) = (
    "0 8 96",
    &["0 PCMU/8000", "8 PCMA/8000", "96 telephone-event/8000"],
);

fn served() -> (Daemon, BotServer) {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    (daemon, server)
}

#[test]
fn a_carrier_that_answers_with_both_laws_may_send_either() {
    let (daemon, server) = served();
    let peer = Peer::on(PEER, daemon.sip());
    let place = json!({"host": PEER.to_string(), "port": peer.own.port()});
    give_trunk(&daemon, Runtime::new(), &place);
    order(&daemon, &json!({}));
    let invite = peer.request("INVITE");
    assert!(invite.body().contains(" RTP/AVP 0 8 101"), "{invite:?}");

    let rtp = Rtp::new(PEER);
    peer.reply(&invite, "180 Ringing", "");
    peer.reply_with_sdp(&invite, "200 OK", &sdp(&rtp, BOTH.0, BOTH.1));
    peer.request("ACK");
    let bot = server.accepted();
    bot.event("start");
    let party = Party {
        rtp: &rtp,
        to: invite.media(),
        bot: &bot,
    };

    party.is_heard("the second of the answer", PCMA, A, MU);
    party.is_heard("changed in mid-call", PCMU, MU, MU);
    party.is_heard("and back", PCMA, A, MU);
    party.key_is_heard("by the number of the offer", 101, 7);
    party.key_is_heard("by that of the answer", 96, 8);
    party.hears("the first of the answer", (PCMU, MU), 96);

    // A re-INVITE of the carrier, with another law first and another number for keys.
    let dialog = Dialog::called(&invite, peer.tag);
    let maps = ["8 PCMA/8000", "97 PCMU/8000", "98 telephone-event/8000"];
    let answer = dialog.ask(&peer, (1, "INVITE"), &sdp(&rtp, "8 97 98", &maps));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    peer.send(dialog.request(&peer, (1, "ACK"), "", ""));
    party.is_heard("its second format after the re-INVITE", 97, MU, MU);
    party.is_heard("its first", PCMA, A, MU);
    party.key_is_heard("its new number", 98, 9);
    party.hears("its first format", (PCMA, A), 98);

    let said = dialog.status(&peer, (2, "BYE"), "");
    assert_eq!(said, 200);
    let record = daemon.record();
    assert_eq!(record["hangup_by"], "callee", "{record}");
}

#[test]
fn a_caller_may_send_each_format_of_its_offer() {
    let (daemon, server) = served();
    let number = &daemon.setup.first_number;
    for (name, formats, first) in [
        ("both laws", "8 0 101", (PCMA, A)),
        ("the other order", "0 8 101", (PCMU, MU)),
    ] {
        let rtp = Rtp::new(PEER);
        let maps = ["101 telephone-event/8000"];
        let offer = sdp(&rtp, formats, &maps);
        let (talker, answer) =
            trunkline_testkit::talker::Talker::call(PEER, daemon.sip(), number, &offer);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        let bot = server.accepted();
        bot.event("start");
        let party = Party {
            rtp: &rtp,
            to: answer.media(),
            bot: &bot,
        };
        party.is_heard(name, PCMA, A, MU);
        party.is_heard(name, PCMU, MU, MU);
        party.is_heard(name, PCMA, A, MU);
        party.hears(name, first, 101);
        bot.close();
        assert!(talker.asked("BYE").is_some());
    }
}

/// An INVITE without an offer: ours is in the 200, and the answer in the ACK.
#[test]
fn an_answer_in_the_ack_is_read_beside_our_offer() {
    let (daemon, server) = served();
    let peer = Peer::on(PEER, daemon.sip());
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let mut dialog = Dialog::calling(&uri, "+441632960001", "late-offer", &peer);
    let answer: Message = dialog.ask(&peer, (1, "INVITE"), "");
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    assert!(answer.body().contains(" RTP/AVP 0 8 101"), "{answer:?}");
    dialog.accepted(&answer);

    let rtp = Rtp::new(PEER);
    let body = sdp(&rtp, BOTH.0, BOTH.1);
    peer.send(dialog.request(&peer, (1, "ACK"), "", &body));
    let bot = server.accepted();
    bot.event("start");
    let party = Party {
        rtp: &rtp,
        to: answer.media(),
        bot: &bot,
    };
    party.is_heard("the second of the answer", PCMA, A, MU);
    party.key_is_heard("by the number of the offer", 101, 7);
    party.key_is_heard("by that of the answer", 96, 8);
    party.hears("the first of the answer", (PCMU, MU), 96);

    // A hold and its end are offers of ours inside the call: their answers count too.
    let call = daemon.calls().remove(0);
    let id = call["id"].as_str().expect("an id");
    let maps = ["8 PCMA/8000", "97 telephone-event/8000"];
    let mut answered = Vec::new();
    for (what, direction) in [("hold", "a=inactive\r\n"), ("resume", "a=sendrecv\r\n")] {
        let path = format!("/phone/calls/{id}/{what}");
        let turned = std::thread::scope(|scope| {
            // It answers once the peer has agreed.
            let asked = scope.spawn(|| daemon.change("POST", &path, &json!({})));
            let is_next = |message: &Message| {
                let sequence = message.header("CSeq").map(str::to_owned);
                message.is_request("INVITE") && !answered.contains(&sequence)
            };
            let invite = peer.next(what, is_next);
            let body = format!("{}{direction}", sdp(&rtp, "8 97", &maps));
            peer.reply_with_sdp(&invite, "200 OK", &body);
            answered.push(invite.header("CSeq").map(str::to_owned));
            asked.join().expect("it is asked")
        });
        assert_eq!(turned.0, 200, "{what}: {}", turned.1);
    }
    party.is_heard("the answer's only law", PCMA, A, MU);
    party.is_heard("one of our offer", PCMU, MU, MU);
    party.key_is_heard("by the number of the offer", 101, 4);
    party.key_is_heard("by that of the new answer", 97, 6);
    party.hears("the first of the new answer", (PCMA, A), 97);
    bot.close();
    assert!(peer.request("BYE").is_request("BYE"));
}

/// Such a call has no media (RFC 3261 §13.2.2.4).
#[test]
fn a_call_whose_ack_answers_with_no_audio_is_ended() {
    let (daemon, _server) = served();
    let rtp = Rtp::new(PEER);
    let offer = sdp(&rtp, BOTH.0, BOTH.1);
    let refused = offer.replace(&format!("m=audio {} ", rtp.address().port()), "m=audio 0 ");
    assert_ne!(refused, offer);
    let cases = [("nothing", ""), ("port-0", &*refused), ("no-sdp", "hello")];
    for (place, (case, body)) in cases.into_iter().enumerate() {
        let peer = Peer::on(PEER, daemon.sip());
        let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
        let mut dialog = Dialog::calling(&uri, "+441632960001", case, &peer);
        let answer: Message = dialog.ask(&peer, (1, "INVITE"), "");
        assert_eq!(answer.status(), Some(200), "{case}: {answer:?}");
        dialog.accepted(&answer);
        peer.send(dialog.request(&peer, (1, "ACK"), "", body));

        let bye = peer.request("BYE");
        peer.reply(&bye, "200 OK", "");
        let record = daemon.records(place + 1).remove(0);
        assert_eq!(record["reason"], "no_common_media", "{case}: {record}");
    }
}

/// The echo agent returns what it hears in the format that the caller's SDP names first.
#[test]
fn an_echo_comes_in_the_first_format() {
    let daemon = setup().serve();
    let rtp = Rtp::new(PEER);
    let maps = ["101 telephone-event/8000"];
    let offer = sdp(&rtp, "0 8 101", &maps);
    let number = &daemon.setup.first_number;
    let (_talker, answer) =
        trunkline_testkit::talker::Talker::call(PEER, daemon.sip(), number, &offer);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let to = answer.media();
    let echoed = Deadline::after(PATIENCE).poll(|| {
        rtp.send_as(to, PCMA, &[A; 160]);
        rtp.received()
    });
    assert_eq!(echoed, Some((PCMU, vec![MU; 160])));
}
