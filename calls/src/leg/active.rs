//! A leg with the requests of ours in its dialogs: what its session with the peer needs, whatever the other leg does.

use std::net::IpAddr;
use std::time::Duration;

use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Message, Method};

use super::{Leg, Session, SipPeer};
use crate::core::context::{Cx, allows};
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::Pending;
use crate::leg::peer_liveness::{LivenessProbe, ProbeMethods};
use crate::leg::requests::Requests;
use crate::parts::ids::{CallKey, CallTimer};
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply, glare_wait};

/// A peer from which neither media nor an answer came.
const SILENT: Lost = Lost {
    reason: Reason::MediaSilent,
    status: 408,
};

/// Loss of a leg: its peer no longer has the dialog.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct Lost {
    /// Reason of our BYE to the other leg.
    pub(crate) reason: Reason,
    /// Status with which a transfer fails if its destination is lost like this.
    pub(crate) status: u16,
}

impl Lost {
    /// Loss of a peer that has answered with this status, or is silent (408).
    pub(crate) const fn of(status: u16) -> Self {
        Self {
            reason: Reason::DialogGone,
            status,
        }
    }
}

/// A leg, the requests of ours on it, and the status of its call.
pub(crate) struct ActiveLeg<'b> {
    pub(crate) call: CallKey,
    /// Status of the call.
    pub(crate) status: CallStatus,
    pub(crate) leg: &'b mut Leg,
    pub(crate) requests: &'b mut Requests,
}

impl ActiveLeg<'_> {
    /// Restarts the leg's timer: its session begins, or was refreshed.
    pub(crate) fn start_session(&mut self, cx: &mut Cx<'_>) {
        if let Some(session) = self.leg.session_mut() {
            session.liveness.begin(session.timer.as_ref(), cx.now);
        }
        self.watch(cx);
    }

    /// Sets the leg's timer to its next step.
    pub(crate) fn watch(&mut self, cx: &mut Cx<'_>) {
        let (id, longest) = (self.leg.id, cx.core.config.dead_peer);
        let is_refreshing = self.requests.is_refreshing(id);
        if self.leg.sip().is_none() {
            return;
        }
        let Some(session) = self.leg.session_mut() else {
            return;
        };
        // While a refresh or probe waits, the timer only ends an expired session. The outcome of the refresh sets it again.
        let due = match is_refreshing {
            true => session.liveness.over(),
            false => session.liveness.due(longest),
        };
        cx.cancel_timer(&mut session.due);
        if let Some(due) = due {
            let timer = (self.call, CallTimer::Session(id));
            session.due = Some(cx.core.timers.schedule(due, timer));
        }
    }

    /// Restarts the peer's session after its refresh was accepted.
    pub(crate) fn take_renewal(&mut self, cx: &mut Cx<'_>, renewal: Option<SessionTimer>) {
        // An UPDATE may come before the answer, when there is no session to refresh yet.
        if self.status == CallStatus::SettingUp {
            return;
        }
        if let Some(session) = self.leg.session_mut() {
            session.timer = renewal;
        }
        self.start_session(cx);
    }

    /// Begins the session with a runtime that has accepted our INVITE: `flow` is the one by which its 2xx came.
    pub(crate) fn open(&mut self, cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) {
        let asked = cx.core.config.session_expires;
        let Some(peer) = self.leg.sip_mut() else {
            return;
        };
        peer.flow = flow;
        for held in &mut peer.dialogs {
            held.dialog.confirm();
            cx.look_up(&held.dialog, flow);
        }
        peer.abilities.update = allows(message, "UPDATE");
        if let Some(session) = self.leg.session_mut() {
            session.timer = SessionTimer::for_uac(message, Some(asked));
        }
        self.start_keep_alives(cx);
    }

    /// Takes target and session from a 2xx to our re-INVITE or UPDATE. Other 2xx affect neither (RFC 3261 §12.2, RFC 4028 §7.2).
    pub(crate) fn note_refresh(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if !matches!(pending.method, Method::Invite | Method::Update) {
            return;
        }
        let before = self.leg.session().and_then(|session| session.timer);
        let asked = before.map(|timer| timer.asked(cx.core.config.session_expires));
        if let Some(peer) = self.leg.sip_mut() {
            if let Some(dialog) = peer.dialog(pending.fork) {
                dialog.refresh_target(message);
            }
            if let Some(sdp) = &pending.sdp {
                peer.remember_sdp(pending.fork, sdp);
            }
        }
        // An UPDATE in an early dialog changes its target and SDP. The session begins with the answer.
        if self.status == CallStatus::SettingUp {
            return;
        }

        let agreed = SessionTimer::for_uac(message, asked);
        if let Some(session) = self.leg.session_mut() {
            session.timer =
                agreed.map(|agreed| before.map_or(agreed, |before| agreed.after(&before)));
        }
        self.start_session(cx);
    }

    /// Acknowledges the 2xx to our own re-INVITE or UPDATE, and takes flow and refresh from it.
    pub(crate) fn take_accepted(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        // Before the ACK, whose next hop is chosen from this flow.
        if let Some(peer) = self.leg.sip_mut() {
            peer.flow = flow;
        }
        if pending.method == Method::Invite {
            self.leg.send_ack(cx, &pending.ack());
        }
        self.note_refresh(cx, pending, message);
    }

    /// Returns the consequence of the final answer to a request of ours, and whether the peer is gone. A peer that may be gone is probed, and a
    /// session interval that is too brief is raised.
    pub(crate) fn reply_to(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) -> (Reply, Option<Lost>) {
        let reply = Reply::of(message, || self.leg.glare_wait(cx, pending.fork));

        match reply {
            Reply::TooBrief => {
                let session = self.leg.session_mut();
                // A 422 that demands nothing longer would come again for each repetition.
                let is_raised = session.is_some_and(|session| session.raise(message));
                match is_raised {
                    true => (Reply::RetryAfter(PAUSE), None),
                    false => (Reply::Refused(422), None),
                }
            }
            Reply::Gone => (reply, Some(Lost::of(message.status()))),
            Reply::Unheard => (reply, self.missed(cx)),
            Reply::Accepted | Reply::RetryAfter(_) | Reply::Refused(_) => (reply, None),
        }
    }

    /// Returns the consequence of a request that got no answer, and whether the peer is gone.
    pub(crate) fn reply_of_none(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) -> (Reply, Option<Lost>) {
        let reply = Reply::without_answer(status, pending.connected);
        let lost = match reply {
            Reply::Unheard => self.missed(cx),
            Reply::Accepted
            | Reply::RetryAfter(_)
            | Reply::TooBrief
            | Reply::Gone
            | Reply::Refused(_) => None,
        };
        (reply, lost)
    }

    /// Notes a refresh or probe without an answer: the peer is probed once more before the call ends.
    pub(crate) fn missed(&mut self, cx: &mut Cx<'_>) -> Option<Lost> {
        let liveness = self.leg.session_mut().map(|session| &mut session.liveness);
        let is_silent = liveness
            .as_ref()
            .is_some_and(|liveness| liveness.is_silent());
        if !liveness.is_some_and(|liveness| liveness.miss(cx.now)) {
            return Some(match is_silent {
                true => SILENT,
                false => Lost::of(408),
            });
        }
        self.watch(cx);
        None
    }
}

