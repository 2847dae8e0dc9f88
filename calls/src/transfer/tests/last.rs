//! The last transfer of a call: none, one, or another after it.

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
    let mut none: LastTransfer<&'static str> = LastTransfer::default();

    assert!(none.0.is_none() && !none.is_busy() && !none.is_under_way());
    assert!(!none.is_parting() && !none.goes_on() && none.timer().is_none());
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
