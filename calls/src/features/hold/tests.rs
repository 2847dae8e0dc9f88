//! Each answer to a re-INVITE of a hold or resume, and the requests that meet one under way.

use super::*;

const NOW: Moment = Moment::from_secs(1_790_000_000);
const CALLER: &[u8] = b"v=0\r\no=c 1 1 IN IP4 h\r\nm=audio 1 RTP/AVP 0\r\n";
const AGENT: &[u8] = b"v=0\r\no=a 1 1 IN IP4 h\r\nm=audio 2 RTP/AVP 0\r\n";
const MOVED: &[u8] = b"v=0\r\no=c 1 2 IN IP4 h\r\nm=audio 3 RTP/AVP 0\r\n";

/// Answer to a re-INVITE: the SDP of a 2xx, if any, or the status of a refusal.
type Answer = Result<Option<&'static [u8]>, u16>;

fn answer(hold: &mut HoldMachine, answer: Answer) -> HoldProgress {
    let role = hold.asked();
    match answer {
        Ok(sdp) => hold.accepted(sdp, Some(CALLER), NOW),
        Err(status) => hold.refused(HoldRefusal { role, status }, NOW),
    }
}

/// Returns the next side, and the direction of its offer.
fn offer(hold: &HoldMachine) -> Option<(LegRole, Direction)> {
    let (role, sdp) = hold.next_offer(CALLER)?;
    Some((role, direction::of(&sdp)[0]))
}

#[test]
fn a_change_turns_the_call_until_it_is_settled() {
    let mut hold = HoldMachine::default();
    assert_eq!((hold.is_turning(), hold.until()), (false, None));

    let (_, progress) = hold.begin(true, NOW);
    let until = NOW + PATIENCE;
    assert_eq!(progress, HoldProgress::Ask(until));
    assert_eq!((hold.is_turning(), hold.until()), (true, Some(until)));

    let _ = answer(&mut hold, Ok(Some(AGENT)));
    assert!(hold.is_turning() && !hold.is_held());
    let _ = answer(&mut hold, Ok(Some(CALLER)));
    assert!(!hold.is_turning() && hold.is_held());

    let ended = hold.take().expect("a status");
    assert!(!ended.held, "with its call");
    assert!(!hold.is_held());
}

#[test]
fn each_answer_leads_to_the_next_offer_or_the_end() {
    use Direction::{SendOnly, SendRecv};
    use LegRole::{Agent, Trunk};
    let accepts = Ok(Some(AGENT));
    let refused = |role, status| Some(HoldRefusal { role, status });
    let [hold, resume] = [true, false];
    let agent_held = Some((Agent, SendOnly));
    let agent_open = Some((Agent, SendRecv));
    let caller_held = Some((Trunk, SendOnly));
    let caller_open = Some((Trunk, SendRecv));
    // Whether the call is held before, and the request; each answer and the offer that follows it; at the end the refusing side.
    type Row<'a> = (
        &'a str,
        bool,
        bool,
        &'a [(Answer, Option<(LegRole, Direction)>)],
        bool,
        Option<HoldRefusal>,
    );
    let rows: [Row<'_>; 8] = [
        (
            "held",
            resume,
            hold,
            &[(accepts, caller_held), (Ok(Some(CALLER)), None)],
            true,
            None,
        ),
        (
            "the agent refuses",
            resume,
            hold,
            &[(Err(488), None)],
            false,
            refused(Agent, 488),
        ),
        (
            "the agent answers with nothing",
            resume,
            hold,
            &[(Ok(None), agent_open), (accepts, None)],
            false,
            refused(Agent, 488),
        ),
        (
            "the caller refuses",
            resume,
            hold,
            &[
                (accepts, caller_held),
                (Err(486), agent_open),
                (accepts, None),
            ],
            false,
            refused(Trunk, 486),
        ),
        (
            "nor does the agent take that back",
            resume,
            hold,
            &[
                (accepts, caller_held),
                (Err(486), agent_open),
                (Err(500), None),
            ],
            false,
            refused(Trunk, 486),
        ),
        (
            "resumed",
            hold,
            resume,
            &[(accepts, caller_open), (Ok(Some(CALLER)), None)],
            false,
            None,
        ),
        (
            "the caller has moved",
            hold,
            resume,
            &[
                (accepts, caller_open),
                (Ok(Some(MOVED)), agent_open),
                (accepts, None),
            ],
            false,
            None,
        ),
        (
            "and the agent won't follow",
            hold,
            resume,
            &[
                (accepts, caller_open),
                (Ok(Some(MOVED)), agent_open),
                (Err(488), None),
            ],
            false,
            None,
        ),
    ];
    for (case, before, wanted, answers, held, refused) in rows {
        let mut hold = HoldMachine::default();
        if before {
            let _ = hold.begin(true, NOW);
            let _ = answer(&mut hold, accepts);
            let _ = answer(&mut hold, Ok(Some(CALLER)));
        }
        let (number, progress) = hold.begin(wanted, NOW);
        assert_eq!(progress, HoldProgress::Ask(NOW + PATIENCE), "{case}");
        let first = if wanted { agent_held } else { agent_open };
        assert_eq!(offer(&hold), first, "{case}");

        let mut last = HoldProgress::Nothing;
        for (reply, next) in answers {
            last = answer(&mut hold, *reply);
            assert_eq!(offer(&hold), *next, "{case}: {reply:?}");
        }
        let status = HoldStatus {
            held,
            settled: number,
            refused,
        };
        assert_eq!(last, HoldProgress::Settled(status), "{case}");
        assert_eq!((hold.is_held(), hold.is_closed()), (held, held), "{case}");
    }
}

