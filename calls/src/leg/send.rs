//! Requests of ours in a dialog of a leg (RFC 3261 §12.2.1.1).

use trunkline_sip::dialog::streams;
use trunkline_sip::endpoint::Request;
use trunkline_sip::wire::Method;
use trunkline_sip::wire::print::Head;

use super::Leg;
use crate::core::context::Cx;
use crate::leg::own_request::{Pending, Purpose};
use crate::parts::allow::{own_request_lines, to_peer};
use crate::parts::ids::{CallKey, owner_of};
use crate::parts::request_origin::RequestOrigin;
use crate::sdp_of;
use crate::trust::digest_answers::{DigestAnswers, RepeatableRequest};

/// A request to be sent in one dialog of a leg.
#[derive(Debug)]
pub(crate) struct NewRequest<'b> {
    pub(crate) fork: u8,
    pub(crate) method: Method,
    pub(crate) purpose: Purpose,
    /// Its body is an SDP (an offer, or in a PRACK perhaps the answer), or it is a re-INVITE without a body, which asks for an offer.
    pub(crate) offers: bool,
    pub(crate) origin: RequestOrigin,
    pub(crate) body: &'b [u8],
}

impl<'b> NewRequest<'b> {
    /// A request of our own without a body.
    pub(crate) const fn bare(fork: u8, method: Method, purpose: Purpose) -> Self {
        Self {
            fork,
            method,
            purpose,
            offers: false,
            origin: RequestOrigin::Ours,
            body: b"",
        }
    }

    /// A re-INVITE of our own with that offer, or without a body if it asks for one.
    pub(crate) const fn offer(fork: u8, purpose: Purpose, body: &'b [u8]) -> Self {
        Self {
            offers: true,
            body,
            ..Self::bare(fork, Method::Invite, purpose)
        }
    }
}

impl Leg {
    /// Sends a request, with these lines of its own. Returns its entry until the answer comes; `None` if there is no such dialog, or no room for its
    /// transaction.
    #[must_use]
    pub(crate) fn send(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallKey,
        new: &NewRequest<'_>,
        lines: impl FnOnce(&mut Head<'_>),
    ) -> Option<Pending> {
        let (id, methods) = (self.id, to_peer(self.role));
        let token = new.method.as_str();
        let timer = self.session().and_then(|session| session.timer);
        let peer = self.sip_mut()?;
        // The SDP of a PRACK may be the answer.
        let is_offer = new.offers && new.method != Method::Prack;
        let extended = match is_offer {
            true => peer.with_streams(new.fork, new.body),
            false => new.body.into(),
        };
        let added_streams = streams::count(&extended) - streams::count(new.body);
        let body = &*peer.with_origin(&extended);

        let (before, is_sips) = (peer.flow, peer.is_sips);
        let has_credentials = peer.credentials.is_some();
        let dialog = peer.dialog(new.fork)?;
        let flow = cx.next_flow(dialog, before);
        let is_beside = cx.is_beside(dialog, &flow, &before);
        // A challenge may be answered, or the request sent again by the dialog's connection. Else nothing is kept to repeat.
        let mut repeated_lines = (has_credentials || is_beside).then(Vec::new);
        let contact = cx.contact(&flow, is_sips);
        let uri = dialog.request_uri().to_vec();
        let mut cseq = 0;

        let write = |head: &mut Head<'_>| {
            cseq = dialog.begin(token, new.origin.hops(), head);
            if matches!(new.method, Method::Refer | Method::Notify) {
                head.line("Contact", contact.as_bytes());
            }
            if matches!(new.method, Method::Invite | Method::Update) {
                own_request_lines(head, &contact, methods);
                if let Some(timer) = &timer {
                    timer.request_lines(head);
                }
            }
            match &mut repeated_lines {
                Some(kept) => {
                    lines(&mut Head::new(kept));
                    head.raw(kept);
                }
                None => lines(head),
            }
        };

        let client = cx.with_head(write, |cx, head| {
            let request = Request {
                method: new.method,
                token,
                uri: &uri,
                head,
                body,
            };
            let sent = cx
                .endpoint
                .request(flow, &request, owner_of(Some(call)), cx.now);
            sent.ok()
        })?;
        // The peer's answers and requests may come from the address that this request goes to.
        peer.known_addresses.learn(flow.peer.ip());

        let repeatable = repeated_lines.map(|lines| {
            Box::new(RepeatableRequest {
                lines: lines.into(),
                body: body.into(),
                digest_answers: DigestAnswers::default(),
            })
        });

        Some(Pending {
            client,
            leg: id,
            fork: new.fork,
            method: new.method,
            cseq,
            origin: new.origin,
            // A re-INVITE without a body asks for an offer.
            offers: new.offers || new.method == Method::Invite,
            had_sdp: !body.is_empty(),
            // Also if it goes beside the leg's connection, which is used if the other address can't be connected to.
            connected: flow.connection != 0 || (before.connection != 0 && flow.peer != before.peer),
            is_beside,
            added_streams,
            // The SDP counts as the peer's once it is accepted (`ActiveLeg::note_refresh`).
            sdp: new.offers.then(|| sdp_of(body).into()),
            renewal: None,
            target: None,
            repeatable,
            last_dialog: None,
            is_canceled: false,
            purpose: new.purpose,
        })
    }
}
