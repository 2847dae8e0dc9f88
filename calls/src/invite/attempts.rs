//! A call's attempts at targets: where each went, how long it took, and what came. They are facts of the call once one has failed; a call
//! that its first target answers leaves none.

use std::net::SocketAddr;

use trunkline_model::address::Refusal;
use trunkline_model::attempt::{Attempt, AttemptLeg, AttemptOutcome};
use trunkline_model::record::Fact;
use trunkline_sip::fault::{Fault, Unreachable};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::UnreadableResponse;
use uuid::Uuid;

use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::parts::flow_choice::NoFlow;
use crate::parts::target::{DialTarget, Target};

/// Octets of a target that are recorded; a longer one is cut.
const LONGEST: usize = 256;

/// Reason why a name led to no address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DnsFault {
    /// The name has no address.
    NoAddress,
    /// No name server has answered.
    NoAnswer,
}

/// Way in which a bot that had its call has gone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BotGone {
    /// It closed the WebSocket.
    Closed,
    /// It broke the protocol.
    Protocol,
    /// It read more slowly than audio came.
    TooSlow,
    /// The connection broke.
    Lost,
}

impl BotGone {
    /// Returns the way in words, for the call's record.
    const fn detail(self) -> &'static str {
        match self {
            Self::Closed => "it closed the WebSocket",
            Self::Protocol => "it broke the protocol of its WebSocket",
            Self::TooSlow => "it read more slowly than audio came",
            Self::Lost => "the connection broke",
        }
    }
}

/// Result of resolving a name: its targets, in the order in which they are tried.
pub type Resolution = Result<Vec<Target>, DnsFault>;

/// Outcome of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AttemptResult {
    Status(u16),
    /// A 2xx that makes no dialog, and the reason.
    Unusable(u16, &'static str),
    /// No further answer came in time.
    Silence,
    Broken(Fault),
    Unresolved(DnsFault),
    NotAllowed(Refusal),
    KnownDown,
    NoListener,
    Overloaded,
    /// A WebSocket is open.
    Attached,
    /// A WebSocket was answered with something else than 101.
    Handshake(Box<str>),
    /// The call has ended.
    Canceled,
    /// A bot that had the call has gone.
    Gone(BotGone),
}

/// Reason why a request of ours has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// None came in time.
    Silence,
    /// The flow broke.
    Broken(Fault),
}

impl NoAnswer {
    /// Equivalent status (RFC 3261 §8.1.3.1).
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Silence => 408,
            Self::Broken(_) => 503,
        }
    }
}

impl From<&NoAnswer> for AttemptResult {
    fn from(why: &NoAnswer) -> Self {
        match why {
            NoAnswer::Silence => Self::Silence,
            NoAnswer::Broken(fault) => Self::Broken(fault.clone()),
        }
    }
}

impl From<NoFlow> for AttemptResult {
    fn from(why: NoFlow) -> Self {
        match why {
            NoFlow::NotAllowed(refusal) => Self::NotAllowed(refusal),
            NoFlow::NoListener => Self::NoListener,
            NoFlow::KnownDown => Self::KnownDown,
        }
    }
}

/// Furthest answer of an attempt's target so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Progress {
    #[default]
    Nothing,
    Trying,
    Ringing,
}

/// Call, org and leg of an attempt.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AttemptOwner {
    pub(crate) call: Uuid,
    pub(crate) org: Uuid,
    pub(crate) leg: AttemptLeg,
}

/// URI and address that an attempt went to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AttemptTarget<'t> {
    uri: &'t str,
    way: Option<(Transport, SocketAddr)>,
}

impl<'t> AttemptTarget<'t> {
    /// A name that led nowhere.
    pub(crate) const fn named(uri: &'t str) -> Self {
        Self { uri, way: None }
    }

    /// A URL, and the address that was tried for it, if one was. A query may hold a secret, so it isn't recorded.
    pub(crate) fn url(url: &'t str, transport: Transport, address: Option<SocketAddr>) -> Self {
        let end = url.find('?').unwrap_or(url.len());
        Self {
            uri: &url[..end],
            way: address.map(|address| (transport, address)),
        }
    }
}

impl<'t> From<&'t Target> for AttemptTarget<'t> {
    fn from(target: &'t Target) -> Self {
        Self {
            uri: &target.uri,
            way: Some((target.transport, target.address)),
        }
    }
}

impl<'t> From<&'t DialTarget> for AttemptTarget<'t> {
    fn from(place: &'t DialTarget) -> Self {
        Self::named(place.uri())
    }
}

