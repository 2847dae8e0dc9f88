//! Every event in every state of a transfer, and the rules behind the cells one by one.

use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{self as record, TransferMethod, Trunk};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::event::{
    CallFacts, NewTransfer, ReferAnswer, Requester, Steps, Subscription, TransferEvent,
    TransferStep,
};
use super::last::LastTransfer;
use super::machine::TOO_SOON;
use super::plan::Plan;
use crate::dial_failure::{DialFailure, UNREACHABLE};
use crate::ids::LegId;
use crate::pbx::Pbx;

const NOW: Moment = Moment::from_secs(1_790_000_000);
/// CSeq of the REFER.
const CSEQ: u32 = 7;
const OPEN: SubscriptionState = SubscriptionState::Open { expires: None };

/// A value of the table, made anew for each cell.
type Named<T> = (&'static str, fn() -> T);

/// A transfer of a call, and the facts of that call.
struct Story {
    transfer: LastTransfer<&'static str>,
    call: CallFacts,
}

impl Story {
    /// Makes a transfer requested by the runtime, in its first state.
    fn of(plan: Plan<&'static str>) -> Self {
        let mut transfer = LastTransfer::default();
        let subscription = Subscription { fork: 0, id: None };
        let steps = transfer.begin(NewTransfer {
            record: asked(plan.first),
            requester: Requester::Runtime(Some(subscription)),
            plan,
            trunk: Some(Trunk::Inbound(Uuid::nil())),
            refer_to: "<sip:1@pbx>".into(),
        });
        assert_eq!(said(steps), "- requested n100");

        let call = CallFacts {
            now: NOW,
            is_up: true,
            can_dial: true,
            pbx: None,
        };
        Self { transfer, call }
    }

    /// Handles an event; returns its steps, and those that follow a sent REFER or probe.
    fn on(&mut self, event: TransferEvent) -> String {
        let steps = self.transfer.handle(event, self.call);
        let refers = steps.iter().any(|step| matches!(step, TransferStep::Refer));
        let steps = said(steps);
        if refers {
            let then = self.on(refer_sent(CSEQ));
            assert_eq!(then, "");
        }
        steps
    }

    fn state(&self) -> String {
        let state = format!("{:?}", self.transfer.0.as_deref().expect("one").state);
        state.split('(').next().unwrap_or_default().to_owned()
    }

    fn record(&self) -> &record::Transfer {
        &self.transfer.0.as_deref().expect("one").record
    }

    /// Handles events in order.
    fn after(mut self, events: impl IntoIterator<Item = TransferEvent>) -> Self {
        for event in events {
            self.on(event);
        }
        self
    }

    fn seconds(mut self, seconds: u64) -> Self {
        self.call.now = self.call.now + std::time::Duration::from_secs(seconds);
        self
    }

    fn at(mut self, pbx: Pbx) -> Self {
        self.call.pbx = Some(pbx);
        self
    }
}

/// Abbreviates steps: `accepted` records that state, `n180` notifies the runtime, `n180!` for the last time, `32s` and `-` are the timer.
fn said(steps: Steps<&'static str>) -> String {
    let words = steps.into_iter().map(|step| match step {
        TransferStep::Record(record) => {
            let over = if record.handed_over { "+" } else { "" };
            let code = record.sip_code.map(|code| code.to_string());
            format!(
                "{}{}{over}",
                record.state.as_str(),
                code.unwrap_or_default()
            )
        }
        TransferStep::Notify {
            status, is_last, ..
        } => format!("n{status}{}", if is_last { "!" } else { "" }),
        TransferStep::Wait(None) => "-".to_owned(),
        TransferStep::Wait(Some(time)) => format!("{}s", time.as_secs()),
        TransferStep::WaitOutGlare => "glare".to_owned(),
        TransferStep::Refer => "REFER".to_owned(),
        TransferStep::Probe => "probe".to_owned(),
        TransferStep::Dial(route) => format!("dial:{route}"),
        TransferStep::Resume => "resume".to_owned(),
        TransferStep::Unresolved => "unresolved".to_owned(),
        TransferStep::Leave(status, by) => format!("leave:{status:?}:{by:?}"),
        TransferStep::HangUp(reason) => format!("hangup:{reason:?}"),
        TransferStep::CallEnd(ended) => format!("end:{:?}", ended.status),
    });
    let words: Vec<String> = words.collect();

    words.join(" ")
}

fn asked(way: TransferMethod) -> record::Transfer {
    record::Transfer {
        id: Uuid::nil(),
        call: Uuid::nil(),
        org: Uuid::nil(),
        session: Uuid::nil(),
        destination: None,
        name: "sales".into(),
        target: TransferTarget::Sip("sip:sales@pbx".into()),
        way,
        state: record::State::Requested,
        sip_code: None,
        report: Report::default(),
        requested_at: NOW,
        accepted_at: None,
        ringing_at: None,
        ended_at: None,
        handed_over: false,
        answer_confirmed: None,
        caller_may_be_gone: false,
        counted_at: None,
        kept_by: None,
        step: 0,
    }
}

/// REFER first, and the bridge after it.
const fn by_refer() -> Plan<&'static str> {
    Plan {
        first: TransferMethod::Refer,
        refers: true,
        refers_after_bridge: true,
        bridges_after_refer: true,
        bridges_after_decline: false,
        keeps_caller: false,
        route: Some("host"),
    }
}

