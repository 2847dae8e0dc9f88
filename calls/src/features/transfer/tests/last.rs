//! The last transfer of a call: none, one, or another after it.

use trunkline_sip::wheel::Wheel;

use super::*;

#[test]
fn a_second_transfer_takes_the_place_of_a_settled_one() {
    let mut story =
        Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted(), notified(486)]);
    assert!(!story.transfer.is_busy() && !story.transfer.is_under_way());
    assert_eq!(story.transfer.referrals(), 1);
    let steps = story.transfer.begin(NewTransfer {
        record: asked(TransferMethod::Refer),
        requester: Requester::Api,
        plan: by_refer(),
        trunk: None,
        refer_to: "<sip:2@pbx>".into(),
    });
    assert_eq!(said(steps), "- requested", "nobody has subscribed");
    assert_eq!(story.transfer.referrals(), 1, "the API has asked");
    assert!(story.transfer.is_busy() && story.transfer.is_under_way());

    story.on(TransferEvent::Acknowledged);
    let cseq = CSEQ;
    assert!(story.transfer.digest_answers_for(cseq).is_some());
    assert!(story.transfer.digest_answers_for(cseq + 1).is_none());
    story.on(refer_answered(ReferAnswer::Refused(501)));
    assert!(story.transfer.digest_answers_for(cseq).is_none());
    // Without a trunk there is nothing to learn.
    story.on(TransferEvent::DestinationRefused(488));
    assert_eq!(story.on(TransferEvent::CallerHeard), "");
}

#[test]
fn a_call_without_a_transfer_just_ends() {
    let call = CallFacts {
        now: NOW,
        is_up: false,
        can_dial: false,
        pbx: None,
    };
    let mut none: LastTransfer = LastTransfer::default();

    assert!(none.0.is_none() && !none.is_busy() && !none.is_under_way());
    assert!(!none.is_parting() && !none.goes_on() && none.timer().is_none());
    assert_eq!(none.referrals(), 0);
    assert_eq!(
        said(none.handle(ended(HangupBy::Agent), call)),
        "end:Completed"
    );
    assert_eq!(
        said(none.handle(TransferEvent::DialogGone, call)),
        "hangup:DialogGone"
    );
    assert_eq!(said(none.handle(TransferEvent::CallerHeard, call)), "");
}

#[test]
fn a_call_goes_on_for_its_transfer_as_the_state_says() {
    // The state; whether no other transfer can begin, the outcome is open, the transfer goes on without the agent, and the call is over except
    // for the outcome.
    for (state, busy, under_way, goes_on, parting) in [
        ("AwaitingAck", true, true, true, false),
        ("Referring", true, true, true, false),
        ("Retrying", true, true, true, false),
        ("Subscribed", true, true, true, false),
        ("Probing", true, true, true, false),
        ("Bridging", true, true, true, false),
        ("Joining", true, true, true, false),
        ("AwaitingBye", true, false, true, false),
        ("Doubting", false, false, false, false),
        ("Unresolved", false, true, true, false),
        ("Parting", true, true, true, true),
        ("Settled", false, false, false, false),
    ] {
        let story = states().into_iter().find(|(name, _)| *name == state);
        let Story { transfer, .. } = story.expect("a state").1();
        let is = [
            transfer.is_busy(),
            transfer.is_under_way(),
            transfer.goes_on(),
            transfer.is_parting(),
        ];
        assert_eq!(is, [busy, under_way, goes_on, parting], "{state}");
    }
}

#[test]
fn a_notify_belongs_to_a_refer_of_its_leg() {
    let story = Story::of(by_refer()).after([TransferEvent::Acknowledged]);
    for (case, leg, id, cseq) in [
        ("without an id", LegId::FIRST, None, Some(CSEQ)),
        ("by its id", LegId::FIRST, Some(CSEQ), Some(CSEQ)),
        ("another id", LegId::FIRST, Some(CSEQ + 1), None),
        ("another leg", LegId::SECOND, None, None),
    ] {
        assert_eq!(story.transfer.refer_of_notify(leg, id), cseq, "{case}");
    }
    let refer = story.transfer.refer().expect("one");
    assert_eq!(&*refer.to, "<sip:1@pbx>");
}

#[test]
fn the_timer_of_a_settled_transfer_is_the_next_ones() {
    let timer = Wheel::new(NOW).schedule(NOW, ());
    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        refer_answered(ReferAnswer::Refused(603)),
    ]);
    *story.transfer.timer_mut().expect("a transfer") = Some(timer);
    assert_eq!(story.transfer.timer(), Some(timer));

    let steps = story.transfer.begin(NewTransfer {
        record: asked(TransferMethod::Refer),
        requester: Requester::Runtime(None),
        plan: by_refer(),
        trunk: None,
        refer_to: "<sip:2@pbx>".into(),
    });
    assert_eq!(said(steps), "- requested", "it is stopped");
    assert_eq!(story.transfer.timer(), Some(timer));
    assert_eq!(story.transfer.referrals(), 2);
}
