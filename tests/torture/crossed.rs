//! Headers and bodies that cross between the legs, seen by raw peers on both, over UDP and TCP.

use std::cell::Cell;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::torture::caller::OFFER;
use crate::torture::handed_over::recorded;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::status_of;
use trunkline_testkit::peer::Transport;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Peer};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];
pub(crate) const NAMED: &str = "\"Ada\" <sip:+441632960001@pbx.invalid>";
const NOBODY: &str = "\"Anonymous\" <sip:anonymous@anonymous.invalid>";

/// Headers that name the caller, with a sample, and whether a transfer's destination gets them.
const NAMES_CALLER: [(&str, &str, bool); 8] = [
    (
        "P-Asserted-Identity",
        "<sip:+441632960001@pbx.invalid>",
        true,
    ),
    (
        "P-Preferred-Identity",
        "<sip:+441632960001@pbx.invalid>",
        true,
    ),
    (
        "Remote-Party-ID",
        "<sip:+441632960001@pbx.invalid>;party=calling",
        true,
    ),
    // It signs a From and a To that a destination doesn't get.
    (
        "Identity",
        "eyJhbGciOiJFUzI1NiJ9.e30.c2ln;info=<https://x.invalid>",
        false,
    ),
    (
        "Diversion",
        "<sip:+441632960002@pbx.invalid>;reason=no-answer",
        true,
    ),
    (
        "History-Info",
        "<sip:+441632960002@pbx.invalid>;index=1",
        true,
    ),
    ("Referred-By", "<sip:+441632960003@pbx.invalid>", true),
    ("Geolocation", "<https://where.invalid/a>", true),
];
const SESSION: &str = "47755a9de7794ba387653f2099600ef2;remote=00000000000000000000000000000000";

/// A daemon whose first agent is a peer of the test, and a caller that is authenticated by its address.
pub(crate) struct Legs {
    pub(crate) daemon: Daemon,
    pub(crate) caller: Peer,
    pub(crate) runtime: Peer,
    calls: Cell<u32>,
}

impl Legs {
    pub(crate) fn new(transport: Transport) -> Self {
        let setup = DaemonSetup::new().set("TRUNKLINE__SIP__SHARDS", "1");
        setup.dedicate(&CALLER.to_string());
        let runtime = Peer::listening(transport).attentive();
        let (agent, uri) = (setup.first_agent.clone(), runtime.uri("agent"));
        let daemon = setup.serve();
        let wanted = json!({"runtime": {
            "type": "sip", "uri": uri, "headers": {"X-Caller": "{caller}"}, "session_token": true,
        }});
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &wanted);
        assert_eq!(status, 200, "{body}");

