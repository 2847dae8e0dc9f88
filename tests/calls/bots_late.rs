//! The caller's audio over a network that holds packets up or swaps them: how much of the speech a bot gets.

use std::time::Duration;

use serde_json::json;

use crate::calls::bots::{Caller, set, setup};
use trunkline_testkit::bot::audio_of;
use trunkline_testkit::{BotCall, BotServer, Daemon, Deadline, http};

/// Packets of speech in each call: four seconds.
const PACKETS: u16 = 200;
/// Longer than any of the calls.
const LONGEST: Duration = Duration::from_secs(60);
/// Interval of packets.
const PACKET: Duration = Duration::from_millis(20);

/// Audio of a packet: its number in the second half, since the beginning may be blended with a concealment.
fn speech(number: u16) -> [u8; 160] {
    let [high, low] = number.to_be_bytes();
    let mut audio = [0x90; 160];
    audio[80..120].fill(high);
    audio[120..].fill(low);
    audio
}

fn number_of(audio: &[u8]) -> Option<u16> {
    let number = u16::from_be_bytes([*audio.get(80)?, *audio.get(120)?]);
    (audio[80..] == speech(number)[80..] && number < PACKETS).then_some(number)
}

/// Numbers of the speech in the frames that a bot gets until a key is pressed. No slot may be left out, or come twice.
fn heard(bot: &BotCall) -> Vec<u16> {
    let mut numbers = Vec::new();
    let mut last = None;
    loop {
        let event = bot.next();
        match event["event"].as_str() {
            Some("media") => {
                let timestamp = event["media"]["timestamp"].as_str();
                let timestamp: u64 = timestamp.expect("text").parse().expect("a number");
                let expected = last.map_or(timestamp, |last: u64| last + 20);
                assert_eq!(timestamp, expected);
                last = Some(timestamp);
                let audio = audio_of(&event);
                assert_eq!(audio.len(), 160);
                numbers.extend(number_of(&audio));
            }
            Some("dtmf") => return numbers,
            Some(_) | None => {}
        }
    }
}

/// Calls, says [`PACKETS`] words with the delay that the network gives to each, in milliseconds, and returns the share of them that reaches the bot.
fn share_heard(daemon: &Daemon, server: &BotServer, network: impl Fn(u16) -> u64) -> f64 {
    let caller = Caller::call(daemon);
    let bot = server.accepted();
    bot.event("start");

    const BEFORE: u16 = 10;
    let arrives = |number: &u16| u64::from(*number) * 20 + network(*number);
    let mut order: Vec<u16> = (0..PACKETS).collect();
    order.sort_by_key(arrives);

    let end = Deadline::after(LONGEST);
    let at = |milliseconds: u64| {
        let left = LONGEST.saturating_sub(Duration::from_millis(milliseconds));
        std::thread::sleep(end.left().saturating_sub(left));
    };
    let send = |number: u16, audio: &[u8]| caller.rtp.send_numbered(caller.to, 0, number, audio);
    // The address is learnt from four packets, which aren't passed on.
    for number in 0..BEFORE {
        at(u64::from(number) * 20);
        send(number, &[0xff; 160]);
    }
    for number in order {
        at(u64::from(BEFORE) * 20 + arrives(&number));
        send(BEFORE + number, &speech(number));
    }
    std::thread::sleep(PACKET * 5);
    caller.rtp.press(caller.to, 1);

    let heard = heard(&bot);
    assert!(heard.is_sorted_by(|one, other| one < other), "{heard:?}");
    bot.close();
    assert!(caller.talker.asked("BYE").is_some());
    heard.len() as f64 / f64::from(PACKETS)
}

#[test]
fn speech_that_a_network_holds_up_reaches_the_bot() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));

    /// Holds up what is sent in this time after a second.
    fn stalled(number: u16, milliseconds: u64) -> u64 {
        let sent = u64::from(number) * 20;
        let is_held = (1_000..1_000 + milliseconds).contains(&sent);
        if is_held {
            1_000 + milliseconds - sent
        } else {
            0
        }
    }

    type Network = fn(u16) -> u64;
    let cases: [(&str, Network, f64); 7] = [
        ("nothing wrong", |_| 0, 1.0),
        ("a stall of 200 ms", |number| stalled(number, 200), 1.0),
        ("of 300 ms", |number| stalled(number, 300), 1.0),
        ("of 500 ms", |number| stalled(number, 500), 1.0),
        ("of 1.5 s", |number| stalled(number, 1_500), 1.0),
        (
            "ten packets each 200 ms",
            |number| u64::from(9 - number % 10) * 20,
            1.0,
        ),
        // Until the stream is far enough ahead, the one behind its successor is lost.
        (
            "neighbours swapped",
            |number| if number % 2 == 0 { 22 } else { 0 },
            0.9,
        ),
    ];
    for (name, network, least) in cases {
        let share = share_heard(&daemon, &server, network);
        eprintln!(
            "{name}: {:.1} % of the speech reached the bot",
            share * 100.0
        );
        assert!(share >= least, "{name}: {share}");
    }
}

/// What can't be passed on shows in the record, in the score, and in a metric.
#[test]
fn speech_that_is_discarded_is_counted() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");

    // Three seconds of speech at once: two are passed on.
    const AT_ONCE: u16 = 150;
    // The key is the next in order: its number is 1,001.
    const FIRST: u16 = 1_001 - AT_ONCE;
    for sequence in FIRST - 10..FIRST {
        let silence = [0xff; 160];
        caller.rtp.send_numbered(caller.to, 0, sequence, &silence);
        std::thread::sleep(PACKET);
    }
    for number in 0..AT_ONCE {
        let (sequence, audio) = (FIRST + number, speech(number));
        caller.rtp.send_numbered(caller.to, 0, sequence, &audio);
    }
    std::thread::sleep(PACKET * 5);
    caller.rtp.press(caller.to, 1);
    let heard = heard(&bot);
    assert!((95..120).contains(&heard.len()), "{}", heard.len());
    bot.close();
    assert!(caller.talker.asked("BYE").is_some());

    let record = daemon.record();
    let received = &record["media"]["received"];
    let discarded = received["packets_discarded"].as_u64();
    let missing = u64::from(AT_ONCE) - heard.len() as u64;
    assert_eq!(discarded, Some(missing), "{received}");
    assert_eq!(received["packets_lost"], 0, "{received}");
    let mos = received["mos"].as_f64();
    assert!(mos.is_some_and(|mos| mos < 3.0), "{received}");

    let (_, page) = http::get(daemon.setup.http, "/metrics", None).expect("metrics");
    let line = format!("trunkline_media_packets_too_late_total {missing}");
    assert!(page.lines().any(|of| of == line), "{line}");
}

#[test]
fn comfort_noise_is_no_loss() {
    let daemon = setup().serve();
    let server = BotServer::start();
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let caller = Caller::call(&daemon);
    let bot = server.accepted();
    bot.event("start");

    // A caller with silence suppression: its pauses are comfort noise, with numbers of the same stream.
    for number in 0..40 {
        if number % 8 < 5 {
            caller.rtp.say(caller.to, &speech(number));
        } else {
            caller.rtp.hum(caller.to);
        }
        std::thread::sleep(PACKET);
    }
    bot.close();
    assert!(caller.talker.asked("BYE").is_some());

    let record = daemon.record();
    let received = &record["media"]["received"];
    assert!(received["packets"].as_u64() >= Some(15), "{received}");
    assert_eq!(received["packets_lost"], 0, "{received}");
}
