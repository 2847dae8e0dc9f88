//! Figures and steps of a call's media that this node terminates. A record never holds the audio itself.

use std::fmt;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Fact: media of a call has ended, with the call or before it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallMedia {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// Its figures.
    pub figures: MediaFigures,
    /// Its steps, as far as there was room for them.
    pub steps: Vec<MediaStep>,
}

/// Figures of a call's media.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallMedia")]
pub struct MediaFigures {
    /// RTP that the caller or callee sent.
    pub received: ReceivedMedia,
    /// RTP that was sent to the caller or callee.
    pub sent: SentMedia,
    /// Time to the caller or callee and back, as its last RTCP report gives it; `null` where it sent none.
    pub round_trip_ms: Option<f64>,
    /// From the answer to the first audio of the agent; `null` where it sent none.
    pub first_word_ms: Option<f64>,
    /// Times that the bot discarded audio that was being played.
    pub clears: u64,
    /// Longest time from such a `clear` to the last audible packet; `null` without one.
    pub clear_to_silence_ms: Option<f64>,
    /// Times that the bot's audio ran out while it spoke.
    pub underruns: u64,
    /// Octets of the bot's audio that were discarded since ten minutes were queued.
    pub discarded_octets: u64,
    /// Messages of the bot that were not understood.
    pub unknown_messages: u64,
}

/// RTP of one direction, as it was received here.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedMedia {
    /// Packets that came.
    pub packets: u64,
    /// Octets of audio in them.
    pub octets: u64,
    /// Packets that never came.
    pub packets_lost: u64,
    /// Packets that came twice, or too late to be heard.
    pub packets_late: u64,
    /// Packets that came, but too late for their audio to be passed on. Those that came twice aren't among them.
    #[serde(default)]
    pub packets_discarded: u64,
    /// Interarrival jitter at the end of the call (RFC 3550).
    pub jitter_ms: f64,
    /// Mean opinion score by ITU-T G.107, from 1 to 4.41; `null` where nothing came.
    pub mos: Option<f64>,
}

/// RTP of one direction, as its receiver reported it by RTCP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SentMedia {
    /// Packets that were sent.
    pub packets: u64,
    /// Octets of audio in them.
    pub octets: u64,
    /// Packets that never arrived; `null` where the receiver reported nothing, as the next two.
    pub packets_lost: Option<u64>,
    /// Interarrival jitter at the receiver.
    pub jitter_ms: Option<f64>,
    /// Mean opinion score by ITU-T G.107, for a receiver that conceals losses.
    pub mos: Option<f64>,
}

/// Step of a call's media.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MediaStep {
    /// Time of the step.
    pub at: Moment,
    /// Kind of the step.
    #[serde(flatten)]
    pub kind: MediaStepKind,
}

/// Kind of a step. The names are on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum MediaStepKind {
    /// A port was assigned.
    Opened,
    /// The first packet with a negotiated payload type came.
    FirstPacket {
        /// Its source.
        from: SocketAddr,
    },
    /// The peer's address was learnt.
    Learnt {
        /// The address.
        peer: SocketAddr,
    },
    /// Audio of the agent is withheld: nothing has come from there, and only SDP says that the peer listens there.
    Withheld {
        /// The address in SDP.
        from: SocketAddr,
    },
    /// No socket is bound where audio was sent to, by ICMP: nothing more is sent until the peer is heard.
    Unreachable {
        /// The address.
        peer: SocketAddr,
    },
    /// A bot was attached.
    BotConnected,
    /// The bot got its `start`.
    Started,
    /// The first audio of the agent was sent.
    FirstAudio,
    /// The bot cleared audio that was queued.
    Cleared,
    /// The last audible packet after a clear was sent.
    Silent,
    /// The audio before a mark of the bot was played.
    Mark,
    /// The caller or callee pressed a key. Which one isn't kept: keys may be a card's number.
    Key,
    /// The bot's audio ran out inside a talk spurt.
    Underrun,
    /// Audio of the bot was discarded: as much as may wait was queued.
    Discarded,
    /// The bot has gone before the end of its call.
    BotClosed {
        /// Stable code of the cause.
        cause: Box<str>,
    },
    /// The port was released.
    Closed,
}

impl fmt::Display for MediaStepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => f.write_str("media: port taken"),
            Self::FirstPacket { from } => write!(f, "media: first packet, from {from}"),
            Self::Learnt { peer } => write!(f, "media: peer is heard at {peer}"),
            Self::Withheld { from } => write!(
                f,
                "media: audio is withheld from {from}, which has sent nothing and isn't where the signalling comes from"
            ),
            Self::Unreachable { peer } => write!(
                f,
                "media: nobody listens at {peer} (ICMP port unreachable); audio stops until the peer is heard"
            ),
            Self::BotConnected => f.write_str("media: bot connected"),
            Self::Started => f.write_str("media: bot has the call (start)"),
            Self::FirstAudio => f.write_str("media: first audio of the agent"),
            Self::Cleared => f.write_str("media: bot cleared its audio"),
            Self::Silent => f.write_str("media: silent after the clear"),
            Self::Mark => f.write_str("media: mark reached"),
            Self::Key => f.write_str("media: key pressed"),
            Self::Underrun => f.write_str("media: the bot's audio ran out (underrun)"),
            Self::Discarded => f.write_str("media: the bot's audio is discarded, too much waits"),
            Self::BotClosed { cause } => write!(f, "media: bot has gone ({cause})"),
            Self::Closed => f.write_str("media: port released"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_on_disk_stays() {
        let step = MediaStep {
            at: Moment::from_micros(5),
            kind: MediaStepKind::Learnt {
                peer: "192.0.2.1:4000".parse().unwrap(),
            },
        };
        let json = r#"{"at":5,"step":"learnt","peer":"192.0.2.1:4000"}"#;
        assert_eq!(serde_json::to_string(&step).unwrap(), json);
        assert_eq!(serde_json::from_str::<MediaStep>(json).unwrap(), step);
    }
}