#[test]
fn a_request_is_measured_by_what_is_under_way() {
    let mut hold = HoldMachine::default();
    assert_eq!(hold.request(false, false), Ok(HoldRequest::Already(None)));
    assert_eq!(hold.request(true, false), Ok(HoldRequest::New));
    let (number, _) = hold.begin(true, NOW);
    assert_eq!(
        hold.request(true, true),
        Ok(HoldRequest::Already(Some(number)))
    );
    assert_eq!(
        hold.request(false, false),
        Err(HoldError::Opposite),
        "it is asked"
    );
    let Ok(HoldRequest::Withdrawn(HoldProgress::Settled(status))) = hold.request(false, true)
    else {
        panic!("neither side has heard of it");
    };
    assert!(!status.held && status.refused.is_none());

    let _ = hold.begin(true, NOW);
    let _ = answer(&mut hold, Ok(Some(AGENT)));
    let said = hold.request(false, true);
    assert_eq!(said, Err(HoldError::Opposite), "the agent has agreed");
    let _ = answer(&mut hold, Ok(Some(CALLER)));
    assert_eq!(hold.request(true, false), Ok(HoldRequest::Already(None)));
    assert_eq!(hold.request(false, false), Ok(HoldRequest::New));
}

#[test]
fn what_crosses_meanwhile_is_switched_off_and_a_change_has_both_asked_anew() {
    let mut hold = HoldMachine::default();
    let _ = hold.begin(true, NOW);
    assert!(!hold.is_closed());
    let _ = answer(&mut hold, Ok(Some(AGENT)));
    assert!(hold.is_closed());
    hold.disturb();
    assert_eq!(offer(&hold), Some((LegRole::Agent, Direction::SendOnly)));
}

#[test]
fn the_built_in_agent_has_the_caller_alone_asked() {
    for (reply, held) in [(Ok(Some(CALLER)), true), (Err(488), false)] {
        let mut hold = HoldMachine::default();
        let _ = hold.begin(true, NOW);
        let own = hold.own_offer(AGENT).map(|(role, _)| role);
        assert_eq!(own, Some(LegRole::Trunk));
        let role = hold.asked();
        let progress = match reply {
            Ok(sdp) => hold.accepted(sdp, None, NOW),
            Err(status) => hold.refused(HoldRefusal { role, status }, NOW),
        };
        assert!(matches!(progress, HoldProgress::Settled(status) if status.held == held));
    }
}

/// A peer that has answered the re-INVITEs so far has its whole time for the next one.
#[test]
fn each_re_invite_has_its_own_deadline() {
    let later = NOW + Duration::from_secs(3);
    let mut hold = HoldMachine::default();
    let _ = hold.begin(true, NOW);
    let _ = answer(&mut hold, Ok(Some(AGENT)));
    let refusal = HoldRefusal {
        role: LegRole::Trunk,
        status: 486,
    };
    let progress = hold.refused(refusal, later);
    assert_eq!(
        progress,
        HoldProgress::Ask(later + PATIENCE),
        "it is undone"
    );

    let mut hold = HoldMachine::default();
    for wanted in [true, false] {
        let _ = hold.begin(wanted, NOW);
        let _ = answer(&mut hold, Ok(Some(AGENT)));
        if wanted {
            let _ = answer(&mut hold, Ok(Some(CALLER)));
        }
    }
    let progress = hold.accepted(Some(MOVED), Some(CALLER), later);
    let until = later + PATIENCE;
    assert!(
        matches!(progress, HoldProgress::Follow(status, at) if !status.held && at == until),
        "the caller has moved: {progress:?}"
    );
    assert_eq!(hold.until(), Some(until));
}

#[test]
fn a_side_with_an_obsolete_sdp_gets_the_other_ones_held_or_not() {
    use Direction::{SendOnly, SendRecv};
    use LegRole::{Agent, Destination, Trunk};
    for (case, is_held, role, direction) in [
        ("the agent of a held call", true, Agent, SendOnly),
        (
            "the destination of a held call",
            true,
            Destination,
            SendOnly,
        ),
        ("the caller of a held call", true, Trunk, SendOnly),
        ("the agent of an open call", false, Agent, SendRecv),
        ("the caller of an open call", false, Trunk, SendRecv),
    ] {
        let mut hold = HoldMachine::default();
        if is_held {
            let _ = hold.begin(true, NOW);
            let _ = answer(&mut hold, Ok(Some(AGENT)));
            let _ = answer(&mut hold, Ok(Some(CALLER)));
        }
        let progress = hold.restore(role, NOW);
        assert_eq!(progress, HoldProgress::Ask(NOW + PATIENCE), "{case}");
        // The agent's SDP isn't kept, so the agent's side is asked first either way.
        assert_eq!(offer(&hold), Some((Agent, direction)), "{case}");
    }
}

#[test]
fn what_a_caller_refuses_to_have_back_holds_nobody() {
    for (is_held, direction) in [(false, Direction::SendRecv), (true, Direction::SendOnly)] {
        let mut hold = HoldMachine::default();
        if is_held {
            let _ = hold.begin(true, NOW);
            let _ = answer(&mut hold, Ok(Some(AGENT)));
            let _ = answer(&mut hold, Ok(Some(CALLER)));
        }

        let _ = hold.restore(LegRole::Trunk, NOW);
        let _ = answer(&mut hold, Ok(Some(AGENT)));
        let _ = answer(&mut hold, Err(500));
        assert_eq!(offer(&hold), Some((LegRole::Agent, direction)), "{is_held}");
    }
}
