//! Effects of a shard's calls. The engine carries them out after each batch.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trunkline_bounds::PartnerShare;
use trunkline_model::address::NamedBy;
use trunkline_model::attempt::AttemptOutcome;
use trunkline_model::record::Fact;
use trunkline_model::settings::BotProtocol;
use trunkline_routing::E164;
use trunkline_sip::auth::WrongPart;
use trunkline_sip::dialog::sdp::{AudioPayload, Direction, IpVersion, PacketTime, PayloadTypes};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::traced::{DialogIdentity, TracedLeg};
use crate::flow::Sound;
use crate::parts::ids::CallKey;
use crate::parts::spoken_code::SpokenCode;
use crate::parts::target::{Target, UnresolvedTarget};
use crate::trust::challenge_report::ChallengeReport;

pub use crate::trust::failed_login::UnknownUser;
pub use crate::trust::unanswered_challenges::UnansweredChallenge;

/// One effect.
#[derive(Debug)]
pub enum Effect {
    /// Resolve the host of an INVITE's target (RFC 3263); answered by `Calls::handle_resolved`.
    Resolve {
        /// The call that it is for.
        call: CallKey,
        /// The call's org.
        org: Uuid,
        /// Name to resolve.
        wanted: UnresolvedTarget,
    },
    /// An INVITE to this target is too large for a datagram: open a connection to it, if it takes one soon; answered by
    /// `Calls::handle_resolved` with the target and the flow to send by.
    Connect {
        /// The call that it is for.
        call: CallKey,
        /// Target of the INVITE.
        target: Target,
        /// The flow of a connection.
        stream: Flow,
        /// The flow of a datagram, where no connection comes about.
        datagram: Flow,
    },
    /// A peer accepted a connection and left the INVITE on it unanswered: the next INVITEs go by datagram.
    StreamSilent {
        /// The peer.
        peer: SocketAddr,
    },
    /// Count what became of the proof that a call owed.
    Proof(ProofOutcome),
    /// Resolve the next hop of requests inside a call; answered by `Calls::handle_hop`.
    ResolveHop {
        /// Name to resolve.
        wanted: UnresolvedTarget,
    },
    /// Find or make the contact with this number; answered by `Calls::handle_contact`.
    FindContact {
        /// The call that it is for.
        call: CallKey,
        /// The org.
        org: Uuid,
        /// Number of the other party: the caller, or the callee of an outbound call.
        number: E164,
    },
    /// Open media of our own; answered by `Calls::handle_media_open`.
    OpenMedia {
        /// The call that it is for.
        call: CallKey,
        /// The listener that the call came by or leaves by; `None`: not known yet.
        listener: Option<u16>,
        /// The address of ours that the peer's packets come to, so that media is offered on the same interface.
        near: IpAddr,
        /// IP version of the peer's media, which may be another than that of its signalling; `None`: not known yet.
        version: Option<IpVersion>,
    },
    /// Set address and codec of the caller's audio.
    UpdateMedia {
        /// The call that it is for.
        call: CallKey,
        /// The agreed audio stream.
        media: AgreedMedia,
    },
    /// A message with our tag has come from the address that signals: the audio for [`AgreedMedia::claimed`] goes there from now on.
    ProveMedia {
        /// The call that it is for.
        call: CallKey,
    },
    /// Speak a code instead of echoing.
    SpeakCode {
        /// The call that it is for.
        call: CallKey,
        /// Code to speak.
        code: SpokenCode,
    },
    /// Close media of our own.
    CloseMedia {
        /// The call that it is for.
        call: CallKey,
        /// Record that gets the figures; `None` where the call has none.
        record: Option<MediaRecord>,
    },
    /// Open the WebSocket of a bot; answered by `Calls::handle_bot`.
    DialBot {
        /// The call that it is for.
        call: CallKey,
        /// Its URL, and the facts of the call that it gets.
        dial: Box<BotDial>,
    },
    /// Play a sound to the peer of the built-in agent; the end of a prompt or of keys is answered by `Calls::handle_played`.
    PlaySound {
        /// The call that it is for.
        call: CallKey,
        /// The org, whose prompts are meant.
        org: Uuid,
        /// Number of the sound within the call.
        serial: u32,
        /// The sound.
        sound: Sound,
    },
    /// The built-in agent hands its caller off; answered by `Calls::handle_hand_off`, which needs the org's settings.
    HandOff {
        /// The call that it is for.
        call: CallKey,
    },
    /// The call is up: start the bot that is attached to its media.
    StartBot {
        /// The call that it is for.
        call: CallKey,
        /// Time of the answer.
        answered_at: Moment,
    },
    /// The peer pressed a key by INFO: pass it on to the bot.
    PressKey {
        /// The call that it is for.
        call: CallKey,
        /// The key.
        key: char,
    },
    /// Record a fact.
    Fact(Fact),
    /// Record a failed log-in with one of our user names.
    AuthFailure(AuthFailure),
    /// Log a failed log-in with an unknown user name.
    UnknownUser(UnknownUser),
    /// A caller has left its challenge unanswered.
    UnansweredChallenge(UnansweredChallenge),
    /// A message came from an address that its dialog doesn't know.
    UnknownSource(UnknownSource),
    /// An attempt has failed, and the call tries another target.
    FailedOver {
        /// Outcome of the attempt that failed.
        cause: AttemptOutcome,
    },
    /// A peer's challenge has shown its realm, or couldn't be answered.
    Challenged(Box<ChallengeReport>),
    /// Messages with this identity belong to a leg, in traces, of an org of this partner.
    Traced(TracedLeg, Option<PartnerShare>, Box<DialogIdentity>),
    /// A call is over. Its identities still assign late messages to it.
    Untraced(Uuid),
    /// A call was refused without a record: this node takes no new calls, or the refusals of its org come too fast.
    TurnedAway {
        /// The stable reason.
        reason: &'static str,
    },
}

