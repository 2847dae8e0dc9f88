//! Authentication of a new INVITE: by the digest user of an org's trunk, by a source address that belongs to one org alone, or by an address on a
//! trunk's IP allow list, for that trunk's own numbers. Any other sender is unauthenticated and gets a stateless 401; nothing is kept.
//!
//! Faults found after authentication are refused statefully and recorded.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_model::invite_facts::Proof;
use trunkline_model::view::{Login, OrgView, Source, View};
use trunkline_routing::Facts;
use trunkline_sip::auth;
use trunkline_sip::auth::{ChallengeCause, NonceSource, Verdict, WrongPart};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::{Flow, Transport, network, source};
use trunkline_sip::header::auth::Credentials;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::invite::{Difference, Invite};
use trunkline_sip::wire::{Message, invite};
use uuid::Uuid;

use super::{dialog_proof, source_probe};
use crate::core::context::{Config, Core};
use crate::core::effect::{AuthFailure, Effect};
use crate::parts::refusal::Reason;
use crate::trust::credentials::LegCredentials;
use crate::trust::failed_login;
use crate::trust::failed_login::UnknownUser;
use crate::trust::proven_sources::SourceProof;

/// INVITE of an authenticated caller, with what was read of it. Every step after admission reads this.
#[derive(Debug)]
pub(crate) struct CallerInvite<'a, 'm> {
    pub(crate) message: &'a Message<'m>,
    pub(crate) flow: Flow,
    /// The Request-URI, if it can be read.
    pub(crate) request_uri: Option<Uri<'m>>,
    pub(crate) org: Arc<OrgView>,
    /// Facts as `rsip` reads them; empty where the two parsers differ.
    pub(crate) facts: Facts,
    /// Difference between the readings of `rsip` and the lexer. Such an INVITE is refused.
    pub(crate) difference: Option<Difference>,
    /// Proof of its sender's identity.
    pub(crate) proof: Proof,
    /// Its source may be forged: the call has to be proven in its dialog.
    pub(crate) owes_proof: bool,
    /// User name and password that the digest verified with. It answers challenges at the INVITE's source only.
    pub(crate) verified: Option<LegCredentials>,
}

/// A new INVITE (without To-tag), its Request-URI parsed.
#[derive(Copy, Clone)]
struct Incoming<'a, 'm> {
    message: &'a Message<'m>,
    flow: Flow,
    request_uri: Option<Uri<'m>>,
}

impl<'a, 'm> Incoming<'a, 'm> {
    fn new(message: &'a Message<'m>, flow: Flow) -> Self {
        Self {
            message,
            flow,
            request_uri: Uri::parse(message.request_uri()).ok(),
        }
    }

    fn facts(&self, config: &Config) -> Result<Facts, Difference> {
        let read = invite::read_with(self.message, self.request_uri.as_ref())?;
        Ok(facts_of(read, config.header_prefix.agent_id()))
    }

    fn of(
        self,
        org: &Arc<OrgView>,
        facts: Result<Facts, Difference>,
        proof: Proof,
        verified: Option<LegCredentials>,
    ) -> CallerInvite<'a, 'm> {
        let (facts, difference) = match facts {
            Ok(facts) => (facts, None),
            Err(difference) => (Facts::default(), Some(difference)),
        };
        CallerInvite {
            message: self.message,
            flow: self.flow,
            request_uri: self.request_uri,
            org: Arc::clone(org),
            facts,
            difference,
            proof,
            owes_proof: false,
            verified,
        }
    }
}

