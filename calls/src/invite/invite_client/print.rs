//! Writes the INVITE of an attempt and passes it to the endpoint.

use std::sync::Arc;

use trunkline_sip::endpoint::Request;
use trunkline_sip::wire::Method;
use trunkline_sip::wire::print::Head;

use super::{Attempt, ClientParts, InviteClient, InviteText};
use crate::core::context::{Cx, MIN_SE};
use crate::invite::invite_client::TransportChoice;
use crate::invite::large_invite;
use crate::invite::large_invite::InviteSent;
use crate::parts::sips::is_sips;

impl InviteClient {
    /// Sends the INVITE of the attempt, by the transport that fits its length.
    pub(super) fn print(
        &self,
        cx: &mut Cx<'_>,
        text: &dyn InviteText,
        attempt: &Attempt,
    ) -> InviteSent {
        let Attempt { target, flow, .. } = attempt;
        let config = Arc::clone(&cx.core.config);
        let contact = cx.contact(flow, is_sips(target.uri.as_bytes()));
        let from = text.from(host_part(&cx.endpoint.sent_by(flow)));
        let min_se = self.min_se.unwrap_or(MIN_SE);
        let said = ClientParts {
            from: &from,
            target,
            digest_answers: &attempt.digest_answers,
        };

        let write = |head: &mut Head<'_>| {
            if let Some(route) = &target.route {
                head.line("Route", route.as_bytes());
            }
            head.number("Max-Forwards", text.hops().into());
            let tag = attempt.tag.as_bytes();
            head.concat("From", &[&from, b";tag=", tag]);
            head.line("To", &text.to());
            head.line("Call-ID", attempt.call_id.as_bytes());
            head.cseq(attempt.requests, "INVITE");
            head.line("Contact", contact.as_bytes());
            head.line("Allow", text.allow());
            head.line("Supported", text.supported());
            // A peer's 422 may have asked for more than the interval that we prefer (RFC 4028 §7.3).
            head.number("Session-Expires", config.session_expires.max(min_se).into());
            head.number("Min-SE", min_se.into());
            text.write_rest(head, &said);
        };

        cx.with_head(write, |cx, head| {
            let request = Request {
                method: Method::Invite,
                token: "INVITE",
                uri: target.uri.as_bytes(),
                head,
                body: text.body(),
            };
            match self.plan.transport {
                TransportChoice::Ours => {
                    large_invite::send_invite(cx, self.leg.key, target, *flow, &request)
                }
                TransportChoice::Given => large_invite::send_by(cx, self.leg.key, *flow, &request),
            }
        })
    }
}

/// A host without its port.
fn host_part(host_port: &str) -> &str {
    match host_port.strip_prefix('[') {
        Some(_) => host_port
            .find(']')
            .map_or(host_port, |end| &host_port[..=end]),
        None => host_port.split(':').next().unwrap_or(host_port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_port() {
        for (given, host) in [
            ("h:5060", "h"),
            ("[::1]:5060", "[::1]"),
            ("h", "h"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(host_part(given), host);
        }
    }
}