const fn by_bridge() -> Plan<&'static str> {
    Plan {
        first: TransferMethod::Bridge,
        ..by_refer()
    }
}

const fn accepted() -> TransferEvent {
    refer_answered(ReferAnswer::Accepted)
}

const fn refer_answered(answer: ReferAnswer) -> TransferEvent {
    TransferEvent::ReferAnswered { cseq: CSEQ, answer }
}

const fn refer_sent(cseq: u32) -> TransferEvent {
    let leg = LegId::FIRST;
    TransferEvent::ReferSent { leg, cseq }
}

const fn notified(status: u16) -> TransferEvent {
    TransferEvent::Notified {
        cseq: CSEQ,
        status: Some(status),
        subscription: OPEN,
    }
}

const fn unheard() -> TransferEvent {
    TransferEvent::Notified {
        cseq: CSEQ,
        status: None,
        subscription: SubscriptionState::Terminated,
    }
}

const fn broken() -> TransferEvent {
    TransferEvent::ReferUnanswered {
        cseq: CSEQ,
        status: 503,
        was_connected: true,
    }
}

fn ended(by: HangupBy) -> TransferEvent {
    TransferEvent::CallEnded(Box::new(Ended {
        call: Uuid::nil(),
        org: Uuid::nil(),
        at: NOW,
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        hangup_by: by,
        cause: None,
    }))
}

/// A transfer in each state, at a PBX that loses callers.
fn states() -> Vec<Named<Story>> {
    vec![
        ("AwaitingAck", || Story::of(by_refer())),
        ("Referring", || {
            Story::of(by_refer()).after([TransferEvent::Acknowledged])
        }),
        ("Retrying", || {
            let glare = refer_answered(ReferAnswer::Refused(491));
            Story::of(by_refer()).after([TransferEvent::Acknowledged, glare])
        }),
        ("Subscribed", || {
            Story::of(by_refer())
                .after([TransferEvent::Acknowledged, accepted()])
                .seconds(1)
        }),
        ("Probing", || {
            Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted(), notified(404)])
        }),
        ("Bridging", || {
            Story::of(by_bridge()).after([TransferEvent::Acknowledged])
        }),
        ("Joining", || {
            Story::of(by_bridge()).after([
                TransferEvent::Acknowledged,
                TransferEvent::DestinationAnswered,
            ])
        }),
        ("AwaitingBye", || {
            Story::of(by_refer())
                .after([TransferEvent::Acknowledged, accepted()])
                .seconds(1)
                .after([notified(200)])
        }),
        ("Doubting", || {
            Story::of(by_refer()).at(Pbx::Asterisk).after([
                TransferEvent::Acknowledged,
                accepted(),
                notified(486),
            ])
        }),
        ("Unresolved", || {
            Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted(), unheard()])
        }),
        ("Parting", || {
            Story::of(by_refer()).after([
                TransferEvent::Acknowledged,
                accepted(),
                ended(HangupBy::Caller),
            ])
        }),
        ("Settled", || {
            Story::of(by_refer()).after([TransferEvent::Acknowledged, accepted(), notified(486)])
        }),
    ]
}

