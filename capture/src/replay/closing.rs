//! Messages outside the capture that a replay needs: responses to unexpected requests, and the end of a call that took another course.

use trunkline_sip::header::text::{elements, find_outside, lossy};

use super::rewrite::{fresh, uri};
use crate::message::Message;

/// Returns the key by which a retransmission is recognised.
pub(super) fn reply_key(message: &Message) -> Option<Vec<u8>> {
    let (number, method) = message.cseq()?;
    Some(
        format!(
            "{}|{number}|{method}|{}",
            message.first("Call-ID")?,
            message.all("Via").first()?
        )
        .into_bytes(),
    )
}

/// Builds a response to a request, with a To-tag of its own if the request has none.
pub(super) fn answering(request: &Message, status: u16, reason: &str) -> Message {
    let mut message = Message::parse(
        format!("SIP/2.0 {status} {reason}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
    );
    for name in ["CSeq", "Call-ID", "To", "From"] {
        let values = request.all(name);
        message.replace_all(name, &values);
    }
    if let (Some(to), None) = (request.first("To"), request.tag("To")) {
        message.set("To", &format!("{to};tag={}", fresh()));
    }
    message.replace_all("Via", &request.all("Via"));
    message
}

/// Builds a request with the Call-ID, From, To and top Via of an INVITE.
fn bare(invite: &Message, method: &str, uri: &str, number: u32) -> Message {
    let mut message = Message::parse(
        format!("{method} {uri} SIP/2.0\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n")
            .as_bytes(),
    );
    message.replace_all("CSeq", &[format!("{number} {method}")]);
    for name in ["Call-ID", "To", "From"] {
        message.replace_all(name, &invite.all(name));
    }
    // The top Via alone: those below it are of hops before the sender (RFC 3261 §9.1, §17.1.1.3).
    let vias = invite.first("Via").unwrap_or_default();
    let top = elements(vias.as_bytes()).next().unwrap_or_default();
    message.replace_all("Via", &[String::from_utf8_lossy(top).into_owned()]);
    message
}

/// Builds the ACK of a response, with the branch of the INVITE and the To of the response (RFC 3261 §17.1.1.3).
pub(super) fn acknowledging(invite: &Message, answer: &Message) -> Message {
    let number = invite.cseq().map_or(1, |(number, _)| number);
    let mut message = bare(invite, "ACK", &invite.request_uri(), number);
    message.replace_all("Route", &invite.all("Route"));
    message.set("To", &answer.first("To").unwrap_or_default());
    message
}

pub(super) fn cancelling(invite: &Message) -> Message {
    let number = invite.cseq().map_or(1, |(number, _)| number);
    let mut message = bare(invite, "CANCEL", &invite.request_uri(), number);
    message.replace_all("Route", &invite.all("Route"));
    message
}

/// Builds a request of the caller with this CSeq in the dialog that the answer has begun or renewed.
pub(super) fn in_dialog(invite: &Message, answer: &Message, method: &str, number: u32) -> Message {
    let contact = answer.first("Contact").unwrap_or_default();
    let target = uri(&contact).map(str::trim);
    let target = target
        .filter(|target| !target.is_empty())
        .map_or_else(|| invite.request_uri(), str::to_owned);

    let mut message = bare(invite, method, &target, number);
    message.replace_all("Route", &route_set(answer));
    message.set("To", &answer.first("To").unwrap_or_default());
    // An ACK too: that of a 2xx is a transaction of its own (RFC 3261 §8.1.1.7).
    renewed(&mut message);
    message
}

/// Returns the route set of a dialog, as its caller has it: the Record-Route of the answer in reverse order (RFC 3261 §12.1.2).
fn route_set(answer: &Message) -> Vec<String> {
    let lines = answer.all("Record-Route");
    let routes = lines.iter().flat_map(|line| elements(line.as_bytes()));
    let mut routes: Vec<String> = routes.map(|route| lossy(route).into_owned()).collect();
    routes.reverse();
    routes
}

/// Gives a request a new branch, for another transaction.
pub(super) fn renewed(request: &mut Message) {
    let mut vias = request.all("Via");
    if let Some(via) = vias.first_mut() {
        *via = with_branch(via, &format!("z9hG4bK{}", fresh()));
    }
    request.replace_all("Via", &vias);
}

/// Returns a Via whose first element has this branch instead of its own, if it had one.
fn with_branch(via: &str, branch: &str) -> String {
    let end = find_outside(via.as_bytes(), b',').unwrap_or(via.len());
    let (top, below) = via.split_at(end);

    let (mut pieces, mut rest) = (Vec::new(), top);
    while let Some(at) = find_outside(rest.as_bytes(), b';') {
        pieces.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    pieces.push(rest);
    pieces.retain(|piece| {
        let name = piece.split('=').next().unwrap_or_default();
        !name.trim().eq_ignore_ascii_case("branch")
    });

    format!("{};branch={branch}{below}", pieces.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invite() -> Message {
        Message::parse(
            b"INVITE sip:bob@h SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\nTo: <sip:bob@h>\r\n\
              Call-ID: c\r\nCSeq: 1 INVITE\r\n\r\n",
        )
    }

    #[test]
    fn a_request_in_a_dialog_follows_its_target_and_routes() {
        for (case, headers, uri, routes) in [
            ("no Contact", "", "sip:bob@h", &[][..]),
            ("an empty one", "Contact: \r\n", "sip:bob@h", &[]),
            (
                "in brackets",
                "Contact: Bob <sip:b@1;x=y>;q=1\r\n",
                "sip:b@1;x=y",
                &[],
            ),
            ("bare", "m: sip:b@1;q=1\r\n", "sip:b@1", &[]),
            (
                "behind proxies",
                "Contact: <sip:b@1>\r\nRecord-Route: <sip:p3;lr>, <sip:p2;lr;x=\",\">\r\nRecord-Route: <sip:p1;lr>\r\n",
                "sip:b@1",
                &["<sip:p1;lr>", "<sip:p2;lr;x=\",\">", "<sip:p3;lr>"],
            ),
        ] {
            let answer = format!(
                "SIP/2.0 200 OK\r\nTo: <sip:bob@h>;tag=2\r\n{headers}CSeq: 1 INVITE\r\n\r\n"
            );
            let bye = in_dialog(&invite(), &Message::parse(answer.as_bytes()), "BYE", 2);
            assert_eq!(bye.request_uri(), uri, "{case}");
            assert_eq!(bye.all("Route"), routes, "{case}");
            assert_eq!(bye.tag("To").as_deref(), Some("2"), "{case}");
        }
    }

    #[test]
    fn a_new_branch_changes_nothing_else() {
        for (via, expected) in [
            (
                "SIP/2.0/UDP z9.example;branch=z9;rport",
                "SIP/2.0/UDP z9.example;rport;branch=new",
            ),
            (
                "SIP/2.0/UDP a;branch=;rport",
                "SIP/2.0/UDP a;rport;branch=new",
            ),
            ("SIP/2.0/UDP a", "SIP/2.0/UDP a;branch=new"),
            (
                "SIP/2.0/UDP a; Branch = 1 ;x=\";,\", SIP/2.0/UDP b;branch=2",
                "SIP/2.0/UDP a;x=\";,\";branch=new, SIP/2.0/UDP b;branch=2",
            ),
            (
                "SIP/2.0/UDP a, SIP/2.0/UDP b;branch=2",
                "SIP/2.0/UDP a;branch=new, SIP/2.0/UDP b;branch=2",
            ),
        ] {
            assert_eq!(with_branch(via, "new"), expected, "{via}");
        }
    }
}
