//! REFER to the PBX: how often it is sent, and what its answers and NOTIFYs say.

use super::*;

#[test]
fn an_answer_is_confirmed_unless_it_came_too_soon() {
    const BEGIN_EARLY: [Pbx; 3] = [Pbx::Asterisk, Pbx::FreePbx, Pbx::FreeSwitch];
    const WAIT: [Option<Pbx>; 2] = [None, Some(Pbx::ThreeCx)];

    // The statuses that are reported first, each a second after the one before; the time until the 200; whether it confirms the answer at a PBX that
    // may report early, and at any other.
    for (case, reported, seconds, early, other) in [
        ("200 at once", &[][..], 0, false, false),
        ("200 after a while", &[], 1, false, true),
        ("200 with the 180", &[180], 0, false, false),
        ("200 with the last 180", &[180, 180], 0, false, false),
        ("200 with the 100", &[100], 0, false, false),
        ("200 after the 100", &[100], 1, true, true),
        ("200 after the 180", &[100, 180], 1, true, true),
    ] {
        let early = BEGIN_EARLY.map(|pbx| (Some(pbx), early));
        for (pbx, confirmed) in early.into_iter().chain(WAIT.map(|pbx| (pbx, other))) {
            let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted()]);
            story.call.pbx = pbx;
            for status in reported {
                story = story.seconds(1);
                story.on(notified(*status));
            }
            let mut story = story.seconds(seconds);
            story.on(notified(200));
            let said = story.record().answer_confirmed;
            assert_eq!(said, Some(confirmed), "{case}, {pbx:?}");
        }
    }
}

#[test]
fn a_call_counts_as_transferred_once_its_destination_is_known_to_have_answered() {
    let completed = |seconds| {
        let story = Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted()]);
        story.seconds(seconds).after([notified(200)])
    };
    for (seconds, left, ended_by_pbx) in [
        (1, "leave:Transferred:Platform", "- end:Transferred"),
        (
            0,
            "leave:Completed:Platform:transfer_unconfirmed",
            "- end:Completed:transfer_unconfirmed",
        ),
    ] {
        assert_eq!(completed(seconds).on(TransferEvent::TimedOut), left);
        assert_eq!(completed(seconds).on(ended(HangupBy::Callee)), ended_by_pbx);
    }
}

#[test]
fn a_notify_of_an_earlier_refer_says_nothing() {
    let notify = |cseq| TransferEvent::Notified {
        cseq,
        status: Some(486),
        subscription: OPEN,
    };
    let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged]);
    assert_eq!(story.on(notify(CSEQ - 1)), "");
    assert_eq!(story.state(), "Referring");
    story.on(notify(CSEQ));
    assert_eq!(story.state(), "Settled");

    let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged]);
    let stale = TransferEvent::ReferAnswered {
        cseq: CSEQ - 1,
        answer: ReferAnswer::Refused(501),
    };
    assert_eq!(story.on(stale), "");
    let stale = TransferEvent::ReferUnanswered {
        cseq: CSEQ - 1,
        status: 408,
        was_connected: false,
    };
    assert_eq!(story.on(stale), "");
}

#[test]
fn a_refer_is_sent_so_often() {
    let mut story = Story::of(Plan {
        bridges_after_refer: false,
        ..by_refer()
    });
    assert_eq!(story.on(TransferEvent::Acknowledged), "- REFER");
    for _ in 1..5 {
        assert_eq!(story.on(broken()), "- REFER");
    }
    assert_eq!(story.on(broken()), "failed503 n503! - resume");
}

#[test]
fn a_refer_that_timed_out_or_was_never_sent_is_not_sent_again() {
    for (status, was_connected) in [(408, true), (503, false)] {
        let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged]);
        let unanswered = TransferEvent::ReferUnanswered {
            cseq: CSEQ,
            status,
            was_connected,
        };

        let failed = format!("failed{status} n{status}! - resume");
        assert_eq!(story.on(unanswered), failed);
    }
}

#[test]
fn a_second_180_says_nothing_new() {
    let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted()]);
    let first = story.on(notified(180));
    let rang_at = story.record().ringing_at;

    let mut story = story.seconds(1);
    let second = story.on(notified(183));
    assert!(first.contains("n180"), "{first}");
    assert!(!second.contains("n183"), "{second}");
    assert_eq!(story.record().ringing_at, rang_at);
}

#[test]
fn an_answer_is_no_longer_too_soon_when_that_time_has_passed() {
    let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted()]);
    let millisecond = std::time::Duration::from_millis(1);
    story.call.now = story.call.now + TOO_SOON + millisecond;
    story.on(notified(200));
    assert_eq!(story.record().answer_confirmed, Some(true));
}

/// RFC 6665 §4.2.2.
#[test]
fn a_runtime_that_has_unsubscribed_gets_no_more_notifys() {
    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::Unsubscribed,
    ]);
    assert_eq!(story.on(notified(180)), "ringing 180s");
    assert_eq!(story.on(notified(486)), "failed486 - resume");
}
