//! INVITE to an agent's runtime: its target and its content. On an inbound call it is the caller's INVITE as it crosses, on an outbound one ours with
//! the callee's SDP; on both it has the context of the call.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_model::attempt::AttemptLeg;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::settings::{Runtime, RuntimeLogin};
use trunkline_model::tied::Namer;
use trunkline_model::view::PeerLogin;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::provisional_relay::Reliability;
use super::runtime_chain::RuntimeChain;
use crate::core::context::Config;
use crate::core::traced::SecretHeaders;
use crate::invite::attempts::AttemptOwner;
use crate::invite::invite_client::{
    CallIds, ClientParts, DialledLeg, FailoverRule, InviteClient, InviteText, Patience, PeerPlan,
    RedirectRule, TransportChoice,
};
use crate::parts::allow::RUNTIME;
use crate::parts::crossing::{Crossing, CrossingKind};
use crate::parts::ids::{CallKey, CallRef, LegId};
use crate::parts::privacy::CallerIdentity;
use crate::parts::request_origin::RequestOrigin;
use crate::parts::target;
use crate::parts::target::{Parties, Target};
use crate::trust::credentials::LegCredentials;

/// Most INVITEs to one target of a runtime. After them a challenge or a 422 counts as a refusal.
const MAX_REQUESTS: u32 = 5;

/// Number of the first dialog with the caller: the one in which we answer for media of our own.
pub(crate) const FIRST_FORK: u8 = 0;

/// Call that a runtime is invited to.
#[derive(Debug)]
pub(crate) struct InvitedCall<'a> {
    key: CallKey,
    slot: Slot,
    call: uuid::Uuid,
    parties: Parties<'a>,
    /// The trunk asks for noise suppression.
    krisp: bool,
}

impl<'a> InvitedCall<'a> {
    /// A call with these user parts for both ends.
    pub(crate) const fn new(
        key: CallKey,
        ids: &CallRef,
        [called, caller]: [&'a str; 2],
        krisp: bool,
    ) -> Self {
        Self {
            key,
            slot: ids.slot,
            call: ids.call,
            parties: Parties {
                agent: ids.agent,
                org: ids.org,
                session: ids.session,
                called,
                caller,
            },
            krisp,
        }
    }
}

/// Our own lines in an INVITE to a runtime.
#[derive(Debug)]
pub(crate) struct RuntimeInvite {
    /// Headers for the agent's runtime.
    headers: SecretHeaders,
    /// The agent's settings give its runtime the session's token, at any address.
    wants_token: bool,
    krisp: bool,
    /// Runtimes that follow where this one can't be reached, if a bot is among them.
    pub(crate) then: Option<Box<RuntimeChain>>,
}

/// Makes ready to call a runtime; `None` for an agent whose audio flows by way of us. `namer`: the party that names its hosts.
pub(crate) fn invite(
    runtime: &Runtime,
    namer: &Namer,
    config: &Config,
    to: &InvitedCall<'_>,
) -> Option<(InviteClient, RuntimeInvite)> {
    let Runtime::Sip {
        uri,
        fallbacks,
        failover_on,
        headers,
        session_token,
        login,
        ..
    } = runtime
    else {
        return None;
    };

    // The default is the operator's choice, also where an agent's settings name it.
    let namer = match *runtime == *config.default_runtime {
        true => Namer::Operator,
        false => namer.clone(),
    };

    let templates = std::iter::once(uri).chain(fallbacks);
    let uris: SmallVec<[Box<str>; 1]> =
        templates.map(|template| to.parties.uri(template)).collect();

    // Room for these alone: they stay while it rings.
    let mut dial_targets = VecDeque::with_capacity(uris.len());
    let known = uris.iter().filter_map(|uri| target::dial_target(uri));
    dial_targets.extend(known.map(|dial_target| dial_target.of_runtime(&namer)));

    let plan = PeerPlan {
        dial_targets,
        hosts: uris
            .iter()
            .filter_map(|uri| target::host_of(uri.as_bytes()))
            .collect(),
        credentials: login.iter().map(credentials).collect(),
        challenger: None,
        transport: TransportChoice::Ours,
        max_requests: MAX_REQUESTS,
        fails_over: FailoverRule::WhileOthersAreLeft {
            listed: failover_on.as_slice().into(),
        },
        redirects: RedirectRule::NamedBy(namer),
        patience: Patience::WithLast,
        call_ids: CallIds::PerTarget,
    };

    let leg = DialledLeg {
        key: to.key,
        slot: to.slot,
        id: LegId::SECOND,
        owner: AttemptOwner {
            call: to.call,
            org: to.parties.org,
            leg: AttemptLeg::Runtime,
        },
    };

    let filled =
        |(name, value): (&String, &String)| (name.as_str().into(), to.parties.value(value));
    let says = RuntimeInvite {
        headers: headers.reveal().iter().map(filled).collect(),
        wants_token: *session_token,
        krisp: to.krisp,
        then: None,
    };

    let client = InviteClient::new(leg, plan);
    Some((client, says))
}

fn credentials(login: &RuntimeLogin) -> LegCredentials {
    LegCredentials::of_runtime(Arc::new(PeerLogin {
        user: login.user.clone(),
        password: login.password.clone(),
    }))
}

/// Facts of a call that its runtime gets.
#[derive(Debug)]
pub(crate) struct RuntimeCallFacts<'a> {
    pub(crate) org: uuid::Uuid,
    pub(crate) session: uuid::Uuid,
    pub(crate) agent: uuid::Uuid,
    /// Contact of the caller, if it is known.
    pub(crate) contact: Option<uuid::Uuid>,
    /// The caller's identity, within its wish for privacy.
    pub(crate) identity: &'a CallerIdentity,
    /// 100rel of the trunk's peer; `None`: there is no such peer.
    pub(crate) reliable: Option<Reliability>,
}

