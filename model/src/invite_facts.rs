//! Contents of a caller's first INVITE: the facts that routed it, the proof of its sender's identity, and the SIP features of the phone
//! system. Stored with the call, so that the call can be explained later, routed again by another directory, and checked for harmful
//! settings.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::Facts;

/// Proof of a caller's identity.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallerProof")]
pub enum Proof {
    /// Digest credentials of a trunk.
    Digest,
    /// A source address that the operator has dedicated to the org.
    DedicatedAddress,
    /// A source address that the trunk allows.
    AllowedAddress,
    /// A session of the console: a person calls from its page.
    Session,
}

/// Facts of the INVITE that began a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InviteFacts {
    /// Header values that routing reads.
    pub facts: Facts,
    /// Proof by which the sender was admitted.
    pub proof: Proof,
    /// Source address of the INVITE.
    pub source: SocketAddr,
    /// `udp`, `tcp` or `tls`.
    pub transport: Box<str>,
    /// Host and port of the Request-URI: the address of Trunkline that the peer is configured with.
    pub host: Box<str>,
    /// `User-Agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<Box<str>>,
    /// Features and faults of the phone system.
    #[serde(rename = "manner")]
    pub traits: PeerTraits,
}

/// SIP features and faults of a phone system, as far as one INVITE shows them. One that isn't stored was not looked for then.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerTraits {
    /// `Supported` has `timer` (RFC 4028).
    pub timer: bool,
    /// Interval that `Session-Expires` asks for, in seconds.
    pub session_expires: Option<u32>,
    /// `Allow` lists REFER; `None` without an `Allow`.
    pub refer: Option<bool>,
    /// `Allow` lists UPDATE; `None` without an `Allow`.
    pub update: Option<bool>,
    /// `Supported` has `100rel`: provisional responses can be acknowledged (RFC 3262).
    pub reliable: bool,
    /// The INVITE carries an SDP offer.
    pub offer: bool,
    /// The audio codecs offered, best first.
    pub codecs: Box<[Box<str>]>,
    /// The offer has telephone-event for DTMF (RFC 4733).
    pub telephone_event: bool,
    /// All audio of the offer is encrypted (SRTP).
    pub encrypted: bool,
    /// Part of the offer that media of ours lack, as a sentence; `None` if they can answer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<Box<str>>,
    /// A private address in Contact, while the packet came from a public one.
    pub private_contact: Option<Box<str>>,
    /// A private address in the SDP's connection, while the packet came from a public one.
    pub private_media: Option<Box<str>>,
    /// A private address that a NAT device or ALG left in the message while it rewrote others.
    pub rewritten: Option<Box<str>>,
    /// `Date` minus our clock, in seconds.
    pub clock_skew_s: Option<i64>,
}
