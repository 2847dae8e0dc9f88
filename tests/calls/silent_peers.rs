//! Peers that send no audio: muted phones, silence suppression, monitors. They hear the agent, unless their SDP names an address that may be a
//! third party's; and they stay in their calls for as long as they answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{PEER, set, setup};
use crate::calls::outbound::{give_trunk, order};
use trunkline_testkit::bot::BotCall;
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::talker::{Rtp, Talker, offer};
use trunkline_testkit::{BotServer, Daemon, DaemonSetup, Deadline, Message, Peer, Runtime};

/// Neither the caller nor the daemon.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const PATIENCE: Duration = Duration::from_secs(20);
/// Wait before a check that nothing has happened.
const QUIET: Duration = Duration::from_millis(600);

/// A second of the bot's audio: its sample, and its frames.
const WORD: u8 = 0x23;
const FRAMES: usize = 50;

/// Behaviour of a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Manner {
    Silent,
    RecvOnly,
    ComfortNoise,
}

const MANNERS: [Manner; 3] = [Manner::Silent, Manner::RecvOnly, Manner::ComfortNoise];

impl Manner {
    fn sdp(self, at: SocketAddr) -> String {
        let direction = match self {
            Self::RecvOnly => "a=recvonly\r\n",
            Self::Silent | Self::ComfortNoise => "",
        };
        format!("{}{direction}", offer(at))
    }

    fn send(self, rtp: &Rtp, to: SocketAddr) {
        if self == Self::ComfortNoise {
            rtp.hum(to);
        }
    }
}

/// Plays a second of audio with a mark behind it; returns how many of its frames the peer has heard by the time the mark is back.
fn heard(bot: &BotCall, rtp: &Rtp, manner: Manner, to: SocketAddr) -> usize {
    bot.play(&[WORD; 160 * FRAMES]);
    bot.mark("said");
    let mut count = 0;
    let mut listen = || {
        let audio = rtp.audio();
        count += usize::from(audio.as_deref() == Some(&[WORD; 160]));
        audio.is_some()
    };

    let is_back = Deadline::after(PATIENCE).poll(|| {
        manner.send(rtp, to);
        listen();
        has_mark(bot).then_some(())
    });
    assert!(is_back.is_some(), "the mark comes back");
    // What was on its way when the mark was, and what waits in the socket since this test had no time for it.
    let _ = (0..2 * FRAMES).find(|_| !listen());
    count
}

/// Returns whether a mark is among the events so far.
fn has_mark(bot: &BotCall) -> bool {
    let events = std::iter::from_fn(|| bot.within(Duration::ZERO));
    events.filter(|event| event["event"] == "mark").count() > 0
}

fn websocket(server: &BotServer) -> Value {
    json!({"type": "websocket", "uri": server.url})
}

#[test]
fn a_caller_that_sends_nothing_hears_the_bot_from_its_first_frame() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    for manner in MANNERS {
        let rtp = Rtp::new(PEER);
        let (talker, answer) = call(&daemon, &manner.sdp(rtp.address()));
        let to = answer.media();
        let bot = server.accepted();
        bot.event("start");
        assert_eq!(heard(&bot, &rtp, manner, to), FRAMES, "{manner:?}");

        let moved = Rtp::new(PEER);
        let again = talker.offer(&manner.sdp(moved.address()));
        assert_eq!(again.status(), Some(200), "{again:?}");
        let heard = heard(&bot, &moved, manner, to);
        assert_eq!(heard, FRAMES, "{manner:?}, at another port");
    }
}

