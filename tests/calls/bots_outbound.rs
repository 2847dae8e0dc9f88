//! Outbound calls of agents on a WebSocket: when the bot is dialled, and what the callee experiences if the bot is dead.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{PEER, set, setup};
use crate::calls::outbound::{CALLER_NUMBER, NUMBER, give_trunk, order};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::process::free_port;
use trunkline_testkit::talker::{Rtp, offer};
use trunkline_testkit::{BotServer, Daemon, Deadline, Message, Peer, Runtime};

/// Wait before a check that nothing has happened.
const QUIET: Duration = Duration::from_millis(400);

/// A callee, and its media.
struct Callee {
    peer: Peer,
    rtp: Rtp,
    invite: Message,
}

impl Callee {
    /// Makes the first agent call the callee.
    fn called(daemon: &Daemon) -> Self {
        let peer = Peer::on(PEER, daemon.sip());
        let place = json!({"host": PEER.to_string(), "port": peer.own.port()});
        give_trunk(daemon, Runtime::new(), &place);
        order(daemon, &json!({}));
        let invite = peer.request("INVITE");
        Self {
            peer,
            rtp: Rtp::new(PEER),
            invite,
        }
    }

    fn ring(&self) {
        self.peer.reply(&self.invite, "180 Ringing", "");
    }

    /// Answers the call; returns the address of the daemon's media.
    fn answer(&self) -> SocketAddr {
        let sdp = offer(self.rtp.address());
        self.peer.reply_with_sdp(&self.invite, "200 OK", &sdp);
        self.peer.request("ACK");
        self.invite.media()
    }

    fn hang_up(&self) {
        let dialog = Dialog::called(&self.invite, self.peer.tag);
        let said = dialog.status(&self.peer, (1, "BYE"), "");
        assert_eq!(said, 200);
    }

    /// Expects the request that ends the call.
    fn is_asked(&self, method: &str) {
        let request = self.peer.request(method);
        self.peer.answer(&request, "200 OK", "", "");
        if method == "CANCEL" {
            let status = "487 Request Terminated";
            self.peer.answer(&self.invite, status, "", "");
        }
    }
}

fn runtime(server: &BotServer, wake: &str) -> Value {
    json!({"type": "websocket", "uri": server.url, "wake": wake})
}

/// Checks a bot's parameters, and audio in both directions.
fn converses(callee: &Callee, to: SocketAddr, server: &BotServer) {
    let bot = server.accepted();
    assert_eq!(bot.next()["event"], "connected");
    let start = bot.next();
    let parameters = &start["start"]["customParameters"];
    for (name, expected) in [
        ("direction", "outbound"),
        ("from_number", CALLER_NUMBER),
        ("to_number", NUMBER),
    ] {
        assert_eq!(parameters[name], expected, "{start}");
    }

    bot.play(&[0x23; 8_000]);
    let heard = Deadline::after(Duration::from_secs(15)).poll(|| {
        callee.rtp.say(to, &[0x91; 160]);
        callee.rtp.audio().filter(|audio| *audio == [0x23; 160])
    });
    assert!(heard.is_some(), "the callee hears the bot");
    // It may hear before it is heard: its address is learnt from four packets.
    (0..8).for_each(|_| callee.rtp.say(to, &[0x91; 160]));

    let spoken = |event: &Value| {
        event["event"] == "media" && trunkline_testkit::bot::audio_of(event) == [0x91; 160]
    };
    bot.until("word of the callee", spoken);
    callee.hang_up();
    bot.event("stop");
    assert!(bot.is_over());
}

#[test]
fn a_bot_is_dialled_at_the_first_18x_and_starts_at_the_answer() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "ringing"));
    let callee = Callee::called(&daemon);
    std::thread::sleep(QUIET);
    assert_eq!(server.dialled(), 0, "nothing rings yet");

    callee.ring();
    let dialled = Deadline::after(Duration::from_secs(15));
    let dialled = dialled.poll(|| (server.dialled() == 1).then_some(()));
    assert!(dialled.is_some(), "it rings");

    // Two 18x responses belong to one call.
    callee.ring();
    std::thread::sleep(QUIET);
    let to = callee.answer();
    converses(&callee, to, &server);
    assert_eq!(server.dialled(), 1);
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "callee", "{record}");
}

#[test]
fn a_bot_takes_the_callee_of_a_runtime_that_cant_be_reached() {
    let daemon = setup().serve();
    let server = BotServer::start();
    let dead = format!("sip:{{agent_id}}@127.0.0.1:{}", free_port());
    set(
        &daemon,
        &json!({"type": "sip", "uri": dead, "fallbacks": [server.url]}),
    );
    let callee = Callee::called(&daemon);
    callee.ring();
    std::thread::sleep(QUIET);
    assert_eq!(server.dialled(), 0, "the runtime's turn comes first");

    let to = callee.answer();
    converses(&callee, to, &server);
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    let tried = [("runtime", "unreachable"), ("runtime", "answered")];
    let tried = tried.map(|(leg, outcome)| (leg.to_owned(), outcome.to_owned()));
    assert_eq!(attempts(&daemon, &record), tried);
}

