//! One registration of ours with a carrier (RFC 3261 §10.2): its data, the meaning of an answer to REGISTER, and the time of the next one. Sends
//! nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use trunkline_model::view::OutboundRoute;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::text;
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{CallId, Tag};
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use super::registrations::{RegistrationStatus, State};
use super::service_route::ServiceRouteFault;
use super::{PeerReply, service_route};
use crate::parts::target;
use crate::parts::target::{DialTarget, Target, UnresolvedTarget, default_port};
use crate::trust::digest_answers::DigestAnswers;

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(1_800);
/// Longest expiry that is requested, even if a carrier demands more.
const LONGEST: u32 = 7 * 86_400;
/// Most REGISTERs of one attempt to one address: the first, and those with credentials or a longer expiry. After them the attempt has
/// failed.
const MAX_REQUESTS: u8 = 8;

/// A trunk to register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisteringTrunk {
    /// The org.
    pub org: Uuid,
    /// The trunk, which has a peer and a log-in.
    pub way: Arc<OutboundRoute>,
    /// True if its user name is that of an inbound trunk here.
    pub shares_user: bool,
}

impl RegisteringTrunk {
    /// Returns whether it requests the same registration as `other`: learned realms don't matter.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let way = OutboundRoute {
            realms: Arc::clone(&other.way.realms),
            ..(*self.way).clone()
        };
        self.org == other.org && way == *other.way
    }
}

/// Trunks that other nodes have registered, with the hosts in the Contacts of the node that has.
pub type MovedTrunks = HashMap<Uuid, Arc<[String]>>;

/// Trunks that a node registers, of those that several nodes share out.
#[derive(Clone, Debug, Default)]
pub struct TrunkAssignment {
    /// Trunks of this node.
    pub ours: Vec<RegisteringTrunk>,
    /// Trunks that another node has registered.
    pub moved: MovedTrunks,
}

/// One registration.
#[derive(Debug)]
pub(super) struct CarrierRegistration {
    pub(super) registering: RegisteringTrunk,
    pub(super) call_id: CallId,
    pub(super) tag: Tag,
    pub(super) cseq: u32,
    /// Requested expiry, in seconds.
    pub(super) expires: u32,
    /// Addresses of this attempt that are still to be tried.
    pub(super) targets: VecDeque<Target>,
    /// The address of the last REGISTER.
    pub(super) current: Option<CarrierRegistrar>,
    pub(super) step: RegisterStep,
    pub(super) digest_answers: DigestAnswers,
    /// REGISTERs to the current address in this attempt.
    pub(super) requests: u8,
    /// The registration in force; `None` before the first one, and once it has expired.
    pub(super) granted: Option<GrantedRegistration>,
    /// Attempts that failed in a row.
    pub(super) failures: u32,
    /// Status of the last final answer; `None` if none came.
    pub(super) sip_code: Option<u16>,
    /// Time of the next attempt.
    pub(super) next_at: Option<Moment>,
    pub(super) timer: Option<TimerId>,
    /// `Some` while the registration is being removed: the one that replaces it then, or `None`.
    pub(super) end: Option<Option<RegisteringTrunk>>,
    /// Another node has registered the trunk, so that its end here isn't reported.
    pub(super) has_moved: bool,
}

/// Address and Contact of a REGISTER.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CarrierRegistrar {
    pub(super) target: Target,
    pub(super) flow: Flow,
    /// The URI in our Contact.
    pub(super) contact: String,
}

/// Step that is under way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RegisterStep {
    Nothing,
    /// The registrar's name is being looked up. The resolver always answers, within seconds.
    Resolving,
    /// The REGISTER of this number waits for its answer.
    Asking {
        number: u32,
        /// True if it removes the registration.
        leaving: bool,
    },
}

/// A registration that the carrier has granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GrantedRegistration {
    pub(super) since: Moment,
    pub(super) until: Moment,
    /// Route of calls by it, if its last 200 has one; or the reason why that one is ignored.
    pub(super) service_route: Result<Option<Arc<str>>, ServiceRouteFault>,
}

