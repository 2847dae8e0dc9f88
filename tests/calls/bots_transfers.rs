//! Transfers and hang-ups that a bot requests by the REST endpoint of its format: `<Dial>`, `<Refer>`, `<Hangup/>`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{Caller, PEER, receiver, set, setup, token};
use crate::calls::outbound::give_trunk;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::referred::Step::{
    self, Answer, Bye, ByeComes, Notify, Pause, Refer, Rejoined,
};
use trunkline_testkit::talker::{Rtp, offer};
use trunkline_testkit::{BotCall, BotServer, Daemon, Deadline, Peer, Runtime, http, tools};

const NUMBER: &str = "+442071838751";
const DESK: &str = "sip:desk@pbx.example.com";
const ACCEPTED: Step = Answer("202 Accepted", "");
const RINGING: Step = Notify("SIP/2.0 180 Ringing", "active;expires=60");
const DONE: Step = Notify("SIP/2.0 200 OK", "terminated;reason=noresource");

/// Starts a daemon whose agent is a bot with a number and a SIP URI as destinations; returns the token of the endpoint.
fn served() -> (Daemon, BotServer, String) {
    let daemon = setup().serve();
    let server = BotServer::start();
    let token = token(&daemon);
    daemon.destination("Sales", "phone", NUMBER);
    daemon.destination("Desk", "sip", DESK);
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    (daemon, server, token)
}

/// Returns the next call of a bot, and its `start` event.
fn begun(server: &BotServer) -> (BotCall, Value) {
    let bot = server.accepted();
    let start = bot.event("start")["start"].take();
    (bot, start)
}

/// Posts this form for the call of that `start` event.
fn post(daemon: &Daemon, start: &Value, token: &str, form: &str) -> (u16, Value) {
    let [account, call] = ["accountSid", "callSid"].map(|field| start[field].as_str());
    let (account, call) = account.zip(call).expect("both are in start");
    let path = format!("/2010-04-01/Accounts/{account}/Calls/{call}.json");
    http::form(daemon.setup.http, &path, account, token, form)
}

fn twiml(verb: &str) -> String {
    let escaped = |octet: u8| match octet {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(octet).to_string(),
        other => format!("%{other:02X}"),
    };
    let text = format!("<?xml version=\"1.0\"?><Response>{verb}</Response>");
    format!("Twiml={}", text.bytes().map(escaped).collect::<String>())
}

/// The runtime of the call counts, not the one that its agent has since been given.
#[test]
fn the_token_controls_calls_that_a_bot_was_dialled_for() {
    let (daemon, server, token) = served();
    let caller = Caller::call(&daemon);
    let (bot, start) = begun(&server);
    set(&daemon, &json!({"type": "echo"}));

    // A call of the echo, which is up while the agent has a bot again.
    let other = Caller::dial(&daemon, "+442071838760");
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let session = |call: &Value| call["session_id"].as_str().map(|id| id.replace('-', ""));
    let own = start["callSid"].as_str().map(|sid| sid.replace("CA", ""));
    let echo = daemon.calls().into_iter().find(|call| session(call) != own);
    let echo = echo.and_then(|call| session(&call)).expect("its call");
    let of_echo = json!({"accountSid": start["accountSid"], "callSid": format!("CA{echo}")});
    for form in ["Status=completed", &twiml("<Dial>sales</Dial>")] {
        let (status, refused) = post(&daemon, &of_echo, &token, form);
        assert_eq!((status, &refused["code"]), (404, &json!(20404)), "{form}");
    }

    set(&daemon, &json!({"type": "echo"}));
    let (status, ended) = post(&daemon, &start, &token, "Status=completed");
    assert_eq!(status, 200, "{ended}");
    let bye = caller.talker.asked("BYE").expect("the call ends");
    caller.talker.accept(&bye, "");
    assert!(bot.is_over());
    drop(other);
}

