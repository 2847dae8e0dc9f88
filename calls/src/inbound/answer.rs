//! The runtime's final answer to the INVITE: the call is up, the next target is tried, or the caller is
//! refused (RFC 3261 §13.2.2, §13.3.1).

use trunkline_sip::header::text;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use crate::core::context::Cx;
use crate::inbound::provisional;
use crate::invite::invite_client::Accepted;
use crate::leg::bridge::Bridge;
use crate::leg::call_end::AnswerProgress;
use crate::leg::provisional_relay::{HeldAnswer, WinningAnswer};
use crate::leg::relay::Relay;
use crate::leg::{Ack, LegState, Session, uas_invite};
use crate::parts::crossing::Crossing;
use crate::{has_sdp, sdp_of};

/// Handles a 2xx of the runtime: the first one wins. Returns it, unless it waits for the caller's PRACK.
pub(crate) fn accept_runtime(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    slot: Slot,
    accepted: Accepted<'_>,
) -> Option<WinningAnswer> {
    let Accepted {
        client,
        fork,
        cseq,
        flow,
        dialog,
        ack_lines,
        credentials,
        message,
        ..
    } = accepted;

    provisional::begin_fork(bridge, cx, slot, fork, dialog, message);
    if let Some(leg) = bridge.agent_mut() {
        leg.flow = flow;
        leg.credentials = credentials;
    }

    let agent = bridge.agent_id();
    bridge
        .legs
        .set_state(agent, LegState::Ready(Session::default()));
    let incoming = bridge.incoming()?;

    // An INVITE without an offer: the ACK has to wait for the caller's answer (RFC 3261 §13.2.2.4).
    let agreed = has_sdp(incoming.invite()) || incoming.relay.is_agreed(fork);
    // RFC 3262 §3: a UAS "MUST NOT send a final response" 2xx while an 18x with an SDP is unacknowledged.
    let waits = incoming.relay.owes_answer(fork);
    let acknowledged = agreed || !has_sdp(message);
    if acknowledged {
        let ack = Ack {
            client,
            fork,
            cseq,
            lines: &ack_lines,
            body: b"",
        };
        if let Some(leg) = bridge.legs.get_mut(agent) {
            leg.send_ack(cx, &ack);
        }
    }

    let won = WinningAnswer {
        client,
        flow,
        fork,
        cseq,
        acknowledged,
    };
    match bridge.incoming_mut().filter(|_| waits) {
        Some(incoming) => {
            let answer = message.into();
            incoming.relay.hold_back(HeldAnswer { won, answer });
            None
        }
        None => Some(won),
    }
}

/// Passes the runtime's 2xx on to the caller.
pub(crate) fn pass_answer(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    won: WinningAnswer,
    message: &Message<'_>,
) -> AnswerProgress {
    let trunk = relay.bridge.trunk_id();
    let Some(incoming) = relay.bridge.legs.take_incoming(trunk) else {
        return AnswerProgress::Nothing;
    };
    uas_invite::release_incoming(cx, &incoming);
    // A later 2xx of another fork finds no dialog, and gets ACK and BYE.
    relay.bridge.keep_only(cx, won.fork);
    let agent = relay.bridge.agent_id();
    if let Some(mut leg) = relay.bridge.at(agent) {
        leg.open(cx, won.flow, message);
    }

    let delayed = (!won.acknowledged).then(|| won.delayed(sdp_of(message.body())));
    // RFC 3261 §13.2.1: the answer has to be in the 2xx unless a reliable response had it. Some runtimes send it in an unreliable 183 alone.
    let lacks_answer = message.body().is_empty()
        && has_sdp(incoming.invite())
        && !incoming.relay.is_agreed(won.fork);
    let early = relay.bridge.legs.sip(trunk).filter(|_| lacks_answer);
    let early: Option<Vec<u8>> = early
        .and_then(|caller| caller.local_sdp(won.fork))
        .map(Into::into);

    let is_early = early.is_some();
    let crossing = |head: &mut Head<'_>, prefix: &str| {
        Crossing::of_final_answer(prefix).copy(head, message);
        if is_early {
            head.line("Content-Type", b"application/sdp");
        }
    };
    let (fork, body) = (won.fork, early.as_deref().unwrap_or(message.body()));
    match relay.accept_caller(cx, fork, &incoming, body, delayed, crossing) {
        true => AnswerProgress::Accepted {
            runtime_call_id: text::lossy(message.call_id()).into(),
        },
        false => AnswerProgress::Nothing,
    }
}