/// Source of the headers that cross into the INVITE to a runtime.
pub(crate) enum HeaderSource<'a> {
    /// The caller's INVITE.
    Relayed(&'a Message<'a>),
    /// The callee's URI and ours, and the callee's SDP.
    Ours {
        parties: &'a [Box<str>; 2],
        offer: &'a [u8],
    },
}

/// Text of the INVITE to the runtime of a call.
pub(crate) struct RuntimeText<'a> {
    call: RuntimeCallFacts<'a>,
    says: &'a RuntimeInvite,
    config: Arc<Config>,
    words: HeaderSource<'a>,
    body: Cow<'a, [u8]>,
}

impl<'a> RuntimeText<'a> {
    /// Makes the text of the INVITE to the runtime of that call.
    pub(crate) fn new(
        call: RuntimeCallFacts<'a>,
        words: HeaderSource<'a>,
        says: &'a RuntimeInvite,
        config: Arc<Config>,
    ) -> Self {
        let body = match &words {
            HeaderSource::Relayed(invite) => crossing(&call, &config).body(invite),
            HeaderSource::Ours { offer, .. } => Cow::Borrowed(*offer),
        };
        Self {
            call,
            says,
            config,
            words,
            body,
        }
    }
}

fn crossing<'c>(call: &RuntimeCallFacts<'_>, config: &'c Config) -> Crossing<'c> {
    Crossing {
        kind: CrossingKind::Invite,
        identity: call.identity.rule(),
        prefix: &config.header_prefix,
    }
}

