//! Items of a call's trace: messages of its legs, and our decisions between them.

use jiff::Timestamp;
use serde_json::Value;
use trunkline_sip::header::text::printable;

use super::call::shown;

/// Column of this daemon in a ladder.
pub(super) const US: usize = 1;
/// Columns of a ladder, from left to right.
pub(super) const PARTIES: [&str; 4] = ["caller", "trunkline", "runtime", "destination"];

/// One item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    Message(Box<MessageItem>),
    Decision { at: Option<Timestamp>, text: String },
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MessageItem {
    pub(super) at: Option<Timestamp>,
    /// Columns of sender and receiver.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) transport: String,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) summary: String,
    pub(super) has_sdp: bool,
    /// Lines of the message, head and body, with control characters escaped.
    pub(super) lines: Vec<String>,
    /// Number of lines of the head.
    pub(super) head: usize,
}

impl Item {
    /// Reads the items of a trace.
    pub(super) fn read_all(trace: &Value) -> Vec<Self> {
        let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
        items.iter().map(Self::read).collect()
    }

    fn read(item: &Value) -> Self {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let short = |name: &str| shown(&item[name]).unwrap_or_default();
        let at = text("at").parse().ok();
        if item["type"] == "decision" {
            let text = printable(text("text"));
            return Self::Decision { at, text };
        }

        let peer = PARTIES.iter().position(|party| *party == text("leg"));
        let peer = peer.unwrap_or(PARTIES.len() - 1);
        let (from, to) = match item["direction"] == "sent" {
            true => (US, peer),
            false => (peer, US),
        };

        let lines: Vec<String> = text("text").lines().map(printable).collect();
        let head = lines.iter().position(String::is_empty);
        let head = head.unwrap_or(lines.len());
        let is_sdp = |line: &String| line.to_ascii_lowercase().contains("application/sdp");
        Self::Message(Box::new(MessageItem {
            at,
            from,
            to,
            transport: short("transport"),
            source: short("source"),
            destination: short("destination"),
            summary: short("summary"),
            has_sdp: lines[..head].iter().any(is_sdp),
            lines,
            head,
        }))
    }

    pub(super) fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Message(message) => message.at,
            Self::Decision { at, .. } => *at,
        }
    }

    pub(super) fn message(&self) -> Option<&MessageItem> {
        match self {
            Self::Message(message) => Some(message),
            Self::Decision { .. } => None,
        }
    }
}

impl MessageItem {
    /// Column of the peer.
    pub(super) const fn peer(&self) -> usize {
        if self.from == US { self.to } else { self.from }
    }

    /// Address of the peer.
    pub(super) fn peer_address(&self) -> &str {
        if self.from == US {
            &self.destination
        } else {
            &self.source
        }
    }

    /// Status of a response; `None` for a request.
    pub(super) fn status(&self) -> Option<u16> {
        self.summary.get(..3)?.parse().ok()
    }
}
