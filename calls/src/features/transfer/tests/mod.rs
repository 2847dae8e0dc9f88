//! Every event in every state of a transfer, and the rules behind the cells one by one.

mod bridge;
mod caller;
mod last;
mod refer;

use std::collections::VecDeque;

use smallvec::SmallVec;
use trunkline_model::handoff::Report;
use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{self as record, TransferMethod, Trunk};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::destination_route::{DestinationRoute, RouteKind};
use super::event::{
    AgentEnd, CallFacts, NewTransfer, ReferAnswer, Requester, Steps, Subscription, TransferEvent,
    TransferStep,
};
use super::last::LastTransfer;
use super::outcome::TOO_SOON;
use super::plan::Plan;
use crate::invite::invite_client::TransportChoice;
use crate::leg::callee::Callee;
use crate::parts::dial_failure::{DialFailure, UNREACHABLE};
use crate::parts::ids::LegId;
use crate::parts::pbx::Pbx;

const NOW: Moment = Moment::from_secs(1_790_000_000);
/// CSeq of the REFER.
const CSEQ: u32 = 7;
const OPEN: SubscriptionState = SubscriptionState::Open { expires: None };

/// A value of the table, made anew for each cell.
type Named<T> = (&'static str, fn() -> T);

/// A transfer of a call, and the facts of that call.
struct Story {
    transfer: LastTransfer,
    call: CallFacts,
}

impl Story {
    /// Makes a transfer requested by the runtime, in its first state.
    fn of(plan: Plan) -> Self {
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
fn said(steps: Steps) -> String {
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
        TransferStep::Dial(route) => format!("dial:{}", route.callee.to),
        TransferStep::Resume => "resume".to_owned(),
        TransferStep::Unresolved => "unresolved".to_owned(),
        TransferStep::Leave(end) => match end.reason {
            None => format!("leave:{:?}:{:?}", end.status, end.by),
            Some(reason) => format!("leave:{:?}:{:?}:{}", end.status, end.by, reason.code()),
        },
        TransferStep::HangUp(reason) => format!("hangup:{reason:?}"),
        TransferStep::CallEnd(ended) => match &ended.reason {
            None => format!("end:{:?}", ended.status),
            Some(reason) => format!("end:{:?}:{reason}", ended.status),
        },
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

/// A route to a destination of that name.
fn host() -> Box<DestinationRoute> {
    let callee = Callee {
        dial_targets: VecDeque::new(),
        hosts: SmallVec::new(),
        to: "host".into(),
        from_name: Box::default(),
        from_user: Box::default(),
        from_host: None,
        user_phone: false,
        asserts: false,
        credentials: SmallVec::new(),
        challenger: None,
        lines: Box::default(),
        leads_back: false,
        transport: TransportChoice::Ours,
    };
    Box::new(DestinationRoute::new(callee, RouteKind::Pbx))
}

/// REFER first, and the bridge after it.
fn by_refer() -> Plan {
    Plan {
        first: TransferMethod::Refer,
        refers: true,
        refers_after_bridge: true,
        bridges_after_refer: true,
        bridges_after_decline: false,
        keeps_caller: false,
        route: Some(host()),
    }
}

fn by_bridge() -> Plan {
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
        reason_detail: None,
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
        ("AgentLeft", || TransferEvent::AgentLeft(AgentEnd::HungUp)),
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
