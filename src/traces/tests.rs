//! Tests of traces: calls, unauthenticated peers, memory and disk.

use std::time::Duration;

use super::*;
use trunkline_sip::flow::{Flow, Transport};

mod retained;

const NEVER: Moment = Moment::from_secs(0);
const ALWAYS: Moment = Moment::from_secs(1 << 40);

/// The tests' messages are of the first seconds.
fn clock() -> Moment {
    Moment::from_secs(205)
}

fn flow() -> Flow {
    Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: "127.0.0.1:5060".parse().unwrap(),
        peer: "127.0.0.1:5070".parse().unwrap(),
    }
}

fn message(start: &str, call_id: &str, filling: usize) -> Vec<u8> {
    format!(
        "{start}\r\ni: {call_id}\r\nX: {}\r\n\r\n",
        "x".repeat(filling)
    )
    .into_bytes()
}

fn disk(directory: &tempfile::TempDir) -> Disk {
    Disk {
        directory: directory.path().join("traces"),
        max_bytes: 1 << 30,
        retention: Duration::from_secs(3_600),
    }
}

/// Leaves a message, and has it picked up.
fn pass(traces: &Traces, tap: &mut Tap, at: Moment, is_sent: bool, octets: &[u8]) {
    tap.note(at, flow(), is_sent, octets);
    tap.hand_on();
    traces.sweep(at);
    traces.write(at);
}

/// Removes the messages of these calls, and returns their number.
fn forget(traces: &Traces, legs: &[CallLegs]) -> io::Result<u64> {
    let mut gone = 0;
    traces.forget(legs, &mut gone).map(|()| gone)
}

fn found(traces: &Traces, call_id: &str) -> FoundMessages {
    traces.of(&[call_id], NEVER, ALWAYS)
}

#[test]
fn a_call_finds_its_messages_in_their_order() {
    let traces = Traces::unattended(2, None, None, clock).unwrap();
    let mut taps = [traces.tap(0), traces.tap(1)];
    for second in 0..4 {
        let id = if second % 2 == 0 { "a@b" } else { "c@d" };
        let octets = message("INVITE sip:a SIP/2.0", id, 1);
        taps[0].note(Moment::from_secs(second), flow(), second == 2, &octets);
        taps[0].hand_on();
    }

    taps[1].note(Moment::from_secs(9), flow(), false, b"rubbish");
    taps[1].hand_on();

    let messages = found(&traces, "a@b").messages;
    assert_eq!(messages.len(), 2);
    assert_eq!(
        (messages[0].0, messages[0].1.at, messages[0].1.source.port()),
        (false, 0, 5070)
    );
    assert_eq!(
        (messages[1].0, messages[1].1.at, messages[1].1.source.port()),
        (true, 2_000_000, 5060)
    );
    assert_eq!(found(&traces, "nobody"), FoundMessages::default());

    let later = traces.of(&["a@b", "c@d"], Moment::from_secs(1), Moment::from_secs(2));
    assert_eq!(later.messages.len(), 2);
}

#[test]
fn who_ends_leaves_all_beside_what_waits() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    for (at, left) in [(1, false), (2, true)] {
        let octets = message("INVITE sip:a SIP/2.0", "a@b", tap::PICK_UP_SIZE);
        tap.note(Moment::from_secs(at), flow(), false, &octets);
        assert!(tap.is_due(Moment::from_secs(at)));
        match left {
            true => tap.leave(),
            false => tap.hand_on(),
        }
        assert!(!tap.is_due(Moment::from_secs(at)));
    }
    assert_eq!(found(&traces, "a@b").messages.len(), 2);
}

#[test]
fn little_is_due_when_it_has_waited() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    assert!(!tap.is_due(now));
    tap.note(now, flow(), false, b"little");
    assert!(!tap.is_due(now));
    assert!(tap.is_due(now + SWEEP_INTERVAL));
}

