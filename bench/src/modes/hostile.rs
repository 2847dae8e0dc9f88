//! A bot that floods its call beside bots that speak: the lateness of the speakers' ticks without it and with it, and which calls end.
//!
//! A flooding bot loses its call within a moment, so that caller calls again and again: one such call is up all the time.

use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc;
use std::time::Duration;

use super::bench::{Fault, Setting};
use super::bots::{Stage, Ticks, dialler, set_up};
use crate::clock::seconds;
use crate::dial::Dialler;
use crate::report::Report;
use crate::voice::{Heard, Hostile, PREFIX, Voices};

/// Time within which a flooding bot has to lose its call; otherwise the run fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Calls of bots that speak.
    pub calls: u16,
    /// Seconds measured without the hostile bot, and as many with it.
    pub seconds: u64,
    /// Messages a second of the hostile bot.
    pub junk: u64,
}

/// Holds calls of bots that speak, and has another one flood the daemon.
///
/// # Errors
/// There is no daemon to load, or it answers no call.
pub fn hostile(setting: &Setting, attack: Attack) -> Result<Report, Fault> {
    let from = usize::from(attack.calls);
    let voices = Voices {
        message_ms: 40,
        hostile: Some(Hostile {
            from,
            rate: attack.junk,
        }),
    };

    // An ended call's port stays taken for a moment, and the hostile bot's caller calls again at once.
    let room = attack.calls + 200;
    let Stage {
        daemon,
        load,
        media,
        tell,
        ..
    } = &mut Stage::new(setting, room, voices)?;

    let phone = dialler(daemon, *media)?;
    set_up(load, phone, attack.calls, tell.clone())?;
    load.run(seconds(setting.warm_up.max(1)))?;

    load.heard = Heard::default();
    let before = Ticks::read(daemon)?;
    load.run(seconds(attack.seconds))?;
    let alone = Ticks::read(daemon)?.since(&before);
    let quiet = std::mem::take(&mut load.heard);

    let (gone, ended) = mpsc::channel();
    let (phone, tell) = (dialler(daemon, *media)?, tell.clone());
    let attacker = std::thread::spawn(move || call_again(phone, from, &tell, &ended));
    let before = Ticks::read(daemon)?;
    let turns = attack.seconds * 50;
    for _ in 0..turns {
        let so_far = load.heard.hostile_ended;
        load.run(20_000)?;
        for _ in so_far..load.heard.hostile_ended {
            // The phone ends before the last such message only if it has failed.
            let _ = gone.send(());
        }
    }

    let beside = Ticks::read(daemon)?.since(&before);
    let loud = load.heard.clone();
    let up = load.up();

    // Ends the attacker's wait. Its last call may still be on the way, and needs a bot that answers.
    drop(gone);
    while !attacker.is_finished() {
        load.run(20_000)?;
    }
    attacker
        .join()
        .map_err(|_| io::Error::other("the phone panicked"))??;
    load.hang_up();

    let mut report = Report::new(format!(
        "a bot with {} junk messages a second beside {} calls of bots, {} s without it and with it",
        attack.junk, attack.calls, attack.seconds
    ));
    report.count("calls_up", up as u64);

    for (late, to_bot, ticks, heard) in [
        (
            "ticks_late_p99_ms_at_most_without",
            "to_bot_p99_ms_without",
            &alone,
            &quiet,
        ),
        (
            "ticks_late_p99_ms_at_most_with",
            "to_bot_p99_ms_with",
            &beside,
            &loud,
        ),
    ] {
        match ticks.bound(0.99) {
            Some(bound) if bound.is_finite() => report.measure(late, bound * 1e3),
            Some(_) => report.beyond(late),
            None => report.fault("the daemon counts no ticks"),
        }
        report.measure(to_bot, heard.to_bot.quantile(0.99) as f64 / 1e3);
    }

    report.count("junk_messages", loud.junk);
    report.count("hostile_calls_ended", loud.hostile_ended);
    report.count("other_calls_ended", quiet.ended + loud.ended);

    if loud.hostile_ended == 0 {
        report.fault("no hostile call was ended");
    }
    if up != from || quiet.ended + loud.ended > 0 {
        report.fault(format!("{up} of the {from} other calls are up"));
    }
    Ok(report)
}

/// Calls, and calls again whenever the call has ended, until the load is over.
fn call_again(
    phone: Dialler,
    from: usize,
    tell: &mpsc::Sender<(usize, SocketAddrV4)>,
    ended: &mpsc::Receiver<()>,
) -> io::Result<()> {
    for place in from.. {
        let to = phone.call(&format!("{PREFIX}{place:07}"))?;
        if tell.send((place, to)).is_err() {
            return Ok(());
        }
        match ended.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(io::Error::other("a hostile call wasn't ended within 10 s"));
            }
        }
    }
    Ok(())
}
