//! One attempt at a target of a call, as a fact: where it went, how long it took, and what came.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Whom an attempt was to reach.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptLeg {
    /// The agent's runtime, or one of its fallbacks.
    Runtime,
    /// The callee of an outbound call.
    Callee,
    /// The destination of a transfer that is called from here.
    Destination,
}

impl AttemptLeg {
    /// The name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Callee => "callee",
            Self::Destination => "destination",
        }
    }
}

/// What came of an attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The call was answered.
    Answered,
    /// A SIP status refused the call, or led on.
    SipStatus,
    /// Nothing came in time.
    Timeout,
    /// A bare 100 came, and nothing else in time: the next hop is there, nobody is known behind it.
    OnlyTrying,
    /// It rang, and nobody answered in time.
    NotAnswered,
    /// An ICMP message, or this machine's routing, says that the address can't be reached.
    Unreachable,
    /// The connection was refused.
    ConnectionRefused,
    /// The connection was not opened in time.
    ConnectTimeout,
    /// The connection broke before an answer came.
    ConnectionLost,
    /// TLS was not agreed on, or the certificate doesn't prove the name.
    TlsFailed,
    /// The host's name led to no address.
    DnsFailed,
    /// The rule on addresses forbids it.
    NotAllowed,
    /// It was not tried: it doesn't answer OPTIONS now.
    KnownDown,
    /// No listener of this node has that transport and address family.
    NoListener,
    /// This node has no room for another request or connection.
    Overloaded,
    /// The call ended first.
    Canceled,
}

impl AttemptOutcome {
    /// The name as the API, the database and the metric have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::SipStatus => "sip_status",
            Self::Timeout => "timeout",
            Self::OnlyTrying => "only_trying",
            Self::NotAnswered => "not_answered",
            Self::Unreachable => "unreachable",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectionLost => "connection_lost",
            Self::TlsFailed => "tls_failed",
            Self::DnsFailed => "dns_failed",
            Self::NotAllowed => "not_allowed",
            Self::KnownDown => "known_down",
            Self::NoListener => "no_listener",
            Self::Overloaded => "overloaded",
            Self::Canceled => "canceled",
        }
    }

    /// Whether the way to the target is at fault, and not what the target says.
    pub const fn is_of_the_way(self) -> bool {
        match self {
            Self::Unreachable
            | Self::ConnectionRefused
            | Self::ConnectTimeout
            | Self::ConnectionLost
            | Self::TlsFailed
            | Self::DnsFailed
            | Self::NotAllowed
            | Self::NoListener => true,
            Self::Answered
            | Self::SipStatus
            | Self::Timeout
            | Self::OnlyTrying
            | Self::NotAnswered
            | Self::KnownDown
            | Self::Overloaded
            | Self::Canceled => false,
        }
    }
}

/// One attempt, as a fact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// Its place in the call's record, from 1.
    pub number: u8,
    /// Whom it was to reach.
    pub leg: AttemptLeg,
    /// The Request-URI, cut at a bound.
    pub target: Box<str>,
    /// The address; `None` where the name led to none, or to one that may not be contacted.
    pub address: Option<SocketAddr>,
    /// `udp`, `tcp` or `tls`.
    pub transport: Option<Box<str>>,
    /// When it began.
    pub began_at: Moment,
    /// When something came of it.
    pub ended_at: Moment,
    /// What came.
    pub outcome: AttemptOutcome,
    /// The SIP status that came.
    pub sip_code: Option<u16>,
    /// What is known besides.
    pub detail: Option<Box<str>>,
}
