//! Bots that flood, beside well-behaved ones; and a daemon that is killed while bots speak.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{Caller, set, setup, token};
use trunkline_testkit::bot::{BotSender, audio_of, text};
use trunkline_testkit::{BotCall, BotServer, Daemon, Deadline};

/// Calls beside a hostile one, and calls that are up when the daemon is killed.
const GOOD: usize = 8;

/// Makes an agent with a bot and a number of its own.
fn agent(daemon: &Daemon, name: &str, server: &BotServer, number: &str) {
    let setup = &daemon.setup;
    let made = setup.run(&[
        "agent",
        "create",
        "--org",
        &setup.org,
        "--name",
        name,
        "--runtime",
        &server.url,
        "--json",
    ]);
    setup.assign(number, made["id"].as_str().expect("an id"));
    setup.settle();
}

/// Floods from one bot: bursts of a hundred frames, a hundred times a second, until its connection is closed.
fn flood(bot: &BotSender, frame: &[u8], is_over: &AtomicBool) -> usize {
    let burst = frame.repeat(100);
    let mut frames = 0;
    while !is_over.load(Ordering::Relaxed) && bot.send(burst.clone()) {
        frames += 100;
        std::thread::sleep(Duration::from_millis(10));
    }
    frames
}

/// Checks a good call while another floods: every slot comes once, and the caller's audio arrives.
fn is_undisturbed(bot: &BotCall, caller: &Caller) {
    let timestamp = |event: &Value| -> u64 {
        let timestamp = event["media"]["timestamp"].as_str().expect("a timestamp");
        timestamp.parse().expect("a number")
    };
    let mut expected = timestamp(&bot.event("media"));
    bot.play(&[0x23; 16_000]);
    bot.mark("played");

    // Frames queued earlier are only checked for their order.
    let (mut heard, mut spoken) = (0, false);
    let done = Deadline::after(Duration::from_secs(20)).poll(|| {
        caller.rtp.say(caller.to, &[0x91; 160]);
        while let Some(event) = bot.within(Duration::from_millis(1)) {
            spoken |= event["event"] == "mark";
            if event["event"] == "media" {
                expected += 20;
                assert_eq!(timestamp(&event), expected);
                heard += usize::from(audio_of(&event) == [0x91; 160]);
            }
        }
        (heard > 20 && spoken).then_some(())
    });
    assert!(done.is_some(), "{heard} frames of the caller, {spoken}");
}

#[test]
fn ten_thousand_junk_frames_a_second_end_their_own_call_alone() {
    let (good, hostile) = (BotServer::start(), BotServer::start());
    let daemon = setup().serve();
    agent(&daemon, "Hostile", &hostile, "+442071838760");
    set(&daemon, &json!({"type": "websocket", "uri": good.url}));
    let calls: Vec<_> = (0..GOOD)
        .map(|_| {
            let caller = Caller::call(&daemon);
            let bot = good.accepted();
            bot.event("start");
            (bot, caller)
        })
        .collect();

    let coffee = text(&json!({"event": "coffee"}));
    // Empty audio costs as much to read as any, and a bot may send it.
    let nothing = text(&json!({"event": "media", "media": {"payload": "I"}}));
    let silence = text(&json!({"event": "media", "media": {"payload": "////"}}));

    for (case, frame, is_borne) in [
        ("unknown events", &coffee, false),
        ("audio that is none", &nothing, false),
        ("audio in crumbs", &silence, true),
    ] {
        let caller = Caller::dial(&daemon, "+442071838760");
        let bot = hostile.accepted();
        bot.event("start");
        let is_over = AtomicBool::new(false);
        let sender = bot.sender();
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| flood(&sender, frame, &is_over));
            for (bot, caller) in &calls {
                is_undisturbed(bot, caller);
            }
            if !is_borne {
                let bye = caller.talker.asked("BYE");
                assert!(bye.is_some(), "{case}: its own call ends");
            }
            is_over.store(true, Ordering::Relaxed);
            let frames = flooding.join().expect("no panic");
            assert!(frames > 500, "{case}: {frames} frames");
        });
    }

    let up = daemon.calls();
    let up = up.iter().filter(|call| call["status"] == "in_progress");
    assert!(up.count() >= GOOD, "the others go on");
}

#[test]
fn calls_of_bots_are_on_record_after_a_kill() {
    let server = BotServer::start();
    let mut daemon = setup().serve();
    let token = token(&daemon);
    set(&daemon, &json!({"type": "websocket", "uri": server.url}));
    let calls: Vec<_> = (0..GOOD)
        .map(|_| {
            let caller = Caller::call(&daemon);
            let bot = server.accepted();
            let start = bot.event("start");
            (caller, bot, start)
        })
        .collect();

    // One call ends by the endpoint, whose answer is binding.
    let start = &calls[0].2["start"];
    let [account, call] = ["accountSid", "callSid"].map(|field| start[field].as_str());
    let (account, call) = account.zip(call).expect("both");
    let path = format!("/2010-04-01/Accounts/{account}/Calls/{call}.json");
    let http = daemon.setup.http;
    let (status, body) =
        trunkline_testkit::http::form(http, &path, account, &token, "Status=completed");
    assert_eq!(status, 200, "{body}");
    daemon.process.kill();

    for (_, bot, _) in &calls {
        assert!(bot.is_over(), "its connection ends with the process");
    }

    daemon.process = daemon.setup.start();
    let recorded = Deadline::after(Duration::from_secs(30)).poll(|| {
        let calls = daemon.calls();
        let are_over = calls.iter().all(|call| !call["ended_at"].is_null());
        (calls.len() == GOOD && are_over).then_some(calls)
    });
    let recorded = recorded.unwrap_or_else(|| panic!("{:?}", daemon.calls()));

    for (number, (_, _, start)) in calls.iter().enumerate() {
        let session = &start["start"]["customParameters"]["session_id"];
        let of_it = recorded.iter().find(|call| call["session_id"] == *session);
        let record = of_it.expect("each call has its record");
        assert!(record["answered_at"].is_string(), "{record}");

        let expected = match number {
            0 => "completed",
            _ => "lost",
        };
        assert_eq!(record["status"], expected, "call {number}: {record}");
    }

    // A new call reaches the bot again.
    let _caller = Caller::call(&daemon);
    server.accepted().event("start");
}