#[test]
fn a_bot_hears_nothing_before_the_callee_answers() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "ringing"));
    let callee = Callee::called(&daemon);
    callee.ring();
    let bot = server.accepted();
    assert_eq!(bot.within(QUIET), None, "the callee hasn't answered");

    callee.answer();
    assert_eq!(bot.next()["event"], "connected");
    assert_eq!(bot.next()["event"], "start");
    // From the answer on the bot gets frames of silence, before the callee has spoken.
    assert_eq!(bot.frame(), [0xff; 160]);
    callee.hang_up();
    bot.event("stop");
}

/// Legs and outcomes of a call's attempts.
fn attempts(daemon: &Daemon, call: &Value) -> Vec<(String, String)> {
    let routing = daemon.routing(call);
    let attempts = routing["attempts"].as_array().cloned().unwrap_or_default();
    let texts = attempts.iter().map(|attempt| {
        let text = |field: &str| attempt[field].as_str().unwrap_or_default().to_owned();
        (text("leg"), text("outcome"))
    });
    texts.collect()
}

#[test]
fn attempts_at_bot_and_callee_are_all_in_the_record() {
    let bots = [("runtime", "connection_refused"), ("runtime", "answered")];
    let busy = [bots[0], bots[1], ("callee", "sip_status")];
    for (case, answer, expected) in [
        ("busy", Some("486 Busy Here"), &busy[..]),
        ("it rings, and has failed in nothing", None, &bots[..]),
    ] {
        let daemon = setup().serve();
        let server = BotServer::start();
        let dead = format!("ws://127.0.0.1:{}/dead", free_port());
        let runtime = json!({
            "type": "websocket", "uri": dead, "wake": "ringing", "fallbacks": [server.url],
        });
        set(&daemon, &runtime);
        let callee = Callee::called(&daemon);
        callee.ring();
        let bot = server.accepted();
        let call = daemon.calls()[0].take();
        let tried = Deadline::after(Duration::from_secs(15));
        tried.poll(|| (attempts(&daemon, &call).len() == 2).then_some(()));

        match answer {
            Some(status) => callee.peer.answer(&callee.invite, status, "", ""),
            None => {
                daemon.hang_up(call["id"].as_str().expect("an id"));
                callee.is_asked("CANCEL");
            }
        }
        assert!(bot.is_over(), "{case}");
        let seen = attempts(&daemon, &daemon.record());
        let seen: Vec<_> = seen
            .iter()
            .map(|(leg, outcome)| (&**leg, &**outcome))
            .collect();
        assert_eq!(seen, expected, "{case}");
    }
}

#[test]
fn a_bot_that_wakes_at_the_answer_is_not_dialled_before() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "answer"));
    let callee = Callee::called(&daemon);
    callee.ring();
    std::thread::sleep(QUIET);
    assert_eq!(server.dialled(), 0, "it only rings");
    let to = callee.answer();
    converses(&callee, to, &server);
}

#[test]
fn a_callee_that_answers_without_ringing_has_its_bot() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "ringing"));
    let callee = Callee::called(&daemon);
    let to = callee.answer();
    converses(&callee, to, &server);
}

#[test]
fn a_dead_bot_cancels_before_the_callee_is_charged() {
    let daemon = setup().serve();
    let nobody = format!("ws://127.0.0.1:{}/ws", free_port());
    set(&daemon, &json!({"type": "websocket", "uri": nobody}));
    let callee = Callee::called(&daemon);
    callee.ring();
    callee.is_asked("CANCEL");
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(record["answered_at"], Value::Null, "{record}");
}

#[test]
fn a_bot_that_leaves_while_the_callee_rings_cancels() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "ringing"));
    let callee = Callee::called(&daemon);
    callee.ring();
    server.accepted().close();
    callee.is_asked("CANCEL");
    let record = daemon.record();
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(record["answered_at"], Value::Null, "{record}");
}

#[test]
fn a_dead_bot_that_wakes_at_the_answer_hangs_up_on_the_callee() {
    let daemon = setup().serve();
    let nobody = format!("ws://127.0.0.1:{}/ws", free_port());
    let dead = json!({"type": "websocket", "uri": nobody, "wake": "answer"});
    set(&daemon, &dead);
    let callee = Callee::called(&daemon);
    callee.ring();
    callee.answer();
    callee.is_asked("BYE");
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
}

#[test]
fn a_callee_that_is_busy_ends_the_bot_without_a_start() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &runtime(&server, "ringing"));
    let callee = Callee::called(&daemon);
    callee.ring();
    let bot = server.accepted();
    callee.peer.reply(&callee.invite, "486 Busy Here", "");
    callee.peer.request("ACK");

    // The WebSocket may close before it is attached to the call, and then without a close frame.
    let said = bot.within(Duration::from_secs(20));
    let is_close = said.as_ref().is_none_or(|said| said["event"] == "close");
    assert!(is_close && bot.is_over(), "it was given no call: {said:?}");
    assert_eq!(daemon.record()["status"], "busy");
}