        let fields = json!({"transfer_way": "bridge"});
        let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &fields);
        assert_eq!(status, 200, "{body}");

        Self {
            caller: match transport {
                Transport::Tcp => Peer::tcp(CALLER, daemon.sip()).attentive(),
                Transport::Udp | Transport::Tls => Peer::on(CALLER, daemon.sip()).attentive(),
            },
            runtime,
            daemon,
            calls: Cell::new(0),
        }
    }

    /// Sends an INVITE from this caller with these lines.
    pub(crate) fn invite(&self, from: &str, lines: &str) -> Dialog {
        let call = self.prepare(from);
        self.say(&call, "INVITE", 1, lines, OFFER);
        call
    }

    /// Prepares a call of this caller.
    fn prepare(&self, from: &str) -> Dialog {
        self.calls.set(self.calls.get() + 1);
        let daemon = self.daemon.sip();
        let uri = format!("sip:{}@{daemon}", self.daemon.setup.first_number);
        let id = format!("crossed-{}", self.calls.get());
        Dialog {
            from: format!("{from};tag=f-{id}"),
            to: format!("<{uri}>"),
            id: format!("{id}@pbx.invalid"),
            uri,
            lines: String::new(),
        }
    }

    /// Sends a request of the caller.
    pub(crate) fn say(&self, call: &Dialog, method: &str, cseq: u32, lines: &str, body: &str) {
        let request = call.request(&self.caller, (cseq, method), lines, body);
        self.caller.send(request);
    }

    /// The caller acknowledges the final answer: the call is up, or refused.
    fn acknowledge(&self, call: &mut Dialog, answer: &Message) {
        if answer.status() >= Some(300) {
            assert!(answer.status() < Some(700), "{answer}");
            let (id, _) = call.id.split_once('@').expect("ours");
            let invite = format!("branch=z9hG4bK-{id}-1-INVITE-");
            assert!(answer.value("Via").contains(&invite), "{answer}");
        } else {
            call.accepted(answer);
        }
        self.caller.send(call.ack(&self.caller, 1, answer));
    }

    fn contact_of(end: &Peer) -> String {
        format!("Contact: <{}>\r\n", end.uri("peer"))
    }

    /// The runtime answers this INVITE, and the caller's leg is up.
    pub(crate) fn connect(&self, call: &mut Dialog, invite: &Message, lines: &str) -> Message {
        let lines = format!("{}{lines}", Self::contact_of(&self.runtime));
        self.runtime
            .answer(invite, "200 OK", &lines, &media(41_000));
        let answer = self.caller.response(200);
        self.acknowledge(call, &answer);
        self.runtime.request("ACK");
        answer
    }

    /// Returns the record of a call once this holds for it.
    pub(crate) fn record(&self, call: &Dialog, holds: impl Fn(&Value) -> bool) -> Value {
        let id = &*call.id;
        let found = Deadline::after(PATIENCE).poll(|| {
            let mut calls = self.daemon.calls().into_iter();
            calls.find(|shown| shown["caller_call_id"] == id && holds(shown))
        });
        found.unwrap_or_else(|| panic!("not so: {:?}", self.daemon.calls()))
    }

    fn hang_up(&self, call: &Dialog, lines: &str) -> Message {
        self.say(call, "BYE", 90, lines, "");
        let bye = self.runtime.request("BYE");
        self.runtime.answer(&bye, "200 OK", "", "");
        self.caller.outcome("BYE");
        bye
    }
}

fn media(port: u16) -> String {
    OFFER.replace("40000", &port.to_string())
}

fn lines_of(rows: &[(&str, &str, bool)]) -> String {
    let lines = rows
        .iter()
        .map(|(name, value, _)| format!("{name}: {value}\r\n"));
    lines.collect()
}

