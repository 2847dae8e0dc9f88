//! The script of a call: the messages to send and to expect, each with its side, adapted to the daemon's configuration. Knows no socket.

use std::time::Duration;

use crate::flow::{Call, Entry, Role};
use crate::message::Message;

/// Longest wait in seconds that a flow may state.
const MAX_WAIT: f64 = 3_600.0;

/// A message to send or to expect.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Index in the captured call.
    pub(super) index: usize,
    /// The side: the caller's, the runtime's, or that of another callee.
    pub(super) party: Role,
    /// The side sends the message.
    pub(super) sends: bool,
    pub(super) at: u64,
    pub(super) message: Message,
    pub(super) expectations: Vec<String>,
    /// The message may be missing.
    pub(super) is_optional: bool,
    /// Least wait before it is sent, whatever the speed.
    pub(super) wait: Duration,
}

impl Item {
    pub(super) fn call_id(&self) -> String {
        self.message.first("Call-ID").unwrap_or_default()
    }

    /// Returns whether this is a response on which no other message depends, only the end of its transaction.
    pub(super) fn holds_nothing_up(&self) -> bool {
        self.message.status().is_some() && self.message.method() != "INVITE"
    }

    pub(super) const fn from(&self) -> Role {
        if self.sends { self.party } else { Role::Us }
    }

    pub(super) const fn to(&self) -> Role {
        if self.sends { Role::Us } else { self.party }
    }
}

/// Returns a short label.
pub(super) fn label(message: &Message) -> String {
    match message.status() {
        Some(status) => {
            let line = message.start_line();
            let reason = line.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
            format!("{status} {reason} ({})", message.method())
        }
        None => message.method(),
    }
}

/// Builds the script of a call.
pub(super) fn script(
    call: &Call,
    plays: impl Fn(Role) -> bool,
    has_credentials: bool,
    replace: &[(String, String)],
) -> Vec<Item> {
    let mut items: Vec<Item> = call
        .entries
        .iter()
        .enumerate()
        .filter_map(|(index, entry)| item(index, entry, replace))
        .filter(|item| plays(item.party))
        .collect();
    if !has_credentials {
        leave_logins_out(&mut items);
    }
    items
}

fn item(index: usize, entry: &Entry, replace: &[(String, String)]) -> Option<Item> {
    let (party, sends) = match (entry.from, entry.to) {
        (Role::Us, Role::Us) => return None,
        (party, Role::Us) => (party, true),
        (Role::Us, party) => (party, false),
        (Role::Caller | Role::Runtime | Role::Other, _) => return None,
    };

    let message = replaced(&entry.octets, replace);
    // RFC 3261 §17.2.1: whether a 100 is sent depends on how fast the next response comes.
    let is_optional = entry.expectations.iter().any(|stated| stated == "optional")
        || message.status() == Some(100);

    let waits = entry
        .expectations
        .iter()
        .filter(|_| sends)
        .find_map(|stated| stated.strip_prefix("wait ")?.parse::<f64>().ok())
        .filter(|seconds| (0.0..=MAX_WAIT).contains(seconds));

    Some(Item {
        index,
        party,
        sends,
        at: entry.at,
        message,
        expectations: entry.expectations.clone(),
        is_optional,
        wait: waits.map_or(Duration::ZERO, Duration::from_secs_f64),
    })
}

fn replaced(octets: &[u8], replace: &[(String, String)]) -> Message {
    let mut message = Message::parse(octets);
    if replace.is_empty() {
        return message;
    }

    let is_length_right = message.is_length_right();
    let apply = |text: &str| {
        replace.iter().fold(text.to_owned(), |text, (old, new)| {
            text.replace(old.as_str(), new)
        })
    };
    let start = apply(&message.start_line());
    message.set_start_line(&start);

    for line in message.lines_mut() {
        let (value, new) = (line.value(), apply(&line.value()));
        if value != new {
            line.set(&new);
        }
    }

    if let Ok(body) = std::str::from_utf8(&message.body) {
        message.body = apply(body).into_bytes();
    }

    if is_length_right {
        message.set("Content-Length", &message.body.len().to_string());
    }

    message
}

/// Drops requests that were challenged, with their 401 or 407 and its ACK. A replay without credentials runs from an address on the IP allow
/// list, which isn't challenged. So a request that was captured without and with credentials is sent once.
fn leave_logins_out(items: &mut Vec<Item>) {
    let is_login = |item: &Item| {
        item.message.first("Authorization").is_some()
            || item.message.first("Proxy-Authorization").is_some()
    };

    let challenges: Vec<(String, u32, String)> = items
        .iter()
        .filter(|item| {
            !item.sends
                && item.party == Role::Caller
                && matches!(item.message.status(), Some(401 | 407))
        })
        .filter_map(|item| {
            let (number, method) = item.message.cseq()?;
            Some((item.call_id(), number, method))
        })
        .filter(|(call_id, number, method)| {
            items.iter().any(|item| {
                item.sends
                    && item.call_id() == *call_id
                    && is_login(item)
                    && item
                        .message
                        .cseq()
                        .is_some_and(|(later, name)| later > *number && name == *method)
            })
        })
        .collect();

    items.retain(|item| {
        let Some((number, method)) = item.message.cseq() else {
            return true;
        };
        // RFC 3261 §17.1.1.3: an ACK has the CSeq number of its INVITE.
        let method = if method == "ACK" {
            "INVITE".to_owned()
        } else {
            method
        };
        item.party != Role::Caller || !challenges.contains(&(item.call_id(), number, method))
    });
}
