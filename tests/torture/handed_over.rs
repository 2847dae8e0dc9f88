//! Transfers at PBXs that behave exactly as Asterisk and FreeSWITCH were seen to, and at others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{accepting, runtime, until};
use crate::torture::one_shard;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Peer, assert_handed_over};

pub(crate) const ASTERISK: &str = "Asterisk PBX 22.10.0";
pub(crate) const FREESWITCH: &str = "FreeSWITCH-mod_sofia/1.10.12";
pub(crate) const NUMBER: &str = "+442071838751";
pub(crate) const RINGING: &str = "SIP/2.0 180 Ringing\r\n";
pub(crate) const DONE: &str = "SIP/2.0 200 OK\r\n";
pub(crate) const OVER: &str = "terminated;reason=noresource";
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// A call of a PBX to the echo agent, or to a runtime.
pub(crate) struct Pbx {
    pub(crate) peer: Caller,
    pub(crate) dialling: Dialling,
    pub(crate) tag: String,
    pub(crate) call: String,
    cseq: std::cell::Cell<u32>,
    /// `Via` of the requests that were taken; each transaction has its own.
    taken: std::cell::RefCell<Vec<String>>,
}

pub(crate) fn daemon() -> Daemon {
    let daemon = one_shard(DaemonSetup::new()).serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon.setup.settle();
    daemon
}

pub(crate) fn trunk(daemon: &Daemon, fields: &Value) {
    let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", fields);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();
}

impl Pbx {
    /// Calls from a PBX with this User-Agent; empty: without the header.
    pub(crate) fn calls(daemon: &Daemon, id: &str, user_agent: &str) -> Self {
        Self::dials(daemon, Self::dialling(daemon, id, user_agent))
    }

    /// The same with this INVITE.
    pub(crate) fn dials(daemon: &Daemon, dialling: Dialling) -> Self {
        let peer = Caller::new(daemon.sip(), daemon.credentials());
        let tag = peer.connect(&dialling);
        Self::up(daemon, peer, dialling, tag)
    }

    fn dialling(daemon: &Daemon, id: &str, user_agent: &str) -> Dialling {
        let mut dialling = Dialling::new(id, &daemon.setup.first_number, daemon.sip());
        if !user_agent.is_empty() {
            dialling = dialling.with(&format!("User-Agent: {user_agent}"));
        }
        dialling
    }

    /// Calls a runtime, which answers; returns also the INVITE that it got.
    pub(crate) fn calls_runtime(
        daemon: &Daemon,
        runtime: &Peer,
        id: &str,
        user_agent: &str,
    ) -> (Self, Message) {
        let peer = Caller::new(daemon.sip(), daemon.credentials());
        let dialling = Self::dialling(daemon, id, user_agent);
        let answer = (&*accepting(runtime), &*OFFER.replace("40000", "41000"));
        let (tag, invite) = peer.connect_to(runtime, &dialling, answer);
        (Self::up(daemon, peer, dialling, tag), invite)
    }

    fn up(daemon: &Daemon, peer: Caller, dialling: Dialling, tag: String) -> Self {
        let call_id = format!("{}@pbx.invalid", dialling.id);
        let call = until(|| {
            let mut calls = daemon.calls().into_iter();
            let own = calls.find(|call| call["caller_call_id"] == call_id.as_str())?;
            let id = own["id"].as_str()?.to_owned();
            (own["status"] == "in_progress").then_some(id)
        });
        Self {
            peer,
            dialling,
            tag,
            call,
            cseq: std::cell::Cell::new(10),
            taken: Default::default(),
        }
    }

    pub(crate) fn transfer(&self, daemon: &Daemon, name: &str) -> (u16, Value) {
        let path = format!("/phone/calls/{}/transfer", self.call);
        daemon.change("POST", &path, &json!({"destination": name}))
    }

    pub(crate) fn transfers(&self, daemon: &Daemon, name: &str) {
        let (status, begun) = self.transfer(daemon, name);
        assert_eq!(status, 202, "{begun}");
    }

    /// Returns the next request, which must have this method; skips retransmissions.
    pub(crate) fn request(&self, method: &str) -> Message {
        let request = self.peer.peer.next("request", |message| {
            let is_wanted = method == "ACK" || !message.is_request("ACK");
            message.method().is_some() && is_wanted && !self.is_taken(message)
        });
        let via = request.header("Via").unwrap_or_default().to_owned();
        self.taken.borrow_mut().push(via);
        assert_eq!(request.method(), Some(method), "{request}");
        request
    }