#[test]
fn a_callee_that_sends_nothing_hears_the_bot_from_its_first_frame() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    let peer = Peer::on(PEER, daemon.sip());
    let place = json!({"host": PEER.to_string(), "port": peer.own.port()});
    give_trunk(&daemon, Runtime::new(), &place);
    for manner in MANNERS {
        order(&daemon, &json!({}));
        let invite = peer.request("INVITE");
        let rtp = Rtp::new(PEER);
        peer.reply_with_sdp(&invite, "200 OK", &manner.sdp(rtp.address()));
        peer.request("ACK");
        let to = invite.media();
        let bot = server.accepted();
        bot.event("start");
        assert_eq!(heard(&bot, &rtp, manner, to), FRAMES, "{manner:?}");

        let (moved, dialog) = (Rtp::new(PEER), Dialog::called(&invite, peer.tag));
        let again = dialog.ask(&peer, (1, "INVITE"), &manner.sdp(moved.address()));
        assert_eq!(again.status(), Some(200), "{again:?}");
        peer.send(dialog.ack(&peer, 1, &again));
        let heard = heard(&bot, &moved, manner, to);
        assert_eq!(heard, FRAMES, "{manner:?}, at another port");
        assert_eq!(dialog.status(&peer, (2, "BYE"), ""), 200);
    }
}

fn call(daemon: &Daemon, sdp: &str) -> (Talker, Message) {
    let (talker, answer) = Talker::call(PEER, daemon.sip(), &daemon.setup.first_number, sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    (talker, answer)
}

/// Rows of the newest call's ladder that are no messages.
fn media_rows(daemon: &Daemon) -> Vec<String> {
    let calls = daemon.calls();
    let id = calls[0]["id"].as_str().expect("an id");
    let trace = daemon.shown(&format!("/phone/calls/{id}/trace"));
    let items = trace["items"].as_array().expect("rows").iter();
    let texts = items.filter_map(|item| Some(item["text"].as_str()?.to_owned()));
    texts.filter(|text| text.starts_with("media: ")).collect()
}

/// Waits for a row of the newest call's ladder.
fn wait_for_row(daemon: &Daemon, row: &str) {
    let is_it = || media_rows(daemon).iter().any(|text| text.starts_with(row));
    let shown = Deadline::after(PATIENCE).poll(|| is_it().then_some(()));
    assert!(shown.is_some(), "{row} in {:?}", media_rows(daemon));
}

/// Returns the octets of all RTP that comes within a moment.
fn received(rtp: &Rtp) -> usize {
    let limit = Deadline::after(QUIET);
    let mut octets = 0;
    while !limit.is_over() {
        octets += rtp.audio().map_or(0, |audio| 12 + audio.len());
    }
    octets
}

#[test]
fn a_third_party_in_sdp_gets_no_more_than_the_invite_had_and_no_mark_comes_back() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));

    let victim = Rtp::new(OTHER);
    let sdp = offer(victim.address());
    let (_talker, answer) = call(&daemon, &sdp);
    let bot = server.accepted();
    bot.event("start");
    bot.play(&[WORD; 160 * 100]);
    bot.mark("withheld");
    wait_for_row(&daemon, "media: audio is withheld from 127.0.0.3:");
    let octets = received(&victim);
    // An INVITE has 300 octets besides its SDP at the least.
    assert!(octets <= 300 + sdp.len(), "{octets} octets");

    // The audio waits for two seconds and passes in two more, as the frames of the caller's silence tell.
    let event = bot.until("frame or mark", |event| {
        let timestamp = event["media"]["timestamp"].as_str();
        let timestamp = timestamp.and_then(|timestamp| timestamp.parse::<u32>().ok());
        event["event"] == "mark" || timestamp >= Some(6_000)
    });
    assert_eq!(event["event"], "media", "its audio was withheld");

    // It listens after all: what the bot says now is heard at once.
    let to = answer.media();
    for _ in 0..4 {
        victim.speak(to);
    }
    let (rtp, manner) = (&victim, Manner::ComfortNoise);
    assert_eq!(heard(&bot, rtp, manner, to), FRAMES);

    // Another call of the trunk: the carrier's media was heard there.
    let silent = Rtp::new(OTHER);
    let (_talker, answer) = call(&daemon, &offer(silent.address()));
    let bot = server.accepted();
    bot.event("start");
    let heard = heard(&bot, &silent, Manner::Silent, answer.media());
    assert_eq!(heard, FRAMES, "known by the first call");
}

