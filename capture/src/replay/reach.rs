//! Requests that a replay can't reproduce: the daemon sent them on an API request, or on a DTMF tone that isn't in the messages. A call is
//! played up to the first of them.

use super::script::{Item, label};
use crate::flow::{Call, Role};
use crate::message::Message;

/// Text in `Reason` of a BYE that the API requested.
pub const ENDED_ON_REQUEST: &str = "The call was ended on request";

/// Returns the first request of the daemon that no earlier message explains, and its cause.
pub(super) fn first_beyond(items: &[Item]) -> Option<(usize, &'static str)> {
    let mut known = CallSoFar::default();
    items.iter().enumerate().find_map(|(at, item)| {
        let why = known.unexplained(item);
        known.learn(item);
        why.map(|why| (at, why))
    })
}

/// Returns the sentence for a call that isn't played any further.
pub(super) fn note(item: &Item, why: &str) -> String {
    format!(
        "message {}, {}: {why}. A replay sends no API requests, so the rest of the call is out of reach",
        item.index + 1,
        label(&item.message)
    )
}

/// Returns whether Trunkline itself began the call: it has no caller that could be played.
pub(super) fn is_own_call(call: &Call) -> bool {
    let Some(first) = call.entries.first() else {
        return false;
    };
    let message = Message::parse(&first.octets);
    let is_called_on = call.peers.iter().any(|(role, _)| *role == Role::Runtime);

    message.status().is_none()
        && message.method() == "INVITE"
        && !is_called_on
        && message
            .first("Contact")
            .is_some_and(|contact| contact.contains("sip:trunkline@"))
        && [message.first("Call-ID"), message.tag("From")]
            .into_iter()
            .all(|id| id.is_some_and(|id| is_ours(&id)))
}

/// Returns whether an id has the form that the daemon gives its Call-IDs and tags.
fn is_ours(id: &str) -> bool {
    id.len() == 29 && id.bytes().all(|octet| octet.is_ascii_hexdigit())
}

#[derive(Debug, Default)]
struct CallSoFar {
    /// Possible requests for a transfer since the daemon's last REFERs: REFERs of the runtime, and INFOs of the caller, which may carry a key.
    asked: u32,
    /// A REFER was sent; a bridge may follow.
    has_referred: bool,
    /// Re-INVITEs and UPDATEs without a final response, by sender and CSeq.
    changes: Vec<(Role, Option<(u32, String)>)>,
}

impl CallSoFar {
    fn unexplained(&self, item: &Item) -> Option<&'static str> {
        if item.sends || item.message.status().is_some() {
            return None;
        }

        let is_within = item.message.tag("To").is_some();

        match item.message.method().as_str() {
            "REFER" if self.asked == 0 => {
                Some("the API, or a key that was pressed, asked for a transfer")
            }
            "INVITE" if !is_within && item.party != Role::Runtime => (self.asked == 0
                && !self.has_referred)
                .then_some("the API, or a key that was pressed, asked for a transfer"),
            // A hold that the other side asks for is passed on as a re-INVITE too. Without such a side it is the API's.
            "INVITE" if is_within && is_held(&item.message) => {
                let asks = |(side, _): &(Role, _)| *side != item.party;
                let is_relayed = self.changes.iter().any(asks);
                (!is_relayed).then_some("the API held the call")
            }
            "BYE" => {
                let reasons = item.message.all("Reason").join(",");
                reasons
                    .contains(ENDED_ON_REQUEST)
                    .then_some("the API ended the call")
            }
            _ => None,
        }
    }

    fn learn(&mut self, item: &Item) {
        let message = &item.message;
        let is_within = message.tag("To").is_some();
        match (item.sends, message.status(), message.method().as_str()) {
            (true, None, "REFER") if item.party == Role::Runtime => self.asked += 1,
            (true, None, "INFO") if item.party == Role::Caller => self.asked += 1,
            (true, None, "INVITE" | "UPDATE") if is_within => {
                self.changes.push((item.party, message.cseq()));
            }
            (false, Some(200..), "INVITE" | "UPDATE") => {
                let cseq = message.cseq();
                self.changes
                    .retain(|(party, asked)| *party != item.party || *asked != cseq);
            }
            (false, None, "REFER") => {
                self.asked = self.asked.saturating_sub(1);
                self.has_referred = true;
            }
            _ => {}
        }
    }
}

/// Returns whether an offer puts the media on hold in at least one direction.
fn is_held(message: &Message) -> bool {
    let body = String::from_utf8_lossy(&message.body);
    let mut lines = body.lines();
    lines.any(|line| matches!(line, "a=sendonly" | "a=inactive" | "a=recvonly"))
}

/// Returns the reason why a call can't be played, if there is one.
pub fn unplayable(call: &Call) -> Option<&'static str> {
    let first = call.entries.first()?;
    if first.from != Role::Caller || first.to != Role::Us {
        return Some(
            "the capture begins in the middle of the call: there is no first request of the caller's",
        );
    }
    None
}