#[test]
fn dial_and_refer_transfer_to_destinations_of_the_agent() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, server, token) = served();
    let cases = [
        (
            "a number",
            format!("<Dial callerId=\"x\">{NUMBER}</Dial>"),
            NUMBER,
        ),
        (
            "a noun",
            format!("<Dial><Number>{NUMBER}</Number></Dial>"),
            NUMBER,
        ),
        ("a name", "<Dial>sales</Dial>".to_owned(), NUMBER),
        (
            "a URI",
            format!("<Refer><Sip>{DESK}</Sip></Refer>"),
            "desk@pbx.example.com",
        ),
    ];

    for (place, (case, verb, expected)) in cases.into_iter().enumerate() {
        let steps = [Refer, ACCEPTED, RINGING, Pause(1_000), DONE, ByeComes];
        let pbx = daemon.caller().takes(&steps);
        let (bot, start) = begun(&server);
        let (status, body) = post(&daemon, &start, &token, &twiml(&verb));
        assert_eq!(status, 200, "{case}: {body}");
        assert_eq!(body["status"], "in-progress", "{case}: {body}");
        assert_eq!(body["sid"], start["callSid"], "{case}: {body}");

        let pbx = pbx.finish();
        let to = pbx.request("REFER").header("Refer-To").expect("a Refer-To");
        assert!(to.contains(expected), "{case}: {to}");
        bot.event("stop");
        assert!(bot.is_over(), "{case}");
        let record = daemon.records(place + 1).remove(0);
        assert_eq!(record["status"], "transferred", "{case}: {record}");
        assert_eq!(
            record["transfer"]["status"], "completed",
            "{case}: {record}"
        );
    }
}

#[test]
fn a_failed_refer_leaves_the_caller_with_its_bot() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, server, token) = served();
    let failed = Notify("SIP/2.0 486 Busy Here", "terminated;reason=noresource");
    let steps = [Refer, ACCEPTED, RINGING, failed, ByeComes];
    let pbx = daemon.caller().takes(&steps);
    let (bot, start) = begun(&server);
    let (status, body) = post(&daemon, &start, &token, &twiml("<Dial>Sales</Dial>"));
    assert_eq!(status, 200, "{body}");

    let call = daemon.answered_call();
    let shown = Deadline::after(Duration::from_secs(20)).poll(|| {
        let shown = daemon.shown(&format!("/phone/calls/{call}"));
        (shown["transfer"]["status"] == "failed").then_some(shown)
    });
    let shown = shown.expect("the transfer fails");
    assert_eq!(shown["status"], "in_progress", "{shown}");

    // The frames went on meanwhile.
    let frame = |event: &Value| -> u64 {
        let timestamp = event["media"]["timestamp"].as_str().expect("a timestamp");
        timestamp.parse().expect("a number")
    };
    let before = frame(&bot.event("media"));
    assert_eq!(frame(&bot.event("media")), before + 20);

    daemon.hang_up(&call);
    pbx.finish();
    bot.event("stop");
    assert_eq!(daemon.record()["status"], "completed");
}

/// Has the bot of a caller, whose PBX knows no REFER, transfer it to Sales; returns the SDP with which the caller is moved there.
pub(crate) fn is_bridged(daemon: &Daemon, server: &BotServer, token: &str) -> String {
    let refused = Answer("405 Method Not Allowed", "");
    let pbx = daemon
        .caller()
        .takes(&[Refer, refused, Rejoined, Pause(2_000), Bye]);

    let (bot, start) = begun(server);
    let (status, body) = post(daemon, &start, token, &twiml("<Dial>sales</Dial>"));
    assert_eq!(status, 200, "{body}");
    // The caller is with sales, and the bot has left the call.
    bot.event("stop");
    assert!(bot.is_over());
    pbx.finish().request("INVITE").body().to_owned()
}

#[test]
fn a_bot_s_caller_is_bridged_where_the_pbx_knows_no_refer() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = setup().serve();
    let (server, carrier) = (BotServer::start(), Runtime::new());
    let token = token(&daemon);
    give_trunk(&daemon, carrier, &json!({}));
    daemon.destination_via("trunk", "Sales", "phone", NUMBER);
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let sales = carrier.play("runtime_answers");
    let moved = is_bridged(&daemon, &server, &token);
    assert!(moved.contains("m=audio 42000"), "the media of sales");

    let sales = sales.finish();
    let offered = sales.request("INVITE").body();
    assert!(offered.contains("m=audio 41000"), "the caller's: {sales}");
    let record = daemon.record();
    assert_eq!(record["status"], "transferred", "{record}");
    assert_eq!(record["transfer"]["way"], "bridge", "{record}");
    assert_eq!(record["transfer"]["status"], "completed", "{record}");
}

