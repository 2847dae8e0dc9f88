//! Our own requests inside a call: those that wait for their answers, and the kinds that wait for their turns.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::{ClientTx, ServerTx};
use trunkline_sip::wire::{Message, Method};

use super::media_profile;
use crate::core::context::Cx;
use crate::parts::ids::LegId;
use crate::parts::request_origin::RequestOrigin;
use crate::trust::digest_answers::RepeatableRequest;
use crate::{has_sdp, sdp_of};

/// A client transaction of ours inside the call, and what its answer is for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) client: ClientTx,
    /// The leg that it went out on.
    pub(crate) leg: LegId,
    pub(crate) fork: u8,
    pub(crate) method: Method,
    /// CSeq number of our request.
    pub(crate) cseq: u32,
    pub(crate) origin: RequestOrigin,
    /// It keeps an exchange open: it has an SDP, or it is an INVITE without one, which asks for an offer.
    pub(crate) offers: bool,
    /// It has a body, which counts as an SDP in an INVITE, UPDATE or PRACK. `offers` is also true for an INVITE without a body.
    pub(crate) had_sdp: bool,
    /// It went over an existing connection.
    pub(crate) connected: bool,
    /// It went beside the dialog's connection, by which it can be sent again.
    pub(crate) is_beside: bool,
    /// Media sections that were added to its offer, and that the answer to the requester lacks (`SipPeer::with_streams`).
    pub(crate) added_streams: usize,
    /// The SDP in it. It becomes the one that our next refresh repeats (`ForkDialog::local_sdp`) once the peer has accepted it.
    pub(crate) sdp: Option<Box<[u8]>>,
    /// Session that the requester on the other leg gets once this is accepted.
    pub(crate) renewal: Option<SessionTimer>,
    /// New Contact of that requester, if it has changed.
    pub(crate) target: Option<Box<[u8]>>,
    /// Lines and body to send it again, with credentials or by the dialog's connection, if that may be needed.
    pub(crate) repeatable: Option<Box<RepeatableRequest>>,
    /// Dialog of a BYE to a peer that is lost. Nothing else goes by it; the BYE may be sent again over a new connection.
    pub(crate) last_dialog: Option<Box<Dialog>>,
    /// It was cancelled: a challenge is its final answer then.
    pub(crate) is_canceled: bool,
    pub(crate) purpose: Purpose,
}

impl Pending {
    /// Returns whether this answer accepts the offer in the request by media of another profile, which nobody can use ([`media_profile`]).
    pub(crate) fn is_misanswered(&self, answer: &Message<'_>) -> bool {
        let is_accepted = matches!(answer.status(), 200..=299) && has_sdp(answer);
        let differs = |offer| media_profile::differ(offer, sdp_of(answer.body()));
        is_accepted && self.sdp.as_deref().is_some_and(differs)
    }

    /// Cancels the request, with these lines in the CANCEL.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, lines: &[u8]) {
        // A 401 that crosses the CANCEL must not have the request sent again with credentials.
        self.is_canceled = true;
        cx.endpoint.cancel(self.client, lines, cx.now);
    }
}

/// Purpose of a pending request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Relays a request of the other leg; its answer goes back there.
    Relay(ServerTx),
    /// Our own session refresh (RFC 4028), or probe of a silent peer.
    Refresh,
    /// Our own re-INVITE, by which both ends get each other's media.
    Join(JoinRound),
    /// Our own re-INVITE, which holds the call or resumes it.
    Hold,
    /// Our own PRACK, BYE or NOTIFY, or an abandoned request: its answer changes no media.
    Own,
    /// A change whose requester is gone, or which has lost its purpose. If the peer accepts it, the peer is offered the media in use again.
    Stale,
    /// The REFER of a transfer.
    Transfer,
    /// Our own UPDATE or OPTIONS that asks whether the PBX still knows the call after a failed transfer.
    Probe,
    /// Our second BYE, after the connection of the first broke.
    SecondBye,
}

/// Progress of a join, as other requests see it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum JoinPhase {
    /// No re-INVITE is due.
    Idle,
    /// The two don't have each other's media yet.
    Due,
    /// As [`Self::Due`], and the caller's 2xx with an offer waits for the answer in our ACK.
    Asking,
}

/// Purpose of a re-INVITE that joins both ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum JoinRound {
    /// Gives the caller the media of the agent's side.
    Join,
    /// Gives the agent's side the caller's changed media.
    Follow,
    /// Asks the caller for an offer.
    AskOffer,
    /// Gives the agent's side that offer to answer.
    AnswerOffer,
}

/// A request of ours that waits for its turn, since it may have an offer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    /// Refresh of a leg's session, or probe of its peer.
    Refresh(LegId),
    /// The next step of holding or resuming.
    Hold,
    /// The next step of giving both ends each other's media.
    Join,
}
