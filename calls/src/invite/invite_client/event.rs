//! Events of an INVITE of ours: provisional answers, the 2xx that has won, or the end.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::body::sdp_of;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use crate::core::context::Cx;
use crate::parts::dial_failure::DialFailure;
use crate::trust::credentials::{LegCredentials, PeerAddresses};

/// Result of an input.
#[derive(Debug)]
#[must_use]
pub(crate) enum InviteEvent<'m> {
    /// Nothing yet.
    Waits,
    Provisional(ProvisionalResponse<'m>),
    /// A 2xx. The code that runs the client acknowledges it: only that code knows whether the ACK carries an answer.
    Accepted(Box<Accepted<'m>>),
    Failed(Failed<'m>),
}

/// A provisional response from beyond the next hop.
#[derive(Debug)]
pub(crate) struct ProvisionalResponse<'m> {
    /// It is the first.
    pub(crate) is_first: bool,
    /// Its dialog. `None` for a response that makes none, or exceeds the bound.
    pub(crate) early: Option<EarlyDialog>,
    pub(crate) message: &'m Message<'m>,
}

/// An early dialog. It is over with the transaction of its INVITE (RFC 3261 §12.3).
#[derive(Debug)]
pub(crate) struct EarlyDialog {
    /// Its number, unique in this client.
    pub(crate) fork: u8,
    /// RSeq of this answer, if it wants to be acknowledged.
    pub(crate) rseq: Option<u32>,
    /// The dialog, if this answer is its first.
    pub(crate) begins: Option<Dialog>,
}

/// Our offer in an early dialog.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OurOffer {
    /// It has no answer: an SDP in an unreliable response is only a preview of one (RFC 3261 §13.2.1).
    Open,
    /// A reliable response had the answer.
    Answered,
}

/// End of the INVITE without a 2xx: no further target is tried.
#[derive(Debug)]
pub(crate) struct Failed<'m> {
    pub(crate) failure: DialFailure,
    /// Lines of the last refusal about its cause and a retry.
    pub(crate) said: Box<[u8]>,
    /// The refusal itself, where it ends the call; `None` if no target is left.
    pub(crate) message: Option<&'m Message<'m>>,
}

/// A 2xx.
#[derive(Debug)]
pub(crate) struct Accepted<'m> {
    pub(crate) client: ClientTx,
    pub(crate) fork: u8,
    /// CSeq of the INVITE.
    pub(crate) cseq: u32,
    /// Flow that the response came by.
    pub(crate) flow: Flow,
    /// It came from the IP that the INVITE went to.
    pub(crate) is_from_target: bool,
    /// The Request-URI of the INVITE.
    pub(crate) uri: Box<str>,
    /// The dialog as the 2xx makes it.
    pub(crate) dialog: Dialog,
    pub(crate) sdp: AnswerSdp,
    /// Credentials in the ACK: the INVITE's (RFC 3261 §13.2.2.4), where they may go.
    pub(crate) ack_lines: Vec<u8>,
    /// Credentials for the peer's challenges in this dialog.
    pub(crate) credentials: Option<Box<LegCredentials>>,
    /// Addresses of the peer: what its host resolved to, and where answers came from.
    pub(crate) addresses: PeerAddresses,
    pub(crate) message: &'m Message<'m>,
}

/// The SDP of a 2xx.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AnswerSdp {
    /// It is in the 2xx.
    InBody,
    /// A provisional response of the same fork had it: some carriers send it only in the 183.
    Early(Box<[u8]>),
    /// None came.
    Missing,
}

impl Accepted<'_> {
    /// The SDP, if one came.
    pub(crate) fn sdp(&self) -> Option<&[u8]> {
        match &self.sdp {
            AnswerSdp::InBody => Some(sdp_of(self.message.body())),
            AnswerSdp::Early(sdp) => Some(sdp),
            AnswerSdp::Missing => None,
        }
    }

    /// Sends the ACK, without a body.
    pub(crate) fn acknowledge(&self, cx: &mut Cx<'_>) {
        let write = |head: &mut Head<'_>| {
            self.dialog.ack_head(self.cseq, head);
            head.raw(&self.ack_lines);
        };

        cx.with_head(write, |cx, head| {
            cx.acknowledge(self.client, self.flow, &self.dialog, head, b"");
        });
    }
}

/// An INVITE that is out.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) cseq: u32,
    pub(crate) flow: Flow,
    /// Its Request-URI.
    pub(crate) uri: &'a str,
}
