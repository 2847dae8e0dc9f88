//! Ladder of a call as data: who sent which message to whom, and what was decided between. The API's text and picture, the console's page and the
//! terminal draw it, each in its own way.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;
use trunkline_sip::header::text::printable;

/// Column of a ladder, from left to right.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Party {
    /// The caller, or the PBX that it called through.
    Caller,
    /// This daemon.
    Trunkline,
    /// The agent's runtime, or the carrier of an outbound call.
    Runtime,
    /// The destination of a transfer, if this deployment called it.
    Destination,
}

impl Party {
    /// All, from left to right.
    pub const ALL: [Self; 4] = [
        Self::Caller,
        Self::Trunkline,
        Self::Runtime,
        Self::Destination,
    ];

    /// Returns the name above the column; that of a leg in the API's JSON too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Trunkline => "trunkline",
            Self::Runtime => "runtime",
            Self::Destination => "destination",
        }
    }

    /// Returns the party of this name; a leg that isn't known is the last one.
    pub fn named(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|party| party.name() == name)
            .unwrap_or(Self::Destination)
    }
}

/// Messages and decisions in the order of their times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ladder {
    /// The rungs from above.
    pub rungs: Vec<Rung>,
}

/// One rung.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rung {
    /// Microseconds since 1970.
    pub at: u64,
    /// RungContent happened.
    pub content: RungContent,
}

/// RungContent a rung shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RungContent {
    /// A message.
    Message(Box<Passed>),
    /// A decision of ours, in a sentence.
    Decision(String),
}

/// A message that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The peer that sent it or got it.
    pub peer: Party,
    /// True if we sent it.
    pub is_sent: bool,
    /// The message in a few words.
    pub summary: String,
    /// `udp`, `tcp` and so on.
    pub transport: String,
    /// Address that it came from.
    pub source: String,
    /// Address that it went to.
    pub destination: String,
    /// The message; octets that are no UTF-8 are replaced.
    pub text: String,
}

impl Passed {
    /// Returns the sender and the receiver.
    pub const fn ends(&self) -> (Party, Party) {
        match self.is_sent {
            true => (Party::Trunkline, self.peer),
            false => (self.peer, Party::Trunkline),
        }
    }

    /// Status of a response; `None` for a request.
    pub fn status(&self) -> Option<u16> {
        self.summary.get(..3)?.parse().ok()
    }

    /// Returns true if the head says that the body is SDP.
    pub fn has_sdp(&self) -> bool {
        let head = self.text.lines().take_while(|line| !line.is_empty());
        let mut head = head.map(str::to_ascii_lowercase);
        head.any(|line| line.contains("application/sdp"))
    }

    /// Returns the address of the peer.
    pub fn peer_address(&self) -> &str {
        match self.is_sent {
            true => &self.destination,
            false => &self.source,
        }
    }
}

impl Ladder {
    /// Puts rungs in order. A decision at the time of a message comes after it, because it follows from it.
    pub fn new(mut rungs: Vec<Rung>) -> Self {
        rungs.sort_by_key(|rung| (rung.at, matches!(rung.content, RungContent::Decision(_))));
        Self { rungs }
    }

    /// Reads a trace in the API's JSON, in the order that it has.
    pub fn read(trace: &Value) -> Self {
        let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            rungs: items.iter().map(Rung::read).collect(),
        }
    }

    /// Returns the parties that the ladder needs columns for: three, and the destination where there is one.
    pub fn parties(&self) -> &'static [Party] {
        let mut messages = self.rungs.iter().filter_map(Rung::message);
        let has_destination = messages.any(|message| message.peer == Party::Destination);
        match has_destination {
            true => &Party::ALL,
            false => &Party::ALL[..3],
        }
    }

    /// Returns the time of a rung since the first one, in microseconds.
    pub fn passed(&self, rung: &Rung) -> u64 {
        let began = self.rungs.first().map_or(0, |rung| rung.at);
        rung.at.saturating_sub(began)
    }

    /// Draws the ladder in text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>9}  {:<26}{:<26}{}\n",
            "", "caller", "trunkline", "runtime"
        );

        for rung in &self.rungs {
            let time = seconds(self.passed(rung));
            // Writing to a string can't fail.
            let _ = match &rung.content {
                RungContent::Decision(decision) => {
                    writeln!(text, "{time:>9}  * {}", printable(decision))
                }
                RungContent::Message(message) => {
                    let shown = printable(&message.summary);
                    match (message.peer, message.is_sent) {
                        (Party::Caller, true) => writeln!(text, "{time:>9}  <--- {shown}"),
                        (Party::Caller, false) => writeln!(text, "{time:>9}  ---> {shown}"),
                        (peer, is_sent) => {
                            let arrow = if is_sent { "--->" } else { "<---" };
                            let whose = match peer {
                                Party::Destination => "  [destination]",
                                Party::Caller | Party::Trunkline | Party::Runtime => "",
                            };
                            writeln!(text, "{time:>9}  {:30}{arrow} {shown}{whose}", "")
                        }
                    }
                }
            };
        }

        text
    }
}

impl Rung {
    fn read(item: &Value) -> Self {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let at = text("at").parse().map_or(0, Timestamp::as_microsecond);
        let content = match item["type"] == "decision" {
            true => RungContent::Decision(text("text")),
            false => RungContent::Message(Box::new(Passed {
                peer: Party::named(&text("leg")),
                is_sent: item["direction"] == "sent",
                summary: text("summary"),
                transport: text("transport"),
                source: text("source"),
                destination: text("destination"),
                text: text("text"),
            })),
        };
        Self {
            at: at.unsigned_abs(),
            content,
        }
    }

    /// Returns the message; `None` for a decision.
    pub fn message(&self) -> Option<&Passed> {
        match &self.content {
            RungContent::Message(message) => Some(message),
            RungContent::Decision(_) => None,
        }
    }
}

/// Writes microseconds as seconds with three decimals.
pub fn seconds(micros: u64) -> String {
    format!("{}.{:03}", micros / 1_000_000, micros / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_side_of_a_destination_is_named() {
        let message = |leg: &str, direction: &str| json!({"type": "message", "at": "2026-11-26T11:42:00.000Z", "leg": leg, "direction": direction, "summary": "INVITE"});
        let ladder = Ladder::read(&json!({"items": [
            message("caller", "received"), message("runtime", "sent"), message("destination", "sent"),
        ]}));
        let shown = ladder.text();
        let ends: Vec<&str> = shown.lines().map(|line| line[11..].trim()).collect();
        assert_eq!(
            ends[1..],
            ["---> INVITE", "---> INVITE", "---> INVITE  [destination]"],
            "{shown}"
        );
        assert_eq!(ladder.parties().len(), 4);
    }

    #[test]
    fn a_decision_follows_the_message_of_its_time() {
        let decision = Rung {
            at: 5,
            content: RungContent::Decision("why".to_owned()),
        };
        let message = |at| Rung {
            at,
            content: RungContent::Message(Box::new(Passed {
                peer: Party::Caller,
                is_sent: false,
                summary: "INVITE".to_owned(),
                transport: "udp".to_owned(),
                source: "a".to_owned(),
                destination: "b".to_owned(),
                text: String::new(),
            })),
        };
        let ladder = Ladder::new(vec![decision, message(5), message(2_000_004)]);
        let is_message: Vec<bool> = ladder
            .rungs
            .iter()
            .map(|rung| rung.message().is_some())
            .collect();
        assert_eq!(is_message, [true, false, true]);
        assert_eq!(seconds(ladder.passed(&ladder.rungs[2])), "1.999");
        assert_eq!(ladder.parties().len(), 3);
    }
}