/// The attempts on one leg of a call.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// An attempt on this leg is recorded, or these attempts [follow](Self::following) others.
    has_earlier: bool,
    /// An attempt is under way.
    is_open: bool,
    began: Moment,
    progress: Progress,
    /// The last response that was dropped, since it can't be read.
    unreadable: Option<UnreadableResponse>,
    /// Failure of the last one, until another begins.
    last: Option<AttemptOutcome>,
    /// The rule on addresses has refused an attempt.
    has_forbidden: bool,
    /// An attempt has failed for another reason.
    has_other: bool,
}

impl Attempts {
    /// Attempts that follow others on their leg, at another kind of target.
    pub(crate) fn following() -> Self {
        Self {
            has_earlier: true,
            ..Self::default()
        }
    }

    /// Begins an attempt: a target is tried, or its name looked up.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>) {
        self.pass_on(cx);
        self.is_open = true;
        self.began = cx.now;
        self.progress = Progress::Nothing;
        self.unreadable = None;
    }

    /// A provisional answer has come.
    pub(crate) const fn hear(&mut self, status: u16) {
        self.progress = if status == 100 {
            Progress::Trying
        } else {
            Progress::Ringing
        };
    }

    /// Notes a response that was dropped, since it can't be read.
    pub(crate) const fn hear_unreadable(&mut self, response: UnreadableResponse) {
        self.unreadable = Some(response);
    }

    /// Notes that the target has answered the call. Nothing is recorded of a call that its first target answers.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Cx<'_>,
        owner: AttemptOwner,
        target: &Target,
        status: u16,
    ) {
        if cx.attempt_counter.has_any() && self.is_open {
            self.record(cx, owner, target.into(), &AttemptResult::Status(status));
        }
        self.is_open = false;
    }

    /// A WebSocket is open.
    pub(crate) fn attached(
        &mut self,
        cx: &mut Cx<'_>,
        owner: AttemptOwner,
        target: AttemptTarget<'_>,
    ) {
        if cx.attempt_counter.has_any() && self.is_open {
            self.record(cx, owner, target, &AttemptResult::Attached);
        }
        self.is_open = false;
    }

    /// Reports the last failure as a fail-over: another target follows.
    pub(crate) fn pass_on(&mut self, cx: &mut Cx<'_>) {
        if let Some(cause) = self.last.take() {
            cx.core.effects.push_back(Effect::FailedOver { cause });
        }
    }

    /// Notes that the call ends before the target has answered. That isn't recorded if the leg's first target rings, since the attempt hasn't failed.
    pub(crate) fn canceled(&mut self, cx: &mut Cx<'_>, owner: AttemptOwner, target: &Target) {
        let is_plain =
            !self.has_earlier && self.progress == Progress::Ringing && self.unreadable.is_none();
        if self.is_open && !is_plain {
            self.record(cx, owner, target.into(), &AttemptResult::Canceled);
        }
        self.is_open = false;
    }

    /// The attempt has failed, or its target was passed over.
    pub(crate) fn failed(
        &mut self,
        cx: &mut Cx<'_>,
        owner: AttemptOwner,
        target: AttemptTarget<'_>,
        result: &AttemptResult,
    ) {
        // A target that was passed over without being tried took no time.
        if !self.is_open {
            self.began = cx.now;
        }
        self.is_open = false;

        let outcome = result.outcome(self.progress);
        match result {
            AttemptResult::NotAllowed(_) => self.has_forbidden = true,
            // A redirection is no failure: its Contacts are tried next.
            AttemptResult::Status(300..=399) => return self.record(cx, owner, target, result),
            AttemptResult::Status(_)
            | AttemptResult::Unusable(..)
            | AttemptResult::Silence
            | AttemptResult::Broken(_)
            | AttemptResult::Unresolved(_)
            | AttemptResult::KnownDown
            | AttemptResult::NoListener
            | AttemptResult::Overloaded
            | AttemptResult::Attached
            | AttemptResult::Handshake(_)
            | AttemptResult::Canceled
            | AttemptResult::Gone(_) => self.has_other = true,
        }

        self.last = Some(outcome);
        self.record(cx, owner, target, result);
    }

    /// Returns whether the rule on addresses alone has kept the leg from being called.
    pub(crate) const fn are_forbidden(&self) -> bool {
        self.has_forbidden && !self.has_other
    }

    fn record(
        &mut self,
        cx: &mut Cx<'_>,
        owner: AttemptOwner,
        target: AttemptTarget<'_>,
        result: &AttemptResult,
    ) {
        self.has_earlier = true;
        let Some(number) = cx.attempt_counter.next() else {
            return;
        };

        // Cut at a character: a tenant's URI may hold any, and slicing inside of one panics.
        let end = (0..=LONGEST.min(target.uri.len()))
            .rev()
            .find(|end| target.uri.is_char_boundary(*end));
        let is_hidden = matches!(result, AttemptResult::NotAllowed(_));
        let way = target.way;

        cx.core.fact(Fact::Attempt(Box::new(Attempt {
            call: owner.call,
            org: owner.org,
            number,
            leg: owner.leg,
            target: target.uri[..end.unwrap_or(0)].into(),
            // A tenant that names a host must not learn its addresses in a network of the operator's.
            address: way.map(|(_, address)| address).filter(|_| !is_hidden),
            transport: way.map(|(transport, _)| transport.uri_name().into()),
            began_at: self.began,
            ended_at: cx.now,
            outcome: result.outcome(self.progress),
            sip_code: result.sip_code(),
            detail: result.detail(self.unreadable.as_ref()),
        })));
    }
}

