//! Trace of a call on another node: that node serializes it, and this node reads it. It travels through the database, which
//! deletes it once it is read.

use std::net::SocketAddr;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trunkline_capture::{Captured, Transport};
use trunkline_sip::moment::Moment;
use trunkline_store::Call;

use super::super::command_result::CommandResult;
use super::super::legs::{Message, messages_here};
use super::super::media_rows::media_rows;
use crate::api::{Api, ApiError};

/// Maximum octets of all messages sent to another node. Messages beyond it are left out, and the trace is marked incomplete.
const MAX_OCTETS: usize = 4 << 20;
/// Legs that a message may belong to.
const LEGS: [&str; 3] = ["caller", "runtime", "destination"];

/// Trace of a call as it travels between nodes.
#[derive(Debug, Serialize, Deserialize)]
struct RelayedTrace {
    complete: bool,
    messages: Vec<RelayedMessage>,
    /// Steps of the call's media.
    media: Vec<RelayedRow>,
}

/// Row of a ladder that shows a step of the media and no message.
#[derive(Debug, Serialize, Deserialize)]
struct RelayedRow {
    at: u64,
    text: String,
}

/// Trace of a call, read from another node.
#[derive(Debug)]
pub(in crate::api::phone) struct ReadTrace {
    pub(in crate::api::phone) messages: Vec<Message>,
    /// Steps of the call's media, with their times.
    pub(in crate::api::phone) media: Vec<(Moment, String)>,
    pub(in crate::api::phone) is_complete: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct RelayedMessage {
    leg: String,
    sent: bool,
    at: u64,
    source: SocketAddr,
    target: SocketAddr,
    transport: String,
    /// Base64, because a message may hold any octets.
    octets: String,
}

/// Reads the trace that another node has sent.
///
/// # Errors
/// The text isn't in the format of this version.
pub(in crate::api::phone) fn read_relayed(body: &str) -> serde_json::Result<ReadTrace> {
    let trace: RelayedTrace = serde_json::from_str(body)?;
    let count = trace.messages.len();
    let messages: Vec<Message> = trace.messages.into_iter().filter_map(read).collect();
    // A newer node may send legs or transports that this version doesn't know.
    let is_complete = trace.complete && messages.len() == count;

    let media = trace.media.into_iter();
    let media = media.map(|row| (Moment::from_micros(row.at), row.text));

    Ok(ReadTrace {
        messages,
        media: media.collect(),
        is_complete,
    })
}

/// Serializes the messages and the steps of media that this node has, for another node.
pub(in crate::api::phone) async fn given(api: &Api, call: Call) -> Result<CommandResult, ApiError> {
    let (call, messages, is_complete) = messages_here(api, call).await?;
    let media = media_rows(api, &call).await?.into_iter();

    let count = messages.len();
    let mut room = MAX_OCTETS;
    // Ends at the first message that doesn't fit: what is sent is then the beginning of the trace, without gaps.
    let fits = messages.into_iter().take_while(|message| {
        let left = room.checked_sub(message.captured.octets.len());
        room = left.unwrap_or_default();
        left.is_some()
    });
    let messages: Vec<RelayedMessage> = fits.map(relayed).collect();

    let trace = RelayedTrace {
        complete: is_complete && messages.len() == count,
        messages,
        media: media
            .map(|(at, text)| RelayedRow {
                at: at.as_micros(),
                text,
            })
            .collect(),
    };

    CommandResult::new(StatusCode::OK, &trace)
}

fn relayed(message: Message) -> RelayedMessage {
    let captured = message.captured;
    RelayedMessage {
        leg: message.name.to_owned(),
        sent: message.is_sent,
        at: captured.at,
        source: captured.source,
        target: captured.target,
        transport: captured.transport.as_str().to_owned(),
        octets: STANDARD.encode(captured.octets),
    }
}

fn read(message: RelayedMessage) -> Option<Message> {
    Some(Message {
        name: LEGS.into_iter().find(|leg| *leg == message.leg)?,
        is_sent: message.sent,
        captured: Captured {
            at: message.at,
            source: message.source,
            target: message.target,
            transport: Transport::parse(&message.transport)?,
            octets: STANDARD.decode(message.octets).ok()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for (leg, sent) in [("caller", false), ("runtime", true), ("destination", true)] {
            let captured = Captured {
                at: 1_790_000_000_000_001,
                source: "192.0.2.1:5060".parse().expect("an address"),
                target: "[2001:db8::1]:5061".parse().expect("an address"),
                transport: Transport::Tls,
                octets: b"SIP/2.0 200 OK\r\n\r\n\xff\0".to_vec(),
            };
            let message = Message {
                name: leg,
                is_sent: sent,
                captured: captured.clone(),
            };
            let text = serde_json::to_string(&relayed(message)).expect("JSON");

            let again = read(serde_json::from_str(&text).expect("JSON")).expect("a message");
            assert_eq!((again.name, again.is_sent), (leg, sent));
            assert_eq!(again.captured, captured);
        }
    }

    #[test]
    fn steps_of_media_are_read() {
        let body =
            r#"{"complete":true,"messages":[],"media":[{"at":5,"text":"media: mark reached"}]}"#;
        let trace = read_relayed(body).expect("a trace");
        let expected = (Moment::from_micros(5), "media: mark reached".to_owned());
        assert_eq!(trace.media, [expected]);
        assert!(trace.is_complete);
    }
}
