//! Messages outside the capture that a replay needs: responses to unexpected requests, and the end of a call that took another course.

use trunkline_sip::header::text::elements;

use super::rewrite::fresh;
use crate::message::{Message, parameter};

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

/// Builds a request with this CSeq in the dialog that the answer has begun or renewed.
pub(super) fn in_dialog(invite: &Message, answer: &Message, method: &str, number: u32) -> Message {
    let contact = answer.first("Contact").unwrap_or_default();
    let uri = contact
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'))
        .map_or_else(|| invite.request_uri(), |(uri, _)| uri.to_owned());
    let mut message = bare(invite, method, &uri, number);
    message.set("To", &answer.first("To").unwrap_or_default());
    // An ACK too: that of a 2xx is a transaction of its own (RFC 3261 §8.1.1.7).
    renewed(&mut message);
    message
}

/// Gives a request a new branch, for another transaction.
pub(super) fn renewed(request: &mut Message) {
    let mut vias = request.all("Via");
    if let Some(via) = vias.first_mut()
        && let Some(branch) = parameter(via, "branch")
    {
        *via = via.replace(&branch, &format!("z9hG4bK{}", fresh()));
    }
    request.replace_all("Via", &vias);
}