/// Content of a 200 that registers us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RegistrationGrant {
    /// The time until it expires.
    pub(super) seconds: u32,
    /// As in [`GrantedRegistration`].
    pub(super) service_route: Result<Option<Arc<str>>, ServiceRouteFault>,
}

/// Meaning of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegisterVerdict {
    /// We are registered.
    Granted(RegistrationGrant),
    /// A challenge, which may be answered.
    Challenged(u16),
    /// The carrier demands a longer expiry, in seconds.
    TooBrief(u32),
    /// Another address may accept it.
    TryNext(Option<u16>),
    /// The carrier refuses, and may say when to retry.
    Refused(u16, Option<Duration>),
}

impl CarrierRegistration {
    pub(super) fn new(
        registering: RegisteringTrunk,
        call_id: CallId,
        tag: Tag,
        expires: Duration,
    ) -> Self {
        Self {
            registering,
            call_id,
            tag,
            cseq: 0,
            expires: u32::try_from(expires.as_secs()).unwrap_or(LONGEST),
            targets: VecDeque::new(),
            current: None,
            step: RegisterStep::Nothing,
            digest_answers: DigestAnswers::default(),
            requests: 0,
            granted: None,
            failures: 0,
            sip_code: None,
            next_at: None,
            timer: None,
            end: None,
            has_moved: false,
        }
    }

    /// Registrar's URI for REGISTER (§10.2): without a user and transport.
    pub(super) fn dial_target(&self) -> Option<DialTarget> {
        let way = &self.registering.way;
        let (host, port) = way.peer.as_ref()?;
        let port = Some(*port).filter(|port| *port != default_port(way.transport));
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let uri: Box<str> = format!("sip:{host}{port}").into();
        let transport = way.transport.uri_name();
        let place = match target::dial_target(&format!("{uri};transport={transport}"))? {
            DialTarget::Resolved(target) => DialTarget::Resolved(Target { uri, ..target }),
            DialTarget::Unresolved(registrar) => {
                DialTarget::Unresolved(UnresolvedTarget { uri, ..registrar })
            }
        };
        Some(place.named(way.named))
    }

    /// Address of record: the user name at the carrier, or at the domain that the carrier requires in From.
    pub(super) fn address_of_record(&self) -> Option<String> {
        let way = &self.registering.way;
        let (host, _) = way.peer.as_ref()?;
        let host = way.from_host.as_deref().unwrap_or(host);
        let user = escaped(&way.login.as_ref()?.user);
        Some(format!("sip:{user}@{host}"))
    }

    /// Judges the answer to a REGISTER that requested `asked` seconds. `transports`: those by which a request can be sent.
    pub(super) fn judge(
        &self,
        reply: PeerReply<'_>,
        asked: u32,
        transports: &[Transport],
    ) -> RegisterVerdict {
        let message = match reply {
            PeerReply::Message(message) => message,
            PeerReply::Silence | PeerReply::Broken(_) => return RegisterVerdict::TryNext(None),
        };
        let retry = message.number(HeaderName::RetryAfter);
        let retry = retry.map(|seconds| Duration::from_secs(seconds.into()));
        let contact = self.current.as_ref();
        let contact = contact.map_or("", |current| &*current.contact);

        match message.status() {
            status @ 200..=299 => match granted(message, contact, asked) {
                // A 200 that grants our Contact no time leaves us unregistered.
                0 if asked > 0 => RegisterVerdict::Refused(status, retry),
                seconds => RegisterVerdict::Granted(RegistrationGrant {
                    seconds: seconds.min(LONGEST),
                    service_route: service_route::read(
                        message,
                        self.registering.way.transport,
                        transports,
                    ),
                }),
            },
            status @ (401 | 407) => RegisterVerdict::Challenged(status),
            status @ 423 => match message.number(HeaderName::MinExpires) {
                // A minimum that the request has met already would be asked for without end.
                Some(least) if least > asked && least <= LONGEST => {
                    RegisterVerdict::TooBrief(least)
                }
                Some(_) | None => RegisterVerdict::Refused(status, retry),
            },
            // RFC 3263 §4.3 goes on after 503 and silence; any 5xx may be the fault of this server alone, so it goes on
            // too.
            status @ (408 | 500..=599) => RegisterVerdict::TryNext(Some(status)),
            status => RegisterVerdict::Refused(status, retry),
        }
    }