impl AttemptResult {
    const fn outcome(&self, progress: Progress) -> AttemptOutcome {
        match self {
            Self::Status(200..=299) => AttemptOutcome::Answered,
            Self::Status(_) | Self::Unusable(..) => AttemptOutcome::SipStatus,
            Self::Silence => match progress {
                Progress::Nothing => AttemptOutcome::Timeout,
                Progress::Trying => AttemptOutcome::OnlyTrying,
                Progress::Ringing => AttemptOutcome::NotAnswered,
            },
            Self::Broken(Fault::Closed) => AttemptOutcome::ConnectionLost,
            Self::Broken(Fault::Refused) => AttemptOutcome::ConnectionRefused,
            Self::Broken(Fault::Unreachable(_)) => AttemptOutcome::Unreachable,
            Self::Broken(Fault::NotOpened) => AttemptOutcome::ConnectTimeout,
            Self::Broken(Fault::NotSecured(_)) => AttemptOutcome::TlsFailed,
            Self::Broken(Fault::TooMany) | Self::Overloaded => AttemptOutcome::Overloaded,
            Self::Unresolved(_) => AttemptOutcome::DnsFailed,
            Self::NotAllowed(_) => AttemptOutcome::NotAllowed,
            Self::KnownDown => AttemptOutcome::KnownDown,
            Self::NoListener => AttemptOutcome::NoListener,
            Self::Attached => AttemptOutcome::Answered,
            Self::Handshake(_) => AttemptOutcome::HandshakeFailed,
            Self::Canceled => AttemptOutcome::Canceled,
            Self::Gone(_) => AttemptOutcome::Disconnected,
        }
    }

    const fn sip_code(&self) -> Option<u16> {
        match self {
            Self::Status(status) | Self::Unusable(status, _) => Some(*status),
            Self::Silence
            | Self::Broken(_)
            | Self::Unresolved(_)
            | Self::NotAllowed(_)
            | Self::KnownDown
            | Self::NoListener
            | Self::Overloaded
            | Self::Attached
            | Self::Handshake(_)
            | Self::Canceled
            | Self::Gone(_) => None,
        }
    }

    fn detail(&self, unreadable: Option<&UnreadableResponse>) -> Option<Box<str>> {
        Some(match self {
            Self::Unusable(_, why) => (*why).into(),
            Self::Broken(Fault::Unreachable(what)) => unreachable(*what).into(),
            Self::Broken(Fault::NotSecured(reason)) => (**reason).into(),
            Self::Unresolved(DnsFault::NoAddress) => "the name has no address".into(),
            Self::Unresolved(DnsFault::NoAnswer) => "no name server has answered".into(),
            Self::NotAllowed(refusal) => format!("it {refusal}").into(),
            Self::Handshake(what) => what.clone(),
            Self::Gone(how) => how.detail().into(),
            // An answer that was dropped isn't silence.
            Self::Silence | Self::Canceled => return unreadable.map(|it| it.to_string().into()),
            Self::Status(_)
            | Self::Broken(Fault::Closed | Fault::Refused | Fault::NotOpened | Fault::TooMany)
            | Self::KnownDown
            | Self::NoListener
            | Self::Overloaded
            | Self::Attached => return None,
        })
    }
}

const fn unreachable(what: Unreachable) -> &'static str {
    match what {
        Unreachable::Port => "nobody listens at the port",
        Unreachable::Host => "the host can't be reached",
        Unreachable::Network => "the network can't be reached",
        Unreachable::Prohibited => "a firewall forbids it",
        Unreachable::Other => "the network refuses it",
    }
}
