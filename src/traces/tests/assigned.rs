//! Messages are assigned to legs by what shards report, whatever texts and Call-IDs peers choose.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use trunkline_calls::{InviteIdentity, InviteParts};

use super::*;

const THEIRS: Uuid = Uuid::from_u128(0xb);
const NOW: Moment = Moment::from_secs(10);

/// Returns the next microsecond, so that messages are shown in the order in which they were noted.
fn soon() -> Moment {
    static NOTED: AtomicU64 = AtomicU64::new(0);
    Moment::from_micros(NOW.as_micros() + NOTED.fetch_add(1, Ordering::Relaxed))
}

fn from(port: u16) -> Flow {
    Flow {
        peer: SocketAddr::from(([192, 0, 2, 1], port)),
        ..flow()
    }
}

fn leg(org: Uuid, call: u128, number: u8, role: LegRole) -> TracedLeg {
    TracedLeg {
        org,
        call: Uuid::from_u128(call),
        leg: number,
        role,
    }
}

fn invite_of(call_id: &str, tag: &str, branch: &str, flow: Flow) -> Box<DialogIdentity> {
    invite_to("sip:a", call_id, tag, branch, flow)
}

fn invite_to(uri: &str, call_id: &str, tag: &str, branch: &str, flow: Flow) -> Box<DialogIdentity> {
    let parts = InviteParts {
        call_id: call_id.as_bytes(),
        from_tag: tag.as_bytes(),
        request_uri: uri.as_bytes(),
        sent_by: b"SIP/2.0/UDP 192.0.2.1",
        branch: branch.as_bytes(),
    };
    Box::new(DialogIdentity::Invite(InviteIdentity::new(&parts), flow))
}

fn dialog(call_id: &str, local: Tag, remote: Option<&str>) -> Box<DialogIdentity> {
    Box::new(DialogIdentity::Tag {
        call_id: call_id.as_bytes().into(),
        local,
        remote: remote.map(|tag| tag.as_bytes().into()),
        secrets: SecretHeaders::default(),
    })
}

/// Prints a message; the lines are From, To, Call-ID, CSeq and further ones.
fn text(start: &str, branch: &str, [from, to]: [&str; 2], call_id: &str, rest: &str) -> Vec<u8> {
    let tagged = |tag: &str| match tag {
        "" => String::new(),
        tag => format!(";tag={tag}"),
    };
    let (from, to) = (tagged(from), tagged(to));
    format!(
        "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: \"x;tag=y\" <sip:a@b;tag=z>{from}\r\n\
         To: <sip:b>{to}\r\nCall-ID: {call_id}\r\n{rest}\r\n"
    )
    .into_bytes()
}

/// Returns the legs and start lines of a call's messages.
fn shown(traces: &Traces, org: Uuid, call: u128) -> Vec<(LegRole, String)> {
    let found = traces.of(org, Uuid::from_u128(call), NEVER, ALWAYS);
    let messages = found.messages.into_iter().map(|found| {
        let text = String::from_utf8(found.captured.octets).unwrap();
        (found.role, text.split("\r\n").next().unwrap().to_owned())
    });
    messages.collect()
}

const INVITE: &str = "INVITE sip:a SIP/2.0";
const ACK: &str = "ACK sip:a SIP/2.0";
const BYE: &str = "BYE sip:a SIP/2.0";
const OF_INVITE: &str = "CSeq: 1 INVITE\r\n";

/// Victim's and attacker's calls have one Call-ID, and the attacker's messages name the victim's session.
#[test]
fn a_shard_knows_when_its_traces_are_behind() {
    let traces = Traces::unattended(1, None, None, around(clock)).unwrap();
    let mut tap = traces.tap(0);
    let octets = message("INVITE sip:a SIP/2.0", "a", 60_000);
    let note = |tap: &mut Tap| {
        tap.note(Moment::from_secs(1), flow(), false, &octets);
        tap.hand_on();
    };

    // A batch waits in the queue, and another begins to fill behind it.
    let behind = (1..100).find(|_| {
        note(&mut tap);
        tap.is_behind()
    });
    assert!(behind.is_some_and(|messages| messages > 10), "{behind:?}");
    traces.sweep(clock());
    note(&mut tap);
    assert!(!tap.is_behind());
}

