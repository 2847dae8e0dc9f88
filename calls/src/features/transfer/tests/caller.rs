//! The caller: lost by its PBX, kept by it, left behind by the agent, or gone.

use super::*;
use crate::parts::refusal::Reason;

#[test]
fn a_pbx_that_may_have_lost_its_caller_is_to_show_it() {
    // The PBX, its NOTIFY, whether it was seen to keep callers, and the steps.
    for (pbx, status, keeps, steps) in [
        // It says so only once the caller is back in the call.
        (Pbx::FreeSwitch, 486, false, "failed486 n486! - resume"),
        (Pbx::FreePbx, 486, true, "failed486 n486! - resume"),
        (Pbx::ThreeCx, 486, false, "failed486 n486! - resume"),
        // The transfer never began.
        (Pbx::Asterisk, 400, false, "5s probe"),
        (
            Pbx::Asterisk,
            486,
            false,
            "failed486 n486! - resume 5s probe",
        ),
        (
            Pbx::FreePbx,
            503,
            false,
            "failed503 n503! - resume 5s probe",
        ),
    ] {
        let plan = Plan {
            keeps_caller: keeps,
            ..by_refer()
        };
        let mut story = Story::of(plan)
            .at(pbx)
            .after([TransferEvent::Acknowledged, accepted()]);
        assert_eq!(story.on(notified(status)), steps, "{pbx:?} {status}");
    }

    let doubted = || {
        Story::of(by_refer()).at(Pbx::Asterisk).after([
            TransferEvent::Acknowledged,
            accepted(),
            notified(486),
        ])
    };
    let mut story = doubted();
    assert!(story.record().caller_may_be_gone);
    assert_eq!(story.on(TransferEvent::CallerHeard), "- failed486");
    assert!(!story.record().caller_may_be_gone);
    assert_eq!(story.record().kept_by, Some(Trunk::Inbound(Uuid::nil())));
    assert_eq!(story.on(TransferEvent::CallerHeard), "", "once is enough");

    let mut down = Story::of(by_refer())
        .at(Pbx::Asterisk)
        .after([TransferEvent::Acknowledged, accepted()]);
    down.call.is_up = false;
    assert_eq!(down.on(notified(486)), "failed486 n486! - resume");
}

#[test]
fn a_pbx_keeps_callers_only_where_the_transfer_had_begun() {
    for status in [400, 403, 404, 484, 486, 500, 503, 604] {
        let plan = Plan {
            bridges_after_refer: false,
            ..by_refer()
        };
        let mut story =
            Story::of(plan).after([TransferEvent::Acknowledged, accepted(), notified(status)]);
        let shows = matches!(status, 486 | 503);
        let steps = story.on(TransferEvent::CallerHeard);
        assert_eq!(!steps.is_empty(), shows, "{status}: {steps}");
    }
}

#[test]
fn an_agent_that_has_left_hears_nothing_and_takes_its_caller_along_where_the_transfer_fails() {
    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::AgentLeft(AgentEnd::HungUp),
    ]);
    assert_eq!(story.on(notified(180)), "ringing 180s");
    let left = "failed486 - leave:Completed:Agent";
    assert_eq!(story.on(notified(486)), left);

    let mut story = Story::of(by_refer()).at(Pbx::FreeSwitch).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::AgentLeft(AgentEnd::HungUp),
    ]);
    assert_eq!(
        story.on(notified(486)),
        left,
        "there is no caller to ask for"
    );

    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::AgentLeft(AgentEnd::HungUp),
    ]);
    assert_eq!(story.on(unheard()), "unknown 5s");
    let left = "unknown+ - leave:Completed:Agent:transfer_unconfirmed";
    assert_eq!(story.on(TransferEvent::TimedOut), left);
}

/// The record must not say that the agent has hung up, nor that it has handed its caller over.
#[test]
fn an_agent_that_was_lost_leaves_a_caller_whose_call_ends_for_that_reason() {
    let lost = || {
        Story::of(by_refer()).after([
            TransferEvent::Acknowledged,
            accepted(),
            TransferEvent::AgentLeft(AgentEnd::Lost(Reason::DialogGone)),
        ])
    };
    let left = "leave:Completed:Platform:dialog_gone";
    assert_eq!(lost().on(notified(486)), format!("failed486 - {left}"));
    let mut story = lost();
    assert_eq!(story.on(unheard()), "unknown 5s");
    assert_eq!(story.on(TransferEvent::TimedOut), format!("- {left}"));
    // The transfer's own outcome goes before the agent's end.
    let mut story = lost();
    let completed = story.on(notified(200));
    assert!(completed.starts_with("completed"), "{completed}");
}

#[test]
fn a_caller_that_left_is_handed_over_unless_the_pbx_says_otherwise() {
    let parting = || {
        Story::of(by_refer()).after([
            TransferEvent::Acknowledged,
            accepted(),
            ended(HangupBy::Callee),
        ])
    };
    let end = "completed+ - end:Completed:transfer_unconfirmed";
    assert_eq!(parting().on(notified(200)), end, "at once");
    let end = "completed+ - end:Transferred";
    assert_eq!(parting().seconds(1).on(notified(200)), end);
    assert_eq!(parting().on(notified(486)), "failed486 - end:Completed");
    assert_eq!(
        parting().on(TransferEvent::TimedOut),
        "unknown+ - end:Completed:transfer_unconfirmed"
    );
    let mut unasked =
        Story::of(by_refer()).after([TransferEvent::Acknowledged, ended(HangupBy::Caller)]);
    assert_eq!(
        unasked.on(TransferEvent::TimedOut),
        "failed487 - end:Completed"
    );
    let mut refused =
        Story::of(by_refer()).after([TransferEvent::Acknowledged, ended(HangupBy::Caller)]);
    let answer = refer_answered(ReferAnswer::Refused(603));
    assert_eq!(refused.on(answer), "failed603 - end:Completed");
}

/// RFC 5057 §5.1: these two say that the dialog is gone.
#[test]
fn a_probe_is_answered_by_a_pbx_that_knows_the_call() {
    for (status, is_gone) in [
        (200, false),
        (404, false),
        (405, false),
        (408, true),
        (481, true),
        (500, false),
    ] {
        let event = TransferEvent::of_probe(status);
        match is_gone {
            true => assert!(matches!(event, TransferEvent::DialogGone), "{status}"),
            false => assert!(matches!(event, TransferEvent::ProbeAnswered), "{status}"),
        }
    }
}