/// A caller who wants privacy is named nowhere: not to the runtime, not in the session that its token opens, and not to a transfer's destination.
/// Every other caller is named unchanged.
#[test]
fn what_names_a_caller_crosses_unless_the_caller_wants_privacy() {
    for transport in BOTH {
        let mut withheld = Vec::new();
        let legs = Legs::new(transport);
        let desk = Peer::listening(transport).attentive();
        legs.daemon.destination("Desk", "sip", &desk.uri("desk"));
        legs.daemon.setup.settle();

        for (case, from, privacy, is_withheld) in [
            ("no wish", NAMED, "", false),
            ("a wish for nothing", NAMED, "none", false),
            ("id", NAMED, "id", true),
            ("user", NAMED, "user;critical", true),
            ("history", NAMED, "history", true),
            ("an anonymous From", NOBODY, "", true),
        ] {
            let case = format!("{case}, {transport:?}");
            let wish = match privacy {
                "" => String::new(),
                privacy => format!("Privacy: {privacy}\r\n"),
            };
            let lines = format!("{}{wish}Session-ID: {SESSION}\r\n", lines_of(&NAMES_CALLER));
            let mut call = legs.invite(from, &lines);

            let invite = legs.runtime.request("INVITE");
            let named = |came: &Message, to_destination: bool| {
                for (name, value, crosses) in NAMES_CALLER {
                    let expected = match is_withheld || (to_destination && !crosses) {
                        true => vec![],
                        false => vec![value],
                    };
                    assert_eq!(came.headers(name), expected, "{case}: {name}");
                }
                let wishes = Some(privacy).filter(|wish| !wish.is_empty());
                assert_eq!(came.headers("Privacy"), Vec::from_iter(wishes), "{case}");
                assert_eq!(came.headers("Session-ID"), [SESSION], "{case}");
                let shows = ["+441632960001", "+441632960002", "Ada"];
                let leaks = shows.iter().any(|shown| came.text().contains(shown));
                assert_eq!(leaks, !is_withheld, "{case}: {}", came.text());
            };

            named(&invite, false);
            let shown = match is_withheld {
                true => "anonymous",
                false => "+441632960001",
            };
            assert_eq!(invite.headers("X-Caller"), [shown], "{case}");
            legs.connect(&mut call, &invite, "Content-Type: application/sdp\r\n");

            let record = legs.record(&call, |call| call["status"] == "in_progress");
            assert_eq!(record["from_number"], "+441632960001", "{case}: {record}");
            assert_eq!(record["caller_withheld"], is_withheld, "{case}: {record}");
            assert_eq!(record["from_e164"].is_null(), is_withheld, "{record}");

            let session = record["session_id"].as_str().expect("text");
            let path = format!("/phone/sessions/{session}");
            let token = invite.value("X-PLATFORM-SESSION-TOKEN");
            for (credential, number) in [(&*token, shown), (legs.daemon.key(), "+441632960001")] {
                let (status, context) = legs.daemon.read(&path, credential);
                assert_eq!(status, 200, "{context}");
                assert_eq!(context["caller"]["number"], number, "{case}: {context}");
                assert_eq!(context["caller_withheld"], is_withheld, "{case}: {context}");
            }

            let path = format!(
                "/phone/calls/{}/transfer",
                record["id"].as_str().expect("an id")
            );
            let (status, begun) =
                legs.daemon
                    .change("POST", &path, &json!({"destination": "Desk"}));
            assert_eq!(status, 202, "{begun}");
            let handed = desk.request("INVITE");
            named(&handed, true);
            desk.answer(&handed, "486 Busy Here", "", "");
            legs.record(&call, |call| call["transfer"]["status"] == "failed");

            // Requests inside the call obey the caller's privacy as well.
            let lines = "P-Asserted-Identity: <sip:+441632960001@pbx.invalid>\r\nContent-Type: text/plain\r\n";
            legs.say(&call, "MESSAGE", 10, lines, "hello");
            let message = legs.runtime.request("MESSAGE");
            legs.runtime.answer(&message, "200 OK", lines, "");
            let asserted = message.headers("P-Asserted-Identity");
            assert_eq!(asserted.is_empty(), is_withheld, "{case}");

            // Towards the caller it crosses unchanged.
            let answer = legs.caller.outcome("MESSAGE");
            assert_eq!(answer.headers("P-Asserted-Identity").len(), 1, "{case}");

            legs.hang_up(&call, "");
            withheld.push((record["id"].clone(), is_withheld, shown));
        }

        let last = withheld.last().and_then(|(call, ..)| call.as_str());
        let events = recorded(&legs.daemon, last.expect("a call"));
        for (call, is_withheld, shown) in withheld {
            let own = events
                .iter()
                .filter(|event| event["data"]["call_id"] == call);
            let (calls, others): (Vec<_>, Vec<_>) = own.partition(|event| {
                let kind = event["type"].as_str();
                kind.is_some_and(|kind| kind.starts_with("call."))
            });
            assert_eq!((calls.len(), others.is_empty()), (3, false), "{events:?}");

            for event in calls {
                let data = &event["data"];
                assert_eq!(data["from_number"], shown, "{event}");
                assert_eq!(data["from_e164"].is_null(), is_withheld, "{event}");
                assert_eq!(data["caller_withheld"], is_withheld, "{event}");
            }
            let leaks = |event: &Value| event.to_string().contains("+44163296000");
            assert!(!others.into_iter().any(leaks), "{events:?}");
        }
    }
}

