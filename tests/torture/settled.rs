//! Two joined ends that change their SDP in each answer: the SDP that each finally holds of the other.

use std::time::Duration;

use serde_json::json;

use crate::torture::crossed::{Legs, NAMED};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::peer::Transport;
use trunkline_testkit::{Deadline, Message, Peer};

/// Time without a message after which nothing more is negotiated.
const QUIET: Duration = Duration::from_millis(3_000);
const TURN: Duration = Duration::from_millis(20);

/// One of the two ends.
struct Side<'e> {
    end: &'e Peer,
    /// Port of its first answer; each further answer adds two, and has another key.
    port: u16,
    /// Status with which it refuses a re-INVITE that asks for an offer, or that makes one.
    refuses: Option<&'static str>,
    /// Status with which it refuses the other's changed SDP.
    refuses_change: Option<&'static str>,
    /// Port and key that it sent last, and those that it holds of the other.
    said: (String, String),
    holds: (String, String),
    /// Requests that it got, one word each.
    asked: Vec<&'static str>,
}

fn sdp(port: u16) -> String {
    format!(
        "v=0\r\no=- 1 {port} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 8\r\n\
         a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:key{port}\r\n"
    )
}

/// Returns port and key of an SDP.
fn media(sdp: &str) -> (String, String) {
    let part = |before: &str, end: char| {
        let rest = sdp.split_once(before).map_or("", |(_, rest)| rest);
        rest.split(end).next().unwrap_or_default().trim().to_owned()
    };
    (part("m=audio ", ' '), part("inline:", '\n'))
}

impl<'e> Side<'e> {
    fn new(end: &'e Peer, port: u16) -> Self {
        Self {
            end,
            port,
            refuses: None,
            refuses_change: None,
            said: (String::new(), String::new()),
            holds: (String::new(), String::new()),
            asked: Vec::new(),
        }
    }

    fn contact(&self) -> String {
        format!(
            "Contact: <{}>\r\nContent-Type: application/sdp\r\n",
            self.end.uri("peer")
        )
    }

    /// Answers with other media than before.
    fn accepts(&mut self, invite: &Message) {
        let sdp = sdp(self.port);
        self.port += 2;
        self.said = media(&sdp);
        self.end.answer(invite, "200 OK", &self.contact(), &sdp);
    }

    fn takes(&mut self, came: &Message) {
        let is_last = came
            .headers("Reason")
            .iter()
            .any(|reason| reason.contains("each time"));
        match (came.method(), came.body().is_empty()) {
            (Some("INVITE"), is_bare) if is_last => {
                self.asked.push(if is_bare {
                    "asked for an offer"
                } else {
                    "last offer"
                });
                match self.refuses {
                    Some(status) => self.end.answer(came, status, "", ""),
                    None => {
                        if !is_bare {
                            self.holds = media(came.body());
                        }
                        self.accepts(came);
                    }
                }
            }
            (Some("INVITE"), _) if self.refuses_change.is_some() && !self.asked.is_empty() => {
                self.asked.push("change");
                let status = self.refuses_change.expect("it was looked at");
                self.end.answer(came, status, "", "");
            }
            (Some("INVITE"), _) => {
                self.asked.push("offer");
                self.holds = media(came.body());
                self.accepts(came);
            }
            (Some("ACK"), false) => self.holds = media(came.body()),
            (Some("ACK"), true) | (None, _) => {}
            (Some("BYE"), _) => {
                self.asked.push("BYE");
                self.end.answer(came, "200 OK", "", "");
            }
            (Some(other), _) => panic!("{other}"),
        }
    }
}

/// Accepts the next request of this method.
fn accept(end: &Peer, method: &str) {
    let request = end.request(method);
    end.answer(&request, "200 OK", "", "");
}

