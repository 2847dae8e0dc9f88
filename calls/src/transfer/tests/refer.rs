//! REFER to the PBX: how often it is sent, and what its answers and NOTIFYs say.

use super::*;

#[test]
fn an_answer_is_confirmed_unless_it_came_too_soon() {
    for (case, pbx, rings, seconds, confirmed) in [
        ("200 at once", None, false, 0, false),
        ("200 after a while", None, false, 1, true),
        ("200 at once after 180", None, true, 0, true),
        (
            "Asterisk plays ringing",
            Some(Pbx::Asterisk),
            true,
            0,
            false,
        ),
        ("Asterisk, an answer", Some(Pbx::Asterisk), true, 1, true),
        ("FreePBX plays ringing", Some(Pbx::FreePbx), true, 0, false),
    ] {
        let mut story = Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted()]);
        story.call.pbx = pbx;
        if rings {
            story.on(notified(180));
        }
        let mut story = story.seconds(seconds);
        story.on(notified(200));
        assert_eq!(story.record().answer_confirmed, Some(confirmed), "{case}");
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
    story.call.now = story.call.now + TOO_SOON;
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