#[test]
fn what_has_become_a_call_is_kept_with_the_calls_alone() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    for (call_id, is_sent) in [("call", false), ("stranger", false), ("call", true)] {
        let start = match is_sent {
            true => "SIP/2.0 100 Trying",
            false => "INVITE sip:a SIP/2.0",
        };
        pass(&traces, &mut tap, now, is_sent, &message(start, call_id, 1));
    }

    for seconds in [10, 20] {
        traces.sweep(Moment::from_secs(seconds));
    }

    let kept = lock(&traces.kept);
    let of_strangers: Vec<u8> = kept
        .unmatched
        .closed
        .iter()
        .flat_map(|block| block.unpack())
        .collect();
    let call_ids: Vec<&[u8]> = record::records(&of_strangers)
        .map(|record| scan::call_id(record.octets))
        .collect();
    assert_eq!(call_ids, [b"stranger"]);
    drop(kept);
    assert_eq!(found(&traces, "call").messages.len(), 2);
    assert_eq!(found(&traces, "stranger").messages.len(), 1);

    lock(&traces.kept).forget();
    assert_eq!(found(&traces, "call").messages.len(), 2);
}

#[test]
fn strangers_push_out_strangers_and_no_call() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    let invite = message("INVITE sip:a SIP/2.0", "call", 1);
    pass(&traces, &mut tap, now, false, &invite);

    let trying = message("SIP/2.0 100 Trying", "call", 1);
    pass(&traces, &mut tap, now, true, &trying);
    for at in 0..4_000 {
        // Noise can't be compressed.
        let noise: String = (0..600).map(|_| rand::random_range('!'..='~')).collect();
        let start = format!("INVITE sip:{noise} SIP/2.0");
        let octets = message(&start, &format!("stranger {at}"), 1);
        pass(&traces, &mut tap, now, false, &octets);
    }

    assert_eq!(found(&traces, "call").messages.len(), 2);
    assert!(found(&traces, "stranger 0").messages.is_empty());
    assert_eq!(found(&traces, "stranger 3999").messages.len(), 1);

    let kept = lock(&traces.kept);
    let sizes = kept.unmatched.closed.iter().map(|block| block.size());
    assert_eq!(sizes.sum::<usize>(), kept.unmatched.held);
    assert!(kept.unmatched.held <= UNMATCHED_OCTETS);
}

#[test]
fn what_came_before_it_was_a_call_is_taken_along_from_the_block_before() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    let invite = message("INVITE sip:a SIP/2.0", "call", 1);
    pass(&traces, &mut tap, now, false, &invite);
    for at in 0..block::FULL / 1_000 + 1 {
        let octets = message("INVITE sip:a SIP/2.0", &format!("stranger {at}"), 1_000);
        pass(&traces, &mut tap, now, false, &octets);
    }

    let challenge = message("SIP/2.0 401 Unauthorized", "call", 1);
    pass(&traces, &mut tap, now, true, &challenge);

    let trying = message("SIP/2.0 100 Trying", "call", 1);
    pass(&traces, &mut tap, now, true, &trying);

    let kept = lock(&traces.kept);
    assert!(kept.unmatched.full.began().is_some(), "a block was filled");

    let all = BlockQuery {
        keys: None,
        from: NEVER,
        until: ALWAYS,
    };
    let of_calls: Vec<_> = kept.calls.open.records(&all).collect();
    assert_eq!(of_calls.len(), 3);
    assert!(of_calls[0].octets.starts_with(b"INVITE"));
}

#[test]
fn what_no_file_holds_yet_is_found_however_much_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk), None, clock).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    for at in 0..2_000 {
        let noise: String = (0..600).map(|_| rand::random_range('!'..='~')).collect();
        let octets = message(
            &format!("INVITE sip:{noise} SIP/2.0"),
            &format!("call {at}"),
            1,
        );
        tap.note(now, flow(), true, &octets);
        tap.hand_on();
        traces.sweep(now);
    }
    assert_eq!(found(&traces, "call 0").messages.len(), 1);
    traces.write(now);

    assert_eq!(found(&traces, "call 0").messages.len(), 1);
    assert_eq!(lock(&traces.kept).calls.held, 0, "files hold them");
}

