//! The registrar: PBXs that register with an org's inbound trunk (RFC 3261 §10.3).
//!
//! Pure: messages and time come in, answers go into the endpoint, effects into [`Registrar::effects`]. A shard handles the REGISTERs of its slots;
//! the bindings are one table for all shards, as a call to a binding may be any shard's. An unknown sender gets the same stateless challenge as an
//! unknown caller, and nothing is kept.

pub mod bindings;
pub mod flow_owner;
pub mod keep_alive;
mod liveness;
mod register_request;
pub mod stored;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline_model::view::{Login, PeerLogin, View};
use trunkline_sip::auth;
use trunkline_sip::auth::{
    Algorithm, ChallengeCause, NonceSource, NonceWindow, Nonces, Policy, Verdict, WrongPart,
};
use trunkline_sip::endpoint::{Endpoint, Response};
use trunkline_sip::flow::Flow;
use trunkline_sip::header::auth::Credentials;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::text;
use trunkline_sip::header::uri::{Scheme, Uri};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use crate::limits::allowance::{Allowance, Rate};
use crate::parts::ids::owner_of;
use crate::parts::wall_clock::WallClock;
use crate::trust::failed_login;
use crate::trust::failed_login::UnknownUser;
use crate::trust::refused_logins::RefusedLogIns;
use bindings::{Binding, BindingChange, Bindings, ChangeRefused, Sender};
use register_request::{RegisterFault, RegisterRequest};

/// Configuration of the registrar.
#[derive(Clone, Debug)]
pub struct Config {
    /// The digest realm.
    pub realm: Box<str>,
    /// Offered algorithms, in this order.
    pub algorithms: Vec<Algorithm>,
    /// Shorter registrations are refused with 423.
    pub shortest: Duration,
    /// Longer ones are cut.
    pub longest: Duration,
    /// Bindings of one trunk; beyond that, the one refreshed longest ago is removed.
    pub contacts: usize,
    /// Wall clock, by which credentials expire.
    pub wall: &'static WallClock,
}

/// Longest registration by a stream: the stream itself is closed after a quarter of an hour of silence.
const LONGEST_BY_STREAM: Duration = Duration::from_secs(600);

/// REGISTERs of one trunk whose answers are kept, at once and over time: over UDP an answer stays for 32 seconds in a table that all calls share.
const KEPT: Rate = Rate {
    burst: 1_024,
    interval: Duration::from_millis(25),
};
/// Number of trunks after which those that have their whole burst are forgotten.
const SWEEP: usize = 4_096;

/// A REGISTER of a trunk's PBX, authenticated.
struct AdmittedRegister<'a, 'm> {
    message: &'a Message<'m>,
    flow: Flow,
    now: Moment,
    /// Its answer is kept for retransmissions. Without, a retransmission is a new request, refused as out of order.
    is_kept: bool,
}

/// Event for the engine.
#[derive(Debug)]
pub enum RegistrarEffect {
    /// A log-in with an org's user name failed.
    AuthFailure(RegisterAuthFailure),
    /// A log-in failed with a user name that is no org's.
    UnknownUser(UnknownUser),
    /// A trunk has its first binding, or none any more.
    Changed(BindingChange),
}

/// A log-in that failed.
#[derive(Clone, Debug)]
pub struct RegisterAuthFailure {
    /// Org of the user name.
    pub org: Uuid,
    /// The trunk.
    pub trunk: Uuid,
    /// The name as sent.
    pub username: Box<str>,
    /// Source of the REGISTER.
    pub source: SocketAddr,
    /// Time.
    pub at: Moment,
    /// The fault.
    pub part: WrongPart,
    /// Call-ID of the request.
    pub call_id: Box<str>,
}

/// The registrar of one shard.
#[derive(Debug)]
pub struct Registrar {
    config: Arc<Config>,
    nonces: Arc<Nonces>,
    window: Arc<NonceWindow>,
    bindings: Arc<Bindings>,
    refused_log_ins: RefusedLogIns,
    effects: Vec<RegistrarEffect>,
    lines: Vec<u8>,
    /// Rest of each trunk's rate of REGISTERs whose answers are kept (`KEPT`).
    allowances: HashMap<Uuid, Allowance>,
}

