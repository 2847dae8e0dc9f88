//! Wire protocol of bots: TLS, a slow handshake, Telnyx' names, bursts, marks, `clear`, and frames without a gap.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{Caller, refused, set, setup, token};
use trunkline_testkit::bot::{Handshake, audio_of};
use trunkline_testkit::talker::offer;
use trunkline_testkit::{Authority, BotCall, BotServer, Daemon, DaemonSetup, Deadline, http};

const MINUTE: usize = 60 * 8_000;
const SILENCE: u8 = 0xff;

/// Starts a daemon whose agent is this bot.
fn served_by(server: &BotServer) -> Daemon {
    let daemon = setup().serve();
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    daemon
}

/// Returns a setup that trusts this authority.
fn trusting(authority: &Authority) -> DaemonSetup {
    setup().set("TRUNKLINE__SIP__TLS_CA", &authority.path("ca.pem"))
}

fn timestamp(event: &Value) -> u64 {
    let timestamp = event["media"]["timestamp"].as_str();
    let timestamp = timestamp.expect("a timestamp in a string");
    timestamp.parse().expect("a number")
}

/// Returns the audio of the next frames, each of which has to begin 20 ms after the last.
fn next_frames(bot: &BotCall, frames: usize) -> Vec<Vec<u8>> {
    let first = bot.event("media");
    let mut expected = timestamp(&first);
    let mut heard = vec![audio_of(&first)];
    while heard.len() < frames {
        let frame = bot.event("media");
        expected += 20;
        assert_eq!(
            timestamp(&frame),
            expected,
            "no slot twice, and none left out"
        );
        heard.push(audio_of(&frame));
    }
    heard
}

/// Returns the sum of a metric's values over all labels.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    let (_, page) = http::get(daemon.setup.http, "/metrics", None).expect("metrics");
    let values = page.lines().filter(|line| line.starts_with(name));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

#[test]
fn a_bot_on_tls_proves_its_name_and_is_sent_a_signature() {
    let authority = Authority::new();
    authority.certify("bot", "127.0.0.1");
    let server = BotServer::secured(&authority, "bot");
    let daemon = trusting(&authority).serve();
    token(&daemon);
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));

    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    assert!(
        bot.head.contains("\r\nX-Twilio-Signature: "),
        "{}",
        bot.head
    );
    assert!(!bot.head.contains("permessage-deflate"), "{}", bot.head);

    bot.event("start");
    bot.play(&[0x23; 16_000]);
    assert!(caller.hears(0x91, |audio| *audio == [0x23; 160]));
    // It may hear before it is heard: its address is learnt from four packets.
    (0..8).for_each(|_| caller.rtp.say(caller.to, &[0x91; 160]));

    bot.until("the caller", |event| {
        event["event"] == "media" && audio_of(event) == [0x91; 160]
    });
    bot.close();
    assert!(caller.talker.asked("BYE").is_some());

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
}