#[test]
fn what_no_file_takes_stays_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    std::fs::remove_dir_all(&disk.directory).unwrap();

    let mut tap = traces.tap(0);
    for at in [1, 100] {
        let octets = message("INVITE sip:a SIP/2.0", &format!("call {at}"), 1);
        pass(&traces, &mut tap, Moment::from_secs(at), true, &octets);
        let later = Moment::from_secs(at) + AGE;
        traces.sweep(later);
        traces.write(later);
    }
    assert!(lock(&traces.kept).unwritten.is_empty());

    for call_id in ["call 1", "call 100"] {
        assert_eq!(found(&traces, call_id).messages.len(), 1, "{call_id}");
    }
    std::fs::create_dir(&disk.directory).unwrap();

    let octets = message("INVITE sip:a SIP/2.0", "late", 1);
    pass(&traces, &mut tap, Moment::from_secs(190), true, &octets);
    traces.finish();
    for call_id in ["call 1", "call 100", "late"] {
        assert_eq!(found(&traces, call_id).messages.len(), 1, "{call_id}");
    }
}

#[test]
fn one_call_shows_no_more_than_its_share() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    for second in 0..300 {
        let octets = message("INFO sip:a SIP/2.0", "long", 8_000);
        pass(&traces, &mut tap, Moment::from_secs(second), true, &octets);
    }
    let found = found(&traces, "long");
    assert!(found.is_cut && found.messages.len() > 100);
    let first = (0..found.messages.len() as u64).map(|second| second * 1_000_000);
    let times = found.messages.iter().map(|(_, captured)| captured.at);
    assert!(times.eq(first));
}

#[test]
fn one_call_id_takes_no_more_than_its_share_of_the_traces() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let mut pass = |start: &str, id: &str, filling: usize, second: u64| {
        let (octets, is_sent) = (message(start, id, filling), start.starts_with("INVITE"));
        pass(
            &traces,
            &mut tap,
            Moment::from_secs(second),
            is_sent,
            &octets,
        );
    };
    pass("INVITE sip:a SIP/2.0", "flood", 1, 0);
    for second in 1..1_000 {
        pass("OPTIONS sip:a SIP/2.0", "flood", 8_000, second);
    }
    pass("INVITE sip:a SIP/2.0", "other", 1, 1_000);

    let (mut flooded, mut others) = (0, 0);
    traces
        .each_within(NEVER, ALWAYS, &mut |_, _, octets| match octets
            .windows(5)
            .any(|text| text == b"flood")
        {
            true => flooded += octets.len(),
            false => others += 1,
        })
        .unwrap();
    assert!((3 << 20..=4 << 20).contains(&flooded), "{flooded}");
    assert_eq!(others, 1);
}

#[test]
fn calls_are_found_on_disk_by_who_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let before = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    let mut tap = before.tap(0);
    for second in 100..200 {
        let id = format!("call {second}");
        let octets = message("INVITE sip:a SIP/2.0", &id, 300);
        pass(&before, &mut tap, Moment::from_secs(second), false, &octets);
        let octets = message("SIP/2.0 180 Ringing", &id, 300);
        pass(&before, &mut tap, Moment::from_secs(second), true, &octets);
    }

    assert_eq!(
        found(&before, "call 150").messages.len(),
        2,
        "none is twice"
    );

    before.finish();
    drop(before);

    let after = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    for second in 100..200 {
        assert_eq!(
            found(&after, &format!("call {second}")).messages.len(),
            2,
            "{second}"
        );
    }

    let none = after.of(&["call 150"], Moment::from_secs(160), ALWAYS);
    assert!(none.messages.is_empty());

    // A file that was cut short is read up to there, and old files are removed.
    let file = std::fs::read_dir(&disk.directory).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let octets = std::fs::read(&path).unwrap();
    std::fs::write(&path, &octets[..octets.len() - 10]).unwrap();

    assert_eq!(found(&after, "call 100").messages.len(), 2);
    assert!(found(&after, "call 199").messages.is_empty());

    let mut tap = after.tap(0);
    let late = Moment::from_secs(4_000_000_000);
    let octets = message("BYE sip:a SIP/2.0", "late", 1);
    pass(&after, &mut tap, late, true, &octets);
    pass(&after, &mut tap, late + AGE, true, &octets);

    assert!(!path.exists(), "what is old is removed");
    assert!(found(&after, "call 100").messages.is_empty());
}