/// A caller's location is in Geolocation, or in a body part that the header refers to (RFC 6442). Both are withheld; the rest of the body crosses.
#[test]
fn a_place_in_a_body_crosses_unless_the_caller_wants_privacy() {
    let part = |media: &str, content: &str| {
        format!("--b\r\nContent-Type: {media}\r\nContent-ID: <{media}>\r\n\r\n{content}\r\n")
    };
    let place = part("application/pidf+xml", "<presence>here</presence>");
    let (sdp, isup) = (
        part("application/sdp", OFFER),
        part("application/isup", "x"),
    );
    let mixed = |call: &Dialog, own: &Peer, (cseq, method): (u32, &str), lines: &str| {
        let body = format!("{place}{sdp}{isup}--b--\r\n");
        let request = call.request(own, (cseq, method), lines, &body);
        let typed = request.replacen(
            "Content-Type: application/sdp",
            "Content-Type: multipart/mixed;boundary=b",
            1,
        );
        own.send(typed);
    };

    let legs = Legs::new(Transport::Udp);
    legs.daemon.setup.settle();
    for (wish, withheld) in [("", false), ("Privacy: id\r\n", true)] {
        let crosses = |came: &Message| {
            let (headers, body) = (came.headers("Geolocation"), came.wire().body());
            let expected = match withheld {
                true => format!("{sdp}{isup}--b--\r\n"),
                false => format!("{place}{sdp}{isup}--b--\r\n"),
            };
            assert_eq!(headers.is_empty(), withheld, "{came}");
            assert_eq!(String::from_utf8_lossy(body), expected, "{wish}");
            let types = came.headers("Content-Type");
            assert_eq!(types, ["multipart/mixed;boundary=b"], "{wish}");
        };
        let lines = format!("Geolocation: <cid:application/pidf+xml>\r\n{wish}");
        let mut call = legs.prepare(NAMED);
        mixed(&call, &legs.caller, (1, "INVITE"), &lines);
        let invite = legs.runtime.request("INVITE");
        crosses(&invite);
        legs.connect(&mut call, &invite, "Content-Type: application/sdp\r\n");

        // The privacy holds for the whole call.
        let lines = "Geolocation: <cid:application/pidf+xml>\r\n";
        mixed(&call, &legs.caller, (2, "INVITE"), lines);
        let again = legs.runtime.request("INVITE");
        crosses(&again);
        let contact = Legs::contact_of(&legs.runtime);
        legs.runtime
            .answer(&again, "200 OK", &contact, &media(41_000));
        legs.caller.outcome("INVITE");
        legs.say(&call, "ACK", 2, "", "");
        legs.runtime.request("ACK");
        legs.hang_up(&call, "");
    }
}