/// Admits an INVITE, or answers it.
pub(crate) fn admit<'a, 'm>(
    core: &mut Core,
    endpoint: &mut Endpoint,
    view: &View,
    flow: Flow,
    message: &'a Message<'m>,
    now: Moment,
) -> Option<CallerInvite<'a, 'm>> {
    // First, so that a node that takes no calls neither computes a digest nor uses up a nonce's count.
    if let Some(reason) = core.closed() {
        turn_away(core, endpoint, flow, message, reason);
        return None;
    }

    let config = Arc::clone(&core.config);
    let incoming = Incoming::new(message, flow);

    // Credentials go before the address: an allowed address admits calls to the trunk's own numbers only.
    match auth::credentials(message, &config.realm) {
        Some(credentials) => by_digest(core, endpoint, view, incoming, &credentials, now),
        None => match by_source(view, incoming, &config) {
            Some(admitted) => match source_proof(core, endpoint, view, &admitted, now) {
                SourceProof::Proven => Some(CallerInvite {
                    owes_proof: owes_proof(core, view, &admitted, now),
                    ..admitted
                }),
                SourceProof::Waits => None,
                SourceProof::Unproven => {
                    challenge_unproven(core, endpoint, flow, message, now);
                    None
                }
            },

            None => {
                if let Some(other) = auth::foreign_credentials(message, &config.realm) {
                    let attributed =
                        failed_login::attribute_other_realm(view, &other.username_unescaped());
                    failed(core, attributed, &other, message, flow, now);
                } else {
                    let request_uri = incoming.request_uri.as_ref();
                    let allowed_by = || allowed_by(view, &flow);
                    core.unanswered_challenges.challenged(
                        message,
                        request_uri,
                        &flow,
                        allowed_by,
                        now,
                    );
                }

                challenge(core, endpoint, flow, message, ChallengeCause::Bare, now);
                None
            }
        },
    }
}

/// Admits the INVITE of a member of an org, whose session the API has checked.
pub(crate) fn admit_member<'a, 'm>(
    core: &mut Core,
    endpoint: &mut Endpoint,
    view: &View,
    flow: Flow,
    org: Uuid,
    message: &'a Message<'m>,
) -> Option<CallerInvite<'a, 'm>> {
    let (Some(org), None) = (view.org(org), core.closed()) else {
        // The API has checked the session's org, which can only have been deleted since.
        let reason = core.closed().unwrap_or(Reason::Overload);
        turn_away(core, endpoint, flow, message, reason);
        return None;
    };
    let incoming = Incoming::new(message, flow);
    let facts = incoming.facts(&core.config);
    Some(incoming.of(org, facts, Proof::Session, None))
}

/// Judges whether the source of an INVITE, admitted by its address, is genuine.
fn source_proof(
    core: &mut Core,
    endpoint: &mut Endpoint,
    view: &View,
    admitted: &CallerInvite<'_, '_>,
    now: Moment,
) -> SourceProof {
    let (flow, message) = (admitted.flow, admitted.message);
    let source = flow.peer.ip().to_canonical();
    // A handshake proves the source of a stream, and the operator vouches for a dedicated address.
    let may_be_forged = flow.transport == Transport::Udp
        && admitted.proof == Proof::AllowedAddress
        && core.config.asks_for_proof;
    let org = admitted.org.routing.id;
    if !may_be_forged || view.operator_allows(source, org) {
        return SourceProof::Proven;
    }
    source_probe::judge_source(core, endpoint, flow, message, org, now)
}

/// Returns whether a call that was admitted by its address has to be proven in its dialog.
fn owes_proof(core: &Core, view: &View, admitted: &CallerInvite<'_, '_>, now: Moment) -> bool {
    let (flow, org) = (&admitted.flow, &admitted.org);
    let config = &core.config;
    let may_be_forged =
        config.asks_for_proof && dialog_proof::is_owed_by(flow, &config.public_listeners);
    if !may_be_forged || view.needs_no_proof(flow.peer.ip()) {
        return false;
    }
    // The digest of a REGISTER has proven this flow.
    let trunk = org.routing.trunk.as_ref();
    !trunk.is_some_and(|trunk| core.bindings.has_flow(trunk.id, flow, now))
}

