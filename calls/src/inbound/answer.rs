//! The runtime's final answer to the INVITE: the call is up, the next target is tried, or the caller is
//! refused (RFC 3261 §13.2.2, §13.3.1).

use std::sync::Arc;

use trunkline_model::record::{HangupBy, Status};
use trunkline_sip::header::text;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use crate::core::context::Cx;
use crate::inbound::provisional;
use crate::invite::invite_client::{Accepted, Failed};
use crate::leg::bridge::Bridge;
use crate::leg::call_end::{AnswerProgress, CallEnd, CallRefusal};
use crate::leg::delayed_ack::Delayed;
use crate::leg::held_media;
use crate::leg::provisional_relay::{HeldAnswer, WinningAnswer};
use crate::leg::relay::Relay;
use crate::leg::uas_invite::UasInvite;
use crate::leg::{Ack, AwaitedAck, LegState, Session};
use crate::parts::allow::own_lines;
use crate::parts::crossing;
use crate::parts::crossing::{Crossing, RuntimeRefusal};
use crate::parts::refusal::Reason;
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

/// Sends 200 to the caller's INVITE, for a runtime or for media of our own; false if there is no such dialog.
pub(crate) fn accept_caller(
    relaying: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    incoming: &UasInvite,
    body: &[u8],
    delayed: Option<Delayed>,
    more: impl FnOnce(&mut Head<'_>, &str),
) -> bool {
    let (config, invite) = (Arc::clone(&cx.core.config), incoming.invite());
    let (id, agent) = (relaying.bridge.trunk_id(), relaying.bridge.agent_id());
    let Some(trunk) = relaying.bridge.legs.sip_mut(id) else {
        return false;
    };

    let contact = cx.contact(&trunk.flow, trunk.is_sips);
    let server = incoming.server();
    let mut session = Session::begun_by(server);
    session.timer = incoming.session_timer();
    trunk.remember_sdp(fork, body);
    // A PRACK or an UPDATE may have changed the caller's media since its INVITE.
    if relaying.bridge.trunk_sdp().is_none() {
        relaying.bridge.held.take_offer(sdp_of(invite.body()));
        held_media::hear(relaying.bridge, id, invite);
    }

    let body = &*relaying.bridge.legs.with_origin(id, body);
    let methods = relaying.bridge.methods(id);
    let Some(trunk) = relaying.bridge.legs.sip_mut(id) else {
        return false;
    };

    let flow = trunk.flow;
    let Some(dialog) = trunk.dialog(fork) else {
        return false;
    };
    dialog.confirm();

    let dialog = &*dialog;
    cx.look_up(dialog, flow);

    let write = |head: &mut Head<'_>| {
        own_lines(head, &contact, methods);
        if let Some(timer) = &session.timer {
            timer.response_lines(head);
        }
        more(head, &config.header_prefix);
    };

    cx.respond(server, 200, Some(dialog.local_tag()), write, body);
    session.late_prack = incoming.relay.late_prack(fork);
    session.await_ack(AwaitedAck {
        cseq: invite.cseq().number,
        server,
        delayed,
    });

    relaying.bridge.legs.set_state(id, LegState::Ready(session));
    // Last: until its legs are connected, the call counts as being set up (`Bridge::status`).
    relaying.bridge.legs.connect(id, agent);
    true
}

/// Passes the runtime's 2xx on to the caller.
pub(crate) fn pass_answer(
    relaying: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    won: WinningAnswer,
    message: &Message<'_>,
) -> AnswerProgress {
    let trunk = relaying.bridge.trunk_id();
    let Some(incoming) = relaying.bridge.legs.take_incoming(trunk) else {
        return AnswerProgress::Nothing;
    };
    cx.release_incoming(&incoming);
    // A later 2xx of another fork finds no dialog, and gets ACK and BYE.
    relaying.bridge.keep_only(cx, won.fork);
    let agent = relaying.bridge.agent_id();
    if let Some(mut leg) = relaying.bridge.at(agent) {
        leg.open(cx, won.flow, message);
    }

    let delayed = (!won.acknowledged).then(|| won.delayed(sdp_of(message.body())));
    // RFC 3261 §13.2.1: the answer has to be in the 2xx unless a reliable response had it. Some runtimes send it in an unreliable 183 alone.
    let lacks_answer = message.body().is_empty()
        && has_sdp(incoming.invite())
        && !incoming.relay.is_agreed(won.fork);
    let early = relaying.bridge.legs.sip(trunk).filter(|_| lacks_answer);
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
    match accept_caller(relaying, cx, fork, &incoming, body, delayed, crossing) {
        true => AnswerProgress::Accepted {
            runtime_call_id: text::lossy(message.call_id()).into(),
        },
        false => AnswerProgress::Nothing,
    }
}

impl CallEnd {
    /// End of a call that its runtime refuses.
    const fn of_runtime(sip_code: u16) -> Self {
        let (reason, status) = match sip_code {
            486 | 600 => (Reason::Declined, Status::Busy),
            480 => (Reason::Declined, Status::NoAnswer),
            415 | 488 | 606 => (Reason::NoCommonMedia, Status::Failed),
            _ => (Reason::Declined, Status::Failed),
        };
        Self {
            status,
            sip_code,
            reason: Some(reason),
            by: HangupBy::Agent,
            cause: None,
        }
    }
}

impl<'r> CallRefusal<'r> {
    /// Refusal of a call that no runtime takes.
    pub(crate) fn of_runtime(failed: &'r Failed<'r>) -> Self {
        let Some(message) = failed.message else {
            let is_forbidden = failed.failure.reason == Reason::PeerNotAllowed;
            let reason = match is_forbidden {
                true => Reason::PeerNotAllowed,
                false => Reason::RuntimeUnreachable,
            };
            return Self::saying(reason, &failed.said);
        };

        match crossing::refusal(message.status()) {
            RuntimeRefusal::Same => Self::of_peer(CallEnd::of_runtime(message.status()), message),
            RuntimeRefusal::FailOver
            | RuntimeRefusal::Trouble
            | RuntimeRefusal::Redirect
            | RuntimeRefusal::Brief
            | RuntimeRefusal::Unavailable => Self::saying(Reason::RuntimeRefused, &failed.said),
        }
    }
}
