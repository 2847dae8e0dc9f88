//! Why a call is refused or ended by us: a stable code for programs, a sentence for people, a SIP status.

use trunkline_sip::header::uri::{Scheme, Uri};
use trunkline_sip::wire::Message;

use trunkline_model::record::Status;

/// One reason. The codes are part of the interface and never change their meaning.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No agent of the org can take the call.
    NoAgent,
    /// The agent that was meant is at its limit.
    AgentBusy,
    /// The trunk is at its limit.
    TrunkBusy,
    /// The org is at its limit.
    OrgBusy,
    /// The org is suspended.
    OrgSuspended,
    /// The call asked for a report on its trunk, which is made.
    Examined,
    /// This node is at its limit.
    Overload,
    /// This node is being shut down.
    Draining,
    /// The INVITE requires an extension that we lack.
    BadExtension,
    /// The scheme of the Request-URI isn't spoken here.
    BadScheme,
    /// The Request-URI is `sips:`, and the INVITE has not come over TLS.
    NotSecured,
    /// Max-Forwards was used up.
    TooManyHops,
    /// The INVITE has been here before.
    LoopDetected,
    /// The same caller has called the same number too often in too short a time.
    SetupsRepeat,
    /// Its two readings differ, or a header that a call needs is missing.
    BadRequest,
    /// The session interval is below our Min-SE.
    SessionTooBrief,
    /// No runtime of the agent could be reached.
    RuntimeUnreachable,
    /// The rule on addresses forbids all places that the call was to go to.
    PeerNotAllowed,
    /// The runtime declined with a code that is its own trouble.
    RuntimeRefused,
    /// The runtime's or the caller's media can't match.
    NoCommonMedia,
    /// One side's media is on IPv4, the other's on IPv6, and nothing relays it.
    MediaFamilies,
    /// No RTP port was free.
    NoMediaPort,
    /// The runtime said that it is busy or declines.
    Declined,
    /// Nobody answered within the set-up deadline.
    SetupTimeout,
    /// Nobody answered within the INVITE's own Expires (RFC 3261 §13.3.1).
    InviteExpired,
    /// The caller gave up.
    CallerCanceled,
    /// The caller never acknowledged the answer.
    NoAck,
    /// The peer stopped refreshing the session (RFC 4028).
    SessionExpired,
    /// The peer no longer knows the dialog.
    DialogGone,
    /// The PBX lost the caller when an accepted REFER failed.
    CallerLost,
    /// The longest allowed duration was reached.
    MaxDuration,
    /// The caller's media has been silent for too long.
    MediaSilent,
    /// Ended by the operator or the API.
    Operator,
    /// The agent dials through no trunk.
    NoWayOut,
    /// The trunk leads to the registered PBX, and none is registered.
    NotRegistered,
    /// The callee is in another call.
    CalleeBusy,
    /// The callee's side gave up ringing, or can't be reached now.
    CalleeNoAnswer,
    /// The callee said no.
    CalleeDeclined,
    /// The callee's side knows no such number.
    NumberUnreachable,
    /// It rang for as long as it may.
    RingingTimeout,
    /// No address of the trunk answers.
    TrunkUnreachable,
    /// The trunk wants credentials that it doesn't get.
    TrunkAuthFailed,
    /// The trunk refused for a cause of its own.
    TrunkRefused,
    /// The callee's re-INVITE was refused.
    JoinRefused,
    /// The org is at its limit of calls that it began.
    OutboundBusy,
    /// The org begins too many calls.
    OutboundRate,
    /// The trunk begins too many calls a second.
    TrunkRate,
    /// The operator doesn't allow calls to this number.
    DestinationNotAllowed,
    /// There is no such call of the org that a new leg could enter.
    NothingReplaced,
    /// The call is answered, and only one that isn't was to be entered.
    AnsweredAlready,
    /// Something else about the call is being agreed on.
    CallChanging,
    /// A fault of ours.
    Internal,
}