/// Challenges an INVITE whose source didn't answer.
pub(crate) fn challenge_unproven(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    message: &Message<'_>,
    now: Moment,
) {
    let request_uri = Uri::parse(message.request_uri()).ok();
    core.unanswered_challenges
        .challenged(message, request_uri.as_ref(), &flow, SmallVec::new, now);
    challenge(core, endpoint, flow, message, ChallengeCause::Bare, now);
}

/// Lane in which a new INVITE waits under overload, by what it proves of its sender. What is only claimed chooses no lane, so that nobody
/// fills another's.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum InviteLane {
    /// Nonce and digest verify: the org's lane.
    Org(Uuid),
    /// The source is one that an org has named: an address, in IPv6 a /64. An org may name thousands, so those of a group share its turns.
    Source {
        /// Group of those who list the address.
        group: SourceGroup,
        /// The address; in IPv6 its /64.
        source: IpAddr,
    },
    /// Nothing is proven: a /24, in IPv6 a /64.
    Unproven(IpAddr),
}

/// Sources that share their turns under overload.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum SourceGroup {
    /// Those dedicated to this org.
    Dedicated(Uuid),
    /// Those that exactly the same orgs allow: a hash of these orgs. Were it the first org alone, a tenant that lists the carrier of another could
    /// pull that carrier into its own group.
    Allowed(u64),
}

impl SourceGroup {
    fn allowed_by(mut orgs: SmallVec<[Uuid; 2]>) -> Self {
        // Their order depends on the networks that hold the address.
        orgs.sort_unstable();
        let mut hasher = DefaultHasher::new();
        orgs.hash(&mut hasher);
        Self::Allowed(hasher.finish())
    }
}

/// Returns the lane of an INVITE. A nonce alone proves nothing, since one is free and good for many INVITEs, and the count of a nonce is good once.
/// Must not depend on whether the user name exists (no oracle).
pub(crate) fn lane_of(
    core: &Core,
    view: &View,
    flow: &Flow,
    invite: &Message<'_>,
    now: Moment,
) -> InviteLane {
    let (config, address) = (&core.config, flow.peer.ip());
    let unproven = InviteLane::Unproven(network(address));
    let Some(credentials) = auth::credentials(invite, &config.realm) else {
        let group = match view.by_source(address.to_canonical()) {
            Source::Unknown => return unproven,
            Source::Dedicated(org) => SourceGroup::Dedicated(org),
            Source::Allowed(orgs) => SourceGroup::allowed_by(orgs),
        };
        let source = source(address);
        return InviteLane::Source { group, source };
    };

    let login = login_of(core, view, &credentials, now);
    let secret = login.map_or(core.nonces.decoy(), |login| &*login.secret);
    let policy = config.digest_policy(flow);
    let (nonces, window) = (&core.nonces, &core.window);
    let proves = auth::proves_password(&credentials, invite, secret, nonces, window, policy, now);
    let org = login.filter(|_| proves).map(|login| login.org);
    org.map_or(unproven, InviteLane::Org)
}

/// Answers a stateless 503: this node takes no new calls.
pub(crate) fn turn_away(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    message: &Message<'_>,
    reason: Reason,
) {
    let retry_after = u64::from(core.config.retry_after);
    core.effects.push_back(Effect::TurnedAway {
        reason: reason.code(),
    });
    core.stateless(endpoint, message, flow, 503, |head| {
        head.number("Retry-After", retry_after)
    });
}

/// Returns the log-in with the user name of these credentials, unless it has expired.
fn login_of<'v>(
    core: &Core,
    view: &'v View,
    credentials: &Credentials<'_>,
    now: Moment,
) -> Option<&'v Login> {
    let wall_time = core.live.wall_time(now);
    view.login(&credentials.username_unescaped())
        .filter(|login| login.is_valid(wall_time))
}