#[test]
fn a_certificate_of_another_name_leads_to_the_next_runtime() {
    let authority = Authority::new();
    authority.certify("other", "127.0.0.99");
    let (wrong, right) = (BotServer::secured(&authority, "other"), BotServer::start());
    let daemon = trusting(&authority).serve();
    let both = json!({"type": "websocket", "uri": wrong.url, "fallbacks": [right.url]});
    set(&daemon, &both);
    let caller = Caller::call(&daemon);
    right.accepted().event("start");
    drop(caller);

    let call = daemon.calls().remove(0);
    let attempts = daemon.routing(&call)["attempts"].take();
    assert_eq!(attempts[0]["outcome"], "tls_failed", "{attempts}");
    assert_eq!(attempts[0]["target"], wrong.url, "{attempts}");
    let said = attempts[0]["explanation"].as_str().expect("a sentence");
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn an_authority_that_is_not_trusted_answers_no_call() {
    let authority = Authority::new();
    authority.certify("bot", "127.0.0.1");
    let server = BotServer::secured(&authority, "bot");
    let daemon = served_by(&server);
    let (answer, record, attempts) = refused(&daemon);
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(attempts[0]["outcome"], "tls_failed", "{attempts:?}");
}

#[test]
fn a_handshake_may_take_four_seconds() {
    let server = BotServer::with(Handshake {
        delay: Duration::from_secs(4),
        ..Handshake::default()
    });
    let daemon = served_by(&server);
    let _caller = Caller::call(&daemon);
    server.accepted().event("start");
}

#[test]
fn a_handshake_of_more_than_five_seconds_leads_to_the_next_runtime() {
    let slow = BotServer::with(Handshake {
        delay: Duration::from_secs(9),
        ..Handshake::default()
    });
    let next = BotServer::start();
    let daemon = setup().serve();
    let both = json!({"type": "websocket", "uri": slow.url, "fallbacks": [next.url]});
    set(&daemon, &both);
    let _caller = Caller::call(&daemon);
    next.accepted().event("start");
    let call = daemon.calls().remove(0);
    let attempts = daemon.routing(&call)["attempts"].take();
    assert_eq!(attempts[0]["outcome"], "timeout", "{attempts}");
}

#[test]
fn a_bot_that_checks_takes_its_own_token_alone() {
    let daemon = setup().serve();
    let token = token(&daemon);
    let strict = |token: &str| {
        BotServer::with(Handshake {
            token: Some(token.to_owned()),
            ..Handshake::default()
        })
    };
    let (wrong, right) = (strict("another"), strict(&token));
    let both = json!({"type": "websocket", "uri": wrong.url, "fallbacks": [right.url]});
    set(&daemon, &both);

    let _caller = Caller::call(&daemon);
    right.accepted().event("start");

    let call = daemon.calls().remove(0);
    let attempts = daemon.routing(&call)["attempts"].take();
    assert_eq!(attempts[0]["outcome"], "handshake_failed", "{attempts}");
}

#[test]
fn telnyx_has_names_of_its_own() {
    let daemon = setup().serve();
    let server = BotServer::start();
    let telnyx = json!({"type": "websocket", "uri": server.url, "protocol": "telnyx"});
    set(&daemon, &telnyx);
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    assert_eq!(
        bot.next(),
        json!({"event": "connected", "version": "1.0.0"})
    );

    let start = bot.next();
    assert_eq!(start["event"], "start", "{start}");
    assert_eq!(start["sequence_number"], "1", "{start}");

    let session = daemon.calls()[0]["session_id"].clone();
    let session = session.as_str().expect("an id").replace('-', "");
    let call = format!("CA{session}");
    assert_eq!(start["start"]["call_control_id"], call, "{start}");
    let format = json!({"encoding": "PCMU", "sample_rate": 8000, "channels": 1});
    assert_eq!(start["start"]["media_format"], format, "{start}");
    let parameters = &start["start"]["custom_parameters"];
    assert_eq!(parameters["direction"], "inbound", "{start}");
    let stream = &start["stream_id"];
    assert!(stream.is_string(), "{start}");

    // A bot of Telnyx sends no stream id.
    bot.say(&json!({"event": "media", "media": {"payload": "IyMj".repeat(1_000)}}));
    bot.say(&json!({"event": "mark", "mark": {"name": "played"}}));
    assert!(caller.hears(0x91, |audio| *audio == [0x23; 160]));
    let mark = bot.event("mark");
    assert_eq!(mark["mark"]["name"], "played", "{mark}");
    assert_eq!(&mark["stream_id"], stream, "{mark}");

    caller.rtp.press(caller.to, 5);
    assert_eq!(bot.event("dtmf")["dtmf"], json!({"digit": "5"}));

    bot.close();
    assert!(caller.talker.asked("BYE").is_some());
}

#[test]
fn ten_minutes_in_one_burst_are_kept_and_cleared_within_a_tick() {
    let server = BotServer::start();
    let daemon = served_by(&server);
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");
    bot.play(&[0x23; MINUTE]);

    for _ in 0..8 {
        bot.play(&[0x24; MINUTE]);
    }
    // One second short of ten minutes in all, so that none of it exceeds the limit.
    bot.play(&[0x25; MINUTE - 8_000]);
    bot.mark("end");
    bot.say(&json!({"event": "mark", "mark": {}}));
    assert!(caller.hears(0x91, |audio| *audio == [0x23; 160]));

    bot.clear();
    assert_eq!(bot.event("mark")["mark"]["name"], "end");

    // One packet fades out, then there is silence.
    let heard = || caller.rtp.audio();
    let fades = |audio: &Vec<u8>| audio[40..].iter().all(|octet| *octet == SILENCE);
    let faded = Deadline::after(Duration::from_secs(10)).poll(|| heard().filter(fades));
    let faded = faded.expect("it fades");
    assert_ne!(faded[0], SILENCE, "5 ms are still heard: {faded:?}");

    for _ in 0..20 {
        let audio = Deadline::after(Duration::from_secs(10)).poll(heard);
        assert_eq!(audio.expect("silence goes on"), [SILENCE; 160]);
    }
    bot.close();
    assert!(caller.talker.asked("BYE").is_some());
    daemon.record();

    let discarded = metric(&daemon, "trunkline_media_bot_octets_discarded_total");
    assert!(discarded.abs() < 0.5, "{discarded} octets are discarded");
    let junk = metric(&daemon, "trunkline_media_bot_junk_total");
    assert!((junk - 1.0).abs() < 0.5, "a mark without a name: {junk}");

    // Judged by the daemon's own ticks, which a busy machine doesn't change.
    let [sum, count] = ["sum", "count"]
        .map(|part| metric(&daemon, &format!("trunkline_media_clear_seconds_{part}")));
    assert!(
        (count - 1.0).abs() < 0.5 && sum <= 0.020,
        "{sum} s of {count}"
    );
}

#[test]
fn marks_come_back_at_the_frame_that_ends_their_audio() {
    let server = BotServer::start();
    let daemon = served_by(&server);
    let _caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");
    bot.mark("nothing waits");
    assert_eq!(bot.event("mark")["mark"]["name"], "nothing waits");

    // One burst of 400 ms each. The caller is silent, so each tick sends one frame to the bot, and the frames are the clock.
    bot.play(&[0x23; 160]);
    bot.mark("0");
    for name in ["1", "2", "2", "3"] {
        bot.play(&[0x23; 3_200]);
        bot.mark(name);
    }

    let (mut names, mut last, mut frames) = (Vec::new(), None, 0_u64);
    while names.len() < 5 {
        let event = bot.next();
        if event["event"] == "media" {
            frames += 1;
        }
        if event["event"] == "mark" {
            let name = event["mark"]["name"].as_str().expect("a name").to_owned();
            if let Some(before) = last.replace(frames) {
                let between = frames - before;
                // After a late tick two frames come at once, so that a mark may be one frame off.
                assert!((19..=21).contains(&between), "{name}: {between} frames");
            }
            names.push(name);
        }
    }
    assert_eq!(
        names,
        ["0", "1", "2", "2", "3"],
        "in order, equal names too"
    );
}

#[test]
fn a_hold_stops_neither_clock_nor_frames() {
    let server = BotServer::start();
    let daemon = served_by(&server);
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");
    assert!(
        next_frames(&bot, 10)
            .iter()
            .all(|frame| *frame == [SILENCE; 160])
    );

    bot.play(&[0x23; 1_600]);
    assert!(caller.hears(0x91, |audio| *audio == [0x23; 160]));

    // The caller's phone holds, first as in RFC 3264, then as in RFC 2543. It gets no audio meanwhile, not even what the bot says.
    let here = offer(caller.rtp.address());
    for held in [
        format!("{here}a=sendonly\r\n"),
        format!("{here}a=inactive\r\n"),
        here.replace("c=IN IP4 127.0.0.2", "c=IN IP4 0.0.0.0"),
    ] {
        let answer = caller.talker.offer(&held);
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        next_frames(&bot, 25);
        let waiting = std::iter::from_fn(|| caller.rtp.audio());
        assert!(waiting.take(200).count() < 200, "{held}");
        bot.play(&[0x55; 1_600]);
        next_frames(&bot, 10);
        assert_eq!(caller.rtp.audio(), None, "{held}");
        bot.mark("in the hold");
        assert_eq!(bot.event("mark")["mark"]["name"], "in the hold");
    }

    let answer = caller.talker.offer(&here);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    bot.play(&[0x23; 16_000]);
    assert!(
        caller.hears(0x91, |audio| *audio == [0x23; 160]),
        "it is back"
    );
    let first = timestamp(&bot.event("media"));
    next_frames(&bot, 5);
    // Ten frames before the holds, and at least 25 in each of the three.
    let passed = first / 20;
    assert!(passed >= 85, "the clock went on: {passed} frames");
}

#[test]
fn a_hold_by_the_api_stops_neither_clock_nor_frames() {
    let server = BotServer::start();
    let daemon = served_by(&server);
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");
    let call = daemon.answered_call();
    let here = offer(caller.rtp.address());

    for (command, direction) in [("hold", "a=sendonly"), ("resume", "a=sendrecv")] {
        let path = format!("/phone/calls/{call}/{command}");
        std::thread::scope(|scope| {
            // The API answers once the caller's phone has accepted the new offer.
            let asked = scope.spawn(|| daemon.change("POST", &path, &json!({})));
            let offered = caller.talker.asked("INVITE").expect("a re-INVITE");
            assert!(offered.body().contains(direction), "{command}: {offered}");
            caller.talker.accept(&offered, &here);
            let (status, body) = asked.join().expect("no panic");
            assert!(matches!(status, 200 | 202), "{command}: {status} {body}");
        });
        next_frames(&bot, 50);
        bot.mark(command);
        assert_eq!(bot.event("mark")["mark"]["name"], command);
    }
}
