//! One attempt to reach a target of a call, as a fact of the journal: the target, the time it took, and the outcome.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Party that an attempt was to reach.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptLeg {
    /// The agent's runtime, or one of its fallbacks.
    Runtime,
    /// The callee of an outbound call.
    Callee,
    /// The destination of a bridged transfer.
    Destination,
}

impl AttemptLeg {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Callee => "callee",
            Self::Destination => "destination",
        }
    }
}

/// Outcome of an attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The call was answered.
    Answered,
    /// A final SIP response refused or redirected the call.
    SipStatus,
    /// No response came in time.
    Timeout,
    /// A 100 came, but no other response in time: the next hop is up, nothing is known of the servers behind it.
    OnlyTrying,
    /// The target rang, and nobody answered in time.
    NotAnswered,
    /// An ICMP message, or this machine's routing, says that the address can't be reached.
    Unreachable,
    /// The connection was refused.
    ConnectionRefused,
    /// The connection was not opened in time.
    ConnectTimeout,
    /// The connection broke before an answer came.
    ConnectionLost,
    /// The TLS handshake failed, or the certificate doesn't prove the name.
    TlsFailed,
    /// The WebSocket was not opened: the bot answered something else than 101.
    HandshakeFailed,
    /// The host name has no address.
    DnsFailed,
    /// The address policy forbids the address ([`crate::address`]).
    NotAllowed,
    /// The target was not tried because it doesn't answer OPTIONS at present.
    KnownDown,
    /// No listener of this node has that transport and address family.
    NoListener,
    /// This node has no room for another request or connection.
    Overloaded,
    /// The call ended before the attempt did.
    Canceled,
    /// The target had the call, and its connection ended before the call did.
    Disconnected,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 18] = [
        Self::Answered,
        Self::SipStatus,
        Self::Timeout,
        Self::OnlyTrying,
        Self::NotAnswered,
        Self::Unreachable,
        Self::ConnectionRefused,
        Self::ConnectTimeout,
        Self::ConnectionLost,
        Self::TlsFailed,
        Self::HandshakeFailed,
        Self::DnsFailed,
        Self::NotAllowed,
        Self::KnownDown,
        Self::NoListener,
        Self::Overloaded,
        Self::Canceled,
        Self::Disconnected,
    ];

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
            Self::HandshakeFailed => "handshake_failed",
            Self::DnsFailed => "dns_failed",
            Self::NotAllowed => "not_allowed",
            Self::KnownDown => "known_down",
            Self::NoListener => "no_listener",
            Self::Overloaded => "overloaded",
            Self::Canceled => "canceled",
            Self::Disconnected => "disconnected",
        }
    }

    /// Returns whether the path to the target failed, as opposed to a refusal or silence of a target that was reached. Neither is known of
    /// [`Self::KnownDown`] and [`Self::Overloaded`], which return false.
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
            | Self::HandshakeFailed
            | Self::Timeout
            | Self::OnlyTrying
            | Self::NotAnswered
            | Self::KnownDown
            | Self::Overloaded
            | Self::Canceled
            | Self::Disconnected => false,
        }
    }
}

/// One attempt to reach a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// Ordinal of the attempt within the call, from 1.
    pub number: u8,
    /// Party that the attempt was to reach.
    pub leg: AttemptLeg,
    /// The Request-URI, cut at a bound.
    pub target: Box<str>,
    /// Address that was tried; `None` if the name has no address, or none that may be contacted.
    pub address: Option<SocketAddr>,
    /// `udp`, `tcp` or `tls`.
    pub transport: Option<Box<str>>,
    /// Start of the attempt.
    pub began_at: Moment,
    /// End of the attempt.
    pub ended_at: Moment,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// SIP status of the final response, if one came.
    pub sip_code: Option<u16>,
    /// Further detail, such as the text of a system error.
    pub detail: Option<Box<str>>,
}
