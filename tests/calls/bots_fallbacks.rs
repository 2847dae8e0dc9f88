//! Lists of runtimes that begin with SIP and lead to a bot or to the built-in agent.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_model::builtin::Flow;
use trunkline_testkit::process::free_port;
use trunkline_testkit::talker::{Talker, offer};
use trunkline_testkit::{BotServer, Daemon, Responder, Runtime, tools};

use crate::calls::bots::{Bot, Caller, PEER, is_tone, set, setup, token};
use crate::calls::outbound::give_trunk;

/// Outcomes of the attempts of a call, in order.
fn outcomes(daemon: &Daemon, record: &Value) -> Vec<String> {
    let routing = daemon.routing(record);
    let attempts = routing["attempts"].as_array().cloned().unwrap_or_default();
    let texts = attempts.iter().map(|attempt| attempt["outcome"].as_str());
    texts.map(|text| text.expect("a text").to_owned()).collect()
}

#[test]
fn the_example_bot_answers_where_a_runtime_is_dead() {
    if !tools(&["sipp", "python3"]) {
        return;
    }
    let daemon = setup().serve();
    let token = token(&daemon);
    let bot = Bot::start(&["--token", &token]);
    let dead = format!("sip:{{agent_id}}@127.0.0.1:{}", free_port());
    set(
        &daemon,
        &json!({"type": "sip", "uri": dead, "fallbacks": [bot.url()]}),
    );

    let caller = daemon.caller().talks(Duration::from_secs(2));
    let caller = caller.play("caller_hangs_up");
    let start = bot.event("start");
    bot.event("stop");
    let caller = caller.finish();
    let answer = caller.response(200, "INVITE");
    assert!(answer.body().contains("m=audio"), "our media: {caller}");

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    let session = record["session_id"].as_str().expect("a session");
    let parameters = &start["start"]["customParameters"];
    assert_eq!(parameters["session_id"], session, "{start}");
    assert_eq!(outcomes(&daemon, &record), ["unreachable", "answered"]);
}

#[test]
fn the_bot_of_a_dead_runtime_is_heard() {
    let daemon = setup().serve();
    let server = BotServer::start();
    let dead = format!("sip:x@127.0.0.1:{}", free_port());
    let runtime = json!({"type": "sip", "uri": dead, "fallbacks": ["sip:x@127.0.0.1:9", server.url], "protocol": "telnyx"});
    set(&daemon, &runtime);
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    let start = bot.event("start");
    assert!(start["stream_id"].is_string(), "Telnyx' words: {start}");
    bot.play(&[0x23; 8_000]);
    assert!(caller.hears(0x91, |audio| audio == [0x23; 160]));
}

#[test]
fn the_built_in_agent_follows_a_runtime_that_says_nothing() {
    let daemon = setup().serve();
    let silent = Responder::answering("100 Trying", "");
    let uri = format!("sip:x@{}", silent.address);
    let flow = Flow::demo();
    set(
        &daemon,
        &json!({"type": "sip", "uri": uri, "fallbacks": ["builtin:"], "flow": flow}),
    );
    let caller = Caller::call(&daemon);
    assert!(caller.hears(0xff, is_tone), "the welcome");
    assert_eq!(silent.requests("CANCEL").len(), 1);
    assert_eq!(outcomes(&daemon, &daemon.calls()[0]), ["only_trying"]);
}

#[test]
fn a_refusal_leads_to_a_bot_as_it_leads_to_another_runtime() {
    let daemon = setup().serve();
    let server = BotServer::start();
    for (status, listed, is_answered) in [
        ("503 Service Unavailable", None, true),
        ("500 Server Internal Error", None, true),
        ("404 Not Found", None, false),
        ("404 Not Found", Some("404"), true),
        ("480 Temporarily Unavailable", Some("480"), true),
        ("486 Busy Here", None, false),
    ] {
        let runtime = Responder::answering(status, "");
        let uri = format!("sip:x@{}", runtime.address);
        let listed: Vec<&str> = listed.into_iter().collect();
        let before = server.dialled();
        set(
            &daemon,
            &json!({"type": "sip", "uri": uri, "fallbacks": [server.url], "failover_on": listed}),
        );
        match is_answered {
            true => {
                let caller = Caller::call(&daemon);
                let bot = server.accepted();
                bot.event("start");
                bot.close();
                assert!(caller.talker.asked("BYE").is_some(), "{status}");
            }
            false => {
                let sdp = offer(SocketAddr::new(PEER, 40_000));
                let (_, answer) =
                    Talker::call(PEER, daemon.sip(), &daemon.setup.first_number, &sdp);
                assert!(answer.status() >= Some(480), "{status}: {answer:?}");
            }
        }
        let dialled = server.dialled() - before;
        assert_eq!(dialled, usize::from(is_answered), "{status}, {listed:?}");
    }
}

#[test]
fn the_caller_of_a_bot_that_followed_a_runtime_is_bridged() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = setup().serve();
    let (server, carrier) = (BotServer::start(), Runtime::new());
    let token = token(&daemon);
    give_trunk(&daemon, carrier, &json!({}));
    daemon.destination_via("trunk", "Sales", "phone", "+442071838751");
    let dead = format!("sip:x@127.0.0.1:{}", free_port());
    set(
        &daemon,
        &json!({"type": "sip", "uri": dead, "fallbacks": [server.url]}),
    );
    let sales = carrier.play("runtime_answers");
    let is_bridged = crate::calls::bots_transfers::is_bridged(&daemon, &server, &token);
    assert!(is_bridged.contains("m=audio 42000"), "{is_bridged}");

    sales.finish();
    let record = daemon.record();
    assert_eq!(record["status"], "transferred", "{record}");
    assert_eq!(record["transfer"]["way"], "bridge", "{record}");
}