#[test]
fn calls_with_one_call_id_have_their_own_messages_alone() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let (ours, theirs) = (tag("ours"), tag("theirs"));
    let session = "CSeq: 1 INVITE\r\nX-PLATFORM-SESSION-ID: 5e55\r\n";

    for (org, number, peer, local, caller, branch) in [
        (ORG, 1, from(5060), &ours, "victim", "z9hG4bK1"),
        (THEIRS, 2, from(5070), &theirs, "attacker", "z9hG4bK2"),
    ] {
        let trunk = leg(org, number, 0, LegRole::Trunk);
        let invite = text(INVITE, branch, [caller, ""], "same", session);
        tap.note(soon(), peer, false, &invite);
        tap.assign(trunk, invite_of("same", caller, branch, peer));
        tap.assign(trunk, dialog("same", *local, Some(caller)));
        for (status, to) in [("100 Trying", ""), ("200 OK", local.as_str())] {
            let answer = format!("SIP/2.0 {status}");
            let answer = text(&answer, branch, [caller, to], "same", OF_INVITE);
            tap.note(soon(), peer, true, &answer);
        }
        let bye = text(BYE, "z9hG4bKb", [caller, local.as_str()], "same", "");
        tap.note(soon(), peer, false, &bye);
        tap.hand_on();
        traces.sweep(NOW);
    }

    // A stranger, and the attacker with one of the victim's tags at a time.
    for tags in [
        ["stranger", ""],
        ["attacker", ours.as_str()],
        ["victim", theirs.as_str()],
    ] {
        let octets = text(BYE, "z9hG4bKs", tags, "same", session);
        tap.note(soon(), from(5060), false, &octets);
    }
    // The right tags with another Call-ID.
    let octets = text(BYE, "z9hG4bKs", ["victim", ours.as_str()], "other", "");
    tap.note(soon(), from(5060), false, &octets);
    // A request has our tag in To, not in From.
    let octets = text(BYE, "z9hG4bKs", [ours.as_str(), "victim"], "same", "");
    tap.note(soon(), from(5060), false, &octets);
    tap.hand_on();

    let expected = [INVITE, "SIP/2.0 100 Trying", "SIP/2.0 200 OK", BYE];
    let expected = expected.map(|line| (LegRole::Trunk, line.to_owned()));
    assert_eq!(shown(&traces, ORG, 1), expected);
    assert_eq!(shown(&traces, THEIRS, 2), expected);
    assert_eq!(unassigned(&traces).len(), 5);

    for (org, call, left) in [(THEIRS, 1, [4, 4]), (THEIRS, 2, [4, 0]), (ORG, 1, [0, 0])] {
        let erased = ErasedCall {
            org,
            call: Uuid::from_u128(call),
            from: NEVER,
            until: ALWAYS,
        };
        forget(&traces, &[erased]).unwrap();
        let counts = [
            shown(&traces, ORG, 1).len(),
            shown(&traces, THEIRS, 2).len(),
        ];
        assert_eq!(counts, left);
    }
}

/// The challenge comes before the org is known, in the same batch or in an earlier one.
#[test]
fn the_challenge_of_an_invite_belongs_to_its_call() {
    for is_at_once in [true, false] {
        let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
        let mut tap = traces.tap(0);
        let trunk = leg(ORG, 1, 0, LegRole::Trunk);
        let pass = |tap: &mut Tap, peer, is_sent, octets: &[u8]| {
            tap.note(soon(), peer, is_sent, octets);
            if !is_at_once {
                tap.hand_on();
                traces.sweep(NOW);
            }
        };
        let peer = from(5060);
        let second = "CSeq: 2 INVITE\r\n";
        // Without rport, an answer goes to the port in Via.
        let answered = from(5080);
        let challenge = "SIP/2.0 401 Unauthorized";
        for (flow, is_sent, octets) in [
            (
                peer,
                false,
                text(INVITE, "z9hG4bK1", ["c", ""], "id", OF_INVITE),
            ),
            (
                answered,
                true,
                text(challenge, "z9hG4bK1", ["c", "s"], "id", OF_INVITE),
            ),
            (
                peer,
                false,
                text(ACK, "z9hG4bK1", ["c", "s"], "id", "CSeq: 1 ACK\r\n"),
            ),
            // Of others: another tag, another source, and an answer to none of the INVITEs.
            (
                peer,
                false,
                text(INVITE, "z9hG4bK3", ["d", ""], "id", OF_INVITE),
            ),
            (
                from(5061),
                false,
                text(INVITE, "z9hG4bK4", ["c", ""], "id", OF_INVITE),
            ),
            (
                answered,
                true,
                text(challenge, "z9hG4bK4", ["c", "s"], "id", OF_INVITE),
            ),
            (
                peer,
                false,
                text(INVITE, "z9hG4bK2", ["c", ""], "id", second),
            ),
        ] {
            pass(&mut tap, flow, is_sent, &octets);
        }
        tap.assign(trunk, invite_of("id", "c", "z9hG4bK2", peer));
        let busy = text(
            "SIP/2.0 486 Busy Here",
            "z9hG4bK2",
            ["c", "e"],
            "id",
            second,
        );
        pass(&mut tap, answered, true, &busy);
        tap.end(trunk.call);
        let ack = text(ACK, "z9hG4bK2", ["c", "e"], "id", "CSeq: 2 ACK\r\n");
        pass(&mut tap, peer, false, &ack);
        tap.hand_on();

        let lines: Vec<String> = shown(&traces, ORG, 1)
            .into_iter()
            .map(|(_, line)| line)
            .collect();
        let expected = [INVITE, challenge, ACK, INVITE, "SIP/2.0 486 Busy Here", ACK];
        assert_eq!(lines, expected, "{is_at_once}");
        assert_eq!(unassigned(&traces).len(), 3, "{is_at_once}");
    }
}