/// Session, early media, causes, identity, and the type of an SDP that came without one cross in both directions.
#[test]
fn what_both_sides_say_of_a_call_crosses() {
    let reasons = "Reason: Q.850;cause=16;text=\"Normal\"\r\nReason: SIP;cause=200\r\n";
    let causes = ["Q.850;cause=16;text=\"Normal\"", "SIP;cause=200"];
    for transport in BOTH {
        let legs = Legs::new(transport);
        legs.daemon.setup.settle();
        let lines = format!(
            "{reasons}P-Early-Media: supported\r\nX-PLATFORM_CONTACT_ID: forged\r\nX-Platform_Session-ID: forged\r\nX-Mine: kept\r\n"
        );
        let mut call = legs.invite(NAMED, &lines);
        let invite = legs.runtime.request("INVITE");
        assert_eq!(invite.headers("Reason"), causes, "{transport:?}");
        assert_eq!(invite.headers("P-Early-Media"), ["supported"]);
        assert_eq!(invite.headers("X-Mine"), ["kept"]);
        assert!(!invite.text().contains("forged"), "{}", invite.text());
        let methods = invite.value("Allow");
        assert!(
            methods.contains("REFER") && !methods.contains("NOTIFY"),
            "{methods}"
        );

        // OpenAI's SIP edge was seen to omit Content-Type; PBXs drop such an answer.
        let contact = Legs::contact_of(&legs.runtime);
        let early = format!("{contact}P-Early-Media: sendrecv\r\nSession-ID: {SESSION}\r\n");
        legs.runtime
            .answer(&invite, "183 Session Progress", &early, &media(41_000));
        let progress = legs.caller.response(183);
        assert_eq!(progress.headers("P-Early-Media"), ["sendrecv"]);
        assert_eq!(progress.headers("Session-ID"), [SESSION]);
        assert_eq!(progress.headers("Content-Type"), ["application/sdp"]);
        assert_eq!(progress.wire().body(), media(41_000).as_bytes());
        let identity = "P-Asserted-Identity: <sip:agent@runtime.invalid>\r\nPrivacy: id\r\n\
            Remote-Party-ID: <sip:agent@runtime.invalid>\r\nHistory-Info: <sip:agent@runtime.invalid>;index=1\r\n";
        let answer = legs.connect(&mut call, &invite, identity);
        assert_eq!(answer.headers("Content-Type"), ["application/sdp"]);
        assert_eq!(answer.headers("Privacy"), ["id"]);
        for name in ["P-Asserted-Identity", "Remote-Party-ID", "History-Info"] {
            assert_eq!(answer.headers(name).len(), 1, "{name}");
        }
        let methods = answer.value("Allow");
        assert!(
            methods.contains("NOTIFY") && !methods.contains("REFER"),
            "{methods}"
        );

        let lines = format!(
            "Session-ID: {SESSION}\r\nRemote-Party-ID: <sip:b@pbx.invalid>\r\nP-Early-Media: inactive\r\n"
        );
        let changed = call.request(&legs.caller, (20, "INVITE"), &lines, &media(40_002));
        let untyped = changed.replace("Content-Type: application/sdp\r\n", "");
        legs.caller.send(untyped);
        let reinvite = legs.runtime.request("INVITE");
        assert_eq!(reinvite.headers("Session-ID"), [SESSION]);
        assert_eq!(reinvite.headers("Remote-Party-ID"), ["<sip:b@pbx.invalid>"]);
        assert_eq!(reinvite.headers("P-Early-Media"), ["inactive"]);
        assert_eq!(reinvite.headers("Content-Type"), ["application/sdp"]);
        legs.runtime
            .answer(&reinvite, "200 OK", &contact, &media(41_002));
        let changed = legs.caller.outcome("INVITE");
        assert_eq!(changed.headers("Content-Type"), ["application/sdp"]);
        legs.say(&call, "ACK", 20, "", "");
        legs.runtime.request("ACK");
        let bye = legs.hang_up(&call, reasons);
        assert_eq!(bye.headers("Reason"), causes);

        // A refusal that is mapped to 480 keeps its Reason and Retry-After.
        for status in ["410 Gone", "503 Service Unavailable", "500 Server Error"] {
            let mut call = legs.invite(NAMED, "");
            let invite = legs.runtime.request("INVITE");
            let lines = format!("{reasons}Retry-After: 30;duration=5\r\n");
            legs.runtime.answer(&invite, status, &lines, "");
            let refusal = legs.caller.outcome("INVITE");
            assert_eq!(refusal.status(), Some(480), "{status}");
            assert_eq!(refusal.headers("Reason"), causes, "{status}");
            assert_eq!(
                refusal.headers("Retry-After"),
                ["30;duration=5"],
                "{status}"
            );
            legs.acknowledge(&mut call, &refusal);
        }

        let call = legs.invite(NAMED, "");
        let invite = legs.runtime.request("INVITE");
        legs.runtime.answer(&invite, "180 Ringing", &contact, "");
        legs.caller.response(180);
        legs.say(&call, "CANCEL", 1, reasons, "");
        let cancel = legs.runtime.request("CANCEL");
        assert_eq!(cancel.headers("Reason"), causes);
        legs.runtime.answer(&cancel, "200 OK", "", "");
        legs.runtime
            .answer(&invite, "487 Request Terminated", "", "");
        legs.caller.response(487);
    }
}

/// Every method that Allow lists is served there, and no method that is refused is listed.
/// RFC 3261 §13.2.1: the answer has to be in the 2xx, unless a reliable provisional response had it.
#[test]
fn an_answer_that_came_in_an_unreliable_183_is_in_the_200_too() {
    for transport in BOTH {
        let legs = Legs::new(transport);
        let mut call = legs.invite(NAMED, "");
        let invite = legs.runtime.request("INVITE");
        let contact = Legs::contact_of(&legs.runtime);
        legs.runtime
            .answer(&invite, "183 Session Progress", &contact, &media(41_000));
        let progress = legs.caller.response(183);
        assert_eq!(progress.wire().body(), media(41_000).as_bytes());

        legs.runtime.answer(&invite, "200 OK", &contact, "");
        let answer = legs.caller.response(200);
        assert_eq!(answer.headers("Content-Type"), ["application/sdp"]);
        assert_eq!(answer.wire().body(), progress.wire().body());
        legs.acknowledge(&mut call, &answer);
        legs.runtime.request("ACK");
        legs.hang_up(&call, "");
    }
}