/// Admits a sender whose digest verifies, and challenges any other. The answer must not depend on whether the user name exists (no oracle).
fn by_digest<'a, 'm>(
    core: &mut Core,
    endpoint: &mut Endpoint,
    view: &View,
    incoming: Incoming<'a, 'm>,
    credentials: &Credentials<'_>,
    now: Moment,
) -> Option<CallerInvite<'a, 'm>> {
    let Incoming { message, flow, .. } = incoming;
    core.unanswered_challenges.answered(message);

    let config = Arc::clone(&core.config);
    // An unknown user name is verified against a decoy, so that the time of the answer doesn't show whether it exists.
    let login = login_of(core, view, credentials, now);
    let secret = login.map_or(core.nonces.decoy(), |login| &*login.secret);

    let policy = config.digest_policy(&flow);
    let verdict = auth::verify(
        credentials,
        message,
        secret,
        &core.nonces,
        &core.window,
        policy,
        now,
    );

    match (login, verdict) {
        (Some(login), Verdict::Ok) => {
            // A log-in enters and leaves the view with its org.
            let org = view.org(login.org)?;
            let facts = incoming.facts(&config);
            let verified = LegCredentials::proven(Arc::clone(&login.pair), flow.peer.ip());
            return Some(incoming.of(org, facts, Proof::Digest, Some(verified)));
        }

        (Some(login), Verdict::Wrong(part)) => {
            let attributed = Some((login.org, login.trunk, part));
            failed(core, attributed, credentials, message, flow, now);
            challenge(
                core,
                endpoint,
                flow,
                message,
                // The challenge repeats the nonce: after a wrong password pjsip then stops at one try.
                ChallengeCause::Wrong(credentials.nonce),
                now,
            );
        }

        // A stale nonce is answered alike for known and unknown user names.
        (login, Verdict::Stale) => {
            // One stale nonce is no failure. With another one in the same call its sender can't succeed, and the sender's org learns of it.
            if let Some(login) = login.filter(|_| core.stale_nonces.is_repeated(message)) {
                let attributed = Some((login.org, login.trunk, WrongPart::Nonce));
                failed(core, attributed, credentials, message, flow, now);
            }
            challenge(core, endpoint, flow, message, ChallengeCause::Stale, now);
        }

        (None, Verdict::Ok | Verdict::Wrong(_)) => {
            let name = credentials.username_unescaped();
            let wall_time = core.live.wall_time(now);
            let facts = incoming.facts(&config).ok();
            let attributed = failed_login::attribute_unknown_user(
                view,
                flow.peer.ip(),
                &name,
                |org| facts.as_ref().is_some_and(|facts| lists(org, facts)),
                wall_time,
            );

            // `failed` notes nothing without an org, so copies of the request are recognised here.
            if attributed.is_none() && core.refused_log_ins.is_new(flow.peer, message) {
                let unknown = UnknownUser::new(flow.peer, &name);
                core.effects.push_back(Effect::UnknownUser(unknown));
            }
            failed(core, attributed, credentials, message, flow, now);
            challenge(
                core,
                endpoint,
                flow,
                message,
                ChallengeCause::Wrong(credentials.nonce),
                now,
            );
        }
    }

    None
}

/// Notes a failed log-in for the org that it belongs to, once for all copies of its request.
pub(crate) fn failed(
    core: &mut Core,
    attributed: Option<(Uuid, Uuid, WrongPart)>,
    credentials: &Credentials<'_>,
    message: &Message<'_>,
    flow: Flow,
    now: Moment,
) {
    let Some((org, trunk, part)) = attributed else {
        return;
    };
    if !core.refused_log_ins.is_new(flow.peer, message) {
        return;
    }

    tracing::debug!(org.id = %org, source = %flow.peer, ?part, "log-in refused");
    let text = |octets: &[u8]| Box::from(String::from_utf8_lossy(octets));
    let dialled = Uri::parse(message.request_uri()).ok();
    core.effects.push_back(Effect::AuthFailure(AuthFailure {
        org,
        trunk,
        username: text(credentials.username),
        source: flow.peer,
        at: now,
        part,
        call_id: text(message.call_id()),
        dialled: dialled.map(|uri| text(&uri.user_unescaped())),
    }));
}

