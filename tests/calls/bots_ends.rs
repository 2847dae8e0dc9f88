//! Bots that die: before the answer, inside the call, without a close frame. The agent's settings decide what follows.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::bots::{Caller, set, setup};
use trunkline_testkit::{BotCall, BotServer, Daemon, Deadline, http};

/// Longer than the ten seconds after which a bot that acknowledges nothing counts as gone.
const GONE: Duration = Duration::from_secs(25);

/// Calls an agent with two bots; the first one takes the call.
fn called(on_close: &str) -> (Daemon, Caller, BotCall, BotServer) {
    let (first, second) = (BotServer::start(), BotServer::start());
    let daemon = setup().serve();
    let both = json!({
        "type": "websocket", "uri": first.url, "fallbacks": [second.url], "on_close": on_close,
    });
    set(&daemon, &both);
    let caller = Caller::call(&daemon);
    let bot = first.accepted();
    bot.event("start");
    (daemon, caller, bot, second)
}

/// Returns whether the metrics count a bot's end with this cause.
fn ended(daemon: &Daemon, cause: &str) -> bool {
    let counted = Deadline::after(GONE).poll(|| {
        let (_, page) = http::get(daemon.setup.http, "/metrics", None).expect("metrics");
        let of = format!("trunkline_media_bot_ends_total{{cause=\"{cause}\"}}");
        let line = page.lines().find(|line| line.starts_with(&of))?;
        (!line.ends_with(" 0")).then_some(())
    });
    counted.is_some()
}

#[test]
fn a_bot_that_closes_hangs_up() {
    let (daemon, caller, bot, second) = called("hang_up");
    bot.close();
    let bye = caller.talker.asked("BYE").expect("the call ends");
    caller.talker.accept(&bye, "");
    assert!(bot.is_over());
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "agent", "{record}");
    assert_eq!(second.dialled(), 0);
    assert!(outcomes(&daemon, &record).is_empty(), "it hung up");
}

#[test]
fn the_next_bot_takes_the_call_of_one_that_dies() {
    let (daemon, caller, bot, second) = called("next_runtime");
    bot.play(&[0x23; 80_000]);
    assert!(caller.hears(0x91, |audio| *audio == [0x23; 160]));
    let session = |bot: &BotCall, start: Option<Value>| {
        let start = start.unwrap_or_else(|| bot.event("start"));
        start["start"]["customParameters"]["session_id"].clone()
    };
    drop(bot);

    let next = second.accepted();
    assert_eq!(next.next()["event"], "connected");
    let start = next.next();
    assert_eq!(start["event"], "start", "{start}");

    let call = daemon.calls().remove(0);
    assert_eq!(session(&next, Some(start)), call["session_id"]);
    // The second bot has a clock of its own, and gets none of the first bot's audio.
    let frame = next.event("media");
    assert_eq!(frame["media"]["timestamp"], "0", "{frame}");

    next.play(&[0x24; 8_000]);
    let late = Cell::new(0);
    assert!(caller.hears(0x91, |audio| {
        late.set(late.get() + usize::from(*audio == [0x23; 160]));
        *audio == [0x24; 160]
    }));

    // It had 500 to play when it died. On a busy machine many of them have come before it was noticed.
    let late = late.get();
    assert!(late < 400, "{late} packets of the dead bot");
    next.close();
    assert!(caller.talker.asked("BYE").is_some(), "no third one");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    // The first bot's end in the call is an attempt that failed, and the second one's answer the next.
    assert_eq!(outcomes(&daemon, &record), ["disconnected", "answered"]);
}

/// Outcomes of the attempts at a call's targets.
fn outcomes(daemon: &Daemon, record: &Value) -> Vec<String> {
    let call = record["id"].as_str().expect("an id");
    let routing = daemon.shown(&format!("/phone/calls/{call}/routing"));
    let attempts = routing["attempts"].as_array().cloned().unwrap_or_default();
    attempts
        .iter()
        .map(|attempt| attempt["outcome"].as_str().expect("an outcome").to_owned())
        .collect()
}

#[test]
fn a_dead_bot_followed_by_a_dead_one_ends_the_call() {
    let (first, daemon) = (BotServer::start(), setup().serve());
    let nobody = format!(
        "ws://127.0.0.1:{}/",
        trunkline_testkit::process::free_port()
    );
    let both = json!({
        "type": "websocket", "uri": first.url, "fallbacks": [nobody], "on_close": "next_runtime",
    });
    set(&daemon, &both);
    let caller = Caller::call(&daemon);
    let bot = first.accepted();
    bot.event("start");
    drop(bot);
    assert!(caller.talker.asked("BYE").is_some());

    let record = daemon.record();
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
    assert_eq!(
        outcomes(&daemon, &record),
        ["disconnected", "connection_refused"]
    );
}

/// A machine that lost power, or a cable that was pulled: nothing comes back, not even a reset.
#[test]
fn a_half_open_connection_is_noticed_and_the_next_bot_takes_over() {
    let (daemon, caller, bot, second) = called("next_runtime");
    bot.vanish();
    // The caller keeps talking; frames would be sent without it as well.
    let taken = Deadline::after(GONE).poll(|| {
        caller.rtp.say(caller.to, &[0x91; 160]);
        (second.dialled() == 1).then_some(())
    });
    assert!(taken.is_some(), "the first bot is given up");
    second.accepted().event("start");
    // The queue fills before the kernel gives up the peer after ten seconds; since nothing was acknowledged, the cause is still `lost`.
    assert!(ended(&daemon, "lost"));
}

#[test]
fn a_bot_that_reads_nothing_ends_its_call() {
    let (daemon, caller, bot, _second) = called("hang_up");
    bot.stall();

    // The bot's marks come back beside the audio, so the connection fills within seconds.
    let mut marks = 0;
    let ended_by = Deadline::after(GONE).poll(|| {
        for _ in 0..20 {
            bot.mark(&"x".repeat(1_000));
            marks += 1;
        }
        caller.rtp.say(caller.to, &[0x91; 160]);
        let call = daemon.calls().remove(0);
        (call["status"] != "in_progress").then_some(())
    });
    assert!(ended_by.is_some(), "{marks} marks");
    assert!(ended(&daemon, "too_slow"));

    let record = daemon.record();
    assert_eq!(record["hangup_by"], "agent", "{record}");
    assert_eq!(outcomes(&daemon, &record), ["disconnected"]);
}