/// Serves both ends until nothing comes for a while.
fn settle(sides: &mut [Side<'_>]) {
    let mut quiet = Duration::ZERO;

    while quiet < QUIET {
        for side in &mut *sides {
            match side.end.receive_within(TURN) {
                Some(came) => {
                    side.takes(&came);
                    quiet = Duration::ZERO;
                }
                None => quiet += TURN,
            }
            assert!(
                side.asked.len() < 20,
                "it goes on for ever: {:?}",
                side.asked
            );
        }
    }
}

/// Begins the transfer of a new call to Desk. No INVITE has been answered for it yet, and the agent's leg is still up.
fn hand_over(legs: &Legs, desk: &Peer) -> Dialog {
    let mut call = legs.invite(NAMED, "");
    let invite = legs.runtime.request("INVITE");
    legs.connect(&mut call, &invite, "");
    let record = legs.record(&call, |call| call["status"] == "in_progress");
    let id = record["id"].as_str().expect("an id");
    let path = format!("/phone/calls/{id}/transfer");
    let (status, begun) = legs
        .daemon
        .change("POST", &path, &json!({"destination": "Desk"}));
    assert_eq!(status, 202, "{begun}");
    let _ = desk;
    call
}

fn legs(desk: &Peer) -> Legs {
    let legs = Legs::new(Transport::Udp);
    legs.daemon.destination("Desk", "sip", &desk.uri("desk"));
    legs.daemon.setup.settle();
    legs
}

/// Returns whether the end of the call's trace has this note.
fn noted(legs: &Legs, call: &Dialog, what: &str) -> bool {
    let record = legs.record(call, |_| true);
    let id = record["id"].as_str().expect("an id");
    let path = format!("/phone/calls/{id}/trace");
    let seen = || {
        let trace = legs.daemon.shown(&path);
        let items = trace["items"].as_array().expect("a list").clone();
        let mut texts = items.iter().filter(|item| item["type"] == "decision");
        texts
            .any(|item| {
                item["text"]
                    .as_str()
                    .is_some_and(|text| text.contains(what))
            })
            .then_some(())
    };

    Deadline::after(Duration::from_secs(5)).poll(seen).is_some()
}

#[test]
fn two_ends_that_change_with_each_answer_hold_each_others_last() {
    let desk = Peer::listening(Transport::Udp).attentive();
    let legs = legs(&desk);
    let call = hand_over(&legs, &desk);
    let mut sides = [Side::new(&legs.caller, 50_000), Side::new(&desk, 52_000)];
    let invite = desk.request("INVITE");
    sides[1].takes(&invite);

    // The caller is first: until it has the new media, the agent stays.
    let reinvite = legs.caller.request("INVITE");
    assert!(
        legs.runtime
            .receive_within(Duration::from_millis(300))
            .is_none(),
        "the agent went first"
    );

    sides[0].takes(&reinvite);
    accept(&legs.runtime, "BYE");
    settle(&mut sides);
    let [caller, desk_side] = &sides;
    assert_eq!(caller.asked, ["offer", "asked for an offer"]);
    assert_eq!(desk_side.asked, ["offer", "offer", "last offer"]);
    assert_eq!(caller.holds, desk_side.said, "ports and keys");
    assert_eq!(desk_side.holds, caller.said, "ports and keys");
    assert_eq!(caller.said.1, "key50002");
    assert!(!noted(&legs, &call, "was to end that"));

    legs.say(&call, "BYE", 90, "", "");
    accept(&desk, "BYE");
    legs.caller.outcome("BYE");
    let record = legs.record(&call, |call| call["ended_at"].is_string());
    assert_eq!(record["status"], "transferred", "{record}");
}

#[test]
fn an_end_that_refuses_the_last_round_keeps_its_call() {
    for (refuses, note) in [
        (
            0,
            "the caller refused the re-INVITE that was to end that (488)",
        ),
        (
            1,
            "the destination refused the re-INVITE that was to end that (488)",
        ),
    ] {
        let desk = Peer::listening(Transport::Udp).attentive();
        let legs = legs(&desk);
        let call = hand_over(&legs, &desk);
        let mut sides = [Side::new(&legs.caller, 50_000), Side::new(&desk, 52_000)];
        sides[refuses].refuses = Some("488 Not Acceptable Here");
        settle(&mut sides);
        accept(&legs.runtime, "BYE");
        assert!(noted(&legs, &call, note), "{note}");
        assert!(!sides[0].asked.contains(&"BYE") && !sides[1].asked.contains(&"BYE"));
        // The end whose offer was refused keeps the last answer.
        assert_eq!(
            sides[0].holds.0,
            if refuses == 0 { "52000" } else { "52002" }
        );
        legs.say(&call, "BYE", 90, "", "");
        accept(&desk, "BYE");
        assert_eq!(legs.caller.outcome("BYE").status(), Some(200));
        let record = legs.record(&call, |call| call["ended_at"].is_string());
        assert_eq!(record["status"], "transferred", "{record}");
        assert_eq!(record["transfer"]["status"], "completed", "{record}");
    }
}

#[test]
fn an_end_that_refuses_what_the_other_has_changed_keeps_its_call() {
    let desk = Peer::listening(Transport::Udp).attentive();
    let legs = legs(&desk);
    let call = hand_over(&legs, &desk);
    let mut sides = [Side::new(&legs.caller, 50_000), Side::new(&desk, 52_000)];
    sides[1].refuses_change = Some("488 Not Acceptable Here");
    settle(&mut sides);
    accept(&legs.runtime, "BYE");
    assert_eq!(sides[0].asked, ["offer"]);
    assert_eq!(sides[1].asked, ["offer", "change"]);

    legs.say(&call, "BYE", 90, "", "");
    accept(&desk, "BYE");
    assert_eq!(legs.caller.outcome("BYE").status(), Some(200));
    let record = legs.record(&call, |call| call["ended_at"].is_string());
    assert_eq!(record["status"], "transferred", "{record}");
}

/// The usual end, which repeats its SDP in each answer.
#[test]
fn an_end_that_repeats_its_sdp_is_asked_once() {
    let desk = Peer::listening(Transport::Udp).attentive();
    let legs = legs(&desk);
    let call = hand_over(&legs, &desk);
    let contact = |end: &Peer| {
        format!(
            "Contact: <{}>\r\nContent-Type: application/sdp\r\n",
            end.uri("peer")
        )
    };
    let invite = desk.request("INVITE");
    let own = sdp(52_000);
    desk.answer(&invite, "200 OK", &contact(&desk), &own);
    let reinvite = legs.caller.request("INVITE");
    assert_eq!(media(reinvite.body()), media(&own));

    // Only the session's name and version differ from the destination's offer.
    let same = crate::torture::caller::OFFER
        .replace("o=- 1 1", "o=- 1 9")
        .replace("s=-", "s=again");
    legs.caller
        .answer(&reinvite, "200 OK", &contact(&legs.caller), &same);
    accept(&legs.runtime, "BYE");
    let more = |end: &Peer| {
        let came = end.receive_within(QUIET);
        came.filter(|came| came.is_request("INVITE"))
    };

    assert!(
        more(&desk).is_none(),
        "nothing has changed for the destination"
    );
    assert!(more(&legs.caller).is_none(), "nor for the caller");

    legs.say(&call, "BYE", 90, "", "");
    accept(&desk, "BYE");
    legs.caller.outcome("BYE");
}