/// Two orgs' INVITEs of one source with one Call-ID and one tag: whose the challenged one was isn't known.
#[test]
fn an_earlier_invite_of_either_of_two_orgs_is_in_no_trace() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let peer = from(5060);
    let first = text(INVITE, "z9hG4bK1", ["c", ""], "id", OF_INVITE);
    tap.note(soon(), peer, false, &first);
    for (org, call, branch) in [(ORG, 1, "z9hG4bK2"), (THEIRS, 2, "z9hG4bK3")] {
        let octets = text(INVITE, branch, ["c", ""], "id", "CSeq: 2 INVITE\r\n");
        tap.note(soon(), peer, false, &octets);
        tap.assign(
            leg(org, call, 0, LegRole::Trunk),
            invite_of("id", "c", branch, peer),
        );
    }
    tap.hand_on();
    assert_eq!(shown(&traces, ORG, 1).len(), 1);
    assert_eq!(shown(&traces, THEIRS, 2).len(), 1);
    assert_eq!(unassigned(&traces), [first]);
}

/// A proxy that serves two orgs from one address forks a call to both. The first org's INVITE had no answer when the second's began a call.
#[test]
fn an_invite_to_another_uri_is_in_no_trace() {
    for (name, earlier, uri, count) in [
        ("another org's", "sip:a", "sip:b", 1),
        ("its own", "sip:b", "sip:b", 2),
        // It is kept without its password.
        ("its own with a password", "sip:b:pw@c", "sip:b:pw@c", 2),
        ("another's with a password", "sip:a:pw@c", "sip:b:pw@c", 1),
    ] {
        let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
        let mut tap = traces.tap(0);
        let peer = from(5060);
        let start = |uri: &str| format!("INVITE {uri} SIP/2.0");
        let first = text(&start(earlier), "z9hG4bK1", ["c", ""], "id", OF_INVITE);
        tap.note(soon(), peer, false, &first);
        tap.hand_on();
        traces.sweep(NOW);

        let second = text(&start(uri), "z9hG4bK2", ["c", ""], "id", OF_INVITE);
        tap.note(soon(), peer, false, &second);
        let identity = invite_to(uri, "id", "c", "z9hG4bK2", peer);
        tap.assign(leg(ORG, 1, 0, LegRole::Trunk), identity);
        tap.hand_on();
        assert_eq!(shown(&traces, ORG, 1).len(), count, "{name}");
        assert_eq!(unassigned(&traces).len(), 2 - count, "{name}");
    }
}

/// One Call-ID for many calls: each has its own earlier INVITE.
#[test]
fn many_calls_with_one_call_id_have_their_earlier_invites() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let peer = from(5060);
    for round in ["a", "b"] {
        for call in 0..100_u32 {
            let (from_tag, branch) = (format!("c{call}"), format!("z9hG4bK{round}{call}"));
            let octets = text(INVITE, &branch, [&from_tag, ""], "id", OF_INVITE);
            tap.note(soon(), peer, false, &octets);
            if round == "b" {
                let identity = invite_of("id", &from_tag, &branch, peer);
                tap.assign(leg(ORG, call.into(), 0, LegRole::Trunk), identity);
            }
        }
        tap.hand_on();
        traces.sweep(NOW);
    }
    for call in 0..100 {
        assert_eq!(shown(&traces, ORG, call).len(), 2, "{call}");
    }
}