/// No later message makes room on an idle node: the last file goes by itself, whether it is being written or was left by an earlier process.
#[test]
fn the_last_file_is_removed_when_it_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let files = || std::fs::read_dir(&disk.directory).unwrap().count();
    let written = Moment::from_secs(100);

    let traces = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    pass(&traces, &mut traces.tap(0), written, true, &octets);
    traces.finish();
    assert_eq!(found(&traces, "a@b").messages.len(), 1);
    traces.write(written + disk.retention);
    assert_eq!(files(), 1);
    traces.write(written + disk.retention + AGE);
    assert_eq!(files(), 0);
    assert!(found(&traces, "a@b").messages.is_empty());

    let octets = message("INVITE sip:a SIP/2.0", "c@d", 1);
    pass(&traces, &mut traces.tap(0), clock(), true, &octets);
    traces.finish();
    assert_eq!(files(), 1, "another file begins");
    assert_eq!(found(&traces, "c@d").messages.len(), 1);

    let again = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    assert_eq!(found(&again, "c@d").messages.len(), 1);
    again.write(ALWAYS);
    assert_eq!(files(), 0);
}

/// A caller chooses its Call-ID. One that is a part of every INVITE, or another caller's Call-ID, must not remove other calls' messages.
#[test]
fn a_call_id_of_the_callers_choice_removes_its_own_dialog_alone() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let invite = |call_id: &str, tag: &str| {
        let text = format!(
            "INVITE sip:a SIP/2.0\r\nVia: x\r\nFrom: <sip:b>;tag={tag}\r\nTo: <sip:a>\r\nCall-ID: {call_id}\r\n\r\n"
        );
        text.into_bytes()
    };
    for (at, call_id, tag) in [
        (10, "sip", "hostile"),
        (11, "theirs@x", "first"),
        (12, "sip", "another tenant's"),
    ] {
        let octets = invite(call_id, tag);
        pass(&traces, &mut tap, Moment::from_secs(at), false, &octets);
    }

    // A header that is like ours, received.
    let forged = b"INVITE sip:r SIP/2.0\r\ni: forged\r\nX-PLATFORM-SESSION-ID: 5e55\r\n\r\n";
    pass(&traces, &mut tap, Moment::from_secs(13), false, forged);

    let legs = CallLegs {
        peer_call_id: Some("sip".to_owned()),
        began: Moment::from_secs(10),
        call_ids: Vec::new(),
        session_line: Some("X-PLATFORM-SESSION-ID: 5e55".to_owned()),
        from: Moment::from_secs(5),
        until: Moment::from_secs(20),
    };
    assert_eq!(forget(&traces, std::slice::from_ref(&legs)).unwrap(), 1);
    let left = |call_id: &str| found(&traces, call_id).messages.len();
    assert_eq!((left("sip"), left("theirs@x"), left("forged")), (1, 1, 1));

    // Of a call whose INVITE is no longer there, the rest goes by its Call-ID.
    let bye = message("BYE sip:a SIP/2.0", "long@x", 1);
    pass(&traces, &mut tap, Moment::from_secs(14), false, &bye);
    let legs = CallLegs {
        peer_call_id: Some("long@x".to_owned()),
        ..legs
    };
    assert_eq!(forget(&traces, &[legs]).unwrap(), 1);
}