#[test]
fn a_third_party_in_a_callees_sdp_gets_no_more_than_a_few_packets() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    let peer = Peer::on(PEER, daemon.sip());
    let place = json!({"host": PEER.to_string(), "port": peer.own.port()});
    give_trunk(&daemon, Runtime::new(), &place);
    order(&daemon, &json!({}));
    let (invite, victim) = (peer.request("INVITE"), Rtp::new(OTHER));
    let sdp = offer(victim.address());
    peer.reply_with_sdp(&invite, "200 OK", &sdp);
    peer.request("ACK");
    let bot = server.accepted();
    bot.event("start");
    bot.play(&[WORD; 160 * 200]);
    wait_for_row(&daemon, "media: audio is withheld from 127.0.0.3:");
    let octets = received(&victim);
    assert!(octets <= 300 + sdp.len(), "{octets} octets");
    let dialog = Dialog::called(&invite, peer.tag);
    assert_eq!(dialog.status(&peer, (1, "BYE"), ""), 200);
}

#[test]
fn a_caller_that_sends_nothing_hears_a_prompt_whole() {
    const GOODBYE: &[u8] = include_bytes!("../../assets/spoken/goodbye.ulaw");
    let daemon = setup().serve();
    let steps = json!({
        "start": {"do": "play", "prompt": {"bundled": "goodbye"}, "next": "end"},
        "end": {"do": "hang_up"},
    });
    let flow = json!({"start": "start", "steps": steps});
    set(&daemon, &json!({"type": "builtin", "flow": flow}));
    for manner in [Manner::Silent, Manner::RecvOnly] {
        let rtp = Rtp::new(PEER);
        let (_talker, _) = call(&daemon, &manner.sdp(rtp.address()));
        let mut audio = Vec::new();
        let whole = Deadline::after(PATIENCE).poll(|| {
            audio.extend(rtp.audio()?);
            let mut windows = audio.windows(GOODBYE.len());
            windows.any(|window| window == GOODBYE).then_some(())
        });
        assert!(whole.is_some(), "{manner:?}: {} octets", audio.len());
    }
}

#[test]
fn media_addresses_of_the_operator_are_heard_at_once() {
    let setup = setup();
    setup.media_address(&OTHER.to_string());
    let daemon = setup.serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    let rtp = Rtp::new(OTHER);
    let (_talker, answer) = call(&daemon, &offer(rtp.address()));
    let bot = server.accepted();
    bot.event("start");
    assert_eq!(heard(&bot, &rtp, Manner::Silent, answer.media()), FRAMES);
}

#[test]
fn an_invite_without_an_ack_brings_no_audio() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    let (peer, rtp) = (Peer::on(PEER, daemon.sip()), Rtp::new(PEER));
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let dialog = Dialog::calling(&uri, "+441632960001", "forged", &peer);
    peer.send(dialog.request(&peer, (1, "INVITE"), "", &offer(rtp.address())));
    let answer = peer.next("200", |message| message.status() == Some(200));
    let bot = server.accepted();
    bot.play(&[WORD; 160 * FRAMES]);
    assert_eq!(received(&rtp), 0, "{answer:?}");
}

#[test]
fn a_stream_to_a_port_that_nobody_has_bound_stops_until_the_peer_is_heard() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &websocket(&server));
    let place = UdpSocket::bind((PEER, 0)).expect("a port");
    let at = place.local_addr().expect("an address");
    drop(place);

    let (_talker, answer) = call(&daemon, &offer(at));
    let bot = server.accepted();
    bot.event("start");
    bot.play(&[WORD; 160 * 250]);
    let row = format!("media: nobody listens at {at} (ICMP port unreachable)");
    wait_for_row(&daemon, &row);

    let rtp = Rtp::at(at);
    bot.clear();
    assert_eq!(received(&rtp), 0, "nothing is sent any more");
    rtp.hum(answer.media());
    let heard = heard(&bot, &rtp, Manner::Silent, answer.media());
    assert_eq!(heard, FRAMES, "it was heard");

    // The signalling comes from there: the operator has no address to list.
    let rows = media_rows(&daemon);
    let is_withheld = |row: &String| row.contains("withheld");
    assert!(!rows.iter().any(is_withheld), "{rows:?}");
}