/// One sweep examines a bounded number of earlier messages.
#[test]
fn earlier_messages_beyond_the_bound_stay_unmatched() {
    for (others, count) in [(EARLIER_EXAMINED - 1, 2), (EARLIER_EXAMINED, 1)] {
        let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
        let mut tap = traces.tap(0);
        let peer = from(5060);
        for _ in 0..others {
            tap.note(soon(), peer, false, b"X\r\ni: id\r\n\r\n");
        }
        let first = text(INVITE, "z9hG4bK1", ["c", ""], "id", OF_INVITE);
        tap.note(soon(), peer, false, &first);
        tap.hand_on();
        traces.sweep(NOW);

        let second = text(INVITE, "z9hG4bK2", ["c", ""], "id", OF_INVITE);
        tap.note(soon(), peer, false, &second);
        let identity = invite_of("id", "c", "z9hG4bK2", peer);
        tap.assign(leg(ORG, 1, 0, LegRole::Trunk), identity);
        tap.hand_on();
        assert_eq!(shown(&traces, ORG, 1).len(), count, "{others}");
    }
}

/// A caller that sends its INVITE again and again doesn't fill the memory of identities.
#[test]
fn a_call_has_a_bounded_number_of_transactions() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let peer = from(5060);
    for number in 1..=20 {
        let branch = format!("z9hG4bK{number}");
        let octets = text(INVITE, &branch, ["c", ""], "id", OF_INVITE);
        tap.note(soon(), peer, false, &octets);
    }
    let identity = invite_of("id", "c", "z9hG4bK20", peer);
    tap.assign(leg(ORG, 1, 0, LegRole::Trunk), identity);
    tap.hand_on();
    assert_eq!(shown(&traces, ORG, 1).len(), 8);
    assert_eq!(unassigned(&traces).len(), 12);
}

/// Earlier messages of a call that has begun fill blocks as others do.
#[test]
fn earlier_messages_close_a_full_block() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let peer = from(5060);
    let filling = format!("{OF_INVITE}X: {}\r\n", "x".repeat(50_000));
    for number in 1..=8 {
        let branch = format!("z9hG4bK{number}");
        let octets = text(INVITE, &branch, ["c", ""], "id", &filling);
        tap.note(soon(), peer, false, &octets);
        tap.hand_on();
        if number < 8 {
            traces.sweep(NOW);
        }
    }
    let identity = invite_of("id", "c", "z9hG4bK8", peer);
    tap.assign(leg(ORG, 1, 0, LegRole::Trunk), identity);
    tap.hand_on();
    traces.sweep(NOW);
    // Two of them fill a block.
    assert_eq!(lock(&traces.kept).calls.closed.len(), 4);
    assert_eq!(shown(&traces, ORG, 1).len(), 8);
}

/// The answers to an INVITE of ours bring the tags of its forks. A request with another tag is of no fork.
#[test]
fn the_forks_of_our_invite_belong_to_its_leg() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let ours = tag("runtime");
    let us = ours.as_str();
    tap.assign(leg(ORG, 1, 1, LegRole::Agent), dialog("leg", ours, None));
    let peer = from(5060);
    let answer = |status: &str, to| {
        text(
            &format!("SIP/2.0 {status}"),
            "z9hG4bK1",
            [us, to],
            "leg",
            OF_INVITE,
        )
    };
    for (is_sent, octets) in [
        (true, text(INVITE, "z9hG4bK1", [us, ""], "leg", OF_INVITE)),
        (false, text(BYE, "z9hG4bKs", ["one", us], "leg", "")),
        (false, answer("180 Ringing", "one")),
        (false, answer("200 OK", "two")),
        (
            true,
            text(ACK, "z9hG4bK1", [us, "two"], "leg", "CSeq: 1 ACK\r\n"),
        ),
        (false, text(BYE, "z9hG4bKs", ["three", us], "leg", "")),
        (
            true,
            text(
                "SIP/2.0 481 Gone",
                "z9hG4bKs",
                ["three", us],
                "leg",
                "CSeq: 1 BYE\r\n",
            ),
        ),
        (false, text(BYE, "z9hG4bKb", ["two", us], "leg", "")),
        (
            true,
            text(
                "SIP/2.0 200 Bye",
                "z9hG4bKb",
                ["two", us],
                "leg",
                "CSeq: 1 BYE\r\n",
            ),
        ),
    ] {
        tap.note(soon(), peer, is_sent, &octets);
    }
    tap.hand_on();

    let lines: Vec<String> = shown(&traces, ORG, 1)
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    let expected = [
        INVITE,
        "SIP/2.0 180 Ringing",
        "SIP/2.0 200 OK",
        ACK,
        BYE,
        "SIP/2.0 200 Bye",
    ];
    assert_eq!(lines, expected);
    assert_eq!(unassigned(&traces).len(), 3);
}