impl RuntimeText<'_> {
    /// Writes the context headers. The session's token goes only to a runtime that the operator trusts or whose agent asks for it.
    fn write_context(&self, head: &mut Head<'_>, target: &Target) {
        let (call, names) = (&self.call, self.config.header_prefix.names());
        let contact = call.contact.map(|contact| (&names.contact_id, contact));
        let ids = [
            (&names.session_id, call.session),
            (&names.agent_id, call.agent),
        ];
        for (name, id) in ids.into_iter().chain(contact) {
            let mut buffer = uuid::Uuid::encode_buffer();
            let id = id.hyphenated().encode_lower(&mut buffer);
            head.line(name, id.as_bytes());
        }

        if self.says.wants_token || is_trusted(&self.config, target) {
            let token = self.config.session_tokens.mint(call.org, call.session);
            head.line(&names.session_token, token.as_bytes());
        }

        if self.says.krisp {
            head.line(&names.krisp_enabled, b"true");
        }
    }
}

impl InviteText for RuntimeText<'_> {
    fn hops(&self) -> u8 {
        match self.words {
            HeaderSource::Relayed(invite) => RequestOrigin::of(invite).hops(),
            HeaderSource::Ours { .. } => RequestOrigin::Ours.hops(),
        }
    }

    fn from(&self, _own_host: &str) -> Vec<u8> {
        match self.words {
            HeaderSource::Relayed(invite) => self.call.identity.shown(without_tag(invite.from())),
            // For the runtime the callee is the calling party: From names the person that its agent talks to.
            HeaderSource::Ours {
                parties: [callee, _],
                ..
            } => format!("<{callee}>").into_bytes(),
        }
    }

    fn to(&self) -> Vec<u8> {
        match self.words {
            HeaderSource::Relayed(invite) => without_tag(invite.to()),
            HeaderSource::Ours {
                parties: [_, ours], ..
            } => format!("<{ours}>").into_bytes(),
        }
    }

    fn allow(&self) -> &'static [u8] {
        RUNTIME
    }

    /// 100rel is offered to the runtime only if the caller supports it.
    fn supported(&self) -> &'static [u8] {
        match self.call.reliable {
            Some(Reliability::Supported | Reliability::Required) => b"timer, 100rel",
            Some(Reliability::Unknown) | None => b"timer",
        }
    }

    fn write_rest(&self, head: &mut Head<'_>, said: &ClientParts<'_>) {
        self.write_context(head, said.target);
        said.digest_answers.lines(head);
        for (name, value) in self.says.headers.iter() {
            head.line(name, value.as_bytes());
        }
        match self.words {
            HeaderSource::Relayed(invite) => {
                let crossing = crossing(&self.call, &self.config);
                crossing.copy_but(head, invite, &self.body, self.says.headers.as_slice());
            }
            HeaderSource::Ours { .. } => head.line("Content-Type", b"application/sdp"),
        }
    }

    fn body(&self) -> &[u8] {
        &self.body
    }

    fn secrets(&self) -> SecretHeaders {
        self.says.headers.clone()
    }
}

/// Returns whether the operator trusts a runtime with the session's token.
fn is_trusted(config: &Config, target: &Target) -> bool {
    let is_listed = |host: &str| {
        let mut trusted = config.trusted_runtimes.iter();
        trusted.any(|trusted| trusted.matches(host, target.address.ip()))
    };
    // Most runtimes are listed by address, for which the URI needn't be parsed.
    let mut patterns = config.trusted_runtimes.iter();
    is_listed("")
        || patterns.any(|pattern| matches!(pattern, PeerPattern::Host(_)))
            && target::host_of(target.uri.as_bytes()).is_some_and(|host| is_listed(&host))
}

/// Removes the parameters of a From or To: leaves the display name and the URI in angle brackets.
fn without_tag(value: &[u8]) -> Vec<u8> {
    let Ok(address) = NameAddr::parse(value) else {
        return b"<sip:unknown@invalid>".to_vec();
    };
    let mut out = Vec::with_capacity(value.len() + 2);
    if let Some(display) = address.display {
        out.extend_from_slice(display);
        out.push(b' ');
    }
    out.push(b'<');
    out.extend_from_slice(address.uri);
    out.push(b'>');
    out
}