/// Events of the table.
fn events() -> Vec<Named<TransferEvent>> {
    const BUSY: DialFailure = DialFailure {
        sip_code: 486,
        ..UNREACHABLE
    };

    vec![
        ("Acknowledged", || TransferEvent::Acknowledged),
        ("ReferSent", || refer_sent(CSEQ + 1)),
        ("ReferUnsent", || TransferEvent::ReferUnsent),
        ("REFER: 202", accepted),
        ("REFER: 202, Refer-Sub: false", || {
            refer_answered(ReferAnswer::AcceptedSilently)
        }),
        ("REFER: 401, answered", || {
            refer_answered(ReferAnswer::Challenged)
        }),
        ("REFER: 481", || refer_answered(ReferAnswer::Refused(481))),
        ("REFER: 491", || refer_answered(ReferAnswer::Refused(491))),
        ("REFER: 501", || refer_answered(ReferAnswer::Refused(501))),
        ("REFER: 603", || refer_answered(ReferAnswer::Refused(603))),
        ("REFER: connection broken", broken),
        ("REFER: no answer", || TransferEvent::ReferUnanswered {
            cseq: CSEQ,
            status: 408,
            was_connected: false,
        }),
        ("NOTIFY: 100", || notified(100)),
        ("NOTIFY: 180", || notified(180)),
        ("NOTIFY: 200", || notified(200)),
        ("NOTIFY: 404", || notified(404)),
        ("NOTIFY: 486", || notified(486)),
        ("NOTIFY: terminated", unheard),
        ("ProbeUnsent", || TransferEvent::ProbeUnsent),
        ("ProbeAnswered", || TransferEvent::ProbeAnswered),
        ("DialogGone", || TransferEvent::DialogGone),
        ("TimedOut", || TransferEvent::TimedOut),
        ("DestinationRings", || TransferEvent::DestinationRings),
        ("DestinationLost: 503", || {
            TransferEvent::DestinationLost(UNREACHABLE)
        }),
        ("DestinationLost: 486", || {
            TransferEvent::DestinationLost(BUSY)
        }),
        ("DestinationRefused", || {
            TransferEvent::DestinationRefused(488)
        }),
        ("DestinationAnswered", || TransferEvent::DestinationAnswered),
        ("DestinationConnected", || {
            TransferEvent::DestinationConnected
        }),
        ("Unsubscribed", || TransferEvent::Unsubscribed),
        ("AgentLeft", || TransferEvent::AgentLeft),
        ("CallerHeard", || TransferEvent::CallerHeard),
        ("CallEnded: caller", || ended(HangupBy::Caller)),
        ("CallEnded: agent", || ended(HangupBy::Agent)),
        ("Stopped", || TransferEvent::Stopped),
    ]
}

/// Each event, and below it each state: the next state, and the steps. States without steps come last, on one line.
const TABLE: &str = include_str!("table.txt");

#[test]
fn each_event_is_decided_in_each_state() {
    let mut table = String::new();
    for (name, event) in events() {
        table.push_str(&format!("{name}\n"));
        let mut unmoved = Vec::new();
        for (state, story) in states() {
            let mut story = story();
            let before = story.state();
            assert_eq!(before, state);
            let steps = story.on(event());
            let after = story.state();
            match steps.is_empty() && after == before {
                true => unmoved.push(state),
                false => table.push_str(&format!("  {state} → {after}: {steps}\n")),
            }
        }
        if !unmoved.is_empty() {
            table.push_str(&format!("  nothing: {}\n", unmoved.join(", ")));
        }
    }

    for (line, (now, meant)) in table.lines().zip(TABLE.lines()).enumerate() {
        assert_eq!(now, meant, "line {}", line + 1);
    }

    assert_eq!(table, TABLE);
}

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

#[test]
fn a_refused_refer_is_followed_by_a_bridge_where_that_may_be() {
    let asks = |plan: Plan<&'static str>, can_dial: bool, status: u16| {
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
        (Pbx::Asterisk, 404, None, true),
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
        TransferEvent::AgentLeft,
    ]);
    assert_eq!(story.on(notified(180)), "ringing 180s");
    let left = "failed486 - leave:Completed:Agent";
    assert_eq!(story.on(notified(486)), left);

    let mut story = Story::of(by_refer()).at(Pbx::FreeSwitch).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::AgentLeft,
    ]);
    assert_eq!(
        story.on(notified(486)),
        left,
        "there is no caller to ask for"
    );

    let mut story = Story::of(by_refer()).after([
        TransferEvent::Acknowledged,
        accepted(),
        TransferEvent::AgentLeft,
    ]);
    assert_eq!(story.on(unheard()), "unknown 5s");
    assert_eq!(story.on(TransferEvent::TimedOut), "- leave:Completed:Agent");
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

#[test]
fn a_caller_that_left_is_handed_over_unless_the_pbx_says_otherwise() {
    let parting = || {
        Story::of(by_refer()).after([
            TransferEvent::Acknowledged,
            accepted(),
            ended(HangupBy::Callee),
        ])
    };
    assert_eq!(parting().on(notified(200)), "completed+ - end:Transferred");
    assert_eq!(parting().on(notified(486)), "failed486 - end:Completed");
    assert_eq!(
        parting().on(TransferEvent::TimedOut),
        "unknown+ - end:Transferred"
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

#[test]
fn a_leg_that_counts_is_in_what_is_kept_next() {
    let mut story = Story::of(by_bridge()).after([TransferEvent::Acknowledged]);
    story.transfer.count(None, Some(NOW));
    story.on(TransferEvent::DestinationRings);
    assert_eq!(story.record().counted_at, Some(NOW));
    assert_eq!(story.record().step, 3);
    assert_eq!(story.record().ringing_at, Some(NOW));
}