    pub(crate) fn answers(&self, request: &Message, status: &str) {
        self.answers_with(request, status, "", "");
    }

    pub(crate) fn answers_with(&self, request: &Message, status: &str, lines: &str, body: &str) {
        self.peer.peer.answer(request, status, lines, body);
    }

    /// Sends a request in its dialog; returns the status of the answer.
    pub(crate) fn says(&self, method: &str, lines: &str, body: &str) -> u16 {
        let cseq = self.cseq.get() + 1;
        self.cseq.set(cseq);
        let bare = String::from_utf8(self.peer_request(method, cseq)).expect("text");
        let head = bare.trim_end_matches("Content-Length: 0\r\n\r\n");
        let request = format!("{head}{lines}Content-Length: {}\r\n\r\n{body}", body.len());
        self.peer.peer.send(request.as_bytes());
        let outcome = self.peer.peer.outcome(&format!("{cseq} {method}"));
        if method == "INVITE" {
            self.peer.peer.send(self.peer_request("ACK", cseq));
        }
        status_of(&outcome)
    }

    fn peer_request(&self, method: &str, cseq: u32) -> Vec<u8> {
        let at = self.peer.peer.own;
        self.dialling.request(method, cseq, &self.tag, at)
    }

    /// Sends NOTIFY with this fragment.
    pub(crate) fn notifies(&self, fragment: &str, state: &str) {
        let lines = format!(
            "Event: refer\r\nSubscription-State: {state}\r\nContent-Type: message/sipfrag;version=2.0\r\n"
        );
        assert_eq!(self.says("NOTIFY", &lines, fragment), 200);
    }

    /// Accepts the REFER that comes.
    pub(crate) fn accepts_refer(&self) {
        let refer = self.request("REFER");
        self.answers(&refer, "202 Accepted");
    }

    /// Returns whether this is a request that was taken before: over UDP it comes again if it isn't answered at once.
    fn is_taken(&self, message: &Message) -> bool {
        let via = message.header("Via").unwrap_or_default();
        message.method().is_some() && self.taken.borrow().iter().any(|taken| taken == via)
    }

    /// Returns the messages received so far, without ACKs and what was taken.
    pub(crate) fn so_far(&self) -> Vec<String> {
        let came = self.peer.peer.answers_until_probed();
        let came = came
            .iter()
            .filter(|message| !message.is_request("ACK") && !self.is_taken(message));
        came.map(Message::text).collect()
    }

    /// Returns the record once the transfer is in that state.
    pub(crate) fn transferred(&self, daemon: &Daemon, state: &str) -> Value {
        let path = format!("/phone/calls/{}", self.call);
        let seen = Deadline::after(PATIENCE).poll(|| {
            let shown = daemon.shown(&path);
            (shown["transfer"]["status"] == state).then_some(shown)
        });
        seen.unwrap_or_else(|| panic!("not {state}: {}", daemon.shown(&path)))
    }

    /// Returns the record once the call has ended.
    pub(crate) fn ended(&self, daemon: &Daemon) -> Value {
        daemon.stored(&self.call)
    }

    /// Returns the recorded events of the call of this type.
    fn events(&self, daemon: &Daemon, kind: &str) -> Vec<Value> {
        let own = recorded(daemon, &self.call).into_iter().filter(|event| {
            event["type"] == kind && event["data"]["call_id"] == self.call.as_str()
        });
        own.collect()
    }
}

/// Returns the events so far, up to the end of this call.
pub(crate) fn recorded(daemon: &Daemon, call: &str) -> Vec<Value> {
    let mut stream = TcpStream::connect(daemon.setup.http).expect("connected");
    let request = format!(
        "GET /phone/events?last_event_id=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        daemon.key()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");

    let settings = stream.try_clone().expect("a handle");
    let mut told: Vec<Value> = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let event: Value = serde_json::from_str(data).expect("JSON");
        if event["type"] == "call.ended" && event["data"]["call_id"] == call {
            // A second end would come at once.
            let soon = std::time::Duration::from_millis(500);
            settings.set_read_timeout(Some(soon)).expect("a limit");
        }
        told.push(event);
    }

    told
}

/// The runtime hangs up on the call of this INVITE.
fn agent_hangs_up(runtime: &Peer, invite: &Message) {
    let dialog = Dialog::called(invite, runtime.tag);
    runtime.send(dialog.request(runtime, (7, "BYE"), "", ""));
}