#[test]
fn a_bridged_transfer_that_is_busy_leaves_the_caller_with_its_bot() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = setup().serve();
    let (server, carrier) = (BotServer::start(), Runtime::new());
    let token = token(&daemon);
    give_trunk(&daemon, carrier, &json!({}));
    daemon.destination_via("trunk", "Sales", "phone", NUMBER);
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let sales = carrier.play("runtime_is_busy");
    let refused = Answer("405 Method Not Allowed", "");
    let pbx = daemon.caller().takes(&[Refer, refused, ByeComes]);

    let (bot, start) = begun(&server);
    let (status, body) = post(&daemon, &start, &token, &twiml("<Dial>sales</Dial>"));
    assert_eq!(status, 200, "{body}");
    sales.finish();
    bot.mark("still there");
    assert_eq!(bot.event("mark")["mark"]["name"], "still there");
    daemon.hang_up(&daemon.answered_call());
    pbx.finish();
    bot.event("stop");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["transfer"]["status"], "failed", "{record}");
}

/// A caller who wants privacy is anonymous in each answer and callback that a bot gets, as in its `start`.
#[test]
fn a_withheld_number_reaches_no_bot() {
    let allowed = setup().set("TRUNKLINE__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true");
    let daemon = allowed.serve();
    let server = BotServer::start();
    let token = token(&daemon);
    let (url, received) = receiver();
    set(
        &daemon,
        &json!({"type": "websocket", "uri": server.url, "status_callback": url,
            "status_callback_events": ["initiated", "ringing", "answered", "completed"]}),
    );

    let mut calls = 0;
    for (case, line) in [
        ("user", "Privacy: user;critical"),
        ("id", "Privacy: id"),
        ("header", "Privacy: header"),
    ] {
        let peer = Peer::on(PEER, daemon.sip());
        let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
        let id = format!("withheld-{calls}");
        let contact = format!("Contact: <sip:a@{}>", peer.own);
        let mut dialog = Dialog::calling(&uri, "+441632960001", &id, &peer).with(&contact);
        let rtp = Rtp::new(PEER);
        let sdp = offer(rtp.address());
        let invite = dialog.with(line).request(&peer, (1, "INVITE"), "", &sdp);
        let answer = peer.ask(&invite);
        assert_eq!(answer.status(), Some(200), "{case}: {answer:?}");
        dialog.accepted(&answer);
        peer.send(dialog.ack(&peer, 1, &answer));

        let (bot, start) = begun(&server);
        let (status, body) = post(&daemon, &start, &token, "Status=completed");
        assert_eq!(
            (status, &body["from"]),
            (200, &json!("anonymous")),
            "{case}: {body}"
        );
        assert!(!body.to_string().contains("441632960001"), "{case}: {body}");

        let bye = peer.request("BYE");
        peer.answer(&bye, "200 OK", "", "");
        bot.event("stop");
        calls += 1;
        let records = daemon.records(calls);
        let kept = records
            .iter()
            .all(|call| call["from_number"] == "+441632960001");
        assert!(kept, "{case}: {records:?}");
    }

    for _ in 0..calls * 3 {
        let (_, form) = received
            .recv_timeout(Duration::from_secs(15))
            .expect("a callback");
        assert!(!form.contains("441632960001"), "{form}");
        assert!(form.contains("&Caller=anonymous&"), "{form}");
        assert!(form.contains("&From=anonymous&"), "{form}");
    }
}

#[test]
fn hangup_ends_the_call_and_a_second_one_finds_it_over() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, server, token) = served();
    for (place, form) in [twiml("<Hangup/>"), "Status=completed".to_owned()]
        .into_iter()
        .enumerate()
    {
        let pbx = daemon.caller().takes(&[ByeComes]);
        let (bot, start) = begun(&server);
        let (status, body) = post(&daemon, &start, &token, &form);
        assert_eq!((status, &body["status"]), (200, &json!("completed")));
        pbx.finish();
        bot.event("stop");
        let record = daemon.records(place + 1).remove(0);
        assert_eq!(record["hangup_by"], "agent", "{record}");

        let (status, body) = post(&daemon, &start, &token, &form);
        assert_eq!((status, &body["code"]), (404, &json!(20404)), "{body}");
    }
}