/// Late messages of an ended call are its own for a minute. A stranger's messages take no room of the call.
#[test]
fn a_call_is_known_for_a_while_after_its_end() {
    let traces = Traces::unattended(1, None, None, around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let ours = tag("ours");
    let trunk = leg(ORG, 1, 0, LegRole::Trunk);
    tap.assign(trunk, dialog("id", ours, Some("c")));
    let flood = text(
        BYE,
        "z9hG4bKs",
        ["d", ours.as_str()],
        "id",
        &"X: x\r\n".repeat(1_000),
    );
    for _ in 0..1_000 {
        pass(&traces, &mut tap, NOW, false, &flood);
    }
    tap.end(trunk.call);
    let bye = text(BYE, "z9hG4bKs", ["c", ours.as_str()], "id", "");
    for (at, count) in [
        (NOW, 1),
        (NOW + Duration::from_secs(60), 2),
        (NOW + Duration::from_secs(61), 2),
    ] {
        pass(&traces, &mut tap, at, false, &bye);
        traces.sweep(at);
        assert_eq!(shown(&traces, ORG, 1).len(), count);
    }
    assert!(lock(&traces.kept).assignments.is_empty());
}

/// A PBX answers a challenge a network's round trip later: the copies of both attempts reach the collector under the call's id all the same.
#[test]
fn a_challenged_invite_is_copied_under_the_id_of_its_call() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let collector = Collector {
        host: "127.0.0.1".to_owned(),
        port: socket.local_addr().unwrap().port(),
        node: 1,
    };
    let traces = Traces::unattended(1, None, Some(collector), around(|| NOW)).unwrap();
    let mut tap = traces.tap(0);
    let copied = || {
        let mut envelope = [0; 2_048];
        let length = socket.recv(&mut envelope).ok()?;
        let text = String::from_utf8_lossy(&envelope[..length]).into_owned();
        let has_id = text.contains(&Uuid::from_u128(1).to_string());
        Some((text.contains("CSeq: 1 INVITE"), has_id))
    };

    let peer = from(5060);
    tap.note(
        soon(),
        peer,
        false,
        &text(INVITE, "z9hG4bK1", ["c", ""], "id", OF_INVITE),
    );
    let stray = text(INVITE, "z9hG4bK9", ["d", ""], "stray", OF_INVITE);
    tap.note(soon(), peer, false, &stray);
    let ours = tag("ours");
    let bye = text(
        BYE,
        "z9hG4bKb",
        ["c", ours.as_str()],
        "id",
        "CSeq: 3 BYE\r\n",
    );
    tap.note(soon(), peer, false, &bye);
    tap.hand_on();
    traces.sweep(NOW);
    assert_eq!(copied(), Some((false, false)), "a BYE begins no call");
    assert_eq!(copied(), None, "whose the others are isn't known yet");

    tap.note(
        soon(),
        peer,
        false,
        &text(INVITE, "z9hG4bK2", ["c", ""], "id", "CSeq: 2 INVITE\r\n"),
    );
    tap.assign(
        leg(ORG, 1, 0, LegRole::Trunk),
        invite_of("id", "c", "z9hG4bK2", peer),
    );
    // The BYE is in the call's trace from now on, and isn't copied again.
    tap.assign(
        leg(ORG, 1, 0, LegRole::Trunk),
        dialog("id", ours, Some("c")),
    );
    tap.hand_on();
    traces.sweep(NOW);
    let mut both = [copied(), copied()].map(|copy| copy.expect("a copy"));
    both.sort_unstable();
    assert_eq!(both, [(false, true), (true, true)]);
    assert_eq!(copied(), None);
    assert_eq!(shown(&traces, ORG, 1).len(), 3);

    traces.finish();
    assert_eq!(
        copied(),
        Some((true, false)),
        "the one that no call has claimed"
    );
    assert_eq!(copied(), None);
}