#[test]
fn allow_lists_what_is_served() {
    let legs = Legs::new(Transport::Udp);
    legs.daemon.setup.settle();
    let listed = |came: &Message| -> Vec<String> {
        let lists = came.headers("Allow").join(",");
        lists
            .split(',')
            .map(|method| method.trim().to_owned())
            .collect()
    };

    let outside = |method: &str, cseq: u32| {
        let call = Dialog {
            id: format!("outside-{method}@pbx.invalid"),
            from: format!("{NAMED};tag=outside"),
            uri: format!("sip:{}", legs.daemon.sip()),
            to: format!("<sip:{}>", legs.daemon.sip()),
            lines: String::new(),
        };
        legs.say(&call, method, cseq, "Event: refer\r\n", "");
        legs.caller.outcome(method)
    };

    let methods = listed(&outside("OPTIONS", 1));
    // Every call here shows the methods that begin or end with an INVITE.
    for method in ["INVITE", "ACK", "CANCEL"] {
        assert!(methods.contains(&method.to_owned()), "{methods:?}");
    }

    for method in [
        "OPTIONS",
        "REGISTER",
        "BYE",
        "PRACK",
        "UPDATE",
        "INFO",
        "NOTIFY",
        "MESSAGE",
        "REFER",
        "SUBSCRIBE",
        "PUBLISH",
        "FOO",
    ] {
        let status = status_of(&outside(method, 2));
        let is_served = !matches!(status, 403 | 405 | 501);
        let is_listed = methods.contains(&method.to_owned());
        assert_eq!(is_listed, is_served, "{method}: {status}, {methods:?}");
    }

    let mut call = legs.invite(NAMED, "");
    let invite = legs.runtime.request("INVITE");
    let answer = legs.connect(&mut call, &invite, "");
    let methods = listed(&answer);
    legs.say(&call, "OPTIONS", 2, "", "");
    assert_eq!(listed(&legs.caller.outcome("OPTIONS")), methods);

    let rest = [
        "UPDATE",
        "INFO",
        "MESSAGE",
        "PRACK",
        "NOTIFY",
        "REFER",
        "SUBSCRIBE",
        "PUBLISH",
        "FOO",
    ];

    for (cseq, method) in (3..).zip(rest) {
        let lines = "Event: refer\r\nRefer-To: <sip:a@b.invalid>\r\nRAck: 1 1 INVITE\r\n";
        legs.say(&call, method, cseq, lines, "");
        if matches!(method, "INFO" | "MESSAGE") {
            let asked = legs.runtime.request(method);
            legs.runtime.answer(&asked, "200 OK", "", "");
        }

        let outcome = legs.caller.outcome(method);
        let status = status_of(&outcome);
        let is_served = !matches!(status, 403 | 405 | 501);
        assert_eq!(
            methods.contains(&method.to_owned()),
            is_served,
            "{method}: {status}"
        );
        if matches!(status, 405 | 501) {
            assert_eq!(listed(&outcome), methods, "{method}");
        }
    }
    legs.hang_up(&call, "");
}

/// If a call names two different agents, both are noted, and the next step decides.
#[test]
fn two_agents_that_a_call_names_do_not_count() {
    let legs = Legs::new(Transport::Udp);
    legs.daemon.setup.settle();
    let (own, other) = (
        legs.daemon.setup.first_agent.clone(),
        "5f0c2c1e-0000-4000-8000-000000000000",
    );

    for (second, step) in [(other, "assigned_number"), (&*own, "header")] {
        let lines = format!("X-PLATFORM-AGENT-ID: {own}\r\nX-PLATFORM-AGENT-ID: {second}\r\n");
        let mut call = legs.invite(NAMED, &lines);
        let invite = legs.runtime.request("INVITE");
        legs.runtime.answer(&invite, "486 Busy Here", "", "");
        let refusal = legs.caller.outcome("INVITE");
        legs.acknowledge(&mut call, &refusal);
        let record = legs.record(&call, |call| call["ended_at"].is_string());
        let decision = legs.daemon.routing(&record);
        let text = decision.to_string();
        assert!(text.contains(&format!("\"step\":\"{step}\"")), "{decision}");
        let is_noted = text.contains("contradiction") && text.contains("neither counts");
        assert_eq!(is_noted, second == other, "{decision}");
        assert_eq!(decision["outcome"]["agent"]["step"], step, "{decision}");
    }
}