#[test]
fn what_the_endpoint_refuses_has_twilio_s_form_and_changes_nothing() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, server, token) = served();
    let pbx = daemon.caller().takes(&[Pause(4_000), Bye]);
    let (bot, start) = begun(&server);
    for (case, form, code) in [
        (
            "a number of nobody's",
            twiml("<Dial>+442071838799</Dial>"),
            13224,
        ),
        (
            "a foreign URI",
            twiml("<Refer><Sip>sip:a@example.com</Sip></Refer>"),
            13224,
        ),
        ("a URL", "Url=https%3A%2F%2Fexample.com".to_owned(), 21205),
        (
            "a URL beside it",
            format!("Url=x&{}", twiml("<Hangup/>")),
            21205,
        ),
        ("another verb", twiml("<Say>Hello</Say>"), 12200),
        ("no XML", "Twiml=hello".to_owned(), 12100),
        ("another status", "Status=busy".to_owned(), 21218),
    ] {
        let (status, body) = post(&daemon, &start, &token, &form);
        assert_eq!(status, 400, "{case}: {body}");
        assert_eq!(body["code"], code, "{case}: {body}");
        assert_eq!(body["status"], 400, "{case}: {body}");
        assert!(
            body["message"].is_string() && body["more_info"].is_string(),
            "{case}: {body}"
        );
    }
    let (status, body) = post(&daemon, &start, "another", "Status=completed");
    assert_eq!((status, &body["code"]), (401, &json!(20003)), "{body}");

    bot.event("media");
    assert_eq!(daemon.calls()[0]["status"], "in_progress");
    assert_eq!(daemon.calls()[0]["transfer"], Value::Null);
    pbx.finish();
}

/// The endpoint serves bots only: a call of any other agent is not found.
#[test]
fn a_call_without_a_bot_is_not_found() {
    let daemon = setup().serve();
    let token = token(&daemon);
    let sdp = trunkline_testkit::talker::offer((PEER, 40_000).into());
    let number = &daemon.setup.first_number;
    let (_talker, answer) =
        trunkline_testkit::talker::Talker::call(PEER, daemon.sip(), number, &sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let call = daemon.calls().remove(0);
    let bare = |id: &Value| id.as_str().expect("an id").replace('-', "");
    let start = json!({
        "accountSid": format!("AC{}", daemon.setup.org.replace('-', "")),
        "callSid": format!("CA{}", bare(&call["session_id"])),
    });

    let (status, body) = post(&daemon, &start, &token, "Status=completed");
    assert_eq!((status, &body["code"]), (404, &json!(20404)), "{body}");
    assert_eq!(daemon.calls()[0]["status"], "in_progress");
}

/// The flow of a built-in agent goes to a bot, which then has the call as any other has.
#[test]
fn a_bot_behind_a_flow_ends_its_call() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = setup().serve();
    let server = BotServer::start();
    let token = token(&daemon);
    let flow = json!({"start": "bot", "steps": {"bot": {"do": "next_runtime"}}});
    set(
        &daemon,
        &json!({"type": "builtin", "flow": flow, "fallbacks": [server.url]}),
    );

    let pbx = daemon.caller().takes(&[ByeComes]);
    let (bot, start) = begun(&server);
    let (status, body) = post(&daemon, &start, &token, "Status=completed");
    assert_eq!(status, 200, "{body}");
    pbx.finish();
    bot.event("stop");
    assert_eq!(daemon.record()["hangup_by"], "agent");
}

/// A bot may close its WebSocket after it has requested a transfer and before the transfer is complete.
#[test]
fn a_transfer_while_the_bot_is_gone_goes_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, server, token) = served();
    let steps = [Refer, ACCEPTED, RINGING, Pause(1_000), DONE, ByeComes];
    let pbx = daemon.caller().takes(&steps);
    let (bot, start) = begun(&server);
    let (status, body) = post(&daemon, &start, &token, &twiml("<Dial>Sales</Dial>"));
    assert_eq!(status, 200, "{body}");
    // Pipecat ends its pipeline once it has requested a transfer, and with it the WebSocket.
    bot.close();
    pbx.finish();
    let record = daemon.record();
    assert_eq!(record["status"], "transferred", "{record}");
    assert_eq!(record["transfer"]["status"], "completed", "{record}");
}

/// Twilio's libraries read every error as one of Twilio's.
#[test]
fn a_body_that_is_too_long_is_refused_in_the_form_of_the_endpoint() {
    let daemon = setup().serve();
    let token = token(&daemon);
    let account = daemon.shown("/phone/bot-token")["account_sid"].take();
    let start = json!({"accountSid": account, "callSid": "CA00000000000000000000000000000001"});
    let (status, refused) = post(&daemon, &start, &token, &"x".repeat((1 << 20) + 1));
    assert_eq!(
        (status, &refused["status"]),
        (413, &json!(413)),
        "{refused}"
    );
    assert_eq!(refused["code"], 20001, "{refused}");
}