/// Admits a sender by its source address: one of an org's own, or one on the IP allow list of a trunk that has the dialled number.
fn by_source<'a, 'm>(
    view: &View,
    incoming: Incoming<'a, 'm>,
    config: &Config,
) -> Option<CallerInvite<'a, 'm>> {
    let source = incoming.flow.peer;

    match view.by_source(source.ip().to_canonical()) {
        Source::Unknown => None,
        Source::Dedicated(org) => {
            let org = view.org(org)?;
            let facts = incoming.facts(config);
            Some(incoming.of(org, facts, Proof::DedicatedAddress, None))
        }
        // A packet from this node to itself proves no org.
        Source::Allowed(_) if config.addresses.is_own(source) => None,
        Source::Allowed(orgs) => {
            // Where the two readers differ, the dialled number is in doubt, and the address alone admits no INVITE.
            let facts = incoming.facts(config).ok()?;
            let org = orgs
                .iter()
                .filter_map(|org| view.org(*org))
                .find(|org| lists(org, &facts))?;
            Some(incoming.of(org, Ok(facts), Proof::AllowedAddress, None))
        }
    }
}

/// Returns the orgs whose trunks allow the source of a packet.
fn allowed_by(view: &View, flow: &Flow) -> SmallVec<[Uuid; 2]> {
    match view.by_source(flow.peer.ip().to_canonical()) {
        Source::Allowed(orgs) => orgs,
        Source::Dedicated(_) | Source::Unknown => SmallVec::new(),
    }
}

/// Returns whether the dialled number is on the trunk's own list.
fn lists(org: &OrgView, facts: &Facts) -> bool {
    let dialled = trunkline_routing::facts::dialled(facts, &org.routing);
    let Some(number) = dialled.e164 else {
        return false;
    };
    org.routing
        .trunk
        .as_ref()
        .is_some_and(|trunk| trunk.numbers.contains(&number))
}

/// Facts for routing. `agent_id` is the name of the header that asks for an agent.
pub fn facts_of(invite: Invite, agent_id: &str) -> Facts {
    let mut agents = invite.header(agent_id);
    let agent = agents.next();
    let other = agents.find(|other| agent.is_none_or(|agent| !agent.eq_ignore_ascii_case(other)));

    let (agent_header, other_agent_header) = (agent.map(str::to_owned), other.map(Into::into));
    drop(agents);
    let (to_user, anonymous) = (invite.to_user(), invite.is_anonymous());
    let asserted = invite.asserted_identities().into();
    let (request_user, from_user) = invite.into_users();
    Facts {
        agent_header,
        other_agent_header,
        request_user,
        to_user,
        from_user,
        asserted,
        anonymous,
    }
}

/// Answers a stateless 401.
pub(crate) fn challenge(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    message: &Message<'_>,
    cause: ChallengeCause<'_>,
    now: Moment,
) {
    let config = Arc::clone(&core.config);
    let slot = core.minter.dispatch(message);
    let (tag, source) = (slot.index(), NonceSource::of(&flow));
    let nonce = core
        .nonces
        .for_challenge(cause, tag, source, endpoint.entropy(), now);
    core.stateless(endpoint, message, flow, 401, |head| {
        auth::challenge(
            head,
            &config.realm,
            nonce.as_str(),
            cause == ChallengeCause::Stale,
            &config.algorithms,
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_lists_the_carrier_of_another_gets_it_into_no_group_of_its_own() {
        let group = |orgs: &[u128]| {
            SourceGroup::allowed_by(orgs.iter().copied().map(Uuid::from_u128).collect())
        };
        let (attacker, both, victim) = (group(&[1]), group(&[1, 2]), group(&[2]));
        assert_eq!(group(&[2, 1]), both, "whatever their order");
        assert_ne!(both, attacker);
        assert_ne!(both, victim);
        assert_ne!(attacker, victim);
    }
}
