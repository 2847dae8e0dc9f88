//! Contents of a caller's first INVITE: the facts that routed it, how its sender proved who it is, and how its phone system speaks
//! SIP. Kept with the call, so that it can be explained later, routed again by another directory, and looked at for settings that hurt.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::Facts;

/// How a caller proved who it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallerProof")]
pub enum Proof {
    /// By the digest user name and password of a trunk.
    Digest,
    /// By a source address that the operator has dedicated to the org.
    DedicatedAddress,
    /// By a source address that the trunk allows.
    AllowedAddress,
}

/// What an INVITE said.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// What routing looked at.
    pub facts: Facts,
    /// Who it was, and why we believe it.
    pub proof: Proof,
    /// Where it came from.
    pub source: SocketAddr,
    /// `udp`, `tcp` or `tls`.
    pub transport: Box<str>,
    /// Host and port of the Request-URI: where the peer was told to send calls.
    pub host: Box<str>,
    /// `User-Agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<Box<str>>,
    /// How it speaks.
    pub manner: Manner,
}

/// How a phone system speaks SIP, as far as one INVITE shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manner {
    /// Whether session timers are spoken (RFC 4028).
    pub timer: bool,
    /// The interval that it asks for, in seconds.
    pub session_expires: Option<u32>,
    /// Whether `Allow` names REFER; `None` without an `Allow`.
    pub refer: Option<bool>,
    /// Whether `Allow` names UPDATE; `None` without an `Allow`.
    pub update: Option<bool>,
    /// Whether provisional answers can be acknowledged (RFC 3262).
    pub reliable: bool,
    /// Whether there was an offer.
    pub offer: bool,
    /// The audio codecs offered, best first.
    pub codecs: Vec<Box<str>>,
    /// Whether keys can be sent as telephone-event (RFC 4733).
    pub telephone_event: bool,
    /// Whether the media is offered encrypted.
    pub encrypted: bool,
    /// A private address in Contact, while the packet came from a public one.
    pub private_contact: Option<Box<str>>,
    /// A private address in the SDP's connection, while the packet came from a public one.
    pub private_media: Option<Box<str>>,
    /// A private address that was left in the message while others were rewritten on the way.
    pub rewritten: Option<Box<str>>,
    /// `Date` minus our clock, in seconds.
    pub clock_skew_s: Option<i64>,
}