impl Registrar {
    /// `nonces`, `window` and `bindings` are shared by all shards.
    pub fn new(
        config: Arc<Config>,
        nonces: Arc<Nonces>,
        window: Arc<NonceWindow>,
        bindings: Arc<Bindings>,
    ) -> Self {
        Self {
            config,
            nonces,
            window,
            bindings,
            refused_log_ins: RefusedLogIns::default(),
            effects: Vec::new(),
            lines: Vec::new(),
            allowances: HashMap::new(),
        }
    }

    /// Takes the effects.
    pub fn effects(&mut self) -> std::vec::Drain<'_, RegistrarEffect> {
        self.effects.drain(..)
    }

    /// Handles a closed connection: bindings that only it leads to are removed.
    pub fn handle_flow_lost(&mut self, lost: &Flow) {
        let lost = self.bindings.lose(lost);
        self.effects
            .extend(lost.into_iter().map(RegistrarEffect::Changed));
    }

    /// Handles a REGISTER outside of transactions.
    pub fn handle(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) {
        match Uri::parse(message.request_uri()) {
            // RFC 3261 §8.2.2.1: with an unsupported scheme "it SHOULD reject the request with a 416".
            Ok(uri) if uri.scheme == Scheme::Other => {
                return self.stateless(endpoint, message, flow, 416, |_| {});
            }
            Ok(_) => {}
            Err(_) => return self.stateless(endpoint, message, flow, 400, |_| {}),
        }
        let Some(login) = self.admit(endpoint, view, flow, message, now) else {
            return;
        };

        let request = AdmittedRegister {
            message,
            flow,
            now,
            is_kept: self.keeps_answer(login.trunk, now),
        };
        // Judged after the digest, so that only the trunk's own PBX learns of it.
        let is_suspended = view.org(login.org).is_some_and(|org| org.suspended);
        if is_suspended || is_anothers(view, login, message) {
            return self.answer(endpoint, &request, 403, |_| {});
        }
        self.register(endpoint, login, &request);
    }

    /// Counts a REGISTER of a trunk; false if too many of its answers are kept.
    fn keeps_answer(&mut self, trunk: Uuid, now: Moment) -> bool {
        if self.allowances.len() >= SWEEP {
            self.allowances
                .retain(|_, allowance| !allowance.is_whole(now));
        }
        self.allowances.entry(trunk).or_default().take(KEPT, now)
    }

    /// Authenticates the trunk's PBX, or answers the REGISTER.
    fn admit<'v>(
        &mut self,
        endpoint: &mut Endpoint,
        view: &'v View,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) -> Option<&'v Login> {
        let config = Arc::clone(&self.config);
        let Some(credentials) = auth::credentials(message, &config.realm) else {
            // A PBX set to another realm would be challenged without end; its org gets to know why.
            if let Some(other) = auth::foreign_credentials(message, &config.realm) {
                let attributed =
                    failed_login::attribute_other_realm(view, &other.username_unescaped());
                self.failed(attributed, &other, message, flow, now);
            }
            self.challenge(endpoint, flow, message, ChallengeCause::Bare, now);
            return None;
        };

        let login = view
            .login(&credentials.username_unescaped())
            .filter(|login| login.is_valid(config.wall.of(now)));
        // An unknown name is verified too, against a secret without a password: both cases then look and cost the same.
        let secret = login.map_or(self.nonces.decoy(), |login| &*login.secret);

        let policy = Policy {
            algorithms: &config.algorithms,
            source: NonceSource::of(&flow),
        };
        let verdict = auth::verify(
            &credentials,
            message,
            secret,
            &self.nonces,
            &self.window,
            policy,
            now,
        );

        match (login, verdict) {
            (Some(login), Verdict::Ok) => return Some(login),
            (Some(login), Verdict::Wrong(part)) => {
                let attributed = Some((login.org, login.trunk, part));
                self.failed(attributed, &credentials, message, flow, now);
                // With the nonce of the failed attempt again, pjsip stops after one try instead of guessing on.
                let cause = ChallengeCause::Wrong(credentials.nonce);
                self.challenge(endpoint, flow, message, cause, now);
            }

            // The password may be right: an expired nonce is no failed attempt.
            (_, Verdict::Stale) => {
                self.challenge(endpoint, flow, message, ChallengeCause::Stale, now)
            }

            (None, Verdict::Ok | Verdict::Wrong(_)) => {
                let name = credentials.username_unescaped();
                let attributed = failed_login::attribute_unknown_user(
                    view,
                    flow.peer.ip(),
                    &name,
                    // A REGISTER dials no number.
                    |_| false,
                    config.wall.of(now),
                );

                // `failed` notes nothing without an org, so copies of the request are recognised here.
                if attributed.is_none() && self.refused_log_ins.is_new(flow.peer, message) {
                    let unknown = UnknownUser::new(flow.peer, &name);
                    self.effects.push(RegistrarEffect::UnknownUser(unknown));
                }
                self.failed(attributed, &credentials, message, flow, now);
                let cause = ChallengeCause::Wrong(credentials.nonce);
                self.challenge(endpoint, flow, message, cause, now);
            }
        }

        None
    }

    /// Notes a failed log-in for the org that it belongs to, once for all copies of its request.
    fn failed(
        &mut self,
        attributed: Option<(Uuid, Uuid, WrongPart)>,
        credentials: &Credentials<'_>,
        message: &Message<'_>,
        flow: Flow,
        now: Moment,
    ) {
        let refused = &mut self.refused_log_ins;
        // The challenge is stateless, so no transaction absorbs retransmissions, which would count as further guesses.
        let attributed = attributed.filter(|_| refused.is_new(flow.peer, message));
        self.effects.extend(attributed.map(|(org, trunk, part)| {
            RegistrarEffect::AuthFailure(RegisterAuthFailure {
                org,
                trunk,
                username: String::from_utf8_lossy(credentials.username).into(),
                source: flow.peer,
                at: now,
                part,
                call_id: String::from_utf8_lossy(message.call_id()).into(),
            })
        }));
    }

    /// Carries out the REGISTER of a trunk's PBX (RFC 3261 §10.3, steps 2 and 6 to 8). The AOR is the trunk, whatever else To names: PBXs put the
    /// user name, a number or a domain of their own there.
    fn register(
        &mut self,
        endpoint: &mut Endpoint,
        login: &Login,
        request: &AdmittedRegister<'_, '_>,
    ) {
        let AdmittedRegister {
            message, flow, now, ..
        } = *request;
        let (org, trunk) = (login.org, login.trunk);
        let required = message.elements(HeaderName::Require);
        // RFC 3327 is the only extension of REGISTER that is supported.
        let required: Vec<&[u8]> = required
            .filter(|option| !text::trim(option).eq_ignore_ascii_case(b"path"))
            .collect();
        if !required.is_empty() {
            let unsupported = required.join(&b", "[..]);
            return self.answer(endpoint, request, 420, |head| {
                head.line("Unsupported", &unsupported);
            });
        }

        let path = match register_request::path(message, flow.peer.ip()) {
            Ok(path) => path,
            Err(fault) => {
                return self.answer(endpoint, request, 400, |head| {
                    head.fmt(
                        "Warning",
                        format_args!("399 trunkline \"The Path can't be used: {fault}\""),
                    );
                });
            }
        };
        let is_by_path = path.is_some();
        let sender = Sender {
            path,
            ..sender(message, flow, &login.pair)
        };

        let longest = if flow.transport.is_reliable() {
            self.config.longest.min(LONGEST_BY_STREAM)
        } else {
            self.config.longest
        };

        // No client could ask for a time that is cut below the shortest.
        let shortest = self.config.shortest.min(longest);
        let asked = RegisterRequest::read(message, shortest, longest);
        let outcome = match asked {
            Ok(RegisterRequest::Query) => Ok(None),
            Ok(RegisterRequest::RemoveAll) => self.bindings.remove_all(trunk, &sender),
            // Accepted, the Contacts would push each other out, and the 200 would lack some.
            Ok(RegisterRequest::Change(contacts)) if contacts.len() > self.config.contacts => {
                return self.answer(endpoint, request, 403, |_| {});
            }
            Ok(RegisterRequest::Change(contacts)) => {
                self.bindings
                    .change(org, trunk, &contacts, &sender, self.config.contacts, now)
            }

            Err(RegisterFault::Malformed) => {
                return self.answer(endpoint, request, 400, |_| {});
            }
            Err(RegisterFault::TooBrief) => {
                return self.answer(endpoint, request, 423, |head| {
                    head.number("Min-Expires", shortest.as_secs());
                });
            }
        };

        match outcome {
            Ok(change) => {
                self.effects.extend(change.map(RegistrarEffect::Changed));
                // RFC 3261 §10.3 step 8: the 200 lists "all current bindings", not only those of this request.
                let bindings = self.bindings.of(trunk, now);
                self.answer(endpoint, request, 200, |head| {
                    for binding in &bindings {
                        contact_line(head, binding, now);
                    }
                    // RFC 3327 §5.3: the 200 copies the path that is used.
                    for path in message.all(HeaderName::Path).filter(|_| is_by_path) {
                        head.line("Path", path);
                    }
                });
            }

            // §10.3 step 7: a request older than the one that made the binding changes nothing.
            Err(ChangeRefused::OutOfOrder) => {
                self.answer(endpoint, request, 500, |_| {});
            }
        }
    }

    /// Answers a stateless challenge.
    fn challenge(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        message: &Message<'_>,
        cause: ChallengeCause<'_>,
        now: Moment,
    ) {
        let config = Arc::clone(&self.config);
        let slot = endpoint.minter().dispatch(message);
        let (tag, source) = (slot.index(), NonceSource::of(&flow));
        let nonce = self
            .nonces
            .for_challenge(cause, tag, source, endpoint.entropy(), now);
        self.stateless(endpoint, message, flow, 401, |head| {
            auth::challenge(
                head,
                &config.realm,
                nonce.as_str(),
                cause == ChallengeCause::Stale,
                &config.algorithms,
            );
        });
    }

    fn stateless(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Message<'_>,
        flow: Flow,
        status: u16,
        head: impl FnOnce(&mut Head<'_>),
    ) {
        self.lines.clear();
        head(&mut Head::new(&mut self.lines));
        let answer = Response {
            head: &self.lines,
            ..Response::bare(status)
        };
        endpoint.respond_stateless(message, &flow, &answer);
    }

    /// Answers an authenticated sender. The answer is kept for retransmissions, as the same CSeq can't be handled twice.
    fn answer(
        &mut self,
        endpoint: &mut Endpoint,
        request: &AdmittedRegister<'_, '_>,
        status: u16,
        head: impl FnOnce(&mut Head<'_>),
    ) {
        let (message, flow, now) = (request.message, request.flow, request.now);
        // Beyond the trunk's rate an answer takes no room in the table of transactions, which all calls share.
        if !request.is_kept {
            return self.stateless(endpoint, message, flow, status, head);
        }

        // A binding may be changed by now. The PBX registers again with a higher CSeq, and then gets its 200.
        let Ok(tx) = endpoint.accept(message, flow, owner_of(None), now) else {
            return self.stateless(endpoint, message, flow, 503, |head| {
                head.number("Retry-After", 5);
            });
        };

        self.lines.clear();
        head(&mut Head::new(&mut self.lines));
        let answer = Response {
            head: &self.lines,
            ..Response::bare(status)
        };
        endpoint.respond(tx, &answer, now);
    }
}

/// Returns whether To names the address of record of another trunk (§10.3 step 4).
fn is_anothers(view: &View, login: &Login, message: &Message<'_>) -> bool {
    let to = message.first(HeaderName::To).map(NameAddr::parse);
    let uri = to.and_then(|to| Uri::parse(to.ok()?.uri).ok());
    let named = uri.and_then(|uri| view.login(&uri.user_unescaped()));
    named.is_some_and(|named| named.trunk != login.trunk)
}

fn sender<'m>(message: &Message<'m>, flow: Flow, pair: &Arc<PeerLogin>) -> Sender<'m> {
    let via = message.top_via();
    Sender {
        call_id: message.call_id(),
        cseq: message.cseq().number,
        user_agent: message.first(HeaderName::UserAgent),
        flow,
        pair: Arc::clone(pair),
        // A stream's source port is never where the PBX listens.
        is_behind_nat: if flow.transport.is_reliable() {
            !via.names(flow.peer.ip())
        } else {
            !via.is_at(flow.peer)
        },
        path: None,
    }
}

fn contact_line(head: &mut Head<'_>, binding: &Binding, now: Moment) {
    // Rounded up: `expires=0` would say that the binding is gone.
    let left = binding.expires_at.since(now).as_millis().div_ceil(1000);
    let uri = &binding.contact;
    let instance = binding
        .instance
        .as_deref()
        .map(|instance| format!(";+sip.instance=\"{instance}\""))
        .unwrap_or_default();
    let q = binding
        .q
        .filter(|q| *q < 1000)
        .map(|q| format!(";q=0.{q:03}"))
        .unwrap_or_default();
    head.fmt(
        "Contact",
        format_args!("<{uri}>;expires={left}{q}{instance}"),
    );
}

#[cfg(test)]
pub(crate) mod tests;