/// Legs of one call in memory and on disk are removed; other calls, and the same Call-ID at another time, stay.
#[test]
fn the_messages_of_a_call_are_forgotten_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    for is_on_disk in [false, true] {
        let kept = is_on_disk.then(|| disk(&directory));
        let traces = Traces::unattended(1, kept, None, clock).unwrap();
        let mut tap = traces.tap(0);
        let runtime = b"INVITE sip:r SIP/2.0\r\ni: leg@us\r\nX-PLATFORM-SESSION-ID: 5e55\r\n\r\n";
        for (call_id, is_sent) in [("a@b", false), ("c@d", true)] {
            let octets = message("INVITE sip:+442071838750 SIP/2.0", call_id, 300);
            pass(&traces, &mut tap, Moment::from_secs(10), is_sent, &octets);
        }
        pass(&traces, &mut tap, Moment::from_secs(11), true, runtime);
        traces.sweep(Moment::from_secs(16));
        traces.write(Moment::from_secs(16));
        for (at, start) in [(17, "BYE sip:+442071838750"), (100, "INVITE sip:a")] {
            let octets = message(&format!("{start} SIP/2.0"), "a@b", 1);
            pass(&traces, &mut tap, Moment::from_secs(at), true, &octets);
        }

        let legs = CallLegs {
            peer_call_id: Some("a@b".to_owned()),
            began: Moment::from_secs(10),
            call_ids: Vec::new(),
            session_line: Some("X-PLATFORM-SESSION-ID: 5e55".to_owned()),
            from: Moment::from_secs(5),
            until: Moment::from_secs(20),
        };
        assert_eq!(forget(&traces, std::slice::from_ref(&legs)).unwrap(), 3);
        let left = |call_id: &str| found(&traces, call_id).messages.len();
        assert_eq!((left("a@b"), left("c@d"), left("leg@us")), (1, 1, 0));
        assert_eq!(forget(&traces, &[legs]).unwrap(), 0, "again");

        // Messages written from now on are found.
        let octets = message("INVITE sip:e SIP/2.0", "e@f", 1);
        pass(&traces, &mut tap, Moment::from_secs(101), true, &octets);
        traces.finish();
        assert_eq!(left("e@f"), 1);
        if is_on_disk {
            let again = Traces::unattended(1, Some(disk(&directory)), None, clock);
            let again = again.unwrap();
            let left = [("a@b", 1), ("c@d", 1), ("leg@us", 0), ("e@f", 1)];
            for (call_id, count) in left {
                assert_eq!(found(&again, call_id).messages.len(), count, "{call_id}");
            }
        }
    }
}

/// A segment that can't be read has messages all the same: neither an erasure nor a trace may pass over it.
#[test]
fn a_segment_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    let mut tap = traces.tap(0);
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    pass(&traces, &mut tap, Moment::from_secs(10), true, &octets);
    traces.finish();

    let file = std::fs::read_dir(&disk.directory).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let aside = directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    // A directory can be opened like a file, and then fails to be read.
    std::fs::create_dir(&path).unwrap();

    let legs = CallLegs {
        peer_call_id: None,
        began: Moment::from_secs(10),
        call_ids: vec!["a@b".to_owned()],
        session_line: None,
        from: NEVER,
        until: ALWAYS,
    };
    assert!(forget(&traces, std::slice::from_ref(&legs)).is_err());
    assert!(found(&traces, "a@b").is_cut);
    assert!(traces.begun(b"a@b", NEVER, ALWAYS).is_err());

    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(forget(&traces, &[legs]).unwrap(), 1);

    // A file that is gone has nothing to erase.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found(&traces, "a@b"), FoundMessages::default());
}