    /// Returns whether one more REGISTER may follow in this attempt.
    pub(super) const fn may_ask_again(&self) -> bool {
        self.requests < MAX_REQUESTS
    }

    /// Notes that the carrier has registered us; the next REGISTER is sent well before the registration expires.
    pub(super) fn grant(&mut self, grant: RegistrationGrant, random: u64, now: Moment) {
        let lasts = Duration::from_secs(grant.seconds.into());
        let before = self.granted.as_ref();
        let is_same = |before: &GrantedRegistration| before.service_route == grant.service_route;
        // Reported once, not with each refresh.
        if let Err(fault) = &grant.service_route
            && !before.is_some_and(is_same)
        {
            let RegisteringTrunk { org, way, .. } = &self.registering;
            tracing::warn!(org.id = %org, trunk.id = %way.id, %fault, "a carrier's Service-Route is ignored: calls go to the trunk's host");
        }

        self.granted = Some(GrantedRegistration {
            since: before.map_or(now, |granted| granted.since),
            until: now + lasts,
            // RFC 3608 §6.1: the last answer counts, also if it has none.
            service_route: grant.service_route,
        });
        self.failures = 0;
        self.sip_code = Some(200);
        // Early enough for retries before the end, and spread so that trunks registered together part.
        self.next_at = Some(now + lasts * 3 / 4 + share(lasts / 8, random));
    }

    /// Notes a failed attempt: RFC 5626 §4.5 gives the time until the next.
    pub(super) fn fail(
        &mut self,
        sip_code: Option<u16>,
        retry_after: Option<Duration>,
        first: Duration,
        random: u64,
        now: Moment,
    ) {
        let doubled = first.saturating_mul(1 << self.failures.min(16));
        let granted = doubled.min(LONGEST_WAIT);
        let wait = granted / 2 + share(granted / 2, random);
        // The carrier may ask for more patience, but not for so much that the trunk stays down for days.
        let wait = wait.max(retry_after.unwrap_or_default().min(LONGEST_WAIT));
        self.failures = self.failures.saturating_add(1);
        self.sip_code = sip_code;
        self.next_at = Some(now + wait);
    }

    /// Returns when the next step is due: another REGISTER, or the report that the registration has ended.
    pub(super) fn due_at(&self) -> Option<Moment> {
        let until = self.granted.as_ref().map(|granted| granted.until);
        let next = self.next_at.filter(|_| self.step == RegisterStep::Nothing);
        [until, next].into_iter().flatten().min()
    }

    /// Returns whether our Contact is also that of a node with these hosts (RFC 3261 §19.1.4). The carrier then has one binding for both.
    pub(super) fn has_contact_of(&self, hosts: &[String]) -> bool {
        let own = self.current.as_ref().map(|current| &*current.contact);
        let Some((user, rest)) = own.and_then(|contact| contact.split_once('@')) else {
            return false;
        };
        let parameters = rest.find(';').map_or("", |at| &rest[at..]);
        let is_same = |host: &String| {
            let [own, other] = [rest.to_owned(), format!("{host}{parameters}")]
                .map(|rest| format!("{user}@{rest}"));
            match (Uri::parse(own.as_bytes()), Uri::parse(other.as_bytes())) {
                (Ok(own), Ok(other)) => own.is_same(&other),
                (_, _) => false,
            }
        };
        hosts.iter().any(is_same)
    }

