//! Tests of traces: calls, unauthenticated peers, memory and disk.

use std::time::Duration;

use super::*;
use trunkline_calls::parts::wall_clock::STEADY;
use trunkline_calls::{DialogIdentity, LegRole, SecretHeaders, TracedLeg};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::slot::{Minter, Node, Slot, Tag};

mod assigned;
mod retained;

const ORG: Uuid = Uuid::from_u128(0xa);

const NEVER: Moment = Moment::from_secs(0);
const ALWAYS: Moment = Moment::from_secs(1 << 40);

/// The tests' messages are of the first seconds.
fn clock() -> Moment {
    Moment::from_secs(205)
}

fn around(now: fn() -> Moment) -> Surroundings {
    Surroundings {
        now,
        wall: &STEADY,
        source_towards: |_| None,
    }
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

/// Returns our tag in the dialog with this Call-ID.
fn tag(call_id: &str) -> Tag {
    let minter = Minter::new(Node(1), [7; 16]);
    minter.tag_of(Slot::default(), scan::key(call_id.as_bytes()))
}

/// Returns the call with this Call-ID.
fn call(call_id: &str) -> Uuid {
    Uuid::from_u128(scan::key(call_id.as_bytes()).into())
}

/// Makes a message of a dialog in which both sides have the same tag, so that it may go either way.
fn message(start: &str, call_id: &str, filling: usize) -> Vec<u8> {
    let tag = tag(call_id);
    format!(
        "{start}\r\nf: <sip:a>;tag={tag}\r\nt: <sip:b>;tag={tag}\r\ni: {call_id}\r\nX: {}\r\n\r\n",
        "x".repeat(filling)
    )
    .into_bytes()
}

/// Reports the dialog with this Call-ID as that of a call.
fn begin(tap: &mut Tap, call_id: &str) {
    let leg = TracedLeg {
        org: ORG,
        call: call(call_id),
        leg: 0,
        role: LegRole::Trunk,
    };
    let local = tag(call_id);
    let identity = DialogIdentity::Tag {
        call_id: call_id.as_bytes().into(),
        local,
        remote: Some(local.as_bytes().into()),
        secrets: SecretHeaders::default(),
    };
    tap.assign(leg, Box::new(identity));
}

/// Selects the messages of the call with this Call-ID, from 5 s to 20 s.
fn erased(call_id: &str) -> ErasedCall {
    ErasedCall {
        org: ORG,
        call: call(call_id),
        from: Moment::from_secs(5),
        until: Moment::from_secs(20),
    }
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
fn forget(traces: &Traces, erased: &[ErasedCall]) -> io::Result<u64> {
    let mut gone = 0;
    traces.forget(erased, &mut gone).map(|()| gone)
}

fn found(traces: &Traces, call_id: &str) -> FoundMessages {
    traces.of(ORG, call(call_id), NEVER, ALWAYS)
}

/// A message that leaves by a listener on every address has the address that its answers come to, so that a saved trace is one call to whoever reads
/// it.
#[test]
fn a_message_names_the_address_that_it_left_from() {
    let surroundings = Surroundings {
        source_towards: |peer| match peer.is_loopback() {
            true => Some("127.0.0.1".parse().unwrap()),
            false => None,
        },
        ..around(clock)
    };
    let traces = Traces::unattended(1, None, None, surroundings).unwrap();
    let mut tap = traces.tap(0);
    begin(&mut tap, "out");
    for (second, local, peer) in [
        (1, "0.0.0.0:5060", "127.0.0.1:5070"),
        (2, "0.0.0.0:5060", "198.51.100.7:5070"),
        (3, "192.0.2.1:5060", "127.0.0.1:5070"),
    ] {
        let flow = Flow {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
            ..flow()
        };
        let octets = message("INVITE sip:a SIP/2.0", "out", 1);
        tap.note(Moment::from_secs(second), flow, true, &octets);
    }
    tap.hand_on();
    traces.sweep(clock());

    let found = found(&traces, "out").messages.into_iter();
    let sources: Vec<String> = found
        .map(|found| found.captured.source.to_string())
        .collect();
    assert_eq!(
        sources,
        ["127.0.0.1:5060", "0.0.0.0:5060", "192.0.2.1:5060"]
    );
}

/// The record of a call has the times of its beginning, whatever the wall clock does meanwhile: a search by them finds every message, and
/// so does an erasure.
#[test]
fn a_call_is_found_by_its_own_times_although_the_clock_was_set_meanwhile() {
    static WALL: WallClock = WallClock::new();
    let traces = Traces::unattended(
        1,
        None,
        None,
        Surroundings {
            wall: &WALL,
            ..around(clock)
        },
    )
    .unwrap();
    let mut tap = traces.tap(0);
    let at = Moment::from_secs;

    begin(&mut tap, "up");
    pass(
        &traces,
        &mut tap,
        at(10),
        false,
        &message("INVITE sip:a SIP/2.0", "up", 1),
    );
    WALL.step(3_600_000_000);
    pass(
        &traces,
        &mut tap,
        at(14),
        false,
        &message("BYE sip:a SIP/2.0", "up", 1),
    );
    begin(&mut tap, "later");
    pass(
        &traces,
        &mut tap,
        at(15),
        false,
        &message("INVITE sip:a SIP/2.0", "later", 1),
    );

    let times = |call_id, from, until| {
        let found = traces.of(ORG, call(call_id), from, until);
        let times = found.messages.into_iter().map(|found| found.captured.at);
        times.collect::<Vec<_>>()
    };
    assert_eq!(times("up", at(5), at(20)), [10_000_000, 14_000_000]);
    assert_eq!(times("later", NEVER, ALWAYS), [3_615_000_000]);
    assert_eq!(forget(&traces, &[erased("up")]).unwrap(), 2);
}

/// Returns the messages in memory that belong to no call.
fn unassigned(traces: &Traces) -> Vec<Vec<u8>> {
    traces.sweep((traces.clock)());
    let kept = lock(&traces.kept);
    let open = [&kept.unmatched.full, &kept.unmatched.open].into_iter();
    let records = open.flat_map(|block| block.records(&BlockQuery::ALL));
    records.map(|record| record.octets.to_vec()).collect()
}

#[test]
fn a_call_finds_its_messages_in_their_order() {
    let traces = Traces::unattended(2, None, None, around(clock)).unwrap();
    let mut taps = [traces.tap(0), traces.tap(1)];
    begin(&mut taps[0], "a@b");
    begin(&mut taps[0], "c@d");
    for second in 0..4 {
        let id = if second % 2 == 0 { "a@b" } else { "c@d" };
        let octets = message("INVITE sip:a SIP/2.0", id, 1);
        taps[0].note(Moment::from_secs(second), flow(), second == 2, &octets);
        taps[0].hand_on();
    }

    taps[1].note(Moment::from_secs(9), flow(), false, b"rubbish");
    taps[1].hand_on();

    let messages: [FoundMessage; 2] = found(&traces, "a@b").messages.try_into().unwrap();
    assert_eq!(
        messages.map(|found| (
            found.is_sent,
            found.captured.at,
            found.captured.source.port()
        )),
        [(false, 0, 5070), (true, 2_000_000, 5060)]
    );
    assert_eq!(found(&traces, "nobody"), FoundMessages::default());

    let later = |id| traces.of(ORG, call(id), Moment::from_secs(1), Moment::from_secs(2));
    assert_eq!(later("a@b").messages.len(), 1);
    assert_eq!(later("c@d").messages.len(), 1);
    let other = traces.of(Uuid::nil(), call("a@b"), NEVER, ALWAYS);
    assert_eq!(other, FoundMessages::default(), "another org");
}

#[test]
fn who_ends_leaves_all_beside_what_waits() {
    let traces = Traces::unattended(1, None, None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    begin(&mut tap, "a@b");
    // The second doesn't fit into what waits.
    for (at, size, left) in [
        (1, tap::PICK_UP_SIZE, false),
        (2, tap::PICK_UP_SIZE / 2, true),
    ] {
        let octets = message("INVITE sip:a SIP/2.0", "a@b", size);
        let passed = Moment::from_secs(at);
        tap.note(passed, flow(), false, &octets);
        assert!(tap.is_due(passed + SWEEP_INTERVAL));
        match left {
            true => tap.leave(),
            false => tap.hand_on(),
        }
        assert!(!tap.is_due(passed + SWEEP_INTERVAL));
    }
    assert_eq!(found(&traces, "a@b").messages.len(), 2);
}

#[test]
fn little_is_due_when_it_has_waited() {
    let traces = Traces::unattended(1, None, None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    assert!(!tap.is_due(now));
    tap.note(now, flow(), false, b"little");
    assert!(!tap.is_due(now));
    assert!(tap.is_due(now + SWEEP_INTERVAL));
}

#[test]
fn strangers_push_out_strangers_and_no_call() {
    let traces = Traces::unattended(1, None, None, around(|| Moment::from_secs(1))).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    let invite = message("INVITE sip:a SIP/2.0", "call", 1);
    begin(&mut tap, "call");
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
    let unassigned = unassigned(&traces);
    let holds = |id: &[u8]| {
        let mut messages = unassigned.iter();
        messages.any(|octets| scan::Seen::of(octets).call_id == id)
    };
    assert!(!holds(b"stranger 0") && holds(b"stranger 3999"));
}

#[test]
fn what_no_file_holds_yet_is_found_however_much_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk), None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    let now = Moment::from_secs(1);
    for at in 0..2_000 {
        let noise: String = (0..600).map(|_| rand::random_range('!'..='~')).collect();
        let octets = message(
            &format!("INVITE sip:{noise} SIP/2.0"),
            &format!("call {at}"),
            1,
        );
        begin(&mut tap, &format!("call {at}"));
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
    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    std::fs::remove_dir_all(&disk.directory).unwrap();

    let mut tap = traces.tap(0);
    for at in [1, 100] {
        let octets = message("INVITE sip:a SIP/2.0", &format!("call {at}"), 1);
        begin(&mut tap, &format!("call {at}"));
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
    begin(&mut tap, "late");
    pass(&traces, &mut tap, Moment::from_secs(190), true, &octets);
    traces.finish();
    for call_id in ["call 1", "call 100", "late"] {
        assert_eq!(found(&traces, call_id).messages.len(), 1, "{call_id}");
    }
}

#[test]
fn one_call_shows_no_more_than_its_share() {
    let traces = Traces::unattended(1, None, None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    begin(&mut tap, "long");
    for second in 0..300 {
        let octets = message("INFO sip:a SIP/2.0", "long", 8_000);
        pass(&traces, &mut tap, Moment::from_secs(second), true, &octets);
    }
    let found = found(&traces, "long");
    assert!(found.is_cut && found.messages.len() > 100);
    let first = (0..found.messages.len() as u64).map(|second| second * 1_000_000);
    let times = found.messages.iter().map(|found| found.captured.at);
    assert!(times.eq(first));
}

#[test]
fn one_call_takes_no_more_than_its_share_of_the_traces() {
    let traces = Traces::unattended(1, None, None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    begin(&mut tap, "flood");
    begin(&mut tap, "other");
    for second in 0..1_000 {
        let octets = message("OPTIONS sip:a SIP/2.0", "flood", 8_000);
        pass(&traces, &mut tap, Moment::from_secs(second), false, &octets);
    }
    let octets = message("INVITE sip:a SIP/2.0", "other", 1);
    pass(&traces, &mut tap, Moment::from_secs(1_000), true, &octets);

    let mut flooded = 0;
    traces
        .each(&BlockQuery::ALL, &mut |record| {
            let is_flood = record.leg.is_some_and(|leg| leg.call == call("flood"));
            flooded += usize::from(is_flood) * record.octets.len();
        })
        .unwrap();
    assert!((3 << 20..=4 << 20).contains(&flooded), "{flooded}");
    assert_eq!(found(&traces, "other").messages.len(), 1);
}

#[test]
fn calls_are_found_on_disk_by_who_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let before = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let mut tap = before.tap(0);
    for second in 100..200 {
        let id = format!("call {second}");
        let octets = message("INVITE sip:a SIP/2.0", &id, 300);
        begin(&mut tap, &id);
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

    let after = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    for second in 100..200 {
        assert_eq!(
            found(&after, &format!("call {second}")).messages.len(),
            2,
            "{second}"
        );
    }

    let none = after.of(ORG, call("call 150"), Moment::from_secs(160), ALWAYS);
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
    begin(&mut tap, "late");
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

    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    let mut tap = traces.tap(0);
    begin(&mut tap, "a@b");
    begin(&mut tap, "c@d");
    pass(&traces, &mut tap, written, true, &octets);
    traces.finish();
    assert_eq!(found(&traces, "a@b").messages.len(), 1);
    traces.write(written + disk.retention);
    assert_eq!(files(), 1);
    traces.write(written + disk.retention + AGE);
    assert_eq!(files(), 0);
    assert!(found(&traces, "a@b").messages.is_empty());

    let octets = message("INVITE sip:a SIP/2.0", "c@d", 1);
    pass(&traces, &mut tap, clock(), true, &octets);
    traces.finish();
    assert_eq!(files(), 1, "another file begins");
    assert_eq!(found(&traces, "c@d").messages.len(), 1);

    let again = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    assert_eq!(found(&again, "c@d").messages.len(), 1);
    again.write(ALWAYS);
    assert_eq!(files(), 0);
}

/// Other calls, and the same call of another org or at another time, stay.
#[test]
fn the_messages_of_a_call_are_forgotten_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    for is_on_disk in [false, true] {
        let kept = is_on_disk.then(|| disk(&directory));
        let traces = Traces::unattended(1, kept, None, around(clock)).unwrap();
        let mut tap = traces.tap(0);
        for call_id in ["a@b", "c@d", "e@f"] {
            begin(&mut tap, call_id);
        }
        for (call_id, is_sent) in [("a@b", false), ("c@d", true)] {
            let octets = message("INVITE sip:+442071838750 SIP/2.0", call_id, 300);
            pass(&traces, &mut tap, Moment::from_secs(10), is_sent, &octets);
        }
        traces.sweep(Moment::from_secs(16));
        traces.write(Moment::from_secs(16));
        for (at, start) in [(17, "BYE sip:+442071838750"), (100, "INVITE sip:a")] {
            let octets = message(&format!("{start} SIP/2.0"), "a@b", 1);
            pass(&traces, &mut tap, Moment::from_secs(at), true, &octets);
        }

        let theirs = ErasedCall {
            org: Uuid::nil(),
            ..erased("a@b")
        };
        assert_eq!(forget(&traces, &[theirs]).unwrap(), 0, "another org's");

        let of_call = erased("a@b");
        assert_eq!(forget(&traces, &[of_call]).unwrap(), 2);
        let left = |call_id: &str| found(&traces, call_id).messages.len();
        assert_eq!((left("a@b"), left("c@d")), (1, 1));
        assert_eq!(forget(&traces, &[of_call]).unwrap(), 0, "again");

        // Messages written from now on are found.
        let octets = message("INVITE sip:e SIP/2.0", "e@f", 1);
        pass(&traces, &mut tap, Moment::from_secs(101), true, &octets);
        traces.finish();
        assert_eq!(left("e@f"), 1);
        if is_on_disk {
            let again = Traces::unattended(1, Some(disk(&directory)), None, around(clock));
            let again = again.unwrap();
            for call_id in ["a@b", "c@d", "e@f"] {
                assert_eq!(found(&again, call_id).messages.len(), 1, "{call_id}");
            }
        }
    }
}

/// A larger block would make the rest of its file unreadable.
#[test]
fn no_block_is_larger_than_a_reader_admits() {
    let octets = vec![b'x'; 600 << 10];
    let record = Record::new(Moment::from_secs(10), &flow(), true, None, &octets);
    let mut open = block::Open::default();
    for _ in 0..3 {
        open.push(&record, 1);
    }
    assert_eq!(open.records(&BlockQuery::ALL).count(), 2);

    let mut file = Vec::new();
    open.close(&mut Vec::new()).unwrap().write(&mut file);
    let head = block::Head::read(file.first_chunk().unwrap());
    assert!(head.is_some());
}

/// Messages without a leg, as builds from before 0.1.0 wrote them, are deleted at the start, and other files stay.
#[test]
fn a_file_without_legs_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    begin(&mut tap, "a@b");
    let bye = message("BYE sip:a SIP/2.0", "a@b", 1);
    pass(&traces, &mut tap, Moment::from_secs(11), true, &bye);
    traces.finish();
    let path = disk.directory.join("00000000000010000000.trace");
    std::fs::write(&path, b"TLTRACE1 and blocks").unwrap();
    let other = disk.directory.join("notes.txt");
    std::fs::write(&other, b"TLTRACE1").unwrap();

    let traces = Traces::unattended(1, Some(disk), None, around(clock)).unwrap();
    assert!(!path.exists() && other.exists());
    assert_eq!(found(&traces, "a@b").messages.len(), 1);
}

/// A segment that can't be read has messages all the same: neither an erasure nor a trace may pass over it.
#[test]
fn a_segment_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    begin(&mut tap, "a@b");
    pass(&traces, &mut tap, Moment::from_secs(10), true, &octets);
    traces.finish();

    let file = std::fs::read_dir(&disk.directory).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let aside = directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    // A directory can be opened like a file, and then fails to be read.
    std::fs::create_dir(&path).unwrap();

    let legs = erased("a@b");
    assert!(forget(&traces, &[legs]).is_err());
    assert!(found(&traces, "a@b").is_cut);

    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(forget(&traces, &[legs]).unwrap(), 1);

    // A file that is gone has nothing to erase.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found(&traces, "a@b"), FoundMessages::default());
}

/// The wall clock may be set back while a segment is written.
#[test]
fn messages_from_before_and_after_a_step_of_the_clock_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk {
        retention: Duration::from_secs(86_400),
        ..disk(&directory)
    };
    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    for (second, call_id) in [(1_000, "before"), (100, "after"), (5_000, "ahead")] {
        let at = Moment::from_secs(second);
        let octets = message("INVITE sip:a SIP/2.0", call_id, 1);
        begin(&mut tap, call_id);
        pass(&traces, &mut tap, at, true, &octets);
        traces.sweep(at + AGE);
        // The last step is forward, before the messages are written.
        traces.write(if second == 5_000 {
            Moment::from_secs(9_000)
        } else {
            at + AGE
        });
    }

    let again = Traces::unattended(1, Some(disk), None, around(clock)).unwrap();
    for traces in [&traces, &again] {
        for (second, call_id) in [(1_000, "before"), (100, "after"), (5_000, "ahead")] {
            let at = Moment::from_secs(second);
            let found = traces.of(ORG, call(call_id), at - AGE, at + AGE);
            assert_eq!(found.messages.len(), 1, "{call_id}");
        }
    }
}

/// A part that is removed before an error is counted: the next attempt doesn't find it any more.
#[test]
fn messages_removed_before_an_error_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    let traces = Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    let octets = message("INVITE sip:a SIP/2.0", "a@b", 1);
    begin(&mut tap, "a@b");
    pass(&traces, &mut tap, Moment::from_secs(10), true, &octets);
    traces.finish();
    pass(&traces, &mut tap, Moment::from_secs(11), true, &octets);

    let file = std::fs::read_dir(&disk.directory).unwrap().next().unwrap();
    let path = file.unwrap().path();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();

    let mut gone = 0;
    assert!(traces.forget(&[erased("a@b")], &mut gone).is_err());
    assert_eq!(gone, 1, "the one in memory");
}