/// A WebSocket to open for a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BotDial {
    /// The org.
    pub org: Uuid,
    /// The session, which the bot gets as its id.
    pub session: Uuid,
    /// URL of the bot.
    pub url: Box<str>,
    /// Format of the messages.
    pub protocol: BotProtocol,
    /// Party that named the host.
    pub named: NamedBy,
    /// Facts of the call as the bot gets them: names and values.
    pub parameters: Vec<(Box<str>, Box<str>)>,
}

/// Message that has proven a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProvenBy {
    /// An ACK.
    Ack,
    /// A PRACK.
    Prack,
    /// Any other request.
    Request,
}

/// Outcome of a proof, for the metrics.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProofOutcome {
    /// The call is proven.
    Proven(ProvenBy),
    /// The INVITE waits, since too many calls of its source aren't proven.
    Held,
    /// The source has denied the dialog twice.
    Denied,
    /// Neither an ACK nor a PRACK came in time.
    Silent,
    /// Too many calls of the org aren't proven.
    Crowded,
}

impl ProofOutcome {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proven(ProvenBy::Ack) => "ack",
            Self::Proven(ProvenBy::Prack) => "prack",
            Self::Proven(ProvenBy::Request) => "request",
            Self::Held => "held",
            Self::Denied => "denied",
            Self::Silent => "silent",
            Self::Crowded => "crowded",
        }
    }
}

/// Fate of a message from an address that its dialog doesn't know.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnknownSource {
    /// The request was challenged: its leg has been proven by a digest.
    Challenged,
    /// The request was refused.
    Refused,
    /// The ACK was ignored.
    Ack,
    /// The response was ignored.
    Response,
}

impl UnknownSource {
    /// Label in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Challenged => "challenged",
            Self::Refused => "refused",
            Self::Ack => "ack",
            Self::Response => "response",
        }
    }
}

/// Record of a call that gets its media's figures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MediaRecord {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
}

/// Audio stream that was agreed for media of our own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AgreedMedia {
    /// Address of the caller's audio.
    pub remote: SocketAddr,
    /// Payload of the audio that is sent.
    pub payload: AudioPayload,
    /// Payload type of the telephone-events that are sent, where agreed.
    pub telephone_event: Option<u8>,
    /// Payload types that the caller may send.
    pub received: PayloadTypes,
    /// Our direction.
    pub direction: Direction,
    /// Audio in each packet that is sent.
    pub packet_time: PacketTime,
    /// Address at which the caller wants its RTCP, if it names one that may be sent to.
    pub rtcp: Option<SocketAddr>,
    /// IPs that the caller's packets are expected from. Both may be the same.
    pub sources: [IpAddr; 2],
    /// True if another source may be learned while those are silent.
    pub from_any: bool,
    /// Trunk of the call. What is learnt of RTP addresses in one of its calls is good for the others.
    pub trunk: Uuid,
    /// IP that signals.
    pub signals_from: IpAddr,
    /// Address that audio goes to before the caller is heard, once `is_proven`: the one in SDP if its IP is the one that signals, or that IP
    /// with the port in SDP if SDP names a private one. `None`: the IP in SDP is another, which has to send first.
    pub claimed: Option<SocketAddr>,
    /// The IP of `claimed` takes part in the call, by a message with our tag or by the operator's word.
    pub is_proven: bool,
    /// Silence after which the caller is asked whether it is still there; `None`: never.
    pub silence: Option<Duration>,
}

/// A failed log-in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthFailure {
    /// The org whose user name it was.
    pub org: Uuid,
    /// The org's trunk.
    pub trunk: Uuid,
    /// User name as sent.
    pub username: Box<str>,
    /// The packet's source.
    pub source: SocketAddr,
    /// Time.
    pub at: Moment,
    /// Part that was wrong.
    pub part: WrongPart,
    /// Call-ID of the request.
    pub call_id: Box<str>,
    /// User part of the Request-URI; `None` for a REGISTER.
    pub dialled: Option<Box<str>>,
}