impl SipPeer {
    pub(crate) fn means(&self) -> ProbeMethods<'_> {
        ProbeMethods {
            update: self.abilities.update,
            local_sdp: self.first_local_sdp(),
        }
    }
}

impl Leg {
    /// Returns the next refresh or probe of the peer.
    pub(crate) fn next_probe(&self, now: Moment, longest: Duration) -> Option<LivenessProbe> {
        let (session, means) = (self.session()?, self.sip()?.means());
        let timer = session.timer.as_ref();
        session.liveness.next_probe(timer, means, now, longest)
    }

    /// Returns whether its refresh is an offer, which must not be made while another is open.
    pub(crate) fn refreshes_by_offer(&self, now: Moment, longest: Duration) -> bool {
        self.next_probe(now, longest) == Some(LivenessProbe::Reinvite)
    }

    /// Returns the wait after glare in a dialog.
    pub(crate) fn glare_wait(&self, cx: &mut Cx<'_>, fork: u8) -> Duration {
        let dialog = self.sip().and_then(|peer| peer.dialog_ref(fork));
        let owns_call_id = dialog.is_some_and(|dialog| dialog.owns_call_id());
        glare_wait(owns_call_id, cx.endpoint.chance().bits64())
    }

    /// Returns the current next hop of a request in a dialog.
    pub(crate) fn next_hop(&self, cx: &mut Cx<'_>, fork: u8) -> Option<IpAddr> {
        let peer = self.sip()?;
        let dialog = peer.dialog_ref(fork)?;
        Some(cx.next_flow(dialog, peer.flow).peer.ip())
    }
}

impl Session {
    /// Raises the session interval to what the peer demands; false if it demands nothing longer.
    fn raise(&mut self, message: &Message<'_>) -> bool {
        let raised = self.timer.and_then(|timer| timer.raised(message));
        if raised.is_some() {
            self.timer = raised;
        }
        raised.is_some()
    }
}