    pub(super) fn status(&self) -> RegistrationStatus {
        let state = match (&self.granted, self.failures) {
            (Some(_), _) => State::Registered,
            (None, 0) => State::Registering,
            (None, _) => State::Failed,
        };
        let granted = self.granted.as_ref();
        RegistrationStatus {
            state,
            registered_at: granted.map(|granted| granted.since),
            expires_at: granted.map(|granted| granted.until),
            sip_code: self.sip_code,
            next_at: self.next_at,
            service_route: granted
                .and_then(|granted| granted.service_route.as_ref().ok())
                .and_then(Option::clone),
        }
    }
}

/// Returns a random part of a time, evenly distributed.
pub(super) fn share(whole: Duration, random: u64) -> Duration {
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    let part = (u128::from(micros) * u128::from(random)) >> 64;
    Duration::from_micros(u64::try_from(part).unwrap_or(micros))
}

/// Returns the expiry of our registration: that of our own Contact, else the least of those listed, else that of the whole answer (§10.2.4).
fn granted(message: &Message<'_>, contact: &str, asked: u32) -> u32 {
    let ours = Uri::parse(contact.as_bytes()).ok();
    let whole = message.number(HeaderName::Expires).unwrap_or(asked);
    let expiry = |listed: &NameAddr<'_>| {
        let own = listed.param("expires").flatten();
        let own = own.and_then(|value| text::delta_seconds(&text::unquote(value)));
        own.unwrap_or(whole)
    };
    let is_ours = |listed: &NameAddr<'_>| match (listed.parse_uri(), &ours) {
        (Ok(uri), Some(ours)) => uri.is_same(ours),
        _ => false,
    };

    // The answer lists every Contact of the address of record, those of other devices as well.
    let listed = message
        .elements(HeaderName::Contact)
        .filter_map(|element| NameAddr::parse(element).ok());
    let mut least = None;
    for contact in listed {
        let seconds = expiry(&contact);
        if is_ours(&contact) {
            return seconds;
        }
        // A carrier may write our Contact as it sees it. Which of several it is isn't known, so that the first to end counts.
        least = Some(least.map_or(seconds, |least: u32| least.min(seconds)));
    }
    least.unwrap_or(whole)
}

/// Escapes a user name for a URI (§25.1, user).
fn escaped(user: &str) -> String {
    let mut out = String::with_capacity(user.len());
    for octet in user.bytes() {
        if octet.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/".contains(&octet) {
            out.push(char::from(octet));
        } else {
            out.push_str(&format!("%{octet:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_sip::wire::{Framing, lex};

    #[test]
    fn a_registration_lasts_as_long_as_its_contact() {
        const OURS: &str = "sip:us@192.0.2.1:5060";
        for (name, lines, seconds) in [
            ("nothing", "", 3600),
            ("the whole answer", "Expires: 600\r\n", 600),
            (
                "ours",
                "Contact: <sip:us@192.0.2.1>;expires=120\r\nExpires: 600\r\n",
                120,
            ),
            (
                "ours without a time",
                "Contact: <sip:us@192.0.2.1:5060>\r\nExpires: 600\r\n",
                600,
            ),
            (
                "ours among others",
                "Contact: <sip:a@h>;expires=30, <sip:us@192.0.2.1:5060>;expires=120\r\n",
                120,
            ),
            (
                "the sole one, as the carrier sees it",
                "Contact: <sip:us@203.0.113.9:1024>;expires=60\r\n",
                60,
            ),
            (
                "the least of several",
                "Contact: <sip:a@h>;expires=300\r\nm: <sip:b@h>;expires=\"90\"\r\nExpires: 600\r\n",
                90,
            ),
            (
                "the sole one without a time",
                "Contact: <sip:a@h>\r\nExpires: 600\r\n",
                600,
            ),
            (
                "one that can't be read",
                "Contact: <sip:\r\nExpires: 600\r\n",
                600,
            ),
        ] {
            let octets = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:us@h>;tag=1\r\nTo: <sip:us@h>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 REGISTER\r\n{lines}Content-Length: 0\r\n\r\n"
            );
            let answer = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
            assert_eq!(granted(&answer, OURS, 3600), seconds, "{name}");
        }
    }
}