/// A daemon whose calls are asked after a second of silence.
fn impatient() -> DaemonSetup {
    setup()
        .set("TRUNKLINE__MEDIA__SILENCE_S", "1")
        .set("TRUNKLINE__SIP__DEAD_PEER_S", "0")
        .set("TRUNKLINE__SIP__T1_MS", "50")
}

/// Returns the method of the next request in a call.
fn asked(talker: &Talker) -> Option<(String, Message)> {
    let request = talker.asked("")?;
    let method = request.method().expect("a request").to_owned();
    Some((method, request))
}

#[test]
fn a_muted_caller_is_asked_and_stays_and_a_dead_one_ends() {
    let daemon = impatient().serve();
    let rtp = Rtp::new(PEER);
    let sdp = offer(rtp.address());
    let (talker, _) = call(&daemon, &sdp);
    for _ in 0..2 {
        let mut probe = asked(&talker).expect("it is asked whether it is there");
        while probe.0 == "ACK" {
            probe = asked(&talker).expect("it is asked whether it is there");
        }
        let (method, request) = probe;
        assert!(
            ["UPDATE", "INVITE", "OPTIONS"].contains(&&*method),
            "{request:?}"
        );
        let own = if method == "INVITE" { &*sdp } else { "" };
        talker.accept(&request, own);
        assert_eq!(daemon.calls()[0]["status"], "in_progress");
    }

    // From now on it answers nothing.
    let mut probes = 0;
    let bye = Deadline::after(Duration::from_secs(60)).poll(|| {
        let request = talker.soon()?;
        let method = request.method()?.to_owned();
        probes += usize::from(["UPDATE", "INVITE", "OPTIONS"].contains(&&*method));
        (method == "BYE").then_some(request)
    });
    assert!(bye.is_some(), "it is gone");
    assert!(probes >= 2, "it was asked twice");
    let record = daemon.record();
    assert_eq!(record["reason"], "media_silent", "{record}");
    assert_eq!(record["status"], "completed", "{record}");
}

#[test]
fn comfort_noise_rtcp_and_a_hold_are_no_silence() {
    let daemon = impatient().serve();
    for (case, direction) in [
        ("comfort noise", ""),
        ("RTCP", ""),
        ("held", "a=sendonly\r\n"),
    ] {
        let rtp = Rtp::new(PEER);
        let sdp = format!("{}{direction}", offer(rtp.address()));
        let (talker, answer) = call(&daemon, &sdp);
        let to = answer.media();
        let limit = Deadline::after(Duration::from_secs(4));
        while !limit.is_over() {
            match case {
                "comfort noise" => rtp.hum(to),
                "RTCP" => rtp.report(to),
                _ => {}
            }
            let request = talker.soon();
            let probe = request.filter(|request| request.method().is_some());
            assert_eq!(probe.map(|probe| probe.text()), None, "{case}");
        }
        assert_eq!(daemon.calls()[0]["status"], "in_progress", "{case}");
    }
}

#[test]
fn the_time_is_the_agents_own() {
    for (installation, agents, is_asked) in [("3600", 1, true), ("1", 0, false)] {
        let setup = impatient().set("TRUNKLINE__MEDIA__SILENCE_S", installation);
        let daemon = setup.serve();
        let path = format!("/phone/{}", daemon.setup.first_agent);
        let (status, agent) = daemon.change("PATCH", &path, &json!({"media_timeout_s": agents}));
        assert_eq!((status, &agent["media_timeout_s"]), (200, &json!(agents)));
        daemon.setup.settle();

        let rtp = Rtp::new(PEER);
        let (talker, _) = call(&daemon, &offer(rtp.address()));
        let limit = Deadline::after(Duration::from_secs(4));
        let probe = limit.poll(|| talker.soon()?.method().map(str::to_owned));
        assert_eq!(
            probe.is_some(),
            is_asked,
            "{installation} {agents}: {probe:?}"
        );
    }
}