impl Reason {
    const ALL: [Self; 52] = [
        Self::NoAgent,
        Self::AgentBusy,
        Self::TrunkBusy,
        Self::OrgBusy,
        Self::OrgSuspended,
        Self::Examined,
        Self::Overload,
        Self::Draining,
        Self::BadExtension,
        Self::BadScheme,
        Self::NotSecured,
        Self::TooManyHops,
        Self::LoopDetected,
        Self::SetupsRepeat,
        Self::BadRequest,
        Self::SessionTooBrief,
        Self::RuntimeUnreachable,
        Self::PeerNotAllowed,
        Self::RuntimeRefused,
        Self::NoCommonMedia,
        Self::MediaFamilies,
        Self::NoMediaPort,
        Self::Declined,
        Self::SetupTimeout,
        Self::InviteExpired,
        Self::CallerCanceled,
        Self::NoAck,
        Self::SessionExpired,
        Self::DialogGone,
        Self::CallerLost,
        Self::MaxDuration,
        Self::MediaSilent,
        Self::Operator,
        Self::NoWayOut,
        Self::NotRegistered,
        Self::CalleeBusy,
        Self::CalleeNoAnswer,
        Self::CalleeDeclined,
        Self::NumberUnreachable,
        Self::RingingTimeout,
        Self::TrunkUnreachable,
        Self::TrunkAuthFailed,
        Self::TrunkRefused,
        Self::JoinRefused,
        Self::OutboundBusy,
        Self::OutboundRate,
        Self::TrunkRate,
        Self::DestinationNotAllowed,
        Self::NothingReplaced,
        Self::AnsweredAlready,
        Self::CallChanging,
        Self::Internal,
    ];