/// A leg may have more messages than a trace shows, so that the BYE which leads to the next leg isn't shown.
#[test]
fn the_leg_after_a_long_one_is_forgotten_too() {
    let traces = Traces::unattended(1, None, None, clock).unwrap();
    let mut tap = traces.tap(0);
    let mut pass_at = |second, is_sent, start: &str, lines: &str| {
        let octets = format!("{start} SIP/2.0\r\n{lines}\r\n\r\n").into_bytes();
        pass(
            &traces,
            &mut tap,
            Moment::from_secs(second),
            is_sent,
            &octets,
        );
    };
    let theirs = "Call-ID: first@x\r\nFrom: <sip:b>;tag=theirs\r\nTo: <sip:a>";
    let filling = "x".repeat(8_000);
    pass_at(10, false, "INVITE sip:a", theirs);
    pass_at(
        11,
        true,
        "SIP/2.0 200 OK\r\nX:",
        &format!("{theirs};tag=ours"),
    );
    for number in 0..200 {
        let lines = format!("{theirs};tag=ours\r\nX: {number}{filling}");
        pass_at(12, false, "INFO sip:a", &lines);
    }

    let replaces = "Call-ID: second@x\r\nFrom: <sip:c>;tag=others\r\nTo: <sip:a>\r\nReplaces: first@x;to-tag=ours;from-tag=theirs";
    pass_at(13, false, "INVITE sip:a", replaces);
    let bye = "Call-ID: first@x\r\nFrom: <sip:a>;tag=ours\r\nTo: <sip:b>;tag=theirs";
    pass_at(14, true, "BYE sip:b", bye);
    assert!(found(&traces, "first@x").is_cut);

    let legs = CallLegs {
        peer_call_id: Some("first@x".to_owned()),
        began: Moment::from_secs(10),
        call_ids: Vec::new(),
        session_line: None,
        from: Moment::from_secs(5),
        until: Moment::from_secs(20),
    };
    assert_eq!(forget(&traces, &[legs]).unwrap(), 204);
    assert_eq!(found(&traces, "second@x"), FoundMessages::default());
}

/// The wall clock may be set back while a segment is written.
#[test]
fn messages_from_before_and_after_a_step_of_the_clock_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk {
        retention: Duration::from_secs(86_400),
        ..disk(&directory)
    };
    let traces = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    let mut tap = traces.tap(0);
    for (second, call_id) in [(1_000, "before"), (100, "after"), (5_000, "ahead")] {
        let at = Moment::from_secs(second);
        let octets = message("INVITE sip:a SIP/2.0", call_id, 1);
        pass(&traces, &mut tap, at, true, &octets);
        traces.sweep(at + AGE);
        // The last step is forward, before the messages are written.
        traces.write(if second == 5_000 {
            Moment::from_secs(9_000)
        } else {
            at + AGE
        });
    }

    let again = Traces::unattended(1, Some(disk), None, clock).unwrap();
    for traces in [&traces, &again] {
        for (second, call_id) in [(1_000, "before"), (100, "after"), (5_000, "ahead")] {
            let at = Moment::from_secs(second);
            let found = traces.of(&[call_id], at - AGE, at + AGE);
            assert_eq!(found.messages.len(), 1, "{call_id}");
        }
    }
}

/// A part that is removed before an error is counted: the next attempt doesn't find it any more.
#[test]
fn messages_removed_before_an_error_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, clock).unwrap();
    let mut tap = traces.tap(0);
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    pass(&traces, &mut tap, Moment::from_secs(10), true, &octets);
    traces.finish();
    pass(&traces, &mut tap, Moment::from_secs(11), true, &octets);

    let file = std::fs::read_dir(&disk.directory).unwrap().next().unwrap();
    let path = file.unwrap().path();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();

    let legs = CallLegs {
        peer_call_id: None,
        began: Moment::from_secs(10),
        call_ids: vec!["a@b".to_owned()],
        session_line: None,
        from: NEVER,
        until: Moment::from_secs(20),
    };
    let mut gone = 0;
    assert!(traces.forget(&[legs], &mut gone).is_err());
    assert_eq!(gone, 1, "the one in memory");
}
