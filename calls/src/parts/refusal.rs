//! Reasons for which we refuse or end a call: a stable code for programs, a sentence for people, a SIP status.

use trunkline_bounds::NoShare;
use trunkline_model::record::Status;
use trunkline_sip::header::uri::{Scheme, Uri};
use trunkline_sip::wire::Message;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $status:literal $unanswered:ident $code:literal $sentence:literal;)+) => {
        /// One reason. The codes are part of the interface and never change their meaning.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// The sentence in `Warning: 399`.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)+
                }
            }

            /// The SIP status of a refusal for this reason.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)+
                }
            }

            /// Status in the record of a call that was never answered.
            pub const fn unanswered(self) -> Status {
                match self {
                    $(Self::$name => Status::$unanswered,)+
                }
            }
        }
    };
}

// SIP status, status in the record of a call that was never answered, code, sentence. 503 is for this node as a whole, since peers shun the
// server for it; an org's, trunk's, agent's or runtime's trouble is 480. 504 is that of a reliable provisional answer (RFC 3262 §3).
reasons! {
    /// No agent of the org can take the call.
    NoAgent = 480 Refused "no_agent" "No agent of this org is available for the call";
    /// The agent that was meant is at its limit.
    AgentBusy = 480 Refused "agent_busy" "The agent is at its limit of concurrent calls";
    /// The trunk is at its limit.
    TrunkBusy = 480 Refused "trunk_busy" "The trunk is at its limit of concurrent calls";
    /// The org is at its limit.
    OrgBusy = 480 Refused "org_busy" "The org is at its limit of concurrent calls, or it or its partner is at its share of this node";
    /// The org is suspended.
    OrgSuspended = 480 Refused "org_suspended" "The org is suspended";
    /// The call requested a report on its trunk. The report has been made.
    Examined = 480 Refused "examined" "The report on this trunk is made: GET /phone/sip/inbound-trunk/doctor, or trunkline trunk doctor";
    /// This node is at its limit.
    Overload = 503 Refused "overload" "This node is at its limit of calls";
    /// This node is being shut down.
    Draining = 503 Refused "draining" "This node is shutting down";
    /// The INVITE requires an extension that we lack.
    BadExtension = 420 Refused "bad_extension" "A required extension is not supported";
    /// The INVITE requires a level of privacy that can't be provided (RFC 3323 §4.2).
    PrivacyUnavailable = 500 Refused "privacy_unavailable" "A level of privacy that the call requires can't be provided";
    /// The scheme of the Request-URI isn't spoken here.
    BadScheme = 416 Refused "unsupported_uri_scheme" "The scheme of the Request-URI is not supported";
    /// The Request-URI is `sips:`, and the INVITE has not come over TLS.
    NotSecured = 480 Refused "not_secured" "A call to a sips: URI has to come over TLS";
    /// Max-Forwards was used up.
    TooManyHops = 483 Refused "too_many_hops" "Max-Forwards has reached 0";
    /// The INVITE has been here before.
    LoopDetected = 482 Refused "loop_detected" "The call has come back here too often: it runs in a circle";
    /// The same caller has too many open set-ups to the same number.
    CallerBusy = 480 Refused "caller_busy" "The same caller has as many calls to this number being set up as it may have";
    /// The two readings of the INVITE differ, or a header that a call needs is missing.
    BadRequest = 400 Refused "bad_request" "The request can be read in two ways or lacks what a call needs";
    /// The session interval is below our Min-SE.
    SessionTooBrief = 422 Refused "session_interval_too_small" "The session interval is too small";
    /// No runtime of the agent could be reached.
    RuntimeUnreachable = 480 Failed "runtime_unreachable" "The agent's runtime cannot be reached";
    /// The rule on addresses forbids all targets that the call was to go to.
    PeerNotAllowed = 480 Failed "peer_not_allowed" "The call was to go to an address that may not be contacted from here";
    /// The runtime declined with a code that is its own trouble.
    RuntimeRefused = 480 Failed "runtime_refused" "The agent's runtime refused the call";
    /// The runtime's or the caller's media can't match.
    NoCommonMedia = 488 Failed "no_common_media" "The two sides have no media in common";
    /// One side's media is on IPv4, the other's on IPv6, and nothing relays it.
    MediaFamilies = 488 Failed "media_families_differ" "One side has its media on IPv4 and the other on IPv6, and media is not relayed";
    /// No RTP port was free.
    NoMediaPort = 503 Failed "no_media_port" "No media port is free";
    /// The runtime said that it is busy or declines.
    Declined = 480 Failed "declined" "The agent's runtime declined the call";
    /// Nobody answered within the set-up deadline.
    SetupTimeout = 480 NoAnswer "setup_timeout" "The call was not answered in time";
    /// Nobody answered within the INVITE's own Expires (RFC 3261 §13.3.1).
    InviteExpired = 487 NoAnswer "invite_expired" "The call was not answered within the INVITE's Expires";
    /// The caller gave up.
    CallerCanceled = 487 Canceled "caller_canceled" "The caller gave up";
    /// The caller never acknowledged the answer, or a reliable provisional response.
    NoAck = 504 Failed "no_ack" "The answer was never acknowledged";
    /// Nothing has shown that the call comes from the address by which it was let in.
    UnprovenSource = 504 Failed "unproven_source" "Nothing has shown that the call comes from the address that it was let in by";
    /// The peer stopped refreshing the session (RFC 4028).
    SessionExpired = 480 Failed "session_expired" "The session was not refreshed in time";
    /// The peer no longer knows the dialog.
    DialogGone = 480 Failed "dialog_gone" "The peer no longer knows the call";
    /// The PBX lost the caller when an accepted REFER failed.
    CallerLost = 480 Failed "caller_lost" "The PBX lost the caller when the transfer failed";
    /// A transfer ended the call, and nobody has confirmed that the destination answered.
    TransferUnconfirmed = 480 Failed "transfer_unconfirmed" "The caller was transferred, and nothing has confirmed that the destination answered";
    /// The longest allowed duration was reached.
    MaxDuration = 480 Failed "max_duration" "The call reached its longest duration";
    /// The caller's media has been silent for too long.
    MediaSilent = 480 Failed "media_silent" "No media came in for too long, and the peer no longer answers";
    /// Ended by the operator or the API.
    Operator = 480 Failed "operator" "The call was ended on request";
    /// The agent dials through no trunk.
    NoWayOut = 480 Refused "no_outbound_trunk" "The agent has no outbound trunk to dial through";
    /// The trunk leads to the registered PBX, and none is registered.
    NotRegistered = 480 Refused "pbx_not_registered" "No PBX is registered that the call could go to";
    /// The callee is in another call.
    CalleeBusy = 486 Busy "callee_busy" "The callee is busy";
    /// The callee's side gave up ringing, or can't be reached now.
    CalleeNoAnswer = 480 NoAnswer "callee_no_answer" "The callee did not answer";
    /// The callee said no.
    CalleeDeclined = 603 Failed "callee_declined" "The callee declined the call";
    /// The callee's side knows no such number.
    NumberUnreachable = 404 Failed "number_unreachable" "The number does not exist or can't be reached";
    /// It rang for as long as it may.
    RingingTimeout = 408 NoAnswer "ringing_timeout" "The callee did not answer in time";
    /// No address of the trunk answers.
    TrunkUnreachable = 503 Failed "trunk_unreachable" "The outbound trunk cannot be reached";
    /// The trunk wants credentials that it doesn't get.
    TrunkAuthFailed = 401 Failed "trunk_auth_failed" "The outbound trunk does not accept the credentials";
    /// The trunk refused for a cause of its own.
    TrunkRefused = 480 Failed "trunk_refused" "The outbound trunk refused the call";
    /// Our re-INVITE to the callee, with the agent's media, was refused.
    JoinRefused = 488 Failed "join_refused" "The callee's side did not take the agent's media";
    /// The org is at its limit of calls that it began.
    OutboundBusy = 480 Refused "outbound_busy" "The org is at its limit of outbound calls at once";
    /// The org begins too many calls.
    OutboundRate = 480 Refused "outbound_rate" "The org has begun as many outbound calls as it may for now";
    /// The trunk begins too many calls a second.
    TrunkRate = 480 Refused "trunk_rate" "The trunk takes no more new calls this second";
    /// The operator doesn't allow calls to this number.
    DestinationNotAllowed = 403 Refused "destination_not_allowed" "This number may not be called from here";
    /// There is no such call of the org that a new leg could enter.
    NothingReplaced = 481 Refused "nothing_replaced" "There is no such call to be taken over";
    /// The call is answered, and Replaces names it only if it isn't (`early-only`).
    AnsweredAlready = 486 Refused "answered_already" "The call to be taken over is answered already";
    /// Something else about the call is being agreed on.
    CallChanging = 491 Refused "call_changing" "The call to be taken over is being changed";
    /// A fault of ours.
    Internal = 500 Failed "internal_error" "Trunkline met a fault of its own";
}

/// Reason for which a call gets no port for media of ours.
impl From<NoShare> for Reason {
    fn from(none: NoShare) -> Self {
        match none {
            NoShare::Full => Self::NoMediaPort,
            NoShare::UsedUp => Self::OrgBusy,
        }
    }
}

impl Reason {
    /// The reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.code() == code)
    }
}

/// Status for a Request-URI that can't be read, or whose scheme isn't served here (RFC 3261 §8.2.2.1).
pub(crate) fn uri_refusal(message: &Message<'_>) -> Option<u16> {
    match Uri::parse(message.request_uri()) {
        Ok(uri) => (uri.scheme == Scheme::Other).then_some(416),
        Err(_) => Some(400),
    }
}