    /// The reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoAgent => "no_agent",
            Self::AgentBusy => "agent_busy",
            Self::TrunkBusy => "trunk_busy",
            Self::OrgBusy => "org_busy",
            Self::OrgSuspended => "org_suspended",
            Self::Examined => "examined",
            Self::Overload => "overload",
            Self::Draining => "draining",
            Self::BadExtension => "bad_extension",
            Self::BadScheme => "unsupported_uri_scheme",
            Self::NotSecured => "not_secured",
            Self::TooManyHops => "too_many_hops",
            Self::LoopDetected => "loop_detected",
            Self::SetupsRepeat => "setups_repeat",
            Self::BadRequest => "bad_request",
            Self::SessionTooBrief => "session_interval_too_small",
            Self::RuntimeUnreachable => "runtime_unreachable",
            Self::PeerNotAllowed => "peer_not_allowed",
            Self::RuntimeRefused => "runtime_refused",
            Self::NoCommonMedia => "no_common_media",
            Self::MediaFamilies => "media_families_differ",
            Self::NoMediaPort => "no_media_port",
            Self::Declined => "declined",
            Self::SetupTimeout => "setup_timeout",
            Self::InviteExpired => "invite_expired",
            Self::CallerCanceled => "caller_canceled",
            Self::NoAck => "no_ack",
            Self::SessionExpired => "session_expired",
            Self::DialogGone => "dialog_gone",
            Self::CallerLost => "caller_lost",
            Self::MaxDuration => "max_duration",
            Self::MediaSilent => "media_silent",
            Self::Operator => "operator",
            Self::NoWayOut => "no_outbound_trunk",
            Self::NotRegistered => "pbx_not_registered",
            Self::CalleeBusy => "callee_busy",
            Self::CalleeNoAnswer => "callee_no_answer",
            Self::CalleeDeclined => "callee_declined",
            Self::NumberUnreachable => "number_unreachable",
            Self::RingingTimeout => "ringing_timeout",
            Self::TrunkUnreachable => "trunk_unreachable",
            Self::TrunkAuthFailed => "trunk_auth_failed",
            Self::TrunkRefused => "trunk_refused",
            Self::JoinRefused => "join_refused",
            Self::OutboundBusy => "outbound_busy",
            Self::OutboundRate => "outbound_rate",
            Self::TrunkRate => "trunk_rate",
            Self::DestinationNotAllowed => "destination_not_allowed",
            Self::NothingReplaced => "nothing_replaced",
            Self::AnsweredAlready => "answered_already",
            Self::CallChanging => "call_changing",
            Self::Internal => "internal_error",
        }
    }

    /// The sentence in `Warning: 399`.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoAgent => "No agent of this org is available for the call",
            Self::AgentBusy => "The agent is at its limit of concurrent calls",
            Self::TrunkBusy => "The trunk is at its limit of concurrent calls",
            Self::OrgBusy => {
                "The org is at its limit of concurrent calls, or at its share of this node"
            }
            Self::OrgSuspended => "The org is suspended",
            Self::Examined => {
                "The report on this trunk is made: GET /phone/sip/inbound-trunk/doctor, or trunkline trunk doctor"
            }
            Self::Overload => "This node is at its limit of calls",
            Self::Draining => "This node is shutting down",
            Self::BadExtension => "A required extension is not supported",
            Self::BadScheme => "The scheme of the Request-URI is not supported",
            Self::NotSecured => "A call to a sips: URI has to come over TLS",
            Self::TooManyHops => "Max-Forwards has reached 0",
            Self::LoopDetected => "The call has come back here too often: it runs in a circle",
            Self::SetupsRepeat => {
                "The same caller has called this number 20 times within 10 seconds"
            }
            Self::BadRequest => "The request can be read in two ways or lacks what a call needs",
            Self::SessionTooBrief => "The session interval is too small",
            Self::RuntimeUnreachable => "The agent's runtime cannot be reached",
            Self::PeerNotAllowed => {
                "The call was to go to an address that may not be contacted from here"
            }
            Self::RuntimeRefused => "The agent's runtime refused the call",
            Self::NoCommonMedia => "The two sides have no media in common",
            Self::MediaFamilies => {
                "One side has its media on IPv4 and the other on IPv6, and media is not relayed"
            }
            Self::NoMediaPort => "No media port is free",
            Self::Declined => "The agent's runtime declined the call",
            Self::SetupTimeout => "The call was not answered in time",
            Self::InviteExpired => "The call was not answered within the INVITE's Expires",
            Self::CallerCanceled => "The caller gave up",
            Self::NoAck => "The answer was never acknowledged",
            Self::SessionExpired => "The session was not refreshed in time",
            Self::DialogGone => "The peer no longer knows the call",
            Self::CallerLost => "The PBX lost the caller when the transfer failed",
            Self::MaxDuration => "The call reached its longest duration",
            Self::MediaSilent => "No media came in for too long",
            Self::Operator => "The call was ended on request",
            Self::NoWayOut => "The agent has no outbound trunk to dial through",
            Self::NotRegistered => "No PBX is registered that the call could go to",
            Self::CalleeBusy => "The callee is busy",
            Self::CalleeNoAnswer => "The callee did not answer",
            Self::CalleeDeclined => "The callee declined the call",
            Self::NumberUnreachable => "The number does not exist or can't be reached",
            Self::RingingTimeout => "The callee did not answer in time",
            Self::TrunkUnreachable => "The outbound trunk cannot be reached",
            Self::TrunkAuthFailed => "The outbound trunk does not accept the credentials",
            Self::TrunkRefused => "The outbound trunk refused the call",
            Self::JoinRefused => "The callee's side did not take the agent's media",
            Self::OutboundBusy => "The org is at its limit of outbound calls at once",
            Self::OutboundRate => "The org has begun as many outbound calls as it may for now",
            Self::TrunkRate => "The trunk takes no more new calls this second",
            Self::DestinationNotAllowed => "This number may not be called from here",
            Self::NothingReplaced => "There is no such call to be taken over",
            Self::AnsweredAlready => "The call to be taken over is answered already",
            Self::CallChanging => "The call to be taken over is being changed",
            Self::Internal => "Trunkline met a fault of its own",
        }
    }

    /// The SIP status of a refusal for this reason. 503 is for this node as a whole, since peers shun
    /// the server for it; an org's, trunk's, agent's or runtime's trouble is 480.
    pub const fn status(self) -> u16 {
        match self {
            Self::Overload | Self::Draining | Self::NoMediaPort | Self::TrunkUnreachable => 503,
            Self::DestinationNotAllowed => 403,
            Self::BadExtension => 420,
            Self::BadScheme => 416,
            Self::TooManyHops => 483,
            Self::LoopDetected | Self::SetupsRepeat => 482,
            Self::BadRequest => 400,
            Self::SessionTooBrief => 422,
            Self::NoCommonMedia | Self::MediaFamilies | Self::JoinRefused => 488,
            Self::CalleeBusy => 486,
            Self::CalleeDeclined => 603,
            Self::NumberUnreachable => 404,
            Self::RingingTimeout => 408,
            Self::TrunkAuthFailed => 401,
            Self::CallerCanceled | Self::InviteExpired => 487,
            Self::NothingReplaced => 481,
            Self::AnsweredAlready => 486,
            Self::CallChanging => 491,
            Self::Internal => 500,
            // RFC 3262 §3: of a reliable provisional answer.
            Self::NoAck => 504,
            Self::NoAgent
            | Self::AgentBusy
            | Self::TrunkBusy
            | Self::OrgBusy
            | Self::OrgSuspended
            | Self::Examined
            | Self::NotSecured
            | Self::RuntimeUnreachable
            | Self::PeerNotAllowed
            | Self::RuntimeRefused
            | Self::Declined
            | Self::SetupTimeout
            | Self::SessionExpired
            | Self::DialogGone
            | Self::CallerLost
            | Self::MaxDuration
            | Self::MediaSilent
            | Self::NoWayOut
            | Self::NotRegistered
            | Self::OutboundBusy
            | Self::OutboundRate
            | Self::TrunkRate
            | Self::CalleeNoAnswer
            | Self::TrunkRefused
            | Self::Operator => 480,
        }
    }

    /// The status in the record of a call that never was answered.
    pub const fn unanswered(self) -> Status {
        match self {
            Self::CallerCanceled => Status::Canceled,
            Self::CalleeBusy => Status::Busy,
            Self::SetupTimeout
            | Self::InviteExpired
            | Self::CalleeNoAnswer
            | Self::RingingTimeout => Status::NoAnswer,
            Self::Declined
            | Self::RuntimeUnreachable
            | Self::PeerNotAllowed
            | Self::RuntimeRefused
            | Self::NoCommonMedia
            | Self::MediaFamilies
            | Self::NoMediaPort
            | Self::NoAck
            | Self::SessionExpired
            | Self::DialogGone
            | Self::CallerLost
            | Self::MaxDuration
            | Self::MediaSilent
            | Self::Operator
            | Self::CalleeDeclined
            | Self::NumberUnreachable
            | Self::TrunkUnreachable
            | Self::TrunkAuthFailed
            | Self::TrunkRefused
            | Self::JoinRefused
            | Self::Internal => Status::Failed,
            Self::NoAgent
            | Self::AgentBusy
            | Self::TrunkBusy
            | Self::OrgBusy
            | Self::OrgSuspended
            | Self::Examined
            | Self::Overload
            | Self::Draining
            | Self::BadExtension
            | Self::BadScheme
            | Self::NotSecured
            | Self::TooManyHops
            | Self::LoopDetected
            | Self::SetupsRepeat
            | Self::BadRequest
            | Self::NoWayOut
            | Self::NotRegistered
            | Self::OutboundBusy
            | Self::OutboundRate
            | Self::TrunkRate
            | Self::DestinationNotAllowed
            | Self::NothingReplaced
            | Self::AnsweredAlready
            | Self::CallChanging
            | Self::SessionTooBrief => Status::Refused,
        }
    }
}

/// The status for a Request-URI that nobody here is meant by (RFC 3261 §8.2.2.1).
pub(super) fn uri_refusal(message: &Message<'_>) -> Option<u16> {
    match Uri::parse(message.request_uri()) {
        Ok(uri) => (uri.scheme == Scheme::Other).then_some(416),
        Err(_) => Some(400),
    }
}