/// Checks that an INVITE calls the destination at the PBX, in the caller's name.
pub(crate) fn assert_calls_back(pbx: &Pbx, invite: &Message) {
    let begin = format!("INVITE sip:{NUMBER}@{}", pbx.peer.peer.own);
    assert!(invite.start_line().starts_with(&begin), "{invite}");
    let from = invite.value("From");
    assert!(from.starts_with("<sip:+441632960001@"), "{from}");
}

/// Any final refusal of REFER leads to a bridge by a call to that PBX.
#[test]
fn a_refused_refer_goes_on_as_a_bridge_back_to_the_pbx() {
    let daemon = daemon();
    let pbx = Pbx::calls(&daemon, "refusing", "");
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "407 Proxy Authentication Required",
        "420 Bad Extension",
        "480 Temporarily Unavailable",
        "488 Not Acceptable Here",
        "500 Server Internal Error",
        "501 Not Implemented",
        "503 Service Unavailable",
        "600 Busy Everywhere",
        "603 Decline",
    ] {
        pbx.transfers(&daemon, "Sales");
        let refer = pbx.request("REFER");
        pbx.answers(&refer, status);
        let invite = pbx.request("INVITE");
        assert_calls_back(&pbx, &invite);
        pbx.answers(&invite, "486 Busy Here");
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["way"], "bridge", "{status}: {shown}");
        assert_eq!(shown["transfer"]["sip_code"], 486, "{status}: {shown}");
        assert_eq!(shown["status"], "in_progress", "{status}: {shown}");
    }

    // 491 is no refusal, and 481 says that the dialog is gone.
    pbx.transfers(&daemon, "Sales");
    let refer = pbx.request("REFER");
    pbx.answers(&refer, "491 Request Pending");
    let refer = pbx.request("REFER");
    pbx.answers(&refer, "481 Call/Transaction Does Not Exist");
    let bye = pbx.request("BYE");
    pbx.answers(&bye, "200 OK");
    let record = pbx.ended(&daemon);
    assert_eq!(record["transfer"]["way"], "refer", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 481, "{record}");

    trunk(&daemon, &json!({"bridge_when_refer_fails": false}));
    let pbx = Pbx::calls(&daemon, "refusing-alone", "");
    pbx.transfers(&daemon, "Sales");
    let refer = pbx.request("REFER");
    pbx.answers(&refer, "405 Method Not Allowed");
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["sip_code"], 405, "{shown}");
    assert_eq!(pbx.so_far(), [] as [&str; 0]);
}

/// After a 403 or a 603 no other host is called. A 501 says only that the PBX can't transfer, so the destination is called from here.
#[test]
fn a_declined_refer_leads_to_no_other_host() {
    let daemon = daemon();
    let desk = Peer::new(daemon.sip());
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.own));
    daemon.setup.settle();
    let pbx = Pbx::calls(&daemon, "declining", "");
    for status in ["403 Forbidden", "603 Decline"] {
        pbx.transfers(&daemon, "Desk");
        let refer = pbx.request("REFER");
        pbx.answers(&refer, status);
        let shown = pbx.transferred(&daemon, "failed");
        let code = status[..3].parse::<u16>().expect("a status");
        assert_eq!(shown["transfer"]["sip_code"], code, "{shown}");
        assert_eq!(shown["transfer"]["way"], "refer", "{shown}");
        let came = desk.answers_until_probed();
        assert!(came.is_empty(), "{status}: {came:?}");
    }

    pbx.transfers(&daemon, "Desk");
    let refer = pbx.request("REFER");
    pbx.answers(&refer, "501 Not Implemented");
    let invite = desk.receive();
    assert!(invite.is_request("INVITE"), "{invite}");

    desk.send(invite.answer("486 Busy Here", "desk", "", ""));
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
    assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
}

