//! The bridge: before a REFER, after one, or in its place.

use super::*;

#[test]
fn a_refused_refer_is_followed_by_a_bridge_where_that_may_be() {
    let asks = |plan: Plan, can_dial: bool, status: u16| {
        let mut story = Story::of(plan).after([TransferEvent::Acknowledged]);
        story.call.can_dial = can_dial;
        story.on(refer_answered(ReferAnswer::Refused(status)))
    };
    let bridged = "- accepted dial:host";
    assert_eq!(asks(by_refer(), true, 400), bridged);
    assert_eq!(asks(by_refer(), true, 399), "failed399 n399! - resume");
    assert_eq!(asks(by_refer(), false, 501), "failed501 n501! - resume");

    for status in [403, 603] {
        let failed = format!("failed{status} n{status}! - resume");
        assert_eq!(asks(by_refer(), true, status), failed, "it was declined");
        let may = Plan {
            bridges_after_decline: true,
            ..by_refer()
        };
        assert_eq!(asks(may, true, status), bridged);
    }

    let never = Plan {
        bridges_after_refer: false,
        ..by_refer()
    };
    assert_eq!(asks(never, true, 501), "failed501 n501! - resume");

    let nowhere = Plan {
        route: None,
        ..by_refer()
    };
    assert_eq!(asks(nowhere, true, 501), "failed501 n501! - resume");
}

#[test]
fn a_bridge_that_reached_nobody_is_followed_by_a_refer_once() {
    let failure = |sip_code, cause| DialFailure {
        sip_code,
        cause,
        is_answer: true,
        ..UNREACHABLE
    };
    // The PBX, its answer to the INVITE, and whether REFER follows.
    for (pbx, status, cause, refers) in [
        (Pbx::ThreeCx, 401, None, true),
        (Pbx::ThreeCx, 403, None, true),
        (Pbx::ThreeCx, 404, None, true),
        (Pbx::ThreeCx, 407, None, true),
        (Pbx::ThreeCx, 408, None, true),
        (Pbx::ThreeCx, 503, None, true),
        (Pbx::ThreeCx, 486, None, false),
        (Pbx::ThreeCx, 500, None, false),
        // Its dialplan has run: REFER would lead into the same one.
        (Pbx::Asterisk, 503, None, false),
        (Pbx::Asterisk, 404, Some(1), false),
        (Pbx::Asterisk, 403, Some(21), false),
        (Pbx::Asterisk, 408, Some(18), false),
        (Pbx::FreeSwitch, 403, Some(21), false),
        // Its SIP stack has refused it, or another context may have the number.
        (Pbx::Asterisk, 403, None, true),
        (Pbx::Asterisk, 404, None, true),
        (Pbx::ThreeCx, 403, Some(21), true),
    ] {
        let mut story = Story::of(by_bridge())
            .at(pbx)
            .after([TransferEvent::Acknowledged]);
        let steps = story.on(TransferEvent::DestinationLost(failure(status, cause)));
        let case = format!("{pbx:?} {status} {cause:?}");
        assert_eq!(steps.ends_with("REFER"), refers, "{case}: {steps}");
    }

    let unreachable = || TransferEvent::DestinationLost(UNREACHABLE);
    let mut story = Story::of(by_bridge())
        .at(Pbx::Asterisk)
        .after([TransferEvent::Acknowledged]);
    assert!(story.transfer.refers_after_bridge());
    assert_eq!(
        story.on(unreachable()),
        "requested - REFER",
        "nothing has run"
    );
    assert_eq!(story.record().way, TransferMethod::Refer);
    // The outcome stays that of the bridge.
    let refused = story.on(refer_answered(ReferAnswer::Refused(501)));
    assert_eq!(refused, "failed503 n503! - resume");
    assert_eq!(story.record().way, TransferMethod::Bridge);

    let mut rung = Story::of(by_bridge())
        .after([TransferEvent::Acknowledged, TransferEvent::DestinationRings]);
    assert_eq!(rung.on(unreachable()), "failed503 n503! - resume");
    let mut story = Story::of(Plan {
        refers_after_bridge: false,
        ..by_bridge()
    });
    story.on(TransferEvent::Acknowledged);
    assert_eq!(story.on(unreachable()), "failed503 n503! - resume");
    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        refer_answered(ReferAnswer::Refused(501)),
    ]);
    assert_eq!(story.state(), "Bridging");
    assert!(!story.transfer.refers_after_bridge(), "it was asked before");
    assert_eq!(story.on(unreachable()), "failed503 n503! - resume");
}

#[test]
fn a_bridge_that_cannot_begin_leaves_the_refer_or_nothing() {
    let mut story = Story::of(by_bridge());
    story.call.can_dial = false;
    assert_eq!(story.on(TransferEvent::Acknowledged), "- REFER");
    story.on(refer_answered(ReferAnswer::Refused(501)));
    assert_eq!(story.record().way, TransferMethod::Refer);
    let mut story = Story::of(Plan {
        refers: false,
        ..by_bridge()
    });
    story.call.can_dial = false;
    assert_eq!(
        story.on(TransferEvent::Acknowledged),
        "failed488 n488! - resume"
    );
}

#[test]
fn a_leg_that_counts_is_in_what_is_kept_next() {
    let mut story = Story::of(by_bridge()).after([TransferEvent::Acknowledged]);
    story.transfer.count(None, Some(NOW));
    story.on(TransferEvent::DestinationRings);
    assert_eq!(story.record().counted_at, Some(NOW));
    assert_eq!(story.record().step, 3);
    assert_eq!(story.record().ringing_at, Some(NOW));
}