/// FreeSWITCH answers 200 at once and hangs up by itself; Asterisk says 200 once its caller hears the ringing tone, and waits for our BYE. The
/// agent's own BYE counts as well.
#[test]
fn a_pbx_that_says_200_has_two_seconds_for_its_bye() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon.setup.settle();

    for (case, user_agent, rings, ends, by) in [
        ("freeswitch", FREESWITCH, false, "pbx", "caller"),
        ("asterisk", ASTERISK, true, "platform", "platform"),
        ("silent", "", false, "platform", "platform"),
        ("agent", "", true, "agent", "platform"),
    ] {
        let (pbx, invite) = Pbx::calls_runtime(&daemon, &runtime, case, user_agent);
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        if rings {
            pbx.notifies(RINGING, "active;expires=60");
        }
        pbx.notifies(DONE, OVER);
        let shown = pbx.transferred(&daemon, "completed");
        assert_eq!(shown["status"], "in_progress", "{case}: {shown}");
        let (status, refused) = pbx.transfer(&daemon, "Sales");
        assert_eq!(status, 409, "{case}: {refused}");
        match ends {
            "pbx" => {
                assert_eq!(pbx.says("BYE", "", ""), 200, "{case}");
                let bye = runtime.request("BYE");
                runtime.answer(&bye, "200 OK", "", "");
            }
            "agent" => {
                agent_hangs_up(&runtime, &invite);
                let bye = pbx.request("BYE");
                pbx.answers(&bye, "200 OK");
            }
            _ => {
                let bye = pbx.request("BYE");
                pbx.answers(&bye, "200 OK");
                let bye = runtime.request("BYE");
                runtime.answer(&bye, "200 OK", "", "");
            }
        }
        let record = pbx.ended(&daemon);
        assert_handed_over(&record);
        assert_eq!(record["hangup_by"], by, "{record}");
        let is_early = user_agent == FREESWITCH;
        assert!(
            !is_early || record["transfer"]["answer_confirmed"] == false,
            "{record}"
        );
        assert_eq!(record["transfer"]["caller_may_be_gone"], false, "{record}");
        let session = record["session_id"].as_str().expect("a session");
        let handoffs = daemon.shown("/handoff-analytics/events");
        let own = handoffs["items"].as_array().expect("a list").iter();
        let own = own.filter(|handoff| handoff["session_id"] == session);
        assert_eq!(own.count(), 1, "{case}: {handoffs}");
        assert_eq!(pbx.events(&daemon, "call.ended").len(), 1, "{case}");
        let updated = pbx.events(&daemon, "transfer.updated");
        let over = updated
            .iter()
            .filter(|event| event["data"]["status"] == "completed");
        assert_eq!(over.count(), 1, "{case}: {updated:?}");
    }
}

/// A PBX reports the failure once its dialplan has the caller. The leg is ended with BYE, unless the PBX shows that it has the caller.
#[test]
fn a_caller_that_a_failed_refer_lost_is_not_kept_as_dead_air() {
    let daemon = daemon();
    for (user_agent, probe) in [(ASTERISK, "UPDATE"), ("FPBX-17.0(22.10)", "OPTIONS")] {
        let mut dialling = Pbx::dialling(&daemon, probe, user_agent);
        if probe == "UPDATE" {
            dialling =
                dialling.with("Allow: INVITE, ACK, BYE, CANCEL, OPTIONS, UPDATE, REFER, NOTIFY");
        }
        let peer = Caller::new(daemon.sip(), daemon.credentials());
        let tag = peer.connect(&dialling);
        let pbx = Pbx::up(&daemon, peer, dialling, tag);
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        pbx.notifies(RINGING, "active;expires=60");
        pbx.notifies("SIP/2.0 486 Busy Here\r\n", OVER);
        let asked = pbx.request(probe);
        pbx.answers(&asked, "200 OK");
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["caller_may_be_gone"], true, "{shown}");
        assert_eq!(shown["transfer"]["sip_code"], 486, "{shown}");
        assert_eq!(shown["status"], "in_progress", "{shown}");
        let bye = pbx.request("BYE");
        pbx.answers(&bye, "200 OK");
        let record = pbx.ended(&daemon);
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["reason"], "caller_lost", "{record}");
        assert_eq!(record["transfer"]["status"], "failed", "{record}");
    }
    assert_eq!(daemon.shown("/handoff-analytics/events")["total"], 0);

    // Any other PBX: the agent simply keeps its caller. FreeSWITCH reports a failure with `confirm-blind-transfer` alone, and gives the caller back.
    for (id, user_agent) in [("another", "3CXPhoneSystem 20.0"), ("confirms", FREESWITCH)] {
        let pbx = Pbx::calls(&daemon, id, user_agent);
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        pbx.notifies("SIP/2.0 486 486\r\n", OVER);
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["caller_may_be_gone"], false, "{shown}");
        assert_eq!(pbx.so_far(), [] as [&str; 0]);
    }
}

/// A 481 to a request inside the caller's dialog would end it (RFC 3261 §12.2.1.2), while its PBX still transfers it.
#[test]
fn a_caller_whose_agent_has_left_keeps_its_dialog() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon.setup.settle();
    let (pbx, invite) = Pbx::calls_runtime(&daemon, &runtime, "alone", ASTERISK);
    pbx.transfers(&daemon, "Sales");
    pbx.accepts_refer();
    pbx.notifies(RINGING, "active;expires=60");
    agent_hangs_up(&runtime, &invite);

    assert_eq!(pbx.says("INFO", "Content-Type: text/plain\r\n", "1"), 200);
    assert_eq!(
        pbx.says("MESSAGE", "Content-Type: text/plain\r\n", "hello"),
        480
    );
    let held = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\na=sendonly\r\n";
    assert_eq!(
        pbx.says("UPDATE", "Content-Type: application/sdp\r\n", held),
        491
    );

    pbx.notifies(DONE, OVER);
    pbx.transferred(&daemon, "completed");
    let bye = pbx.request("BYE");
    pbx.answers(&bye, "200 OK");
    assert_handed_over(&pbx.ended(&daemon));
}

/// A PBX that sends a request in the call after a REFER has failed has kept its caller, and `auto` uses REFER from then on.
#[test]
fn a_pbx_that_keeps_its_caller_is_learnt() {
    let daemon = daemon();
    trunk(&daemon, &json!({"transfer_way": "refer"}));
    let pbx = Pbx::calls(&daemon, "keeping", ASTERISK);
    pbx.transfers(&daemon, "Sales");
    pbx.accepts_refer();
    pbx.notifies("SIP/2.0 503 Service Unavailable\r\n", OVER);
    let asked = pbx.request("OPTIONS");
    pbx.answers(&asked, "200 OK");
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["caller_may_be_gone"], true, "{shown}");
    let lines = "Content-Type: application/dtmf-relay\r\n";
    assert_eq!(pbx.says("INFO", lines, "Signal=#\r\n"), 200);
    let trunk_shown = until(|| {
        let shown = daemon.shown("/phone/sip/inbound-trunk");
        let (status, auto) = daemon.change(
            "PATCH",
            "/phone/sip/inbound-trunk",
            &json!({"transfer_way": "auto"}),
        );
        assert_eq!(status, 200, "{auto} {shown}");
        (auto["transfer_way_in_force"]["way"] == "refer").then_some(auto)
    });
    assert_eq!(
        trunk_shown["transfer_way_in_force"]["reason"],
        "kept_caller"
    );
    daemon.setup.settle();
    let shown = daemon.shown(&format!("/phone/calls/{}", pbx.call));
    assert_eq!(shown["transfer"]["caller_may_be_gone"], false, "{shown}");
    // The PBX isn't hung up on: the next transfer uses REFER, and its failure loses nobody.
    pbx.transfers(&daemon, "Sales");
    pbx.accepts_refer();
    pbx.notifies("SIP/2.0 486 Busy Here\r\n", OVER);
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["caller_may_be_gone"], false, "{shown}");
    assert_eq!(pbx.so_far(), [] as [&str; 0]);

    // Setting the trunk to `bridge` resets this.
    trunk(&daemon, &json!({"transfer_way": "bridge"}));
    trunk(&daemon, &json!({"transfer_way": "auto"}));
    let shown = daemon.shown("/phone/sip/inbound-trunk");
    assert_eq!(
        shown["transfer_way_in_force"]["reason"], "not_proven",
        "{shown}"
    );
    assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
}

/// Asterisk answers 400, 403, 404 or 500 where a transfer can't begin: the caller stays where it was, and nothing is learned.
#[test]
fn a_transfer_that_never_began_loses_nobody() {
    let daemon = daemon();
    let as_refer = json!({"transfer_way": "refer", "bridge_when_refer_fails": false});
    trunk(&daemon, &as_refer);
    let pbx = Pbx::calls(&daemon, "begun", ASTERISK);
    for status in [400, 403, 404, 500] {
        pbx.transfers(&daemon, "Sales");
        pbx.accepts_refer();
        pbx.notifies(&format!("SIP/2.0 {status} No\r\n"), OVER);
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["sip_code"], status, "{shown}");
        assert_eq!(shown["transfer"]["caller_may_be_gone"], false, "{shown}");
        let lines = "Content-Type: application/dtmf-relay\r\n";
        assert_eq!(pbx.says("INFO", lines, "Signal=#\r\n"), 200);
    }
    assert_eq!(
        pbx.so_far(),
        [] as [&str; 0],
        "it isn't probed or hung up on"
    );

    daemon.setup.settle();
    trunk(
        &daemon,
        &json!({"transfer_way": "auto", "bridge_when_refer_fails": true}),
    );
    let shown = daemon.shown("/phone/sip/inbound-trunk");
    assert_eq!(
        shown["transfer_way_in_force"]["reason"], "not_proven",
        "{shown}"
    );
    assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
}
